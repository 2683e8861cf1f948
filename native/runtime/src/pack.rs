//! Packs the words of a log, and unpacks them.
//!
//! A word is guessed from those before it: what followed them last time. Packed bytes begin with the number of words that
//! were guessed wrong (32 bits) and a bit for each word, which is set if it was; then these words follow, packed as below.
//! The loop over all words has no branch that depends on them: a processor cannot predict such data.
//!
//! Of the words that were guessed wrong, the two before the current one choose two guesses: what followed them lately, and
//! before that. Bytes say which guess was right, many at a time, or contain the word:
//!
//! | byte | meaning |
//! |---|---|
//! | 00–7f | the first guess was right so many times and one more |
//! | 80–bf | the second guess was right so many times and one more |
//! | c0–df | the word before, plus a difference of 13 bits: 5 bits here, 8 in the next byte |
//! | e0–ef | likewise, 20 bits: 4 bits here, 16 in the next two bytes |
//! | f0 | the word follows |
//! | f1 | the first guess was right as many times as the next two bytes say |
//!
//! Differences are unsigned with the sign in the lowest bit.

/// The number of pairs of guesses for words that were guessed wrong, and half the number of guesses for all words.
pub const GUESSES: usize = 8192;
/// The number of guesses for all words.
const FIRST: usize = 2 * GUESSES;
/// The most words that are packed together.
pub const MOST: usize = 1 << 16;
/// Working memory of [`pack`] and [`unpack`] in words: guesses, pairs of guesses, and the words that were guessed wrong.
pub const WORK: usize = FIRST + 2 * GUESSES + MOST + 1;
const COUNT: usize = 4;

/// The most bytes that `words` words become.
pub const fn bound(words: usize) -> usize {
    COUNT + words.div_ceil(64) * 8 + words * 5 + 8
}

/// The guesses that the words so far choose: a mix of the last three or four.
#[inline(always)]
fn mix(state: u32, word: u32) -> u32 {
    (state << 5) ^ word
}

/// Packs up to [`MOST`] words; returns the number of bytes, or `usize::MAX` if `bytes` is shorter than [`bound`] or `work`
/// shorter than [`WORK`].
pub fn pack(words: &[u32], bytes: &mut [u8], work: &mut [u32]) -> usize {
    if bytes.len() < bound(words.len()) || work.len() < WORK || words.len() > MOST {
        return usize::MAX;
    }
    let (first, rest) = work.split_at_mut(FIRST);
    let (pairs, wrong) = rest.split_at_mut(2 * GUESSES);
    let Ok(first) = <&mut [u32; FIRST]>::try_from(first) else { return usize::MAX };
    first.fill(0);
    let (head, rest) = bytes.split_at_mut(COUNT + words.len().div_ceil(64) * 8);
    let (mut count, mut state) = (0, 0);
    for (some, bits) in words.chunks(64).zip(head[COUNT..].chunks_exact_mut(8)) {
        let mut set = 0u64;
        for (index, &word) in some.iter().enumerate() {
            let guess = &mut first[state as usize % FIRST];
            let is_wrong = *guess != word;
            *guess = word;
            set |= u64::from(is_wrong) << index;
            if let Some(place) = wrong.get_mut(count) {
                *place = word;
            }
            count += usize::from(is_wrong);
            state = mix(state, word);
        }
        bits.copy_from_slice(&set.to_le_bytes());
    }
    head[..COUNT].copy_from_slice(&(count as u32).to_le_bytes());
    head.len() + pack_pairs(&wrong[..count], rest, pairs.as_chunks_mut::<2>().0)
}

/// Unpacks `words.len()` words. `None` if the bytes are damaged or `work` is shorter than [`WORK`].
pub fn unpack(bytes: &[u8], words: &mut [u32], work: &mut [u32]) -> Option<()> {
    let (first, rest) = work.split_at_mut_checked(FIRST)?;
    let (pairs, wrong) = rest.split_at_mut_checked(2 * GUESSES)?;
    let first: &mut [u32; FIRST] = first.try_into().ok()?;
    first.fill(0);
    let (count, rest) = bytes.split_first_chunk::<COUNT>()?;
    let (bits, rest) = rest.split_at_checked(words.len().div_ceil(64) * 8)?;
    let wrong = wrong.get_mut(..u32::from_le_bytes(*count) as usize)?;
    unpack_pairs(rest, wrong, pairs.as_chunks_mut::<2>().0)?;
    let mut wrong = wrong.iter();
    let mut state = 0;
    for (some, bits) in words.chunks_mut(64).zip(bits.chunks_exact(8)) {
        let mut set = u64::from_le_bytes(bits.try_into().ok()?);
        for word in some {
            let guess = &mut first[state as usize % FIRST];
            if set & 1 != 0 {
                *guess = *wrong.next()?;
            }
            *word = *guess;
            set >>= 1;
            state = mix(state, *word);
        }
    }
    wrong.next().is_none().then_some(())
}

fn slot(before: u32, last: u32) -> usize {
    let mixed = before.wrapping_mul(0x9e37_79b1) ^ last.wrapping_mul(0x85eb_ca77);
    (mixed.wrapping_mul(0xc2b2_ae3d) >> 19) as usize
}

struct Output<'a> {
    bytes: &'a mut [u8],
    length: usize,
    first: usize,
    second: usize,
}

