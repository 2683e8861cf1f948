//! `sched`: how long did threads wait for a CPU after their wake-up, and how often did they migrate, and were they
//! preempted?
//!
//! The latency of a wake-up lasts from the last `sched_wakeup` or `sched_wakeup_new` of a thread to the next
//! `sched_switch` to it. It counts for the CPU on which the thread then runs. If an event before that switch contains
//! the thread, it runs already, a switch is missing, and the latency is unknown. A switch is a preemption if the
//! previous thread is runnable: its state is 0 or has the kernel's preemption flag (256).

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, Interest, Item, Shape, Start, Table, Takes, Unit, Value,
    WithIntervals,
    kernel::{KernelEvent, Kind, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::{duration_cells, duration_columns, interval_columns, most_first},
    durations::{Add, Durations, Longest, add_all},
    pairs::Pairs,
    per_thread_sums::PerThreadSums,
    thread_states::{REPORTING, could_go_on},
};

/// The analysis; with `ALL`, of each wait.
#[derive(Clone, Copy, Debug)]
pub struct Scheduling<const ALL: bool>;

/// The report.
pub const SCHEDULING: WithIntervals<Scheduling<false>, Scheduling<true>> = WithIntervals {
    description: Description {
        name: "sched",
        help: "kernel events: how long woken threads waited for a CPU; preemptions and migrations",
        views: &["thread", "cpu", "slowest", "interval"],
        takes: Takes::THREADS_AND_CPUS,
        in_all: true,
    },
    analysis: Scheduling,
    intervals: Scheduling,
};

/// The events of a thread on a CPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Totals {
    latencies: Durations,
    switches: u64,
    preemptions: u64,
    migrations: u64,
}

impl Add for Totals {
    fn add(&mut self, later: Totals) {
        self.latencies.add(later.latencies);
        self.switches += later.switches;
        self.preemptions += later.preemptions;
        self.migrations += later.migrations;
    }
}

/// A switch to a thread.
type In = (Nanos, Thread, u32);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Sums<const ALL: bool> {
    figures: PerThreadSums<(), Totals>,
    longest: Longest<(Thread, u32), ALL>,
}

impl<const ALL: bool> Sums<ALL> {
    fn of(&mut self, thread: Thread, cpu: u32) -> &mut Totals {
        self.figures.of(thread, cpu, ())
    }

    fn woken(&mut self, begin: Nanos, (end, thread, cpu): In) {
        let length = end.0.saturating_sub(begin.0);
        self.of(thread, cpu).latencies.see(length);
        self.longest.see(length, begin, (thread, cpu));
    }
}

/// The sums and pending wake-ups after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Partial<const ALL: bool> {
    /// By tid.
    woken: Pairs<Nanos, In>,
    sums: Sums<ALL>,
}

impl<const ALL: bool> Partial<ALL> {
    fn switch(&mut self, event: &KernelEvent<'_>, prev: Thread, next: Thread) {
        let cpu = event.cpu;
        let state = event.integer(field::switch::PREV_STATE);
        if state.is_some_and(could_go_on) && !prev.is_idle() {
            self.sums.of(prev, cpu).preemptions += 1;
        }
        if let Some(tid) = prev.tid().filter(|&tid| tid != 0) {
            self.woken.forget(tid.into());
        }
        if let Some(tid) = next.tid().filter(|&tid| tid != 0) {
            self.sums.of(next, cpu).switches += 1;
            if let Some((begin, end)) = self.woken.end(tid.into(), (event.time, next, cpu)) {
                self.sums.woken(begin, end);
            }
        }
    }
}

impl<const ALL: bool> Analysis for Scheduling<ALL> {
    type Partial = Partial<ALL>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(
            const {
                &[
                    (
                        Kind::SchedSwitch,
                        &[field::switch::PREV_TID, field::switch::PREV_STATE, field::switch::NEXT_TID],
                    ),
                    (Kind::SchedWakeup, &[field::wakeup::TID]),
                    (Kind::SchedMigrate, &[field::migrate::TID]),
                ]
            },
        )
        .with_reporting(&REPORTING)
    }

    fn begin(&self, _: &Start<'_>) -> Partial<ALL> {
        Partial::default()
    }

    fn fold(&self, partial: &mut Partial<ALL>, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let tid = |field| event.integer(field).filter(|&tid| tid != 0);
        if let Some((prev, next)) = event.switch() {
            partial.switch(event, prev, next);
            return;
        }
        if let Some(runs) = event.reported().and_then(|thread| thread.tid()).filter(|&tid| tid != 0) {
            // If it still waited for a CPU, the switch to it is missing.
            partial.woken.forget(runs.into());
        }
        match event.kind {
            Kind::SchedWakeup => {
                let tid = tid(field::wakeup::TID);
                tid.into_iter().for_each(|tid| partial.woken.begin(u64::from(tid as u32), event.time));
            }
            Kind::SchedMigrate => {
                if let Some(tid) = tid(field::migrate::TID) {
                    partial.sums.of(Thread::new(tid, event.cpu), event.cpu).migrations += 1;
                }
            }
            _ => {}
        }
    }

    fn merge(&self, mut earlier: Partial<ALL>, later: Partial<ALL>, threads: &Threads) -> Partial<ALL> {
        let Partial { woken, sums } = &mut earlier;
        sums.figures.add(later.sums.figures, threads);
        sums.longest.add(later.sums.longest);
        woken.add(later.woken, |begin, end| sums.woken(begin, end));
        earlier
    }

    fn finish(&self, partials: Vec<Partial<ALL>>, of: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let Sums { figures, longest } = whole.sums;
        let sum = |field: fn(&Totals) -> u64| {
            Value::from(figures.wanted(of).map(|(.., totals)| field(totals)).sum::<u64>())
        };
        let mut summary = vec![
            ("wakeups", sum(|totals| totals.latencies.count)),
            ("switches", sum(|totals| totals.switches)),
            ("preemptions", sum(|totals| totals.preemptions)),
            ("migrations", sum(|totals| totals.migrations)),
        ];
        let (shape, (columns, rows)) = match of.selection.view.as_str() {
            "interval" => (Shape::Intervals, intervals(of.threads, &longest, of)),
            "slowest" => {
                summary.extend(longest.note());
                (Shape::Counters, slowest(of.threads, &longest, of))
            }
            "cpu" => (Shape::Counters, by_cpu(figures.wanted(of))),
            _ => (Shape::Counters, by_thread(of.threads, figures.wanted(of))),
        };
        Table::new("sched", shape, summary, columns, rows)
    }
}

