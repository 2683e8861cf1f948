//! Errors in the small languages of options: markers, triggers.

use std::fmt;

/// What is wrong in an expression, and where. Shown as the reason, the expression, and a caret below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    text: String,
    /// The byte offset of the error.
    at: usize,
    why: String,
}

impl ExpressionError {
    /// Creates an error at a byte offset of `text`.
    pub fn new(text: &str, at: usize, why: String) -> ExpressionError {
        ExpressionError { text: text.to_owned(), at, why }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.at).map_or(0, |before| before.chars().count());
        write!(f, "{}\n  {}\n  {:before$}^", self.why, self.text.replace(['\n', '\t'], " "), "")
    }
}

impl std::error::Error for ExpressionError {}
