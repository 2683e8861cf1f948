//! The sections of a trace.dat, versions up to 6 (sequential) and version 7 (located through options).
//!
//! ```text
//! 6:  initial, description, u64 size and names of threads, u32 CPUs, ["options  ", options], "flyrecord",
//!     offset and size for each CPU; pages
//! 7:  initial, compression, offset of the options; sections, each with a header and optionally compressed
//! ```
//!
//! Sources: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5).

use std::ops::Range;

use hodo_bytes::Eof;

use super::{
    cursor::Cursor,
    description::{Description, Initial, MARK, long_sized},
    unpack::{self, Packing},
    write::TscToNanos,
};
use crate::{
    Input,
    error::{Error, ErrorKind},
    events::schema::ByteOrder,
};

/// A parsed trace.dat.
#[derive(Clone, Debug)]
pub(super) struct File<'a> {
    /// The byte order of the traced machine.
    pub(super) order: ByteOrder,
    pub(super) initial: Initial<'a>,
    pub(super) description: Description<'a>,
    /// Thread names, one per line: `23809 bash`.
    pub(super) threads: &'a [u8],
    pub(super) options: Options<'a>,
    /// The buffers of the top instance and of the others, including empty ones.
    pub(super) buffers: Vec<Buffer<'a>>,
}

/// An instance in the options of version 6.
struct Instance<'a> {
    /// File offset of its buffer.
    offset: u64,
    name: &'a [u8],
    /// The number of its CPUs, if it is not that of the top instance.
    cpus: Option<u32>,
}

/// The parsed options.
#[derive(Clone, Debug, Default)]
pub(super) struct Options<'a> {
    /// Microseconds from the clock's zero to 1970, as text: `0x…`.
    pub(super) date: Option<&'a [u8]>,
    /// Nanoseconds to add to all timestamps, as text.
    pub(super) offset: Option<&'a [u8]>,
    pub(super) tsc: Option<TscToNanos>,
    /// The traced system: `uname`.
    pub(super) system: Option<&'a [u8]>,
    /// The trace-cmd version.
    pub(super) recorder: Option<&'a [u8]>,
    /// Whether the file asks for timestamps to be shifted to a host's.
    pub(super) is_guest: bool,
}

/// The trace buffer of an instance.
#[derive(Clone, Debug)]
pub(super) struct Buffer<'a> {
    /// The instance's name; empty for the top instance.
    pub(super) name: &'a [u8],
    /// The clock: `mono`, or `[local] global …` with the selected one in brackets.
    pub(super) clock: &'a [u8],
    /// Page size in bytes.
    pub(super) page_size: u32,
    /// The CPUs.
    pub(super) cpus: Vec<Cpu<'a>>,
}

/// The pages of a CPU.
#[derive(Clone, Debug)]
pub(super) struct Cpu<'a> {
    pub(super) number: u32,
    /// Its pages, in ranges of the file without gaps.
    pub(super) runs: Vec<PageRun<'a>>,
    /// Bytes and reason of the missing rest.
    pub(super) missing: Option<(Range<u64>, String)>,
}

/// Contiguous pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRun<'a> {
    /// File offset of the pages, or of the compressed data they come from.
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
}

/// Option numbers of both versions.
mod option {
    pub(super) const DONE: u16 = 0;
    pub(super) const DATE: u16 = 1;
    pub(super) const BUFFER: u16 = 3;
    pub(super) const TRACE_CLOCK: u16 = 4;
    pub(super) const UNAME: u16 = 5;
    pub(super) const OFFSET: u16 = 7;
    pub(super) const VERSION: u16 = 9;
    pub(super) const TIME_SHIFT: u16 = 12;
    pub(super) const TSC2NSEC: u16 = 14;
    pub(super) const HEADER_INFO: u16 = 16;
    pub(super) const FTRACE_EVENTS: u16 = 17;
    pub(super) const EVENT_FORMATS: u16 = 18;
    pub(super) const KALLSYMS: u16 = 19;
    pub(super) const PRINTK: u16 = 20;
    pub(super) const CMDLINES: u16 = 21;
    pub(super) const BUFFER_TEXT: u16 = 22;
}

