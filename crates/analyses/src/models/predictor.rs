//! Predictors of conditional branches: a table of counters that the branch's address and the branches before it select.
//!
//! Sources: J. Smith, "A Study of Branch Prediction Strategies" (1981), for the counters; S. McFarling, "Combining Branch
//! Predictors" (1993), for gshare; the manual of Valgrind, "Branch prediction simulation", for Cachegrind's.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::counters::{Counter, STATES, is_miss};

/// How the index of a counter is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Design {
    /// For users, in the name of its column.
    pub(super) name: &'static str,
    /// The number of low bits of the address.
    address_bits: u32,
    /// The number of outcomes before the branch, the last one in the lowest bit.
    history_bits: u32,
    combination: Combination,
}

/// How bits of the history and of the address are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    /// Exclusive or.
    Xor,
    /// The history above the address.
    Above,
}

/// The modelled designs; each has 16,384 counters.
pub(super) const DESIGNS: [Design; 3] = [
    Design { name: "bimodal", address_bits: 14, history_bits: 0, combination: Combination::Xor },
    Design { name: "gshare", address_bits: 14, history_bits: 14, combination: Combination::Xor },
    Design { name: "cachegrind", address_bits: 7, history_bits: 7, combination: Combination::Above },
];

const COUNTERS: usize = 1 << 14;

impl Design {
    fn index(self, address: u64, history: u32) -> usize {
        let address = address & ((1 << self.address_bits) - 1);
        let history = u64::from(history & ((1 << self.history_bits) - 1));
        let index = match self.combination {
            Combination::Xor => address ^ history,
            Combination::Above => history << self.address_bits | address,
        };
        index as usize
    }
}

/// A branch and where it went.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) address: u64,
    pub(super) taken: bool,
    /// The number of the block that it ends.
    pub(super) block: u32,
}

/// A predictor after some branches, from any state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Predictor {
    /// The first branches, as long as the outcomes before them are unknown: they select a counter once these are known.
    first: Vec<Outcome>,
    /// The last outcomes.
    history: u32,
    /// The number of known outcomes, at most as many as select a counter.
    known: u32,
    /// One for each index; empty before the first use.
    counters: Vec<Counter>,
    /// Misses of blocks with a counter, by the state in which the counter began.
    depending: FxHashMap<(u32, u32), [u64; STATES]>,
    /// Certain misses of blocks.
    misses: FxHashMap<u32, u64>,
    /// The state of counters that are not used yet.
    unused: Counter,
}

impl Predictor {
    /// Of which nothing is known.
    pub(super) fn unknown() -> Predictor {
        Predictor {
            first: Vec::new(),
            history: 0,
            known: 0,
            counters: Vec::new(),
            depending: FxHashMap::default(),
            misses: FxHashMap::default(),
            unused: Counter::UNKNOWN,
        }
    }

    /// Before the first branch.
    pub(super) fn empty(design: Design) -> Predictor {
        Predictor { known: design.history_bits, unused: Counter::ZERO, ..Predictor::unknown() }
    }

    fn counter(&mut self, index: usize) -> &mut Counter {
        if self.counters.is_empty() {
            self.counters = vec![self.unused; COUNTERS];
        }
        &mut self.counters[index]
    }

    /// Predicts a branch, and learns its outcome.
    pub(super) fn branch(&mut self, design: Design, outcome: Outcome) {
        let Outcome { address, taken, block } = outcome;
        let history = self.history;
        self.history = history << 1 | u32::from(taken);
        if self.known < design.history_bits {
            self.known += 1;
            self.first.push(outcome);
            return;
        }
        let index = design.index(address, history);
        let counter = self.counter(index);
        let before = *counter;
        *counter = before.after(taken);
        match before.known() {
            Some(state) if is_miss(state, taken) => *self.misses.entry(block).or_default() += 1,
            Some(_) => {}
            None => {
                let depending = self.depending.entry((index as u32, block)).or_default();
                for (start, count) in depending.iter_mut().enumerate() {
                    *count += u64::from(is_miss(before.now(start), taken));
                }
            }
        }
    }

    /// Adds what follows; `ours` has our number of each of its blocks.
    pub(super) fn join(&mut self, design: Design, later: Predictor, ours: &[u32]) {
        let block = |theirs: u32| ours[theirs as usize];
        for outcome in later.first {
            self.branch(design, Outcome { block: block(outcome.block), ..outcome });
        }
        for ((index, theirs), counts) in later.depending {
            let before = *self.counter(index as usize);
            match before.known() {
                Some(state) => self.add_misses(block(theirs), counts[usize::from(state)]),
                None => {
                    let depending = self.depending.entry((index, block(theirs))).or_default();
                    for (start, count) in depending.iter_mut().enumerate() {
                        *count = count.saturating_add(counts[usize::from(before.now(start))]);
                    }
                }
            }
        }
        for (index, counter) in later.counters.into_iter().enumerate() {
            let own = self.counter(index);
            *own = own.then(counter);
        }
        for (theirs, count) in later.misses {
            self.add_misses(block(theirs), count);
        }
        if later.known >= design.history_bits {
            self.history = later.history;
        }
    }

    fn add_misses(&mut self, block: u32, count: u64) {
        let sum = self.misses.entry(block).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Certain misses of a block: all of them, if the predictor began empty.
    pub(super) fn misses_of(&self, block: u32) -> u64 {
        self.misses.get(&block).copied().unwrap_or(0)
    }

    /// Whether all numbers are of blocks and counters that exist.
    pub(super) fn is_sound(&self, design: Design, blocks: u32) -> bool {
        let of_blocks = self.first.iter().map(|outcome| outcome.block);
        let mut of_blocks = of_blocks.chain(self.misses.keys().copied());
        self.known <= design.history_bits
            && [0, COUNTERS].contains(&self.counters.len())
            && of_blocks.all(|block| block < blocks)
            && self.depending.keys().all(|&(index, block)| (index as usize) < COUNTERS && block < blocks)
    }
}
