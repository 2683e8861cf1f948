//! Merges the requested events of several streams: by time, then by stream, then by position.
//!
//! Each stream is read ahead into its own records, and whole ranges of these are merged, because consecutive events are usually
//! of the same stream. A stream is read further once all its merged records are folded.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range, sync::Arc};

use hodo_clock::{Cycles, Nanos, OriginNanos, TimelineClock};
use hodo_formats::events::{Cursor, Item, Lost, Parts, Trace};
use hodo_model::{
    Cause, Loss,
    kernel::{Kind, Records},
};

use super::{
    EventReading, Traces,
    fold::{Binding, Folded, StreamBinding, Totals},
    slices::{Part, Slice},
};

/// Records of each stream, and the ranges of them that follow each other: a stream's index, and the indices of its records.
type Batch<'r> = (&'r mut [Records], &'r [(usize, Range<usize>)]);

/// The streams of a slice.
pub(super) struct Sources<'t, 'a> {
    sources: Vec<Source<'t, 'a>>,
    /// The records read of each stream.
    records: Vec<Records>,
    /// Streams with unmerged records, by the time of the next.
    heap: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Streams without unmerged records.
    dry: Vec<usize>,
    /// The ranges of the current batch.
    ranges: Vec<(usize, Range<usize>)>,
}

impl<'t, 'a> Sources<'t, 'a> {
    /// Opens the streams of a slice at its beginning; `records` are reused buffers.
    pub(super) fn new(
        traces: &'t Traces<'a>,
        binding: &'t Binding,
        reading: &'t EventReading,
        slice: &Slice,
        mut records: Vec<Records>,
    ) -> Sources<'t, 'a> {
        let new = |part: &Part| Source::new(&traces.events[part.trace], binding, reading, part);
        let sources: Vec<_> = slice.parts.iter().map(new).collect();
        records.resize_with(sources.len(), Records::default);
        for (part, records) in slice.parts.iter().zip(&mut records) {
            let name = Arc::from(traces.events[part.trace].name.as_str());
            records.set_trace(part.trace as u32, &name);
        }
        let dry = (0..sources.len()).collect();
        Sources { sources, records, heap: BinaryHeap::new(), dry, ranges: Vec::new() }
    }

    /// Returns the next events as ranges of some streams' records, in order.
    pub(super) fn next_batch(&mut self) -> Option<Batch<'_>> {
        for index in self.dry.drain(..) {
            let source = &mut self.sources[index];
            source.read(&mut self.records[index]);
            source.next = 0;
            self.heap.extend(self.records[index].times(0).next().map(|time| Reverse((time, index))));
        }
        self.ranges.clear();
        while let Some(&Reverse((_, index))) = self.heap.peek() {
            // The second smallest key of a binary heap is one of the root's two children.
            let limit = self.heap.as_slice().iter().take(3).skip(1).map(|Reverse(key)| *key).min();
            let source = &mut self.sources[index];
            let first = source.next;
            let ends = |time| limit.is_some_and(|limit| (time, index) >= limit);
            let mut times = self.records[index].times(first).enumerate();
            let next = times.find(|&(_, time)| ends(time));
            source.next = next.map_or(self.records[index].len(), |(count, _)| first + count);
            self.ranges.push((index, first..source.next));
            if let (Some((_, time)), Some(mut top)) = (next, self.heap.peek_mut()) {
                *top = Reverse((time, index));
                continue;
            }
            self.heap.pop();
            if !source.is_done {
                self.dry.push(index);
                break;
            }
        }
        (!self.ranges.is_empty()).then_some((&mut self.records, &self.ranges))
    }

    /// Adds the totals and losses of all streams. Returns the record buffers for the next slice.
    pub(super) fn finish(self, folded: &mut Folded) -> Vec<Records> {
        for source in self.sources {
            folded.losses.extend(source.losses.into_iter().chain(source.cursor.loss));
            folded.totals.add(source.bounds.totals(source.clock, source.totals));
        }
        self.records
    }
}

/// A stream of a slice.
struct Source<'t, 'a> {
    trace: &'t Trace<'a>,
    whole: &'t Binding,
    binding: &'t StreamBinding,
    reading: &'t EventReading,
    part: Part,
    cursor: Cursor<'t, 'a>,
    clock: Option<TimelineClock<'t>>,
    bounds: Bounds,
    /// The packet whose CPU is in `packet_cpu`.
    cpu_packet: Option<usize>,
    packet_cpu: u32,
    /// The index of its next record.
    next: usize,
    /// Whether there are no more events.
    is_done: bool,
    totals: Totals,
    losses: Vec<Loss>,
}

