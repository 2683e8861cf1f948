//! The path as a tree: pieces that have the same waits, thread and cause, by what people read.

use std::{cmp::Reverse, collections::BTreeMap};

use hodo_model::{Column, Shape, Summary, Table, Unit, Value};

use super::joined::{FunctionOfStretch, RowBelow, below};
use crate::columns::share;

/// The pieces with some labels in common.
#[derive(Default)]
struct PathBranch {
    count: u64,
    total: u64,
    /// The functions that ran, and in how many pieces, by name.
    functions: BTreeMap<String, (u64, FunctionOfStretch)>,
    below: BTreeMap<String, PathBranch>,
}

impl PathBranch {
    fn add(&mut self, labels: &[String], length: u64, functions: &[FunctionOfStretch]) {
        (self.count, self.total) = (self.count + 1, self.total + length);
        if let [label, rest @ ..] = labels {
            return self.below.entry(label.clone()).or_default().add(rest, length, functions);
        }
        for function in functions {
            let (count, sum) = self.functions.entry(function.name.clone()).or_default();
            *count += 1;
            sum.add(function);
        }
    }

    fn rows(&self, all: u64, depth: u64, most: Option<usize>, rows: &mut Vec<Vec<Value>>) {
        let mut below: Vec<_> = self.below.iter().collect();
        below.sort_by_key(|(label, branch)| (Reverse(branch.total), *label));
        for (label, branch) in below {
            let ran = branch.functions.values().map(|(_, function)| function.instructions);
            let instructions = (!branch.functions.is_empty()).then(|| ran.sum());
            let row = PathRow { total: branch.total, count: Some(branch.count), instructions, depth, label };
            rows.push(row.cells(all, most.is_some()));
            branch.rows(all, depth + 1, most, rows);
            branch.function_rows(all, depth + 1, most, rows);
        }
    }

    fn function_rows(&self, all: u64, depth: u64, most: Option<usize>, rows: &mut Vec<Vec<Value>>) {
        let functions =
            self.functions.iter().map(|(name, (_, sum))| FunctionOfStretch { name: name.clone(), ..*sum });
        for RowBelow { label, time, instructions, .. } in
            below(functions.collect(), self.total, most.unwrap_or(0))
        {
            let count = self.functions.get(&label).map(|(count, _)| *count);
            let row = PathRow { total: time, count, instructions, depth, label: &label };
            rows.push(row.cells(all, most.is_some()));
        }
    }
}

struct PathRow<'l> {
    /// In nanoseconds.
    total: u64,
    count: Option<u64>,
    instructions: Option<u64>,
    depth: u64,
    label: &'l str,
}

impl PathRow<'_> {
    /// Returns the cells, given the length of the whole path; one is for instructions if there is control flow.
    fn cells(&self, all: u64, has_flow: bool) -> Vec<Value> {
        let mut cells = vec![share(self.total, all), self.total.into(), self.count.into()];
        cells.extend(has_flow.then_some(self.instructions.into()));
        cells.extend([self.depth.into(), self.label.into()]);
        cells
    }
}

/// A piece of the path.
pub(super) struct PathLeaf<'f> {
    /// The rows of the tree that lead to it, the outermost first.
    pub(super) labels: Vec<String>,
    /// In nanoseconds.
    pub(super) length: u64,
    /// What ran in it.
    pub(super) functions: &'f [FunctionOfStretch],
}

/// Makes the table of pieces. `most`: how many functions to list below what ran; `None` if there is no control flow.
pub(super) fn table<'f>(
    summary: Summary,
    leaves: impl Iterator<Item = PathLeaf<'f>>,
    most: Option<usize>,
) -> Table {
    let mut root = PathBranch::default();
    leaves.for_each(|leaf| root.add(&leaf.labels, leaf.length, leaf.functions));
    let mut columns = vec![
        Column::real("share", Unit::Share),
        Column::integer("total_ns", Unit::Nanoseconds),
        Column::integer("count", Unit::Count),
    ];
    columns.extend(most.map(|_| Column::integer("instructions", Unit::Count)));
    columns.extend([Column::integer("depth", Unit::None), Column::name("what")]);
    let mut rows = Vec::new();
    root.rows(root.total, 0, most, &mut rows);
    Table::new("critical-path", Shape::Tree, summary, columns, rows)
}
