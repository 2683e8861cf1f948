//! What the page asks of an execution: where it is, and where a step leads.

/// A question about the execution of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The number of the recording, from 0.
    pub recording: usize,
    /// The thread; `None` is one that executes something then.
    pub thread: Option<u32>,
    /// Where it begins.
    pub from: From,
    /// Where it goes.
    pub to: To,
    /// The frame whose source and code are shown; 0 is the newest.
    pub frame: usize,
}

/// Where a walk begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The begin of the thread.
    Begin,
    /// The end of the thread.
    End,
    /// A time in nanoseconds.
    Time(u64),
    /// An instant as people write it: a time, a share, a number of an instruction.
    Instant(String),
    /// Before an instruction, or at the gap before it.
    Number {
        /// The number of the instruction.
        number: u64,
        /// Whether it is at the gap.
        gap: bool,
    },
}

/// Where a walk goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// Nowhere.
    Here,
    /// A step: `into`, `over` or `out`, by `line` or `instruction`.
    Step {
        /// Which calls it enters.
        motion: String,
        /// How far it goes.
        by: String,
        /// Whether it goes backwards.
        back: bool,
    },
    /// The next execution of a place, or the one before.
    Execution {
        /// The place.
        place: CodePlace,
        /// Whether the one before is meant.
        back: bool,
    },
    /// The next place where flow is missing, or the one before.
    Gap {
        /// Whether the one before is meant.
        back: bool,
    },
}

/// A place in code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodePlace {
    /// The begin of a function, by name.
    Function(String),
    /// A source line: `FILE:LINE`.
    Line(String),
    /// An instruction: its module and its place in it.
    Instruction {
        /// The module.
        module: u32,
        /// The place.
        offset: u64,
        /// For a conditional branch: only if it is taken, or only if it is not.
        taken: Option<bool>,
    },
}
