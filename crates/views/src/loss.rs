//! Formats losses for people.

use std::io::{self, Write};

use anstyle::AnsiColor;
use hodo_model::{Loss, Unit};

use crate::{
    Options,
    cell::{instant, printable, styled, thousands, words},
};

/// Draws the losses of a table, one per line, or nothing if there are none.
///
/// # Errors
/// Returns the errors of the writer.
pub fn write_loss(losses: &[Loss], options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let yellow = styled(options, AnsiColor::Yellow.on_default());
    if !losses.is_empty() {
        writeln!(out, "{yellow}lost{yellow:#}")?;
    }
    for loss in losses {
        writeln!(out, "  {yellow}{}{yellow:#}", line(loss))?;
    }
    Ok(())
}

/// Formats a loss as a line.
pub(crate) fn line(loss: &Loss) -> String {
    let mut line = String::new();
    thousands(loss.count, &mut line);
    line += " × ";
    line += &words(loss.cause.name(), Unit::None).join(" ");
    if !loss.stream.is_empty() {
        line += ", ";
        printable(&loss.stream, &mut line);
    }
    let mut append_time = |word: &str, time: u64| {
        line += word;
        instant(time, &mut line);
    };
    match loss.time {
        Some((begin, end)) if begin == end => append_time(", at ", begin.0),
        Some((begin, end)) => {
            append_time(", from ", begin.0);
            append_time(" to ", end.0);
        }
        None => {}
    }
    if !loss.bytes.is_empty() {
        line += &format!(", bytes {:#x}..{:#x}", loss.bytes.start, loss.bytes.end);
    }
    if !loss.detail.is_empty() {
        line += ": ";
        printable(&loss.detail, &mut line);
    }
    line
}
