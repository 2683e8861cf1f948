//! What a trace tells of the way over blocks.

use std::mem::offset_of;

use crate::NO_OUTCOMES;

/// Outcomes of branches, and then perhaps an indirect branch to an address. Machine code reads these, so they are laid
/// out as in C.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BranchBatch {
    /// The next one highest, as [`Graph::pass_branches`](crate::Graph::pass_branches) takes them.
    pub outcomes: u64,
    /// Outcomes that are left where it stops at a gate; what is never left stops nothing.
    pub(crate) stop: u64,
    to: u64,
}

impl BranchBatch {
    pub(crate) const OUTCOMES: usize = offset_of!(BranchBatch, outcomes);
    pub(crate) const STOP: usize = offset_of!(BranchBatch, stop);
    pub(crate) const TO: usize = offset_of!(BranchBatch, to);

    /// No way at all.
    const NONE: BranchBatch = BranchBatch { outcomes: NO_OUTCOMES, stop: NO_OUTCOMES, to: 0 };

    /// Where an indirect branch leads behind the outcomes, if one is to be passed.
    #[inline]
    pub fn to(&self) -> Option<u64> {
        (self.stop == 0).then_some(self.to)
    }

    /// How many outcomes are left.
    #[inline]
    pub fn left(&self) -> u8 {
        63 - self.outcomes.trailing_zeros() as u8
    }
}

/// Some legs one after another, and how far they were followed.
#[derive(Clone, Debug)]
pub struct BranchBatches {
    /// Behind the last one stands one that is none, while machine code follows them.
    all: [BranchBatch; BranchBatches::MOST + 1],
    count: usize,
    passed: usize,
    /// Outcomes and indirect branches.
    decisions: usize,
}

impl Default for BranchBatches {
    fn default() -> BranchBatches {
        BranchBatches { all: [BranchBatch::NONE; BranchBatches::MOST + 1], count: 0, passed: 0, decisions: 0 }
    }
}

impl BranchBatches {
    /// The most of them.
    pub const MOST: usize = 16;

    /// The most outcomes and indirect branches.
    pub(crate) const MOST_DECISIONS: usize = 1 << 7;

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        (self.count, self.passed, self.decisions) = (0, 0, 0);
    }

    /// Adds a leg of so many outcomes, at most 63, of which the first one is the highest bit, and an indirect branch to
    /// an address; `false` where there is no more room.
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

    /// How many there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many outcomes and indirect branches they are together.
    #[inline]
    pub fn decisions(&self) -> usize {
        self.decisions
    }

    /// How many were passed.
    #[inline]
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// The one that is being followed, with what is left of it; `None` where all were passed.
    #[inline]
    pub fn current(&mut self) -> Option<&mut BranchBatch> {
        self.all[..self.count].get_mut(self.passed)
    }

    /// That one was followed.
    #[inline]
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    /// Passes the one that is being followed if nothing of it is left; whether that is so, or all were passed.
    #[inline]
    pub(crate) fn pass_if_over(&mut self) -> bool {
        let is_over = self.current().is_none_or(|leg| leg.outcomes == NO_OUTCOMES && leg.to().is_none());
        self.passed += usize::from(is_over && self.passed < self.count);
        is_over
    }

    /// Where the one lies that is being followed, or none, if all were passed.
    pub(crate) fn here(&mut self) -> *mut BranchBatch {
        self.all[self.count] = BranchBatch::NONE;
        self.all[self.passed..].as_mut_ptr()
    }

    /// Machine code followed them up to there, and left there what is left of that one.
    pub(crate) fn follow_to(&mut self, here: *const BranchBatch) {
        self.passed = (here.addr() - self.all.as_ptr().addr()) / size_of::<BranchBatch>();
        let outcomes = &mut self.all[self.passed].outcomes;
        // The last shift took the bit that follows the outcomes.
        *outcomes = if *outcomes == 0 { NO_OUTCOMES } else { *outcomes };
    }
}
