//! `sched`: how long did threads wait for a CPU, after their wake-up and after a preemption, and how often did they
//! migrate?
//!
//! A wait lasts from the first `sched_wakeup` or `sched_wakeup_new` of a thread that does not wait yet, or from a
//! `sched_switch` away from it while it could go on, to the next `sched_switch` to it. It counts for the CPU on which the
//! thread then runs. If an event before that switch contains the thread, it runs already, a switch is missing, and the
//! wait is unknown. A switch is a preemption if the previous thread is runnable, even if it yielded.

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Report, Role, Shape, Start,
    Table, Takes, Unit, Value,
    kernel::{KernelEvent, Kind, PrevState, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, duration_cells, duration_columns, interval_columns, most_first, thread_columns},
    durations::{Add, Durations, LongItem, Longest, add_all, add_fields},
    pairs::Requests,
    per_thread_sums::{PerThreadSums, SumKey},
    thread_states::REPORTING,
};

/// The analysis; `ALL`: it keeps each wait, not only the longest.
#[derive(Clone, Copy, Debug)]
pub struct Scheduling<const ALL: bool>;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "sched",
            roles: &[Role::Latencies],
            help: "kernel events: how long threads waited for a CPU, after wake-ups and preemptions; migrations",
            views: &["thread", "cpu", "slowest", "interval"],
            takes: Takes::THREADS_AND_CPUS,
            in_all: true,
            ..Description::EMPTY
        },
        make: |parameters| match parameters.view() {
            "interval" => Made::of_events(Scheduling::<true>),
            _ => Made::of_events(Scheduling::<false>),
        },
    }
}

/// The events of a thread on a CPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SchedulingCounts {
    /// Waits after wake-ups.
    latencies: Durations,
    /// The number of waits after preemptions.
    preempted_waits: u64,
    /// Their sum in nanoseconds.
    preempted_time: u64,
    switches: u64,
    preemptions: u64,
    migrations: u64,
}

add_fields!(SchedulingCounts {
    latencies,
    preempted_waits,
    preempted_time,
    switches,
    preemptions,
    migrations
});

impl SchedulingCounts {
    /// The time of all waits.
    fn queued(&self) -> u64 {
        self.latencies.total.saturating_add(self.preempted_time)
    }

    /// The number of all waits.
    fn waits(&self) -> u64 {
        self.latencies.count + self.preempted_waits
    }
}

/// What a wait follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum WaitAfter {
    Wakeup,
    Preemption,
}

impl WaitAfter {
    fn name(self) -> &'static str {
        match self {
            WaitAfter::Wakeup => "wakeup",
            WaitAfter::Preemption => "preemption",
        }
    }
}

/// A switch to a thread.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SwitchIn {
    time: Nanos,
    thread: Thread,
    cpu: u32,
}

/// A wait that ended with a switch to the thread on this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Wait {
    thread: Thread,
    cpu: u32,
    after: WaitAfter,
}

impl Wait {
    fn is_wanted(self, context: &FinishContext<'_>) -> bool {
        context.threads.wanted(self.thread, context.selection) && context.selection.wants_cpu(self.cpu)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SchedulingSums<const ALL: bool> {
    figures: PerThreadSums<(), SchedulingCounts>,
    longest: Longest<Wait, ALL>,
}

impl<const ALL: bool> SchedulingSums<ALL> {
    fn of(&mut self, thread: Thread, cpu: u32) -> &mut SchedulingCounts {
        self.figures.of(thread, cpu, ())
    }

    /// Adds a wait that ended with a switch to the thread; its end is unknown if there was none.
    fn waited(&mut self, (begin, after): (Nanos, WaitAfter), end: Option<SwitchIn>) {
        let Some(SwitchIn { time, thread, cpu }) = end else { return };
        let length = time.0.saturating_sub(begin.0);
        let totals = self.of(thread, cpu);
        match after {
            WaitAfter::Wakeup => totals.latencies.see(length),
            WaitAfter::Preemption => {
                totals.preempted_waits += 1;
                totals.preempted_time = totals.preempted_time.saturating_add(length);
            }
        }
        self.longest.see(length, begin, Wait { thread, cpu, after });
    }
}

/// The sums and pending waits after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SchedulingPartial<const ALL: bool> {
    /// By tid. A wait ends with a switch to the thread, or at an unknown time, if the thread is known not to wait.
    waits: Requests<(Nanos, WaitAfter), Option<SwitchIn>>,
    sums: SchedulingSums<ALL>,
}

impl<const ALL: bool> SchedulingPartial<ALL> {
    /// Ends the wait of a thread: with a switch to it, or with `None` at an unknown time.
    fn ends(&mut self, tid: u32, end: Option<SwitchIn>) {
        if let Some((begin, end)) = self.waits.begin(tid.into(), end) {
            self.sums.waited(begin, end);
        }
    }

