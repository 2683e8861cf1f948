//! jitdump: what a run-time compiler tells of the code that it makes (Linux,
//! `tools/perf/Documentation/jitdump-specification.txt`).

use hodo_bytes::{Cursor, Eof};

/// `JiTD`, as its writer's processor has it in a word.
const MAGIC: u32 = 0x4a69_5444;
/// `JITDUMP_FLAGS_ARCH_TIMESTAMP`: times are ticks of the processor's time-stamp counter.
const ARCH_TIMESTAMP: u64 = 1;
/// u32 id, u32 total size, u64 time.
const RECORD_HEADER: u32 = 16;

/// A jitdump file.
#[derive(Clone, Debug)]
pub struct JitDump<'a> {
    /// The process that wrote it.
    pub pid: u32,
    /// Times are ticks of the time-stamp counter; nanoseconds of `CLOCK_MONOTONIC`, where not.
    pub in_ticks: bool,
    records: Cursor<'a>,
}

/// Something that happened to generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitRecord<'a> {
    /// When, as [`JitDump::in_ticks`] says.
    pub time: u64,
    /// What.
    pub kind: JitRecordKind<'a>,
}

/// What happened to generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitRecordKind<'a> {
    /// JIT_CODE_LOAD: a function was made.
    Load {
        /// Its first address.
        address: u64,
        /// Its code; shorter than its size, or empty, where the file leaves bytes out.
        code: &'a [u8],
        /// Its size in bytes.
        size: u64,
        /// Its number, which no other function of the process has.
        index: u64,
        /// Its name.
        name: &'a [u8],
    },
    /// JIT_CODE_MOVE: a function's code lies elsewhere from now on.
    Move {
        /// Where it was.
        from: u64,
        /// Where it is now.
        to: u64,
        /// Its size in bytes.
        size: u64,
        /// The number that it was loaded with.
        index: u64,
    },
    /// JIT_CODE_DEBUG_INFO: source lines of the function that the next record loads.
    Lines {
        /// The function's first address.
        address: u64,
        /// How many addresses have a line.
        count: u64,
    },
    /// JIT_CODE_UNWINDING_INFO: how to unwind the function that the next record loads.
    Unwinding {
        /// Bytes of it.
        size: u64,
    },
    /// JIT_CODE_CLOSE: nothing follows.
    Close,
    /// A record of a kind that is not known.
    Other(u32),
}

impl<'a> JitDump<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// What was expected there and is not, for people.
    pub fn parse(bytes: &'a [u8]) -> Result<JitDump<'a>, String> {
        let mut header = Cursor::new(bytes, 0);
        let magic = header.u32().map_err(text)?;
        if magic == MAGIC.swap_bytes() {
            return Err("a jitdump of a big-endian machine, which is not read".to_owned());
        }
        if magic != MAGIC {
            return Err(format!("not a jitdump: it starts with {magic:#x}, expected {MAGIC:#x}"));
        }
        let fields = |header: &mut Cursor<'a>| {
            let (version, size, _machine) = (header.u32()?, header.u32()?, header.u32()?);
            let (_padding, pid, _time) = (header.u32()?, header.u32()?, header.u64()?);
            Ok((version, size, pid, header.u64()?))
        };
        let (version, size, pid, flags) = fields(&mut header).map_err(text)?;
        if version != 1 {
            return Err(format!("a jitdump of version {version}, expected 1"));
        }
        let mut records = Cursor::new(bytes, 0);
        records.take(size.max(header.offset() as u32) as usize).map_err(text)?;
        Ok(JitDump { pid, in_ticks: flags & ARCH_TIMESTAMP != 0, records })
    }

    /// The records, in the order of the file; the first error ends them. A file whose last record is
    /// cut short was not closed, which is how a process that is killed leaves it.
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

fn text(eof: Eof) -> String {
    format!("cut short: {eof}")
}

fn record<'a>(cursor: &mut Cursor<'a>) -> Result<JitRecord<'a>, String> {
    let at = cursor.offset();
    let header = |cursor: &mut Cursor<'_>| Ok((cursor.u32()?, cursor.u32()?, cursor.u64()?));
    let (id, size, time) = header(cursor).map_err(text)?;
    let Some(size) = size.checked_sub(RECORD_HEADER) else {
        return Err(format!("record at offset {at:#x}: {size} bytes, expected at least {RECORD_HEADER}"));
    };
    let start = cursor.offset();
    let mut body = Cursor::new(cursor.take(size as usize).map_err(text)?, start);
    let kind = match id {
        0 => load(&mut body),
        1 => moved(&mut body),
        2 => lines(&mut body),
        3 => Ok(JitRecordKind::Close),
        4 => body.u64().map(|size| JitRecordKind::Unwinding { size }),
        other => Ok(JitRecordKind::Other(other)),
    };
    Ok(JitRecord { time, kind: kind.map_err(text)? })
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
        file.extend([1u32, 40, 62, 0, 7].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(words(&[5, 0]));
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
    fn damage_is_said_and_ends_the_file() {
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
