//! Tables as SQLite's virtual tables.

#![allow(unsafe_code, reason = "SQLite's traits are unsafe to implement")]

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{CStr, CString, c_int},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use hodo_model::{
    Column, Loss, Type, Value,
    table::{Cell, Cells},
};
use rusqlite::{
    Connection, Error, Result,
    types::{ToSqlOutput, ValueRef},
    vtab::{
        Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
        sqlite3_vtab, sqlite3_vtab_cursor,
    },
};

use crate::{
    Source,
    index::{Bounds, Key, Layout, RowRange, Rows, is_key},
};

/// Rows that a table is assumed to have before it is computed.
const ASSUMED_ROWS: f64 = 1e6;
/// Which share of a table's rows SQLite's planner is to expect: between two bounds, and beyond one bound.
const SHARE_BETWEEN: f64 = 0.01;
const SHARE_BEYOND: f64 = 0.3;
/// The cost of a lookup besides its rows, in rows.
const LOOKUP_COST: f64 = 10.0;

/// A table, shared by all its uses in a statement.
pub(crate) struct Shared {
    source: Arc<dyn Source>,
    layout: OnceLock<Result<Layout, String>>,
    /// By column, up to the most that SQLite supports: whether the statement reads it.
    read: Vec<AtomicBool>,
    rows: OnceLock<Result<Rows, String>>,
}

/// The most columns of a table in SQLite.
const MOST_COLUMNS: usize = 2000;

impl Shared {
    pub(crate) fn new(source: Arc<dyn Source>) -> Shared {
        let read = (0..MOST_COLUMNS).map(|_| AtomicBool::new(false)).collect();
        Shared { source, layout: OnceLock::new(), read, rows: OnceLock::new() }
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.source.name().eq_ignore_ascii_case(name)
    }

    /// The columns, once the statement named the table.
    pub(crate) fn columns(&self) -> &[Column] {
        self.layout().map_or(&[], |layout| &layout.columns)
    }

    fn layout(&self) -> Option<&Layout> {
        self.layout.get()?.as_ref().ok()
    }

    /// Notes that the statement reads a column.
    pub(crate) fn note_read(&self, name: &str) {
        let index = self.columns().iter().position(|column| column.name.eq_ignore_ascii_case(name));
        let computed = self.layout().filter(|layout| index.is_some_and(|index| layout.is_computed(index)));
        let needed = computed.map_or([index, None], |layout| [layout.begin, layout.duration]);
        for read in needed.into_iter().flatten().filter_map(|index| self.read.get(index)) {
            read.store(true, Relaxed);
        }
    }

    /// Why the table can't be computed.
    pub(crate) fn failure(&self) -> Option<String> {
        let layout = self.layout.get().and_then(|layout| layout.as_ref().err());
        layout.or_else(|| self.rows.get()?.as_ref().err()).cloned()
    }

    pub(crate) fn name(&self) -> &str {
        self.source.name()
    }

    /// The figures of the whole table, if it was computed.
    pub(crate) fn summary(&self) -> &[(&'static str, Value)] {
        match self.rows.get() {
            Some(Ok(rows)) => &rows.table.summary,
            _ => &[],
        }
    }

    /// What is missing from the rows, if they were computed.
    pub(crate) fn loss(&self) -> &[Loss] {
        match self.rows.get() {
            Some(Ok(rows)) => &rows.table.loss,
            _ => &[],
        }
    }

    fn rows(&self) -> Result<&Rows> {
        let rows = self.rows.get_or_init(|| {
            let computed = usize::from(self.layout().is_some_and(|layout| layout.duration.is_some()));
            let own = self.columns().len() - computed;
            let read: Vec<bool> = self.read.iter().take(own).map(|read| read.load(Relaxed)).collect();
            self.source.table(&read).and_then(Rows::new)
        });
        rows.as_ref().map_err(|error| Error::ModuleError(error.clone()))
    }
}

/// Registers a table under its name.
pub(crate) fn register(connection: &Connection, table: &Arc<Shared>) -> Result<()> {
    const MODULE: Module<'static, VirtualTable> = Module::eponymous_only_module();
    connection.create_module(table.source.name(), &MODULE, Some(Arc::clone(table)))
}

/// An identifier in double quotes.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\"").replace('\0', ""))
}

