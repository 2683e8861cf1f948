//! Every event in order, as text or JSON.

use std::io::Write;

use hodo_clock::{OriginNanos, TimeBounds, TimeMap};
use hodo_formats::events::{Event, Item, Trouble};
use hodo_model::{Cause, Loss};

use super::{
    EventReading, EventTraces,
    filter::Filter,
    filter::Wanted,
    json,
    merge::Merge,
    merge::Source,
    names::{StreamNames, names},
    slices::{Slice, plan},
    text::{self, TimeOfDay},
};
use crate::{
    Losses,
    parallel::in_order,
    script::{Lines, Outcome},
};

/// How to write events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// A line each, for people.
    Text,
    /// A JSON object each.
    JsonLines,
}

/// The lines of a slice.
struct Page {
    text: Vec<u8>,
    /// Where the time since the line before belongs, and the time of that line: for the first event, whose
    /// predecessor is in another slice.
    first: Option<(usize, Option<OriginNanos>)>,
    /// The time of the last event.
    last: Option<OriginNanos>,
    /// How sure the times of the first event and of the last are, where clocks differ.
    sure: (Option<Sure>, Option<Sure>),
    losses: Vec<Loss>,
    bytes: u64,
}

/// How sure a time is, and of which clock it is: clocks alone leave an order open.
#[derive(Clone, Copy)]
struct Sure {
    clock: usize,
    bounds: TimeBounds,
}

impl Sure {
    /// Whether the clocks leave open which of the two was first.
    fn leaves_open(self, next: Sure) -> bool {
        self.clock != next.clock && !self.bounds.surely_before(&next.bounds)
    }
}

/// Stands where the clocks can't decide whether an event or the one before it was first.
const OPEN: &str = "≈";

/// Writes the wanted events to `out` in order of time, at most `limit` lines. `progress` is told the bytes that
/// were read, and returns whether to go on.
pub fn script(
    traces: &EventTraces<'_>,
    wanted: &Wanted,
    format: EventFormat,
    reading: &EventReading,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Outcome {
    let mut script = Script::new(format, limit, out);
    traces.loss().into_iter().for_each(|loss| script.losses.add(loss));
    script.slices(traces, wanted, reading, &plan(traces, reading), &mut progress);
    script.outcome()
}

/// Lines that are being written.
pub(super) struct Script<'o> {
    format: EventFormat,
    lines: Lines<'o>,
    pub(super) losses: Losses,
    /// The time of the line before.
    before: Option<OriginNanos>,
    /// How sure that is.
    sure: Option<Sure>,
    done: u64,
}

impl<'o> Script<'o> {
    pub(super) fn new(
        format: EventFormat,
        limit: Option<u64>,
        out: &'o mut (dyn Write + Send),
    ) -> Script<'o> {
        Script {
            format,
            lines: Lines::new(out, limit),
            losses: Losses::default(),
            before: None,
            sure: None,
            done: 0,
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome { losses: self.losses, written: self.lines.result }
    }

    /// Whether more would be written.
    pub(super) fn want_more(&self) -> bool {
        self.lines.want_more()
    }

    /// Lets the reader of the lines see what was written so far.
    pub(super) fn flush(&mut self) {
        self.lines.flush();
    }

    /// Writes the wanted events of slices, one slice after another.
    pub(super) fn slices(
        &mut self,
        traces: &EventTraces<'_>,
        wanted: &Wanted,
        reading: &EventReading,
        slices: &[Slice],
        mut progress: impl FnMut(u64) -> bool + Send,
    ) {
        let format = self.format;
        let writer = Writer {
            traces,
            filter: Filter::new(traces, wanted),
            names: names(traces),
            clocks: clocks(traces),
            format,
            reading,
        };
        let work = |(): &mut (), slice: &Slice| writer.page(slice);
        in_order(
            slices,
            reading.threads,
            || (),
            work,
            |page| {
                self.page(page);
                self.lines.want_more() && progress(self.done)
            },
        );
    }

    fn page(&mut self, page: Page) {
        let mut delta = Vec::new();
        let at = page.first.map_or(0, |(at, _)| at);
        if let (Some((_, time)), EventFormat::Text) = (page.first, self.format) {
            text::since(self.before, time, &mut delta);
            if self.sure.zip(page.sure.0).is_some_and(|(before, first)| before.leaves_open(first)) {
                delta.extend_from_slice(OPEN.as_bytes());
            }
        }
        // The time since the last line belongs into the middle of one, which counts as a line only at its end.
        self.lines.write(&page.text[..at]);
        if self.lines.want_more() {
            self.lines.write(&delta);
        }
        self.lines.write(&page.text[at..]);
        self.before = page.last.or(self.before);
        self.sure = page.sure.1.or(self.sure);
        page.losses.into_iter().for_each(|loss| self.losses.add(loss));
        self.done += page.bytes;
    }
}

struct Writer<'t, 'a> {
    traces: &'t EventTraces<'a>,
    filter: Filter,
    names: Vec<Vec<StreamNames>>,
    /// By trace: a number of its clock; empty where all times are exact.
    clocks: Vec<usize>,
    format: EventFormat,
    reading: &'t EventReading,
}

