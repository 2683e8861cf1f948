//! The border of an address filter's range. What runs beyond it is not recorded, and it calls functions of the range and is
//! called by them: it is one function of unknown code, which runs no instruction.
//!
//! ```text
//! return, call out of the range ──► that function runs     first instruction of a function ──► that function calls it
//! other ways out                ──► nothing                other ways in                   ──► nothing
//! ```
//!
//! An interrupt before the first instruction of a function, as by the page fault that loads it, leads out of the range
//! and back to that instruction, and is no call.

use hodo_model::{Arrival, Code, End, FlowEvent, FunctionId, Place, Transfer};

/// Where the code beyond the border runs. Each call from there returns to this address.
const BEYOND: Arrival =
    Arrival { address: 1, function: FunctionId { module: 0, index: 0 }, place: Place::Middle };

/// Reports that the code beyond the border runs.
pub(crate) const RUNS: FlowEvent<'static> = FlowEvent::Run {
    at: BEYOND,
    instructions: 0,
    code: Code {
        offset: 0,
        since: 0,
        lengths: &[],
        bytes: &[],
        isa: hodo_code::Isa::X86_64,
        end: End::Next,
        target: 0,
    },
};

/// Reports that the code beyond the border calls a function of the range.
pub(crate) const CALLS: FlowEvent<'static> = FlowEvent::Call { return_address: BEYOND.address };

/// How control crossed the border last, in a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Border {
    /// The instruction at which an interrupt led out of the range.
    interrupted: Option<u64>,
    /// The address at which control came into the range, until a block runs there.
    entered: Option<u64>,
    /// The transfer at the end of the last executed block; `None` if the block did not run to its end.
    last: Option<Transfer>,
}

impl Border {
    /// Control left the range, by an interrupt before the instruction at `from` if there is one. Returns whether the code
    /// beyond the border then runs: by a return to it, or a call of it.
    pub(crate) fn leave(&mut self, from: Option<u64>) -> bool {
        self.interrupted = from;
        from.is_none() && matches!(self.last.take(), Some(Transfer::Return | Transfer::Call))
    }

    /// Control came into the range.
    pub(crate) fn enter(&mut self, address: u64) {
        self.entered = Some(address);
    }

    /// A block runs. `ended` is the transfer at its end, `None` if it did not run to its end. Returns whether the code beyond
    /// the border called it.
    pub(crate) fn run(&mut self, at: &Arrival, ended: Option<Transfer>) -> bool {
        self.last = ended;
        let Some(address) = self.entered.take() else { return false };
        let is_resumed = self.interrupted.take() == Some(address);
        at.place == Place::Entry && at.address == address && !is_resumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64, place: Place) -> Arrival {
        Arrival { address, function: FunctionId { module: 1, index: 1 }, place }
    }

    #[test]
    fn a_call_begins_with_the_first_instruction_and_ends_with_a_return() {
        let mut border = Border::default();
        border.enter(0x100);
        assert!(border.run(&at(0x100, Place::Entry), Some(Transfer::Call)));
        // A call out of the range, and back.
        assert!(border.leave(None));
        border.enter(0x108);
        assert!(!border.run(&at(0x108, Place::Middle), Some(Transfer::Return)));
        assert!(border.leave(None));
        // An interrupt before the first instruction: it is the same call that goes on.
        border.enter(0x100);
        assert!(border.run(&at(0x100, Place::Entry), None));
        assert!(!border.leave(Some(0x100)));
        border.enter(0x100);
        assert!(!border.run(&at(0x100, Place::Entry), None));
        // A jump out of it, and the next call.
        assert!(!border.leave(None));
        border.enter(0x100);
        assert!(border.run(&at(0x100, Place::Entry), None));
        // A loop to the first instruction.
        assert!(!border.run(&at(0x100, Place::Entry), None));
    }
}
