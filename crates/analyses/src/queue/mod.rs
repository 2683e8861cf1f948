//! `queue`: how many threads waited for each CPU?
//!
//! The run queue of a CPU consists of the threads that are runnable there (see `states`), without the running one. Its
//! length is averaged over the trace; the longest is the maximum that lasted for any time. A thread that has waited
//! since before the trace counts from the first event that names it.
//!
//! The time waited is that in the state runnable of `states`. Where a switch is missing, the end of a wait is unknown:
//! it counts in the length until an event shows that it has ended, and its time is `unknown`.

mod changes;
mod length;

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Column, Description, EventAnalysis, EventPartial, FinishContext, FlowLoop, Interest, LaneValue, Lanes,
    Made, Report, Shape, Table, Takes, Unit, Value, kernel::Cpus,
};
use serde::{Deserialize, Serialize};

use crate::{
    bins::{ValueBin, ValueBins, overlap},
    columns::{TableRows, share},
    durations::Add,
    thread_states::{Activity, Observer, ThreadStatesDelta},
};

pub use changes::Changes;
use length::{LengthSpan, QueueLength, Settled};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Queue;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "queue",
            help: "kernel events: how many threads waited for each CPU",
            views: &["cpu", "time", "change"],
            takes: Takes::CPUS,
            in_all: true,
            roles: &[],
            lanes: Some(Lanes {
                view: "change",
                title: "threads that wait for a CPU",
                lane: &["cpu"],
                value: LaneValue::Column("waiting"),
                path: &["CPUs", "CPU {cpu}", "waiting threads"],
            }),
        },
        make: |parameters| match parameters.view() {
            "change" => Made::of_events(Changes),
            _ => Made::of_events(Queue),
        },
    }
}

/// A run queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct QueueOfCpu {
    length: QueueLength,
    sum: ValueBin,
    /// The time at which it first had its maximum length.
    longest: Nanos,
    /// The time of waits whose end is unknown.
    unknown: u64,
}

impl QueueOfCpu {
    fn new(time: Nanos) -> QueueOfCpu {
        let (length, sum) = (QueueLength::new(time), ValueBin::default());
        QueueOfCpu { length, sum, longest: Nanos(0), unknown: 0 }
    }
}

/// The queues of all CPUs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunQueues {
    cpus: Cpus<QueueOfCpu>,
    bins: ValueBins<u32>,
}

impl RunQueues {
    /// Applies a change to the length of a CPU's queue. `change` passes on the spans that are settled by it.
    fn update<R>(
        &mut self,
        cpu: u32,
        time: Nanos,
        change: impl FnOnce(&mut QueueLength, &mut Settled<'_>) -> R,
    ) -> R {
        let (queue, bins) = (self.cpus.get_or(cpu, || QueueOfCpu::new(time)), &mut self.bins);
        let (sum, longest) = (&mut queue.sum, &mut queue.longest);
        change(&mut queue.length, &mut |LengthSpan { from, to, length }| {
            if length > 0 {
                *longest = if length > sum.most { from } else { *longest };
                sum.add(ValueBin { area: length.saturating_mul(to.0 - from.0), most: length });
                bins.see(cpu, (from, to), length);
            }
        })
    }

    fn change_by(&mut self, cpu: u32, time: Nanos, by: i64) {
        self.update(cpu, time, |length, settled| length.change(time, by, settled));
    }

    /// Ends the trace.
    fn end(&mut self, time: Nanos) {
        let cpus: Vec<u32> = self.cpus.all().map(|(cpu, _)| cpu).collect();
        for cpu in cpus {
            self.update(cpu, time, |length, settled| {
                length.change(time, 0, settled);
                length.settle(settled);
            });
        }
    }
}

impl Observer for RunQueues {
    fn change(&mut self, _: u32, before: Option<(Nanos, Activity)>, now: Option<Activity>, time: Nanos) {
        if let Some((_, Activity::Runnable(cpu))) = before {
            self.change_by(cpu, time, -1);
        }
        match now {
            Some(Activity::Runnable(cpu)) => self.change_by(cpu, time, 1),
            // From here on the CPU has a queue, though perhaps an empty one.
            Some(Activity::Running(cpu)) => self.change_by(cpu, time, 0),
            _ => {}
        }
    }

