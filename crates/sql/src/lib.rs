//! SQL over tables: one statement that reads. A source makes its table only if the statement names it.
//!
//! ```text
//! SQL ──SQLite──► names of tables ──► Source::columns
//!        │    └─► columns that it reads ──► Source::table ──► index of times, of keys
//!        └─ rows ◄── virtual table: cells of Arrow batches, in ranges of time or by equal keys
//!           └──► Table
//! ```

mod functions;
mod index;
mod result;
mod virtual_table;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use hodo_model::{Column, Loss, Table, Value};
use rusqlite::{
    Connection,
    hooks::{AuthAction, AuthContext, Authorization},
};

use virtual_table::Shared;

/// Instructions of SQLite's virtual machine between two checks of `stop`.
const STOP_INTERVAL: i32 = 10_000;

const READ_ONLY: &str =
    "only one SELECT, EXPLAIN or DESCRIBE statement is accepted, and traces are never written";

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
}

/// The columns of a table in SQL: those of the source; and `end_ns`, which `*` leaves out, if the source has begins and
/// durations but no ends.
///
/// # Errors
/// As [`Source::columns`].
pub fn columns(source: &dyn Source) -> Result<Vec<Column>, String> {
    Ok(index::Layout::new(source.columns()?).columns)
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

/// Runs a statement and returns at most `limit` of its rows, and the losses of the tables that it reads; `None` if `stop`
/// was set.
///
/// A result column that is a column of a source keeps its type and its unit. Of others, SQLite's values decide: integers,
/// real numbers or text. Integers from 2⁶³ on are negative within a statement, as SQLite's own hexadecimal literals are.
///
/// # Errors
/// Returns an error for a statement that is wrong or does more than read, and for tables that can't be computed.
pub fn query(
    sql: &str,
    sources: impl IntoIterator<Item = Arc<dyn Source>>,
    limit: Option<u64>,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Table>, Error> {
    let mut connection = Connection::open_in_memory().map_err(|error| Error::new(error.to_string()))?;
    let mut all = Vec::new();
    let registered = (|| {
        functions::register(&connection)?;
        virtual_table::register_series(&connection)?;
        for source in sources {
            all.push(Arc::new(Shared::new(source)));
        }
        for shared in &all {
            virtual_table::register(&connection, shared)?;
        }
        let stop = Arc::clone(stop);
        connection.progress_handler(STOP_INTERVAL, Some(move || stop.load(Relaxed)))
    })();
    registered.map_err(|error| explained(sql, &error, &all))?;
    let refused = Arc::new(Mutex::new(None));
    let guard = Guard { tables: all.clone(), refused: Arc::clone(&refused) };
    let authorize = move |context: AuthContext<'_>| guard.allows(&context);
    connection.authorizer(Some(authorize)).map_err(|error| explained(sql, &error, &all))?;
    let result = result::run(&connection, sql, limit, &all);
    let refused = refused.lock().ok().and_then(|mut refused| refused.take());
    match (result, refused) {
        _ if stop.load(Relaxed) => Ok(None),
        (Ok(mut table), _) => {
            table.summary.extend(notes(&all));
            Ok(Some(table.with_loss(losses(&all))))
        }
        (Err(_), Some(action)) => Err(Error::new(format!("{action} is refused: {READ_ONLY}"))),
        (Err(error), None) => Err(explained(sql, &error, &all)),
    }
}

/// The losses of the tables that were computed, each once.
fn losses(tables: &[Arc<Shared>]) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for loss in tables.iter().flat_map(|table| table.loss()) {
        if !losses.contains(loss) {
            losses.push(loss.clone());
        }
    }
    losses
}

/// The notes of the tables that were computed, such as "the 1,000 longest only", each with the name of its table.
fn notes(tables: &[Arc<Shared>]) -> Vec<(&'static str, Value)> {
    let mut notes = Vec::new();
    for table in tables {
        for (name, value) in table.summary().iter().filter(|(name, _)| *name == NOTE) {
            if let Value::Text(text) = value {
                notes.push((*name, format!("{}: {text}", table.name()).into()));
            }
        }
    }
    notes
}

/// Decides what a statement may do, and notes the columns that it reads.
struct Guard {
    tables: Vec<Arc<Shared>>,
    refused: Arc<Mutex<Option<String>>>,
}

impl Guard {
    fn allows(&self, context: &AuthContext<'_>) -> Authorization {
        let action = match context.action {
            AuthAction::Read { table_name, column_name } => {
                for table in self.tables.iter().filter(|table| table.is_named(table_name)) {
                    table.note_read(column_name);
                }
                return Authorization::Allow;
            }
            AuthAction::Function { function_name: "load_extension" } => "load_extension".to_owned(),
            AuthAction::Select | AuthAction::Recursive | AuthAction::Function { .. } => {
                return Authorization::Allow;
            }
            other => {
                // The name of the variant, such as `Insert` of `Insert { table_name: … }`.
                let text = format!("{other:?}");
                text.split([' ', '{']).next().unwrap_or_default().to_uppercase()
            }
        };
        if let Ok(mut refused) = self.refused.lock() {
            refused.get_or_insert(action);
        }
        Authorization::Deny
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
        rusqlite::Error::MultipleStatement => Error::new("more than one statement"),
        rusqlite::Error::Empty => Error::new("there is no statement"),
        other => Error::new(other.to_string()),
    }
}

fn hint(message: &str) -> &'static str {
    if message.starts_with("no such table") { "; `--tables` lists the tables" } else { "" }
}

#[cfg(test)]
mod tests;
