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
    raw::THREAD,
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

/// The files of a buffer, which may be several, in order.
fn files(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim)
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
    let threads = Threads::new(&snapshot);
    let buffers = reader.buffers(&snapshot, &threads, &mut recording).map_err(invalid)?;
    let sources = buffers.into_iter().flat_map(|buffer| buffer.sources);
    recording.streams = sources.map(|source| source.stream).collect();
    recording.sideband.extend(threads.names());
    reader.add_code(&snapshot, &mut recording);
    Ok(recording)
}

/// Reads the buffers of a snapshot.
///
/// # Errors
/// As [`FORMAT`]'s reader.
pub fn buffers<'a>(input: &Input<'a>) -> Result<Vec<Buffer<'a>>, Error> {
    let reader = Reader { input };
    let snapshot = reader.snapshot(&sections(reader.text(input.bytes)))?;
    reader.buffers(&snapshot, &Threads::new(&snapshot), &mut Recording::default()).map_err(invalid)
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

    /// Reads all buffers, and notes what is missing.
    fn buffers(
        &self,
        snapshot: &Snapshot<'a>,
        threads: &Threads<'a>,
        recording: &mut Recording<'a>,
    ) -> Result<Vec<Buffer<'a>>, String> {
        let mut read = Vec::new();
        let buffers = ini::section(&snapshot.trace, "trace_buffers").and_then(|list| list.get("buffers"));
        for name in files(buffers.ok_or("no buffers= in [trace_buffers]")?) {
            let Some(buffer) = ini::section(&snapshot.trace, name) else {
                return Err(format!("no section [{name}] of a buffer"));
            };
            let called = buffer.get("name").unwrap_or(name);
            let layout = Layout::named(buffer.get("format").unwrap_or_default())?;
            let mut parts = Vec::new();
            for file in files(buffer.get("file").ok_or_else(|| format!("no file= in [{name}]"))?) {
                match self.file(file) {
                    Some(bytes) => parts.push(bytes),
                    None => recording.loss.push(missing(Cause::CutShort, called, file)),
                }
            }
            let bytes = match parts[..] {
                [only] => only,
                _ => self.input.unpacked.keep(parts.concat()),
            };
            let writers = snapshot.writers(called, threads);
            let separated = separate(bytes, layout, &writers, self.input.unpacked);
            recording.facts.push(("buffer", describe(called, layout, &writers, &separated.unknown)));
            read.push(Buffer { name: called.to_owned(), ..separated });
        }
        Ok(read)
    }

    /// Adds the dumps of all processors. Where ranges overlap the first counts, as for OpenCSD.
    fn add_code(&self, snapshot: &Snapshot<'a>, recording: &mut Recording<'a>) {
        let mut dumps: Vec<&Dump<'_>> = Vec::new();
        for dump in snapshot.cores.iter().flat_map(|core| &core.dumps) {
            if !dumps.contains(&dump) {
                dumps.push(dump);
            }
        }
        // What is mapped later replaces what was mapped before.
        for dump in dumps.into_iter().rev() {
            let Some(bytes) = self.file(dump.file) else {
                recording.loss.push(missing(Cause::MissingCode, "", dump.file));
                continue;
            };
            let path = Path::new(self.input.folder).join(dump.file).to_string_lossy().into_owned();
            let left = (bytes.len() as u64).saturating_sub(dump.offset);
            let length = dump.length.unwrap_or(left).min(left);
            recording.flat_files.push(path.clone());
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
                thread: THREAD,
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
    /// Returns the units that write to a buffer.
    fn writers<'s>(&'s self, buffer: &str, threads: &Threads<'t>) -> Vec<Writer<'s>> {
        let all = ini::section(&self.trace, "source_buffers").map_or(&[][..], |section| &section.entries);
        let of_buffer = all.iter().filter(|(_, buffers)| files(buffers).any(|one| one == buffer));
        let unit = |(name, _): &(&str, &str)| self.units.iter().find(|unit| unit.name == *name);
        of_buffer.filter_map(unit).map(|unit| Writer { unit, thread: threads.of(&unit.name) }).collect()
    }
}

/// The threads that stand for processors, or for units without one.
struct Threads<'t> {
    names: Vec<&'t str>,
    /// Unit and processor.
    of_units: Vec<(&'t str, &'t str)>,
}

impl<'t> Threads<'t> {
    fn new(snapshot: &Snapshot<'t>) -> Threads<'t> {
        let sources = ini::section(&snapshot.trace, "core_trace_sources");
        let pairs = sources.map_or(&[][..], |section| &section.entries);
        let of_units: Vec<_> = pairs.iter().map(|&(core, unit)| (unit, core)).collect();
        let written = ini::section(&snapshot.trace, "source_buffers");
        let units = written.map_or(&[][..], |section| &section.entries).iter().map(|&(unit, _)| unit);
        let mut names: Vec<&str> = snapshot.cores.iter().map(|core| core.name).collect();
        let of = |unit| of_units.iter().find(|(known, _)| *known == unit).map_or(unit, |&(_, core)| core);
        for name in units.map(of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Threads { names, of_units }
    }

    fn of(&self, unit: &str) -> Thread {
        let core = self.of_units.iter().find(|(known, _)| *known == unit).map_or(unit, |&(_, core)| core);
        let number = self.names.iter().position(|name| *name == core).unwrap_or(self.names.len());
        Thread { tid: number as u32, ..THREAD }
    }

    /// Returns records of their names.
    fn names(&self) -> impl Iterator<Item = Sideband<'t>> {
        self.names.iter().zip(0..).map(|(name, tid)| Sideband {
            time: None,
            cpu: None,
            thread: Thread { tid, ..THREAD },
            guest: None,
            kind: SidebandKind::Comm { name: name.as_bytes(), exec: false },
        })
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