    fn switch(&mut self, event: &KernelEvent<'_>, prev: Thread, next: Thread) {
        let cpu = event.cpu;
        if let Some(tid) = prev.tid().filter(|&tid| tid != 0) {
            self.ends(tid, None);
            if event.prev_state() == PrevState::Runnable {
                self.sums.of(prev, cpu).preemptions += 1;
                self.waits.ask(tid.into(), (event.time, WaitAfter::Preemption));
            }
        }
        if let Some(tid) = next.tid().filter(|&tid| tid != 0) {
            self.sums.of(next, cpu).switches += 1;
            self.ends(tid, Some(SwitchIn { time: event.time, thread: next, cpu }));
        }
    }
}

impl<const ALL: bool> Analysis for Scheduling<ALL> {
    type Partial = SchedulingPartial<ALL>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[
            (
                Kind::SchedSwitch,
                &[field::switch::PREV_TID, field::switch::PREV_STATE, field::switch::NEXT_TID],
            ),
            (Kind::SchedWakeup, &[field::wakeup::TID]),
            (Kind::SchedMigrate, &[field::migrate::TID]),
        ])
        .with_reporting(&REPORTING)
    }

    fn begin(&self, _: &Start<'_>) -> SchedulingPartial<ALL> {
        SchedulingPartial::default()
    }

    fn fold(&self, partial: &mut SchedulingPartial<ALL>, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let tid = |field| event.integer(field).filter(|&tid| tid != 0);
        if let Some((prev, next)) = event.switch() {
            partial.switch(event, prev, next);
            return;
        }
        if let Some(runs) = event.reported().and_then(|thread| thread.tid()).filter(|&tid| tid != 0) {
            // If it still waited for a CPU, the switch to it is missing.
            partial.ends(runs, None);
        }
        match event.kind {
            Kind::SchedWakeup => {
                let tid = tid(field::wakeup::TID);
                let begin = (event.time, WaitAfter::Wakeup);
                tid.into_iter().for_each(|tid| partial.waits.ask(u64::from(tid as u32), begin));
            }
            Kind::SchedMigrate => {
                if let Some(tid) = tid(field::migrate::TID) {
                    partial.sums.of(Thread::new(tid, event.cpu), event.cpu).migrations += 1;
                }
            }
            _ => {}
        }
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial {
        let SchedulingPartial { waits, sums } = &mut earlier;
        sums.figures.add(later.sums.figures, threads);
        sums.longest.add(later.sums.longest);
        waits.add(later.waits, |begin, end| sums.waited(begin, end));
        earlier
    }

    fn finish(&self, partials: Vec<SchedulingPartial<ALL>>, context: &FinishContext<'_>) -> Table {
        let SchedulingPartial { waits, mut sums } = only(partials);
        waits.finish(|begin, end| sums.waited(begin, end));
        let SchedulingSums { figures, longest } = sums;
        let sum = |field: fn(&SchedulingCounts) -> u64| {
            Value::from(figures.wanted(context).map(|(_, totals)| field(totals)).sum::<u64>())
        };
        let are_known = context.wakeups.are_known();
        let known = |value: Value| if are_known { value } else { Value::Null };
        let mut summary = vec![
            ("waits", known(sum(SchedulingCounts::waits))),
            ("queued_ns", known(sum(SchedulingCounts::queued))),
            ("preempted_ns", sum(|totals| totals.preempted_time)),
            ("wakeups", known(sum(|totals| totals.latencies.count))),
            ("switches", sum(|totals| totals.switches)),
            ("preemptions", sum(|totals| totals.preemptions)),
            ("migrations", sum(|totals| totals.migrations)),
        ];
        let (shape, (columns, rows)) = match context.selection.view.as_str() {
            "interval" => (Shape::Intervals, intervals(&longest, context)),
            "slowest" => {
                summary.extend(longest.note());
                (Shape::Counters, slowest(&longest, context))
            }
            "cpu" => (Shape::Counters, by_cpu(figures.wanted(context), are_known)),
            _ => (Shape::Counters, by_thread(context.threads, figures.wanted(context), are_known)),
        };
        Table::new("sched", shape, summary, columns, rows)
    }
}

