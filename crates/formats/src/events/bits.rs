//! Reads integers at any bit offset of a packet.
//!
//! Little-endian fields take the least significant bits of a byte first, big-endian ones the most significant:
//! CTF 1.8 section 4.1.2, CTF 2 "Fixed-length bit array field decoding procedure".

use super::schema::ByteOrder;

/// Eight bytes from an offset, padded with zeros after the end.
#[inline]
pub(crate) fn word(bytes: &[u8], position: usize) -> [u8; 8] {
    if let Some(word) = bytes.get(position..).and_then(|rest| rest.first_chunk::<8>()) {
        return *word;
    }
    last_word(bytes.get(position..).unwrap_or_default())
}

#[cold]
fn last_word(rest: &[u8]) -> [u8; 8] {
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    word
}

/// The bit layout of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) size: u32,
    pub(crate) signed: bool,
    pub(crate) order: ByteOrder,
    /// Whether the bits are numbered in the opposite order to the byte order.
    pub(crate) reversed: bool,
}

impl Layout {
    /// Reads the integer at bit `position`; a signed one as the bits of an `i64`. Bits after the end are zero.
    #[inline]
    pub(crate) fn read(self, bytes: &[u8], position: u64) -> u64 {
        let value = unsigned(bytes, position, self.size, self.order);
        let value = ordered(value, self.size, self.reversed);
        if self.signed { signed(value, self.size) as u64 } else { value }
    }
}

/// Reads `size` bits (1 to 64) at bit `position` as an unsigned integer. The caller checks the bounds; bits after the end
/// are zero.
#[inline]
pub(crate) fn unsigned(bytes: &[u8], position: u64, size: u32, order: ByteOrder) -> u64 {
    let (byte, shift) = ((position / 8) as usize, (position % 8) as u32);
    if shift + size > 64 {
        return across(bytes, byte, shift, size, order);
    }
    match order {
        ByteOrder::Little => (u64::from_le_bytes(word(bytes, byte)) << (64 - shift - size)) >> (64 - size),
        ByteOrder::Big => (u64::from_be_bytes(word(bytes, byte)) << shift) >> (64 - size),
    }
}

/// Reads bits that span nine bytes.
#[cold]
fn across(bytes: &[u8], byte: usize, shift: u32, size: u32, order: ByteOrder) -> u64 {
    let ninth = bytes.get(byte + 8).copied().unwrap_or(0);
    let wide = match order {
        ByteOrder::Little => u128::from(u64::from_le_bytes(word(bytes, byte))) | (u128::from(ninth) << 64),
        ByteOrder::Big => {
            let wide = (u128::from(u64::from_be_bytes(word(bytes, byte))) << 8) | u128::from(ninth);
            return ((wide >> (72 - shift - size)) & mask(size)) as u64;
        }
    };
    ((wide >> shift) & mask(size)) as u64
}

fn mask(size: u32) -> u128 {
    (1 << size) - 1
}

/// Reverses the bits of a value of `size` bits if `reversed` is set.
#[inline]
pub(crate) fn ordered(value: u64, size: u32, reversed: bool) -> u64 {
    if reversed { value.reverse_bits() >> (64 - size) } else { value }
}

/// Sign-extends the lowest `size` bits.
#[inline]
pub(crate) fn signed(value: u64, size: u32) -> i64 {
    ((value << (64 - size)) as i64) >> (64 - size)
}

/// Rounds a position up to a multiple of the alignment, a power of two; saturates.
#[inline]
pub(crate) fn align(position: u64, alignment: u32) -> u64 {
    let mask = u64::from(alignment) - 1;
    position.saturating_add(mask) & !mask
}

/// The index of the first zero byte.
#[inline]
pub(crate) fn nul(bytes: &[u8]) -> Option<usize> {
    // Most texts are short, and a memchr call costs as much as checking a few words.
    const WORDS: usize = 4;
    for (index, word) in bytes.as_chunks::<8>().0.iter().take(WORDS).enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest set bit is in the first zero byte: Hacker's Delight, section 6-1.
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        if zeros != 0 {
            return Some(8 * index + zeros.trailing_zeros() as usize / 8);
        }
    }
    let checked = (bytes.len() / 8).min(WORDS) * 8;
    memchr::memchr(0, &bytes[checked..]).map(|position| checked + position)
}

