//! The code of one process over time.

use std::{collections::BTreeMap, ops::Range};

/// Where mapped bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Index of the module, in the caller's list.
    pub module: u32,
    /// Offset in the module of the first mapped byte.
    pub offset: u64,
}

/// What a range of addresses holds.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The bytes from the range's first address on; shorter than the range, or empty, where they are
    /// not known.
    pub bytes: &'a [u8],
    /// Where they come from.
    pub origin: Origin,
}

impl<'a> Content<'a> {
    /// The same content from `skip` bytes further on.
    fn after(self, skip: u64) -> Content<'a> {
        let start = usize::try_from(skip).unwrap_or(usize::MAX).min(self.bytes.len());
        Content {
            bytes: &self.bytes[start..],
            origin: Origin { offset: self.origin.offset.wrapping_add(skip), ..self.origin },
        }
    }
}

/// Width of the processor's execution mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bits {
    /// 16-bit code.
    B16 = 16,
    /// 32-bit code.
    B32 = 32,
    /// 64-bit code.
    B64 = 64,
}

/// One content of a slot, and the ticks during which it is there.
#[derive(Clone, Debug)]
struct Version<'a> {
    content: Content<'a>,
    valid: Range<u64>,
}

/// A range of addresses whose versions all cover it whole.
#[derive(Clone, Debug)]
struct Slot<'a> {
    end: u64,
    versions: Vec<Version<'a>>,
}

/// What one process had mapped, at each tick of the trace's clock.
///
/// Sideband and trace clocks agree only roughly, so a mapping is there *from the beginning* unless
/// something else was at its addresses before it.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace<'a> {
    slots: BTreeMap<u64, Slot<'a>>,
    versioned: bool,
}

