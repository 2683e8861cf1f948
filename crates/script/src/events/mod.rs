//! Writes events in order, as text or JSON.

mod json;
mod names;
mod table;
mod text;

use std::io::Write;

use hodo_clock::{OriginNanos, TimeBounds, TimeMap};
use hodo_engine::{
    EventReading, Losses, Traces,
    events::{Classes, Filter, Merge, Slice, Source, Wanted, plan},
    in_order,
};
use hodo_formats::events::{Event, Item, Trouble};
use hodo_model::{Cause, Loss};

pub use self::table::{EventTable, event_tables};
use self::{
    names::{StreamNames, names},
    text::TimeOfDay,
};
use crate::{Format, Outcome, lines::Lines};

/// The lines of a slice.
struct Page {
    text: Vec<u8>,
    first: Option<FirstEvent>,
    /// The time of the last event.
    last: Option<OriginNanos>,
    /// The uncertainty of the first event's time, if clocks differ.
    first_uncertainty: Option<Uncertainty>,
    /// The uncertainty of the last event's time, if clocks differ.
    last_uncertainty: Option<Uncertainty>,
    losses: Vec<Loss>,
    bytes: u64,
}

/// The first event of a page. The line before it is in another page.
#[derive(Clone, Copy)]
struct FirstEvent {
    time: Option<OriginNanos>,
    /// The position in the text at which to insert the time since the previous line.
    position: usize,
}

/// The uncertainty of a time and its clock: only events of different clocks can be of unknown order.
#[derive(Clone, Copy)]
struct Uncertainty {
    clock: usize,
    bounds: TimeBounds,
}

impl Uncertainty {
    /// Returns whether the uncertainty leaves open which of the two was first.
    fn leaves_open(self, next: Uncertainty) -> bool {
        self.clock != next.clock && !self.bounds.surely_before(&next.bounds)
    }
}

/// Marks an event whose order relative to the previous one the clocks leave open.
const OPEN: &str = "≈";

/// Writes the events that pass the filter to `out` in order of time, at most `limit` lines. `progress` receives the
/// number of bytes read, and returns whether to continue.
pub fn script(
    traces: &Traces<'_>,
    wanted: &Wanted,
    format: Format,
    reading: &EventReading,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Outcome {
    let mut script = Script::new(format, limit, out);
    traces.event_losses().into_iter().for_each(|loss| script.losses.add(loss));
    script.slices(traces, wanted, reading, &plan(traces, reading), &mut progress);
    script.outcome()
}

/// The state of writing lines.
pub(crate) struct Script<'o> {
    format: Format,
    lines: Lines<'o>,
    pub(crate) losses: Losses,
    /// The time of the previous line.
    before: Option<OriginNanos>,
    /// The uncertainty of that time.
    uncertainty: Option<Uncertainty>,
    /// The number of bytes read.
    done: u64,
}

