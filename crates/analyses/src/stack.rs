//! Call stacks whose older frames may be unknown.

use std::num::NonZero;

use hodo_model::{Arrival, FunctionId, Place, Transfer};
use serde::{Deserialize, Serialize};

pub(crate) use crate::edge::{FlowEdge, Prevented};
pub use crate::entry::FrameEntry;
use crate::spare_stack::SpareCapacityStack;

/// The return address of a call, if known. It is never 0, so a frame takes 16 bytes and not 24.
pub(crate) type ReturnAddress = Option<NonZero<u64>>;

/// One frame, with a note of the caller, generic over the identifier of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StackFrame<T, F = FunctionId> {
    pub(crate) function: F,
    pub(crate) entry: FrameEntry,
    /// For frames that a call made: its return address. For those of interrupts: the address at which execution
    /// continues after it, if known. For [`FrameEntry::InterruptedCall`]: the return address of the interrupted call.
    pub(crate) return_address: ReturnAddress,
    pub(crate) note: T,
}

impl<T, F> StackFrame<T, F> {
    /// A frame with an unknown entry.
    #[inline]
    pub(crate) const fn root(function: F, note: T) -> StackFrame<T, F> {
        StackFrame { function, entry: FrameEntry::Root, return_address: None, note }
    }

    /// Returns whether its call returns to this address.
    #[inline]
    pub(crate) fn returns_to(&self, address: u64) -> bool {
        self.return_address.is_some_and(|back| back.get() == address)
    }
}

/// The place at which execution arrives; an [`Arrival`], generic over the identifier of functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivedAt<F> {
    pub(crate) address: u64,
    pub(crate) function: F,
    pub(crate) place: Place,
}

impl ArrivedAt<FunctionId> {
    /// Converts the place at which control arrives.
    #[inline]
    pub(crate) fn of(&Arrival { address, function, place }: &Arrival) -> ArrivedAt<FunctionId> {
        ArrivedAt { address, function, place }
    }
}

/// The known frames of a stack, the newest last.
pub(crate) type KnownFrames<T, F = FunctionId> = SpareCapacityStack<StackFrame<T, F>>;

/// Observes frames.
pub(crate) trait Watch<T, F = FunctionId> {
    /// Called when a frame is entered from another; returns the new frame's note.
    fn enter(&mut self, from: &StackFrame<T, F>, function: F, entry: FrameEntry, back: ReturnAddress) -> T;

    /// Called when a frame is left; the newest first.
    fn leave(&mut self, frame: &StackFrame<T, F>);

    /// Called when a return that an interrupt prevented arrives, before the frames it leaves.
    fn arrives_late(&mut self) {}
}

/// The next operation on the stack.
enum StackOp {
    Stay,
    Push(FrameEntry, ReturnAddress),
    Jump,
    /// A return to a pushed address.
    JumpByReturn,
    ReturnTo(u64),
    UnwindTo,
    EndInterrupt,
    /// The newest interrupt returned, and the next one came at once: at this address.
    NextInterrupt(u64),
    Forget,
}

/// Returns the stack operation for an arrival over an edge, as far as the top of the stack determines it.
fn step<F: PartialEq>(edge: FlowEdge, arrival: &ArrivedAt<F>, top: F, top_is_interrupt: bool) -> StackOp {
    let same = arrival.function == top;
    match edge {
        FlowEdge::Unknown | FlowEdge::Flow if same => StackOp::Stay,
        FlowEdge::Unknown | FlowEdge::Flow => StackOp::Jump,
        FlowEdge::Indirect if same => StackOp::Stay,
        // longjmp and exceptions land in the middle of a function that waits on the stack.
        FlowEdge::Indirect if arrival.place == Place::Middle => StackOp::UnwindTo,
        FlowEdge::Indirect => StackOp::Jump,
        FlowEdge::Call { return_address } => StackOp::Push(FrameEntry::Call, NonZero::new(return_address)),
        // A handler returns to a trampoline that did not call it.
        FlowEdge::Return if top_is_interrupt => StackOp::Jump,
        // A return to a first instruction is a jump: the address was pushed.
        FlowEdge::Return if arrival.place == Place::Entry => StackOp::JumpByReturn,
        FlowEdge::JumpBelow => StackOp::Jump,
        FlowEdge::PushedReturnBelow => StackOp::JumpByReturn,
        FlowEdge::Return | FlowEdge::ReturnBelow => StackOp::ReturnTo(arrival.address),
        FlowEdge::UnwindBelow => StackOp::UnwindTo,
        FlowEdge::Enter if same => StackOp::Stay,
        FlowEdge::Enter if arrival.place == Place::Middle => StackOp::UnwindTo,
        FlowEdge::Enter => StackOp::Push(FrameEntry::Interrupt, None),
        FlowEdge::Interrupt { before: Prevented::Call(return_address), .. } => {
            StackOp::Push(FrameEntry::InterruptedCall, NonZero::new(return_address))
        }
        FlowEdge::Interrupt { from, before: Prevented::Return } => {
            StackOp::Push(FrameEntry::InterruptedReturn, NonZero::new(from))
        }
        FlowEdge::Interrupt { from, before: Prevented::InterruptReturn } => StackOp::NextInterrupt(from),
        FlowEdge::Interrupt { from, .. } => StackOp::Push(FrameEntry::Interrupt, NonZero::new(from)),
        // The kernel serializes a processor with an IRET to the next instruction.
        FlowEdge::InterruptReturn if same && arrival.place == Place::Middle => StackOp::Stay,
        FlowEdge::InterruptReturn | FlowEdge::InterruptReturnBelow => StackOp::EndInterrupt,
        FlowEdge::Gap | FlowEdge::GapInterrupt | FlowEdge::GapReturn | FlowEdge::GapReentry => {
            StackOp::Forget
        }
    }
}

