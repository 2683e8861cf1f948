//! Tables: what their records are, and what their columns hold.

use serde::{Deserialize, Serialize};

/// What the records of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// A begin and an end: states, calls, losses.
    Intervals,
    /// One instant.
    Points,
    /// One instant, from which on a number holds.
    Counters,
    /// From a lane, at the begin, to the lane that is the value, at the end: wake-ups, messages.
    Links,
}

impl Shape {
    /// Whether records last.
    pub fn has_duration(self) -> bool {
        matches!(self, Shape::Intervals | Shape::Links)
    }
}

/// What the 64 bits of a cell mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The number of a name of the store.
    Name,
    /// The number of a lane of the table.
    Lane,
    /// An integer from 0.
    Integer,
    /// An integer in two's complement.
    Signed,
    /// A fraction: the bits of an IEEE 754 double.
    Real,
    /// 0 or 1.
    Boolean,
}

impl Kind {
    /// A number that is ordered as the cells are.
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

    /// The cell of an ordered number.
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
    /// What its cells are.
    pub kind: Kind,
    /// What its numbers count, such as `ns`; empty where nothing.
    pub unit: String,
}

impl Field {
    /// A column of numbers without a unit, or of names.
    pub fn new(name: &str, kind: Kind) -> Field {
        Field { name: name.to_owned(), kind, unit: String::new() }
    }
}

/// A table's name and columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The stable name, such as `states`.
    pub name: String,
    /// What its records are.
    pub shape: Shape,
    /// What lanes are told apart by: a lane is a row of a picture, such as a thread or a depth of its stack.
    pub key: Vec<Field>,
    /// What a lane is in during a record: a state, a function, a number.
    pub value: Field,
    /// What else is known of a record.
    pub columns: Vec<Field>,
}

impl Schema {
    /// The most columns of a record: a mask of 32 bits says which cells are null.
    pub(crate) const MOST_COLUMNS: usize = 31;
    /// The most columns of a key.
    pub(crate) const MOST_KEYS: usize = 64;

    pub(crate) fn fits(&self) -> bool {
        let is_lane = |field: &Field| field.kind == Kind::Lane;
        self.columns.len() <= Schema::MOST_COLUMNS
            && self.key.len() <= Schema::MOST_KEYS
            && !self.key.iter().any(is_lane)
            && (self.shape == Shape::Links) == is_lane(&self.value)
    }
}

/// A record, as it comes out. Records are ordered by lane, begin, end, value and cells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// The number of its lane in its table.
    pub lane: u32,
    /// Its first instant, in nanoseconds.
    pub begin: u64,
    /// The first instant after it; that of its begin where it has no duration.
    pub end: u64,
    /// Its value, as the schema says.
    pub value: Option<u64>,
    /// Its other cells.
    pub cells: Vec<Option<u64>>,
}
