//! How execution enters the frames of call stacks.

use serde::{Deserialize, Serialize};

/// How a frame was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FrameEntry {
    /// It was already running at the begin of the trace, or after a gap.
    Root,
    /// By a near call.
    Call,
    /// By a jump out of the called function: a tail call, or a part that the compiler moved.
    Tail,
    /// From outside the function's code: a signal handler, an interrupt, an exception or a system call.
    Interrupt,
    /// By an interrupt after a call, before the called function executed an instruction.
    InterruptedCall,
    /// By an interrupt after a return, before the caller executed an instruction.
    InterruptedReturn,
}

impl FrameEntry {
    /// Returns the name in tables: `start`, `call`, `jump` or `interrupt`.
    pub fn name(self) -> &'static str {
        match self {
            FrameEntry::Root => "start",
            FrameEntry::Call => "call",
            FrameEntry::Tail => "jump",
            FrameEntry::Interrupt | FrameEntry::InterruptedCall | FrameEntry::InterruptedReturn => {
                "interrupt"
            }
        }
    }

    /// Whether an interrupt, an exception or a system call entered it.
    pub fn is_interrupt(self) -> bool {
        matches!(self, FrameEntry::Interrupt | FrameEntry::InterruptedCall | FrameEntry::InterruptedReturn)
    }
}
