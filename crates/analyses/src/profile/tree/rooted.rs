//! Call paths that begin at the executions of a function, or of a system call.
//!
//! A system call lasts from the kernel's entry to the return to user space, and its name is known only in between. So
//! the engine selects its executions, and each of them is a root of the tree.
//!
//! Only outermost executions count: a recursive execution is part of its outermost one. An execution that is open at
//! the beginning of the trace or after a gap has no known begin; it is excluded, and its instructions are counted as
//! cut.

use std::collections::BTreeMap;

use hodo_model::{Column, FunctionId, Names, Root, Selection, Shape, Summary, Table, Unit, Value};
use rustc_hash::FxHashMap;

use super::{
    nodes::{Forest, NO_PARENT, NodeId, TreeNode},
    whole::{MergedTree, totals},
};
use crate::{
    profile::{
        cost::ProfileCost,
        table::{Amounts, share},
    },
    stack::FrameEntry,
};

/// The executions of a function or a system call.
struct Rooted {
    tree: MergedTree,
    executions: u64,
    /// Instructions of executions without a known begin.
    cut: u64,
}

/// Where a node of the whole tree is in the tree of the executions.
#[derive(Clone, Copy)]
enum Copied {
    To(NodeId),
    /// It is part of a cut execution.
    Cut,
    /// It is part of no execution.
    Outside,
}

impl MergedTree {
    /// Extracts the executions of the functions that match `root`. The executions of a system call are the roots of this tree.
    fn rooted(&self, root: &Root, names: &dyn Names) -> Rooted {
        let mut known: FxHashMap<FunctionId, bool> = FxHashMap::default();
        let mut is_root = |node: &TreeNode| match root {
            Root::SystemCall(_) => node.parent == NO_PARENT,
            Root::Function(_) => *known.entry(node.function).or_insert_with(|| {
                let (name, module) = names.names(node.function);
                root.is(&name, &module)
            }),
        };
        let (mut tree, mut roots) = (Forest::default(), BTreeMap::<FunctionId, NodeId>::new());
        let (mut executions, mut cut, mut sum) = (0u64, 0u64, ProfileCost::default());
        let mut copies: Vec<Copied> = Vec::with_capacity(self.tree.len());
        for (id, node) in self.tree.iter() {
            let cost = self.tree.cost(id);
            let above = if node.parent == NO_PARENT { Copied::Outside } else { copies[node.parent as usize] };
            let copy = match above {
                Copied::To(parent) => Copied::To(tree.child(parent, node.function, node.entry)),
                Copied::Cut => Copied::Cut,
                Copied::Outside if !is_root(node) => Copied::Outside,
                Copied::Outside if node.entry == FrameEntry::Root => Copied::Cut,
                Copied::Outside => {
                    executions = executions.saturating_add(node.ran.entries);
                    let root = roots
                        .entry(node.function)
                        .or_insert_with(|| tree.root(node.function, FrameEntry::Root));
                    Copied::To(*root)
                }
            };
            match copy {
                Copied::To(copy) => {
                    tree.change(copy, |copy| copy.add(&cost));
                    sum.add(&cost);
                }
                Copied::Cut => cut = cut.saturating_add(cost.ran.instructions),
                Copied::Outside => {}
            }
            copies.push(copy);
        }
        let all = Amounts { cost: sum, ..Amounts::default() };
        Rooted { tree: MergedTree { totals: totals(&tree), tree, all }, executions, cut }
    }

    /// Makes the table of call paths: of the whole profile, or of the executions of a function.
    pub(super) fn paths(&self, names: &dyn Names, selection: &Selection) -> Table {
        let Some(root) = &selection.root else {
            return self.table_of_paths(names, &selection.view, self.all.summary(None));
        };
        let Rooted { tree, executions, cut } = self.rooted(root, names);
        let summary = vec![
            ("root", Value::from(root.name())),
            ("executions", executions.into()),
            ("instructions", tree.all.cost.ran.instructions.into()),
            ("cut_instructions", cut.into()),
            ("threads", self.all.threads.into()),
            ("time_ns", tree.all.cost.ran.time.nanoseconds().into()),
            ("outside_time_ns", tree.all.cost.rare.outside.nanoseconds().into()),
            ("lost_time_ns", self.all.sums.lost_time.into()),
            ("gaps", self.all.sums.gaps.into()),
        ];
        tree.table_of_paths(names, &selection.view, summary)
    }

    fn table_of_paths(&self, names: &dyn Names, view: &str, summary: Summary) -> Table {
        let by_time = view == "time";
        let weight =
            |cost: &ProfileCost| if by_time { cost.elapsed().nanoseconds() } else { cost.ran.instructions };
        let all = weight(&self.all.cost);
        let mut rows = Vec::with_capacity(self.tree.len());
        let pair = |instructions: u64, time: u64| {
            if by_time { [time, instructions] } else { [instructions, time] }.map(Value::from)
        };
        self.walk(
            weight,
            |_| true,
            |id, depth| {
                let (node, total) = (self.tree.node(id), &self.totals[id as usize]);
                let own = self.tree.cost(id);
                let (name, module) = names.names(node.function);
                let mut row = vec![Value::from(share(weight(total), all))];
                row.extend(pair(total.ran.instructions, total.elapsed().nanoseconds()));
                row.extend(pair(own.ran.instructions, own.ran.time.nanoseconds()));
                row.extend([
                    own.rare.outside.nanoseconds().into(),
                    own.ran.entries.into(),
                    depth.into(),
                    name.into(),
                    node.entry.name().into(),
                    module.into(),
                ]);
                rows.push(row);
            },
        );
        Table::new("paths", Shape::Tree, summary, columns(by_time).into(), rows)
    }
}

/// Returns the columns. The first column of each pair is the weight of the view.
fn columns(by_time: bool) -> [Column; 11] {
    let mut pairs = [
        Column::integer("total_instructions", Unit::Instructions),
        Column::integer("total_time_ns", Unit::Nanoseconds),
        Column::integer("self_instructions", Unit::Instructions),
        Column::integer("self_time_ns", Unit::Nanoseconds),
    ];
    if by_time {
        pairs.swap(0, 1);
        pairs.swap(2, 3);
    }
    let [first_total, second_total, first_own, second_own] = pairs;
    [
        Column::real("share", Unit::Share),
        first_total,
        second_total,
        first_own,
        second_own.secondary(),
        Column::integer("outside_time_ns", Unit::Nanoseconds).secondary(),
        Column::integer("entries", Unit::Count),
        Column::integer("depth", Unit::None),
        Column::name("function"),
        Column::name("entered_by").secondary(),
        Column::name("module").secondary(),
    ]
}
