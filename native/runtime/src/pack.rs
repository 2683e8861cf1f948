//! Packs the words of a log, and unpacks them.
//!
//! A word is guessed from those before it: what followed them last time. Packed bytes begin with the number of words that
//! were guessed wrong (32 bits) and a bit for each word, which is set if it was. Of the words that were guessed wrong, the
//! two before the current one choose two more guesses: what followed them lately, and before that. Two bits for each say
//! how it is stored, and the stored bytes of all of them follow:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | the first guess was right: no bytes |
//! | 1 | the second guess was right: no bytes |
//! | 2 | the word before, plus a difference of 16 bits |
//! | 3 | likewise, 24 bits; if these are all set, the word itself follows |
//!
//! Differences are unsigned with the sign in the lowest bit. No loop has a branch that depends on a word: a processor cannot
//! predict such data, and a wrong prediction costs more than all else.

/// The number of pairs of guesses for words that were guessed wrong, and half the number of guesses for all words.
pub const GUESSES: usize = 8192;
/// The number of guesses for all words.
const FIRST: usize = 2 * GUESSES;
/// The most words that are packed together.
pub const MOST: usize = 1 << 16;
/// Working memory of [`pack`] and [`unpack`] in words: guesses, pairs of guesses, and the words that were guessed wrong.
pub const WORK: usize = FIRST + 2 * GUESSES + MOST;
const COUNT: usize = 4;
/// The bits of a difference that say that the word itself follows.
const WHOLE: u32 = 0xff_ffff;

/// The most bytes that `words` words become.
pub const fn bound(words: usize) -> usize {
    COUNT + words.div_ceil(8) + words.div_ceil(4) + words * 7 + 8
}

/// The guesses that the words so far choose: a mix of the last three or four.
#[inline(always)]
fn mix(state: u32, word: u32) -> u32 {
    (state << 5) ^ word
}

/// Guesses every word, collects those that were guessed wrong and sets their bits; returns their number.
#[inline(always)]
fn guess(
    group: &[u32],
    first: &mut [u32; FIRST],
    wrong: &mut [u32; MOST],
    count: &mut usize,
    state: &mut u32,
) -> u8 {
    let mut set = 0;
    for &word in group {
        let guess = &mut first[*state as usize % FIRST];
        let is_wrong = *guess != word;
        *guess = word;
        set = set * 2 + u32::from(is_wrong);
        wrong[*count % MOST] = word;
        *count += usize::from(is_wrong);
        *state = mix(*state, word);
    }
    set as u8
}

/// Packs up to [`MOST`] words; returns the number of bytes, or `usize::MAX` if `bytes` or `work` is too short: [`bound`]
/// bytes and [`WORK`] words are enough.
pub fn pack(words: &[u32], bytes: &mut [u8], work: &mut [u32]) -> usize {
    let (first, rest) = work.split_at_mut(FIRST.min(work.len()));
    let (pairs, wrong) = rest.split_at_mut((2 * GUESSES).min(rest.len()));
    let (Ok(first), Ok(wrong)) = (<&mut [u32; FIRST]>::try_from(first), <&mut [u32; MOST]>::try_from(wrong))
    else {
        return usize::MAX;
    };
    let head = COUNT + words.len().div_ceil(8);
    if bytes.len() < head || words.len() > MOST {
        return usize::MAX;
    }
    first.fill(0);
    let (head, rest) = bytes.split_at_mut(head);
    let (mut count, mut state) = (0, 0);
    let (whole, last) = words.as_chunks::<8>();
    for (group, bits) in whole.iter().zip(&mut head[COUNT..]) {
        *bits = guess(group, first, wrong, &mut count, &mut state);
    }
    if let (false, Some(bits)) = (last.is_empty(), head.last_mut()) {
        *bits = guess(last, first, wrong, &mut count, &mut state) << (8 - last.len());
    }
    head[..COUNT].copy_from_slice(&(count as u32).to_le_bytes());
    let used = head.len();
    match pack_wrong(&wrong[..count.min(MOST)], rest, pairs.as_chunks_mut::<2>().0) {
        Some(length) => used + length,
        None => usize::MAX,
    }
}

