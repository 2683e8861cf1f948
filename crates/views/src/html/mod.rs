//! A table in HTML, with the summary and losses: for notebooks and pages. It needs no style sheet and runs no script.

use std::io;

use hodo_model::table::metadata::{ColumnMetadata, TableMetadata};

use crate::{
    BELOW_EACH_OTHER, End, Options, Output, Reader, View,
    cell::{figure_name, is_text, show, show_figure, thousands, words},
    loss,
    rows::{Rows, keep},
    tree::{Guides, ShownColumns},
    xml::escaped,
};

pub(crate) const VIEW: View = View {
    name: "html",
    help: "a table for a page or a notebook",
    reader: Reader::People,
    shows_loss: true,
    several: BELOW_EACH_OTHER,
    begin: |schema, options, out| Ok(keep(schema, options, out, draw)),
};

/// The style of cells with numbers, so that their digits stand below each other.
const NUMBER: &str = " style=\"text-align:right;font-variant-numeric:tabular-nums\"";
/// The style of cells with text.
const TEXT: &str = " style=\"text-align:left;white-space:pre-wrap\"";

fn draw(rows: &Rows, end: &End<'_>, _: &Options, out: Output<'_>) -> io::Result<()> {
    writeln!(out, "<div><strong>{}</strong>", escaped(rows.schema.table_name()))?;
    let figures = end.summary.iter().map(|(name, value)| {
        format!("{}: <b>{}</b>", escaped(&figure_name(name, value)), escaped(&show_figure(name, value)))
    });
    let figures = figures.collect::<Vec<_>>().join(" · ");
    if !figures.is_empty() {
        writeln!(out, "<div style=\"font-size:smaller\">{figures}</div>")?;
    }
    if !rows.is_empty() {
        write!(out, "{}", table(rows))?;
    }
    if end.rows_left_out > 0 {
        let mut count = String::new();
        thousands(end.rows_left_out, &mut count);
        writeln!(out, "<div>… {count} more rows</div>")?;
    }
    for loss in end.loss {
        writeln!(out, "<div style=\"color:#b35900\">lost: {}</div>", escaped(&loss::line(loss)))?;
    }
    writeln!(out, "</div>")
}

fn table(rows: &Rows) -> String {
    let shown = ShownColumns::of(&rows.schema);
    let mut html = "<table><thead><tr>".to_owned();
    for (_, field) in &shown.columns {
        let style = if is_text(field) { TEXT } else { NUMBER };
        html += &format!("<th{style} title=\"{}\">", escaped(field.name()));
        html += &format!("{}</th>", escaped(&words(field.name(), field.unit()).join(" ")));
    }
    html += "</tr></thead><tbody>\n";
    let guides = Guides::of(rows);
    let mut guides = guides.draw();
    rows.each(|row| {
        let guide = guides.next().unwrap_or_default();
        html += "<tr>";
        for (index, field) in &shown.columns {
            let mut content = String::new();
            show(field.name(), field.unit(), row.cell(*index), &mut content);
            let mut guide_here = "";
            if shown.guided == Some(*index) {
                content += &shown.times(row);
                guide_here = &guide;
            }
            let style = if is_text(field) { TEXT } else { NUMBER };
            html += &format!("<td{style}>{guide_here}{}</td>", escaped(&content));
        }
        html += "</tr>\n";
    });
    html + "</tbody></table>\n"
}
