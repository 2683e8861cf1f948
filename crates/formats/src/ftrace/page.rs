//! Ring buffer pages and their records.
//!
//! ```text
//! page    u64 time, long commit (bytes of records; bits 31 and 30: events were lost, the count is stored), records
//! record  u32: type_len in the low 5 bits, time since the previous record in the others; content
//!           1–28  content of this many words          0   u32 size (including these 4 bytes), content
//!           29    padding, with a u32 size            30  27 more bits of time since the previous record
//!           31    27 more bits; together they are an absolute time
//! ```
//!
//! On big-endian machines, type_len is in the high 5 bits.
//!
//! Source: the kernel's include/linux/ring_buffer.h, and `events/header_page` and `events/header_event` in tracefs.

use hodo_bytes::Eof;

use super::{cursor::Cursor, format::Field};
use crate::events::schema::ByteOrder;

/// Flag in a page's size: events were lost before it.
const MISSED: u64 = 1 << 31;
/// Flag in a page's size: the number of lost events follows the records.
const MISSED_STORED: u64 = 1 << 30;
/// Mask of the size.
const SIZE: u64 = (1 << 27) - 1;
/// Values of type_len that are no number of words.
const SIZE_IN_FIRST_WORD: u32 = 0;
const PADDING: u32 = 29;
const TIME_EXTENSION: u32 = 30;
const ABSOLUTE_TIME: u32 = 31;
/// Bits of a time delta in a record.
const TIME_BITS: u32 = 27;
/// Bits of the absolute time in a record of type 31; the higher bits come from the previous time.
const ABSOLUTE_BITS: u32 = 59;

/// The layout of a page, from `events/header_page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Page size in bytes.
    pub(crate) page_size: usize,
    /// Size of the kernel's `long` in bytes, 4 or 8.
    pub(crate) long_size: usize,
    /// The byte order of the machine.
    pub(crate) order: ByteOrder,
    /// Offset of the word with the size of the records.
    commit: usize,
    /// Offset of the first record.
    data: usize,
}

impl Layout {
    /// Parses header_page; defaults to the layout of 64-bit kernels.
    pub(crate) fn new(header_page: &[u8], page_size: usize, order: ByteOrder) -> Layout {
        let text = String::from_utf8_lossy(header_page);
        let fields = text.lines().filter_map(|line| Field::parse(line.trim_start().strip_prefix("field:")?));
        let mut layout = Layout { page_size, long_size: 8, order, commit: 8, data: 16 };
        for field in fields {
            match field.name {
                "commit" => {
                    layout.commit = field.offset as usize;
                    layout.long_size = if field.size == 4 { 4 } else { 8 };
                }
                "data" => layout.data = field.offset as usize,
                _ => {}
            }
        }
        layout
    }
}

/// A page's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The base time of its records.
    pub(crate) time: u64,
    /// The byte order of its records.
    pub(crate) order: ByteOrder,
    /// Offset of the first record.
    pub(crate) data: usize,
    /// Offset of the end of the last record.
    pub(crate) end: usize,
    /// Events lost before the page, if any.
    pub(crate) lost: Option<Missed>,
}

/// The number of lost events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// Unknown: the page had no space to store it.
    Some,
    /// The stored number.
    Count(u64),
}

impl Page {
    /// Reads the header of a page.
    ///
    /// # Errors
    /// The page is shorter than its header, or than the size of its records.
    pub(crate) fn read(bytes: &[u8], layout: &Layout) -> Result<Page, Eof> {
        let long = |position: usize| {
            let mut cursor = Cursor::new(bytes, 0, layout.order);
            cursor.take(position)?;
            if layout.long_size == 4 { cursor.u32().map(u64::from) } else { cursor.u64() }
        };
        let time = Cursor::new(bytes, 0, layout.order).u64()?;
        let commit = long(layout.commit)?;
        let size = (commit & SIZE) as usize;
        let end = layout.data + size;
        if bytes.len() < end {
            return Err(Eof { at: 0, wanted: end as u64, left: bytes.len() as u64 });
        }
        let lost = match (commit & MISSED != 0, commit & MISSED_STORED != 0) {
            (false, _) => None,
            (true, true) => Some(long(end).map_or(Missed::Some, Missed::Count)),
            (true, false) => Some(Missed::Some),
        };
        Ok(Page { time, order: layout.order, data: layout.data, end, lost })
    }
}

/// Position and time of a record in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRecord {
    pub(crate) time: u64,
    /// Offset of the record's header.
    pub(crate) start: usize,
    /// Offset of the content.
    pub(crate) content: usize,
    /// Offset of the end.
    pub(crate) end: usize,
}

/// An iterator over the records of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    position: usize,
    end: usize,
    time: u64,
    order: ByteOrder,
}

impl Records {
    pub(crate) fn new(page: &Page) -> Records {
        Records { position: page.data, end: page.end, time: page.time, order: page.order }
    }

