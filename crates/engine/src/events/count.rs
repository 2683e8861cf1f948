//! How many events of each class there are.

use std::collections::BTreeMap;

use hodo_clock::OriginNanos;
use hodo_formats::ctf::Item;
use hodo_trace::{Column, Loss, Shape, Table, Unit, Value};

use super::{
    EventReading, EventTraces,
    filter::{Filter, Wanted},
    runs::{Run, each_run},
};
use crate::Losses;

/// What was counted in a run.
#[derive(Default)]
struct Counted {
    /// By index of the class.
    events: Vec<u64>,
    events_lost: u64,
    packets_lost: u64,
    span: Option<(OriginNanos, OriginNanos)>,
    losses: Vec<Loss>,
}

/// Counts the wanted events by name. `progress` is told the bytes that were read, and returns whether to go on.
pub fn count(
    traces: &EventTraces<'_>,
    wanted: &Wanted,
    reading: &EventReading,
    mut progress: impl FnMut(u64) -> bool,
) -> Table {
    let filter = Filter::new(traces, wanted);
    let all = wanted.is_all();
    let mut total = Counted::default();
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let mut done = 0;
    let work =
        |run: &Run<'_, '_>| if all { count_all(run, reading) } else { count_wanted(run, &filter, reading) };
    each_run(traces, reading, work, |run, counted: Counted| {
        let classes = run.classes().iter().zip(&counted.events).filter(|(_, events)| **events > 0);
        classes.for_each(|(class, &events)| *names.entry(class.name.clone()).or_default() += events);
        total.add(counted);
        done += run.bytes;
        progress(done)
    });
    let streams = traces.traces.iter().map(|trace| trace.streams.len() as u64).sum();
    let mut losses = Losses::default();
    traces.loss().into_iter().chain(total.losses).for_each(|loss| losses.add(loss));
    table(&names, (total.events_lost, total.packets_lost), total.span, streams, losses)
}

fn table(
    names: &BTreeMap<String, u64>,
    lost: (u64, u64),
    span: Option<(OriginNanos, OriginNanos)>,
    streams: u64,
    losses: Losses,
) -> Table {
    let time = |time: Option<OriginNanos>| match time.map(|time| u64::try_from(time.0)) {
        Some(Ok(nanos)) => Value::Integer(nanos),
        // Before its clock's origin, or too far behind it for a column of integers.
        Some(Err(_)) => Value::from(time.map_or(String::new(), |time| time.0.to_string())),
        None => Value::Null,
    };
    let mut rows: Vec<(&String, u64)> = names.iter().map(|(name, &count)| (name, count)).collect();
    // Most frequent first, then by name.
    rows.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    Table {
        name: "count",
        shape: Shape::Counters,
        summary: vec![
            ("events", names.values().sum::<u64>().into()),
            ("events_lost", lost.0.into()),
            ("packets_lost", lost.1.into()),
            ("streams", streams.into()),
            ("begin_ns", time(span.map(|span| span.0))),
            ("end_ns", time(span.map(|span| span.1))),
        ],
        columns: vec![Column::text("event"), Column::integer("count", Unit::Count)],
        rows: rows.into_iter().map(|(name, count)| vec![name.as_str().into(), count.into()]).collect(),
        loss: losses.into_list(),
    }
}

fn count_all(run: &Run<'_, '_>, reading: &EventReading) -> Counted {
    let mut counted = Counted::new(run);
    let mut cursor = run.cursor();
    let clock = cursor.clock();
    // Times are looked at as the clock counts them.
    let within = clock.map(|clock| clock.cycles(reading.from, reading.to));
    let (mut first, mut last) = (u64::MAX, 0);
    let mut count = |_, class: u32, cycles: Option<u64>| {
        let is_within = match (within, cycles) {
            (Some(within), Some(cycles)) => within.contains(cycles),
            _ => reading.wants(None),
        };
        if is_within {
            counted.events[class as usize] += 1;
            (first, last) = cycles.map_or((first, last), |cycles| (first.min(cycles), last.max(cycles)));
        }
        false
    };
    let mut lost = Vec::new();
    while let Some((time, item)) = cursor.next_where(&mut count) {
        if let Item::Lost(of) = item
            && reading.wants(time)
        {
            lost.push(of);
        }
    }
    lost.iter().for_each(|lost| counted.lose(lost));
    if let Some(clock) = clock.filter(|_| first <= last) {
        counted.span = Some((clock.nanos(first), clock.nanos(last)));
    }
    counted.losses = cursor.loss;
    counted
}

fn count_wanted(run: &Run<'_, '_>, filter: &Filter, reading: &EventReading) -> Counted {
    let mut counted = Counted::new(run);
    let mut cursor = run.cursor();
    while let Some((time, item)) = cursor.next_item() {
        if !reading.wants(time) {
            continue;
        }
        match item {
            Item::Event(parts) if filter.wants(run.trace, run.stream, &cursor.event(parts)) => {
                counted.events[parts.class as usize] += 1;
                counted.see(time);
            }
            Item::Event(_) => {}
            Item::Lost(lost) => counted.lose(&lost),
        }
    }
    counted.losses = cursor.loss;
    counted
}

impl Counted {
    fn new(run: &Run<'_, '_>) -> Counted {
        Counted { events: vec![0; run.classes().len()], ..Counted::default() }
    }

    #[inline]
    fn see(&mut self, time: Option<OriginNanos>) {
        let Some(time) = time else { return };
        self.span = Some(self.span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
    }

    fn lose(&mut self, lost: &hodo_formats::ctf::Lost) {
        let sum = if lost.packets { &mut self.packets_lost } else { &mut self.events_lost };
        *sum = sum.saturating_add(lost.count);
    }

    fn add(&mut self, other: Counted) {
        self.events_lost = self.events_lost.saturating_add(other.events_lost);
        self.packets_lost = self.packets_lost.saturating_add(other.packets_lost);
        if let Some((first, last)) = other.span {
            self.see(Some(first));
            self.see(Some(last));
        }
        self.losses.extend(other.losses);
    }
}
