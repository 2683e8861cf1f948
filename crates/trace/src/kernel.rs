//! Events of an operating system's kernel, in one vocabulary whichever tracer wrote them.
//!
//! ```text
//! event classes of a trace ──bound once, by name──► Kind and fields ──► Records: compact, in order of time
//! ```
//!
//! The words are those of the [vocabulary](crate::vocabulary).
//! An event that nobody asked for never becomes a record.

use std::ops::Range;

use hodo_clock::Nanos;

use crate::vocabulary;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Another thread runs on the CPU.
    SchedSwitch,
    /// A thread became runnable.
    SchedWakeup,
    /// A thread goes to another CPU's queue.
    SchedMigrate,
    /// A thread was made.
    SchedFork,
    /// A thread runs another program.
    SchedExec,
    /// A thread ends.
    SchedExit,
    /// A signal is sent to a thread.
    SignalGenerate,
    /// The thread that runs takes a signal.
    SignalDeliver,
    /// A system call begins; its name follows the prefix.
    SyscallEntry,
    /// A system call ends.
    SyscallExit,
    /// A handler of a hardware interrupt begins.
    IrqEntry,
    /// It ends.
    IrqExit,
    /// A soft interrupt is asked for.
    SoftirqRaise,
    /// Its handler begins.
    SoftirqEntry,
    /// Its handler ends.
    SoftirqExit,
    /// A request goes to the device.
    BlockIssue,
    /// The device has done it.
    BlockComplete,
    /// A page comes into the page cache.
    CacheAdd,
    /// A page leaves it.
    CacheDelete,
    /// Pages of memory are allocated.
    PageAlloc,
    /// They are given back.
    PageFree,
    /// A packet is given to a network device.
    NetQueue,
    /// A packet came from one.
    NetReceive,
    /// A CPU takes no interrupts any more.
    IrqDisable,
    /// It takes them again.
    IrqEnable,
    /// A thread that was there when tracing began.
    StateProcess,
    /// A file that was open when tracing began.
    StateDescriptor,
    /// A block device that was there when tracing began.
    StateBlockDevice,
    /// The tracer lost events or packets of a stream: no event, but told as one.
    Lost,
    /// A [`Period`](crate::Period) begins: whatever event that is.
    PeriodBegin,
    /// It ends.
    PeriodEnd,
}

/// How a kind of event and its fields are called.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The kind.
    pub kind: Kind,
    /// Names of events; one that ends in `*` is a prefix.
    pub names: &'static [&'static str],
    /// Words for the fields, by their places in records: `fd|fildes` is whichever there is, `args.0` an element,
    /// `(context) pid` lies in a context, and [`ALL`] is the text of all fields.
    pub fields: &'static [&'static str],
}

/// What stands before the word for a field of a context.
pub const CONTEXT: &str = "(context) ";
/// The word for all fields of an event, as text.
pub const ALL: &str = "*";

