//! Paths that run again and again, and what they add to a tree.

use hodo_model::Run;

use super::nodes::{NodeId, Tree};
use crate::{
    clock::{Clock, Even},
    contexts::{BELOW, ContextId, States},
    memoized_paths::{MemoizedPaths, Part},
    profile::cost::Sums,
    spare_stack::SpareCapacityStack,
    stack::{Edge, Frame},
};

/// A node that is not known yet.
const NOWHERE: NodeId = NodeId::MAX;

/// What a thread remembers of paths while it folds one chunk after the other.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    memoized_paths: MemoizedPaths,
    /// Paths that ran since the clock was told last.
    ran: Vec<u32>,
    /// The state before those in `ran`; `None` where what comes next is folded.
    state: Option<u32>,
    places: Places,
}

/// The nodes of a tree that contexts are there.
#[derive(Clone, Debug, Default)]
struct Places {
    /// The root that all contexts grow on.
    root: NodeId,
    nodes: Vec<NodeId>,
}

impl Places {
    /// The node that a context is.
    fn of(&mut self, context: ContextId, states: &States, tree: &mut Tree) -> NodeId {
        let index = context as usize;
        if self.nodes.len() <= index {
            self.nodes.resize(states.contexts(), NOWHERE);
        }
        if self.nodes[index] == NOWHERE {
            let Frame { function, entry, note: below, .. } = *states.frame(context);
            self.nodes[index] = match below {
                BELOW => self.root,
                _ => {
                    let parent = self.of(below, states, tree);
                    tree.child(parent, function, entry)
                }
            };
        }
        self.nodes[index]
    }
}

impl Paths {
    /// Whether contexts grow on another root than this.
    pub(super) fn grow_elsewhere(&self, root: NodeId) -> bool {
        self.places.root != root
    }

    /// From now on contexts grow on this root.
    pub(super) fn grow_on(&mut self, root: NodeId) {
        self.places.root = root;
        self.places.nodes.clear();
    }

    /// The number of the state after an edge from a stack; `None` where it has too many frames.
    pub(super) fn enter(&mut self, stack: &[Frame<NodeId>], edge: Edge) -> Option<u32> {
        self.state = self.memoized_paths.states.enter(stack.iter().copied(), edge);
        self.state
    }

    /// Learns what runs do in a state; `None` where they reach below the root.
    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.memoized_paths.learn(state, runs)
    }

    /// A path ran.
    #[inline]
    pub(super) fn ran(&mut self, path: u32) {
        self.ran.push(path);
    }

    /// Whether a path ran since the clock was told last.
    pub(super) fn have_run(&self) -> bool {
        !self.ran.is_empty()
    }

    /// Instructions of those that did.
    pub(super) fn instructions(&self) -> u64 {
        self.ran.iter().map(|&path| self.memoized_paths.instructions(path)).sum()
    }

    /// Counts those that did; each of their instructions took so long.
    pub(super) fn count(&mut self, even: Even) {
        let Some(&last) = self.ran.last() else { return };
        self.state = self.state.map(|_| self.memoized_paths.behind(last));
        for path in self.ran.drain(..) {
            self.memoized_paths.count(path, even.each);
        }
    }

    /// The node that runs, where paths led to it.
    pub(super) fn node(&mut self, tree: &mut Tree) -> Option<NodeId> {
        let state = self.ran.last().map_or(self.state?, |&path| self.memoized_paths.behind(path));
        let states = &self.memoized_paths.states;
        Some(self.places.of(states.context(state), states, tree))
    }

    /// Leaves paths in a state: the stack there, and the edge after it.
    pub(super) fn leave(&mut self, state: u32, tree: &mut Tree) -> (SpareCapacityStack<Frame<NodeId>>, Edge) {
        self.state = None;
        let states = &self.memoized_paths.states;
        let (mut stack, edge) = states.stack(state);
        stack.iter_mut().for_each(|frame| frame.note = self.places.of(frame.note, states, tree));
        (stack, edge)
    }

    /// Expands all paths into the tree. The clock is to share time out over what ran since it was told last.
    pub(super) fn expand(&mut self, tree: &mut Tree, sums: &mut Sums, clock: &mut Clock<NodeId>) {
        let Paths { memoized_paths, ran, places, .. } = self;
        for &path in &*ran {
            for &Part { context, instructions, .. } in memoized_paths.parts(path) {
                clock.ran(places.of(context, &memoized_paths.states, tree), u64::from(instructions));
            }
        }
        self.count(Even::default());
        let Paths { memoized_paths, places, .. } = self;
        sums.calls += memoized_paths.take(|states, sum| {
            let node = places.of(sum.context, states, tree);
            let ran = tree.ran(node);
            ran.entries += sum.entries;
            ran.instructions += sum.instructions;
            ran.time = ran.time.and(sum.time);
        });
    }
}
