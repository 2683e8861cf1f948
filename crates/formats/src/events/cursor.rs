//! Iterates over a range of a stream: its events, and the losses between them.

use std::ops::Range;

use hodo_clock::{OriginNanos, TimelineClock};
use hodo_model::{Cause, Loss};

use super::{
    event::{Event, EventTrouble, Parts, Reader, Stopped},
    framing::{Finder, Found, Framing},
    trace::{Stream, StreamPacket, Trace},
};

/// An item of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Parts),
    /// The tracer discarded events or packets.
    Lost(Lost),
}

/// The number and time window of lost events or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The number; 0 if the tracer only reports that there were some.
    pub count: u64,
    /// Whether packets were lost, rather than events.
    pub packets: bool,
    /// The beginning of the time window.
    pub after: Option<OriginNanos>,
    /// The end of the time window.
    pub before: Option<OriginNanos>,
}

/// A loss, and the time of its item.
#[derive(Clone, Copy, Debug)]
struct TimedLoss {
    time: Option<OriginNanos>,
    lost: Lost,
}

/// Iterates over packets of a stream.
#[derive(Debug)]
pub struct Cursor<'t, 'a> {
    trace: &'t Trace<'a>,
    stream: &'t Stream<'a>,
    clock: Option<TimelineClock<'t>>,
    reader: Reader<'t, 'a>,
    /// Finds events in framings other than CTF's.
    finder: Option<Finder<'t, 'a>>,
    /// Packets that are not opened yet.
    left: Range<usize>,
    /// The current packet.
    packet: Option<usize>,
    /// Lost packets and lost events before or in the current packet, to report before its events.
    lost: [Option<TimedLoss>; 2],
    /// A loss whose time is the packet's end, to report after its events.
    lost_by_end: Option<Lost>,
    /// Whether the first event of the current packet is unread, so that losses may be pending. Always set with a
    /// `finder`.
    at_beginning: bool,
    /// Unreadable data.
    pub loss: Vec<Loss>,
}

impl<'t, 'a> Cursor<'t, 'a> {
    /// Creates a cursor at the beginning of a range of packets.
    pub fn new(trace: &'t Trace<'a>, stream: &'t Stream<'a>, packets: Range<usize>) -> Cursor<'t, 'a> {
        let reader = trace.reader(stream);
        let clock = trace.clock(stream);
        Cursor {
            trace,
            stream,
            clock,
            reader,
            finder: Finder::new(&trace.framing),
            left: packets,
            packet: None,
            lost: [None; 2],
            lost_by_end: None,
            at_beginning: !matches!(trace.framing, Framing::Ctf),
            loss: Vec::new(),
        }
    }

    /// Returns the next item with its time. Unreadable data is skipped and added to [`Cursor::loss`].
    #[inline(always)]
    pub fn next_item(&mut self) -> Option<(Option<OriginNanos>, Item)> {
        self.next_where(|_, _, _| true)
    }

    /// Returns the next event that `wanted` accepts, or the next loss before it. `wanted` gets the packet index, the
    /// class index and the clock, once per event.
    #[inline]
    pub fn next_where(
        &mut self,
        mut wanted: impl FnMut(usize, u32, Option<u64>) -> bool,
    ) -> Option<(Option<OriginNanos>, Item)> {
        loop {
            if let (false, Some(packet)) = (self.at_beginning, self.packet) {
                match self.reader.next_where(|class, cycles| wanted(packet, class, cycles)) {
                    Ok(Some(parts)) => return Some((self.time(parts), Item::Event(parts))),
                    Ok(None) => {}
                    Err(trouble) => self.record_trouble(trouble),
                }
            }
            let (time, item) = self.between_packets()?;
            match item {
                Item::Event(parts) if !wanted(self.packet?, parts.class, parts.cycles) => {}
                item => return Some((time, item)),
            }
        }
    }

    /// Skips events of two cursors in one stream alternately, while both take the fast path, and passes the class index
    /// and the clock of each to `skipped`. Returns which cursor left the fast path; call its [`Cursor::next_where`] next.
    /// `None` if the stream has no fast path.
    #[inline]
    pub fn skip_both(
        one: &mut Self,
        other: &mut Self,
        skipped: impl FnMut(u32, Option<u64>),
    ) -> Option<Stopped> {
        if one.finder.is_some() {
            return None;
        }
        let is_within_packet = |cursor: &Self| cursor.packet.is_some() && !cursor.at_beginning;
        if !is_within_packet(one) {
            Some(Stopped::One)
        } else if !is_within_packet(other) {
            Some(Stopped::Other)
        } else {
            Reader::skim_both(&mut one.reader, &mut other.reader, skipped)
        }
    }

