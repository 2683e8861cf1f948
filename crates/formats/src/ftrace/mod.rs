//! ftrace: the kernel's own tracer, in a trace.dat as `trace-cmd` and `hodo record --engine ftrace` write it.
//!
//! ```text
//! trace.dat ──File──► description ──format, schema──► TraceClass ─┐
//!               └───► buffers ──Page──► a stream a CPU ───────────┴──► Trace, a buffer each
//! ```
//!
//! Records become events by the same classes and code as CTF's; only how they are found in their pages is
//! ftrace's own.

pub(crate) mod description;
mod file;
pub(crate) mod format;
mod names;
mod page;
pub(crate) mod printk;
mod reader;
pub(crate) mod schema;
mod trace;
mod unpack;
pub mod write;

pub use names::Names;
pub(crate) use reader::{PageReader, Pages};
pub use trace::read;

/// Whether these are the first bytes of a trace.dat.
pub fn recognise(bytes: &[u8]) -> bool {
    bytes.starts_with(description::MARK)
}

/// trace.dat.
pub const FORMAT: crate::Format =
    crate::Format { name: "trace.dat", recognise, holds: crate::Holds::Traces(read) };
