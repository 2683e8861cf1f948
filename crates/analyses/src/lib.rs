//! Analyses: from items of a trace to tables.
//!
//! ```text
//! Item… ──fold──► partial ──merge──► partial of the whole, or of each thread ──finish──► Table
//! ```
//!
//! Each analysis is a module; [`reports`] lists their reports. Analyses do not depend on trace formats or output formats.

pub mod blocks;
pub mod branches;
pub mod calls;
pub mod callstack;
pub mod count;
pub mod coverage;
pub mod cpu;
pub mod critical_path;
pub mod divergence;
pub mod frames;
pub mod guests;
pub mod io;
pub mod irq;
pub mod latency;
pub mod locks;
pub mod lost;
pub mod memory;
pub mod messages;
pub mod mnemonics;
pub mod models;
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
pub use stack::FrameEntry;

use hodo_model::{FlowLoop, Report};

/// Every report, in the order of `hodo report --list`. Register a new analysis here.
pub const fn reports<L: FlowLoop>() -> &'static [Report<L>] {
    const {
        &[
            profile::functions(),
            profile::tree(),
            profile::paths(),
            blocks::lines_report(),
            blocks::blocks_report(),
            coverage::report(),
            branches::report(),
            mnemonics::report(),
            models::report(),
            threads::report(),
            guests::report(),
            resolution::report(),
            latency::report(),
            count::report(),
            periods::report(),
            cpu::report(),
            syscalls::report(),
            irq::report(),
            sched::report(),
            io::report(),
            processes::report(),
            signals::report(),
            lost::report(),
            states::report(),
            queue::report(),
            irq::off::report(),
            memory::report(),
            net::report(),
            wakers::report(),
            locks::report(),
            waits::report(),
            critical_path::report(),
            callstack::report(),
            messages::report(),
            tasks::report(),
        ]
    }
}
