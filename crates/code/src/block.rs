//! Basic blocks.

use std::ops::Range;

use hodo_model::{FunctionRun, Place, Transfer};

use crate::{Label, Origin};

/// Index of a block in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct BlockId(pub u32);

/// How a block ends, as Intel PT sees it (SDM, "Change of Flow Instruction Tracing").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// No branch: the next block follows at its end.
    None,
    /// Jcc, JCXZ, LOOP: a TNT bit decides.
    Conditional,
    /// Direct jump: no packet.
    Jump,
    /// Direct near call: no packet.
    Call,
    /// Indirect jump: a TIP.
    IndirectJump,
    /// Indirect near call: a TIP.
    IndirectCall,
    /// Near return: a TNT bit where compressed, else a TIP.
    Return,
    /// Far transfer: SYSCALL, SYSRET, INT n, IRET, far call, jump and return, VM entry and exit: a TIP,
    /// or TIP.PGD where tracing ends with it.
    Far,
}

/// Straight-line code: instructions that run one after the other, the last of which may branch.
#[derive(Clone, Debug)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Address after the last instruction.
    pub end: u64,
    /// Number of instructions; at least one.
    pub instructions: u32,
    /// What the last instruction is.
    pub terminator: Terminator,
    /// Where the last instruction goes, for direct branches; `end` else.
    pub target: u64,
    /// Whether an instruction writes CR3, which may end tracing or change the address space.
    pub writes_cr3: bool,
    /// What the caller's [`Labels`](crate::Labels) say about the code.
    pub label: Label,
    /// Where its instruction lengths begin in the graph.
    pub(crate) lengths: u32,
}

/// A block for those who only pass over it: a quarter of a line of the cache, as walking over much code is waiting
/// for memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub struct CompactBlock {
    /// The blocks without and with its branch, or [`UNMET`]; where only one can follow, both are that one.
    pub(crate) next: [BlockId; 2],
    /// A number that blocks with the same module and function share.
    pub function: u32,
    /// Number of instructions.
    pub instructions: u16,
    /// What it takes to pass.
    pub pass: EdgeKind,
    /// Where in its function the block begins.
    pub(crate) place: Place,
}

/// What it takes to pass over a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// Nothing, and no call is remembered.
    Free,
    /// The outcome of a conditional branch.
    Branch,
    /// Nothing, but a call is remembered.
    Call,
    /// A near return.
    Return,
    /// An indirect jump.
    IndirectJump,
    /// An indirect call.
    IndirectCall,
    /// Something else, or its code is not the same at all times.
    Other,
}

impl EdgeKind {
    /// What the end of a block that is passed does to the call stack.
    #[inline]
    pub fn transfer(self) -> Transfer {
        match self {
            EdgeKind::Call | EdgeKind::IndirectCall => Transfer::Call,
            EdgeKind::Return => Transfer::Return,
            EdgeKind::IndirectJump => Transfer::IndirectJump,
            EdgeKind::Free | EdgeKind::Branch | EdgeKind::Other => Transfer::None,
        }
    }
}

impl CompactBlock {
    /// The block that follows, with its branch taken or not; `None` where none was met there yet.
    #[inline]
    pub fn next(&self, taken: bool) -> Option<BlockId> {
        Some(self.next[usize::from(taken)]).filter(|&next| next != UNMET)
    }

    /// How a [`FunctionRun`] begins with it.
    #[inline]
    pub(crate) fn begins(&self) -> u32 {
        FunctionRun::begins(self.function, self.place)
    }

    /// A hop over a block of a function, from where no other was met yet.
    pub(crate) fn over(block: &Block, is_lasting: bool, function: u32) -> CompactBlock {
        let pass = match block.terminator {
            _ if !is_lasting => EdgeKind::Other,
            Terminator::None | Terminator::Jump => EdgeKind::Free,
            Terminator::Call if block.is_call() => EdgeKind::Call,
            Terminator::Call => EdgeKind::Free,
            Terminator::Conditional => EdgeKind::Branch,
            Terminator::Return => EdgeKind::Return,
            Terminator::IndirectJump => EdgeKind::IndirectJump,
            Terminator::IndirectCall => EdgeKind::IndirectCall,
            Terminator::Far => EdgeKind::Other,
        };
        let (instructions, place) = (block.instructions as u16, block.label.place);
        CompactBlock { next: [UNMET; 2], function, instructions, pass, place }
    }
}

/// No block: none was met there yet.
pub(crate) const UNMET: BlockId = BlockId(u32::MAX);

/// Where the code of a block comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Where its first byte comes from.
    pub origin: Origin,
    /// The ticks during which the code is what it is.
    pub valid: Range<u64>,
}

/// Ticks of code that is the same at all times.
pub(crate) const ALWAYS: Range<u64> = 0..u64::MAX;

impl Provenance {
    /// Whether the code is the same at all times.
    pub fn is_lasting(&self) -> bool {
        self.valid == ALWAYS
    }
}

impl Block {
    /// What its end does to the call stack.
    #[inline]
    pub fn transfer(&self) -> Transfer {
        match self.terminator {
            Terminator::Call | Terminator::IndirectCall if self.is_call() => Transfer::Call,
            Terminator::Return => Transfer::Return,
            Terminator::IndirectJump => Transfer::IndirectJump,
            _ => Transfer::None,
        }
    }

    /// Whether the block ends in a near call that goes elsewhere than to the next instruction
    /// (`call +0` only reads the instruction pointer).
    pub fn is_call(&self) -> bool {
        match self.terminator {
            Terminator::Call => self.target != self.end,
            Terminator::IndirectCall => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_fit_lines_of_the_cache() {
        assert_eq!((size_of::<Block>(), size_of::<CompactBlock>()), (48, 16));
    }
}