impl<'o> Script<'o> {
    pub(crate) fn new(format: Format, limit: Option<u64>, out: &'o mut (dyn Write + Send)) -> Script<'o> {
        Script {
            format,
            lines: Lines::new(out, limit),
            losses: Losses::default(),
            before: None,
            uncertainty: None,
            done: 0,
        }
    }

    pub(crate) fn outcome(self) -> Outcome {
        self.lines.outcome(self.losses)
    }

    /// Returns whether more lines would be written.
    pub(crate) fn want_more(&self) -> bool {
        self.lines.want_more()
    }

    /// Flushes the lines written so far.
    pub(crate) fn flush(&mut self) {
        self.lines.flush();
    }

    /// Writes the events of slices that pass the filter, in order of slices.
    pub(crate) fn slices(
        &mut self,
        traces: &Traces<'_>,
        wanted: &Wanted,
        reading: &EventReading,
        slices: &[Slice],
        mut progress: impl FnMut(u64) -> bool + Send,
    ) {
        let format = self.format;
        let filter = Filter::new(traces, wanted);
        let classes = Classes::new(traces, |trace, stream, class| filter.wants_class(trace, stream, class));
        let writer =
            Writer { traces, filter, classes, names: names(traces), clocks: clocks(traces), format, reading };
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
        let position = page.first.map_or(0, |first| first.position);
        if let (Some(first), Format::Text) = (page.first, self.format) {
            text::since(self.before, first.time, &mut delta);
            let uncertainties = self.uncertainty.zip(page.first_uncertainty);
            if uncertainties.is_some_and(|(before, first)| before.leaves_open(first)) {
                delta.extend_from_slice(OPEN.as_bytes());
            }
        }
        // The time since the previous line is inserted within a line, which counts towards the limit only at its end.
        self.lines.write(&page.text[..position]);
        if self.lines.want_more() {
            self.lines.write(&delta);
        }
        self.lines.write(&page.text[position..]);
        self.before = page.last.or(self.before);
        self.uncertainty = page.last_uncertainty.or(self.uncertainty);
        page.losses.into_iter().for_each(|loss| self.losses.add(loss));
        self.done += page.bytes;
    }
}

struct Writer<'t, 'a> {
    traces: &'t Traces<'a>,
    filter: Filter,
    classes: Classes,
    names: Vec<Vec<StreamNames>>,
    /// The number of each trace's clock; empty if all times are exact.
    clocks: Vec<usize>,
    format: Format,
    reading: &'t EventReading,
}

impl Writer<'_, '_> {
    fn page(&self, slice: &Slice) -> Page {
        let mut page = Page {
            text: Vec::new(),
            first: None,
            last: None,
            first_uncertainty: None,
            last_uncertainty: None,
            losses: Vec::new(),
            bytes: slice.bytes,
        };
        let mut merge = Merge::new(self.traces, &slice.parts, &self.classes);
        let mut packets = vec![PacketText::default(); merge.sources.len()];
        let mut clock = TimeOfDay::new();
        while let Some(index) = merge.next_source() {
            let source = &merge.sources[index];
            let Some((time, item)) = &source.next else { break };
            if !self.reading.wants(*time) {
                continue;
            }
            match item {
                Item::Event(parts) => {
                    let event = source.cursor.event(*parts);
                    if self.filter.wants(source.trace_index, source.stream_index, &event) {
                        let start = page.text.len();
                        let packet = packets[index].get(&event, source.cursor.packet_index(), self.format);
                        let written = packet.and_then(|packet| {
                            self.event(source, (*time, packet), &event, &mut clock, &mut page)
                        });
                        if let Err(trouble) = written {
                            page.remove_line(start, unreadable(source, &event, trouble));
                        }
                    }
                }
                Item::Lost(lost) => {
                    let names = self.names(source);
                    match self.format {
                        Format::Text => {
                            clock.write(*time, &mut page.text);
                            text::lost(&names.name, lost, &mut page.text);
                        }
                        Format::JsonLines => json::lost(names, lost, &mut page.text),
                    }
                }
            }
        }
        page.losses.extend(merge.sources.into_iter().flat_map(|source| source.cursor.loss));
        page
    }

    /// Returns the names of a source's stream.
    fn names(&self, source: &Source<'_, '_>) -> &StreamNames {
        &self.names[source.trace_index][source.stream_index]
    }

    /// Returns the uncertainty of an event's time; `None` if all times are exact.
    fn uncertainty(&self, source: &Source<'_, '_>, event: &Event<'_, '_, '_>) -> Option<Uncertainty> {
        let clock = *self.clocks.get(source.trace_index)?;
        let bounds = source.cursor.clock()?.bounds(event.parts.cycles?);
        Some(Uncertainty { clock, bounds })
    }

