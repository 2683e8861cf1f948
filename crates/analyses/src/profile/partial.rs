//! What a chunk tells about the profile of a thread.
//!
//! A chunk begins with an unknown stack. As long as calls and returns stay above it, its frames grow
//! in a tree whose root stands for "the frame that ran at the start". Where a return, an unwinding or
//! a jump reaches below, what it found there is a new root: a *piece* begins, which remembers the edge
//! that led to it. Merging replays these edges on the stack of the chunk before and grafts each piece
//! onto the frame where its edge ends.

use hodo_trace::{Arrival, Place, Run, Seen, Transfer};
use serde::{Deserialize, Serialize};

use super::{
    Every,
    tree::{Cost, NO_PARENT, NodeId, Tree},
};
use crate::{
    clock::{Clock, Share},
    stack::{Below, Edge, Entry, Frame, Watch, arrive},
};

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
    clock: Clock<NodeId>,
    /// The number of the next instruction, where samples need it.
    number: u64,
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
            clock: Clock::default(),
            number: 0,
            before: Cost::default(),
            sums: Sums::default(),
        }
    }

    #[inline]
    pub(super) fn fold(&mut self, every: Option<Every>, seen: Seen<'_>) {
        match seen {
            Seen::Run { at, instructions, .. } => self.run(every, &at, instructions),
            Seen::Begin(clock) => self.clock.begin(clock.map(|clock| clock.0)),
            Seen::Time(clock) => {
                if self.clock.tell(clock.0) {
                    self.share(every);
                }
            }
            Seen::End => {
                self.clock.last_of_segment();
                self.share(every);
                self.clock.end();
            }
            Seen::Gap => {
                self.clock.gap();
                self.sums.gaps += 1;
                self.edge = Edge::Gap;
            }
            Seen::Number(number) => self.number = number,
            Seen::Cycles(_) => {}
            Seen::Skip { instructions } => {
                self.clock.ran(NO_PARENT, instructions);
                self.number += instructions;
                self.edge = Edge::Gap;
            }
            seen => {
                self.clock.left = matches!(seen, Seen::Leave { .. });
                self.sums.calls += u64::from(matches!(seen, Seen::Call { .. }));
                self.edge = self.edge.then(Edge::of(&seen));
            }
        }
    }

    /// Runs that follow each other.
    #[inline]
    pub(super) fn fold_path(&mut self, every: Option<Every>, runs: impl Iterator<Item = Run>) {
        let mut before = None;
        runs.for_each(|run| {
            // Spelled out, so that each way is compiled for itself.
            let node = match before {
                None => self.enter(self.edge, &run.at),
                Some((Transfer::None, _)) => self.enter(Edge::Flow, &run.at),
                Some((Transfer::Call, end)) => self.enter(Edge::Call { return_address: end }, &run.at),
                Some((Transfer::Return, _)) => self.enter(Edge::Return, &run.at),
                Some((Transfer::IndirectJump, _)) => self.enter(Edge::Indirect, &run.at),
            };
            self.count(every, node, run.instructions);
            self.sums.calls += u64::from(run.transfer == Transfer::Call);
            self.clock.left &= run.transfer == Transfer::None;
            before = Some((run.transfer, run.end));
        });
        self.edge = match before {
            None => return,
            Some((Transfer::None, _)) => Edge::Flow,
            Some((Transfer::Call, end)) => Edge::Call { return_address: end },
            Some((Transfer::Return, _)) => Edge::Return,
            Some((Transfer::IndirectJump, _)) => Edge::Indirect,
        };
    }

    #[inline]
    fn run(&mut self, every: Option<Every>, at: &Arrival, instructions: u64) {
        let edge = std::mem::replace(&mut self.edge, Edge::Flow);
        let node = self.enter(edge, at);
        self.count(every, node, instructions);
    }

    /// The node that runs after an edge.
    #[inline(always)]
    fn enter(&mut self, edge: Edge, at: &Arrival) -> NodeId {
        self.arrive_simply(edge, at).unwrap_or_else(|| self.arrive(edge, at, Below::Unknown))
    }

    /// Instructions of a node ran.
    #[inline]
    fn count(&mut self, every: Option<Every>, node: NodeId, instructions: u64) {
        let cost = self.tree.cost(node);
        cost.instructions += instructions;
        if let Some(Every::Instructions(period)) = every {
            let next = self.number + instructions;
            cost.samples += next / period - self.number / period;
            self.number = next;
        }
        self.clock.ran(node, instructions);
    }

    /// The node that runs after an edge, for the ways of arriving that are nearly all of them.
    #[inline(always)]
    fn arrive_simply(&mut self, edge: Edge, at: &Arrival) -> Option<NodeId> {
        let Partial { stack, tree, .. } = self;
        let top = stack.last()?;
        match edge {
            Edge::Flow | Edge::Indirect if top.function == at.function => Some(top.note),
            Edge::Call { return_address } => Some(push(stack, tree, at, Entry::Call, Some(return_address))),
            Edge::Return => {
                let left = match stack.as_slice() {
                    [.., caller, frame] if caller.gets_back(at, frame) => 1,
                    [.., caller, frame, Frame { entry: Entry::Tail, .. }] if caller.gets_back(at, frame) => 2,
                    _ => return None,
                };
                stack.truncate(stack.len() - left);
                stack.last().map(|frame| frame.note)
            }
            Edge::Indirect if at.place == Place::Entry && top.entry == Entry::Call => {
                Some(push(stack, tree, at, Entry::Tail, None))
            }
            _ => None,
        }
    }

    /// The same for all ways of arriving.
    #[inline(never)]
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

    /// Shares the time since the last one out over the instructions that ran in it.
    #[inline]
    fn share(&mut self, every: Option<Every>) {
        let Partial { clock, tree, sums, stack, edge, before, .. } = self;
        clock.share(|share| match (share, stack.last()) {
            (Share::Ran { who: NO_PARENT, .. }, _) => {}
            (Share::Ran { who: node, time, .. }, _) => tree.cost(node).run_for(time, every),
            (Share::Lost(time), _) => sums.lose(time.length()),
            (Share::Waited(time) | Share::Outside(time), _) if *edge == Edge::Gap => {
                sums.lose(time.length());
            }
            (share, frame) => {
                let cost = frame.map_or(&mut *before, |frame| tree.cost(frame.note));
                match share {
                    Share::Outside(time) => cost.wait_for(time),
                    Share::Waited(time) | Share::Ran { time, .. } | Share::Lost(time) => {
                        cost.run_for(time, every)
                    }
                }
            }
        });
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

/// A frame that is entered from the newest, which there is.
#[inline]
fn push(
    stack: &mut Vec<Frame<NodeId>>,
    tree: &mut Tree,
    at: &Arrival,
    entry: Entry,
    return_address: Option<u64>,
) -> NodeId {
    let function = at.function;
    let note = tree.enter(&stack[stack.len() - 1], function, entry);
    stack.push(Frame { function, entry, return_address, note });
    note
}
