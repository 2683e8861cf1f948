//! Slices of time, to be merged each by itself.
//!
//! A slice begins and ends at times at which packets begin. In each stream it goes from the first item at or
//! after its beginning, looked for from the packet on that is open then, to the first at or after its end: so
//! every item is in exactly one slice, whatever the tracer says of its packets' times.

use std::ops::Range;

use hodo_clock::OriginNanos;
use hodo_formats::events::Stream;

use super::{EventReading, EventTraces};

/// A part of a stream that a slice covers.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Index of the trace.
    pub(super) trace: usize,
    /// Index of the stream in the trace.
    pub(super) stream: usize,
    /// Packets, of which the slice may not cover all of the first and the last.
    pub(super) packets: Range<usize>,
    /// In the first packet, what comes before this time belongs to the slice before.
    pub(super) skip_before: Option<OriginNanos>,
    /// In this packet, what comes from the first item at this time on belongs to the next slice.
    pub(super) stop_at: Option<(usize, OriginNanos)>,
}

/// A slice of time.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(super) parts: Vec<Part>,
    /// Whether none is before it.
    pub(super) is_first: bool,
    /// Bytes of packets that begin in it.
    pub(crate) bytes: u64,
}

/// Cuts traces into slices of about as many bytes as asked for, or of as much time.
pub(crate) fn plan(traces: &EventTraces<'_>, reading: &EventReading) -> Vec<Slice> {
    let borders = borders(traces, reading);
    let mut slices = Vec::new();
    for (index, &(from, bytes)) in borders.iter().enumerate() {
        let to = borders.get(index + 1).and_then(|&(to, _)| to).or(reading.to);
        let mut slice = Slice { parts: Vec::new(), is_first: index == 0, bytes };
        for (trace, of) in traces.traces.iter().enumerate() {
            for (stream, of) in of.streams.iter().enumerate() {
                slice.parts.extend(part(of, from, to, index == 0).map(|part| Part { trace, stream, ..part }));
            }
        }
        slices.push(slice);
    }
    slices
}

/// Where slices begin, and the bytes of each. The first begins with the traces, unless another time is asked for.
fn borders(traces: &EventTraces<'_>, reading: &EventReading) -> Vec<(Option<OriginNanos>, u64)> {
    let mut borders = vec![(reading.from, 0)];
    let streams = || traces.traces.iter().flat_map(|trace| &trace.streams);
    if !streams().all(|stream| is_ordered(stream) || has_no_times(stream)) {
        borders[0].1 = traces.bytes();
        return borders;
    }
    let packets = streams().flat_map(|stream| &stream.packets);
    let mut packets: Vec<_> = packets.map(|packet| (packet.begin, packet.size())).collect();
    packets.sort_unstable();
    let mut left: u64 = packets.iter().map(|(_, bytes)| bytes).sum();
    for (begin, bytes) in packets {
        let (from, size) = borders[borders.len() - 1];
        let inside = reading.from.is_none_or(|from| begin > Some(from))
            && reading.to.is_none_or(|to| begin < Some(to));
        if reading.chunks.end((size, left), from, begin) && begin > from && inside {
            borders.push((begin, 0));
            left -= size;
        }
        let last = borders.len() - 1;
        borders[last].1 += bytes;
    }
    borders
}

fn is_ordered(stream: &Stream<'_>) -> bool {
    stream.packets.iter().all(|packet| packet.begin.is_some())
        && stream.packets.is_sorted_by_key(|packet| packet.begin)
}

fn has_no_times(stream: &Stream<'_>) -> bool {
    stream.packets.iter().all(|packet| packet.begin.is_none() && packet.end.is_none()) && !stream.had_pre_pass
}

/// What a slice covers of a stream.
fn part(
    stream: &Stream<'_>,
    from: Option<OriginNanos>,
    to: Option<OriginNanos>,
    first: bool,
) -> Option<Part> {
    let count = stream.packets.len();
    let whole = Part { trace: 0, stream: 0, packets: 0..count, skip_before: None, stop_at: None };
    if !is_ordered(stream) {
        return first.then_some(whole);
    }
    let open_at =
        |time| stream.packets.partition_point(|packet| packet.begin <= Some(time)).saturating_sub(1);
    let start = from.map_or(0, open_at);
    let last = to.map_or(count, open_at);
    let packets = start..(last + 1).min(count);
    Some(Part { packets, skip_before: from, stop_at: to.map(|to| (last, to)), ..whole })
}
