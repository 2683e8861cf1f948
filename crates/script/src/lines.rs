//! Whole lines of text, up to a limit.

use std::io::{self, Write};

use hodo_engine::Losses;

/// The outcome of writing.
#[derive(Debug)]
pub struct Outcome {
    /// What is missing from the output.
    pub losses: Losses,
    /// Whether everything was written, or the error.
    pub written: io::Result<()>,
    /// Whether there was nothing to write.
    pub is_empty: bool,
}

/// Writes whole lines up to a limit, and nothing more after an error.
pub(crate) struct Lines<'w> {
    out: &'w mut (dyn Write + Send),
    /// Number of lines that may still be written; `None` for all.
    left: Option<u64>,
    result: io::Result<()>,
    /// Whether nothing was written so far.
    is_empty: bool,
}

impl<'w> Lines<'w> {
    pub(crate) fn new(out: &'w mut (dyn Write + Send), limit: Option<u64>) -> Lines<'w> {
        Lines { out, left: limit, result: Ok(()), is_empty: true }
    }

    /// How the writing went; `losses` are missing from the output.
    pub(crate) fn outcome(self, losses: Losses) -> Outcome {
        Outcome { losses, written: self.result, is_empty: self.is_empty }
    }

    /// Returns whether more lines would be written.
    pub(crate) fn want_more(&self) -> bool {
        self.result.is_ok() && self.left != Some(0)
    }

    /// Flushes the output.
    pub(crate) fn flush(&mut self) {
        if self.result.is_ok() {
            self.result = self.out.flush();
        }
    }

    /// Writes as many of the lines as the limit permits.
    pub(crate) fn write(&mut self, text: &[u8]) {
        if !self.want_more() {
            return;
        }
        self.is_empty &= text.is_empty();
        let Some(left) = &mut self.left else {
            self.result = self.out.write_all(text);
            return;
        };
        let mut ends = text.iter().enumerate().filter(|&(_, &byte)| byte == b'\n');
        // `want_more`: at least one line is left.
        let length = match ends.nth(*left as usize - 1) {
            Some((end, _)) => {
                *left = 0;
                end + 1
            }
            None => {
                *left -= text.iter().filter(|&&byte| byte == b'\n').count() as u64;
                text.len()
            }
        };
        self.result = self.out.write_all(&text[..length]);
    }
}
