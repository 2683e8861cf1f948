//! Paths that run again and again, and what they add to a profile.
//!
//! What a path does to the stack, and whose instructions it counts, depends on the stack and on how execution
//! arrives: a *state*. So each path is learned for a state, runs by its number from then on, and is expanded into
//! nodes of the tree once, when the tree is asked for.

use hodo_trace::{Run, Transfer};

use super::{
    partial::Sums,
    tree::{NodeId, Tree},
};
use crate::{
    clock::{Clock, Even, Time},
    contexts::{BELOW, ContextId, Notes, States},
    stack::{Edge, Frame},
};

/// A node that is not known yet.
const NOWHERE: NodeId = NodeId::MAX;

/// What a path adds in one context.
#[derive(Clone, Copy, Debug)]
struct Part {
    context: ContextId,
    entries: u32,
    instructions: u32,
}

/// A path, and how often it ran.
#[derive(Clone, Debug)]
struct Path {
    count: u64,
    /// The sum of the time that each instruction took, of all times that it ran.
    each: Time,
    instructions: u32,
    calls: u32,
    /// The state behind it.
    to: u32,
    /// Where its parts end; they begin where those of the path before end.
    parts_end: u32,
}

/// What a thread remembers of paths while it folds one chunk after the other.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    states: States,
    paths: Vec<Path>,
    parts: Vec<Part>,
    /// Paths that ran since the clock was told last.
    ran: Vec<u32>,
    /// Paths that were counted since they were expanded.
    counted: Vec<u32>,
    /// The state before those in `ran`; `None` where what comes next is folded.
    state: Option<u32>,
    /// The root that all contexts grow on, and the nodes that they are there.
    root: NodeId,
    nodes: Vec<NodeId>,
}

/// Gathers what a path adds.
struct Gatherer<'p> {
    parts: &'p mut Vec<Part>,
    /// Where the path's parts begin.
    start: usize,
    instructions: u32,
    calls: u32,
}

impl Gatherer<'_> {
    fn part(&mut self, context: ContextId) -> &mut Part {
        let found = self.parts[self.start..].iter().rposition(|part| part.context == context);
        let index = found.map_or(self.parts.len(), |index| self.start + index);
        if found.is_none() {
            self.parts.push(Part { context, entries: 0, instructions: 0 });
        }
        &mut self.parts[index]
    }
}

impl Notes for Gatherer<'_> {
    fn enter(&mut self, context: ContextId, _: &Frame<ContextId>) {
        self.part(context).entries += 1;
    }

    fn leave(&mut self) {}

    fn ran(&mut self, context: ContextId, run: &Run) {
        let instructions = run.instructions as u32;
        self.part(context).instructions += instructions;
        self.instructions += instructions;
        self.calls += u32::from(run.transfer == Transfer::Call);
    }
}

impl Paths {
    /// Whether contexts grow on another root than this.
    pub(super) fn grow_elsewhere(&self, root: NodeId) -> bool {
        self.root != root
    }

    /// From now on contexts grow on this root.
    pub(super) fn grow_on(&mut self, root: NodeId) {
        self.root = root;
        self.nodes.clear();
    }

    /// The number of the state after an edge from a stack; `None` where it has too many frames.
    pub(super) fn enter(&mut self, stack: &[Frame<NodeId>], edge: Edge) -> Option<u32> {
        self.state = self.states.enter(stack, edge);
        self.state
    }

    /// Learns what runs do in a state; `None` where they reach below the root.
    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        let start = self.parts.len();
        let mut gatherer = Gatherer { parts: &mut self.parts, start, instructions: 0, calls: 0 };
        let found = self.states.follow(state, runs, &mut gatherer);
        let Gatherer { instructions, calls, .. } = gatherer;
        let Some(to) = found else {
            self.parts.truncate(start);
            return None;
        };
        let parts_end = self.parts.len() as u32;
        self.paths.push(Path { count: 0, each: Time::default(), instructions, calls, to, parts_end });
        Some((self.paths.len() as u32 - 1, to))
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
        self.ran.iter().map(|&path| u64::from(self.paths[path as usize].instructions)).sum()
    }

    /// Counts those that did; each of their instructions took so long.
    pub(super) fn count(&mut self, even: Even) {
        let Some(&last) = self.ran.last() else { return };
        self.state = self.state.map(|_| self.paths[last as usize].to);
        for &id in &self.ran {
            let path = &mut self.paths[id as usize];
            if path.count == 0 {
                self.counted.push(id);
            }
            path.count += 1;
            path.each = path.each.and(even.each);
        }
        self.ran.clear();
    }

    /// The node that runs, where paths led to it.
    pub(super) fn node(&mut self, tree: &mut Tree) -> Option<NodeId> {
        let state = self.ran.last().map_or(self.state?, |&path| self.paths[path as usize].to);
        Some(self.place(self.states.context(state), tree))
    }

    /// Leaves paths in a state: the stack there, and the edge after it.
    pub(super) fn leave(&mut self, state: u32, tree: &mut Tree) -> (Vec<Frame<NodeId>>, Edge) {
        self.state = None;
        let (mut stack, edge) = self.states.stack(state);
        stack.iter_mut().for_each(|frame| frame.note = self.place(frame.note, tree));
        (stack, edge)
    }

    /// The node that a context is.
    fn place(&mut self, context: ContextId, tree: &mut Tree) -> NodeId {
        let index = context as usize;
        if self.nodes.len() <= index {
            self.nodes.resize(self.states.contexts(), NOWHERE);
        }
        if self.nodes[index] == NOWHERE {
            let Frame { function, entry, note: below, .. } = *self.states.frame(context);
            self.nodes[index] = match below {
                BELOW => self.root,
                _ => {
                    let parent = self.place(below, tree);
                    tree.child(parent, function, entry)
                }
            };
        }
        self.nodes[index]
    }

    fn parts(&self, path: u32) -> std::ops::Range<usize> {
        let end = |path: u32| self.paths[path as usize].parts_end as usize;
        path.checked_sub(1).map_or(0, end)..end(path)
    }

    /// Expands all paths into the tree. The clock is to share time out over what ran since it was told last.
    pub(super) fn expand(&mut self, tree: &mut Tree, sums: &mut Sums, clock: &mut Clock<NodeId>) {
        for path in self.ran.clone() {
            for index in self.parts(path) {
                let Part { context, instructions, .. } = self.parts[index];
                clock.ran(self.place(context, tree), u64::from(instructions));
            }
        }
        self.count(Even::default());
        for path in std::mem::take(&mut self.counted) {
            let Path { count, each, calls, .. } = self.paths[path as usize];
            for index in self.parts(path) {
                let Part { context, entries, instructions } = self.parts[index];
                let node = self.place(context, tree);
                let ran = tree.ran(node);
                ran.entries += u64::from(entries) * count;
                ran.instructions += u64::from(instructions) * count;
                ran.time = ran.time.and(each.times(u64::from(instructions)));
            }
            sums.calls += u64::from(calls) * count;
            let path = &mut self.paths[path as usize];
            (path.count, path.each) = (0, Time::default());
        }
    }
}