/// The markers before the CPUs' offsets, before the text of a latency tracer, and before the options.
const RECORDS: &[u8; 10] = b"flyrecord\0";
const LATENCY: &[u8; 10] = b"latency  \0";
const OPTIONS: &[u8; 10] = b"options  \0";
/// Offset of the file's version, after the magic number.
const VERSION_OFFSET: u64 = MARK.len() as u64;
/// Limit on option sections; more would only mean a cycle.
const MOST_SECTIONS: usize = 1 << 10;
/// Section flag: compressed.
const COMPRESSED: u16 = 1;

fn cut(eof: Eof) -> Error {
    Error::cut_short("trace.dat", eof)
}

fn unsupported(at: u64, what: &'static str, help: &'static str) -> Error {
    Error { at, kind: ErrorKind::Unsupported { what, help } }
}

impl<'a> File<'a> {
    /// Reads everything that describes the trace. Missing pages are not an error.
    ///
    /// # Errors
    /// A file of another kind, or a description that is cut short or invalid.
    pub(super) fn open(input: &Input<'a>) -> Result<File<'a>, Error> {
        let mut cursor = Cursor::new(input.bytes, 0, ByteOrder::Little);
        let initial = Initial::read(&mut cursor)?;
        let file = File {
            order: cursor.order,
            initial,
            description: Description::default(),
            threads: &[],
            options: Options::default(),
            buffers: Vec::new(),
        };
        match initial.version {
            b"7" => file.read_7(input, cursor),
            version if is_sequential(version) => file.read_6(input, cursor),
            _ => Err(unsupported(
                VERSION_OFFSET,
                "a trace.dat of a version that is unknown; versions up to 7 are read",
                "convert it with `trace-cmd convert --file-version 7`",
            )),
        }
    }

    fn read_6(mut self, input: &Input<'a>, mut cursor: Cursor<'a>) -> Result<File<'a>, Error> {
        self.description.read(&mut cursor).map_err(cut)?;
        self.threads = long_sized(&mut cursor).map_err(cut)?;
        let cpus = cursor.u32().map_err(cut)?;
        let mut instances = Vec::new();
        let mut mark = cursor.take(RECORDS.len()).map_err(cut)?;
        let mut clock: &[u8] = b"";
        if mark == OPTIONS {
            loop {
                let number = cursor.u16().map_err(cut)?;
                if number == option::DONE {
                    break;
                }
                let size = cursor.u32().map_err(cut)?;
                let start = cursor.offset();
                let mut value = Cursor::new(cursor.take(size as usize).map_err(cut)?, start, self.order);
                match number {
                    option::BUFFER => instances.push(Instance {
                        offset: value.u64().map_err(cut)?,
                        name: value.c_string(),
                        cpus: value.u32().ok(),
                    }),
                    option::TRACE_CLOCK => clock = value.c_string(),
                    _ => self.options.set(number, &mut value).map_err(cut)?,
                }
            }
            mark = cursor.take(RECORDS.len()).map_err(cut)?;
        }
        if mark == LATENCY {
            return Err(latency(cursor.offset()));
        }
        if self.description.header_page.is_empty() {
            return Err(unsupported(
                VERSION_OFFSET,
                "a trace.dat without a description of its pages, of a kernel before 2.6.31",
                "read it with trace-cmd",
            ));
        }
        let top = self.buffer_6(input, b"", clock, mark, cpus, cursor)?;
        self.buffers.push(top);
        for instance in instances {
            let mut cursor = cursor_at(input.bytes, instance.offset, self.order).map_err(cut)?;
            let mark = cursor.take(RECORDS.len()).map_err(cut)?;
            let cpus = instance.cpus.unwrap_or(cpus);
            let buffer = self.buffer_6(input, instance.name, clock, mark, cpus, cursor)?;
            self.buffers.push(buffer);
        }
        Ok(self)
    }

