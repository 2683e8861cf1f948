//! Field classes for formats that give each field an offset (ftrace, perf), where CTF relies on order.

use hodo_model::event::{Compound, FieldSink, Meaning, Name};

use super::{
    bits,
    message::{ComputedField, MessageField},
    read::Walk,
    schema::{ByteOrder, Encoding, Integer, Slot},
    steps::{Content, Trouble},
};
use crate::ftrace::{Names, printk::print};

/// A field or padding that CTF does not have. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum ForeignField {
    /// Padding.
    Padding(u64),
    /// u32 whose low half is the offset of the elements, and whose high half is their size.
    Located {
        /// Origin of the offset, relative to this field.
        origin: i64,
        /// The order of bytes.
        order: ByteOrder,
        /// The elements.
        elements: Elements,
    },
    /// The elements up to the event's end.
    Rest(Elements),
    /// u64 count, then that many integers.
    Counted(Integer),
    /// A number that belongs to the stream, such as its CPU. Takes no bytes in the event.
    Known {
        /// The slot with its value.
        slot: Slot,
        /// Its meaning.
        meaning: Meaning,
    },
    /// The name of a number at another offset. Takes no bytes; absent if the number has no name.
    Named {
        /// Offset of the number, relative to this field.
        offset: u64,
        /// Size of the number.
        size: u32,
        /// The order of bytes.
        order: ByteOrder,
        /// Names by number.
        names: Names,
    },
    /// A field of the protobuf message that the payload is. Takes no bytes, as fields have no order.
    Message(MessageField),
    /// A number that the format's reader computes for each event. Takes no bytes.
    Computed(ComputedField),
    /// The text of a format and its arguments. Takes no bytes; absent if the text cannot be formatted.
    Printed {
        /// Offset of the format's address, relative to this field.
        format: u64,
        /// Offset of the arguments, relative to this field. They extend to the event's end.
        arguments: u64,
        /// Size of an address and of a `long`.
        long: u32,
        /// The order of bytes.
        order: ByteOrder,
        /// Formats by address.
        texts: Names,
        /// Functions by address.
        symbols: Names,
    },
}

/// The elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Characters, up to a NUL.
    Text,
    /// Bytes.
    Blob,
    /// Numbers.
    Integers(Integer),
}

impl ForeignField {
    /// Bytes that the field takes in the event.
    pub(crate) fn size(&self) -> u64 {
        match self {
            ForeignField::Padding(bytes) => *bytes,
            ForeignField::Located { .. } => 4,
            ForeignField::Rest(_) | ForeignField::Counted(_) | ForeignField::Known { .. } => 0,
            ForeignField::Named { .. } | ForeignField::Printed { .. } => 0,
            ForeignField::Message(_) | ForeignField::Computed(_) => 0,
        }
    }
}

/// Reads an unsigned integer of `size` bytes.
fn number(content: Content<'_>, position: u64, size: u32, order: ByteOrder) -> Result<u64, Trouble> {
    content.has(position, u64::from(size) * 8)?;
    Ok(bits::unsigned(content.bytes, position, size * 8, order))
}

impl<S: FieldSink> Walk<'_, '_, S> {
    /// Passes the field at bit `position`, which is byte-aligned, to the sink. Returns the bit where the field ends.
    pub(super) fn foreign(
        &mut self,
        foreign: &ForeignField,
        name: Name<'_>,
        position: u64,
    ) -> Result<u64, Trouble> {
        match foreign {
            ForeignField::Padding(_) => {}
            ForeignField::Located { origin, order, elements } => {
                let located = number(self.content, position, 4, *order)?;
                let (offset, size) = (located & 0xffff, located >> 16);
                let start = position.checked_add_signed(8 * origin).ok_or(Trouble::CutShort)? + 8 * offset;
                self.content.has(start, 8 * size).map_err(|_| Trouble::TooLong(size))?;
                self.elements(elements, name, start, size)?;
            }
            ForeignField::Rest(elements) => {
                self.elements(elements, name, position, self.content.end.saturating_sub(position) / 8)?;
            }
            ForeignField::Counted(integer) => {
                let count = number(self.content, position, 8, integer.byte_order)?;
                let bytes =
                    count.checked_mul(u64::from(integer.meaning.size / 8)).ok_or(Trouble::TooLong(count))?;
                self.elements(&Elements::Integers(integer.clone()), name, position + 64, bytes)?;
            }
            ForeignField::Known { slot, meaning } => self.sink.unsigned(name, self.slots.get(*slot), meaning),
            ForeignField::Message(field) => self.message(field, name, position)?,
            ForeignField::Computed(field) => self.computed(field, name),
            ForeignField::Named { offset, size, order, names } => {
                let number = number(self.content, position + 8 * offset, *size, *order)?;
                names.get(number).into_iter().for_each(|text| self.sink.text(name, text));
            }
            ForeignField::Printed { format, arguments, long, order, texts, symbols } => {
                let format = number(self.content, position + 8 * format, *long, *order)?;
                self.content.has(position, 8 * arguments)?;
                let arguments = self.content.bytes_from(position + 8 * arguments);
                let text =
                    texts.get(format).and_then(|format| print(format, (arguments, *order), *long, symbols));
                text.into_iter().for_each(|text| self.sink.text(name, &text));
            }
        }
        Ok(position + 8 * foreign.size())
    }

    fn elements(
        &mut self,
        elements: &Elements,
        name: Name<'_>,
        position: u64,
        size: u64,
    ) -> Result<(), Trouble> {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let bytes = self.content.bytes_from(position).get(..length).ok_or(Trouble::CutShort)?;
        match elements {
            Elements::Text => self.text(name, &bytes[..bits::nul(bytes).unwrap_or(length)], Encoding::Utf8),
            Elements::Blob => self.sink.blob(name, bytes),
            Elements::Integers(integer) => {
                self.sink.begin(name, Compound::Array);
                let width = u64::from(integer.meaning.size);
                for index in 0..8 * size / width {
                    self.integer(integer, Name::Element(index), position + index * width)?;
                }
                self.sink.end(Compound::Array);
            }
        }
        Ok(())
    }
}
