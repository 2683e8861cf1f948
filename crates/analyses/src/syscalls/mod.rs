//! `syscalls`: how often was each system call made, how long did it take, did it fail?

use hodo_clock::Nanos;
use hodo_trace::{
    Column, EventAnalysis, Shape, Table, Unit, Value, Whole,
    kernel::{KernelEvent, Kind},
};
use rustc_hash::FxHashMap;

use crate::{
    durations::{Add, add_all},
    figures::{duration_cells, duration_columns, most_time_first},
    system_calls::{self, INTEREST, LongCall, OfName, Whole as Calls},
    threads::Thread,
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Syscalls;

impl EventAnalysis for Syscalls {
    type Partial = Partial;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        &INTEREST
    }

    fn views(&self) -> &'static [&'static str] {
        &["call", "thread", "slowest"]
    }

    fn unknown(&self) -> Partial {
        Partial::default()
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
        let all = || whole.calls.iter().flat_map(|(_, calls)| calls.values());
        let summary = vec![
            ("calls", all().map(|calls| calls.durations.count).sum::<u64>().into()),
            ("errors", all().map(|calls| calls.errors).sum::<u64>().into()),
            ("total_ns", all().map(|calls| calls.durations.total).sum::<u64>().into()),
            ("unmatched", whole.left.0.into()),
            ("unfinished", whole.left.1.into()),
        ];
        let (columns, rows) = match of.choice.view.as_str() {
            "thread" => by_thread(whole),
            "slowest" => slowest(&whole, of),
            _ => by_call(whole, of.names),
        };
        Table { name: "syscalls", shape: Shape::Counters, summary, columns, rows, loss: Vec::new() }
    }
}

/// What is known after some events.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Partial(system_calls::Calls);

type Rows = (Vec<Column>, Vec<Vec<Value>>);

fn by_call(whole: Calls, names: &[String]) -> Rows {
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

fn by_thread(whole: Calls) -> Rows {
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

fn slowest(whole: &Calls, of: &Whole<'_>) -> Rows {
    let columns = vec![
        Column::text("call"),
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::text("result"),
        Column::text("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None).secondary(),
        Column::integer("cpu", Unit::None).secondary(),
    ];
    let threads = &whole.threads;
    let wanted = whole
        .longest
        .iter()
        .filter(|(.., (cpu, thread, ..))| threads.wanted(*thread, of.choice) && of.choice.wants_cpu(*cpu));
    let row = |&(length, Nanos(begin), (cpu, thread, name, result)): &(u64, Nanos, LongCall)| {
        let call = of.names[name as usize].as_str().into();
        let mut row: Vec<Value> = vec![call, length.into(), begin.into(), result.to_string().into()];
        row.extend(threads.cells(thread));
        row.push(u64::from(cpu).into());
        row
    };
    (columns, wanted.map(row).collect())
}