impl Writer<'_, '_> {
    fn page(&self, slice: &Slice) -> Page {
        let mut page = Page {
            text: Vec::new(),
            first: None,
            last: None,
            sure: (None, None),
            losses: Vec::new(),
            bytes: slice.bytes,
        };
        let mut merge = Merge::new(self.traces, &slice.parts);
        let mut packets = vec![PacketText::default(); merge.sources.len()];
        let mut clock = TimeOfDay::new();
        while let Some(index) = merge.next_source() {
            let source = &merge.sources[index];
            let Some((time, item)) = &source.next else { break };
            if !self.reading.wants(*time) {
                continue;
            }
            let names = &self.names[source.trace][source.stream];
            match item {
                Item::Event(parts) => {
                    let event = source.cursor.event(*parts);
                    if self.filter.wants(source.trace, source.stream, &event) {
                        let start = page.text.len();
                        let packet = packets[index].of(&event, source.cursor.packet_index(), self.format);
                        let written = packet.and_then(|packet| {
                            let when = (*time, self.sure(source, &event));
                            self.event(names, when, packet, &event, &mut clock, &mut page)
                        });
                        if let Err(trouble) = written {
                            page.take_back(start, unreadable(source, &event, trouble));
                        }
                    }
                }
                Item::Lost(lost) => match self.format {
                    EventFormat::Text => {
                        clock.write(*time, &mut page.text);
                        text::lost(&names.name, lost, &mut page.text);
                    }
                    EventFormat::JsonLines => json::lost(names, lost, &mut page.text),
                },
            }
        }
        page.losses.extend(merge.sources.into_iter().flat_map(|source| source.cursor.loss));
        page
    }

    /// How sure the time of an event is; nothing where all times are exact.
    fn sure(&self, source: &Source<'_, '_>, event: &Event<'_, '_, '_>) -> Option<Sure> {
        let clock = *self.clocks.get(source.trace)?;
        let bounds = source.cursor.clock()?.bounds(event.parts.cycles?);
        Some(Sure { clock, bounds })
    }

    fn event(
        &self,
        names: &StreamNames,
        (time, sure): (Option<OriginNanos>, Option<Sure>),
        packet: &[u8],
        event: &Event<'_, '_, '_>,
        clock: &mut TimeOfDay,
        page: &mut Page,
    ) -> Result<(), Trouble> {
        match self.format {
            EventFormat::JsonLines => {
                let bounds = sure.map(|sure| sure.bounds);
                json::event(names, (time, bounds), packet, event, &mut page.text)
            }
            EventFormat::Text => {
                clock.write(time, &mut page.text);
                match page.first {
                    None => {
                        page.first = Some((page.text.len(), time));
                        page.sure.0 = sure;
                    }
                    Some(_) => {
                        text::since(page.last, time, &mut page.text);
                        if page.sure.1.zip(sure).is_some_and(|(before, next)| before.leaves_open(next)) {
                            page.text.extend_from_slice(OPEN.as_bytes());
                        }
                    }
                }
                page.text.push(b' ');
                if let Some(sure) = sure {
                    text::uncertainty(&sure.bounds, &mut page.text);
                }
                page.sure.1 = sure;
                let written = text::event(names, packet, event, &mut page.text);
                page.last = time;
                written
            }
        }
    }
}

/// Numbers of the traces' clocks; none where no trace follows a curve, so that all times are exact.
fn clocks(traces: &EventTraces<'_>) -> Vec<usize> {
    let maps: Vec<&TimeMap> = traces.traces.iter().map(|trace| trace.time_map()).collect();
    if maps.iter().all(|map| map.constant().is_some()) {
        return Vec::new();
    }
    maps.iter().map(|map| maps.iter().position(|other| other == map).unwrap_or(0)).collect()
}

/// The context of a packet, made into text for the first of its events.
#[derive(Clone, Default)]
struct PacketText {
    packet: Option<usize>,
    text: Vec<u8>,
}

impl PacketText {
    #[inline]
    fn of(
        &mut self,
        event: &Event<'_, '_, '_>,
        packet: Option<usize>,
        format: EventFormat,
    ) -> Result<&[u8], Trouble> {
        if self.packet != packet {
            self.text.clear();
            match format {
                EventFormat::Text => text::packet(event, &mut self.text)?,
                EventFormat::JsonLines => json::packet(event, &mut self.text)?,
            }
            self.packet = packet;
        }
        Ok(&self.text)
    }
}

impl Page {
    /// Takes the line back that begins at `start` and can't be completed.
    #[cold]
    fn take_back(&mut self, start: usize, loss: Loss) {
        self.text.truncate(start);
        if self.first.is_some_and(|(at, _)| at > start) {
            self.first = None;
        }
        self.losses.push(loss);
    }
}

/// An event whose length is known, but not what is in it.
fn unreadable(source: &Source<'_, '_>, event: &Event<'_, '_, '_>, trouble: Trouble) -> Loss {
    let detail = format!("event `{}`: {trouble}", event.class().name);
    let packet = source.cursor.packet();
    let start = packet.map_or(0, |packet| packet.packet.bytes.start) as u64;
    let file = packet.map_or("", |packet| source.of.files[packet.file].name.as_str());
    let bytes = start + event.parts.start / 8..start + event.parts.end.div_ceil(8);
    Loss { stream: file.to_owned(), cause: Cause::Corrupt, bytes, time: None, count: 1, detail }
}
