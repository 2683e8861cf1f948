//! `cpu --by interval`: which thread ran on each CPU, from when to when?
//!
//! Idleness has no row. Where a switch is missing, the thread is unknown, and the row has no thread.

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, FinishContext, Heading, Interest, Item, Shape, Start, Table, TableBuilder, Unit,
    kernel::{Kind, Thread, Threads, field::switch},
    only,
    table::Cell,
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::{interval_columns, thread_columns},
    settling::SettlingRows,
};

use super::time_slices::{CpuSlice, TimeSlices};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct CpuIntervals;

/// A thread slice without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct SliceRow {
    cpu: u32,
    from: Nanos,
    thread: Option<Thread>,
}

impl SliceRow {
    fn of(&CpuSlice { cpu, thread, from, .. }: &CpuSlice) -> SliceRow {
        SliceRow { cpu, from, thread }
    }
}

/// Thread slices of each CPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SlicesOfCpus {
    slices: TimeSlices,
    rows: SettlingRows<SliceRow>,
    /// The slices before the first switch of each CPU are in `rows` already if they ended before this time.
    until: Nanos,
}

impl SlicesOfCpus {
    fn ran(&mut self, slice: &CpuSlice) {
        self.rows.see(slice.to, SliceRow::of(slice));
    }
}

impl Analysis for CpuIntervals {
    type Partial = SlicesOfCpus;

    fn interest(&self) -> Interest<'_> {
        Interest::events(const { &[(Kind::SchedSwitch, &[switch::PREV_TID, switch::NEXT_TID])] })
    }

    fn begin(&self, _: &Start<'_>) -> SlicesOfCpus {
        SlicesOfCpus::default()
    }

    fn fold(&self, partial: &mut SlicesOfCpus, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        if let Some(slice) = partial.slices.see(event) {
            partial.ran(&slice);
        }
    }

    fn merge(&self, mut earlier: SlicesOfCpus, later: SlicesOfCpus, _: &Threads) -> SlicesOfCpus {
        earlier.rows.add(later.rows, |row| row);
        earlier.slices.add(later.slices).iter().for_each(|slice| earlier.ran(slice));
        earlier
    }

    fn heading(&self) -> Option<Heading> {
        let mut columns = interval_columns().to_vec();
        columns.push(Column::integer("cpu", Unit::None));
        columns.extend(thread_columns());
        Some(Heading { name: "cpu", shape: Shape::Intervals, columns })
    }

    fn settle(&self, partial: &mut SlicesOfCpus, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let from = std::mem::replace(&mut partial.until, context.span.1);
        let before = partial.slices.before_first(context.span.0, context.threads);
        let before = before.filter(|slice| (from..context.span.1).contains(&slice.to));
        let mut settled = partial.rows.settle(context.span.1);
        settled.extend(before.map(|slice| (slice.to, SliceRow::of(&slice))));
        partial.rows.settled += add_rows(settled, context, rows);
    }

    fn finish(&self, partials: Vec<SlicesOfCpus>, context: &FinishContext<'_>) -> Table {
        let mut whole = only(partials);
        let mut rest = whole.rows.rest();
        let before = whole
            .slices
            .before_first(context.span.0, context.threads)
            .filter(|slice| slice.to >= whole.until);
        let ends = before.chain(whole.slices.after_last(context.span.1));
        rest.extend(ends.map(|slice| (slice.to, SliceRow::of(&slice))));
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let count = whole.rows.settled + add_rows(rest, context, &mut rows);
        rows.finish(vec![("intervals", count.into()), ("left_out", whole.rows.left_out.into())])
    }
}

/// Adds the selected intervals by end. Returns how many.
fn add_rows(intervals: Vec<(Nanos, SliceRow)>, context: &FinishContext<'_>, rows: &mut TableBuilder) -> u64 {
    let mut wanted = Vec::new();
    for (to, row) in intervals {
        let thread = row.thread.map(|thread| context.threads.settled(thread));
        // The thread is unknown if a switch is missing: then no selection of threads includes the interval.
        let of_thread = match thread {
            Some(thread) => !thread.is_idle() && context.threads.wanted(thread, context.selection),
            None => context.selection.is_of_any_thread(),
        };
        if of_thread && context.selection.wants_cpu(row.cpu) {
            wanted.push((to, SliceRow { thread, ..row }));
        }
    }
    crate::settling::add_in_order(wanted, rows, |table, &(to, SliceRow { cpu, from, thread })| {
        let duration = to.0.saturating_sub(from.0);
        let [comm, tid, pid] =
            thread.map_or([Cell::Null; 3], |thread| context.threads.borrowed_cells(thread));
        table.row([from.0.into(), duration.into(), u64::from(cpu).into(), comm, tid, pid]);
    })
}
