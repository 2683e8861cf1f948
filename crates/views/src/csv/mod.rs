//! Comma-separated values (RFC 4180, with lines that end in LF as Unix tools expect them).

use std::io::{self, Write};

use hodo_trace::{Table, Value};

use crate::{Options, View};

pub(crate) const VIEW: View =
    View { name: "csv", help: "comma-separated values with a header line", shows_loss: false, write };

fn write(table: &Table, _: &Options, out: &mut dyn Write) -> io::Result<()> {
    write_line(table.columns.iter().map(|column| column.name.to_owned()), out)?;
    for row in &table.rows {
        write_line(row.iter().map(field), out)?;
    }
    Ok(())
}

fn write_line(fields: impl Iterator<Item = String>, out: &mut dyn Write) -> io::Result<()> {
    for (index, field) in fields.enumerate() {
        write!(out, "{}{field}", if index > 0 { "," } else { "" })?;
    }
    writeln!(out)
}

/// A field; nothing between the commas means null, so the empty text needs its quotes.
fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Text(text) if text.is_empty() || text.contains(['"', ',', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::Text(text) => text.clone(),
        Value::Integer(integer) => integer.to_string(),
        Value::Real(real) if real.is_finite() => real.to_string(),
        Value::Real(_) => String::new(),
    }
}
