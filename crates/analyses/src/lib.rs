//! Analyses: from what was seen in a stream to tables.
//!
//! ```text
//! Seen… ──fold──► partial state ──merge──► partial state of a whole thread ──finish──► Table
//! KernelEvent… ──fold──► partial state ──merge──► partial state of the whole ──finish──► Table
//! ```
//!
//! Each analysis is a folder; [`ANALYSES`] lists them. Analyses name no format and no view.

pub mod blocks;
pub mod calls;
pub mod cpu;
pub mod io;
pub mod irq;
pub mod lost;
pub mod memory;
pub mod net;
pub mod periods;
pub mod processes;
pub mod profile;
pub mod queue;
pub mod sched;
pub mod signals;
pub mod states;
pub mod syscalls;

mod bins;
mod clock;
mod contexts;
mod durations;
mod figures;
mod learned;
mod pairs;
mod pile;
mod registers;
mod replay;
mod stack;
mod system_calls;
mod tally;
mod tasks;

pub use clock::Time;
use hodo_trace::AnyEventAnalysis;
pub use stack::Entry as FrameEntry;

/// An analysis as `hodo report` offers it.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// What makes its table.
    pub kind: Kind,
}

/// The computation behind an entry.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A profile of control flow, drawn in this way.
    Profile(profile::Report),
    /// Counts of blocks, drawn in this way.
    Blocks(blocks::Report),
    /// A count of software events by name.
    EventCount,
    /// An analysis of kernel events.
    Kernel {
        /// The analysis.
        analysis: &'static dyn AnyEventAnalysis,
        /// Whether what it tells is of threads, among which one can choose.
        of_threads: bool,
    },
    /// All analyses of kernel events, in one pass.
    All,
    /// Periods between events that the command line names.
    Periods {
        /// The names of the tables that there are.
        views: &'static [&'static str],
    },
}

/// The analyses of kernel events that `hodo report NAME` makes tables of: one, or all of them.
pub fn kernel_analyses(name: &str) -> impl Iterator<Item = (&'static Entry, &'static dyn AnyEventAnalysis)> {
    let is_meant = move |entry: &&Entry| name == "all" || entry.name == name;
    ANALYSES.iter().filter(is_meant).filter_map(|entry| match entry.kind {
        Kind::Kernel { analysis, .. } => Some((entry, analysis)),
        _ => None,
    })
}

/// All analyses.
pub const ANALYSES: &[Entry] = &[
    Entry {
        name: "functions",
        help: "exact profile: instructions, calls and time of each function",
        kind: Kind::Profile(profile::Report::Functions),
    },
    Entry {
        name: "tree",
        help: "exact calling-context tree: who called whom, how often, at what cost",
        kind: Kind::Profile(profile::Report::Tree),
    },
    Entry {
        name: "lines",
        help: "exact counts of each line of source: executions, instructions, time",
        kind: Kind::Blocks(blocks::Report::Lines),
    },
    Entry {
        name: "blocks",
        help: "exact counts of each basic block: executions, branches taken and not taken",
        kind: Kind::Blocks(blocks::Report::Blocks),
    },
    Entry {
        name: "count",
        help: "software events: how many of each name, and how many were lost",
        kind: Kind::EventCount,
    },
    Entry {
        name: "periods",
        help: "software events: how long from one event to another, of any two sorts",
        kind: Kind::Periods { views: &periods::VIEWS },
    },
    Entry { name: "all", help: "kernel events: all of the following, in one pass", kind: Kind::All },
    Entry {
        name: "cpu",
        help: "kernel events: how long each thread ran, how busy each CPU was",
        kind: Kind::Kernel { analysis: &cpu::CpuUse, of_threads: true },
    },
    Entry {
        name: "syscalls",
        help: "kernel events: how often each system call was made, how long it took, its errors",
        kind: Kind::Kernel { analysis: &syscalls::Syscalls, of_threads: true },
    },
    Entry {
        name: "irq",
        help: "kernel events: how long handlers of hard and soft interrupts ran, and how late they began",
        kind: Kind::Kernel { analysis: &irq::Interrupts, of_threads: false },
    },
    Entry {
        name: "sched",
        help: "kernel events: how long woken threads waited for a CPU; preemptions and migrations",
        kind: Kind::Kernel { analysis: &sched::Scheduling, of_threads: true },
    },
    Entry {
        name: "io",
        help: "kernel events: bytes read and written by threads, and how long calls and devices took",
        kind: Kind::Kernel { analysis: &io::InputOutput, of_threads: true },
    },
    Entry {
        name: "processes",
        help: "kernel events: who started whom, when, and how long each lived",
        kind: Kind::Kernel { analysis: &processes::Processes, of_threads: true },
    },
    Entry {
        name: "signals",
        help: "kernel events: signals that were sent, and how long threads took to take them",
        kind: Kind::Kernel { analysis: &signals::Signals, of_threads: true },
    },
    Entry {
        name: "lost",
        help: "software events: what the tracer lost, of which streams, and when",
        kind: Kind::Kernel { analysis: &lost::Lost, of_threads: false },
    },
    Entry {
        name: "states",
        help: "kernel events: how long threads ran, waited for a CPU, and waited in which system call",
        kind: Kind::Kernel { analysis: &states::States, of_threads: true },
    },
    Entry {
        name: "queue",
        help: "kernel events: how many threads waited for each CPU",
        kind: Kind::Kernel { analysis: &queue::Queue, of_threads: false },
    },
    Entry {
        name: "irqoff",
        help: "kernel events: how long CPUs took no interrupts",
        kind: Kind::Kernel { analysis: &irq::InterruptsOff, of_threads: false },
    },
    Entry {
        name: "memory",
        help: "kernel events: pages of memory that processes had allocated, and gave back",
        kind: Kind::Kernel { analysis: &memory::Memory, of_threads: true },
    },
    Entry {
        name: "net",
        help: "kernel events: packets and bytes through network devices",
        kind: Kind::Kernel { analysis: &net::Network, of_threads: true },
    },
];
