//! Finds the overlap of consecutive snapshots.

/// The most padding that a writer appends to a snapshot, in bytes.
const MOST_PADDING: usize = 7;

/// Returns the length of the longest prefix of `later` that is a suffix of `earlier`. `earlier` may have up to seven
/// zero bytes of padding at the end.
///
/// Two snapshots of a ring buffer are windows on one stream, so if they overlap, the end of the first equals the
/// beginning of the second. Runs the automaton of Knuth, Morris and Pratt (1977) for `later` over `earlier`: linear
/// in time, four bytes of memory per byte.
pub(super) fn overlap(earlier: &[u8], later: &[u8]) -> usize {
    let earlier = earlier.get(earlier.len().saturating_sub(later.len() + MOST_PADDING)..).unwrap_or(earlier);
    // Lengths fit in 32 bits: AUX areas are smaller.
    let later = later.get(..u32::MAX as usize).unwrap_or(later);
    let borders = borders(later);
    let unpadded =
        earlier.len() - earlier.iter().rev().take(MOST_PADDING).take_while(|&&byte| byte == 0).count();
    let mut longest = 0;
    let mut matched = 0;
    for (index, &byte) in earlier.iter().enumerate() {
        matched = extend(later, &borders, matched, byte);
        if index + 1 >= unpadded {
            longest = longest.max(matched);
        }
    }
    longest
}

/// For each prefix of `pattern`, by length, its longest border: a shorter prefix that is also its suffix.
fn borders(pattern: &[u8]) -> Vec<u32> {
    let mut borders = vec![0; pattern.len() + 1];
    let mut matched = 0;
    for (index, &byte) in pattern.iter().enumerate().skip(1) {
        matched = extend(pattern, &borders, matched, byte);
        borders[index + 1] = matched as u32;
    }
    borders
}

/// The length of the longest prefix of `pattern` that ends with `byte`, after `matched` bytes have matched.
fn extend(pattern: &[u8], borders: &[u32], mut matched: usize, byte: u8) -> usize {
    loop {
        if pattern.get(matched) == Some(&byte) {
            return matched + 1;
        }
        if matched == 0 {
            return 0;
        }
        matched = borders[matched] as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, implemented directly.
    fn longest_by_definition(earlier: &[u8], later: &[u8]) -> usize {
        let ends =
            |earlier: &[u8]| (0..=later.len()).rev().find(|&n| earlier.ends_with(&later[..n])).unwrap();
        let zeros = earlier.iter().rev().take(MOST_PADDING).take_while(|&&byte| byte == 0).count();
        (0..=zeros).map(|padding| ends(&earlier[..earlier.len() - padding])).max().unwrap()
    }

    proptest! {
        #[test]
        fn two_windows_on_a_stream_overlap(
            stream in proptest::collection::vec(any::<u8>(), 100..300), from in 0usize..50, to in 50usize..100,
            padding in 0usize..8,
        ) {
            let mut earlier = stream[..to].to_vec();
            earlier.resize(to + padding, 0);
            // A repetitive stream can only overlap more.
            prop_assert!(overlap(&earlier, &stream[from..]) >= to - from);
        }

        #[test]
        fn the_automaton_finds_what_the_definition_says(
            earlier in proptest::collection::vec(0u8..3, 0..40), later in proptest::collection::vec(0u8..3, 0..40),
        ) {
            prop_assert_eq!(overlap(&earlier, &later), longest_by_definition(&earlier, &later));
        }
    }
}
