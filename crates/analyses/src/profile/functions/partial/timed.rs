//! Folds function runs that come with the timestamp after them: the time per instruction is known in advance, so
//! nothing is logged.

use hodo_clock::Nanos;
use hodo_model::{FunctionRun, Numbering, Place, Transfer};

use super::FunctionsPartial;
use crate::{
    clock::{Even, ShortTime, Time, TimeShare},
    profile::functions::costs::{CostAmount, CostSlot},
    stack::{ArrivedAt, Below, FlowEdge, StackFrame, Top, arrive, arrive_plainly},
};

/// Fills the room that is reserved on a stack until frames are written there.
const ROOM_FOR_FRAME: StackFrame<(), CostSlot> = StackFrame::root(0, ());

impl FunctionsPartial {
    /// Folds function runs up to a timestamp.
    #[inline]
    pub(super) fn fold_timed(&mut self, functions: &impl Numbering, runs: &[FunctionRun], until: Nanos) {
        let ran = FunctionRun::instructions(runs);
        let FunctionsPartial { clock, sums, .. } = self;
        clock.read(until.0);
        // Something ran, so the time belongs to no wait.
        let even = clock.share(ran, |share| {
            if let TimeShare::Lost(time) = share {
                sums.add_lost_time(time.length());
            }
        });
        self.fold_evenly(functions, runs, even);
    }

    /// Folds function runs with a known time per instruction.
    #[inline]
    pub(super) fn fold_evenly(&mut self, functions: &impl Numbering, runs: &[FunctionRun], even: Even) {
        self.clock.left = self.clock.left && stays(runs);
        let short = even.each.short_up_to(FunctionRun::instructions(runs));
        let mut folded = 0;
        loop {
            if let Some(each) = short {
                folded += self.fold_plain(runs, folded, each);
            }
            let Some(function_run) = runs.get(folded) else { break };
            let before = FunctionRun::instructions(&runs[..folded]);
            self.fold_any(functions, function_run, u64::from(function_run.until) - before, even.each);
            folded += 1;
        }
        if let Some(top) = self.stack.last() {
            self.costs.ran(top.function, CostAmount { instructions: 0, time: even.rest });
        }
    }

    /// Slow path: folds a function run, however it is entered.
    #[cold]
    #[inline(never)]
    fn fold_any(
        &mut self,
        functions: &impl Numbering,
        function_run: &FunctionRun,
        instructions: u64,
        each: Time,
    ) {
        let slot =
            self.costs.slot_of(function_run.function(), || functions.function(function_run.function()));
        let FunctionsPartial { stack, costs, sums, paths, edge, .. } = self;
        let at = ArrivedAt { address: function_run.start, function: slot, place: function_run.place() };
        if let Err(edge) = arrive(stack, costs, Below::Unknown, *edge, &at) {
            sums.calls += paths.expand(costs);
            costs.begin_piece(edge, function_run.arrival(functions), slot);
            stack.push(StackFrame::root(slot, ()));
        }
        costs.ran(slot, CostAmount { instructions, time: each.times(instructions) });
        self.end(function_run);
    }

    /// Fast path: folds function runs after the first `folded`, while they are entered by call, return or
    /// fall-through. Returns the number of runs that it folded.
    #[inline(always)]
    fn fold_plain(&mut self, runs: &[FunctionRun], folded: usize, each: ShortTime) -> usize {
        let FunctionsPartial { stack, costs, sums, edge, .. } = self;
        let Some(mut branch) = edge.branch() else { return 0 };
        let (before, first) = runs.split_at(folded);
        let mut before = FunctionRun::instructions(before);
        let (frames, depth) = stack.reserve(first.len(), ROOM_FOR_FRAME);
        let mut top = Top { frames, depth };
        let (slots, mut writer) = costs.open(each);
        let mut rest = first;
        while let [function_run, later @ ..] = rest {
            let Some(slot) = writer.known(slots, function_run) else { break };
            let at = ArrivedAt { address: function_run.start, function: slot, place: function_run.place() };
            if !arrive_plainly(&mut top, &mut writer, branch, &at) {
                break;
            }
            writer.ran(slot, u64::from(function_run.until) - before);
            let mut last = function_run;
            rest = later;
            // A leaf call leaves the stack as it was.
            while last.transfer == Transfer::Call
                && let [leaf, back, later @ ..] = rest
                && leaf.transfer == Transfer::Return
                && returns_to(last, back)
                && let Some(callee) = writer.known(slots, leaf)
            {
                writer.called(callee, (leaf.until - last.until).into());
                writer.ran(slot, (back.until - leaf.until).into());
                (last, rest) = (back, later);
            }
            before = last.until.into();
            branch = (last.transfer, last.end);
        }
        sums.calls += writer.close();
        let depth = top.depth;
        stack.count(depth);
        let count = first.len() - rest.len();
        if let Some(last) = first[..count].last() {
            // The call that led to the first one was counted when it was made.
            sums.calls -= u64::from(matches!(edge, FlowEdge::Call { .. }));
            self.end(last);
        }
        count
    }
}

/// Returns whether no function run ends with a transfer, which would show that the thread is in traced code.
pub(super) fn stays(runs: &[FunctionRun]) -> bool {
    runs.iter().all(|function_run| function_run.transfer == Transfer::None)
}

/// Returns whether a function run begins at the return address of the call that ends another.
#[inline(always)]
fn returns_to(call: &FunctionRun, back: &FunctionRun) -> bool {
    call.end == back.start
        && back.start != 0
        && call.function() == back.function()
        && back.place() != Place::Entry
}
