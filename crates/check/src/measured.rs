//! What one execution of a case cost.

use std::collections::BTreeMap;

use hodo_compare::{PathRow, path_rows, without_clone};
use hodo_model::Table;

use crate::quantity::{ALLOCATING, Quantity};

/// A function of a file. Clones that the compiler made count as the function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionName {
    /// The function.
    pub function: String,
    /// The file that it is in.
    pub module: String,
}

/// What the executions of a function cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCost {
    /// Its own instructions.
    pub own: u64,
    /// Its instructions with those of all that it called; nested executions count once.
    pub total: u64,
    /// How often it was called.
    pub calls: u64,
    /// How often each function called it.
    pub callers: BTreeMap<FunctionName, u64>,
}

/// What an execution cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The sums over all threads and processes.
    pub totals: BTreeMap<Quantity, u64>,
    /// By function.
    pub functions: BTreeMap<FunctionName, FunctionCost>,
}

/// A frame of the path of the rows.
struct Frame {
    name: FunctionName,
    /// Whether the function is further out on the path too.
    is_nested: bool,
}

impl Measured {
    /// Reads a table of call paths.
    ///
    /// # Panics
    /// The table does not hold call paths.
    pub fn of_paths(table: &Table) -> Measured {
        let mut measured = Measured::default();
        let mut path: Vec<Frame> = Vec::new();
        path_rows(table, |row| measured.add(&row, &mut path));
        let calls: u64 = measured.functions.values().map(|cost| cost.calls).sum();
        let instructions: u64 = measured.functions.values().map(|cost| cost.own).sum();
        let allocations =
            measured.functions.iter().filter(|(name, _)| ALLOCATING.contains(&name.function.as_str()));
        let allocations = allocations.map(|(_, cost)| cost.calls).sum();
        measured.totals.insert(Quantity::Instructions, instructions);
        measured.totals.insert(Quantity::Calls, calls);
        measured.totals.insert(Quantity::Allocations, allocations);
        measured
    }

    fn add(&mut self, row: &PathRow<'_>, path: &mut Vec<Frame>) {
        path.truncate(row.depth);
        let name =
            FunctionName { function: without_clone(row.function).to_owned(), module: row.module.to_owned() };
        // A part that the compiler split off (such as `.cold`) continues its function.
        let is_part = row.function != name.function && path.last().is_some_and(|above| above.name == name);
        for frame in path.iter().filter(|frame| !frame.is_nested && frame.name != name) {
            self.functions.entry(frame.name.clone()).or_default().total += row.instructions;
        }
        let is_nested = path.iter().any(|frame| frame.name == name);
        let cost = self.functions.entry(name.clone()).or_default();
        cost.own += row.instructions;
        cost.total += row.instructions;
        if !is_part {
            cost.calls += row.entries;
            if let Some(above) = path.last() {
                *cost.callers.entry(above.name.clone()).or_default() += row.entries;
            }
        }
        path.push(Frame { name, is_nested });
    }
}