    fn event(
        &self,
        source: &Source<'_, '_>,
        (time, packet): (Option<OriginNanos>, &[u8]),
        event: &Event<'_, '_, '_>,
        clock: &mut TimeOfDay,
        page: &mut Page,
    ) -> Result<(), Trouble> {
        let names = self.names(source);
        match self.format {
            Format::JsonLines => {
                let bounds = self.uncertainty(source, event).map(|uncertainty| uncertainty.bounds);
                json::event(names, (time, bounds), packet, event, &mut page.text)
            }
            Format::Text => {
                clock.write(time, &mut page.text);
                let is_first = page.first.is_none();
                if is_first {
                    page.first = Some(FirstEvent { time, position: page.text.len() });
                } else {
                    text::since(page.last, time, &mut page.text);
                }
                if self.clocks.is_empty() {
                    page.text.push(b' ');
                } else {
                    page.uncertainty(self.uncertainty(source, event), is_first);
                }
                page.last = time;
                text::event(names, packet, event, &mut page.text)
            }
        }
    }
}

/// Returns the numbers of the traces' clocks; empty if no trace follows a curve, so that all times are exact.
fn clocks(traces: &Traces<'_>) -> Vec<usize> {
    let maps: Vec<&TimeMap> = traces.events.iter().map(|trace| trace.time_map()).collect();
    if maps.iter().all(|map| map.constant().is_some()) {
        return Vec::new();
    }
    maps.iter().map(|map| maps.iter().position(|other| other == map).unwrap_or(0)).collect()
}

/// The context of a packet, formatted once at its first event.
#[derive(Clone, Default)]
struct PacketText {
    packet: Option<usize>,
    text: Vec<u8>,
}

impl PacketText {
    /// Returns the context of an event's packet.
    #[inline]
    fn get(
        &mut self,
        event: &Event<'_, '_, '_>,
        packet: Option<usize>,
        format: Format,
    ) -> Result<&[u8], Trouble> {
        if self.packet != packet {
            self.text.clear();
            match format {
                Format::Text => text::packet(event, &mut self.text)?,
                Format::JsonLines => json::packet(event, &mut self.text)?,
            }
            self.packet = packet;
        }
        Ok(&self.text)
    }
}

impl Page {
    /// Writes the uncertainty of an event's time, and whether it may precede the event before it.
    // Not inlined: most traces have no need of it.
    #[inline(never)]
    fn uncertainty(&mut self, uncertainty: Option<Uncertainty>, is_first: bool) {
        let uncertainties = self.last_uncertainty.zip(uncertainty);
        if is_first {
            self.first_uncertainty = uncertainty;
        } else if uncertainties.is_some_and(|(before, next)| before.leaves_open(next)) {
            self.text.extend_from_slice(OPEN.as_bytes());
        }
        self.last_uncertainty = uncertainty;
        self.text.push(b' ');
        if let Some(uncertainty) = uncertainty {
            text::uncertainty(&uncertainty.bounds, &mut self.text);
        }
    }

    /// Removes the incomplete line that begins at `start`, and keeps the loss that explains it.
    #[cold]
    fn remove_line(&mut self, start: usize, loss: Loss) {
        self.text.truncate(start);
        if self.first.is_some_and(|first| first.position > start) {
            self.first = None;
        }
        self.losses.push(loss);
    }
}

/// The loss for an event whose length is known but whose fields can't be read.
pub(super) fn unreadable(source: &Source<'_, '_>, event: &Event<'_, '_, '_>, trouble: Trouble) -> Loss {
    let detail = format!("event `{}`: {trouble}", event.class().name);
    let packet = source.cursor.packet();
    let start = packet.map_or(0, |packet| packet.packet.bytes.start) as u64;
    let file = packet.map_or("", |packet| source.trace.files[packet.file].name.as_str());
    let bytes = start + event.parts.start / 8..start + event.parts.end.div_ceil(8);
    Loss { stream: file.to_owned(), cause: Cause::Corrupt, bytes, time: None, count: 1, detail }
}
