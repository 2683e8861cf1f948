//! Steps of a path that a sink learns.

use hodo_code::{Block, BlockId, Label, Place, Transfer};

/// The block of a step that is no single block.
const UNKNOWN: BlockId = BlockId(u32::MAX);

/// Consecutive instructions of one function, and the kind of the last one.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Address of the first instruction.
    pub start: u64,
    /// Address after the last instruction.
    pub end: u64,
    module: u32,
    function: u32,
    /// The block that begins at `start`.
    pub block: BlockId,
    /// Number of instructions.
    pub instructions: u16,
    /// Effect of the last instruction on the call stack.
    pub transfer: Transfer,
    place: Place,
}

impl Step {
    /// A step without instructions.
    pub const NONE: Step = Step {
        start: 0,
        end: 0,
        module: 0,
        function: 0,
        block: UNKNOWN,
        instructions: 0,
        transfer: Transfer::None,
        place: Place::Unknown,
    };

    /// Creates a step from a block.
    #[inline]
    pub fn new(block: &Block, transfer: Transfer) -> Step {
        let Block { start, end, label: Label { module, function, place }, .. } = *block;
        // The maximum block length fits 16 bits.
        let instructions = block.instructions as u16;
        Step { start, end, module, function, block: UNKNOWN, instructions, transfer, place }
    }

    /// Creates the step of a whole block.
    #[inline]
    pub fn of_block(id: BlockId, block: &Block) -> Step {
        Step { block: id, ..Step::new(block, block.transfer()) }
    }

    /// Returns the label of the code at `start`.
    #[inline]
    pub fn label(&self) -> Label {
        Label { module: self.module, function: self.function, place: self.place }
    }

    /// Appends the next step; returns `false` if it is not part of the same function run.
    #[inline]
    pub fn join(&mut self, next: &Step) -> bool {
        let same_run =
            self.transfer == Transfer::None && (self.module, self.function) == (next.module, next.function);
        match self.instructions.checked_add(next.instructions).filter(|_| same_run) {
            Some(instructions) => {
                (self.instructions, self.end) = (instructions, next.end);
                self.transfer = next.transfer;
                true
            }
            None => false,
        }
    }
}