impl<'t, 'a> Source<'t, 'a> {
    fn new(
        trace: &'t Trace<'a>,
        whole: &'t Binding,
        reading: &'t EventReading,
        part: &Part,
    ) -> Source<'t, 'a> {
        let cursor = Cursor::new(trace, &trace.streams[part.stream], part.packets.clone());
        let clock = cursor.clock();
        Source {
            trace,
            whole,
            binding: &whole.streams[part.trace][part.stream],
            reading,
            part: part.clone(),
            cursor,
            clock,
            bounds: Bounds::new(clock, reading, part),
            cpu_packet: None,
            packet_cpu: 0,
            next: 0,
            is_done: false,
            totals: Totals::default(),
            losses: Vec::new(),
        }
    }

    /// Refills the records.
    fn read(&mut self, records: &mut Records) {
        records.clear();
        while !records.is_full() && !self.is_done {
            let (bounds, wanted) = (&mut self.bounds, self.binding.wanted.as_slice());
            let next =
                self.cursor.next_where(|packet, class, cycles| match bounds.position(packet, cycles) {
                    SlicePosition::Before => false,
                    SlicePosition::Within => wanted[class as usize],
                    SlicePosition::Behind => true,
                });
            match next {
                Some((Some(time), Item::Event(parts))) if !self.bounds.is_over => {
                    self.push(time, parts, records);
                }
                Some((time, Item::Lost(lost))) => self.lose(time, &lost, records),
                _ => self.is_done = true,
            }
        }
    }

    fn push(&mut self, time: OriginNanos, parts: Parts, records: &mut Records) {
        let Ok(time) = u64::try_from(time.0).map(Nanos) else { return };
        let event = self.cursor.event(parts);
        let packet = self.cursor.packet_index();
        if self.cpu_packet != packet {
            (self.cpu_packet, self.packet_cpu) = (packet, self.binding.cpu(&event));
        }
        if let Some(edges) = &self.whole.edges {
            edges.emit((self.part.trace, self.part.stream), &event, (time, self.packet_cpu), records);
        }
        let class = self.binding.classes[parts.class as usize].as_ref();
        if class.is_some_and(|class| !class.push(time, self.packet_cpu, &event, records)) {
            self.losses.push(self.unreadable(&event.class().name));
        }
    }

    fn lose(&mut self, time: Option<OriginNanos>, lost: &Lost, records: &mut Records) {
        let packet = self.cursor.packet_index();
        let skipped = self.bounds.skipped.map(|(packet, _)| packet).zip(self.part.skip_before);
        if skipped.is_some_and(|(first, from)| packet == Some(first) && time.is_some_and(|time| time < from))
        {
            return;
        }
        self.bounds.skipped = None;
        let stops = |(last, to)| packet == Some(last) && time.is_some_and(|time| time >= to);
        self.is_done = self.part.stop_at.is_some_and(stops);
        if !self.is_done && self.reading.wants(time) {
            self.totals.add_lost(lost);
            self.record_loss(time, lost, records);
        }
    }

    /// Appends a record of lost events, in the vocabulary's order of fields, if an analysis requests it.
    fn record_loss(&self, reported: Option<OriginNanos>, lost: &Lost, records: &mut Records) {
        let time = |time: Option<OriginNanos>| time.and_then(|time| u64::try_from(time.0).ok());
        let (begin, end) = (time(lost.after.or(lost.before)), time(lost.before.or(lost.after)));
        let Some((begin, end)) = begin.zip(end).filter(|_| self.whole.wants_lost) else { return };
        let reported = time(reported).unwrap_or(begin);
        let (no_cpu, no_thread, no_name) = (0, None, 0);
        records.push(Nanos(reported), (no_cpu, no_thread), Kind::Lost, no_name);
        records.integer(lost.count as i64);
        records.integer(lost.packets.into());
        records.integer(begin as i64);
        records.integer(end as i64);
        let packet = self.cursor.packet();
        records.text(packet.map_or("", |packet| self.trace.files[packet.file].name.as_str()).as_bytes());
    }

    /// The loss for an event with an unreadable field.
    #[cold]
    fn unreadable(&self, event: &str) -> Loss {
        let packet = self.cursor.packet();
        let file = packet.map_or("", |packet| self.trace.files[packet.file].name.as_str());
        let detail = format!("event `{event}`: a field can't be read");
        Loss { stream: file.to_owned(), cause: Cause::Corrupt, bytes: 0..0, time: None, count: 1, detail }
    }
}

