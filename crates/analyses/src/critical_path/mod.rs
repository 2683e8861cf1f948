//! `critical-path`: whom and what did a thread wait for, from its end back to its begin?
//!
//! See `walk` for what the path is, `board` for boards. Without a chosen thread it is that of the command that was
//! recorded: of the threads that both began and ended in the trace, the one that lived longest; if there is none, of the
//! thread that ran longest. A board without a scheduler, which hands out the work, comes first.

mod board;
mod delta;
mod functions;
mod history;
mod joined;
mod machine;
mod subject;
mod table;
mod tree;
mod walk;

use hodo_model::{Description, EventAnalysis, FinishContext, FlowLoop, Made, Report, Role, Table, Takes};

pub use delta::Delta;
pub(crate) use delta::{HistoryLabels, Whole};
pub use functions::{FunctionsOfStretches, RanFunctions, ThreadStretch};
pub(crate) use history::{TraceKey, WaitIn};
pub use joined::{running, with_functions};
pub(crate) use table::PathNames;
pub(crate) use walk::{PathWait, WaitEndedBy, waits};

/// An analysis of what all threads and tasks of boards did. The reports of it differ in their tables only.
#[derive(Clone, Copy, Debug)]
pub struct OfHistories {
    table: fn(&Whole, &FinishContext<'_>) -> Table,
}

/// The analysis of the report.
pub const CRITICAL_PATH: OfHistories = OfHistories::new(path_table);

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "critical-path",
            roles: &[Role::CriticalPath],
            help: "kernel events, boards: whom and what a thread waited for, through wake-ups, devices and messages",
            views: &["tree", "cause", "piece", "stretch"],
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_events(CRITICAL_PATH),
    }
}

impl OfHistories {
    /// Creates the analysis with this table.
    pub(crate) const fn new(table: fn(&Whole, &FinishContext<'_>) -> Table) -> OfHistories {
        OfHistories { table }
    }
}

impl EventAnalysis for OfHistories {
    type Partial = Delta;

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        (self.table)(&whole.finish(), context)
    }
}

/// Returns the table of the path of the chosen thread.
fn path_table(whole: &Whole, context: &FinishContext<'_>) -> Table {
    let naming = PathNames { labels: &whole.labels, context };
    let subject = subject::choose(&whole.histories, &naming);
    let pieces = subject.as_ref().map_or_else(Vec::new, |subject| {
        walk::walk(&whole.histories, subject.thread, subject.from, subject.to)
    });
    table::table(&naming, subject.as_ref(), &pieces)
}
