//! Traces of Arm CoreSight outside of perf.data.
//!
//! ```text
//! snapshot.ini, devices, trace.ini ──► units, buffers, dumps of memory ─┐
//! raw buffer + settings of its units ───────────────────────────────────┴──► Recording: a stream for each unit
//! ```
//!
//! Source: "ARM Trace and Debug Snapshot file format", version 0.2, and OpenCSD's reader of it.

mod ini;
mod raw;
mod snapshot;
mod unit;

pub use raw::{RawUnits, recording};
pub use snapshot::{FIRST_FILE, FORMAT, buffers, recognise, referenced};
pub use unit::{Buffer, Layout, SourceStream, Unit, UnitKind};

pub(crate) use unit::push_source;
