//! Code of run-time compilers, as described in jitdump files and perf maps.
//!
//! Addresses are reused, so each function gets its own range in its module, in order of creation. The start of that
//! range, not the address, is the offset of its code's origin.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use hodo_code::{AddressSpace, Content, Origin};
use hodo_symbols::{JitDump, JitRecordKind, Module, perf_map};

/// Budget per function for pieces of overlapping functions: real files need few, and a file beyond that is rejected
/// because it would take too long.
const PIECES_PER_FUNCTION: usize = 64;

/// All functions of run-time compilers.
#[derive(Debug, Default)]
pub(crate) struct Generated<'f> {
    /// The function at each address and time in each process, on the files' own clock.
    functions: BTreeMap<u32, AddressSpace<'f>>,
    /// Code of jitdump files, in their order.
    loads: Vec<Load<'f>>,
}

/// Code that is placed at an address range.
#[derive(Clone, Debug)]
pub(crate) struct Load<'f> {
    /// The process.
    pub(crate) pid: u32,
    /// Time on the file's clock.
    pub(crate) time: u64,
    /// Whether the file's times are ticks of the time-stamp counter.
    pub(crate) in_ticks: bool,
    /// The address range.
    pub(crate) range: Range<u64>,
    /// The code and its origin.
    pub(crate) content: Content<'f>,
}

/// Functions of a module, one after the other.
#[derive(Default)]
struct ListedFunctions<'f> {
    functions: Vec<(Range<u64>, &'f [u8])>,
    end: u64,
}

impl<'f> ListedFunctions<'f> {
    fn push(&mut self, size: u64, name: &'f [u8]) -> u64 {
        let start = self.end;
        self.end = start.saturating_add(size);
        self.functions.push((start..self.end, name));
        start
    }

    fn module(&self, name: &str) -> Module {
        Module::of_functions(name, std::slice::from_ref(&(0..self.end)), &self.functions)
    }
}

impl<'f> Generated<'f> {
    /// Reads the jitdump of a process as the module numbered `module`. Returns its functions, and what is wrong with
    /// the file.
    pub(crate) fn read_dump(
        &mut self,
        name: &str,
        bytes: &'f [u8],
        pid: u32,
        module: u32,
    ) -> (Module, Option<String>) {
        let mut listed = ListedFunctions::default();
        let dump = match JitDump::parse(bytes) {
            Ok(dump) => dump,
            Err(problem) => return (listed.module(name), Some(problem)),
        };
        let mut problem = None;
        let mut budget = PIECES_PER_FUNCTION;
        let mut loaded: HashMap<u64, Content<'f>> = HashMap::new();
        for record in dump.records() {
            let (time, loaded_code) = match record {
                Err(error) => {
                    problem = Some(error);
                    break;
                }
                Ok(record) => match record.kind {
                    JitRecordKind::Load { address, code, size, index, name } => {
                        let origin = Origin { module, offset: listed.push(size, name) };
                        let content = Content { bytes: code, origin };
                        loaded.insert(index, content);
                        (record.time, Some((address, size, content)))
                    }
                    JitRecordKind::Move { to, size, index, .. } => {
                        (record.time, loaded.get(&index).map(|&content| (to, size, content)))
                    }
                    JitRecordKind::Close => break,
                    _ => continue,
                },
            };
            let Some((address, size, content)) = loaded_code else { continue };
            let range = address..address.saturating_add(size);
            budget = match self.place(pid, range.clone(), content.origin, time, budget) {
                Some(budget) => budget,
                None => {
                    problem = Some("too many of its functions overlap".to_owned());
                    break;
                }
            };
            self.loads.push(Load { pid, time, in_ticks: dump.in_ticks, range, content });
        }
        (listed.module(name), problem)
    }

