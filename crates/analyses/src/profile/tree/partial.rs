//! The profile of a thread in a chunk.
//!
//! A chunk begins with an unknown stack. While calls and returns stay above it, its frames grow in a tree whose root
//! represents the frame that was active at the start. If a return, an unwinding or a jump reaches below, the frame it
//! finds becomes a new root: a *piece* begins, which stores the edge that led to it. Merging replays these edges on the
//! stack of the previous chunk and grafts each piece onto the frame where its edge ends.

use hodo_model::{Arrival, FlowEvent, Run, Transfer};
use serde::{Deserialize, Serialize};

use super::{
    nodes::{Forest, NO_PARENT, NodeId},
    paths::TreePaths,
};
use crate::{
    clock::{Even, SegmentClock, TimeShare},
    profile::{
        Every,
        cost::{ProfileCost, ThreadTotals},
    },
    stack::{self, ArrivedAt, Below, FlowEdge, FrameEntry, KnownFrames, StackFrame, arrive},
};

/// The trees that grow on one unknown frame.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct ArrivalAtRoot {
    /// The edge over which execution arrived at that frame.
    edge: FlowEdge,
    arrival: Arrival,
}

/// The profile of some chunks of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TreePartial {
    tree: Forest,
    /// One piece for each root of the tree, in order.
    pieces: Vec<ArrivalAtRoot>,
    /// The known frames at the end, above the root of the last piece; empty before the first run.
    stack: KnownFrames<NodeId>,
    /// The edge after the last run.
    edge: FlowEdge,
    #[serde(skip)]
    clock: SegmentClock<NodeId>,
    /// The number of the next instruction; maintained if samples need it.
    number: u64,
    /// Costs of the frame that was active at the start, before the first run.
    before: ProfileCost,
    sums: ThreadTotals,
    /// The memoized paths and their executions.
    #[serde(skip)]
    paths: TreePaths,
}

impl TreePartial {
    pub(super) fn unknown() -> TreePartial {
        TreePartial {
            tree: Forest::default(),
            pieces: Vec::new(),
            stack: KnownFrames::default(),
            edge: FlowEdge::Unknown,
            clock: SegmentClock::default(),
            number: 0,
            before: ProfileCost::default(),
            sums: ThreadTotals::default(),
            paths: TreePaths::default(),
        }
    }

    #[inline]
    pub(super) fn fold(&mut self, every: Option<Every>, event: FlowEvent<'_>) {
        match event {
            FlowEvent::Run { at, instructions, .. } => self.run(every, &at, instructions),
            FlowEvent::Begin(clock) => self.clock.begin(clock.map(|clock| clock.0)),
            FlowEvent::Time(clock) => {
                if self.clock.read(clock.0) || self.paths.any_ran() {
                    self.share(every);
                }
            }
            FlowEvent::End => {
                self.clock.last_of_segment();
                self.paths.count(Even::default());
                self.share(every);
                self.clock.end();
            }
            FlowEvent::Gap => {
                self.clock.gap();
                self.sums.gaps += 1;
                self.edge = FlowEdge::Gap;
            }
            FlowEvent::Number(number) => self.number = number,
            FlowEvent::Cycles(_) | FlowEvent::Interrupts(_) => {}
            FlowEvent::Skip { instructions } => {
                self.clock.ran(NO_PARENT, instructions);
                self.number += instructions;
                self.edge = FlowEdge::Gap;
            }
            event => {
                self.clock.left = matches!(event, FlowEvent::Leave { .. });
                self.sums.calls += u64::from(matches!(event, FlowEvent::Call { .. }));
                self.edge = self.edge.then(FlowEdge::of(&event));
            }
        }
    }

    /// Folds a run whose transfer is executed.
    #[inline]
    pub(super) fn fold_run(&mut self, every: Option<Every>, run: &Run) {
        self.run(every, &run.at, run.instructions);
        if run.transfer != Transfer::None {
            self.edge = FlowEdge::after(run);
            self.clock.left = false;
            self.sums.calls += u64::from(run.transfer == Transfer::Call);
        }
    }

