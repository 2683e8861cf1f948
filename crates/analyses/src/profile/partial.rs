//! What a chunk tells about the profile of a thread.
//!
//! A chunk begins with an unknown stack. As long as calls and returns stay above it, its frames grow
//! in a tree whose root stands for "the frame that ran at the start". Where a return, an unwinding or
//! a jump reaches below, what it found there is a new root: a *piece* begins, which remembers the edge
//! that led to it. Merging replays these edges on the stack of the chunk before and grafts each piece
//! onto the frame where its edge ends.

use hodo_clock::Nanos;
use hodo_trace::{Arrival, Seen};
use serde::{Deserialize, Serialize};

use super::tree::{NO_PARENT, NodeId, Tree};
use crate::stack::{Below, Edge, Entry, Frame, arrive};

/// The trees that grow on one unknown frame.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Piece {
    /// How execution arrived at that frame.
    edge: Edge,
    arrival: Arrival,
}

/// The profile of a part of a thread's execution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    tree: Tree,
    /// One for each root of the tree, in order.
    pieces: Vec<Piece>,
    /// The known frames at the end, above the root of the last piece; empty before the first run.
    stack: Vec<Frame<NodeId>>,
    /// The edge after the last run.
    edge: Edge,
    /// Whether a segment began.
    began: bool,
    /// The clock at the last time that was seen.
    clock: Option<Nanos>,
    /// Instructions since then, by node in order of execution.
    untimed: Vec<(NodeId, u64)>,
    /// Nanoseconds outside of what is traced before anything ran.
    outside_before: u64,
    lost: Lost,
}

/// What belongs to no function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lost {
    /// Nanoseconds in gaps.
    pub(super) time: u64,
    /// Number of gaps.
    pub(super) gaps: u64,
}

impl Partial {
    pub(super) fn unknown() -> Partial {
        Partial {
            tree: Tree::default(),
            pieces: Vec::new(),
            stack: Vec::new(),
            edge: Edge::Unknown,
            began: false,
            clock: None,
            untimed: Vec::new(),
            outside_before: 0,
            lost: Lost::default(),
        }
    }

    #[inline]
    pub(super) fn fold(&mut self, seen: Seen) {
        match seen {
            Seen::Run { at, instructions } => self.run(&at, instructions),
            Seen::Begin(clock) => self.begin(clock),
            Seen::Time(clock) => self.time(clock),
            Seen::Gap => self.gap(),
            seen => self.edge = self.edge.then(Edge::of(&seen)),
        }
    }

    #[inline]
    fn run(&mut self, at: &Arrival, instructions: u64) {
        let edge = std::mem::replace(&mut self.edge, Edge::Flow);
        let node = match self.stack.last() {
            Some(frame) if edge == Edge::Flow && frame.function == at.function => frame.note,
            _ => self.arrive(edge, at, Below::Unknown),
        };
        self.tree.cost(node).instructions += instructions;
        match self.untimed.last_mut() {
            Some((last, count)) if *last == node => *count += instructions,
            // Without a clock nobody would ever share time out.
            _ if self.clock.is_some() => self.untimed.push((node, instructions)),
            _ => {}
        }
    }

    /// The node that runs after an edge.
    fn arrive(&mut self, edge: Edge, arrival: &Arrival, below: Below) -> NodeId {
        let arrived = match self.stack.is_empty() {
            true => Err(edge),
            false => arrive(&mut self.stack, &mut self.tree, below, edge, arrival),
        };
        if let Err(edge) = arrived {
            let note = self.tree.root(arrival.function);
            self.pieces.push(Piece { edge, arrival: *arrival });
            let function = arrival.function;
            self.stack.push(Frame { function, entry: Entry::Root, return_address: None, note });
        }
        self.stack[self.stack.len() - 1].note
    }

    fn begin(&mut self, clock: Option<Nanos>) {
        self.began = true;
        self.clock = clock;
        self.untimed.clear();
    }

    /// Shares the time since the last one out over the instructions that ran in it.
    fn time(&mut self, clock: Nanos) {
        let elapsed = self.clock.map_or(0, |before| clock.0.saturating_sub(before.0));
        self.clock = Some(clock);
        let total: u128 = self.untimed.iter().map(|&(_, count)| u128::from(count)).sum();
        if total == 0 {
            match self.stack.last() {
                _ if self.edge == Edge::Gap => self.lost.time += elapsed,
                Some(frame) => self.tree.cost(frame.note).outside += elapsed,
                None => self.outside_before += elapsed,
            }
        }
        let (mut ran, mut given) = (0, 0);
        for (node, count) in self.untimed.drain(..) {
            ran += u128::from(count);
            let until = (u128::from(elapsed) * ran / total) as u64;
            self.tree.cost(node).time += until - given;
            given = until;
        }
    }

    /// What ran since the last time is known, but not for how long.
    fn gap(&mut self) {
        self.untimed.clear();
        self.lost.gaps += 1;
        self.edge = Edge::Gap;
    }

    /// Joins two neighbouring parts.
    pub(super) fn merge(mut self, later: Partial) -> Partial {
        self.append(&later, Below::Unknown);
        self
    }

    /// The whole thread as one tree: nothing came before it.
    pub(super) fn close(self) -> (Tree, Lost) {
        let mut whole = Partial::unknown();
        whole.append(&self, Below::Nothing);
        (whole.tree, whole.lost)
    }

    fn append(&mut self, later: &Partial, below: Below) {
        match self.stack.last().filter(|_| self.edge != Edge::Gap) {
            Some(frame) => self.tree.cost(frame.note).outside += later.outside_before,
            None if self.edge == Edge::Gap => self.lost.time += later.outside_before,
            None => self.outside_before += later.outside_before,
        }
        let places = self.graft(later, below);
        if let Some(above_root) = later.stack.get(1..) {
            let placed = |frame: &Frame<NodeId>| Frame { note: places[frame.note as usize], ..*frame };
            self.stack.extend(above_root.iter().map(placed));
        }
        if later.began {
            self.began = true;
            self.clock = later.clock;
            self.untimed =
                later.untimed.iter().map(|&(node, count)| (places[node as usize], count)).collect();
        }
        self.edge = self.edge.then(later.edge);
        self.lost.time += later.lost.time;
        self.lost.gaps += later.lost.gaps;
    }

    /// Adds the trees of `later`, each where its edge ends; which node each of its nodes became.
    fn graft(&mut self, later: &Partial, below: Below) -> Vec<NodeId> {
        let mut places: Vec<NodeId> = Vec::with_capacity(later.tree.nodes().len());
        let mut pieces = later.pieces.iter();
        for node in later.tree.nodes() {
            let place = if node.parent == NO_PARENT {
                let piece = pieces.next().expect("each root begins a piece");
                let edge = self.edge.then(piece.edge);
                self.edge = Edge::Flow;
                self.arrive(edge, &piece.arrival, below)
            } else {
                self.tree.child(places[node.parent as usize], node.function, node.entry)
            };
            self.tree.cost(place).add(&node.cost);
            places.push(place);
        }
        places
    }
}
