//! Comma-separated values (RFC 4180, but with lines that end in LF, as Unix tools expect). Lists are JSON in a field.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hodo_model::table::{Cell, cells};

use crate::{Draw, End, Options, Output, Reader, View, json::Lines};

pub(crate) const VIEW: View = View {
    name: "csv",
    help: "comma-separated values with a header line",
    reader: Reader::Programs,
    shows_loss: false,
    several: None,
    begin,
};

struct Csv<'o>(Lines<'o>);

fn begin<'o>(schema: &SchemaRef, _: &Options, out: Output<'o>) -> io::Result<Box<dyn Draw + 'o>> {
    let mut lines = Lines::new(out);
    for (index, field) in schema.fields().iter().enumerate() {
        lines.json.extend((index > 0).then_some(b','));
        text(field.name(), &mut lines.json);
    }
    lines.json.push(b'\n');
    Ok(Box::new(Csv(lines)))
}

impl Draw for Csv<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let columns = cells(batch);
        for row in 0..batch.num_rows() {
            let line = &mut self.0.json;
            for (index, column) in columns.iter().enumerate() {
                line.extend((index > 0).then_some(b','));
                field(column.cell(row), line);
            }
            line.push(b'\n');
            self.0.flush_if_full()?;
        }
        Ok(())
    }

    fn end(mut self: Box<Self>, _: &End<'_>) -> io::Result<()> {
        self.0.end()
    }
}

/// Appends a field. An empty field means null, so empty text is quoted.
fn field(cell: Cell<'_>, line: &mut Vec<u8>) {
    match cell {
        Cell::Null => {}
        Cell::Text(content) => text(content, line),
        Cell::Real(real) if real.is_finite() => line.extend(real.to_string().as_bytes()),
        Cell::Real(_) => {}
        list @ Cell::List(_) => {
            let mut json = Vec::new();
            list.write_json(&mut json);
            text(&String::from_utf8_lossy(&json), line);
        }
        number => number.write_json(line),
    }
}

fn text(text: &str, line: &mut Vec<u8>) {
    let is_plain = !text.is_empty() && !text.bytes().any(|byte| matches!(byte, b'"' | b',' | b'\n' | b'\r'));
    if is_plain {
        return line.extend(text.as_bytes());
    }
    line.push(b'"');
    line.extend(text.replace('"', "\"\"").as_bytes());
    line.push(b'"');
}
