//! One JSON object per row.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hodo_model::table::{Cell, cells};

use crate::{Draw, End, Options, Output, Reader, View, json::Lines};

pub(crate) const VIEW: View = View {
    name: "jsonl",
    help: "one JSON object per row, each on its own line",
    reader: Reader::Programs,
    shows_loss: false,
    several: None,
    begin,
};

struct JsonLines<'o> {
    lines: Lines<'o>,
    /// The text before each column's value.
    keys: Vec<Vec<u8>>,
}

fn begin<'o>(schema: &SchemaRef, _: &Options, out: Output<'o>) -> io::Result<Box<dyn Draw + 'o>> {
    let key = |(index, name): (usize, &str)| {
        let mut key = vec![if index == 0 { b'{' } else { b',' }];
        Cell::Text(name).write_json(&mut key);
        key.push(b':');
        key
    };
    let keys = schema.fields().iter().map(|field| field.name().as_str()).enumerate().map(key).collect();
    Ok(Box::new(JsonLines { lines: Lines::new(out), keys }))
}

impl Draw for JsonLines<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let columns = cells(batch);
        for row in 0..batch.num_rows() {
            let json = &mut self.lines.json;
            for (column, key) in columns.iter().zip(&self.keys) {
                json.extend_from_slice(key);
                column.cell(row).write_json(json);
            }
            json.extend(if columns.is_empty() { &b"{}\n"[..] } else { b"}\n" });
            self.lines.flush_if_full()?;
        }
        Ok(())
    }

    fn end(mut self: Box<Self>, _: &End<'_>) -> io::Result<()> {
        self.lines.end()
    }
}
