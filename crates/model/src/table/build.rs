//! Builds the columns of a table from rows.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, ListArray, RecordBatch, RecordBatchOptions,
    builder::{BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, StringBuilder, UInt64Builder},
    cast::AsArray,
    new_null_array,
    types::Int32Type,
};
use arrow_buffer::{NullBufferBuilder, OffsetBufferBuilder};
use arrow_schema::SchemaRef;
use rustc_hash::FxHashMap;

use super::{Cell, Column, Shape, Summary, Table, Type, schema};

/// Rows per batch.
const BATCH_ROWS: usize = 1 << 16;
/// Bytes of text after which a batch ends early: text offsets have 31 bits.
const BATCH_TEXT: usize = 1 << 28;
/// Bytes of names after which a dictionary ends, for the same reason.
const NAME_TEXT: usize = 1 << 30;

/// Builds columns from rows.
///
/// [`finish`](TableBuilder::finish) builds a whole table with one dictionary per name column. To stream a table in
/// the memory of one batch, call [`full_batch`](TableBuilder::full_batch) after some rows and
/// [`last_batch`](TableBuilder::last_batch) at the end; each batch then has its own dictionaries.
#[derive(Debug)]
pub struct TableBuilder {
    name: &'static str,
    shape: Shape,
    columns: Vec<Column>,
    schema: SchemaRef,
    growing: Vec<ColumnBuilder>,
    /// Rows in the current batch.
    rows: usize,
    /// Full batches whose names are still indices into open dictionaries, and the number of rows of each.
    open: Vec<(Vec<ArrayRef>, usize)>,
    done: Vec<RecordBatch>,
    /// By column: the longest array of an added batch that has no cell but nulls.
    nulls: Vec<Option<ArrayRef>>,
}

/// A table's name, shape and columns, without rows.
#[derive(Clone, Debug)]
pub struct Heading {
    /// The stable name, such as `states`.
    pub name: &'static str,
    /// The shape.
    pub shape: Shape,
    /// The columns.
    pub columns: Vec<Column>,
}

impl Heading {
    /// A builder for the table's rows.
    pub fn builder(self) -> TableBuilder {
        TableBuilder::new(self.name, self.shape, self.columns)
    }
}

impl TableBuilder {
    /// Creates a builder without rows.
    pub fn new(name: &'static str, shape: Shape, columns: Vec<Column>) -> TableBuilder {
        let schema = Arc::new(schema(name, shape, &columns));
        let growing = columns.iter().map(|column| ColumnBuilder::new(column.kind)).collect();
        let nulls = vec![None; columns.len()];
        let (open, done) = (Vec::new(), Vec::new());
        TableBuilder { name, shape, columns, schema, growing, rows: 0, open, done, nulls }
    }

    /// Lets all cells of columns without a flag in `read` be null, whatever rows say. For rows that are only streamed or finished.
    #[must_use]
    pub fn leaving_out(mut self, read: &[bool]) -> TableBuilder {
        for ((growing, column), is_read) in self.growing.iter_mut().zip(&self.columns).zip(read) {
            if !is_read {
                *growing = ColumnBuilder::Unread(column.kind, 0);
            }
        }
        self
    }

