//! Coverage of edges for fuzzers: AFL's map, filled from a trace.

use std::ops::Range;

use hodo_code::{Graph, Labels, Terminator};

use crate::flow::{Event, Executed, Sink, Step};

/// A sink that counts edges in a fuzzer's map, with AFL's hash.
///
/// The *location* of a block is `(address >> 4 ^ address << 8)` modulo the map's size, as in AFL's modes for binaries. At
/// each block that a branch leads to, the byte `location ^ previous` is incremented, and `previous` becomes
/// `location >> 1`. Counts wrap at 256, and are not sorted into buckets: the fuzzer does that.
///
/// After a [gap](Event::Gap) the previous location is 0, so no edge is counted that a packet does not prove.
///
/// With [`Decoder::decode_with_memo`](crate::flow::Decoder::decode_with_memo) known paths are counted at once.
///
/// # Example
///
/// A loop around a `nop`, which runs twice:
///
/// ```
/// use hodo_clock::Tsc;
/// use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
/// use hodo_intel_pt::{Config, EdgeMap, flow::{Decoder, Memos, Switch}, packet::{IpPayload, Packet, Tnt}};
///
/// // nop; jne back to it; ret
/// let code = Content { bytes: &[0x90, 0x75, 0xfd, 0xc3], origin: Origin::default() };
/// let mut space = AddressSpace::new();
/// space.map(0x1000..0x1004, code, 0);
/// let branches = Packet::Tnt8(Tnt { bits: 0b10, count: 2 });
/// let [on, off] = [Packet::TipPge(IpPayload::Full(0x1000)), Packet::TipPgd(IpPayload::Suppressed)];
/// let packets = [Packet::Psb, Packet::PsbEnd, on, branches, off];
/// let trace: Vec<u8> = packets.iter().flat_map(|packet| packet.encode().to_vec()).collect();
///
/// let mut map = vec![0; EdgeMap::USUAL_SIZE];
/// let mut edges = EdgeMap::new(&mut map).with_path();
/// let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
/// let decoder = Decoder::new(&trace, 0..trace.len(), &Config::default(), &schedule);
/// decoder.decode_with_memo(&mut [Program::new(&space, &NoLabels)], &mut Memos::default(), &mut edges);
/// assert!(edges.path().is_some());
///
/// // The loop is entered, repeated, and left.
/// let location = |address: usize| (address >> 4 ^ address << 8) & 0xffff;
/// let (begin, end) = (location(0x1000), location(0x1003));
/// assert_eq!([map[begin], map[begin ^ begin >> 1], map[end ^ begin >> 1]], [1, 1, 1]);
/// ```
#[derive(Debug)]
pub struct EdgeMap<'m> {
    map: &'m mut [u8],
    /// The last location, shifted.
    previous: u32,
    /// Where the next block begins if no branch leads to it: the last one ended without one.
    continues_at: Option<u64>,
    path: Option<Path>,
    /// What each learned path does, and where each of them ends in `increments`.
    learned: Vec<Learned>,
    increments: Vec<Increment>,
}

/// A byte of the map and what to add to it.
#[derive(Clone, Copy, Debug)]
struct Increment {
    index: u32,
    count: u8,
}

/// The effect of a path.
#[derive(Clone, Copy, Debug)]
struct Learned {
    /// End of its increments.
    end: usize,
    path: Path,
}

/// A digest of a sequence of locations: a polynomial of them, so that the digests of parts give the whole's.
#[derive(Clone, Copy, Debug)]
struct Path {
    digest: u64,
    /// The base to the power of the sequence's length.
    scale: u64,
}

impl Path {
    const EMPTY: Path = Path { digest: 0, scale: 1 };
    /// Odd, so that no location is lost.
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

    fn then(self, next: Path) -> Path {
        Path {
            digest: self.digest.wrapping_mul(next.scale).wrapping_add(next.digest),
            scale: self.scale.wrapping_mul(next.scale),
        }
    }

    /// Returns the path of one block. Addresses are mixed: those of a program differ in few bits.
    fn of(address: u64) -> Path {
        let mixed = (address ^ address >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Path { digest: mixed ^ mixed >> 32, scale: Path::BASE }
    }
}

impl<'m> EdgeMap<'m> {
    /// The usual size of a map in bytes.
    pub const USUAL_SIZE: usize = 1 << 16;

    /// Counts edges in a map, which keeps its counts.
    ///
    /// # Panics
    /// Panics if the map's size is not a power of two up to 2^30.
    pub fn new(map: &'m mut [u8]) -> EdgeMap<'m> {
        assert!(map.len().is_power_of_two() && map.len() <= 1 << 30, "the size of a map is a power of two");
        EdgeMap {
            map,
            previous: 0,
            continues_at: None,
            path: None,
            learned: Vec::new(),
            increments: Vec::new(),
        }
    }

    /// Also computes a digest of the complete path.
    pub fn with_path(self) -> EdgeMap<'m> {
        EdgeMap { path: Some(Path::EMPTY), ..self }
    }

