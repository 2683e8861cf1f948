//! `irq`: how long did interrupt handlers run, and how late did softirqs begin?
//!
//! * `hard`: from `irq_handler_entry` to the next `irq_handler_exit` with the same number on the CPU;
//! * `soft`: from `irq_softirq_entry` to the next `irq_softirq_exit` with the same vector on the CPU;
//! * `raise`: from an `irq_softirq_raise` to the next begin of the vector's handler on the CPU; only the first raise
//!   since the handler's last begin counts.

mod intervals;
pub(crate) mod off;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, LaneValue, Lanes, Made, Report,
    Role, Shape, Start, Table, Takes, Unit, Value,
    kernel::{Kind, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, duration_cells, duration_columns, most_first},
    durations::{Add, Durations, LongItem, Longest, add_all},
    pairs::{Pairs, Requests},
};

pub use intervals::InterruptIntervals;
pub use off::InterruptsOff;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Interrupts;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "irq",
            roles: &[Role::Latencies],
            help: "kernel events: running times of interrupt and softirq handlers, and delays of softirqs",
            views: &["handler", "cpu", "slowest", "interval"],
            takes: Takes::CPUS,
            in_all: true,
            lanes: Some(Lanes {
                view: "interval",
                title: "interrupt handlers",
                lane: &["cpu", "kind"],
                value: LaneValue::Column("name"),
                path: &["CPUs", "CPU {cpu}", "{kind} interrupts"],
            }),
        },
        make: |parameters| match parameters.view() {
            "interval" => Made::of_events(InterruptIntervals),
            _ => Made::of_events(Interrupts),
        },
    }
}

/// The measured intervals, in table order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Phase {
    Hard,
    Soft,
    Raise,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Hard => "hard",
            Phase::Soft => "soft",
            Phase::Raise => "raise",
        }
    }
}

/// A phase of an interrupt number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Handler(Phase, u32);

/// Names of softirqs by vector: the kernel's `softirq_to_name`.
pub(crate) const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct HandlerSums {
    /// Lengths of the intervals of each phase, by CPU and number.
    handlers: [FxHashMap<u64, Durations>; 3],
    /// By handler and CPU.
    longest: Longest<(Handler, u32)>,
}

impl HandlerSums {
    #[inline]
    fn see(
        &mut self,
        phase: Phase,
        begin: Nanos,
        InterruptIntervalEnd { time, cpu, number }: InterruptIntervalEnd,
    ) {
        let length = time.0.saturating_sub(begin.0);
        self.handlers[phase as usize].entry(key(cpu, number)).or_default().see(length);
        self.longest.see(length, begin, (Handler(phase, number), cpu));
    }
}

/// The end of an interval: a handler's exit, or for `raise` its entry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct InterruptIntervalEnd {
    time: Nanos,
    cpu: u32,
    number: u32,
}

/// The sums and open handlers after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HandlerState {
    names: FxHashMap<u32, String>,
    hard: Pairs<Nanos, InterruptIntervalEnd>,
    soft: Pairs<Nanos, InterruptIntervalEnd>,
    raised: Requests<Nanos, InterruptIntervalEnd>,
    sums: HandlerSums,
}

/// The field of the interrupt's number, of both kinds.
const NUMBER: usize = field::irq::IRQ;
const _: () = assert!(NUMBER == field::softirq::VEC);

/// CPU and number as one key.
fn key(cpu: u32, number: u32) -> u64 {
    u64::from(cpu) << 32 | u64::from(number)
}

