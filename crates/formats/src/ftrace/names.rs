//! Names of addresses and thread ids: functions, kernel strings, threads.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

/// A list of names in text form, parsed on first use.
#[derive(Clone, Debug)]
pub struct Names(Arc<List>);

#[derive(Debug)]
struct List {
    text: Vec<u8>,
    kind: Kind,
    /// Numbers, and the ranges of their names in the text, in ascending order.
    sorted: OnceLock<Vec<(u64, Range<usize>)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `ffffffff810000f0 T secondary_startup`: /proc/kallsyms.
    Symbols,
    /// `0xffffffff828195af : "thaw_processes"`: printk_formats.
    Texts,
    /// `23809 bash`: saved_cmdlines.
    Threads,
}

impl PartialEq for Names {
    fn eq(&self, other: &Names) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Names {
    fn new(text: &[u8], kind: Kind) -> Names {
        Names(Arc::new(List { text: text.to_owned(), kind, sorted: OnceLock::new() }))
    }

    /// Names by number, in any order.
    pub(crate) fn numbered(names: impl Iterator<Item = (u64, Vec<u8>)>) -> Names {
        let (mut text, mut sorted) = (Vec::new(), Vec::new());
        for (number, name) in names {
            sorted.push((number, text.len()..text.len() + name.len()));
            text.extend(name);
        }
        sorted.sort_by_key(|(number, _)| *number);
        Names(Arc::new(List { text, kind: Kind::Threads, sorted: OnceLock::from(sorted) }))
    }

    /// Function names by address.
    pub(crate) fn symbols(text: &[u8]) -> Names {
        Names::new(text, Kind::Symbols)
    }

    /// Kernel strings by address.
    pub(crate) fn texts(text: &[u8]) -> Names {
        Names::new(text, Kind::Texts)
    }

    /// Thread names by thread id.
    pub(crate) fn threads(text: &[u8]) -> Names {
        Names::new(text, Kind::Threads)
    }

    /// Whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.text.is_empty()
    }

    /// The name of a number; for an address in code, that of the function around it.
    pub fn get(&self, number: u64) -> Option<&[u8]> {
        let sorted = self.0.sorted.get_or_init(|| self.0.sort());
        let index = sorted.partition_point(|(other, _)| *other <= number).checked_sub(1)?;
        let (nearest, name) = &sorted[index];
        if self.0.kind == Kind::Symbols {
            // Among symbols at the same address, the first in the list wins.
            let first = sorted.partition_point(|(other, _)| other < nearest);
            let (_, name) = &sorted[first];
            return Some(&self.0.text[name.clone()]);
        }
        (*nearest == number).then(|| &self.0.text[name.clone()])
    }
}

impl List {
    fn sort(&self) -> Vec<(u64, Range<usize>)> {
        let mut sorted = Vec::new();
        let mut start = 0;
        for line in self.text.split_inclusive(|&byte| byte == b'\n') {
            let end = start + line.len();
            let entry = self.line(line.trim_ascii_end());
            sorted.extend(entry.map(|(number, name)| (number, start + name.start..start + name.end)));
            start = end;
        }
        // A stable sort: the first of several lines for a number stays first.
        sorted.sort_by_key(|(number, _)| *number);
        sorted
    }

    /// Parses the number of a line and the range of its name.
    fn line(&self, line: &[u8]) -> Option<(u64, Range<usize>)> {
        let text = std::str::from_utf8(line).ok()?;
        let (number, rest) = text.split_once(' ')?;
        let range = |part: &str| {
            let start = part.as_ptr() as usize - text.as_ptr() as usize;
            start..start + part.len()
        };
        match self.kind {
            Kind::Symbols => {
                let (_kind, name) = rest.split_once(' ')?;
                let name = name.split('\t').next().unwrap_or(name);
                let address = u64::from_str_radix(number, 16).ok().filter(|&address| address != 0)?;
                Some((address, range(name)))
            }
            Kind::Texts => {
                let text = rest.strip_prefix(": \"")?.strip_suffix('"')?;
                Some((u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()?, range(text)))
            }
            Kind::Threads => Some((number.parse().ok()?, range(rest))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_any_of_their_addresses() {
        let names =
            Names::symbols(b"1000 T first\n1000 t alias\n0 A none\n2000 t module_start\t[module]\nrubbish\n");
        assert_eq!(names.get(0xfff), None);
        assert_eq!(names.get(0x1000), Some(&b"first"[..]));
        assert_eq!(names.get(0x1fff), Some(&b"first"[..]));
        assert_eq!(names.get(0x2001), Some(&b"module_start"[..]));
    }

    #[test]
    fn texts_and_threads_are_found_by_their_own_numbers_only() {
        let texts = Names::texts(b"0x10 : \"a \"b\"\"\n");
        assert_eq!((texts.get(16), texts.get(17)), (Some(&b"a \"b\""[..]), None));
        let threads = Names::threads(b"15 rcu_preempt\n23805 opt cgu.0\n");
        assert_eq!((threads.get(23805), threads.get(16)), (Some(&b"opt cgu.0"[..]), None));
    }
}
