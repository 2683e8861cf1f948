//! The emulated processor: a QEMU plugin that makes `qemu-x86_64` emit Intel PT.
//!
//! ```text
//! QEMU translates a block ──► Block: instructions, how it may end; Mappings: which file it is from
//! QEMU enters a block     ──► Thread: how did the one before end? ──Encoder──► trace bytes ─┐
//! QEMU makes a system call ─► Process: mappings, handlers, forks; exec under QEMU again ────┤ notes
//!                                                                                          ▼
//!                                                                        spool ──► recorder
//! ```
//!
//! A block's callback comes before its instructions run, so the next callback of the same thread
//! tells how it ended. Time is virtual: one instruction is one cycle is one tick of a 1 GHz
//! time-stamp counter, for each thread by itself from the time at which it was made. Executing another
//! program takes 0.1 ms of it, and so does replacing code by other code at the same address.
//!
//! What a thread that dies in a block ran of that block is not known; its trace ends where the
//! block begins, and its counts with it.

#![allow(unsafe_code)]

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
pub mod spool;
mod syscall;
mod thread;
mod threads;
mod window;

pub use filter::FilterRange;
pub use launch::{Launch, Program};
pub use plugin::{qemu_plugin_install, qemu_plugin_version};
pub use settings::Settings;

pub(crate) use plugin::{program, program_begins};
