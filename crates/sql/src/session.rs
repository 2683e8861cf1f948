//! Statements, one after the other, over the same tables.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use hodo_model::{Loss, Table, Value};
use rusqlite::{
    Connection,
    hooks::{AuthAction, AuthContext, Authorization},
};

use crate::{
    Error, NOTE, Position, READ_ONLY, Source, column_list, columns, explained, functions, result, series,
    statements::{first_word, statements},
    tables::{Shared, Tables},
    virtual_table,
};

/// Instructions of SQLite's virtual machine between two checks of `stop`.
const STOP_INTERVAL: i32 = 10_000;

/// Tables and views that statements can name. A table stays computed, so that later statements find it ready.
pub struct Session {
    connection: Connection,
    tables: Arc<Tables>,
    /// What the last statement may not do.
    refused: Arc<Mutex<Option<String>>>,
    stop: Arc<AtomicBool>,
}

impl Session {
    /// Begins a session. Its statements end when `stop` is set.
    ///
    /// # Errors
    /// If SQLite can't register a table.
    pub fn new(
        sources: impl IntoIterator<Item = Arc<dyn Source>>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Session, Error> {
        let tables = Arc::new(Tables::new(sources));
        let (refused, flag) = (Arc::new(Mutex::new(None)), Arc::clone(stop));
        let guard = Guard { tables: Arc::clone(&tables), refused: Arc::clone(&refused) };
        let begin = || {
            let mut connection = Connection::open_in_memory()?;
            functions::register(&connection)?;
            series::register(&connection)?;
            for table in tables.iter() {
                virtual_table::register(&connection, &tables, table)?;
            }
            connection.progress_handler(STOP_INTERVAL, Some(move || flag.load(Relaxed)))?;
            connection.authorizer(Some(move |context: AuthContext<'_>| guard.allows(&context)))?;
            Ok(connection)
        };
        let connection = begin().map_err(|error: rusqlite::Error| Error::new(error.to_string()))?;
        Ok(Session { connection, tables, refused, stop: Arc::clone(stop) })
    }

    /// Runs statements, and returns a table for each that has rows, with at most `limit` of them and with the losses of
    /// the tables that it reads; `None` if `stop` was set.
    ///
    /// A result column that is a column of a source keeps its type and its unit. Of others, SQLite's values decide:
    /// integers, real numbers or text. Integers from 2⁶³ on are negative within a statement, as SQLite's own hexadecimal
    /// literals are.
    ///
    /// # Errors
    /// Returns an error for a statement that is wrong or does more than read, and for tables that can't be computed.
    /// Views of the statements before it stay.
    pub fn run(&self, sql: &str, limit: Option<u64>) -> Result<Option<Vec<Table>>, Error> {
        let places = statements(sql);
        if places.is_empty() {
            return Err(Error::new("there is no statement"));
        }
        let mut results = Vec::new();
        for place in places {
            let outcome = self.statement(&sql[place.clone()], limit);
            if self.stop.load(Relaxed) {
                return Ok(None);
            }
            // A position counts from the begin of the whole text.
            results.extend(outcome.map_err(|mut error| {
                if let Some(Position { sql: whole, offset }) = &mut error.position {
                    (*whole, *offset) = (sql.to_owned(), *offset + place.start);
                }
                error
            })?);
        }
        Ok(Some(results))
    }

    /// The names of all tables and views.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tables.iter().map(|table| table.name().to_owned()).collect();
        let views = "select name from sqlite_schema union all select name from sqlite_temp_schema";
        if let Ok(mut statement) = self.connection.prepare(views)
            && let Ok(views) = statement.query_map([], |row| row.get(0))
        {
            names.extend(views.filter_map(Result::ok));
        }
        names
    }

    /// The names of the columns of a table that a statement has named, or of a view.
    pub fn known_columns(&self, table: &str) -> Vec<String> {
        if let Some(known) = self.tables.iter().find(|known| known.is_named(table)) {
            return known.columns().iter().map(|column| column.name.to_owned()).collect();
        }
        let view = format!("select * from \"{}\" limit 0", table.replace('"', "\"\""));
        let prepared = self.connection.prepare(&view);
        prepared.map_or_else(|_| Vec::new(), |view| view.column_names().map(ToString::to_string).collect())
    }

    fn statement(&self, sql: &str, limit: Option<u64>) -> Result<Option<Table>, Error> {
        self.tables.begin_statement();
        if let Ok(mut refused) = self.refused.lock() {
            *refused = None;
        }
        if first_word(sql) == "describe" {
            return self.describe(&sql["describe".len()..]).map(Some);
        }
        self.tables.iter().for_each(|table| table.set_runs(true));
        let result = result::run(&self.connection, sql, limit, &self.tables);
        self.tables.iter().for_each(|table| table.set_runs(false));
        let refused = self.refused.lock().ok().and_then(|mut refused| refused.take());
        match (result, refused) {
            (Ok(table), _) => Ok(table.map(|mut table| {
                table.summary.extend(notes(&self.tables));
                table.with_loss(losses(&self.tables))
            })),
            (Err(_), Some(action)) => Err(Error::new(format!("{action} is refused: {READ_ONLY}"))),
            (Err(error), None) => Err(explained(sql, &error, &self.tables)),
        }
    }

    /// The columns of a table or view.
    fn describe(&self, name: &str) -> Result<Table, Error> {
        let name = name.trim();
        let unquoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        let name = unquoted.map_or_else(|| name.to_owned(), |name| name.replace("\"\"", "\""));
        let columns = match self.tables.iter().find(|table| table.is_named(&name)) {
            Some(table) => columns(table.source()).map_err(Error::new)?,
            None => {
                let view = format!("select * from \"{}\"", name.replace('"', "\"\""));
                let none = Some(0);
                let table = result::run(&self.connection, &view, none, &self.tables);
                let missing = || Error::new(format!("no such table: {name}; `--tables` lists the tables"));
                table.ok().flatten().ok_or_else(missing)?.columns().to_vec()
            }
        };
        Ok(column_list(columns.into_iter().map(|column| (name.clone(), column))))
    }
}

/// The losses of the tables that a statement read, each once.
fn losses(tables: &[Arc<Shared>]) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for rows in tables.iter().filter_map(|table| table.used()) {
        for loss in &rows.table.loss {
            if !losses.contains(loss) {
                losses.push(loss.clone());
            }
        }
    }
    losses
}

/// The notes of the tables that a statement read, such as "the 1,000 longest only", each with the name of its table.
fn notes(tables: &[Arc<Shared>]) -> Vec<(&'static str, Value)> {
    let mut notes = Vec::new();
    for (table, rows) in tables.iter().filter_map(|table| Some((table, table.used()?))) {
        for (name, value) in rows.table.summary.iter().filter(|(name, _)| *name == NOTE) {
            if let Value::Text(text) = value {
                notes.push((*name, format!("{}: {text}", table.name()).into()));
            }
        }
    }
    notes
}

/// Decides what a statement may do, and notes the columns that it reads.
struct Guard {
    tables: Arc<Tables>,
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
            AuthAction::CreateView { .. }
            | AuthAction::CreateTempView { .. }
            | AuthAction::DropView { .. }
            | AuthAction::DropTempView { .. } => return Authorization::Allow,
            // Views are rows of these tables, which SQLite lets no statement write directly.
            AuthAction::Insert { table_name }
            | AuthAction::Delete { table_name }
            | AuthAction::Update { table_name, .. }
                if is_schema(table_name) =>
            {
                return Authorization::Allow;
            }
            // Dropping a view asks for the deletion of its rows.
            AuthAction::Delete { table_name }
                if self.tables.iter().all(|table| !table.is_named(table_name)) =>
            {
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

fn is_schema(table: &str) -> bool {
    ["sqlite_master", "sqlite_temp_master", "sqlite_schema", "sqlite_temp_schema"].contains(&table)
}