/// The part of the stack below the known frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// Unknown frames.
    Unknown,
    /// Nothing.
    Nothing,
}

/// Moves a non-empty stack over an edge, so that the function of the arrival is on top.
///
/// # Errors
/// If the outcome depends on the frames below, or the stack becomes empty: the edge as those frames see it. The stack
/// is then empty, and the caller starts a new one.
#[inline(always)]
pub(crate) fn arrive<T: Copy, F: Copy + PartialEq>(
    stack: &mut KnownFrames<T, F>,
    watch: &mut impl Watch<T, F>,
    below: Below,
    edge: FlowEdge,
    arrival: &ArrivedAt<F>,
) -> Result<(), FlowEdge> {
    let filler = stack[stack.len() - 1];
    let (frames, depth) = stack.reserve(1, filler);
    let mut top = Top { frames, depth };
    let is_plain = edge.branch().is_some_and(|branch| arrive_plainly(&mut top, watch, branch, arrival));
    let depth = top.depth;
    stack.count(depth);
    if is_plain { Ok(()) } else { arrive_otherwise(stack, watch, below, edge, arrival) }
}

/// Slow path of [`arrive`], for rarer edges.
#[inline(never)]
fn arrive_otherwise<T: Copy, F: Copy + PartialEq>(
    stack: &mut KnownFrames<T, F>,
    watch: &mut impl Watch<T, F>,
    below: Below,
    edge: FlowEdge,
    arrival: &ArrivedAt<F>,
) -> Result<(), FlowEdge> {
    let known = stack.len() > 1;
    let top = stack[stack.len() - 1].function;
    let interrupt = stack[physical_frame(stack)].entry.is_interrupt();
    let function = arrival.function;
    let (keep, edge_below) = match step(edge, arrival, top, interrupt) {
        StackOp::Stay => return Ok(()),
        StackOp::Push(entry, return_address) => {
            enter(stack, watch, function, entry, return_address);
            return Ok(());
        }
        StackOp::Jump => return jump(stack, watch, below, function),
        StackOp::JumpByReturn => return jump_by_return(stack, watch, below, function),
        StackOp::ReturnTo(address) => {
            (stack.iter().rposition(|frame| frame.returns_to(address)), FlowEdge::ReturnBelow)
        }
        StackOp::UnwindTo => (unwound(stack, function), FlowEdge::UnwindBelow),
        StackOp::EndInterrupt => return end_interrupt(stack, watch, below, arrival),
        StackOp::NextInterrupt(from) => {
            let interrupt = newest_interrupt(stack);
            let before = interrupt.map(|index| (stack[index].entry, stack[index].return_address));
            cut(stack, watch, interrupt.unwrap_or(0));
            let (entry, address) = match before {
                None => return Err(edge),
                // The earlier interrupt came in place of a call or return, which is still to arrive after this one.
                Some((FrameEntry::InterruptedCall, address)) => (FrameEntry::InterruptedCall, address),
                Some((FrameEntry::InterruptedReturn, address)) if address == NonZero::new(from) => {
                    (FrameEntry::InterruptedReturn, address)
                }
                Some(_) => (FrameEntry::Interrupt, NonZero::new(from)),
            };
            enter(stack, watch, function, entry, address);
            return Ok(());
        }
        StackOp::Forget => (None, edge),
    };
    cut(stack, watch, keep.unwrap_or(0));
    match stack.last() {
        // The kind of the top frame decides what the edge means, which is unknown for a root.
        None => Err(if known { edge_below } else { edge }),
        Some(frame) if frame.function == function => Ok(()),
        // The caller jumped to another function, which now waits in its place.
        Some(_) => jump(stack, watch, below, function),
    }
}

