//! Executions that no other execution of the same function contains. What the executions of a recursive function run
//! counts once among these.

use hodo_model::FunctionId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::durations::{Add, Durations};

/// The outermost executions of a function.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct OutermostSum {
    /// Their instructions.
    pub(super) instructions: Durations,
    /// The instructions of the first.
    pub(super) first: u64,
}

impl Add for OutermostSum {
    fn add(&mut self, later: OutermostSum) {
        if self.instructions.count == 0 {
            self.first = later.first;
        }
        self.instructions.add(later.instructions);
    }
}

impl OutermostSum {
    /// Adds those of another thread; the first is the costlier of both.
    pub(super) fn join(&mut self, other: OutermostSum) {
        self.first = self.first.max(other.first);
        self.instructions.add(other.instructions);
    }
}

/// The outermost executions since the oldest known frame was entered, by function.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outermost {
    /// Number of known frames of each function.
    open: FxHashMap<FunctionId, u32>,
    /// Executions within no other known one.
    sums: FxHashMap<FunctionId, OutermostSum>,
}

impl Outermost {
    /// Returns whether the numbers of frames are those of a stack.
    pub(super) fn is_sound(&self, functions: impl Iterator<Item = FunctionId>) -> bool {
        let mut open = self.open.clone();
        for function in functions {
            match open.get_mut(&function) {
                Some(count) if *count > 0 => *count -= 1,
                _ => return false,
            }
        }
        open.values().all(|&count| count == 0)
    }

    /// A frame is entered.
    #[inline]
    pub(super) fn enter(&mut self, function: FunctionId) {
        let count = self.open.entry(function).or_default();
        *count = count.saturating_add(1);
    }

    /// A frame is left. Returns whether the function has no other one.
    #[inline]
    pub(super) fn leave(&mut self, function: FunctionId) -> bool {
        let Some(count) = self.open.get_mut(&function) else { return true };
        *count = count.saturating_sub(1);
        *count == 0
    }

    /// An execution ended that is within no other known one.
    #[inline]
    pub(super) fn see(&mut self, function: FunctionId, instructions: u64) {
        let sum = self.sums.entry(function).or_default();
        if sum.instructions.count == 0 {
            sum.first = instructions;
        }
        sum.instructions.see(instructions);
    }

    /// As many executions of this length ended.
    pub(super) fn see_times(&mut self, function: FunctionId, instructions: u64, times: u64) {
        let sum = self.sums.entry(function).or_default();
        if sum.instructions.count == 0 {
            sum.first = instructions;
        }
        sum.instructions.see_times(instructions, times);
    }

    /// Adds later executions above the known frames: those of functions without a frame are outermost.
    pub(super) fn add(&mut self, later: FxHashMap<FunctionId, OutermostSum>) {
        for (function, sum) in later {
            if self.open.get(&function).is_none_or(|&count| count == 0) {
                self.sums.entry(function).or_default().add(sum);
            }
        }
    }

    /// Removes and returns the executions.
    pub(super) fn take(&mut self) -> FxHashMap<FunctionId, OutermostSum> {
        std::mem::take(&mut self.sums)
    }
}
