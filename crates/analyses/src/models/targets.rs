//! A predictor of the targets of indirect branches: each goes where the last one with its low address bits went.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// The number of low bits of the address that select an entry, as in Cachegrind.
const ADDRESS_BITS: u32 = 9;

/// The branches of an entry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Entry {
    /// The first target, and the block that went there.
    first: (u64, u32),
    last: u64,
}

/// The last targets by low address bits, from any state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Targets {
    entries: FxHashMap<u64, Entry>,
    /// Certain misses of blocks.
    misses: FxHashMap<u32, u64>,
}

impl Targets {
    /// Predicts a branch at an address, and learns its target.
    pub(super) fn branch(&mut self, address: u64, target: u64, block: u32) {
        let index = address & ((1 << ADDRESS_BITS) - 1);
        match self.entries.get_mut(&index) {
            Some(entry) => {
                let is_miss = entry.last != target;
                entry.last = target;
                *self.misses.entry(block).or_default() += u64::from(is_miss);
            }
            None => {
                self.entries.insert(index, Entry { first: (target, block), last: target });
            }
        }
    }

    /// Adds what follows; `ours` has our number of each of its blocks.
    pub(super) fn join(&mut self, later: Targets, ours: &[u32]) {
        let block = |theirs: u32| ours[theirs as usize];
        for (index, Entry { first: (target, theirs), last }) in later.entries {
            self.branch(index, target, block(theirs));
            if let Some(entry) = self.entries.get_mut(&index) {
                entry.last = last;
            }
        }
        for (theirs, count) in later.misses {
            let sum = self.misses.entry(block(theirs)).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Counts what was unknown as if it had begun empty.
    pub(super) fn began_empty(&mut self) {
        for Entry { first: (_, block), .. } in self.entries.values() {
            *self.misses.entry(*block).or_default() += 1;
        }
    }

    /// Misses of a block.
    pub(super) fn misses_of(&self, block: u32) -> u64 {
        self.misses.get(&block).copied().unwrap_or(0)
    }

    /// Whether all numbers are of blocks that exist.
    pub(super) fn is_sound(&self, blocks: u32) -> bool {
        let first = self.entries.values().map(|entry| entry.first.1);
        first.chain(self.misses.keys().copied()).all(|block| block < blocks)
    }
}
