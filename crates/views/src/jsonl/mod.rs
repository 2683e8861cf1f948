//! One JSON object a row.

use std::io::{self, Write};

use hodo_trace::Table;

use crate::json::write_object;
use crate::{Options, View};

pub(crate) const VIEW: View =
    View { name: "jsonl", help: "one JSON object a line, for each row", shows_loss: false, write };

fn write(table: &Table, _: &Options, out: &mut dyn Write) -> io::Result<()> {
    for row in &table.rows {
        let names = table.columns.iter().map(|column| column.name);
        write_object(names.zip(row), out)?;
        writeln!(out)?;
    }
    Ok(())
}
