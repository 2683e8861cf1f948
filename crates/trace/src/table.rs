//! The only thing that leaves an analysis.

use crate::Loss;

/// What kind of picture a table can become; views accept shapes, never analyses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Rows that stand by themselves, such as counts by function.
    Counters,
    /// Rows in depth-first order; the column `depth` tells the parent.
    Tree,
    /// Rows with a begin and an end.
    Intervals,
    /// Rows with a time.
    Points,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Text, or a number without a unit.
    None,
    /// Things of one kind, such as calls.
    Count,
    /// Executed instructions.
    Instructions,
    /// Nanoseconds.
    Nanoseconds,
    /// Core cycles.
    Cycles,
    /// Instructions per core cycle.
    InstructionsPerCycle,
    /// Bytes.
    Bytes,
    /// A share of a whole, 0 to 1.
    Share,
    /// An address in a program's memory; hexadecimal in text.
    Address,
}

impl Unit {
    /// The unit's name in JSON: `count`, `instructions`, `ns`, …; empty for none.
    pub fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Count => "count",
            Unit::Instructions => "instructions",
            Unit::Nanoseconds => "ns",
            Unit::Cycles => "cycles",
            Unit::InstructionsPerCycle => "instructions/cycle",
            Unit::Bytes => "bytes",
            Unit::Share => "share",
            Unit::Address => "address",
        }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing is known, or the column does not apply to the row.
    Null,
    /// Text.
    Text(String),
    /// An exact integer.
    Integer(u64),
    /// A fraction, such as a share.
    Real(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(integer: u64) -> Value {
        Value::Integer(integer)
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Value {
        Value::Real(real)
    }
}

/// A column's name and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The stable name, such as `self_instructions`.
    pub name: &'static str,
    /// The type's name in JSON: `string`, `integer` or `number`.
    pub kind: &'static str,
    /// What its numbers count.
    pub unit: Unit,
    /// People can do without it where a terminal has no room for all columns.
    pub secondary: bool,
}

impl Column {
    /// A column of text.
    pub const fn text(name: &'static str) -> Column {
        Column { name, kind: "string", unit: Unit::None, secondary: false }
    }

    /// A column of exact integers.
    pub const fn integer(name: &'static str, unit: Unit) -> Column {
        Column { name, kind: "integer", unit, secondary: false }
    }

    /// A column of fractions.
    pub const fn real(name: &'static str, unit: Unit) -> Column {
        Column { name, kind: "number", unit, secondary: false }
    }

    /// The same column, as one that people can do without where there is no room for all.
    pub const fn secondary(self) -> Column {
        Column { secondary: true, ..self }
    }
}

/// Rows under named columns, in a defined order, with what was lost on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The table's stable name, such as `functions`.
    pub name: &'static str,
    /// What kind of picture it can become.
    pub shape: Shape,
    /// Figures of the whole, such as `instructions`, in a defined order.
    pub summary: Vec<(&'static str, Value)>,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows; each as long as `columns`.
    pub rows: Vec<Vec<Value>>,
    /// What is missing from the rows.
    pub loss: Vec<Loss>,
}