    #[inline]
    fn run(&mut self, every: Option<Every>, at: &Arrival, instructions: u64) {
        let edge = std::mem::replace(&mut self.edge, FlowEdge::Flow);
        let node = match self.stack.last() {
            Some(frame) if edge == FlowEdge::Flow && frame.function == at.function => frame.note,
            _ => self.arrive(edge, at, Below::Unknown),
        };
        self.tree.ran(node).instructions += instructions;
        if let Some(Every::Instructions(period)) = every {
            let next = self.number + instructions;
            self.tree.rare(node).samples += next / period - self.number / period;
            self.number = next;
        }
        self.clock.ran(node, instructions);
    }

    /// Returns the node that execution reaches over an edge.
    fn arrive(&mut self, edge: FlowEdge, arrival: &Arrival, below: Below) -> NodeId {
        let arrived = match self.stack.is_empty() {
            true => Err(edge),
            false => arrive(&mut self.stack, &mut self.tree, below, edge, &ArrivedAt::of(arrival)),
        };
        if let Err(edge) = arrived {
            let note = self.tree.root(arrival.function, FrameEntry::Root);
            self.pieces.push(ArrivalAtRoot { edge, arrival: *arrival });
            let function = arrival.function;
            self.stack.push(StackFrame::root(function, note));
        }
        self.stack[self.stack.len() - 1].note
    }

    /// Distributes the time since the last timestamp over the instructions executed since then.
    #[inline]
    fn share(&mut self, every: Option<Every>) {
        let TreePartial { clock, tree, sums, stack, edge, before, paths, .. } = self;
        let here = paths.node(tree).or(stack.last().map(|frame| frame.note));
        let even = clock.share(paths.instructions(), |share| match (share, here) {
            (TimeShare::Ran { owner: NO_PARENT, .. }, _) => {}
            (TimeShare::Ran { owner: node, time, piece, .. }, _) => {
                let ran = tree.ran(node);
                ran.time = ran.time.saturating_add(time);
                if every.is_some() {
                    tree.rare(node).sample(piece.span(), every);
                }
            }
            (TimeShare::Lost(time), _) => sums.add_lost_time(time.length()),
            (TimeShare::Waited(time) | TimeShare::Outside(time), _) if edge.is_gap() => {
                sums.add_lost_time(time.length());
            }
            (TimeShare::Outside(time), Some(here)) => tree.change(here, |cost| cost.wait_for(time)),
            (TimeShare::Outside(time), None) => before.wait_for(time),
            (TimeShare::Waited(time), Some(here)) => tree.change(here, |cost| cost.run_for(time, every)),
            (TimeShare::Waited(time), None) => before.run_for(time, every),
        });
        if let Some(here) = here.filter(|_| paths.any_ran()) {
            let ran = tree.ran(here);
            ran.time = ran.time.saturating_add(even.rest);
        }
        paths.count(even);
    }

