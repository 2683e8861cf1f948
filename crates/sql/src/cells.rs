//! Cells of batches, found without a look at the type of their array for each.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, UInt64Array,
    cast::AsArray,
    types::{Int32Type, Int64Type, UInt64Type},
};
use arrow_schema::DataType;
use hodo_bytes::prefetch;
use hodo_model::table::{Cell, Cells};
use rusqlite::types::ValueRef;

/// The cells of a column in a batch. It shares the array.
#[derive(Debug)]
pub(crate) enum BatchColumn {
    Integers(UInt64Array),
    Signed(Int64Array),
    Names { numbers: Int32Array, names: StringArray },
    Other(ArrayRef),
}

impl BatchColumn {
    fn new(array: &ArrayRef) -> BatchColumn {
        match array.data_type() {
            DataType::UInt64 => BatchColumn::Integers(array.as_primitive::<UInt64Type>().clone()),
            DataType::Int64 => BatchColumn::Signed(array.as_primitive::<Int64Type>().clone()),
            DataType::Dictionary(..) => {
                let names = array.as_dictionary::<Int32Type>();
                BatchColumn::Names {
                    numbers: names.keys().clone(),
                    names: names.values().as_string::<i32>().clone(),
                }
            }
            _ => BatchColumn::Other(array.clone()),
        }
    }

    /// The columns of a batch.
    pub(crate) fn all(batch: &RecordBatch) -> Arc<[BatchColumn]> {
        batch.columns().iter().map(BatchColumn::new).collect()
    }

    /// Passes the cell of a row on. A list is only borrowed.
    #[inline]
    pub(crate) fn with_cell<R>(&self, row: usize, read: impl FnOnce(Cell<'_>) -> R) -> R {
        match self {
            BatchColumn::Integers(cells) if cells.is_null(row) => read(Cell::Null),
            BatchColumn::Integers(cells) => read(Cell::Integer(cells.value(row))),
            BatchColumn::Signed(cells) if cells.is_null(row) => read(Cell::Null),
            BatchColumn::Signed(cells) => read(Cell::Signed(cells.value(row))),
            BatchColumn::Names { numbers, .. } if numbers.is_null(row) => read(Cell::Null),
            BatchColumn::Names { numbers, names } => {
                read(Cell::Text(names.value(numbers.value(row) as usize)))
            }
            BatchColumn::Other(array) => read(Cells::of(array.as_ref()).cell(row)),
        }
    }

    /// The number of a row's name in the dictionary of the batch; `None` for nulls and for other types.
    #[inline]
    pub(crate) fn name(&self, row: usize) -> Option<usize> {
        match self {
            BatchColumn::Names { numbers, .. } if numbers.is_valid(row) => Some(numbers.value(row) as usize),
            _ => None,
        }
    }

    /// The dictionary of the batch; `None` for other types.
    pub(crate) fn names(&self) -> Option<&StringArray> {
        match self {
            BatchColumn::Names { names, .. } => Some(names),
            _ => None,
        }
    }

    /// Announces to the processor that the cell of a row will be read. This affects the speed only.
    #[inline]
    pub(crate) fn prefetch(&self, row: usize) {
        match self {
            BatchColumn::Integers(cells) => prefetch(cells.values().inner(), row * size_of::<u64>()),
            BatchColumn::Signed(cells) => prefetch(cells.values().inner(), row * size_of::<i64>()),
            BatchColumn::Names { numbers, .. } => prefetch(numbers.values().inner(), row * size_of::<i32>()),
            BatchColumn::Other(_) => {}
        }
    }

    /// By row: whether the cell is this value.
    pub(crate) fn equal<'c>(&'c self, value: ValueRef<'c>) -> Box<dyn Fn(usize) -> bool + 'c> {
        match (self, value) {
            (BatchColumn::Names { numbers, names }, ValueRef::Text(text)) => {
                let is_text: Vec<bool> =
                    (0..names.len()).map(|name| names.value(name).as_bytes() == text).collect();
                Box::new(move |row| numbers.is_valid(row) && is_text[numbers.value(row) as usize])
            }
            (_, ValueRef::Text(text)) => Box::new(move |row| {
                self.with_cell(row, |cell| matches!(cell, Cell::Text(cell) if cell.as_bytes() == text))
            }),
            (_, ValueRef::Integer(integer)) => Box::new(move |row| self.integer(row) == Some(integer)),
            _ => Box::new(|_| false),
        }
    }

    /// The cell of a row as SQLite's integer; `None` for nulls and for other types.
    #[inline(always)]
    pub(crate) fn integer(&self, row: usize) -> Option<i64> {
        match self {
            BatchColumn::Integers(cells) => cells.is_valid(row).then(|| cells.value(row) as i64),
            BatchColumn::Signed(cells) => cells.is_valid(row).then(|| cells.value(row)),
            BatchColumn::Names { .. } | BatchColumn::Other(_) => None,
        }
    }
}
