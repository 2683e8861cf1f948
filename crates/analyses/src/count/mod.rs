//! `count`: how many events are there, of each name and stream, and how many were lost?

mod over_time;

use std::collections::BTreeMap;

use hodo_clock::OriginNanos;
use hodo_model::{
    Analysis, Column, CountInterest, Counts, Description, Every, FinishContext, FlowLoop, Interest, Item,
    Made, Report, Role, Shape, Start, Summary, Table, Takes, Unit, Value, kernel::Threads, only,
};
use serde::{Deserialize, Serialize};

use crate::columns::TableRows;
pub use over_time::CountOverTime;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "count",
            roles: &[Role::Counts],
            help: "software events: number of events by name, and of lost events",
            views: &["event", "stream", "time"],
            takes: Takes { threads: true, cpus: true, every: true, events: true, ..Takes::NOTHING },
            ..Description::EMPTY
        },
        make: |parameters| match (parameters.every, parameters.view()) {
            (Some(Every::Nanoseconds(width)), _) => Made::of_events(CountOverTime { width: Some(width) }),
            (_, "time") => Made::of_events(CountOverTime { width: None }),
            _ => Made::of_events(Count),
        },
    }
}

/// Counts by name and by stream.
#[derive(Clone, Copy, Debug)]
pub struct Count;

/// The numbers of lost events and packets, and the times of the first and the last event.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct LossesAndTimes {
    events_lost: u64,
    packets_lost: u64,
    span: Option<(OriginNanos, OriginNanos)>,
}

impl LossesAndTimes {
    fn of(counts: &Counts<'_>) -> LossesAndTimes {
        let &Counts { events_lost, packets_lost, span, .. } = counts;
        LossesAndTimes { events_lost, packets_lost, span }
    }

    fn add(&mut self, other: LossesAndTimes) {
        self.events_lost = self.events_lost.saturating_add(other.events_lost);
        self.packets_lost = self.packets_lost.saturating_add(other.packets_lost);
        self.span = match (self.span, other.span) {
            (Some(own), Some(other)) => Some((own.0.min(other.0), own.1.max(other.1))),
            (own, other) => own.or(other),
        };
    }

    /// Returns the summary that all tables of counts have.
    fn summary(&self, events: u64, streams: u64) -> Summary {
        vec![
            ("events", events.into()),
            ("events_lost", self.events_lost.into()),
            ("packets_lost", self.packets_lost.into()),
            ("streams", streams.into()),
            ("begin_ns", time(self.span.map(|span| span.0))),
            ("end_ns", time(self.span.map(|span| span.1))),
        ]
    }
}

/// The counts of a stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StreamCounts {
    name: String,
    events: BTreeMap<String, u64>,
    losses: LossesAndTimes,
}

impl StreamCounts {
    fn add(&mut self, other: StreamCounts) {
        self.name = other.name;
        self.losses.add(other.losses);
        other.events.into_iter().for_each(|(name, count)| *self.events.entry(name).or_default() += count);
    }
}

/// Counts by trace and stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EventCounts(BTreeMap<(u32, u32), StreamCounts>);

impl Analysis for Count {
    type Partial = EventCounts;

    fn interest(&self) -> Interest<'_> {
        Interest::counts(CountInterest::Streams)
    }

    fn begin(&self, _: &Start<'_>) -> EventCounts {
        EventCounts::default()
    }

    fn fold(&self, partial: &mut EventCounts, item: Item<'_>) {
        let Item::Counts(counts) = item else { return };
        let events = counts.events.iter().filter(|(_, count)| *count > 0);
        let (name, losses) = (counts.name.to_owned(), LossesAndTimes::of(counts));
        let mut stream = StreamCounts { name, losses, ..StreamCounts::default() };
        // Several classes may have one name.
        events.for_each(|&(name, count)| *stream.events.entry(name.to_owned()).or_default() += count);
        partial.0.entry(counts.stream).or_default().add(stream);
    }

    fn merge(&self, mut earlier: EventCounts, later: EventCounts, _: &Threads) -> EventCounts {
        for (key, stream) in later.0 {
            earlier.0.entry(key).or_default().add(stream);
        }
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, partials: Vec<EventCounts>, context: &FinishContext<'_>) -> Table {
        let streams = only(partials).0;
        let mut all = LossesAndTimes::default();
        streams.values().for_each(|stream| all.add(stream.losses));
        let events = streams.values().flat_map(|stream| stream.events.values()).sum();
        let summary = all.summary(events, streams.len() as u64);
        let (columns, rows) = match context.selection.view.as_str() {
            "stream" => by_stream(streams.values()),
            _ => by_event(streams.values()),
        };
        Table::new("count", Shape::Counters, summary, columns, rows)
    }
}

fn by_event<'s>(streams: impl Iterator<Item = &'s StreamCounts>) -> TableRows {
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in streams.flat_map(|stream| &stream.events) {
        *names.entry(name).or_default() += count;
    }
    let mut rows: Vec<(&str, u64)> = names.into_iter().collect();
    // Most frequent first, then by name.
    rows.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let columns = vec![Column::name("event"), Column::integer("count", Unit::Count)];
    (columns, rows.into_iter().map(|(name, count)| vec![name.into(), count.into()]).collect())
}

fn by_stream<'s>(streams: impl Iterator<Item = &'s StreamCounts>) -> TableRows {
    let columns = vec![
        Column::name("stream"),
        Column::integer("count", Unit::Count),
        Column::integer("per_second", Unit::Count),
        Column::integer("names", Unit::Count),
        Column::integer("events_lost", Unit::Count),
        Column::integer("packets_lost", Unit::Count),
        Column::signed("begin_ns", Unit::Nanoseconds).secondary(),
        Column::signed("end_ns", Unit::Nanoseconds).secondary(),
    ];
    let rows = streams.map(|stream| {
        let LossesAndTimes { events_lost, packets_lost, span } = stream.losses;
        let count: u64 = stream.events.values().sum();
        vec![
            stream.name.as_str().into(),
            count.into(),
            span.map_or(Value::Null, |(begin, end)| per_second(count, end.0 - begin.0)),
            (stream.events.len() as u64).into(),
            events_lost.into(),
            packets_lost.into(),
            time(span.map(|span| span.0)),
            time(span.map(|span| span.1)),
        ]
    });
    (columns, rows.collect())
}

/// Returns a rate per second, rounded to the nearest integer.
fn per_second(count: u64, nanos: i128) -> Value {
    let nanos = u128::try_from(nanos).unwrap_or(0);
    let rate = (u128::from(count) * 1_000_000_000 + nanos / 2).checked_div(nanos);
    rate.map_or(Value::Null, |rate| u64::try_from(rate).unwrap_or(u64::MAX).into())
}

/// Returns the cell of a time; null if it is too far from its clock's origin for an integer column.
fn time(time: Option<OriginNanos>) -> Value {
    time.and_then(|time| i64::try_from(time.0).ok()).into()
}