    /// Reads u64 offset and u64 size for each CPU, then u64 size and text of the clock.
    fn buffer_6(
        &self,
        input: &Input<'a>,
        name: &'a [u8],
        clock: &'a [u8],
        mark: &[u8],
        cpus: u32,
        mut cursor: Cursor<'a>,
    ) -> Result<Buffer<'a>, Error> {
        if mark != RECORDS {
            let reason = format!("{:?} is not a known kind of trace", String::from_utf8_lossy(mark));
            let kind = ErrorKind::Text { what: "the marker before the CPUs' offsets", reason };
            return Err(Error { at: cursor.offset(), kind });
        }
        let mut buffer = Buffer { name, clock, page_size: self.initial.page_size, cpus: Vec::new() };
        for number in 0..cpus {
            let (offset, size) = (cursor.u64().map_err(cut)?, cursor.u64().map_err(cut)?);
            buffer.cpus.push(Cpu::new(input.bytes, number, offset, size));
        }
        // Files without the option, such as those of older versions, have no clock here either.
        if !clock.is_empty() {
            buffer.clock = long_sized(&mut cursor).unwrap_or(clock);
        }
        Ok(buffer)
    }

    fn read_7(mut self, input: &Input<'a>, mut cursor: Cursor<'a>) -> Result<File<'a>, Error> {
        let (name, _version) = (cursor.c_string(), cursor.c_string());
        let packing = Packing::named(name).ok_or(unsupported(
            cursor.offset(),
            "a trace.dat that is compressed neither by zstd nor by zlib",
            UNPACK,
        ))?;
        let mut next = cursor.u64().map_err(cut)?;
        let mut sections: Vec<(u16, u64)> = Vec::new();
        let mut buffers = Vec::new();
        for _ in 0..MOST_SECTIONS {
            if next == 0 {
                break;
            }
            let mut section = section(input, next, (packing, self.order))?;
            next = 0;
            while !section.is_empty() {
                let (number, size) = (section.u16().map_err(cut)?, section.u32().map_err(cut)?);
                let start = section.offset();
                let mut value = Cursor::new(section.take(size as usize).map_err(cut)?, start, self.order);
                match number {
                    option::DONE => {
                        next = value.u64().map_err(cut)?;
                        break;
                    }
                    option::BUFFER => buffers.push(value),
                    option::BUFFER_TEXT => return Err(latency(start)),
                    option::HEADER_INFO..=option::CMDLINES => {
                        sections.push((number, value.u64().map_err(cut)?));
                    }
                    _ => self.options.set(number, &mut value).map_err(cut)?,
                }
            }
        }
        for (number, offset) in sections {
            let mut section = section(input, offset, (packing, self.order))?;
            match number {
                option::HEADER_INFO => self.description.read_headers(&mut section),
                option::FTRACE_EVENTS => self.description.read_own_formats(&mut section),
                option::EVENT_FORMATS => self.description.read_formats(&mut section),
                option::KALLSYMS => self.description.read_symbols(&mut section),
                option::PRINTK => self.description.read_texts(&mut section),
                _ => long_sized(&mut section).map(|threads| self.threads = threads),
            }
            .map_err(cut)?;
        }
        for value in buffers {
            let buffer = buffer_7(input, value, packing)?;
            self.buffers.push(buffer);
        }
        Ok(self)
    }
}

/// The advice for unsupported compression.
const UNPACK: &str = "convert it with `trace-cmd convert --compression zstd`";

fn latency(at: u64) -> Error {
    unsupported(
        at,
        "a trace.dat of a latency tracer, which contains text instead of events",
        "open it with a pager",
    )
}

/// Whether a file of this version has the sections of version 6. trace-cmd reads all earlier versions as version 6;
/// they differ in options, which are optional.
fn is_sequential(version: &[u8]) -> bool {
    let version =
        std::str::from_utf8(version).ok().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    version.is_some_and(|version| version <= 6)
}

/// Reads u64 offset of the section, name, clock, u32 page size, u32 count; then u32 CPU, u64 offset, u64 size for
/// each CPU.
fn buffer_7<'a>(input: &Input<'a>, mut value: Cursor<'a>, packing: Packing) -> Result<Buffer<'a>, Error> {
    let section = value.u64().map_err(cut)?;
    let (name, clock) = (value.c_string(), value.c_string());
    let (page_size, count) = (value.u32().map_err(cut)?, value.u32().map_err(cut)?);
    let mut cpus = Vec::new();
    for _ in 0..count {
        let number = value.u32().map_err(cut)?;
        let (offset, size) = (value.u64().map_err(cut)?, value.u64().map_err(cut)?);
        let mut header = cursor_at(input.bytes, section, value.order).map_err(cut)?;
        let flags = header.u16().and_then(|_id| header.u16()).map_err(cut)?;
        let packed = Cpu::new(input.bytes, number, offset, size);
        let is_packed = flags & COMPRESSED != 0 && packing != Packing::None;
        cpus.push(if is_packed { packed.unpack(input, packing, value.order) } else { packed });
    }
    Ok(Buffer { name, clock, page_size, cpus })
}

