//! Fields of protobuf messages, and numbers that the reader of a format computes: what Perfetto has instead of offsets.

use std::sync::Arc;

use hodo_model::event::{Compound, FieldSink, Meaning, Name};

use super::{
    read::Walk,
    schema::{Encoding, Slot},
    steps::Trouble,
};
use crate::{
    ftrace::Names,
    perfetto::wire::{Field, Fields, Packed, Value},
};

/// The type of a field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer in two's complement.
    Signed,
    /// An integer in two's complement, in protobuf's zigzag form.
    Zigzag,
    /// An unsigned integer.
    Unsigned,
    /// A boolean.
    Boolean,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// Any number of unsigned integers.
    Many,
}

/// How a field is found in its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKey {
    /// By its number.
    Number(u32),
    /// By its name in a list of names and values, as of Perfetto's generic events.
    Name(String),
    /// The message itself.
    Whole,
}

/// A field of the message that an event's payload is. Absent if the message does not have it.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageField {
    /// How it is found.
    pub key: FieldKey,
    /// Its type.
    pub kind: Kind,
    /// The meaning of its number.
    pub meaning: Meaning,
    /// Names of its numbers, if they are what is read. Absent if the number has no name.
    pub names: Option<Names>,
}

/// A number that the format's reader computes for each event. Absent if it is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedField {
    /// The slot with its value in two's complement; the least value stands for an unknown one.
    pub slot: Slot,
    /// Its meaning.
    pub meaning: Meaning,
    /// What is read of it.
    pub shown: Shown,
}

/// What is read of a computed number.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// The number.
    Itself,
    /// Its name.
    Name(Names),
    /// Another number that belongs to it: pairs of both, in the order of the first.
    Other(Arc<Vec<(i64, i64)>>),
}

/// The slot's value for an unknown number.
pub(crate) const UNKNOWN: i64 = i64::MIN;

/// Numbers of the fields of Perfetto's `GenericFtraceEvent` and its `Field`.
mod generic {
    pub(super) const FIELD: u32 = 2;
    pub(super) const NAME: u32 = 1;
}

/// The name and the value of an entry of a generic event.
pub(crate) fn generic_value<'a>(entry: &'a [u8]) -> Option<(&'a [u8], Field<'a>)> {
    let (mut fields, mut name, mut value) = (Fields::new(entry), None, None);
    while let Some(field) = fields.next().ok()? {
        match field.number {
            generic::NAME => name = field.bytes(),
            _ => value = Some(field),
        }
    }
    name.zip(value)
}

impl<S: FieldSink> Walk<'_, '_, S> {
    /// Passes the field of the message from bit `position` to the event's end to the sink.
    pub(super) fn message(
        &mut self,
        field: &MessageField,
        name: Name<'_>,
        position: u64,
    ) -> Result<(), Trouble> {
        let bytes = self.content.bytes_from(position);
        if field.key == FieldKey::Whole {
            self.sink.blob(name, bytes);
            return Ok(());
        }
        if field.kind == Kind::Many {
            return self.many(field, name, bytes);
        }
        let mut fields = Fields::new(bytes);
        while let Some(next) = fields.next().map_err(|_| Trouble::CutShort)? {
            let wanted = match &field.key {
                FieldKey::Number(number) => (next.number == *number).then_some(next),
                FieldKey::Name(wanted) => {
                    let entry = next.bytes().filter(|_| next.number == generic::FIELD);
                    let entry = entry.and_then(generic_value).filter(|(name, _)| *name == wanted.as_bytes());
                    entry.map(|(_, value)| value)
                }
                FieldKey::Whole => None,
            };
            if let Some(wanted) = wanted {
                self.value(field, name, wanted.value);
                return Ok(());
            }
        }
        self.sink.absent(name);
        Ok(())
    }

    fn value(&mut self, field: &MessageField, name: Name<'_>, value: Value<'_>) {
        let sink = &mut *self.sink;
        match (value, field.kind, &field.names) {
            (Value::Number(number), _, Some(names)) => match names.get(number) {
                Some(text) => sink.text(name, text),
                None => sink.absent(name),
            },
            (Value::Number(number), Kind::Signed, _) => sink.signed(name, number as i64, &field.meaning),
            (Value::Number(number), Kind::Zigzag, _) => {
                sink.signed(name, (number >> 1) as i64 ^ -((number & 1) as i64), &field.meaning);
            }
            (Value::Number(number), Kind::Unsigned, _) => sink.unsigned(name, number, &field.meaning),
            (Value::Number(number), Kind::Boolean, _) => sink.boolean(name, number != 0),
            (Value::Bytes(text), Kind::Text, None) => self.text(name, text, Encoding::Utf8),
            (Value::Bytes(bytes), Kind::Bytes, None) => sink.blob(name, bytes),
            // Another type than the description says.
            _ => sink.absent(name),
        }
    }

    /// Integers in fields of the same number, each alone or several packed.
    fn many(&mut self, field: &MessageField, name: Name<'_>, bytes: &[u8]) -> Result<(), Trouble> {
        self.sink.begin(name, Compound::Array);
        let (mut fields, mut index) = (Fields::new(bytes), 0);
        while let Some(next) = fields.next().map_err(|_| Trouble::CutShort)? {
            if FieldKey::Number(next.number) != field.key {
                continue;
            }
            let (single, packed) = match next.value {
                Value::Number(number) => (Some(number), Packed::default()),
                Value::Bytes(bytes) => (None, Packed::new(bytes)),
            };
            for number in single.into_iter().chain(packed) {
                self.sink.unsigned(Name::Element(index), number, &field.meaning);
                index += 1;
            }
        }
        self.sink.end(Compound::Array);
        Ok(())
    }

    /// Passes a computed number, its name, or the number that belongs to it to the sink.
    pub(super) fn computed(&mut self, field: &ComputedField, name: Name<'_>) {
        let value = self.slots.get(field.slot) as i64;
        let value = Some(value).filter(|&value| value != UNKNOWN);
        let number = match &field.shown {
            Shown::Itself => value,
            Shown::Name(names) => {
                return match value.and_then(|value| names.get(value as u64)) {
                    Some(text) => self.sink.text(name, text),
                    None => self.sink.absent(name),
                };
            }
            Shown::Other(pairs) => value.and_then(|value| {
                let index = pairs.binary_search_by_key(&value, |(number, _)| *number).ok()?;
                pairs.get(index).map(|(_, other)| *other)
            }),
        };
        match number {
            Some(number) => self.sink.signed(name, number, &field.meaning),
            None => self.sink.absent(name),
        }
    }
}
