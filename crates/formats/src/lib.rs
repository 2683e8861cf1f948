//! Formats of recordings: each recognises its input, reads its metadata and lists its streams.
//!
//! ```text
//! bytes of a file ──format──► Recording: settings, streams of bytes, sideband in order of time
//! ```
//!
//! Formats take bytes and return values; the engine opens files.

pub mod error;
pub mod perf;
pub mod recording;
