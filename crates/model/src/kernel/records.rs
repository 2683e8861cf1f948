//! A short-lived buffer of compact events that do not copy their names.

use std::{ops::Deref, sync::Arc};

use hodo_clock::Nanos;

use super::{Kind, PrevState, Thread, field::switch};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The event has no such field, or no analysis reads it.
    Absent,
    /// An integer. Unsigned 64-bit values keep their bits.
    Integer(i64),
    /// Text: offset and length in the text buffer.
    Text(u32, u32),
}

/// What all events have.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The timestamp.
    pub time: Nanos,
    /// The thread that runs on the CPU; for a switch, the one before it.
    pub thread: Thread,
    /// The CPU.
    pub cpu: u32,
    /// Index of the part of the event's name after the prefix.
    pub name: u32,
    /// Index of the event's first field in `Records::fields`.
    fields: u32,
    /// The kind.
    pub kind: Kind,
    /// Whether the event itself contains the running thread.
    is_reported: bool,
}

/// Events per batch. The batches of several streams fit into the L2 cache together, as each analysis iterates over them;
/// smaller ones take longer if many analyses alternate, each with its own data.
const BATCH: usize = 512;
/// Bytes of text per batch.
const BATCH_TEXT: usize = 1 << 14;

/// Number of the fields at the end of a [`Kind::Syscall`] that are not of its entry: its end time and its result.
const EXIT_FIELDS: usize = 2;

/// Events in order of time.
#[derive(Debug, Default)]
pub struct Records {
    records: Vec<Record>,
    fields: Vec<Field>,
    text: Vec<u8>,
    /// Index and name of the trace.
    trace: (u32, Arc<str>),
}

impl Records {
    /// Sets the trace of all events: its index in the input, and its name.
    pub fn set_trace(&mut self, index: u32, name: &Arc<str>) {
        self.trace = (index, Arc::clone(name));
    }

    /// Whether the batch is full.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.records.len() >= BATCH || self.text.len() >= BATCH_TEXT
    }

    /// Removes all events and keeps the capacity.
    pub fn clear(&mut self) {
        self.records.clear();
        self.fields.clear();
        self.text.clear();
    }

    /// Adds an event on a CPU, with the id of its thread if the event contains one. Add the fields next, with
    /// [`Records::integer`], [`Records::text`] and [`Records::absent`], in the order of the vocabulary. `name` is the
    /// index of the part of the event's name after the prefix.
    #[inline]
    pub fn push(&mut self, time: Nanos, (cpu, tid): (u32, Option<u32>), kind: Kind, name: u32) {
        let thread = tid.map_or(Thread::before(cpu), |tid| Thread::new(tid.into(), cpu));
        let fields = self.fields.len() as u32;
        self.records.push(Record { time, thread, cpu, name, fields, kind, is_reported: tid.is_some() });
    }

    /// Tries to join the exit of a system call with the last event, if that is its entry. Returns whether it did; if
    /// so, add the call's result next.
    #[inline]
    pub fn end_call(&mut self, time: Nanos, (cpu, tid): (u32, Option<u32>), name: u32) -> bool {
        let is_own = |entry: &&mut Record| {
            let is_of_thread = match tid {
                Some(tid) => entry.is_reported && entry.thread == Thread::new(tid.into(), cpu),
                None => !entry.is_reported,
            };
            entry.kind == Kind::SyscallEntry && (entry.cpu, entry.name) == (cpu, name) && is_of_thread
        };
        let Some(entry) = self.records.last_mut().filter(is_own) else { return false };
        entry.kind = Kind::Syscall;
        self.integer(time.0 as i64);
        true
    }

    /// Adds an integer field.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.fields.push(Field::Integer(value));
    }

    /// Adds a text field.
    #[inline]
    pub fn text(&mut self, text: &[u8]) {
        let (Ok(start), Ok(length)) = (u32::try_from(self.text.len()), u32::try_from(text.len())) else {
            return self.absent();
        };
        self.fields.push(Field::Text(start, length));
        self.text.extend_from_slice(text);
    }

    /// Adds a missing field.
    #[inline]
    pub fn absent(&mut self) {
        self.fields.push(Field::Absent);
    }

    /// The number of fields so far.
    #[inline]
    pub fn fields(&self) -> usize {
        self.fields.len()
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The times of the events from index `from` on.
    #[inline]
    pub fn times(&self, from: usize) -> impl Iterator<Item = Nanos> {
        self.records.iter().skip(from).map(|record| record.time)
    }

    /// The event at an index below [`Records::len`]. Its thread is a placeholder until the event or
    /// [`Records::set_thread`] sets it.
    #[inline]
    pub fn event(&self, index: usize) -> KernelEvent<'_> {
        let record = &self.records[index];
        let end = self.records.get(index + 1).map_or(self.fields.len(), |next| next.fields as usize);
        // Without a panic, the compiler drops this where no field is read.
        let fields = self.fields.get(record.fields as usize..end).unwrap_or_default();
        KernelEvent { record, fields, records: self }
    }

    /// Sets the thread that runs on the CPU of an event; for a switch, the one before it.
    #[inline]
    pub fn set_thread(&mut self, index: usize, thread: Thread) {
        self.records[index].thread = thread;
    }
}

