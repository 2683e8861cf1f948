//! One JSON object for the whole table; every integer exact, one row a line.

use std::io::{self, Write};

use hodo_trace::{Loss, Table, Value};
use serde_json::to_writer;

use crate::{Options, View};

pub(crate) const VIEW: View = View {
    name: "json",
    help: "one JSON object: table, summary, columns, rows, loss",
    shows_loss: true,
    write,
};

fn write(table: &Table, _: &Options, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"table\":")?;
    to_writer(&mut *out, table.name)?;
    write!(out, ",\n\"summary\":")?;
    write_object(table.summary.iter().map(|(name, value)| (*name, value)), out)?;
    write!(out, ",\n\"columns\":")?;
    write_list(&table.columns, out, |column, out| {
        let [name, kind, unit] = [column.name, column.kind, column.unit.name()].map(Value::from);
        write_object([("name", &name), ("type", &kind), ("unit", &unit)].into_iter(), out)
    })?;
    write!(out, ",\n\"rows\":")?;
    write_list(&table.rows, out, |row, out| {
        let mut separator = "[";
        for value in row {
            write!(out, "{separator}")?;
            write_value(value, out)?;
            separator = ",";
        }
        write!(out, "{}", if row.is_empty() { "[]" } else { "]" })
    })?;
    write!(out, ",\n\"loss\":")?;
    write_list(&table.loss, out, write_loss)?;
    writeln!(out, "}}")
}

/// One item a line, between brackets.
fn write_list<Item>(
    items: &[Item],
    out: &mut dyn Write,
    write_item: impl Fn(&Item, &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write!(out, "[")?;
    for (index, item) in items.iter().enumerate() {
        write!(out, "{}", if index == 0 { "\n" } else { ",\n" })?;
        write_item(item, out)?;
    }
    write!(out, "]")
}

/// An object with its members in the given order.
pub(crate) fn write_object<'a>(
    members: impl Iterator<Item = (&'a str, &'a Value)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(out, "{{")?;
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            write!(out, ",")?;
        }
        to_writer(&mut *out, name)?;
        write!(out, ":")?;
        write_value(value, out)?;
    }
    write!(out, "}}")
}

/// JSON has no infinities and no "not a number"; they become null.
fn write_value(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    match value {
        Value::Null => write!(out, "null"),
        Value::Text(text) => Ok(to_writer(out, text)?),
        Value::Integer(integer) => write!(out, "{integer}"),
        Value::Real(real) => Ok(to_writer(out, real)?),
    }
}

fn write_loss(loss: &Loss, out: &mut dyn Write) -> io::Result<()> {
    let known = |value: Option<u64>| value.map_or(Value::Null, Value::Integer);
    let bytes = Some(&loss.bytes).filter(|bytes| !bytes.is_empty());
    let members = [
        ("stream", Value::from(loss.stream.as_str())),
        ("cause", Value::from(loss.cause.name())),
        ("count", Value::from(loss.count)),
        ("begin_ns", known(loss.time.map(|(begin, _)| begin.0))),
        ("end_ns", known(loss.time.map(|(_, end)| end.0))),
        ("begin_byte", known(bytes.map(|bytes| bytes.start))),
        ("end_byte", known(bytes.map(|bytes| bytes.end))),
        ("detail", Value::from(loss.detail.as_str())),
    ];
    write_object(members.iter().map(|(name, value)| (*name, value)), out)
}
