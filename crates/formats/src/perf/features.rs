//! The feature sections after the records: machine and recorder properties, build ids, the AUXTRACE index, and data
//! of the emulated processor.

use std::collections::HashMap;

use hodo_bytes::{Cursor, Eof};
use hodo_clock::Nanos;
use hodo_intel_pt::Cpu;

use super::{
    file::{Features, Section},
    layout::{HodoscopeSection, RECORD_HEADER_SIZE, ZSTD, feature, misc},
};
use crate::{
    error::{Error, ErrorKind},
    recording::{KeptCode, RecorderData},
};

/// Reads a text: u32 padded length, then NUL-padded bytes.
fn text<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Eof> {
    let length = cursor.u32()? as usize;
    let start = cursor.offset();
    Ok(Cursor::new(cursor.take(length)?, start).c_string())
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Reads a feature that is a single text.
pub(super) fn one_text(section: Section<'_>) -> Result<String, Eof> {
    text(&mut section.cursor()).map(shown)
}

/// Reads the recorder's command line, joined by spaces.
pub(super) fn command_line(section: Section<'_>) -> Result<String, Eof> {
    let mut cursor = section.cursor();
    let count = cursor.u32()?;
    let words: Result<Vec<String>, Eof> = (0..count).map(|_| text(&mut cursor).map(shown)).collect();
    Ok(words?.join(" "))
}

/// Reads u32 count, then text PMU and text CPUs for each. Returns a description.
pub(super) fn hybrid_topology(section: Section<'_>) -> Result<String, Eof> {
    let mut cursor = section.cursor();
    let count = cursor.u32()?;
    let kind = |_| Ok(format!("{} (CPUs {})", shown(text(&mut cursor)?), shown(text(&mut cursor)?)));
    let kinds: Result<Vec<String>, Eof> = (0..count).map(kind).collect();
    Ok(kinds?.join(", "))
}

/// A moment on two clocks.
pub(super) struct Moment {
    /// The number of a clock.
    pub(super) clock: u32,
    /// Its time in nanoseconds.
    pub(super) time: u64,
    /// The time of the wall clock in nanoseconds.
    pub(super) wall: u64,
}

/// Reads a moment on two clocks.
pub(super) fn moment(section: Section<'_>) -> Result<Moment, Eof> {
    let mut cursor = section.cursor();
    let (_version, clock) = (cursor.u32()?, cursor.u32()?);
    Ok(Moment { clock, wall: cursor.u64()?, time: cursor.u64()? })
}

/// Describes a moment on two clocks.
pub(super) fn clocks(section: Section<'_>) -> Result<String, Eof> {
    let Moment { clock, time, wall } = moment(section)?;
    Ok(format!("{} s of clock {clock} are {} s of the wall clock", Nanos(time), Nanos(wall)))
}

/// Describes the time window of the samples.
pub(super) fn sample_time(section: Section<'_>) -> Result<String, Eof> {
    let mut cursor = section.cursor();
    match (Nanos(cursor.u64()?), Nanos(cursor.u64()?)) {
        // perf did not determine the window.
        (Nanos(0), Nanos(0)) => Ok("of unknown times".to_owned()),
        (first, last) => Ok(format!("from {first} to {last} s")),
    }
}

/// Describes the compression of records.
pub(super) fn compression(section: Section<'_>) -> Result<String, Eof> {
    let mut cursor = section.cursor();
    let (_version, kind, level) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
    Ok(if kind == ZSTD { format!("zstd, level {level}") } else { format!("of unknown type {kind}") })
}

/// Describes whether a folder has one or several files of records.
pub(super) fn folder(section: Section<'_>) -> Result<String, Eof> {
    let files = if section.cursor().u64()? == 0 { "one file of records" } else { "several files of records" };
    Ok(files.to_owned())
}

/// Describes the machine's CPUs.
pub(super) fn cpus(section: Section<'_>) -> Result<String, Eof> {
    let mut cursor = section.cursor();
    let (available, online) = (cursor.u32()?, cursor.u32()?);
    Ok(format!("{online} online of {available}"))
}

/// Reads the event names, in the order of the attrs.
pub(super) fn event_names(section: Section<'_>) -> Result<Vec<String>, Eof> {
    let mut cursor = section.cursor();
    let (count, attr_size) = (cursor.u32()?, cursor.u32()? as usize);
    let name = |_| {
        cursor.take(attr_size)?;
        let ids = cursor.u32()? as usize;
        let name = shown(text(&mut cursor)?);
        cursor.take(ids.saturating_mul(8))?;
        Ok(name)
    };
    (0..count).map(name).collect()
}

/// Parses the processor from text such as `GenuineIntel,6,61,4`. Returns `None` for other vendors, whose numbers mean
/// other models.
pub(super) fn cpu(text: &str) -> Option<Cpu> {
    let mut numbers = text.strip_prefix("GenuineIntel,")?.split(',');
    Some(Cpu {
        family: numbers.next()?.parse().ok()?,
        model: numbers.next()?.parse().ok()?,
        stepping: numbers.next()?.parse().ok()?,
    })
}

/// Reads the offsets of AUXTRACE records, up to the first unreadable entry. The index is a sequence of tables: u64
/// count, then that many pairs of u64 offset and u64 size.
pub(super) fn auxtrace_index(section: Section<'_>) -> Vec<u64> {
    let mut cursor = section.cursor();
    let mut offsets = Vec::new();
    while let Ok(count) = cursor.u64() {
        for _ in 0..count {
            let (Ok(offset), Ok(_size)) = (cursor.u64(), cursor.u64()) else { return offsets };
            offsets.push(offset);
        }
    }
    offsets
}

/// Build ids by file path.
pub(super) type BuildIds<'a> = HashMap<&'a [u8], &'a [u8]>;

/// Reads the build-id table.
pub(super) fn build_ids(section: Section<'_>) -> Result<BuildIds<'_>, Eof> {
    let mut cursor = section.cursor();
    let mut build_ids = HashMap::new();
    while !cursor.is_empty() {
        let (_kind, flags) = (cursor.u32()?, cursor.u16()?);
        let size = cursor.u16()?.saturating_sub(RECORD_HEADER_SIZE);
        let start = cursor.offset();
        let file = file_build_id(flags, Cursor::new(cursor.take(usize::from(size))?, start))?;
        build_ids.insert(file.path, file.build_id);
    }
    Ok(build_ids)
}

/// An entry of the build-id table.
pub(super) struct FileBuildId<'a> {
    pub(super) path: &'a [u8],
    pub(super) build_id: &'a [u8],
}

/// Reads a build-id table entry, which is a record with these `misc` bits.
pub(super) fn file_build_id<'a>(flags: u16, mut body: Cursor<'a>) -> Result<FileBuildId<'a>, Eof> {
    /// Size of a build id in records without a size.
    const SHA1: u8 = 20;
    let _pid = body.u32()?;
    let (id, size) = (body.take(usize::from(SHA1))?, body.u32()?);
    let size = if flags & misc::BUILD_ID_SIZE != 0 { size as u8 } else { SHA1 };
    Ok(FileBuildId { path: body.c_string(), build_id: id.get(..usize::from(size)).unwrap_or(id) })
}

