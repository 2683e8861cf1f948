//! The merged trees of all threads, as tables.

use std::{cmp::Reverse, collections::BTreeMap, iter};

use hodo_model::{Column, FinishContext, FunctionId, Names, Shape, Table, Unit, Value};
use rustc_hash::FxHashMap;

use super::nodes::{Forest, NO_PARENT, NodeId};
use crate::{
    profile::{
        Every,
        cost::{ProfileCost, ThreadTotals},
        table::{self, Amounts, FunctionCost, share},
    },
    stack::FrameEntry,
};

/// The merged profile of all threads.
pub(super) struct MergedTree {
    pub(super) tree: Forest,
    /// By node, the cost of it and all nodes below it.
    pub(super) totals: Vec<ProfileCost>,
    pub(super) all: Amounts,
}

impl MergedTree {
    /// Joins the trees of all threads. Without `interrupts`, roots do not distinguish how they were entered.
    pub(super) fn new(threads: impl Iterator<Item = (Forest, ThreadTotals)>, interrupts: bool) -> MergedTree {
        let mut tree = Forest::default();
        let mut all = Amounts::default();
        let mut roots: BTreeMap<(FunctionId, FrameEntry), NodeId> = BTreeMap::new();
        for (thread, of_thread) in threads {
            let mut nodes: Vec<NodeId> = Vec::with_capacity(thread.len());
            for (id, node) in thread.iter() {
                let mut cost = thread.cost(id);
                let merged = match node.parent {
                    NO_PARENT => {
                        let entry = if interrupts { node.entry } else { FrameEntry::Root };
                        cost.ran.entries = if entry == FrameEntry::Root { 0 } else { cost.ran.entries };
                        let root = roots.entry((node.function, entry));
                        *root.or_insert_with(|| tree.root(node.function, entry))
                    }
                    parent => tree.child(nodes[parent as usize], node.function, node.entry),
                };
                tree.change(merged, |cost_there| cost_there.add(&cost));
                all.cost.add(&cost);
                nodes.push(merged);
            }
            all.sums.add(&of_thread);
            all.threads += 1;
        }
        MergedTree { totals: totals(&tree), tree, all }
    }

    /// Returns the costs by function. The total of a recursive function counts only its outermost frames.
    fn by_function(&self) -> FxHashMap<FunctionId, FunctionCost> {
        // By function, also its number of frames on the current path.
        let mut functions: FxHashMap<FunctionId, (u32, FunctionCost)> = FxHashMap::default();
        let children = Children::new(&self.tree);
        let mut walk: Vec<(NodeId, bool)> = children.roots().map(|id| (id, false)).collect();
        while let Some((id, leaving)) = walk.pop() {
            let node = self.tree.node(id);
            let (depth, function) = functions.entry(node.function).or_default();
            if leaving {
                *depth -= 1;
                continue;
            }
            if *depth == 0 {
                let total = &self.totals[id as usize];
                function.instructions = function.instructions.saturating_add(total.ran.instructions);
                function.time = function.time.saturating_add(total.elapsed());
                function.samples = function.samples.saturating_add(total.rare.samples);
            }
            *depth += 1;
            function.own.add(&self.tree.cost(id));
            match node.entry {
                FrameEntry::Call => function.calls = function.calls.saturating_add(node.ran.entries),
                FrameEntry::Tail => function.jumps = function.jumps.saturating_add(node.ran.entries),
                FrameEntry::Root
                | FrameEntry::Interrupt
                | FrameEntry::InterruptedCall
                | FrameEntry::InterruptedReturn => {}
            }
            walk.push((id, true));
            walk.extend(children.of(id).map(|child| (child, false)));
        }
        functions.into_iter().map(|(id, (_, cost))| (id, cost)).collect()
    }

    /// Makes the table of functions from the trees of threads.
    pub(super) fn functions(
        threads: impl Iterator<Item = (Forest, ThreadTotals)>,
        context: &FinishContext<'_>,
        every: Option<Every>,
    ) -> Table {
        let (mut functions, mut all) = (table::Functions::new(&context.selection.view), Amounts::default());
        let interrupts = false;
        match &mut functions {
            table::Functions::Whole(functions) => {
                let whole = MergedTree::new(threads, interrupts);
                *functions = whole.by_function();
                all = whole.all;
            }
            table::Functions::ByThread(of_threads) => {
                for thread in threads {
                    let tree = MergedTree::new(iter::once(thread), interrupts);
                    of_threads.push(tree.by_function());
                    all.add(&tree.all);
                }
            }
        }
        table::functions(functions, &all, context, every)
    }

    /// Visits the nodes that `shown` accepts, depth first, with their depths; the heaviest sibling comes first.
    pub(super) fn walk(
        &self,
        weight: impl Fn(&ProfileCost) -> u64,
        shown: impl Fn(&ProfileCost) -> bool,
        mut row: impl FnMut(NodeId, u64),
    ) {
        let children = Children::new(&self.tree);
        let total = |id: NodeId| &self.totals[id as usize];
        let sort_heaviest_last = |ids: &mut Vec<NodeId>| {
            ids.sort_by_key(|&id| {
                let node = self.tree.node(id);
                (weight(total(id)), Reverse((node.function, node.entry)))
            });
        };
        let mut roots: Vec<NodeId> = children.roots().filter(|&id| shown(total(id))).collect();
        sort_heaviest_last(&mut roots);
        let mut walk: Vec<(NodeId, u64)> = roots.into_iter().map(|id| (id, 0)).collect();
        while let Some((id, depth)) = walk.pop() {
            row(id, depth);
            let mut below: Vec<NodeId> = children.of(id).filter(|&id| shown(total(id))).collect();
            sort_heaviest_last(&mut below);
            walk.extend(below.into_iter().map(|child| (child, depth + 1)));
        }
    }

