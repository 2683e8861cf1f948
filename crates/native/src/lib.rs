//! The native recorder: runs a program out of a cache of translated code, and records its control flow.
//!
//! ```text
//! record ──fork, exec──► program, stopped ──inject──► runtime (`native/runtime`) in its address space
//!                                                        │ chunks of logs and tables, in shared memory (arena)
//! file of blocks ◄──file──────── drain ◄─────────────────┘
//!      │
//!      └──read──► tables of exits, and each thread's items: spans of instructions, signals, system calls, losses
//! ```
//!
//! The program's control flow is exact, and its times are real, but it runs slower than alone.

mod arena;
mod attach;
mod drain;
mod inject;
mod leave;
mod names;
mod process;
mod record;
mod ring;
mod stop;
mod tracers;
#[cfg(test)]
mod truth;
mod watch;

pub use hodo_native_log::count_time;
pub use inject::Refusal;
pub use process::fix_addresses;
pub use record::{Control, Error, Options, Outcome, Select, SelectThread, attach, record};
pub use watch::{Condition, Limit, Watched};
