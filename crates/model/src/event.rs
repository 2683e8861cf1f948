//! Software events: what a tracepoint wrote, whichever tracer it was.
//!
//! ```text
//! bytes of an event ──its format's reader──► FieldSink: each field in order ──► text, JSON, a condition
//! ```
//!
//! Nothing here is allocated for an event: names and meanings belong to the metadata, text to the trace.

use std::ops::RangeInclusive;

/// How people write a number.
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

/// A name for some values of an integer; ranges of several labels may overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The name.
    pub name: String,
    /// The values.
    pub ranges: Vec<RangeInclusive<i128>>,
}

/// What an integer means to people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meaning {
    /// How to write it.
    pub base: Base,
    /// Its size in bits; negative numbers in another base than ten are written as that many bits.
    pub size: u32,
    /// Names of its values; where there are any, it is an enumeration.
    pub labels: Vec<Label>,
}

impl Meaning {
    /// The names of a value, in the order of the metadata.
    pub fn labels_of(&self, value: i128) -> impl Iterator<Item = &str> {
        let named = self.labels.iter().filter(move |label| label.ranges.iter().any(|r| r.contains(&value)));
        named.map(|label| label.name.as_str())
    }
}

/// What a field is called by what it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// The member of a structure, or the chosen option of a variant.
    Member(&'a str),
    /// An element of an array.
    Element(u64),
}

/// A field that has parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compound {
    /// Members with names.
    Structure,
    /// Elements.
    Array,
    /// Exactly one member: the chosen option.
    Variant,
}

/// Takes the fields of an event, in their order.
pub trait FieldSink {
    /// An integer that is never negative.
    fn unsigned(&mut self, name: Name<'_>, value: u64, meaning: &Meaning);
    /// An integer that may be negative.
    fn signed(&mut self, name: Name<'_>, value: i64, meaning: &Meaning);
    /// A binary floating-point number.
    fn real(&mut self, name: Name<'_>, value: f64);
    /// True or false.
    fn boolean(&mut self, name: Name<'_>, value: bool);
    /// Text: UTF-8, as far as the traced program kept to it.
    fn text(&mut self, name: Name<'_>, text: &[u8]);
    /// Bytes.
    fn blob(&mut self, name: Name<'_>, bytes: &[u8]);
    /// An optional field that is not there.
    fn absent(&mut self, name: Name<'_>);
    /// The parts of a field follow, up to its `end`.
    fn begin(&mut self, name: Name<'_>, compound: Compound);
    /// The innermost field that has parts is complete.
    fn end(&mut self, compound: Compound);
}

/// Takes no notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl FieldSink for Ignore {
    fn unsigned(&mut self, _: Name<'_>, _: u64, _: &Meaning) {}
    fn signed(&mut self, _: Name<'_>, _: i64, _: &Meaning) {}
    fn real(&mut self, _: Name<'_>, _: f64) {}
    fn boolean(&mut self, _: Name<'_>, _: bool) {}
    fn text(&mut self, _: Name<'_>, _: &[u8]) {}
    fn blob(&mut self, _: Name<'_>, _: &[u8]) {}
    fn absent(&mut self, _: Name<'_>) {}
    fn begin(&mut self, _: Name<'_>, _: Compound) {}
    fn end(&mut self, _: Compound) {}
}
