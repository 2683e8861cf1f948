//! The costs of source lines, and of the calls between functions.

use std::collections::BTreeMap;

use hodo_model::table::{Cell, Cells, RecordBatch, cells};

use crate::paths::{Functions, path_rows};

/// A line of a source file; the line is 0 if both are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceLine {
    pub(crate) file: String,
    pub(crate) line: u64,
}

/// Instructions, and nanoseconds.
pub(crate) type Cost = [u64; 2];

/// The calls from one function to another: their number and cost.
#[derive(Debug, Default)]
pub(crate) struct CallsBetween {
    pub(crate) count: u64,
    pub(crate) cost: Cost,
}

/// What is known of a function besides its calls.
#[derive(Debug, Default)]
pub(crate) struct FunctionSource {
    /// The address and the line of its first instruction that ran.
    pub(crate) first: Option<(u64, SourceLine)>,
    /// Costs of its own instructions by line.
    pub(crate) lines: BTreeMap<SourceLine, Cost>,
}

/// The costs of functions by source line, and of the calls between functions.
#[derive(Debug, Default)]
pub struct SourceProfile {
    pub(crate) functions: Functions,
    /// By the number of the function.
    pub(crate) sources: Vec<FunctionSource>,
    /// By the numbers of the caller and the callee.
    pub(crate) calls: BTreeMap<(usize, usize), CallsBetween>,
    /// How often each line of the caller branched to an instruction of the callee.
    branches: BTreeMap<BranchTarget, BTreeMap<SourceLine, u64>>,
}

/// The numbers of two functions, and the address of an instruction of the callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BranchTarget {
    caller: usize,
    callee: usize,
    address: u64,
}

/// Adds a cost.
pub(crate) fn add(sum: &mut Cost, cost: Cost) {
    sum.iter_mut().zip(cost).for_each(|(sum, cost)| *sum = sum.saturating_add(cost));
}

impl SourceProfile {
    /// Adds the rows of a batch of call paths. Returns `false` if it lacks their columns.
    pub fn add_paths(&mut self, batch: &RecordBatch) -> bool {
        let known = path_rows(batch, |row| {
            let function = self.functions.add(row);
            if let [.., caller, _] = self.functions.path[..] {
                let calls = self.calls.entry((caller, function)).or_default();
                calls.count = calls.count.saturating_add(row.entries);
                add(&mut calls.cost, row.total);
            }
            Ok::<(), std::convert::Infallible>(())
        });
        self.grow();
        known == Ok(true)
    }

    /// Adds the rows of a batch of lines by function. Returns `false` if it lacks their columns.
    pub fn add_lines(&mut self, batch: &RecordBatch) -> bool {
        let names = ["instructions", "time_ns", "line", "address", "function", "module"];
        let Some([instructions, time, line, address, function, module]) = columns(batch, names) else {
            return false;
        };
        for row in 0..batch.num_rows() {
            let function = self.functions.number(text(&module, row), text(&function, row));
            self.grow();
            let source = &mut self.sources[function];
            let (source_line, address) = (source_line(&line, row), integer(&address, row));
            if source.first.as_ref().is_none_or(|(first, _)| address < *first) {
                source.first = Some((address, source_line.clone()));
            }
            let cost = [integer(&instructions, row), integer(&time, row)];
            add(source.lines.entry(source_line).or_default(), cost);
        }
        true
    }

    /// Adds the rows of a batch of branches. Returns `false` if it lacks their columns.
    pub fn add_branches(&mut self, batch: &RecordBatch) -> bool {
        let names = ["kind", "executions", "to", "function", "module", "to_function", "to_module", "line"];
        let Some([kind, executions, to, function, module, to_function, to_module, line]) =
            columns(batch, names)
        else {
            return false;
        };
        for row in (0..batch.num_rows()).filter(|&row| text(&kind, row) == "taken") {
            let caller = self.functions.number(text(&module, row), text(&function, row));
            let callee = self.functions.number(text(&to_module, row), text(&to_function, row));
            let target = BranchTarget { caller, callee, address: integer(&to, row) };
            let sites = self.branches.entry(target).or_default();
            let count = sites.entry(source_line(&line, row)).or_default();
            *count = count.saturating_add(integer(&executions, row));
        }
        self.grow();
        true
    }

    /// Gives new functions an entry in `sources`.
    fn grow(&mut self) {
        self.sources.resize_with(self.functions.list.len(), FunctionSource::default);
    }

    /// Returns the lines of a caller that branched to the begin of a callee, and how often each did.
    pub(crate) fn call_sites(&self, caller: usize, callee: usize) -> Vec<(&SourceLine, u64)> {
        let Some(&(address, _)) = self.sources[callee].first.as_ref() else { return Vec::new() };
        let sites = self.branches.get(&BranchTarget { caller, callee, address });
        sites.into_iter().flatten().map(|(source_line, count)| (source_line, *count)).collect()
    }

    /// Returns the line of a caller that branched to the begin of a callee most often.
    pub(crate) fn call_site(&self, caller: usize, callee: usize) -> Option<&SourceLine> {
        // Of equal counts `max_by_key` takes the last, which is the first line here.
        let most = self.call_sites(caller, callee).into_iter().rev().max_by_key(|(_, count)| *count);
        most.map(|(source_line, _)| source_line)
    }
}

fn columns<'b, const N: usize>(batch: &'b RecordBatch, names: [&str; N]) -> Option<[Cells<'b>; N]> {
    let schema = batch.schema();
    let mut all: Vec<Option<Cells<'b>>> = cells(batch).into_iter().map(Some).collect();
    let named = names.map(|name| all[schema.index_of(name).ok()?].take());
    let named: Option<Vec<Cells<'b>>> = named.into_iter().collect();
    named?.try_into().ok()
}

fn integer(cells: &Cells<'_>, row: usize) -> u64 {
    match cells.cell(row) {
        Cell::Integer(integer) => integer,
        _ => 0,
    }
}

fn text<'c>(cells: &'c Cells<'_>, row: usize) -> &'c str {
    match cells.cell(row) {
        Cell::Text(text) if !text.is_empty() => text,
        _ => "-",
    }
}

fn source_line(cells: &Cells<'_>, row: usize) -> SourceLine {
    let parts = text(cells, row).rsplit_once(':');
    let source_line =
        parts.and_then(|(file, line)| Some(SourceLine { file: file.to_owned(), line: line.parse().ok()? }));
    source_line.unwrap_or_default()
}
