//! A stream from one place to another: its events, and in between what was lost.

use std::ops::Range;

use hodo_clock::{OriginNanos, TimelineClock};
use hodo_model::{Cause, Loss};

use super::{
    event::{Event, EventTrouble, Parts, Reader},
    framing::{Finder, Found, Framing},
    trace::{Stream, StreamPacket, Trace},
};

/// Something in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Parts),
    /// The tracer had no room for events.
    Lost(Lost),
}

/// What a tracer lost, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// How many; 0 where the tracer only says that there were some.
    pub count: u64,
    /// Packets rather than events.
    pub packets: bool,
    /// After this time.
    pub after: Option<OriginNanos>,
    /// Before this time.
    pub before: Option<OriginNanos>,
}

/// Goes through packets of a stream.
#[derive(Debug)]
pub struct Cursor<'t, 'a> {
    trace: &'t Trace<'a>,
    stream: &'t Stream<'a>,
    clock: Option<TimelineClock<'t>>,
    reader: Reader<'t, 'a>,
    /// What finds events that have no headers of CTF.
    finder: Option<Finder<'t, 'a>>,
    /// Packets that were not opened yet.
    left: Range<usize>,
    /// The packet in hand.
    packet: Option<usize>,
    /// What was lost before or in the packet in hand, and when: in front of its events.
    lost: [Option<(Option<OriginNanos>, Lost)>; 2],
    /// The same where only the packet's end says when: behind its events.
    lost_by_end: Option<Lost>,
    /// Whether nothing was read of the packet in hand, so that there may be any of that; always so where a
    /// finder finds the events.
    at_beginning: bool,
    /// What could not be read.
    pub loss: Vec<Loss>,
}

impl<'t, 'a> Cursor<'t, 'a> {
    /// At the beginning of these packets of a stream.
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

    /// The next item, and when it was. What can't be read is skipped, and told in [`Cursor::loss`].
    #[inline(always)]
    pub fn next_item(&mut self) -> Option<(Option<OriginNanos>, Item)> {
        self.next_where(|_, _, _| true)
    }

    /// The next of its events that is wanted, by the index of its packet, that of its class and the clock, or
    /// what was lost before it. Each event is asked about once.
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
                    Err(trouble) => self.trouble(trouble),
                }
            }
            let (time, item) = self.between_packets()?;
            match item {
                Item::Event(parts) if !wanted(self.packet?, parts.class, parts.cycles) => {}
                item => return Some((time, item)),
            }
        }
    }

    /// Goes over events of two places of a stream by turns, as far as both need nothing else, and says whether the
    /// second is the one that does: [`Cursor::next_where`] gets over that. `None` where all of them do.
    #[inline]
    pub fn go_over_both(one: &mut Self, other: &mut Self, see: impl FnMut(u32, Option<u64>)) -> Option<bool> {
        if one.finder.is_some() {
            return None;
        }
        let is_within = |cursor: &Self| cursor.packet.is_some() && !cursor.at_beginning;
        match (is_within(one), is_within(other)) {
            (true, true) => Reader::skim_both(&mut one.reader, &mut other.reader, see),
            (is_within, _) => Some(is_within),
        }
    }

    #[inline]
    fn time(&self, parts: Parts) -> Option<OriginNanos> {
        Some(self.clock?.nanos(parts.cycles?))
    }

    /// What was lost before the next packet, or its first event.
    #[inline(never)]
    fn between_packets(&mut self) -> Option<(Option<OriginNanos>, Item)> {
        loop {
            if let Some((time, lost)) = self.lost.iter_mut().find_map(Option::take) {
                return Some((time, Item::Lost(lost)));
            }
            if let (Some(finder), true) = (&mut self.finder, self.packet.is_some()) {
                match finder.find() {
                    Ok(Some(Found::Event(parts))) => return Some((self.time(parts), Item::Event(parts))),
                    Ok(Some(Found::Lost(lost))) => {
                        let map = self.trace.time_map();
                        let place = |time: Option<OriginNanos>| time.map(|time| map.estimate(time));
                        let lost = Lost { after: place(lost.after), before: place(lost.before), ..lost };
                        return Some((lost.after.or(lost.before), Item::Lost(lost)));
                    }
                    Ok(None) => {}
                    Err(trouble) => {
                        self.trouble(trouble);
                        continue;
                    }
                }
            } else if self.at_beginning && self.finder.is_none() {
                self.at_beginning = false;
                match self.reader.next_event() {
                    Ok(Some(parts)) => return Some((self.time(parts), Item::Event(parts))),
                    Ok(None) => {}
                    Err(trouble) => self.trouble(trouble),
                }
            }
            if let Some(lost) = self.lost_by_end.take() {
                return Some((lost.before, Item::Lost(lost)));
            }
            self.open()?;
        }
    }

    /// Opens the next packet; `None` where there is none.
    fn open(&mut self) -> Option<()> {
        let index = self.left.next()?;
        let packet = &self.stream.packets[index];
        self.packet = Some(index);
        if let Some(finder) = &mut self.finder {
            self.reader.show(packet.bytes, self.stream.number);
            finder.open(packet);
            return Some(());
        }
        self.lose(index, packet);
        self.at_beginning = true;
        self.reader.open(packet.bytes, &packet.packet, packet.clock);
        Some(())
    }

    /// What was lost before a packet, or in it. Its place in the stream is never behind an event that came later: merged
    /// by time, it would hold that back.
    fn lose(&mut self, index: usize, packet: &StreamPacket<'a>) {
        let before = index.checked_sub(1).and_then(|index| self.stream.packets.get(index));
        let (after, begin) = (before.and_then(|before| before.end), packet.begin);
        let place = after.into_iter().chain(begin).min();
        let lost =
            |count, packets, after, before| (count > 0).then_some(Lost { count, packets, after, before });
        let packets = lost(packet.packets_lost, true, after, begin).map(|lost| (place, lost));
        // The first packet counts what was lost since its own beginning, as far as is known.
        let events = lost(packet.events_lost, false, after.or(begin), packet.end);
        let is_by_end = place.is_none() && packet.end.is_some();
        self.lost_by_end = events.filter(|_| is_by_end);
        self.lost = [packets, events.filter(|_| !is_by_end).map(|lost| (place, lost))];
    }

    #[cold]
    fn trouble(&mut self, trouble: EventTrouble) {
        let Some(packet) = self.packet.map(|index| &self.stream.packets[index]) else { return };
        let (start, end) = (packet.packet.bytes.start as u64, packet.packet.bytes.end as u64);
        let time = self.clock.map(|clock| clock.nanos(self.reader.clock()));
        let time = time.and_then(|time| u64::try_from(time.0).ok()).map(hodo_clock::Nanos);
        self.loss.push(Loss {
            stream: self.trace.files[packet.file].name.clone(),
            cause: Cause::Corrupt,
            bytes: start + trouble.at / 8..end,
            time: time.map(|time| (time, time)),
            count: 1,
            detail: trouble.reason,
        });
    }

    /// A look at the event with these parts, which is the last that came.
    #[inline]
    pub fn event(&self, parts: Parts) -> Event<'_, 't, 'a> {
        self.reader.event_of(parts)
    }

    /// The packet in hand.
    pub fn packet(&self) -> Option<&'t StreamPacket<'a>> {
        self.packet.map(|index| &self.stream.packets[index])
    }

    /// The clock of the stream.
    pub fn clock(&self) -> Option<TimelineClock<'t>> {
        self.clock
    }

    /// Index of the packet in hand.
    #[inline]
    pub fn packet_index(&self) -> Option<usize> {
        self.packet
    }
}
