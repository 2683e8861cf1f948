//! Rows of a table, found by time and by equal keys.
//!
//! Rows are ordered by their begin, and a range of begins is found by binary search. Within it, [`LatestEnds`] finds the
//! rows that end late enough, so that a join of intervals that overlap takes n log n steps, and one for each pair.

use std::{
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use hodo_model::{Column, Table, Type, Unit, table::RecordBatch};
use rusqlite::types::ValueRef;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    cells::BatchColumn,
    keys::{Code, Keys, in_order_of},
    latest_end::LatestEnds,
};

/// Names of the columns that rows are ordered by, the first that a table has.
const BEGINS: [&str; 3] = ["begin_ns", "time_ns", "at_ns"];
/// The name of the column of ends, and of the one that an end is computed from.
const END: &str = "end_ns";
const DURATION: &str = "duration_ns";

/// The columns of a table in SQL, and those by which rows are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) columns: Vec<Column>,
    pub(crate) begin: Option<usize>,
    pub(crate) end: Option<usize>,
    /// The column of durations from which the end, the last column, is computed; `None` if the table has its own end.
    pub(crate) duration: Option<usize>,
}

impl Layout {
    pub(crate) fn new(mut columns: Vec<Column>) -> Layout {
        let is_time = |column: &Column| matches!(column.kind, Type::Integer | Type::Signed);
        let index = |columns: &[Column], name: &str| {
            columns.iter().position(|column| column.name == name && is_time(column))
        };
        let begin = BEGINS.iter().find_map(|name| index(&columns, name));
        let mut end = begin.and_then(|_| index(&columns, END));
        let is_free = columns.iter().all(|column| column.name != END);
        let duration = begin.and_then(|_| index(&columns, DURATION)).filter(|_| is_free);
        if duration.is_some() {
            end = Some(columns.len());
            columns.push(Column::signed(END, Unit::Nanoseconds));
        }
        Layout { columns, begin, end, duration }
    }

    /// Returns whether a column is computed; `*` leaves it out.
    pub(crate) fn is_computed(&self, column: usize) -> bool {
        self.duration.is_some() && self.end == Some(column)
    }
}

/// Bounds of begins and ends, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) begin_from: i64,
    pub(crate) begin_to: i64,
    pub(crate) end_from: i64,
}

impl Bounds {
    pub(crate) const ALL: Bounds = Bounds { begin_from: i64::MIN, begin_to: i64::MAX, end_from: i64::MIN };
}

/// Rows in order of their begin: all of a table, or those of one group of equal keys after the other.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    pub(crate) rows: Vec<u32>,
    /// None if the groups are in no order.
    pub(crate) begins: Vec<i64>,
    ends: OnceLock<LatestEnds>,
}

impl Ordered {
    pub(crate) fn new(rows: Vec<u32>, begins: Vec<i64>) -> Ordered {
        Ordered { rows, begins, ends: OnceLock::new() }
    }

    /// The positions of a group's rows that begin within the bounds; without an order, all of them.
    pub(crate) fn range(&self, group: Range<usize>, bounds: &Bounds) -> Range<usize> {
        let Some(begins) = self.begins.get(group.clone()) else { return group };
        let first = begins.partition_point(|&begin| begin < bounds.begin_from);
        let after = begins.partition_point(|&begin| begin <= bounds.begin_to);
        group.start + first.min(after)..group.start + after
    }
}

/// Rows to read: a range of positions in one of these orders.
#[derive(Clone, Debug)]
pub(crate) enum RowRange {
    /// In the table's order.
    Unordered(Range<usize>),
    /// In order of time.
    Ordered(Range<usize>),
    /// With equal keys, in order of time.
    Equal(Arc<Keys>, Range<usize>),
    /// Those of a list: all rows in order of some columns, or rows that were found.
    Listed(Arc<Vec<u32>>),
}

impl RowRange {
    pub(crate) fn positions(&self) -> Range<usize> {
        match self {
            RowRange::Unordered(range) | RowRange::Ordered(range) | RowRange::Equal(_, range) => {
                range.clone()
            }
            RowRange::Listed(rows) => 0..rows.len(),
        }
    }
}

/// A batch, and the rows of the table that are in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchRows {
    pub(crate) batch: usize,
    pub(crate) rows: Range<usize>,
}

/// The order in which rows are read; of a group of rows, that within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum RowOrder {
    /// The one that costs least.
    #[default]
    Any,
    /// By their begin.
    Begin,
}

/// What a lookup leaves to the next one, which mostly asks for the same columns.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    columns: Vec<usize>,
    order: RowOrder,
    keys: Option<Arc<Keys>>,
    codes: Vec<Code>,
}

/// What was made of rows for some columns, and an order.
type ByColumns<T> = Mutex<FxHashMap<(RowOrder, Vec<usize>), Arc<T>>>;

