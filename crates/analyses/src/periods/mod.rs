//! `periods`: how long did it take from one event to another, for any pair of event classes?
//!
//! A period begins at each event of one class and ends at the next event of another class with equal values in the
//! matching fields. A period is unfinished if another with equal values begins before its end.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Period, Report, Role,
    Shape, Start, Table, Takes, Unit, Value,
    kernel::{KernelEvent, Kind, Threads, field},
    only,
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, duration_cells, duration_columns, interval_columns, most_first, share},
    durations::{Add, Durations, LongItem, Longest},
    pairs::{Pairs, Unpaired},
};

/// The analysis; `ALL`: it keeps each period, not only the longest.
#[derive(Clone, Debug, Default)]
pub struct Periods<const ALL: bool = false> {
    /// The definition of a period. Merging does not need it.
    pub period: Option<Period>,
}

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "periods",
            roles: &[Role::Periods],
            help: "software events: times between any two kinds of events",
            views: &["group", "slowest", "interval"],
            takes: Takes { cpus: true, period: true, ..Takes::NOTHING },
            ..Description::EMPTY
        },
        make: |parameters| {
            let period = parameters.period.clone();
            match parameters.view() {
                "interval" => Made::of_events(Periods::<true> { period }),
                _ => Made::of_events(Periods::<false> { period }),
            }
        },
    }
}

/// An open period; the CPU is that on which it began.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BegunPeriod {
    pub(crate) begin: Nanos,
    pub(crate) group: String,
    pub(crate) cpu: u32,
}

impl BegunPeriod {
    /// Returns the period that begins with an event.
    pub(crate) fn of(event: &KernelEvent<'_>) -> BegunPeriod {
        let group = String::from_utf8_lossy(event.text(field::period::GROUP).unwrap_or_default());
        BegunPeriod { begin: event.time, group: group.into_owned(), cpu: event.cpu }
    }
}

/// One of the longest periods; the CPU is that on which it began.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct LongPeriod {
    group: String,
    /// The matching values.
    key: String,
    cpu: u32,
}

/// The sums and open periods after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PeriodState<const ALL: bool> {
    pairs: Pairs<BegunPeriod, Nanos, String>,
    sums: PeriodSums<ALL>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct PeriodSums<const ALL: bool> {
    /// By group, then by CPU.
    groups: BTreeMap<String, BTreeMap<u32, Durations>>,
    longest: Longest<LongPeriod, ALL>,
}

impl<const ALL: bool> PeriodSums<ALL> {
    fn see(&mut self, key: &str, BegunPeriod { begin, group, cpu }: BegunPeriod, end: Nanos) {
        let length = end.0.saturating_sub(begin.0);
        self.groups.entry(group.clone()).or_default().entry(cpu).or_default().see(length);
        self.longest.see(length, begin, LongPeriod { group, key: key.to_owned(), cpu });
    }
}

impl<const ALL: bool> Analysis for Periods<ALL> {
    type Partial = PeriodState<ALL>;

