//! Folders in OpenCSD's snapshot format: text files, buffers of trace, dumps of memory.

use std::{borrow::Cow, path::Path};

use hodo_clock::PerfClock;
use hodo_intel_pt::Config;
use hodo_model::{Cause, Loss};

use super::{
    ini::{self, Section, sections},
    unit::{Buffer, Layout, Unit, UnitKind, Writer, separate},
};
use crate::{
    Contents, Format, Input,
    error::{Error, ErrorKind},
    recording::{Mapping, Recording, Sideband, SidebandKind, Thread},
};

/// The file of a snapshot that names all others.
pub const FIRST_FILE: &str = "snapshot.ini";

/// The snapshot format.
pub const FORMAT: Format = Format {
    name: "snapshot of OpenCSD",
    recognise,
    contents: |_| Contents::FLOW,
    flow: Some(read),
    events: None,
};

/// The names of its first section, of which the first came with version 1.0.
const FIRST_SECTIONS: [&str; 2] = ["snapshot", "device_list"];
/// Bytes within which the first section begins.
const BEGIN: usize = 1 << 12;

/// Whether the bytes are those of a `snapshot.ini`.
pub fn recognise(bytes: &[u8]) -> bool {
    let begin = &bytes[..bytes.len().min(BEGIN)];
    if begin.contains(&0) {
        return false;
    }
    let text = String::from_utf8_lossy(begin);
    sections(&text).first().is_some_and(|section| FIRST_SECTIONS.contains(&section.name))
}

/// Returns the names of the files that one of the text files refers to.
pub fn referenced(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut names = Vec::new();
    for section in sections(&text) {
        for (key, value) in section.entries {
            if section.name == "device_list" || key == "metadata" && section.name == "trace" {
                names.push(value.to_owned());
            } else if key == "file" {
                names.extend(files(value).map(str::to_owned));
            }
        }
    }
    names
}

/// The names in a list, such as the files of a buffer, in order.
fn files(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// A processor, and the ranges of memory that are in files.
#[derive(Clone, Debug, Default)]
struct Core<'t> {
    name: &'t str,
    dumps: Vec<Dump<'t>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Dump<'t> {
    file: &'t str,
    address: u64,
    offset: u64,
    /// `None`: the rest of the file.
    length: Option<u64>,
}

/// Everything that the text files say.
#[derive(Debug, Default)]
struct Snapshot<'t> {
    cores: Vec<Core<'t>>,
    units: Vec<Unit>,
    /// The sections of `trace.ini`.
    trace: Vec<Section<'t>>,
}

/// Reads a snapshot.
///
/// # Errors
/// A text file is missing or unreadable. Buffers and dumps that are missing are losses.
fn read<'a>(input: &Input<'a>) -> Result<Recording<'a>, Error> {
    let reader = Reader { input };
    let main = reader.text(input.bytes);
    let main = sections(main);
    let snapshot = reader.snapshot(&main)?;
    let mut recording = Recording {
        facts: vec![("format", FORMAT.name.to_owned())],
        // Timestamps are ticks of a counter; without its frequency they order only.
        config: Config { tsc: true, clock: clock(&snapshot.trace), ..Config::default() },
        ..Recording::default()
    };
    let description = ini::section(&main, "snapshot").and_then(|section| section.get("description"));
    recording.facts.extend(description.map(|text| ("description", text.to_owned())));
    let parts = reader.parts(&snapshot).map_err(invalid)?;
    recording.loss.extend(parts.loss);
    recording.facts.extend(parts.facts);
    let sources = parts.buffers.into_iter().flat_map(|buffer| buffer.sources);
    recording.streams = sources.map(|source| source.stream).collect();
    recording.sideband.extend(parts.threads.iter().map(|&(name, thread)| Sideband {
        time: None,
        cpu: None,
        thread,
        guest: None,
        kind: SidebandKind::Comm { name: name.as_bytes(), exec: false },
    }));
    for (pid, dumps) in (0..).zip(&parts.memories) {
        reader.add_code(Thread { pid, tid: 0 }, dumps, &mut recording);
    }
    Ok(recording)
}

/// Reads the buffers of a snapshot.
///
/// # Errors
/// As [`FORMAT`]'s reader.
pub fn buffers<'a>(input: &Input<'a>) -> Result<Vec<Buffer<'a>>, Error> {
    let reader = Reader { input };
    let snapshot = reader.snapshot(&sections(reader.text(input.bytes)))?;
    reader.parts(&snapshot).map(|parts| parts.buffers).map_err(invalid)
}

fn invalid(reason: String) -> Error {
    Error { at: 0, kind: ErrorKind::Text { what: "snapshot", reason } }
}

