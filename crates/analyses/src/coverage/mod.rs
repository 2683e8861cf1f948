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

use hodo_model::{
    Analysis, Description, FastFlow, FinishContext, FlowInterest, FlowLoop, Interest, Item, Made, Report,
    Role, Start, Table, Takes, kernel::Threads,
};

use self::measured::Measured;
use crate::blocks::ExecutedBlocks;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Coverage;

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
        make: |_| Made::of_flow(Coverage),
    }
}

impl Analysis for Coverage {
    type Partial = ExecutedBlocks;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> ExecutedBlocks {
        ExecutedBlocks::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut ExecutedBlocks, item: Item<'_>) {
        if let Item::Flow(event) = item {
            partial.fold(event);
        }
    }

    fn merge(&self, earlier: ExecutedBlocks, later: ExecutedBlocks, _: &Threads) -> ExecutedBlocks {
        earlier.merge(later)
    }

    fn is_sound(&self, partial: &ExecutedBlocks) -> bool {
        partial.is_sound()
    }

    fn finish(&self, threads: Vec<ExecutedBlocks>, context: &FinishContext<'_>) -> Table {
        let mut measured = Measured::default();
        measured.add(threads, context.sources);
        measured.table(&context.selection.view)
    }

    fn finish_several(&self, traces: Vec<(Vec<ExecutedBlocks>, FinishContext<'_>)>) -> Vec<Table> {
        let mut measured = Measured::default();
        let mut view = String::new();
        for (threads, context) in traces {
            measured.add(threads, context.sources);
            view.clone_from(&context.selection.view);
        }
        vec![measured.table(&view)]
    }
}

impl FastFlow for Coverage {
    type Memory = ();
}
