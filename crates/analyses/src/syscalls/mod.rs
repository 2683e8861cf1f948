//! `syscalls`: how often was each system call made, how long did it take, did it fail?

use std::hash::Hash;

use hodo_clock::Nanos;
use hodo_trace::{
    AnyEventAnalysis, Choice, Column, EventAnalysis, Shape, Table, Unit, Value, Whole,
    kernel::{KernelEvent, Kind, Thread, Threads, field},
};
use rustc_hash::FxHashMap;

use crate::{
    durations::Longest,
    figures::{duration_cells, duration_columns, most_time_first},
    system_calls::{Calls, INTEREST, LongCall, OfName, Sums, WithLongest},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Syscalls;

/// The slowest calls with their arguments, which nobody else reads.
#[derive(Clone, Copy, Debug)]
pub struct Slowest;

/// The calls of all threads, by name.
#[derive(Clone, Copy, Debug)]
pub struct OfAll;

impl EventAnalysis for Slowest {
    type Partial = Calls<WithLongest>;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        const {
            let [switch, entry, exit, whole] = INTEREST;
            &[switch, entry, exit, whole, (Kind::SyscallEntry, &[field::entry::ALL])]
        }
    }

    fn views(&self) -> &'static [&'static str] {
        &["slowest"]
    }

    fn unknown(&self) -> Self::Partial {
        Calls::default()
    }

    fn fold(&self, partial: &mut Self::Partial, event: &KernelEvent<'_>) {
        partial.see(event);
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial {
        earlier.add(later, threads);
        earlier
    }

    fn finish(&self, whole: Self::Partial, of: &Whole<'_>) -> Table {
        let WithLongest { calls, longest } = whole.complete();
        let summary = summary(calls.wanted(of).map(|(.., calls)| calls), &whole);
        table(summary, slowest(longest, of))
    }
}

fn summary<'c, S: Sums>(
    calls: impl Iterator<Item = &'c OfName>,
    all: &Calls<S>,
) -> Vec<(&'static str, Value)> {
    let (mut count, mut errors, mut total) = (0, 0, 0u64);
    for calls in calls {
        count += calls.durations.count;
        errors += calls.errors;
        total = total.saturating_add(calls.durations.total);
    }
    let (unmatched, unfinished) = all.left();
    vec![
        ("calls", count.into()),
        ("errors", errors.into()),
        ("total_ns", total.into()),
        ("unmatched", unmatched.into()),
        ("unfinished", unfinished.into()),
    ]
}

impl EventAnalysis for Syscalls {
    type Partial = Calls;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        &INTEREST
    }

    fn views(&self) -> &'static [&'static str] {
        &["call", "thread", "slowest"]
    }

    fn of_choice(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>> {
        (choice.view == "slowest").then_some(Box::new(Slowest))
    }

    fn alone(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>> {
        let is_by_call = matches!(choice.view.as_str(), "" | "call");
        (is_by_call && choice.is_of_all()).then_some(Box::new(OfAll))
    }

    fn unknown(&self) -> Calls {
        Calls::default()
    }

    #[inline]
    fn fold(&self, partial: &mut Calls, event: &KernelEvent<'_>) {
        partial.see(event);
    }

    fn merge(&self, mut earlier: Calls, later: Calls, threads: &Threads) -> Calls {
        earlier.add(later, threads);
        earlier
    }

    fn finish(&self, whole: Calls, of: &Whole<'_>) -> Table {
        let calls = whole.wanted(of);
        match of.choice.view.as_str() {
            "thread" => {
                let calls = sums(calls.map(|(thread, _, calls)| (thread, calls)));
                table(summary(calls.values(), &whole), by_thread(calls, of.threads))
            }
            _ => {
                let calls = sums(calls.map(|(_, name, calls)| (name, calls)));
                table(summary(calls.values(), &whole), by_call(calls, of.names))
            }
        }
    }
}

impl EventAnalysis for OfAll {
    type Partial = Calls<Vec<OfName>>;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        &INTEREST
    }

    fn views(&self) -> &'static [&'static str] {
        &["call"]
    }

    fn unknown(&self) -> Self::Partial {
        Calls::default()
    }

    #[inline]
    fn fold(&self, partial: &mut Self::Partial, event: &KernelEvent<'_>) {
        partial.see(event);
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial {
        earlier.add(later, threads);
        earlier
    }

    fn finish(&self, whole: Self::Partial, of: &Whole<'_>) -> Table {
        let calls = (0..).zip(whole.complete()).filter(|(_, calls)| calls.durations.count > 0);
        let summary = summary(whole.complete().iter(), &whole);
        table(summary, by_call(calls.map(|(name, calls)| (name, calls.clone())), of.names))
    }
}