/// The clock of timestamps, if `trace.ini` has the frequency.
fn clock(trace: &[Section<'_>]) -> Option<PerfClock> {
    /// The most precise for counters of 1 GHz, which is the most common frequency.
    const SHIFT: u32 = 31;
    let frequency = ini::section(trace, "timestamp")?.number("frequency").ok()??;
    let multiplier = (1_000_000_000_u128 << SHIFT).checked_div(frequency.into())?;
    let bits = 128 - multiplier.leading_zeros();
    let less = bits.saturating_sub(32).min(SHIFT);
    PerfClock::new(u64::from(SHIFT - less), (multiplier >> less) as u64, 0)
}

struct Reader<'i, 'a> {
    input: &'i Input<'a>,
}

impl<'a> Reader<'_, 'a> {
    /// Returns bytes as text, which lives as long as the recording.
    fn text(&self, bytes: &'a [u8]) -> &'a str {
        match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => text,
            Cow::Owned(text) => {
                std::str::from_utf8(self.input.unpacked.keep(text.into_bytes())).unwrap_or_default()
            }
        }
    }

    fn file(&self, name: &str) -> Option<&'a [u8]> {
        self.input.others.iter().find(|other| other.name == name).map(|other| other.bytes)
    }

    fn sections(&self, name: &str) -> Result<Vec<Section<'a>>, Error> {
        let bytes = self.file(name).ok_or_else(|| invalid(format!("{name} is missing")))?;
        Ok(sections(self.text(bytes)))
    }

    fn snapshot(&self, main: &[Section<'_>]) -> Result<Snapshot<'a>, Error> {
        let mut snapshot = Snapshot::default();
        let devices =
            ini::section(main, "device_list").ok_or_else(|| invalid("no [device_list]".to_owned()))?;
        for (_, file) in &devices.entries {
            let device = self.sections(file)?;
            let with_file = |reason| invalid(format!("{file}: {reason}"));
            let value = |key| ini::section(&device, "device").and_then(|section| section.get(key));
            match value("class") {
                Some("core") => snapshot.cores.push(core(&device).map_err(with_file)?),
                Some("trace_source") => snapshot.units.push(Unit::read(&device).map_err(with_file)?),
                _ => {}
            }
        }
        let trace = ini::section(main, "trace").and_then(|trace| trace.get("metadata"));
        snapshot.trace =
            self.sections(trace.ok_or_else(|| invalid("no metadata= in [trace]".to_owned()))?)?;
        Ok(snapshot)
    }

    /// Reads all buffers, and which memory their processors see.
    fn parts(&self, snapshot: &Snapshot<'a>) -> Result<Parts<'a>, String> {
        let mut parts = Parts::default();
        let buffers = ini::section(&snapshot.trace, "trace_buffers").and_then(|list| list.get("buffers"));
        for name in files(buffers.ok_or("no buffers= in [trace_buffers]")?) {
            let Some(buffer) = ini::section(&snapshot.trace, name) else {
                return Err(format!("no section [{name}] of a buffer"));
            };
            let called = buffer.get("name").unwrap_or(name);
            let layout = Layout::named(buffer.get("format").unwrap_or_default())?;
            let mut bytes = Vec::new();
            for file in files(buffer.get("file").ok_or_else(|| format!("no file= in [{name}]"))?) {
                match self.file(file) {
                    Some(found) => bytes.push(found),
                    None => parts.loss.push(missing(Cause::CutShort, called, file)),
                }
            }
            let bytes = match bytes[..] {
                [only] => only,
                _ => self.input.unpacked.keep(bytes.concat()),
            };
            let writers = parts.writers(snapshot, called);
            let separated = separate(bytes, layout, &writers, self.input.unpacked);
            parts.facts.push(("buffer", describe(called, layout, &writers, &separated.unknown)));
            parts.buffers.push(Buffer { name: called.to_owned(), ..separated });
        }
        Ok(parts)
    }

    /// Adds the dumps that the processors of a buffer see. Where ranges overlap the first counts, as for OpenCSD.
    fn add_code(&self, thread: Thread, dumps: &[Dump<'_>], recording: &mut Recording<'a>) {
        // What is mapped later replaces what was mapped before.
        for dump in dumps.iter().rev() {
            let Some(bytes) = self.file(dump.file) else {
                recording.loss.push(missing(Cause::MissingCode, "", dump.file));
                continue;
            };
            let path = Path::new(self.input.folder).join(dump.file).to_string_lossy().into_owned();
            let left = (bytes.len() as u64).saturating_sub(dump.offset);
            let length = dump.length.unwrap_or(left).min(left);
            if !recording.flat_files.contains(&path) {
                recording.flat_files.push(path.clone());
            }
            let name = self.input.unpacked.keep(path.into_bytes());
            let mapping = Mapping {
                address: dump.address,
                length,
                file_offset: dump.offset,
                name,
                build_id: &[],
                kernel: false,
            };
            recording.sideband.push(Sideband {
                time: None,
                cpu: None,
                thread,
                guest: None,
                kind: SidebandKind::Map(mapping),
            });
        }
    }
}

fn core<'t>(device: &[Section<'t>]) -> Result<Core<'t>, String> {
    let value = |key| ini::section(device, "device").and_then(|section| section.get(key));
    let mut core = Core { name: value("name").unwrap_or_default(), dumps: Vec::new() };
    for section in device.iter().filter(|section| section.name.starts_with("dump")) {
        let expected = |key: &str| format!("no {key}= in [{}]", section.name);
        core.dumps.push(Dump {
            file: section.get("file").ok_or_else(|| expected("file"))?,
            address: section.number("address")?.ok_or_else(|| expected("address"))?,
            offset: section.number("offset")?.unwrap_or(0),
            length: section.number("length")?.filter(|&length| length > 0),
        });
    }
    Ok(core)
}

