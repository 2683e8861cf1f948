//! The rows of a statement as a table.

use std::sync::Arc;

use hodo_model::{Column, Shape, Table, TableBuilder, Type, Unit, Value, table::interned};
use rusqlite::{Connection, Error, Result, types::ValueRef};

use crate::{statements::first_word, tables::Shared};

/// The values of a result column so far.
enum Growing {
    /// Only nulls.
    Nulls(usize),
    Integers(Vec<Option<i64>>),
    Reals(Vec<Option<f64>>),
    Texts(Vec<Option<String>>),
}

impl Growing {
    /// Adds a value. A column of several types becomes real numbers if all are numbers, and text otherwise.
    fn push(&mut self, value: ValueRef<'_>) {
        match (&mut *self, value) {
            (Growing::Nulls(count), ValueRef::Null) => *count += 1,
            (Growing::Integers(cells), ValueRef::Null) => cells.push(None),
            (Growing::Reals(cells), ValueRef::Null) => cells.push(None),
            (Growing::Texts(cells), ValueRef::Null) => cells.push(None),
            (Growing::Integers(cells), ValueRef::Integer(integer)) => cells.push(Some(integer)),
            (Growing::Reals(cells), ValueRef::Integer(integer)) => cells.push(Some(integer as f64)),
            (Growing::Reals(cells), ValueRef::Real(real)) => cells.push(Some(real)),
            (Growing::Texts(cells), value) => cells.push(Some(text(value))),
            (Growing::Nulls(count), value) => {
                let count = *count;
                *self = match value {
                    ValueRef::Integer(_) => Growing::Integers(vec![None; count]),
                    ValueRef::Real(_) => Growing::Reals(vec![None; count]),
                    _ => Growing::Texts(vec![None; count]),
                };
                self.push(value);
            }
            (Growing::Integers(cells), ValueRef::Real(_)) => {
                *self = Growing::Reals(cells.iter().map(|cell| cell.map(|integer| integer as f64)).collect());
                self.push(value);
            }
            (Growing::Integers(cells), _) => {
                let texts = cells.iter().map(|cell| cell.map(|integer| integer.to_string()));
                *self = Growing::Texts(texts.collect());
                self.push(value);
            }
            (Growing::Reals(cells), _) => {
                let texts = cells.iter().map(|cell| cell.map(|real| real.to_string()));
                *self = Growing::Texts(texts.collect());
                self.push(value);
            }
        }
    }

    /// The column: of the type and unit of its origin, the column of a source, if the values fit that type.
    fn column(&self, name: &str, origin: Option<Column>) -> Column {
        let kind = match (self, origin.map(|origin| origin.kind)) {
            (Growing::Nulls(_), Some(Type::List(_))) | (Growing::Texts(_), _) => Type::Text,
            (Growing::Nulls(_), Some(kind)) => kind,
            (Growing::Nulls(_), None) => Type::Text,
            (Growing::Integers(_), Some(kind @ (Type::Integer | Type::Boolean))) => kind,
            (Growing::Integers(_), _) => Type::Signed,
            (Growing::Reals(_), _) => Type::Real,
        };
        let unit = origin.map_or(Unit::None, |origin| origin.unit);
        Column { name: interned(name), kind, unit, secondary: false }
    }

    fn value(&self, row: usize, kind: Type) -> Value {
        match (self, kind) {
            (Growing::Nulls(_), _) => Value::Null,
            (Growing::Integers(cells), Type::Integer) => cells[row].map(|integer| integer as u64).into(),
            (Growing::Integers(cells), Type::Boolean) => cells[row].map(|integer| integer != 0).into(),
            (Growing::Integers(cells), _) => cells[row].into(),
            (Growing::Reals(cells), _) => cells[row].into(),
            (Growing::Texts(cells), _) => cells[row].clone().into(),
        }
    }
}

/// A value as text; bytes are in hexadecimal.
fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(integer) => integer.to_string(),
        ValueRef::Real(real) => real.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// Runs a statement and returns at most `limit` of its rows; `None` for a statement without rows, such as CREATE VIEW.
pub(crate) fn run(
    connection: &Connection,
    sql: &str,
    limit: Option<u64>,
    tables: &[Arc<Shared>],
) -> Result<Option<Table>> {
    let mut statement = connection.prepare(sql)?;
    // Of these, only those of views pass the authorizer; statements such as VACUUM do not ask it.
    if ["create", "drop"].contains(&first_word(sql).as_str()) {
        statement.execute([])?;
        return Ok(None);
    }
    if statement.column_count() == 0 || !statement.readonly() {
        return Err(Error::InvalidQuery);
    }
    let origin = |table: Option<&str>, column: Option<&str>| {
        let table = tables.iter().find(|known| table.is_some_and(|table| known.is_named(table)))?;
        table.columns().iter().copied().find(|known| Some(known.name) == column)
    };
    let mut columns: Vec<(String, Option<Column>)> = Vec::new();
    for column in statement.columns_with_metadata() {
        columns.push((column.name().to_owned(), origin(column.table_name(), column.origin_name())));
    }
    let mut growing: Vec<Growing> = columns.iter().map(|_| Growing::Nulls(0)).collect();
    let mut count: usize = 0;
    let mut rows = statement.query([])?;
    while limit.is_none_or(|limit| (count as u64) < limit) {
        let Some(row) = rows.next()? else { break };
        count += 1;
        for (index, growing) in growing.iter_mut().enumerate() {
            growing.push(row.get_ref(index)?);
        }
    }
    Ok(Some(table(&columns, &growing, count)))
}

/// Makes the table of these columns, each a name and the column of a source that it comes from.
fn table(names: &[(String, Option<Column>)], growing: &[Growing], count: usize) -> Table {
    let mut columns: Vec<Column> = Vec::new();
    for ((name, origin), growing) in names.iter().zip(growing) {
        // Arrow's readers need distinct names.
        let mut distinct = name.clone();
        let mut number = 1;
        while columns.iter().any(|column| column.name == distinct) {
            number += 1;
            distinct = format!("{name}_{number}");
        }
        columns.push(growing.column(&distinct, *origin));
    }
    let mut builder = TableBuilder::new("sql", Shape::Counters, columns.clone());
    for row in 0..count {
        let values: Vec<Value> =
            growing.iter().zip(&columns).map(|(growing, column)| growing.value(row, column.kind)).collect();
        builder.row(values.iter().map(Value::cell));
    }
    builder.finish(vec![("rows", Value::Integer(count as u64))])
}
