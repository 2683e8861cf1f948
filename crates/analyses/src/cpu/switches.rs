//! `cpu --by switch`: each switch of a CPU from one thread to another, and why the first one left.

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, FinishContext, Heading, Interest, Item, Shape, Start, Table, TableBuilder, Unit,
    kernel::{Kind, PrevState, Thread, Threads, field::switch},
    only,
};
use serde::{Deserialize, Serialize};

use crate::settling::{SettlingRows, add_in_order};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct EachSwitch;

/// A switch without its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SwitchRow {
    cpu: u32,
    previous: u32,
    /// The number of [`PrevState`].
    state: i64,
    next: u32,
    priority: Option<i64>,
}

impl Analysis for EachSwitch {
    type Partial = SettlingRows<SwitchRow>;

    fn interest(&self) -> Interest<'_> {
        const FIELDS: &[usize] = &[switch::PREV_TID, switch::PREV_STATE, switch::NEXT_TID, switch::NEXT_PRIO];
        Interest::events(&[(Kind::SchedSwitch, FIELDS)])
    }

    fn begin(&self, _: &Start<'_>) -> Self::Partial {
        SettlingRows::default()
    }

    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        if event.kind != Kind::SchedSwitch {
            return;
        }
        let (previous, next) = (event.integer(switch::PREV_TID), event.integer(switch::NEXT_TID));
        if let Some((previous, next)) = previous.zip(next) {
            let row = SwitchRow {
                cpu: event.cpu,
                previous: previous as u32,
                state: event.integer(switch::PREV_STATE).unwrap_or(-1),
                next: next as u32,
                priority: event.integer(switch::NEXT_PRIO),
            };
            partial.see(event.time, row);
        }
    }

    /// The rows are sorted at the end.
    fn is_commutative(&self) -> bool {
        true
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial, _: &Threads) -> Self::Partial {
        earlier.add(later, |row| row);
        earlier
    }

    fn heading(&self) -> Option<Heading> {
        let columns = vec![
            Column::integer("at_ns", Unit::Nanoseconds),
            Column::integer("cpu", Unit::None),
            Column::name("previous"),
            Column::integer("previous_tid", Unit::None),
            Column::integer("previous_pid", Unit::None).secondary(),
            Column::name("previous_state"),
            Column::name("next"),
            Column::integer("next_tid", Unit::None),
            Column::integer("next_pid", Unit::None).secondary(),
            Column::signed("next_priority", Unit::None),
        ];
        Some(Heading { name: "cpu", shape: Shape::Points, columns })
    }

    fn settle(&self, partial: &mut Self::Partial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let settled = partial.settle(context.span.1);
        partial.settled += add_rows(settled, context, rows);
    }

    fn finish(&self, partials: Vec<Self::Partial>, context: &FinishContext<'_>) -> Table {
        let mut whole = only(partials);
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let count = whole.settled + add_rows(whole.rest(), context, &mut rows);
        rows.finish(vec![("switches", count.into()), ("left_out", whole.left_out.into())])
    }
}

/// Adds the switches from or to the selected threads in order of time. Returns how many.
fn add_rows(switches: Vec<(Nanos, SwitchRow)>, context: &FinishContext<'_>, rows: &mut TableBuilder) -> u64 {
    let thread = |tid: u32, cpu: u32| Thread::new(tid.into(), cpu);
    let mut wanted = Vec::new();
    for (time, row) in switches {
        let mut both = [row.previous, row.next].into_iter();
        let is_wanted = both.any(|tid| context.threads.wanted(thread(tid, row.cpu), context.selection));
        if is_wanted && context.selection.wants_cpu(row.cpu) {
            wanted.push((time, row));
        }
    }
    add_in_order(wanted, rows, |table, &(time, SwitchRow { cpu, previous, state, next, priority })| {
        let [prev_comm, prev_tid, prev_pid] = context.threads.borrowed_cells(thread(previous, cpu));
        let [next_comm, next_tid, next_pid] = context.threads.borrowed_cells(thread(next, cpu));
        table.row([
            time.0.into(),
            u64::from(cpu).into(),
            prev_comm,
            prev_tid,
            prev_pid,
            PrevState::of(state).name().into(),
            next_comm,
            next_tid,
            next_pid,
            priority.into(),
        ]);
    })
}