/// The columns of a table whose rows these columns identify.
fn columns(keys: &[Column]) -> Vec<Column> {
    let mut columns = keys.to_vec();
    // The first count must be that of the durations: `hodo diff` finds it by its position.
    columns.push(Column::integer("wakeups", Unit::Count));
    let [total, more @ ..] = duration_columns();
    columns.extend([total.secondary()]);
    columns.extend(more);
    columns.push(Column::integer("waits", Unit::Count).secondary());
    columns.extend(["queued_ns", "preempted_ns"].map(|name| Column::integer(name, Unit::Nanoseconds)));
    columns.push(Column::integer("switches", Unit::Count));
    columns.extend(["preemptions", "migrations"].map(|name| Column::integer(name, Unit::Count).secondary()));
    columns
}

/// The cells of a row. Those that need wake-ups are null if the trace has none.
fn cells(figures: &SchedulingCounts, are_known: bool) -> Vec<Value> {
    let known = |value: Value| if are_known { value } else { Value::Null };
    let mut cells = vec![known(figures.latencies.count.into())];
    cells.extend(duration_cells(&figures.latencies).map(known));
    cells.extend([known(figures.waits().into()), known(figures.queued().into())]);
    cells.push(figures.preempted_time.into());
    cells.extend([figures.switches.into(), figures.preemptions.into(), figures.migrations.into()]);
    cells
}

type SchedulingRow<'f> = (SumKey<&'f ()>, &'f SchedulingCounts);

fn by_thread<'f>(
    threads: &Threads,
    figures: impl Iterator<Item = SchedulingRow<'f>>,
    are_known: bool,
) -> TableRows {
    let mut sums: FxHashMap<Thread, SchedulingCounts> = FxHashMap::default();
    add_all(&mut sums, figures.map(|(key, figures)| (key.thread, figures.clone())));
    let rows = sums.into_iter().map(|(thread, sum)| {
        let row = threads.cells(thread).into_iter().chain(cells(&sum, are_known)).collect();
        ((sum.queued(), thread), row)
    });
    (columns(&thread_columns()), most_first(rows))
}

fn by_cpu<'f>(figures: impl Iterator<Item = SchedulingRow<'f>>, are_known: bool) -> TableRows {
    let mut cpus: std::collections::BTreeMap<u32, SchedulingCounts> = std::collections::BTreeMap::new();
    for (key, figures) in figures {
        cpus.entry(key.cpu).or_default().add(figures.clone());
    }
    let mut rows = Vec::new();
    for (cpu, figures) in cpus {
        rows.push([u64::from(cpu).into()].into_iter().chain(cells(&figures, are_known)).collect());
    }
    (columns(&[Column::integer("cpu", Unit::None)]), rows)
}

fn intervals<const ALL: bool>(all: &Longest<Wait, ALL>, context: &FinishContext<'_>) -> TableRows {
    let mut columns = interval_columns().to_vec();
    columns.extend(thread_columns());
    columns.extend([Column::integer("cpu", Unit::None), Column::name("after")]);
    let mut rows = Vec::new();
    for LongItem { length, begin, item } in all.iter().filter(|long| long.item.is_wanted(context)) {
        let mut row: Vec<Value> = vec![begin.0.into(), (*length).into()];
        row.extend(context.threads.cells(item.thread));
        row.extend([u64::from(item.cpu).into(), item.after.name().into()]);
        rows.push(row);
    }
    (columns, rows)
}

fn slowest<const ALL: bool>(longest: &Longest<Wait, ALL>, context: &FinishContext<'_>) -> TableRows {
    let columns = vec![
        Column::name("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None),
        Column::integer("latency_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("cpu", Unit::None),
        Column::name("after"),
    ];
    let wanted = longest.iter().filter(|long| long.item.is_wanted(context));
    let rows = wanted.map(|LongItem { length, begin, item }| {
        let mut row = context.threads.cells(item.thread).to_vec();
        row.extend([(*length).into(), begin.0.into(), u64::from(item.cpu).into(), item.after.name().into()]);
        row
    });
    (columns, rows.collect())
}
