//! Rewrites traces: all events, or those that pass a filter.
//!
//! Streams are independent, so each is read and written separately, with only a few packets in memory.

use std::{
    collections::{BTreeMap, HashSet},
    fmt, fs,
    io::{self, BufWriter, Write},
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use hodo_engine::{
    EventReading, Losses, Traces,
    events::{Filter, METADATA, PacketRange, Wanted, each_range},
    in_order,
};
use hodo_formats::ctf::write::{KeptTimes, NotWritten, StreamWriter, Target, Unwritable, Version};
use hodo_formats::events::{
    Cursor, Item, Stream, Trace,
    schema::{EventClass, StreamClass},
};
use hodo_model::{Cause, Loss};

/// The outcome of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// The number of events written.
    pub events: u64,
    /// Conversions of fields that the version can't express, and the number of fields.
    pub conversions: BTreeMap<String, u64>,
    /// The unreadable parts.
    pub losses: Losses,
    /// Whether the export completed.
    pub is_whole: bool,
}

/// Why an export failed.
#[derive(Debug)]
pub enum ExportError {
    /// The version can't express the trace.
    Unwritable(Unwritable),
    /// An I/O error on this file.
    System(PathBuf, io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::Unwritable(error) => write!(f, "can't be written: {error}"),
            ExportError::System(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ExportError {}

/// A stream to write.
struct Job {
    trace: usize,
    stream: usize,
    file: PathBuf,
}

/// What was written of a packet or stream.
#[derive(Default)]
struct Written {
    events: u64,
    losses: Vec<Loss>,
}

/// Writes the events that pass the filter to a folder: as one trace, or with a folder for each trace. `progress`
/// receives the number of bytes read, and returns whether to continue.
///
/// # Errors
/// Returns an error if the version can't express a trace, or on I/O errors.
pub fn export(
    traces: &Traces<'_>,
    wanted: &Wanted,
    version: Version,
    reading: &EventReading,
    folder: &Path,
    progress: impl Fn(u64) -> bool + Sync,
) -> Result<Exported, ExportError> {
    let filter = Filter::new(traces, wanted);
    let mut exported = Exported { is_whole: true, ..Exported::default() };
    traces.event_losses().into_iter().for_each(|loss| exported.losses.add(loss));
    let occurring = occurring(traces, reading, || progress(0));
    let (mut targets, mut jobs, mut taken) = (Vec::new(), Vec::new(), HashSet::new());
    for (index, trace) in traces.events.iter().enumerate() {
        let target = target(index, trace, &filter, wanted, &occurring, version);
        let target = target.map_err(ExportError::Unwritable)?;
        let folder = if traces.events.len() == 1 {
            folder.to_owned()
        } else {
            folder.join(folder_name(&trace.name, &mut taken))
        };
        let metadata = folder.join(METADATA);
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&metadata, &target.metadata));
        written.map_err(|error| ExportError::System(metadata, error))?;
        for (conversion, count) in &target.conversions {
            *exported.conversions.entry(conversion.clone()).or_default() += count;
        }
        targets.push(target);
        jobs.extend(files(trace, &folder).into_iter().enumerate().map(|(stream, file)| Job {
            trace: index,
            stream,
            file,
        }));
    }
    let done = AtomicU64::new(0);
    let is_all = wanted.is_all();
    let work = |(): &mut (), job: &Job| {
        let trace = &traces.events[job.trace];
        let stream =
            Export { filter: &filter, reading, is_all, job, trace, stream: &trace.streams[job.stream] };
        stream.write(&targets[job.trace], &|bytes| progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes))
    };
    let mut result = Ok(());
    in_order(
        &jobs,
        reading.threads,
        || (),
        work,
        |written| match written {
            Ok(Some(stream)) => {
                exported.events += stream.events;
                stream.losses.into_iter().for_each(|loss| exported.losses.add(loss));
                true
            }
            Ok(None) => {
                exported.is_whole = false;
                false
            }
            Err(error) => {
                result = Err(error);
                false
            }
        },
    );
    result.map(|()| exported)
}

/// Identifies an event class: the index of its trace, the id of its stream class, and its own id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ClassKey {
    trace: usize,
    stream_class: u64,
    event: u64,
}

/// Returns the event classes that occur, for traces that are not CTF: their metadata lists every event that the system
/// knows.
fn occurring(
    traces: &Traces<'_>,
    reading: &EventReading,
    keep_going: impl Fn() -> bool + Sync,
) -> HashSet<ClassKey> {
    let mut occurring = HashSet::new();
    if traces.events.iter().all(|trace| trace.class.version > 0) {
        return occurring;
    }
    let work = |range: &PacketRange<'_, '_>| {
        let mut occurs = vec![false; range.classes().len()];
        // Wants no event, so that the cursor skips all of them on its fast path.
        let mut note = |_, class: u32, _| {
            occurs[class as usize] = true;
            false
        };
        let mut cursor = range.cursor();
        while cursor.next_where(&mut note).is_some() {}
        occurs
    };
    each_range(traces, reading, work, |range, occurs| {
        let trace = range.trace_index;
        let stream_class = traces.events[trace].streams[range.stream_index].class;
        for (event, occurs) in range.classes().iter().zip(occurs) {
            if occurs {
                occurring.insert(ClassKey { trace, stream_class, event: event.id });
            }
        }
        keep_going()
    });
    occurring
}

