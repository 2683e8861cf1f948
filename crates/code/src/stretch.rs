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
    /// Their instructions.
    pub instructions: u32,
    /// What the last one does to the call stack.
    pub transfer: Transfer,
    /// The address after the last one, where it is a call.
    pub end: u64,
}

impl Stretch {
    /// Nothing yet, before a block that starts there.
    #[inline]
    pub fn before(start: u64, hop: Hop) -> Stretch {
        Stretch { start, place: hop.place(), instructions: 0, transfer: Transfer::None, end: 0 }
    }

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
