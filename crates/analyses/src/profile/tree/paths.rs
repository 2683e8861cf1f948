//! Memoized paths, and their costs in a call tree.

use hodo_model::Run;

use super::nodes::{Forest, NodeId};
use crate::{
    clock::{Even, SegmentClock},
    contexts::{BELOW, ContextId, PathStates},
    memoized_paths::{PathCost, PathCosts},
    profile::cost::ThreadTotals,
    stack::{FlowEdge, KnownFrames, StackFrame},
};

/// A node that is not known yet.
const NOWHERE: NodeId = NodeId::MAX;

/// The memoized paths of a decoding thread, reused from chunk to chunk.
#[derive(Clone, Debug, Default)]
pub struct TreePaths {
    memoized_paths: PathCosts,
    /// Paths executed since the last timestamp.
    ran: Vec<u32>,
    /// The state before the paths in `ran`; `None` while runs are folded one by one.
    state: Option<u32>,
    nodes: ContextNodes,
}

/// Maps contexts to nodes of a tree.
#[derive(Clone, Debug, Default)]
struct ContextNodes {
    /// The root of all contexts.
    root: NodeId,
    nodes: Vec<NodeId>,
}

impl ContextNodes {
    /// Returns the node of a context.
    fn of(&mut self, context: ContextId, states: &PathStates, tree: &mut Forest) -> NodeId {
        let index = context as usize;
        if self.nodes.len() <= index {
            self.nodes.resize(states.contexts(), NOWHERE);
        }
        if self.nodes[index] == NOWHERE {
            let StackFrame { function, entry, note: below, .. } = *states.frame(context);
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

impl TreePaths {
    /// Returns whether the root of contexts differs from `root`.
    pub(super) fn has_other_root(&self, root: NodeId) -> bool {
        self.nodes.root != root
    }

    /// Sets the root of contexts.
    pub(super) fn set_root(&mut self, root: NodeId) {
        self.nodes.root = root;
        self.nodes.nodes.clear();
    }

    /// Returns the number of the state of a stack and the edge after it; `None` if the stack has too many frames.
    pub(super) fn enter(&mut self, stack: &[StackFrame<NodeId>], edge: FlowEdge) -> Option<u32> {
        self.state = self.memoized_paths.states.enter(stack.iter().copied(), edge);
        self.state
    }

    /// Memoizes the effect of runs in a state: returns the number of the path, and the state after it; `None` if they
    /// reach below the root.
    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.memoized_paths.learn(state, runs)
    }

    /// Memoizes the path that consists of two memoized ones in a row.
    pub(super) fn join(&mut self, first: u32, second: u32) -> u32 {
        self.memoized_paths.join(first, second)
    }

    /// Records an execution of a path.
    #[inline]
    pub(super) fn ran(&mut self, path: u32) {
        self.ran.push(path);
    }

    /// Returns whether a path was executed since the last timestamp.
    pub(super) fn any_ran(&self) -> bool {
        !self.ran.is_empty()
    }

    /// Returns the instructions of the paths executed since the last timestamp.
    pub(super) fn instructions(&self) -> u64 {
        self.ran.iter().map(|&path| self.memoized_paths.instructions(path)).sum()
    }

    /// Counts the paths executed since the last timestamp; each of their instructions took `even.each`.
    pub(super) fn count(&mut self, even: Even) {
        let Some(&last) = self.ran.last() else { return };
        self.state = self.state.map(|_| self.memoized_paths.state_after(last));
        for path in self.ran.drain(..) {
            self.memoized_paths.count(path, even.each);
        }
    }

    /// Returns the current node, if paths led to it.
    pub(super) fn node(&mut self, tree: &mut Forest) -> Option<NodeId> {
        let state = self.ran.last().map_or(self.state?, |&path| self.memoized_paths.state_after(path));
        let states = &self.memoized_paths.states;
        Some(self.nodes.of(states.context(state), states, tree))
    }

    /// Stops executing paths in a state. Returns the stack of the state, and the edge after it.
    pub(super) fn leave(&mut self, state: u32, tree: &mut Forest) -> (KnownFrames<NodeId>, FlowEdge) {
        self.state = None;
        let states = &self.memoized_paths.states;
        let (mut stack, edge) = states.stack(state);
        stack.iter_mut().for_each(|frame| frame.note = self.nodes.of(frame.note, states, tree));
        (stack, edge)
    }

    /// Adds the costs of all paths to the tree. The clock distributes the time since the last timestamp over the paths
    /// executed since then.
    pub(super) fn expand(
        &mut self,
        tree: &mut Forest,
        sums: &mut ThreadTotals,
        clock: &mut SegmentClock<NodeId>,
    ) {
        let TreePaths { memoized_paths, ran, nodes, .. } = self;
        for &path in &*ran {
            for &PathCost { context, instructions, .. } in memoized_paths.costs(path) {
                clock.ran(nodes.of(context, &memoized_paths.states, tree), u64::from(instructions));
            }
        }
        self.count(Even::default());
        let TreePaths { memoized_paths, nodes, .. } = self;
        sums.calls += memoized_paths.take(|states, sum| {
            let node = nodes.of(sum.context, states, tree);
            let ran = tree.ran(node);
            ran.entries += sum.entries;
            ran.instructions += sum.instructions;
            ran.time = ran.time.saturating_add(sum.time);
        });
    }
}
