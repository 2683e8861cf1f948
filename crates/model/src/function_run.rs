//! What ran, as those are told who need not know each block of it.

use crate::{Arrival, FunctionId, Place, Run};

/// Blocks of one function, known by a number, that ran to their ends one after another. Machine code writes these, so
/// they are laid out as in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FunctionRun {
    /// Where the first of them starts; where they go on with the function run before, of which only the time was told since,
    /// where that one does.
    pub start: u64,
    /// The number of their function, and where in it they begin, as [`FunctionRun::begins`] puts them together.
    pub begins: u32,
    /// Instructions up to their end, those of the function runs that come before them included.
    pub until: u32,
    /// What the last one does to the call stack.
    pub transfer: Transfer,
    /// The address after the last one, where it is a call.
    pub end: u64,
}

impl FunctionRun {
    /// Numbers of functions are less than this.
    pub const FUNCTIONS: u32 = 1 << 30;

    /// A function's number, and where in it something begins.
    #[inline]
    pub const fn begins(function: u32, place: Place) -> u32 {
        function & (FunctionRun::FUNCTIONS - 1) | (place as u32) << 30
    }

    /// The number of their function.
    #[inline]
    pub const fn function(&self) -> u32 {
        self.begins & (FunctionRun::FUNCTIONS - 1)
    }

    /// Where in it they begin.
    #[inline]
    pub const fn place(&self) -> Place {
        match self.begins >> 30 {
            0 => Place::Entry,
            1 => Place::Middle,
            _ => Place::Unknown,
        }
    }

    /// The run itself, behind so many instructions.
    #[inline]
    pub fn named(&self, functions: &impl Numbering, before: u32) -> Run {
        let &FunctionRun { until, transfer, end, .. } = self;
        Run { at: self.arrival(functions), instructions: (until - before).into(), transfer, end }
    }

    /// Where it begins.
    #[inline]
    pub fn arrival(&self, functions: &impl Numbering) -> Arrival {
        Arrival { address: self.start, function: functions.function(self.function()), place: self.place() }
    }

    /// How many instructions function runs are that follow each other, the first of which begins what they count.
    #[inline]
    pub fn instructions(all: &[FunctionRun]) -> u64 {
        all.last().map_or(0, |last| last.until.into())
    }

    /// The same function runs as runs.
    #[inline]
    pub fn runs(all: &[FunctionRun], functions: &impl Numbering) -> impl Iterator<Item = Run> {
        let mut before = 0;
        all.iter().map(move |function_run| {
            function_run.named(functions, std::mem::replace(&mut before, function_run.until))
        })
    }
}

/// Numbers of functions.
pub trait Numbering {
    /// What tells the numbering from others; 0 if its numbers mean nothing beyond the function runs that come with it.
    fn id(&self) -> u64;

    /// The function that has a number.
    fn function(&self, number: u32) -> FunctionId;
}

/// One function, which has all numbers.
impl Numbering for FunctionId {
    fn id(&self) -> u64 {
        0
    }

    fn function(&self, _number: u32) -> FunctionId {
        *self
    }
}

/// A branch as far as it changes the call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transfer {
    /// None, a direct or conditional branch, or a far one.
    None,
    /// A near call, which will return to the address after it.
    Call,
    /// A near return.
    Return,
    /// A near jump through a register or memory.
    IndirectJump,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_says_where_in_its_function_it_begins() {
        let largest = FunctionRun::FUNCTIONS - 1;
        for (function, place) in [(0, Place::Entry), (largest, Place::Middle), (7, Place::Unknown)] {
            let begins = FunctionRun::begins(function, place);
            let function_run = FunctionRun { start: 0, begins, until: 1, transfer: Transfer::None, end: 0 };
            assert_eq!((function_run.function(), function_run.place()), (function, place));
        }
    }
}
