//! What happened, in order, as text.
//!
//! Chunks are turned into text on all cores and written in order, so what is written depends on nothing
//! but the input.

mod calls;
mod instructions;
mod packets;

pub use calls::{CallFormat, calls};
pub use instructions::{Field, instructions};
pub use packets::packets;

use std::io::{self, Write};

use crate::Losses;

/// The outcome of a script.
#[derive(Debug)]
pub struct Outcome {
    /// What is missing from it.
    pub losses: Losses,
    /// Whether writing failed, or everything was written.
    pub written: io::Result<()>,
}

/// Writes whole lines up to a limit.
struct Limited<'w> {
    out: &'w mut dyn Write,
    /// Lines that may still be written; `None` for all.
    left: Option<u64>,
}

impl Limited<'_> {
    /// Writes as many of the lines as may be; whether more may follow.
    fn lines(&mut self, text: &[u8]) -> io::Result<bool> {
        let Some(left) = &mut self.left else {
            self.out.write_all(text)?;
            return Ok(true);
        };
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            if *left == 0 {
                return Ok(false);
            }
            self.out.write_all(line)?;
            *left -= 1;
        }
        Ok(*left > 0)
    }
}
