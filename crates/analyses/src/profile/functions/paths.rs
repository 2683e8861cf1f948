//! Memoized paths, and their costs in the accounts of functions.

use std::{cmp::Reverse, mem};

use hodo_model::Run;

use super::costs::{CostAmount, FunctionCosts};
use crate::{
    clock::Time,
    contexts::{BELOW, ContextId, PathStates},
    memoized_paths::PathCosts,
    stack::{FlowEdge, StackFrame},
};

/// A thread's memoized paths, kept from chunk to chunk.
#[derive(Clone, Debug, Default)]
pub struct FunctionPaths {
    pub(super) memoized_paths: PathCosts,
    contexts: ContextCosts,
}

/// Costs by context that are not in the accounts yet.
#[derive(Clone, Debug, Default)]
struct ContextCosts {
    list: Vec<ContextCost>,
    /// The contexts that have costs, and the contexts below them.
    used: Vec<ContextId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ContextCost {
    /// Costs of its newest frame alone.
    own: CostAmount,
    /// Costs of the frames above that one, including time outside traced code.
    above: CostAmount,
    is_used: bool,
    /// Whether no frame below has the same function; computed on demand.
    is_outermost: Option<bool>,
}

impl ContextCosts {
    /// Returns the costs of a context, and marks it and the contexts below it as used.
    fn of(&mut self, context: ContextId, states: &PathStates) -> &mut ContextCost {
        if self.list.len() <= context as usize {
            self.list.resize(states.contexts(), ContextCost::default());
        }
        let mut next = context;
        while next != BELOW && !mem::replace(&mut self.list[next as usize].is_used, true) {
            self.used.push(next);
            next = states.frame(next).note;
        }
        &mut self.list[context as usize]
    }
}

impl FunctionPaths {
    /// Returns the number of the state after an edge from a stack; `None` if the stack has too many frames.
    pub(super) fn enter(
        &mut self,
        stack: impl ExactSizeIterator<Item = StackFrame<()>>,
        edge: FlowEdge,
    ) -> Option<u32> {
        self.memoized_paths.states.enter(stack, edge)
    }

    /// Memoizes the effect of runs in a state; `None` if they reach below the oldest frame.
    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.memoized_paths.learn(state, runs)
    }

    /// Memoizes a path that is two of them in a row.
    pub(super) fn join(&mut self, first: u32, second: u32) -> u32 {
        self.memoized_paths.join(first, second)
    }

    /// The costs of the stack after a path.
    fn after(&mut self, path: u32) -> &mut ContextCost {
        let FunctionPaths { memoized_paths, contexts } = self;
        let states = &memoized_paths.states;
        contexts.of(states.context(memoized_paths.state_after(path)), states)
    }

    /// Adds time to the newest frame after a path.
    pub(super) fn took(&mut self, path: u32, time: Time) {
        self.after(path).own.add(CostAmount { instructions: 0, time });
    }

    /// Adds time outside traced code to the newest frame after a path.
    pub(super) fn took_outside(&mut self, path: u32, time: Time) {
        self.after(path).above.add(CostAmount { instructions: 0, time });
    }

    /// Moves the costs of all paths to the accounts; returns the number of calls. No frame of the paths may be open in
    /// the accounts.
    pub(super) fn expand(&mut self, costs: &mut FunctionCosts) -> u64 {
        let FunctionPaths { memoized_paths, contexts } = self;
        let calls = memoized_paths.take(|states, sum| {
            let frame = states.frame(sum.context);
            let slot = costs.slot(frame.function);
            costs.entered(slot, frame.entry, sum.entries);
            let amount = CostAmount { instructions: sum.instructions, time: sum.time };
            contexts.of(sum.context, states).own.add(amount);
        });
        // A context has a higher number than the one below it.
        let mut used = mem::take(&mut contexts.used);
        used.sort_unstable_by_key(|&context| Reverse(context));
        for context in used {
            let StackFrame { function, note: below, .. } = *memoized_paths.states.frame(context);
            let entry = &mut contexts.list[context as usize];
            let is_outermost = *entry.is_outermost.get_or_insert_with(|| {
                !memoized_paths.states.frames(below).any(|frame| frame.function == function)
            });
            let ContextCost { own, above: mut all, .. } = *entry;
            *entry = ContextCost { is_outermost: entry.is_outermost, ..ContextCost::default() };
            all.add(own);
            if let Some(below) = contexts.list.get_mut(below as usize) {
                below.above.add(all);
            }
            let slot = costs.slot(function);
            costs.add(slot, own, is_outermost.then_some(all));
        }
        calls
    }
}
