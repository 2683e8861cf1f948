//! Ranges of packets, each decoded independently, for work that does not need the streams merged.

use std::ops::Range;

use hodo_formats::events::{Cursor, Stream, Trace, schema::EventClass};

use super::{EventReading, GrowingChunk, Traces};
use crate::parallel::in_order;

/// The least bytes of a range, however many threads share the rest.
const SMALLEST_SHARE: u64 = 2 << 20;

/// Consecutive packets of a stream.
#[derive(Clone, Debug)]
pub struct PacketRange<'t, 'a> {
    /// Index of the trace.
    pub trace_index: usize,
    /// Index of the stream in the trace.
    pub stream_index: usize,
    /// Size of its packets in bytes.
    pub bytes: u64,
    packets: Range<usize>,
    trace: &'t Trace<'a>,
    stream: &'t Stream<'a>,
}

impl<'t, 'a> PacketRange<'t, 'a> {
    /// Returns a cursor at its beginning.
    pub fn cursor(&self) -> Cursor<'t, 'a> {
        Cursor::new(self.trace, self.stream, self.packets.clone())
    }

    /// Returns cursors over its first and its second half.
    pub fn cursors(&self) -> [Cursor<'t, 'a>; 2] {
        let Range { start, end } = self.packets;
        let middle = start + (end - start) / 2;
        [start..middle, middle..end].map(|packets| Cursor::new(self.trace, self.stream, packets))
    }

    /// Returns the classes of its events.
    pub fn classes(&self) -> &'t [EventClass] {
        &self.trace.stream_class(self.stream).events
    }
}

/// Calls `work` for each range of packets on `reading.threads` threads, and passes the results to `consume` in order of
/// traces, streams and packets. `consume` returns whether to continue.
pub fn each_range<'t, 'a, R: Send>(
    traces: &'t Traces<'a>,
    reading: &EventReading,
    work: impl Fn(&PacketRange<'t, 'a>) -> R + Sync,
    consume: impl FnMut(&PacketRange<'t, 'a>, R) -> bool + Send,
) {
    each_of(traces, &ranges(traces, reading), reading, work, consume);
}

/// As [`each_range`], for these ranges.
pub(super) fn each_of<'t, 'a, R: Send>(
    traces: &Traces<'a>,
    ranges: &[PacketRange<'t, 'a>],
    reading: &EventReading,
    work: impl Fn(&PacketRange<'t, 'a>) -> R + Sync,
    mut consume: impl FnMut(&PacketRange<'t, 'a>, R) -> bool + Send,
) {
    let mut consumed = ranges.iter();
    in_order(
        ranges,
        reading.threads,
        || (),
        |(), range| {
            let result = work(range);
            traces.release(range.trace_index, range.stream_index, range.packets.clone());
            result
        },
        |result| consumed.next().is_some_and(|range| consume(range, result)),
    );
}

/// Cuts streams into ranges, without the packets outside the window.
pub(super) fn ranges<'t, 'a>(traces: &'t Traces<'a>, reading: &EventReading) -> Vec<PacketRange<'t, 'a>> {
    let mut ranges = Vec::new();
    let mut left = traces.event_bytes();
    for (trace_index, trace) in traces.events.iter().enumerate() {
        for (stream_index, stream) in trace.streams.iter().enumerate() {
            let mut range = PacketRange { trace_index, stream_index, bytes: 0, packets: 0..0, trace, stream };
            for (index, packet) in stream.packets.iter().enumerate() {
                let chunk = GrowingChunk {
                    begin: stream.packets[range.packets.start].begin,
                    bytes: range.bytes,
                    left,
                    threads: reading.threads,
                    smallest_share: SMALLEST_SHARE,
                };
                let is_left_out = reading.leaves_out(stream, index);
                if range.bytes > 0 && (is_left_out || chunk.ends_before(packet.begin, reading.chunks)) {
                    left -= range.bytes;
                    let next = PacketRange { bytes: 0, packets: index..index, ..range.clone() };
                    ranges.push(std::mem::replace(&mut range, next));
                }
                if is_left_out {
                    left -= packet.size();
                    range.packets = index + 1..index + 1;
                    continue;
                }
                range.packets.end = index + 1;
                range.bytes += packet.size();
            }
            left -= range.bytes;
            ranges.extend((range.bytes > 0).then_some(range));
        }
    }
    ranges
}
