//! The part of the native recorder that lives in the recorded program.
//!
//! ```text
//! program's code ──translate──► superblocks in a cache near it, which write the number of each exit
//!        ▲                          │ unlinked exit, unknown target, system call
//!        └──────── dispatch ◄───────┘
//! log full ──► packed chunk ──► arena ──► recorder;   new block ──► record in the process's table ──► arena
//! signal ──► the next exit faults ──► the program's handler;   write to code ──► its blocks are removed
//! ```
//!
//! It is built twice: as this library, whose layout and formats the recorder uses, and as an image without libc that
//! the recorder puts into programs (`image.rs`).

#![no_std]

#[cfg(test)]
#[macro_use]
extern crate std;

pub mod attach;
pub mod cache;
pub mod calls;
pub mod context;
pub mod copy;
pub mod cpuid;
pub mod decode;
pub mod dispatch;
pub mod effect;
pub mod emit;
pub mod exec;
pub mod far;
pub mod flush;
pub mod frame;
pub mod guided;
pub mod hold;
pub mod layout;
pub mod limits;
pub mod link;
pub mod log;
pub mod pack;
pub mod pages;
pub mod processor;
pub mod raw;
pub mod regions;
pub mod select;
pub mod signal;
pub mod slot;
pub mod start;
pub mod state;
pub mod stubs;
pub mod sys;
pub mod table;
pub mod targets;
pub mod thread;
pub mod trace;
pub mod translate;
pub mod wire;
