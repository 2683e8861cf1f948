//! The border of an address filter's range: which way control crosses it shows the calls of functions in the range by code
//! outside of it, and their ends.
//!
//! ```text
//! return out of the range ──► Outside          first instruction of a function ──► Called, unless an interrupt left there
//! other ways out          ──► nothing          other ways in                   ──► Enter
//! ```

use hodo_model::{Arrival, FlowEvent, Place, Transfer};

/// How control left the range, in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Left {
    /// Unknown, or by a jump: the function has ended if it is called next.
    #[default]
    Unknown,
    /// By a return.
    Returned,
    /// By a call, or by a system call.
    Waits,
    /// By an interrupt, before this instruction.
    Interrupted(u64),
}

/// What crossed the border last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Border {
    left: Left,
    /// Control has come into the range at this address, and nothing shows yet what is there.
    entered: Option<u64>,
    /// How the last executed code ended.
    last: Option<Transfer>,
}

impl Border {
    /// Control left the range, `from` there if by an interrupt. Returns what to report.
    pub(crate) fn leave(&mut self, from: Option<u64>) -> Option<FlowEvent<'static>> {
        self.left = match (from, self.last) {
            (Some(from), _) => Left::Interrupted(from),
            (None, Some(Transfer::Return)) => Left::Returned,
            (None, Some(Transfer::Call)) => Left::Waits,
            (None, _) => Left::Unknown,
        };
        (self.left == Left::Returned).then_some(FlowEvent::Outside)
    }

    /// Control came into the range.
    pub(crate) fn enter(&mut self, address: u64) {
        self.entered = Some(address);
    }

    /// Returns what to report of an entry of which nothing else is known.
    pub(crate) fn give_up(&mut self) -> Option<FlowEvent<'static>> {
        self.entered.take().map(|_| FlowEvent::Enter)
    }

    /// Code is executed; `ended`: how, if to its end. Returns what to report before it.
    pub(crate) fn run(&mut self, at: &Arrival, ended: Option<Transfer>) -> [Option<FlowEvent<'static>>; 2] {
        self.last = ended;
        let Some(address) = self.entered.take() else { return [None; 2] };
        let is_begin = at.place == Place::Entry && at.address == address;
        match std::mem::take(&mut self.left) {
            Left::Interrupted(from) if from == address => [None, Some(FlowEvent::Enter)],
            _ if !is_begin => [None, Some(FlowEvent::Enter)],
            Left::Unknown => [Some(FlowEvent::Outside), Some(FlowEvent::Called)],
            Left::Returned | Left::Waits | Left::Interrupted(_) => [None, Some(FlowEvent::Called)],
        }
    }
}

#[cfg(test)]
mod tests {
    use hodo_model::FunctionId;

    use super::*;

    fn at(address: u64, place: Place) -> Arrival {
        Arrival { address, function: FunctionId { module: 1, index: 1 }, place }
    }

    fn shown(events: &[Option<FlowEvent<'static>>]) -> String {
        let name = |event: &FlowEvent<'_>| match event {
            FlowEvent::Outside => "outside",
            FlowEvent::Called => "called",
            FlowEvent::Enter => "enter",
            _ => "other",
        };
        events.iter().flatten().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_call_begins_with_the_first_instruction_and_ends_with_a_return() {
        let mut border = Border::default();
        border.enter(0x100);
        assert_eq!(shown(&border.run(&at(0x100, Place::Entry), Some(Transfer::Call))), "outside called");
        // A call out of the range, and back.
        assert_eq!(shown(&[border.leave(None)]), "");
        border.enter(0x108);
        assert_eq!(shown(&border.run(&at(0x108, Place::Middle), Some(Transfer::Return))), "enter");
        assert_eq!(shown(&[border.leave(None)]), "outside");
        border.enter(0x100);
        assert_eq!(shown(&border.run(&at(0x100, Place::Entry), None)), "called");
        // An interrupt before the first instruction: it is the same call that goes on.
        border.leave(Some(0x100));
        border.enter(0x100);
        assert_eq!(shown(&border.run(&at(0x100, Place::Entry), None)), "enter");
        // A jump out of it, and the next call.
        assert_eq!(shown(&[border.leave(None)]), "");
        border.enter(0x100);
        assert_eq!(shown(&border.run(&at(0x100, Place::Entry), None)), "outside called");
        border.enter(0x100);
        assert_eq!(shown(&[border.give_up(), border.give_up()]), "enter");
    }
}
