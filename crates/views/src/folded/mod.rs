//! Call paths in Brendan Gregg's "folded stacks" format, the input of `flamegraph.pl`, inferno and speedscope: a line
//! such as `main;parse;read 1200` for each path with a nonzero number.
//!
//! The number comes from the first column whose name begins with `self_`, or else from the first column of integers
//! except `depth`. In a table that is not a tree, each row is a path of one frame. The first text column contains the
//! names of frames.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use hodo_model::table::{Cell, Cells, cells, metadata::ColumnMetadata};

use crate::{Draw, End, Options, Output, Reader, Several, View, tree::depth_column};

pub(crate) const VIEW: View = View {
    name: "folded",
    help: "call paths for flame graphs: `a;b;c 123`",
    reader: Reader::Programs,
    shows_loss: false,
    several: Some(Several { around: ["", "", ""], rows: None, loss_once: false }),
    begin,
};

/// The columns of call paths: depth, frame, number.
pub(crate) struct Columns {
    depth: Option<usize>,
    frame: Option<usize>,
    number: Option<usize>,
    /// The unit of the number.
    pub(crate) unit: String,
}

impl Columns {
    pub(crate) fn of(schema: &SchemaRef) -> Columns {
        let depth = depth_column(schema);
        let fields = || schema.fields().iter().enumerate();
        let integers = || {
            fields().filter(|(index, field)| *field.data_type() == DataType::UInt64 && Some(*index) != depth)
        };
        let own = integers().find(|(_, field)| field.name().starts_with("self_"));
        let number = own.or_else(|| integers().next());
        let unit = number.map_or_else(String::new, |(_, field)| field.unit().name().to_owned());
        let frame = fields().find(|(_, field)| field.type_name() == "string").map(|(index, _)| index);
        Columns { depth, frame, number: number.map(|(index, _)| index), unit }
    }

    /// The depth of a row, from 0.
    pub(crate) fn depth(&self, cells: &[Cells<'_>], row: usize) -> usize {
        match self.depth.map(|column| cells[column].cell(row)) {
            Some(Cell::Integer(depth)) => usize::try_from(depth).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    /// The name of a row's last frame.
    pub(crate) fn frame<'c>(&self, cells: &'c [Cells<'_>], row: usize) -> Cell<'c> {
        self.frame.map_or(Cell::Null, |column| cells[column].cell(row))
    }

    /// The row's own number; 0 if it has none.
    pub(crate) fn number(&self, cells: &[Cells<'_>], row: usize) -> u64 {
        match self.number.map(|column| cells[column].cell(row)) {
            Some(Cell::Integer(number)) => number,
            _ => 0,
        }
    }
}

struct Folded<'o> {
    out: Output<'o>,
    columns: Columns,
    /// The path of the last row: frames joined by `;`.
    path: String,
    /// End offset of each frame in `path`.
    ends: Vec<usize>,
}

fn begin<'o>(schema: &SchemaRef, _: &Options, out: Output<'o>) -> io::Result<Box<dyn Draw + 'o>> {
    Ok(Box::new(Folded { out, columns: Columns::of(schema), path: String::new(), ends: Vec::new() }))
}

impl Draw for Folded<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let cells = cells(batch);
        for row in 0..batch.num_rows() {
            self.ends.truncate(self.columns.depth(&cells, row));
            self.path.truncate(self.ends.last().copied().unwrap_or(0));
            self.path.extend((!self.ends.is_empty()).then_some(';'));
            match self.columns.frame(&cells, row) {
                Cell::Text(name) if !name.is_empty() => escape(name, &mut self.path),
                _ => self.path.push('-'),
            }
            self.ends.push(self.path.len());
            match self.columns.number(&cells, row) {
                0 => {}
                number => writeln!(self.out, "{} {number}", self.path)?,
            }
        }
        Ok(())
    }

    fn end(self: Box<Self>, _: &End<'_>) -> io::Result<()> {
        self.out.flush()
    }
}

/// Appends a name; characters that would end a frame or a line are escaped as `\x3b`, `\n`, `\u{1b}`.
fn escape(name: &str, path: &mut String) {
    for character in name.chars() {
        match character {
            ';' => path.push_str("\\x3b"),
            '\\' => path.push_str("\\\\"),
            '\u{2028}' | '\u{2029}' => path.extend(character.escape_unicode()),
            control if control.is_control() => path.extend(control.escape_default()),
            plain => path.push(plain),
        }
    }
}
