//! Cuts traces into slices of time that are merged independently.
//!
//! A slice begins and ends at begin times of packets. In each stream it extends from the first item at or after its
//! beginning to the first item at or after its end; the search for each starts in the packet that is open at that time.
//! So every item is in exactly one slice, even if the packets' times are wrong.

use std::ops::Range;

use hodo_clock::OriginNanos;
use hodo_formats::events::Stream;

use super::{EventReading, GrowingChunk, Traces};

/// The part of a stream that a slice covers.
#[derive(Clone, Debug)]
pub struct Part {
    /// Index of the trace.
    pub trace: usize,
    /// Index of the stream in the trace.
    pub stream: usize,
    /// Packets; the slice may cover the first and the last only in part.
    pub packets: Range<usize>,
    /// In the first packet, items before this time belong to the previous slice.
    pub skip_before: Option<OriginNanos>,
    /// In this packet, the first item at or after this time and all that follow belong to the next slice.
    pub stop_at: Option<(usize, OriginNanos)>,
}

/// A slice of time.
#[derive(Clone, Debug)]
pub struct Slice {
    /// What it covers of each stream.
    pub parts: Vec<Part>,
    /// Whether it is the first slice.
    pub is_first: bool,
    /// Size of the packets that begin in it, in bytes.
    pub bytes: u64,
}

/// The least bytes of a slice, however many threads share the rest: packets that span a border are read twice.
const SMALLEST_SHARE: u64 = 8 << 20;

/// Cuts traces into slices as [`EventReading::chunks`] requests.
pub fn plan(traces: &Traces<'_>, reading: &EventReading) -> Vec<Slice> {
    let borders = borders(traces, reading);
    let mut slices = Vec::new();
    for (index, &(from, bytes)) in borders.iter().enumerate() {
        let to = borders.get(index + 1).and_then(|&(to, _)| to).or(reading.window.to);
        let is_first = index == 0;
        let mut slice = Slice { parts: Vec::new(), is_first, bytes };
        for (trace_index, trace) in traces.events.iter().enumerate() {
            for (stream_index, stream) in trace.streams.iter().enumerate() {
                let part = part(stream, from, to, is_first);
                slice.parts.extend(part.map(|part| Part {
                    trace: trace_index,
                    stream: stream_index,
                    ..part
                }));
            }
        }
        slices.push(slice);
    }
    slices
}

/// Returns the begin time of each slice, and its size in bytes. The first begins with the traces or with the window.
fn borders(traces: &Traces<'_>, reading: &EventReading) -> Vec<(Option<OriginNanos>, u64)> {
    let mut borders = vec![(reading.window.from, 0)];
    let streams = || traces.events.iter().flat_map(|trace| &trace.streams);
    if !streams().all(|stream| is_ordered(stream) || has_no_times(stream)) {
        borders[0].1 = traces.event_bytes();
        return borders;
    }
    let packets = streams().flat_map(|stream| &stream.packets);
    let mut packets: Vec<_> = packets.map(|packet| (packet.begin, packet.size())).collect();
    packets.sort_unstable();
    let mut left: u64 = packets.iter().map(|(_, bytes)| bytes).sum();
    for (begin, bytes) in packets {
        let (from, size) = borders[borders.len() - 1];
        let inside = reading.window.from.is_none_or(|from| begin > Some(from))
            && reading.window.to.is_none_or(|to| begin < Some(to));
        let chunk = GrowingChunk {
            begin: from,
            bytes: size,
            left,
            threads: reading.threads,
            smallest_share: SMALLEST_SHARE,
        };
        if chunk.ends_before(begin, reading.chunks) && begin > from && inside {
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

/// Returns the part of a stream that a slice covers. A stream whose packets are not in order of time is in the first slice.
fn part(
    stream: &Stream<'_>,
    from: Option<OriginNanos>,
    to: Option<OriginNanos>,
    is_first: bool,
) -> Option<Part> {
    let count = stream.packets.len();
    let whole = Part { trace: 0, stream: 0, packets: 0..count, skip_before: None, stop_at: None };
    if !is_ordered(stream) {
        return is_first.then_some(whole);
    }
    let open_at =
        |time| stream.packets.partition_point(|packet| packet.begin <= Some(time)).saturating_sub(1);
    let start = from.map_or(0, open_at);
    let last = to.map_or(count, open_at);
    let packets = start..(last + 1).min(count);
    Some(Part { packets, skip_before: from, stop_at: to.map(|to| (last, to)), ..whole })
}
