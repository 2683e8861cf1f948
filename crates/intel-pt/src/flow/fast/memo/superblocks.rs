//! Superblocks: sequences of transitions that followed each other before.

use rustc_hash::FxHashMap;

use super::{super::super::Sink, plain_size, transitions::hash};

/// Minimum transitions of a superblock.
const FEWEST: usize = 2;

/// Maximum transitions of a superblock.
const LONGEST: usize = 7;

/// Maximum packet bytes of a superblock, in 8-byte words.
const WORDS: usize = 5;

/// Number of superblocks in the table: 128 bytes each.
const SUPERBLOCKS: usize = 1 << 13;

/// Maximum joined paths.
const JOINED: usize = 1 << 17;

/// Marks an empty slot: no state has this number.
const VACANT: u32 = u32::MAX;

/// Consecutive transitions from state to state.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Superblock {
    /// The packets, the first in the lowest byte.
    words: [u64; WORDS],
    /// The state at which they begin.
    from: u32,
    /// The state after each transition.
    to: [u32; LONGEST],
    /// The sink's number for the path of each transition: of the first `joined_count` ones, for the path up to its end.
    paths: [u32; LONGEST],
    /// End offset of the packets of each transition, in bytes.
    ends: [u8; LONGEST],
    /// The last of these.
    bytes: u8,
    count: u8,
    joined_count: u8,
}

const NONE: Superblock = Superblock {
    words: [0; WORDS],
    from: VACANT,
    to: [0; LONGEST],
    paths: [0; LONGEST],
    ends: [0; LONGEST],
    bytes: 0,
    count: 0,
    joined_count: 1,
};

/// The part of a superblock that matches the packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct SuperblockMatch {
    /// The slot of the superblock.
    pub(super) slot: usize,
    /// Number of its transitions.
    pub(super) transitions: usize,
    /// The state after it.
    pub(super) to: u32,
    /// Number of its packet bytes.
    pub(super) bytes: usize,
}

/// Superblocks, hashed by first state and first eight bytes. On a collision, the newer one replaces the older.
#[derive(Debug)]
pub(super) struct Superblocks {
    kept: Vec<Superblock>,
    /// The superblock being recorded, and its slot.
    next: Superblock,
    slot: usize,
    /// Position of its packets.
    start: usize,
    /// Number of its transitions that the table has already.
    known: usize,
    /// The numbers of joined paths, by those of the two that they consist of.
    joined_paths: FxHashMap<(u32, u32), u32>,
    /// Whether no more paths are joined: there are too many, or the sink takes paths one by one.
    keeps_apart: bool,
}

/// Returns the bytes from a position on, as words.
#[inline(always)]
fn words(bytes: &[u8], position: usize) -> Option<[u64; WORDS]> {
    let (bytes, _) = bytes.get(position..)?.as_chunks();
    let bytes: &[[u8; 8]; WORDS] = bytes.first_chunk()?;
    let mut words = [0; WORDS];
    let mut index = 0;
    while index < WORDS {
        words[index] = u64::from_le_bytes(bytes[index]);
        index += 1;
    }
    Some(words)
}

impl Superblocks {
    pub(super) fn new() -> Superblocks {
        Superblocks {
            kept: vec![NONE; SUPERBLOCKS],
            next: NONE,
            slot: 0,
            start: 0,
            known: 0,
            joined_paths: FxHashMap::default(),
            keeps_apart: false,
        }
    }

    /// Discards all superblocks.
    pub(super) fn clear(&mut self) {
        self.kept.fill(NONE);
        self.joined_paths.clear();
        self.keeps_apart = false;
        self.next.from = VACANT;
    }

