//! Kernel events in one vocabulary, whichever tracer wrote them.
//!
//! ```text
//! event classes of a trace ──bound once, by name──► Kind and fields ──► Records: compact, in order of time
//!                                                                          └─ Threads ──► thread of each event
//! ```
//!
//! The names are those of the [vocabulary](crate::vocabulary). An event that no analysis reads never becomes a
//! record.

mod cpus;
mod prev_state;
mod records;
mod threads;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use cpus::Cpus;
pub use prev_state::{PrevState, StateCodes};
pub use records::{Chosen, EventIndex, Field, KernelEvent, Record, Records};
pub use threads::{Thread, Threads};

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A CPU switches to another thread.
    SchedSwitch,
    /// A thread became runnable. In a trace without `sched_wakeup`, `sched_waking` counts as this; see [`Wakeups`].
    SchedWakeup,
    /// A thread is about to become runnable; unlike [`Kind::SchedWakeup`], always on the CPU of the waker.
    SchedWaking,
    /// A thread moves to another CPU's run queue.
    SchedMigrate,
    /// A thread is created.
    SchedFork,
    /// A thread executes another program.
    SchedExec,
    /// A thread ends.
    SchedExit,
    /// A signal is sent to a thread.
    SignalGenerate,
    /// The running thread receives a signal.
    SignalDeliver,
    /// A system call begins. The call's name follows the prefix of the event's name.
    SyscallEntry,
    /// A system call ends.
    SyscallExit,
    /// A whole system call, from entry to exit. Replaces the two events if no other requested event lies between them
    /// on the CPU, and every analysis that reads either also reads this kind.
    Syscall,
    /// A hardware interrupt handler begins.
    IrqEntry,
    /// A hardware interrupt handler ends.
    IrqExit,
    /// A soft interrupt is raised.
    SoftirqRaise,
    /// A soft interrupt handler begins.
    SoftirqEntry,
    /// A soft interrupt handler ends.
    SoftirqExit,
    /// A timer's function begins, in an interrupt.
    TimerEntry,
    /// A timer's function ends.
    TimerExit,
    /// The running thread causes a page fault in user code.
    PageFault,
    /// A block request is issued to the device.
    BlockIssue,
    /// The device has completed a block request.
    BlockComplete,
    /// A page enters the page cache.
    CacheAdd,
    /// A page leaves the page cache.
    CacheDelete,
    /// Memory pages are allocated.
    PageAlloc,
    /// Memory pages are freed.
    PageFree,
    /// A network packet is queued on a device.
    NetQueue,
    /// A network packet arrives from a device.
    NetReceive,
    /// A function of a program begins.
    FunctionEntry,
    /// A function of a program ends.
    FunctionExit,
    /// A message is sent.
    MessageSend,
    /// A message is received.
    MessageReceive,
    /// A board's kernel switches to another task.
    TaskSwitch,
    /// A board's kernel makes a task runnable.
    TaskWake,
    /// A CPU disables interrupts.
    IrqDisable,
    /// A CPU enables interrupts.
    IrqEnable,
    /// A thread that existed when tracing began.
    StateProcess,
    /// A file that was open when tracing began.
    StateDescriptor,
    /// A block device that existed when tracing began.
    StateBlockDevice,
    /// The tracer lost events or packets of a stream. Reported as an event, although the trace contains none.
    Lost,
    /// Any event that begins a [`Period`](crate::Period).
    PeriodBegin,
    /// Any event that ends a [`Period`](crate::Period).
    PeriodEnd,
}

/// The events from which wake-ups are known. Several traces together have the value of the one that knows least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Wakeups {
    /// `sched_wakeup`.
    #[default]
    Wakeup,
    /// `sched_waking`, as `perf sched record` writes it: a thread waits for a CPU from the begin of its wake-up.
    Waking,
    /// Neither is recorded: when a thread that waited became runnable is unknown.
    Missing,
}

impl Wakeups {
    /// Whether wake-ups are recorded.
    pub fn are_known(self) -> bool {
        self != Wakeups::Missing
    }

    /// The remark of tables and notes on wake-ups that are not of `sched_wakeup`.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Wakeups::Wakeup => None,
            Wakeups::Waking => Some("sched_waking"),
            Wakeups::Missing => Some("not recorded: neither sched_wakeup nor sched_waking"),
        }
    }
}

/// The names of a kind of event and of its fields.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The kind.
    pub kind: Kind,
    /// Event names; one that ends in `*` is a prefix.
    pub names: &'static [&'static str],
    /// Field names, by position in the record. `fd|fildes` is the first that exists, `args.0` an array element,
    /// `(context) pid` a context field, `(label) next` the name of an enumeration's value, `(state) prev_state` a
    /// [`PrevState`], and [`ALL`] the text of all fields.
    pub fields: &'static [&'static str],
}

/// The prefix of the name of a context field.
pub const CONTEXT: &str = "(context) ";
/// The prefix of an enumeration whose value is read as its name.
pub const LABEL: &str = "(label) ";
/// The prefix of a field that is read as the [number](PrevState::number) of a [`PrevState`].
pub const STATE: &str = "(state) ";
/// The name for all fields of an event, as text.
pub const ALL: &str = "*";

