//! Call paths in Brendan Gregg's "folded stacks" format, the input of `flamegraph.pl`, inferno and speedscope: a line
//! such as `main;parse;read 1200` for each path with a nonzero number.
//!
//! The number comes from the first column whose name begins with `self_`, or else from the first column of integers
//! except `depth`. In a table that is not a tree, each row is a path of one frame. The first text column contains the
//! names of frames.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use hodo_model::table::{Cell, cells, metadata::ColumnMetadata};

use crate::{Draw, End, Options, Output, Reader, Several, View, tree::depth_column};

pub(crate) const VIEW: View = View {
    name: "folded",
    help: "call paths for flame graphs: `a;b;c 123`",
    reader: Reader::Programs,
    shows_loss: false,
    several: Some(Several { around: ["", "", ""], rows: None, loss_once: false }),
    begin,
};

struct Folded<'o> {
    out: Output<'o>,
    depth: Option<usize>,
    frame: Option<usize>,
    number: Option<usize>,
    /// The path of the last row: frames joined by `;`.
    path: String,
    /// End offset of each frame in `path`.
    ends: Vec<usize>,
}

fn begin<'o>(schema: &SchemaRef, _: &Options, out: Output<'o>) -> io::Result<Box<dyn Draw + 'o>> {
    let depth = depth_column(schema);
    let fields = || schema.fields().iter().enumerate();
    let integers =
        || fields().filter(|(index, field)| *field.data_type() == DataType::UInt64 && Some(*index) != depth);
    let own = integers().find(|(_, field)| field.name().starts_with("self_"));
    let number = own.or_else(|| integers().next()).map(|(index, _)| index);
    let frame = fields().find(|(_, field)| field.type_name() == "string").map(|(index, _)| index);
    Ok(Box::new(Folded { out, depth, frame, number, path: String::new(), ends: Vec::new() }))
}

impl Draw for Folded<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let columns = cells(batch);
        for row in 0..batch.num_rows() {
            let cell = |column: Option<usize>| column.map_or(Cell::Null, |column| columns[column].cell(row));
            let depth = match cell(self.depth) {
                Cell::Integer(depth) => usize::try_from(depth).unwrap_or(usize::MAX),
                _ => 0,
            };
            self.ends.truncate(depth);
            self.path.truncate(self.ends.last().copied().unwrap_or(0));
            self.path.extend((!self.ends.is_empty()).then_some(';'));
            match cell(self.frame) {
                Cell::Text(name) if !name.is_empty() => escape(name, &mut self.path),
                _ => self.path.push('-'),
            }
            self.ends.push(self.path.len());
            match cell(self.number) {
                Cell::Integer(number) if number > 0 => writeln!(self.out, "{} {number}", self.path)?,
                _ => {}
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
