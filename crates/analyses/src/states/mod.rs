//! `states`: how long did each thread run, wait for a CPU, and wait for something else?
//!
//! A thread is runnable from its wake-up, or from a switch away from it while it could continue, to the switch to it.
//! After any other switch away from it, it is blocked until its wake-up, in its open system call if it has one. The
//! last state of a thread lasts to the end of the trace. A thread has no state before the first event that names it,
//! except for the thread that runs before the first switch on a CPU. The running times are those of `cpu`, the runnable
//! ones those of `queue`. Where switches are missing, the state is unknown until the next one.

use std::fmt::Debug;

use hodo_clock::Nanos;
use hodo_model::{
    Column, Description, EventAnalysis, FinishContext, FlowLoop, Heading, Interest, LaneValue, Lanes, Made,
    Report, Shape, Summary, Table, TableBuilder, Takes, Unit, Value,
    kernel::{Kind, Thread, Threads},
};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    columns::{TableRows, duration_cells, duration_columns, interval_columns, most_first, thread_columns},
    durations::{Add, Durations},
    settling::{SettlingRows, add_in_order},
    thread_states::{self, Activity, Observer, ThreadStatesDelta, WaitKind},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct States;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "states",
            help: "kernel events: how long threads ran, waited for a CPU, and waited in which system call",
            views: &["thread", "wait", "interval"],
            takes: Takes::THREADS_AND_CPUS,
            in_all: true,
            roles: &[],
            lanes: Some(Lanes {
                view: "interval",
                title: "states of threads",
                lane: &["pid", "tid", "comm"],
                value: LaneValue::Column("state"),
                path: &Lanes::THREAD,
            }),
        },
        make: |parameters| match parameters.view() {
            "interval" => Made::of_events(StateIntervals),
            "wait" => Made::of_events(Waits),
            _ => Made::of_events(States),
        },
    }
}

/// The analysis of waits, like [`States`] but with the distribution of their durations, which takes more time and memory.
#[derive(Clone, Copy, Debug)]
pub struct Waits;

/// The intervals of states in order.
#[derive(Clone, Copy, Debug)]
pub struct StateIntervals;

/// What is known about the intervals of a state.
pub trait Lengths: Clone + Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Adds an interval.
    fn see(&mut self, length: u64);

    /// The sum of their durations.
    fn total(&self) -> u64;
}

impl Lengths for Durations {
    #[inline]
    fn see(&mut self, length: u64) {
        self.see(length);
    }

    fn total(&self) -> u64 {
        self.total
    }
}

/// Only the sum.
impl Lengths for u64 {
    #[inline]
    fn see(&mut self, length: u64) {
        *self = self.saturating_add(length);
    }

    fn total(&self) -> u64 {
        *self
    }
}

/// Time in states, by thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct StateTimes<L: Lengths> {
    states: IndexMap<(u32, Activity), L, FxBuildHasher>,
    /// Threads that ran on a CPU at the begin of the trace, and the time until which they ran.
    first: Vec<(StateInterval, Nanos)>,
    /// For how long each thread existed since the first event that names it.
    lived: FxHashMap<u32, u64>,
    /// Threads that ran since before the trace, and the time until which they existed.
    older: Vec<(u32, Nanos)>,
}

impl<L: Lengths> Observer for StateTimes<L> {
    fn change(&mut self, tid: u32, before: Option<(Nanos, Activity)>, _: Option<Activity>, time: Nanos) {
        if let Some((since, state)) = before {
            self.see(tid, state, since, time);
        }
    }

    fn ran(&mut self, tid: u32, cpu: u32, since: Option<Nanos>, until: Nanos) {
        let state = Activity::Running(cpu);
        match since {
            Some(since) => self.see(tid, state, since, until),
            None => self.first.push((StateInterval { tid, begin: None, state }, until)),
        }
    }

    fn lived(&mut self, tid: u32, from: Option<Nanos>, until: Nanos) {
        match from {
            Some(from) => *self.lived.entry(tid).or_default() += until.0.saturating_sub(from.0),
            None => self.older.push((tid, until)),
        }
    }
}

impl<L: Lengths> StateTimes<L> {
    fn see(&mut self, tid: u32, state: Activity, from: Nanos, to: Nanos) {
        self.states.entry((tid, state)).or_default().see(to.0.saturating_sub(from.0));
    }