/// Reads the emulated processor's section.
pub(super) fn emulated(section: Section<'_>) -> Result<RecorderData<'_>, Error> {
    let cut = |eof| Error::cut_short("hodoscope section", eof);
    let mut cursor = section.cursor();
    let length = cursor.u32().map_err(cut)? as usize;
    let start = cursor.offset();
    let json = cursor.take(length).map_err(cut)?;
    let parsed: HodoscopeSection = serde_json::from_slice(json).map_err(|error| Error {
        at: start,
        kind: ErrorKind::Text { what: "hodoscope section", reason: error.to_string() },
    })?;
    let mut code = Vec::with_capacity(parsed.code.len());
    for entry in parsed.code {
        let length = usize::try_from(entry.length).unwrap_or(usize::MAX);
        let bytes = cursor.take(length).map_err(cut)?;
        code.push(KeptCode {
            pid: entry.pid,
            guest: entry.guest,
            time: Nanos(entry.time_ns),
            found: entry.found_ns.map(Nanos),
            address: entry.address,
            bytes,
        });
    }
    code.sort_by_key(|kept| kept.time);
    let kallsyms = cursor.take(usize::try_from(parsed.kallsyms).unwrap_or(usize::MAX)).map_err(cut)?;
    Ok(RecorderData { notes: parsed.notes, code, kallsyms })
}

/// Collects the readable machine and recorder properties.
pub(super) fn facts(features: &Features<'_>) -> Vec<(&'static str, String)> {
    type Reader = fn(Section<'_>) -> Result<String, Eof>;
    const FACTS: [(u8, &str, Reader); 13] = [
        (feature::CMDLINE, "command line", command_line),
        (feature::HOSTNAME, "host", one_text),
        (feature::VERSION, "recorder version", one_text),
        (feature::OSRELEASE, "kernel", one_text),
        (feature::ARCH, "architecture", one_text),
        (feature::CPUDESC, "processor", one_text),
        (feature::CPUID, "processor id", one_text),
        (feature::NRCPUS, "CPUs", cpus),
        (feature::HYBRID_TOPOLOGY, "kinds of cores", hybrid_topology),
        (feature::CLOCK_DATA, "clocks", clocks),
        (feature::SAMPLE_TIME, "samples", sample_time),
        (feature::COMPRESSED, "compression", compression),
        (feature::DIR_FORMAT, "folder", folder),
    ];
    let fact =
        |&(bit, name, read): &(u8, &'static str, Reader)| Some((name, read(*features.get(&bit)?).ok()?));
    FACTS.iter().filter_map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_intel_models_are_read() {
        assert_eq!(cpu("GenuineIntel,6,151,2"), Some(Cpu { family: 6, model: 151, stepping: 2 }));
        assert_eq!(cpu("AuthenticAMD,25,1,1"), None);
        assert_eq!(cpu("GenuineIntel,6"), None);
    }

    #[test]
    fn an_index_that_is_cut_short_gives_its_whole_entries() {
        let words = [2u64, 0x100, 48, 0x200];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(auxtrace_index(Section { offset: 0, bytes: &bytes }), [0x100]);
    }
}
