//! The function runs of a walk.

use crate::{CompactBlock, FunctionRun, Transfer};

/// Completed function runs in order, and the open one, which may still be without instructions.
#[derive(Debug, Default)]
pub struct FunctionRuns {
    /// Completed runs, the open one, and spare slots that native code writes to.
    all: Vec<FunctionRun>,
    ended: usize,
}

impl Clone for FunctionRuns {
    /// Leaves out the spare slots, which may be many.
    fn clone(&self) -> FunctionRuns {
        let all = &self.all[..self.all.len().min(self.ended + 1)];
        FunctionRuns { all: all.to_vec(), ended: self.ended }
    }
}

impl FunctionRuns {
    /// Minimum growth, in function runs.
    const LEAST_GROWTH: usize = 1 << 6;

    /// An empty function run.
    const NONE: FunctionRun = FunctionRun { start: 0, begins: 0, until: 0, transfer: Transfer::None, end: 0 };

    /// Returns the open function run and at least `more` spare slots after it.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, more: usize) -> &mut [FunctionRun] {
        if self.all.len() <= self.ended + more {
            self.grow(more);
        }
        &mut self.all[self.ended..]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        self.all.resize(self.ended + 1 + more.max(FunctionRuns::LEAST_GROWTH), FunctionRuns::NONE);
    }

    /// Completes `more` function runs.
    #[inline(always)]
    pub(crate) fn end_more(&mut self, more: usize) {
        self.ended += more;
    }

    /// Returns the completed function runs.
    #[inline(always)]
    pub fn ended(&self) -> &[FunctionRun] {
        &self.all[..self.ended]
    }

    /// Returns the open function run.
    #[inline(always)]
    pub fn open(&mut self) -> &mut FunctionRun {
        &mut self.reserve(0)[0]
    }

    /// Returns whether no instruction ran.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.all.get(self.ended).is_none_or(|open| open.until == 0)
    }

    /// Returns whether the open function run has no instructions.
    #[inline(always)]
    pub fn has_no_open_run(&mut self) -> bool {
        let before = self.ended().last().map_or(0, |last| last.until);
        self.open().until == before
    }

    /// Begins a function run in place of the open one, which must have no instructions.
    #[inline(always)]
    pub fn begin(&mut self, start: u64, compact: CompactBlock) {
        let open = self.open();
        // Separate stores: a wide load right after narrow stores stalls, as it can't be forwarded.
        (open.start, open.begins) = (start, compact.begins());
    }

    /// Adds instructions to the open function run and completes it.
    #[inline(always)]
    pub fn end(&mut self, instructions: u32, transfer: Transfer, end: u64) {
        let open = self.open();
        open.until += instructions;
        (open.transfer, open.end) = (transfer, end);
        let until = open.until;
        self.ended += 1;
        self.open().until = until;
    }

    /// Completes the open function run if it has instructions. The next one begins at the same place, in case it
    /// continues.
    #[inline(always)]
    pub fn close(&mut self) {
        if !self.has_no_open_run() {
            let &mut FunctionRun { start, begins, .. } = self.open();
            self.end(0, Transfer::None, 0);
            let open = self.open();
            (open.start, open.begins) = (start, begins);
        }
    }

    /// Removes all function runs, but keeps their memory.
    pub fn reset(&mut self) {
        self.ended = 0;
        if let Some(open) = self.all.first_mut() {
            *open = FunctionRuns::NONE;
        }
    }

    /// Removes the completed function runs.
    #[inline(always)]
    pub fn clear(&mut self) {
        let &mut FunctionRun { start, begins, .. } = self.open();
        self.ended = 0;
        let open = self.open();
        (open.start, open.begins, open.until) = (start, begins, 0);
    }
}
