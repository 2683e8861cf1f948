//! A cursor over a slice, for little-endian integers and strings.

use std::fmt;

/// The input ended within a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eof {
    /// Offset of the read, in bytes from the start of the input.
    pub at: u64,
    /// Bytes that the read needed.
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

/// A position in a slice. Every read is checked, and moves the position only if it succeeds.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Offset of `bytes[0]` in the input, so that errors contain offsets in the whole input.
    base: u64,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the start of `bytes`, which are at offset `base` of the input.
    pub fn new(bytes: &'a [u8], base: u64) -> Cursor<'a> {
        Cursor { bytes, position: 0, base }
    }

    /// Returns the offset of the next byte in the input.
    pub fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// Returns the bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.position == self.bytes.len()
    }

    /// Reads the next `count` bytes.
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

    /// Reads the next byte.
    pub fn u8(&mut self) -> Result<u8, Eof> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Reads the next two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16, Eof> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads the next four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, Eof> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads the next eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, Eof> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads the bytes up to the next NUL, which is consumed too; all that are left if there is no NUL.
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
