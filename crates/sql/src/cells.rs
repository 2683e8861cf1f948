//! Cells of batches, found without a look at the type of their array for each.

use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, UInt64Array,
    cast::AsArray,
    types::{Int32Type, Int64Type, UInt64Type},
};
use arrow_schema::DataType;
use hodo_model::table::{Cell, Cells};

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
    pub(crate) fn all(batch: &RecordBatch) -> Vec<BatchColumn> {
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

    /// The cell of a row as SQLite's integer; `None` for nulls and for other types.
    #[inline]
    pub(crate) fn integer(&self, row: usize) -> Option<i64> {
        match self {
            BatchColumn::Integers(cells) => cells.is_valid(row).then(|| cells.value(row) as i64),
            BatchColumn::Signed(cells) => cells.is_valid(row).then(|| cells.value(row)),
            BatchColumn::Names { .. } | BatchColumn::Other(_) => None,
        }
    }
}
