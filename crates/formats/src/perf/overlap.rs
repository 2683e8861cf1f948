//! How much of a snapshot was already in the one before.

/// Most padding that a writer appends to a snapshot.
const MOST_PADDING: usize = 7;

/// The number of bytes at the start of `later` that are the end of `earlier`, the most that is
/// possible. `earlier` may have up to seven zeros of padding behind its real end.
///
/// Two snapshots of a ring buffer are two windows on one stream, so the end of the first is, byte for
/// byte, the start of the second as far as they overlap. This is the automaton of Knuth, Morris and
/// Pratt (1977) for `later`, run over `earlier`: linear in time, and four bytes of memory a byte.
pub(super) fn overlap(earlier: &[u8], later: &[u8]) -> usize {
    let earlier = earlier.get(earlier.len().saturating_sub(later.len() + MOST_PADDING)..).unwrap_or(earlier);
    // Lengths fit in 32 bits: no AUX area is larger.
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

/// For each prefix of `pattern` (by its length) the longest shorter one that is also its end.
fn borders(pattern: &[u8]) -> Vec<u32> {
    let mut borders = vec![0; pattern.len() + 1];
    let mut matched = 0;
    for (index, &byte) in pattern.iter().enumerate().skip(1) {
        matched = extend(pattern, &borders, matched, byte);
        borders[index + 1] = matched as u32;
    }
    borders
}

/// The length of the longest prefix of `pattern` that ends with `byte`, where `matched` bytes of it
/// lie before that.
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

    /// The definition, word for word.
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
            // A stream that repeats itself can only overlap more.
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