    /// For how long the state of each thread is unknown.
    fn unknown(&self) -> FxHashMap<u32, u64> {
        let mut unknown = self.lived.clone();
        for ((tid, _), lengths) in &self.states {
            let left = unknown.entry(*tid).or_default();
            *left = left.saturating_sub(lengths.total());
        }
        unknown
    }

    /// Ends the trace. Returns the selected times, and the totals of each thread by column.
    fn finish(mut self, context: &FinishContext<'_>) -> (StateTimes<L>, StateSums) {
        let (begin, _) = context.span;
        for (StateInterval { tid, state, .. }, until) in std::mem::take(&mut self.first) {
            self.see(tid, state, begin, until);
        }
        for (tid, until) in std::mem::take(&mut self.older) {
            self.lived(tid, Some(begin), until);
        }
        let unknown = self.unknown();
        self.states.retain(|&(tid, state), _| state.is_wanted(tid, context));
        let mut sums = StateSums::default();
        for (&(tid, state), lengths) in &self.states {
            sums.entry(tid).or_default()[column(state)] += lengths.total();
        }
        for (tid, sums) in &mut sums {
            sums[UNKNOWN] = unknown.get(tid).copied().unwrap_or(0);
            sums[LIFETIME] = self.lived.get(tid).copied().unwrap_or(0);
        }
        (self, sums)
    }
}

/// An interval without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StateInterval {
    tid: u32,
    /// `None` if it lies before the trace.
    begin: Option<Nanos>,
    state: Activity,
}

type StateIntervalRows = SettlingRows<StateInterval>;

impl Observer for StateIntervalRows {
    fn change(&mut self, tid: u32, before: Option<(Nanos, Activity)>, _: Option<Activity>, time: Nanos) {
        if let Some((since, state)) = before {
            self.see(time, StateInterval { tid, begin: Some(since), state });
        }
    }

    fn ran(&mut self, tid: u32, cpu: u32, since: Option<Nanos>, until: Nanos) {
        self.see(until, StateInterval { tid, begin: since, state: Activity::Running(cpu) });
    }
}

const INTEREST: [(Kind, &[usize]); 6] = {
    let [states, wakeup, migrate] = thread_states::INTEREST;
    [states, wakeup, migrate, (Kind::SyscallEntry, &[]), (Kind::SyscallExit, &[]), (Kind::Syscall, &[])]
};

impl EventAnalysis for States {
    type Partial = ThreadStatesDelta<StateTimes<u64>>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&INTEREST)
    }

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let (_, sums) = whole.finish(context.span.1).finish(context);
        table(summary(&sums), by_thread(context.threads, sums))
    }
}

impl EventAnalysis for Waits {
    type Partial = ThreadStatesDelta<StateTimes<Durations>>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&INTEREST)
    }

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let (times, sums) = whole.finish(context.span.1).finish(context);
        table(summary(&sums), by_wait(context.threads, times, context.names))
    }
}

/// The totals of each thread by column.
type StateSums = FxHashMap<u32, [u64; TIME_COLUMNS.len()]>;

fn summary(sums: &StateSums) -> Summary {
    let mut summary = vec![("threads", (sums.len() as u64).into())];
    for (index, name) in TIME_COLUMNS.into_iter().enumerate() {
        summary.push((name, sums.values().map(|sums| sums[index]).sum::<u64>().into()));
    }
    summary
}

fn table(summary: Summary, (columns, rows): TableRows) -> Table {
    Table::new("states", Shape::Counters, summary, columns, rows)
}

/// The columns of time in states.
const TIME_COLUMNS: [&str; 7] = [
    "running_ns",
    "runnable_ns",
    "interruptible_ns",
    "uninterruptible_ns",
    "stopped_ns",
    "unknown_ns",
    "lifetime_ns",
];
const RUNNING: usize = 0;
const RUNNABLE: usize = 1;
const UNKNOWN: usize = 5;
/// The sum of the others.
const LIFETIME: usize = 6;

/// Returns the column to which a state counts.
fn column(state: Activity) -> usize {
    match state {
        Activity::Running(_) => RUNNING,
        Activity::Runnable(_) => RUNNABLE,
        Activity::Blocked(WaitKind::Interruptible | WaitKind::Idle, _) => 2,
        Activity::Blocked(WaitKind::Uninterruptible, _) => 3,
        Activity::Blocked(WaitKind::Stopped, _) => 4,
    }
}

