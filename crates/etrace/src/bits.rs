//! Strings of bits with sign compression.
//!
//! "A decoder receiving this shortened packet can reconstruct the original full-length packet by sign-extending from the
//! most significant received bit."

use crate::parameters::mask;

/// Bytes of the longest packet: a trap with time, context, cause, address and value of 64 bits each takes 42, and a
/// support packet takes less.
const LONGEST: usize = 48;

/// Reads fields from the payload of a packet. Behind its end all bits are as the last one.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// The payload, extended by its sign; eight bytes more, so that any field can be loaded at once.
    bytes: [u8; LONGEST + 9],
    /// Number of bits received.
    received: usize,
    at: usize,
}

impl Reader {
    /// Returns `None` if the payload is empty or longer than any packet.
    pub(crate) fn new(payload: &[u8]) -> Option<Reader> {
        let sign = (*payload.last()? as i8 >> 7) as u8;
        let mut bytes = [sign; LONGEST + 9];
        bytes.get_mut(..payload.len()).filter(|_| payload.len() <= LONGEST)?.copy_from_slice(payload);
        Some(Reader { bytes, received: payload.len() * 8, at: 0 })
    }

    /// Reads a field of up to 64 bits, its least significant bit first.
    #[inline]
    pub(crate) fn get(&mut self, width: u8) -> u64 {
        let (byte, shift) = (self.at / 8, self.at % 8);
        self.at += usize::from(width);
        let low =
            u64::from_le_bytes(*self.bytes[byte..].first_chunk().expect("no packet is longer")) >> shift;
        let high = u64::from(self.bytes[byte + 8]) << 1 << (63 - shift);
        (low | high) & mask(width)
    }

    #[inline]
    pub(crate) fn bit(&mut self) -> bool {
        self.get(1) != 0
    }

    /// Returns the number of bits received after the last field.
    pub(crate) fn unread(&self) -> usize {
        self.received.saturating_sub(self.at)
    }
}

/// The payload of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    bytes: [u8; LONGEST + 9],
    length: usize,
}

impl std::ops::Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self[..].fmt(f)
    }
}

/// Writes the fields of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    bytes: [u8; LONGEST + 9],
    at: usize,
}

impl Writer {
    pub(crate) fn new() -> Writer {
        Writer { bytes: [0; LONGEST + 9], at: 0 }
    }

    /// Writes the low `width` bits of a value.
    pub(crate) fn put(&mut self, value: u64, width: u8) {
        let value = u128::from(value & mask(width)) << (self.at % 8);
        let begin = self.at / 8;
        for (byte, more) in self.bytes[begin..begin + 9].iter_mut().zip(value.to_le_bytes()) {
            *byte |= more;
        }
        self.at += usize::from(width);
    }

    /// The bit written last.
    pub(crate) fn last(&self) -> bool {
        self.at > 0 && self.bytes[(self.at - 1) / 8] >> ((self.at - 1) % 8) & 1 == 1
    }

    /// Extends the last bit to whole bytes, and drops bytes that the decoder's extension restores.
    pub(crate) fn finish(mut self) -> Payload {
        let sign = if self.last() { 0xff } else { 0 };
        if !self.at.is_multiple_of(8) {
            self.bytes[self.at / 8] |= sign << (self.at % 8);
        }
        let mut length = self.at.div_ceil(8);
        // The byte before must end in the same bit.
        while length > 1
            && self.bytes[length - 1] == sign
            && (self.bytes[length - 2] as i8 >> 7) as u8 == sign
        {
            length -= 1;
        }
        self.bytes[length..].fill(0);
        Payload { bytes: self.bytes, length }
    }
}
