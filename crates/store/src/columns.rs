//! Encodes columns of numbers as the smallest number, the byte width of the differences from it, and the differences
//! as byte planes, the lowest byte first.

/// Appends an encoded column.
pub(crate) fn encode(values: &[u64], out: &mut Vec<u8>) {
    let least = values.iter().copied().min().unwrap_or(0);
    let bits = values.iter().fold(0, |bits, value| bits | (value - least));
    let width = 8 - bits.leading_zeros() as usize / 8;
    out.extend(least.to_le_bytes());
    out.push(width as u8);
    for plane in 0..width {
        out.extend(values.iter().map(|value| ((value - least) >> (8 * plane)) as u8));
    }
}

/// Decodes a column of `count` numbers from the front of `input`; `None` if the bytes are not valid.
pub(crate) fn decode(input: &mut &[u8], count: usize, values: &mut Vec<u64>) -> Option<()> {
    let (least, rest) = input.split_first_chunk()?;
    let (&width, rest) = rest.split_first()?;
    let width = usize::from(width);
    if width > 8 {
        return None;
    }
    let (planes, rest) = rest.split_at_checked(width.checked_mul(count)?)?;
    *input = rest;
    let least = u64::from_le_bytes(*least);
    values.clear();
    let mut planes = planes.chunks_exact(count.max(1));
    // The first two planes, which most columns do not exceed, are read in one pass.
    match (planes.next(), planes.next()) {
        (Some(low), Some(high)) => {
            let pair = |(&low, &high): (&u8, &u8)| least.wrapping_add(u16::from_le_bytes([low, high]).into());
            values.extend(low.iter().zip(high).map(pair));
        }
        (Some(low), None) => values.extend(low.iter().map(|&byte| least.wrapping_add(byte.into()))),
        _ => values.resize(count, least),
    }
    for (bytes, plane) in planes.zip(2..) {
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value = value.wrapping_add(u64::from(byte) << (8 * plane));
        }
    }
    Some(())
}

/// Returns the zigzag encoding of the difference: a small number for a small difference of either sign.
pub(crate) fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Adds a zigzag-encoded difference to a number.
pub(crate) fn unzigzag(from: u64, zigzag: u64) -> u64 {
    from.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(values: Vec<u64>, shift in 0u32..64) {
            let values: Vec<u64> = values.into_iter().map(|value| value >> shift).collect();
            let mut bytes = Vec::new();
            encode(&values, &mut bytes);
            let (mut input, mut decoded) = (&bytes[..], Vec::new());
            prop_assert!(decode(&mut input, values.len(), &mut decoded).is_some());
            prop_assert_eq!((input.len(), decoded), (0, values));
        }

        #[test]
        fn a_column_that_ends_early_is_none(values in proptest::collection::vec(any::<u64>(), 1..9)) {
            let mut bytes = Vec::new();
            encode(&values, &mut bytes);
            for length in 0..bytes.len() {
                prop_assert!(decode(&mut &bytes[..length], values.len(), &mut Vec::new()).is_none());
            }
        }

        #[test]
        fn differences_are_exact(from: u64, to: u64) {
            prop_assert_eq!(unzigzag(from, zigzag(from, to)), to);
        }
    }
}