/// Returns a cursor at a file offset.
fn cursor_at(bytes: &[u8], offset: u64, order: ByteOrder) -> Result<Cursor<'_>, Eof> {
    let rest = usize::try_from(offset).ok().and_then(|start| bytes.get(start..));
    Ok(Cursor::new(rest.ok_or(Eof { at: offset, wanted: 1, left: 0 })?, offset, order))
}

/// Returns the content of a version 7 section: u16 id, u16 flags, u32 description, u64 size.
fn section<'a>(
    input: &Input<'a>,
    offset: u64,
    (packing, order): (Packing, ByteOrder),
) -> Result<Cursor<'a>, Error> {
    let mut cursor = cursor_at(input.bytes, offset, order).map_err(cut)?;
    let (_id, flags) = (cursor.u16().map_err(cut)?, cursor.u16().map_err(cut)?);
    let (_description, size) = (cursor.u32().map_err(cut)?, cursor.u64().map_err(cut)?);
    let start = cursor.offset();
    let bytes = cursor.take(usize::try_from(size).unwrap_or(usize::MAX)).map_err(cut)?;
    let mut content = Cursor::new(bytes, start, order);
    if flags & COMPRESSED == 0 || packing == Packing::None {
        return Ok(content);
    }
    let unpacked = unpack::chunk(&mut content, packing).map_err(|reason| Error {
        at: start,
        kind: ErrorKind::Text { what: "a compressed section", reason },
    })?;
    Ok(Cursor::new(input.unpacked.keep(unpacked), start, order))
}

impl<'a> Options<'a> {
    /// Sets the option with this number; ignores unknown ones.
    fn set(&mut self, number: u16, value: &mut Cursor<'a>) -> Result<(), Eof> {
        match number {
            option::DATE => self.date = Some(value.c_string()),
            option::OFFSET => self.offset = Some(value.c_string()),
            option::UNAME => self.system = Some(value.c_string()),
            option::VERSION => self.recorder = Some(value.c_string()),
            option::TIME_SHIFT => self.is_guest = true,
            option::TSC2NSEC => {
                let (multiplier, shift) = (value.u32()?, value.u32()?);
                self.tsc = Some(TscToNanos { multiplier, shift, offset: value.u64()? });
            }
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Cpu<'a> {
    /// A CPU whose pages are a range of the file, as far as the file has it.
    fn new(file: &'a [u8], number: u32, offset: u64, size: u64) -> Cpu<'a> {
        let rest = usize::try_from(offset).ok().and_then(|start| file.get(start..)).unwrap_or_default();
        let available = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
        let mut cpu = Cpu { number, runs: Vec::new(), missing: None };
        if available > 0 {
            cpu.runs.push(PageRun { offset, bytes: &rest[..available] });
        }
        if (available as u64) < size {
            let reason = format!("{size} bytes of pages expected, but the file has only {available} of them");
            let missing = offset.saturating_add(available as u64)..offset.saturating_add(size);
            cpu.missing = Some((missing, reason));
        }
        cpu
    }

    /// Unpacks u32 count of chunks, then u32 packed size, u32 size and bytes for each.
    fn unpack(self, input: &Input<'a>, packing: Packing, order: ByteOrder) -> Cpu<'a> {
        let mut cpu = Cpu { number: self.number, runs: Vec::new(), missing: self.missing };
        for run in self.runs {
            // The size that trace-cmd writes does not include the count itself.
            let rest = input.bytes.get(run.offset as usize..).unwrap_or_default();
            let mut cursor = Cursor::new(rest, run.offset, order);
            let chunks = cursor.u32().unwrap_or(0);
            for _ in 0..chunks {
                let offset = cursor.offset();
                match unpack::chunk(&mut cursor, packing) {
                    Ok(bytes) => cpu.runs.push(PageRun { offset, bytes: input.unpacked.keep(bytes) }),
                    Err(reason) => {
                        let end = run.offset + run.bytes.len() as u64;
                        cpu.missing.get_or_insert((offset..end, reason));
                        break;
                    }
                }
            }
        }
        cpu
    }
}
