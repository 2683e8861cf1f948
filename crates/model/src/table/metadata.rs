//! Metadata of a table's Arrow schema, besides names and types.
//!
//! | key | of | value |
//! |---|---|---|
//! | `hodo.unit` | a field | [`Unit::name`]: the unit of its numbers; absent if none |
//! | `hodo.secondary` | a field | `true` if a narrow view may drop it; else absent |
//! | `hodo.table` | the schema | the table's name |
//! | `hodo.shape` | the schema | [`Shape::name`] |
//! | `hodo.summary` | the schema | JSON: an object of the summary's figures, in order |
//! | `hodo.loss` | the schema | JSON: a list of losses, as in `--format json` |
//!
//! The last two are known once all rows are. The schema of a [`Table`](super::Table) has them; the schema of a table
//! that is written batch by batch does not, and files have them in their footer.

use arrow_schema::{DataType, Field, Schema};

use super::{Shape, Summary, Unit, Value, cell::write_text};
use crate::Loss;

/// The key of a field's unit.
pub const UNIT: &str = "hodo.unit";
/// The key that marks droppable fields.
pub const SECONDARY: &str = "hodo.secondary";
/// The key of a table's name.
pub const TABLE: &str = "hodo.table";
/// The key of a table's shape.
pub const SHAPE: &str = "hodo.shape";
/// The key of a table's summary.
pub const SUMMARY: &str = "hodo.summary";
/// The key of a table's losses.
pub const LOSS: &str = "hodo.loss";

/// Typed access to the metadata of a table's schema.
pub trait TableMetadata {
    /// The table's name; empty if the schema has none.
    fn table_name(&self) -> &str;
    /// The table's shape.
    fn shape(&self) -> Shape;
    /// The summary as JSON, if it was known before the rows were written.
    fn summary_json(&self) -> Option<&str>;
}

impl TableMetadata for Schema {
    fn table_name(&self) -> &str {
        self.metadata.get(TABLE).map_or("", String::as_str)
    }

    fn shape(&self) -> Shape {
        Shape::of_name(self.metadata.get(SHAPE).map_or("", String::as_str))
    }

    fn summary_json(&self) -> Option<&str> {
        self.metadata.get(SUMMARY).map(String::as_str)
    }
}

/// Typed access to the metadata of a column's field.
pub trait ColumnMetadata {
    /// The unit of its numbers.
    fn unit(&self) -> Unit;
    /// Whether a narrow view may drop it.
    fn is_secondary(&self) -> bool;
    /// The type's name in JSON: `string`, `integer`, `number`, `boolean` or `list`.
    fn type_name(&self) -> &'static str;
}

impl ColumnMetadata for Field {
    fn unit(&self) -> Unit {
        self.metadata().get(UNIT).map_or(Unit::None, |name| Unit::of_name(name))
    }

    fn is_secondary(&self) -> bool {
        self.metadata().contains_key(SECONDARY)
    }

    fn type_name(&self) -> &'static str {
        match self.data_type() {
            DataType::UInt64 | DataType::Int64 => "integer",
            DataType::Float64 => "number",
            DataType::Boolean => "boolean",
            DataType::List(_) => "list",
            _ => "string",
        }
    }
}

/// Formats a summary as a JSON object, its figures in order.
pub fn summary_json(summary: &Summary) -> String {
    let mut json = b"{".to_vec();
    for (index, (name, value)) in summary.iter().enumerate() {
        json.extend((index > 0).then_some(b','));
        member(name, value, &mut json);
    }
    json.push(b'}');
    text(json)
}

/// Formats losses as a JSON list of objects, one per line.
pub fn loss_json(losses: &[Loss]) -> String {
    let mut json = b"[".to_vec();
    for (index, loss) in losses.iter().enumerate() {
        json.extend(if index == 0 { &b"\n"[..] } else { b",\n" });
        let bytes = Some(&loss.bytes).filter(|bytes| !bytes.is_empty());
        let members = [
            ("stream", Value::from(loss.stream.as_str())),
            ("cause", Value::from(loss.cause.name())),
            ("count", Value::from(loss.count)),
            ("begin_ns", Value::from(loss.time.map(|(begin, _)| begin.0))),
            ("end_ns", Value::from(loss.time.map(|(_, end)| end.0))),
            ("begin_byte", Value::from(bytes.map(|bytes| bytes.start))),
            ("end_byte", Value::from(bytes.map(|bytes| bytes.end))),
            ("detail", Value::from(loss.detail.as_str())),
        ];
        for (index, (name, value)) in members.iter().enumerate() {
            json.push(if index == 0 { b'{' } else { b',' });
            member(name, value, &mut json);
        }
        json.push(b'}');
    }
    json.push(b']');
    text(json)
}

fn member(name: &str, value: &Value, json: &mut Vec<u8>) {
    write_text(name, json);
    json.push(b':');
    value.cell().write_json(json);
}

fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).expect("JSON of text is text")
}
