//! `waits`: who waited how long, for what, until whom?
//!
//! ```text
//! thread ─► what it waited for: a lock, data, a child, a CPU … ─► who ended that wait, or who ran instead
//! ```
//!
//! Unlike in `critical-path`, a wait counts to the thread that ended it, whatever that thread waited for. Waits that
//! began before the trace, or did not end in it, are `unknown`.

use std::{cmp::Reverse, collections::BTreeMap};

use hodo_clock::Nanos;
use hodo_model::{
    Column, Description, FinishContext, FlowLoop, Made, Report, Shape, Table, Takes, Unit, Value,
};

use crate::{
    critical_path::{OfHistories, PathNames, PathWait, TraceKey, WaitEndedBy, WaitIn, Whole, waits},
    durations::{Add, Durations},
};

/// The analysis.
pub const WAITS: OfHistories = OfHistories::new(table);

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "waits",
            help: "kernel events, boards: who waited how long, for what, until whom, as a tree",
            views: &["thread"],
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_events(WAITS),
    }
}

/// What a thread waits for: a CPU, or something else in a call.
type WaitTarget = Option<WaitIn>;

/// The waits of a thread, by what and by who ended them.
type OfThread = BTreeMap<WaitTarget, BTreeMap<WaitEndedBy, Durations>>;

/// Returns the table of the waits of all chosen threads.
fn table(whole: &Whole, context: &FinishContext<'_>) -> Table {
    let naming = PathNames { labels: &whole.labels, context };
    let mut threads: Vec<(TraceKey, OfThread, Durations)> = Vec::new();
    for (thread, history) in whole.histories.all() {
        if !naming.is_wanted(thread) {
            continue;
        }
        let (mut waited, mut all): (OfThread, Durations) = Default::default();
        for PathWait { begin, end, what, awaited } in waits(&whole.histories, thread, history, context.span) {
            let length = end.0.saturating_sub(begin.max(Nanos(0)).0);
            waited.entry(what).or_default().entry(awaited).or_default().see(length);
            all.see(length);
        }
        if all.count > 0 {
            threads.push((thread, waited, all));
        }
    }
    threads.sort_by_key(|(thread, _, all)| (Reverse(all.total), *thread));
    let sum = |which: fn(&Durations) -> u64| -> u64 { threads.iter().map(|(.., all)| which(all)).sum() };
    let summary = vec![
        ("threads", (threads.len() as u64).into()),
        ("waits", sum(|all| all.count).into()),
        ("total_ns", sum(|all| all.total).into()),
    ];
    let mut rows = Vec::new();
    for (thread, waited, all) in threads {
        rows.push(row(0, naming.name(thread), None, &all));
        add_waits(&naming, thread, waited, &mut rows);
    }
    let columns = vec![
        Column::integer("total_ns", Unit::Nanoseconds),
        Column::integer("max_ns", Unit::Nanoseconds),
        Column::integer("count", Unit::Count),
        Column::integer("depth", Unit::None),
        Column::name("who"),
        Column::name("call"),
    ];
    Table::new("waits", Shape::Tree, summary, columns, rows)
}

fn row(depth: u64, who: String, call: Option<&str>, waited: &Durations) -> Vec<Value> {
    vec![waited.total.into(), waited.max.into(), waited.count.into(), depth.into(), who.into(), call.into()]
}

/// Adds the rows of what a thread waited for, the longest first, and of who ended it.
fn add_waits(naming: &PathNames<'_, '_>, thread: TraceKey, waited: OfThread, rows: &mut Vec<Vec<Value>>) {
    let summed = waited.into_iter().map(|(what, until)| {
        let mut all = Durations::default();
        until.values().for_each(|durations| all.add(durations.clone()));
        (what, until, all)
    });
    let mut summed: Vec<_> = summed.collect();
    summed.sort_by_key(|(what, _, all)| (Reverse(all.total), *what));
    for (what, until, all) in summed {
        let name = what.map_or("cpu", |via| naming.wait(via));
        rows.push(row(1, name.to_owned(), what.and_then(|via| naming.call(via)), &all));
        let mut until: Vec<_> = until.into_iter().collect();
        until.sort_by_key(|(awaited, durations)| (Reverse(durations.total), *awaited));
        for (awaited, durations) in until {
            rows.push(row(2, naming.awaited(thread.trace, awaited), None, &durations));
        }
    }
}
