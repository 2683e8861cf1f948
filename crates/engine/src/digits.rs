//! Numbers as text, of which there are billions.

/// A number in decimal.
#[inline]
pub(crate) fn decimal(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Nine digits.
#[inline]
pub(crate) fn nine(nanos: u32) -> [u8; 9] {
    // The lower eight all at once: two parts of four digits, each into two parts of two digits, each into two
    // digits, by multiplications with rounded-up reciprocals that are exact for numbers as small.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nine_digits_are_those_of_the_number(nanos in 0u32..1_000_000_000) {
            prop_assert_eq!(nine(nanos).to_vec(), format!("{nanos:09}").into_bytes());
        }
    }
}