/// Places of fields in records.
#[allow(missing_docs)]
pub mod field {
    pub mod switch {
        pub const PREV_COMM: usize = 0;
        pub const PREV_TID: usize = 1;
        pub const PREV_STATE: usize = 2;
        pub const NEXT_COMM: usize = 3;
        pub const NEXT_TID: usize = 4;
        pub const NEXT_PRIO: usize = 5;
        pub const PREV_PID: usize = 6;
    }
    pub mod wakeup {
        pub const TID: usize = 0;
        pub const TARGET_CPU: usize = 1;
    }
    pub mod migrate {
        pub const TID: usize = 0;
        pub const ORIG_CPU: usize = 1;
        pub const DEST_CPU: usize = 2;
    }
    pub mod fork {
        pub const CHILD_COMM: usize = 0;
        pub const CHILD_TID: usize = 1;
        pub const CHILD_PID: usize = 2;
        pub const PARENT_TID: usize = 3;
        pub const PARENT_PID: usize = 4;
    }
    pub mod exec {
        pub const TID: usize = 0;
        pub const FILENAME: usize = 1;
    }
    pub mod thread_exit {
        pub const TID: usize = 0;
    }
    pub mod entry {
        pub const FD: usize = 0;
        pub const OTHER_FD: usize = 1;
        pub const FILENAME: usize = 2;
        pub const FLAGS: usize = 3;
        pub const COMMAND: usize = 4;
        pub const VALUE: usize = 5;
        /// The first of six, of tracers that do not name them.
        pub const ARGUMENTS: usize = 6;
        /// All of them as text.
        pub const ALL: usize = 12;
    }
    pub mod signal {
        pub const SIG: usize = 0;
        pub const TID: usize = 1;
        pub const RESULT: usize = 2;
    }
    pub mod exit {
        pub const RET: usize = 0;
        pub const FD: usize = 1;
        pub const OTHER_FD: usize = 2;
    }
    pub mod irq {
        pub const IRQ: usize = 0;
        pub const NAME: usize = 1;
    }
    pub mod softirq {
        pub const VEC: usize = 0;
    }
    pub mod block {
        pub const DEV: usize = 0;
        pub const SECTOR: usize = 1;
        pub const NR_SECTOR: usize = 2;
        pub const RWBS: usize = 3;
        pub const ERROR: usize = 4;
    }
    pub mod cache {
        pub const DEV: usize = 0;
        pub const INODE: usize = 1;
        pub const ORDER: usize = 2;
    }
    pub mod page {
        pub const ORDER: usize = 0;
    }
    pub mod net {
        pub const NAME: usize = 0;
        pub const LEN: usize = 1;
    }
    pub mod process {
        pub const TID: usize = 0;
        pub const PID: usize = 1;
        pub const NAME: usize = 2;
        pub const FILES: usize = 3;
        pub const PPID: usize = 4;
    }
    pub mod descriptor {
        pub const FILES: usize = 0;
        pub const FD: usize = 1;
        pub const FILENAME: usize = 2;
        pub const FLAGS: usize = 3;
        pub const PID: usize = 4;
    }
    pub mod device {
        pub const DEV: usize = 0;
        pub const NAME: usize = 1;
    }
    pub mod period {
        pub const KEY: usize = 0;
        pub const GROUP: usize = 1;
    }
    pub mod lost {
        pub const COUNT: usize = 0;
        pub const PACKETS: usize = 1;
        pub const BEGIN: usize = 2;
        pub const END: usize = 3;
        pub const STREAM: usize = 4;
    }
}

const BLOCK: &[&str] = &["dev", "sector", "nr_sector", "rwbs", "error"];
const CACHE: &[&str] = &["s_dev", "i_ino", "order"];
const NET: &[&str] = &["name", "len"];

/// The arguments of system calls that have to do with files, by their names in the kernel.
const ENTRY: &[&str] = &[
    "fd|fildes|oldfd|fd_in|fdin|in_fd",
    "newfd|fd_out|fdout|out_fd|max_fd",
    "filename|pathname|uname",
    "flags|type",
    "cmd",
    "arg",
    "args.0",
    "args.1",
    "args.2",
    "args.3",
    "args.4",
    "args.5",
    ALL,
];

