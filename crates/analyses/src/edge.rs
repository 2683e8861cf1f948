//! The transfers between runs of instructions, as call stacks follow them.

use hodo_model::{FlowEvent, FunctionRun, Run, Transfer};
use serde::{Deserialize, Serialize};

/// The transfer from one run of instructions to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum FlowEdge {
    /// Unknown: the chunk begins here.
    Unknown,
    /// By fall-through, or a direct jump.
    Flow,
    /// By an indirect jump.
    Indirect,
    /// By a call.
    Call {
        /// The address after the call.
        return_address: u64,
    },
    /// By a return.
    Return,
    /// By a jump out of a frame that may have been entered by a jump too.
    JumpBelow,
    /// By a return to a pushed address, out of a frame that may have been entered by a jump too.
    PushedReturnBelow,
    /// By a return below the known frames.
    ReturnBelow,
    /// By a jump to a function that has a frame below the known frames.
    UnwindBelow,
    /// From outside traced code.
    Enter,
    /// By an interrupt, an exception or a system call.
    Interrupt {
        /// The address at which execution continues after it; 0 if unknown.
        from: u64,
        /// The edge before it, whose arrival the interrupt prevented.
        before: Prevented,
    },
    /// By the return from an interrupt, an exception or a system call.
    InterruptReturn,
    /// By the return from an interrupt below the known frames.
    InterruptReturnBelow,
    /// Over a gap.
    Gap,
    /// By an interrupt, an exception or a system call after a gap: nothing is known below its frame.
    GapInterrupt,
    /// By the return from an interrupt, an exception or a system call after a gap.
    GapReturn,
    /// As [`FlowEdge::GapInterrupt`], if another interrupt returned directly before it. That return led to untraced code,
    /// which this interrupt interrupts.
    GapReentry,
}

/// An edge whose arrival an interrupt prevented: no instruction was executed in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Prevented {
    /// Unknown: the chunk begins with the interrupt.
    Unknown,
    /// [`FlowEdge::Enter`].
    Enter,
    /// [`FlowEdge::InterruptReturn`].
    InterruptReturn,
    /// [`FlowEdge::Call`] with its return address.
    Call(u64),
    /// [`FlowEdge::Return`].
    Return,
    /// Any other.
    Other,
}

impl FlowEdge {
    /// Returns the edge from an event to the next run, if the event is a transfer.
    #[inline]
    pub(crate) fn of(event: &FlowEvent<'_>) -> FlowEdge {
        match *event {
            FlowEvent::Call { return_address } => FlowEdge::Call { return_address },
            FlowEvent::Return => FlowEdge::Return,
            FlowEvent::IndirectJump => FlowEdge::Indirect,
            FlowEvent::Enter => FlowEdge::Enter,
            FlowEvent::Interrupt { from } => FlowEdge::Interrupt { from, before: Prevented::Unknown },
            FlowEvent::InterruptReturn => FlowEdge::InterruptReturn,
            FlowEvent::Gap => FlowEdge::Gap,
            _ => FlowEdge::Unknown,
        }
    }

    /// The edge after a run.
    pub(crate) fn after(run: &Run) -> FlowEdge {
        FlowEdge::over(run.transfer, run.end)
    }

    /// The edge after a function run.
    #[inline(always)]
    pub(crate) fn after_function_run(function_run: &FunctionRun) -> FlowEdge {
        FlowEdge::over(function_run.transfer, function_run.end)
    }

    /// Returns the edge after an instruction; `end` is the return address if it is a call.
    #[inline(always)]
    fn over(transfer: Transfer, end: u64) -> FlowEdge {
        match transfer {
            Transfer::None | Transfer::PushOnly => FlowEdge::Flow,
            Transfer::Call => FlowEdge::Call { return_address: end },
            Transfer::Return => FlowEdge::Return,
            Transfer::IndirectJump => FlowEdge::Indirect,
        }
    }

    /// Returns the branch that makes this edge, and its end if it is a call; `None` for other edges.
    #[inline(always)]
    pub(crate) fn branch(self) -> Option<(Transfer, u64)> {
        match self {
            FlowEdge::Flow => Some((Transfer::None, 0)),
            FlowEdge::Call { return_address } => Some((Transfer::Call, return_address)),
            FlowEdge::Return => Some((Transfer::Return, 0)),
            FlowEdge::Indirect => Some((Transfer::IndirectJump, 0)),
            _ => None,
        }
    }

