//! Formats of recordings: each recognises its input, reads its metadata and lists its streams.
//!
//! ```text
//! bytes of files ──one of FORMATS──┬──► Recording: settings, streams of bytes, sideband in order of time
//! raw buffer + options ──raw───────┘
//! folder of a trace ──ctf──┬► Trace: streams of software events
//! trace.dat ──ftrace───────┤
//! perf.data ──perf─────────┘
//! relay daemon ──lttng_live──► packets of such streams, while they are recorded
//! ```
//!
//! Formats take bytes and return values; the engine opens files.

mod clock_identity;
pub mod ctf;
pub mod error;
pub mod ftrace;
mod input;
pub mod perf;
pub mod raw;
pub mod recording;

pub use clock_identity::{ClockIdentity, ClockKind, TscScale};
pub use input::{Input, Part, Unpacked};

use error::{Error, ErrorKind};
use recording::Recording;

/// A kind of file that holds a recording.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// What users call it.
    pub name: &'static str,
    /// Whether a file with these bytes is of this format. At most one format says so of any file.
    pub recognise: fn(&[u8]) -> bool,
    /// What is in it.
    pub holds: Holds,
}

/// What a format holds, and how to read it.
#[derive(Clone, Copy, Debug)]
pub enum Holds {
    /// Control flow.
    ControlFlow(ReadFlow),
    /// Software events: this reads the file that describes the others of its folder.
    Events(fn(&[u8]) -> Result<ctf::schema::TraceClass, Error>),
    /// Software events: this reads all of a file.
    Traces(ReadTraces),
    /// Control flow, software events, or both.
    Both(ReadFlow, ReadTraces),
}

/// Reads the control flow in a file.
pub type ReadFlow = for<'a> fn(&Input<'a>) -> Result<Recording<'a>, Error>;

/// Reads the traces of software events in a file.
pub type ReadTraces = for<'a> fn(&Input<'a>) -> Result<Vec<ctf::Trace<'a>>, Error>;

/// Every format.
pub const FORMATS: &[Format] = &[perf::FORMAT, ctf::FORMAT, ftrace::FORMAT];

/// Reads an input of any format that holds control flow.
///
/// # Errors
/// [`ErrorKind::NotRecognised`], or whatever the format says.
pub fn read<'a>(input: &Input<'a>) -> Result<Recording<'a>, Error> {
    let format = FORMATS.iter().find(|format| (format.recognise)(input.bytes));
    let format = format.ok_or(Error { at: 0, kind: ErrorKind::NotRecognised })?;
    match format.holds {
        Holds::ControlFlow(read) | Holds::Both(read, _) => read(input),
        Holds::Events(_) | Holds::Traces(_) => {
            let (what, help) =
                ("a trace of software events", "no control flow to be shown; see `hodo script --events`");
            Err(Error { at: 0, kind: ErrorKind::Unsupported { what, help } })
        }
    }
}
