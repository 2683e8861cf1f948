//! `syscalls --by interval`: each call, from its begin to its end.

use hodo_clock::Nanos;
use hodo_model::{Column, EventAnalysis, FinishContext, Heading, Shape, Table, TableBuilder, Unit};

use crate::{
    columns::{interval_columns, thread_columns},
    pairs::Unpaired,
    settling::SettlingRows,
    system_calls::{CallsPartial, EndedCall},
};

use super::called;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct SyscallIntervals;

impl EventAnalysis for SyscallIntervals {
    type Partial = CallsPartial<SettlingRows<EndedCall>>;

    fn heading(&self) -> Option<Heading> {
        let mut columns = interval_columns().to_vec();
        columns.extend(thread_columns());
        columns.extend([
            Column::name("call"),
            Column::signed("result", Unit::None),
            Column::integer("cpu", Unit::None).secondary(),
        ]);
        Some(Heading { name: "syscalls", shape: Shape::Intervals, columns })
    }

    fn settle(&self, partial: &mut Self::Partial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let calls = partial.complete_mut();
        calls.settled += add_rows(calls.settle(context.span.1), context, rows);
    }

    fn finish(&self, mut whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let calls = whole.complete_mut();
        let count = calls.settled + add_rows(calls.rest(), context, &mut rows);
        let left_out = calls.left_out;
        let Unpaired { unmatched, unfinished } = whole.left();
        rows.finish(vec![
            ("calls", count.into()),
            ("unmatched", unmatched.into()),
            ("unfinished", unfinished.into()),
            ("left_out", left_out.into()),
        ])
    }
}

/// Adds the selected calls by end. Returns how many.
fn add_rows(calls: Vec<(Nanos, EndedCall)>, context: &FinishContext<'_>, rows: &mut TableBuilder) -> u64 {
    let mut wanted = Vec::new();
    for (end, call) in calls {
        let call = call.known(|thread| context.threads.settled(thread));
        if context.threads.wanted(call.thread, context.selection) && context.selection.wants_cpu(call.cpu) {
            wanted.push((end, call));
        }
    }
    crate::settling::add_in_order(
        wanted,
        rows,
        |table, &(end, EndedCall { cpu, thread, begin, name, result })| {
            let (duration, call) = (end.0.saturating_sub(begin.0), called(context.names, name));
            let [comm, tid, pid] = context.threads.borrowed_cells(thread);
            table.row([
                begin.0.into(),
                duration.into(),
                comm,
                tid,
                pid,
                call.into(),
                result.into(),
                u64::from(cpu).into(),
            ]);
        },
    )
}
