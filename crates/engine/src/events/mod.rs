//! Traces of software events: opened, merged by time, shown and counted.
//!
//! ```text
//! folders ──Files──► metadata, streams ──ctf──► Traces ──slices of time, on all cores──► Merge ──► text, JSON
//!                                                  └────runs of packets, on all cores──► counts
//! ```
//!
//! These are no experiments of control flow: nothing executes here, and each event is there in full. Both kinds
//! have streams, times and losses, and one input is of one kind.

mod condition;
mod count;
mod counts;
mod export;
mod filter;
mod fold;
mod info;
mod json;
mod live;
mod merge;
mod names;
mod parts;
mod periods;
mod rates;
mod runs;
mod slices;
mod sources;
mod text;
mod write;

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use hodo_clock::{Nanos, OriginNanos};
use hodo_formats::{
    FORMATS, Holds, ReadTraces,
    ctf::{DataFile, FilePackets, Stream, StreamPacket, Trace, read_metadata, recognise, schema::TraceClass},
    perf::samples::contents,
};
use hodo_trace::Loss;
use serde::{Deserialize, Serialize};

use crate::{Files, OpenError, OpenErrorReason, files::Maps, parallel::in_order};

pub use condition::Condition;
pub use count::count;
pub use counts::COUNT_VIEWS;
pub use export::{ExportError, Exported, export};
pub use filter::Wanted;
pub use fold::analyse;
pub use hodo_formats::perf::samples::Contents;
pub use info::{ClockInfo, EventInfo, StreamInfo, TraceInfo, info};
pub use live::{LiveAddress, LiveError, live_count, live_script, live_sessions};
pub use parts::{COUNT, Part, PartError, Portion, fold_part, merge_parts};
pub use periods::no_such_period;
pub use rates::{MOST_BINS, count_over_time};
pub use runs::{Run, each_run};
pub use write::{EventFormat, script};

/// The file of a trace's folder that describes the others.
const METADATA: &str = "metadata";
/// How deep below an input traces are looked for.
const DEEPEST: u32 = 12;

/// Traces of one input.
#[derive(Debug)]
pub struct EventTraces<'f> {
    /// In order of their folders.
    pub traces: Vec<Trace<'f>>,
    /// What their bytes are mapped by.
    maps: Option<&'f Maps>,
}

/// How traces are cut into what is decoded at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunks {
    /// About so many bytes, wherever they lie: all chunks are about as much work.
    Bytes(u64),
    /// A share of what is left for each of so many threads: large ones first, so that there are few to be merged, and
    /// small ones last, so that all threads end together (Polychronopoulos and Kuck, "Guided self-scheduling", 1987).
    Shares(usize),
    /// So much time. Where more happens, more is to be done.
    Time(Nanos),
    /// Streams as they are; only for what does not need them merged.
    Streams,
}

impl Chunks {
    /// Whether a chunk of so many bytes, which begins at `begin` where so many are left, is to end before a packet that
    /// begins at `next`.
    fn end(self, (bytes, left): (u64, u64), begin: Option<OriginNanos>, next: Option<OriginNanos>) -> bool {
        // Half of what each thread would do if they shared the rest. Packets over a border are gone over twice.
        const HALVES: u64 = 2;
        const SMALLEST: u64 = 8 << 20;
        const LARGEST: u64 = 64 << 20;
        match self {
            Chunks::Bytes(most) => bytes >= most,
            Chunks::Shares(threads) => bytes >= (left / (HALVES * threads as u64)).clamp(SMALLEST, LARGEST),
            Chunks::Time(Nanos(span)) => {
                let part = |time: OriginNanos| time.0.div_euclid(span.max(1).into());
                next.map(part) > begin.map(part)
            }
            Chunks::Streams => false,
        }
    }
}

/// How to read events.
#[derive(Clone, Debug)]
pub struct EventReading {
    /// Threads that decode.
    pub threads: usize,
    /// What they decode at a time.
    pub chunks: Chunks,
    /// From this time on.
    pub from: Option<OriginNanos>,
    /// Before this time.
    pub to: Option<OriginNanos>,
}

