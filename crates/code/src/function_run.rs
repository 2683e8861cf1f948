//! Function runs that run.

use hodo_model::{FunctionRun, Transfer};

use crate::CompactBlock;

/// Function runs that ended one after another, and the one that is open, of which some instructions ran or none yet.
#[derive(Debug, Default)]
pub struct FunctionRuns {
    /// Those, and room that machine code writes to.
    all: Vec<FunctionRun>,
    ended: usize,
}

impl Clone for FunctionRuns {
    /// Without the room, which may be large.
    fn clone(&self) -> FunctionRuns {
        let all = &self.all[..self.all.len().min(self.ended + 1)];
        FunctionRuns { all: all.to_vec(), ended: self.ended }
    }
}

impl FunctionRuns {
    /// So many more at least.
    const ROOM: usize = 1 << 6;

    /// Nothing, where nothing begins.
    const NONE: FunctionRun = FunctionRun { start: 0, begins: 0, until: 0, transfer: Transfer::None, end: 0 };

    /// Those that ended, and room for at least so many more behind the open one.
    #[inline(always)]
    pub(crate) fn with_room(&mut self, more: usize) -> &mut [FunctionRun] {
        if self.all.len() <= self.ended + more {
            self.grow(more);
        }
        &mut self.all[self.ended..]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        self.all.resize(self.ended + 1 + more.max(FunctionRuns::ROOM), FunctionRuns::NONE);
    }

    /// So many more ended.
    #[inline(always)]
    pub(crate) fn end_more(&mut self, more: usize) {
        self.ended += more;
    }

    /// Those that ended.
    #[inline(always)]
    pub fn ended(&self) -> &[FunctionRun] {
        &self.all[..self.ended]
    }

    /// The open one.
    #[inline(always)]
    pub fn open(&mut self) -> &mut FunctionRun {
        &mut self.with_room(0)[0]
    }

    /// Whether nothing ran.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.all.get(self.ended).is_none_or(|open| open.until == 0)
    }

    /// Whether nothing of the open one ran.
    #[inline(always)]
    pub fn nothing_is_open(&mut self) -> bool {
        let before = self.ended().last().map_or(0, |last| last.until);
        self.open().until == before
    }

    /// Begins one that is open, in place of the last, of which nothing ran.
    #[inline(always)]
    pub fn begin(&mut self, start: u64, hop: CompactBlock) {
        let open = self.open();
        // One by one: a processor waits where it reads together what was written in parts.
        (open.start, open.begins) = (start, hop.begins());
    }

    /// Ends the open one with some instructions more.
    #[inline(always)]
    pub fn end(&mut self, instructions: u32, transfer: Transfer, end: u64) {
        let open = self.open();
        open.until += instructions;
        (open.transfer, open.end) = (transfer, end);
        let until = open.until;
        self.ended += 1;
        self.open().until = until;
    }

    /// Ends the open one, if any of it ran; the next one begins where it did, if it goes on with it.
    #[inline(always)]
    pub fn close(&mut self) {
        if !self.nothing_is_open() {
            let &mut FunctionRun { start, begins, .. } = self.open();
            self.end(0, Transfer::None, 0);
            let open = self.open();
            (open.start, open.begins) = (start, begins);
        }
    }

    /// Forgets all that ended.
    #[inline(always)]
    pub fn clear(&mut self) {
        let &mut FunctionRun { start, begins, .. } = self.open();
        self.ended = 0;
        let open = self.open();
        (open.start, open.begins, open.until) = (start, begins, 0);
    }
}
