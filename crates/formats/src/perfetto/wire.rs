//! The encoding of protobuf messages: fields with a number, each a number or bytes.
//!
//! Messages are read where they lie, field by field, so that nothing is allocated, whatever a message claims.
//!
//! Source: "Encoding" of the documentation of Protocol Buffers.

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// An integer of any wire type.
    Number(u64),
    /// Text, bytes, a message, or packed integers.
    Bytes(&'a [u8]),
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// The field's number in its message.
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
    /// Offset of the content in the message.
    pub(crate) offset: usize,
}

impl<'a> Field<'a> {
    /// The bytes, if it has bytes.
    pub(crate) fn bytes(&self) -> Option<&'a [u8]> {
        match self.value {
            Value::Bytes(bytes) => Some(bytes),
            Value::Number(_) => None,
        }
    }

    /// The integer, if it is one.
    pub(crate) fn integer(&self) -> Option<u64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Bytes(_) => None,
        }
    }
}

/// The highest number of a field.
const HIGHEST: u64 = (1 << 29) - 1;
/// Largest size in bytes of an integer of variable length; the last byte has room for one bit.
const MAX_VARINT: usize = 10;

/// The wire types that protobuf has.
mod wire_type {
    pub(super) const VARINT: u64 = 0;
    pub(super) const FIXED_64: u64 = 1;
    pub(super) const BYTES: u64 = 2;
    pub(super) const FIXED_32: u64 = 5;
}

/// Iterates over the fields of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes, at: 0 }
    }

    /// Offset of the next field.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// The next field; `None` at the end.
    ///
    /// # Errors
    /// The offset of a field that extends beyond the message, or that protobuf does not have. There is no next field.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, usize> {
        let start = self.at;
        if start >= self.bytes.len() {
            return Ok(None);
        }
        let field = self.field().ok_or(start);
        if field.is_err() {
            self.at = self.bytes.len();
        }
        field.map(Some)
    }

    #[inline]
    fn field(&mut self) -> Option<Field<'a>> {
        let tag = varint(self.bytes, &mut self.at)?;
        let number =
            u32::try_from(tag >> 3).ok().filter(|&number| number != 0 && u64::from(number) <= HIGHEST)?;
        let mut offset = self.at;
        let value = match tag & 7 {
            wire_type::VARINT => Value::Number(varint(self.bytes, &mut self.at)?),
            wire_type::FIXED_64 => Value::Number(u64::from_le_bytes(*self.take(8)?.first_chunk()?)),
            wire_type::BYTES => {
                let length = usize::try_from(varint(self.bytes, &mut self.at)?).ok()?;
                offset = self.at;
                Value::Bytes(self.take(length)?)
            }
            wire_type::FIXED_32 => Value::Number(u32::from_le_bytes(*self.take(4)?.first_chunk()?).into()),
            _ => return None,
        };
        Some(Field { number, value, offset })
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }
}

/// Reads an integer of variable length, and moves `at` past it. `None` if it is cut short or exceeds 64 bits.
#[inline]
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(first.into());
    }
    let mut number = 0;
    for (index, &byte) in bytes.get(*at..)?.iter().take(MAX_VARINT).enumerate() {
        if index == MAX_VARINT - 1 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *at += index + 1;
            return Some(number);
        }
    }
    None
}

/// Iterates over packed integers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packed<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Packed<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Packed<'a> {
        Packed { bytes, at: 0 }
    }
}

impl Iterator for Packed<'_> {
    type Item = u64;

    /// The next integer; `None` at the end, or if it is cut short.
    #[inline]
    fn next(&mut self) -> Option<u64> {
        varint(self.bytes, &mut self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<Field<'_>>, usize> {
        let (mut fields, mut all) = (Fields::new(bytes), Vec::new());
        while let Some(field) = fields.next()? {
            all.push(field);
        }
        Ok(all)
    }

    #[test]
    fn fields_of_every_wire_type_are_read() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 2, b'a', b'b', 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0];
        let expected = [
            Field { number: 1, value: Value::Number(150), offset: 1 },
            Field { number: 2, value: Value::Bytes(b"ab"), offset: 5 },
            Field { number: 3, value: Value::Number(1), offset: 8 },
            Field { number: 4, value: Value::Number(2), offset: 13 },
        ];
        assert_eq!(fields(&bytes), Ok(expected.to_vec()));
        // A field of no bytes, and the wire types that protobuf does not have.
        for (wrong, offset) in
            [(&[0x00, 1][..], 0), (&[0x08, 1, 0x0b], 2), (&[0x0e], 0), (&[0x12, 5, 1], 0), (&[0x08], 0)]
        {
            assert_eq!(fields(wrong), Err(offset), "{wrong:?}");
        }
    }

    #[test]
    fn integers_have_at_most_64_bits() {
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(varint(&largest, &mut 0), Some(u64::MAX));
        let mut larger = largest;
        larger[9] = 2;
        assert_eq!(varint(&larger, &mut 0), None);
        assert_eq!(varint(&[0x80; 11], &mut 0), None);
        assert_eq!(Packed::new(&[1, 0x80, 1, 0x80]).collect::<Vec<_>>(), [1, 128]);
    }
}
