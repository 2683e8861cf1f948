//! What each thread was started for.

use hodo_model::{Column, FinishContext, Shape, Table, Unit};

use super::{
    nodes::{Forest, NO_PARENT, NodeId},
    partial::TreePartial,
    whole::totals,
};
use crate::columns::{most_first, share};

/// Deeper frames start no threads.
const DEEPEST: usize = 64;

/// Makes a table with the instructions of each thread and its start function: the first one on its heaviest path that is
/// in no shared library, because libraries start threads with functions of their own. Without such a function it is the
/// first of the path.
pub(super) fn roles(threads: Vec<TreePartial>, context: &FinishContext<'_>) -> Table {
    let closed: Vec<Forest> = threads.into_iter().map(|thread| thread.close().0).collect();
    let rows: Vec<_> = closed.iter().map(|tree| role(tree, context)).collect();
    let sum = rows.iter().fold(0, |sum: u64, role| sum.saturating_add(role.instructions));
    let columns = vec![
        Column::real("share", Unit::Share),
        Column::integer("instructions", Unit::Count),
        Column::name("role"),
        Column::name("module").secondary(),
        Column::name("comm"),
        Column::integer("pid", Unit::None),
        Column::integer("tid", Unit::None),
    ];
    let summary = vec![("instructions", sum.into()), ("threads", (rows.len() as u64).into())];
    let rows = rows.into_iter().enumerate().map(|(index, ThreadRole { instructions, function, module })| {
        let thread = context.flow_threads.get(index);
        let [pid, tid] =
            [thread.map(|thread| thread.pid), thread.map(|thread| thread.tid)].map(|id| id.map(u64::from));
        let comm = thread.and_then(|thread| thread.comm.as_deref());
        let cells = vec![
            share(instructions, sum),
            instructions.into(),
            function.into(),
            module.into(),
            comm.into(),
            pid.into(),
            tid.into(),
        ];
        ((instructions, index), cells)
    });
    Table::new("tree", Shape::Counters, summary, columns, most_first(rows))
}

/// The instructions of a thread, and its start function.
struct ThreadRole {
    instructions: u64,
    function: String,
    module: String,
}

fn role(tree: &Forest, context: &FinishContext<'_>) -> ThreadRole {
    let totals = totals(tree);
    let instructions = |id: NodeId| totals[id as usize].ran.instructions;
    let roots = || tree.iter().filter(|(_, node)| node.parent == NO_PARENT).map(|(id, _)| id);
    let all = roots().fold(0, |sum: u64, root| sum.saturating_add(instructions(root)));
    // The heaviest child of each node, the first of equal ones. A parent precedes its children.
    let mut heaviest: Vec<Option<NodeId>> = vec![None; tree.len()];
    for (id, node) in tree.iter().filter(|(_, node)| node.parent != NO_PARENT) {
        let best = &mut heaviest[node.parent as usize];
        if best.is_none_or(|best| instructions(id) > instructions(best)) {
            *best = Some(id);
        }
    }
    let root = roots().max_by_key(|&root| (instructions(root), std::cmp::Reverse(root)));
    let path = std::iter::successors(root, |&id| heaviest[id as usize]).take(DEEPEST);
    let names: Vec<(String, String)> =
        path.map(|id| context.functions().names(tree.node(id).function)).collect();
    let own = names.iter().find(|(_, module)| !module.contains(".so") && !module.starts_with('['));
    let (function, module) = own.or(names.first()).cloned().unwrap_or_default();
    ThreadRole { instructions: all, function, module }
}
