//! An instruction cache with sets of lines, of which the least recently used one leaves.

use hodo_model::CacheGeometry;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// The lines of a set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Set {
    /// The last one used comes first; at most as many as the cache has ways.
    recent: Vec<u64>,
    /// Whether it holds no other lines.
    is_known: bool,
}

/// What a set answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Hit,
    Miss,
    /// It depends on the lines before the first access.
    Unknown,
}

/// An access whose answer depends on the lines before the first access.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Depending {
    /// The lines of the instruction for which that holds: one or two.
    lines: Vec<u64>,
    /// The number of the block that contains the instruction.
    block: u32,
    /// Whether a miss counts: an instruction across two lines misses once.
    counts: bool,
}

/// A cache after some accesses, from any state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cache {
    /// Lines have 2 to the power of this many bytes.
    line_bits: u32,
    sets: u64,
    ways: u32,
    content: FxHashMap<u64, Set>,
    /// In order; at most as many as the cache has lines.
    depending: Vec<Depending>,
    /// Certain misses of blocks.
    misses: FxHashMap<u32, u64>,
    /// Whether sets without accesses are empty.
    began_empty: bool,
    /// The last line; further accesses to it change nothing.
    last: Option<u64>,
}

impl Cache {
    /// Of which nothing is known.
    pub(super) fn unknown(geometry: CacheGeometry) -> Cache {
        Cache {
            line_bits: geometry.line.trailing_zeros(),
            sets: geometry.sets(),
            ways: geometry.ways,
            content: FxHashMap::default(),
            depending: Vec::new(),
            misses: FxHashMap::default(),
            began_empty: false,
            last: None,
        }
    }

    /// Before the first access.
    pub(super) fn empty(geometry: CacheGeometry) -> Cache {
        Cache { began_empty: true, ..Cache::unknown(geometry) }
    }

    /// Fetches the instructions of a block.
    #[inline]
    pub(super) fn fetch(&mut self, address: u64, lengths: &[u8], block: u32) {
        let mut begin = address;
        for &length in lengths {
            let end = begin.wrapping_add(length.into());
            let [first, last] = [begin, end.wrapping_sub(1)].map(|address| address >> self.line_bits);
            if first != last {
                self.access(&[first, last], block, true);
            } else if self.last != Some(first) {
                self.access(&[first], block, true);
            }
            self.last = Some(last);
            begin = end;
        }
    }

    /// Accesses the lines of an instruction.
    fn access(&mut self, lines: &[u64], block: u32, counts: bool) {
        let mut unknown: Vec<u64> = Vec::new();
        let mut misses = false;
        for &line in lines {
            match self.access_line(line) {
                Answer::Hit => {}
                Answer::Miss => misses = true,
                Answer::Unknown => unknown.push(line),
            }
        }
        if misses && counts {
            *self.misses.entry(block).or_default() += 1;
        }
        if !unknown.is_empty() {
            self.depending.push(Depending { lines: unknown, block, counts: counts && !misses });
        }
    }

    fn access_line(&mut self, line: u64) -> Answer {
        let (ways, is_known) = (self.ways as usize, self.began_empty);
        let set = self.content.entry(line % self.sets).or_insert(Set { recent: Vec::new(), is_known });
        if let Some(place) = set.recent.iter().position(|&recent| recent == line) {
            set.recent[..=place].rotate_right(1);
            return Answer::Hit;
        }
        let answer = if set.is_known { Answer::Miss } else { Answer::Unknown };
        set.recent.insert(0, line);
        set.recent.truncate(ways);
        set.is_known |= set.recent.len() == ways;
        answer
    }

    /// Adds what follows; `ours` has our number of each of its blocks.
    pub(super) fn join(&mut self, later: Cache, ours: &[u32]) {
        let block = |theirs: u32| ours[theirs as usize];
        for Depending { lines, block: theirs, counts } in later.depending {
            self.access(&lines, block(theirs), counts);
        }
        let ways = self.ways as usize;
        for (number, Set { mut recent, is_known }) in later.content {
            let own = self.content.entry(number).or_default();
            let before = own.recent.iter().filter(|line| !recent.contains(line));
            let before: Vec<u64> = before.copied().collect();
            recent.extend(before);
            recent.truncate(ways);
            own.is_known |= is_known || recent.len() == ways;
            own.recent = recent;
        }
        for (theirs, count) in later.misses {
            let sum = self.misses.entry(block(theirs)).or_default();
            *sum = sum.saturating_add(count);
        }
        self.last = later.last.or(self.last);
    }

    /// Certain misses of a block: all of them, if the cache began empty.
    pub(super) fn misses_of(&self, block: u32) -> u64 {
        self.misses.get(&block).copied().unwrap_or(0)
    }

    /// Whether it has this geometry, and all numbers are of blocks that exist.
    pub(super) fn is_sound(&self, geometry: CacheGeometry, blocks: u32) -> bool {
        let expected = Cache::unknown(geometry);
        let of_blocks = self.depending.iter().map(|depending| depending.block);
        (self.line_bits, self.sets, self.ways) == (expected.line_bits, expected.sets, expected.ways)
            && of_blocks.chain(self.misses.keys().copied()).all(|block| block < blocks)
            && self.content.values().all(|set| set.recent.len() <= self.ways as usize)
    }
}
