//! `queue --by change`: how many threads wait for each CPU, from each time at which that changes?

use hodo_clock::Nanos;
use hodo_model::{
    Column, EventAnalysis, EventPartial, FinishContext, Heading, Interest, Shape, Table, TableBuilder, Unit,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::length::{LengthSpan, QueueLength, Settled};
use crate::{
    settling::SettlingRows,
    thread_states::{Activity, Observer, ThreadStatesDelta},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Changes;

/// Most rows that are kept because a CPU had no switch yet.
const MOST_KEPT: usize = 1 << 16;

/// A run queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LengthOfCpu {
    length: QueueLength,
    /// The length in its last row.
    last: Option<u64>,
}

/// The queues of all CPUs, and the CPU and length of each change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChangingQueues {
    cpus: FxHashMap<u32, LengthOfCpu>,
    rows: SettlingRows<(u32, u64)>,
}

impl ChangingQueues {
    /// Applies a change to the length of a CPU's queue. `change` passes on the spans that are settled by it: several
    /// changes at one time are one row, or none if they cancel each other out.
    fn update(&mut self, cpu: u32, time: Nanos, change: impl FnOnce(&mut QueueLength, &mut Settled<'_>)) {
        let new = || LengthOfCpu { length: QueueLength::new(time), last: None };
        let (queue, rows) = (self.cpus.entry(cpu).or_insert_with(new), &mut self.rows);
        let last = &mut queue.last;
        change(&mut queue.length, &mut |LengthSpan { from, length, .. }| {
            if last.replace(length) != Some(length) {
                rows.see(from, (cpu, length));
            }
        });
    }

    fn change_by(&mut self, cpu: u32, time: Nanos, by: i64) {
        self.update(cpu, time, |length, settled| length.change(time, by, settled));
    }

    /// Passes on the changes before the first switches of CPUs. Called when too many of them wait for such a switch, which
    /// may never come. Their lengths may then be wrong by one, which is better than a table that is cut short.
    fn settle_early(&mut self) {
        let cpus: Vec<(u32, Nanos)> =
            self.cpus.iter().map(|(cpu, queue)| (*cpu, queue.length.now().0)).collect();
        for (cpu, since) in cpus {
            self.update(cpu, since, |length, settled| length.settle(settled));
        }
    }

    /// Takes the changes before `until`, or all of them.
    fn take(&mut self, until: Option<Nanos>) -> Vec<(Nanos, (u32, u64))> {
        let kept: usize = self.cpus.values().map(|queue| queue.length.kept()).sum();
        if until.is_none() || self.rows.len() + kept > MOST_KEPT {
            self.settle_early();
        }
        for (&cpu, queue) in &mut self.cpus {
            let (since, length) = queue.length.now();
            let is_settled = queue.length.unsettled().is_none() && until.is_none_or(|until| since < until);
            if is_settled && queue.last.replace(length) != Some(length) {
                self.rows.see(since, (cpu, length));
            }
        }
        let unsettled = self.cpus.values().filter_map(|queue| queue.length.unsettled()).min();
        match until {
            Some(until) => self.rows.settle(unsettled.map_or(until, |unsettled| unsettled.min(until))),
            None => self.rows.rest(),
        }
    }
}

impl Observer for ChangingQueues {
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
        if let Activity::Runnable(cpu) = state {
            self.update(cpu, time, |length, settled| _ = length.take_back(since, time, settled));
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

impl EventAnalysis for Changes {
    type Partial = ThreadStatesDelta<ChangingQueues>;

    fn interest(&self) -> Interest<'_> {
        Self::Partial::interest().without_threads()
    }

    fn heading(&self) -> Option<Heading> {
        let columns = vec![
            Column::integer("at_ns", Unit::Nanoseconds),
            Column::integer("cpu", Unit::None),
            Column::integer("waiting", Unit::Count),
        ];
        Some(Heading { name: "queue", shape: Shape::Points, columns })
    }

    fn settle(&self, partial: &mut Self::Partial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let Some(queues) = partial.observer() else { return };
        queues.rows.settled += add_rows(queues.take(Some(context.span.1)), context, rows);
    }

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        // The end of the trace ends the states of all threads, which is no change of a queue.
        let mut queues = whole.observe();
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let count = queues.rows.settled + add_rows(queues.take(None), context, &mut rows);
        rows.finish(vec![("changes", count.into()), ("left_out", queues.rows.left_out.into())])
    }
}

/// Adds the changes on the selected CPUs in order of time. Returns how many.
fn add_rows(
    mut changes: Vec<(Nanos, (u32, u64))>,
    context: &FinishContext<'_>,
    rows: &mut TableBuilder,
) -> u64 {
    changes.retain(|(_, (cpu, _))| context.selection.wants_cpu(*cpu));
    crate::settling::add_in_order(changes, rows, |table, &(time, (cpu, length))| {
        table.row([time.0.into(), u64::from(cpu).into(), length.into()]);
    })
}
