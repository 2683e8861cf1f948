//! Branch outcomes and targets that a trace gives for a walk over blocks.

use std::mem::offset_of;

use crate::NO_OUTCOMES;

/// Conditional branch outcomes, optionally followed by the target of an indirect branch. Native code reads it,
/// hence the C layout.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BranchBatch {
    /// The next outcome is the highest bit, as in [`Graph::pass_branches`](crate::Graph::pass_branches).
    pub outcomes: u64,
    /// Value of `outcomes` at which the walk stops at a checked entry. With 0 it never stops there, because `outcomes`
    /// is never 0.
    pub(crate) stop: u64,
    /// The indirect branch's target; meaningless unless `stop` is 0.
    to: u64,
}

impl BranchBatch {
    pub(crate) const OUTCOMES: usize = offset_of!(BranchBatch, outcomes);
    pub(crate) const STOP: usize = offset_of!(BranchBatch, stop);
    pub(crate) const TO: usize = offset_of!(BranchBatch, to);

    /// An empty batch.
    const NONE: BranchBatch = BranchBatch { outcomes: NO_OUTCOMES, stop: NO_OUTCOMES, to: 0 };

    /// Returns the target of the indirect branch after the outcomes, if there is one.
    #[inline]
    pub fn to(&self) -> Option<u64> {
        (self.stop == 0).then_some(self.to)
    }

    /// Returns the number of outcomes left.
    #[inline]
    pub fn left(&self) -> u8 {
        63 - self.outcomes.trailing_zeros() as u8
    }
}

/// A sequence of branch batches, and how far the walk has followed them.
#[derive(Clone, Debug)]
pub struct BranchBatches {
    /// While native code follows the batches, an empty one comes after the last.
    all: [BranchBatch; BranchBatches::MOST + 1],
    count: usize,
    passed: usize,
    /// Number of outcomes and indirect branches.
    decisions: usize,
}

impl Default for BranchBatches {
    fn default() -> BranchBatches {
        BranchBatches { all: [BranchBatch::NONE; BranchBatches::MOST + 1], count: 0, passed: 0, decisions: 0 }
    }
}

impl BranchBatches {
    /// Maximum number of batches.
    pub const MOST: usize = 16;

    /// Maximum number of outcomes and indirect branches.
    pub(crate) const MOST_DECISIONS: usize = 1 << 7;

    /// Removes all batches.
    #[inline]
    pub fn clear(&mut self) {
        (self.count, self.passed, self.decisions) = (0, 0, 0);
    }

    /// Adds a batch of `count` outcomes, at most 63, the first one in the highest bit, and the target of an indirect
    /// branch. Returns `false` if there is no space left.
    #[inline]
    pub fn push(&mut self, bits: u64, count: u8, to: Option<u64>) -> bool {
        let decisions = self.decisions + usize::from(count) + 1;
        if self.count == BranchBatches::MOST || decisions > BranchBatches::MOST_DECISIONS {
            return false;
        }
        self.all[self.count] = BranchBatch {
            outcomes: (bits << 1 | 1) << (63 - count),
            stop: if to.is_none() { NO_OUTCOMES } else { 0 },
            to: to.unwrap_or(0),
        };
        self.count += 1;
        self.decisions = decisions;
        true
    }

    /// Returns the number of batches.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the total number of outcomes and indirect branches.
    #[inline]
    pub fn decisions(&self) -> usize {
        self.decisions
    }

    /// Returns the number of completed batches.
    #[inline]
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// Returns the rest of the batch being followed, or `None` if all are completed.
    #[inline]
    pub fn current(&mut self) -> Option<&mut BranchBatch> {
        self.all[..self.count].get_mut(self.passed)
    }

    /// Completes the batch being followed.
    #[inline]
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    /// Completes the batch being followed if nothing of it is left. Returns whether it is completed, or all batches
    /// were completed before.
    #[inline]
    pub(crate) fn pass_if_over(&mut self) -> bool {
        let is_over =
            self.current().is_none_or(|batch| batch.outcomes == NO_OUTCOMES && batch.to().is_none());
        self.passed += usize::from(is_over && self.passed < self.count);
        is_over
    }

    /// Returns a pointer to the batch being followed, or to the empty one after the last if all are completed.
    pub(crate) fn here(&mut self) -> *mut BranchBatch {
        self.all[self.count] = BranchBatch::NONE;
        self.all[self.passed..].as_mut_ptr()
    }

    /// Records that native code followed the batches up to `here` and updated that batch.
    pub(crate) fn follow_to(&mut self, here: *const BranchBatch) {
        self.passed = (here.addr() - self.all.as_ptr().addr()) / size_of::<BranchBatch>();
        let outcomes = &mut self.all[self.passed].outcomes;
        // The last shift also removes the marker bit after the outcomes.
        *outcomes = if *outcomes == 0 { NO_OUTCOMES } else { *outcomes };
    }
}
