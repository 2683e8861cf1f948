//! `queue`: how many threads waited for each CPU?
//!
//! The run queue of a CPU consists of the threads that are runnable there (see `states`), without the running one. Its
//! length is averaged over the trace; the longest is the maximum that lasted for any time. A thread that has waited
//! since before the trace counts from the first event that names it.

mod changes;

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, Interest, Item, Maker, Parameters, Report, Shape, Start,
    Table, Takes, Unit, Value,
    kernel::{Cpus, Threads},
    only,
};
use serde::{Deserialize, Serialize};

use crate::{
    bins::{Bin, Bins, overlap},
    columns::share,
    durations::Add,
    thread_states::{self, Observer, State, StateDelta},
};

pub use changes::Changes;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Queue;

/// The report.
#[derive(Clone, Copy, Debug)]
pub struct QueueReport;

impl Report for QueueReport {
    fn description(&self) -> &Description {
        &Description {
            name: "queue",
            help: "kernel events: how many threads waited for each CPU",
            views: &["cpu", "time", "change"],
            takes: Takes::CPUS,
            in_all: true,
        }
    }

    fn make<M: Maker>(&self, parameters: &Parameters, maker: M) -> M::Made {
        match parameters.selection.view.as_str() {
            "change" => maker.analysis(Changes),
            _ => maker.analysis(Queue),
        }
    }
}

/// A run queue.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct OfCpu {
    length: u64,
    since: Nanos,
    sum: Bin,
    /// The time at which it first had its maximum length.
    longest: Nanos,
}

/// The queues of all CPUs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Queues {
    cpus: Cpus<OfCpu>,
    bins: Bins<u32>,
}

impl Queues {
    /// Adds the time up to `time`, at which the length changes.
    fn until(&mut self, cpu: u32, time: Nanos) -> &mut u64 {
        let queue = self.cpus.get_or(cpu, || OfCpu { since: time, ..OfCpu::default() });
        let lasted = time.0.saturating_sub(queue.since.0);
        if lasted > 0 && queue.length > 0 {
            if queue.length > queue.sum.most {
                queue.longest = queue.since;
            }
            queue.sum.add(Bin { area: queue.length.saturating_mul(lasted), most: queue.length });
            self.bins.see(cpu, (queue.since, time), queue.length);
        }
        queue.since = time;
        &mut queue.length
    }
}

impl Observer for Queues {
    fn change(&mut self, _: u32, before: Option<(Nanos, State)>, now: Option<State>, time: Nanos) {
        if let Some((_, State::Runnable(cpu))) = before {
            *self.until(cpu, time) -= 1;
        }
        match now {
            Some(State::Runnable(cpu)) => *self.until(cpu, time) += 1,
            Some(State::Running(cpu)) => drop(self.until(cpu, time)),
            _ => {}
        }
    }

    fn lose(&mut self, state: State, time: Nanos) {
        self.change(0, Some((time, state)), None, time);
    }
}

impl Analysis for Queue {
    type Partial = StateDelta<Queues>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&thread_states::INTEREST).with_reporting(&thread_states::REPORTING).without_threads()
    }

    fn begin(&self, start: &Start<'_>) -> Self::Partial {
        StateDelta::new(start.is_first)
    }

    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        partial.see(event);
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial, _: &Threads) -> Self::Partial {
        earlier.add(later);
        earlier
    }

    fn finish(&self, partials: Vec<Self::Partial>, of: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let Queues { cpus, bins } = whole.finish(of.span.1);
        let mut cpus: Vec<(u32, OfCpu)> =
            cpus.into_all().filter(|(cpu, _)| of.selection.wants_cpu(*cpu)).collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        let span = of.span.1.0.saturating_sub(of.span.0.0);
        let waited = cpus.iter().map(|(_, queue)| queue.sum.area).sum::<u64>();
        let mut summary = vec![
            ("cpus", (cpus.len() as u64).into()),
            ("waited_ns", waited.into()),
            ("mean", share(waited, span)),
            ("max", cpus.iter().map(|(_, queue)| queue.sum.most).max().unwrap_or(0).into()),
        ];
        let is_over_time = of.selection.view == "time";
        if is_over_time {
            summary.push(("width_ns", bins.width().into()));
        }
        let (columns, rows) = if is_over_time { over_time(bins, of) } else { by_cpu(cpus, span) };
        Table::new("queue", Shape::Counters, summary, columns, rows)
    }
}

type Rows = (Vec<Column>, Vec<Vec<Value>>);

fn by_cpu(cpus: Vec<(u32, OfCpu)>, span: u64) -> Rows {
    let columns = vec![
        Column::integer("cpu", Unit::None),
        Column::real("mean", Unit::None),
        Column::integer("max", Unit::Count),
        Column::integer("at_ns", Unit::Nanoseconds),
        Column::integer("waited_ns", Unit::Nanoseconds),
    ];
    let row = |(cpu, OfCpu { sum, longest, .. }): (u32, OfCpu)| {
        let longest = if sum.most == 0 { Value::Null } else { longest.0.into() };
        vec![u64::from(cpu).into(), share(sum.area, span), sum.most.into(), longest, sum.area.into()]
    };
    (columns, cpus.into_iter().map(row).collect())
}

fn over_time(bins: Bins<u32>, of: &FinishContext<'_>) -> Rows {
    let width = bins.width();
    let mut rows: BTreeMap<Nanos, Bin> = BTreeMap::new();
    for (begin, cpu, bin) in bins.into_bins() {
        let row = rows.entry(begin).or_default();
        if of.selection.wants_cpu(cpu) {
            row.add(bin);
        }
    }
    let columns = vec![
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::real("mean", Unit::None),
        Column::integer("max", Unit::Count),
        Column::integer("waited_ns", Unit::Nanoseconds),
    ];
    let row = |(begin, bin): (Nanos, Bin)| {
        let mean = share(bin.area, overlap(begin, width, of.span));
        vec![begin.0.into(), mean, bin.most.into(), bin.area.into()]
    };
    (columns, rows.into_iter().map(row).collect())
}
