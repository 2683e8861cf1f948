//! Schemas of tables: the shape of their records and the types of their columns.

use serde::{Deserialize, Serialize};

use crate::naming::Naming;

/// The shape of a table's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// A begin and an end: states, calls, losses.
    Intervals,
    /// One instant.
    Points,
    /// One instant, from which a number holds.
    Counters,
    /// From a lane, at the begin, to the lane that is the value, at the end: wake-ups, messages.
    Links,
}

impl Shape {
    /// Returns whether records have a duration.
    pub fn has_duration(self) -> bool {
        matches!(self, Shape::Intervals | Shape::Links)
    }
}

/// The type of a cell's 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The number of a name of the store.
    Name,
    /// The number of a lane of the table.
    Lane,
    /// An unsigned integer.
    Integer,
    /// An integer in two's complement.
    Signed,
    /// The bits of an IEEE 754 double.
    Real,
    /// 0 or 1.
    Boolean,
}

impl Kind {
    /// Maps a cell to a number with the same order.
    pub(crate) fn ordered(self, bits: u64) -> u64 {
        const SIGN: u64 = 1 << 63;
        match self {
            Kind::Signed => bits ^ SIGN,
            // The total order of IEEE 754: negative numbers from the largest bits down.
            Kind::Real if bits & SIGN != 0 => !bits,
            Kind::Real => bits | SIGN,
            _ => bits,
        }
    }

    /// Returns the cell of an ordered number.
    pub(crate) fn of_ordered(self, number: u64) -> u64 {
        const SIGN: u64 = 1 << 63;
        match self {
            Kind::Signed => number ^ SIGN,
            Kind::Real if number & SIGN == 0 => !number,
            Kind::Real => number ^ SIGN,
            _ => number,
        }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its stable name.
    pub name: String,
    /// The type of its cells.
    pub kind: Kind,
    /// The unit of its numbers, such as `ns`; empty if there is none.
    pub unit: String,
}

impl Field {
    /// Creates a column without a unit.
    pub fn new(name: &str, kind: Kind) -> Field {
        Field { name: name.to_owned(), kind, unit: String::new() }
    }
}

/// A table's name and columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The stable name, such as `states`.
    pub name: String,
    /// The shape of its records.
    pub shape: Shape,
    /// The columns that identify a lane. A lane is a row of a timeline view, such as a thread or a depth of its stack.
    pub key: Vec<Field>,
    /// The value of a lane during a record: a state, a function, a number.
    pub value: Field,
    /// Further columns of a record.
    pub columns: Vec<Field>,
    /// Names of the table and its lanes, for people.
    pub naming: Naming,
}

impl Schema {
    /// Columns of a record at most: a 32-bit mask marks the value and the cells that are null.
    pub(crate) const MOST_COLUMNS: usize = 31;
    /// Columns of a key at most.
    pub(crate) const MOST_KEYS: usize = 64;

    pub(crate) fn fits(&self) -> bool {
        let is_lane = |field: &Field| field.kind == Kind::Lane;
        self.columns.len() <= Schema::MOST_COLUMNS
            && self.key.len() <= Schema::MOST_KEYS
            && !self.key.iter().any(is_lane)
            && (self.shape == Shape::Links) == is_lane(&self.value)
    }
}

/// A record returned by queries. Records are ordered by lane, begin, end, value and cells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// The number of its lane in its table.
    pub lane: u32,
    /// Its first instant, in nanoseconds.
    pub begin: u64,
    /// The first instant after it; equal to `begin` without a duration.
    pub end: u64,
    /// Its value, in the schema's type.
    pub value: Option<u64>,
    /// Its other cells.
    pub cells: Vec<Option<u64>>,
}