impl<'t> Snapshot<'t> {
    /// Returns the pairs of a section of `trace.ini`.
    fn pairs(&self, section: &str) -> &[(&'t str, &'t str)] {
        ini::section(&self.trace, section).map_or(&[], |section| &section.entries)
    }

    /// Returns the number and the name of the processor that a unit traces; of a unit without one its own name.
    fn core_of(&self, unit: &'t str) -> (Option<usize>, &'t str) {
        let cores = self.pairs("core_trace_sources");
        let name = cores.iter().find(|(_, known)| *known == unit).map_or(unit, |&(core, _)| core);
        (self.cores.iter().position(|core| core.name == name), name)
    }
}

/// What the buffers of a snapshot contain.
#[derive(Default)]
struct Parts<'a> {
    buffers: Vec<Buffer<'a>>,
    /// The dumps that the processors of a buffer see, once for buffers with the same ones. The index is the process.
    memories: Vec<Vec<Dump<'a>>>,
    /// The threads that stand for processors, with their names.
    threads: Vec<(&'a str, Thread)>,
    facts: Vec<(&'static str, String)>,
    loss: Vec<Loss>,
}

impl<'a> Parts<'a> {
    /// Returns the units that write to a buffer, with their threads.
    fn writers<'s>(&mut self, snapshot: &'s Snapshot<'a>, buffer: &str) -> Vec<Writer<'s>> {
        let sources = snapshot.pairs("source_buffers").iter();
        let of_buffer = sources.filter(|(_, buffers)| files(buffers).any(|one| one == buffer));
        let units: Vec<_> = of_buffer
            .filter_map(|&(name, _)| {
                let unit = snapshot.units.iter().find(|unit| unit.name == name)?;
                Some((unit, snapshot.core_of(name)))
            })
            .collect();
        // As for OpenCSD, all processors of a buffer see the dumps of all of them.
        let mut memory: Vec<Dump<'a>> = Vec::new();
        for core in units.iter().filter_map(|(_, (core, _))| *core) {
            for dump in &snapshot.cores[core].dumps {
                if !memory.contains(dump) {
                    memory.push(dump.clone());
                }
            }
        }
        let known = self.memories.iter().position(|known| *known == memory);
        let pid = known.unwrap_or(self.memories.len());
        if known.is_none() {
            self.memories.push(memory);
        }
        let mut writers = Vec::new();
        for (number, (unit, (core, name))) in units.into_iter().enumerate() {
            // Units without a processor come after the processors.
            let tid = core.unwrap_or(snapshot.cores.len() + number);
            let thread = Thread { pid: pid as u32, tid: tid as u32 };
            let is_read = matches!(unit.kind, UnitKind::Etm { .. });
            if is_read && self.threads.iter().all(|&(_, known)| known != thread) {
                self.threads.push((name, thread));
            }
            writers.push(Writer { unit, thread });
        }
        writers
    }
}

fn missing(cause: Cause, stream: &str, file: &str) -> Loss {
    let detail = format!("{file} is missing in the snapshot");
    Loss { stream: stream.to_owned(), cause, bytes: 0..0, time: None, count: 1, detail }
}

/// Describes a buffer, its units, and what is not read of it.
fn describe(name: &str, layout: Layout, writers: &[Writer<'_>], unknown: &[u8]) -> String {
    let layout = match layout {
        Layout::Frames => "frames",
        Layout::PortFrames => "frames of a trace port",
        Layout::OneSource => "one unit",
    };
    let mut text = format!("{name} ({layout})");
    for (number, writer) in writers.iter().enumerate() {
        text += if number == 0 { ": " } else { ", " };
        text += &writer.unit.name;
        text += &match &writer.unit.kind {
            UnitKind::Etm { trace_id, config } => {
                format!(" ({}, ID {trace_id:02x})", if config.is_ete { "ETE" } else { "ETMv4" })
            }
            UnitKind::Other(kind) => format!(" ({kind}: not read)"),
        };
    }
    if !unknown.is_empty() {
        text += &format!("; {}", unknown_sources(unknown));
    }
    text
}

/// Names trace IDs whose bytes are not read.
pub(super) fn unknown_sources(ids: &[u8]) -> String {
    let ids = ids.iter().map(|id| format!(" {id:02x}")).collect::<String>();
    format!("not read: trace ID{ids}")
}
