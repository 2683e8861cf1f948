//! perf.data: the output of `perf record` and of the emulated processor's recorder.
//!
//! ```text
//! bytes ──File──► events, features      AUXTRACE, AUX ──Queues──► streams ─┐
//!          └────► Records… ──────────┬► MMAP2, COMM, … ──────► sideband ───┼─► Recording
//!                                    └► unreadable data ────► loss ────────┘
//! ```

mod bpf;
mod coresight;
mod events;
mod features;
mod file;
mod info;
pub mod layout;
mod overlap;
mod read;
mod reader;
mod records;
pub mod ring;
mod riscv;
mod sample;
pub mod samples;
mod sideband;
mod streams;
mod tracepoint;
mod unpack;
pub mod write;

pub use events::{Attr, Events, SampleId};
pub use file::{File, Section, recognise};
pub use read::read;
pub use records::{Record, Records};

use crate::Format;

/// The perf.data format.
pub const FORMAT: Format = Format {
    name: "perf.data",
    recognise,
    contents: samples::contents,
    flow: Some(read),
    events: Some(samples::read),
};