fn cells(threads: &Threads, tid: u32) -> Vec<Value> {
    threads.cells(Thread::new(tid.into(), 0)).to_vec()
}

fn by_thread(threads: &Threads, sums: StateSums) -> TableRows {
    let mut columns = thread_columns().to_vec();
    columns.extend(TIME_COLUMNS.map(|name| Column::integer(name, Unit::Nanoseconds)));
    columns.last_mut().into_iter().for_each(|lifetime| lifetime.secondary = true);
    let rows = sums.into_iter().map(|(tid, sums)| {
        let mut row = cells(threads, tid);
        row.extend(sums.map(Value::from));
        ((sums[RUNNING] + sums[RUNNABLE], tid), row)
    });
    (columns, most_first(rows))
}

fn name(names: &[String], call: Option<u32>) -> Value {
    call.and_then(|call| names.get(call as usize)).map_or(Value::Null, |name| name.as_str().into())
}

/// The kind of a wait and its system call; `None` if the thread waits for a CPU.
type WaitReason = Option<(WaitKind, Option<u32>)>;

fn by_wait(threads: &Threads, times: StateTimes<Durations>, names: &[String]) -> TableRows {
    let mut columns = thread_columns().to_vec();
    columns.extend([Column::name("wait"), Column::name("call"), Column::integer("count", Unit::Count)]);
    columns.extend(duration_columns());
    let mut waits: FxHashMap<(u32, WaitReason), Durations> = FxHashMap::default();
    for ((tid, state), durations) in times.states {
        // The CPU for which a thread waits makes no row of its own.
        let wait = match state {
            Activity::Running(_) => continue,
            Activity::Runnable(_) => None,
            Activity::Blocked(wait, call) => Some((wait, call)),
        };
        waits.entry((tid, wait)).or_default().add(durations);
    }
    let rows = waits.into_iter().map(|((tid, wait), durations)| {
        let mut row = cells(threads, tid);
        row.push(wait.map_or("runnable", |(wait, _)| wait.name()).into());
        row.extend([name(names, wait.and_then(|(_, call)| call)), durations.count.into()]);
        row.extend(duration_cells(&durations));
        ((durations.total, (tid, wait)), row)
    });
    (columns, most_first(rows))
}

impl EventAnalysis for StateIntervals {
    type Partial = ThreadStatesDelta<StateIntervalRows>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&INTEREST)
    }

    fn heading(&self) -> Option<Heading> {
        let mut columns = interval_columns().to_vec();
        columns.extend(thread_columns());
        columns.extend([Column::name("state"), Column::integer("cpu", Unit::None), Column::name("call")]);
        Some(Heading { name: "states", shape: Shape::Intervals, columns })
    }

    fn settle(&self, partial: &mut Self::Partial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let Some(list) = partial.observer() else { return };
        list.settled += add_rows(list.settle(context.span.1), context, rows);
    }

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let mut list = whole.finish(context.span.1);
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let count = list.settled + add_rows(list.rest(), context, &mut rows);
        rows.finish(vec![("intervals", count.into()), ("left_out", list.left_out.into())])
    }
}

/// Adds the selected intervals, sorted by end. Returns how many.
fn add_rows(
    intervals: Vec<(Nanos, StateInterval)>,
    context: &FinishContext<'_>,
    rows: &mut TableBuilder,
) -> u64 {
    let mut wanted = Vec::new();
    for (to, StateInterval { tid, begin, state }) in intervals {
        if state.is_wanted(tid, context) {
            // An interval that began before the trace is shown from its begin.
            wanted.push((to, tid, begin.unwrap_or(context.span.0), state));
        }
    }
    add_in_order(wanted, rows, |table, &(to, tid, from, state)| {
        let duration = to.0.saturating_sub(from.0);
        let [comm, tid, pid] = context.threads.borrowed_cells(Thread::new(tid.into(), 0));
        let (named, call) = match state {
            Activity::Running(_) => ("running", None),
            Activity::Runnable(_) => ("runnable", None),
            Activity::Blocked(wait, call) => (wait.name(), call),
        };
        let call = call.and_then(|call| context.names.get(call as usize)).map(String::as_str);
        table.row([
            from.0.into(),
            duration.into(),
            comm,
            tid,
            pid,
            named.into(),
            state.cpu().into(),
            call.into(),
        ]);
    })
}
