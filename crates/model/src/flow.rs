//! Control flow as analyses read it: runs of instructions, calls, returns, gaps.

use hodo_clock::Nanos;
use hodo_code::Isa;
use serde::{Deserialize, Serialize};

use crate::{Arrival, FunctionId};

/// The kind of the last instruction of straight-line code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum End {
    /// Falls through to the next instruction. Also used if the code did not run to its end.
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

/// The executed instructions, independent of where they are mapped.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Location of the first instruction: an offset in the module's file, or an address if no file contains it.
    pub offset: u64,
    /// The tick from which the code has this content; 0 unless it was overwritten.
    pub since: u64,
    /// Instruction lengths in bytes.
    pub lengths: &'a [u8],
    /// Instruction bytes, concatenated.
    pub bytes: &'a [u8],
    /// The instruction set.
    pub isa: Isa,
    /// The kind of the last instruction.
    pub end: End,
    /// The target of a direct branch at the end, or the address after the last instruction.
    pub target: u64,
}

/// An item of control flow in a chunk, in execution order.
///
/// Addresses are virtual addresses of the traced program.
#[derive(Clone, Copy, Debug)]
pub enum FlowEvent<'a> {
    /// Straight-line code of one function ran.
    Run {
        /// Its first instruction.
        at: Arrival,
        /// The number of instructions.
        instructions: u64,
        /// The instructions.
        code: Code<'a>,
    },
    /// The last instruction was a near call.
    Call {
        /// The address after the call, where it is expected to return.
        return_address: u64,
    },
    /// The last instruction was a near return.
    Return,
    /// The last instruction was a near jump through a register or memory.
    IndirectJump,
    /// The thread left the traced code (a system call, an interrupt, the end of a filter's range).
    Leave {
        /// The instruction that was due next, or that runs next untraced, if the trace contains it.
        next: Option<u64>,
    },
    /// The thread returned to the traced code.
    Enter,
    /// An interrupt, an exception or a system call begins within the traced code. Follows a [`FlowEvent::Leave`].
    Interrupt {
        /// The address at which execution continues after it.
        from: u64,
    },
    /// An interrupt, an exception or a system call returned (IRET, SYSRET, SYSEXIT or a far return) within the traced
    /// code. Follows a [`FlowEvent::Leave`].
    InterruptReturn,
    /// A segment begins, with the clock at that point if known. Clocks of segments are independent. Each chunk begins
    /// with one.
    Begin(Option<Nanos>),
    /// The clock. Everything since the last timestamp ran until this one.
    Time(Nanos),
    /// The core cycles of the segment so far, if the trace counts them. Everything since the last count ran in the
    /// cycles since then.
    Cycles(u64),
    /// The segment ends. A [`FlowEvent::Begin`] follows.
    End,
    /// Flow is missing here. The call stack is unknown after it.
    Gap,
    /// The last instruction turned interrupts on (RFLAGS.IF) or off; only where event trace is recorded. Source: Intel
    /// SDM vol. 3, "MODE.Exec packet".
    Interrupts(bool),
    /// A guest or the host runs from here on.
    Virtual(Virtual),
    /// The number of the next instruction within the thread, counted from 0 over the known flow. Reported where
    /// decoding of the thread starts, if the analysis [requests it](crate::FlowInterest::Numbered).
    Number(u64),
    /// Instructions outside the selection ran. The call stack is unknown after them.
    Skip {
        /// The number of instructions.
        instructions: u64,
    },
}

/// A change of the machine whose code runs. Source: Intel SDM vol. 3, "PIP packet", "VMCS packet", "CFE packet".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Virtual {
    /// A guest's code runs from here on.
    Guest,
    /// The host's code runs from here on.
    Host,
    /// The guest that runs, or runs next, has the VMCS at this physical address.
    Vmcs(u64),
    /// A VM exit for this reason; only where event trace is recorded.
    Exit {
        /// Source: SDM vol. 3, appendix "VMX Basic Exit Reasons".
        reason: u64,
    },
}

impl FlowEvent<'_> {
    /// Drops the instruction lengths and bytes, for callers that store them separately.
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
            FlowEvent::Interrupt { from } => FlowEvent::Interrupt { from },
            FlowEvent::InterruptReturn => FlowEvent::InterruptReturn,
            FlowEvent::Begin(clock) => FlowEvent::Begin(clock),
            FlowEvent::Time(clock) => FlowEvent::Time(clock),
            FlowEvent::Cycles(count) => FlowEvent::Cycles(count),
            FlowEvent::End => FlowEvent::End,
            FlowEvent::Gap => FlowEvent::Gap,
            FlowEvent::Interrupts(on) => FlowEvent::Interrupts(on),
            FlowEvent::Virtual(change) => FlowEvent::Virtual(change),
            FlowEvent::Number(number) => FlowEvent::Number(number),
            FlowEvent::Skip { instructions } => FlowEvent::Skip { instructions },
        }
    }
}

/// Function names, for tables.
pub trait Names: Sync {
    /// The readable names of a function and of its module.
    fn names(&self, function: FunctionId) -> (String, String);
}

/// A source line that code was compiled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine<'a> {
    /// The file's path, from the debugging information.
    pub file: &'a str,
    /// The line number, from 1.
    pub line: u32,
    /// Whether a statement of the line begins at the address.
    pub begins: bool,
    /// Whether an entry of the line table is at the address; otherwise the line is that of the entry before it.
    pub is_entry: bool,
}

/// Function names and source lines of code.
pub trait Sources: Names {
    /// Converts a [`Code::offset`] to the address that the module's symbols use.
    fn address(&self, module: u32, offset: u64) -> u64;

    /// The source line of an instruction; `None` if unknown.
    fn line(&self, module: u32, address: u64) -> Option<SourceLine<'_>>;

    /// The functions that the instructions at these addresses come from: for inlined code, the inlined function.
    /// `None` if unknown.
    fn inlined(&self, module: u32, addresses: &[u64]) -> Vec<Option<String>>;

    /// Calls `each` with the index of each address at which functions are inlined, and their names, innermost first.
    fn inlined_frames(&self, _module: u32, _addresses: &[u64], _each: &mut dyn FnMut(usize, &[String])) {}

    /// The number of modules that the recording names, from 0 on, whether their code ran or not.
    fn modules(&self) -> u32 {
        0
    }

    /// The statements in the line table of a module, in order of address.
    fn statements(&self, _module: u32) -> Vec<Statement<'_>> {
        Vec::new()
    }

    /// The named functions of a module, in order of address.
    fn functions(&self, _module: u32) -> Vec<FunctionRange> {
        Vec::new()
    }

    /// The code of a function as in its module's file, and its instruction set; empty if it is in no file.
    fn code(&self, _function: &FunctionRange) -> (Isa, &[u8]) {
        (Isa::X86_64, &[])
    }
}

/// The code of a statement, from its address up to the next entry of the line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// The first address, as in the module's symbols.
    pub address: u64,
    /// The source file's path.
    pub file: &'a str,
    /// The line in `file`, from 1.
    pub line: u32,
}

/// Where the code of a function is, in addresses of its module's symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionRange {
    /// The function.
    pub function: FunctionId,
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
}

/// Empty symbols, for a trace without control flow.
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