    /// Reads the perf map of a process as the module numbered `module`. A perf map has no times: the last of several
    /// functions at one address is assumed to have been there from the start.
    pub(crate) fn read_map(
        &mut self,
        name: &str,
        bytes: &'f [u8],
        pid: u32,
        module: u32,
    ) -> (Module, Option<String>) {
        let mut listed = ListedFunctions::default();
        const START: u64 = 0;
        let mut budget = PIECES_PER_FUNCTION;
        for entry in perf_map(bytes) {
            let origin = Origin { module, offset: listed.push(entry.size, entry.name) };
            let range = entry.address..entry.address.saturating_add(entry.size);
            budget = match self.place(pid, range, origin, START, budget) {
                Some(budget) => budget,
                None => {
                    let problem = "too many of its functions overlap".to_owned();
                    return (listed.module(name), Some(problem));
                }
            };
        }
        (listed.module(name), None)
    }

    /// Places a function at a range from `time` on. Returns the remaining budget, which grows with each function, or
    /// `None` if too many functions overlap.
    fn place(
        &mut self,
        pid: u32,
        range: Range<u64>,
        origin: Origin,
        time: u64,
        budget: usize,
    ) -> Option<usize> {
        let pieces = self.functions.entry(pid).or_default().map(range, Content { bytes: &[], origin }, time);
        budget.saturating_add(PIECES_PER_FUNCTION).checked_sub(pieces)
    }

    /// Returns the function at an address at a time of the files' clock, and the address up to which the answer holds.
    pub(crate) fn at(&self, pid: u32, address: u64, time: u64) -> (Option<Origin>, u64) {
        let Some(functions) = self.functions.get(&pid) else { return (None, u64::MAX) };
        let found = functions.at(address, time).map(|(content, _)| content.origin);
        (found, functions.boundary(address))
    }

    /// Returns whether a file describes a process.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.functions.contains_key(&pid)
    }

    /// Returns the code of jitdump files, in their order.
    pub(crate) fn loads(&self) -> &[Load<'f>] {
        &self.loads
    }

    /// Returns the code that a jitdump has of a function, from this offset in its module on.
    pub(crate) fn code(&self, origin: Origin) -> Option<&'f [u8]> {
        self.loads.iter().find_map(|load| {
            let Content { bytes, origin: begin } = load.content;
            let skip = origin.offset.checked_sub(begin.offset).filter(|_| begin.module == origin.module)?;
            bytes.get(usize::try_from(skip).ok()?..).filter(|bytes| !bytes.is_empty())
        })
    }
}

/// Returns whether a mapping's name marks a jitdump: `jit-PID.dump`. A process maps its jitdump so that tools find it.
pub(crate) fn is_jitdump(name: &[u8]) -> bool {
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let pid = file.strip_prefix(b"jit-").and_then(|rest| rest.strip_suffix(b".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_functions_at_one_address_a_perf_map_means_the_last() {
        let mut generated = Generated::default();
        let map = b"1000 20 first\n1100 10 other\n1000 10 second\n";
        let (module, problem) = generated.read_map("/tmp/perf-7.map", map, 7, 3);
        assert_eq!(problem, None);
        let name = |address| {
            let origin = generated.at(7, address, 0).0?;
            Some(module.function(module.function_at(origin.offset)).raw_name())
        };
        assert_eq!([0x1000, 0x1010, 0x1020].map(name), [Some("second"), Some("first"), None]);
        assert_eq!(generated.at(7, 0x1020, 0), (None, 0x1100));
        assert_eq!(generated.at(8, 0x1000, 0), (None, u64::MAX));
    }

    #[test]
    fn a_map_with_too_many_overlapping_functions_is_rejected() {
        let small: String = (0..2000).map(|index| format!("{:x} 8 small\n", index * 16)).collect();
        let large = "0 ffffff large\n".repeat(2000);
        let map = small + &large;
        let mut generated = Generated::default();
        let (_, problem) = generated.read_map("perf-7.map", map.as_bytes(), 7, 3);
        assert!(problem.is_some_and(|problem| problem.contains("overlap")));
    }

    #[test]
    fn a_jitdump_is_known_by_its_name() {
        assert!(is_jitdump(b"/tmp/jit-12.dump") && is_jitdump(b"jit-1.dump"));
        assert!(!is_jitdump(b"/tmp/jit-.dump") && !is_jitdump(b"/tmp/jit-1x.dump") && !is_jitdump(b"//anon"));
    }
}