    #[inline]
    fn time(&self, parts: Parts) -> Option<OriginNanos> {
        Some(self.clock?.nanos(parts.cycles?))
    }

    /// The next loss between packets, or the first event of a packet.
    #[inline(never)]
    fn between_packets(&mut self) -> Option<(Option<OriginNanos>, Item)> {
        loop {
            if let Some(TimedLoss { time, lost }) = self.lost.iter_mut().find_map(Option::take) {
                return Some((time, Item::Lost(lost)));
            }
            if let (Some(finder), true) = (&mut self.finder, self.packet.is_some()) {
                match finder.find(self.reader.slots()) {
                    Ok(Some(Found::Event(parts))) => return Some((self.time(parts), Item::Event(parts))),
                    Ok(Some(Found::Lost(lost))) => {
                        let map = self.trace.time_map();
                        let estimate = |time: Option<OriginNanos>| time.map(|time| map.estimate(time));
                        let lost =
                            Lost { after: estimate(lost.after), before: estimate(lost.before), ..lost };
                        return Some((lost.after.or(lost.before), Item::Lost(lost)));
                    }
                    Ok(None) => {}
                    Err(trouble) => {
                        self.record_trouble(trouble);
                        continue;
                    }
                }
            } else if self.at_beginning && self.finder.is_none() {
                self.at_beginning = false;
                match self.reader.next_event() {
                    Ok(Some(parts)) => return Some((self.time(parts), Item::Event(parts))),
                    Ok(None) => {}
                    Err(trouble) => self.record_trouble(trouble),
                }
            }
            if let Some(lost) = self.lost_by_end.take() {
                return Some((lost.before, Item::Lost(lost)));
            }
            self.open()?;
        }
    }

    /// Opens the next packet; `None` after the last.
    fn open(&mut self) -> Option<()> {
        let index = self.left.next()?;
        let packet = &self.stream.packets[index];
        self.packet = Some(index);
        if let Some(finder) = &mut self.finder {
            self.reader.set_bytes(packet.bytes, self.stream.number);
            finder.open(packet);
            return Some(());
        }
        self.record_lost(index, packet);
        self.at_beginning = true;
        self.reader.open(packet.bytes, &packet.packet, packet.clock);
        Some(())
    }

    /// Records the losses before or in a packet. Their time is never after that of a later event: otherwise a merge
    /// by time would hold that event back.
    fn record_lost(&mut self, index: usize, packet: &StreamPacket<'a>) {
        let before = index.checked_sub(1).and_then(|index| self.stream.packets.get(index));
        let (after, begin) = (before.and_then(|before| before.end), packet.begin);
        let time = after.into_iter().chain(begin).min();
        let lost =
            |count, after, before| (count > 0).then_some(Lost { count, packets: false, after, before });
        let packets = lost(packet.packets_lost, after, begin);
        let packets = packets.map(|lost| TimedLoss { time, lost: Lost { packets: true, ..lost } });
        // As far as is known, the first packet counts losses since its own beginning.
        let events = lost(packet.events_lost, after.or(begin), packet.end);
        let is_by_end = time.is_none() && packet.end.is_some();
        self.lost_by_end = events.filter(|_| is_by_end);
        self.lost = [packets, events.filter(|_| !is_by_end).map(|lost| TimedLoss { time, lost })];
    }

    /// Records the unreadable rest of the packet.
    #[cold]
    fn record_trouble(&mut self, trouble: EventTrouble) {
        let Some(packet) = self.packet.map(|index| &self.stream.packets[index]) else { return };
        let (start, end) = (packet.packet.bytes.start as u64, packet.packet.bytes.end as u64);
        let time = self.clock.map(|clock| clock.nanos(self.reader.clock()));
        let time = time.and_then(|time| u64::try_from(time.0).ok()).map(hodo_clock::Nanos);
        self.loss.push(Loss {
            stream: self.trace.files[packet.file].name.clone(),
            cause: Cause::Corrupt,
            bytes: start + trouble.position / 8..end,
            time: time.map(|time| (time, time)),
            count: 1,
            detail: trouble.reason,
        });
    }

    /// A view of the event with these parts, which must be the last one returned.
    #[inline]
    pub fn event(&self, parts: Parts) -> Event<'_, 't, 'a> {
        self.reader.event_of(parts)
    }

    /// The current packet.
    pub fn packet(&self) -> Option<&'t StreamPacket<'a>> {
        self.packet.map(|index| &self.stream.packets[index])
    }

    /// The clock of the stream.
    pub fn clock(&self) -> Option<TimelineClock<'t>> {
        self.clock
    }

    /// The index of the current packet.
    #[inline]
    pub fn packet_index(&self) -> Option<usize> {
        self.packet
    }
}
