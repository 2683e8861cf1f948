//! `cpu`: how long did each thread run, and how busy was each CPU?
//!
//! A thread runs on a CPU from the `sched_switch` that names it as next to the following switch there. Before the first
//! switch on a CPU, its previous thread runs; after the last switch, its next thread runs to the end of the trace.
//! Thread 0 is the idle thread. Interrupts count to the thread that they interrupt. A switch is missing if two successive
//! switches on a CPU do not name the same thread as next and previous: the thread between them is unknown. The thread before
//! the first switch on a CPU is unknown, too, if an earlier switch on another CPU names it.

mod intervals;
mod over_time;
mod switches;
mod time_slices;

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, LaneValue, Lanes, Made, Report,
    Role, Shape, Start, Table, Takes, Unit, Value,
    kernel::{Kind, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, most_first, share},
    durations::Add,
    per_thread_sums::{PerThreadSums, SumKey},
};

use time_slices::{CpuSlice, Missing, TimeSlices};

pub use intervals::CpuIntervals;
pub use over_time::CpuOverTime;
pub use switches::EachSwitch;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct CpuUse;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "cpu",
            help: "kernel events: how long each thread ran, how busy each CPU was",
            views: &["thread", "process", "cpu", "time", "interval", "switch"],
            takes: Takes::THREADS_AND_CPUS,
            in_all: true,
            roles: &[Role::Switches],
            lanes: Some(Lanes {
                view: "interval",
                title: "running threads",
                lane: &["cpu"],
                value: LaneValue::Column("comm"),
                path: &["CPUs", "CPU {cpu}"],
            }),
        },
        make: |parameters| match parameters.view() {
            "time" => Made::of_events(CpuOverTime),
            "interval" => Made::of_events(CpuIntervals),
            "switch" => Made::of_events(EachSwitch),
            _ => Made::of_events(CpuUse),
        },
    }
}

/// The running time of a thread on a CPU.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct ThreadUse {
    time: u64,
    /// Number of switches to it.
    switches: u64,
    /// Time of the last switch to it, and its priority then.
    priority: Option<(Nanos, i64)>,
}

impl Add for ThreadUse {
    fn add(&mut self, later: ThreadUse) {
        self.time += later.time;
        self.switches += later.switches;
        // The sums of a thread on several CPUs are added in no order of time, so the times decide.
        let is_later = later.priority.map(|(time, _)| time) >= self.priority.map(|(time, _)| time);
        self.priority = if is_later { later.priority } else { self.priority };
    }
}

/// CPU use by thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UseByThread {
    used: PerThreadSums<(), ThreadUse>,
    slices: TimeSlices,
}

impl UseByThread {
    fn ran(&mut self, slice: &CpuSlice) {
        if let Some(thread) = slice.thread {
            self.used.of(thread, slice.cpu, ()).time += slice.length();
        }
    }
}

/// The running time of the selected threads on a CPU, and its idle time.
type UsesOfCpu = FxHashMap<Thread, ThreadUse>;

impl Analysis for CpuUse {
    type Partial = UseByThread;

    fn interest(&self) -> Interest<'_> {
        use field::switch::{NEXT_PRIO, NEXT_TID, PREV_TID};
        Interest::events(const { &[(Kind::SchedSwitch, &[PREV_TID, NEXT_TID, NEXT_PRIO])] })
    }

    fn begin(&self, _: &Start<'_>) -> UseByThread {
        UseByThread::default()
    }

    fn fold(&self, partial: &mut UseByThread, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let Some((_, next)) = event.switch() else { return };
        if let Some(slice) = partial.slices.see(event) {
            partial.ran(&slice);
        }
        let used = partial.used.of(next, event.cpu, ());
        used.switches += 1;
        let priority = event.integer(field::switch::NEXT_PRIO).map(|priority| (event.time, priority));
        used.priority = priority.or(used.priority);
    }

    fn merge(&self, mut earlier: UseByThread, later: UseByThread, threads: &Threads) -> UseByThread {
        earlier.used.add(later.used, threads);
        earlier.slices.add(later.slices).iter().for_each(|slice| earlier.ran(slice));
        earlier
    }

    fn finish(&self, partials: Vec<UseByThread>, context: &FinishContext<'_>) -> Table {
        let mut whole = only(partials);
        let FinishContext { span, threads, .. } = *context;
        let ends: Vec<CpuSlice> = whole.slices.ends(span, threads).collect();
        ends.iter().for_each(|slice| whole.ran(slice));
        let mut cpus: BTreeMap<u32, UsesOfCpu> = BTreeMap::new();
        for (SumKey { thread, cpu, .. }, used) in whole.used.settled(threads) {
            if !context.selection.wants_cpu(cpu) {
                continue;
            }
            let uses = cpus.entry(cpu).or_default();
            if thread.is_idle() || threads.wanted(thread, context.selection) {
                uses.entry(thread).or_default().add(*used);
            }
        }
        let missing = whole
            .slices
            .missing(span.0, threads)
            .filter(|(cpu, _)| context.selection.wants_cpu(*cpu))
            .collect();
        table(threads, cpus, &missing, span.1.0.saturating_sub(span.0.0), &context.selection.view)
    }
}

