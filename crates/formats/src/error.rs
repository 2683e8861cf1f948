//! Errors: why an input, or a part of it, cannot be read.

use std::fmt;

use hodo_bytes::Eof;

/// An error and its position in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file offset.
    pub at: u64,
    /// The kind of error.
    pub kind: ErrorKind,
}

/// Kinds of errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The beginning of the file matches no format.
    NotRecognised,
    /// A known kind of input that hodo does not read.
    Unsupported {
        /// The kind of input.
        what: &'static str,
        /// What the user can do instead.
        help: &'static str,
    },
    /// The file, or the containing section, ends too early.
    CutShort {
        /// What was read.
        what: &'static str,
        /// Bytes required.
        wanted: u64,
        /// Bytes left.
        left: u64,
    },
    /// An invalid number.
    Invalid {
        /// The number's meaning.
        what: &'static str,
        /// The value found.
        found: u64,
        /// What was expected.
        expected: &'static str,
    },
    /// Unreadable text.
    Text {
        /// What the text is, such as `CTF metadata`.
        what: &'static str,
        /// The parser's message.
        reason: String,
    },
}

impl Error {
    /// The input ended while reading `what`.
    pub(crate) fn cut_short(what: &'static str, eof: Eof) -> Error {
        Error { at: eof.at, kind: ErrorKind::CutShort { what, wanted: eof.wanted, left: eof.left } }
    }

    /// An invalid number.
    pub(crate) fn invalid(at: u64, what: &'static str, found: u64, expected: &'static str) -> Error {
        Error { at, kind: ErrorKind::Invalid { what, found, expected } }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {:#x}: {}", self.at, self.kind)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::NotRecognised => f.write_str(
                "not a trace: a perf.data, a trace.dat, a trace of Perfetto, a folder of CTF with a file `metadata`, or one \
                 of OpenCSD with a file `snapshot.ini` expected",
            ),
            ErrorKind::Unsupported { what, help } => write!(f, "{what}; {help}"),
            ErrorKind::CutShort { what, wanted, left } => {
                write!(f, "{what}: {wanted} bytes expected, but only {left} are left")
            }
            ErrorKind::Invalid { what, found, expected } => {
                write!(f, "{what} is {found:#x}; expected {expected}")
            }
            ErrorKind::Text { what, reason } => write!(f, "{what}: {reason}"),
        }
    }
}

impl std::error::Error for Error {}
