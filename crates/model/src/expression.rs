//! Errors in the small languages of options: markers, triggers.

use std::fmt;

/// What is wrong in an expression, and where. Shown as the reason, the expression, and a caret below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    text: String,
    /// The byte offset of the error.
    offset: usize,
    reason: String,
}

impl ExpressionError {
    /// Creates an error at a byte offset of `text`.
    pub fn new(text: &str, offset: usize, reason: String) -> ExpressionError {
        ExpressionError { text: text.to_owned(), offset, reason }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.offset).map_or(0, |before| before.chars().count());
        write!(f, "{}\n  {}\n  {:before$}^", self.reason, self.text.replace(['\n', '\t'], " "), "")
    }
}

impl std::error::Error for ExpressionError {}
