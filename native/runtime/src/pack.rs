//! Packs the words of a log, and unpacks them.
//!
//! The words before the current one, two of them, choose two guesses: what followed them lately, and before that. Packed
//! bytes say which guess was right, many at a time, or contain the word:
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

/// The number of pairs of guesses.
pub const GUESSES: usize = 4096;

/// The most bytes that `words` words become.
pub const fn bound(words: usize) -> usize {
    words * 5 + 8
}

fn slot(before: u32, last: u32) -> usize {
    let mixed = before.wrapping_mul(0x9e37_79b1) ^ last.wrapping_mul(0x85eb_ca77);
    (mixed.wrapping_mul(0xc2b2_ae3d) >> 20) as usize
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

/// Packs words; returns the number of bytes. `guesses` is working memory of [`GUESSES`] pairs.
pub fn pack(words: &[u32], bytes: &mut [u8], guesses: &mut [[u32; 2]]) -> usize {
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

/// Unpacks `words.len()` words. `None` if the bytes are damaged.
pub fn unpack(bytes: &[u8], words: &mut [u32], guesses: &mut [[u32; 2]]) -> Option<()> {
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
        let mut guesses = vec![[7; 2]; GUESSES];
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
        assert_eq!(check(&[]), 0);
        for bits in [1, 3, 8, 16, 24, 32] {
            let words: Vec<u32> = (0..20_000).map(|_| random() as u32 >> (32 - bits)).collect();
            check(&words);
        }
        let mut loops: Vec<u32> = (0..200_000).map(|n| 1000 + n % 3).collect();
        loops.extend((0..1000).map(|n| if n % 7 == 0 { 5000 } else { 1000 + n % 2 }));
        assert!(check(&loops) < 2000);
    }

    #[test]
    fn damage_is_refused() {
        let mut words = [0; 4];
        let mut guesses = vec![[0; 2]; GUESSES];
        for bytes in [&[][..], &[0xff], &[0xf0, 1], &[0x7f], &[3, 3]] {
            assert_eq!(unpack(bytes, &mut words, &mut guesses), None, "{bytes:x?}");
        }
    }
}
