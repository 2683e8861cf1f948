//! Cells: the values that tables are built from and columns are read as.

use std::{fmt, ops::Range};

use arrow_array::{
    Array, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, StringArray, UInt64Array,
    cast::AsArray,
    types::{Float64Type, Int32Type, Int64Type, UInt64Type},
};
use arrow_schema::DataType;

/// An owned value: a figure of a summary, or a cell to add to a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Unknown, or not applicable to the row.
    Null,
    /// Text or a name.
    Text(String),
    /// An exact integer.
    Integer(u64),
    /// An exact integer that may be negative.
    Signed(i64),
    /// A floating-point number, such as a share.
    Real(f64),
    /// True or false.
    Boolean(bool),
    /// Values of one type.
    List(Vec<Value>),
}

impl Value {
    /// Borrows the value as a cell.
    pub fn cell(&self) -> Cell<'_> {
        match self {
            Value::Null => Cell::Null,
            Value::Text(text) => Cell::Text(text),
            Value::Integer(integer) => Cell::Integer(*integer),
            Value::Signed(integer) => Cell::Signed(*integer),
            Value::Real(real) => Cell::Real(*real),
            Value::Boolean(truth) => Cell::Boolean(*truth),
            Value::List(items) => Cell::List(Items::Values(items)),
        }
    }
}

/// Conversions from plain types.
macro_rules! from {
    ($($from:ty, $value:ident => $into:expr;)*) => {
        $(impl From<$from> for Value {
            fn from($value: $from) -> Value {
                $into
            }
        })*
    };
}

from! {
    &str, text => Value::Text(text.to_owned());
    String, text => Value::Text(text);
    u64, integer => Value::Integer(integer);
    u32, integer => Value::Integer(integer.into());
    i64, integer => Value::Signed(integer);
    i32, integer => Value::Signed(integer.into());
    f64, real => Value::Real(real);
    bool, truth => Value::Boolean(truth);
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Value {
        Value::List(items.into_iter().map(Into::into).collect())
    }
}

/// A cell of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Unknown, or not applicable to the row.
    Null,
    /// Text or a name.
    Text(&'a str),
    /// An exact integer.
    Integer(u64),
    /// An exact integer that may be negative.
    Signed(i64),
    /// A floating-point number.
    Real(f64),
    /// True or false.
    Boolean(bool),
    /// Cells of one type.
    List(Items<'a>),
}

impl Cell<'_> {
    /// Appends the cell as JSON. Integers are exact; infinities and NaN, which JSON lacks, become null.
    pub fn write_json(self, json: &mut Vec<u8>) {
        match self {
            Cell::Text(text) => write_text(text, json),
            Cell::Integer(integer) => write_number(integer, json),
            Cell::Signed(integer) => write_number(integer, json),
            Cell::Real(real) if real.is_finite() => write_number(real, json),
            Cell::Null | Cell::Real(_) => json.extend(b"null"),
            Cell::Boolean(truth) => json.extend(if truth { &b"true"[..] } else { b"false" }),
            Cell::List(items) => {
                json.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    json.extend((index > 0).then_some(b','));
                    item.write_json(json);
                }
                json.push(b']');
            }
        }
    }

    /// Copies the cell into a value.
    pub fn to_value(self) -> Value {
        match self {
            Cell::Null => Value::Null,
            Cell::Text(text) => Value::from(text),
            Cell::Integer(integer) => Value::Integer(integer),
            Cell::Signed(integer) => Value::Signed(integer),
            Cell::Real(real) => Value::Real(real),
            Cell::Boolean(truth) => Value::Boolean(truth),
            Cell::List(items) => Value::List(items.iter().map(Cell::to_value).collect()),
        }
    }
}

macro_rules! cell_from {
    ($($from:ty, $value:ident => $into:expr;)*) => {
        $(impl<'a> From<$from> for Cell<'a> {
            fn from($value: $from) -> Cell<'a> {
                $into
            }
        })*
    };
}

cell_from! {
    &'a str, text => Cell::Text(text);
    u64, integer => Cell::Integer(integer);
    u32, integer => Cell::Integer(integer.into());
    i64, integer => Cell::Signed(integer);
    i32, integer => Cell::Signed(integer.into());
    f64, real => Cell::Real(real);
    bool, truth => Cell::Boolean(truth);
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Cell<'a> {
        value.map_or(Cell::Null, Into::into)
    }
}

