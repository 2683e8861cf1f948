//! Analyses: from items of a trace to tables.
//!
//! ```text
//! Item… ──fold──► partial ──merge──► partial of the whole, or of each thread ──finish──► Table
//! ```
//!
//! Each analysis is a module; [`each`] lists their reports. Analyses do not depend on trace formats or output formats.

pub mod blocks;
pub mod branches;
pub mod calls;
pub mod callstack;
pub mod count;
pub mod cpu;
pub mod critical_path;
pub mod guests;
pub mod io;
pub mod irq;
pub mod latency;
pub mod locks;
pub mod lost;
pub mod memory;
pub mod messages;
pub mod mnemonics;
pub mod net;
pub mod periods;
pub mod processes;
pub mod profile;
pub mod queue;
pub mod resolution;
pub mod sched;
pub mod signals;
pub mod states;
pub mod syscalls;
pub mod tasks;
pub mod threads;
pub mod waits;
pub mod wakers;

mod bins;
mod clock;
mod columns;
mod contexts;
mod deferred_ops;
mod durations;
mod edge;
mod entry;
mod mark;
mod memoized_paths;
mod pairs;
mod per_thread_sums;
mod registers;
mod running;
mod settling;
mod spare_stack;
mod stack;
mod system_calls;
mod thread_states;

pub use clock::Time;
pub use stack::Entry as FrameEntry;

use hodo_model::Visitor;

/// Calls `visitor` with every report, in the order of `hodo report --list`. Register a new analysis here.
pub fn each(visitor: &mut impl Visitor) {
    visitor.visit(&profile::FUNCTIONS);
    visitor.visit(&profile::TREE);
    visitor.visit(&profile::PATHS);
    visitor.visit(&blocks::LINES);
    visitor.visit(&blocks::BLOCKS);
    visitor.visit(&branches::BRANCHES);
    visitor.visit(&mnemonics::MNEMONICS);
    visitor.visit(&threads::ThreadsReport);
    visitor.visit(&guests::GUESTS);
    visitor.visit(&resolution::RESOLUTION);
    visitor.visit(&latency::LatencyReport);
    visitor.visit(&count::CountReport);
    visitor.visit(&periods::PeriodsReport);
    visitor.visit(&cpu::CpuReport);
    visitor.visit(&syscalls::SyscallsReport);
    visitor.visit(&irq::InterruptsReport);
    visitor.visit(&sched::SCHEDULING);
    visitor.visit(&io::InputOutputReport);
    visitor.visit(&processes::PROCESSES);
    visitor.visit(&signals::SIGNALS);
    visitor.visit(&lost::LOST);
    visitor.visit(&states::StatesReport);
    visitor.visit(&queue::QueueReport);
    visitor.visit(&irq::INTERRUPTS_OFF);
    visitor.visit(&memory::MEMORY);
    visitor.visit(&net::NETWORK);
    visitor.visit(&wakers::WakersReport);
    visitor.visit(&locks::LOCKS);
    visitor.visit(&waits::WAITS);
    visitor.visit(&critical_path::CRITICAL_PATH);
    visitor.visit(&callstack::CallstackReport);
    visitor.visit(&messages::MessagesReport);
    visitor.visit(&tasks::TasksReport);
}
