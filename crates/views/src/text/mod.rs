//! Text for people: the summary, aligned columns, then the losses.

use std::io;

use anstyle::Style;
use hodo_model::table::metadata::TableMetadata;

mod rows;

use crate::{
    BELOW_EACH_OTHER, End, Options, Output, Reader, View,
    cell::{figure_name, show_figure, styled, thousands, wrap},
    rows::{Rows, keep},
    write_loss,
};

pub(crate) const VIEW: View = View {
    name: "text",
    help: "aligned columns for people",
    reader: Reader::People,
    shows_loss: true,
    several: BELOW_EACH_OTHER,
    begin: |schema, options, out| Ok(keep(schema, options, out, draw)),
};

fn draw(rows: &Rows, end: &End<'_>, options: &Options, out: Output<'_>) -> io::Result<()> {
    let bold = styled(options, Style::new().bold());
    writeln!(out, "{bold}{}{bold:#}", rows.schema.table_name())?;
    let longest = end.summary.iter().map(|(name, value)| figure_name(name, value).len()).max().unwrap_or(0);
    for (name, value) in end.summary {
        let (name, value) = (figure_name(name, value), show_figure(name, value));
        let indent = longest + 4;
        let lines = wrap(&value, options.width.map(|width| width.saturating_sub(indent)));
        let line = format!("  {:longest$}  {}", name, lines.join(&format!("\n{:indent$}", "")));
        writeln!(out, "{}", line.trim_end())?;
    }
    if !rows.is_empty() {
        writeln!(out)?;
        rows::write(rows, options.width, bold, out)?;
    }
    if end.rows_left_out > 0 {
        let mut count = String::new();
        thousands(end.rows_left_out, &mut count);
        writeln!(out, "… {count} more rows")?;
    }
    if !end.loss.is_empty() {
        writeln!(out)?;
    }
    write_loss(end.loss, options, out)
}
