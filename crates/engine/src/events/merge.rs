//! Merges the items of several streams: by time, then by stream, then by position.

use std::{cmp::Reverse, collections::BinaryHeap};

use hodo_clock::OriginNanos;
use hodo_formats::events::{Cursor, Item, Stream, Trace};

use super::{Traces, slices::Part};

/// The time of an item, and the index of its source.
type Key = (OriginNanos, usize);

/// Which classes of events are read, by trace, stream and class.
#[derive(Clone, Debug)]
pub struct Classes(Vec<Vec<Vec<bool>>>);

impl Classes {
    /// The classes for which `is_read` holds: it gets the indices of trace, stream and class.
    pub fn new(traces: &Traces<'_>, is_read: impl Fn(usize, usize, usize) -> bool) -> Classes {
        let mut all = Vec::new();
        for (trace_index, trace) in traces.events.iter().enumerate() {
            let mut of_trace = Vec::new();
            for (stream_index, stream) in trace.streams.iter().enumerate() {
                let classes = 0..trace.stream_class(stream).events.len();
                of_trace.push(classes.map(|class| is_read(trace_index, stream_index, class)).collect());
            }
            all.push(of_trace);
        }
        Classes(all)
    }
}

/// A stream of a slice.
#[derive(Debug)]
pub struct Source<'t, 'a> {
    /// The trace of the stream.
    pub trace: &'t Trace<'a>,
    /// Index of the trace.
    pub trace_index: usize,
    /// Index of the stream in the trace.
    pub stream_index: usize,
    /// Reads the stream.
    pub cursor: Cursor<'t, 'a>,
    part: Part,
    /// By class: whether its events are read.
    classes: &'t [bool],
    /// The next item and its time.
    pub next: Option<(Option<OriginNanos>, Item)>,
}

impl<'t, 'a> Source<'t, 'a> {
    fn new(traces: &'t Traces<'a>, part: &Part, classes: &'t Classes) -> Source<'t, 'a> {
        let trace = &traces.events[part.trace];
        let stream: &Stream<'a> = &trace.streams[part.stream];
        let cursor = Cursor::new(trace, stream, part.packets.clone());
        let mut source = Source {
            trace,
            trace_index: part.trace,
            stream_index: part.stream,
            cursor,
            part: part.clone(),
            classes: &classes.0[part.trace][part.stream],
            next: None,
        };
        source.advance();
        if let Some(from) = part.skip_before {
            let first = part.packets.start;
            while source.is_within(first, |time| time < from) {
                source.advance();
            }
        }
        source
    }

    /// Returns the time of the next item, if there is one; items without a time come first.
    #[inline]
    fn time(&self) -> Option<OriginNanos> {
        self.next.as_ref().map(|(time, _)| time.unwrap_or(OriginNanos(i128::MIN)))
    }

    /// Returns whether the next item is in this packet and its time satisfies `condition`.
    fn is_within(&self, packet: usize, condition: impl Fn(OriginNanos) -> bool) -> bool {
        self.cursor.packet_index() == Some(packet)
            && matches!(self.next, Some((Some(time), _)) if condition(time))
    }

    /// Advances to the next item within the slice.
    fn advance(&mut self) {
        let classes = self.classes;
        self.next = self.cursor.next_where(|_, class, _| classes[class as usize]);
        if let Some((packet, to)) = self.part.stop_at
            && self.is_within(packet, |time| time >= to)
        {
            self.next = None;
        }
    }
}

/// Merges the streams of a slice.
#[derive(Debug)]
pub struct Merge<'t, 'a> {
    /// The streams.
    pub sources: Vec<Source<'t, 'a>>,
    /// The sources with a next item, except `current`.
    heap: BinaryHeap<Reverse<Key>>,
    /// The source whose item was returned last.
    current: Option<usize>,
}

impl<'t, 'a> Merge<'t, 'a> {
    /// Begins with the first items of a slice: losses, and events of these classes.
    pub fn new(traces: &'t Traces<'a>, parts: &[Part], classes: &'t Classes) -> Merge<'t, 'a> {
        let sources: Vec<_> = parts.iter().map(|part| Source::new(traces, part, classes)).collect();
        let keys =
            sources.iter().enumerate().filter_map(|(index, source)| Some(Reverse((source.time()?, index))));
        let heap = keys.collect();
        Merge { sources, heap, current: None }
    }

    /// Returns the index of the source with the next item.
    #[inline]
    pub fn next_source(&mut self) -> Option<usize> {
        if let Some(index) = self.current.take() {
            self.sources[index].advance();
            if let Some(time) = self.sources[index].time() {
                // Usually consecutive items are of the same stream: keep it out of the heap.
                let is_before = |&Reverse(first): &Reverse<Key>| (time, index) < first;
                if self.heap.peek().is_none_or(is_before) {
                    self.current = Some(index);
                    return self.current;
                }
                self.heap.push(Reverse((time, index)));
            }
        }
        let Reverse((_, index)) = self.heap.pop()?;
        self.current = Some(index);
        self.current
    }
}