/// The position of an event relative to the slice.
enum SlicePosition {
    /// Before the slice, or outside the window.
    Before,
    /// In the slice.
    Within,
    /// In the next slice, as are all following events.
    Behind,
}

/// The bounds of a slice in a stream, in cycles of its clock, and the time span of the events so far.
struct Bounds {
    /// In this packet, the cycles that belong to the previous slice, until the first event of this slice.
    skipped: Option<(usize, Cycles)>,
    /// In this packet, the cycles that belong to the next slice.
    behind: Option<(usize, Cycles)>,
    /// The window; `None` for a stream without a clock.
    window: Option<Cycles>,
    /// Whether events without a time are included.
    includes_untimed: bool,
    /// The part of the window that can be expressed in nanoseconds since the origin.
    within: Cycles,
    /// Fast path: a packet, and the cycles of it that need no further check.
    plain: (usize, Cycles),
    is_over: bool,
    /// The lowest and highest cycle so far in `within`.
    first: u64,
    last: u64,
    /// Events in the window but not in `within`.
    untimed: u64,
}

impl Bounds {
    fn new(clock: Option<TimelineClock<'_>>, reading: &EventReading, part: &Part) -> Bounds {
        let (lowest, highest) = (OriginNanos(0), OriginNanos(1 << 64));
        let from = reading.window.from.unwrap_or(lowest).max(lowest);
        let to = reading.window.to.unwrap_or(highest).min(highest);
        let cycles = |from, to| clock.map(|clock| clock.cycles(from, to));
        let skipped = part.skip_before.and_then(|from| Some((part.packets.start, cycles(None, Some(from))?)));
        let behind = part.stop_at.and_then(|(packet, to)| Some((packet, cycles(Some(to), None)?)));
        Bounds {
            skipped,
            behind,
            window: cycles(reading.window.from, reading.window.to),
            includes_untimed: reading.wants(None),
            within: cycles(Some(from), Some(to)).unwrap_or(Cycles::NONE),
            plain: (part.packets.start, Cycles::NONE),
            is_over: false,
            first: u64::MAX,
            last: 0,
            untimed: 0,
        }
    }

    /// Returns the position of an event in a packet, and adds its time to the span.
    #[inline(always)]
    fn position(&mut self, packet: usize, cycles: Option<u64>) -> SlicePosition {
        match cycles {
            Some(cycles) if packet == self.plain.0 && self.plain.1.contains(cycles) => self.within(cycles),
            _ => self.check(packet, cycles),
        }
    }

    #[inline(always)]
    fn within(&mut self, cycles: u64) -> SlicePosition {
        (self.first, self.last) = (self.first.min(cycles), self.last.max(cycles));
        SlicePosition::Within
    }

    /// As [`Bounds::position`], where the fast path does not apply.
    #[inline(never)]
    fn check(&mut self, packet: usize, cycles: Option<u64>) -> SlicePosition {
        if let Some((first, skipped)) = self.skipped {
            if packet == first && cycles.is_some_and(|cycles| skipped.contains(cycles)) {
                return SlicePosition::Before;
            }
            self.skipped = None;
        }
        let behind = self.behind.filter(|&(last, _)| packet == last).map(|(_, behind)| behind);
        if behind.zip(cycles).is_some_and(|(behind, cycles)| behind.contains(cycles)) {
            self.is_over = true;
            return SlicePosition::Behind;
        }
        self.plain = (packet, if behind.is_none() { self.within } else { Cycles::NONE });
        match cycles.filter(|&cycles| self.within.contains(cycles)) {
            Some(cycles) => self.within(cycles),
            None => {
                let is_included = self.window.map_or(self.includes_untimed, |window| {
                    cycles.is_some_and(|cycles| window.contains(cycles))
                });
                self.untimed += u64::from(is_included);
                SlicePosition::Before
            }
        }
    }

    /// Returns `totals` with the time span and the number of untimed events.
    fn totals(&self, clock: Option<TimelineClock<'_>>, mut totals: Totals) -> Totals {
        if let Some(clock) = clock.filter(|_| self.first <= self.last) {
            let nanos = |cycles| u64::try_from(clock.nanos(cycles).0).ok().map(Nanos);
            totals.span = nanos(self.first).zip(nanos(self.last));
        }
        totals.untimed = self.untimed;
        totals
    }
}
