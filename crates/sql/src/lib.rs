//! SQL over tables: statements that read. A source makes its table only if a statement names it.
//!
//! ```text
//! SQL ──SQLite──► names of tables ──► Source::columns
//!        │    └─► columns that it reads ──► Source::table, or a file of the Cache ──► index of times, of keys
//!        └─ rows ◄── virtual table: cells of Arrow batches, in ranges of time or by equal keys
//!           └──► Table
//! ```

mod cache;
mod cells;
mod functions;
mod index;
mod keys;
mod latest_end;
mod percentile;
mod result;
mod series;
mod session;
mod statements;
mod tables;
mod virtual_table;

use std::{fmt, sync::Arc};

use hodo_model::{Column, Shape, Table, Type, Unit, Value};

pub use cache::Cache;
pub use session::Session;
pub use statements::statements;
use tables::Shared;

const READ_ONLY: &str =
    "SELECT, EXPLAIN, DESCRIBE, CREATE VIEW and DROP VIEW are accepted, and traces are never written";

/// The name of a note in the summary of a table.
const NOTE: &str = "note";

/// A table that a statement can name.
pub trait Source: Send + Sync {
    /// The name, which is compared without case.
    fn name(&self) -> &str;

    /// The columns. Only called if a statement names the table.
    ///
    /// # Errors
    /// Returns why there is no such table for these inputs.
    fn columns(&self) -> Result<Vec<Column>, String>;

    /// The rows. `read` holds a flag for each column: cells of columns that are not read may be null.
    ///
    /// # Errors
    /// Returns why the rows can't be computed.
    fn table(&self, read: &[bool]) -> Result<Table, String>;

    /// Says which columns the statement that begins reads, or that it asks for no rows. Sources that read the same inputs may
    /// make their tables together.
    fn expect(&self, _read: Option<&[bool]>) {}

    /// Whether the cells of all columns are in the table, whichever are read.
    fn has_all_columns(&self) -> bool {
        false
    }
}

/// The columns of a table in SQL: those of the source; and `end_ns`, which `*` leaves out, if the source has begins and
/// durations but no ends.
///
/// # Errors
/// As [`Source::columns`].
pub fn columns(source: &dyn Source) -> Result<Vec<Column>, String> {
    Ok(index::Layout::new(source.columns()?).columns)
}

/// Makes a table of columns, each with the name of its table.
pub fn column_list(columns: impl Iterator<Item = (String, Column)>) -> Table {
    let heading =
        vec![Column::name("table"), Column::text("column"), Column::name("type"), Column::name("unit")];
    let row = |(table, column): (String, Column)| {
        let kind = match column.kind {
            Type::Text | Type::Name => "text",
            Type::Integer => "unsigned integer",
            Type::Signed => "integer",
            Type::Real => "real",
            Type::Boolean => "boolean",
            Type::List(_) => "json",
        };
        let unit = Some(column.unit).filter(|unit| *unit != Unit::None).map(Unit::name);
        vec![Value::from(table), column.name.into(), kind.into(), unit.into()]
    };
    Table::new("tables", Shape::Counters, Vec::new(), heading, columns.map(row))
}

/// Why a statement has no result.
#[derive(Debug, PartialEq, Eq)]
pub struct Error {
    /// The reason.
    pub message: String,
    /// Where the statement is wrong, if one position is to blame.
    pub position: Option<Position>,
}

/// A position in a statement.
#[derive(Debug, PartialEq, Eq)]
pub struct Position {
    /// The statement.
    pub sql: String,
    /// Bytes before the position.
    pub offset: usize,
}

impl Error {
    fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), position: None }
    }
}

impl std::error::Error for Error {}

/// The reason, then the line of the statement with a caret below the position.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQL: {}", self.message)?;
        let Some(Position { sql, offset }) = &self.position else { return Ok(()) };
        let (before, after) = sql.split_at_checked(*offset).unwrap_or((sql, ""));
        let line_number = before.matches('\n').count() + 1;
        let line_begin = before.rsplit('\n').next().unwrap_or("");
        let width = line_begin.chars().count();
        write!(f, ", at line {line_number}, character {}:\n  {line_begin}", width + 1)?;
        write!(f, "{}\n  {:width$}^", after.lines().next().unwrap_or(""), "")
    }
}

/// Converts an error of SQLite.
fn explained(sql: &str, error: &rusqlite::Error, tables: &[Arc<Shared>]) -> Error {
    if let Some(failure) = tables.iter().find_map(|table| table.failure()) {
        return Error::new(failure);
    }
    match error {
        rusqlite::Error::SqlInputError { msg, .. } | rusqlite::Error::SqliteFailure(_, Some(msg))
            if msg.ends_with("may not be modified") =>
        {
            Error::new(format!("{msg}: {READ_ONLY}"))
        }
        rusqlite::Error::SqlInputError { msg, offset, .. } => {
            // SQLite's offset is -1 if it knows none.
            let position =
                usize::try_from(*offset).ok().map(|offset| Position { sql: sql.to_owned(), offset });
            Error { message: format!("{msg}{}", hint(msg)), position }
        }
        rusqlite::Error::SqliteFailure(_, Some(message)) => Error::new(format!("{message}{}", hint(message))),
        rusqlite::Error::InvalidQuery => Error::new(READ_ONLY),
        rusqlite::Error::Empty => Error::new("there is no statement"),
        other => Error::new(other.to_string()),
    }
}

fn hint(message: &str) -> &'static str {
    if message.starts_with("no such table") { "; `--tables` lists the tables" } else { "" }
}

#[cfg(test)]
mod tests;
