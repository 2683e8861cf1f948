//! Counts the events of each class in a range of packets.

use hodo_clock::{Cycles, OriginNanos};
use hodo_formats::events::{Cursor, Item, Lost, Stopped};
use hodo_model::Loss;

use super::{EventReading, filter::Filter, ranges::PacketRange};
use crate::{losses::Losses, traces::cover};

/// The counts of a range of packets, of a stream, or of a time bin of one.
#[derive(Default)]
pub(super) struct Counted {
    /// By class index.
    pub(super) events: Vec<u64>,
    pub(super) events_lost: u64,
    pub(super) packets_lost: u64,
    /// The times of the first and last event.
    pub(super) span: Option<(OriginNanos, OriginNanos)>,
    pub(super) losses: Vec<Loss>,
}

/// Counts the events of a range that pass the filter.
pub(super) fn count_range(
    range: &PacketRange<'_, '_>,
    filter: Option<&Filter>,
    reading: &EventReading,
) -> Counted {
    match filter {
        Some(filter) => count_wanted(range, filter, reading),
        None => count_all(range, reading),
    }
}

fn count_all(range: &PacketRange<'_, '_>, reading: &EventReading) -> Counted {
    let mut counted = Counted::new(range);
    let [mut front, mut back] = range.cursors();
    let clock = front.clock();
    // Comparing raw cycles avoids a conversion to nanoseconds per event.
    let counts_untimed = reading.wants(None);
    let within = clock.map(|clock| clock.cycles(reading.window.from, reading.window.to));
    let within = within.unwrap_or(if counts_untimed { Cycles::ALL } else { Cycles::NONE });
    let (mut first, mut last) = (u64::MAX, 0);
    let mut count = |class: u32, cycles: Option<u64>| {
        if cycles.map_or(counts_untimed, |cycles| within.contains(cycles)) {
            counted.events[class as usize] += 1;
            (first, last) = cycles.map_or((first, last), |cycles| (first.min(cycles), last.max(cycles)));
        }
    };
    let mut lost = Vec::new();
    let mut lose = |time, item| match item {
        Item::Lost(events) if reading.wants(time) => lost.push(events),
        _ => {}
    };
    while let Some(stopped) = Cursor::skip_both(&mut front, &mut back, &mut count) {
        let cursor = match stopped {
            Stopped::One => &mut front,
            Stopped::Other => &mut back,
        };
        let next = cursor.next_where(|_, class, cycles| {
            count(class, cycles);
            true
        });
        let Some((time, item)) = next else { break };
        lose(time, item);
    }
    for cursor in [&mut front, &mut back] {
        let mut count_and_pass = |_, class, cycles| {
            count(class, cycles);
            false
        };
        while let Some((time, item)) = cursor.next_where(&mut count_and_pass) {
            lose(time, item);
        }
    }
    lost.iter().for_each(|lost| counted.add_lost(lost));
    if let Some(clock) = clock.filter(|_| first <= last) {
        counted.span = Some((clock.nanos(first), clock.nanos(last)));
    }
    counted.losses = front.loss;
    counted.losses.append(&mut back.loss);
    counted
}

fn count_wanted(range: &PacketRange<'_, '_>, filter: &Filter, reading: &EventReading) -> Counted {
    let mut counted = Counted::new(range);
    let mut cursor = range.cursor();
    while let Some((time, item)) = cursor.next_item() {
        if !reading.wants(time) {
            continue;
        }
        match item {
            Item::Event(parts)
                if filter.wants(range.trace_index, range.stream_index, &cursor.event(parts)) =>
            {
                counted.events[parts.class as usize] += 1;
                counted.add_time(time);
            }
            Item::Event(_) => {}
            Item::Lost(lost) => counted.add_lost(&lost),
        }
    }
    counted.losses = cursor.loss;
    counted
}

impl Counted {
    pub(super) fn new(range: &PacketRange<'_, '_>) -> Counted {
        Counted { events: vec![0; range.classes().len()], ..Counted::default() }
    }

    /// Adds the counts of another range of the stream.
    pub(super) fn add(&mut self, other: Counted, losses: &mut Losses) {
        self.events.resize(self.events.len().max(other.events.len()), 0);
        self.events.iter_mut().zip(other.events).for_each(|(own, other)| *own += other);
        self.events_lost = self.events_lost.saturating_add(other.events_lost);
        self.packets_lost = self.packets_lost.saturating_add(other.packets_lost);
        self.span = self.span.into_iter().chain(other.span).reduce(cover);
        other.losses.into_iter().for_each(|loss| losses.add(loss));
    }

    #[inline]
    pub(super) fn add_time(&mut self, time: Option<OriginNanos>) {
        let Some(time) = time else { return };
        self.span = Some(self.span.map_or((time, time), |span| cover(span, (time, time))));
    }

    pub(super) fn add_lost(&mut self, lost: &Lost) {
        let sum = if lost.packets { &mut self.packets_lost } else { &mut self.events_lost };
        *sum = sum.saturating_add(lost.count);
    }
}