/// Makes the metadata of the events that pass the filter.
fn target(
    index: usize,
    trace: &Trace<'_>,
    filter: &Filter,
    wanted: &Wanted,
    occurring: &HashSet<ClassKey>,
    version: Version,
) -> Result<Target, Unwritable> {
    let keep = |class: &StreamClass, event: &EventClass| {
        let key = ClassKey { trace: index, stream_class: class.id, event: event.id };
        if trace.class.version == 0 && !occurring.contains(&key) {
            return false;
        }
        let streams = trace.streams.iter().enumerate().filter(|(_, stream)| stream.class == class.id);
        let position = class.events.iter().position(|known| known.id == event.id).unwrap_or(0);
        let mut streams = streams.map(|(stream, _)| filter.wants_class(index, stream, position)).peekable();
        match streams.peek() {
            Some(_) => streams.any(|wants| wants),
            None => wanted.wants_name(&event.name),
        }
    };
    Target::new(&trace.class, version, &keep)
}

/// Returns the folder name of a trace. A file with several traces may give them arbitrary names, so only normal path
/// components are kept: the folder is inside that of the export.
fn folder_name(trace: &str, taken: &mut HashSet<String>) -> String {
    let names = Path::new(trace).components().filter(|part| matches!(part, Component::Normal(_)));
    free_name(&names.collect::<PathBuf>().to_string_lossy(), taken)
}

/// Returns the files of a trace's streams, with their original names.
fn files(trace: &Trace<'_>, folder: &Path) -> Vec<PathBuf> {
    let mut taken = HashSet::from([METADATA.to_owned()]);
    let file = |stream: &Stream<'_>| {
        let name = Path::new(&stream.name).file_name().map_or("stream".into(), |name| name.to_string_lossy());
        folder.join(free_name(&name, &mut taken))
    };
    trace.streams.iter().map(file).collect()
}

/// Returns the name, with a number appended if it is taken, and adds it to `taken`.
fn free_name(name: &str, taken: &mut HashSet<String>) -> String {
    let name = if name.is_empty() { "trace" } else { name };
    let mut free = name.to_owned();
    let mut number = 1;
    while !taken.insert(free.clone()) {
        number += 1;
        free = format!("{name}_{number}");
    }
    free
}

/// The state of writing a stream.
struct Export<'t, 'a> {
    filter: &'t Filter,
    reading: &'t EventReading,
    is_all: bool,
    job: &'t Job,
    trace: &'t Trace<'a>,
    stream: &'t Stream<'a>,
}

impl<'a> Export<'_, 'a> {
    /// Writes the stream. Returns `None` if `progress` stops it.
    fn write(&self, target: &Target, progress: &dyn Fn(u64) -> bool) -> Result<Option<Written>, ExportError> {
        let failed = |error| ExportError::System(self.job.file.clone(), error);
        let mut writer = StreamWriter::new(target, self.trace, self.stream);
        let mut out = None;
        let mut written = Written::default();
        for index in 0..self.stream.packets.len() {
            let packet = self.packet(index, &mut writer)?;
            written.events += packet.events;
            written.losses.extend(packet.losses);
            let bytes = writer.take();
            if !bytes.is_empty() {
                if out.is_none() {
                    out = Some(BufWriter::new(fs::File::create(&self.job.file).map_err(failed)?));
                }
                out.iter_mut().try_for_each(|out| out.write_all(&bytes)).map_err(failed)?;
            }
            if !progress(self.stream.packets[index].size()) {
                return Ok(None);
            }
        }
        out.iter_mut().try_for_each(BufWriter::flush).map_err(failed)?;
        Ok(Some(written))
    }

    /// Writes the events of a packet that pass the filter.
    fn packet<'s>(
        &'s self,
        index: usize,
        writer: &mut StreamWriter<'_, 's, 'a>,
    ) -> Result<Written, ExportError> {
        let packet = &self.stream.packets[index];
        let (from, to) = (self.reading.window.from, self.reading.window.to);
        let mut written = Written::default();
        if self.reading.leaves_out(self.stream, index) {
            return Ok(written);
        }
        let kept = KeptTimes {
            begin: from.is_none_or(|from| packet.begin.is_some_and(|begin| begin >= from)),
            end: to.is_none_or(|to| packet.end.is_some_and(|end| end < to)),
        };
        let mut cursor = Cursor::new(self.trace, self.stream, index..index + 1);
        writer.begin(packet);
        while let Some((time, item)) = cursor.next_item() {
            if !self.reading.wants(time) {
                continue;
            }
            let parts = match item {
                Item::Lost(lost) => {
                    writer.lost(&lost).map_err(ExportError::Unwritable)?;
                    continue;
                }
                Item::Event(parts) => parts,
            };
            let event = cursor.event(parts);
            if !self.filter.wants(self.job.trace, self.job.stream, &event) {
                continue;
            }
            match writer.event(&event, kept.begin) {
                Ok(()) => written.events += 1,
                Err(NotWritten::Unwritable(error)) => return Err(ExportError::Unwritable(error)),
                Err(NotWritten::Unreadable(trouble)) => {
                    let file = &self.trace.files[packet.file].name;
                    let start = packet.packet.bytes.start as u64;
                    written.losses.push(unreadable(file, start, &event, &trouble.to_string()));
                }
            }
        }
        let writes_empty = self.is_all && kept.begin && kept.end;
        writer.end(writes_empty, kept).map_err(ExportError::Unwritable)?;
        written.losses.extend(cursor.loss);
        Ok(written)
    }
}

/// The loss for an unreadable event of the packet that starts at this byte of the file.
fn unreadable(
    file: &str,
    packet_start: u64,
    event: &hodo_formats::events::Event<'_, '_, '_>,
    reason: &str,
) -> Loss {
    let (start, end) = (event.parts.start / 8, event.parts.end.div_ceil(8));
    Loss {
        stream: file.to_owned(),
        cause: Cause::Corrupt,
        bytes: packet_start + start..packet_start + end,
        time: None,
        count: 1,
        detail: format!("event `{}`: {reason}", event.class().name),
    }
}
