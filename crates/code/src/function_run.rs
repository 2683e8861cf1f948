//! Function runs: control flow for analyses that do not need every basic block.

use crate::{Arrival, FunctionId, Place};

/// Consecutive blocks of one function, each executed to its end. `repr(C)` because generated machine code writes
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FunctionRun {
    /// Address of the first block. A run that continues the previous function run, with only a timestamp between
    /// them, keeps the address of that one.
    pub start: u64,
    /// The function's number and the place in it where the run begins, packed by [`FunctionRun::begins`].
    pub begins: u32,
    /// Instructions up to the end of this run, including those of the preceding runs in the batch.
    pub until: u32,
    /// The effect of the last instruction on the call stack.
    pub transfer: Transfer,
    /// The address after the last instruction, if it is a call.
    pub end: u64,
}

impl FunctionRun {
    /// Exclusive upper bound of function numbers.
    pub const FUNCTIONS: u32 = 1 << 30;

    /// Packs a function's number and the place in it where a run begins.
    #[inline]
    pub const fn begins(function: u32, place: Place) -> u32 {
        function & (FunctionRun::FUNCTIONS - 1) | (place as u32) << 30
    }

    /// The function's number.
    #[inline]
    pub const fn function(&self) -> u32 {
        self.begins & (FunctionRun::FUNCTIONS - 1)
    }

    /// The place in the function where the run begins.
    #[inline]
    pub const fn place(&self) -> Place {
        match self.begins >> 30 {
            0 => Place::Entry,
            1 => Place::Middle,
            _ => Place::Unknown,
        }
    }

    /// Converts to a [`Run`]; `before` instructions precede it in the batch.
    #[inline]
    pub fn named(&self, functions: &impl Numbering, before: u32) -> Run {
        let &FunctionRun { until, transfer, end, .. } = self;
        Run { at: self.arrival(functions), instructions: (until - before).into(), transfer, end }
    }

    /// The address at which the run begins.
    #[inline]
    pub fn arrival(&self, functions: &impl Numbering) -> Arrival {
        Arrival { address: self.start, function: functions.function(self.function()), place: self.place() }
    }

    /// The instruction count of a whole batch of consecutive function runs.
    #[inline]
    pub fn instructions(all: &[FunctionRun]) -> u64 {
        all.last().map_or(0, |last| last.until.into())
    }

    /// Converts a whole batch of function runs to [`Run`]s.
    #[inline]
    pub fn runs(all: &[FunctionRun], functions: &impl Numbering) -> impl Iterator<Item = Run> {
        let mut before = 0;
        all.iter().map(move |function_run| {
            function_run.named(functions, std::mem::replace(&mut before, function_run.until))
        })
    }
}

/// Instructions of one function that ran one after the other, without their code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its first instruction.
    pub at: Arrival,
    /// The number of instructions, all of one function.
    pub instructions: u64,
    /// The effect of the last instruction on the call stack.
    pub transfer: Transfer,
    /// The address after the last instruction, if it is a call.
    pub end: u64,
}

/// A mapping from numbers to functions.
pub trait Numbering {
    /// Identifies the numbering. 0 if the numbers are valid only for the function runs that come with them.
    fn id(&self) -> u64;

    /// The function with this number.
    fn function(&self, number: u32) -> FunctionId;
}

/// Maps every number to one function.
impl Numbering for FunctionId {
    fn id(&self) -> u64 {
        0
    }

    fn function(&self, _number: u32) -> FunctionId {
        *self
    }
}

/// A branch's effect on the call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transfer {
    /// No effect: no branch, or a direct, conditional or far one; a call to the next instruction.
    None,
    /// A near call, expected to return to the address after it.
    Call,
    /// A near return.
    Return,
    /// A near jump through a register or memory.
    IndirectJump,
    /// A near call that enters no function: it goes over a few bytes that never return, to push an address that the
    /// code then discards or replaces. The call stack stays as it is; the processor's stack of return addresses, which
    /// decoders follow, does not.
    PushOnly,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_run_says_where_in_its_function_it_begins() {
        let largest = FunctionRun::FUNCTIONS - 1;
        for (function, place) in [(0, Place::Entry), (largest, Place::Middle), (7, Place::Unknown)] {
            let begins = FunctionRun::begins(function, place);
            let function_run = FunctionRun { start: 0, begins, until: 1, transfer: Transfer::None, end: 0 };
            assert_eq!((function_run.function(), function_run.place()), (function, place));
        }
    }
}
