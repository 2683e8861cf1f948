//! `irqoff`: for how long were interrupts disabled on each CPU?
//!
//! From `irq_disable` to the next `irq_enable` on the CPU.

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Report, Shape, Start,
    Table, Takes, Unit,
    kernel::{Kind, Threads},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, duration_cells, duration_columns, interval_columns},
    durations::{Add, Durations, LongItem, Longest, add_all},
    pairs::{Pairs, Unpaired},
};

/// The analysis; `ALL`: it keeps each interval, not only the longest.
#[derive(Clone, Copy, Debug)]
pub struct InterruptsOff<const ALL: bool>;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "irqoff",
            help: "kernel events: times with interrupts off",
            views: &["cpu", "slowest", "interval"],
            takes: Takes::CPUS,
            in_all: true,
            ..Description::EMPTY
        },
        make: |parameters| match parameters.view() {
            "interval" => Made::of_events(InterruptsOff::<true>),
            _ => Made::of_events(InterruptsOff::<false>),
        },
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct InterruptsOffSums<const ALL: bool> {
    cpus: FxHashMap<u32, Durations>,
    longest: Longest<u32, ALL>,
}

impl<const ALL: bool> InterruptsOffSums<ALL> {
    fn see(&mut self, begin: Nanos, (end, cpu): (Nanos, u32)) {
        let length = end.0.saturating_sub(begin.0);
        self.cpus.entry(cpu).or_default().see(length);
        self.longest.see(length, begin, cpu);
    }
}

/// The sums and open spans after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OffSpans<const ALL: bool> {
    off: Pairs<Nanos, (Nanos, u32)>,
    sums: InterruptsOffSums<ALL>,
}

impl<const ALL: bool> Analysis for InterruptsOff<ALL> {
    type Partial = OffSpans<ALL>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[(Kind::IrqDisable, &[]), (Kind::IrqEnable, &[])]).without_threads()
    }

    fn begin(&self, _: &Start<'_>) -> OffSpans<ALL> {
        OffSpans::default()
    }

    fn fold(&self, partial: &mut OffSpans<ALL>, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let (key, end) = (u64::from(event.cpu), (event.time, event.cpu));
        match event.kind {
            Kind::IrqDisable => partial.off.begin(key, event.time),
            Kind::IrqEnable => {
                if let Some((begin, end)) = partial.off.end(key, end) {
                    partial.sums.see(begin, end);
                }
            }
            _ => {}
        }
    }

    fn merge(&self, mut earlier: OffSpans<ALL>, later: OffSpans<ALL>, _: &Threads) -> OffSpans<ALL> {
        let OffSpans { off, sums } = &mut earlier;
        add_all(&mut sums.cpus, later.sums.cpus);
        sums.longest.add(later.sums.longest);
        off.add(later.off, |begin, end| sums.see(begin, end));
        earlier
    }

    fn finish(&self, partials: Vec<OffSpans<ALL>>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let OffSpans { off, mut sums } = whole;
        sums.cpus.retain(|cpu, _| context.selection.wants_cpu(*cpu));
        let mut all = Durations::default();
        sums.cpus.values().for_each(|durations| all.add(durations.clone()));
        let Unpaired { unmatched, unfinished } = off.left();
        let mut summary = vec![
            ("count", all.count.into()),
            ("total_ns", all.total.into()),
            ("unmatched", unmatched.into()),
            ("unfinished", unfinished.into()),
        ];
        let (shape, (columns, rows)) = match context.selection.view.as_str() {
            "interval" => (Shape::Intervals, intervals(&sums.longest, context)),
            "slowest" => {
                summary.extend(sums.longest.note());
                (Shape::Counters, slowest(&sums.longest, context))
            }
            _ => (Shape::Counters, by_cpu(sums.cpus)),
        };
        Table::new("irqoff", shape, summary, columns, rows)
    }
}

fn by_cpu(cpus: FxHashMap<u32, Durations>) -> TableRows {
    let mut columns = vec![Column::integer("cpu", Unit::None), Column::integer("count", Unit::Count)];
    columns.extend(duration_columns());
    let mut cpus: Vec<(u32, Durations)> = cpus.into_iter().collect();
    cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
    let mut rows = Vec::new();
    for (cpu, durations) in cpus {
        let mut row = vec![u64::from(cpu).into(), durations.count.into()];
        row.extend(duration_cells(&durations));
        rows.push(row);
    }
    (columns, rows)
}

fn intervals<const ALL: bool>(all: &Longest<u32, ALL>, context: &FinishContext<'_>) -> TableRows {
    let mut columns = interval_columns().to_vec();
    columns.push(Column::integer("cpu", Unit::None));
    let mut rows = Vec::new();
    for &LongItem { length, begin, item: cpu } in
        all.iter().filter(|long| context.selection.wants_cpu(long.item))
    {
        rows.push(vec![begin.0.into(), length.into(), u64::from(cpu).into()]);
    }
    (columns, rows)
}

fn slowest<const ALL: bool>(longest: &Longest<u32, ALL>, context: &FinishContext<'_>) -> TableRows {
    let columns = vec![
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("cpu", Unit::None),
    ];
    let mut rows = Vec::new();
    for &LongItem { length, begin, item: cpu } in
        longest.iter().filter(|long| context.selection.wants_cpu(long.item))
    {
        rows.push(vec![length.into(), begin.0.into(), u64::from(cpu).into()]);
    }
    (columns, rows)
}