/// Appends text as a JSON string.
pub(super) fn write_text(text: &str, json: &mut Vec<u8>) {
    serde_json::to_writer(json, text).expect("writing to memory does not fail");
}

fn write_number(number: impl serde::Serialize, json: &mut Vec<u8>) {
    serde_json::to_writer(json, &number).expect("writing to memory does not fail");
}

/// The items of a list.
#[derive(Clone, Copy)]
pub enum Items<'a> {
    /// The items of a [`Value::List`].
    Values(&'a [Value]),
    /// Some of a column's concatenated list items.
    Cells {
        /// The items of all lists of the column.
        cells: &'a Cells<'a>,
        /// Index of the first item.
        begin: usize,
        /// Index after the last item.
        end: usize,
    },
}

impl<'a> Items<'a> {
    /// The items in order.
    pub fn iter(self) -> impl Iterator<Item = Cell<'a>> {
        let (values, cells): (&[Value], _) = match self {
            Items::Values(values) => (values, None),
            Items::Cells { cells, begin, end } => (&[], Some((cells, begin..end))),
        };
        let of_column = |(cells, range): (&'a Cells<'a>, Range<usize>)| range.map(|item| cells.cell(item));
        values.iter().map(Value::cell).chain(cells.into_iter().flat_map(of_column))
    }
}

impl PartialEq for Items<'_> {
    fn eq(&self, other: &Items<'_>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A column of a batch, for reading cells.
#[derive(Clone, Debug)]
pub enum Cells<'a> {
    /// Unsigned integers.
    Integer(&'a UInt64Array),
    /// Signed integers.
    Signed(&'a Int64Array),
    /// Floating-point numbers.
    Real(&'a Float64Array),
    /// Booleans.
    Boolean(&'a BooleanArray),
    /// Text.
    Text(&'a StringArray),
    /// Names: dictionary indices and the dictionary.
    Name(&'a Int32Array, &'a StringArray),
    /// Lists, and their concatenated items.
    List(&'a ListArray, Box<Cells<'a>>),
}

impl<'a> Cells<'a> {
    /// Reads the cells of an array.
    ///
    /// # Panics
    /// If the array has none of the types of [`Type`](super::Type).
    pub fn of(array: &'a dyn Array) -> Cells<'a> {
        match array.data_type() {
            DataType::UInt64 => Cells::Integer(array.as_primitive::<UInt64Type>()),
            DataType::Int64 => Cells::Signed(array.as_primitive::<Int64Type>()),
            DataType::Float64 => Cells::Real(array.as_primitive::<Float64Type>()),
            DataType::Boolean => Cells::Boolean(array.as_boolean()),
            DataType::Utf8 => Cells::Text(array.as_string()),
            DataType::Dictionary(..) => {
                let names = array.as_dictionary::<Int32Type>();
                Cells::Name(names.keys(), names.values().as_string())
            }
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                Cells::List(lists, Box::new(Cells::of(lists.values().as_ref())))
            }
            other => panic!("no column of a table is of the type {other}"),
        }
    }

    /// The cell of a row in the batch.
    #[inline]
    pub fn cell(&self, row: usize) -> Cell<'_> {
        fn known<'c>(array: &impl Array, row: usize, cell: impl FnOnce() -> Cell<'c>) -> Cell<'c> {
            if array.is_null(row) { Cell::Null } else { cell() }
        }
        match *self {
            Cells::Integer(array) => known(array, row, || Cell::Integer(array.value(row))),
            Cells::Signed(array) => known(array, row, || Cell::Signed(array.value(row))),
            Cells::Real(array) => known(array, row, || Cell::Real(array.value(row))),
            Cells::Boolean(array) => known(array, row, || Cell::Boolean(array.value(row))),
            Cells::Text(array) => known(array, row, || Cell::Text(array.value(row))),
            Cells::Name(keys, names) => {
                known(keys, row, || Cell::Text(names.value(keys.value(row) as usize)))
            }
            Cells::List(array, ref items) => known(array, row, || {
                let offsets = array.value_offsets();
                let (begin, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                Cell::List(Items::Cells { cells: items, begin, end })
            }),
        }
    }
}
