//! One JSON object for the whole table, with exact integers and one row per line.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::{Field, SchemaRef};
use hodo_model::table::{
    Cell, cells,
    metadata::{ColumnMetadata, TableMetadata, loss_json, summary_json},
};

use crate::{Draw, End, Options, Output, Reader, Several, View};

pub(crate) const VIEW: View = View {
    name: "json",
    help: "one JSON object: table, summary, columns, rows, loss",
    reader: Reader::ProgramsOfJson,
    shows_loss: true,
    several: Some(Several { around: ["[", ",\n", "]\n"], rows: None, loss_once: false }),
    begin,
};

/// Buffer size in bytes at which lines are written.
const BUFFER: usize = 1 << 15;

/// A buffer of JSON lines.
pub(crate) struct Lines<'o> {
    pub(crate) json: Vec<u8>,
    out: Output<'o>,
}

impl<'o> Lines<'o> {
    pub(crate) fn new(out: Output<'o>) -> Lines<'o> {
        Lines { json: Vec::with_capacity(2 * BUFFER), out }
    }

    /// Writes the buffered lines if the buffer is full.
    pub(crate) fn flush_if_full(&mut self) -> io::Result<()> {
        if self.json.len() < BUFFER { Ok(()) } else { self.end() }
    }

    /// Writes all buffered lines.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.out.write_all(&self.json)?;
        self.json.clear();
        Ok(())
    }
}

struct Json<'o> {
    lines: Lines<'o>,
    has_rows: bool,
    has_summary: bool,
}

fn begin<'o>(schema: &SchemaRef, _: &Options, out: Output<'o>) -> io::Result<Box<dyn Draw + 'o>> {
    let mut lines = Lines::new(out);
    let json = &mut lines.json;
    json.extend(b"{\"table\":");
    Cell::Text(schema.table_name()).write_json(json);
    let summary = schema.summary_json();
    summary.into_iter().for_each(|summary| member("summary", summary, json));
    json.extend(b",\n\"columns\":[");
    for (index, field) in schema.fields().iter().enumerate() {
        json.extend(if index == 0 { &b"\n"[..] } else { b",\n" });
        column(field, json);
    }
    json.extend(b"],\n\"rows\":[");
    Ok(Box::new(Json { lines, has_rows: false, has_summary: summary.is_some() }))
}

fn column(field: &Field, json: &mut Vec<u8>) {
    json.extend(b"{\"name\":");
    Cell::Text(field.name()).write_json(json);
    json.extend(b",\"type\":");
    Cell::Text(field.type_name()).write_json(json);
    json.extend(b",\"unit\":");
    Cell::Text(field.unit().name()).write_json(json);
    json.push(b'}');
}

fn member(name: &str, value: &str, json: &mut Vec<u8>) {
    json.extend(b",\n");
    Cell::Text(name).write_json(json);
    json.push(b':');
    json.extend(value.as_bytes());
}

impl Draw for Json<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let columns = cells(batch);
        for row in 0..batch.num_rows() {
            let json = &mut self.lines.json;
            json.extend(if self.has_rows { &b",\n["[..] } else { b"\n[" });
            self.has_rows = true;
            for (index, column) in columns.iter().enumerate() {
                json.extend((index > 0).then_some(b','));
                column.cell(row).write_json(json);
            }
            json.push(b']');
            self.lines.flush_if_full()?;
        }
        Ok(())
    }

    fn end(mut self: Box<Self>, end: &End<'_>) -> io::Result<()> {
        let json = &mut self.lines.json;
        json.push(b']');
        if !self.has_summary {
            member("summary", &summary_json(end.summary), json);
        }
        member("loss", &loss_json(end.loss), json);
        json.extend(b"}\n");
        self.lines.end()
    }
}
