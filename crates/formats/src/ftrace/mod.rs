//! ftrace, the kernel's own tracer: reads a trace.dat of `trace-cmd` or `hodo record --engine ftrace`.
//!
//! ```text
//! trace.dat ──File──► description ──format, schema──► TraceClass ─┐
//!               └───► buffers ──Page──► a stream per CPU ─────────┴──► Trace, one per buffer
//! ```
//!
//! Records become events through the same classes and code as CTF's. Only finding them in their pages is specific to
//! ftrace.

mod cursor;
pub(crate) mod description;
mod file;
pub(crate) mod flags;
pub(crate) mod format;
mod names;
mod page;
pub(crate) mod printk;
mod reader;
pub(crate) mod schema;
mod trace;
mod unpack;
pub mod write;

pub(crate) use cursor::Cursor;
pub use names::Names;
pub(crate) use reader::{PageReader, Pages};
pub use trace::read;

/// Whether the bytes begin a trace.dat.
pub fn recognise(bytes: &[u8]) -> bool {
    bytes.starts_with(description::MARK)
}

/// The trace.dat format.
pub const FORMAT: crate::Format = crate::Format {
    name: "trace.dat",
    recognise,
    contents: |_| crate::Contents::EVENTS,
    flow: None,
    events: Some(read),
};