/// The rows of a table.
pub(crate) struct Rows {
    pub(crate) table: Table,
    /// The first row of each batch.
    starts: Vec<usize>,
    /// By batch: its columns.
    columns: Vec<Arc<[BatchColumn]>>,
    layout: Layout,
    is_in_order: OnceLock<bool>,
    ordered: OnceLock<Ordered>,
    /// By columns: rows by key.
    keys: ByColumns<Keys>,
    /// The columns by which rows were looked up once.
    scanned: Mutex<FxHashSet<Vec<usize>>>,
    /// By columns: rows in their order.
    sorted: ByColumns<Vec<u32>>,
}

impl Rows {
    /// # Errors
    /// Returns an error for more rows than 32 bits count.
    pub(crate) fn new(table: Table) -> Result<Rows, String> {
        let layout = Layout::new(table.columns().to_vec());
        if u32::try_from(table.row_count()).is_err() {
            return Err(format!(
                "the table `{}` has {} rows, and at most 4294967295 can be read: select less with --time or --tid",
                table.name(),
                table.row_count()
            ));
        }
        let mut starts = Vec::new();
        let mut start = 0;
        for batch in table.batches() {
            starts.push(start);
            start += batch.num_rows();
        }
        let columns = table.batches().iter().map(BatchColumn::all).collect();
        let (keys, scanned, sorted) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (is_in_order, ordered) = (OnceLock::new(), OnceLock::new());
        Ok(Rows { table, starts, columns, layout, is_in_order, ordered, keys, scanned, sorted })
    }

    /// A place to begin [`locate`](Rows::locate) from.
    pub(crate) fn first_batch(&self) -> BatchRows {
        let rows = self.table.batches().first().map_or(0, RecordBatch::num_rows);
        BatchRows { batch: 0, rows: 0..rows }
    }

    /// The columns of the first batch; none if there are no rows.
    pub(crate) fn first_columns(&self) -> Arc<[BatchColumn]> {
        self.columns.first().cloned().unwrap_or_default()
    }

    /// Moves `place` to the batch of a row, which most often is the one that it is at.
    #[inline]
    pub(crate) fn locate(&self, row: usize, place: &mut BatchRows) {
        if !place.rows.contains(&row) {
            let batch = self.starts.partition_point(|&start| start <= row) - 1;
            let end = self.starts[batch] + self.table.batches()[batch].num_rows();
            *place = BatchRows { batch, rows: self.starts[batch]..end };
        }
    }

    pub(crate) fn batch_count(&self) -> usize {
        self.columns.len()
    }

    /// The columns of a batch.
    #[inline]
    pub(crate) fn columns(&self, batch: usize) -> &Arc<[BatchColumn]> {
        &self.columns[batch]
    }

    /// The column of begins.
    pub(crate) fn begin(&self) -> Option<usize> {
        self.layout.begin
    }

    /// The begin of a row; `None` if it is null. Moves `place` as [`locate`](Rows::locate) does.
    pub(crate) fn begin_of(&self, row: u32, place: &mut BatchRows) -> Option<i64> {
        self.locate(row as usize, place);
        self.columns[place.batch][self.layout.begin?].integer(row as usize - place.rows.start)
    }

