//! Recorded events, and the record trailers that their settings determine.

use std::collections::HashMap;

use hodo_bytes::{Cursor, Eof};
use hodo_clock::Nanos;

use super::{
    layout::{attr_flag, record, sample},
    records::Record,
};
use crate::{error::Error, recording::Thread};

/// The fields of `perf_event_attr` that a reader needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// The PMU: `type`.
    pub kind: u32,
    /// The event of the PMU and its settings.
    pub config: u64,
    /// The fields of samples and trailers.
    pub sample_type: u64,
    /// The layout of counter values in samples.
    pub read_format: u64,
    /// The flag bits.
    pub flags: u64,
    /// The layout of branch stacks in samples: `branch_sample_type`.
    pub branches: u64,
    /// The clock of times, by its number for `clock_gettime(2)`, if it is not perf's own.
    pub clock: Option<u32>,
    /// Mask of user-space registers in samples.
    pub user_registers: u64,
    /// Mask of registers of the interrupted code in samples.
    pub interrupt_registers: u64,
    /// The ids of this event in records, one per CPU or thread.
    pub ids: Vec<u64>,
}

impl Attr {
    /// `PERF_ATTR_SIZE_VER0`.
    pub(super) const SMALLEST: usize = 64;

    /// Reads an attr, and moves the cursor past it.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Attr, Error> {
        let start = cursor.offset();
        let cut = |eof| Error::cut_short("perf_event_attr", eof);
        let kind = cursor.u32().map_err(cut)?;
        let size = cursor.u32().map_err(cut)? as usize;
        if size < Attr::SMALLEST {
            return Err(Error::invalid(
                start + 4,
                "the size of a perf_event_attr",
                size as u64,
                "at least 64",
            ));
        }
        let rest = cursor.take(size - 8).map_err(cut)?;
        let mut rest = Cursor::new(rest, start + 8);
        let mut word = || rest.u64().map_err(cut);
        let (config, _sample_period) = (word()?, word()?);
        let (sample_type, read_format, flags) = (word()?, word()?, word()?);
        // Fields that an older attr lacks are zero. The three that are not read are wake-ups, config1 and config2.
        let mut word = || rest.u64().unwrap_or(0);
        let [_, _, _, branches, user_registers, stack_and_clock, interrupt_registers] =
            [(); 7].map(|()| word());
        let has_clock = flags & attr_flag::USE_CLOCKID != 0;
        Ok(Attr {
            kind,
            config,
            sample_type,
            read_format,
            flags,
            branches,
            clock: has_clock.then_some((stack_and_clock >> 32) as u32),
            user_registers,
            interrupt_registers,
            ids: Vec::new(),
        })
    }

    pub(super) fn has(&self, field: u64) -> bool {
        self.sample_type & field != 0
    }

    /// Size of the sample_id trailer in bytes.
    fn trailer_size(&self) -> usize {
        if self.flags & attr_flag::SAMPLE_ID_ALL == 0 {
            return 0;
        }
        let fields =
            sample::TID | sample::TIME | sample::ID | sample::STREAM_ID | sample::CPU | sample::IDENTIFIER;
        8 * (self.sample_type & fields).count_ones() as usize
    }

    /// Offset of the event's id in the trailer, in bytes from its end.
    fn id_from_end(&self) -> Option<usize> {
        if self.has(sample::IDENTIFIER) {
            return Some(8);
        }
        let fields_after = (self.sample_type & (sample::CPU | sample::STREAM_ID)).count_ones() as usize;
        self.has(sample::ID).then_some(8 * (1 + fields_after))
    }

    /// The timestamp in a sample of this event.
    pub(super) fn time_of_sample(&self, record: &Record<'_>) -> Option<u64> {
        let before = sample::IDENTIFIER | sample::IP | sample::TID;
        let start = 8 * (self.sample_type & before).count_ones() as usize;
        word(record.body, start).filter(|_| self.has(sample::TIME))
    }

    /// Offset of the event's id in a sample, in bytes from its beginning.
    fn id_from_start(&self) -> Option<usize> {
        if self.has(sample::IDENTIFIER) {
            return Some(0);
        }
        let before = sample::IP | sample::TID | sample::TIME | sample::ADDR;
        self.has(sample::ID).then_some(8 * (self.sample_type & before).count_ones() as usize)
    }
}