    /// Combines this edge with a following one. This is associative, so that an edge may be cut anywhere.
    pub(crate) fn then(self, next: FlowEdge) -> FlowEdge {
        match (self, next) {
            (before, FlowEdge::Unknown) => before,
            // Returning to traced code does not restore the frames that a gap lost.
            (gap, FlowEdge::InterruptReturn) if gap.is_gap() => FlowEdge::GapReturn,
            (FlowEdge::GapReturn | FlowEdge::GapReentry, FlowEdge::Enter) => FlowEdge::GapReentry,
            (gap, FlowEdge::Enter) if gap.is_gap() => FlowEdge::Gap,
            (gap, FlowEdge::Interrupt { before: Prevented::InterruptReturn, .. }) if gap.is_gap() => {
                FlowEdge::GapReentry
            }
            (
                FlowEdge::GapReturn | FlowEdge::GapReentry,
                FlowEdge::Interrupt { before: Prevented::Unknown | Prevented::Enter, .. },
            ) => FlowEdge::GapReentry,
            (gap, FlowEdge::Interrupt { before: Prevented::Unknown | Prevented::Enter, .. })
                if gap.is_gap() =>
            {
                FlowEdge::GapInterrupt
            }
            // The kernel returned to user space, which is not traced, and was entered again.
            (
                FlowEdge::InterruptReturn | FlowEdge::Interrupt { before: Prevented::InterruptReturn, .. },
                FlowEdge::Enter,
            ) => FlowEdge::Interrupt { from: 0, before: Prevented::InterruptReturn },
            (
                FlowEdge::InterruptReturn | FlowEdge::Interrupt { before: Prevented::InterruptReturn, .. },
                FlowEdge::Interrupt { from, before: Prevented::Enter },
            ) => FlowEdge::Interrupt { from, before: Prevented::InterruptReturn },
            (edge, FlowEdge::Interrupt { from, before: Prevented::Unknown }) => {
                FlowEdge::Interrupt { from, before: edge.prevented() }
            }
            (_, next) => next,
        }
    }

    /// Returns the form of this edge within an interrupt that prevents its arrival.
    fn prevented(self) -> Prevented {
        match self {
            FlowEdge::Unknown => Prevented::Unknown,
            FlowEdge::Enter => Prevented::Enter,
            FlowEdge::InterruptReturn => Prevented::InterruptReturn,
            FlowEdge::Call { return_address } => Prevented::Call(return_address),
            FlowEdge::Return => Prevented::Return,
            FlowEdge::Interrupt { before, .. } => before,
            _ => Prevented::Other,
        }
    }

    /// Whether flow is missing, or not selected, directly before the arrival: nothing below its frame is known.
    #[inline]
    pub(crate) fn is_gap(self) -> bool {
        matches!(self, FlowEdge::Gap | FlowEdge::GapInterrupt | FlowEdge::GapReturn | FlowEdge::GapReentry)
    }

    /// Whether an interrupt, an exception or a system call begins with the arrival.
    pub(crate) fn begins_interrupt(self) -> bool {
        matches!(self, FlowEdge::GapInterrupt | FlowEdge::GapReentry | FlowEdge::Interrupt { .. })
    }

    /// Whether control comes from outside the function's code: only frames of jumps and interrupts end regularly.
    pub(crate) fn enters(self) -> bool {
        matches!(
            self,
            FlowEdge::Enter
                | FlowEdge::InterruptReturn
                | FlowEdge::Interrupt { before: Prevented::InterruptReturn, .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All edges that events make between two runs, from some edges on.
    fn edges(from: &[FlowEdge]) -> Vec<FlowEdge> {
        let events = [
            FlowEdge::Enter,
            FlowEdge::Interrupt { from: 9, before: Prevented::Unknown },
            FlowEdge::InterruptReturn,
            FlowEdge::Gap,
        ];
        let mut all = from.to_vec();
        let mut begin = 0;
        while let Some(before) = all.get(begin).copied() {
            begin += 1;
            for next in events.map(|event| before.then(event)) {
                if !all.contains(&next) {
                    all.push(next);
                }
            }
        }
        all
    }

    #[test]
    fn edges_may_be_cut_anywhere() {
        // Only a run ends in a branch.
        let call = FlowEdge::Call { return_address: 7 };
        let ends = [FlowEdge::Unknown, FlowEdge::Flow, FlowEdge::Indirect, call, FlowEdge::Return];
        let between = edges(&[FlowEdge::Unknown]);
        for before in edges(&ends) {
            for &first in &between {
                for &second in &between {
                    let cut = before.then(first.then(second));
                    assert_eq!(before.then(first).then(second), cut, "{before:?}, {first:?}, {second:?}");
                }
            }
        }
    }
}
