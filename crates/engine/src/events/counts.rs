//! Counts of events, by name and by stream, as they are put together of runs of packets or of parts.

use std::collections::BTreeMap;

use hodo_clock::OriginNanos;
use hodo_formats::ctf::{Stream, Trace};
use hodo_trace::{Column, Shape, Table, Unit, Value};
use serde::{Deserialize, Serialize};

use super::{EventTraces, count::Counted};
use crate::Losses;

/// What a stream has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct OfStream {
    name: String,
    events: BTreeMap<String, u64>,
    figures: Figures,
}

/// What was lost, and from when to when there are events.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) events_lost: u64,
    pub(super) packets_lost: u64,
    pub(super) span: Option<(OriginNanos, OriginNanos)>,
}

impl Figures {
    pub(super) fn add(&mut self, other: Figures) {
        self.events_lost = self.events_lost.saturating_add(other.events_lost);
        self.packets_lost = self.packets_lost.saturating_add(other.packets_lost);
        self.span = match (self.span, other.span) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
    }

    /// What every table of counts tells of the whole.
    pub(super) fn summary(&self, events: u64, streams: u64) -> Vec<(&'static str, Value)> {
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

/// A time as a cell.
pub(super) fn time(time: Option<OriginNanos>) -> Value {
    match time.map(|time| u64::try_from(time.0)) {
        Some(Ok(nanos)) => Value::Integer(nanos),
        // Before its clock's origin, or too far behind it for a column of integers.
        Some(Err(_)) => Value::from(time.map_or(String::new(), |time| time.0.to_string())),
        None => Value::Null,
    }
}

/// Counts of all streams, by trace and stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts(Vec<Vec<OfStream>>);

/// What the rows are.
pub const COUNT_VIEWS: [&str; 3] = ["event", "stream", "time"];

impl Counts {
    /// Of what was counted in each stream, by trace and stream.
    pub(super) fn new(traces: &EventTraces<'_>, counted: Vec<Vec<Counted>>) -> Counts {
        let several = traces.traces.len() > 1;
        let of_trace = |(trace, counted): (&Trace<'_>, Vec<Counted>)| {
            let of_stream = |(stream, counted): (&Stream<'_>, Counted)| {
                let name =
                    if several { format!("{}/{}", trace.name, stream.name) } else { stream.name.clone() };
                let mut events = BTreeMap::new();
                let classes = trace.stream_class(stream).events.iter().zip(counted.events);
                for (class, count) in classes.filter(|(_, count)| *count > 0) {
                    *events.entry(class.name.clone()).or_default() += count;
                }
                OfStream { name, events, figures: counted.figures }
            };
            trace.streams.iter().zip(counted).map(of_stream).collect()
        };
        Counts(traces.traces.iter().zip(counted).map(of_trace).collect())
    }

    /// The same streams, of which nothing was counted.
    pub(super) fn without(&self) -> Counts {
        let stream = |stream: &OfStream| OfStream { name: stream.name.clone(), ..OfStream::default() };
        Counts(self.0.iter().map(|streams| streams.iter().map(stream).collect()).collect())
    }

    /// Adds counts of other packets of the same streams.
    pub(super) fn add(&mut self, other: Counts) {
        for (own, other) in self.0.iter_mut().flatten().zip(other.0.into_iter().flatten()) {
            other.events.into_iter().for_each(|(name, count)| *own.events.entry(name).or_default() += count);
            own.figures.add(other.figures);
        }
    }

    /// The table of a view: rows are events, or streams.
    pub(super) fn table(&self, view: &str, losses: Losses) -> Table {
        let streams = || self.0.iter().flatten();
        let mut all = Figures::default();
        streams().for_each(|stream| all.add(stream.figures));
        let events = streams().flat_map(|stream| stream.events.values()).sum();
        let (columns, rows) = if view == "stream" { self.by_stream() } else { self.by_event() };
        Table {
            name: "count",
            shape: Shape::Counters,
            summary: all.summary(events, streams().count() as u64),
            columns,
            rows,
            loss: losses.into_list(),
        }
    }

    fn by_event(&self) -> (Vec<Column>, Vec<Vec<Value>>) {
        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, count) in self.0.iter().flatten().flat_map(|stream| &stream.events) {
            *names.entry(name).or_default() += count;
        }
        let mut rows: Vec<(&str, u64)> = names.into_iter().collect();
        // Most frequent first, then by name.
        rows.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let columns = vec![Column::text("event"), Column::integer("count", Unit::Count)];
        (columns, rows.into_iter().map(|(name, count)| vec![name.into(), count.into()]).collect())
    }

    fn by_stream(&self) -> (Vec<Column>, Vec<Vec<Value>>) {
        let columns = vec![
            Column::text("stream"),
            Column::integer("count", Unit::Count),
            Column::integer("per_second", Unit::Count),
            Column::integer("names", Unit::Count),
            Column::integer("events_lost", Unit::Count),
            Column::integer("packets_lost", Unit::Count),
            Column::integer("begin_ns", Unit::Nanoseconds).secondary(),
            Column::integer("end_ns", Unit::Nanoseconds).secondary(),
        ];
        let row = |stream: &OfStream| {
            let Figures { events_lost, packets_lost, span } = stream.figures;
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
        };
        (columns, self.0.iter().flatten().map(row).collect())
    }
}

/// A rate, rounded to the nearest integer.
pub(super) fn per_second(count: u64, nanos: i128) -> Value {
    let nanos = u128::try_from(nanos).unwrap_or(0);
    let rate = (u128::from(count) * 1_000_000_000 + nanos / 2).checked_div(nanos);
    rate.map_or(Value::Null, |rate| u64::try_from(rate).unwrap_or(u64::MAX).into())
}
