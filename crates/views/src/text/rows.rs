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

/// The width up to which columns of text are aligned where lines may be of any length. The names of some C++ functions
/// have thousands of characters: what stands behind them moves on, and not all lines are filled with blanks.
const WIDEST: usize = 100;

/// A column as it is drawn.
struct Drawn {
    column: Column,
    /// Its place among the cells of a row.
    place: usize,
    /// Its name, a word a line.
    heading: Vec<&'static str>,
    /// In characters.
    width: usize,
}

/// Draws headings and rows, in lines of at most `width` characters where the numbers leave room.
pub(super) fn write(table: &Table, width: Option<usize>, bold: Style, out: &mut dyn Write) -> io::Result<()> {
    let (mut columns, cells) = drawn(table);
    let all = columns.len();
    match width {
        Some(width) => {
            leave_out(&mut columns, width);
            shrink(&mut columns, width);
        }
        None => columns.iter_mut().filter(|c| c.is_text()).for_each(|c| c.width = c.width.min(WIDEST)),
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
        align(&columns, columns.iter().map(|column| row[column.place]), cuts, &mut line);
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    if columns.len() < all {
        writeln!(out, "… {} more columns in a wider terminal or another format", all - columns.len())?;
    }
    Ok(())
}

/// Makes a line of cells and their characters, without blanks at its end; what is too wide is cut or shown in full.
fn align<'c>(
    columns: &[Drawn],
    cells: impl Iterator<Item = (&'c str, usize)>,
    cuts: bool,
    line: &mut String,
) {
    line.clear();
    for (column, (cell, characters)) in columns.iter().zip(cells) {
        let blanks = column.width.saturating_sub(characters);
        let (before, behind) = if column.is_text() { (0, blanks) } else { (blanks, 0) };
        line.extend(repeat_n(' ', before));
        match cuts && characters > column.width {
            true => *line += &cut(cell, column.width),
            false => *line += cell,
        }
        line.extend(repeat_n(' ', behind + GAP));
    }
    line.truncate(line.trim_end().len());
}

impl Drawn {
    fn is_text(&self) -> bool {
        self.column.kind == "string"
    }
}

/// Cells as text, row after row. Each is made once: tables have tens of thousands.
#[derive(Default)]
struct Cells {
    text: String,
    /// The bytes of each, and its characters.
    lengths: Vec<(u32, u32)>,
}

impl Cells {
    /// Ends a cell, which began where the one before ended; how many characters it has.
    fn end(&mut self, begin: usize) -> usize {
        let cell = &self.text[begin..];
        let characters = if cell.is_ascii() { cell.len() } else { cell.chars().count() };
        self.lengths.push((cell.len() as u32, characters as u32));
        characters
    }

    /// Rows of so many cells, each with its characters.
    fn rows(&self, cells: usize) -> impl Iterator<Item = Vec<(&str, usize)>> {
        let mut begin = 0;
        self.lengths.chunks(cells.max(1)).map(move |row| {
            let cell = |&(bytes, characters): &(u32, u32)| {
                let end = begin + bytes as usize;
                let cell = &self.text[std::mem::replace(&mut begin, end)..end];
                (cell, characters as usize)
            };
            row.iter().map(cell).collect()
        })
    }
}

/// All columns, as wide as their cells are, and these.
fn drawn(table: &Table) -> (Vec<Drawn>, Cells) {
    let depth = depth_column(table);
    let shown = table.columns.iter().enumerate().filter(|(index, _)| Some(*index) != depth);
    let (indices, columns): (Vec<usize>, Vec<Column>) = shown.map(|(index, column)| (index, *column)).unzip();
    let new = |(place, column): (usize, Column)| {
        let heading = words(column.name);
        let width = heading.iter().map(|word| word.len()).max().unwrap_or(0);
        Drawn { column, place, heading, width }
    };
    let mut columns: Vec<Drawn> = columns.into_iter().enumerate().map(new).collect();
    // The guides of a tree stand in front of its names.
    let guided = depth.and_then(|_| columns.iter().position(Drawn::is_text));
    let mut cells = Cells::default();
    let guides = Guides::of(table);
    for (row, guide) in table.rows.iter().zip(guides.draw().chain(std::iter::repeat(String::new()))) {
        for (column, index) in columns.iter_mut().zip(&indices) {
            let begin = cells.text.len();
            if guided == Some(column.place) {
                cells.text += &guide;
            }
            let value = row.get(*index).unwrap_or(&Value::Null);
            show(column.column.name, column.column.unit, value, &mut cells.text);
            column.width = column.width.max(cells.end(begin));
        }
    }
    (columns, cells)
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
