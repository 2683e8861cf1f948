//! Writes the content of traces in order: text, JSON lines, and CTF.
//!
//! ```text
//! chunks of a recording ──► lines of calls, instructions, packets … ──┐
//! slices of event traces ─► lines of events ──────────────────────────┴─ in order ──► text, JSON lines
//! streams of event traces ──► packets ──────────────────────────────────────────────► a folder of CTF
//! ```
//!
//! All cores format, and one after the other writes, so the output depends only on the input.

pub mod events;
pub mod flow;

mod ctf;
mod lines;
mod live;

pub use ctf::{ExportError, Exported, export};
pub use lines::Outcome;
pub use live::live_script;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// A JSON object per line.
    JsonLines,
}
