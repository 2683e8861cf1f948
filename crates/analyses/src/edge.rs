//! The transfers between runs of instructions, as call stacks follow them.

use hodo_model::{FlowEvent, FunctionRun, Run, Transfer};
use serde::{Deserialize, Serialize};

/// The transfer from one run of instructions to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Edge {
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
    /// As [`Edge::GapInterrupt`], after a return from another one: it is of untraced code, which may be entered again.
    GapReentry,
}

/// An edge whose arrival an interrupt prevented: no instruction was executed in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Prevented {
    /// Unknown: the chunk begins with the interrupt.
    Unknown,
    /// [`Edge::Enter`].
    Enter,
    /// [`Edge::InterruptReturn`].
    InterruptReturn,
    /// [`Edge::Call`] with its return address.
    Call(u64),
    /// [`Edge::Return`].
    Return,
    /// Any other.
    Other,
}

impl Edge {
    /// Returns the edge from an event to the next run, if the event is a transfer.
    #[inline]
    pub(crate) fn of(seen: &FlowEvent<'_>) -> Edge {
        match *seen {
            FlowEvent::Call { return_address } => Edge::Call { return_address },
            FlowEvent::Return => Edge::Return,
            FlowEvent::IndirectJump => Edge::Indirect,
            FlowEvent::Enter => Edge::Enter,
            FlowEvent::Interrupt { from } => Edge::Interrupt { from, before: Prevented::Unknown },
            FlowEvent::InterruptReturn => Edge::InterruptReturn,
            FlowEvent::Gap => Edge::Gap,
            _ => Edge::Unknown,
        }
    }

    /// The edge after a run.
    pub(crate) fn after(run: &Run) -> Edge {
        Edge::over(run.transfer, run.end)
    }

    /// The edge after a function run.
    #[inline(always)]
    pub(crate) fn after_function_run(function_run: &FunctionRun) -> Edge {
        Edge::over(function_run.transfer, function_run.end)
    }

    /// Returns the edge after an instruction; `end` is the return address if it is a call.
    #[inline(always)]
    fn over(transfer: Transfer, end: u64) -> Edge {
        match transfer {
            Transfer::None | Transfer::PushOnly => Edge::Flow,
            Transfer::Call => Edge::Call { return_address: end },
            Transfer::Return => Edge::Return,
            Transfer::IndirectJump => Edge::Indirect,
        }
    }

    /// Returns the branch that makes this edge, and its end if it is a call; `None` for other edges.
    #[inline(always)]
    pub(crate) fn branch(self) -> Option<(Transfer, u64)> {
        match self {
            Edge::Flow => Some((Transfer::None, 0)),
            Edge::Call { return_address } => Some((Transfer::Call, return_address)),
            Edge::Return => Some((Transfer::Return, 0)),
            Edge::Indirect => Some((Transfer::IndirectJump, 0)),
            _ => None,
        }
    }

    /// Combines this edge with a following one. This is associative, so that an edge may be cut anywhere.
    pub(crate) fn then(self, next: Edge) -> Edge {
        match (self, next) {
            (before, Edge::Unknown) => before,
            // Returning to traced code does not restore the frames that a gap lost.
            (gap, Edge::InterruptReturn) if gap.is_gap() => Edge::GapReturn,
            (Edge::GapReturn | Edge::GapReentry, Edge::Enter) => Edge::GapReentry,
            (gap, Edge::Enter) if gap.is_gap() => Edge::Gap,
            (gap, Edge::Interrupt { before: Prevented::InterruptReturn, .. }) if gap.is_gap() => {
                Edge::GapReentry
            }
            (
                Edge::GapReturn | Edge::GapReentry,
                Edge::Interrupt { before: Prevented::Unknown | Prevented::Enter, .. },
            ) => Edge::GapReentry,
            (gap, Edge::Interrupt { before: Prevented::Unknown | Prevented::Enter, .. }) if gap.is_gap() => {
                Edge::GapInterrupt
            }
            // The kernel returned to user space, which is not traced, and was entered again.
            (
                Edge::InterruptReturn | Edge::Interrupt { before: Prevented::InterruptReturn, .. },
                Edge::Enter,
            ) => Edge::Interrupt { from: 0, before: Prevented::InterruptReturn },
            (
                Edge::InterruptReturn | Edge::Interrupt { before: Prevented::InterruptReturn, .. },
                Edge::Interrupt { from, before: Prevented::Enter },
            ) => Edge::Interrupt { from, before: Prevented::InterruptReturn },
            (edge, Edge::Interrupt { from, before: Prevented::Unknown }) => {
                Edge::Interrupt { from, before: edge.prevented() }
            }
            (_, next) => next,
        }
    }

    /// Returns the form of this edge within an interrupt that prevents its arrival.
    fn prevented(self) -> Prevented {
        match self {
            Edge::Unknown => Prevented::Unknown,
            Edge::Enter => Prevented::Enter,
            Edge::InterruptReturn => Prevented::InterruptReturn,
            Edge::Call { return_address } => Prevented::Call(return_address),
            Edge::Return => Prevented::Return,
            Edge::Interrupt { before, .. } => before,
            _ => Prevented::Other,
        }
    }

    /// Whether flow is missing, or not selected, directly before the arrival: nothing below its frame is known.
    #[inline]
    pub(crate) fn is_gap(self) -> bool {
        matches!(self, Edge::Gap | Edge::GapInterrupt | Edge::GapReturn | Edge::GapReentry)
    }

    /// Whether an interrupt, an exception or a system call begins with the arrival.
    pub(crate) fn begins_interrupt(self) -> bool {
        matches!(self, Edge::GapInterrupt | Edge::GapReentry | Edge::Interrupt { .. })
    }

    /// Whether control comes from outside the function's code: only frames of jumps and interrupts end regularly.
    pub(crate) fn enters(self) -> bool {
        matches!(
            self,
            Edge::Enter | Edge::InterruptReturn | Edge::Interrupt { before: Prevented::InterruptReturn, .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All edges that events make between two runs, from some edges on.
    fn edges(from: &[Edge]) -> Vec<Edge> {
        let events = [
            Edge::Enter,
            Edge::Interrupt { from: 9, before: Prevented::Unknown },
            Edge::InterruptReturn,
            Edge::Gap,
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
        let ends =
            [Edge::Unknown, Edge::Flow, Edge::Indirect, Edge::Call { return_address: 7 }, Edge::Return];
        let between = edges(&[Edge::Unknown]);
        for before in edges(&ends) {
            for &one in &between {
                for &other in &between {
                    let cut = before.then(one.then(other));
                    assert_eq!(before.then(one).then(other), cut, "{before:?}, {one:?}, {other:?}");
                }
            }
        }
    }
}
