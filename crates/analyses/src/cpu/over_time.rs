//! `cpu --by time`: how busy were the processors when?

use hodo_clock::Nanos;
use hodo_trace::{
    Column, EventAnalysis, Shape, Table, Unit, Whole,
    kernel::{KernelEvent, Kind, Thread, Threads, field::switch},
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    bins::{Bins, within},
    figures::share,
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct OverTime;

/// What is known after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Partial {
    /// Threads that ran on a CPU.
    bins: Bins<(Thread, u32)>,
    /// The first switch on each CPU and the last.
    switches: FxHashMap<u32, (Nanos, Nanos)>,
}

impl EventAnalysis for OverTime {
    type Partial = Partial;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        const { &[(Kind::SchedSwitch, &[switch::PREV_TID, switch::NEXT_TID])] }
    }

    fn views(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn unknown(&self) -> Partial {
        Partial::default()
    }

    fn fold(&self, partial: &mut Partial, event: &KernelEvent<'_>) {
        let (time, cpu) = (event.time, event.cpu);
        if event.switch().is_none() {
            return;
        }
        let (_, last) = partial.switches.entry(cpu).or_insert((time, time));
        let since = std::mem::replace(last, time);
        partial.bins.see((event.thread, cpu), (since, time), 1);
    }

    fn merge(&self, mut earlier: Partial, later: Partial, threads: &Threads) -> Partial {
        let Partial { bins, switches } = &mut earlier;
        bins.add(later.bins, |(thread, cpu)| (threads.known(thread), cpu));
        for (cpu, (first, last)) in later.switches {
            let known = switches.entry(cpu).or_insert((first, first));
            let since = std::mem::replace(&mut known.1, last);
            bins.see((threads.running(cpu), cpu), (since, first), 1);
        }
        earlier
    }

    fn finish(&self, whole: Partial, of: &Whole<'_>) -> Table {
        let Partial { mut bins, switches } = whole;
        let threads = of.threads;
        for (&cpu, &(first, last)) in &switches {
            bins.see((Thread::before(cpu), cpu), (of.span.0, first), 1);
            bins.see((threads.running(cpu), cpu), (last, of.span.1), 1);
        }
        let cpus = switches.keys().filter(|cpu| of.choice.wants_cpu(**cpu)).count() as u64;
        let width = bins.width();
        let mut rows: std::collections::BTreeMap<Nanos, u64> = std::collections::BTreeMap::new();
        for (begin, (thread, cpu), bin) in bins.into_bins() {
            let thread = threads.settled(thread);
            let is_wanted =
                of.choice.wants_cpu(cpu) && !thread.is_idle() && threads.wanted(thread, of.choice);
            *rows.entry(begin).or_default() += if is_wanted { bin.area } else { 0 };
        }
        let total: u64 = rows.values().sum();
        let summary = vec![("cpus", cpus.into()), ("busy_ns", total.into()), ("width_ns", width.into())];
        let columns = vec![
            Column::integer("begin_ns", Unit::Nanoseconds),
            Column::integer("busy_ns", Unit::Nanoseconds),
            Column::real("busy_share", Unit::Share),
        ];
        let row = |(begin, busy): (Nanos, u64)| {
            let length = within(begin, width, of.span).saturating_mul(cpus);
            vec![begin.0.into(), busy.into(), share(busy, length)]
        };
        let rows = rows.into_iter().map(row).collect();
        Table { name: "cpu", shape: Shape::Points, summary, columns, rows, loss: Vec::new() }
    }
}