/// All events of a recording.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// The events in file order.
    pub attrs: Vec<Attr>,
    by_id: HashMap<u64, usize>,
    /// Whether the trailer layout differs between events.
    mixed: bool,
}

/// A record's trailer; a field that it lacks is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// The running thread.
    pub thread: Option<Thread>,
    /// The timestamp.
    pub time: Option<Nanos>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The kernel's id of the event.
    pub id: Option<u64>,
}

impl Events {
    pub(super) fn new(attrs: Vec<Attr>) -> Events {
        let mut events = Events::default();
        attrs.into_iter().for_each(|attr| events.add(attr));
        events
    }

    /// Adds an event.
    pub(super) fn add(&mut self, attr: Attr) {
        let layout = |attr: &Attr| (attr.sample_type, attr.trailer_size());
        self.mixed |= self.attrs.first().is_some_and(|first| layout(first) != layout(&attr));
        self.by_id.extend(attr.ids.iter().map(|&id| (id, self.attrs.len())));
        self.attrs.push(attr);
    }

    /// The event of a kernel record. If trailers differ, perf ensures that the id is at the same offset in all of
    /// them; id 0 marks records synthesized by perf.
    fn of_kernel_record(&self, body: &[u8]) -> Option<&Attr> {
        let first = self.attrs.first()?;
        if !self.mixed {
            return Some(first);
        }
        let id = first.id_from_end().and_then(|from_end| word(body, body.len().checked_sub(from_end)?));
        let index = id.and_then(|id| self.with_id(id)).unwrap_or(0);
        self.attrs.get(index)
    }

    /// The event of a SAMPLE record.
    pub(super) fn of_sample(&self, record: &Record<'_>) -> Option<&Attr> {
        self.attrs.get(self.index_of_sample(record)?)
    }

    /// The index of the event of a SAMPLE record.
    pub(super) fn index_of_sample(&self, record: &Record<'_>) -> Option<usize> {
        let first = self.attrs.first()?;
        let id = first.id_from_start().and_then(|start| word(record.body, start));
        match id.and_then(|id| self.with_id(id)) {
            Some(index) => Some(index),
            None => (self.attrs.len() == 1).then_some(0),
        }
    }

    /// The index of the event with a kernel id.
    pub(super) fn with_id(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// Splits a record into body and trailer.
    ///
    /// # Errors
    /// The record is shorter than its trailer.
    pub fn split<'a>(&self, record: &Record<'a>) -> Result<(Cursor<'a>, SampleId), Eof> {
        let start = record.body_offset();
        let mut cursor = Cursor::new(record.body, start);
        let attr = self.of_kernel_record(record.body).filter(|_| record.kind < record::USER_START);
        let Some(attr) = attr.filter(|attr| attr.trailer_size() > 0) else {
            return Ok((cursor, SampleId::default()));
        };
        let left = record.body.len();
        let wanted = attr.trailer_size();
        let eof = Eof { at: start, wanted: wanted as u64, left: left as u64 };
        let body = cursor.take(left.checked_sub(wanted).ok_or(eof)?)?;
        Ok((Cursor::new(body, start), trailer(attr, cursor)?))
    }
}

/// Reads the u64 at an offset.
fn word(bytes: &[u8], start: usize) -> Option<u64> {
    let bytes = bytes.get(start..start.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn trailer(attr: &Attr, mut cursor: Cursor<'_>) -> Result<SampleId, Eof> {
    let mut trailer = SampleId::default();
    if attr.has(sample::TID) {
        trailer.thread = Some(Thread { pid: cursor.u32()?, tid: cursor.u32()? });
    }
    let time = if attr.has(sample::TIME) { Some(cursor.u64()?) } else { None };
    trailer.time = time.filter(|&time| time != 0).map(Nanos);
    if attr.has(sample::ID) {
        trailer.id = Some(cursor.u64()?);
    }
    if attr.has(sample::STREAM_ID) {
        cursor.u64()?;
    }
    if attr.has(sample::CPU) {
        let cpu = cursor.u32()?;
        // A trailer synthesized by perf is all zeros, which does not mean CPU 0.
        trailer.cpu = Some(cpu).filter(|_| time != Some(0));
        cursor.u32()?;
    }
    if attr.has(sample::IDENTIFIER) {
        trailer.id = Some(cursor.u64()?);
    }
    Ok(trailer)
}