impl<'a> AddressSpace<'a> {
    /// An address space with nothing mapped.
    pub fn new() -> AddressSpace<'a> {
        AddressSpace::default()
    }

    /// Whether some address holds different code at different ticks.
    pub fn is_versioned(&self) -> bool {
        self.versioned
    }

    /// Maps `content` at `range` from tick `at` on, in place of what was there. To be called in order
    /// of `at`.
    pub fn map(&mut self, range: Range<u64>, content: Content<'a>, at: u64) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let mut position = range.start;
        while position < range.end {
            let next = self.slots.range(position..range.end).next().map(|(&start, slot)| (start, slot.end));
            let here = content.after(position - range.start);
            let end = match next {
                Some((start, end)) if start == position => {
                    self.replace(start, here, at);
                    end
                }
                other => {
                    let end = other.map_or(range.end, |(start, _)| start);
                    let versions = vec![Version { content: here, valid: 0..u64::MAX }];
                    self.slots.insert(position, Slot { end, versions });
                    end
                }
            };
            position = end;
        }
    }

    /// Ends every mapping at tick `at`: the process executed another program.
    pub fn unmap_all(&mut self, at: u64) {
        for version in self.slots.values_mut().filter_map(|slot| slot.versions.last_mut()) {
            version.valid.end = version.valid.end.min(at);
        }
    }

    /// What a process has that was forked off at tick `at`.
    pub fn fork(&self, at: u64) -> AddressSpace<'a> {
        let mut child = AddressSpace::new();
        for (&start, slot) in &self.slots {
            if let Some(version) = slot.versions.iter().find(|version| version.valid.contains(&at)) {
                let versions = vec![Version { content: version.content, valid: 0..u64::MAX }];
                child.slots.insert(start, Slot { end: slot.end, versions });
            }
        }
        child
    }

    /// The bytes from `address` to the end of its slot at tick `at`, where they come from, and the
    /// ticks during which they are there; `None` where nothing is mapped.
    pub fn at(&self, address: u64, at: u64) -> Option<(Content<'a>, Range<u64>)> {
        let (&start, slot) = self.slots.range(..=address).next_back()?;
        if address >= slot.end {
            return None;
        }
        let version = slot.versions.iter().rev().find(|version| version.valid.contains(&at))?;
        let mut content = version.content;
        let length = usize::try_from(slot.end - start).unwrap_or(usize::MAX).min(content.bytes.len());
        content.bytes = &content.bytes[..length];
        Some((content.after(address - start), version.valid.clone()))
    }

    /// Makes `address` a boundary between slots.
    fn split(&mut self, address: u64) {
        let Some((&start, slot)) = self.slots.range_mut(..address).next_back() else { return };
        if slot.end <= address {
            return;
        }
        let skip = address - start;
        let tail = slot
            .versions
            .iter()
            .map(|version| Version { content: version.content.after(skip), valid: version.valid.clone() })
            .collect();
        let end = std::mem::replace(&mut slot.end, address);
        self.slots.insert(address, Slot { end, versions: tail });
    }

    /// Puts a new version into the slot at `start`, unless it holds the same bytes already.
    fn replace(&mut self, start: u64, content: Content<'a>, at: u64) {
        let Some(slot) = self.slots.get_mut(&start) else { return };
        let length = usize::try_from(slot.end - start).unwrap_or(usize::MAX);
        let clip = |bytes: &'a [u8]| &bytes[..length.min(bytes.len())];
        match slot.versions.last_mut() {
            Some(last) if last.valid.end == u64::MAX => {
                let (before, now) = (clip(last.content.bytes), clip(content.bytes));
                // Bytes that are not known are the same where they come from the same place.
                if before == now && (!now.is_empty() || last.content.origin == content.origin) {
                    return;
                }
                // Code that becomes known was there before: clocks agree only roughly.
                if before.is_empty() && !now.is_empty() {
                    last.content = content;
                    return;
                }
                last.valid.end = at;
                slot.versions.push(Version { content, valid: at..u64::MAX });
            }
            Some(last) => {
                let from = last.valid.end;
                slot.versions.push(Version { content, valid: from..u64::MAX });
            }
            None => slot.versions.push(Version { content, valid: 0..u64::MAX }),
        }
        self.versioned = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: &[u8], module: u32) -> Content<'_> {
        Content { bytes, origin: Origin { module, offset: 0 } }
    }

    fn byte(space: &AddressSpace<'_>, address: u64, at: u64) -> Option<u8> {
        space.at(address, at).and_then(|(content, _)| content.bytes.first().copied())
    }

    #[test]
    fn a_mapping_is_there_from_the_beginning_unless_something_was_there_before() {
        let mut space = AddressSpace::new();
        space.map(10..14, content(b"aaaa", 0), 5);
        assert_eq!(byte(&space, 10, 0), Some(b'a'));
        assert!(!space.is_versioned());
        space.map(12..16, content(b"bbbb", 1), 20);
        assert_eq!(byte(&space, 13, 19), Some(b'a'));
        assert_eq!(byte(&space, 13, 20), Some(b'b'));
        assert_eq!(byte(&space, 15, 0), Some(b'b'));
        assert_eq!(byte(&space, 16, 20), None);
        assert!(space.is_versioned());
    }

    #[test]
    fn execution_of_another_program_ends_what_was_mapped() {
        let mut space = AddressSpace::new();
        space.map(10..12, content(b"aa", 0), 0);
        let child = space.fork(5);
        space.unmap_all(10);
        space.map(10..12, content(b"bb", 1), 11);
        assert_eq!(byte(&space, 10, 9), Some(b'a'));
        assert_eq!(byte(&space, 10, 10), Some(b'b'));
        assert_eq!(byte(&child, 11, 99), Some(b'a'));
    }

    #[test]
    fn the_same_bytes_again_are_no_new_version() {
        let mut space = AddressSpace::new();
        space.map(10..14, content(b"abcd", 0), 0);
        space.map(12..16, content(b"cdef", 1), 9);
        assert!(!space.is_versioned());
        assert_eq!(byte(&space, 15, 0), Some(b'f'));
    }

    #[test]
    fn code_may_be_written_anew_at_its_address() {
        let mut space = AddressSpace::new();
        space.map(10..12, content(b"aa", 0), 0);
        space.map(10..12, content(b"bb", 0), 5);
        space.map(10..12, content(b"aa", 0), 9);
        assert_eq!([4, 5, 8, 9].map(|at| byte(&space, 10, at)), [b'a', b'b', b'b', b'a'].map(Some));
    }

    #[test]
    fn code_that_becomes_known_was_there_before() {
        let mut space = AddressSpace::new();
        space.map(10..20, content(b"", 0), 0);
        space.map(12..14, content(b"cc", 1), 7);
        assert_eq!(byte(&space, 13, 0), Some(b'c'));
        assert!(!space.is_versioned());
    }

    #[test]
    fn bytes_that_are_not_known_are_missing_not_wrong() {
        let mut space = AddressSpace::new();
        space.map(10..20, content(b"ab", 0), 0);
        assert_eq!(byte(&space, 11, 0), Some(b'b'));
        assert_eq!(space.at(15, 0).map(|(content, _)| content.bytes.len()), Some(0));
    }
}
