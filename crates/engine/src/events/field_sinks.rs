//! Receivers of single fields: for numbers, and for the records of analyses.

use hodo_formats::events::{Event, Trouble, schema::Scope};
use hodo_model::{
    event::{Compound, FieldSink, Meaning, Name, TextFields},
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

/// Fields that ftrace and perf record among a system call's arguments and that are not arguments.
const NO_ARGUMENTS: [&[u8]; 2] = [b"__syscall_nr", b"id"];
/// The prefix of fields that all events have.
const COMMON: &[u8] = b"common_";

/// Formats the fields of an event as arguments of a call: `fd = 3, count = 100`.
pub(super) fn arguments(event: &Event<'_, '_, '_>) -> Result<Vec<u8>, Trouble> {
    let mut out = Vec::new();
    event.emit(Scope::Payload, &mut TextFields::new(&mut out))?;
    let mut rest = out.as_slice().trim_ascii();
    while let Some(end) = rest.iter().position(|&byte| byte == b' ') {
        if !rest.starts_with(COMMON) && !NO_ARGUMENTS.contains(&&rest[..end]) {
            break;
        }
        let behind = rest.iter().position(|&byte| byte == b',').map_or(rest.len(), |comma| comma + 1);
        rest = rest[behind..].trim_ascii_start();
    }
    Ok(rest.to_vec())
}
