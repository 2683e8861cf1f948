//! `syscalls`: how often was each system call made, how long did it take, did it fail?

use hodo_clock::Nanos;
use hodo_trace::{
    AnyEventAnalysis, Choice, Column, EventAnalysis, Shape, Table, Unit, Value, Whole,
    kernel::{KernelEvent, Kind, field},
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    durations::{Add, add_all},
    figures::{duration_cells, duration_columns, most_time_first},
    system_calls::{Calls, INTEREST, LongCall, OfName, Whole as OfWhole},
    threads::Thread,
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Syscalls;

/// The slowest calls with their arguments, which nobody else reads.
#[derive(Clone, Copy, Debug)]
pub struct Slowest;

impl EventAnalysis for Slowest {
    type Partial = Partial<Box<str>>;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        const {
            let calls = INTEREST;
            &[calls[0], calls[1], calls[2], calls[3], calls[4], (Kind::SyscallEntry, &[field::entry::ALL])]
        }
    }

    fn views(&self) -> &'static [&'static str] {
        &["slowest"]
    }

    fn unknown(&self) -> Self::Partial {
        Partial(Calls::default())
    }

    fn fold(&self, partial: &mut Self::Partial, event: KernelEvent<'_>) {
        partial.0.see(&event);
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial) -> Self::Partial {
        earlier.0.add(later.0);
        earlier
    }

    fn finish(&self, whole: Self::Partial, of: &Whole<'_>) -> Table {
        let whole = whole.0.finish(of.choice);
        let summary = summary(&whole);
        let (columns, rows) = slowest(&whole, of);
        Table { name: "syscalls", shape: Shape::Counters, summary, columns, rows, loss: Vec::new() }
    }
}

fn summary<A>(whole: &OfWhole<A>) -> Vec<(&'static str, Value)> {
    let all = || whole.calls.iter().flat_map(|(_, calls)| calls.values());
    vec![
        ("calls", all().map(|calls| calls.durations.count).sum::<u64>().into()),
        ("errors", all().map(|calls| calls.errors).sum::<u64>().into()),
        ("total_ns", all().map(|calls| calls.durations.total).sum::<u64>().into()),
        ("unmatched", whole.left.0.into()),
        ("unfinished", whole.left.1.into()),
    ]
}

impl EventAnalysis for Syscalls {
    type Partial = Partial;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        &INTEREST
    }

    fn views(&self) -> &'static [&'static str] {
        &["call", "thread", "slowest"]
    }

    fn of_choice(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>> {
        (choice.view == "slowest").then_some(Box::new(Slowest))
    }

    fn unknown(&self) -> Partial {
        Partial(Calls::default())
    }

    #[inline]
    fn fold(&self, partial: &mut Partial, event: KernelEvent<'_>) {
        partial.0.see(&event);
    }

    fn merge(&self, mut earlier: Partial, later: Partial) -> Partial {
        earlier.0.add(later.0);
        earlier
    }

    fn finish(&self, whole: Partial, of: &Whole<'_>) -> Table {
        let whole = whole.0.finish(of.choice);
        let summary = summary(&whole);
        let (columns, rows) = match of.choice.view.as_str() {
            "thread" => by_thread(whole),
            _ => by_call(whole, of.names),
        };
        Table { name: "syscalls", shape: Shape::Counters, summary, columns, rows, loss: Vec::new() }
    }
}

/// What is known after some events.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "A: DeserializeOwned"))]
pub struct Partial<A = ()>(Calls<A>);

type Rows = (Vec<Column>, Vec<Vec<Value>>);

fn by_call(whole: OfWhole, names: &[String]) -> Rows {
    let mut calls: FxHashMap<u32, OfName> = FxHashMap::default();
    whole.calls.into_iter().for_each(|(_, of)| add_all(&mut calls, of));
    let mut columns = vec![
        Column::text("call"),
        Column::integer("count", Unit::Count),
        Column::integer("errors", Unit::Count),
    ];
    columns.extend(duration_columns());
    let row = |(name, of): (u32, OfName)| {
        let mut row: Vec<Value> =
            vec![names[name as usize].as_str().into(), of.durations.count.into(), of.errors.into()];
        row.extend(duration_cells(&of.durations));
        (of.durations.total, names[name as usize].clone(), row)
    };
    (columns, most_time_first(calls.into_iter().map(row)))
}

fn by_thread(whole: OfWhole) -> Rows {
    let mut columns = vec![
        Column::text("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None).secondary(),
        Column::integer("count", Unit::Count),
        Column::integer("errors", Unit::Count),
    ];
    columns.extend(duration_columns());
    let threads = &whole.threads;
    let row = |(thread, of): (Thread, FxHashMap<u32, OfName>)| {
        let mut sum = OfName::default();
        of.into_values().for_each(|calls| sum.add(calls));
        let mut row = threads.cells(thread).to_vec();
        row.extend([sum.durations.count.into(), sum.errors.into()]);
        row.extend(duration_cells(&sum.durations));
        (sum.durations.total, thread, row)
    };
    (columns, most_time_first(whole.calls.into_iter().map(row)))
}

fn slowest(whole: &OfWhole<Box<str>>, of: &Whole<'_>) -> Rows {
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
    let threads = &whole.threads;
    let wanted = whole
        .longest
        .iter()
        .filter(|(.., (cpu, thread, ..))| threads.wanted(*thread, of.choice) && of.choice.wants_cpu(*cpu));
    let row = |(length, Nanos(begin), call): &(u64, Nanos, LongCall<Box<str>>)| {
        let &(cpu, thread, name, result, ref arguments) = call;
        let (length, begin) = (*length, *begin);
        let call = of.names[name as usize].as_str().into();
        let mut row: Vec<Value> = vec![call, length.into(), begin.into(), result.to_string().into()];
        row.extend(threads.cells(thread));
        row.extend([u64::from(cpu).into(), Value::from(&**arguments)]);
        row
    };
    (columns, wanted.map(row).collect())
}
