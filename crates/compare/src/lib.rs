//! Compares two sides, each of one or more recordings.
//!
//! ```text
//! tables of call paths of A ─┐                      ┌─ grown: new paths, and those with more instructions
//!                            ├─ union of trees ─ rows ─ shrunk: vanished paths, and those with fewer
//! tables of call paths of B ─┘  (functions matched  └─ summary: totals, per execution
//!                               by symbol, module;
//!                               renamed ones by counts
//!                               and neighbours)
//!
//! tables of latencies of A, of B ── rows matched by their names ── the same
//! ```
//!
//! This crate maps tables to tables, and depends on no format, analysis or view. Instruction counts are exact, so
//! every difference is real. [`statistics`] tests groups of recordings.

mod identity;
mod latency;
mod profile;
mod rename;
mod sides;
pub mod statistics;
mod union;

pub use identity::without_clone;
pub use latency::{Latencies, latencies};
pub use profile::{Comparison, Divisor, Growth, Inlined, Options, Rows, paths};
pub use sides::Sides;
pub use union::{PathRow, path_rows};
