//! Receivers of single fields: for numbers, and for the records of analyses.

use hodo_model::{
    event::{Compound, FieldSink, Meaning, Name},
    kernel::Records,
};

/// Reads one integer.
pub(super) struct Number(pub(super) Option<i64>);

impl FieldSink for Number {
    #[inline]
    fn unsigned(&mut self, _: Name<'_>, value: u64, _: &Meaning) {
        self.0 = i64::try_from(value).ok();
    }

    #[inline]
    fn signed(&mut self, _: Name<'_>, value: i64, _: &Meaning) {
        self.0 = Some(value);
    }
}

/// Appends the name of an enumeration's value to a record, if it has one.
pub(super) struct Labeller<'r>(pub(super) &'r mut Records);

impl FieldSink for Labeller<'_> {
    fn unsigned(&mut self, _: Name<'_>, value: u64, meaning: &Meaning) {
        meaning.labels_of(value.into()).take(1).for_each(|label| self.0.text(label.as_bytes()));
    }

    fn signed(&mut self, _: Name<'_>, value: i64, meaning: &Meaning) {
        meaning.labels_of(value.into()).take(1).for_each(|label| self.0.text(label.as_bytes()));
    }
}

/// Appends the value of one field to a record; compound fields are ignored.
pub(super) struct Filler<'r> {
    pub(super) records: &'r mut Records,
    /// Number of open compound fields; 0 at first.
    pub(super) depth: u32,
}

impl FieldSink for Filler<'_> {
    #[inline]
    fn unsigned(&mut self, name: Name<'_>, value: u64, meaning: &Meaning) {
        self.signed(name, value as i64, meaning);
    }

    #[inline]
    fn signed(&mut self, _: Name<'_>, value: i64, _: &Meaning) {
        if self.depth == 0 {
            self.records.integer(value);
        }
    }

    #[inline]
    fn text(&mut self, _: Name<'_>, text: &[u8]) {
        if self.depth == 0 {
            self.records.text(text);
        }
    }

    fn begin(&mut self, _: Name<'_>, _: Compound) {
        self.depth += 1;
    }

    fn end(&mut self, _: Compound) {
        self.depth -= 1;
    }
}