/// Returns the number of frames up to the newest one of a function.
fn unwound<T, F: PartialEq>(stack: &[StackFrame<T, F>], function: F) -> Option<usize> {
    stack.iter().rposition(|frame| frame.function == function).map(|index| index + 1)
}

/// Returns the index of the newest frame of an interrupt. The oldest frame is none, as its entry is unknown.
fn newest_interrupt<T, F>(stack: &[StackFrame<T, F>]) -> Option<usize> {
    stack.iter().rposition(|frame| frame.entry.is_interrupt()).filter(|&index| index > 0)
}

/// Ends the newest interrupt and all frames above it, and moves the stack to the arrival of its return.
///
/// The newest interrupt decides the outcome. If it lies below the known frames, they all end, and the interrupt is
/// searched in the frames below.
fn end_interrupt<T: Copy, F: Copy + PartialEq>(
    stack: &mut KnownFrames<T, F>,
    watch: &mut impl Watch<T, F>,
    below: Below,
    arrival: &ArrivedAt<F>,
) -> Result<(), FlowEdge> {
    let Some(index) = newest_interrupt(stack) else {
        cut(stack, watch, 0);
        return Err(FlowEdge::InterruptReturnBelow);
    };
    let StackFrame { entry, return_address, .. } = stack[index];
    let continues = stack[index].returns_to(arrival.address);
    cut(stack, watch, index);
    let (function, same) = (arrival.function, stack[index - 1].function == arrival.function);
    match entry {
        FrameEntry::InterruptedReturn if continues => {
            watch.arrives_late();
            return arrive(stack, watch, below, FlowEdge::Return, arrival);
        }
        _ if arrival.place == Place::Middle && same => {}
        // The end of a signal handler: functions above the interrupted one end too.
        _ if arrival.place == Place::Middle => match unwound(stack, function) {
            Some(length) => cut(stack, watch, length),
            None => {
                cut(stack, watch, 0);
                return Err(FlowEdge::UnwindBelow);
            }
        },
        FrameEntry::InterruptedCall => enter(stack, watch, function, FrameEntry::Call, return_address),
        _ if continues && same => {}
        _ if continues => return jump(stack, watch, below, function),
        // A signal handler: the kernel returns to it, and not to where it was entered.
        _ => enter(stack, watch, function, FrameEntry::Interrupt, return_address),
    }
    Ok(())
}

/// The newest frames of a stack with space for one more.
pub(crate) struct Top<'s, T, F> {
    pub(crate) frames: &'s mut [StackFrame<T, F>],
    /// The number of frames.
    pub(crate) depth: usize,
}

impl<T: Copy, F: Copy + PartialEq> Top<'_, T, F> {
    #[inline(always)]
    fn enter(&mut self, watch: &mut impl Watch<T, F>, function: F, entry: FrameEntry, back: ReturnAddress) {
        let note = watch.enter(&self.frames[self.depth - 1], function, entry, back);
        self.frames[self.depth] = StackFrame { function, entry, return_address: back, note };
        self.depth += 1;
    }

    #[inline(always)]
    fn leave(&mut self, watch: &mut impl Watch<T, F>) {
        self.depth -= 1;
        watch.leave(&self.frames[self.depth]);
    }

    /// Leaves the newest frame, and a frame that replaced it by a jump, if it returns to this address in this function.
    #[inline(always)]
    fn return_to(&mut self, watch: &mut impl Watch<T, F>, address: u64, function: F) -> bool {
        match &self.frames[..self.depth] {
            // Also the frame of an interrupt, if the return goes to the interrupted code.
            [.., caller, callee] if callee.returns_to(address) && caller.function == function => {
                self.leave(watch);
                true
            }
            [.., caller, callee, StackFrame { entry: FrameEntry::Tail, .. }]
                if callee.returns_to(address) && caller.function == function =>
            {
                self.leave(watch);
                self.leave(watch);
                true
            }
            _ => false,
        }
    }
}

