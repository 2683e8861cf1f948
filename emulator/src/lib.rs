//! The emulated processor: a QEMU plugin that makes `qemu-x86_64` emit Intel PT; for a whole machine, see [`machine`].
//! Under `qemu-aarch64` and `qemu-riscv64` it writes the same packets, about the instructions of those processors: a
//! branch is taken or not, an indirect one has a target. The recorder makes the trace of an Arm or RISC-V unit of them.
//!
//! ```text
//! QEMU translates a block ──► Block: instructions, how it may end; Mappings: which file it is from
//! QEMU enters a block     ──► Thread: how did the previous end? ──Encoder──► trace bytes ───┐
//! QEMU makes a system call ─► Process: mappings, handlers, forks; exec under QEMU again ────┤ notes
//!                                                                                          ▼
//!                                                                        spool ──► recorder
//! ```
//!
//! A block's callback precedes its instructions, so the next callback of the same thread shows how the block ended.
//! Time is virtual: one instruction is one cycle is one tick of a 1 GHz time-stamp counter. Each thread has a counter of
//! its own, which begins at the time when the thread was made. Executing another program takes 0.1 ms of virtual time,
//! and so does replacing code at the same address.
//!
//! If a thread dies in a block, it is unknown which instructions of the block ran: its trace and its counts end at the
//! begin of the block.

#![allow(unsafe_code)]

/// Writes a message for the user to standard error. Unlike `eprintln!`, it does not end QEMU if that fails, as it does when
/// the disk is full.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// Exit code of QEMU if the recording can't begin, as that of the recorder.
const FAILED: i32 = 125;

mod block;
mod exec;
mod filter;
mod launch;
mod lock;
pub mod machine;
mod mappings;
mod memory;
pub mod messages;
mod plugin;
mod process;
mod qemu;
pub mod seal;
mod settings;
mod signal;
pub mod slave;
pub mod spool;
mod syscall;
mod target;
mod thread;
mod threads;
mod window;

pub use filter::FilterRange;
pub use launch::{Launch, Program};
pub use plugin::{qemu_plugin_install, qemu_plugin_version};
pub use settings::Settings;
pub use target::Target;

pub(crate) use plugin::{program, program_begins};
