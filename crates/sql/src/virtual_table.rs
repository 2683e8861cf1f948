//! Tables as SQLite's virtual tables.

#![allow(unsafe_code, reason = "SQLite's traits are unsafe to implement")]

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{CStr, CString, c_int},
    ops::Range,
    sync::Arc,
};

use hodo_model::{Type, table::Cell};
use rusqlite::{
    Connection, Error, Result,
    types::{ToSqlOutput, ValueRef},
    vtab::{
        Context, DistinctMode, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig,
        VTabConnection, VTabCursor, sqlite3_vtab, sqlite3_vtab_cursor,
    },
};

use crate::{
    cells::BatchColumn,
    index::{BatchRows, Bounds, Layout, Lookup, RowOrder, RowRange, Rows},
    keys::{is_exact, is_key},
    tables::{Shared, Tables},
};

/// Rows that a table is assumed to have before it is computed.
const ASSUMED_ROWS: f64 = 1e6;
/// Which share of a table's rows SQLite's planner is to expect beyond one bound.
const SHARE_BEYOND: f64 = 0.3;
/// The cost of a lookup besides its rows, in rows.
const LOOKUP_COST: f64 = 10.0;

/// Registers a table under its name.
pub(crate) fn register(connection: &Connection, tables: &Arc<Tables>, table: &Arc<Shared>) -> Result<()> {
    const MODULE: Module<'static, VirtualTable> = Module::eponymous_only_module();
    connection.create_module(table.name(), &MODULE, Some((Arc::clone(tables), Arc::clone(table))))
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

/// What a lookup is: bits of `idx_num`. The first three say which bounds it gets as arguments. `idx_str` lists the columns
/// that must be equal and, after a semicolon, those of the order, with commas between them.
const BEGIN_FROM: c_int = 1;
const BEGIN_TO: c_int = 2;
const END_FROM: c_int = 4;
/// Rows come in order of their begin; the latest first.
const BY_BEGIN: c_int = 8;
const BACKWARD: c_int = 16;
/// Rows that are equal in some columns come in order of their begin.
const THEN_BEGIN: c_int = 32;

#[repr(C)]
struct VirtualTable {
    /// SQLite's part, which is first.
    base: sqlite3_vtab,
    tables: Arc<Tables>,
    table: Arc<Shared>,
}

// SAFETY: the layout is C's, and SQLite's part is first.
unsafe impl<'vtab> VTab<'vtab> for VirtualTable {
    type Aux = (Arc<Tables>, Arc<Shared>);
    type Cursor = Cursor;

    fn connect(
        connection: &mut VTabConnection,
        table: Option<&Self::Aux>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, VirtualTable)> {
        let (tables, table) = table.cloned().expect("every module has its table");
        let layout = table.make_layout().as_ref().map_err(|error| Error::ModuleError(error.clone()))?;
        let columns = layout.columns.iter().enumerate().map(|(index, column)| {
            let hidden = if layout.is_computed(index) { " HIDDEN" } else { "" };
            format!("{} {}{hidden}", quoted(column.name), declared(column.kind))
        });
        let schema = format!("CREATE TABLE x({})", columns.collect::<Vec<_>>().join(", "));
        connection.config(VTabConfig::Innocuous)?;
        let schema = CString::new(schema)?;
        Ok((schema.into(), VirtualTable { base: sqlite3_vtab::default(), tables, table }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let Some(layout) = self.table.layout() else { return Ok(false) };
        let Constraints { begin_from, begin_to, end_from, keys } = constraints(info, layout)?;
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
        // A lookup that happens once may sort what it finds.
        let has_constants = keys.values().all(|&index| matches!(info.rhs_value(index), Ok(Some(_))));
        let is_once = count as usize == keys.len() && has_constants;
        let mut order = Vec::new();
        match asked_order(info, layout) {
            Some(AskedOrder::Begin(bit)) => {
                bits |= bit;
                info.set_order_by_consumed(true);
            }
            Some(AskedOrder::Columns { columns, then_begin })
                if is_once && (keys.is_empty() || !then_begin) =>
            {
                bits |= if then_begin { THEN_BEGIN } else { 0 };
                order = columns;
                info.set_order_by_consumed(true);
            }
            _ => {}
        }
        if info.constraints().next().is_some() && self.table.runs() {
            // The order of a join depends on how many rows there are. All columns that are read are known by now.
            self.tables.rows(&self.table)?;
        }
        info.set_idx_num(bits);
        info.set_idx_str(&format!("{};{}", listed(keys.keys()), listed(&order)));
        let rows = self.expected_rows(bits, keys.len());
        info.set_estimated_cost(rows + LOOKUP_COST);
        info.set_estimated_rows(rows as i64 + 1);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor> {
        let (tables, table) = (Arc::clone(&self.tables), Arc::clone(&self.table));
        Ok(Cursor {
            base: sqlite3_vtab_cursor::default(),
            tables,
            table,
            rows: None,
            columns: LookupColumns::default(),
            lookup: Lookup::default(),
            found: RowRange::Unordered(0..0),
            end_from: i64::MIN,
            rest: 0..0,
            is_backward: false,
            row: 0,
            place: BatchRows::default(),
            batch: Arc::default(),
            row_in_batch: 0,
            read: Vec::new(),
            ahead: BatchRows::default(),
        })
    }
}

/// The numbers of columns, with commas between them.
fn listed<'c>(columns: impl IntoIterator<Item = &'c usize>) -> String {
    columns.into_iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// By what a lookup can find rows: constraints by their numbers.
#[derive(Default)]
struct Constraints {
    begin_from: Option<usize>,
    begin_to: Option<usize>,
    end_from: Option<usize>,
    /// By column that must be equal.
    keys: BTreeMap<usize, usize>,
}

fn constraints(info: &IndexInfo, layout: &Layout) -> Result<Constraints> {
    let columns = &layout.columns;
    let mut found = Constraints::default();
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
                found.keys.insert(column, index);
            }
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => {
                if is_begin {
                    found.begin_from = Some(index);
                } else if is_end {
                    found.end_from = Some(index);
                }
            }
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE
                if is_begin =>
            {
                found.begin_to = Some(index);
            }
            _ => {}
        }
    }
    Ok(found)
}

/// An order of rows that a statement asks for and a lookup can give.
enum AskedOrder {
    /// By begin: [`BY_BEGIN`], with [`BACKWARD`] for the latest first.
    Begin(c_int),
    /// By these columns, and then by begin or in any order.
    Columns { columns: Vec<usize>, then_begin: bool },
}

/// The order that a statement asks for, or the one that puts rows of a group one after the other.
fn asked_order(info: &IndexInfo, layout: &Layout) -> Option<AskedOrder> {
    let mut columns = Vec::new();
    let mut is_descending = false;
    // Groups may come in any order; the directions are then those of an `order by` that may name other columns.
    let is_grouped = info.distinct() == DistinctMode::Grouped;
    for term in info.order_bys() {
        columns.push(usize::try_from(term.column()).ok()?);
        is_descending |= term.is_order_by_desc() && !is_grouped;
    }
    if columns.len() == 1 && layout.begin == columns.first().copied() {
        return Some(AskedOrder::Begin(if is_descending { BY_BEGIN | BACKWARD } else { BY_BEGIN }));
    }
    let then_begin = columns.len() > 1 && layout.begin == columns.last().copied();
    if then_begin {
        columns.pop();
    }
    let is_known =
        |column: &usize| !layout.is_computed(*column) && layout.columns.get(*column).is_some_and(is_key);
    let is_given = !is_descending && !columns.is_empty() && columns.iter().all(is_known);
    is_given.then_some(AskedOrder::Columns { columns, then_begin })
}

impl VirtualTable {
    /// The number of rows that a lookup is expected to find by the bounds of `bits` and by this number of equal keys.
    fn expected_rows(&self, bits: c_int, keys: usize) -> f64 {
        let rows = self.table.row_count().map_or(ASSUMED_ROWS, |rows| rows as f64);
        let has_upper = bits & BEGIN_TO != 0;
        let has_lower = bits & (BEGIN_FROM | END_FROM) != 0;
        let share = if has_upper != has_lower { SHARE_BEYOND } else { 1.0 };
        // A column is expected to have √rows distinct values, so that a key finds √rows; as many begin between two bounds.
        let narrowed = keys + usize::from(has_upper && has_lower);
        share * (0..narrowed).fold(rows, |rows, _| rows.sqrt())
    }
}

/// The columns of a lookup.
#[derive(Default)]
struct LookupColumns {
    /// As they are listed in `idx_str`.
    text: String,
    keys: Vec<usize>,
    order: Vec<usize>,
}

impl LookupColumns {
    /// Reads `idx_str`, which is mostly that of the last lookup.
    fn read(&mut self, text: &str) {
        if self.text == text {
            return;
        }
        let numbers = |text: &str| text.split(',').filter_map(|column| column.parse().ok()).collect();
        let (keys, order) = text.split_once(';').unwrap_or((text, ""));
        *self = LookupColumns { text: text.to_owned(), keys: numbers(keys), order: numbers(order) };
    }
}

/// An iterator over the rows that a lookup found.
#[repr(C)]
struct Cursor {
    /// SQLite's part, which is first.
    base: sqlite3_vtab_cursor,
    tables: Arc<Tables>,
    table: Arc<Shared>,
    /// The rows; `None` before the first lookup.
    rows: Option<Arc<Rows>>,
    columns: LookupColumns,
    lookup: Lookup,
    found: RowRange,
    /// The least end of the rows that are looked up.
    end_from: i64,
    /// The positions in `found` from the current one on, which is the first, or backward the last.
    rest: Range<usize>,
    is_backward: bool,
    /// The row of the table at the position, and its batch.
    row: usize,
    place: BatchRows,
    /// The columns of that batch, and the row's number in it.
    batch: Arc<[BatchColumn]>,
    row_in_batch: usize,
    /// The columns that the statement reads, and the batch of the row whose cells were prefetched last.
    read: Vec<usize>,
    ahead: BatchRows,
}

impl Cursor {
    /// Moves to the row of the current position; forward, to the first one from there that ends late enough.
    fn seek(&mut self) {
        let Some(rows) = &self.rows else { return };
        if !self.is_backward {
            self.rest.start = rows.next(&self.found, self.rest.start, self.end_from);
        }
        if !self.rest.is_empty() {
            let position = if self.is_backward { self.rest.end - 1 } else { self.rest.start };
            self.row = rows.row(&self.found, position);
            if let RowRange::Listed(list) = &self.found {
                rows.prefetch(list, position, &self.read, &mut self.ahead);
            }
            let before = self.place.batch;
            rows.locate(self.row, &mut self.place);
            if self.place.batch != before {
                self.batch = Arc::clone(rows.columns(self.place.batch));
            }
            self.row_in_batch = self.row - self.place.rows.start;
        }
    }
}

impl Cursor {
    #[inline(never)]
    fn other_cell(&self, context: &mut Context, column: c_int) -> Result<()> {
        let Some(rows) = &self.rows else { return Ok(()) };
        let Some(cells) = self.batch.get(column as usize) else {
            return context.set_result(rows.computed_end(&self.batch, self.row_in_batch));
        };
        cells.with_cell(self.row_in_batch, |cell| {
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
        })
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
        self.columns.read(columns.unwrap_or_default());
        let LookupColumns { keys, order: order_columns, .. } = &self.columns;
        // A cursor serves one statement, whose columns are known when it first looks rows up.
        let rows = match self.rows.take() {
            Some(rows) => rows,
            None => {
                let rows = self.tables.rows(&self.table)?;
                self.place = rows.first_batch();
                self.batch = rows.first_columns();
                self.ahead = rows.first_batch();
                self.read = self.table.read_columns();
                rows
            }
        };
        let needs_begin = bits & (BEGIN_FROM | BEGIN_TO | END_FROM | BY_BEGIN | THEN_BEGIN) != 0;
        let order = if needs_begin { RowOrder::Begin } else { RowOrder::Any };
        let mut equal: Vec<(usize, ValueRef<'_>)> = keys.iter().copied().zip(arguments).collect();
        self.found = if equal.iter().any(|(_, value)| matches!(value, ValueRef::Null)) {
            // Nothing equals null.
            RowRange::Unordered(0..0)
        } else {
            let all = self.table.columns();
            equal.retain(|(column, value)| all.get(*column).is_some_and(|column| is_exact(*value, column)));
            match (order_columns.is_empty(), equal.is_empty()) {
                (true, _) => rows.find(&equal, &bounds, order, &mut self.lookup),
                (false, true) => rows.sorted(order_columns, order),
                (false, false) => rows.found_sorted(&equal, order_columns),
            }
        };
        self.rows = Some(rows);
        (self.rest, self.end_from) = (self.found.positions(), bounds.end_from);
        self.is_backward = bits & BACKWARD != 0;
        self.seek();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        if self.is_backward {
            self.rest.end -= 1;
        } else {
            self.rest.start += 1;
        }
        self.seek();
        Ok(())
    }

    fn eof(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        // Most cells that statements read often are integers.
        match self.batch.get(column as usize).and_then(|cells| cells.integer(self.row_in_batch)) {
            Some(integer) => context.set_result(ToSqlOutput::Borrowed(ValueRef::Integer(integer))),
            None => self.other_cell(context, column),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.row as i64)
    }
}
