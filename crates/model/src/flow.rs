//! Control flow as analyses see it: runs of instructions, calls, returns, gaps.

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize};

use crate::Transfer;

/// A function of some module: which one is known to the symbol tables of the experiment.
///
/// Identifiers depend only on the input, not on the order of decoding, so they may travel between
/// threads, processes and machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionId {
    /// Index of the module in the experiment.
    pub module: u32,
    /// Index of the function in the module, in order of address.
    pub index: u32,
}

/// Which part of a function an address is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// The function's first instruction.
    Entry,
    /// Another of its instructions.
    Middle,
    /// Some instruction of code whose functions are not known.
    #[default]
    Unknown,
}

/// Where execution arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The address of the instruction.
    pub address: u64,
    /// Its function.
    pub function: FunctionId,
    /// Where in the function that is.
    pub place: Place,
}

/// How straight-line code ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum End {
    /// It runs on to the next instruction; also where it did not run to its end.
    Next,
    /// A conditional branch.
    Conditional,
    /// A direct jump.
    Jump,
    /// A near call.
    Call,
    /// A near return.
    Return,
    /// A jump through a register or memory.
    Indirect,
    /// A transfer to other code, such as a system call.
    Far,
}

/// Which instructions ran, wherever they are mapped.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Where the module of the function holds the first one: an offset in its file; an address where
    /// no file holds it.
    pub offset: u64,
    /// The tick from which on the code is what it is; 0 unless it was written anew.
    pub since: u64,
    /// Their lengths in bytes.
    pub lengths: &'a [u8],
    /// Their bytes: one instruction after the other.
    pub bytes: &'a [u8],
    /// The width of the mode that they ran in: 16, 32 or 64 bits.
    pub bits: u8,
    /// What the last one is.
    pub end: End,
    /// The address that the last one goes to, of a direct branch; else the address after it.
    pub target: u64,
}

/// Something that a chunk of a control-flow stream shows, in the order of execution.
///
/// Addresses are virtual addresses of the traced program.
#[derive(Clone, Copy, Debug)]
pub enum FlowEvent<'a> {
    /// Straight-line code of one function ran.
    Run {
        /// Its first instruction.
        at: Arrival,
        /// How many instructions.
        instructions: u64,
        /// Which instructions those are.
        code: Code<'a>,
    },
    /// The last instruction was a near call, which will return to this address.
    Call {
        /// The address after the call.
        return_address: u64,
    },
    /// The last instruction was a near return.
    Return,
    /// The last instruction was a near jump through a register or memory.
    IndirectJump,
    /// The thread left what is traced (a system call, an interrupt, the end of a filter's range).
    Leave {
        /// The instruction that was to run next, or that runs next elsewhere, where the trace says so.
        next: Option<u64>,
    },
    /// The thread came back to what is traced.
    Enter,
    /// A segment begins, with the clock as it stands there, where known; segments know nothing of each
    /// other's clocks. Each chunk begins with one.
    Begin(Option<Nanos>),
    /// The clock: all that was seen since the last time ran until this one.
    Time(Nanos),
    /// The core cycles of the segment so far, where the trace counts them: all that was seen since they were
    /// told last ran in those that came since.
    Cycles(u64),
    /// The segment ends; what follows begins with [`FlowEvent::Begin`].
    End,
    /// Flow is missing here: nothing is known of the call stack any more.
    Gap,
    /// The next instruction is the one of the thread with this number, counted from 0 as far as flow is
    /// known. Told where the thread is taken up, if the analysis [asked for it](crate::FlowInterest::Numbered).
    Number(u64),
    /// This many instructions ran that nobody asked for; nothing is known of the call stack after them.
    Skip {
        /// How many.
        instructions: u64,
    },
}

/// A run for those who don't look into its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its first instruction.
    pub at: Arrival,
    /// How many instructions of one function.
    pub instructions: u64,
    /// What the last of them was.
    pub transfer: Transfer,
    /// The address after it, where it was a call.
    pub end: u64,
}

impl FlowEvent<'_> {
    /// The same without the instructions, for those who keep them apart.
    pub fn without_instructions(self) -> FlowEvent<'static> {
        match self {
            FlowEvent::Run { at, instructions, code } => {
                FlowEvent::Run { at, instructions, code: Code { lengths: &[], bytes: &[], ..code } }
            }
            FlowEvent::Call { return_address } => FlowEvent::Call { return_address },
            FlowEvent::Return => FlowEvent::Return,
            FlowEvent::IndirectJump => FlowEvent::IndirectJump,
            FlowEvent::Leave { next } => FlowEvent::Leave { next },
            FlowEvent::Enter => FlowEvent::Enter,
            FlowEvent::Begin(clock) => FlowEvent::Begin(clock),
            FlowEvent::Time(clock) => FlowEvent::Time(clock),
            FlowEvent::Cycles(count) => FlowEvent::Cycles(count),
            FlowEvent::End => FlowEvent::End,
            FlowEvent::Gap => FlowEvent::Gap,
            FlowEvent::Number(number) => FlowEvent::Number(number),
            FlowEvent::Skip { instructions } => FlowEvent::Skip { instructions },
        }
    }
}

/// Names of functions, for tables.
pub trait Names: Sync {
    /// The function's name for people, and its module's.
    fn names(&self, function: FunctionId) -> (String, String);
}

/// A line of source that code was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine<'a> {
    /// The file's path, as the debugging information has it.
    pub file: &'a str,
    /// The line, from 1.
    pub line: u32,
    /// Whether a statement of the line begins at the address.
    pub begins: bool,
}

/// Names of functions, and the lines of source that their code was made from.
pub trait Sources: Names {
    /// The address that a module's symbols know the code at an offset by, as [`Code::offset`].
    fn address(&self, module: u32, offset: u64) -> u64;

    /// The line of the instruction at an address of a module; `None` where nothing tells.
    fn line(&self, module: u32, address: u64) -> Option<SourceLine<'_>>;

    /// The functions whose source the instructions at some addresses of a module are, the inlined one where
    /// it was inlined; `None` where nothing tells.
    fn inlined(&self, module: u32, addresses: &[u64]) -> Vec<Option<String>>;
}

/// The symbols of a trace without control flow: there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSources;

impl Names for NoSources {
    fn names(&self, function: FunctionId) -> (String, String) {
        (format!("function {}", function.index), format!("module {}", function.module))
    }
}

impl Sources for NoSources {
    fn address(&self, _: u32, offset: u64) -> u64 {
        offset
    }

    fn line(&self, _: u32, _: u64) -> Option<SourceLine<'_>> {
        None
    }

    fn inlined(&self, _: u32, addresses: &[u64]) -> Vec<Option<String>> {
        vec![None; addresses.len()]
    }
}
