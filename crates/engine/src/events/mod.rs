//! Traces of software events: opens them, merges them by time, analyses and counts them.
//!
//! ```text
//! folders ──Files──► metadata, streams ──ctf──► Traces ──slices of time, on all cores──► Merge ──► analyses, scripts
//!                                                  └──ranges of packets, on all cores──► counts
//! ```
//!
//! Unlike in control-flow traces, no code is reconstructed here: each event is recorded in full. Both kinds of traces
//! have streams, times and losses. An input contains one kind; a perf.data may contain both.

mod condition;
mod count;
mod counts;
mod field_sinks;
mod filter;
mod fold;
mod folders;
mod info;
mod live;
mod merge;
mod notes;
mod periods;
mod ranges;
mod slices;
mod sources;
mod survey;

use std::{fs, io, ops::Range, path::Path};

use hodo_clock::{Nanos, OriginNanos};
use hodo_formats::ctf::recognise;
use hodo_formats::events::{Cursor, Item, Stream, StreamPacket, Trace};
use hodo_formats::{Contents, FORMATS, ReadEvents};
use hodo_model::{Loss, Value};

use crate::{
    files::{Files, HARDWARE, Maps},
    input::{OpenError, OpenErrorReason},
    reading::{Chunks, EventReading},
    traces::{Traces, cover},
};

pub use condition::Condition;
pub(crate) use counts::{Counting, MOST_BINS, fold_counts};
pub use filter::{Filter, Wanted};
pub use fold::analyse;
pub(crate) use fold::{Folded, Totals, fold_all, reads_wakeups, tables};
pub use folders::METADATA;
pub use info::{ClockInfo, EventInfo, StreamInfo, TraceInfo, info};
pub use live::{LiveAddress, LiveError, live_count, live_sessions, live_slices};
pub use merge::{Classes, Merge, Source};
pub use notes::note_lines;
pub use periods::no_such_period;
pub use ranges::{PacketRange, each_range};
pub use slices::{Part, Slice, plan};
pub(crate) use {condition::is_like, filter::find};

/// A chunk to which packets are added, and what it is measured by.
struct GrowingChunk {
    /// The time at which it begins.
    begin: Option<OriginNanos>,
    /// Its size so far.
    bytes: u64,
    /// Bytes that are not in earlier chunks.
    left: u64,
    /// Threads that share these bytes.
    threads: usize,
    /// Smallest share of a thread in bytes.
    smallest_share: u64,
}

impl GrowingChunk {
    /// Returns whether the chunk ends before a packet that begins at `next`.
    fn ends_before(&self, next: Option<OriginNanos>, chunks: Chunks) -> bool {
        const LARGEST_SHARE: u64 = 64 << 20;
        if let Chunks::Time(Nanos(span)) = chunks {
            let window = |time: OriginNanos| time.0.div_euclid(span.max(1).into());
            return next.map(window) > self.begin.map(window);
        }
        let most = chunks.bytes(self.left, self.threads, self.smallest_share..=LARGEST_SHARE);
        most.is_some_and(|most| self.bytes >= most)
    }
}

impl EventReading {
    /// Returns whether a packet is outside the window, with all losses before it.
    pub fn leaves_out(&self, stream: &Stream<'_>, index: usize) -> bool {
        let packet = &stream.packets[index];
        let before = index.checked_sub(1).map(|before| &stream.packets[before]);
        let end_before = before.and_then(|before| before.end);
        let is_early = self.window.from.is_some_and(|from| {
            packet.end.is_some_and(|end| end < from) && end_before.is_none_or(|end| end < from)
        });
        let is_late = self.window.to.is_some_and(|to| {
            packet.begin.is_some_and(|begin| begin >= to)
                && before.is_none_or(|_| end_before.is_some_and(|end| end >= to))
        });
        is_early || is_late
    }
}

/// Returns which kinds of traces an input contains, without reading all of it.
pub fn holds(files: &Files, path: &Path) -> Contents {
    if path.is_dir() && folders::below(path).is_ok_and(|folders| !folders.is_empty()) {
        return Contents { flow: path.join(HARDWARE).exists(), ..Contents::EVENTS };
    }
    if path.file_name().is_some_and(|name| name == folders::METADATA) && starts_as_metadata(path) {
        return Contents::EVENTS;
    }
    let Ok(input) = files.recording(path) else { return Contents::FLOW };
    let format = FORMATS.iter().find(|format| (format.recognise)(input.bytes));
    format.map_or(Contents::FLOW, |format| (format.contents)(input.bytes))
}

/// Returns the reader of a file's traces, if its format stores them in one file.
fn reader(bytes: &[u8]) -> Option<ReadEvents> {
    FORMATS.iter().find(|format| (format.recognise)(bytes))?.events
}

fn starts_as_metadata(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = fs::File::open(path).map(|file| io::Read::take(file, 1 << 12));
    read.and_then(|mut file| io::Read::read_to_end(&mut file, &mut start)).is_ok() && recognise(&start)
}

