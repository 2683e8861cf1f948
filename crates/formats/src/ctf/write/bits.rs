//! Writes integers at any bit offset of a packet; the inverse of the reader's `bits` module.

use crate::events::{bits, schema::ByteOrder};

/// A packet under construction.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// The earliest position of the next field, in bits.
    position: u64,
}

impl BitWriter {
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Moves back, and discards everything after `position`.
    pub(super) fn cut(&mut self, position: u64) {
        self.position = position;
        self.bytes.truncate(position.div_ceil(8) as usize);
    }

    pub(super) fn align(&mut self, alignment: u32) {
        self.position = bits::align(self.position, alignment);
        self.fill();
    }

    /// Appends zeros up to the position.
    fn fill(&mut self) {
        self.bytes.resize(self.position.div_ceil(8) as usize, 0);
    }

    /// Appends the lowest `size` bits of a value.
    pub(super) fn put(&mut self, value: u64, size: u32, order: ByteOrder) {
        let start = self.position;
        self.position += u64::from(size);
        self.fill();
        self.put_at(start, value, size, order);
    }

    /// Overwrites bits within the packet.
    pub(super) fn put_at(&mut self, mut position: u64, value: u64, size: u32, order: ByteOrder) {
        let mut left = size;
        while left > 0 {
            let (byte, offset) = ((position / 8) as usize, (position % 8) as u32);
            let count = left.min(8 - offset);
            let mask = ((1u16 << count) - 1) as u8;
            let (part, shift) = match order {
                ByteOrder::Little => (value >> (size - left), offset),
                ByteOrder::Big => (value >> (left - count), 8 - offset - count),
            };
            self.bytes[byte] = (self.bytes[byte] & !(mask << shift)) | ((part as u8 & mask) << shift);
            position += u64::from(count);
            left -= count;
        }
    }

    /// Appends bytes, byte-aligned.
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        self.align(8);
        self.bytes.extend_from_slice(bytes);
        self.position += 8 * bytes.len() as u64;
    }

    /// Appends a LEB128 integer, byte-aligned.
    pub(super) fn put_variable(&mut self, value: u64, signed: bool) {
        self.align(8);
        let mut bytes = Vec::with_capacity(10);
        let mut rest = value as i64;
        loop {
            let part = (rest & 0x7f) as u8;
            rest = if signed { rest >> 7 } else { ((rest as u64) >> 7) as i64 };
            let is_last = match signed {
                true => (rest == 0 && part & 0x40 == 0) || (rest == -1 && part & 0x40 != 0),
                false => rest == 0,
            };
            bytes.push(if is_last { part } else { part | 0x80 });
            if is_last {
                return self.put_bytes(&bytes);
            }
        }
    }
}