    /// Finds rows: all that have the values in these columns and lie within the bounds, and possibly others. Bounds apply to
    /// rows in order of their begin.
    pub(crate) fn find(
        &self,
        equal: &[(usize, ValueRef<'_>)],
        bounds: &Bounds,
        order: RowOrder,
        lookup: &mut Lookup,
    ) -> RowRange {
        if equal.is_empty() {
            return match order {
                RowOrder::Any => RowRange::Unordered(0..self.table.row_count()),
                RowOrder::Begin => RowRange::Ordered(self.ordered().range(0..self.table.row_count(), bounds)),
            };
        }
        let columns = || equal.iter().map(|(column, _)| *column);
        // A look at each row costs less than to group all of them, if no other lookup follows.
        if order == RowOrder::Any && lookup.keys.is_none() && self.is_first(columns().collect()) {
            return RowRange::Listed(Arc::new(self.scan(equal)));
        }
        let is_same = lookup.order == order && columns().eq(lookup.columns.iter().copied());
        let keys = lookup.keys.take().filter(|_| is_same).unwrap_or_else(|| {
            (lookup.order, lookup.columns) = (order, columns().collect());
            made(&self.keys, (order, lookup.columns.clone()), || Keys::of(self, &lookup.columns, order))
        });
        lookup.keys = Some(Arc::clone(&keys));
        let range = keys.range(equal.iter().map(|(_, value)| *value), bounds, &mut lookup.codes);
        RowRange::Equal(keys, range)
    }

    fn is_first(&self, columns: Vec<usize>) -> bool {
        self.scanned.lock().unwrap_or_else(PoisonError::into_inner).insert(columns)
    }

    /// The rows that have the values in these columns.
    fn scan(&self, equal: &[(usize, ValueRef<'_>)]) -> Vec<u32> {
        let mut found = Vec::new();
        for (number, batch) in self.table.batches().iter().enumerate() {
            let tests: Vec<_> =
                equal.iter().map(|&(column, value)| self.columns[number][column].equal(value)).collect();
            let rows = (0..batch.num_rows()).filter(|&row| tests.iter().all(|test| test(row)));
            found.extend(rows.map(|row| (self.starts[number] + row) as u32));
        }
        found
    }

    /// All rows in the order of some columns, and in `order` where these are equal.
    pub(crate) fn sorted(&self, columns: &[usize], order: RowOrder) -> RowRange {
        let sorted = || in_order_of(self, columns, self.in_order(order));
        RowRange::Listed(made(&self.sorted, (order, columns.to_vec()), sorted))
    }

    /// The rows that have the values in some columns, in the order of others.
    pub(crate) fn found_sorted(&self, equal: &[(usize, ValueRef<'_>)], columns: &[usize]) -> RowRange {
        RowRange::Listed(Arc::new(in_order_of(self, columns, self.scan(equal).iter().copied())))
    }

    /// The first position of a range, from `from` on, whose row ends at `end_from` or later; the range's end if there is none.
    pub(crate) fn next(&self, range: &RowRange, from: usize, end_from: i64) -> usize {
        let (ordered, end) = match range {
            RowRange::Ordered(range) => (self.ordered(), range.end),
            RowRange::Equal(keys, range) => (&keys.ordered, range.end),
            RowRange::Unordered(_) | RowRange::Listed(_) => return from,
        };
        if end_from == i64::MIN || self.layout.end.is_none() {
            return from;
        }
        let ends = ordered.ends.get_or_init(|| {
            let ends = self.integers(self.layout.end).unwrap_or_default();
            LatestEnds::new(ordered.rows.iter().map(|&row| ends[row as usize]).collect())
        });
        ends.next(from, end, end_from)
    }

    /// Announces to the processor that the cells of a row in a list will be read, some rows before they are. Rows of a list lie
    /// apart, so that each of their cells would be waited for.
    pub(crate) fn prefetch(&self, list: &[u32], position: usize, columns: &[usize], place: &mut BatchRows) {
        /// Rows that SQLite reads while memory answers.
        const AHEAD: usize = 12;
        let Some(&row) = list.get(position + AHEAD) else { return };
        self.locate(row as usize, place);
        for &column in columns {
            self.columns[place.batch][column].prefetch(row as usize - place.rows.start);
        }
    }

    /// The row at a position of such a range.
    pub(crate) fn row(&self, range: &RowRange, position: usize) -> usize {
        match range {
            RowRange::Unordered(_) => position,
            RowRange::Ordered(_) => self.ordered().rows[position] as usize,
            RowRange::Equal(keys, _) => keys.ordered.rows[position] as usize,
            RowRange::Listed(rows) => rows[position] as usize,
        }
    }

    /// The computed end of a row of a batch: its begin plus its duration.
    pub(crate) fn computed_end(&self, columns: &[BatchColumn], row: usize) -> Option<i64> {
        let begin = columns[self.layout.begin?].integer(row)?;
        begin.checked_add(columns[self.layout.duration?].integer(row)?)
    }

    /// All cells of a column as integers; null is the least.
    fn integers(&self, column: Option<usize>) -> Option<Vec<i64>> {
        let column = column?;
        let mut integers = Vec::with_capacity(self.table.row_count());
        for (batch, columns) in self.columns.iter().enumerate() {
            let rows = 0..self.table.batches()[batch].num_rows();
            if self.layout.is_computed(column) {
                integers.extend(rows.map(|row| self.computed_end(columns, row).unwrap_or(i64::MIN)));
            } else {
                integers.extend(rows.map(|row| columns[column].integer(row).unwrap_or(i64::MIN)));
            }
        }
        Some(integers)
    }

    /// Whether no row begins before the one in front of it.
    fn is_in_order(&self) -> bool {
        *self.is_in_order.get_or_init(|| {
            let Some(begin) = self.layout.begin else { return true };
            let mut before = None;
            self.columns.iter().zip(self.table.batches()).all(|(columns, batch)| {
                (0..batch.num_rows()).all(|row| {
                    let last = std::mem::replace(&mut before, columns[begin].integer(row));
                    last <= before
                })
            })
        })
    }

    /// All rows in an order. The begin null is the least.
    pub(crate) fn in_order(&self, order: RowOrder) -> impl Iterator<Item = u32> + Clone {
        let rows = (order == RowOrder::Begin && !self.is_in_order()).then(|| &self.ordered().rows);
        let at = move |position: u32| rows.map_or(position, |rows| rows[position as usize]);
        (0..self.table.row_count() as u32).map(at)
    }

    pub(crate) fn ordered(&self) -> &Ordered {
        self.ordered.get_or_init(|| {
            let count = self.table.row_count();
            let begins = self.integers(self.layout.begin).unwrap_or_else(|| vec![0; count]);
            let mut rows: Vec<u32> = (0..count as u32).collect();
            if self.is_in_order() {
                return Ordered::new(rows, begins);
            }
            let begin = |row: &u32| begins[*row as usize];
            rows.sort_by_key(begin);
            let begins = rows.iter().map(begin).collect();
            Ordered::new(rows, begins)
        })
    }
}

/// What was made for a key, or is made now.
fn made<T>(all: &ByColumns<T>, key: (RowOrder, Vec<usize>), make: impl FnOnce() -> T) -> Arc<T> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(key).or_insert_with(|| Arc::new(make())))
}