fn declared(kind: Type) -> &'static str {
    match kind {
        Type::Integer | Type::Signed | Type::Boolean => "INTEGER",
        Type::Real => "REAL",
        Type::Text | Type::Name | Type::List(_) => "TEXT",
    }
}

/// Which bounds a lookup gets as arguments: bits of `idx_num`. `idx_str` lists the columns that must be equal, with commas
/// between them.
const BEGIN_FROM: c_int = 1;
const BEGIN_TO: c_int = 2;
const END_FROM: c_int = 4;

#[repr(C)]
struct VirtualTable {
    /// SQLite's part, which is first.
    base: sqlite3_vtab,
    table: Arc<Shared>,
}

// SAFETY: the layout is C's, and SQLite's part is first.
unsafe impl<'vtab> VTab<'vtab> for VirtualTable {
    type Aux = Arc<Shared>;
    type Cursor = Cursor;

    fn connect(
        connection: &mut VTabConnection,
        table: Option<&Arc<Shared>>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, VirtualTable)> {
        let table = Arc::clone(table.expect("every module has its table"));
        let layout = table.layout.get_or_init(|| {
            let layout = Layout::new(table.source.columns()?);
            match layout.columns.len() {
                0..=MOST_COLUMNS => Ok(layout),
                many => Err(format!(
                    "the table `{}` has {many} columns, and SQL supports {MOST_COLUMNS}",
                    table.source.name()
                )),
            }
        });
        let layout = layout.as_ref().map_err(|error| Error::ModuleError(error.clone()))?;
        let columns = layout.columns.iter().enumerate().map(|(index, column)| {
            let hidden = if layout.is_computed(index) { " HIDDEN" } else { "" };
            format!("{} {}{hidden}", quoted(column.name), declared(column.kind))
        });
        let schema = format!("CREATE TABLE x({})", columns.collect::<Vec<_>>().join(", "));
        connection.config(VTabConfig::Innocuous)?;
        let schema = CString::new(schema)?;
        Ok((schema.into(), VirtualTable { base: sqlite3_vtab::default(), table }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let Some(layout) = self.table.layout() else { return Ok(false) };
        let columns = &layout.columns;
        // The index of the constraint for each argument; the arguments' order is that of these lines.
        let (mut begin_from, mut begin_to, mut end_from) = (None, None, None);
        let mut keys: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, constraint) in info.constraints().enumerate() {
            let Ok(column) = usize::try_from(constraint.column()) else { continue };
            if !constraint.is_usable() || column >= columns.len() {
                continue;
            }
            let (is_begin, is_end) = (layout.begin == Some(column), layout.end == Some(column));
            match constraint.operator() {
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ
                    if is_key(&columns[column])
                        && !layout.is_computed(column)
                        && info.collation(index)? == "BINARY" =>
                {
                    keys.insert(column, index);
                }
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT
                | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => {
                    if is_begin {
                        begin_from = Some(index);
                    } else if is_end {
                        end_from = Some(index);
                    }
                }
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT
                | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE
                    if is_begin =>
                {
                    begin_to = Some(index);
                }
                _ => {}
            }
        }
        let (mut bits, mut count) = (0, 0);
        for (index, bit) in [(begin_from, BEGIN_FROM), (begin_to, BEGIN_TO), (end_from, END_FROM)] {
            if let Some(index) = index {
                count += 1;
                bits |= bit;
                info.constraint_usage(index).set_argv_index(count);
            }
        }
        for &index in keys.values() {
            count += 1;
            info.constraint_usage(index).set_argv_index(count);
        }
        info.set_idx_num(bits);
        info.set_idx_str(&keys.keys().map(usize::to_string).collect::<Vec<_>>().join(","));
        let rows = self.expected_rows(bits, keys.len());
        info.set_estimated_cost(rows + LOOKUP_COST);
        info.set_estimated_rows(rows as i64 + 1);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor> {
        let (base, table) = (sqlite3_vtab_cursor::default(), Arc::clone(&self.table));
        Ok(Cursor { base, table, found: RowRange::Unordered(0..0), position: 0, end: 0, row: 0 })
    }
}

impl VirtualTable {
    /// The number of rows that a lookup is expected to find by the bounds of `bits` and by this number of equal keys.
    fn expected_rows(&self, bits: c_int, keys: usize) -> f64 {
        let rows = match self.table.rows.get() {
            Some(Ok(rows)) => rows.table.row_count() as f64,
            _ => ASSUMED_ROWS,
        };
        let has_upper = bits & BEGIN_TO != 0;
        let has_lower = bits & (BEGIN_FROM | END_FROM) != 0;
        let share = if has_upper && has_lower {
            SHARE_BETWEEN
        } else if has_upper || has_lower {
            SHARE_BEYOND
        } else {
            1.0
        };
        // A column is expected to have √rows distinct values, so that a key finds √rows.
        share * (0..keys).fold(rows, |rows, _| rows.sqrt())
    }
}

/// An iterator over the rows that a lookup found.
#[repr(C)]
struct Cursor {
    /// SQLite's part, which is first.
    base: sqlite3_vtab_cursor,
    table: Arc<Shared>,
    found: RowRange,
    /// The current position in `found`, and the end of its range.
    position: usize,
    end: usize,
    /// The row of the table at the position.
    row: usize,
}

impl Cursor {
    fn load_row(&mut self) -> Result<()> {
        if self.position < self.end {
            self.row = self.table.rows()?.row(&self.found, self.position);
        }
        Ok(())
    }
}

/// The bound of an argument; `None`, so no bound, if it is no integer: SQLite itself compares each row that was found.
fn bound(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(integer) => Some(integer),
        _ => None,
    }
}

// SAFETY: the layout is C's, and SQLite's part is first.
unsafe impl VTabCursor for Cursor {
    fn filter(&mut self, bits: c_int, columns: Option<&str>, arguments: &Filters<'_>) -> Result<()> {
        let mut arguments = arguments.iter();
        let mut next = |bit| (bits & bit != 0).then(|| bound(arguments.next()?)).flatten();
        let mut bounds = Bounds::ALL;
        bounds.begin_from = next(BEGIN_FROM).unwrap_or(i64::MIN);
        bounds.begin_to = next(BEGIN_TO).unwrap_or(i64::MAX);
        bounds.end_from = next(END_FROM).unwrap_or(i64::MIN);
        let columns =
            columns.unwrap_or_default().split(',').filter_map(|column| column.parse::<usize>().ok());
        let equal: Vec<(usize, ValueRef<'_>)> = columns.zip(arguments).collect();
        if equal.iter().any(|(_, value)| matches!(value, ValueRef::Null)) {
            // Nothing equals null.
            (self.position, self.end) = (0, 0);
            return Ok(());
        }
        // Rows are not looked up by a value that may equal several keys.
        let key = |(column, value)| Some((column, Key::of(value, self.table.columns().get(column)?)?));
        let (columns, key): (Vec<usize>, Vec<Key>) = equal.into_iter().filter_map(key).unzip();
        self.found = self.table.rows()?.find(&columns, &key, &bounds);
        let (RowRange::Unordered(range) | RowRange::Ordered(range) | RowRange::Equal(_, range)) = &self.found;
        (self.position, self.end) = (range.start, range.end);
        self.load_row()
    }

    fn next(&mut self) -> Result<()> {
        self.position += 1;
        self.load_row()
    }

    fn eof(&self) -> bool {
        self.position >= self.end
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let rows = self.table.rows()?;
        let (batch, row) = rows.batch_and_row(self.row);
        if self.table.layout().is_some_and(|layout| layout.is_computed(column as usize)) {
            return context.set_result(rows.computed_end(batch, row));
        }
        let cells = Cells::of(batch.column(column as usize).as_ref());
        let cell = cells.cell(row);
        let list;
        let value = match cell {
            Cell::Null => ValueRef::Null,
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
            Cell::Integer(integer) => ValueRef::Integer(integer as i64),
            Cell::Signed(integer) => ValueRef::Integer(integer),
            Cell::Real(real) => ValueRef::Real(real),
            Cell::Boolean(truth) => ValueRef::Integer(truth.into()),
            Cell::List(_) => {
                let mut json = Vec::new();
                cell.write_json(&mut json);
                list = json;
                ValueRef::Text(&list)
            }
        };
        context.set_result(ToSqlOutput::Borrowed(value))
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.row as i64)
    }
}

/// Registers `generate_series(start, stop)` and `generate_series(start, stop, step)`: the column `value`.
pub(crate) fn register_series(connection: &Connection) -> Result<()> {
    const MODULE: Module<'static, Series> = Module::eponymous_only_module();
    connection.create_module(c"generate_series", &MODULE, None)
}

/// The hidden columns of a series, after `value`.
const ARGUMENTS: [&str; 3] = ["start", "stop", "step"];

#[repr(C)]
struct Series {
    /// SQLite's part, which is first.
    base: sqlite3_vtab,
}

// SAFETY: the layout is C's, and SQLite's part is first.
unsafe impl<'vtab> VTab<'vtab> for Series {
    type Aux = ();
    type Cursor = SeriesCursor;

