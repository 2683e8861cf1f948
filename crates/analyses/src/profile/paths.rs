//! Paths that run again and again, and what they add to a profile.
//!
//! What a path does to the stack, and whose instructions it counts, depends on the stack and on how execution
//! arrives: a *state*. So each path is learned for a state, runs by its number from then on, and is expanded into
//! nodes of the tree once, when the tree is asked for.

use hodo_trace::{Arrival, FunctionId, Place, Run, Transfer};
use rustc_hash::FxHashMap;

use super::{
    partial::Sums,
    tree::{NodeId, Tree},
};
use crate::{
    clock::{Clock, Even, Time},
    stack::{Below, Edge, Entry, Frame, Watch, arrive},
};

/// A stack of known frames: its newest one, which knows the one below it.
type ContextId = u32;

/// The context below the oldest known frame.
const BELOW: ContextId = ContextId::MAX;

/// A node that is not known yet.
const NOWHERE: NodeId = NodeId::MAX;

/// Stacks of more frames are not remembered.
const DEEPEST: usize = 1 << 9;

/// Contexts, each once.
#[derive(Clone, Debug, Default)]
struct Contexts {
    /// What each frame notes is the context below it.
    frames: Vec<Frame<ContextId>>,
    /// Frames below each.
    depths: Vec<u32>,
    known: FxHashMap<(ContextId, FunctionId, Entry, Option<u64>), ContextId>,
}

impl Contexts {
    fn enter(&mut self, note: ContextId, function: FunctionId, entry: Entry, back: Option<u64>) -> ContextId {
        let next = self.frames.len() as ContextId;
        let context = *self.known.entry((note, function, entry, back)).or_insert(next);
        if context == next {
            self.frames.push(Frame { function, entry, return_address: back, note });
            self.depths.push(if note == BELOW { 0 } else { self.depths[note as usize] + 1 });
        }
        context
    }

    /// The context after an edge, for the ways of arriving that are nearly all of them; and whether it is entered.
    fn arrive(&mut self, top: ContextId, edge: Edge, at: &Arrival) -> Option<(ContextId, bool)> {
        let frame = self.frames[top as usize];
        match edge {
            Edge::Flow | Edge::Indirect if frame.function == at.function => Some((top, false)),
            Edge::Call { return_address } => {
                Some((self.enter(top, at.function, Entry::Call, Some(return_address)), true))
            }
            Edge::Return if at.place != Place::Entry => {
                let callee =
                    if frame.entry == Entry::Tail { self.frames[frame.note as usize] } else { frame };
                let returns = callee.entry == Entry::Call
                    && callee.return_address == Some(at.address)
                    && self.frames[callee.note as usize].function == at.function;
                returns.then_some((callee.note, false))
            }
            Edge::Indirect if at.place == Place::Entry && frame.entry == Entry::Call => {
                Some((self.enter(top, at.function, Entry::Tail, None), true))
            }
            _ => None,
        }
    }

    /// The frames of a stack, the oldest first. Each notes its own context.
    fn stack(&self, top: ContextId) -> Vec<Frame<ContextId>> {
        let below = |context: &ContextId| Some(self.frames[*context as usize].note).filter(|&id| id != BELOW);
        let contexts = std::iter::successors(Some(top), below);
        let mut stack: Vec<_> = contexts.map(|note| Frame { note, ..self.frames[note as usize] }).collect();
        stack.reverse();
        stack
    }
}

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
    contexts: Contexts,
    states: Vec<(ContextId, Edge)>,
    numbers: FxHashMap<(ContextId, Edge), u32>,
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
    contexts: &'p mut Contexts,
    parts: &'p mut Vec<Part>,
    /// Where the path's parts begin.
    start: usize,
}

