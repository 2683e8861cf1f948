//! Blocks that ran, as those are told who need not know each of them.

use crate::{Block, Hop, Pass, Terminator};

/// Blocks of one function that ran to their ends, one after another. Machine code writes these, so they are laid out
/// as in C.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stretch {
    /// Where the first of them starts.
    pub start: u64,
    /// The number of their function in their graph, and in the highest bits whether they begin where it does.
    pub(crate) place: u32,
    /// Instructions up to their end, those of the stretches that come before them included.
    pub until: u32,
    /// What the last one does to the call stack.
    pub transfer: Transfer,
    /// The address after the last one, where it is a call.
    pub end: u64,
}

impl Stretch {
    /// The number of their function in their graph.
    #[inline]
    pub fn function(&self) -> u32 {
        self.place & Hop::FUNCTION
    }

    /// Whether they begin where their function does; `None` where functions are not known.
    #[inline]
    pub fn at_entry(&self) -> Option<bool> {
        match self.place & !Hop::FUNCTION {
            Hop::AT_ENTRY => Some(true),
            Hop::INSIDE => Some(false),
            _ => None,
        }
    }
}

/// Stretches that ended one after another, and the one that is open, of which some instructions ran or none yet.
#[derive(Debug, Default)]
pub struct Stretches {
    /// Those, and room that machine code writes to.
    all: Vec<Stretch>,
    ended: usize,
}

impl Clone for Stretches {
    /// Without the room, which may be large.
    fn clone(&self) -> Stretches {
        let all = &self.all[..self.all.len().min(self.ended + 1)];
        Stretches { all: all.to_vec(), ended: self.ended }
    }
}

impl Stretches {
    /// So many more at least.
    const ROOM: usize = 1 << 6;

    /// Nothing, where nothing begins.
    const NONE: Stretch = Stretch { start: 0, place: 0, until: 0, transfer: Transfer::None, end: 0 };

    /// Those that ended, and room for at least so many more behind the open one.
    #[inline(always)]
    pub(crate) fn with_room(&mut self, more: usize) -> &mut [Stretch] {
        if self.all.len() <= self.ended + more {
            self.grow(more);
        }
        &mut self.all[self.ended..]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        self.all.resize(self.ended + 1 + more.max(Stretches::ROOM), Stretches::NONE);
    }

    /// So many more ended.
    #[inline(always)]
    pub(crate) fn end_more(&mut self, more: usize) {
        self.ended += more;
    }

    /// Those that ended.
    #[inline(always)]
    pub fn ended(&self) -> &[Stretch] {
        &self.all[..self.ended]
    }

    /// The open one.
    #[inline(always)]
    pub fn open(&mut self) -> &mut Stretch {
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
    pub fn begin(&mut self, start: u64, hop: Hop) {
        let open = self.open();
        // One by one: a processor waits where it reads together what was written in parts.
        (open.start, open.place) = (start, hop.place());
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

    /// Ends the open one, if any of it ran, and forgets it else.
    #[inline(always)]
    pub fn close(&mut self) {
        if !self.nothing_is_open() {
            self.end(0, Transfer::None, 0);
        }
    }

    /// Forgets all.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.ended = 0;
        self.open().until = 0;
    }
}

/// A branch as far as it changes the call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transfer {
    /// None, a direct or conditional branch, or a far one.
    None,
    /// A near call, which will return to the address after it.
    Call,
    /// A near return.
    Return,
    /// A near jump through a register or memory.
    IndirectJump,
}

impl Transfer {
    /// What the end of a block that is passed is.
    #[inline]
    pub fn over(pass: Pass) -> Transfer {
        match pass {
            Pass::Call | Pass::IndirectCall => Transfer::Call,
            Pass::Return => Transfer::Return,
            Pass::IndirectJump => Transfer::IndirectJump,
            Pass::Free | Pass::Branch | Pass::Other => Transfer::None,
        }
    }

    /// What the end of a block does to the call stack.
    #[inline]
    pub fn of(block: &Block) -> Transfer {
        match block.terminator {
            Terminator::Call | Terminator::IndirectCall if block.is_call() => Transfer::Call,
            Terminator::Return => Transfer::Return,
            Terminator::IndirectJump => Transfer::IndirectJump,
            _ => Transfer::None,
        }
    }
}
