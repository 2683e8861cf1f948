//! Software events: what a tracepoint recorded, in any tracer's format.
//!
//! ```text
//! bytes of an event ──its format's reader──► FieldSink: each field in order ──► text, JSON, a condition
//! ```
//!
//! No event allocates: names and meanings belong to the metadata, text to the trace.

mod json;
mod text;

use std::ops::RangeInclusive;

pub use self::{json::JsonFields, text::TextFields};

/// The base in which an integer is displayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Base {
    /// 2.
    Binary,
    /// 8.
    Octal,
    /// 10.
    #[default]
    Decimal,
    /// 16.
    Hexadecimal,
}

/// A name for some values of an integer. Ranges of several labels may overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The name.
    pub name: String,
    /// The values.
    pub ranges: Vec<RangeInclusive<i128>>,
}

/// How to display an integer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meaning {
    /// The base.
    pub base: Base,
    /// Size in bits; negative numbers in a base other than ten are displayed as this many bits.
    pub size: u32,
    /// Names of its values. If there are any, it is an enumeration.
    pub labels: Vec<Label>,
}

impl Meaning {
    /// The names of a value, in metadata order.
    pub fn labels_of(&self, value: i128) -> impl Iterator<Item = &str> {
        let named = self.labels.iter().filter(move |label| label.ranges.iter().any(|r| r.contains(&value)));
        named.map(|label| label.name.as_str())
    }
}

/// A field's name within its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// The name of a structure's member, or of a variant's selected option.
    Member(&'a str),
    /// The index of an array's element.
    Element(u64),
}

/// The kind of a field with parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compound {
    /// Members with names.
    Structure,
    /// Elements.
    Array,
    /// Exactly one member: the selected option.
    Variant,
}

/// Receives the fields of an event, in order. Methods that a sink does not define ignore the field.
#[allow(unused_variables, reason = "their names are the documentation")]
pub trait FieldSink {
    /// An unsigned integer.
    fn unsigned(&mut self, name: Name<'_>, value: u64, meaning: &Meaning) {}
    /// A signed integer.
    fn signed(&mut self, name: Name<'_>, value: i64, meaning: &Meaning) {}
    /// A binary floating-point number.
    fn real(&mut self, name: Name<'_>, value: f64) {}
    /// True or false.
    fn boolean(&mut self, name: Name<'_>, value: bool) {}
    /// Text: UTF-8, unless the traced program wrote something else.
    fn text(&mut self, name: Name<'_>, text: &[u8]) {}
    /// Bytes.
    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {}
    /// An optional field that is missing.
    fn absent(&mut self, name: Name<'_>) {}
    /// Starts a field with parts; they follow up to the matching `end`.
    fn begin(&mut self, name: Name<'_>, compound: Compound) {}
    /// Ends the innermost field with parts.
    fn end(&mut self, compound: Compound) {}
}

/// Ignores all fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl FieldSink for Ignore {}