    fn interest(&self) -> Interest<'_> {
        use field::period::{GROUP, KEY};
        Interest::events(&[(Kind::PeriodBegin, &[KEY, GROUP]), (Kind::PeriodEnd, &[KEY])])
            .without_threads()
            .with_period(self.period.as_ref())
    }

    fn begin(&self, start: &Start<'_>) -> PeriodState<ALL> {
        PeriodState { pairs: Pairs::new(start.is_first), ..PeriodState::default() }
    }

    fn fold(&self, partial: &mut PeriodState<ALL>, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let PeriodState { pairs, sums } = partial;
        let key = String::from_utf8_lossy(event.text(field::period::KEY).unwrap_or_default()).into_owned();
        match event.kind {
            Kind::PeriodBegin => pairs.begin(key, BegunPeriod::of(event)),
            Kind::PeriodEnd => {
                if let Some((begun, end)) = pairs.end(key.clone(), event.time) {
                    sums.see(&key, begun, end);
                }
            }
            _ => {}
        }
    }

    fn merge(&self, mut earlier: PeriodState<ALL>, later: PeriodState<ALL>, _: &Threads) -> PeriodState<ALL> {
        let PeriodState { pairs, sums } = &mut earlier;
        for (group, cpus) in later.sums.groups {
            let own = sums.groups.entry(group).or_default();
            cpus.into_iter().for_each(|(cpu, durations)| own.entry(cpu).or_default().add(durations));
        }
        sums.longest.add(later.sums.longest);
        pairs.add_keyed(later.pairs, |key, begun, end| sums.see(key, begun, end));
        earlier
    }

    fn finish(&self, partials: Vec<PeriodState<ALL>>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let Unpaired { unmatched, unfinished } = whole.pairs.left();
        let mut groups: BTreeMap<String, Durations> = BTreeMap::new();
        for (group, cpus) in whole.sums.groups {
            let wanted = cpus.into_iter().filter(|(cpu, _)| context.selection.wants_cpu(*cpu));
            wanted.for_each(|(_, durations)| groups.entry(group.clone()).or_default().add(durations));
        }
        let sum = |which: fn(&Durations) -> u64| Value::from(groups.values().map(which).sum::<u64>());
        let mut summary = vec![
            ("periods", sum(|durations| durations.count)),
            ("total_ns", sum(|durations| durations.total)),
            ("unmatched", unmatched.into()),
            ("unfinished", unfinished.into()),
        ];
        let (shape, (columns, rows)) = match context.selection.view.as_str() {
            "interval" => (Shape::Intervals, intervals(&whole.sums.longest, context)),
            "slowest" => {
                summary.extend(whole.sums.longest.note());
                (Shape::Counters, slowest(&whole.sums.longest, context))
            }
            _ => (Shape::Counters, by_group(groups)),
        };
        Table::new("periods", shape, summary, columns, rows)
    }
}

fn by_group(groups: BTreeMap<String, Durations>) -> TableRows {
    let all = groups.values().map(|durations| durations.total).sum();
    let mut columns = vec![Column::name("group"), Column::integer("count", Unit::Count)];
    columns.extend(duration_columns());
    columns.push(Column::real("share", Unit::Share).secondary());
    let rows = groups.into_iter().map(|(group, durations)| {
        let mut row = vec![group.as_str().into(), durations.count.into()];
        row.extend(duration_cells(&durations));
        row.push(share(durations.total, all));
        ((durations.total, group), row)
    });
    (columns, most_first(rows))
}

fn intervals<const ALL: bool>(all: &Longest<LongPeriod, ALL>, context: &FinishContext<'_>) -> TableRows {
    let mut columns = interval_columns().to_vec();
    columns.extend([Column::name("group"), Column::text("match"), Column::integer("cpu", Unit::None)]);
    let mut rows = Vec::new();
    for LongItem { length, begin, item } in
        all.iter().filter(|long| context.selection.wants_cpu(long.item.cpu))
    {
        let (group, key) = (item.group.as_str().into(), item.key.as_str().into());
        rows.push(vec![begin.0.into(), (*length).into(), group, key, u64::from(item.cpu).into()]);
    }
    (columns, rows)
}

fn slowest<const ALL: bool>(longest: &Longest<LongPeriod, ALL>, context: &FinishContext<'_>) -> TableRows {
    let columns = vec![
        Column::name("group"),
        Column::text("match"),
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("end_ns", Unit::Nanoseconds).secondary(),
        Column::integer("cpu", Unit::None),
    ];
    let wanted = longest.iter().filter(|long| context.selection.wants_cpu(long.item.cpu));
    let rows = wanted.map(|LongItem { length, begin, item }| {
        let end = begin.0.saturating_add(*length);
        vec![
            item.group.as_str().into(),
            item.key.as_str().into(),
            (*length).into(),
            begin.0.into(),
            end.into(),
            u64::from(item.cpu).into(),
        ]
    });
    (columns, rows.collect())
}
