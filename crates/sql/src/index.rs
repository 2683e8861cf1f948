//! Rows of a table, found by time and by equal keys.
//!
//! Rows are ordered by their begin, and a range of begins is found by binary search. Within it, [`LatestEnds`] finds the
//! rows that end late enough, so that a join of intervals that overlap takes n log n steps, and one for each pair.

use std::{
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use hodo_model::{
    Column, Table, Type, Unit,
    table::{Cell, Cells, RecordBatch},
};
use rusqlite::types::ValueRef;
use rustc_hash::FxHashMap;

use crate::latest_end::LatestEnds;

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

/// Returns whether rows can be found by equal values of a column.
pub(crate) fn is_key(column: &Column) -> bool {
    matches!(column.kind, Type::Integer | Type::Signed | Type::Text | Type::Name)
}

/// A value that rows are found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Integer(i64),
    Text(Box<[u8]>),
}

impl Key {
    /// The key of a value for a column; `None` if other values of the column may be equal to it too.
    pub(crate) fn of(value: ValueRef<'_>, column: &Column) -> Option<Key> {
        let is_text = matches!(column.kind, Type::Text | Type::Name);
        match value {
            ValueRef::Integer(integer) if !is_text => Some(Key::Integer(integer)),
            ValueRef::Text(text) if is_text => Some(Key::Text(text.into())),
            _ => None,
        }
    }

    fn of_cell(cell: Cell<'_>) -> Option<Key> {
        match cell {
            Cell::Text(text) => Some(Key::Text(text.as_bytes().into())),
            other => integer(other).map(Key::Integer),
        }
    }
}