fn table(
    threads: &Threads,
    cpus: BTreeMap<u32, UsesOfCpu>,
    missing: &FxHashMap<u32, Missing>,
    length: u64,
    view: &str,
) -> Table {
    let total: u64 = cpus.values().map(busy).sum();
    let whole = length.saturating_mul(cpus.len() as u64);
    let switches: u64 = cpus.values().flat_map(UsesOfCpu::values).map(|used| used.switches).sum();
    let mut summary = vec![
        ("cpus", (cpus.len() as u64).into()),
        ("duration_ns", length.into()),
        ("busy_ns", total.into()),
        ("busy_share", share(total, whole)),
        ("switches", switches.into()),
    ];
    summary.extend(missing_of(missing.values()));
    let (columns, rows) = match view {
        "cpu" => by_cpu(&cpus, missing, length),
        view => by_thread(threads, cpus, length, view == "process"),
    };
    Table::new("cpu", Shape::Counters, summary, columns, rows)
}

/// Returns the time in which threads other than the idle one ran.
fn busy(uses: &UsesOfCpu) -> u64 {
    uses.iter().filter(|(thread, _)| !thread.is_idle()).map(|(_, used)| used.time).sum()
}

fn by_cpu(cpus: &BTreeMap<u32, UsesOfCpu>, missing: &FxHashMap<u32, Missing>, length: u64) -> TableRows {
    let columns = vec![
        Column::integer("cpu", Unit::None),
        Column::integer("busy_ns", Unit::Nanoseconds),
        Column::real("busy_share", Unit::Share),
        Column::integer("idle_ns", Unit::Nanoseconds),
        Column::integer("unknown_ns", Unit::Nanoseconds),
        Column::integer("switches", Unit::Count),
    ];
    let mut rows = Vec::new();
    for (cpu, uses) in cpus {
        let (busy, all) = (busy(uses), uses.values().map(|used| used.time).sum::<u64>());
        let unknown = missing.get(cpu).map_or(0, |missing| missing.time);
        let switches: u64 = uses.values().map(|used| used.switches).sum();
        rows.push(vec![
            u64::from(*cpu).into(),
            busy.into(),
            share(busy, length),
            (all - busy).into(),
            unknown.into(),
            switches.into(),
        ]);
    }
    (columns, rows)
}

/// Returns the summary cells for missing switches.
fn missing_of<'m>(cpus: impl Iterator<Item = &'m Missing>) -> [(&'static str, Value); 2] {
    let mut sum = Missing::default();
    cpus.for_each(|missing| sum.add(*missing));
    [("switches_missing", sum.switches.into()), ("unknown_ns", sum.time.into())]
}

fn by_thread(threads: &Threads, cpus: BTreeMap<u32, UsesOfCpu>, length: u64, processes: bool) -> TableRows {
    let mut sums: FxHashMap<Thread, (ThreadUse, u64)> = FxHashMap::default();
    for (thread, used) in cpus.into_values().flatten().filter(|(thread, _)| !thread.is_idle()) {
        // If the process is unknown, the thread stands for it.
        let pid = threads.pid(thread).filter(|_| processes);
        let (sum, cpus) = sums.entry(pid.map_or(thread, |pid| Thread::new(pid.into(), 0))).or_default();
        sum.add(used);
        *cpus += 1;
    }
    let mut columns = vec![
        Column::name("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None),
        Column::integer("time_ns", Unit::Nanoseconds),
        Column::real("share", Unit::Share),
        Column::integer("switches", Unit::Count),
        Column::signed("priority", Unit::None).secondary(),
        Column::integer("cpus", Unit::Count).secondary(),
    ];
    let row = |(thread, (used, cpus)): (Thread, (ThreadUse, u64))| {
        let mut row = threads.cells(thread).to_vec();
        let priority = used.priority.map(|(_, priority)| priority).into();
        row.extend([used.time.into(), share(used.time, length), used.switches.into(), priority, cpus.into()]);
        ((used.time, thread), row)
    };
    let mut rows = most_first(sums.into_iter().map(row));
    if processes {
        // A process is not one thread, and has no priority or number of CPUs of its own.
        for name in ["tid", "priority", "cpus"] {
            let index = columns
                .iter()
                .position(|column| column.name == name)
                .expect("it is one of the columns above");
            columns.remove(index);
            rows.iter_mut().for_each(|row| drop(row.remove(index)));
        }
    }
    (columns, rows)
}
