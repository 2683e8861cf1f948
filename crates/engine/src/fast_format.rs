//! Fast formatting of numbers: output has billions of them.

/// Appends a number in decimal.
#[inline]
pub(crate) fn decimal(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Formats a number below 10⁹ as nine digits.
#[inline]
pub(crate) fn nine(nanos: u32) -> [u8; 9] {
    // Computes the lower eight digits together: splits into two groups of four digits, then of two, then of one, with
    // multiplications by rounded-up reciprocals that are exact for numbers of this size.
    let (first, eight) = (nanos / 100_000_000, u64::from(nanos % 100_000_000));
    let fours = (eight / 10_000) | (eight % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0xf_000f_000f_000f;
    let ones = tens | (twos - 10 * tens) << 8;
    let mut digits = [b'0' + first as u8; 9];
    digits[1..].copy_from_slice(&(ones | 0x3030_3030_3030_3030).to_le_bytes());
    digits
}

/// Formats a number as hexadecimal with leading zeros. Returns the digits and the number of leading zeros. `ten` is the
/// letter for 10: `a` for lower case, `A` for upper case.
#[inline]
pub(crate) fn hexadecimal(number: u64, ten: u8) -> ([u8; 16], usize) {
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
    (digits, (number | 1).leading_zeros() as usize / 4)
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
        fn hexadecimal_is_that_of_the_library(number: u64, shift in 0u32..64) {
            let number = number >> shift;
            for (ten, expected) in [(b'a', format!("{number:x}")), (b'A', format!("{number:X}"))] {
                let (digits, zeros) = hexadecimal(number, ten);
                prop_assert_eq!(digits[zeros..].to_vec(), expected.into_bytes());
                prop_assert!(digits[..zeros].iter().all(|&digit| digit == b'0'));
            }
        }
    }
}