    /// The schema of the batches. It has no summary, which is not known yet.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds a row: one cell per column, of the column's type or null.
    ///
    /// # Panics
    /// If the cells do not match the columns in number or type.
    pub fn row<'c>(&mut self, cells: impl IntoIterator<Item = Cell<'c>>) {
        let mut cells = cells.into_iter();
        for (growing, column) in self.growing.iter_mut().zip(&self.columns) {
            let cell =
                cells.next().unwrap_or_else(|| panic!("a row ends before its column `{}`", column.name));
            if !growing.push(cell) {
                panic!("the column `{}` holds {:?}, and is given {cell:?}", column.name, column.kind);
            }
        }
        assert!(cells.next().is_none(), "a row of `{}` is longer than its columns", self.name);
        self.rows += 1;
        if self.rows >= BATCH_ROWS || self.growing.iter().any(|growing| growing.text_bytes() >= BATCH_TEXT) {
            self.end_batch();
        }
    }

    /// Returns the next batch, if one is full.
    pub fn full_batch(&mut self) -> Option<RecordBatch> {
        let is_full = !(self.open.is_empty() && self.done.is_empty());
        if is_full { self.last_batch() } else { None }
    }

    /// Returns the next batch of the remaining rows; `None` if none remain.
    pub fn last_batch(&mut self) -> Option<RecordBatch> {
        if self.done.is_empty() {
            // Rows of the batch that grows refer to the dictionaries that end here.
            self.end_batch();
            self.seal();
        }
        (!self.done.is_empty()).then(|| self.done.remove(0))
    }

    /// Adds the rows of a batch of the same columns. Columns without cells, of which a table that is read in part has many, take
    /// the memory of one batch.
    ///
    /// # Panics
    /// If the batch has other columns.
    pub fn add_batch(&mut self, batch: &RecordBatch) {
        self.end_batch();
        self.seal();
        let shared = |(column, nulls): (&ArrayRef, &mut Option<ArrayRef>)| {
            if column.null_count() < column.len() {
                return Arc::clone(column);
            }
            let longest = nulls.take().filter(|nulls| nulls.len() >= column.len());
            nulls.insert(longest.unwrap_or_else(|| Arc::clone(column))).slice(0, column.len())
        };
        let columns = batch.columns().iter().zip(&mut self.nulls).map(shared).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        self.done.push(batch.expect("a batch has the columns of its table"));
    }

    /// Makes the table of all rows.
    pub fn finish(mut self, summary: Summary) -> Table {
        self.end_batch();
        self.seal();
        let TableBuilder { name, shape, columns, schema, done, .. } = self;
        Table { name, shape, columns, schema, batches: done, summary, loss: Vec::new() }
    }

    /// Moves the rows so far to the open batches.
    fn end_batch(&mut self) {
        if self.rows == 0 {
            return;
        }
        let columns = self.growing.iter_mut().map(ColumnBuilder::take).collect();
        self.open.push((columns, std::mem::take(&mut self.rows)));
        let is_full =
            |column: &ColumnBuilder| matches!(column, ColumnBuilder::Name(names) if names.bytes >= NAME_TEXT);
        if self.growing.iter().any(is_full) {
            self.seal();
        }
    }

    /// Ends the dictionaries and completes the batches that refer to them.
    fn seal(&mut self) {
        let names: Vec<Option<ArrayRef>> = self.growing.iter_mut().map(ColumnBuilder::take_names).collect();
        for (columns, rows) in std::mem::take(&mut self.open) {
            let columns = columns.into_iter().zip(&names).map(|(column, names)| match names {
                None => column,
                Some(names) => {
                    let indices: Int32Array = column.as_primitive::<Int32Type>().clone();
                    Arc::new(DictionaryArray::new(indices, Arc::clone(names)))
                }
            });
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch =
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options);
            self.done.push(batch.expect("columns are as long as there are rows, and of the schema's types"));
        }
    }
}

/// An array without the room in which it grew.
fn compact(mut array: impl Array + 'static) -> ArrayRef {
    array.shrink_to_fit();
    Arc::new(array)
}

/// A column under construction.
#[derive(Debug)]
enum ColumnBuilder {
    Text(StringBuilder),
    Name(Names),
    Integer(UInt64Builder),
    Signed(Int64Builder),
    Real(Float64Builder),
    Boolean(BooleanBuilder),
    List(Box<Lists>),
    /// A column without cells, of this type and with this number of rows.
    Unread(Type, usize),
}

/// Names, each stored once in a dictionary.
#[derive(Debug, Default)]
struct Names {
    /// Indices into the dictionary.
    indices: FxHashMap<Box<str>, i32>,
    names: StringBuilder,
    /// Bytes of all names.
    bytes: usize,
    cells: Int32Builder,
}

/// Lists, stored as their concatenated items and end offsets.
#[derive(Debug)]
struct Lists {
    /// The type of the lists, not of their items.
    kind: Type,
    items: ColumnBuilder,
    /// Number of items in all lists.
    count: usize,
    ends: OffsetBufferBuilder<i32>,
    /// Which lists are not null.
    known: NullBufferBuilder,
}

