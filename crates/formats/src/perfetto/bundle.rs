//! Bundles of ftrace events: `FtraceEventBundle`, the events of a CPU in order of time.
//!
//! ```text
//! bundle   cpu, flags, events; a table of switches and wake-ups, column by column (`compact_sched`)
//! event    timestamp, thread, flags; in a field whose number is the event's type, its fields
//! ```
//!
//! Source: `ftrace_event_bundle.proto` and `ftrace_event.proto` of Perfetto 59.

use std::ops::Range;

use super::wire::{Fields, Packed};
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
    /// The time of that clock at an instant.
    pub(super) own_time: Option<i64>,
    /// The time of the clock that counts from boot at the same instant.
    pub(super) boot_time: Option<i64>,
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
                field::FTRACE_TIMESTAMP => bundle.own_time = Some(integer as i64),
                field::BOOT_TIMESTAMP => bundle.boot_time = Some(integer as i64),
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
            let whole = field.bytes().and_then(|bytes| head(bytes, field.offset));
            return whole.ok_or(field.offset).map(Some);
        }
    }
}

/// Reads an event, whose bytes are at `offset` in its bundle.
#[inline]
fn head(bytes: &[u8], offset: usize) -> Option<Head> {
    let whole = offset..offset + bytes.len();
    let mut head = Head { time: 0, pid: UNKNOWN, flags: UNKNOWN, kind: 0, own: whole.end..whole.end, whole };
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next().ok()? {
        match (field.number, field.integer(), field.bytes()) {
            (event::TIMESTAMP, Some(time), _) => head.time = time,
            (event::PID, Some(pid), _) => head.pid = i64::from(pid as u32 as i32),
            (event::COMMON_FLAGS, Some(flags), _) => head.flags = flags as i64,
            (_, _, Some(own)) => {
                head.kind = field.number;
                let start = offset + field.offset;
                head.own = start..start + own.len();
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
    /// The time of the last switch.
    switch_time: u64,
    /// The time of the last wake-up.
    waking_time: u64,
}

/// Numbers of the fields of `CompactSched`: its columns.
mod column {
    pub(super) const SWITCH_TIMESTAMP: usize = 1;
    pub(super) const SWITCH_PREV_STATE: usize = 2;
    pub(super) const SWITCH_NEXT_PID: usize = 3;
    pub(super) const SWITCH_NEXT_PRIO: usize = 4;
    /// The names, which are no numbers.
    pub(super) const INTERN_TABLE: usize = 5;
    pub(super) const SWITCH_NEXT_COMM_INDEX: usize = 6;
    pub(super) const WAKING_TIMESTAMP: usize = 7;
    pub(super) const WAKING_PID: usize = 8;
    pub(super) const WAKING_TARGET_CPU: usize = 9;
    pub(super) const WAKING_PRIO: usize = 10;
    pub(super) const WAKING_COMM_INDEX: usize = 11;
    pub(super) const WAKING_COMMON_FLAGS: usize = 12;
}

/// One more than the highest number of a column.
const COLUMNS: usize = column::WAKING_COMMON_FLAGS + 1;

impl<'a> Compact<'a> {
    /// Finds the columns.
    ///
    /// # Errors
    /// The offset in the table of a field that can't be read.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Compact<'a>, usize> {
        let (mut table, mut fields) = (Compact::default(), Fields::new(bytes));
        while let Some(field) = fields.next()? {
            let bytes = field.bytes().ok_or(field.offset)?;
            let number = field.number as usize;
            match table.columns.get_mut(number) {
                Some(_) if number == column::INTERN_TABLE => table.names.push(bytes),
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
        let Some(delta) = self.column(column::SWITCH_TIMESTAMP) else { return Ok(None) };
        self.switch_time = self.switch_time.wrapping_add(delta);
        let mut row = || {
            Some(Switch {
                time: self.switch_time,
                previous_state: self.column(column::SWITCH_PREV_STATE)? as i64,
                next: Running {
                    pid: self.integer(column::SWITCH_NEXT_PID)?,
                    priority: self.integer(column::SWITCH_NEXT_PRIO)?,
                    name: self.index(column::SWITCH_NEXT_COMM_INDEX)?,
                },
            })
        };
        row().ok_or("a column of compact_sched has fewer switches than there are times").map(Some)
    }

    /// The next wake-up; `None` after the last.
    ///
    /// # Errors
    /// A column is shorter than that of the times.
    pub(super) fn waking(&mut self) -> Result<Option<Waking>, &'static str> {
        let Some(delta) = self.column(column::WAKING_TIMESTAMP) else { return Ok(None) };
        self.waking_time = self.waking_time.wrapping_add(delta);
        let mut row = || {
            Some(Waking {
                time: self.waking_time,
                pid: self.integer(column::WAKING_PID)?,
                target_cpu: self.integer(column::WAKING_TARGET_CPU)?,
                priority: self.integer(column::WAKING_PRIO)?,
                name: self.index(column::WAKING_COMM_INDEX)?,
                // Perfetto before 2023 does not record the flags.
                flags: self.index(column::WAKING_COMMON_FLAGS).unwrap_or(UNKNOWN),
            })
        };
        row().ok_or("a column of compact_sched has fewer wake-ups than there are times").map(Some)
    }
}