/// Positions of fields in records.
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
        /// ftrace's `TRACE_FLAG_*` of the context.
        pub const FLAGS: usize = 2;
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
        /// The address of a futex; [`COMMAND`] is its operation.
        pub const LOCK: usize = 6;
        /// The first of six arguments, for tracers that do not name them.
        pub const ARGUMENTS: usize = 7;
        /// All arguments as text.
        pub const ALL: usize = 13;
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
        /// The address of the packet's buffer.
        pub const BUFFER: usize = 2;
    }
    pub mod function {
        pub const FUNCTION: usize = 0;
        pub const NAME: usize = 1;
    }
    pub mod message {
        pub const ID: usize = 0;
    }
    pub mod task_switch {
        pub const PREV: usize = 0;
        pub const NEXT: usize = 1;
        pub const PREV_NAME: usize = 2;
        pub const NEXT_NAME: usize = 3;
    }
    pub mod task_wake {
        pub const TASK: usize = 0;
        pub const NAME: usize = 1;
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
const NET: &[&str] = &["name", "len", "skbaddr"];
const WAKEUP: &[&str] = &["tid", "target_cpu", "(context) common_flags"];
const FUNCTION: &[&str] = &["function|addr", "(label) function"];

/// System call arguments that concern files and locks, by their names in the kernel.
const ENTRY: &[&str] = &[
    "fd|fildes|oldfd|fd_in|fdin|in_fd",
    "newfd|fd_out|fdout|out_fd|max_fd",
    "filename|pathname|uname",
    "flags|type",
    "cmd|op",
    "arg",
    "uaddr",
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
            "(state) prev_state",
            "next_comm",
            "next_tid",
            "next_prio",
            "(context) pid",
        ],
    },
    Words { kind: Kind::SchedWakeup, names: &["sched_wakeup", "sched_wakeup_new"], fields: WAKEUP },
    Words { kind: Kind::SchedWaking, names: &["sched_waking"], fields: WAKEUP },
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
    // Positions after the fields of the entry.
    Words { kind: Kind::Syscall, names: &[], fields: &["end", "ret"] },
    Words { kind: Kind::IrqEntry, names: &["irq_handler_entry"], fields: &["irq", "name"] },
    Words { kind: Kind::IrqExit, names: &["irq_handler_exit"], fields: &["irq"] },
    Words { kind: Kind::SoftirqRaise, names: &["irq_softirq_raise"], fields: &["vec"] },
    Words { kind: Kind::SoftirqEntry, names: &["irq_softirq_entry"], fields: &["vec"] },
    Words { kind: Kind::SoftirqExit, names: &["irq_softirq_exit"], fields: &["vec"] },
    Words {
        kind: Kind::TimerEntry,
        names: &["timer_hrtimer_expire_entry", "timer_expire_entry"],
        fields: &[],
    },
    Words { kind: Kind::TimerExit, names: &["timer_hrtimer_expire_exit", "timer_expire_exit"], fields: &[] },
    Words { kind: Kind::PageFault, names: &["x86_exceptions_page_fault_user"], fields: &[] },
    Words { kind: Kind::BlockIssue, names: &["block_rq_issue"], fields: BLOCK },
    Words { kind: Kind::BlockComplete, names: &["block_rq_complete"], fields: BLOCK },
    Words { kind: Kind::CacheAdd, names: &["mm_filemap_add_to_page_cache"], fields: CACHE },
    Words { kind: Kind::CacheDelete, names: &["mm_filemap_delete_from_page_cache"], fields: CACHE },
    Words { kind: Kind::PageAlloc, names: &["kmem_mm_page_alloc"], fields: &["order"] },
    Words { kind: Kind::PageFree, names: &["kmem_mm_page_free"], fields: &["order"] },
    Words { kind: Kind::NetQueue, names: &["net_dev_queue"], fields: NET },
    Words { kind: Kind::NetReceive, names: &["net_if_receive_skb"], fields: NET },
    Words { kind: Kind::FunctionEntry, names: &["func_entry"], fields: FUNCTION },
    Words { kind: Kind::FunctionExit, names: &["func_exit"], fields: FUNCTION },
    Words { kind: Kind::MessageSend, names: &["msg_send"], fields: &["id"] },
    Words { kind: Kind::MessageReceive, names: &["msg_recv"], fields: &["id"] },
    Words {
        kind: Kind::TaskSwitch,
        names: &["task_switch"],
        fields: &["prev", "next", "(label) prev", "(label) next"],
    },
    Words { kind: Kind::TaskWake, names: &["task_wake"], fields: &["task", "(label) task"] },
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
    /// Matches the [names](crate::vocabulary::names) of an event. Returns the part after the prefix, which is empty if the
    /// kind's name is no prefix, or `None` if the event is of another kind.
    pub fn matches(&self, called: &[Cow<'_, str>]) -> Option<String> {
        let rest = self.names.iter().find_map(|name| match name.strip_suffix('*') {
            Some(prefix) => called.iter().find_map(|called| called.strip_prefix(prefix)),
            None => called.iter().any(|called| called == name).then_some(""),
        });
        rest.map(str::to_owned)
    }
}
