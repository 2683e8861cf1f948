//! Paths that run again and again, and what they add to the accounts of functions.

use std::{cmp::Reverse, mem};

use hodo_model::Run;

use super::costs::{Amount, FunctionCosts};
use crate::{
    clock::Time,
    contexts::{BELOW, ContextId, States},
    memoized_paths::MemoizedPaths,
    stack::{Edge, Frame},
};

/// What a thread remembers of paths while it folds one chunk after the other.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    pub(super) memoized_paths: MemoizedPaths,
    contexts: Contexts,
}

/// What ran in contexts, and is not in the books.
#[derive(Clone, Debug, Default)]
struct Contexts {
    list: Vec<Context>,
    /// Those in which anything is, and those below them.
    used: Vec<ContextId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Context {
    /// What its newest frame ran alone.
    own: Amount,
    /// What the frames above that ran, and what it waited for outside of what is traced.
    above: Amount,
    is_used: bool,
    /// Whether no frame below is of the same function, once it was asked for.
    is_outermost: Option<bool>,
}

impl Contexts {
    /// What ran in a context, which is then used, as are those below it.
    fn of(&mut self, context: ContextId, states: &States) -> &mut Context {
        if self.list.len() <= context as usize {
            self.list.resize(states.contexts(), Context::default());
        }
        let mut next = context;
        while next != BELOW && !mem::replace(&mut self.list[next as usize].is_used, true) {
            self.used.push(next);
            next = states.frame(next).note;
        }
        &mut self.list[context as usize]
    }
}

impl Paths {
    /// The number of the state after an edge from a stack; `None` where it has too many frames.
    pub(super) fn enter(
        &mut self,
        stack: impl ExactSizeIterator<Item = Frame<()>>,
        edge: Edge,
    ) -> Option<u32> {
        self.memoized_paths.states.enter(stack, edge)
    }

    /// Learns what runs do in a state; `None` where they reach below the oldest frame.
    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.memoized_paths.learn(state, runs)
    }

    /// The newest frame behind a path took some more time, or waited for it `outside`.
    pub(super) fn took(&mut self, path: u32, time: Time, outside: bool) {
        let Paths { memoized_paths, contexts } = self;
        let states = &memoized_paths.states;
        let context = contexts.of(states.context(memoized_paths.behind(path)), states);
        let amount = if outside { &mut context.above } else { &mut context.own };
        amount.add(Amount { instructions: 0, time });
    }

    /// Moves all that paths added to the books, whose open frames are none of theirs; how many calls there were.
    pub(super) fn expand(&mut self, books: &mut FunctionCosts) -> u64 {
        let Paths { memoized_paths, contexts } = self;
        let calls = memoized_paths.take(|states, sum| {
            let frame = states.frame(sum.context);
            let slot = books.slot(frame.function);
            books.entered(slot, frame.entry, sum.entries);
            let amount = Amount { instructions: sum.instructions, time: sum.time };
            contexts.of(sum.context, states).own.add(amount);
        });
        // A context has a higher number than the one below it.
        let mut used = mem::take(&mut contexts.used);
        used.sort_unstable_by_key(|&context| Reverse(context));
        for context in used {
            let Frame { function, note: below, .. } = *memoized_paths.states.frame(context);
            let entry = &mut contexts.list[context as usize];
            let is_first = || !memoized_paths.states.frames(below).any(|frame| frame.function == function);
            let is_outermost = *entry.is_outermost.get_or_insert_with(is_first);
            let Context { own, above: mut all, .. } = *entry;
            *entry = Context { is_outermost: entry.is_outermost, ..Context::default() };
            all.add(own);
            if let Some(below) = contexts.list.get_mut(below as usize) {
                below.above.add(all);
            }
            let slot = books.slot(function);
            books.add(slot, own, is_outermost.then_some(all));
        }
        calls
    }
}