impl EventReading {
    fn wants(&self, time: Option<OriginNanos>) -> bool {
        match time {
            Some(time) => self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time < to),
            None => self.from.is_none() && self.to.is_none(),
        }
    }

    /// Whether nothing of a packet can be in the time that is asked for, nor what was lost before it.
    fn leaves_out(&self, stream: &Stream<'_>, index: usize) -> bool {
        let packet = &stream.packets[index];
        let before = index.checked_sub(1).map(|before| &stream.packets[before]);
        let end_before = before.and_then(|before| before.end);
        let is_early = self.from.is_some_and(|from| {
            packet.end.is_some_and(|end| end < from) && end_before.is_none_or(|end| end < from)
        });
        let is_late = self.to.is_some_and(|to| {
            packet.begin.is_some_and(|begin| begin >= to)
                && before.is_none_or(|_| end_before.is_some_and(|end| end >= to))
        });
        is_early || is_late
    }
}

/// What an input holds, as far as that shows without reading all of it.
pub fn holds(files: &Files, path: &Path) -> Contents {
    let events = Contents { events: true, flow: false };
    if path.is_dir() && folders(path).is_ok_and(|folders| !folders.is_empty()) {
        return events;
    }
    if path.file_name().is_some_and(|name| name == METADATA) && starts_as_metadata(path) {
        return events;
    }
    let Ok(input) = files.recording(path) else { return Contents { events: false, flow: true } };
    match FORMATS.iter().find(|format| (format.recognise)(input.bytes)).map(|format| format.holds) {
        Some(Holds::Traces(_)) => events,
        Some(Holds::Both(..)) => contents(input.bytes),
        _ => Contents { events: false, flow: true },
    }
}

/// What reads the traces in a file, if it is of a format that has them in one.
fn reader(bytes: &[u8]) -> Option<ReadTraces> {
    match FORMATS.iter().find(|format| (format.recognise)(bytes))?.holds {
        Holds::Traces(read) | Holds::Both(_, read) => Some(read),
        _ => None,
    }
}

fn starts_as_metadata(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = fs::File::open(path).map(|file| io::Read::take(file, 1 << 12));
    read.and_then(|mut file| io::Read::read_to_end(&mut file, &mut start)).is_ok() && recognise(&start)
}

