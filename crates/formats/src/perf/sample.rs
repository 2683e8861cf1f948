//! The layout of SAMPLE records.

use hodo_bytes::{Cursor, Eof};

use super::{
    events::{Attr, SampleId},
    layout::{branch, read_format, sample},
    records::Record,
};
use crate::recording::Thread;
use hodo_clock::Nanos;

/// The parts of a sample that readers use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample<'a> {
    /// Thread, timestamp and CPU.
    pub(super) id: SampleId,
    /// The tracepoint's data; empty if the event does not record it.
    pub(super) raw: &'a [u8],
    /// File offset of `raw`.
    pub(super) raw_offset: u64,
    /// Trace from before the sample; empty if the event does not record it.
    pub(super) aux: &'a [u8],
    /// File offset of `aux`.
    pub(super) aux_offset: u64,
}

impl<'a> Sample<'a> {
    /// Reads a SAMPLE record of an event. Fields are in the order of the kernel's `perf_output_sample`.
    ///
    /// # Errors
    /// The record is shorter than its parts.
    pub(super) fn read(record: &Record<'a>, attr: &Attr) -> Result<Sample<'a>, Eof> {
        let mut cursor = Cursor::new(record.body, record.body_offset());
        let mut read = Sample { id: sample_id(&mut cursor, attr)?, ..Sample::default() };
        for &(field, skip) in BEFORE_RAW {
            if attr.has(field) {
                skip(&mut cursor, attr)?;
            }
        }
        if attr.has(sample::RAW) {
            let size = cursor.u32()?;
            read.raw_offset = cursor.offset();
            read.raw = cursor.take(size as usize)?;
        }
        for &(field, skip) in AFTER_RAW {
            if attr.has(field) {
                skip(&mut cursor, attr)?;
            }
        }
        if attr.has(sample::AUX) {
            let size = cursor.u64()?;
            read.aux_offset = cursor.offset();
            read.aux = cursor.take(usize::try_from(size).unwrap_or(usize::MAX))?;
        }
        Ok(read)
    }
}

/// Reads the fields up to CPU: thread, timestamp and CPU.
fn sample_id(cursor: &mut Cursor<'_>, attr: &Attr) -> Result<SampleId, Eof> {
    let mut sample_id = SampleId::default();
    if attr.has(sample::IDENTIFIER) {
        sample_id.id = Some(cursor.u64()?);
    }
    if attr.has(sample::IP) {
        cursor.u64()?;
    }
    if attr.has(sample::TID) {
        sample_id.thread = Some(Thread { pid: cursor.u32()?, tid: cursor.u32()? });
    }
    if attr.has(sample::TIME) {
        sample_id.time = Some(Nanos(cursor.u64()?));
    }
    if attr.has(sample::ADDR) {
        cursor.u64()?;
    }
    if attr.has(sample::ID) {
        sample_id.id = Some(cursor.u64()?);
    }
    if attr.has(sample::STREAM_ID) {
        cursor.u64()?;
    }
    if attr.has(sample::CPU) {
        sample_id.cpu = Some(cursor.u32()?);
        cursor.u32()?;
    }
    Ok(sample_id)
}

/// Moves a cursor past a field.
type Skip = fn(&mut Cursor<'_>, &Attr) -> Result<(), Eof>;

/// The fields before and after the tracepoint's data, in order, and how to skip each.
const BEFORE_RAW: &[(u64, Skip)] =
    &[(sample::PERIOD, word), (sample::READ, values), (sample::CALLCHAIN, call_chain)];

const AFTER_RAW: &[(u64, Skip)] = &[
    (sample::BRANCH_STACK, branches),
    (sample::REGS_USER, |cursor, attr| registers(cursor, attr.user_registers)),
    (sample::STACK_USER, stack),
    (sample::WEIGHT | sample::WEIGHT_STRUCT, word),
    (sample::DATA_SRC, word),
    (sample::TRANSACTION, word),
    (sample::REGS_INTR, |cursor, attr| registers(cursor, attr.interrupt_registers)),
    (sample::PHYS_ADDR, word),
    (sample::CGROUP, word),
    (sample::DATA_PAGE_SIZE, word),
    (sample::CODE_PAGE_SIZE, word),
];

fn word(cursor: &mut Cursor<'_>, _: &Attr) -> Result<(), Eof> {
    cursor.u64().map(drop)
}

fn words(cursor: &mut Cursor<'_>, count: u64) -> Result<(), Eof> {
    cursor.take(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(8)).map(drop)
}

/// Skips a `read_format` field: one value or a group's values, with the optional words of each.
fn values(cursor: &mut Cursor<'_>, attr: &Attr) -> Result<(), Eof> {
    let bits = |mask: u64| u64::from((attr.read_format & mask).count_ones());
    let times = bits(read_format::TOTAL_TIME_ENABLED | read_format::TOTAL_TIME_RUNNING);
    let each = 1 + bits(read_format::ID | read_format::LOST);
    let count = if bits(read_format::GROUP) == 1 { cursor.u64()? } else { 1 };
    words(cursor, times.saturating_add(each.saturating_mul(count)))
}

/// u64 count, addresses.
fn call_chain(cursor: &mut Cursor<'_>, _: &Attr) -> Result<(), Eof> {
    let count = cursor.u64()?;
    words(cursor, count)
}

/// u64 count, optional u64 hw_idx, three words per branch, an optional word of counters per branch.
fn branches(cursor: &mut Cursor<'_>, attr: &Attr) -> Result<(), Eof> {
    let count = cursor.u64()?;
    let bit = |mask: u64| u64::from(attr.branches & mask != 0);
    let each = 3 + bit(branch::COUNTERS);
    words(cursor, bit(branch::HW_INDEX).saturating_add(count.saturating_mul(each)))
}

/// u64 abi, then the registers in the mask unless abi is 0.
fn registers(cursor: &mut Cursor<'_>, mask: u64) -> Result<(), Eof> {
    let abi = cursor.u64()?;
    words(cursor, if abi == 0 { 0 } else { mask.count_ones().into() })
}

/// u64 size, bytes, and u64 dyn_size unless size is 0.
fn stack(cursor: &mut Cursor<'_>, _: &Attr) -> Result<(), Eof> {
    let size = cursor.u64()?;
    cursor.take(usize::try_from(size).unwrap_or(usize::MAX))?;
    if size > 0 { cursor.u64().map(drop) } else { Ok(()) }
}