    /// Returns the part of a superblock that matches the packets in a state. If there is none, and the packets are plain,
    /// begins to record one from [what follows](Superblocks::follow). While one is recorded, returns `None`.
    #[inline(always)]
    pub(super) fn find(&mut self, from: u32, bytes: &[u8], position: usize) -> Option<SuperblockMatch> {
        if self.next.from != VACANT {
            return None;
        }
        let words = words(bytes, position)?;
        if plain_size(words[0]) == 0 {
            return None;
        }
        let slot = (hash(from, words[0]) >> 40) as usize % SUPERBLOCKS;
        let kept = &self.kept[slot];
        let same = matching(&kept.words, &words);
        let transitions = if usize::from(kept.bytes) <= same {
            kept.count.into()
        } else {
            kept.ends.iter().take(kept.count.into()).take_while(|&&end| usize::from(end) <= same).count()
        };
        if kept.from != from || transitions < FEWEST {
            (self.next.from, self.next.words, self.next.count, self.next.joined_count) = (from, words, 0, 1);
            (self.slot, self.start, self.known) = (slot, position, 0);
            return None;
        }
        let Superblock { to, ends, count, .. } = kept;
        let end = usize::from(ends[transitions - 1]);
        // A superblock that ended at other packets may be extended this time.
        if transitions == usize::from(*count)
            && transitions < LONGEST
            && end <= (WORDS - 1) * 8
            && plain_size(bytes[position + end].into()) != 0
        {
            self.next = Superblock { words, ..*kept };
            (self.slot, self.start, self.known) = (slot, position, transitions);
        }
        Some(SuperblockMatch { slot, transitions, to: to[transitions - 1], bytes: end })
    }

    /// Reports the paths of the first transitions of a superblock: as one, if the sink joins paths.
    #[inline(always)]
    pub(super) fn report(&mut self, slot: usize, transitions: usize, sink: &mut impl Sink) {
        if !self.keeps_apart && usize::from(self.kept[slot].joined_count) < transitions {
            self.join(slot, transitions, sink);
        }
        let Superblock { paths, joined_count, .. } = &self.kept[slot];
        if *joined_count == 1 {
            // If the compiler unrolls this loop, the processor predicts the length of each path by its slot.
            for (index, &path) in paths.iter().enumerate() {
                if index == transitions {
                    break;
                }
                sink.path(path);
            }
            return;
        }
        let first = transitions.min((*joined_count).into()) - 1;
        paths[first..transitions].iter().for_each(|&path| sink.path(path));
    }

    /// Joins the paths of the first transitions of a superblock, unless the sink takes them one by one.
    #[inline(never)]
    fn join(&mut self, slot: usize, transitions: usize, sink: &mut impl Sink) {
        let Superblock { paths, joined_count, .. } = &mut self.kept[slot];
        for index in usize::from(*joined_count)..transitions {
            let pair @ (first, second) = (paths[index - 1], paths[index]);
            let known = self.joined_paths.get(&pair).copied();
            let Some(path) = known.or_else(|| sink.join(first, second)) else {
                self.keeps_apart = true;
                return;
            };
            self.joined_paths.insert(pair, path);
            paths[index] = path;
            *joined_count += 1;
        }
        self.keeps_apart = self.joined_paths.len() >= JOINED;
    }

    /// Records that a transition was followed, to the end of its packets.
    #[inline]
    pub(super) fn follow(&mut self, path: u32, to: u32, end: usize) {
        if self.next.from == VACANT {
            return;
        }
        let Superblocks { next, start, .. } = self;
        let (index, bytes) = (usize::from(next.count), end.wrapping_sub(*start));
        if bytes > WORDS * 8 {
            return self.stop();
        }
        (next.paths[index], next.to[index], next.ends[index]) = (path, to, bytes as u8);
        (next.bytes, next.count) = (bytes as u8, next.count + 1);
        if usize::from(next.count) == LONGEST {
            self.stop();
        }
    }

    /// Ends the recording: no transition follows, or the superblock is full.
    #[inline]
    pub(super) fn stop(&mut self) {
        let count = usize::from(self.next.count);
        if self.next.from != VACANT && count >= FEWEST && count > self.known {
            self.kept[self.slot] = self.next;
        }
        self.next.from = VACANT;
    }
}

/// Returns the number of equal bytes at the start.
#[inline(always)]
fn matching(one: &[u64; WORDS], other: &[u64; WORDS]) -> usize {
    for index in 0..WORDS {
        let differing = one[index] ^ other[index];
        if differing != 0 {
            return 8 * index + differing.trailing_zeros() as usize / 8;
        }
    }
    WORDS * 8
}