fn integer(cell: Cell<'_>) -> Option<i64> {
    match cell {
        Cell::Integer(integer) => Some(integer as i64),
        Cell::Signed(integer) => Some(integer),
        _ => None,
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
struct Ordered {
    rows: Vec<u32>,
    begins: Vec<i64>,
    /// `None` without ends.
    ends: Option<LatestEnds>,
}

impl Ordered {
    fn new(rows: Vec<u32>, begins: Vec<i64>, ends_by_row: Option<&[i64]>) -> Ordered {
        let ends = ends_by_row.map(|ends| rows.iter().map(|&row| ends[row as usize]).collect());
        Ordered { rows, begins, ends: ends.map(LatestEnds::new) }
    }

    /// The positions of a group's rows that begin within the bounds.
    fn range(&self, group: Range<usize>, bounds: &Bounds) -> Range<usize> {
        let begins = &self.begins[group.clone()];
        let first = begins.partition_point(|&begin| begin < bounds.begin_from);
        let after = begins.partition_point(|&begin| begin <= bounds.begin_to);
        group.start + first.min(after)..group.start + after
    }

    /// The first of some positions whose row ends late enough; the end of the range if there is none.
    fn next(&self, positions: Range<usize>, end_from: i64) -> usize {
        match &self.ends {
            Some(ends) if end_from > i64::MIN => ends.next(positions.start, positions.end, end_from),
            _ => positions.start,
        }
    }
}

/// Rows by the values of some columns.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The number of the group of rows with equal values.
    groups: FxHashMap<Box<[Key]>, u32>,
    /// The position of each group's first row in `ordered`, and the end of the last group.
    starts: Vec<usize>,
    ordered: Ordered,
}

impl Keys {
    /// Rows with a null in one of the columns are in no group.
    fn of(rows: &Rows, columns: &[usize]) -> Keys {
        const NONE: u32 = u32::MAX;
        let all = rows.ordered();
        let batches = rows.table.batches().iter();
        let cells: Vec<Vec<Cells<'_>>> = batches
            .map(|batch| columns.iter().map(|&column| Cells::of(batch.column(column).as_ref())).collect())
            .collect();
        let mut groups: FxHashMap<Box<[Key]>, u32> = FxHashMap::default();
        let (mut sizes, mut group_of) = (Vec::new(), Vec::with_capacity(all.rows.len()));
        let mut key: Vec<Key> = Vec::new();
        for &row in &all.rows {
            let place = rows.locate(row as usize);
            key.clear();
            key.extend(cells[place.batch].iter().filter_map(|cells| Key::of_cell(cells.cell(place.row))));
            let next = sizes.len() as u32;
            let group = match groups.get(&key[..]) {
                _ if key.len() < columns.len() => NONE,
                Some(&group) => group,
                None => {
                    groups.insert(key.as_slice().into(), next);
                    sizes.push(0);
                    next
                }
            };
            if let Some(size) = sizes.get_mut(group as usize) {
                *size += 1;
            }
            group_of.push(group);
        }
        let mut starts = vec![0];
        for size in sizes {
            starts.push(starts[starts.len() - 1] + size);
        }
        let ordered = by_group(all, &group_of, &starts, rows.integers(rows.layout.end).as_deref());
        Keys { groups, starts, ordered }
    }

    fn range(&self, key: &[Key], bounds: &Bounds) -> Range<usize> {
        let group = self.groups.get(key).map(|&group| group as usize);
        group.map_or(0..0, |group| self.ordered.range(self.starts[group]..self.starts[group + 1], bounds))
    }
}

/// Puts rows of one group after the other. The order within a group stays.
fn by_group(all: &Ordered, group_of: &[u32], starts: &[usize], ends: Option<&[i64]>) -> Ordered {
    let count = starts[starts.len() - 1];
    let (mut rows, mut begins) = (vec![0; count], vec![0; count]);
    let mut next = starts.to_vec();
    for ((&row, &begin), &group) in all.rows.iter().zip(&all.begins).zip(group_of) {
        let Some(position) = next[..starts.len() - 1].get_mut(group as usize) else { continue };
        rows[*position] = row;
        begins[*position] = begin;
        *position += 1;
    }
    Ordered::new(rows, begins, ends)
}

/// Rows to read: a range of positions in one of three orders.
#[derive(Clone, Debug)]
pub(crate) enum RowRange {
    /// In the table's order.
    Unordered(Range<usize>),
    /// In order of time.
    Ordered(Range<usize>),
    /// With equal keys, in order of time.
    Equal(Arc<Keys>, Range<usize>),
}

/// A row of a batch.
struct BatchRow {
    /// The batch's number.
    batch: usize,
    /// The row's number in it.
    row: usize,
}

/// The rows of a table.
pub(crate) struct Rows {
    pub(crate) table: Table,
    /// The first row of each batch.
    starts: Vec<usize>,
    layout: Layout,
    ordered: OnceLock<Ordered>,
    /// By columns: rows by key.
    keys: Mutex<FxHashMap<Box<[usize]>, Arc<Keys>>>,
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
        Ok(Rows { table, starts, layout, ordered: OnceLock::new(), keys: Mutex::default() })
    }

    /// The batch of a row, and the row in it.
    pub(crate) fn batch_and_row(&self, row: usize) -> (&RecordBatch, usize) {
        let place = self.locate(row);
        (&self.table.batches()[place.batch], place.row)
    }

    fn locate(&self, row: usize) -> BatchRow {
        let batch = self.starts.partition_point(|&start| start <= row) - 1;
        BatchRow { batch, row: row - self.starts[batch] }
    }

    /// Finds rows: all that have the keys in these columns and lie within the bounds, and possibly others.
    pub(crate) fn find(&self, columns: &[usize], key: &[Key], bounds: &Bounds) -> RowRange {
        match columns {
            [] if *bounds == Bounds::ALL => RowRange::Unordered(0..self.table.row_count()),
            [] => RowRange::Ordered(self.ordered().range(0..self.table.row_count(), bounds)),
            columns => {
                let keys = self.keys(columns);
                let range = keys.range(key, bounds);
                RowRange::Equal(keys, range)
            }
        }
    }

    /// The first position of a range, from `from` on, whose row ends at `end_from` or later; the range's end if there is none.
    pub(crate) fn next(&self, range: &RowRange, from: usize, end_from: i64) -> usize {
        match range {
            RowRange::Unordered(_) => from,
            RowRange::Ordered(range) => self.ordered().next(from..range.end, end_from),
            RowRange::Equal(keys, range) => keys.ordered.next(from..range.end, end_from),
        }
    }

    /// The row at a position of such a range.
    pub(crate) fn row(&self, range: &RowRange, position: usize) -> usize {
        match range {
            RowRange::Unordered(_) => position,
            RowRange::Ordered(_) => self.ordered().rows[position] as usize,
            RowRange::Equal(keys, _) => keys.ordered.rows[position] as usize,
        }
    }

    /// The computed end of a row of a batch: its begin plus its duration.
    pub(crate) fn computed_end(&self, batch: &RecordBatch, row: usize) -> Option<i64> {
        let cell = |column: Option<usize>| integer(Cells::of(batch.column(column?).as_ref()).cell(row));
        cell(self.layout.begin)?.checked_add(cell(self.layout.duration)?)
    }

    /// All cells of a column as integers; null is the least.
    fn integers(&self, column: Option<usize>) -> Option<Vec<i64>> {
        let column = column?;
        let mut integers = Vec::with_capacity(self.table.row_count());
        for batch in self.table.batches() {
            let rows = 0..batch.num_rows();
            if self.layout.is_computed(column) {
                integers.extend(rows.map(|row| self.computed_end(batch, row).unwrap_or(i64::MIN)));
            } else {
                let cells = Cells::of(batch.column(column).as_ref());
                integers.extend(rows.map(|row| integer(cells.cell(row)).unwrap_or(i64::MIN)));
            }
        }
        Some(integers)
    }

    fn ordered(&self) -> &Ordered {
        self.ordered.get_or_init(|| {
            let (begins, ends) = (self.integers(self.layout.begin), self.integers(self.layout.end));
            let begin = |row: &u32| begins.as_ref().map_or(0, |begins| begins[*row as usize]);
            let mut rows: Vec<u32> = (0..self.table.row_count() as u32).collect();
            if !rows.is_sorted_by_key(begin) {
                rows.sort_by_key(begin);
            }
            let begins = rows.iter().map(begin).collect();
            Ordered::new(rows, begins, ends.as_deref())
        })
    }

    fn keys(&self, columns: &[usize]) -> Arc<Keys> {
        let mut all = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(columns) {
            return Arc::clone(known);
        }
        let made = Arc::new(Keys::of(self, columns));
        all.insert(columns.into(), Arc::clone(&made));
        made
    }
}
