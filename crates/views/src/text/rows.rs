//! Formats the rows of a table in aligned columns.

use std::{
    io::{self, Write},
    iter::repeat_n,
};

use anstyle::Style;
use arrow_schema::Field;
use hodo_model::{Unit, table::metadata::ColumnMetadata};

use crate::{
    cell::{cut, is_text, show, words},
    rows::Rows,
    tree::{Guides, ShownColumns},
};

/// Characters between two columns.
const GAP: usize = 2;

/// The minimum width of a text column that is cut.
const NARROWEST: usize = 12;

/// The width at which most names are distinguishable.
const READABLE: usize = 24;

/// The maximum width of text columns if lines may have any length. Some C++ function names have thousands of
/// characters: such a cell shifts the rest of its row instead of padding all others.
const WIDEST: usize = 100;

/// A column to draw.
struct Drawn<'t> {
    name: &'t str,
    unit: Unit,
    is_text: bool,
    is_secondary: bool,
    /// Index among the table's columns.
    index: usize,
    /// Index among the columns that are drawn, before any is left out.
    drawn_index: usize,
    /// The name, one word per line.
    heading: Vec<&'t str>,
    /// Width in characters.
    width: usize,
}

/// Draws headings and rows, in lines of at most `width` characters if the numbers fit.
pub(super) fn write(rows: &Rows, width: Option<usize>, bold: Style, out: &mut dyn Write) -> io::Result<()> {
    let (mut columns, cells) = drawn(rows);
    let all = columns.len();
    match width {
        Some(width) => {
            leave_out(&mut columns, width);
            shrink(&mut columns, width);
        }
        None => columns.iter_mut().filter(|c| c.is_text).for_each(|c| c.width = c.width.min(WIDEST)),
    }
    let cuts = width.is_some();
    let height = columns.iter().map(|column| column.heading.len()).max().unwrap_or(0);
    let mut line = String::new();
    for number in 0..height {
        let words = columns.iter().map(|column| {
            let blank_lines = height - column.heading.len();
            let word = number.checked_sub(blank_lines).and_then(|word| column.heading.get(word));
            let word = word.copied().unwrap_or_default();
            (word, word.len())
        });
        align(&columns, words, cuts, &mut line);
        writeln!(out, "{bold}{line}{bold:#}")?;
    }
    for row in cells.rows(all) {
        align(&columns, columns.iter().map(|column| row[column.drawn_index]), cuts, &mut line);
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    if columns.len() < all {
        writeln!(out, "… {} more columns in a wider terminal or another format", all - columns.len())?;
    }
    Ok(())
}

/// Formats a line of cells, given with their widths in characters, without trailing blanks. A cell that is too wide
/// is cut or shown in full.
fn align<'c>(
    columns: &[Drawn<'_>],
    cells: impl Iterator<Item = (&'c str, usize)>,
    cuts: bool,
    line: &mut String,
) {
    line.clear();
    for (column, (cell, characters)) in columns.iter().zip(cells) {
        let blanks = column.width.saturating_sub(characters);
        let (before, behind) = if column.is_text { (0, blanks) } else { (blanks, 0) };
        line.extend(repeat_n(' ', before));
        if cuts && characters > column.width {
            *line += &cut(cell, column.width)
        } else {
            *line += cell
        }
        line.extend(repeat_n(' ', behind + GAP));
    }
    line.truncate(line.trim_end().len());
}

impl<'t> Drawn<'t> {
    fn new(index: usize, drawn_index: usize, field: &'t Field) -> Drawn<'t> {
        let name = field.name();
        let heading = words(name, field.unit());
        let width = heading.iter().map(|word| word.len()).max().unwrap_or(0);
        let (unit, is_text, is_secondary) = (field.unit(), is_text(field), field.is_secondary());
        Drawn { name, unit, is_text, is_secondary, index, drawn_index, heading, width }
    }
}

/// Cells as text, in row order, formatted once each: tables have tens of thousands.
#[derive(Default)]
struct Cells {
    text: String,
    lengths: Vec<CellLength>,
}

struct CellLength {
    bytes: u32,
    characters: u32,
}

impl Cells {
    /// Ends the cell that starts at `begin`. Returns its number of characters.
    fn end(&mut self, begin: usize) -> usize {
        let cell = &self.text[begin..];
        let characters = if cell.is_ascii() { cell.len() } else { cell.chars().count() };
        self.lengths.push(CellLength { bytes: cell.len() as u32, characters: characters as u32 });
        characters
    }

    /// Splits the cells into rows of `cells` cells, each with its number of characters.
    fn rows(&self, cells: usize) -> impl Iterator<Item = Vec<(&str, usize)>> {
        let mut begin = 0;
        self.lengths.chunks(cells.max(1)).map(move |row| {
            let mut cells = Vec::with_capacity(row.len());
            for length in row {
                let end = begin + length.bytes as usize;
                cells.push((&self.text[begin..end], length.characters as usize));
                begin = end;
            }
            cells
        })
    }
}

/// All columns, as wide as their widest cell, and the cells.
fn drawn(rows: &Rows) -> (Vec<Drawn<'_>>, Cells) {
    let shown = ShownColumns::of(&rows.schema);
    let fields = shown.columns.iter().enumerate();
    let columns = fields.map(|(drawn_index, (index, field))| Drawn::new(*index, drawn_index, field));
    let mut columns: Vec<Drawn<'_>> = columns.collect();
    let mut cells = Cells::default();
    let guides = Guides::of(rows);
    let mut guides = guides.draw();
    rows.each(|row| {
        let guide = guides.next().unwrap_or_default();
        for column in &mut columns {
            let begin = cells.text.len();
            let is_guided = shown.guided == Some(column.index);
            if is_guided {
                cells.text += &guide;
            }
            show(column.name, column.unit, row.cell(column.index), &mut cells.text);
            if is_guided {
                cells.text += &shown.times(row);
            }
            column.width = column.width.max(cells.end(begin));
        }
    });
    drop(guides);
    (columns, cells)
}

/// Drops secondary columns, the last first, until the numbers fit beside readable names.
fn leave_out(columns: &mut Vec<Drawn<'_>>, width: usize) {
    let needed =
        |column: &Drawn<'_>| GAP + column.width.min(if column.is_text { READABLE } else { usize::MAX });
    while columns.iter().map(needed).sum::<usize>() > width + GAP {
        match columns.iter().rposition(|column| column.is_secondary) {
            Some(index) => drop(columns.remove(index)),
            None => return,
        }
    }
}

/// Shrinks the widest text column until the line fits or no column can shrink.
fn shrink(columns: &mut [Drawn<'_>], width: usize) {
    let gaps = GAP * columns.len().saturating_sub(1);
    let mut total = gaps + columns.iter().map(|column| column.width).sum::<usize>();
    while total > width {
        let widest = columns.iter_mut().filter(|c| c.is_text).max_by_key(|c| c.width);
        match widest.filter(|column| column.width > NARROWEST) {
            Some(column) => column.width -= 1,
            None => return,
        }
        total -= 1;
    }
}
