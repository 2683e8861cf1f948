//! Events as they are kept for a short while: compact, without a copy of their names.

use hodo_clock::Nanos;

use super::{Kind, Thread, field::switch};

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The event has no such field, or nobody asked for it.
    Absent,
    /// An integer; those of 64 bits without a sign keep their bits.
    Integer(i64),
    /// Text: where it lies.
    Text(u32, u32),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    time: Nanos,
    /// Who ran, once that is known.
    thread: Thread,
    cpu: u32,
    name: u32,
    /// Its first field among those of all.
    fields: u32,
    kind: Kind,
    /// Whether the event itself tells who ran.
    is_told: bool,
}

/// Events and bytes of text that are read at a time: those of some streams together stay in a core's first cache, as
/// each analysis goes over them.
const BATCH: (usize, usize) = (128, 1 << 14);

/// Events in order of time.
#[derive(Debug, Default)]
pub struct Records {
    records: Vec<Record>,
    fields: Vec<Field>,
    text: Vec<u8>,
}

impl Records {
    /// Whether they are as many as should be read at a time.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.records.len() >= BATCH.0 || self.text.len() >= BATCH.1
    }

    /// Forgets all of them, and keeps the room.
    pub fn clear(&mut self) {
        self.records.clear();
        self.fields.clear();
        self.text.clear();
    }

    /// Adds an event on a CPU, of the thread that it tells if it does, whose fields follow with [`Records::integer`],
    /// [`Records::text`] and [`Records::absent`] in the order of the vocabulary. `name` is the index of what follows the
    /// prefix of its name.
    #[inline]
    pub fn push(&mut self, time: Nanos, (cpu, tid): (u32, Option<u32>), kind: Kind, name: u32) {
        let thread = tid.map_or(Thread::before(cpu), |tid| Thread::new(tid.into(), cpu));
        let fields = self.fields.len() as u32;
        self.records.push(Record { time, thread, cpu, name, fields, kind, is_told: tid.is_some() });
    }

    /// A system call ends. If it is the one that began with the event that was added last, both become one event, and
    /// what the call returned is to follow. Whether they do.
    #[inline]
    pub fn end_call(&mut self, time: Nanos, (cpu, tid): (u32, Option<u32>), name: u32) -> bool {
        let is_own = |entry: &&mut Record| {
            let is_of_thread = match tid {
                Some(tid) => entry.is_told && entry.thread == Thread::new(tid.into(), cpu),
                None => !entry.is_told,
            };
            entry.kind == Kind::SyscallEntry && (entry.cpu, entry.name) == (cpu, name) && is_of_thread
        };
        let Some(entry) = self.records.last_mut().filter(is_own) else { return false };
        entry.kind = Kind::Syscall;
        self.integer(time.0 as i64);
        true
    }

    /// The next field is an integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.fields.push(Field::Integer(value));
    }

    /// The next field is text.
    #[inline]
    pub fn text(&mut self, text: &[u8]) {
        let (Ok(start), Ok(length)) = (u32::try_from(self.text.len()), u32::try_from(text.len())) else {
            return self.absent();
        };
        self.fields.push(Field::Text(start, length));
        self.text.extend_from_slice(text);
    }

    /// The next field is not there.
    #[inline]
    pub fn absent(&mut self) {
        self.fields.push(Field::Absent);
    }

    /// How many fields were told so far.
    #[inline]
    pub fn fields(&self) -> usize {
        self.fields.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// When the events are, from one of them on.
    #[inline]
    pub fn times(&self, from: usize) -> impl Iterator<Item = Nanos> {
        self.records.iter().skip(from).map(|record| record.time)
    }

    /// An event by its place, of which there are [`Records::len`]. Who ran is not known before it was told.
    #[inline]
    pub fn event(&self, place: usize) -> KernelEvent<'_> {
        let Record { time, thread, cpu, name, fields, kind, is_told } = self.records[place];
        let end = self.records.get(place + 1).map_or(self.fields.len(), |next| next.fields as usize);
        let fields = &self.fields[fields as usize..end];
        KernelEvent { time, cpu, name, kind, thread, is_told, fields, text: &self.text }
    }

    /// Tells who ran on the CPU of an event, before a switch.
    #[inline]
    pub fn set_thread(&mut self, place: usize, thread: Thread) {
        self.records[place].thread = thread;
    }
}

/// Those of the events of some streams that are meant, in order.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'r> {
    /// All of them.
    pub streams: &'r [Records],
    /// Of each that is meant, its stream and its place.
    pub places: &'r [(u32, u32)],
}

impl<'r> Chosen<'r> {
    /// The events.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = KernelEvent<'r>> {
        self.places.iter().map(move |&(stream, place)| self.streams[stream as usize].event(place as usize))
    }
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct KernelEvent<'a> {
    /// When.
    pub time: Nanos,
    /// On which CPU.
    pub cpu: u32,
    /// Index of what follows the prefix of its name.
    pub name: u32,
    /// What.
    pub kind: Kind,
    /// Who ran on the CPU, before a switch.
    pub thread: Thread,
    is_told: bool,
    fields: &'a [Field],
    text: &'a [u8],
}

impl<'a> KernelEvent<'a> {
    /// An integer field.
    #[inline]
    pub fn integer(&self, field: usize) -> Option<i64> {
        match self.fields.get(field) {
            Some(&Field::Integer(value)) => Some(value),
            _ => None,
        }
    }

    /// A text field.
    #[inline]
    pub fn text(&self, field: usize) -> Option<&'a [u8]> {
        match self.fields.get(field) {
            Some(&Field::Text(start, length)) => {
                Some(&self.text[start as usize..start as usize + length as usize])
            }
            _ => None,
        }
    }

    /// Who ran, if the event itself tells that.
    #[inline]
    pub fn told(&self) -> Option<Thread> {
        self.is_told.then_some(self.thread)
    }

    /// Of a system call from entry to exit, when it ends and what it returns.
    #[inline]
    pub fn ended(&self) -> Option<(Nanos, i64)> {
        match *self.fields {
            [.., Field::Integer(end), Field::Integer(result)] => Some((Nanos(end as u64), result)),
            [.., Field::Integer(end), Field::Absent] => Some((Nanos(end as u64), 0)),
            _ => None,
        }
    }

    /// Of a switch, who leaves the CPU and who comes.
    #[inline]
    pub fn switch(&self) -> Option<(Thread, Thread)> {
        let thread = |field| Some(Thread::new(self.integer(field)?, self.cpu));
        let is_switch = self.kind == Kind::SchedSwitch;
        thread(switch::PREV_TID).filter(|_| is_switch).zip(thread(switch::NEXT_TID))
    }
}
