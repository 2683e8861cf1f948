//! A cursor over a file whose machine may be big-endian.

use hodo_bytes::Eof;

use crate::events::schema::ByteOrder;

/// A cursor over bytes, for integers in the byte order of the traced machine.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: hodo_bytes::Cursor<'a>,
    pub(super) order: ByteOrder,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the start of `bytes`, which are at offset `base` of the input.
    pub(crate) fn new(bytes: &'a [u8], base: u64, order: ByteOrder) -> Cursor<'a> {
        Cursor { bytes: hodo_bytes::Cursor::new(bytes, base), order }
    }

    /// Continues at the position of a cursor of a little-endian format.
    pub(crate) fn little(bytes: hodo_bytes::Cursor<'a>) -> Cursor<'a> {
        Cursor { bytes, order: ByteOrder::Little }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Eof> {
        self.bytes.take(count)
    }

    pub(crate) fn c_string(&mut self) -> &'a [u8] {
        self.bytes.c_string()
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Eof> {
        self.bytes.u8()
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Eof> {
        self.bytes.u16().map(|number| if self.is_big() { number.swap_bytes() } else { number })
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Eof> {
        self.bytes.u32().map(|number| if self.is_big() { number.swap_bytes() } else { number })
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Eof> {
        self.bytes.u64().map(|number| if self.is_big() { number.swap_bytes() } else { number })
    }

    fn is_big(&self) -> bool {
        self.order == ByteOrder::Big
    }
}
