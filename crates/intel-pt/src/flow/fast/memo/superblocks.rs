//! Ways that followed each other before.

use super::{plain_size, transitions::hash};

/// Fewest ways of a train.
const FEWEST: usize = 2;

/// Most ways of a train.
const LONGEST: usize = 7;

/// Bytes of packets that a train may have, in words of eight.
const WORDS: usize = 5;

/// Superblocks that are remembered: 128 bytes each.
const TRAINS: usize = 1 << 13;

/// A state that there is not.
const VACANT: u32 = u32::MAX;

/// Ways from state to state, the packets of which followed each other.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Superblock {
    /// What the packets are, the first in the lowest byte.
    words: [u64; WORDS],
    /// Where they begin.
    from: u32,
    /// Where each way leads.
    to: [u32; LONGEST],
    /// The sink's number for what ran on it.
    paths: [u32; LONGEST],
    /// Where its packets end.
    ends: [u8; LONGEST],
    count: u8,
}

const NONE: Superblock = Superblock {
    words: [0; WORDS],
    from: VACANT,
    to: [0; LONGEST],
    paths: [0; LONGEST],
    ends: [0; LONGEST],
    count: 0,
};

/// As many ways of a train as fit the packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ride<'t> {
    pub(super) paths: &'t [u32],
    /// The state that they lead to.
    pub(super) to: u32,
    /// Bytes of their packets.
    pub(super) bytes: usize,
}

/// Superblocks by their first state and their first eight bytes. Of those that fall together only the last is kept.
#[derive(Debug)]
pub(super) struct Superblocks {
    kept: Vec<Superblock>,
    /// One that is being put together, and where it will be kept.
    next: Superblock,
    place: usize,
    /// Where its packets begin.
    start: usize,
    /// So many of its ways are kept already.
    known: usize,
}

/// The bytes from a position on, as words.
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
        Superblocks { kept: vec![NONE; TRAINS], next: NONE, place: 0, start: 0, known: 0 }
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.kept.fill(NONE);
        self.next.from = VACANT;
    }

    /// The train that goes on from a state with these packets. Where none does, one is put together from what
    /// [comes next](Superblocks::follow).
    #[inline(always)]
    pub(super) fn find(&mut self, from: u32, bytes: &[u8], position: usize) -> Option<Ride<'_>> {
        if self.next.from != VACANT {
            return None;
        }
        let words = words(bytes, position)?;
        if plain_size(words[0]) == 0 {
            return None;
        }
        let place = (hash(from, words[0]) >> 40) as usize % TRAINS;
        let train = &self.kept[place];
        let same = matching(&train.words, &words);
        let ways =
            train.ends.iter().take(train.count.into()).take_while(|&&end| usize::from(end) <= same).count();
        if train.from != from || ways < FEWEST {
            (self.next.from, self.next.words, self.next.count) = (from, words, 0);
            (self.place, self.start, self.known) = (place, position, 0);
            return None;
        }
        let Superblock { paths, to, ends, count, .. } = train;
        let end = usize::from(ends[ways - 1]);
        // One that ended where something else came may go on this time.
        if ways == usize::from(*count)
            && ways < LONGEST
            && end <= (WORDS - 1) * 8
            && plain_size(bytes[position + end].into()) != 0
        {
            self.next = Superblock { words, ..*train };
            (self.place, self.start, self.known) = (place, position, ways);
        }
        Some(Ride { paths: &paths[..ways], to: to[ways - 1], bytes: end })
    }

    /// A way was followed, to the end of its packets.
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
        next.count += 1;
        if usize::from(next.count) == LONGEST {
            self.stop();
        }
    }

    /// What comes next is no way.
    #[inline]
    pub(super) fn stop(&mut self) {
        let count = usize::from(self.next.count);
        if self.next.from != VACANT && count >= FEWEST && count > self.known {
            self.kept[self.place] = self.next;
        }
        self.next.from = VACANT;
    }
}

/// How many bytes are the same, from the first on.
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
