//! How many events of each class there are.

use std::collections::BTreeMap;

use hodo_clock::OriginNanos;
use hodo_formats::ctf::{Cursor, Item};
use hodo_trace::{Column, Loss, Shape, Table, Unit, Value};

use super::{
    EventReading, EventTraces,
    filter::{Filter, Wanted},
};
use crate::{Losses, parallel::in_order};

/// A run of packets of one stream.
struct Chunk {
    trace: usize,
    stream: usize,
    packets: std::ops::Range<usize>,
    bytes: u64,
}

/// What was counted in a chunk.
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
    let chunks = chunks(traces, reading.chunk_size);
    let filter = Filter::new(traces, wanted);
    let all = wanted.is_all() && reading.from.is_none() && reading.to.is_none();
    let mut total = Counted::default();
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let mut done = 0;
    let work = |(): &mut (), chunk: &Chunk| match all {
        true => (count_all(traces, chunk), chunk.trace, chunk.stream, chunk.bytes),
        false => (count_wanted(traces, chunk, &filter, reading), chunk.trace, chunk.stream, chunk.bytes),
    };
    in_order(
        &chunks,
        reading.threads,
        || (),
        work,
        |(counted, trace, stream, bytes)| {
            let trace = &traces.traces[trace];
            let classes = &trace.stream_class(&trace.streams[stream]).events;
            for (class, &events) in classes.iter().zip(&counted.events).filter(|(_, events)| **events > 0) {
                *names.entry(class.name.clone()).or_default() += events;
            }
            total.add(counted);
            done += bytes;
            progress(done)
        },
    );
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

fn chunks(traces: &EventTraces<'_>, size: u64) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for (trace, of) in traces.traces.iter().enumerate() {
        for (stream, of) in of.streams.iter().enumerate() {
            let mut chunk = Chunk { trace, stream, packets: 0..0, bytes: 0 };
            for (index, packet) in of.packets.iter().enumerate() {
                chunk.packets.end = index + 1;
                chunk.bytes += packet.bytes.len() as u64;
                if chunk.bytes >= size {
                    let next = Chunk { trace, stream, packets: index + 1..index + 1, bytes: 0 };
                    chunks.push(std::mem::replace(&mut chunk, next));
                }
            }
            chunks.extend((chunk.bytes > 0).then_some(chunk));
        }
    }
    chunks
}

fn count_all(traces: &EventTraces<'_>, chunk: &Chunk) -> Counted {
    let trace = &traces.traces[chunk.trace];
    let stream = &trace.streams[chunk.stream];
    let mut counted =
        Counted { events: vec![0; trace.stream_class(stream).events.len()], ..Counted::default() };
    let mut cursor = Cursor::new(trace, stream, chunk.packets.clone());
    while let Some((time, item)) = cursor.next_item() {
        match item {
            Item::Event(parts) => {
                counted.events[parts.class as usize] += 1;
                counted.see(time);
            }
            Item::Lost(lost) => counted.lose(&lost),
        }
    }
    counted.losses = cursor.loss;
    counted
}

fn count_wanted(traces: &EventTraces<'_>, chunk: &Chunk, filter: &Filter, reading: &EventReading) -> Counted {
    let trace = &traces.traces[chunk.trace];
    let stream = &trace.streams[chunk.stream];
    let mut counted =
        Counted { events: vec![0; trace.stream_class(stream).events.len()], ..Counted::default() };
    let mut cursor = Cursor::new(trace, stream, chunk.packets.clone());
    while let Some((time, item)) = cursor.next_item() {
        if !reading.wants(time) {
            continue;
        }
        match item {
            Item::Event(parts) if filter.wants(chunk.trace, chunk.stream, &cursor.event(parts)) => {
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