/// Unpacks `words.len()` words. `None` if the bytes are damaged or `work` is shorter than [`WORK`].
pub fn unpack(bytes: &[u8], words: &mut [u32], work: &mut [u32]) -> Option<()> {
    let (first, rest) = work.split_at_mut_checked(FIRST)?;
    let (pairs, wrong) = rest.split_at_mut_checked(2 * GUESSES)?;
    let first: &mut [u32; FIRST] = first.try_into().ok()?;
    first.fill(0);
    let (count, rest) = bytes.split_first_chunk::<COUNT>()?;
    let (bits, rest) = rest.split_at_checked(words.len().div_ceil(8))?;
    let wrong: &mut [u32; MOST] = wrong.first_chunk_mut()?;
    let count = u32::from_le_bytes(*count) as usize;
    unpack_wrong(rest, wrong.get_mut(..count)?, pairs.as_chunks_mut::<2>().0)?;
    let (mut taken, mut state) = (0, 0);
    for (group, &bits) in words.chunks_mut(8).zip(bits) {
        if bits == 0 {
            for word in group {
                *word = first[state as usize % FIRST];
                state = mix(state, *word);
            }
        } else {
            correct(group, bits, first, wrong, &mut taken, &mut state);
        }
    }
    (taken == count).then_some(())
}

/// Guesses every word, and takes those whose bits are set from `wrong`, of which `taken` are used up.
#[inline(always)]
fn correct(
    group: &mut [u32],
    mut bits: u8,
    first: &mut [u32; FIRST],
    wrong: &[u32; MOST],
    taken: &mut usize,
    state: &mut u32,
) {
    for word in group {
        let is_wrong = u32::from(bits >> 7);
        let guess = &mut first[*state as usize % FIRST];
        *guess ^= (*guess ^ wrong[*taken % MOST]) & all(is_wrong);
        *taken += is_wrong as usize;
        *word = *guess;
        bits <<= 1;
        *state = mix(*state, *word);
    }
}

/// The pair of guesses that two words choose.
fn slot(before: u32, last: u32) -> usize {
    let mixed = before.wrapping_mul(0x9e37_79b1) ^ last.wrapping_mul(0x85eb_ca77);
    (mixed.wrapping_mul(0xc2b2_ae3d) >> (u32::BITS - GUESSES.ilog2())) as usize
}

/// All bits set if `value` is 1, none if it is 0.
fn all(value: u32) -> u32 {
    value.wrapping_neg()
}

/// Packs words that were guessed wrong. `None` if there is no room.
fn pack_wrong(words: &[u32], bytes: &mut [u8], guesses: &mut [[u32; 2]]) -> Option<usize> {
    guesses.fill([0; 2]);
    let guesses: &mut [[u32; 2]; GUESSES] = guesses.try_into().ok()?;
    let (controls, stored) = bytes.split_at_mut_checked(words.len().div_ceil(4))?;
    let (mut before, mut last, mut length) = (0, 0, 0);
    for (group, control) in words.chunks(4).zip(&mut *controls) {
        let mut codes = 0;
        for (index, &word) in group.iter().enumerate() {
            let pair = &mut guesses[slot(before, last)];
            let [one, two] = *pair;
            let (not_one, not_two) = (u32::from(one != word), u32::from(two != word));
            *pair = [word, two ^ (two ^ one) & all(not_one)];
            let difference = word.wrapping_sub(last) as i32;
            let mut coded = (difference << 1 ^ difference >> 31) as u32;
            let is_long = u32::from(coded >> 16 != 0);
            let code = not_one * (1 + not_two * (1 + is_long));
            let is_whole = coded >= WHOLE && code == 3;
            if is_whole {
                coded = WHOLE;
            }
            stored.get_mut(length..length + 4)?.copy_from_slice(&coded.to_le_bytes());
            // 0, 0, 2 or 3 bytes.
            length += (0x3200 >> (4 * code) & 15) as usize;
            if is_whole {
                stored.get_mut(length..length + 4)?.copy_from_slice(&word.to_le_bytes());
                length += 4;
            }
            codes |= code << (2 * index);
            (before, last) = (last, word);
        }
        *control = codes as u8;
    }
    Some(controls.len() + length)
}

