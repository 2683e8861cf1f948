//! Formats of recordings: each recognises its input, reads its metadata and lists its streams.
//!
//! ```text
//! bytes of files ──one of FORMATS──┬──► Recording: settings, streams of bytes, sideband in order of time
//! raw buffer + options ──raw───────┘
//! ```
//!
//! Formats take bytes and return values; the engine opens files.

pub mod ctf;
pub mod error;
mod input;
pub mod perf;
pub mod raw;
pub mod recording;

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
    /// Reads such an input.
    pub read: for<'a> fn(&Input<'a>) -> Result<Recording<'a>, Error>,
}

/// Every format.
pub const FORMATS: &[Format] = &[perf::FORMAT];

/// Reads an input of any format.
///
/// # Errors
/// [`ErrorKind::NotRecognised`], or whatever the format says.
pub fn read<'a>(input: &Input<'a>) -> Result<Recording<'a>, Error> {
    let format = FORMATS.iter().find(|format| (format.recognise)(input.bytes));
    let format = format.ok_or(Error { at: 0, kind: ErrorKind::NotRecognised })?;
    (format.read)(input)
}
