//! Bundles of ftrace events: `FtraceEventBundle`, the events of a CPU in order of time.
//!
//! ```text
//! bundle   cpu, flags, events; a table of switches and wake-ups, column by column (`compact_sched`)
//! event    timestamp, thread, flags; in a field whose number is the event's type, its fields
//! ```
//!
//! Source: `ftrace_event_bundle.proto` and `ftrace_event.proto` of Perfetto 59.

use std::ops::Range;

use super::wire::{Field, Fields, Packed};
pub(super) use crate::events::message::UNKNOWN;

/// Numbers of the fields of `FtraceEventBundle`.
mod field {
    pub(super) const CPU: u32 = 1;
    pub(super) const EVENT: u32 = 2;
    pub(super) const LOST_EVENTS: u32 = 3;
    pub(super) const COMPACT_SCHED: u32 = 4;
    pub(super) const FTRACE_CLOCK: u32 = 5;
    pub(super) const FTRACE_TIMESTAMP: u32 = 6;
    pub(super) const BOOT_TIMESTAMP: u32 = 7;
    pub(super) const ERROR: u32 = 8;
    pub(super) const GENERIC_DESCRIPTORS: u32 = 11;
}

/// Numbers of the fields of `FtraceEvent`.
mod event {
    pub(super) const TIMESTAMP: u32 = 1;
    pub(super) const PID: u32 = 2;
    pub(super) const COMMON_FLAGS: u32 = 5;
}

/// A bundle, without its events.
#[derive(Clone, Debug, Default)]
pub(super) struct Bundle<'a> {
    pub(super) cpu: u32,
    /// Whether events were lost before it.
    pub(super) has_lost: bool,
    pub(super) compact: Option<&'a [u8]>,
    /// The clock of its times: `FtraceClock`.
    pub(super) clock: u64,
    /// The time of that clock and of the clock that counts from boot, at one instant.
    pub(super) instant: (Option<i64>, Option<i64>),
    /// Parts of the kernel's buffer that Perfetto could not parse.
    pub(super) errors: u64,
    /// Descriptions of types of events that Perfetto has no messages for.
    pub(super) descriptors: Vec<&'a [u8]>,
}

impl<'a> Bundle<'a> {
    /// Reads the fields other than events.
    ///
    /// # Errors
    /// The offset of a field that can't be read.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Bundle<'a>, usize> {
        let (mut bundle, mut fields) = (Bundle::default(), Fields::new(bytes));
        while let Some(field) = fields.next()? {
            let integer = field.integer().unwrap_or(0);
            match field.number {
                field::CPU => bundle.cpu = integer as u32,
                field::LOST_EVENTS => bundle.has_lost = integer != 0,
                field::COMPACT_SCHED => bundle.compact = field.bytes(),
                field::FTRACE_CLOCK => bundle.clock = integer,
                field::FTRACE_TIMESTAMP => bundle.instant.0 = Some(integer as i64),
                field::BOOT_TIMESTAMP => bundle.instant.1 = Some(integer as i64),
                field::ERROR => bundle.errors += 1,
                field::GENERIC_DESCRIPTORS => bundle.descriptors.extend(field.bytes()),
                _ => {}
            }
        }
        Ok(bundle)
    }
}

/// An event, without its own fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) time: u64,
    pub(super) pid: i64,
    pub(super) flags: i64,
    /// The number of the field with the event's own fields: its type. 0 if there is none.
    pub(super) kind: u32,
    /// The event in the bundle.
    pub(super) whole: Range<usize>,
    /// Its own fields in the bundle.
    pub(super) own: Range<usize>,
}

/// Iterates over the events of a bundle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Events<'a>(Fields<'a>);

impl<'a> Events<'a> {
    pub(super) fn new(bundle: &'a [u8]) -> Events<'a> {
        Events(Fields::new(bundle))
    }

    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// The offset of an event that can't be read. The next one may be readable.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Head>, usize> {
        loop {
            let Some(field) = self.0.next()? else { return Ok(None) };
            if field.number != field::EVENT {
                continue;
            }
            let whole = field.bytes().and_then(|bytes| head(bytes, field.at));
            return whole.ok_or(field.at).map(Some);
        }
    }
}