/// Opens the traces in a folder, in a file, or of a metadata file. Folders with the same UUID, such as those of a
/// rotated session or of several snapshots, become one trace. `frequency` is that of clocks that no metadata describes,
/// in Hz. `threads` threads search files for packets; `progress` receives the number of bytes searched and the total.
///
/// # Errors
/// Returns an error if metadata can't be read. Unreadable parts of streams are losses.
pub(crate) fn open<'f>(
    files: &'f Files,
    path: &Path,
    frequency: Option<u64>,
    threads: usize,
    progress: impl Fn(u64, u64) + Sync,
) -> Result<Vec<Trace<'f>>, OpenError> {
    let below = |path: &Path| folders::below(path).map_err(|error| folders::system(path, error));
    let mut folders = if path.is_dir() { below(path)? } else { Vec::new() };
    if folders.is_empty() && path.file_name().is_none_or(|name| name != folders::METADATA) {
        let input = files.recording(path).map_err(|error| folders::system(path, error))?;
        if let Some(read) = reader(input.bytes) {
            let format = |error| OpenError { file: path.to_owned(), reason: OpenErrorReason::Format(error) };
            return Ok(noted(read(&input).map_err(format)?));
        }
    }
    let path = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    if folders.is_empty() {
        folders = below(path)?;
    }
    Ok(noted(folders::read(files, path, folders, (frequency, threads), progress)?))
}

/// Adds to the notes of each trace what a survey of its events found.
fn noted(mut traces: Vec<Trace<'_>>) -> Vec<Trace<'_>> {
    for trace in &mut traces {
        let note = survey::note(trace);
        let named = note.map(|note| (trace.name.clone(), note));
        trace.notes.extend(named);
    }
    traces
}

impl Traces<'_> {
    /// Returns whether a trace has timestamps of a clock that its metadata does not describe.
    pub fn implies_clocks(&self) -> bool {
        self.events.iter().any(|trace| trace.class.has_implied_clock)
    }

    /// Returns whether the traces contain bytes but no event can be decoded, and a loss or an undecodable file explains
    /// it.
    pub fn is_unreadable(&self) -> bool {
        let mut loses = self.events.iter().any(|trace| !trace.loss.is_empty());
        let streams =
            self.events.iter().flat_map(|trace| trace.streams.iter().map(move |stream| (trace, stream)));
        for (trace, stream) in streams {
            for packet in 0..stream.packets.len() {
                let mut cursor = Cursor::new(trace, stream, packet..packet + 1);
                while let Some((_, item)) = cursor.next_item() {
                    if matches!(item, Item::Event(_)) {
                        return false;
                    }
                }
                loses |= !cursor.loss.is_empty();
            }
        }
        let is_empty = |trace: &Trace<'_>| trace.streams.is_empty() && !trace.files.is_empty();
        loses || self.events.iter().any(is_empty)
    }

    /// Returns the losses of the experiment's files that could not be read to their end, so far.
    pub(crate) fn unreadable(&self) -> Vec<Loss> {
        self.maps.map_or_else(Vec::new, Maps::losses)
    }

    /// Releases the memory of decoded packets to the system; a later access reads them from the file again.
    fn release(&self, trace: usize, stream: usize, packets: Range<usize>) {
        let (Some(maps), trace) = (self.maps, &self.events[trace]) else { return };
        let is_next = |one: &StreamPacket<'_>, next: &StreamPacket<'_>| {
            one.file == next.file && one.packet.bytes.end == next.packet.bytes.start
        };
        for packets in trace.streams[stream].packets[packets].chunk_by(is_next) {
            let Some((first, last)) = packets.first().zip(packets.last()) else { continue };
            let bytes = first.packet.bytes.start..last.packet.bytes.end;
            trace.files[first.file].bytes.get(bytes).iter().for_each(|bytes| maps.release(bytes));
        }
    }

    /// Returns the first and last time of packets.
    pub fn event_span(&self) -> Option<(OriginNanos, OriginNanos)> {
        let spans = self.events.iter().filter_map(Trace::span);
        spans.reduce(cover)
    }

    /// Returns the total size of packets in bytes.
    pub fn event_bytes(&self) -> u64 {
        let streams = self.events.iter().flat_map(|trace| &trace.streams);
        streams.flat_map(|stream| &stream.packets).map(|packet| packet.size()).sum()
    }

    /// Returns half of the longest uncertainty interval, in nanoseconds, if some times follow a curve of `hodo sync`;
    /// null if one side is unbounded.
    pub(crate) fn uncertainty(&self) -> Option<Value> {
        let maps = self.events.iter().map(Trace::time_map).filter(|map| map.constant().is_none());
        maps.map(|map| map.half_width())
            .reduce(|one, other| one.zip(other).map(|(one, other)| one.max(other)))
            .map(Value::from)
    }

    /// Returns notes about how files were interpreted: the file's name, and a sentence.
    pub fn event_notes(&self) -> impl Iterator<Item = (&str, &str)> {
        let notes = self.events.iter().flat_map(|trace| &trace.notes);
        notes.map(|(file, note)| (file.as_str(), note.as_str()))
    }

    /// Returns the unreadable parts of the files.
    pub fn event_losses(&self) -> Vec<Loss> {
        self.events.iter().flat_map(|trace| trace.loss.clone()).collect()
    }
}
