//! `tasks`: which task ran on each board, from when to when?
//!
//! A row lasts from one `task_switch` of a board's kernel to the next. Idleness has no row, nor have the times before a
//! board's first switch and after its last one. Where a switch is missing, the task is unknown, and the row has no task.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, Heading, Interest, Item, Shape, Simple, Start, Table,
    TableBuilder, Takes, Value,
    kernel::{Kind, Threads, field::task_switch},
    only,
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::interval_columns,
    critical_path::{Key, Labels},
    settling::SettlingRows,
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Tasks;

/// The report.
pub const TASKS: Simple<Tasks> = Simple {
    description: Description {
        name: "tasks",
        help: "boards: which task ran on each board, from when to when",
        views: &["interval"],
        takes: Takes::NOTHING,
        in_all: false,
    },
    analysis: Tasks,
};

/// The task that idles.
const IDLE: u32 = 0;

/// The switches of a board.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Switches {
    /// The time of the first switch, and its previous task.
    first: (Nanos, u32),
    /// The time of the last switch, and its next task.
    last: (Nanos, u32),
}

/// Trace, task and begin of each row.
type Row = (u32, Option<u32>, Nanos);

/// The switches of each board, by trace, and the rows between them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Partial {
    switches: BTreeMap<u32, Switches>,
    rows: SettlingRows<Row>,
    labels: Labels,
}

impl Partial {
    /// Adds switches of a board that follow, and the row between the two parts.
    fn then(&mut self, trace: u32, later: Switches) {
        let Some(known) = self.switches.get_mut(&trace) else {
            self.switches.insert(trace, later);
            return;
        };
        let ((from, came), (to, left)) = (known.last, later.first);
        known.last = later.last;
        let task = (came == left).then_some(left);
        if task != Some(IDLE) {
            self.rows.see(to, (trace, task, from));
        }
    }

    /// Adds rows by end. Returns how many.
    fn add_rows(&self, mut settled: Vec<(Nanos, Row)>, rows: &mut TableBuilder) -> u64 {
        settled.sort_unstable();
        for &(to, (trace, task, from)) in &settled {
            let host = self.labels.traces.get(&trace).map(String::as_str);
            let name = task.and_then(|id| self.labels.tasks.get(&Key { trace, id })).cloned();
            let name = name.or_else(|| task.map(|id| id.to_string()));
            let row: [Value; 4] =
                [from.0.into(), to.0.saturating_sub(from.0).into(), host.into(), name.into()];
            rows.row(row.iter().map(Value::cell));
        }
        settled.len() as u64
    }
}

impl Analysis for Tasks {
    type Partial = Partial;

    fn interest(&self) -> Interest<'_> {
        use task_switch::{NEXT, NEXT_NAME, PREV, PREV_NAME};
        Interest::events(const { &[(Kind::TaskSwitch, &[PREV, NEXT, PREV_NAME, NEXT_NAME])] })
            .without_threads()
    }

    fn begin(&self, _: &Start<'_>) -> Partial {
        Partial::default()
    }

    fn fold(&self, partial: &mut Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        if event.kind == Kind::TaskSwitch {
            let prev = partial.labels.task(event, task_switch::PREV, task_switch::PREV_NAME);
            let next = partial.labels.task(event, task_switch::NEXT, task_switch::NEXT_NAME);
            partial.then(event.trace, Switches { first: (event.time, prev), last: (event.time, next) });
        }
    }

    fn merge(&self, mut earlier: Partial, later: Partial, _: &Threads) -> Partial {
        earlier.rows.add(later.rows, |row| row);
        earlier.labels.add(later.labels);
        later.switches.into_iter().for_each(|(trace, later)| earlier.then(trace, later));
        earlier
    }

    fn heading(&self) -> Option<Heading> {
        let mut columns = interval_columns().to_vec();
        columns.extend([Column::name("host"), Column::name("task")]);
        Some(Heading { name: "tasks", shape: Shape::Intervals, columns })
    }

    fn settle(&self, partial: &mut Partial, until: Nanos, _: &FinishContext<'_>, rows: &mut TableBuilder) {
        let settled = partial.rows.settle(until);
        partial.rows.settled += partial.add_rows(settled, rows);
    }

    fn finish(&self, partials: Vec<Partial>, _: &FinishContext<'_>) -> Table {
        let mut whole = only(partials);
        let rest = whole.rows.rest();
        let mut rows = self.heading().expect("its rows may leave").builder();
        let count = whole.rows.settled + whole.add_rows(rest, &mut rows);
        rows.finish(vec![("intervals", count.into()), ("left_out", whole.rows.left_out.into())])
    }
}
