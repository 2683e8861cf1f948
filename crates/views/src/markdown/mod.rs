//! A table in GitHub's Markdown, with the summary and losses, for reports written by people.

use std::io;

use hodo_model::table::metadata::{ColumnMetadata, TableMetadata};

use crate::{
    BELOW_EACH_OTHER, End, Options, Output, Reader, View,
    cell::{figure_name, is_text, show, show_figure, thousands, words},
    loss,
    rows::{Rows, keep},
    tree::{Guides, ShownColumns},
};

pub(crate) const VIEW: View = View {
    name: "markdown",
    help: "a table to paste into an issue or a page",
    reader: Reader::People,
    shows_loss: true,
    several: BELOW_EACH_OTHER,
    begin: |schema, options, out| Ok(keep(schema, options, out, draw)),
};

fn draw(rows: &Rows, end: &End<'_>, _: &Options, out: Output<'_>) -> io::Result<()> {
    writeln!(out, "### {}\n", plain(rows.schema.table_name()))?;
    for (name, value) in end.summary {
        let line = format!("- {}: {}", plain(&figure_name(name, value)), plain(&show_figure(name, value)));
        writeln!(out, "{}", line.trim_end())?;
    }
    if !rows.is_empty() {
        let gap = if end.summary.is_empty() { "" } else { "\n" };
        write!(out, "{gap}{}", table(rows))?;
    }
    if end.rows_left_out > 0 {
        let mut count = String::new();
        thousands(end.rows_left_out, &mut count);
        writeln!(out, "\n… {count} more rows")?;
    }
    if !end.loss.is_empty() {
        writeln!(out, "\n**lost**\n")?;
    }
    end.loss.iter().try_for_each(|loss| writeln!(out, "- {}", plain(&loss::line(loss))))
}

fn table(rows: &Rows) -> String {
    let shown = ShownColumns::of(&rows.schema);
    let mut text = String::new();
    for (_, field) in &shown.columns {
        text += &format!("| {} ", plain(&words(field.name(), field.unit()).join(" ")));
    }
    text += "|\n";
    shown.columns.iter().for_each(|(_, field)| text += if is_text(field) { "| :-- " } else { "| --: " });
    text += "|\n";
    let guides = Guides::of(rows);
    let mut guides = guides.draw();
    rows.each(|row| {
        let guide = guides.next().unwrap_or_default();
        for (index, field) in &shown.columns {
            let mut content = String::new();
            show(field.name(), field.unit(), row.cell(*index), &mut content);
            let mut guide_here = "";
            if shown.guided == Some(*index) {
                content += &shown.times(row);
                guide_here = &guide;
            }
            let content = if is_text(field) { code(guide_here, &content) } else { content };
            text += "| ";
            text += &content;
            text.extend((!content.is_empty()).then_some(' '));
        }
        text += "|\n";
    });
    text
}

/// Formats text as inline code, in which only the table's bars are special. Blanks in guides become non-breaking.
fn code(guide: &str, text: &str) -> String {
    if guide.is_empty() && text.is_empty() {
        return String::new();
    }
    let content = format!("{}{text}", guide.replace(' ', "\u{a0}")).replace('|', "\\|");
    // The fence is longer than any run of backticks in the text, and is separated from backticks at its ends. Of blanks
    // at both ends, Markdown drops one each.
    let longest = content.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let needs_gap = content.starts_with(['`', ' ']) || content.ends_with(['`', ' ']);
    let gap = if needs_gap { " " } else { "" };
    format!("{fence}{gap}{content}{gap}{fence}")
}

/// Formats text as Markdown, with possible markup escaped by backslashes.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        let is_markup = matches!(
            character,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '~' | '!' | '$'
        );
        plain.extend(is_markup.then_some('\\'));
        plain.push(character);
    }
    plain
}