/// Whether integers are signed.
pub(crate) const SIGNED: bool = true;
/// See [`SIGNED`].
pub(crate) const UNSIGNED: bool = false;

/// Bytes of the longest LEB128 integer that fits 64 bits.
pub(crate) const LONGEST_LEB128: usize = 10;

/// Reads a LEB128 integer. Returns its value (the bits of an `i64` if signed) and its length in bytes; `None` if it
/// is unterminated or exceeds 64 bits.
pub(crate) fn leb128(bytes: &[u8], is_signed: bool) -> Option<(u64, usize)> {
    let mut value: u64 = 0;
    for (index, &byte) in bytes.iter().enumerate().take(LONGEST_LEB128) {
        let shift = 7 * index as u32;
        let part = u64::from(byte & 0x7f);
        let last = byte & 0x80 == 0;
        // The tenth byte holds one bit, or copies of the sign.
        let fits = index < 9 || (!is_signed && part <= 1) || (is_signed && (part == 0 || part == 0x7f));
        if !fits {
            return None;
        }
        value |= part << shift;
        if last {
            let negative = is_signed && byte & 0x40 != 0 && shift + 7 < 64;
            return Some((if negative { value | (u64::MAX << (shift + 7)) } else { value }, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads an integer bit by bit, as the specification defines it.
    fn bit_by_bit(bytes: &[u8], position: u64, size: u32, order: ByteOrder) -> u64 {
        (0..size).fold(0, |value, index| {
            let bit = position + u64::from(index);
            let byte = bytes[(bit / 8) as usize];
            match order {
                ByteOrder::Little => value | (u64::from(byte >> (bit % 8) & 1) << index),
                ByteOrder::Big => (value << 1) | u64::from(byte >> (7 - bit % 8) & 1),
            }
        })
    }

    proptest! {
        #[test]
        fn any_bits_are_read_as_bit_by_bit(bytes: [u8; 24], position in 0u64..100, size in 1u32..=64) {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                prop_assert_eq!(unsigned(&bytes, position, size, order), bit_by_bit(&bytes, position, size, order));
            }
            let end = (position + u64::from(size)).div_ceil(8) as usize;
            prop_assert_eq!(unsigned(&bytes[..end], position, size, ByteOrder::Big), bit_by_bit(&bytes, position, size, ByteOrder::Big));
        }

        #[test]
        fn the_first_zero_is_found(bytes in proptest::collection::vec(prop_oneof![0u8..3, Just(0x80)], 0..70)) {
            prop_assert_eq!(nul(&bytes), bytes.iter().position(|&byte| byte == 0));
            let text: Vec<u8> = bytes.iter().map(|byte| byte | 1).chain([0, 5, 0]).collect();
            prop_assert_eq!(nul(&text), Some(bytes.len()));
        }

        #[test]
        fn variable_length_integers_are_exact(value: i64) {
            let mut encoded = Vec::new();
            let mut rest = value;
            loop {
                let part = (rest & 0x7f) as u8;
                rest >>= 7;
                let done = (rest == 0 && part & 0x40 == 0) || (rest == -1 && part & 0x40 != 0);
                encoded.push(if done { part } else { part | 0x80 });
                if done { break; }
            }
            prop_assert_eq!(leb128(&encoded, SIGNED), Some((value as u64, encoded.len())));
        }
    }

    #[test]
    fn a_variable_length_integer_of_more_than_64_bits_is_none() {
        assert_eq!(
            leb128(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], UNSIGNED),
            Some((u64::MAX, 10))
        );
        assert_eq!(leb128(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], UNSIGNED), None);
        assert_eq!(leb128(&[0x80], UNSIGNED), None);
        assert_eq!(leb128(&[0x7f], SIGNED), Some((u64::MAX, 1)));
    }

    #[test]
    fn signed_and_reversed_integers_are_read_and_positions_aligned() {
        assert_eq!(signed(0b101, 3), -3);
        assert_eq!(signed(u64::MAX, 64), -1);
        let reversed = Layout { size: 3, signed: false, order: ByteOrder::Little, reversed: true };
        assert_eq!(reversed.read(&[0b110], 0), 0b011);
        assert_eq!(Layout { signed: true, ..reversed }.read(&[0b001], 0), -4i64 as u64);
        assert_eq!((align(9, 8), align(16, 8), align(u64::MAX, 64)), (16, 16, !63));
    }
}