    fn connect(
        connection: &mut VTabConnection,
        _: Option<&()>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Series)> {
        connection.config(VTabConfig::Innocuous)?;
        let schema = c"CREATE TABLE x(value INTEGER, start HIDDEN, stop HIDDEN, step HIDDEN)";
        Ok((schema.into(), Series { base: sqlite3_vtab::default() }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut constraints: [Option<usize>; ARGUMENTS.len()] = [None; ARGUMENTS.len()];
        let mut is_unusable = false;
        for (index, constraint) in info.constraints().enumerate() {
            let argument = usize::try_from(constraint.column() - 1).ok();
            let Some(argument) = argument.filter(|&argument| argument < ARGUMENTS.len()) else { continue };
            is_unusable |= !constraint.is_usable();
            if constraint.is_usable()
                && constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ
            {
                constraints[argument] = Some(index);
            }
        }
        let count = constraints.iter().take_while(|index| index.is_some()).count();
        // An argument comes from a table that this plan joins later; SQLite then tries another order.
        if is_unusable {
            return Ok(false);
        }
        if count < 2 || count < constraints.iter().flatten().count() {
            let reason = "generate_series needs a start and a stop: generate_series(start, stop, step)";
            return Err(Error::ModuleError(reason.to_owned()));
        }
        for (number, index) in (1..).zip(constraints.into_iter().flatten()) {
            let mut usage = info.constraint_usage(index);
            usage.set_argv_index(number);
            usage.set_omit(true);
        }
        info.set_estimated_cost(10.0);
        info.set_estimated_rows(1_000);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<SeriesCursor> {
        let (base, bounds) = (sqlite3_vtab_cursor::default(), [0; ARGUMENTS.len()]);
        Ok(SeriesCursor { base, bounds, count: 0, position: 0 })
    }
}

/// An iterator over the values of a series.
#[repr(C)]
struct SeriesCursor {
    /// SQLite's part, which is first.
    base: sqlite3_vtab_cursor,
    /// Start, stop and step.
    bounds: [i64; ARGUMENTS.len()],
    count: u64,
    position: u64,
}

// SAFETY: the layout is C's, and SQLite's part is first.
unsafe impl VTabCursor for SeriesCursor {
    fn filter(&mut self, _: c_int, _: Option<&str>, arguments: &Filters<'_>) -> Result<()> {
        self.bounds = [0, 0, 1];
        (self.count, self.position) = (0, 0);
        for ((name, bound), value) in ARGUMENTS.iter().zip(&mut self.bounds).zip(arguments.iter()) {
            *bound = match value {
                ValueRef::Integer(integer) => integer,
                ValueRef::Real(real) if real.fract() == 0.0 && real.abs() < 9e18 => real as i64,
                ValueRef::Null => return Ok(()),
                _ => return Err(Error::ModuleError(format!("generate_series: {name} must be an integer"))),
            };
        }
        let [start, stop, step] = self.bounds.map(i128::from);
        if step == 0 {
            return Err(Error::ModuleError("generate_series: step must not be 0".to_owned()));
        }
        let steps = (stop - start) / step;
        let is_empty = (stop - start).signum() == -step.signum();
        self.count = if is_empty { 0 } else { u64::try_from(steps + 1).unwrap_or(u64::MAX) };
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.position += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.position >= self.count
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let [start, _, step] = self.bounds;
        let value = match usize::try_from(column - 1).ok().and_then(|argument| self.bounds.get(argument)) {
            Some(&argument) => argument,
            // The step times the position may overflow; the value, between start and stop, is right even then.
            None => start.wrapping_add(step.wrapping_mul(self.position as i64)),
        };
        context.set_result(value)
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.position as i64)
    }
}