    /// Folds functions that call themselves directly: the frames of a chain are one node. Returns the tree, and by node
    /// the length of its longest chain.
    fn folded(&self) -> (MergedTree, Vec<u64>) {
        let mut tree = Forest::default();
        // By node of the unfolded tree, its folded node and its number in the chain.
        let mut links: Vec<(NodeId, u64)> = Vec::with_capacity(self.tree.len());
        let mut longest: Vec<u64> = Vec::new();
        for (id, node) in self.tree.iter() {
            let (folded, number) = match links.get(node.parent as usize).copied() {
                None => (tree.root(node.function, node.entry), 1),
                Some((caller, length))
                    if node.entry == FrameEntry::Call && tree.node(caller).function == node.function =>
                {
                    (caller, length + 1)
                }
                Some((caller, _)) => (tree.child(caller, node.function, node.entry), 1),
            };
            longest.resize(tree.len(), 0);
            let length = &mut longest[folded as usize];
            *length = (*length).max(number);
            let cost = self.tree.cost(id);
            tree.change(folded, |cost_there| cost_there.add(&cost));
            links.push((folded, number));
        }
        (MergedTree { totals: totals(&tree), tree, all: self.all.clone() }, longest)
    }

    /// Makes the table of call paths; `folds` recursions if requested.
    pub(super) fn tree(&self, names: &dyn Names, every: Option<Every>, folds: bool) -> Table {
        match folds {
            true => {
                let (folded, longest) = self.folded();
                folded.tree_of(&longest, names, every)
            }
            false => self.tree_of(&vec![1; self.tree.len()], names, every),
        }
    }

    /// Makes the table of a tree whose nodes are chains of these lengths.
    fn tree_of(&self, longest: &[u64], names: &dyn Names, every: Option<Every>) -> Table {
        let sampled = every.is_some();
        let weight = |cost: &ProfileCost| if sampled { cost.rare.samples } else { cost.ran.instructions };
        let all = weight(&self.all.cost);
        let mut rows = Vec::with_capacity(self.tree.len());
        let shown = |total: &ProfileCost| !sampled || total.rare.samples > 0;
        self.walk(weight, shown, |id, depth| {
            let mut row = self.tree_row(id, depth, all, names, sampled);
            row.push(longest[id as usize].into());
            rows.push(row);
        });
        let samples =
            [Column::integer("total_samples", Unit::Count), Column::integer("self_samples", Unit::Count)];
        let columns = [Column::real("share", Unit::Share)].into_iter();
        let columns = columns.chain(samples.into_iter().filter(|_| sampled)).chain([
            Column::integer("total_instructions", Unit::Instructions),
            Column::integer("self_instructions", Unit::Instructions),
            Column::integer("entries", Unit::Count),
            Column::integer("self_time_ns", Unit::Nanoseconds).secondary(),
            Column::integer("total_time_ns", Unit::Nanoseconds).secondary(),
            Column::integer("depth", Unit::None),
            Column::name("function"),
            Column::name("entered_by"),
            Column::name("module").secondary(),
            Column::integer("recursion", Unit::Count),
        ]);
        Table::new("tree", Shape::Tree, self.all.summary(every), columns.collect(), rows)
    }

    fn tree_row(&self, id: NodeId, depth: u64, all: u64, names: &dyn Names, sampled: bool) -> Vec<Value> {
        let node = self.tree.node(id);
        let total = &self.totals[id as usize];
        let (name, module) = names.names(node.function);
        let weight = if sampled { total.rare.samples } else { total.ran.instructions };
        let samples = [total.rare.samples, self.tree.cost(id).rare.samples].map(Value::from);
        let row = [Value::from(share(weight, all))].into_iter();
        row.chain(samples.into_iter().filter(|_| sampled))
            .chain([
                Value::from(total.ran.instructions),
                Value::from(node.ran.instructions),
                Value::from(node.ran.entries),
                Value::from(node.ran.time.nanoseconds()),
                Value::from(total.elapsed().nanoseconds()),
                Value::from(depth),
                Value::from(name),
                Value::from(node.entry.name()),
                Value::from(module),
            ])
            .collect()
    }
}

/// By node, the cost of it and all nodes below it.
pub(super) fn totals(tree: &Forest) -> Vec<ProfileCost> {
    let mut totals: Vec<ProfileCost> = tree.iter().map(|(id, _)| tree.cost(id)).collect();
    // A child follows its parent, so in reverse order each total is complete before it is added to the parent's.
    for (id, node) in tree.iter().rev() {
        if node.parent != NO_PARENT {
            let total = totals[id as usize];
            totals[node.parent as usize].add(&total);
        }
    }
    totals
}

/// The children of each node, and the roots.
struct Children {
    /// Children of node `id` are `sorted[starts[id]..starts[id + 1]]`; roots follow the children of the last node.
    starts: Vec<u32>,
    sorted: Vec<NodeId>,
}

impl Children {
    fn new(tree: &Forest) -> Children {
        let count = tree.len();
        let slot = |parent: NodeId| if parent == NO_PARENT { count } else { parent as usize };
        let mut starts = vec![0u32; count + 2];
        for (_, node) in tree.iter() {
            starts[slot(node.parent) + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut sorted = vec![0; count];
        for (id, node) in tree.iter() {
            let index = &mut next[slot(node.parent)];
            sorted[*index as usize] = id;
            *index += 1;
        }
        Children { starts, sorted }
    }

    fn of(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let (from, to) = (self.starts[id as usize], self.starts[id as usize + 1]);
        self.sorted[from as usize..to as usize].iter().copied()
    }

    fn roots(&self) -> impl Iterator<Item = NodeId> {
        self.of((self.starts.len() - 2) as NodeId)
    }
}
