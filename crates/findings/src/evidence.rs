//! The tables that rules read.

use std::{cell::OnceCell, rc::Rc};

use hodo_model::{Cell, Cells, Loss, Table, Value, cells};

use crate::{
    Need,
    call_tree::{TREE, Tree},
};

/// The name of tables of a call tree's functions, which [`crate::functions`] makes.
pub const FUNCTIONS: Need = ("functions", "");

/// The name of tables that say why executions of functions were slow.
pub const CAUSES: Need = ("causes", "");

/// The name of tables of the patterns in executions of functions, which [`crate::patterns`] makes.
pub const PATTERNS: Need = ("patterns", "");

/// The name of tables of what the cost of executions depends on, which [`crate::sizes`] makes.
pub const SIZES: Need = ("sizes", "");

/// Tables of reports, as evidence for findings.
#[derive(Debug)]
pub struct Evidence<'a> {
    tables: Vec<(Need, &'a Table)>,
    /// The call trees, once a rule has asked for them.
    trees: OnceCell<Vec<Tree<'a>>>,
}

/// A row of a table, which is read in place: call trees have many rows, and rules read them again and again.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    /// The columns of its batch.
    columns: Rc<Vec<Cells<'a>>>,
    /// Its number in the batch.
    index: usize,
}

impl<'a> Evidence<'a> {
    /// Creates evidence from tables, each with the name and the view of its report.
    pub fn new(tables: Vec<(Need, &'a Table)>) -> Evidence<'a> {
        Evidence { tables, trees: OnceCell::new() }
    }

    /// Returns the tables of a report, one per trace.
    pub fn tables(&self, need: Need) -> impl Iterator<Item = &'a Table> {
        self.tables.iter().filter(move |(own, _)| *own == need).map(|(_, table)| *table)
    }

    /// Returns the first table of a report.
    pub fn table(&self, need: Need) -> Option<&'a Table> {
        self.tables(need).next()
    }

    /// Returns the rows of a report's tables.
    pub fn rows(&self, need: Need) -> Vec<Row<'a>> {
        self.tables(need).flat_map(Row::all).collect()
    }

    /// Returns what is missing from any table, each loss once, with the report that lists it.
    pub fn losses(&self) -> Vec<(Need, &'a Loss)> {
        let mut losses: Vec<(Need, &Loss)> = Vec::new();
        for &(need, table) in &self.tables {
            for loss in &table.loss {
                if !losses.iter().any(|(_, known)| *known == loss) {
                    losses.push((need, loss));
                }
            }
        }
        losses
    }

    /// Returns the call trees, one per trace.
    pub(crate) fn trees(&self) -> &[Tree<'a>] {
        self.trees.get_or_init(|| self.tables(TREE).map(Tree::new).collect())
    }

    /// Returns the tables that say why executions of functions were slow, from [`crate::questions`]. The summary names
    /// the function.
    pub fn causes(&self) -> impl Iterator<Item = &'a Table> {
        self.tables(CAUSES)
    }
}

impl<'a> Row<'a> {
    /// Returns the rows of a table.
    pub(crate) fn all(table: &'a Table) -> Vec<Row<'a>> {
        let mut rows = Vec::with_capacity(table.row_count());
        for batch in table.batches() {
            let columns = Rc::new(cells(batch));
            let row = |index| Row { table, columns: Rc::clone(&columns), index };
            rows.extend((0..batch.num_rows()).map(row));
        }
        rows
    }

    /// Returns an integer of the table's summary; 0 if it is unknown.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        figure(self.table, name)
    }

    /// Returns whether a value is known.
    pub(crate) fn knows(&self, column: &str) -> bool {
        self.cell(column) != Cell::Null
    }

    /// Returns a cell; nothing if the column is missing.
    fn cell(&self, column: &str) -> Cell<'_> {
        match self.table.columns().iter().position(|known| known.name == column) {
            Some(column) => self.columns[column].cell(self.index),
            None => Cell::Null,
        }
    }

    /// Returns an integer; 0 if it is unknown or the column is missing.
    pub fn integer(&self, column: &str) -> u64 {
        match self.cell(column) {
            Cell::Integer(integer) => integer,
            Cell::Signed(integer) => u64::try_from(integer).unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns a real number; 0 if it is unknown or the column is missing.
    pub fn real(&self, column: &str) -> f64 {
        match self.cell(column) {
            Cell::Real(real) => real,
            _ => 0.0,
        }
    }

    /// Returns whether a flag is set; false if it is unknown or the column is missing.
    pub(crate) fn flag(&self, column: &str) -> bool {
        self.cell(column) == Cell::Boolean(true)
    }

    /// Returns a text; empty if it is unknown or the column is missing.
    pub fn text(&self, column: &str) -> &str {
        match self.cell(column) {
            Cell::Text(text) => text,
            _ => "",
        }
    }
}

/// Returns a value of a table's summary; 0 if it is unknown.
pub(crate) fn figure(table: &Table, name: &str) -> u64 {
    match table.figure(name) {
        Some(Value::Integer(integer)) => *integer,
        Some(Value::Signed(integer)) => u64::try_from(*integer).unwrap_or(0),
        _ => 0,
    }
}

/// Returns the time from a table's first event to its last, in nanoseconds; at least 1.
pub(crate) fn span(table: &Table) -> u64 {
    figure(table, "end_ns").saturating_sub(figure(table, "begin_ns")).max(1)
}