    /// Returns the digest of the addresses of all blocks to which a branch led, in their order; `None` without
    /// [`with_path`](EdgeMap::with_path).
    pub fn path(&self) -> Option<u64> {
        self.path.map(|path| path.digest)
    }

    /// Begins another execution: counts are kept, but no edge leads from the last one, and the path is empty.
    pub fn restart(&mut self) {
        self.previous = 0;
        self.continues_at = None;
        self.path = self.path.map(|_| Path::EMPTY);
    }

    fn location(&self, address: u64) -> u32 {
        (address >> 4 ^ address << 8) as u32 & (self.map.len() as u32 - 1)
    }

    /// Returns where a learned path's increments are.
    fn range(&self, path: u32) -> Range<usize> {
        let index = path as usize;
        index.checked_sub(1).map_or(0, |before| self.learned[before].end)..self.learned[index].end
    }

    /// Learns the path whose increments begin at an index; returns its number. An edge that repeats becomes one increment.
    fn finish(&mut self, begin: usize, path: Path) -> u32 {
        self.increments[begin..].sort_unstable_by_key(|increment| increment.index);
        let mut end = begin;
        for index in begin..self.increments.len() {
            let increment = self.increments[index];
            if end > begin && self.increments[end - 1].index == increment.index {
                self.increments[end - 1].count = self.increments[end - 1].count.wrapping_add(increment.count);
            } else {
                self.increments[end] = increment;
                end += 1;
            }
        }
        self.increments.truncate(end);
        self.learned.push(Learned { end, path });
        self.learned.len() as u32 - 1
    }
}

impl Sink for EdgeMap<'_> {
    const TAKES_BLOCKS: bool = true;

    fn executed(&mut self, executed: Executed<'_>) {
        let start = executed.block.start;
        if self.continues_at != Some(start) {
            let location = self.location(start);
            let count = &mut self.map[(location ^ self.previous) as usize];
            *count = count.wrapping_add(1);
            self.previous = location >> 1;
            self.path = self.path.map(|path| path.then(Path::of(start)));
        }
        let branched = executed.is_whole() && executed.block.terminator != Terminator::None;
        self.continues_at = (!branched).then(|| {
            let size: u64 = executed.lengths.iter().map(|&length| u64::from(length)).sum();
            start.wrapping_add(size)
        });
    }

    fn event(&mut self, event: Event) {
        if let Event::Gap(_) = event {
            self.previous = 0;
            self.continues_at = None;
        }
    }

    fn takes_paths(&self) -> bool {
        true
    }

    fn state(&mut self) -> Option<u32> {
        // An address does not fit into a state.
        self.continues_at.is_none().then_some(self.previous)
    }

    fn learn<L: Labels>(&mut self, state: u32, steps: &[Step], graph: &Graph<'_, L>) -> Option<(u32, u32)> {
        let mut previous = state;
        let mut continues_at = None;
        let mut path = Path::EMPTY;
        let begin = self.increments.len();
        for step in steps {
            if continues_at != Some(step.start) {
                let location = self.location(step.start);
                self.increments.push(Increment { index: location ^ previous, count: 1 });
                previous = location >> 1;
                path = path.then(Path::of(step.start));
            }
            let branched = graph.block(step.block).terminator != Terminator::None;
            continues_at = (!branched).then_some(step.end);
        }
        if continues_at.is_some() {
            self.increments.truncate(begin);
            return None;
        }
        let learned = self.finish(begin, path);
        Some((learned, previous))
    }

    fn join(&mut self, first: u32, second: u32) -> Option<u32> {
        // Longer paths cost more memory than they save time.
        const MOST: usize = 512;
        let ranges = [first, second].map(|path| self.range(path));
        if ranges.iter().map(ExactSizeIterator::len).sum::<usize>() > MOST {
            return None;
        }
        let begin = self.increments.len();
        for range in ranges {
            self.increments.extend_from_within(range);
        }
        let [first, second] = [first, second].map(|path| self.learned[path as usize].path);
        Some(self.finish(begin, first.then(second)))
    }

    fn path(&mut self, path: u32) {
        for &Increment { index, count } in &self.increments[self.range(path)] {
            let byte = &mut self.map[index as usize];
            *byte = byte.wrapping_add(count);
        }
        let next = self.learned[path as usize].path;
        self.path = self.path.map(|before| before.then(next));
    }

    fn resume(&mut self, state: u32) {
        self.previous = state;
        self.continues_at = None;
    }

    fn forget(&mut self) {
        self.learned.clear();
        self.increments.clear();
    }
}