#[inline]
fn head(bytes: &[u8], at: usize) -> Option<Head> {
    let whole = at..at + bytes.len();
    let mut head = Head { time: 0, pid: UNKNOWN, flags: UNKNOWN, kind: 0, own: whole.end..whole.end, whole };
    let mut fields = Fields::new(bytes);
    while let Some(Field { number, value, at: start }) = fields.next().ok()? {
        let field = Field { number, value, at: start };
        match (number, field.integer(), field.bytes()) {
            (event::TIMESTAMP, Some(time), _) => head.time = time,
            (event::PID, Some(pid), _) => head.pid = i64::from(pid as u32 as i32),
            (event::COMMON_FLAGS, Some(flags), _) => head.flags = flags as i64,
            (_, _, Some(own)) => {
                head.kind = number;
                head.own = at + start..at + start + own.len();
            }
            _ => {}
        }
    }
    Some(head)
}

/// A switch in the table: the thread that begins to run, and the state of the one that ran before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) time: u64,
    pub(super) previous_state: i64,
    pub(super) next: Running,
}

/// A wake-up in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waking {
    pub(super) time: u64,
    pub(super) pid: i64,
    pub(super) target_cpu: i64,
    pub(super) priority: i64,
    /// Index of the name in the bundle.
    pub(super) name: i64,
    pub(super) flags: i64,
}

/// A thread that runs on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) pid: i64,
    pub(super) priority: i64,
    /// Index of its name: in the bundle, or in the trace.
    pub(super) name: i64,
}

impl Running {
    /// An unknown thread.
    pub(super) const UNKNOWN: Running = Running { pid: UNKNOWN, priority: UNKNOWN, name: UNKNOWN };
}

/// The table of switches and wake-ups of a bundle.
#[derive(Clone, Debug, Default)]
pub(super) struct Compact<'a> {
    /// Columns of numbers, by the number of their field; those without a column are empty.
    columns: [Packed<'a>; COLUMNS],
    /// The names of threads.
    pub(super) names: Vec<&'a [u8]>,
    /// The times of the last switch and wake-up.
    times: [u64; 2],
}

/// One more than the highest number of a column.
const COLUMNS: usize = 13;
/// The column of names, among those of numbers.
const INTERN_TABLE: u32 = 5;

impl<'a> Compact<'a> {
    /// Finds the columns.
    ///
    /// # Errors
    /// The offset in the table of a field that can't be read.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Compact<'a>, usize> {
        let (mut table, mut fields) = (Compact::default(), Fields::new(bytes));
        while let Some(field) = fields.next()? {
            let bytes = field.bytes().ok_or(field.at)?;
            match table.columns.get_mut(field.number as usize) {
                Some(_) if field.number == INTERN_TABLE => table.names.push(bytes),
                Some(column) => *column = Packed::new(bytes),
                None => {}
            }
        }
        Ok(table)
    }

    fn column(&mut self, number: usize) -> Option<u64> {
        self.columns[number].next()
    }

    /// The next integer of a column of 32-bit integers.
    fn integer(&mut self, number: usize) -> Option<i64> {
        self.column(number).map(|value| i64::from(value as i32))
    }

    fn index(&mut self, number: usize) -> Option<i64> {
        self.column(number).map(|value| value.min(i64::MAX as u64) as i64)
    }

    /// The next switch; `None` after the last. Columns contain times as differences from the one before.
    ///
    /// # Errors
    /// A column is shorter than that of the times.
    pub(super) fn switch(&mut self) -> Result<Option<Switch>, &'static str> {
        let Some(delta) = self.column(1) else { return Ok(None) };
        self.times[0] = self.times[0].wrapping_add(delta);
        let mut row = || {
            let (time, previous_state) = (self.times[0], self.column(2)? as i64);
            let next = Running { pid: self.integer(3)?, priority: self.integer(4)?, name: self.index(6)? };
            Some(Switch { time, previous_state, next })
        };
        row().ok_or("a column of compact_sched has fewer switches than there are times").map(Some)
    }

    /// The next wake-up; `None` after the last.
    ///
    /// # Errors
    /// A column is shorter than that of the times.
    pub(super) fn waking(&mut self) -> Result<Option<Waking>, &'static str> {
        let Some(delta) = self.column(7) else { return Ok(None) };
        self.times[1] = self.times[1].wrapping_add(delta);
        let mut row = || {
            let (time, pid, target_cpu) = (self.times[1], self.integer(8)?, self.integer(9)?);
            let (priority, name) = (self.integer(10)?, self.index(11)?);
            // Perfetto before 2023 does not record the flags.
            let flags = self.index(12).unwrap_or(UNKNOWN);
            Some(Waking { time, pid, target_cpu, priority, name, flags })
        };
        row().ok_or("a column of compact_sched has fewer wake-ups than there are times").map(Some)
    }
}
