//! Calls with known times.

use hodo_model::{FunctionId, FunctionRun, Numbering};

use super::{
    BegunCall, CallLogEntry, ChunkCalls, When,
    paths::{FrameStep, WantedCalls},
};
use crate::{
    clock::Shares,
    stack::{
        ArrivedAt, Below, FlowEdge, FrameEntry, ReturnAddress, StackFrame, Top, Watch, arrive, arrive_plainly,
    },
};

/// Items with known times, up to the last timestamp.
#[derive(Debug)]
pub(super) struct Timed {
    /// Whether the begins of calls are reported before their ends.
    pub(super) begins: bool,
    pub(super) wanted: WantedCalls,
    pub(super) items: Vec<CallLogEntry>,
    /// The open calls above the oldest known frame.
    pub(super) open: Vec<BegunCall>,
}

impl Timed {
    /// Drops the begin of a call that ends, if it is not wanted and its begin is the last item: then no wanted call is in it.
    #[inline]
    fn drop_unwanted(&mut self, ended: &BegunCall) -> bool {
        let WantedCalls::Of(functions) = &self.wanted else { return false };
        let is_last = |item: &mut CallLogEntry| matches!(item, CallLogEntry::Begin(begun) if begun.depth == ended.depth);
        !functions.contains(&ended.function) && self.items.pop_if(is_last).is_some()
    }

    #[inline(always)]
    pub(super) fn step(&mut self, step: FrameStep, before: u64, when: impl Fn(u64) -> When) {
        let depth = self.open.len() as u32 + 1;
        match step {
            FrameStep::CompleteCall { function, entry, instructions, above } => {
                let begin = before - u64::from(instructions);
                let open =
                    BegunCall { depth: depth + above, function, entry, time: when(begin), before: begin };
                self.items.push(CallLogEntry::End(open.ended(when(before), before)));
            }
            FrameStep::Enter(function, entry) => {
                let open = BegunCall { depth, function, entry, time: when(before), before };
                self.open.push(open);
                if self.begins {
                    self.items.push(CallLogEntry::Begin(open));
                }
            }
            // The oldest frame began in an earlier chunk, and `OpenCalls`, which knows when, ends it.
            FrameStep::Leave => {
                if let Some(open) = self.open.pop()
                    && !self.drop_unwanted(&open)
                {
                    self.items.push(CallLogEntry::End(open.ended(when(before), before)));
                }
            }
        }
    }
}

/// Emits items whose times are known.
struct Clocked<'t> {
    timed: &'t mut Timed,
    /// Number of instructions of the chunk so far.
    before: u64,
    /// Number of instructions of the chunk before the last timestamp.
    at_clock: u64,
    /// The last timestamp.
    since: When,
    shares: Shares,
}

impl Clocked<'_> {
    #[inline(always)]
    fn when(&self, before: u64) -> When {
        When(self.since.0 + self.shares.of(before - self.at_clock))
    }

    #[inline(always)]
    fn step(&mut self, step: FrameStep) {
        let when = self.when(self.before);
        self.timed.step(step, self.before, |_| when);
    }
}

impl Watch<()> for Clocked<'_> {
    #[inline(always)]
    fn enter(&mut self, _: &StackFrame<()>, function: FunctionId, entry: FrameEntry, _: ReturnAddress) {
        self.step(FrameStep::Enter(function, entry));
    }

    #[inline(always)]
    fn leave(&mut self, _: &StackFrame<()>) {
        self.step(FrameStep::Leave);
    }
}

impl ChunkCalls {
    /// Folds function runs whose begin and duration are known, so that no operation waits for a timestamp.
    #[inline]
    pub(super) fn fold_timed(
        &mut self,
        functions: &impl Numbering,
        runs: &[FunctionRun],
        (since, elapsed): (When, u64),
    ) {
        let total = FunctionRun::instructions(runs);
        let ChunkCalls { timed, stack, edge: last, log, .. } = self;
        let at_clock = log.instructions;
        let shares = Shares::new(elapsed, total.max(1));
        let mut clocked = Clocked { timed, before: at_clock, at_clock, since, shares };
        let anything = stack[stack.len() - 1];
        let mut folded = 0;
        while let Some(function_run) = runs.get(folded) {
            let at = function_run.arrival(functions);
            if let Err(edge) = arrive(stack, &mut clocked, Below::Unknown, *last, &ArrivedAt::of(&at)) {
                let (before, time) = (clocked.before, clocked.when(clocked.before));
                let arrival = Box::new((edge, at));
                clocked.timed.items.push(CallLogEntry::Arrive { arrival, time, before });
                stack.push(StackFrame::root(at.function, ()));
            }
            // Fast path: the following runs, while they are entered by call, return or fall-through.
            let (frames, depth) = stack.reserve(runs.len() - folded, anything);
            let mut top = Top { frames, depth };
            for [before, function_run] in runs[folded..].array_windows() {
                clocked.before = at_clock + u64::from(before.until);
                let at = ArrivedAt::of(&function_run.arrival(functions));
                if !arrive_plainly(&mut top, &mut clocked, (before.transfer, before.end), &at) {
                    break;
                }
                folded += 1;
            }
            let depth = top.depth;
            stack.count(depth);
            clocked.before = at_clock + u64::from(runs[folded].until);
            *last = FlowEdge::after_function_run(&runs[folded]);
            folded += 1;
        }
        log.instructions = at_clock + total;
    }
}