/// Fast path of [`arrive`]: moves a non-empty stack over an edge made by a branch (`end` is the return address of a
/// call), if it stays in the function, calls, returns from the newest call to where it came from, or jumps to a
/// function that replaces a called one. Returns whether it is one of these.
///
/// The most frequent case is tested first, and only two properties of the branch are tested: a jump table of four is
/// mispredicted more often.
#[inline(always)]
pub(crate) fn arrive_plainly<T: Copy, F: Copy + PartialEq>(
    stack: &mut Top<'_, T, F>,
    watch: &mut impl Watch<T, F>,
    (transfer, end): (Transfer, u64),
    arrival: &ArrivedAt<F>,
) -> bool {
    let &ArrivedAt { address, function, place } = arrival;
    if transfer == Transfer::Call {
        stack.enter(watch, function, FrameEntry::Call, NonZero::new(end));
        return true;
    }
    if transfer == Transfer::Return {
        return place != Place::Entry && stack.return_to(watch, address, function);
    }
    let top = &stack.frames[stack.depth - 1];
    if top.function == function {
        return true;
    }
    // An indirect jump into the middle of a function may unwind others.
    if transfer == Transfer::IndirectJump && place != Place::Entry {
        return false;
    }
    let jumped = top.entry == FrameEntry::Tail;
    let called = match &stack.frames[..stack.depth - usize::from(jumped)] {
        [.., _, callee] if callee.entry == FrameEntry::Call => callee.function,
        _ => return false,
    };
    if jumped {
        stack.leave(watch);
    }
    if called != function {
        stack.enter(watch, function, FrameEntry::Tail, None);
    }
    true
}

/// Leaves the newest frame.
#[inline(always)]
fn leave<T: Copy, F: Copy + PartialEq>(stack: &mut KnownFrames<T, F>, watch: &mut impl Watch<T, F>) {
    if let Some(frame) = stack.last() {
        watch.leave(frame);
    }
    stack.pop();
}

#[inline(always)]
fn enter<T: Copy, F: Copy + PartialEq>(
    stack: &mut KnownFrames<T, F>,
    watch: &mut impl Watch<T, F>,
    function: F,
    entry: FrameEntry,
    return_address: ReturnAddress,
) {
    let note = watch.enter(&stack[stack.len() - 1], function, entry, return_address);
    stack.push(StackFrame { function, entry, return_address, note });
}

/// Leaves all frames except the oldest `length`.
pub(crate) fn cut<T: Copy, F: Copy + PartialEq>(
    stack: &mut KnownFrames<T, F>,
    watch: &mut impl Watch<T, F>,
    length: usize,
) {
    while stack.len() > length {
        leave(stack, watch);
    }
}

/// Returns whether a deserialized stack is valid: no two frames entered by jumps are adjacent, so a called frame is at
/// most one below.
pub(crate) fn is_sound<T, F>(stack: &[StackFrame<T, F>]) -> bool {
    stack
        .array_windows()
        .all(|[below, above]| below.entry != FrameEntry::Tail || above.entry != FrameEntry::Tail)
}

/// Returns the index of the newest frame that was not entered by a jump.
fn physical_frame<T, F>(stack: &[StackFrame<T, F>]) -> usize {
    stack.iter().rposition(|frame| frame.entry != FrameEntry::Tail).unwrap_or(0)
}

/// Enters a function by a jump. It replaces the frame of an earlier jump, so a machine frame appears as at most two:
/// the called function, and the one that replaced it.
fn jump<T: Copy, F: Copy + PartialEq>(
    stack: &mut KnownFrames<T, F>,
    watch: &mut impl Watch<T, F>,
    below: Below,
    function: F,
) -> Result<(), FlowEdge> {
    let physical = physical_frame(stack);
    // A root may itself have been entered by a jump, and only the frames below it decide that.
    if stack[physical].entry == FrameEntry::Root && below == Below::Unknown {
        cut(stack, watch, 0);
        return Err(FlowEdge::JumpBelow);
    }
    cut(stack, watch, physical + 1);
    if stack[physical].function != function {
        enter(stack, watch, function, FrameEntry::Tail, None);
    }
    Ok(())
}

/// Enters a function by a return to its pushed address.
///
/// A retpoline calls an instruction of its own and replaces the return address of that call; Linux fills the processor's
/// return stack by such calls and discards their addresses. So frames that a function called in itself end too.
fn jump_by_return<T: Copy, F: Copy + PartialEq>(
    stack: &mut KnownFrames<T, F>,
    watch: &mut impl Watch<T, F>,
    below: Below,
    function: F,
) -> Result<(), FlowEdge> {
    let mut physical = physical_frame(stack);
    while let [.., caller, called] = &stack[..=physical]
        && called.entry == FrameEntry::Call
        && called.function == caller.function
    {
        cut(stack, watch, physical);
        physical = physical_frame(stack);
    }
    jump(stack, watch, below, function).map_err(|_| FlowEdge::PushedReturnBelow)
}
