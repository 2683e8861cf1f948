//! Reads jitdump, in which run-time compilers record the code that they generate (Linux,
//! `tools/perf/Documentation/jitdump-specification.txt`).

use hodo_bytes::{Cursor, Eof};

/// `JiTD`, in the byte order of the writer.
const MAGIC: u32 = 0x4a69_5444;
/// `JITDUMP_FLAGS_ARCH_TIMESTAMP`: times are ticks of the time-stamp counter.
const ARCH_TIMESTAMP: u64 = 1;
/// u32 id, u32 total size, u64 time.
const RECORD_HEADER: u32 = 16;

/// A jitdump file.
#[derive(Clone, Debug)]
pub struct JitDump<'a> {
    /// The id of the process that wrote it.
    pub pid: u32,
    /// Whether times are ticks of the time-stamp counter; otherwise nanoseconds of `CLOCK_MONOTONIC`.
    pub in_ticks: bool,
    records: Cursor<'a>,
}

/// A record about generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitRecord<'a> {
    /// The time, in the unit of [`JitDump::in_ticks`].
    pub time: u64,
    /// The content.
    pub kind: JitRecordKind<'a>,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitRecordKind<'a> {
    /// JIT_CODE_LOAD: a function was generated.
    Load {
        /// First address.
        address: u64,
        /// The code; shorter than `size` or empty if the file omits bytes.
        code: &'a [u8],
        /// Size in bytes.
        size: u64,
        /// The function's number, unique within the process.
        index: u64,
        /// The name.
        name: &'a [u8],
    },
    /// JIT_CODE_MOVE: a function's code moved.
    Move {
        /// The old address.
        from: u64,
        /// The new address.
        to: u64,
        /// Size in bytes.
        size: u64,
        /// The function's number from its load record.
        index: u64,
    },
    /// JIT_CODE_DEBUG_INFO: source lines of the function that the next record loads.
    Lines {
        /// First address of the function.
        address: u64,
        /// Number of addresses with a line.
        count: u64,
    },
    /// JIT_CODE_UNWINDING_INFO: unwind information of the function that the next record loads.
    Unwinding {
        /// Size in bytes.
        size: u64,
    },
    /// JIT_CODE_CLOSE: the last record.
    Close,
    /// A record of unknown kind.
    Other(u32),
}

impl<'a> JitDump<'a> {
    /// Parses the header.
    ///
    /// # Errors
    /// A message with the expected content that is missing.
    pub fn parse(bytes: &'a [u8]) -> Result<JitDump<'a>, String> {
        let mut header = Cursor::new(bytes, 0);
        let magic = header.u32().map_err(cut_short)?;
        if magic == MAGIC.swap_bytes() {
            return Err("a jitdump of a big-endian machine, which is not read".to_owned());
        }
        if magic != MAGIC {
            return Err(format!("not a jitdump: it starts with {magic:#x}, expected {MAGIC:#x}"));
        }
        let FileHeader { version, size, pid, flags } = FileHeader::read(&mut header).map_err(cut_short)?;
        if version != 1 {
            return Err(format!("a jitdump of version {version}, expected 1"));
        }
        let mut records = Cursor::new(bytes, 0);
        records.take(size.max(header.offset() as u32) as usize).map_err(cut_short)?;
        Ok(JitDump { pid, in_ticks: flags & ARCH_TIMESTAMP != 0, records })
    }

    /// The records in file order, up to the first error. A killed process leaves a last record that is cut short.
    pub fn records(&self) -> impl Iterator<Item = Result<JitRecord<'a>, String>> + use<'a> {
        let mut rest = Some(self.records.clone());
        std::iter::from_fn(move || {
            let mut cursor = rest.take().filter(|cursor| !cursor.is_empty())?;
            let record = record(&mut cursor);
            rest = record.is_ok().then_some(cursor);
            Some(record)
        })
    }
}

fn cut_short(eof: Eof) -> String {
    format!("cut short: {eof}")
}

/// The fields of a file's header after the magic number.
struct FileHeader {
    version: u32,
    /// Of the whole header, in bytes.
    size: u32,
    pid: u32,
    flags: u64,
}

impl FileHeader {
    fn read(cursor: &mut Cursor<'_>) -> Result<FileHeader, Eof> {
        let (version, size, _machine) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let (_padding, pid, _time) = (cursor.u32()?, cursor.u32()?, cursor.u64()?);
        Ok(FileHeader { version, size, pid, flags: cursor.u64()? })
    }
}

fn record<'a>(cursor: &mut Cursor<'a>) -> Result<JitRecord<'a>, String> {
    let start = cursor.offset();
    let id = cursor.u32().map_err(cut_short)?;
    let size = cursor.u32().map_err(cut_short)?;
    let time = cursor.u64().map_err(cut_short)?;
    let Some(body_size) = size.checked_sub(RECORD_HEADER) else {
        return Err(format!("record at offset {start:#x}: {size} bytes, expected at least {RECORD_HEADER}"));
    };
    let body_start = cursor.offset();
    let mut body = Cursor::new(cursor.take(body_size as usize).map_err(cut_short)?, body_start);
    let kind = match id {
        0 => load(&mut body),
        1 => moved(&mut body),
        2 => lines(&mut body),
        3 => Ok(JitRecordKind::Close),
        4 => body.u64().map(|size| JitRecordKind::Unwinding { size }),
        other => Ok(JitRecordKind::Other(other)),
    };
    Ok(JitRecord { time, kind: kind.map_err(cut_short)? })
}