    /// Returns the state from which paths continue; `None` if the next run may reach below the known frames.
    pub(super) fn state(&mut self) -> Option<u32> {
        let root = self.stack.first()?.note;
        if self.clock.left || self.edge.is_gap() {
            return None;
        }
        if self.paths.has_other_root(root) {
            self.expand();
            self.paths.set_root(root);
        }
        self.paths.enter(&self.stack, self.edge)
    }

    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.paths.learn(state, runs)
    }

    pub(super) fn join(&mut self, first: u32, second: u32) -> u32 {
        self.paths.join(first, second)
    }

    /// Folds an execution of a path.
    #[inline]
    pub(super) fn fold_path(&mut self, path: u32) {
        self.paths.ran(path);
    }

    /// Continues after paths that led to this state.
    pub(super) fn resume(&mut self, state: u32) {
        (self.stack, self.edge) = self.paths.leave(state, &mut self.tree);
        if !self.clock.runs() {
            self.paths.count(Even::default());
        }
    }

    /// Adds the costs of paths to the tree.
    fn expand(&mut self) {
        self.paths.expand(&mut self.tree, &mut self.sums, &mut self.clock);
    }

    /// Exchanges the memoized paths.
    pub(super) fn exchange(&mut self, memory: &mut TreePaths) {
        self.expand();
        // Node ids are specific to a tree, so the root of contexts is reset.
        self.paths.set_root(NO_PARENT);
        std::mem::swap(&mut self.paths, memory);
    }

    /// Merges the next partial.
    pub(super) fn merge(mut self, later: TreePartial) -> TreePartial {
        self.append(&later, Below::Unknown);
        self
    }

    /// See [`hodo_model::Analysis::is_sound`].
    pub(super) fn is_sound(&self) -> bool {
        let TreePartial { tree, pieces, stack, .. } = self;
        tree.is_sound(pieces.len())
            && stack.iter().all(|frame| (frame.note as usize) < tree.len())
            && stack::is_sound(stack)
    }

    /// Returns the whole thread as one tree, with nothing before it. A root that an interrupt or a system call entered is
    /// marked as such, and its executions are counted.
    pub(super) fn close(self) -> (Forest, ThreadTotals) {
        let mut whole = TreePartial::unknown();
        whole.append(&self, Below::Nothing);
        (whole.tree, whole.sums)
    }

    fn append(&mut self, later: &TreePartial, below: Below) {
        match self.stack.last() {
            _ if self.edge.is_gap() => {
                self.sums.add_lost_time(later.before.elapsed().nanoseconds());
            }
            Some(frame) => self.tree.change(frame.note, |cost| cost.add(&later.before)),
            None => self.before.add(&later.before),
        }
        let nodes = self.graft(later, below);
        for frame in later.stack.iter().skip(1) {
            self.stack.push(StackFrame { note: nodes[frame.note as usize], ..*frame });
        }
        self.edge = self.edge.then(later.edge);
        self.sums.add(&later.sums);
    }

    /// Adds each tree of `later` at the frame where its edge ends. Returns the new node of each of its nodes.
    fn graft(&mut self, later: &TreePartial, below: Below) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = Vec::with_capacity(later.tree.len());
        let mut pieces = later.pieces.iter();
        for (id, node) in later.tree.iter() {
            let merged = if node.parent == NO_PARENT {
                let piece = pieces.next().expect("each root begins a piece");
                let edge = self.edge.then(piece.edge);
                self.edge = FlowEdge::Flow;
                let roots = self.pieces.len();
                let merged = self.arrive(edge, &piece.arrival, below);
                if below == Below::Nothing && self.pieces.len() > roots && edge.begins_interrupt() {
                    self.tree.entered_by_interrupt(merged);
                }
                merged
            } else {
                self.tree.child(nodes[node.parent as usize], node.function, node.entry)
            };
            let cost = later.tree.cost(id);
            self.tree.change(merged, |cost_there| cost_there.add(&cost));
            nodes.push(merged);
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use hodo_model::{AnyAnalysis, AnyPartial, FunctionId, Place};

    use super::*;
    use crate::profile::{Profile, ProfileReport, cost::RareCosts};

    /// Returns the partial of a function that called a second one, which tail-calls a third.
    fn partial() -> TreePartial {
        let mut partial = TreePartial::unknown();
        let run = |index, transfer| {
            let at = Arrival { address: 0, function: FunctionId { module: 1, index }, place: Place::Entry };
            Run { at, instructions: 1, transfer, end: 1 }
        };
        partial.fold_run(None, &run(0, Transfer::Call));
        partial.fold_run(None, &run(1, Transfer::IndirectJump));
        partial.fold_run(None, &run(2, Transfer::None));
        partial
    }

    fn survives_a_part_file(partial: TreePartial) -> bool {
        let analysis: &dyn AnyAnalysis = &Profile { every: None, report: ProfileReport::Tree };
        let partial: AnyPartial = Box::new(partial);
        analysis.unpack(&analysis.pack(&partial)).is_some()
    }

    #[test]
    fn a_partial_with_wrong_indices_is_not_sound() {
        assert!(survives_a_part_file(partial()));
        let changes: [fn(&mut TreePartial); 7] = [
            |partial| partial.pieces.clear(),
            |partial| partial.pieces.push(partial.pieces[0]),
            |partial| partial.tree = Forest::default(),
            |partial| partial.stack[2].note = 3,
            // Two consecutive frames that were entered by jumps.
            |partial| partial.stack[1].entry = FrameEntry::Tail,
            |partial| partial.tree.parents().for_each(|parent| *parent = 2),
            |partial| *partial.tree.rare(3) = RareCosts::default(),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut partial = partial();
            change(&mut partial);
            assert!(!survives_a_part_file(partial), "{index}");
        }
    }
}
