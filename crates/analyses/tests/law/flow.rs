//! The law for control flow: any chunks, merged in any grouping, give the table of one chunk; so do function runs and paths.

use hodo_model::{Analysis, AnyAnalysis, FastFlow, FlowEvent, FlowInterest, Summary, Table, Unit, Value};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use crate::paths::table_of_paths;
use crate::traces::{
    config,
    flow::{Case, case, finish, fold, merge_all, parts, table_of_function_runs},
};

/// The table of the whole thread, and the table of its merged parts.
fn tables(
    analysis: &dyn AnyAnalysis,
    thread: &[Vec<FlowEvent<'_>>],
    cuts: &[bool],
    choices: &[usize],
) -> (Table, Table) {
    let merged = merge_all(analysis, parts(analysis, thread, cuts), choices);
    (finish(analysis, vec![fold(analysis, 0, thread)]), finish(analysis, vec![merged]))
}

/// An analysis of control flow, with its table of a thread that is folded as function runs: the one thing that depends on the
/// type of the analysis.
pub(crate) trait FlowLaw: AnyAnalysis {
    /// The table; `None` if the analysis takes no function runs.
    fn table_of_function_runs(&self, segments: &[Vec<FlowEvent<'_>>], timed: bool) -> Option<Table>;

    /// The same of paths.
    fn table_of_paths(&self, segments: &[Vec<FlowEvent<'_>>]) -> Option<Table>;
}

impl<A: FastFlow> FlowLaw for A {
    fn table_of_function_runs(&self, segments: &[Vec<FlowEvent<'_>>], timed: bool) -> Option<Table> {
        let takes = A::TAKES_FUNCTION_RUNS && Analysis::interest(self).flow != FlowInterest::Numbered;
        takes.then(|| table_of_function_runs(self, segments, timed))
    }

    fn table_of_paths(&self, segments: &[Vec<FlowEvent<'_>>]) -> Option<Table> {
        let takes = Analysis::interest(self).flow != FlowInterest::Numbered;
        takes.then(|| table_of_paths(self, segments))
    }
}

/// Tables with a row for each call path: which frame of a path gets a nanosecond that several share, and whether it is counted
/// before or after a clock, is a matter of rounding.
const SHARED: [&str; 2] = ["tree", "paths"];

/// The rows and figures of a table that are no times.
fn without_times(table: &Table) -> (Vec<Vec<Value>>, Summary) {
    let is_time: Vec<bool> = table.columns().iter().map(|column| column.unit == Unit::Nanoseconds).collect();
    let others = |row: Vec<Value>| row.into_iter().zip(&is_time).filter(|(_, is_time)| !**is_time);
    let rows = table.rows().into_iter().map(|row| others(row).map(|(value, _)| value).collect()).collect();
    let is_figure_of_time = |name: &str| name.ends_with("time_ns");
    (rows, table.summary.iter().filter(|(name, _)| !is_figure_of_time(name)).cloned().collect())
}

fn holds(analysis: &dyn AnyAnalysis, Case { thread, cuts, choices }: &Case) -> Result<Table, TestCaseError> {
    let (whole, merged) = tables(analysis, thread, cuts, choices);
    prop_assert_eq!(&whole, &merged);
    Ok(whole)
}

/// Checks that the table is the same for every cut, from function runs and from paths, in `cases` cases.
pub(crate) fn holds_always(analysis: &dyn FlowLaw, cases: u32) -> Result<(), String> {
    let mut runner = TestRunner::new(config(cases));
    let run = runner.run(&case(), |case| {
        let whole = holds(analysis, &case)?;
        if let Some(table) = analysis.table_of_paths(&case.thread) {
            match SHARED.contains(&whole.name()) {
                true => prop_assert_eq!(without_times(&whole), without_times(&table)),
                false => prop_assert_eq!(&whole, &table),
            }
        }
        for timed in [false, true] {
            if let Some(table) = analysis.table_of_function_runs(&case.thread, timed) {
                prop_assert_eq!(&whole, &table);
            }
        }
        Ok(())
    });
    run.map_err(|error| error.to_string())
}

/// Whether a broken analysis is caught, with fixed cases.
pub(crate) fn is_caught(analysis: &dyn AnyAnalysis) -> bool {
    let always_the_same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config = ProptestConfig { max_shrink_iters: 0, ..config(1000) };
    let mut runner = TestRunner::new_with_rng(config, always_the_same);
    runner.run(&case(), |case| holds(analysis, &case).map(|_| ())).is_err()
}
