//! Every event in order, as text or JSON.

use std::io::Write;

use hodo_clock::OriginNanos;
use hodo_formats::ctf::{Event, Item};
use hodo_trace::{Cause, Loss};

use super::{
    EventReading, EventTraces,
    filter::Filter,
    filter::Wanted,
    json,
    merge::Merge,
    merge::Source,
    names::{StreamNames, names},
    slices::{Slice, plan},
    text,
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
    losses: Vec<Loss>,
    bytes: u64,
}

/// Writes the wanted events to `out` in order of time, at most `limit` lines. `progress` is told the bytes that
/// were read, and returns whether to go on.
pub fn script(
    traces: &EventTraces<'_>,
    wanted: &Wanted,
    format: EventFormat,
    reading: &EventReading,
    limit: Option<u64>,
    out: &mut dyn Write,
    mut progress: impl FnMut(u64) -> bool,
) -> Outcome {
    let slices = plan(traces, reading);
    let writer =
        Writer { traces, filter: Filter::new(traces, wanted), names: names(traces), format, reading };
    let mut lines = Lines::new(out, limit);
    let mut losses = Losses::default();
    traces.loss().into_iter().for_each(|loss| losses.add(loss));
    let mut done = 0;
    let mut before: Option<OriginNanos> = None;
    in_order(
        &slices,
        reading.threads,
        || (),
        |(), slice| writer.page(slice),
        |page| {
            let mut delta = Vec::new();
            let at = page.first.map_or(0, |(at, _)| at);
            if let (Some((_, time)), EventFormat::Text) = (page.first, format) {
                text::since(before, time, &mut delta);
            }
            // The time since the last line belongs into the middle of one, which counts as a line only at its end.
            lines.write(&page.text[..at]);
            if lines.want_more() {
                lines.write(&delta);
            }
            lines.write(&page.text[at..]);
            before = page.last.or(before);
            page.losses.into_iter().for_each(|loss| losses.add(loss));
            done += page.bytes;
            lines.want_more() && progress(done)
        },
    );
    Outcome { losses, written: lines.result }
}

struct Writer<'t, 'a> {
    traces: &'t EventTraces<'a>,
    filter: Filter,
    names: Vec<Vec<StreamNames>>,
    format: EventFormat,
    reading: &'t EventReading,
}

impl Writer<'_, '_> {
    fn page(&self, slice: &Slice) -> Page {
        let mut page =
            Page { text: Vec::new(), first: None, last: None, losses: Vec::new(), bytes: slice.bytes };
        let mut merge = Merge::new(self.traces, &slice.parts);
        while let Some((index, time, item)) = merge.next_item() {
            if !self.reading.wants(time) {
                continue;
            }
            let source = &merge.sources[index];
            let names = &self.names[source.trace][source.stream];
            match item {
                Item::Event(parts) => {
                    let event = source.cursor.event(parts);
                    if self.filter.wants(source.trace, source.stream, &event) {
                        self.event(names, time, &event, source, &mut page);
                    }
                }
                Item::Lost(lost) => match self.format {
                    EventFormat::Text => {
                        page.text.push(b'[');
                        text::time_of_day(time, &mut page.text);
                        page.text.extend_from_slice(b"] ");
                        text::lost(&names.name, &lost, &mut page.text);
                    }
                    EventFormat::JsonLines => json::lost(names, &lost, &mut page.text),
                },
            }
        }
        page.losses.extend(merge.sources.into_iter().flat_map(|source| source.cursor.loss));
        page
    }

    fn event(
        &self,
        names: &StreamNames,
        time: Option<OriginNanos>,
        event: &Event<'_, '_, '_>,
        source: &Source<'_, '_>,
        page: &mut Page,
    ) {
        let start = page.text.len();
        let written = match self.format {
            EventFormat::JsonLines => json::event(names, time, event, &mut page.text),
            EventFormat::Text => {
                page.text.push(b'[');
                text::time_of_day(time, &mut page.text);
                page.text.extend_from_slice(b"] ");
                match page.first {
                    None => page.first = Some((page.text.len(), time)),
                    Some(_) => text::since(page.last, time, &mut page.text),
                }
                page.text.push(b' ');
                let written = text::event(&names.host, event, &mut page.text);
                page.last = time;
                written
            }
        };
        if let Err(trouble) = written {
            page.text.truncate(start);
            if page.first.is_some_and(|(at, _)| at > start) {
                page.first = None;
            }
            page.losses.push(unreadable(source, event, format!("event `{}`: {trouble}", event.class().name)));
        }
    }
}

/// An event whose length is known, but not what is in it.
fn unreadable(source: &Source<'_, '_>, event: &Event<'_, '_, '_>, detail: String) -> Loss {
    let packet = source.cursor.packet();
    let start = packet.map_or(0, |packet| packet.packet.bytes.start) as u64;
    let file = packet.map_or("", |packet| source.of.files[packet.file].name.as_str());
    let bytes = start + event.parts.start / 8..start + event.parts.end.div_ceil(8);
    Loss { stream: file.to_owned(), cause: Cause::Corrupt, bytes, time: None, count: 1, detail }
}
