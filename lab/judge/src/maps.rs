//! The mappings of code, as perf prints them.

use std::collections::BTreeMap;

/// A file mapped for execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) pid: u32,
    pub(super) begin: u64,
    pub(super) length: u64,
    pub(super) offset: u64,
    pub(super) path: String,
}

impl Map {
    /// Parses a line such as `… PERF_RECORD_MMAP2 1/1: [0x401000(0x1000) @ 0x1000 08:01 5 0]: r-xp /bin/true`.
    pub(super) fn parse(line: &str) -> Option<Map> {
        let (_, rest) = line.split_once("PERF_RECORD_MMAP2 ")?;
        let (pid, rest) = rest.split_once('/')?;
        let (_, rest) = rest.split_once(": [0x")?;
        let (begin, rest) = rest.split_once("(0x")?;
        let (length, rest) = rest.split_once(") @ ")?;
        let (offset, rest) = rest.split_once([' ', ']'])?;
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let path = rest.rsplit_once(' ')?.1.to_owned();
        Some(Map {
            pid: pid.parse().ok()?,
            begin: hex(begin)?,
            length: hex(length)?,
            offset: hex(offset)?,
            path,
        })
    }

    /// Whether both cover an address, but with different bytes of a file or different files.
    fn contradicts(&self, other: &Map) -> bool {
        let overlap = self.begin < other.begin + other.length && other.begin < self.begin + self.length;
        let same = self.path == other.path
            && self.begin.wrapping_sub(self.offset) == other.begin.wrapping_sub(other.offset);
        overlap && !same
    }
}

/// The mappings of a process since it executed a program.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Begin in nanoseconds.
    from: u64,
    pub(super) maps: Vec<Map>,
}

impl Image {
    /// Whether code at an address was replaced.
    pub(super) fn changes(&self) -> bool {
        let later = |index: usize| &self.maps[index + 1..];
        self.maps
            .iter()
            .enumerate()
            .any(|(index, map)| later(index).iter().any(|other| map.contradicts(other)))
    }
}

/// The programs that each process executed, in order.
#[derive(Debug, Default)]
pub(super) struct Images(BTreeMap<u32, Vec<Image>>);

impl Images {
    /// Parses perf's lines of mappings and tasks.
    pub(super) fn read(lines: &str) -> Images {
        let mut images = Images::default();
        for line in lines.lines() {
            if let Some(map) = Map::parse(line) {
                images.latest(map.pid).maps.push(map);
            } else if let Some(Fork { child, parent }) = fork(line) {
                let inherited = Image { from: 0, ..images.latest(parent).clone() };
                images.0.insert(child, vec![inherited]);
            } else if let Some(pid) = executing(line) {
                let from = time(line).unwrap_or(0);
                images.0.entry(pid).or_default().push(Image { from, maps: Vec::new() });
            }
        }
        images
    }

    fn latest(&mut self, pid: u32) -> &mut Image {
        let images = self.0.entry(pid).or_default();
        if images.is_empty() {
            images.push(Image::default());
        }
        images.last_mut().expect("one was just added where there was none")
    }

    /// The mappings of a process at a time.
    pub(super) fn at(&self, pid: u32, time: u64) -> Option<&Image> {
        self.0.get(&pid)?.iter().rev().find(|image| image.from <= time)
    }
}

struct Fork {
    child: u32,
    parent: u32,
}

/// The processes in a line such as `… PERF_RECORD_FORK(8:8):(7:7)`; `None` if a thread was made.
fn fork(line: &str) -> Option<Fork> {
    let (_, rest) = line.split_once("PERF_RECORD_FORK(")?;
    let (child, rest) = rest.split_once(':')?;
    let (parent, _) = rest.split_once("):(")?.1.split_once(':')?;
    let fork = Fork { child: child.parse().ok()?, parent: parent.parse().ok()? };
    (fork.child != fork.parent).then_some(fork)
}

/// The process in a line such as `… PERF_RECORD_COMM exec: true:8/8`.
fn executing(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("PERF_RECORD_COMM exec: ")?;
    rest.rsplit_once(':')?.1.split('/').next()?.parse().ok()
}

/// The time in a line such as `true 8 [000] 1.000000005: PERF_RECORD_…`, in nanoseconds.
fn time(line: &str) -> Option<u64> {
    let before = line.split_once(": PERF_RECORD_")?.0;
    before.rsplit(' ').next()?.replace('.', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
sh 7 [000] 1.000000000: PERF_RECORD_COMM exec: sh:7/7
sh 7 [000] 1.000000000: PERF_RECORD_MMAP2 7/7: [0x401000(0x2000) @ 0x1000 08:01 5 0]: r-xp /bin/sh
sh 7 [000] 1.000000100: PERF_RECORD_FORK(8:8):(7:7)
sh 8 [000] 1.000000200: PERF_RECORD_COMM exec: true:8/8
true 8 [000] 1.000000200: PERF_RECORD_MMAP2 8/8: [0x401000(0x1000) @ 0 <be63>]: r-xp /bin/true";

    #[test]
    fn a_process_has_its_parents_code_until_it_executes_a_program() {
        let images = Images::read(LINES);
        let paths = |pid, time| -> Vec<&str> {
            images.at(pid, time).into_iter().flat_map(|image| &image.maps).map(|map| &*map.path).collect()
        };
        assert_eq!(paths(7, 1_000_000_300), ["/bin/sh"]);
        assert_eq!(paths(8, 1_000_000_150), ["/bin/sh"]);
        assert_eq!(paths(8, 1_000_000_200), ["/bin/true"]);
        let map = &images.at(7, 1_000_000_000).expect("an image").maps[0];
        assert_eq!((map.begin, map.length, map.offset), (0x40_1000, 0x2000, 0x1000));
    }

    #[test]
    fn code_that_comes_where_other_code_was_is_noticed() {
        let map =
            |begin, offset, path: &str| Map { pid: 1, begin, length: 0x1000, offset, path: path.to_owned() };
        let image = |maps: &[Map]| Image { from: 0, maps: maps.to_vec() };
        assert!(!image(&[map(0, 0, "a"), map(0x800, 0x800, "a"), map(0x1800, 0, "b")]).changes());
        assert!(image(&[map(0, 0, "a"), map(0x800, 0, "a")]).changes());
        assert!(image(&[map(0, 0, "a"), map(0x800, 0x800, "b")]).changes());
    }
}
