//! `signals`: which signals were sent to which thread, and how long until they were delivered?
//!
//! A signal sent to a thread (`signal_generate` with result 0) is pending until that thread receives it
//! (`signal_deliver`). If several signals with one number are pending, the first one counts. `signal_deliver` does not
//! contain the receiving thread: it is the previous thread of the next `sched_switch` on the CPU, or the thread that
//! runs there at the end of the trace.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Report, Shape, Start,
    Table, Takes, Unit, Value,
    kernel::{Kind, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, duration_cells, duration_columns, interval_columns, most_first, thread_columns},
    durations::{Add, Durations, LongItem, Longest, add_all, add_fields},
    pairs::Unpaired,
};

mod taken;

use taken::{SignalBlocks, Taken};

/// The analysis; `ALL`: it keeps each wait, not only the longest.
#[derive(Clone, Copy, Debug)]
pub struct Signals<const ALL: bool>;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "signals",
            help: "kernel events: sent signals, and the time until they were delivered",
            views: &["signal", "thread", "slowest", "interval"],
            takes: Takes::THREADS,
            in_all: true,
            ..Description::EMPTY
        },
        make: |parameters| match parameters.view() {
            "interval" => Made::of_events(Signals::<true>),
            _ => Made::of_events(Signals::<false>),
        },
    }
}

/// The signals of one number and thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SignalCounts {
    sent: u64,
    /// Number of sent signals that were not queued: ignored, already pending, or out of memory.
    dropped: u64,
    taken: u64,
    latencies: Durations,
}

add_fields!(SignalCounts { sent, dropped, taken, latencies });

/// Combines thread and signal number in one key.
fn key(tid: u32, number: u32) -> u64 {
    u64::from(tid) << 32 | u64::from(number)
}

fn thread_of(key: u64) -> Thread {
    Thread::new((key >> 32) as i64, 0)
}

/// Counters by thread and number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SignalSums<const ALL: bool> {
    figures: FxHashMap<u64, SignalCounts>,
    longest: Longest<u64, ALL>,
}

impl<const ALL: bool> SignalSums<ALL> {
    fn taken(&mut self, key: u64) {
        self.figures.entry(key).or_default().taken += 1;
    }

    fn waited(&mut self, key: u64, begin: Nanos, end: Nanos) {
        let length = end.0.saturating_sub(begin.0);
        self.figures.entry(key).or_default().latencies.see(length);
        self.longest.see(length, begin, key);
    }
}

/// The signals after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SignalState<const ALL: bool> {
    blocks: SignalBlocks,
    sums: SignalSums<ALL>,
}

impl<const ALL: bool> Analysis for Signals<ALL> {
    type Partial = SignalState<ALL>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[
            (Kind::SchedSwitch, &[field::switch::PREV_TID, field::switch::NEXT_TID]),
            (Kind::SignalGenerate, &[field::signal::SIG, field::signal::TID, field::signal::RESULT]),
            (Kind::SignalDeliver, &[field::signal::SIG]),
        ])
    }

    fn begin(&self, _: &Start<'_>) -> SignalState<ALL> {
        SignalState::default()
    }

    fn fold(&self, partial: &mut SignalState<ALL>, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let SignalState { blocks, sums } = partial;
        let number = |field| event.integer(field).map(|number| number as u32);
        match event.kind {
            Kind::SignalGenerate => {
                let reported = number(field::signal::SIG).zip(number(field::signal::TID));
                let Some((signal, tid)) = reported else { return };
                let key = key(tid, signal);
                let is_dropped = number(field::signal::RESULT).is_some_and(|result| result != 0);
                let figures = sums.figures.entry(key).or_default();
                figures.sent += 1;
                figures.dropped += u64::from(is_dropped);
                if !is_dropped {
                    blocks.sent(key, event.time);
                }
            }
            Kind::SignalDeliver => {
                let Some(signal) = number(field::signal::SIG) else { return };
                blocks.taken(Taken { cpu: event.cpu, signal, time: event.time });
            }
            _ => {
                if let Some((prev, _)) = event.switch() {
                    blocks.switch(event.cpu, prev.tid().unwrap_or(0), sums);
                }
            }
        }
    }

    fn merge(&self, mut earlier: SignalState<ALL>, later: SignalState<ALL>, _: &Threads) -> SignalState<ALL> {
        add_all(&mut earlier.sums.figures, later.sums.figures);
        earlier.sums.longest.add(later.sums.longest);
        earlier.blocks.add(later.blocks, &mut earlier.sums);
        earlier
    }

    fn finish(&self, partials: Vec<SignalState<ALL>>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let SignalState { blocks, mut sums } = whole;
        let threads = context.threads;
        let Unpaired { unmatched, unfinished } = blocks.finish(|cpu| threads.running(cpu).tid(), &mut sums);
        sums.figures.retain(|&key, _| threads.wanted(thread_of(key), context.selection));
        let sum =
            |which: fn(&SignalCounts) -> u64| Value::from(sums.figures.values().map(which).sum::<u64>());
        let mut summary = vec![
            ("sent", sum(|figures| figures.sent)),
            ("taken", sum(|figures| figures.taken)),
            ("unmatched", unmatched.into()),
            ("unfinished", unfinished.into()),
        ];
        let (shape, (columns, rows)) = match context.selection.view.as_str() {
            "interval" => (Shape::Intervals, intervals(&sums.longest, context)),
            "slowest" => {
                summary.extend(sums.longest.note());
                (Shape::Counters, slowest(&sums.longest, context))
            }
            "thread" => (Shape::Counters, by_thread(threads, sums)),
            _ => (Shape::Counters, by_signal(sums)),
        };
        Table::new("signals", shape, summary, columns, rows)
    }
}

