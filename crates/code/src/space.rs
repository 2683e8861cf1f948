//! The code of one process over time.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Where mapped bytes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Index of the module, in the caller's list.
    pub module: u32,
    /// Offset in the module of the first mapped byte.
    pub offset: u64,
}

/// The content of an address range.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The bytes from the range's first address on. They end early, or are empty, if the rest is unknown.
    pub bytes: &'a [u8],
    /// Where they come from.
    pub origin: Origin,
}

impl<'a> Content<'a> {
    /// Returns the content without its first `skip` bytes.
    fn after(self, skip: u64) -> Content<'a> {
        let start = usize::try_from(skip).unwrap_or(usize::MAX).min(self.bytes.len());
        Content {
            bytes: &self.bytes[start..],
            origin: Origin { offset: self.origin.offset.wrapping_add(skip), ..self.origin },
        }
    }
}

/// One content of a slot, and the ticks during which it is valid.
#[derive(Clone, Debug)]
struct Version<'a> {
    content: Content<'a>,
    valid: Range<u64>,
}

/// A range of addresses; each of its versions covers all of it.
#[derive(Clone, Debug)]
struct Slot<'a> {
    end: u64,
    /// Ordered by the first tick of their validity; never empty, and the last one is valid forever.
    versions: Vec<Version<'a>>,
}

impl<'a> Slot<'a> {
    /// Returns the version at a tick.
    fn version(&self, tick: u64) -> Option<&Version<'a>> {
        let after = self.versions.partition_point(|version| version.valid.start <= tick);
        self.versions[..after].last().filter(|version| version.valid.contains(&tick))
    }
}

/// The mappings of one process at each tick of the trace's clock.
///
/// Sideband and trace clocks agree only roughly, so a mapping is there *from the beginning* unless something else was
/// at its addresses before it.
///
/// Kernel code is the same for all processes and is stored once.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace<'a> {
    /// Shared with child processes until one of them maps something.
    slots: Arc<BTreeMap<u64, Slot<'a>>>,
    versioned: bool,
    kernel: Option<Arc<AddressSpace<'a>>>,
}

/// The first address of the kernel's half (SDM vol. 1, "Canonical Addressing"): bit 63 is set.
const KERNEL: u64 = 1 << 63;

