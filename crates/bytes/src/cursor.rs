//! A position in a slice, and the little-endian integers that follow it.

use std::fmt;

/// The input ended before what was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eof {
    /// Offset at which the read began, in bytes from the start of the input.
    pub at: u64,
    /// Bytes that the read wanted.
    pub wanted: u64,
    /// Bytes that were left.
    pub left: u64,
}

impl fmt::Display for Eof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes expected at offset {:#x}, but only {} are left", self.wanted, self.at, self.left)
    }
}

impl std::error::Error for Eof {}

/// A position in a slice. Every read is checked and moves the position only when it succeeds.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Offset of `bytes[0]` in the input, so that errors name offsets of the whole input.
    base: u64,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `bytes`, which begin at offset `base` of the input.
    pub fn new(bytes: &'a [u8], base: u64) -> Cursor<'a> {
        Cursor { bytes, position: 0, base }
    }

    /// Offset of the next byte in the input.
    pub fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.position == self.bytes.len()
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Eof> {
        let rest = self.rest();
        let taken = rest.get(..count).ok_or(Eof {
            at: self.offset(),
            wanted: count as u64,
            left: rest.len() as u64,
        })?;
        self.position += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Eof> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Eof> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// The next two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16, Eof> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, Eof> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, Eof> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The bytes up to the next NUL, which is consumed too; all that is left where there is none.
    pub fn c_string(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let length = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        self.position += (length + 1).min(rest.len());
        &rest[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_moves_nothing_and_says_where() {
        let mut cursor = Cursor::new(&[1, 0, 2], 100);
        assert_eq!(cursor.u16(), Ok(1));
        assert_eq!(cursor.u32(), Err(Eof { at: 102, wanted: 4, left: 1 }));
        assert_eq!(cursor.u8(), Ok(2));
        assert!(cursor.is_empty());
    }

    #[test]
    fn a_string_ends_at_its_nul_or_with_the_input() {
        let mut cursor = Cursor::new(b"ab\0cd", 0);
        assert_eq!(cursor.c_string(), b"ab");
        assert_eq!(cursor.c_string(), b"cd");
        assert_eq!(cursor.c_string(), b"");
    }
}
