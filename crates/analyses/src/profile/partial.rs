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

use super::tree::{Cost, NO_PARENT, NodeId, Tree};
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
    /// The thread is outside of what is traced.
    left: bool,
    /// Flow was missing since time was shared out last.
    after_gap: bool,
    /// The clock in this segment, and at the last time that was shared out.
    now: Option<Nanos>,
    shared_until: Option<Nanos>,
    /// Instructions since then, by node in order of execution.
    untimed: Vec<(NodeId, u64)>,
    /// What belongs to the frame that ran at the start, before anything ran.
    before: Cost,
    sums: Sums,
}

/// What is told of the thread as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sums {
    /// Nanoseconds in gaps.
    pub(super) lost_time: u64,
    /// Number of gaps.
    pub(super) gaps: u64,
    /// Near calls, those of functions that are not traced included.
    pub(super) calls: u64,
}

impl Sums {
    fn lose(&mut self, nanoseconds: u64) {
        self.lost_time = self.lost_time.saturating_add(nanoseconds);
    }
}

impl Partial {
    pub(super) fn unknown() -> Partial {
        Partial {
            tree: Tree::default(),
            pieces: Vec::new(),
            stack: Vec::new(),
            edge: Edge::Unknown,
            left: false,
            after_gap: false,
            now: None,
            shared_until: None,
            untimed: Vec::new(),
            before: Cost::default(),
            sums: Sums::default(),
        }
    }

    #[inline]
    pub(super) fn fold(&mut self, seen: Seen) {
        match seen {
            Seen::Run { at, instructions } => self.run(&at, instructions),
            Seen::Begin(clock) => (self.now, self.shared_until) = (clock, clock),
            Seen::Time(clock) => self.time(clock),
            Seen::End => self.end(),
            Seen::Gap => self.gap(),
            seen => {
                self.left = matches!(seen, Seen::Leave);
                self.sums.calls += u64::from(matches!(seen, Seen::Call { .. }));
                self.edge = self.edge.then(Edge::of(&seen));
            }
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
            _ if self.now.is_some() => self.untimed.push((node, instructions)),
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

    /// The clock stands at `now`. Where nothing ran since it was shared out last, although tracing is
    /// on, what ran is still to come: branches wait in the processor until their packet is full.
    fn time(&mut self, now: Nanos) {
        self.now = Some(now);
        if self.left || self.after_gap || !self.untimed.is_empty() {
            self.share();
        }
    }

    /// Shares the time since the last one out over the instructions that ran in it.
    fn share(&mut self) {
        let elapsed = self.shared_until.zip(self.now).map_or(0, |(since, now)| now.0.saturating_sub(since.0));
        self.shared_until = self.now;
        if std::mem::take(&mut self.after_gap) {
            // How much of it passed in the gap nobody knows.
            self.untimed.clear();
            self.sums.lose(elapsed);
            return;
        }
        if self.untimed.is_empty() {
            match self.stack.last() {
                _ if self.edge == Edge::Gap => self.sums.lose(elapsed),
                Some(frame) => self.tree.cost(frame.note).wait(elapsed, self.left),
                None => self.before.wait(elapsed, self.left),
            }
        }
        let total: u128 = self.untimed.iter().map(|&(_, count)| u128::from(count)).sum();
        let (mut ran, mut given) = (0, 0);
        for (node, count) in self.untimed.drain(..) {
            ran += u128::from(count);
            let until = (u128::from(elapsed) * ran / total) as u64;
            self.tree.cost(node).wait(until - given, false);
            given = until;
        }
    }

    /// No clock of this segment says how long the last instructions ran.
    fn end(&mut self) {
        self.untimed.clear();
        self.share();
        (self.now, self.shared_until, self.left) = (None, None, false);
    }

    /// What ran since the last time is known, but not for how long.
    fn gap(&mut self) {
        self.after_gap = true;
        self.left = false;
        self.sums.gaps += 1;
        self.edge = Edge::Gap;
    }

    /// Joins two neighbouring parts.
    pub(super) fn merge(mut self, later: Partial) -> Partial {
        self.append(&later, Below::Unknown);
        self
    }

    /// The whole thread as one tree: nothing came before it.
    pub(super) fn close(self) -> (Tree, Sums) {
        let mut whole = Partial::unknown();
        whole.append(&self, Below::Nothing);
        (whole.tree, whole.sums)
    }

    fn append(&mut self, later: &Partial, below: Below) {
        match self.stack.last() {
            _ if self.edge == Edge::Gap => {
                self.sums.lose(later.before.time);
                self.sums.lose(later.before.outside);
            }
            Some(frame) => self.tree.cost(frame.note).add(&later.before),
            None => self.before.add(&later.before),
        }
        let places = self.graft(later, below);
        if let Some(above_root) = later.stack.get(1..) {
            let placed = |frame: &Frame<NodeId>| Frame { note: places[frame.note as usize], ..*frame };
            self.stack.extend(above_root.iter().map(placed));
        }
        self.edge = self.edge.then(later.edge);
        self.sums.lose(later.sums.lost_time);
        self.sums.gaps += later.sums.gaps;
        self.sums.calls += later.sums.calls;
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
