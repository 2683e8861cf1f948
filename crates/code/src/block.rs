//! Basic blocks.

use std::ops::Range;

use crate::{Label, Origin};

/// Index of a block in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// Straight-line code: instructions that run one after the other, the last of which may branch. What it takes to walk
/// on is one line of the cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
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
    /// The block at `end` and at `target`, or [`UNMET`].
    pub(crate) links: [BlockId; 2],
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

impl Provenance {
    /// Whether the code is the same at all times.
    pub fn is_lasting(&self) -> bool {
        self.valid == (0..u64::MAX)
    }
}

impl Block {
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
    fn a_block_is_one_line_of_the_cache() {
        assert_eq!(size_of::<Block>(), 64);
    }
}