fn table(summary: Vec<(&'static str, Value)>, (columns, rows): Rows) -> Table {
    Table { name: "syscalls", shape: Shape::Counters, summary, columns, rows, loss: Vec::new() }
}

type Rows = (Vec<Column>, Vec<Vec<Value>>);

/// What a call is called; nothing where a state that came from elsewhere tells of one that is not there.
fn called(names: &[String], name: u32) -> &str {
    names.get(name as usize).map_or("", String::as_str)
}

/// Sums of what has the same key.
fn sums<'c, K: Hash + Eq>(calls: impl Iterator<Item = (K, &'c OfName)>) -> FxHashMap<K, OfName> {
    let mut sums: FxHashMap<K, OfName> = FxHashMap::default();
    calls.for_each(|(key, calls)| sums.entry(key).or_default().join(calls));
    sums
}

fn by_call(calls: impl IntoIterator<Item = (u32, OfName)>, names: &[String]) -> Rows {
    let mut columns = vec![
        Column::text("call"),
        Column::integer("count", Unit::Count),
        Column::integer("errors", Unit::Count),
    ];
    columns.extend(duration_columns());
    let row = |(name, of): (u32, OfName)| {
        let mut row: Vec<Value> =
            vec![called(names, name).into(), of.durations.count.into(), of.errors.into()];
        row.extend(duration_cells(&of.durations));
        (of.durations.total, called(names, name).to_owned(), row)
    };
    (columns, most_time_first(calls.into_iter().map(row)))
}

fn by_thread(calls: impl IntoIterator<Item = (Thread, OfName)>, threads: &Threads) -> Rows {
    let mut columns = vec![
        Column::text("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None).secondary(),
        Column::integer("count", Unit::Count),
        Column::integer("errors", Unit::Count),
    ];
    columns.extend(duration_columns());
    let row = |(thread, sum): (Thread, OfName)| {
        let mut row = threads.cells(thread).to_vec();
        row.extend([sum.durations.count.into(), sum.errors.into()]);
        row.extend(duration_cells(&sum.durations));
        (sum.durations.total, thread, row)
    };
    (columns, most_time_first(calls.into_iter().map(row)))
}

fn slowest(longest: &Longest<LongCall>, of: &Whole<'_>) -> Rows {
    let columns = vec![
        Column::text("call"),
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::text("result"),
        Column::text("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None).secondary(),
        Column::integer("cpu", Unit::None).secondary(),
        Column::text("arguments"),
    ];
    let threads = of.threads;
    let settled = longest.iter().map(|call| (threads.settled(call.2.1), call));
    let wanted = settled
        .filter(|(thread, (.., (cpu, ..)))| threads.wanted(*thread, of.choice) && of.choice.wants_cpu(*cpu));
    let row = |(thread, (length, Nanos(begin), call)): (Thread, &(u64, Nanos, LongCall))| {
        let &(cpu, _, name, result, ref arguments) = call;
        let (length, begin) = (*length, *begin);
        let call = called(of.names, name).into();
        let mut row: Vec<Value> = vec![call, length.into(), begin.into(), result.to_string().into()];
        row.extend(threads.cells(thread));
        row.extend([u64::from(cpu).into(), Value::from(&**arguments)]);
        row
    };
    (columns, wanted.map(row).collect())
}