/// Selected events of some streams, in order.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'r> {
    /// The streams.
    pub streams: &'r [Records],
    /// The selected events.
    pub events: &'r [EventIndex],
}

impl<'r> Chosen<'r> {
    /// The selected events.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = KernelEvent<'r>> {
        self.events.iter().map(move |event| self.streams[event.stream as usize].event(event.index as usize))
    }
}

/// Where an event is.
#[derive(Clone, Copy, Debug)]
pub struct EventIndex {
    /// Index of its stream.
    pub stream: u32,
    /// Index in the stream.
    pub index: u32,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct KernelEvent<'a> {
    record: &'a Record,
    fields: &'a [Field],
    records: &'a Records,
}

impl Deref for KernelEvent<'_> {
    type Target = Record;

    #[inline]
    fn deref(&self) -> &Record {
        self.record
    }
}

impl<'a> KernelEvent<'a> {
    /// The index of its trace in the input: CPUs and threads of different traces are different.
    #[inline]
    pub fn trace(&self) -> u32 {
        self.records.trace.0
    }

    /// The name of its trace.
    #[inline]
    pub fn trace_name(&self) -> &'a str {
        &self.records.trace.1
    }

    /// The value of an integer field; for a [`Kind::Syscall`], of its entry.
    #[inline]
    pub fn integer(&self, field: usize) -> Option<i64> {
        let others = if self.kind == Kind::Syscall { EXIT_FIELDS } else { 0 };
        match self.fields[..self.fields.len().saturating_sub(others)].get(field) {
            Some(&Field::Integer(value)) => Some(value),
            _ => None,
        }
    }

    /// The value of a text field.
    #[inline]
    pub fn text(&self, field: usize) -> Option<&'a [u8]> {
        match self.fields.get(field) {
            Some(&Field::Text(start, length)) => {
                Some(&self.records.text[start as usize..start as usize + length as usize])
            }
            _ => None,
        }
    }

    /// The running thread, if the event itself contains it.
    #[inline]
    pub fn reported(&self) -> Option<Thread> {
        self.is_reported.then_some(self.thread)
    }

    /// The end time and the result of a [`Kind::Syscall`].
    #[inline]
    pub fn ended(&self) -> Option<(Nanos, i64)> {
        match *self.fields {
            [.., Field::Integer(end), Field::Integer(result)] => Some((Nanos(end as u64), result)),
            [.., Field::Integer(end), Field::Absent] => Some((Nanos(end as u64), 0)),
            _ => None,
        }
    }

    /// The previous and the next thread of a switch.
    #[inline]
    pub fn switch(&self) -> Option<(Thread, Thread)> {
        let thread = |field| Some(Thread::new(self.integer(field)?, self.cpu));
        let is_switch = self.kind == Kind::SchedSwitch;
        thread(switch::PREV_TID).filter(|_| is_switch).zip(thread(switch::NEXT_TID))
    }

    /// Why the previous thread of a switch left its CPU.
    #[inline]
    pub fn prev_state(&self) -> PrevState {
        self.integer(switch::PREV_STATE).map_or(PrevState::Unknown, PrevState::of)
    }
}
