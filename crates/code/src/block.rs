//! Basic blocks.

use std::ops::Range;

use hodo_isa::Terminator;

use crate::{FunctionRun, Label, Origin, Place, Transfer};

/// Index of a block in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct BlockId(pub u32);

/// Straight-line code: consecutive instructions, of which only the last may branch.
#[derive(Clone, Debug)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Address after the last instruction.
    pub end: u64,
    /// Number of instructions; at least one.
    pub instructions: u32,
    /// Kind of the last instruction.
    pub terminator: Terminator,
    /// Target of the last instruction if it is a direct branch, else `end`.
    pub target: u64,
    /// Whether an instruction writes CR3, which may end tracing or change the address space.
    pub writes_cr3: bool,
    /// Whether the last instruction is a call, within the function, over padding that never returns.
    pub is_over_padding: bool,
    /// The caller's [label](crate::Labels) of the code.
    pub label: Label,
    /// Index of its first instruction length in the graph.
    pub(crate) first_length: u32,
}

/// The part of a block that a walk needs. It takes a quarter of a cache line, because a walk over much code mostly
/// waits for memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub struct CompactBlock {
    /// Successors if the branch is not taken and if it is taken, or [`NOT_SEEN`]; both are the same if only one is
    /// possible.
    pub(crate) next: [BlockId; 2],
    /// Function number: blocks share it if they have the same module and function.
    pub function: u32,
    /// Number of instructions.
    pub instructions: u16,
    /// What a walk needs to leave the block.
    pub edge: EdgeKind,
    /// The place in its function at which the block begins.
    pub(crate) place: Place,
}

/// What a walk needs to leave a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// Nothing; no call is pushed.
    Free,
    /// The outcome of a conditional branch.
    Branch,
    /// Nothing; a call is pushed.
    Call,
    /// Nothing; a return address is pushed, but no function is called: see [`Transfer::PushOnly`].
    PushOnly,
    /// A near return.
    Return,
    /// An indirect jump.
    IndirectJump,
    /// An indirect call.
    IndirectCall,
    /// Something else, or the code changes over time.
    Other,
}

impl EdgeKind {
    /// Returns what leaving the block does to the call stack.
    #[inline]
    pub fn transfer(self) -> Transfer {
        match self {
            EdgeKind::Call | EdgeKind::IndirectCall => Transfer::Call,
            EdgeKind::PushOnly => Transfer::PushOnly,
            EdgeKind::Return => Transfer::Return,
            EdgeKind::IndirectJump => Transfer::IndirectJump,
            EdgeKind::Free | EdgeKind::Branch | EdgeKind::Other => Transfer::None,
        }
    }
}

/// The successor of a branch is its target.
pub const TAKEN: bool = true;
/// The successor of a branch is the code after it.
pub const NOT_TAKEN: bool = false;

impl CompactBlock {
    /// Returns the successor with the branch taken or not, or `None` if no walk has found it yet.
    #[inline]
    pub fn next(&self, taken: bool) -> Option<BlockId> {
        Some(self.next[usize::from(taken)]).filter(|&next| next != NOT_SEEN)
    }

    /// Returns [`FunctionRun::begins`] for a function run that begins with this block.
    #[inline]
    pub(crate) fn begins(&self) -> u32 {
        FunctionRun::begins(self.function, self.place)
    }

    /// Creates the compact form of a block of a function, without successors.
    pub(crate) fn of(block: &Block, is_lasting: bool, function: u32) -> CompactBlock {
        let edge = match block.terminator {
            _ if !is_lasting => EdgeKind::Other,
            Terminator::None | Terminator::Jump => EdgeKind::Free,
            Terminator::Call if block.is_call() => EdgeKind::Call,
            Terminator::Call if block.pushes_return() => EdgeKind::PushOnly,
            Terminator::Call => EdgeKind::Free,
            Terminator::Conditional => EdgeKind::Branch,
            Terminator::Return => EdgeKind::Return,
            Terminator::IndirectJump => EdgeKind::IndirectJump,
            Terminator::IndirectCall => EdgeKind::IndirectCall,
            Terminator::Far | Terminator::Trap | Terminator::Barrier | Terminator::Wait => EdgeKind::Other,
        };
        let (instructions, place) = (block.instructions as u16, block.label.place);
        CompactBlock { next: [NOT_SEEN; 2], function, instructions, edge, place }
    }
}

/// Marks a successor that no walk has found yet.
pub(crate) const NOT_SEEN: BlockId = BlockId(u32::MAX);

/// The bytes of the instructions of blocks.
#[derive(Debug, Default)]
pub struct BlockBytes {
    bytes: Vec<u8>,
    /// By block: the end of its bytes.
    ends: Vec<usize>,
}

impl BlockBytes {
    /// Returns the bytes of a block.
    pub fn of(&self, id: BlockId) -> &[u8] {
        let id = id.0 as usize;
        let begin = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[id]]
    }

    /// Adds the next block, whose bytes `append` appends.
    pub(crate) fn push(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }
}

/// Source and validity of a block's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Where the first byte comes from.
    pub origin: Origin,
    /// Ticks during which the code is unchanged.
    pub valid: Range<u64>,
}

/// Validity of code that never changes.
pub(crate) const ALWAYS: Range<u64> = 0..u64::MAX;

impl Provenance {
    /// Returns whether the code never changes.
    pub fn is_lasting(&self) -> bool {
        self.valid == ALWAYS
    }
}

impl Block {
    /// Returns what the block's last instruction does to the call stack.
    #[inline]
    pub fn transfer(&self) -> Transfer {
        match self.terminator {
            Terminator::Call | Terminator::IndirectCall if self.is_call() => Transfer::Call,
            Terminator::Call if self.pushes_return() => Transfer::PushOnly,
            Terminator::Return => Transfer::Return,
            Terminator::IndirectJump => Transfer::IndirectJump,
            _ => Transfer::None,
        }
    }

    /// Returns whether the block ends in a near call of code that may return. `call +0` only reads the instruction
    /// pointer, and a call over a speculation trap only pushes an address.
    pub fn is_call(&self) -> bool {
        self.pushes_return() && !self.is_over_padding
    }

    /// Returns whether the block ends in a near call that the processor remembers for return compression: every one,
    /// except for direct calls to the next instruction (SDM, "RET Compression").
    pub fn pushes_return(&self) -> bool {
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
    fn blocks_fit_lines_of_the_cache() {
        assert_eq!((size_of::<Block>(), size_of::<CompactBlock>()), (48, 16));
    }
}
