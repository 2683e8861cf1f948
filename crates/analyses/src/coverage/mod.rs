//! `coverage`: which lines, functions and branches ran, how often, and which did not.
//!
//! ```text
//! executed blocks ──Flow──► counts of lines, entries of functions, ways of branches ─┐
//! line table, symbols and code of each module that the recording names ──► zeros ────┴─► Coverage ──► Table
//! ```
//!
//! Several recordings of a program make one table.

mod measured;
mod table;

use hodo_model::{Description, FlowLoop, Made, Report, Role, Sources, Table, Takes};

use self::measured::Measured;
use crate::blocks::{Blocks, BlocksReport, ExecutedBlocks};

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "coverage",
            roles: &[Role::Coverage],
            help: "lines, functions and branches of source that ran, and those that did not; several recordings add up",
            views: &["file", "function", "line", "branch", "all"],
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_flow(Blocks { report: BlocksReport::Coverage }),
    }
}

/// Makes one table of what ran in each thread of several traces, and of the code that these traces name.
pub(crate) fn table(traces: Vec<(Vec<ExecutedBlocks>, &dyn Sources)>, view: &str) -> Table {
    let mut measured = Measured::default();
    for (threads, sources) in traces {
        measured.add(threads, sources);
    }
    measured.table(view)
}