/// Names of signals by number, on Linux for x86 and most other architectures: signal(7).
const NAMES: [&str; 32] = [
    "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Returns the name and number of a signal; real-time signals have no names.
fn signal(key: u64) -> [Value; 2] {
    let number = key as u32;
    let name = NAMES.get(number as usize).map_or_else(|| format!("RT {number}"), |name| (*name).to_owned());
    [name.into(), u64::from(number).into()]
}

/// The columns of a table whose rows these columns identify.
fn columns(keys: &[Column]) -> Vec<Column> {
    let mut columns = keys.to_vec();
    columns.extend(["sent", "dropped", "taken"].map(|name| Column::integer(name, Unit::Count)));
    let [total, more @ ..] = duration_columns();
    columns.push(total.secondary());
    columns.extend(more);
    columns
}

fn cells(figures: &SignalCounts) -> Vec<Value> {
    let mut cells = vec![figures.sent.into(), figures.dropped.into(), figures.taken.into()];
    cells.extend(duration_cells(&figures.latencies));
    cells
}

fn by_signal<const ALL: bool>(sums: SignalSums<ALL>) -> TableRows {
    let mut signals: BTreeMap<u32, SignalCounts> = BTreeMap::new();
    for (key, figures) in sums.figures {
        signals.entry(key as u32).or_default().add(figures);
    }
    let rows = signals.into_iter().map(|(number, figures)| {
        let row = signal(number.into()).into_iter().chain(cells(&figures)).collect();
        ((figures.sent.max(figures.taken), number), row)
    });
    let columns = columns(&[Column::name("signal"), Column::integer("number", Unit::None)]);
    (columns, most_first(rows))
}

fn by_thread<const ALL: bool>(threads: &Threads, sums: SignalSums<ALL>) -> TableRows {
    let rows = sums.figures.into_iter().map(|(key, figures)| {
        let thread = threads.cells(thread_of(key));
        let row = thread.into_iter().chain(signal(key)).chain(cells(&figures)).collect();
        ((figures.sent.max(figures.taken), key), row)
    });
    let signal = [Column::name("signal"), Column::integer("number", Unit::None).secondary()];
    (columns(&[&thread_columns()[..], &signal].concat()), most_first(rows))
}

fn intervals<const ALL: bool>(all: &Longest<u64, ALL>, context: &FinishContext<'_>) -> TableRows {
    let mut columns = interval_columns().to_vec();
    columns.extend(thread_columns());
    columns.extend([Column::name("signal"), Column::integer("number", Unit::None).secondary()]);
    let wanted = all.iter().filter(|long| context.threads.wanted(thread_of(long.item), context.selection));
    let rows = wanted.map(|&LongItem { length, begin, item: key }| {
        let mut row: Vec<Value> = vec![begin.0.into(), length.into()];
        row.extend(context.threads.cells(thread_of(key)).into_iter().chain(signal(key)));
        row
    });
    (columns, rows.collect())
}

fn slowest<const ALL: bool>(longest: &Longest<u64, ALL>, context: &FinishContext<'_>) -> TableRows {
    let columns = vec![
        Column::name("signal"),
        Column::integer("number", Unit::None),
        Column::name("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None),
        Column::integer("latency_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
    ];
    let mut rows = Vec::new();
    for &LongItem { length, begin, item: key } in longest.iter() {
        let thread = thread_of(key);
        if context.threads.wanted(thread, context.selection) {
            let times = [length.into(), begin.0.into()];
            rows.push(signal(key).into_iter().chain(context.threads.cells(thread)).chain(times).collect());
        }
    }
    (columns, rows)
}