/// Unpacks `words.len()` words that were guessed wrong.
fn unpack_wrong(bytes: &[u8], words: &mut [u32], guesses: &mut [[u32; 2]]) -> Option<()> {
    guesses.fill([0; 2]);
    let guesses: &mut [[u32; 2]; GUESSES] = guesses.try_into().ok()?;
    let (controls, mut stored) = bytes.split_at_checked(words.len().div_ceil(4))?;
    let mut take = |length: usize| {
        let (taken, rest) = stored.split_at_checked(length)?;
        stored = rest;
        Some(taken.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    };
    let (mut before, mut last) = (0u32, 0u32);
    for (group, &control) in words.chunks_mut(4).zip(controls) {
        for (index, word) in group.iter_mut().enumerate() {
            let pair = &mut guesses[slot(before, last)];
            let code = control >> (2 * index) & 3;
            *word = match code {
                0 => pair[0],
                1 => pair[1],
                _ => match take(usize::from(code))? {
                    WHOLE if code == 3 => take(4)?,
                    coded => last.wrapping_add((coded >> 1) ^ all(coded & 1)),
                },
            };
            if code != 0 {
                *pair = [*word, pair[0]];
            }
            (before, last) = (last, *word);
        }
    }
    take(1).is_none().then_some(())
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn check(words: &[u32]) -> usize {
        let mut guesses = vec![7; WORK];
        let mut bytes = vec![0; bound(words.len())];
        let length = pack(words, &mut bytes, &mut guesses);
        let mut back = vec![9; words.len()];
        assert_eq!(unpack(&bytes[..length], &mut back, &mut guesses), Some(()));
        assert_eq!(back, words);
        length
    }

    #[test]
    fn words_come_back() {
        let mut state = 88_172_645_463_325_252u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        assert_eq!(check(&[]), COUNT);
        for bits in [1, 3, 8, 16, 24, 32] {
            for count in [20_000, 19_999, 5] {
                let words: Vec<u32> = (0..count).map(|_| random() as u32 >> (32 - bits)).collect();
                check(&words);
            }
        }
        let mut loops: Vec<u32> = (0..60_000).map(|n| 1000 + n % 3).collect();
        loops.extend((0..1000).map(|n| if n % 7 == 0 { 5000 } else { 1000 + n % 2 }));
        assert!(check(&loops) < 60_000 / 8 + 1500);
        let all: Vec<u32> = (0..MOST as u32).map(|n| n.wrapping_mul(0x9e37_79b1)).collect();
        check(&all);
    }

    #[test]
    fn too_little_room_is_refused() {
        let mut work = vec![0; WORK];
        let words: Vec<u32> = (0..1000u32).map(|n| n.wrapping_mul(0x9e37_79b1)).collect();
        for room in [0, 100, 1000, 4000] {
            assert_eq!(pack(&words, &mut vec![0; room], &mut work), usize::MAX);
        }
        assert_eq!(pack(&words, &mut [0; 9000], &mut work[1..]), usize::MAX);
        assert_eq!(pack(&[0; MOST + 1], &mut vec![0; bound(MOST + 1)], &mut work), usize::MAX);
    }

    #[test]
    fn damage_is_refused() {
        let mut words = [0; 4];
        let mut guesses = vec![0; WORK];
        // The number of wrong guesses, a bit for each word, two bits for each wrong one, its bytes.
        let cut = [1, 0, 0, 0, 0x80, 2, 7];
        let cut_whole = [1, 0, 0, 0, 0x80, 3, 0xff, 0xff, 0xff, 1, 2, 3];
        let too_few = [0, 0, 0, 0, 0x80];
        let too_many = [2, 0, 0, 0, 0x80, 10, 7, 0, 7, 0];
        let left_over = [1, 0, 0, 0, 0x80, 2, 7, 0, 0];
        for bytes in [&[][..], &cut, &cut_whole, &too_few, &too_many, &too_many[..5], &left_over] {
            assert_eq!(unpack(bytes, &mut words, &mut guesses), None, "{bytes:x?}");
        }
    }
}
