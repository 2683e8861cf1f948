//! Folds function runs that come with the timestamp after them: the time per instruction is known in advance, so
//! nothing is logged.

use hodo_clock::Nanos;
use hodo_model::{FunctionRun, Numbering, Place, Transfer};

use super::Partial;
use crate::{
    clock::{Even, Share, ShortTime},
    profile::functions::costs::{Amount, Slot},
    stack::{At, Below, Frame, Top, arrive, arrive_plainly},
};

const ROOM_FOR_FRAME: Frame<(), Slot> = Frame::root(0, ());

impl Partial {
    /// Folds function runs up to a timestamp.
    #[inline]
    pub(super) fn fold_timed(
        &mut self,
        functions: &impl Numbering,
        function_runs: &[FunctionRun],
        until: Nanos,
    ) {
        let ran = FunctionRun::instructions(function_runs);
        let Partial { clock, sums, .. } = self;
        clock.read(until.0);
        // Something ran, so the time belongs to no wait.
        let even = clock.share(ran, |share| {
            if let Share::Lost(time) = share {
                sums.add_lost_time(time.length());
            }
        });
        self.fold_evenly(functions, function_runs, even);
    }

    /// Folds function runs with a known time per instruction.
    #[inline]
    pub(super) fn fold_evenly(
        &mut self,
        functions: &impl Numbering,
        function_runs: &[FunctionRun],
        even: Even,
    ) {
        self.clock.left = self.clock.left && stays(function_runs);
        let short = even.each.short_up_to(FunctionRun::instructions(function_runs));
        let (mut folded, mut before) = (0, 0);
        while let Some(function_run) = function_runs.get(folded) {
            let slot =
                self.costs.slot_of(function_run.function(), || functions.function(function_run.function()));
            let Partial { stack, costs, sums, paths, edge, .. } = self;
            let at = At { address: function_run.start, function: slot, place: function_run.place() };
            if let Err(edge) = arrive(stack, costs, Below::Unknown, *edge, &at) {
                sums.calls += paths.expand(costs);
                costs.begin_piece(edge, function_run.arrival(functions), slot);
                stack.push(Frame::root(slot, ()));
            }
            let instructions = u64::from(function_run.until - before);
            folded += match short {
                Some(each) => self.fold_plain((slot, instructions), &function_runs[folded..], each),
                None => {
                    let amount = Amount { instructions, time: even.each.times(instructions) };
                    costs.ran(slot, amount);
                    1
                }
            };
            let last = &function_runs[folded - 1];
            before = last.until;
            self.end(last);
        }
        if let Some(top) = self.stack.last() {
            self.costs.ran(top.function, Amount { instructions: 0, time: even.rest });
        }
    }

    /// Fast path: folds the first function run and those after it, while they are entered by call, return or
    /// fall-through. The function of the first one must be on top of the stack. Returns the number of folded runs.
    #[inline(always)]
    fn fold_plain(
        &mut self,
        (slot, instructions): (Slot, u64),
        function_runs: &[FunctionRun],
        each: ShortTime,
    ) -> usize {
        let Partial { stack, costs, sums, .. } = self;
        let (frames, depth) = stack.reserve(function_runs.len(), ROOM_FOR_FRAME);
        let mut top = Top { frames, depth };
        let (slots, mut open) = costs.open(each, &mut sums.calls);
        open.ran(slot, instructions);
        let mut rest = function_runs;
        while let [last, function_run, later @ ..] = rest {
            let Some(&slot) = slots.get(function_run.function() as usize) else { break };
            if !open.has(slot) {
                break;
            }
            let ran = u64::from(function_run.until - last.until);
            // A leaf call leaves the stack as it was.
            if last.transfer == Transfer::Call
                && function_run.transfer == Transfer::Return
                && let Some(back) = later.first()
                && returns_to(last, back)
            {
                open.called(slot, ran);
                open.ran(top.function(), (back.until - function_run.until).into());
                rest = &rest[2..];
                continue;
            }
            let at = At { address: function_run.start, function: slot, place: function_run.place() };
            if !arrive_plainly(&mut top, &mut open, (last.transfer, last.end), &at) {
                break;
            }
            open.ran(slot, ran);
            rest = &rest[1..];
        }
        open.close();
        let depth = top.depth;
        stack.count(depth);
        function_runs.len() + 1 - rest.len()
    }
}

/// Returns whether no function run ends with a transfer that leaves or enters traced code.
pub(super) fn stays(function_runs: &[FunctionRun]) -> bool {
    function_runs.iter().all(|function_run| function_run.transfer == Transfer::None)
}

/// Returns whether a function run begins at the return address of the call that ends another.
#[inline(always)]
fn returns_to(call: &FunctionRun, back: &FunctionRun) -> bool {
    call.end == back.start
        && back.start != 0
        && call.function() == back.function()
        && back.place() != Place::Entry
}
