//! Draws guides in front of a tree's rows.

use arrow_schema::{Field, Schema};
use hodo_model::{
    Shape,
    table::{Cell, metadata::TableMetadata},
};

use crate::{
    cell::is_text,
    rows::{BatchRow, Rows},
};

/// Maximum width of a row's guides in characters; deeper rows show only the innermost guides.
const WIDEST: usize = 40;

/// The guides of every row; empty if the table is no tree.
#[derive(Default)]
pub(crate) struct Guides {
    rows: Vec<TreeRow>,
}

/// The position of a row in its tree.
#[derive(Clone, Copy)]
struct TreeRow {
    depth: u64,
    /// Whether a sibling follows.
    has_sibling: bool,
}

impl Guides {
    pub(crate) fn of(rows: &Rows) -> Guides {
        let Some(column) = depth_column(&rows.schema) else { return Guides::default() };
        let mut tree_rows: Vec<TreeRow> = Vec::new();
        rows.each(|row| {
            let depth = if let Cell::Integer(depth) = row.cell(column) { depth } else { 0 };
            tree_rows.push(TreeRow { depth, has_sibling: false });
        });
        // Iterates from the end. `later` contains the depths of later rows that may be siblings, deepest last.
        let mut later: Vec<u64> = Vec::new();
        for TreeRow { depth, has_sibling } in tree_rows.iter_mut().rev() {
            while later.pop_if(|deeper| *deeper > *depth).is_some() {}
            *has_sibling = later.last() == Some(depth);
            if !*has_sibling {
                later.push(*depth);
            }
        }
        Guides { rows: tree_rows }
    }

    /// The guide of each row, in order.
    pub(crate) fn draw(&self) -> impl Iterator<Item = String> {
        let mut path: Vec<TreeRow> = Vec::new();
        self.rows.iter().map(move |row| {
            while path.pop_if(|ancestor| ancestor.depth >= row.depth).is_some() {}
            path.push(*row);
            guide(&path)
        })
    }
}

/// The columns of a table as views for people show them.
pub(crate) struct ShownColumns<'t> {
    /// Each with its index in the table.
    pub(crate) columns: Vec<(usize, &'t Field)>,
    /// Index of the column with the names, which guides precede.
    pub(crate) guided: Option<usize>,
    recursion: Option<usize>,
}

impl<'t> ShownColumns<'t> {
    pub(crate) fn of(schema: &'t Schema) -> ShownColumns<'t> {
        let recursion = recursion_column(schema);
        let hidden = [depth_column(schema), recursion];
        let fields = schema.fields().iter().map(|field| &**field).enumerate();
        let columns: Vec<_> = fields.filter(|(index, _)| !hidden.contains(&Some(*index))).collect();
        let guided = columns.iter().find(|(_, field)| is_text(field)).map(|(index, _)| *index);
        ShownColumns { columns, guided, recursion }
    }

    /// How often the function of a row is on its own stack, behind its name: ` ×280`; empty if it is not recursive.
    pub(crate) fn times(&self, row: BatchRow<'_>) -> String {
        match self.recursion.map(|column| row.cell(column)) {
            Some(Cell::Integer(depth @ 2..)) => format!(" ×{depth}"),
            _ => String::new(),
        }
    }
}

/// The column with the depth of a tree's rows.
pub(crate) fn depth_column(schema: &Schema) -> Option<usize> {
    let column = schema.fields().iter().position(|field| field.name() == "depth");
    column.filter(|_| schema.shape() == Shape::Tree)
}

/// The column with the depth of a function's recursion, which is shown behind its name.
fn recursion_column(schema: &Schema) -> Option<usize> {
    let column = schema.fields().iter().position(|field| field.name() == "recursion");
    column.filter(|_| schema.shape() == Shape::Tree)
}

/// The guide of the last row on `path`, which starts at a root.
fn guide(path: &[TreeRow]) -> String {
    const STEP: usize = 3;
    let [_, ancestors @ .., last] = path else { return String::new() };
    let hidden = ancestors.len().saturating_sub(WIDEST / STEP - 1);
    let shown = ancestors.iter().skip(hidden);
    let mut guide = String::from(if hidden > 0 { "…  " } else { "" });
    guide.extend(shown.map(|ancestor| if ancestor.has_sibling { "│  " } else { "   " }));
    guide.push_str(if last.has_sibling { "├─ " } else { "└─ " });
    guide
}
