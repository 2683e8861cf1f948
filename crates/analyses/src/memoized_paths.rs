//! Memoized paths: their costs by frame, and the number of their executions.
//!
//! The effect of a path on the stack, and the frames to which its instructions count, depend on the stack and on the
//! edge over which execution arrives: a *state*. So each path is memoized for a state, later executions only count it
//! by its number, and its costs are added once for all executions.

use std::{mem, ops::Range};

use hodo_model::{Run, Transfer};

use crate::{
    clock::Time,
    contexts::{ContextId, Notes, PathStates},
    stack::StackFrame,
};

/// The costs that each execution of a path adds to one context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathCost {
    pub(crate) context: ContextId,
    pub(crate) entries: u32,
    pub(crate) instructions: u32,
}

/// A path and its executions.
#[derive(Clone, Debug)]
struct MemoizedPath {
    count: u64,
    /// The time per instruction, summed over all executions.
    each: Time,
    instructions: u32,
    calls: u32,
    /// The state after it.
    to: u32,
    /// End index of its costs; they begin where those of the previous path end.
    costs_end: u32,
}

/// The costs that all executions of a path add to one context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSum {
    pub(crate) context: ContextId,
    pub(crate) entries: u64,
    pub(crate) instructions: u64,
    pub(crate) time: Time,
}

/// The learned paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathCosts {
    pub(crate) states: PathStates,
    paths: Vec<MemoizedPath>,
    costs: Vec<PathCost>,
    /// Paths executed since their sums were last taken.
    counted: Vec<u32>,
}

/// Gathers what a path adds.
struct CostGatherer<'p> {
    costs: &'p mut Vec<PathCost>,
    /// Where the path's costs begin.
    start: usize,
    instructions: u32,
    calls: u32,
}

impl CostGatherer<'_> {
    fn cost(&mut self, context: ContextId) -> &mut PathCost {
        cost_of(self.costs, self.start, context)
    }
}

/// Returns the cost of a context among those from `start` on, which are of one path.
fn cost_of(costs: &mut Vec<PathCost>, start: usize, context: ContextId) -> &mut PathCost {
    let known = costs[start..].iter().rposition(|cost| cost.context == context);
    let index = known.map_or(costs.len(), |index| start + index);
    if known.is_none() {
        costs.push(PathCost { context, entries: 0, instructions: 0 });
    }
    &mut costs[index]
}

impl Notes for CostGatherer<'_> {
    fn enter(&mut self, context: ContextId, _: &StackFrame<ContextId>) {
        self.cost(context).entries += 1;
    }

    fn leave(&mut self) {}

    fn ran(&mut self, context: ContextId, run: &Run) {
        let instructions = run.instructions as u32;
        self.cost(context).instructions += instructions;
        self.instructions += instructions;
        self.calls += u32::from(run.transfer == Transfer::Call);
    }
}

impl PathCosts {
    /// Memoizes the effect of runs in a state: returns the number of the path, and the state after it; `None` if they
    /// reach below the oldest frame.
    pub(crate) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        let start = self.costs.len();
        let mut gatherer = CostGatherer { costs: &mut self.costs, start, instructions: 0, calls: 0 };
        let state_after = self.states.follow(state, runs, &mut gatherer);
        let CostGatherer { instructions, calls, .. } = gatherer;
        let Some(to) = state_after else {
            self.costs.truncate(start);
            return None;
        };
        Some((self.push(instructions, calls, to), to))
    }

    /// Memoizes a path that consists of two others: the second begins in the state after the first.
    pub(crate) fn join(&mut self, first: u32, second: u32) -> u32 {
        let start = self.costs.len();
        self.costs.extend_from_within(self.range(first));
        for index in self.range(second) {
            let PathCost { context, entries, instructions } = self.costs[index];
            let cost = cost_of(&mut self.costs, start, context);
            cost.entries += entries;
            cost.instructions += instructions;
        }
        let [first, second] = [first, second].map(|path| &self.paths[path as usize]);
        self.push(first.instructions + second.instructions, first.calls + second.calls, second.to)
    }

    /// Adds a path whose costs are the newest; returns its number.
    fn push(&mut self, instructions: u32, calls: u32, to: u32) -> u32 {
        let costs_end = self.costs.len() as u32;
        self.paths.push(MemoizedPath { count: 0, each: Time::default(), instructions, calls, to, costs_end });
        self.paths.len() as u32 - 1
    }

    /// The instructions of a path.
    #[inline]
    pub(crate) fn instructions(&self, path: u32) -> u64 {
        self.paths[path as usize].instructions.into()
    }

    /// The near calls on a path.
    pub(crate) fn calls(&self, path: u32) -> u32 {
        self.paths[path as usize].calls
    }

    /// The state after a path.
    #[inline]
    pub(crate) fn state_after(&self, path: u32) -> u32 {
        self.paths[path as usize].to
    }

    /// Returns the costs of a path per execution.
    pub(crate) fn costs(&self, path: u32) -> &[PathCost] {
        &self.costs[self.range(path)]
    }

    fn range(&self, path: u32) -> Range<usize> {
        let path = path as usize;
        let begin = if path == 0 { 0 } else { self.paths[path - 1].costs_end };
        begin as usize..self.paths[path].costs_end as usize
    }

    /// Counts an execution of a path with this time per instruction. Returns the instructions of the path.
    #[inline]
    pub(crate) fn count(&mut self, id: u32, each: Time) -> u64 {
        let path = &mut self.paths[id as usize];
        if path.count == 0 {
            self.counted.push(id);
        }
        path.count += 1;
        path.each = path.each.saturating_add(each);
        path.instructions.into()
    }

    /// Passes the costs that paths added since the last `take` to `add`, and returns their number of calls.
    pub(crate) fn take(&mut self, mut add: impl FnMut(&PathStates, PathSum)) -> u64 {
        let mut all_calls = 0;
        for path in mem::take(&mut self.counted) {
            let MemoizedPath { count, each, calls, .. } = self.paths[path as usize];
            for &PathCost { context, entries, instructions } in &self.costs[self.range(path)] {
                let (entries, instructions) = (u64::from(entries), u64::from(instructions));
                let time = each.times(instructions);
                let sum =
                    PathSum { context, entries: entries * count, instructions: instructions * count, time };
                add(&self.states, sum);
            }
            all_calls += u64::from(calls) * count;
            let path = &mut self.paths[path as usize];
            (path.count, path.each) = (0, Time::default());
        }
        all_calls
    }
}
