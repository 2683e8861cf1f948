//! Calling-context trees.

use hodo_model::FunctionId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    profile::cost::{OwnCost, ProfileCost, RareCosts},
    stack::{FrameEntry, ReturnAddress, StackFrame, Watch},
};

/// Index of a node in its tree.
pub(super) type NodeId = u32;

/// The parent of roots.
pub(super) const NO_PARENT: NodeId = NodeId::MAX;

/// A function on one call path, and its cost there. The alignment puts each node in one cache line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(align(64))]
pub(super) struct TreeNode {
    pub(super) parent: NodeId,
    pub(super) function: FunctionId,
    pub(super) entry: FrameEntry,
    pub(super) ran: OwnCost,
    /// The newest of its first [`FEW`] children; [`NO_NODE`] if it has none.
    #[serde(skip)]
    child: NodeId,
    /// The next older of its parent's first children.
    #[serde(skip)]
    sibling: NodeId,
}

/// No node.
const NO_NODE: NodeId = NodeId::MAX;

/// The number of children in a node's linked list, which is searched linearly; further ones are hashed.
const FEW: usize = 4;

impl TreeNode {
    fn new(parent: NodeId, function: FunctionId, entry: FrameEntry) -> TreeNode {
        TreeNode { parent, function, entry, ran: OwnCost::default(), child: NO_NODE, sibling: NO_NODE }
    }

    fn key(&self) -> NodeKey {
        NodeKey { parent: self.parent, function: self.function, entry: self.entry }
    }
}

/// Identifies a node in its forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NodeKey {
    parent: NodeId,
    function: FunctionId,
    entry: FrameEntry,
}

/// Nodes of one or more trees; a parent precedes its children.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "(Vec<TreeNode>, Vec<RareCosts>)", into = "(Vec<TreeNode>, Vec<RareCosts>)")]
pub(super) struct Forest {
    nodes: Vec<TreeNode>,
    /// Rare costs by node, up to the last node that has any.
    rare: Vec<RareCosts>,
    /// Children of nodes beyond the first [`FEW`].
    further: FxHashMap<NodeKey, NodeId>,
}

impl From<(Vec<TreeNode>, Vec<RareCosts>)> for Forest {
    fn from((nodes, rare): (Vec<TreeNode>, Vec<RareCosts>)) -> Forest {
        let mut tree = Forest { rare, ..Forest::default() };
        for node in nodes {
            let added = TreeNode { ran: node.ran, ..TreeNode::new(node.parent, node.function, node.entry) };
            // A valid tree has no duplicate children; if input has some, their ids must still be preserved.
            let has_space = tree.find(node.key()).err().unwrap_or(false);
            tree.add(added, has_space);
        }
        tree
    }
}

impl From<Forest> for (Vec<TreeNode>, Vec<RareCosts>) {
    fn from(tree: Forest) -> (Vec<TreeNode>, Vec<RareCosts>) {
        (tree.nodes, tree.rare)
    }
}

impl Forest {
    /// Returns whether it has `roots` roots, and all parents precede their children.
    pub(super) fn is_sound(&self, roots: usize) -> bool {
        self.rare.len() <= self.nodes.len()
            && self.iter().filter(|(_, node)| node.parent == NO_PARENT).count() == roots
            && self.iter().all(|(id, node)| node.parent < id || node.parent == NO_PARENT)
    }

    #[cfg(test)]
    pub(super) fn parents(&mut self) -> impl Iterator<Item = &mut NodeId> {
        self.nodes.iter_mut().skip(1).map(|node| &mut node.parent)
    }

    pub(super) fn node(&self, id: NodeId) -> &TreeNode {
        &self.nodes[id as usize]
    }

    /// Returns the execution costs of a node.
    #[inline]
    pub(super) fn ran(&mut self, id: NodeId) -> &mut OwnCost {
        &mut self.nodes[id as usize].ran
    }

    /// Returns the rare costs of a node, which are allocated on demand.
    pub(super) fn rare(&mut self, id: NodeId) -> &mut RareCosts {
        let index = id as usize;
        if self.rare.len() <= index {
            self.rare.resize(index + 1, RareCosts::default());
        }
        &mut self.rare[index]
    }

    /// Returns all costs of a node.
    pub(super) fn cost(&self, id: NodeId) -> ProfileCost {
        let rare = self.rare.get(id as usize).copied().unwrap_or_default();
        ProfileCost { ran: self.node(id).ran, rare }
    }

    /// Changes the costs of a node.
    pub(super) fn change(&mut self, id: NodeId, change: impl FnOnce(&mut ProfileCost)) {
        let mut cost = self.cost(id);
        change(&mut cost);
        *self.ran(id) = cost.ran;
        if cost.rare != RareCosts::default() {
            *self.rare(id) = cost.rare;
        }
    }

    /// Returns ids and nodes, parents first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (NodeId, &TreeNode)> {
        self.nodes.iter().enumerate().map(|(id, node)| (id as NodeId, node))
    }

    /// Returns the number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a root.
    pub(super) fn root(&mut self, function: FunctionId, entry: FrameEntry) -> NodeId {
        let is_in_list = false;
        self.add(TreeNode::new(NO_PARENT, function, entry), is_in_list)
    }

    /// Notes that an interrupt or a system call entered a root.
    pub(super) fn entered_by_interrupt(&mut self, root: NodeId) {
        let node = &mut self.nodes[root as usize];
        node.entry = FrameEntry::Interrupt;
        node.ran.entries += 1;
    }

    /// Returns the child of `parent` for a function entered in some way; adds it if it does not exist.
    pub(super) fn child(&mut self, parent: NodeId, function: FunctionId, entry: FrameEntry) -> NodeId {
        // Both are interrupts of the parent.
        let entry = if entry.is_interrupt() { FrameEntry::Interrupt } else { entry };
        self.find(NodeKey { parent, function, entry })
            .unwrap_or_else(|has_space| self.add(TreeNode::new(parent, function, entry), has_space))
    }

    /// Finds a node that is not a root.
    ///
    /// # Errors
    /// If there is no such node, returns whether its parent's linked list has space for it.
    #[inline]
    fn find(&self, key: NodeKey) -> Result<NodeId, bool> {
        let mut next = self.nodes.get(key.parent as usize).map_or(NO_NODE, |parent| parent.child);
        for _ in 0..FEW {
            let Some(node) = self.nodes.get(next as usize) else { return Err(true) };
            if (node.function, node.entry) == (key.function, key.entry) {
                return Ok(next);
            }
            next = node.sibling;
        }
        self.further.get(&key).copied().ok_or(false)
    }

    /// Adds a node: to its parent's linked list if `is_in_list`, otherwise to the hash table.
    fn add(&mut self, mut node: TreeNode, is_in_list: bool) -> NodeId {
        let id = NodeId::try_from(self.nodes.len()).expect("fewer than 2^32 nodes");
        match self.nodes.get_mut(node.parent as usize) {
            Some(parent) if is_in_list => node.sibling = std::mem::replace(&mut parent.child, id),
            Some(_) => {
                self.further.insert(node.key(), id);
            }
            None => {}
        }
        self.nodes.push(node);
        id
    }
}

impl Watch<NodeId> for Forest {
    fn enter(
        &mut self,
        from: &StackFrame<NodeId>,
        function: FunctionId,
        entry: FrameEntry,
        _: ReturnAddress,
    ) -> NodeId {
        let node = self.child(from.note, function, entry);
        let entries = &mut self.ran(node).entries;
        *entries = entries.wrapping_add(1);
        node
    }

    fn leave(&mut self, _: &StackFrame<NodeId>) {}
}