impl Lists {
    fn new(kind: Type) -> Lists {
        let (ends, known) = (OffsetBufferBuilder::new(0), NullBufferBuilder::new(0));
        Lists { kind, items: ColumnBuilder::new(kind), count: 0, ends, known }
    }
}

impl ColumnBuilder {
    fn new(kind: Type) -> ColumnBuilder {
        match kind {
            Type::Text => ColumnBuilder::Text(StringBuilder::new()),
            Type::Name => ColumnBuilder::Name(Names::default()),
            Type::Integer => ColumnBuilder::Integer(UInt64Builder::new()),
            Type::Signed => ColumnBuilder::Signed(Int64Builder::new()),
            Type::Real => ColumnBuilder::Real(Float64Builder::new()),
            Type::Boolean => ColumnBuilder::Boolean(BooleanBuilder::new()),
            Type::List(Type::Name) => panic!("lists hold text, not names"),
            Type::List(items) => ColumnBuilder::List(Box::new(Lists::new(*items))),
        }
    }

    /// Adds a cell. Returns whether its type matches the column.
    #[inline]
    fn push(&mut self, cell: Cell<'_>) -> bool {
        match (self, cell) {
            (ColumnBuilder::Integer(column), Cell::Integer(integer)) => column.append_value(integer),
            (ColumnBuilder::Name(names), Cell::Text(name)) => names.push(name),
            (ColumnBuilder::Text(column), Cell::Text(text)) => column.append_value(text),
            (ColumnBuilder::Signed(column), Cell::Signed(integer)) => column.append_value(integer),
            (ColumnBuilder::Real(column), Cell::Real(real)) => column.append_value(real),
            (ColumnBuilder::Boolean(column), Cell::Boolean(truth)) => column.append_value(truth),
            (ColumnBuilder::List(lists), Cell::List(items)) => {
                let mut count = 0;
                for item in items.iter() {
                    count += 1;
                    if !lists.items.push(item) {
                        return false;
                    }
                }
                lists.count += count;
                lists.ends.push_length(count);
                lists.known.append_non_null();
            }
            (ColumnBuilder::Unread(_, rows), _) => *rows += 1,
            (column, Cell::Null) => column.push_null(),
            _ => return false,
        }
        true
    }

    fn push_null(&mut self) {
        match self {
            ColumnBuilder::Text(column) => column.append_null(),
            ColumnBuilder::Name(names) => names.cells.append_null(),
            ColumnBuilder::Integer(column) => column.append_null(),
            ColumnBuilder::Signed(column) => column.append_null(),
            ColumnBuilder::Real(column) => column.append_null(),
            ColumnBuilder::Boolean(column) => column.append_null(),
            ColumnBuilder::List(lists) => {
                lists.ends.push_length(0);
                lists.known.append_null();
            }
            ColumnBuilder::Unread(_, rows) => *rows += 1,
        }
    }

    /// Bytes of text in the current batch.
    fn text_bytes(&self) -> usize {
        match self {
            ColumnBuilder::Text(column) => column.values_slice().len(),
            // Each item counts as eight bytes of text.
            ColumnBuilder::List(lists) => lists.items.text_bytes().max(lists.count.saturating_mul(8)),
            _ => 0,
        }
    }

    /// The cells so far as an array; for a name column, their indices into the dictionary.
    fn take(&mut self) -> ArrayRef {
        match self {
            ColumnBuilder::Text(column) => compact(column.finish()),
            ColumnBuilder::Name(names) => compact(names.cells.finish()),
            ColumnBuilder::Integer(column) => compact(column.finish()),
            ColumnBuilder::Signed(column) => compact(column.finish()),
            ColumnBuilder::Real(column) => compact(column.finish()),
            ColumnBuilder::Boolean(column) => compact(column.finish()),
            ColumnBuilder::List(lists) => {
                let empty = Lists::new(lists.kind);
                let Lists { kind, mut items, ends, mut known, .. } = std::mem::replace(&mut **lists, empty);
                let field = Arc::new(kind.item_field());
                Arc::new(ListArray::new(field, ends.finish(), items.take(), known.finish()))
            }
            ColumnBuilder::Unread(kind, rows) => new_null_array(&kind.arrow(), std::mem::take(rows)),
        }
    }