/// u32 pid, u32 tid, u64 vma, u64 address, u64 size, u64 index, name, code.
fn load<'a>(body: &mut Cursor<'a>) -> Result<JitRecordKind<'a>, Eof> {
    let (_pid, _tid, _vma) = (body.u32()?, body.u32()?, body.u64()?);
    let (address, size, index) = (body.u64()?, body.u64()?, body.u64()?);
    let name = body.c_string();
    let rest = body.rest();
    let code = rest.get(..usize::try_from(size).unwrap_or(usize::MAX)).unwrap_or(rest);
    Ok(JitRecordKind::Load { address, code, size, index, name })
}

/// u32 pid, u32 tid, u64 vma, u64 old address, u64 new address, u64 size, u64 index.
fn moved<'a>(body: &mut Cursor<'_>) -> Result<JitRecordKind<'a>, Eof> {
    let (_pid, _tid, _vma) = (body.u32()?, body.u32()?, body.u64()?);
    let (from, to) = (body.u64()?, body.u64()?);
    Ok(JitRecordKind::Move { from, to, size: body.u64()?, index: body.u64()? })
}

/// u64 address, u64 count, and for each line: u64 address, u32 line, u32 discriminator, name.
fn lines<'a>(body: &mut Cursor<'_>) -> Result<JitRecordKind<'a>, Eof> {
    Ok(JitRecordKind::Lines { address: body.u64()?, count: body.u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn record(id: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let size = RECORD_HEADER + body.len() as u32;
        [&id.to_le_bytes()[..], &size.to_le_bytes(), &time.to_le_bytes(), body].concat()
    }

    fn file(records: &[Vec<u8>]) -> Vec<u8> {
        let mut file = MAGIC.to_le_bytes().to_vec();
        let (version, size, machine, padding, pid) = (1u32, 40, 62, 0, 7);
        file.extend([version, size, machine, padding, pid].iter().flat_map(|word| word.to_le_bytes()));
        let (time, flags) = (5, 0);
        file.extend(words(&[time, flags]));
        file.extend(records.concat());
        file
    }

    fn sample() -> Vec<u8> {
        let ids = [7u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
        let load = [&ids[..], &words(&[0x1000, 0x1000, 3, 1]), b"add\0", &[0x90, 0x90, 0xc3]].concat();
        let moved = [&ids[..], &words(&[0x2000, 0x1000, 0x2000, 3, 1])].concat();
        let lines = [&words(&[0x1000, 0])[..]].concat();
        file(&[
            record(2, 9, &lines),
            record(4, 9, &words(&[0, 0, 0])),
            record(0, 10, &load),
            record(1, 20, &moved),
            record(3, 30, &[]),
        ])
    }

    #[test]
    fn loads_and_moves_are_read() {
        let bytes = sample();
        let dump = JitDump::parse(&bytes).unwrap();
        assert_eq!((dump.pid, dump.in_ticks), (7, false));
        let records: Vec<_> = dump.records().map(Result::unwrap).collect();
        let (address, size, index) = (0x1000, 3, 1);
        let code = &[0x90, 0x90, 0xc3][..];
        let kinds = [
            JitRecordKind::Lines { address, count: 0 },
            JitRecordKind::Unwinding { size: 0 },
            JitRecordKind::Load { address, code, size, index, name: b"add" },
            JitRecordKind::Move { from: address, to: 0x2000, size, index },
            JitRecordKind::Close,
        ];
        assert_eq!(records.iter().map(|record| record.kind).collect::<Vec<_>>(), kinds);
        assert_eq!(records.iter().map(|record| record.time).collect::<Vec<_>>(), [9, 9, 10, 20, 30]);
    }

    #[test]
    fn only_the_last_record_of_a_damaged_file_is_an_error() {
        let bytes = sample();
        for length in 0..bytes.len() {
            let Ok(dump) = JitDump::parse(&bytes[..length]) else { continue };
            let read: Vec<_> = dump.records().collect();
            assert!(read.iter().rev().skip(1).all(Result::is_ok), "{length}");
        }
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert!(JitDump::parse(&other).is_err_and(|error| error.contains("not a jitdump")));
        other[..4].copy_from_slice(&MAGIC.to_be_bytes());
        assert!(JitDump::parse(&other).is_err_and(|error| error.contains("big-endian")));
        let short = file(&[vec![0; 4], 5u32.to_le_bytes().to_vec(), vec![0; 8]]);
        let records: Vec<_> = JitDump::parse(&short).unwrap().records().collect();
        assert_eq!(records, [Err("record at offset 0x28: 5 bytes, expected at least 16".to_owned())]);
    }
}
