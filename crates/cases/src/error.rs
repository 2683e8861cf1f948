//! Errors in the text of a case.

use std::fmt;

/// A line that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Its number in the file; the first is 1.
    pub line: usize,
    /// What was expected.
    pub what: String,
}

impl Error {
    pub(crate) fn new(line: usize, what: impl Into<String>) -> Error {
        Error { line, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Error {}
