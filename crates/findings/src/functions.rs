//! The functions of a call tree: what `hodo report functions` counts, without another pass over the recording.

use std::collections::HashMap;

use hodo_model::{Column, Shape, Table, Unit};

use crate::call_tree::{NameId, Tree};

/// What a function ran.
#[derive(Default)]
struct Sums {
    calls: u64,
    jumps: u64,
    self_instructions: u64,
    /// With its callees. An execution within another one of the function counts there.
    total_instructions: u64,
    /// How many nodes of the path to the visited one are of the function.
    on_path: u32,
}

/// Returns the functions of a call tree, with the tree's summary, as evidence for rules ([`crate::FUNCTIONS`]). Functions of one
/// name and module are one row.
pub fn functions(tree: &Table) -> Table {
    let tree = Tree::new(tree);
    let mut functions: HashMap<[NameId; 2], Sums> = HashMap::new();
    let mut path = Vec::new();
    for row in tree.rows() {
        while let Some(&(depth, names)) = path.last()
            && depth >= row.depth
        {
            path.pop();
            functions.entry(names).or_default().on_path -= 1;
        }
        let sums = functions.entry(row.names()).or_default();
        let entries = if row.is_jumped { &mut sums.jumps } else { &mut sums.calls };
        *entries = entries.saturating_add(row.entries);
        sums.self_instructions = sums.self_instructions.saturating_add(row.self_instructions);
        if sums.on_path == 0 {
            sums.total_instructions = sums.total_instructions.saturating_add(row.total_instructions);
        }
        sums.on_path += 1;
        path.push((row.depth, row.names()));
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_unstable_by_key(|(names, sums)| (std::cmp::Reverse(sums.self_instructions), *names));
    let count = |name| Column::integer(name, Unit::Count);
    let instructions = |name| Column::integer(name, Unit::Instructions);
    let columns = vec![
        instructions("self_instructions"),
        instructions("total_instructions"),
        count("calls"),
        count("jumps"),
        Column::name("function"),
        Column::name("module"),
    ];
    let rows = functions.into_iter().map(|([function, module], sums)| {
        vec![
            sums.self_instructions.into(),
            sums.total_instructions.into(),
            sums.calls.into(),
            sums.jumps.into(),
            tree.text(function).into(),
            tree.text(module).into(),
        ]
    });
    let summary = tree.table.summary.clone();
    Table::new("functions", Shape::Counters, summary, columns, rows).with_loss(tree.table.loss.clone())
}