/// All kinds.
pub const VOCABULARY: &[Words] = &[
    Words {
        kind: Kind::SchedSwitch,
        names: &["sched_switch"],
        fields: &[
            "prev_comm",
            "prev_tid",
            "prev_state",
            "next_comm",
            "next_tid",
            "next_prio",
            "(context) pid",
        ],
    },
    Words {
        kind: Kind::SchedWakeup,
        names: &["sched_wakeup", "sched_wakeup_new"],
        fields: &["tid", "target_cpu"],
    },
    Words {
        kind: Kind::SchedMigrate,
        names: &["sched_migrate_task"],
        fields: &["tid", "orig_cpu", "dest_cpu"],
    },
    Words {
        kind: Kind::SchedFork,
        names: &["sched_process_fork"],
        fields: &["child_comm", "child_tid", "child_pid", "parent_tid", "parent_pid"],
    },
    Words { kind: Kind::SchedExec, names: &["sched_process_exec"], fields: &["tid", "filename"] },
    Words { kind: Kind::SchedExit, names: &["sched_process_exit"], fields: &["tid"] },
    Words { kind: Kind::SignalGenerate, names: &["signal_generate"], fields: &["sig", "pid", "result"] },
    Words { kind: Kind::SignalDeliver, names: &["signal_deliver"], fields: &["sig"] },
    Words {
        kind: Kind::SyscallEntry,
        names: &["syscall_entry_*", "compat_syscall_entry_*", "syscall_entry"],
        fields: ENTRY,
    },
    Words {
        kind: Kind::SyscallExit,
        names: &["syscall_exit_*", "compat_syscall_exit_*", "syscall_exit"],
        fields: &["ret", "fildes.0", "fildes.1"],
    },
    Words { kind: Kind::IrqEntry, names: &["irq_handler_entry"], fields: &["irq", "name"] },
    Words { kind: Kind::IrqExit, names: &["irq_handler_exit"], fields: &["irq"] },
    Words { kind: Kind::SoftirqRaise, names: &["irq_softirq_raise"], fields: &["vec"] },
    Words { kind: Kind::SoftirqEntry, names: &["irq_softirq_entry"], fields: &["vec"] },
    Words { kind: Kind::SoftirqExit, names: &["irq_softirq_exit"], fields: &["vec"] },
    Words { kind: Kind::BlockIssue, names: &["block_rq_issue"], fields: BLOCK },
    Words { kind: Kind::BlockComplete, names: &["block_rq_complete"], fields: BLOCK },
    Words { kind: Kind::CacheAdd, names: &["mm_filemap_add_to_page_cache"], fields: CACHE },
    Words { kind: Kind::CacheDelete, names: &["mm_filemap_delete_from_page_cache"], fields: CACHE },
    Words { kind: Kind::PageAlloc, names: &["kmem_mm_page_alloc"], fields: &["order"] },
    Words { kind: Kind::PageFree, names: &["kmem_mm_page_free"], fields: &["order"] },
    Words { kind: Kind::NetQueue, names: &["net_dev_queue"], fields: NET },
    Words { kind: Kind::NetReceive, names: &["net_if_receive_skb"], fields: NET },
    Words { kind: Kind::IrqDisable, names: &["preemptirq_irq_disable"], fields: &[] },
    Words { kind: Kind::IrqEnable, names: &["preemptirq_irq_enable"], fields: &[] },
    Words {
        kind: Kind::StateProcess,
        names: &["lttng_statedump_process_state"],
        fields: &["tid", "pid", "name", "file_table_address", "ppid"],
    },
    Words {
        kind: Kind::StateDescriptor,
        names: &["lttng_statedump_file_descriptor"],
        fields: &["file_table_address", "fd", "filename", "flags", "pid"],
    },
    Words {
        kind: Kind::StateBlockDevice,
        names: &["lttng_statedump_block_device"],
        fields: &["dev", "diskname"],
    },
    Words { kind: Kind::Lost, names: &[], fields: &["count", "packets", "begin", "end", "stream"] },
    Words { kind: Kind::PeriodBegin, names: &[], fields: &["key", "group"] },
    Words { kind: Kind::PeriodEnd, names: &[], fields: &["key", "group"] },
];

impl Words {
    /// What follows the prefix in the word for an event, or nothing where the names are no prefixes; `None` where
    /// the event is of another kind.
    pub fn matches(&self, event: &str) -> Option<String> {
        let called = vocabulary::names(event);
        let rest = self.names.iter().find_map(|name| match name.strip_suffix('*') {
            Some(prefix) => called.iter().find_map(|called| called.strip_prefix(prefix)),
            None => called.iter().any(|called| called == name).then_some(""),
        });
        rest.map(str::to_owned)
    }
}

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
    cpu: u32,
    name: u32,
    fields: u32,
    kind: Kind,
}

/// Events and bytes of text that are read at a time: small enough to stay in a core's cache.
const BATCH: (usize, usize) = (512, 1 << 16);

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

    /// Adds an event, whose fields follow with [`Records::integer`], [`Records::text`] and [`Records::absent`]
    /// in the order of the vocabulary. `name` is the index of what follows the prefix of its name.
    #[inline]
    pub fn push(&mut self, time: Nanos, cpu: u32, kind: Kind, name: u32) {
        self.records.push(Record { time, cpu, name, fields: self.fields.len() as u32, kind });
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

    /// The events, in order.
    pub fn iter(&self) -> impl Iterator<Item = KernelEvent<'_>> {
        self.part(0..self.records.len())
    }

    #[inline]
    fn part(&self, part: Range<usize>) -> impl Iterator<Item = KernelEvent<'_>> {
        let next = self.records.get(part.end).map_or(self.fields.len(), |next| next.fields as usize);
        let records = self.records.get(part).unwrap_or_default();
        let ends = records.iter().skip(1).map(|next| next.fields as usize).chain([next]);
        records.iter().zip(ends).map(|(record, end)| KernelEvent {
            time: record.time,
            cpu: record.cpu,
            name: record.name,
            kind: record.kind,
            fields: &self.fields[record.fields as usize..end],
            text: &self.text,
        })
    }
}

/// Events of several streams in one order.
#[derive(Clone, Copy, Debug)]
pub struct Merged<'r> {
    /// Those of each stream.
    pub streams: &'r [Records],
    /// Which come one after the other: of a stream, some that follow each other.
    pub runs: &'r [(usize, Range<usize>)],
}

impl<'r> Merged<'r> {
    /// The events, in order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = KernelEvent<'r>> {
        self.runs.iter().flat_map(move |(stream, part)| self.streams[*stream].part(part.clone()))
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
}
