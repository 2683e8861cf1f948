//! The lines in front of the rows of a tree.

use hodo_trace::{Shape, Table, Value};

/// The most characters that the guides of a row take; deeper rows show their innermost ones only.
const WIDEST: usize = 40;

/// The guides of every row; none where the table is no tree.
#[derive(Default)]
pub(super) struct Guides {
    /// For each row its depth, and whether a sibling follows it.
    rows: Vec<(u64, bool)>,
}

impl Guides {
    pub(super) fn of(table: &Table) -> Guides {
        let Some(column) = depth_column(table) else { return Guides::default() };
        let depths = table.rows.iter().map(|row| match row.get(column) {
            Some(&Value::Integer(depth)) => depth,
            _ => 0,
        });
        let mut rows: Vec<(u64, bool)> = depths.map(|depth| (depth, false)).collect();
        // From the end, with the depths that still have a row to come, deepest last.
        let mut later: Vec<u64> = Vec::new();
        for (depth, has_sibling) in rows.iter_mut().rev() {
            while later.pop_if(|deeper| *deeper > *depth).is_some() {}
            *has_sibling = later.last() == Some(depth);
            if !*has_sibling {
                later.push(*depth);
            }
        }
        Guides { rows }
    }

    /// What stands in front of each row, in order.
    pub(super) fn draw(&self) -> impl Iterator<Item = String> {
        let mut ancestors: Vec<(u64, bool)> = Vec::new();
        self.rows.iter().map(move |&(depth, has_sibling)| {
            while ancestors.pop_if(|ancestor| ancestor.0 >= depth).is_some() {}
            ancestors.push((depth, has_sibling));
            guide(&ancestors)
        })
    }
}

/// The column that tells the depth of a tree's rows.
pub(super) fn depth_column(table: &Table) -> Option<usize> {
    let column = table.columns.iter().position(|column| column.name == "depth");
    column.filter(|_| table.shape == Shape::Tree)
}

/// The guides of the last of `path`, which leads to it from a root.
fn guide(path: &[(u64, bool)]) -> String {
    const STEP: usize = 3;
    let [_, ancestors @ .., (_, has_sibling)] = path else { return String::new() };
    let hidden = ancestors.len().saturating_sub(WIDEST / STEP - 1);
    let shown = ancestors.iter().skip(hidden);
    let mut guide = String::from(if hidden > 0 { "…  " } else { "" });
    guide.extend(shown.map(|&(_, continues)| if continues { "│  " } else { "   " }));
    guide.push_str(if *has_sibling { "├─ " } else { "└─ " });
    guide
}
