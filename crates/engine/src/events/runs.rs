//! Runs of packets, each decoded by itself: for whatever does not need the streams merged.

use std::ops::Range;

use hodo_formats::events::{Cursor, Stream, Trace, schema::EventClass};

use super::{EventReading, EventTraces};
use crate::parallel::in_order;

/// Packets of a stream that lie one behind the other.
#[derive(Clone, Debug)]
pub struct Run<'t, 'a> {
    /// Index of the trace.
    pub trace: usize,
    /// Index of the stream in the trace.
    pub stream: usize,
    /// Size of its packets.
    pub bytes: u64,
    packets: Range<usize>,
    of: (&'t Trace<'a>, &'t Stream<'a>),
}

impl<'t, 'a> Run<'t, 'a> {
    /// Reads it from its beginning.
    pub fn cursor(&self) -> Cursor<'t, 'a> {
        Cursor::new(self.of.0, self.of.1, self.packets.clone())
    }

    /// Reads it from its beginning, and from its middle.
    pub fn cursors(&self) -> [Cursor<'t, 'a>; 2] {
        let Range { start, end } = self.packets;
        let middle = start + (end - start) / 2;
        [start..middle, middle..end].map(|packets| Cursor::new(self.of.0, self.of.1, packets))
    }

    /// The classes of its events.
    pub fn classes(&self) -> &'t [EventClass] {
        &self.of.0.stream_class(self.of.1).events
    }
}

/// Does some `work` for each run of packets on all cores, and hands what comes of it to `consume`, in order of
/// traces, streams and packets. `consume` returns whether to go on.
pub fn each_run<'t, 'a, R: Send>(
    traces: &'t EventTraces<'a>,
    reading: &EventReading,
    work: impl Fn(&Run<'t, 'a>) -> R + Sync,
    consume: impl FnMut(&Run<'t, 'a>, R) -> bool + Send,
) {
    each_of(traces, &runs(traces, reading), reading, work, consume);
}

/// The same for these runs.
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

/// The runs that streams are cut into; without packets of which nothing is in the time that is asked for.
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
