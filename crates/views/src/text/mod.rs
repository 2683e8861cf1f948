//! For people: figures of the whole, aligned columns, then what is missing.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use hodo_trace::{Loss, Table};

mod cell;
mod rows;
mod tree;

use crate::{Options, View};

pub(crate) const VIEW: View =
    View { name: "text", help: "aligned columns for people", shows_loss: true, write };

fn write(table: &Table, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let bold = styled(options, Style::new().bold());
    writeln!(out, "{bold}{}{bold:#}", table.name)?;
    let name_of = |(name, _): &(&'static str, _)| cell::words(name).join(" ");
    let longest = table.summary.iter().map(|figure| name_of(figure).len()).max().unwrap_or(0);
    for figure in &table.summary {
        let value = cell::show_figure(figure.0, &figure.1);
        let indent = longest + 4;
        let lines = cell::wrap(&value, options.width.map(|width| width.saturating_sub(indent)));
        let line = format!("  {:longest$}  {}", name_of(figure), lines.join(&format!("\n{:indent$}", "")));
        writeln!(out, "{}", line.trim_end())?;
    }
    if !table.rows.is_empty() {
        writeln!(out)?;
        rows::write(table, options.width, bold, out)?;
    }
    if options.rows_left_out > 0 {
        let mut count = String::new();
        cell::thousands(options.rows_left_out, &mut count);
        writeln!(out, "… {count} more rows")?;
    }
    if !table.loss.is_empty() {
        writeln!(out)?;
    }
    write_loss(table, options, out)
}

/// Draws what is missing from a table, a line each; nothing where nothing is.
pub fn write_loss(table: &Table, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let yellow = styled(options, AnsiColor::Yellow.on_default());
    if !table.loss.is_empty() {
        writeln!(out, "{yellow}lost{yellow:#}")?;
    }
    for loss in &table.loss {
        writeln!(out, "  {yellow}{}{yellow:#}", loss_line(loss))?;
    }
    Ok(())
}

fn styled(options: &Options, style: Style) -> Style {
    if options.colour { style } else { Style::new() }
}

fn loss_line(loss: &Loss) -> String {
    let mut line = String::new();
    cell::thousands(loss.count, &mut line);
    line += " × ";
    line += &cell::words(loss.cause.name()).join(" ");
    if !loss.stream.is_empty() {
        line += ", ";
        cell::printable(&loss.stream, &mut line);
    }
    match loss.time {
        Some((begin, end)) if begin == end => line += &format!(", at {}", cell::instant(begin.0)),
        Some((begin, end)) => {
            line += &format!(", from {} to {}", cell::instant(begin.0), cell::instant(end.0));
        }
        None => {}
    }
    if !loss.bytes.is_empty() {
        line += &format!(", bytes {:#x}..{:#x}", loss.bytes.start, loss.bytes.end);
    }
    if !loss.detail.is_empty() {
        line += ": ";
        cell::printable(&loss.detail, &mut line);
    }
    line
}