    fn lose(&mut self, (since, state): (Nanos, Activity), time: Nanos) {
        let Activity::Runnable(cpu) = state else { return };
        let is_early = self.update(cpu, time, |length, settled| length.take_back(since, time, settled));
        let queue = self.cpus.get_or(cpu, || QueueOfCpu::new(time));
        let lasted = time.0.saturating_sub(since.0);
        queue.unknown = queue.unknown.saturating_add(lasted);
        if !is_early {
            queue.sum.area = queue.sum.area.saturating_sub(lasted);
            self.bins.take_out(cpu, (since, time));
        }
    }

    fn begin(&mut self, cpu: u32, taken_back: Option<Nanos>, time: Nanos) {
        self.update(cpu, time, |length, settled| {
            if let Some(since) = taken_back {
                length.take_back(since, time, settled);
            }
            length.settle(settled);
        });
    }
}

impl EventAnalysis for Queue {
    type Partial = ThreadStatesDelta<RunQueues>;

    fn interest(&self) -> Interest<'_> {
        Self::Partial::interest().without_threads()
    }

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let mut queues = whole.finish(context.span.1);
        queues.end(context.span.1);
        let RunQueues { cpus, bins } = queues;
        let mut cpus: Vec<(u32, QueueOfCpu)> =
            cpus.into_all().filter(|(cpu, _)| context.selection.wants_cpu(*cpu)).collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        let span = context.span.1.0.saturating_sub(context.span.0.0);
        let sum = |field: fn(&QueueOfCpu) -> u64| cpus.iter().map(|(_, queue)| field(queue)).sum::<u64>();
        let waited = sum(|queue| queue.sum.area);
        // Without wake-ups, only the waits after preemptions are known: any sum of them is too small.
        let known = |value: Value| if context.wakeups.are_known() { value } else { Value::Null };
        let mut summary = vec![
            ("cpus", (cpus.len() as u64).into()),
            ("waited_ns", known(waited.into())),
            ("mean", known(share(waited, span))),
            ("max", known(cpus.iter().map(|(_, queue)| queue.sum.most).max().unwrap_or(0).into())),
            ("unknown_ns", sum(|queue| queue.unknown).into()),
        ];
        let is_over_time = context.selection.view == "time";
        if is_over_time {
            summary.push(("width_ns", bins.width().into()));
        }
        let (columns, mut rows) = if is_over_time { over_time(bins, context) } else { by_cpu(cpus, span) };
        if !context.wakeups.are_known() {
            rows.iter_mut().for_each(|row| row[1..].fill(Value::Null));
        }
        Table::new("queue", Shape::Counters, summary, columns, rows)
    }
}

fn by_cpu(cpus: Vec<(u32, QueueOfCpu)>, span: u64) -> TableRows {
    let columns = vec![
        Column::integer("cpu", Unit::None),
        Column::real("mean", Unit::None),
        Column::integer("max", Unit::Count),
        Column::integer("at_ns", Unit::Nanoseconds),
        Column::integer("waited_ns", Unit::Nanoseconds),
        Column::integer("unknown_ns", Unit::Nanoseconds).secondary(),
    ];
    let rows = cpus.into_iter().map(|(cpu, QueueOfCpu { sum, longest, unknown, .. })| {
        let longest = if sum.most == 0 { Value::Null } else { longest.0.into() };
        let waited = [sum.area, unknown].map(Value::from);
        let mut row = vec![u64::from(cpu).into(), share(sum.area, span), sum.most.into(), longest];
        row.extend(waited);
        row
    });
    (columns, rows.collect())
}

fn over_time(bins: ValueBins<u32>, context: &FinishContext<'_>) -> TableRows {
    let width = bins.width();
    let mut rows: BTreeMap<Nanos, ValueBin> = BTreeMap::new();
    for ((begin, cpu), bin) in bins.into_bins() {
        let row = rows.entry(begin).or_default();
        if context.selection.wants_cpu(cpu) {
            row.add(bin);
        }
    }
    let columns = vec![
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::real("mean", Unit::None),
        Column::integer("max", Unit::Count),
        Column::integer("waited_ns", Unit::Nanoseconds),
    ];
    let rows = rows.into_iter().map(|(begin, bin)| {
        let mean = share(bin.area, overlap(begin, width, context.span));
        vec![begin.0.into(), mean, bin.most.into(), bin.area.into()]
    });
    (columns, rows.collect())
}