impl Analysis for Interrupts {
    type Partial = HandlerState;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[
            (Kind::IrqEntry, &[field::irq::IRQ, field::irq::NAME]),
            (Kind::IrqExit, &[field::irq::IRQ]),
            (Kind::SoftirqRaise, &[field::softirq::VEC]),
            (Kind::SoftirqEntry, &[field::softirq::VEC]),
            (Kind::SoftirqExit, &[field::softirq::VEC]),
        ])
        .without_threads()
    }

    fn begin(&self, _: &Start<'_>) -> HandlerState {
        HandlerState::default()
    }

    fn fold(&self, partial: &mut HandlerState, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let HandlerState { names, hard, soft, raised, sums } = partial;
        let Some(number) = event.integer(NUMBER).map(|number| number as u32) else { return };
        let (time, cpu) = (event.time, event.cpu);
        let (key, end) = (key(cpu, number), InterruptIntervalEnd { time, cpu, number });
        match event.kind {
            Kind::IrqEntry => {
                hard.begin(key, time);
                let name = event.text(field::irq::NAME).unwrap_or_default();
                if names.get(&number).is_none_or(|known| known.as_bytes() != name) {
                    names.insert(number, String::from_utf8_lossy(name).into_owned());
                }
            }
            Kind::IrqExit => {
                if let Some((begin, end)) = hard.end(key, end) {
                    sums.see(Phase::Hard, begin, end);
                }
            }
            Kind::SoftirqRaise => raised.ask(key, time),
            Kind::SoftirqEntry => {
                soft.begin(key, time);
                if let Some((begin, end)) = raised.begin(key, end) {
                    sums.see(Phase::Raise, begin, end);
                }
            }
            Kind::SoftirqExit => {
                if let Some((begin, end)) = soft.end(key, end) {
                    sums.see(Phase::Soft, begin, end);
                }
            }
            _ => {}
        }
    }

    fn merge(&self, mut earlier: HandlerState, later: HandlerState, _: &Threads) -> HandlerState {
        let HandlerState { names, hard, soft, raised, sums } = &mut earlier;
        names.extend(later.names);
        for (own, more) in sums.handlers.iter_mut().zip(later.sums.handlers) {
            add_all(own, more);
        }
        sums.longest.add(later.sums.longest);
        hard.add(later.hard, |begin, end| sums.see(Phase::Hard, begin, end));
        soft.add(later.soft, |begin, end| sums.see(Phase::Soft, begin, end));
        raised.add(later.raised, |begin, end| sums.see(Phase::Raise, begin, end));
        earlier
    }

    fn finish(&self, partials: Vec<HandlerState>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let HandlerState { names, hard, soft, raised, mut sums } = whole;
        let (hard, soft) = (hard.left(), soft.left());
        raised.finish(|begin, end| sums.see(Phase::Raise, begin, end));
        let mut handlers: Vec<((Handler, u32), Durations)> = Vec::new();
        for (phase, numbers) in [Phase::Hard, Phase::Soft, Phase::Raise].into_iter().zip(sums.handlers) {
            let wanted =
                numbers.into_iter().filter(|(key, _)| context.selection.wants_cpu((key >> 32) as u32));
            handlers.extend(wanted.map(|(key, sum)| ((Handler(phase, key as u32), (key >> 32) as u32), sum)));
        }
        let total = |phase| {
            let of_phase = handlers.iter().filter(|((handler, _), _)| handler.0 == phase);
            Value::from(of_phase.map(|(_, durations)| durations.total).sum::<u64>())
        };
        let mut summary = vec![
            ("hard_ns", total(Phase::Hard)),
            ("soft_ns", total(Phase::Soft)),
            ("unmatched", (hard.unmatched + soft.unmatched).into()),
            ("unfinished", (hard.unfinished + soft.unfinished).into()),
        ];
        let (columns, rows) = match context.selection.view.as_str() {
            "slowest" => {
                summary.extend(sums.longest.note());
                slowest(&names, &sums.longest, context)
            }
            view => {
                let by_cpu = view == "cpu";
                rows(&names, handlers, by_cpu)
            }
        };
        Table::new("irq", Shape::Counters, summary, columns, rows)
    }
}

/// The cells of phase, number and name.
fn cells(names: &FxHashMap<u32, String>, Handler(phase, number): Handler) -> [Value; 3] {
    let name = match phase {
        Phase::Hard => names.get(&number).cloned(),
        Phase::Soft | Phase::Raise => SOFTIRQS.get(number as usize).map(|name| (*name).to_owned()),
    };
    [phase.name().into(), u64::from(number).into(), name.map_or(Value::Null, Value::from)]
}

fn rows(
    names: &FxHashMap<u32, String>,
    handlers: Vec<((Handler, u32), Durations)>,
    by_cpu: bool,
) -> TableRows {
    let mut sums: std::collections::BTreeMap<(Handler, u32), Durations> = std::collections::BTreeMap::new();
    for ((handler, cpu), durations) in handlers {
        sums.entry((handler, if by_cpu { cpu } else { 0 })).or_default().add(durations);
    }
    let mut columns = vec![Column::name("kind"), Column::integer("number", Unit::None), Column::name("name")];
    columns.extend(by_cpu.then_some(Column::integer("cpu", Unit::None)));
    columns.push(Column::integer("count", Unit::Count));
    columns.extend(duration_columns());
    let mut phases: [Vec<_>; 3] = Default::default();
    for ((handler, cpu), durations) in sums {
        let mut row = cells(names, handler).to_vec();
        row.extend(by_cpu.then(|| u64::from(cpu).into()));
        row.push(durations.count.into());
        row.extend(duration_cells(&durations));
        phases[handler.0 as usize].push(((durations.total, (handler, cpu)), row));
    }
    (columns, phases.into_iter().flat_map(|rows| most_first(rows.into_iter())).collect())
}

fn slowest(
    names: &FxHashMap<u32, String>,
    longest: &Longest<(Handler, u32)>,
    context: &FinishContext<'_>,
) -> TableRows {
    let columns = vec![
        Column::name("kind"),
        Column::integer("number", Unit::None),
        Column::name("name"),
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("cpu", Unit::None),
    ];
    let wanted = longest.iter().filter(|long| context.selection.wants_cpu(long.item.1));
    let rows = wanted.map(|LongItem { length, begin, item: (handler, cpu) }| {
        let mut row = cells(names, *handler).to_vec();
        row.extend([(*length).into(), begin.0.into(), u64::from(*cpu).into()]);
        row
    });
    (columns, rows.collect())
}
