//! Recording formats: each recognises its input, reads the metadata and lists the streams.
//!
//! ```text
//! bytes of files ──one of FORMATS──┬──► Recording: settings, streams of bytes, sideband in order of time
//! raw buffer + options ──raw───────┘
//! snapshot.ini and its files ──coresight──► Recording
//! folder of a trace ──ctf──┬► events::Trace: streams of software events
//! trace.dat ──ftrace───────┤
//! perf.data ──perf─────────┤
//! packets ──perfetto───────┘
//! relay daemon ──lttng_live──► packets of event streams, while they are recorded
//! ```
//!
//! Formats convert bytes to values; the engine opens files.
//!
//! # Example
//!
//! The streams of a perf.data with Intel PT:
//!
//! ```
//! use hodo_formats::{Input, Unpacked, read};
//!
//! let bytes = std::fs::read("../../fixtures/perf/tiny.data")?;
//! let unpacked = Unpacked::default();
//! let recording = read(&Input::file(&bytes, &unpacked))?;
//! for stream in &recording.streams {
//!     println!("{:?} {:?}: {} pieces", stream.cpu, stream.thread, stream.pieces.len());
//! }
//! assert_eq!(recording.streams.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]

mod clock_identity;
pub mod coresight;
pub mod ctf;
pub mod error;
pub mod events;
pub mod ftrace;
mod input;
pub mod native;
pub mod perf;
pub mod perfetto;
pub mod raw;
pub mod recording;

pub use clock_identity::{ClockIdentity, ClockKind, TscScale};
pub use input::{Input, OtherFile, Unpacked};

use error::{Error, ErrorKind};
use recording::Recording;

/// A file format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The format's name for users.
    pub name: &'static str,
    /// Returns whether a file with these bytes is of this format. At most one format accepts any file.
    pub recognise: fn(&[u8]) -> bool,
    /// Detects what a file contains.
    pub contents: fn(&[u8]) -> Contents,
    /// Reads control flow, if the format can hold it.
    pub flow: Option<ReadFlow>,
    /// Reads traces of software events, if the format has them in one file.
    pub events: Option<ReadEvents>,
}

/// The kinds of content in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Software events.
    pub events: bool,
    /// Control flow.
    pub flow: bool,
}

impl Contents {
    /// Software events only.
    pub const EVENTS: Contents = Contents { events: true, flow: false };
    /// Control flow only.
    pub const FLOW: Contents = Contents { events: false, flow: true };
}

/// Reads the control flow in a file.
pub type ReadFlow = for<'a> fn(&Input<'a>) -> Result<Recording<'a>, Error>;

/// Reads the traces of software events in a file.
pub type ReadEvents = for<'a> fn(&Input<'a>) -> Result<Vec<events::Trace<'a>>, Error>;

/// Every format.
pub const FORMATS: &[Format] =
    &[perf::FORMAT, ctf::FORMAT, ftrace::FORMAT, perfetto::FORMAT, native::FORMAT, coresight::FORMAT];

/// Reads an input of any format with control flow.
///
/// # Errors
/// [`ErrorKind::NotRecognised`], or the format's own error.
pub fn read<'a>(input: &Input<'a>) -> Result<Recording<'a>, Error> {
    let format = FORMATS.iter().find(|format| (format.recognise)(input.bytes));
    let format = format.ok_or(Error { at: 0, kind: ErrorKind::NotRecognised })?;
    match format.flow {
        Some(read) => read(input),
        None => {
            let (what, help) =
                ("a trace of software events", "no control flow to be shown; see `hodo script --events`");
            Err(Error { at: 0, kind: ErrorKind::Unsupported { what, help } })
        }
    }
}

/// The examples of the page that package registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
