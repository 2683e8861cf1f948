//! The tree of all lanes of a store. Its nodes are the rows of time graphs, with the same number in every output.

use std::collections::HashMap;

use hodo_store::Store;

/// A lane of a table, by their numbers.
pub(crate) type LaneId = (usize, u32);

/// A node of the tree.
#[derive(Debug)]
pub(crate) struct Node {
    /// The number of its parent.
    pub(crate) parent: Option<usize>,
    /// The last part of its path.
    pub(crate) name: String,
    /// Lanes with this path.
    pub(crate) lanes: Vec<LaneId>,
}

/// The tree of all lanes.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// The node of each lane, by table.
    of_lanes: Vec<Vec<usize>>,
}

impl Tree {
    pub(crate) fn new(store: &Store) -> Tree {
        let mut known: HashMap<(Option<usize>, String), usize> = HashMap::new();
        let (mut nodes, mut of_lanes): (Vec<Node>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
        for (number, table) in store.tables().enumerate() {
            let mut own = Vec::new();
            for lane in 0..table.lanes() {
                let mut above = None;
                for name in store.path(table, lane) {
                    let node = *known.entry((above, name)).or_insert_with_key(|(parent, name)| {
                        nodes.push(Node { parent: *parent, name: name.clone(), lanes: Vec::new() });
                        nodes.len() - 1
                    });
                    above = Some(node);
                }
                let node = above.expect("a path has a part");
                nodes[node].lanes.push((number, lane));
                own.push(node);
            }
            of_lanes.push(own);
        }
        Tree { nodes, of_lanes }
    }

    /// Returns the node with a number.
    pub(crate) fn get(&self, number: usize) -> Option<&Node> {
        self.nodes.get(number)
    }

    /// Returns the node of a lane.
    pub(crate) fn of_lane(&self, (table, lane): LaneId) -> Option<usize> {
        self.of_lanes.get(table)?.get(usize::try_from(lane).ok()?).copied()
    }

    /// Returns the nodes of a table's lanes and those above them: each after its parent.
    pub(crate) fn of_table(&self, table: usize) -> Vec<usize> {
        let mut is_known = vec![false; self.nodes.len()];
        let mut nodes = Vec::new();
        for &node in self.of_lanes.get(table).into_iter().flatten() {
            let from = nodes.len();
            let mut next = Some(node);
            while let Some(node) = next.filter(|&node| !is_known[node]) {
                is_known[node] = true;
                nodes.push(node);
                next = self.nodes[node].parent;
            }
            nodes[from..].reverse();
        }
        nodes
    }

    /// Returns a table's lanes of some nodes, with the node of each.
    pub(crate) fn lanes(&self, table: usize, items: &[i64]) -> Vec<(u32, usize)> {
        let nodes = items.iter().filter_map(|&item| usize::try_from(item).ok());
        let lanes_of = |node: usize| {
            let lanes = self.get(node).into_iter().flat_map(|node| &node.lanes);
            lanes.filter(move |(own, _)| *own == table).map(move |&(_, lane)| (lane, node))
        };
        let mut lanes: Vec<(u32, usize)> = nodes.flat_map(lanes_of).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }
}
