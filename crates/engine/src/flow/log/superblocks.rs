//! Sequences of exits that followed each other before, so that all of them cost one look-up.

use hodo_flow::Sink;
use rustc_hash::FxHashMap;

/// Number of exits of a superblock, a power of two.
pub(super) const LENGTH: usize = 8;

/// Number of superblocks in the table.
const SUPERBLOCKS: usize = 1 << 13;

/// Maximum number of joined paths.
const MOST_JOINED: usize = 1 << 17;

/// Marks an empty slot: no state has this number.
const VACANT: u32 = u32::MAX;

/// Consecutive exits, from a state of the sink on.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Superblock {
    pub(super) exits: [u32; LENGTH],
    pub(super) from: u32,
    /// The state after them.
    pub(super) to: u32,
    /// The sink's number for the path of all.
    pub(super) path: u32,
    /// Where the first begins.
    pub(super) start: u64,
    /// Where the last leads; 0 if only the next entry says it.
    pub(super) leads_to: u64,
}

const EMPTY_SLOT: Superblock =
    Superblock { exits: [0; LENGTH], from: VACANT, to: 0, path: 0, start: 0, leads_to: 0 };

/// Superblocks, hashed by state and exits. On a collision, the newer one replaces the older.
#[derive(Debug, Default)]
pub(super) struct Superblocks {
    /// Empty, or of full length.
    kept: Vec<Superblock>,
    /// Hashes of sequences that occurred once, each in its slot.
    occurred: Vec<u32>,
    /// The numbers of joined paths, by those of the two that they consist of.
    joined: FxHashMap<(u32, u32), u32>,
    /// Whether no more paths are joined: there are too many, or the sink takes paths one by one.
    is_closed: bool,
}

impl Superblocks {
    /// Returns the superblock of these exits in a state.
    #[inline(always)]
    pub(super) fn find(&self, from: u32, exits: &[u32; LENGTH]) -> Option<&Superblock> {
        let kept = self.kept.get(hash(from, exits) as usize % SUPERBLOCKS)?;
        (kept.from == from && kept.exits == *exits).then_some(kept)
    }

    /// Adds a superblock of these paths, if its exits occurred before: a sequence that occurs only once does not pay.
    #[inline(never)]
    pub(super) fn add(&mut self, superblock: Superblock, paths: &[u32; LENGTH], sink: &mut impl Sink) {
        if self.is_closed {
            return;
        }
        if self.kept.is_empty() {
            (self.kept, self.occurred) = (vec![EMPTY_SLOT; SUPERBLOCKS], vec![0; SUPERBLOCKS]);
        }
        let hash = hash(superblock.from, &superblock.exits);
        let slot = hash as usize % SUPERBLOCKS;
        if std::mem::replace(&mut self.occurred[slot], hash as u32) != hash as u32 {
            return;
        }
        match self.join_all(paths, sink) {
            Some(path) => self.kept[slot] = Superblock { path, ..superblock },
            None => self.is_closed = true,
        }
    }

    /// Joins neighbours, and then those: different sequences share most of their pairs, so fewer paths are joined than from the
    /// first one on, and the look-ups of a level do not wait for each other.
    fn join_all(&mut self, paths: &[u32; LENGTH], sink: &mut impl Sink) -> Option<u32> {
        let mut paths = *paths;
        let mut count = LENGTH;
        while count > 1 {
            count /= 2;
            for index in 0..count {
                paths[index] = self.join(paths[2 * index], paths[2 * index + 1], sink)?;
            }
        }
        Some(paths[0])
    }

    fn join(&mut self, first: u32, second: u32, sink: &mut impl Sink) -> Option<u32> {
        if let Some(&known) = self.joined.get(&(first, second)) {
            return Some(known);
        }
        let path = sink.join(first, second).filter(|_| self.joined.len() < MOST_JOINED)?;
        self.joined.insert((first, second), path);
        Some(path)
    }

    /// Forgets all superblocks.
    pub(super) fn clear(&mut self) {
        *self = Superblocks::default();
    }
}

/// Hashes a state and exits, by multiplications with large odd numbers.
#[inline(always)]
fn hash(from: u32, exits: &[u32; LENGTH]) -> u64 {
    let pair = |index: usize| u64::from(exits[index]) | u64::from(exits[index + 1]) << 32;
    let mixed = pair(0) ^ pair(2).rotate_left(21) ^ pair(4).rotate_left(37) ^ pair(6).rotate_left(51);
    let mixed =
        (mixed ^ u64::from(from).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}
