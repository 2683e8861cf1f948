//! Executions that no other execution of the same function contains. What the executions of a recursive function run
//! counts once among these.

use hodo_model::FunctionId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::executions::ExecutionSum;
use crate::durations::{Add, Durations, add_fields};

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
    /// Adds as many executions of this length. Returns whether these are the first.
    #[inline]
    fn see(&mut self, length: u64, times: u64) -> bool {
        let is_first = self.instructions.count == 0;
        if is_first {
            self.first = length;
        }
        self.instructions.see_times(length, times);
        is_first
    }

    /// Adds those of another thread; the first is the costlier of both.
    pub(super) fn join(&mut self, other: OutermostSum) {
        self.first = self.first.max(other.first);
        self.instructions.add(other.instructions);
    }
}

/// The executions of a function, as they end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct OfFunction {
    /// Number of known frames.
    open: u32,
    /// Executions within no other known one.
    outermost: OutermostSum,
    /// All executions, if they are counted as they end.
    all: UntimedSum,
}

/// Executions of a function, without times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct UntimedSum {
    instructions: Durations,
    /// Number of executions that began or ended outside the recording.
    incomplete: u64,
}

add_fields!(UntimedSum { instructions, incomplete });

impl UntimedSum {
    /// Returns whether there is any execution.
    fn is_known(&self) -> bool {
        self.incomplete > 0 || self.instructions.count > 0
    }
}

/// The outermost executions since the oldest known frame was entered, by function; and all executions, if they have no
/// times. Both need one look-up when an execution ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outermost {
    functions: FxHashMap<FunctionId, OfFunction>,
    /// The functions with outermost executions.
    seen: Vec<FunctionId>,
}

impl Outermost {
    /// Returns whether the numbers of frames are those of a stack.
    pub(super) fn is_sound(&self, functions: impl Iterator<Item = FunctionId>) -> bool {
        let open = self.functions.iter().map(|(function, own)| (*function, own.open));
        let mut open: FxHashMap<FunctionId, u32> = open.collect();
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
        let own = self.functions.entry(function).or_default();
        own.open = own.open.saturating_add(1);
    }

    /// A frame is left. Returns whether the function has no other one.
    #[inline]
    pub(super) fn leave(&mut self, function: FunctionId) -> bool {
        let Some(own) = self.functions.get_mut(&function) else { return true };
        own.open = own.open.saturating_sub(1);
        own.open == 0
    }

    /// A frame is left, and its execution has no time: its length, or `None` if it is not complete.
    #[inline]
    pub(super) fn end(&mut self, function: FunctionId, length: Option<u64>) {
        let own = self.functions.entry(function).or_default();
        own.open = own.open.saturating_sub(1);
        let Some(length) = length else {
            own.all.incomplete = own.all.incomplete.saturating_add(1);
            return;
        };
        own.all.instructions.see(length);
        if own.open == 0 && own.outermost.see(length, 1) {
            self.seen.push(function);
        }
    }

    /// An execution ended that is within no other known one.
    #[inline]
    pub(super) fn see(&mut self, function: FunctionId, length: u64) {
        if self.functions.entry(function).or_default().outermost.see(length, 1) {
            self.seen.push(function);
        }
    }

    /// As many executions of this length ended, which have no times.
    pub(super) fn see_times(&mut self, function: FunctionId, length: u64, times: u64, is_outermost: bool) {
        let own = self.functions.entry(function).or_default();
        own.all.instructions.see_times(length, times);
        if is_outermost && own.outermost.see(length, times) {
            self.seen.push(function);
        }
    }

    /// Adds later executions above the known frames: those of functions without a frame are outermost.
    pub(super) fn add(&mut self, later: FxHashMap<FunctionId, OutermostSum>) {
        for (function, sum) in later {
            let own = self.functions.entry(function).or_default();
            if own.open == 0 {
                if own.outermost.instructions.count == 0 {
                    self.seen.push(function);
                }
                own.outermost.add(sum);
            }
        }
    }

    /// Removes and returns the outermost executions.
    pub(super) fn take(&mut self) -> FxHashMap<FunctionId, OutermostSum> {
        let seen = std::mem::take(&mut self.seen);
        let taken = seen.into_iter().filter_map(|function| {
            Some((function, std::mem::take(&mut self.functions.get_mut(&function)?.outermost)))
        });
        taken.collect()
    }

    /// Adds all executions of a later partial.
    pub(super) fn add_all(&mut self, later: &Outermost) {
        for (function, other) in &later.functions {
            if other.all.is_known() {
                self.functions.entry(*function).or_default().all.add(other.all.clone());
            }
        }
    }

    /// Removes and returns all executions that have no times.
    pub(super) fn all(&mut self) -> impl Iterator<Item = (FunctionId, ExecutionSum)> {
        self.functions.iter_mut().filter(|(_, own)| own.all.is_known()).map(|(function, own)| {
            let UntimedSum { instructions, incomplete } = std::mem::take(&mut own.all);
            (*function, ExecutionSum { time: Durations::default(), instructions, incomplete })
        })
    }
}
