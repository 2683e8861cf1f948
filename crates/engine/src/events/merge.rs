//! The items of several streams in order: by time, then by stream, then by position.

use std::{cmp::Reverse, collections::BinaryHeap};

use hodo_clock::OriginNanos;
use hodo_formats::ctf::{Cursor, Item, Stream, Trace};

use super::{EventTraces, slices::Part};

/// When, and in which of the streams; what has no time comes first.
type Key = (Option<OriginNanos>, usize);

/// A stream of a slice.
pub(super) struct Source<'t, 'a> {
    pub(super) trace: usize,
    pub(super) stream: usize,
    pub(super) of: &'t Trace<'a>,
    pub(super) cursor: Cursor<'t, 'a>,
    part: Part,
    /// The item that comes next.
    next: Option<(Option<OriginNanos>, Item)>,
}

impl<'t, 'a> Source<'t, 'a> {
    fn new(traces: &'t EventTraces<'a>, part: &Part) -> Source<'t, 'a> {
        let of = &traces.traces[part.trace];
        let stream: &Stream<'a> = &of.streams[part.stream];
        let cursor = Cursor::new(of, stream, part.packets.clone());
        let (trace, stream) = (part.trace, part.stream);
        let mut source = Source { trace, stream, of, cursor, part: part.clone(), next: None };
        source.advance();
        if let Some(from) = part.skip_before {
            let first = part.packets.start;
            while source.is_within(first, |time| time < from) {
                source.advance();
            }
        }
        source
    }

    /// Whether the next item is of this packet, and its time is such.
    fn is_within(&self, packet: usize, is: impl Fn(OriginNanos) -> bool) -> bool {
        matches!(self.next, Some((Some(time), _)) if is(time)) && self.cursor.packet_index() == Some(packet)
    }

    /// Goes to the next item, as far as the slice goes.
    fn advance(&mut self) {
        self.next = self.cursor.next_item();
        if let Some((packet, to)) = self.part.stop_at
            && self.is_within(packet, |time| time >= to)
        {
            self.next = None;
        }
    }
}

/// Merges the streams of a slice.
pub(super) struct Merge<'t, 'a> {
    pub(super) sources: Vec<Source<'t, 'a>>,
    /// The streams that have a next item, but the one in hand.
    heap: BinaryHeap<Reverse<Key>>,
    /// The stream in hand, whose item was given last.
    current: Option<usize>,
}

impl<'t, 'a> Merge<'t, 'a> {
    pub(super) fn new(traces: &'t EventTraces<'a>, parts: &[Part]) -> Merge<'t, 'a> {
        let sources: Vec<_> = parts.iter().map(|part| Source::new(traces, part)).collect();
        let keys =
            sources.iter().enumerate().filter_map(|(index, source)| Some(Reverse((source.next?.0, index))));
        let heap = keys.collect();
        Merge { sources, heap, current: None }
    }

    /// The next item: index of its source, and when it was.
    pub(super) fn next_item(&mut self) -> Option<(usize, Option<OriginNanos>, Item)> {
        if let Some(index) = self.current.take() {
            self.sources[index].advance();
            if let Some((time, item)) = self.sources[index].next {
                // Mostly the same stream goes on for a while.
                if self.heap.peek().is_none_or(|Reverse(other)| (time, index) < *other) {
                    self.current = Some(index);
                    return Some((index, time, item));
                }
                self.heap.push(Reverse((time, index)));
            }
        }
        let Reverse((time, index)) = self.heap.pop()?;
        let (_, item) = self.sources[index].next?;
        self.current = Some(index);
        Some((index, time, item))
    }
}
