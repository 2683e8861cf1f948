//! The rows of a table in aligned columns.

use std::{
    io::{self, Write},
    iter::repeat_n,
};

use anstyle::Style;
use hodo_trace::{Column, Table, Value};

use super::cell::{cut, show, words};
use super::tree::{Guides, depth_column};

/// Between two columns.
const GAP: usize = 2;

/// The least that a column of text is cut to.
const NARROWEST: usize = 12;

/// The width at which most names can be told apart.
const READABLE: usize = 24;

/// A column as it is drawn.
struct Drawn {
    column: Column,
    /// Its place in the rows.
    index: usize,
    /// Its name, a word a line.
    heading: Vec<&'static str>,
    /// In characters.
    width: usize,
    /// Whether the guides of a tree stand in front of its cells.
    has_guides: bool,
}

/// Draws headings and rows, in lines of at most `width` characters where the numbers leave room.
pub(super) fn write(table: &Table, width: Option<usize>, bold: Style, out: &mut dyn Write) -> io::Result<()> {
    let guides = Guides::of(table);
    let columns = drawn_columns(table, &guides, width);
    let height = columns.iter().map(|column| column.heading.len()).max().unwrap_or(0);
    for line in 0..height {
        let cells = columns.iter().map(|column| {
            let blank_lines = height - column.heading.len();
            let word = line.checked_sub(blank_lines).and_then(|word| column.heading.get(word));
            word.copied().unwrap_or_default().to_owned()
        });
        writeln!(out, "{bold}{}{bold:#}", aligned(&columns, cells))?;
    }
    let mut guides = guides.draw();
    for row in &table.rows {
        let guide = guides.next().unwrap_or_default();
        let cells = columns.iter().map(|column| cut(&column.cell(row, &guide), column.width));
        writeln!(out, "{}", aligned(&columns, cells))?;
    }
    let left_out = table.columns.len() - columns.len() - usize::from(depth_column(table).is_some());
    if left_out > 0 {
        writeln!(out, "… {left_out} more columns in a wider terminal or another format")?;
    }
    Ok(())
}

/// One line, without blanks at its end.
fn aligned(columns: &[Drawn], cells: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for (column, cell) in columns.iter().zip(cells) {
        let blanks = column.width.saturating_sub(cell.chars().count());
        let (before, behind) = if column.is_text() { (0, blanks) } else { (blanks, 0) };
        line.extend(repeat_n(' ', before));
        line += &cell;
        line.extend(repeat_n(' ', behind + GAP));
    }
    line.truncate(line.trim_end().len());
    line
}

impl Drawn {
    fn is_text(&self) -> bool {
        self.column.kind == "string"
    }

    fn cell(&self, row: &[Value], guide: &str) -> String {
        let text = show(self.column.name, self.column.unit, row.get(self.index).unwrap_or(&Value::Null));
        if self.has_guides { format!("{guide}{text}") } else { text }
    }
}

fn drawn_columns(table: &Table, guides: &Guides, width: Option<usize>) -> Vec<Drawn> {
    let depth = depth_column(table);
    let mut columns: Vec<Drawn> = Vec::new();
    for (index, &column) in table.columns.iter().enumerate().filter(|(index, _)| Some(*index) != depth) {
        let heading = words(column.name);
        let is_text = column.kind == "string";
        let has_guides = depth.is_some() && is_text && !columns.iter().any(|c| c.has_guides);
        let width = heading.iter().map(|word| word.len()).max().unwrap_or(0);
        columns.push(Drawn { column, index, heading, width, has_guides });
    }
    for (row, guide) in table.rows.iter().zip(guides.draw().chain(std::iter::repeat(String::new()))) {
        for column in &mut columns {
            column.width = column.width.max(column.cell(row, &guide).chars().count());
        }
    }
    if let Some(width) = width {
        leave_out(&mut columns, width);
        shrink(&mut columns, width);
    }
    columns
}

/// Leaves secondary columns out, the last first, until the numbers fit beside names that can be read.
fn leave_out(columns: &mut Vec<Drawn>, width: usize) {
    let needed =
        |column: &Drawn| GAP + column.width.min(if column.is_text() { READABLE } else { usize::MAX });
    while columns.iter().map(needed).sum::<usize>() > width + GAP {
        match columns.iter().rposition(|column| column.column.secondary) {
            Some(index) => drop(columns.remove(index)),
            None => return,
        }
    }
}

/// Takes from the widest column of text until the line fits or nothing is left to take.
fn shrink(columns: &mut [Drawn], width: usize) {
    let gaps = GAP * columns.len().saturating_sub(1);
    let mut total = gaps + columns.iter().map(|column| column.width).sum::<usize>();
    while total > width {
        let widest = columns.iter_mut().filter(|c| c.is_text()).max_by_key(|c| c.width);
        match widest.filter(|column| column.width > NARROWEST) {
            Some(column) => column.width -= 1,
            None => return,
        }
        total -= 1;
    }
}
