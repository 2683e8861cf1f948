//! The intervals that `latency` measures, from any source.
//!
//! ```text
//! calls of a function ─┐
//! markers in the code ─┼──► intervals: begin, end, time, instructions, cycles ──► percentiles, histograms, the worst
//! software events ─────┘
//! ```

use serde::{Deserialize, Serialize};

use crate::{FunctionId, Period};

/// A pattern of instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// The required repeat or lock prefix; `None` matches any or no prefix.
    pub prefix: Option<Prefix>,
    /// The mnemonic in lower case. It may omit the size suffix: `pushf` also matches `pushfq`. `*` matches any.
    pub mnemonic: String,
    /// Operands as `hodo script --insns --fields insn` prints them, in which `*` matches any text; an empty list
    /// matches any operands.
    pub operands: Vec<String>,
}

/// A prefix of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prefix {
    /// `rep`, `repe` or `repz`.
    Rep,
    /// `repne` or `repnz`.
    Repne,
    /// `lock`.
    Lock,
}

/// A position in a stream of control flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marker {
    /// After consecutive instructions, at most [`Marker::LONGEST`].
    Instructions(Vec<Pattern>),
    /// Before the first instruction of a function.
    Entry(FunctionId),
    /// After a return instruction of a function.
    Exit(FunctionId),
    /// Before the instruction at a virtual address.
    Address(u64),
    /// Before the instruction at an offset in the file of a module.
    Code {
        /// Index of the module in the experiment.
        module: u32,
        /// The offset.
        offset: u64,
    },
}

impl Marker {
    /// Maximum number of instructions of a sequence.
    pub const LONGEST: usize = 16;
    /// Maximum total number of instructions of all sequences of a request.
    pub const MOST_INSTRUCTIONS: usize = 64;
}

/// The rule that pairs an end with one of several begins before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nesting {
    /// With the newest begin that has no end yet, like brackets.
    #[default]
    Nested,
    /// With the first begin; begins between it and the end are ignored.
    First,
    /// With the last begin; earlier begins have no end.
    Last,
}

impl Intervals {
    /// Returns whether they are intervals of software events, not of control flow.
    pub fn are_of_events(&self) -> bool {
        matches!(
            self,
            Intervals::Period(_) | Intervals::Syscalls(_) | Intervals::Interrupts(_) | Intervals::State(_)
        )
    }
}

/// The kind of intervals to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intervals {
    /// The executions of each function, from call to return.
    Functions,
    /// The executions of one function.
    Function(FunctionId),
    /// The executions of system calls in the kernel's control flow, from its entry to the return to user space.
    SystemCalls {
        /// The name, for the table.
        name: String,
        /// The functions that implement them.
        functions: Vec<FunctionId>,
    },
    /// From one of the markers in `from` to one in `to`, in the same thread.
    Markers {
        /// Markers of begins.
        from: Vec<Marker>,
        /// Markers of ends.
        to: Vec<Marker>,
        /// The rule that pairs begins and ends.
        nesting: Nesting,
    },
    /// From one software event to another.
    Period(Period),
    /// System calls with this name, from kernel events.
    Syscalls(String),
    /// Runs of the handler of the interrupt with this number, from kernel events.
    Interrupts(u32),
    /// Times in which a thread was in this state, from kernel events.
    State(ThreadState),
}

/// A state of threads, as the report `states` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThreadState {
    /// On a CPU.
    Running,
    /// Waiting for a CPU.
    Runnable,
    /// Waiting for something else, in any of the four states below.
    Blocked,
    /// A signal ends the wait.
    Interruptible,
    /// Only the awaited event ends the wait.
    Uninterruptible,
    /// An idle kernel thread.
    Idle,
    /// Stopped, traced or parked.
    Stopped,
}

impl ThreadState {
    /// All states.
    pub const ALL: [ThreadState; 7] = [
        ThreadState::Running,
        ThreadState::Runnable,
        ThreadState::Blocked,
        ThreadState::Interruptible,
        ThreadState::Uninterruptible,
        ThreadState::Idle,
        ThreadState::Stopped,
    ];

    /// Returns the name in tables and options.
    pub fn name(self) -> &'static str {
        match self {
            ThreadState::Running => "running",
            ThreadState::Runnable => "runnable",
            ThreadState::Blocked => "blocked",
            ThreadState::Interruptible => "interruptible",
            ThreadState::Uninterruptible => "uninterruptible",
            ThreadState::Idle => "idle",
            ThreadState::Stopped => "stopped",
        }
    }
}