/// The folders at or below a path that have metadata, in order.
fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![(path.to_owned(), 0)];
    while let Some((folder, depth)) = left.pop() {
        if folder.join(METADATA).is_file() {
            found.push(folder);
            continue;
        }
        if depth == DEEPEST {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            // Links could lead round in circles.
            if entry.file_type()?.is_dir() {
                left.push((entry.path(), depth + 1));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A trace's folder, before its streams are put together.
struct Folder<'f> {
    name: String,
    class: TraceClass,
    files: Vec<DataFile<'f>>,
}

impl<'f> Folder<'f> {
    fn trace(self, threads: usize, seen: &(impl Fn(usize) + Sync)) -> Trace<'f> {
        let mut packets = Vec::new();
        in_order(
            &self.files,
            threads,
            || (),
            |(), file| FilePackets::read(&self.class, file, seen),
            |found| {
                packets.push(found);
                true
            },
        );
        Trace::of_packets(self.name, self.class, self.files, packets)
    }
}

impl<'f> EventTraces<'f> {
    /// Opens the traces in a folder, in a file, or of a metadata file. Folders with the same UUID, such as those of a
    /// rotated session or of several snapshots, become one trace. Files are searched for packets by so many
    /// `threads`, and `progress` is told how many bytes of how many were.
    ///
    /// # Errors
    /// Metadata that can't be read. What of the streams can't be read is a loss.
    pub fn open(
        files: &'f Files,
        path: &Path,
        threads: usize,
        progress: impl Fn(u64, u64) + Sync,
    ) -> Result<EventTraces<'f>, OpenError> {
        let system =
            |file: &Path, error| OpenError { file: file.to_owned(), reason: OpenErrorReason::System(error) };
        let is_folder = path.is_dir() && folders(path).is_ok_and(|folders| !folders.is_empty());
        if !is_folder && path.file_name().is_none_or(|name| name != METADATA) {
            let input = files.recording(path).map_err(|error| system(path, error))?;
            if let Some(read) = reader(input.bytes) {
                let format =
                    |error| OpenError { file: path.to_owned(), reason: OpenErrorReason::Format(error) };
                return Ok(EventTraces { traces: read(&input).map_err(format)?, maps: Some(files.maps()) });
            }
        }
        let path = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        let mut opened: Vec<Folder<'f>> = Vec::new();
        for folder in folders(path).map_err(|error| system(path, error))? {
            let file = folder.join(METADATA);
            let bytes = files.bytes(&file).map_err(|error| system(&file, error))?;
            let data = data_files(files, path, &folder).map_err(|error| system(&folder, error))?;
            let read = read_metadata(bytes);
            let class = read.map_err(|error| OpenError { file, reason: OpenErrorReason::Format(error) })?;
            let same = |other: &&mut Folder<'_>| class.uuid.is_some() && other.class.uuid == class.uuid;
            match opened.iter_mut().find(same) {
                Some(trace) => {
                    // Metadata only grows while a trace is recorded.
                    if classes(&class) > classes(&trace.class) {
                        trace.class = class;
                    }
                    trace.files.extend(data);
                }
                None => opened.push(Folder { name: name(path, &folder), class, files: data }),
            }
        }
        let sizes = opened.iter().flat_map(|folder| &folder.files).map(|file| file.bytes.len() as u64);
        let (total, done) = (sizes.sum(), AtomicU64::new(0));
        let seen = |bytes: usize| {
            let before = done.fetch_add(bytes as u64, Ordering::Relaxed);
            progress(before + bytes as u64, total);
        };
        let traces = opened.into_iter().map(|folder| folder.trace(threads, &seen)).collect();
        Ok(EventTraces { traces, maps: Some(files.maps()) })
    }

    /// Gives the memory of packets that were read back to the system, until somebody looks at them again.
    fn release(&self, trace: usize, stream: usize, packets: Range<usize>) {
        let (Some(maps), trace) = (self.maps, &self.traces[trace]) else { return };
        let behind = |one: &StreamPacket<'_>, next: &StreamPacket<'_>| {
            one.file == next.file && one.packet.bytes.end == next.packet.bytes.start
        };
        for packets in trace.streams[stream].packets[packets].chunk_by(behind) {
            let Some((first, last)) = packets.first().zip(packets.last()) else { continue };
            let bytes = first.packet.bytes.start..last.packet.bytes.end;
            trace.files[first.file].bytes.get(bytes).iter().for_each(|bytes| maps.release(bytes));
        }
    }

    /// First and last time of packets.
    pub fn span(&self) -> Option<(OriginNanos, OriginNanos)> {
        let spans = self.traces.iter().filter_map(Trace::span);
        spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Bytes of packets.
    pub fn bytes(&self) -> u64 {
        let streams = self.traces.iter().flat_map(|trace| &trace.streams);
        streams.flat_map(|stream| &stream.packets).map(|packet| packet.size()).sum()
    }

    /// What was made of some of the files: their names, and a sentence.
    pub fn notes(&self) -> impl Iterator<Item = &(String, String)> {
        self.traces.iter().flat_map(|trace| &trace.notes)
    }

    /// What of the files can't be read.
    pub fn loss(&self) -> Vec<Loss> {
        self.traces.iter().flat_map(|trace| trace.loss.clone()).collect()
    }
}

/// How many classes of streams and events there are.
fn classes(trace: &TraceClass) -> usize {
    trace.streams.len() + trace.streams.values().map(|stream| stream.events.len()).sum::<usize>()
}

/// What people call the trace in a folder below the input.
fn name(input: &Path, folder: &Path) -> String {
    let below = folder.strip_prefix(input).ok().filter(|below| !below.as_os_str().is_empty());
    let own = || folder.canonicalize().ok().and_then(|path| path.file_name().map(PathBuf::from));
    let name = below.map(Path::to_owned).or_else(own).unwrap_or_else(|| folder.to_owned());
    name.display().to_string()
}

/// Where LTTng writes the index of a stream file.
fn index_of(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_owned();
    name.push(".idx");
    Some(path.parent()?.join("index").join(name))
}

/// The streams of a folder: its files, but for metadata, empty ones and hidden ones. Indices of LTTng lie in a
/// folder of their own.
fn data_files<'f>(files: &'f Files, input: &Path, folder: &Path) -> io::Result<Vec<DataFile<'f>>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden && name != METADATA && fs::metadata(entry.path())?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let mut data = Vec::new();
    for path in paths {
        let bytes = files.bytes(&path)?;
        let name = path.strip_prefix(input).unwrap_or(&path).display().to_string();
        let index = index_of(&path).filter(|index| index.is_file());
        let index = index.map(|index| files.bytes(&index)).transpose()?;
        if !bytes.is_empty() {
            data.push(DataFile { name, bytes, index });
        }
    }
    Ok(data)
}
