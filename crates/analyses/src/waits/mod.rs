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
type WaitsByTarget = BTreeMap<WaitTarget, BTreeMap<WaitEndedBy, Durations>>;

/// The waits of a thread.
struct OfThread {
    thread: TraceKey,
    waited: WaitsByTarget,
    all: Durations,
}

/// Returns the table of the waits of all chosen threads.
fn table(whole: &Whole, context: &FinishContext<'_>) -> Table {
    let naming = PathNames { labels: &whole.labels, context };
    let mut threads: Vec<OfThread> = Vec::new();
    for (thread, history) in whole.histories.all() {
        if !naming.is_wanted(thread) {
            continue;
        }
        let (mut waited, mut all) = (WaitsByTarget::new(), Durations::default());
        for PathWait { begin, end, what, awaited } in waits(&whole.histories, thread, history, context.span) {
            let length = end.0.saturating_sub(begin.max(Nanos(0)).0);
            waited.entry(what).or_default().entry(awaited).or_default().see(length);
            all.see(length);
        }
        if all.count > 0 {
            threads.push(OfThread { thread, waited, all });
        }
    }
    threads.sort_by_key(|waits| (Reverse(waits.all.total), waits.thread));
    let sum = |figure: fn(&Durations) -> u64| threads.iter().map(|waits| figure(&waits.all)).sum::<u64>();
    let summary = vec![
        ("threads", (threads.len() as u64).into()),
        ("waits", sum(|all| all.count).into()),
        ("total_ns", sum(|all| all.total).into()),
    ];
    let mut rows = Vec::new();
    for OfThread { thread, waited, all } in threads {
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
fn add_waits(
    naming: &PathNames<'_, '_>,
    thread: TraceKey,
    waited: WaitsByTarget,
    rows: &mut Vec<Vec<Value>>,
) {
    let mut targets: Vec<(WaitTarget, Durations)> = Vec::new();
    for (target, ended_by) in &waited {
        let mut all = Durations::default();
        ended_by.values().for_each(|durations| all.add(durations.clone()));
        targets.push((*target, all));
    }
    targets.sort_by_key(|(target, all)| (Reverse(all.total), *target));
    for (target, all) in targets {
        let name = target.map_or("cpu", |via| naming.wait(via));
        rows.push(row(1, name.to_owned(), target.and_then(|via| naming.call(via)), &all));
        let mut ended_by: Vec<_> = waited[&target].iter().collect();
        ended_by.sort_by_key(|(awaited, durations)| (Reverse(durations.total), **awaited));
        for (&awaited, durations) in ended_by {
            rows.push(row(2, naming.awaited(thread.trace, awaited), None, durations));
        }
    }
}
