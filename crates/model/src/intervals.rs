//! Intervals: what `latency` measures, whatever they come from.
//!
//! ```text
//! calls of a function ─┐
//! markers in the code ─┼──► intervals: begin, end, time, instructions, cycles ──► percentiles, histograms, the worst
//! software events ─────┘
//! ```

use serde::{Deserialize, Serialize};

use crate::{FunctionId, Period};

/// Which instruction a pattern is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// A repeat or lock prefix that the instruction has; any or none where it is `None`.
    pub prefix: Option<Prefix>,
    /// The mnemonic in lower case, without a suffix for the size: `pushf` is `pushfq`, too. `*` is any.
    pub mnemonic: String,
    /// Operands as `hodo script --insns --fields insn` writes them, with `*` for any text; any where there are none.
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

/// A place in a stream of control flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marker {
    /// Instructions that run directly one after the other have run; at most [`Marker::LONGEST`].
    Instructions(Vec<Pattern>),
    /// The first instruction of a function is about to run.
    Entry(FunctionId),
    /// A return instruction of a function has run.
    Exit(FunctionId),
    /// The instruction at a virtual address is about to run.
    Address(u64),
    /// The instruction at an offset in the file of a module is about to run.
    Code {
        /// Index of the module in the experiment.
        module: u32,
        /// The offset.
        offset: u64,
    },
}

impl Marker {
    /// Instructions of the longest sequence.
    pub const LONGEST: usize = 16;
    /// Instructions of all sequences of a question together.
    pub const MOST_INSTRUCTIONS: usize = 64;
}

/// Which begin an end belongs to, where several went before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nesting {
    /// The newest that has no end yet, as of brackets.
    #[default]
    Nested,
    /// The first: those behind it, until the end, only repeat it.
    First,
    /// The last: those before it have no end.
    Last,
}

impl Intervals {
    /// Whether they are of software events, and not of control flow.
    pub fn are_of_events(&self) -> bool {
        matches!(self, Intervals::Period(_) | Intervals::Syscalls(_) | Intervals::Interrupts(_))
    }
}

/// What intervals are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intervals {
    /// The executions of each function, from call to return.
    Functions,
    /// Those of one function.
    Function(FunctionId),
    /// From one of some markers to one of others, of the same thread.
    Markers {
        /// Where they begin.
        from: Vec<Marker>,
        /// Where they end.
        to: Vec<Marker>,
        /// Which belong together.
        nesting: Nesting,
    },
    /// From one software event to another.
    Period(Period),
    /// System calls with a name, of a kernel's events.
    Syscalls(String),
    /// Runs of the handler of the interrupt with a number, of a kernel's events.
    Interrupts(u32),
}
