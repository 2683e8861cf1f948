//! Converts decoder output to the analyses' types.

use hodo_code::{Graph, Label, Labels, Terminator};
use hodo_flow::{Executed, Step};
use hodo_model::{Arrival, Code, End, FunctionId, Numbering, Run};

/// Converts a step to a run.
#[inline]
pub(crate) fn run(step: &Step) -> Run {
    let at = arrival(step.start, step.label());
    Run { at, instructions: step.instructions.into(), transfer: step.transfer, end: step.end }
}

/// Converts the start of a block to an arrival.
#[inline]
pub(crate) fn arrival(address: u64, label: Label) -> Arrival {
    let function = FunctionId { module: label.module, index: label.function };
    Arrival { address, function, place: label.place }
}

/// The functions of a graph by number.
pub(crate) struct GraphFunctions<'g, 'a, L>(pub(crate) &'g Graph<'a, L>);

impl<L: Labels> Numbering for GraphFunctions<'_, '_, L> {
    fn id(&self) -> u64 {
        self.0.number()
    }

    fn function(&self, number: u32) -> FunctionId {
        self.0.function(number)
    }
}

/// Converts the executed part of a block to code.
#[inline]
pub(crate) fn code<'a>(executed: &Executed<'a>) -> Code<'a> {
    let block = executed.block;
    let (lengths, bytes, isa) = (executed.lengths, executed.bytes(), executed.code.isa);
    let provenance = executed.provenance();
    let (offset, since) = (provenance.origin.offset, provenance.valid.start);
    if !executed.is_whole() {
        let target = lengths.iter().fold(block.start, |address, &length| address.wrapping_add(length.into()));
        return Code { offset, since, lengths, bytes, isa, end: End::Next, target };
    }
    let end = match block.terminator {
        Terminator::None | Terminator::Trap | Terminator::Barrier | Terminator::Wait => End::Next,
        Terminator::Conditional => End::Conditional,
        Terminator::Jump => End::Jump,
        Terminator::Call | Terminator::IndirectCall if block.is_call() => End::Call,
        // It reads the instruction pointer, or only pushes an address.
        Terminator::Call | Terminator::IndirectCall => End::Jump,
        Terminator::Return => End::Return,
        Terminator::IndirectJump => End::Indirect,
        Terminator::Far => End::Far,
    };
    Code { offset, since, lengths, bytes, isa, end, target: block.target }
}
