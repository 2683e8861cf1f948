//! Why an input, or a part of it, can't be read.

use std::fmt;

use hodo_bytes::Eof;

/// What is wrong, and where in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset of the place in the file.
    pub at: u64,
    /// What is wrong there.
    pub kind: ErrorKind,
}

/// What can be wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No format has its mark at the beginning of the file.
    NotRecognised,
    /// A kind of input that is known, but that hodo does not read.
    Unsupported {
        /// What it is.
        what: &'static str,
        /// What helps.
        help: &'static str,
    },
    /// The file, or the part of it that holds this, ends too early.
    CutShort {
        /// What was being read.
        what: &'static str,
        /// Bytes that it takes.
        wanted: u64,
        /// Bytes that are there.
        left: u64,
    },
    /// A number that can't be right.
    Invalid {
        /// What the number is.
        what: &'static str,
        /// The number.
        found: u64,
        /// What was expected instead.
        expected: &'static str,
    },
    /// A text that can't be read.
    Text {
        /// What the text is.
        what: &'static str,
        /// What its reader says.
        reason: String,
    },
}

impl Error {
    /// An end of the input while reading `what`.
    pub(crate) fn cut_short(what: &'static str, eof: Eof) -> Error {
        Error { at: eof.at, kind: ErrorKind::CutShort { what, wanted: eof.wanted, left: eof.left } }
    }

    /// A number that can't be right.
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
                "not a trace: a perf.data, a trace.dat or a folder of CTF with a file `metadata` expected",
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
