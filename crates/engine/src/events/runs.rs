//! Runs of packets, each decoded independently, for work that does not need the streams merged.

use std::ops::Range;

use hodo_formats::events::{Cursor, Stream, Trace, schema::EventClass};

use super::{EventReading, EventTraces};
use crate::parallel::in_order;

/// Consecutive packets of a stream.
#[derive(Clone, Debug)]
pub struct Run<'t, 'a> {
    /// Index of the trace.
    pub trace: usize,
    /// Index of the stream in the trace.
    pub stream: usize,
    /// Size of its packets in bytes.
    pub bytes: u64,
    packets: Range<usize>,
    of: (&'t Trace<'a>, &'t Stream<'a>),
}

impl<'t, 'a> Run<'t, 'a> {
    /// Returns a cursor at its beginning.
    pub fn cursor(&self) -> Cursor<'t, 'a> {
        Cursor::new(self.of.0, self.of.1, self.packets.clone())
    }

    /// Returns cursors over its first and its second half.
    pub fn cursors(&self) -> [Cursor<'t, 'a>; 2] {
        let Range { start, end } = self.packets;
        let middle = start + (end - start) / 2;
        [start..middle, middle..end].map(|packets| Cursor::new(self.of.0, self.of.1, packets))
    }

    /// Returns the classes of its events.
    pub fn classes(&self) -> &'t [EventClass] {
        &self.of.0.stream_class(self.of.1).events
    }
}

/// Calls `work` for each run of packets on `reading.threads` threads, and passes the results to `consume` in order of
/// traces, streams and packets. `consume` returns whether to continue.
pub fn each_run<'t, 'a, R: Send>(
    traces: &'t EventTraces<'a>,
    reading: &EventReading,
    work: impl Fn(&Run<'t, 'a>) -> R + Sync,
    consume: impl FnMut(&Run<'t, 'a>, R) -> bool + Send,
) {
    each_of(traces, &runs(traces, reading), reading, work, consume);
}

/// As [`each_run`], for these runs.
pub(super) fn each_of<'t, 'a, R: Send>(
    traces: &EventTraces<'a>,
    runs: &[Run<'t, 'a>],
    reading: &EventReading,
    work: impl Fn(&Run<'t, 'a>) -> R + Sync,
    mut consume: impl FnMut(&Run<'t, 'a>, R) -> bool + Send,
) {
    let mut consumed = runs.iter();
    in_order(
        runs,
        reading.threads,
        || (),
        |(), run| {
            let result = work(run);
            traces.release(run.trace, run.stream, run.packets.clone());
            result
        },
        |result| consumed.next().is_some_and(|run| consume(run, result)),
    );
}

/// Cuts streams into runs, without the packets outside the window.
pub(super) fn runs<'t, 'a>(traces: &'t EventTraces<'a>, reading: &EventReading) -> Vec<Run<'t, 'a>> {
    let mut runs = Vec::new();
    let mut left = traces.bytes();
    for (trace, of) in traces.traces.iter().enumerate() {
        for (stream, of) in of.streams.iter().enumerate().map(|(index, stream)| (index, (of, stream))) {
            let mut run = Run { trace, stream, bytes: 0, packets: 0..0, of };
            for (index, packet) in of.1.packets.iter().enumerate() {
                let begin = of.1.packets[run.packets.start].begin;
                let is_left_out = reading.leaves_out(of.1, index);
                if run.bytes > 0
                    && (is_left_out || reading.chunks.end((run.bytes, left), begin, packet.begin))
                {
                    left -= run.bytes;
                    let next = Run { bytes: 0, packets: index..index, ..run.clone() };
                    runs.push(std::mem::replace(&mut run, next));
                }
                if is_left_out {
                    left -= packet.size();
                    run.packets = index + 1..index + 1;
                    continue;
                }
                run.packets.end = index + 1;
                run.bytes += packet.size();
            }
            left -= run.bytes;
            runs.extend((run.bytes > 0).then_some(run));
        }
    }
    runs
}
