//! `wakers --by wakeup`: each wake-up, with the thread that woke and the thread that was woken.

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, FinishContext, Heading, Interest, Item, Shape, Start, Table, TableBuilder, Unit, Value,
    kernel::{Kind, Thread, Threads, field::wakeup},
    only,
};

use serde::{Deserialize, Serialize};

use crate::settling::{SettlingRows, add_in_order};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct EachWakeup;

/// A wake-up without its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WakeupRow {
    /// The CPU of the waker.
    cpu: u32,
    waker: Thread,
    /// The tid of the woken thread.
    woken: u32,
}

impl Analysis for EachWakeup {
    type Partial = SettlingRows<WakeupRow>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[(Kind::SchedWakeup, &[wakeup::TID])])
    }

    fn begin(&self, _: &Start<'_>) -> Self::Partial {
        SettlingRows::default()
    }

    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        if let (Kind::SchedWakeup, Some(tid)) = (event.kind, event.integer(wakeup::TID)) {
            let row = WakeupRow { cpu: event.cpu, waker: event.thread, woken: tid as u32 };
            partial.see(event.time, row);
        }
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial {
        earlier.add(later, |row| WakeupRow { waker: threads.known(row.waker), ..row });
        earlier
    }

    fn heading(&self) -> Option<Heading> {
        let columns = vec![
            Column::integer("at_ns", Unit::Nanoseconds),
            Column::name("waker"),
            Column::integer("waker_tid", Unit::None),
            Column::integer("waker_pid", Unit::None).secondary(),
            Column::name("woken"),
            Column::integer("woken_tid", Unit::None),
            Column::integer("woken_pid", Unit::None).secondary(),
            Column::integer("cpu", Unit::None),
        ];
        Some(Heading { name: "wakers", shape: Shape::Points, columns })
    }

    fn settle(&self, partial: &mut Self::Partial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let settled = partial.settle(context.span.1);
        partial.settled += add_rows(settled, context, rows);
    }

    fn finish(&self, partials: Vec<Self::Partial>, context: &FinishContext<'_>) -> Table {
        let mut whole = only(partials);
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let count = whole.settled + add_rows(whole.rest(), context, &mut rows);
        let count = if context.wakeups.are_known() { count.into() } else { Value::Null };
        rows.finish(vec![("wakeups", count), ("left_out", whole.left_out.into())])
    }
}

/// Adds the wake-ups by the selected threads in order of time. Returns how many.
fn add_rows(wakeups: Vec<(Nanos, WakeupRow)>, context: &FinishContext<'_>, rows: &mut TableBuilder) -> u64 {
    let mut wanted = Vec::new();
    for (time, row) in wakeups {
        let waker = context.threads.settled(row.waker);
        if context.threads.wanted(waker, context.selection) && context.selection.wants_cpu(row.cpu) {
            wanted.push((time, WakeupRow { waker, ..row }));
        }
    }
    add_in_order(wanted, rows, |table, &(time, WakeupRow { cpu, waker, woken })| {
        let waker = context.threads.borrowed_cells(waker);
        let woken = context.threads.borrowed_cells(Thread::new(woken.into(), 0));
        let threads = waker.into_iter().chain(woken);
        table.row([time.0.into()].into_iter().chain(threads).chain([u64::from(cpu).into()]));
    })
}