impl Output<'_> {
    fn byte(&mut self, value: u8) {
        if let Some(byte) = self.bytes.get_mut(self.length) {
            *byte = value;
        }
        self.length += 1;
    }

    #[inline(never)]
    fn end_first(&mut self) {
        while self.first > 128 {
            let count = self.first.min(0xffff);
            self.byte(0xf1);
            self.byte(count as u8);
            self.byte((count >> 8) as u8);
            self.first -= count;
        }
        if self.first != 0 {
            self.byte(self.first as u8 - 1);
            self.first = 0;
        }
    }

    fn end_second(&mut self) {
        while self.second != 0 {
            let count = self.second.min(64);
            self.byte(0x80 + count as u8 - 1);
            self.second -= count;
        }
    }

    fn word(&mut self, value: u32, last: u32) {
        let difference = value.wrapping_sub(last) as i32;
        let coded = (difference << 1 ^ difference >> 31) as u32;
        if coded < 1 << 13 {
            self.byte(0xc0 | (coded >> 8) as u8);
            self.byte(coded as u8);
        } else if coded < 1 << 20 {
            self.byte(0xe0 | (coded >> 16) as u8);
            self.byte((coded >> 8) as u8);
            self.byte(coded as u8);
        } else {
            self.byte(0xf0);
            for byte in value.to_le_bytes() {
                self.byte(byte);
            }
        }
    }
}

/// Packs words that were guessed wrong.
fn pack_pairs(words: &[u32], bytes: &mut [u8], guesses: &mut [[u32; 2]]) -> usize {
    guesses.fill([0; 2]);
    let guesses: &mut [[u32; 2]; GUESSES] = match guesses.try_into() {
        Ok(guesses) => guesses,
        Err(_) => return usize::MAX,
    };
    let mut out = Output { bytes, length: 0, first: 0, second: 0 };
    let (mut before, mut last) = (0, 0);
    for &word in words {
        let pair = &mut guesses[slot(before, last)];
        if pair[0] == word {
            if out.second != 0 {
                out.end_second();
            }
            out.first += 1;
        } else {
            if out.first != 0 {
                out.end_first();
            }
            if pair[1] == word {
                out.second += 1;
            } else {
                out.end_second();
                out.word(word, last);
            }
            *pair = [word, pair[0]];
        }
        (before, last) = (last, word);
    }
    out.end_first();
    out.end_second();
    out.length
}

/// Unpacks `words.len()` words that were guessed wrong.
fn unpack_pairs(bytes: &[u8], words: &mut [u32], guesses: &mut [[u32; 2]]) -> Option<()> {
    guesses.fill([0; 2]);
    let guesses: &mut [[u32; 2]; GUESSES] = guesses.try_into().ok()?;
    let (mut before, mut last) = (0u32, 0u32);
    let (mut at, mut done) = (0, 0);
    while done < words.len() {
        let control = *bytes.get(at)?;
        at += 1;
        let (count, second) = match control {
            0..=0x7f => (usize::from(control) + 1, false),
            0x80..=0xbf => (usize::from(control - 0x80) + 1, true),
            0xf1 => {
                let count = u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]);
                at += 2;
                (usize::from(count), false)
            }
            _ => {
                let (word, length) = literal(control, bytes.get(at..)?, last)?;
                at += length;
                let pair = &mut guesses[slot(before, last)];
                *pair = [word, pair[0]];
                words[done] = word;
                done += 1;
                (before, last) = (last, word);
                continue;
            }
        };
        for out in words.get_mut(done..done + count)? {
            let pair = &mut guesses[slot(before, last)];
            if second {
                pair.swap(0, 1);
            }
            *out = pair[0];
            (before, last) = (last, pair[0]);
        }
        done += count;
    }
    (at == bytes.len()).then_some(())
}

fn literal(control: u8, bytes: &[u8], last: u32) -> Option<(u32, usize)> {
    let byte = |index: usize| bytes.get(index).map(|&byte| u32::from(byte));
    let (coded, length) = match control {
        0xc0..=0xdf => (u32::from(control & 31) << 8 | byte(0)?, 1),
        0xe0..=0xef => (u32::from(control & 15) << 16 | byte(0)? << 8 | byte(1)?, 2),
        0xf0 => return Some((byte(0)? | byte(1)? << 8 | byte(2)? << 16 | byte(3)? << 24, 4)),
        _ => return None,
    };
    let difference = (coded >> 1) as i32 ^ -((coded & 1) as i32);
    Some((last.wrapping_add(difference as u32), length))
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
            let words: Vec<u32> = (0..20_000).map(|_| random() as u32 >> (32 - bits)).collect();
            check(&words);
        }
        let mut loops: Vec<u32> = (0..60_000).map(|n| 1000 + n % 3).collect();
        loops.extend((0..1000).map(|n| if n % 7 == 0 { 5000 } else { 1000 + n % 2 }));
        assert!(check(&loops) < 60_000 / 8 + 1500);
    }

    #[test]
    fn damage_is_refused() {
        let mut words = [0; 4];
        let mut guesses = vec![0; WORK];
        let cut = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf0, 7];
        let unknown = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff];
        let too_few = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        let too_many = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf0, 7, 0, 0, 0, 0];
        for bytes in [&[][..], &cut, &unknown, &too_few, &too_many, &too_many[..8]] {
            assert_eq!(unpack(bytes, &mut words, &mut guesses), None, "{bytes:x?}");
        }
    }
}
