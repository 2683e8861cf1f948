//! Trace units by their registers, and the bytes of each in a buffer.

use hodo_etm::{Config, Registers, frames};

use super::ini::{self, Section};
use crate::{
    Unpacked,
    recording::{Piece, Stream, StreamKind, Thread},
};

/// TRCIDR1 and TRCDEVARCH of units whose file lacks them, as in OpenCSD: an ETMv4.0, and an ETE.
const DEFAULT_IDR1: u64 = 0x4100_f403;
const DEFAULT_DEVARCH: u64 = 0x4770_5a13;
/// Register bits that say that packets are of an ETE: major version 15.
const ETE_VERSION: u32 = 0xf00;

/// A device that writes trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: UnitKind,
}

/// The kind of a device that writes trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// An ETMv4 or ETE.
    Etm {
        /// Its number in frames.
        trace_id: u8,
        /// How to read its packets.
        config: Config,
    },
    /// Another one, such as an STM, whose trace is not read: its type.
    Other(String),
}

impl Unit {
    /// Reads a device. `sections` begin with its `[device]`.
    ///
    /// # Errors
    /// A register is missing or no number.
    pub(super) fn read(sections: &[Section<'_>]) -> Result<Unit, String> {
        let device = ini::section(sections, "device");
        let value = |key| device.and_then(|device| device.get(key)).unwrap_or_default().to_owned();
        let (name, kind) = (value("name"), value("type"));
        // A revision may follow: `ETM4.4`.
        let is_ete = match kind.split('.').next() {
            Some("ETM4") => false,
            Some("ETE") => true,
            _ => return Ok(Unit { name, kind: UnitKind::Other(kind) }),
        };
        let empty = Section::default();
        let registers = ini::section(sections, "regs").unwrap_or(&empty);
        let register = |key: &str, default: Option<u64>| match registers.number(key)?.or(default) {
            Some(value) => Ok(value as u32),
            None => Err(format!("{name}: register {key} is missing")),
        };
        let id1 = register("TRCIDR1", Some(DEFAULT_IDR1))?;
        let read = Registers {
            config: register("TRCCONFIGR", None)?,
            trace_id: register("TRCTRACEIDR", None)?,
            id0: register("TRCIDR0", None)?,
            id1: if is_ete { id1 | ETE_VERSION } else { id1 },
            id2: register("TRCIDR2", None)?,
            id8: register("TRCIDR8", Some(0))?,
            device_architecture: if is_ete { register("TRCDEVARCH", Some(DEFAULT_DEVARCH))? } else { 0 },
        };
        let kind = UnitKind::Etm { trace_id: (read.trace_id & 0x7f) as u8, config: Config::new(&read) };
        Ok(Unit { name, kind })
    }
}

/// How a buffer contains the bytes of trace units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Frames in memory.
    #[default]
    Frames,
    /// Frames of a trace port, with synchronizations between and within them.
    PortFrames,
    /// The bytes of one unit.
    OneSource,
}

impl Layout {
    /// Returns the layout with this name in a snapshot.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn named(name: &str) -> Result<Layout, String> {
        match name {
            "coresight" | "" => Ok(Layout::Frames),
            "dstream_coresight" => Ok(Layout::PortFrames),
            "source_data" => Ok(Layout::OneSource),
            _ => Err(format!("format={name}: expected coresight, dstream_coresight or source_data")),
        }
    }
}

/// A unit that writes to a buffer, and the thread that stands for its processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer<'u> {
    pub(super) unit: &'u Unit,
    pub(super) thread: Thread,
}

/// The trace in a buffer.
#[derive(Clone, Debug, Default)]
pub struct Buffer<'a> {
    /// Its name.
    pub name: String,
    /// The streams of its units.
    pub sources: Vec<SourceStream<'a>>,
    /// Trace IDs in its frames that no unit has whose trace is read.
    pub unknown: Vec<u8>,
}

/// The stream of a unit.
#[derive(Clone, Debug)]
pub struct SourceStream<'a> {
    /// The unit's trace ID.
    pub trace_id: u8,
    /// The stream.
    pub stream: Stream<'a>,
}

/// Separates the sources of a buffer.
pub(super) fn separate<'a>(
    buffer: &'a [u8],
    layout: Layout,
    writers: &[Writer<'_>],
    unpacked: &'a Unpacked,
) -> Buffer<'a> {
    let mut separated = Buffer::default();
    let source = |trace_id, thread, config, pieces| {
        let stream = Stream { cpu: None, thread: Some(thread), pieces, kind: StreamKind::Etm(config) };
        SourceStream { trace_id, stream }
    };
    if layout == Layout::OneSource {
        // OpenCSD takes the first by name.
        let first = writers.iter().min_by_key(|writer| &writer.unit.name);
        if let Some(&Writer { unit: Unit { kind: UnitKind::Etm { trace_id, config }, .. }, thread }) = first {
            let piece = Piece { file_offset: 0, bytes: buffer, after_gap: false };
            separated.sources.push(source(*trace_id, thread, *config, vec![piece]));
        }
        return separated;
    }
    let sources = match layout {
        Layout::PortFrames => frames::port_sources(buffer),
        Layout::Frames | Layout::OneSource => frames::sources(buffer),
    };
    for found in sources {
        let known = writers.iter().find_map(|writer| match writer.unit.kind {
            UnitKind::Etm { trace_id, config } if trace_id == found.id => Some((writer.thread, config)),
            _ => None,
        });
        let Some((thread, config)) = known else {
            separated.unknown.push(found.id);
            continue;
        };
        let mut pieces = Vec::new();
        push_source(&mut pieces, unpacked.keep(found.bytes), &found.losses, 0);
        separated.sources.push(source(found.id, thread, config, pieces));
    }
    separated
}

/// Adds the bytes of a source, cut where some were lost. Their offset in the file is that of their buffer: frames mix
/// sources.
pub(crate) fn push_source<'a>(
    pieces: &mut Vec<Piece<'a>>,
    bytes: &'a [u8],
    losses: &[usize],
    file_offset: u64,
) {
    let ends = losses.iter().copied().chain([bytes.len()]);
    let mut begin = 0;
    for end in ends {
        if begin < end {
            let after_gap = begin > 0 || !pieces.is_empty();
            pieces.push(Piece { file_offset, bytes: &bytes[begin..end], after_gap });
            begin = end;
        }
    }
}