impl Gatherer<'_> {
    /// Execution arrives over an edge; `None` where it reaches below the root.
    fn arrive(&mut self, top: ContextId, edge: Edge, at: &Arrival) -> Option<ContextId> {
        if let Some((context, entered)) = self.contexts.arrive(top, edge, at) {
            self.part(context).entries += u32::from(entered);
            return Some(context);
        }
        let mut stack = self.contexts.stack(top);
        arrive(&mut stack, self, Below::Unknown, edge, at).ok()?;
        stack.last().map(|frame| frame.note)
    }

    fn part(&mut self, context: ContextId) -> &mut Part {
        let found = self.parts[self.start..].iter().rposition(|part| part.context == context);
        let index = found.map_or(self.parts.len(), |index| self.start + index);
        if found.is_none() {
            self.parts.push(Part { context, entries: 0, instructions: 0 });
        }
        &mut self.parts[index]
    }
}

impl Watch<ContextId> for Gatherer<'_> {
    fn enter(
        &mut self,
        from: &Frame<ContextId>,
        function: FunctionId,
        entry: Entry,
        back: Option<u64>,
    ) -> ContextId {
        let context = self.contexts.enter(from.note, function, entry, back);
        self.part(context).entries += 1;
        context
    }

    fn leave(&mut self, _: Frame<ContextId>) {}
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
        if stack.len() > DEEPEST {
            return None;
        }
        let on = |below, frame: &Frame<NodeId>| {
            self.contexts.enter(below, frame.function, frame.entry, frame.return_address)
        };
        let top = stack.iter().fold(BELOW, on);
        self.state = Some(self.number(top, edge));
        self.state
    }

    fn number(&mut self, context: ContextId, edge: Edge) -> u32 {
        let next = self.states.len() as u32;
        let number = *self.numbers.entry((context, edge)).or_insert(next);
        if number == next {
            self.states.push((context, edge));
        }
        number
    }

    /// Learns what runs do in a state; `None` where they reach below the root.
    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        let start = self.parts.len();
        let found = self.gather(state, start, runs);
        if found.is_none() {
            self.parts.truncate(start);
        }
        let (context, edge, instructions, calls) = found?;
        let to = self.number(context, edge);
        let parts_end = self.parts.len() as u32;
        self.paths.push(Path { count: 0, each: Time::default(), instructions, calls, to, parts_end });
        Some((self.paths.len() as u32 - 1, to))
    }

    /// Adds the parts of a path: where it leads, how many instructions it has, and how many calls.
    fn gather(
        &mut self,
        state: u32,
        start: usize,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(ContextId, Edge, u32, u32)> {
        let (mut context, mut edge) = self.states[state as usize];
        let mut gatherer = Gatherer { contexts: &mut self.contexts, parts: &mut self.parts, start };
        let (mut instructions, mut calls) = (0, 0);
        for run in runs {
            context = gatherer.arrive(context, edge, &run.at)?;
            gatherer.part(context).instructions += run.instructions as u32;
            instructions += run.instructions as u32;
            calls += u32::from(run.transfer == Transfer::Call);
            edge = Edge::after(&run);
        }
        let known = self.contexts.depths[context as usize] < DEEPEST as u32;
        known.then_some((context, edge, instructions, calls))
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
        let (context, _) = self.states[state as usize];
        Some(self.place(context, tree))
    }

    /// Leaves paths in a state: the stack there, and the edge after it.
    pub(super) fn leave(&mut self, state: u32, tree: &mut Tree) -> (Vec<Frame<NodeId>>, Edge) {
        self.state = None;
        let (context, edge) = self.states[state as usize];
        let mut stack = self.contexts.stack(context);
        stack.iter_mut().for_each(|frame| frame.note = self.place(frame.note, tree));
        (stack, edge)
    }

    /// The node that a context is.
    fn place(&mut self, context: ContextId, tree: &mut Tree) -> NodeId {
        let index = context as usize;
        if self.nodes.len() <= index {
            self.nodes.resize(self.contexts.frames.len(), NOWHERE);
        }
        if self.nodes[index] == NOWHERE {
            let Frame { function, entry, note: below, .. } = self.contexts.frames[index];
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
                let cost = tree.cost(node);
                cost.entries += u64::from(entries) * count;
                cost.instructions += u64::from(instructions) * count;
                cost.time = cost.time.and(each.times(u64::from(instructions)));
            }
            sums.calls += u64::from(calls) * count;
            let path = &mut self.paths[path as usize];
            (path.count, path.each) = (0, Time::default());
        }
    }
}
