//! `queue --by change`: how many threads wait for each CPU, from each time at which that changes?

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, FinishContext, Heading, Interest, Item, Shape, Start, Table, TableBuilder, Unit, Value,
    kernel::Threads, only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    settling::SettlingRows,
    thread_states::{self, Observer, State, StateDelta},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Changes;

/// A run queue.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct OfCpu {
    length: u64,
    /// The time of the last change.
    since: Nanos,
    /// The length before that time, if it has a row.
    before: Option<u64>,
}

impl OfCpu {
    /// The row of the last change: several at one time count as one, or as none if they cancel each other out.
    fn row(&self) -> Option<(Nanos, u64)> {
        (self.before != Some(self.length)).then_some((self.since, self.length))
    }
}

/// The queues of all CPUs, and the CPU and length of each change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Queues {
    cpus: FxHashMap<u32, OfCpu>,
    rows: SettlingRows<(u32, u64)>,
}

impl Queues {
    /// The length of a queue that changes at `time`.
    fn at(&mut self, cpu: u32, time: Nanos) -> &mut u64 {
        let queue = self.cpus.entry(cpu).or_insert(OfCpu { since: time, ..OfCpu::default() });
        if time > queue.since {
            if let Some((since, length)) = queue.row() {
                self.rows.see(since, (cpu, length));
                queue.before = Some(length);
            }
            queue.since = time;
        }
        &mut queue.length
    }

    /// Takes the changes before `until`, or all of them.
    fn take(&mut self, until: Option<Nanos>) -> Vec<(Nanos, (u32, u64))> {
        for (&cpu, queue) in &mut self.cpus {
            let row = queue.row().filter(|(since, _)| until.is_none_or(|until| *since < until));
            if let Some((since, length)) = row {
                self.rows.see(since, (cpu, length));
                queue.before = Some(length);
            }
        }
        match until {
            Some(until) => self.rows.settle(until),
            None => self.rows.rest(),
        }
    }
}

impl Observer for Queues {
    fn change(&mut self, _: u32, before: Option<(Nanos, State)>, now: Option<State>, time: Nanos) {
        if let Some((_, State::Runnable(cpu))) = before {
            *self.at(cpu, time) -= 1;
        }
        match now {
            Some(State::Runnable(cpu)) => *self.at(cpu, time) += 1,
            Some(State::Running(cpu)) => drop(self.at(cpu, time)),
            _ => {}
        }
    }

    fn lose(&mut self, state: State, time: Nanos) {
        self.change(0, Some((time, state)), None, time);
    }
}

impl Analysis for Changes {
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

    fn heading(&self) -> Option<Heading> {
        let columns = vec![
            Column::integer("at_ns", Unit::Nanoseconds),
            Column::integer("cpu", Unit::None),
            Column::integer("waiting", Unit::Count),
        ];
        Some(Heading { name: "queue", shape: Shape::Points, columns })
    }

    fn settle(
        &self,
        partial: &mut Self::Partial,
        until: Nanos,
        of: &FinishContext<'_>,
        rows: &mut TableBuilder,
    ) {
        let Some(queues) = partial.observer() else { return };
        queues.rows.settled += add_rows(queues.take(Some(until)), of, rows);
    }

    fn finish(&self, partials: Vec<Self::Partial>, of: &FinishContext<'_>) -> Table {
        // The end of the trace ends the states of all threads, which is no change of a queue.
        let mut queues = only(partials).observe();
        let mut rows = self.heading().expect("its rows may leave").builder();
        let count = queues.rows.settled + add_rows(queues.take(None), of, &mut rows);
        rows.finish(vec![("changes", count.into()), ("left_out", queues.rows.left_out.into())])
    }
}

/// Adds the changes on the selected CPUs in order of time. Returns how many.
fn add_rows(mut changes: Vec<(Nanos, (u32, u64))>, of: &FinishContext<'_>, rows: &mut TableBuilder) -> u64 {
    changes.retain(|(_, (cpu, _))| of.selection.wants_cpu(*cpu));
    changes.sort_unstable();
    for &(time, (cpu, length)) in &changes {
        let row: [Value; 3] = [time.0.into(), u64::from(cpu).into(), length.into()];
        rows.row(row.iter().map(Value::cell));
    }
    changes.len() as u64
}
