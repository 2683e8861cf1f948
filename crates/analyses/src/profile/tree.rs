//! Calling-context trees.

use hodo_trace::FunctionId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::Every;
use crate::{
    clock::{Span, Time},
    stack::{Entry, Frame, Watch},
};

/// Index of a node in its tree.
pub(super) type NodeId = u32;

/// The parent of roots.
pub(super) const NO_PARENT: NodeId = NodeId::MAX;

/// A function as called along one path, and what it cost there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) parent: NodeId,
    pub(super) function: FunctionId,
    pub(super) entry: Entry,
    pub(super) cost: Cost,
}

/// What was counted at a node, without the nodes below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cost {
    /// Times that the frame was entered.
    pub(super) entries: u64,
    pub(super) instructions: u64,
    /// Time of execution.
    pub(super) time: Time,
    /// Time between leaving and coming back to what is traced.
    pub(super) outside: Time,
    /// Samples, where they were asked for.
    pub(super) samples: u64,
}

impl Cost {
    /// Adds a time of execution, and the samples that fall into it.
    #[inline]
    pub(super) fn run_for(&mut self, time: Span, every: Option<Every>) {
        self.time = self.time.and(Time::of(time.length()));
        self.sample(time, every);
    }

    /// Adds the samples that fall into a time of execution.
    #[inline]
    pub(super) fn sample(&mut self, time: Span, every: Option<Every>) {
        if let Some(Every::Nanoseconds(period)) = every {
            self.samples = self.samples.saturating_add((time.to / period).saturating_sub(time.from / period));
        }
    }

    /// Adds a time outside of what is traced.
    pub(super) fn wait_for(&mut self, time: Span) {
        self.outside = self.outside.and(Time::of(time.length()));
    }

    /// All time, that outside included.
    pub(super) fn elapsed(&self) -> Time {
        self.time.and(self.outside)
    }

    pub(super) fn add(&mut self, other: &Cost) {
        self.entries += other.entries;
        self.instructions += other.instructions;
        // A damaged clock may be sampled any number of times.
        self.samples = self.samples.saturating_add(other.samples);
        self.time = self.time.and(other.time);
        self.outside = self.outside.and(other.outside);
    }
}

/// Nodes of one or more trees; a parent stands before its children.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Node>", into = "Vec<Node>")]
pub(super) struct Tree {
    nodes: Vec<Node>,
    children: FxHashMap<(NodeId, FunctionId, Entry), NodeId>,
}

impl From<Vec<Node>> for Tree {
    fn from(nodes: Vec<Node>) -> Tree {
        let child = |(id, node): (usize, &Node)| ((node.parent, node.function, node.entry), id as NodeId);
        let inner = nodes.iter().enumerate().filter(|(_, node)| node.parent != NO_PARENT);
        let children = inner.map(child).collect();
        Tree { nodes, children }
    }
}

impl From<Tree> for Vec<Node> {
    fn from(tree: Tree) -> Vec<Node> {
        tree.nodes
    }
}

impl Tree {
    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn cost(&mut self, id: NodeId) -> &mut Cost {
        &mut self.nodes[id as usize].cost
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A new root.
    pub(super) fn root(&mut self, function: FunctionId) -> NodeId {
        self.add(Node { parent: NO_PARENT, function, entry: Entry::Root, cost: Cost::default() })
    }

    /// The child of `parent` for a function entered in some way; made where there is none.
    pub(super) fn child(&mut self, parent: NodeId, function: FunctionId, entry: Entry) -> NodeId {
        if let Some(&id) = self.children.get(&(parent, function, entry)) {
            return id;
        }
        let id = self.add(Node { parent, function, entry, cost: Cost::default() });
        self.children.insert((parent, function, entry), id);
        id
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId::try_from(self.nodes.len()).expect("fewer than 2^32 nodes");
        self.nodes.push(node);
        id
    }
}

impl Watch<NodeId> for Tree {
    fn enter(&mut self, from: &Frame<NodeId>, function: FunctionId, entry: Entry, _: Option<u64>) -> NodeId {
        let node = self.child(from.note, function, entry);
        self.cost(node).entries += 1;
        node
    }

    fn leave(&mut self, _: Frame<NodeId>) {}
}
