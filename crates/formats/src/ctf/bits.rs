//! Integers at any bit of a packet.
//!
//! Little-endian fields take the least significant bits of a byte first, big-endian ones the most significant:
//! CTF 1.8 section 4.1.2, CTF 2 "Fixed-length bit array field decoding procedure".

use super::schema::ByteOrder;

/// Sixty-four bits from a byte on, in the order of the bytes; what lies behind the end is zero.
#[inline]
fn word(bytes: &[u8], at: usize) -> [u8; 8] {
    if let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        return *word;
    }
    let mut word = [0; 8];
    let rest = bytes.get(at..).unwrap_or_default();
    word[..rest.len()].copy_from_slice(rest);
    word
}

/// The `size` bits (1 to 64) at bit `at`, unsigned. The caller knows that they lie within the bytes; bits
/// behind their end read as zero.
#[inline]
pub(super) fn unsigned(bytes: &[u8], at: u64, size: u32, order: ByteOrder) -> u64 {
    let (byte, shift) = ((at / 8) as usize, (at % 8) as u32);
    if shift + size > 64 {
        return across(bytes, byte, shift, size, order);
    }
    match order {
        ByteOrder::Little => (u64::from_le_bytes(word(bytes, byte)) << (64 - shift - size)) >> (64 - size),
        ByteOrder::Big => (u64::from_be_bytes(word(bytes, byte)) << shift) >> (64 - size),
    }
}

/// Bits that lie in nine bytes.
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

/// `value` of `size` bits with the bit order of its byte order, or with the other one.
#[inline]
pub(super) fn ordered(value: u64, size: u32, reversed: bool) -> u64 {
    if reversed { value.reverse_bits() >> (64 - size) } else { value }
}

/// The two's complement value of the lowest `size` bits.
#[inline]
pub(super) fn signed(value: u64, size: u32) -> i64 {
    ((value << (64 - size)) as i64) >> (64 - size)
}

/// The next multiple of a power of two; saturates, as nothing lies that far.
#[inline]
pub(super) fn align(at: u64, alignment: u32) -> u64 {
    let mask = u64::from(alignment) - 1;
    at.saturating_add(mask) & !mask
}

/// A LEB128 integer at a byte: its value, as the bits of an `i64` if signed, and how many bytes it takes.
/// `None` where it does not end, or has more than 64 bits.
pub(super) fn leb128(bytes: &[u8], is_signed: bool) -> Option<(u64, usize)> {
    let mut value: u64 = 0;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let shift = 7 * index as u32;
        let part = u64::from(byte & 0x7f);
        let last = byte & 0x80 == 0;
        // The tenth byte has room for one bit, or for copies of the sign.
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

    /// Bit by bit, as the specification tells it.
    fn slow(bytes: &[u8], at: u64, size: u32, order: ByteOrder) -> u64 {
        (0..size).fold(0, |value, index| {
            let bit = at + u64::from(index);
            let byte = bytes[(bit / 8) as usize];
            match order {
                ByteOrder::Little => value | (u64::from(byte >> (bit % 8) & 1) << index),
                ByteOrder::Big => (value << 1) | u64::from(byte >> (7 - bit % 8) & 1),
            }
        })
    }

    proptest! {
        #[test]
        fn any_bits_are_read_as_one_by_one(bytes: [u8; 24], at in 0u64..100, size in 1u32..=64) {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                prop_assert_eq!(unsigned(&bytes, at, size, order), slow(&bytes, at, size, order));
            }
            let end = (at + u64::from(size)).div_ceil(8) as usize;
            prop_assert_eq!(unsigned(&bytes[..end], at, size, ByteOrder::Big), slow(&bytes, at, size, ByteOrder::Big));
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
            prop_assert_eq!(leb128(&encoded, true), Some((value as u64, encoded.len())));
        }
    }

    #[test]
    fn a_variable_length_integer_of_more_than_64_bits_is_none() {
        assert_eq!(
            leb128(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], false),
            Some((u64::MAX, 10))
        );
        assert_eq!(leb128(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], false), None);
        assert_eq!(leb128(&[0x80], false), None);
        assert_eq!(leb128(&[0x7f], true), Some((u64::MAX, 1)));
    }

    #[test]
    fn signs_and_bit_orders() {
        assert_eq!(signed(0b101, 3), -3);
        assert_eq!(signed(u64::MAX, 64), -1);
        assert_eq!(ordered(0b110, 3, true), 0b011);
        assert_eq!((align(9, 8), align(16, 8), align(u64::MAX, 64)), (16, 16, !63));
    }
}
