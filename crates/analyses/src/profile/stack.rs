//! Call stacks of which only the top may be known.

use hodo_trace::{Arrival, FunctionId, Place};
use serde::{Deserialize, Serialize};

use super::tree::{Entry, NodeId, Tree};

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Frame {
    pub(super) node: NodeId,
    /// Where the frame returns to, for frames that a call made.
    pub(super) return_address: Option<u64>,
}

/// How execution came from one straight run to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Edge {
    /// Not known: the chunk begins here.
    Unknown,
    /// By running on, or a direct jump.
    Flow,
    /// By an indirect jump.
    Indirect,
    /// By a call.
    Call {
        /// The address after the call.
        return_address: u64,
    },
    /// By a return.
    Return,
    /// By a jump out of a frame that may itself have been jumped to.
    JumpBelow,
    /// By a return below the frames that were known.
    ReturnBelow,
    /// By a jump to a function that waits below the frames that were known.
    UnwindBelow,
    /// From outside of what is traced.
    Enter,
    /// Over a gap.
    Gap,
}

impl Edge {
    /// This edge, and then `next`.
    pub(super) fn then(self, next: Edge) -> Edge {
        match (self, next) {
            (before, Edge::Unknown) => before,
            // Coming back to traced code tells nothing of the frames that a gap took.
            (Edge::Gap, Edge::Enter) => Edge::Gap,
            (_, next) => next,
        }
    }
}

/// What to do next with the stack.
enum Step {
    Stay,
    Push(Entry, Option<u64>),
    Jump,
    ReturnTo(u64),
    UnwindTo,
    Forget,
}

/// What an arrival over an edge means, as far as the top of the stack tells.
fn step(edge: Edge, arrival: &Arrival, top: FunctionId, top_is_interrupt: bool) -> Step {
    let same = arrival.function == top;
    match edge {
        Edge::Unknown | Edge::Flow if same => Step::Stay,
        Edge::Unknown | Edge::Flow => Step::Jump,
        Edge::Indirect if same => Step::Stay,
        // longjmp and exceptions land in the middle of a function that waits on the stack.
        Edge::Indirect if arrival.place == Place::Middle => Step::UnwindTo,
        Edge::Indirect => Step::Jump,
        Edge::Call { return_address } => Step::Push(Entry::Call, Some(return_address)),
        // Nobody returns to a first instruction: it was pushed to be jumped to. And a handler returns to
        // a trampoline that nobody called from.
        Edge::Return if arrival.place == Place::Entry || top_is_interrupt => Step::Jump,
        Edge::JumpBelow => Step::Jump,
        Edge::Return | Edge::ReturnBelow => Step::ReturnTo(arrival.address),
        Edge::UnwindBelow => Step::UnwindTo,
        Edge::Enter if same => Step::Stay,
        Edge::Enter if arrival.place == Place::Middle => Step::UnwindTo,
        Edge::Enter => Step::Push(Entry::Interrupt, None),
        Edge::Gap => Step::Forget,
    }
}

/// What lies below the frames of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// Frames that are not known.
    Unknown,
    /// Nothing.
    Nothing,
}

/// Moves a stack, which is not empty, over an edge, so that the function arrived at is on top.
///
/// # Errors
/// Where the outcome depends on the frames below, or nothing of the stack is left: what the edge is to
/// those frames. The stack is then empty, and the caller starts a new one.
pub(super) fn arrive(
    tree: &mut Tree,
    stack: &mut Vec<Frame>,
    below: Below,
    edge: Edge,
    arrival: &Arrival,
) -> Result<(), Edge> {
    let (top, known) = (stack[stack.len() - 1].node, stack.len() > 1);
    let top_function = tree.node(top).function;
    let physical = physical_frame(tree, stack);
    let interrupt = tree.node(stack[physical].node).entry == Entry::Interrupt;
    let function = arrival.function;
    let (keep, edge_below) = match step(edge, arrival, top_function, interrupt) {
        Step::Stay => return Ok(()),
        Step::Push(entry, return_address) => {
            enter(tree, stack, function, entry, return_address);
            return Ok(());
        }
        Step::Jump => return jump(tree, stack, below, function),
        Step::ReturnTo(address) => {
            (stack.iter().rposition(|frame| frame.return_address == Some(address)), Edge::ReturnBelow)
        }
        Step::UnwindTo => {
            let waits = |frame: &Frame| tree.node(frame.node).function == function;
            (stack.iter().rposition(waits).map(|index| index + 1), Edge::UnwindBelow)
        }
        Step::Forget => (None, Edge::Gap),
    };
    stack.truncate(keep.unwrap_or(0));
    match stack.last() {
        // What the top frame is decides what the edge means, and of a root that is not known.
        None => Err(if known { edge_below } else { edge }),
        Some(frame) if tree.node(frame.node).function == function => Ok(()),
        // The caller jumped to another function, which now waits in its place.
        Some(_) => jump(tree, stack, below, function),
    }
}

fn enter(
    tree: &mut Tree,
    stack: &mut Vec<Frame>,
    function: FunctionId,
    entry: Entry,
    return_address: Option<u64>,
) {
    let top = stack.last().expect("a frame is entered from another").node;
    let node = tree.child(top, function, entry);
    tree.cost(node).entries += 1;
    stack.push(Frame { node, return_address });
}

/// Index of the newest frame that was not jumped to.
fn physical_frame(tree: &Tree, stack: &[Frame]) -> usize {
    stack.iter().rposition(|frame| tree.node(frame.node).entry != Entry::Tail).unwrap_or(0)
}

/// A jump replaces what was jumped to before, so a frame of the machine shows as at most two: the
/// function that was called, and the one that runs in its place.
fn jump(tree: &mut Tree, stack: &mut Vec<Frame>, below: Below, function: FunctionId) -> Result<(), Edge> {
    let physical = physical_frame(tree, stack);
    let base = tree.node(stack[physical].node);
    // A root may itself have been jumped to, and only the frames below it tell.
    if base.entry == Entry::Root && below == Below::Unknown {
        stack.clear();
        return Err(Edge::JumpBelow);
    }
    let again = base.function == function;
    stack.truncate(physical + 1);
    if !again {
        enter(tree, stack, function, Entry::Tail, None);
    }
    Ok(())
}
