//! `critical-path`: whom and what did a thread wait for, from its end back to its begin?
//!
//! See [`walk`] for what the path is, `board` for boards. Without a chosen thread it is that of the command that was
//! recorded: of the threads that both began and ended in the trace, the one that lived longest; if there is none, of the
//! thread that ran longest. A board without a scheduler, which hands out the work, comes first.

mod board;
mod delta;
mod history;
mod machine;
mod subject;
mod table;
mod walk;

use hodo_model::{
    Analysis, Description, FinishContext, Interest, Item, Simple, Start, Table, Takes, kernel::Threads, only,
};

pub use delta::Delta;
pub(crate) use delta::{Labels, interest};
pub(crate) use history::{Key, Via};
pub(crate) use table::Naming;
pub(crate) use walk::{Awaited, Wait, waits};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct CriticalPath;

/// The report.
pub const CRITICAL_PATH: Simple<CriticalPath> = Simple {
    description: Description {
        name: "critical-path",
        help: "kernel events, boards: whom and what a thread waited for, through wake-ups, devices and messages",
        views: &["tree", "cause", "piece"],
        takes: Takes::THREADS,
        in_all: false,
    },
    analysis: CriticalPath,
};

impl Analysis for CriticalPath {
    type Partial = Delta;

    fn interest(&self) -> Interest<'_> {
        interest()
    }

    fn begin(&self, start: &Start<'_>) -> Delta {
        Delta::new(start.is_first)
    }

    fn fold(&self, partial: &mut Delta, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        partial.see(event);
    }

    fn merge(&self, mut earlier: Delta, later: Delta, _: &Threads) -> Delta {
        earlier.add(later);
        earlier
    }

    fn finish(&self, partials: Vec<Delta>, of: &FinishContext<'_>) -> Table {
        let whole = only(partials).finish();
        let naming = Naming { labels: &whole.labels, of };
        let subject = subject::choose(&whole.histories, &naming);
        let pieces = subject.as_ref().map_or_else(Vec::new, |subject| {
            walk::walk(&whole.histories, subject.thread, subject.from, subject.to)
        });
        table::table(&naming, subject.as_ref(), &pieces)
    }
}