fn columns(of: &[Column]) -> Vec<Column> {
    let mut columns = of.to_vec();
    let counts = ["wakeups", "switches", "preemptions", "migrations"];
    columns.push(Column::integer(counts[0], Unit::Count));
    let [total, more @ ..] = duration_columns();
    columns.extend([total.secondary()]);
    columns.extend(more);
    columns.push(Column::integer(counts[1], Unit::Count));
    columns.extend(counts[2..].iter().map(|name| Column::integer(name, Unit::Count).secondary()));
    columns
}

fn cells(figures: &Totals) -> Vec<Value> {
    let mut cells = vec![figures.latencies.count.into()];
    cells.extend(duration_cells(&figures.latencies));
    cells.extend([figures.switches.into(), figures.preemptions.into(), figures.migrations.into()]);
    cells
}

type Wanted<'f> = (Thread, u32, &'f (), &'f Totals);

fn by_thread<'f>(
    threads: &Threads,
    figures: impl Iterator<Item = Wanted<'f>>,
) -> (Vec<Column>, Vec<Vec<Value>>) {
    let mut sums: FxHashMap<Thread, Totals> = FxHashMap::default();
    add_all(&mut sums, figures.map(|(thread, .., figures)| (thread, figures.clone())));
    let row = |(thread, sum): (Thread, Totals)| {
        let row = threads.cells(thread).into_iter().chain(cells(&sum)).collect();
        (sum.latencies.total, thread, row)
    };
    let who = [
        Column::name("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None).secondary(),
    ];
    (columns(&who), most_first(sums.into_iter().map(row)))
}

fn by_cpu<'f>(figures: impl Iterator<Item = Wanted<'f>>) -> (Vec<Column>, Vec<Vec<Value>>) {
    let mut cpus: std::collections::BTreeMap<u32, Totals> = std::collections::BTreeMap::new();
    for (_, cpu, _, figures) in figures {
        cpus.entry(cpu).or_default().add(figures.clone());
    }
    let row =
        |(cpu, figures): (u32, Totals)| [u64::from(cpu).into()].into_iter().chain(cells(&figures)).collect();
    (columns(&[Column::integer("cpu", Unit::None)]), cpus.into_iter().map(row).collect())
}

fn intervals<const ALL: bool>(
    threads: &Threads,
    all: &Longest<(Thread, u32), ALL>,
    of: &FinishContext<'_>,
) -> (Vec<Column>, Vec<Vec<Value>>) {
    let mut columns = interval_columns().to_vec();
    columns.extend([
        Column::name("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None).secondary(),
        Column::integer("cpu", Unit::None),
    ]);
    let wanted = all
        .iter()
        .filter(|(.., (thread, cpu))| threads.wanted(*thread, of.selection) && of.selection.wants_cpu(*cpu));
    let row = |&(length, Nanos(begin), (thread, cpu)): &(u64, Nanos, (Thread, u32))| {
        let mut row: Vec<Value> = vec![begin.into(), length.into()];
        row.extend(threads.cells(thread));
        row.push(u64::from(cpu).into());
        row
    };
    (columns, wanted.map(row).collect())
}

fn slowest<const ALL: bool>(
    threads: &Threads,
    longest: &Longest<(Thread, u32), ALL>,
    of: &FinishContext<'_>,
) -> (Vec<Column>, Vec<Vec<Value>>) {
    let columns = vec![
        Column::name("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None),
        Column::integer("latency_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("cpu", Unit::None),
    ];
    let wanted = longest
        .iter()
        .filter(|(.., (thread, cpu))| threads.wanted(*thread, of.selection) && of.selection.wants_cpu(*cpu));
    let row = |&(length, Nanos(begin), (thread, cpu)): &(u64, Nanos, (Thread, u32))| {
        let mut row = threads.cells(thread).to_vec();
        row.extend([length.into(), begin.into(), u64::from(cpu).into()]);
        row
    };
    (columns, wanted.map(row).collect())
}