    /// Returns the next record of the page with these bytes, or `None` after the last.
    ///
    /// # Errors
    /// The offset of a record that extends beyond the page.
    #[inline]
    pub(crate) fn next(&mut self, page: &[u8]) -> Result<Option<PageRecord>, usize> {
        while self.position < self.end {
            let start = self.position;
            let order = self.order;
            let word = word(page, start, order).ok_or(start)?;
            let (kind, delta) = match order {
                ByteOrder::Little => (word & 0x1f, u64::from(word >> (u32::BITS - TIME_BITS))),
                ByteOrder::Big => (word >> TIME_BITS, u64::from(word & ((1 << TIME_BITS) - 1))),
            };
            let extension = || self::word(page, start + 4, order).map(u64::from).ok_or(start);
            let (content, length) = match kind {
                // The rest of the page is unused.
                PADDING if delta == 0 => break,
                PADDING => (start + 4, extension()? as usize),
                TIME_EXTENSION | ABSOLUTE_TIME => (start + 8, 0),
                SIZE_IN_FIRST_WORD => (start + 8, (extension()? as usize).checked_sub(4).ok_or(start)?),
                words => (start + 4, words as usize * 4),
            };
            self.position = content
                .checked_add(length.next_multiple_of(4))
                .filter(|&end| end <= self.end)
                .ok_or(start)?;
            match kind {
                TIME_EXTENSION => self.time = self.time.wrapping_add(extension()? << TIME_BITS | delta),
                ABSOLUTE_TIME => self.time = absolute(self.time, extension()? << TIME_BITS | delta),
                PADDING => self.time = self.time.wrapping_add(delta),
                _ => {
                    self.time = self.time.wrapping_add(delta);
                    return Ok(Some(PageRecord { time: self.time, start, content, end: self.position }));
                }
            }
        }
        self.position = self.end;
        Ok(None)
    }
}

fn word(page: &[u8], position: usize, order: ByteOrder) -> Option<u32> {
    let bytes = page.get(position..)?.first_chunk().copied()?;
    Some(if order == ByteOrder::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
}

/// Completes a 59-bit time to one not before the previous time, as the kernel's `rb_fix_abs_ts` does.
fn absolute(before: u64, time: u64) -> u64 {
    let high = before >> ABSOLUTE_BITS << ABSOLUTE_BITS;
    let time = high | (time & ((1 << ABSOLUTE_BITS) - 1));
    if high != 0 && time < before { time.wrapping_add(1 << ABSOLUTE_BITS) } else { time }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout =
        Layout { page_size: 64, long_size: 8, order: ByteOrder::Little, commit: 8, data: 16 };

    fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let mut bytes = time.to_le_bytes().to_vec();
        bytes.extend(((words.len() as u64 * 4) | flags).to_le_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    }

    fn records(bytes: &[u8]) -> Result<Vec<PageRecord>, usize> {
        let mut records = Records::new(&Page::read(bytes, &LAYOUT).unwrap());
        let mut read = Vec::new();
        while let Some(record) = records.next(bytes)? {
            read.push(record);
        }
        Ok(read)
    }

    #[test]
    fn each_kind_of_record_is_read() {
        let words = [
            10 << 5 | 1,
            0xaaaa, // one word, 10 ns later
            5 << 5 | 30,
            2, // a time extension of 2 * 2^27 + 5
            0,
            8,
            0xbbbb, // size before the content
            1 << 5 | 29,
            8,
            0, // padding: one word
            7 << 5 | 31,
            1, // it is 2^27 + 7
            2,
            1,
            2, // two words at the same time
            29,
            0xdead, // end of the records
        ];
        let expected = [
            PageRecord { time: 110, start: 16, content: 20, end: 24 },
            PageRecord { time: 110 + (2 << 27) + 5, start: 32, content: 40, end: 44 },
            PageRecord { time: (1 << 27) + 7, start: 64, content: 68, end: 76 },
        ];
        let flags = 0;
        assert_eq!(records(&page(100, flags, &words)).unwrap(), expected);
    }

    #[test]
    fn records_beyond_their_page_are_an_error() {
        assert_eq!(records(&page(0, 0, &[2, 0])), Err(16));
        assert_eq!(records(&page(0, 0, &[0, 3])), Err(16));
        assert_eq!(records(&page(0, 0, &[0, u32::MAX])), Err(16));
        assert_eq!(records(&page(0, 0, &[0])), Err(16));
        assert_eq!(records(&page(0, 0, &[32 | 29, u32::MAX])), Err(16));
        assert!(Page::read(&page(0, 0, &[1, 2])[..20], &LAYOUT).is_err());
    }

    #[test]
    fn a_page_says_what_was_lost_before_it() {
        let read =
            |flags, more: &[u8]| Page::read(&[&page(0, flags, &[1, 2])[..], more].concat(), &LAYOUT).unwrap();
        assert_eq!(read(0, &[]).lost, None);
        assert_eq!(read(MISSED, &[]).lost, Some(Missed::Some));
        assert_eq!(read(MISSED | MISSED_STORED, &7u64.to_le_bytes()).lost, Some(Missed::Count(7)));
    }

    #[test]
    fn absolute_times_get_their_high_bits_from_the_time_before() {
        assert_eq!(absolute(5, 9), 9);
        assert_eq!(absolute((1 << 59) + 5, 9), (1 << 59) + 9);
        assert_eq!(absolute((1 << 59) + 5, 3), (2 << 59) + 3);
    }

    #[test]
    fn the_layout_is_that_of_header_page() {
        let text = b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                     \tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\
                     \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                     \tfield: char data;\toffset:12;\tsize:4084;\tsigned:0;\n";
        let expected = Layout { page_size: 4096, long_size: 4, order: ByteOrder::Big, commit: 8, data: 12 };
        assert_eq!(Layout::new(text, 4096, ByteOrder::Big), expected);
    }
}