impl<'a> AddressSpace<'a> {
    /// Creates an address space with nothing mapped.
    pub fn new() -> AddressSpace<'a> {
        AddressSpace::default()
    }

    /// Returns whether nothing is ever mapped.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns whether some address holds different code at different ticks.
    pub fn is_versioned(&self) -> bool {
        self.versioned
    }

    /// Uses `kernel` for kernel addresses, in place of what this address space maps there.
    pub fn set_kernel(&mut self, kernel: Arc<AddressSpace<'a>>) {
        self.versioned |= kernel.versioned;
        self.kernel = Some(kernel);
    }

    /// Maps `content` at `range` from `tick` on, in place of the previous content. Calls must be in the order of
    /// `tick`. Returns the number of pieces that the range is then divided into.
    pub fn map(&mut self, range: Range<u64>, content: Content<'a>, tick: u64) -> usize {
        if range.is_empty() {
            return 0;
        }
        let mut pieces = 0;
        self.split(range.start);
        self.split(range.end);
        let mut position = range.start;
        while position < range.end {
            let next = self.slots.range(position..range.end).next().map(|(&start, slot)| (start, slot.end));
            let here = content.after(position - range.start);
            let end = match next {
                Some((start, end)) if start == position => {
                    self.replace(start, here, tick);
                    end
                }
                other => {
                    let end = other.map_or(range.end, |(start, _)| start);
                    let versions = vec![Version { content: here, valid: 0..u64::MAX }];
                    Arc::make_mut(&mut self.slots).insert(position, Slot { end, versions });
                    end
                }
            };
            position = end;
            pieces += 1;
        }
        pieces
    }

    /// Changes the origin of the bytes at `range` from `tick` on: `origin` is that of the first byte.
    pub fn relabel(&mut self, range: Range<u64>, origin: Origin, tick: u64) {
        self.split(range.start);
        self.split(range.end);
        let mut relabelled = Vec::new();
        for (&start, slot) in self.slots.range(range.clone()) {
            let offset = origin.offset.wrapping_add(start - range.start);
            if let Some(Version { content: Content { bytes, .. }, .. }) = slot.versions.last()
                && !bytes.is_empty()
            {
                relabelled.push((start..slot.end, Content { bytes, origin: Origin { offset, ..origin } }));
            }
        }
        for (addresses, content) in relabelled {
            self.map(addresses, content, tick);
        }
    }

    /// Returns the address space of a process forked at `tick`.
    pub fn fork(&self, tick: u64) -> AddressSpace<'a> {
        if !self.versioned {
            return self.clone();
        }
        let slots = self.slots.iter().filter_map(|(&start, slot)| {
            let content = slot.version(tick)?.content;
            Some((start, Slot { end: slot.end, versions: vec![Version { content, valid: 0..u64::MAX }] }))
        });
        AddressSpace { slots: Arc::new(slots.collect()), versioned: false, kernel: self.kernel.clone() }
    }

    /// Returns the bytes from `address` to the end of its slot at `tick`, where they come from, and the ticks
    /// during which they are there; `None` if nothing is mapped.
    pub fn at(&self, address: u64, tick: u64) -> Option<(Content<'a>, Range<u64>)> {
        if let Some(kernel) = self.kernel.as_ref().filter(|_| address >= KERNEL) {
            return kernel.at(address, tick);
        }
        let (&start, slot) = self.slots.range(..=address).next_back()?;
        if address >= slot.end {
            return None;
        }
        let version = slot.version(tick)?;
        let mut content = version.content;
        let length = usize::try_from(slot.end - start).unwrap_or(usize::MAX).min(content.bytes.len());
        content.bytes = &content.bytes[..length];
        Some((content.after(address - start), version.valid.clone()))
    }

    /// Returns the bytes from an offset of a module on, up to the end of their slot, as they were mapped last. `None` if they
    /// never were, or are not known.
    pub fn of_origin(&self, origin: Origin) -> Option<&'a [u8]> {
        let slots = self
            .slots
            .iter()
            .flat_map(|(&start, slot)| slot.versions.iter().map(move |version| (slot.end - start, version)));
        let of_module = slots.filter(|(_, version)| version.content.origin.module == origin.module);
        let bytes = of_module.filter_map(|(length, Version { content, valid })| {
            let skip = origin.offset.checked_sub(content.origin.offset).filter(|&skip| skip < length)?;
            let end = usize::try_from(length).unwrap_or(usize::MAX).min(content.bytes.len());
            let bytes = content.bytes[..end].get(usize::try_from(skip).ok()?..)?;
            (!bytes.is_empty()).then_some((valid.start, bytes))
        });
        bytes.max_by_key(|(since, _)| *since).map(|(_, bytes)| bytes)
    }

    /// Returns the range around `address` where nothing is ever mapped; empty if something is.
    pub fn hole(&self, address: u64) -> Range<u64> {
        if let Some(kernel) = self.kernel.as_ref().filter(|_| address >= KERNEL) {
            return kernel.hole(address);
        }
        let start = self.slots.range(..=address).next_back().map_or(0, |(_, slot)| slot.end);
        let end = self.slots.range(start..).next().map_or(u64::MAX, |(&start, _)| start);
        if (start..end).contains(&address) { start..end } else { address..address }
    }

    /// Returns the next address after `address` at which the content changes, begins or ends.
    pub fn boundary(&self, address: u64) -> u64 {
        let slot = self.slots.range(..=address).next_back().map(|(_, slot)| slot.end);
        let next = || self.slots.range(address..).next().map_or(u64::MAX, |(&start, _)| start);
        slot.filter(|&end| end > address).unwrap_or_else(next)
    }

    /// Makes `address` a boundary between slots.
    fn split(&mut self, address: u64) {
        let before = self.slots.range(..address).next_back();
        if before.is_none_or(|(_, slot)| slot.end <= address) {
            return;
        }
        let slots = Arc::make_mut(&mut self.slots);
        let Some((&start, slot)) = slots.range_mut(..address).next_back() else { return };
        let skip = address - start;
        let tail = slot
            .versions
            .iter()
            .map(|version| Version { content: version.content.after(skip), valid: version.valid.clone() })
            .collect();
        let end = std::mem::replace(&mut slot.end, address);
        slots.insert(address, Slot { end, versions: tail });
    }

    /// Adds a version to the slot at `start`, unless its content is already the same.
    fn replace(&mut self, start: u64, content: Content<'a>, tick: u64) {
        let Some(slot) = Arc::make_mut(&mut self.slots).get_mut(&start) else { return };
        let length = usize::try_from(slot.end - start).unwrap_or(usize::MAX);
        let clip = |bytes: &'a [u8]| &bytes[..length.min(bytes.len())];
        let Some(last) = slot.versions.last_mut() else { return };
        let (before, now) = (clip(last.content.bytes), clip(content.bytes));
        if before == now && last.content.origin == content.origin {
            return;
        }
        // Content found later also holds for earlier ticks: the clocks agree only roughly.
        if before.is_empty() && !now.is_empty() {
            last.content = content;
            return;
        }
        let from = tick.max(last.valid.start);
        last.valid.end = from;
        slot.versions.push(Version { content, valid: from..u64::MAX });
        self.versioned = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: &[u8], module: u32) -> Content<'_> {
        Content { bytes, origin: Origin { module, offset: 0 } }
    }

    fn byte(space: &AddressSpace<'_>, address: u64, tick: u64) -> Option<u8> {
        space.at(address, tick).and_then(|(content, _)| content.bytes.first().copied())
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
    fn mappings_after_a_fork_are_of_one_process_only() {
        let mut parent = AddressSpace::new();
        parent.map(10..12, content(b"aa", 0), 0);
        let mut child = parent.fork(5);
        parent.map(10..12, content(b"bb", 1), 8);
        child.map(20..22, content(b"cc", 2), 9);
        assert_eq!([10, 20].map(|address| byte(&parent, address, 9)), [Some(b'b'), None]);
        assert_eq!([10, 20].map(|address| byte(&child, address, 9)), [Some(b'a'), Some(b'c')]);
        let late = parent.fork(9);
        assert_eq!((byte(&late, 10, 0), late.is_versioned()), (Some(b'b'), false));
    }

    #[test]
    fn of_a_modules_offset_the_newest_bytes_are_known() {
        let mut space = AddressSpace::new();
        space.map(10..14, content(b"abcd", 1), 0);
        space.map(20..24, content(b"wxyz", 2), 0);
        space.relabel(12..14, Origin { module: 2, offset: 1 }, 5);
        let of = |module, offset| space.of_origin(Origin { module, offset });
        assert_eq!(
            [of(1, 0), of(1, 1), of(1, 3), of(1, 4)].map(|bytes| bytes.map(|bytes| bytes[0])),
            [Some(b'a'), Some(b'b'), Some(b'd'), None]
        );
        // What was mapped last counts, up to its end.
        assert_eq!([of(2, 0), of(2, 1), of(2, 2), of(2, 3)], [b"wxyz", &b"cd"[..], b"d", b"z"].map(Some));
        assert_eq!(of(3, 0), None);
    }

    #[test]
    fn kernel_addresses_are_those_of_the_shared_kernel() {
        let mut kernel = AddressSpace::new();
        kernel.map(KERNEL..KERNEL + 2, content(b"kk", 9), 0);
        kernel.map(KERNEL..KERNEL + 2, content(b"ll", 9), 7);
        let mut space = AddressSpace::new();
        space.map(10..12, content(b"aa", 0), 0);
        space.set_kernel(Arc::new(kernel));
        assert!(space.is_versioned());
        assert_eq!([6, 7].map(|tick| byte(&space, KERNEL + 1, tick)), [Some(b'k'), Some(b'l')]);
        assert_eq!((byte(&space, KERNEL + 2, 7), space.hole(KERNEL + 2)), (None, KERNEL + 2..u64::MAX));
        assert_eq!((space.hole(9), space.hole(10), space.hole(12)), (0..10, 10..10, 12..u64::MAX));
    }

    #[test]
    fn the_same_bytes_may_come_from_elsewhere_later() {
        let mut space = AddressSpace::new();
        space.map(10..14, content(b"abcd", 0), 0);
        space.relabel(12..20, Origin { module: 3, offset: 100 }, 5);
        let origin = |tick| space.at(13, tick).map(|(content, _)| (content.bytes, content.origin));
        assert_eq!(origin(4), Some((&b"d"[..], Origin { module: 0, offset: 3 })));
        assert_eq!(origin(5), Some((&b"d"[..], Origin { module: 3, offset: 101 })));
        assert_eq!((space.boundary(10), space.boundary(12), space.boundary(14)), (12, 14, u64::MAX));
    }

    #[test]
    fn each_of_many_versions_is_found() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut space = AddressSpace::new();
        for (tick, byte) in bytes.chunks(1).enumerate() {
            space.map(10..11, content(byte, 0), 10 * tick as u64);
        }
        assert!((0..2000).all(|tick| byte(&space, 10, tick) == Some((tick / 10) as u8)));
    }

    #[test]
    fn mapping_the_same_content_again_makes_no_version() {
        let mut space = AddressSpace::new();
        space.map(10..14, content(b"abcd", 0), 0);
        let again = Origin { module: 0, offset: 2 };
        space.map(12..16, Content { bytes: b"cdef", origin: again }, 9);
        assert!(!space.is_versioned());
        assert_eq!(byte(&space, 15, 0), Some(b'f'));
        space.map(12..16, content(b"cdef", 1), 9);
        assert_eq!(space.at(12, 9).map(|(content, _)| content.origin.module), Some(1));
    }

    #[test]
    fn code_may_be_written_anew_at_its_address() {
        let mut space = AddressSpace::new();
        space.map(10..12, content(b"aa", 0), 0);
        space.map(10..12, content(b"bb", 0), 5);
        space.map(10..12, content(b"aa", 0), 9);
        assert_eq!([4, 5, 8, 9].map(|tick| byte(&space, 10, tick)), [b'a', b'b', b'b', b'a'].map(Some));
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
