//! Fast formatting of numbers: output has billions of them.

/// Appends a number in decimal.
#[inline]
pub fn decimal(number: u64, out: &mut Vec<u8>) {
    if number >= 100_000_000 {
        return out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
    // The first digit is the lowest byte; the last one stays even if it is zero.
    let digits = eight(number as u32);
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    append_first((ascii(digits) >> (8 * zeros)).to_le_bytes(), 8 - zeros as usize, out);
}

/// Appends a signed number in decimal.
#[inline]
pub fn signed_decimal(number: i64, out: &mut Vec<u8>) {
    if number < 0 {
        out.push(b'-');
    }
    decimal(number.unsigned_abs(), out);
}

/// Appends the first `count` of some bytes. Copying all of them takes less time than calling a function that copies any
/// number.
#[inline]
pub fn append_first<const N: usize>(bytes: [u8; N], count: usize, out: &mut Vec<u8>) {
    let end = out.len() + count;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

/// The eight digits of a number below 10⁸, one per byte, the first in the lowest.
#[inline]
fn eight(number: u32) -> u64 {
    // Splits into two groups of four digits, then of two, then of one, with multiplications by rounded-up reciprocals
    // that are exact for numbers of this size.
    let number = u64::from(number);
    let fours = (number / 10_000) | (number % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0xf_000f_000f_000f;
    tens | (twos - 10 * tens) << 8
}

/// Makes characters of digits, one per byte.
#[inline]
fn ascii(digits: u64) -> u64 {
    digits | 0x3030_3030_3030_3030
}

/// Formats a number below 10⁹ as nine digits.
#[inline]
pub fn nine(nanos: u32) -> [u8; 9] {
    let mut digits = [b'0' + (nanos / 100_000_000) as u8; 9];
    digits[1..].copy_from_slice(&ascii(eight(nanos % 100_000_000)).to_le_bytes());
    digits
}

/// Formats a number in hexadecimal. Returns the digits, for [`append_first`], and how many they are. `ten` is the letter
/// for 10: `a` for lower case, `A` for upper case.
#[inline]
pub fn hexadecimal(number: u64, ten: u8) -> ([u8; 16], usize) {
    // Eight digits at once, one per byte.
    let eight = |number: u32| {
        let fours = u64::from(number & 0xffff) | u64::from(number >> 16) << 32;
        let twos = (fours | fours << 8) & 0x00ff_00ff_00ff_00ff;
        let ones = (twos | twos << 4) & 0x0f0f_0f0f_0f0f_0f0f;
        let letters = (ones + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
        (ones + 0x3030_3030_3030_3030 + letters * u64::from(ten - b'0' - 10)).to_be_bytes()
    };
    let mut digits = [0; 16];
    digits[..8].copy_from_slice(&eight((number >> 32) as u32));
    digits[8..].copy_from_slice(&eight(number as u32));
    let zeros = (number | 1).leading_zeros() / 4;
    ((u128::from_le_bytes(digits) >> (8 * zeros)).to_le_bytes(), 16 - zeros as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nine_digits_are_those_of_the_number(nanos in 0u32..1_000_000_000) {
            prop_assert_eq!(nine(nanos).to_vec(), format!("{nanos:09}").into_bytes());
        }

        #[test]
        fn decimal_is_that_of_the_library(number: i64, shift in 0u32..64) {
            let number = number >> shift;
            let (mut signed, mut unsigned) = (Vec::new(), Vec::new());
            signed_decimal(number, &mut signed);
            decimal(number as u64, &mut unsigned);
            prop_assert_eq!(signed, number.to_string().into_bytes());
            prop_assert_eq!(unsigned, (number as u64).to_string().into_bytes());
        }

        #[test]
        fn hexadecimal_is_that_of_the_library(number: u64, shift in 0u32..64) {
            let number = number >> shift;
            for (ten, expected) in [(b'a', format!("{number:x}")), (b'A', format!("{number:X}"))] {
                let (digits, count) = hexadecimal(number, ten);
                let mut appended = Vec::new();
                append_first(digits, count, &mut appended);
                prop_assert_eq!(appended, expected.into_bytes());
            }
        }
    }
}
