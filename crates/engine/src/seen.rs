//! What a flow shows, in the words of analyses.

use hodo_code::{Graph, Label, Labels, Terminator};
use hodo_intel_pt::flow::{self, Executed, Step, Stretch};
use hodo_trace::{Arrival, Code, End, FunctionId, NumberedRun, Numbering, Place, Run, Transfer};

/// A step, in the words of analyses.
#[inline]
pub(crate) fn run(step: &Step) -> Run {
    let at = arrival(step.start, step.label());
    let (instructions, transfer) = (u64::from(step.instructions), transfer(step.transfer));
    Run { at, instructions, transfer, end: step.end }
}

/// A stretch, in the words of analyses.
#[inline]
pub(crate) fn numbered_run(stretch: &Stretch) -> NumberedRun {
    let &Stretch { start, until, transfer: of, end, .. } = stretch;
    let (place, transfer) = (place(stretch.at_entry()), transfer(of));
    NumberedRun { start, function: stretch.function(), place, until: until.into(), transfer, end }
}

/// What the end of a block is, in the words of analyses.
#[inline]
pub(crate) fn transfer(of: flow::Transfer) -> Transfer {
    match of {
        flow::Transfer::None => Transfer::None,
        flow::Transfer::Call => Transfer::Call,
        flow::Transfer::Return => Transfer::Return,
        flow::Transfer::IndirectJump => Transfer::IndirectJump,
    }
}

/// Where code begins, in the words of analyses.
#[inline]
pub(crate) fn arrival(address: u64, label: Label) -> Arrival {
    let function = FunctionId { module: label.module, index: label.function };
    Arrival { address, function, place: place(label.at_entry) }
}

#[inline]
pub(crate) fn place(at_entry: Option<bool>) -> Place {
    match at_entry {
        Some(true) => Place::Entry,
        Some(false) => Place::Middle,
        None => Place::Unknown,
    }
}

/// The functions of a graph by their numbers.
pub(crate) struct OfGraph<'g, 'a, L>(pub(crate) &'g Graph<'a, L>);

impl<L: Labels> Numbering for OfGraph<'_, '_, L> {
    fn id(&self) -> u64 {
        self.0.number()
    }

    fn function(&self, number: u32) -> FunctionId {
        let (module, index) = self.0.function(number);
        FunctionId { module, index }
    }
}

/// What ran of a block, in the words of analyses.
#[inline]
pub(crate) fn code<'a>(executed: &Executed<'a>) -> Code<'a> {
    let block = executed.block;
    let lengths = executed.lengths;
    let (offset, since) = (executed.provenance.origin.offset, executed.provenance.valid.start);
    if !executed.is_whole() {
        let target = lengths.iter().fold(block.start, |at, &length| at.wrapping_add(u64::from(length)));
        return Code { offset, since, lengths, end: End::Next, target };
    }
    let end = match block.terminator {
        Terminator::None => End::Next,
        Terminator::Conditional => End::Conditional,
        Terminator::Jump => End::Jump,
        Terminator::Call | Terminator::IndirectCall if block.is_call() => End::Call,
        Terminator::Call | Terminator::IndirectCall => End::Jump,
        Terminator::Return => End::Return,
        Terminator::IndirectJump => End::Indirect,
        Terminator::Far => End::Far,
    };
    Code { offset, since, lengths, end, target: block.target }
}
