//! Column types and units, and their fields in an Arrow schema.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use arrow_schema::{DataType, Field};

use super::metadata::{ColumnMetadata, SECONDARY, UNIT};

/// Returns a name that lives as long as the process, for columns named by a trace or by a query. Each name is kept once.
pub fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.into());
            names.insert(kept);
            kept
        }
    }
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Text, or a number without a unit.
    None,
    /// A count of things, such as calls.
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
    /// A share of a whole, from 0 to 1.
    Share,
    /// An address in a program's memory; hexadecimal in text output.
    Address,
}

impl Unit {
    /// Every unit.
    pub const ALL: [Unit; 9] = [
        Unit::None,
        Unit::Count,
        Unit::Instructions,
        Unit::Nanoseconds,
        Unit::Cycles,
        Unit::InstructionsPerCycle,
        Unit::Bytes,
        Unit::Share,
        Unit::Address,
    ];

    /// The unit's name in JSON and in schemas: `count`, `instructions`, `ns`, …; empty for none.
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

    /// What a number with this unit is, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Unit::None => "text, or a number without a unit",
            Unit::Count => "a number of things, such as calls",
            Unit::Instructions => "executed instructions",
            Unit::Nanoseconds => "nanoseconds",
            Unit::Cycles => "core cycles",
            Unit::InstructionsPerCycle => "instructions per core cycle",
            Unit::Bytes => "bytes",
            Unit::Share => "a share of a whole, from 0 to 1",
            Unit::Address => "an address in a program's memory",
        }
    }

    /// The unit with this name, or [`Unit::None`].
    pub fn of_name(name: &str) -> Unit {
        Unit::ALL.into_iter().find(|unit| unit.name() == name).unwrap_or(Unit::None)
    }
}

/// The type of a column's cells. Every cell may also be null: unknown, or not applicable to the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Text that rarely repeats. Arrow: `Utf8`.
    Text,
    /// Names that repeat; each is stored once. Arrow: `Dictionary(Int32, Utf8)`.
    Name,
    /// Unsigned integers. Arrow: `UInt64`.
    Integer,
    /// Signed integers. Arrow: `Int64`.
    Signed,
    /// Floating-point numbers. Arrow: `Float64`.
    Real,
    /// True or false. Arrow: `Boolean`.
    Boolean,
    /// Lists of one type other than [`Type::Name`]. Arrow: `List`.
    List(&'static Type),
}

impl Type {
    /// The type of the Arrow array.
    pub fn arrow(self) -> DataType {
        match self {
            Type::Text => DataType::Utf8,
            Type::Name => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Type::Integer => DataType::UInt64,
            Type::Signed => DataType::Int64,
            Type::Real => DataType::Float64,
            Type::Boolean => DataType::Boolean,
            Type::List(items) => DataType::List(Arc::new(items.item_field())),
        }
    }

    /// The type whose Arrow array has this type; `None` if there is none.
    pub fn of_arrow(data: &DataType) -> Option<Type> {
        const PLAIN: [Type; 6] =
            [Type::Text, Type::Name, Type::Integer, Type::Signed, Type::Real, Type::Boolean];
        match data {
            DataType::List(items) => {
                PLAIN.iter().find(|kind| kind.arrow() == *items.data_type()).map(Type::List)
            }
            _ => PLAIN.into_iter().find(|kind| kind.arrow() == *data),
        }
    }

    pub(super) fn item_field(self) -> Field {
        Field::new_list_field(self.arrow(), true)
    }
}

/// The name, type and unit of a column, as an analysis declares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The stable name, such as `self_instructions`.
    pub name: &'static str,
    /// The type of its cells.
    pub kind: Type,
    /// The unit of its numbers.
    pub unit: Unit,
    /// Whether the text view may drop the column on a narrow terminal.
    pub secondary: bool,
}

impl Column {
    /// A column of text that rarely repeats.
    pub const fn text(name: &'static str) -> Column {
        Column::new(name, Type::Text, Unit::None)
    }

    /// A column of names that repeat, such as thread names.
    pub const fn name(name: &'static str) -> Column {
        Column::new(name, Type::Name, Unit::None)
    }

    /// A column of unsigned integers.
    pub const fn integer(name: &'static str, unit: Unit) -> Column {
        Column::new(name, Type::Integer, unit)
    }

    /// A column of signed integers.
    pub const fn signed(name: &'static str, unit: Unit) -> Column {
        Column::new(name, Type::Signed, unit)
    }

    /// A column of floating-point numbers.
    pub const fn real(name: &'static str, unit: Unit) -> Column {
        Column::new(name, Type::Real, unit)
    }

    /// A column of booleans.
    pub const fn boolean(name: &'static str) -> Column {
        Column::new(name, Type::Boolean, Unit::None)
    }

    /// A column of lists.
    pub const fn list(name: &'static str, items: &'static Type, unit: Unit) -> Column {
        Column::new(name, Type::List(items), unit)
    }

    const fn new(name: &'static str, kind: Type, unit: Unit) -> Column {
        Column { name, kind, unit, secondary: false }
    }

    /// Marks the column as one that may be dropped on a narrow terminal.
    pub const fn secondary(self) -> Column {
        Column { secondary: true, ..self }
    }

    /// The column in an Arrow schema.
    pub fn field(&self) -> Field {
        let mut metadata = HashMap::new();
        if self.unit != Unit::None {
            metadata.insert(UNIT.to_owned(), self.unit.name().to_owned());
        }
        if self.secondary {
            metadata.insert(SECONDARY.to_owned(), "true".to_owned());
        }
        Field::new(self.name, self.kind.arrow(), true).with_metadata(metadata)
    }

    /// The column of a field of an Arrow schema; `None` if no column has such a field.
    pub fn of_field(field: &Field) -> Option<Column> {
        let name = interned(field.name());
        Some(Column {
            name,
            kind: Type::of_arrow(field.data_type())?,
            unit: field.unit(),
            secondary: field.is_secondary(),
        })
    }
}