    /// Takes the dictionary of names and starts a new one.
    fn take_names(&mut self) -> Option<ArrayRef> {
        let ColumnBuilder::Name(names) = self else { return None };
        names.indices.clear();
        names.bytes = 0;
        Some(Arc::new(names.names.finish()))
    }
}

impl Names {
    #[inline]
    fn push(&mut self, name: &str) {
        let key = match self.indices.get(name) {
            Some(key) => *key,
            None => {
                let key = self.indices.len() as i32;
                self.indices.insert(name.into(), key);
                self.names.append_value(name);
                self.bytes += name.len();
                key
            }
        };
        self.cells.append_value(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Unit, Value, table::cells};

    #[test]
    fn columns_without_cells_share_their_memory() {
        let columns = vec![Column::integer("number", Unit::Count), Column::name("unread")];
        let batch = |rows: u64| {
            let mut builder = TableBuilder::new("test", Shape::Counters, columns.clone());
            for number in 0..rows {
                builder.row([Cell::Integer(number), Cell::Null]);
            }
            builder.last_batch().expect("it has rows")
        };
        let mut builder = TableBuilder::new("test", Shape::Counters, columns.clone());
        for rows in [10, 7, 20, 20] {
            builder.add_batch(&batch(rows));
        }
        let table = builder.finish(Vec::new());
        let rows: Vec<usize> = table.batches().iter().map(RecordBatch::num_rows).collect();
        assert_eq!(
            (rows, table.rows()[26].clone()),
            (vec![10, 7, 20, 20], vec![Value::Integer(9), Value::Null])
        );
        let unread = |batch: usize| {
            let column = table.batches()[batch].column(1).as_dictionary::<Int32Type>().clone();
            column.keys().values().as_ptr()
        };
        assert_eq!((unread(0), unread(2)), (unread(1), unread(3)));
        assert_ne!(unread(0), unread(2));
    }

    #[test]
    fn columns_that_are_left_out_are_null() {
        let list = Type::List(&Type::Integer);
        let kinds = [Type::Integer, Type::Name, Type::Text, Type::Signed, Type::Boolean, list];
        let names = ["a", "b", "c", "d", "e", "f"];
        let column = |(name, kind)| Column { name, kind, ..Column::integer("a", Unit::None) };
        let columns: Vec<Column> = names.into_iter().zip(kinds).map(column).collect();
        let items = [Value::Integer(2), Value::Integer(3)];
        let row =
            [1u64.into(), "b".into(), "c".into(), Value::Signed(-4), true.into(), items.to_vec().into()];
        for left_out in 0..names.len() {
            let read: Vec<bool> = (0..names.len()).map(|column| column != left_out).collect();
            let mut builder = TableBuilder::new("test", Shape::Counters, columns.clone()).leaving_out(&read);
            (0..3).for_each(|_| builder.row(row.iter().map(Value::cell)));
            let mut expected = row.to_vec();
            expected[left_out] = Value::Null;
            assert_eq!(builder.finish(Vec::new()).rows(), vec![expected; 3]);
        }
    }

    #[test]
    fn streamed_batches_have_all_rows_in_order() {
        let columns = vec![Column::name("name"), Column::integer("number", Unit::Count)];
        let mut builder = TableBuilder::new("test", Shape::Counters, columns);
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for number in 0..3 * BATCH_ROWS as u64 {
            let row = [Value::from(format!("n{}", number / 1000)), number.into()];
            builder.row(row.iter().map(Value::cell));
            expected.push(row.to_vec());
            if number % 100_000 == 99_999 {
                while let Some(batch) = builder.full_batch() {
                    found.push(batch);
                }
            }
        }
        while let Some(batch) = builder.last_batch() {
            found.push(batch);
        }
        let rows = found.iter().flat_map(|batch| {
            let columns = cells(batch);
            let row = move |row| columns.iter().map(|column| column.cell(row).to_value()).collect::<Vec<_>>();
            (0..batch.num_rows()).map(row).collect::<Vec<_>>()
        });
        assert!(rows.eq(expected));
    }
}
