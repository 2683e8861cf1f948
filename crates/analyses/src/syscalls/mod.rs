//! `syscalls`: how often was each system call made, how long did it take, and how often did it fail?

mod intervals;

use std::hash::Hash;

use hodo_model::{
    Column, Description, EventAnalysis, FinishContext, FlowLoop, Interest, LaneValue, Lanes, Made, Report,
    Role, Shape, Summary, Table, Takes, Unit, Value,
    kernel::{Kind, Thread, Threads, field},
};
use rustc_hash::FxHashMap;

use crate::{
    columns::{TableRows, duration_cells, duration_columns, most_first, thread_columns},
    durations::{LongItem, Longest},
    pairs::Unpaired,
    system_calls::{CallsPartial, INTEREST, LongCall, OfName, SummedCalls, WithLongest},
};

pub use intervals::SyscallIntervals;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Syscalls;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "syscalls",
            roles: &[Role::SystemCalls, Role::Latencies],
            help: "kernel events: how often each system call was made, how long it took, its errors",
            views: &["call", "thread", "slowest", "interval"],
            takes: Takes::THREADS_AND_CPUS,
            in_all: true,
            lanes: Some(Lanes {
                view: "interval",
                title: "system calls",
                lane: &["pid", "tid", "comm"],
                value: LaneValue::Column("call"),
                path: &["Threads", "process {pid}", "{comm} ({tid})", "system calls"],
            }),
        },
        make: |parameters| match parameters.view() {
            "slowest" => Made::of_events(Slowest),
            "interval" => Made::of_events(SyscallIntervals),
            "" | "call" if parameters.alone && parameters.selection.is_of_all() => Made::of_events(OfAll),
            _ => Made::of_events(Syscalls),
        },
    }
}

/// The analysis of the slowest calls, with their arguments; other analyses do not decode these.
#[derive(Clone, Copy, Debug)]
pub struct Slowest;

/// The calls of all threads, by name.
#[derive(Clone, Copy, Debug)]
pub struct OfAll;

impl EventAnalysis for Slowest {
    type Partial = CallsPartial<WithLongest>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(
            const {
                let [switch, entry, exit, whole] = INTEREST;
                &[switch, entry, exit, whole, (Kind::SyscallEntry, &[field::entry::ALL])]
            },
        )
    }

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let WithLongest { calls, longest } = whole.complete();
        let mut summary = summary(calls.wanted(context).map(|(_, calls)| calls), &whole);
        summary.extend(longest.note());
        table(summary, slowest(longest, context))
    }
}

fn summary<'c, S: SummedCalls>(calls: impl Iterator<Item = &'c OfName>, all: &CallsPartial<S>) -> Summary {
    let (mut count, mut errors, mut total) = (0, 0, 0u64);
    for calls in calls {
        count += calls.durations.count;
        errors += calls.errors;
        total = total.saturating_add(calls.durations.total);
    }
    let Unpaired { unmatched, unfinished } = all.left();
    vec![
        ("calls", count.into()),
        ("errors", errors.into()),
        ("total_ns", total.into()),
        ("unmatched", unmatched.into()),
        ("unfinished", unfinished.into()),
    ]
}

impl EventAnalysis for Syscalls {
    type Partial = CallsPartial;

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let calls = whole.wanted(context);
        match context.selection.view.as_str() {
            "thread" => {
                let calls = sums(calls.map(|(key, calls)| (key.thread, calls)));
                table(summary(calls.values(), &whole), by_thread(calls, context.threads))
            }
            _ => {
                let calls = sums(calls.map(|(key, calls)| (*key.key, calls)));
                table(summary(calls.values(), &whole), by_call(calls, context.names))
            }
        }
    }
}

impl EventAnalysis for OfAll {
    type Partial = CallsPartial<Vec<OfName>>;

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let calls = (0..).zip(whole.complete()).filter(|(_, calls)| calls.durations.count > 0);
        let summary = summary(whole.complete().iter(), &whole);
        table(summary, by_call(calls.map(|(name, calls)| (name, calls.clone())), context.names))
    }
}

fn table(summary: Summary, (columns, rows): TableRows) -> Table {
    Table::new("syscalls", Shape::Counters, summary, columns, rows)
}

/// Returns the name of a call; empty if a deserialized state refers to a missing name.
fn called(names: &[String], name: u32) -> &str {
    names.get(name as usize).map_or("", String::as_str)
}

/// Sums by key.
fn sums<'c, K: Hash + Eq>(calls: impl Iterator<Item = (K, &'c OfName)>) -> FxHashMap<K, OfName> {
    let mut sums: FxHashMap<K, OfName> = FxHashMap::default();
    calls.for_each(|(key, calls)| sums.entry(key).or_default().join(calls));
    sums
}

fn by_call(calls: impl IntoIterator<Item = (u32, OfName)>, names: &[String]) -> TableRows {
    let mut columns = vec![Column::name("call"), Column::integer("count", Unit::Count)];
    columns.extend(duration_columns());
    columns.push(Column::integer("errors", Unit::Count));
    columns.push(Column::integer("returned", Unit::None).secondary());
    let rows = calls.into_iter().map(|(name, sum)| {
        let mut row: Vec<Value> = vec![called(names, name).into(), sum.durations.count.into()];
        row.extend(duration_cells(&sum.durations));
        row.extend([sum.errors.into(), sum.returned.into()]);
        ((sum.durations.total, called(names, name).to_owned()), row)
    });
    (columns, most_first(rows))
}

fn by_thread(calls: impl IntoIterator<Item = (Thread, OfName)>, threads: &Threads) -> TableRows {
    let mut columns = thread_columns().to_vec();
    columns.push(Column::integer("count", Unit::Count));
    columns.extend(duration_columns());
    columns.push(Column::integer("errors", Unit::Count));
    let rows = calls.into_iter().map(|(thread, sum)| {
        let mut row = threads.cells(thread).to_vec();
        row.push(sum.durations.count.into());
        row.extend(duration_cells(&sum.durations));
        row.push(sum.errors.into());
        ((sum.durations.total, thread), row)
    });
    (columns, most_first(rows))
}

fn slowest(longest: &Longest<LongCall>, context: &FinishContext<'_>) -> TableRows {
    let mut columns = vec![
        Column::name("call"),
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::signed("result", Unit::None),
    ];
    columns.extend(thread_columns());
    columns.extend([Column::integer("cpu", Unit::None).secondary(), Column::text("arguments")]);
    let threads = context.threads;
    let mut rows = Vec::new();
    for LongItem { length, begin, item: (call, arguments) } in longest.iter() {
        let thread = threads.settled(call.thread);
        if threads.wanted(thread, context.selection) && context.selection.wants_cpu(call.cpu) {
            let name = called(context.names, call.name).into();
            let mut row: Vec<Value> = vec![name, (*length).into(), begin.0.into(), call.result.into()];
            row.extend(threads.cells(thread));
            row.extend([u64::from(call.cpu).into(), Value::from(&**arguments)]);
            rows.push(row);
        }
    }
    (columns, rows)
}
