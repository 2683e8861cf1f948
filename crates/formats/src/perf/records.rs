//! Iterates over records in file order.

use std::ops::Range;

use hodo_bytes::Cursor;

use super::layout::{AUXTRACE_SIZE, RECORD_HEADER_SIZE, record};
use crate::error::{Error, ErrorKind};

/// A record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// File offset of the header.
    pub offset: u64,
    /// The type; see [`record`].
    pub kind: u32,
    /// The header's `misc` bits.
    pub misc: u16,
    /// The bytes after the header.
    pub body: &'a [u8],
    /// Data after the record that its size does not include: trace bytes after AUXTRACE, formats after
    /// HEADER_TRACING_DATA.
    pub trailing: &'a [u8],
}

impl Record<'_> {
    /// File offset of the body.
    pub fn body_offset(&self) -> u64 {
        self.offset + u64::from(RECORD_HEADER_SIZE)
    }

    /// File offset of [`Record::trailing`].
    pub fn trailing_offset(&self) -> u64 {
        self.body_offset() + self.body.len() as u64
    }
}

/// Iterates over records. After a damaged record, iteration resumes at the next AUXTRACE record in the file's index,
/// because no other record boundary is known.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    position: usize,
    end: usize,
    /// Ascending offsets of AUXTRACE records. A record that extends over one is damaged.
    known: Vec<usize>,
    /// The error of the last record.
    pending: Option<Error>,
}

impl<'a> Records<'a> {
    /// Iterates over the records in the range `data` of the file's bytes, clamped to the file. `index` contains
    /// possible offsets of AUXTRACE records.
    pub(super) fn new(bytes: &'a [u8], data: Range<u64>, index: Vec<u64>) -> Records<'a> {
        let clamp =
            |offset: u64| usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
        let (position, end) = (clamp(data.start), clamp(data.end));
        let is_auxtrace = |offset: usize| {
            let mut cursor = Cursor::new(bytes.get(offset..end)?, offset as u64);
            let (kind, _misc, size) = (cursor.u32().ok()?, cursor.u16().ok()?, cursor.u16().ok()?);
            Some(kind == record::AUXTRACE && size == AUXTRACE_SIZE)
        };
        let mut known: Vec<usize> = index.into_iter().map(clamp).collect();
        known.retain(|&offset| is_auxtrace(offset) == Some(true));
        known.sort_unstable();
        Records { bytes, position, end, known, pending: None }
    }

    /// The bytes that contain the records.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// File offset of the next record.
    pub fn offset(&self) -> u64 {
        self.position as u64
    }

    /// Whether there are no more records.
    pub fn is_done(&self) -> bool {
        self.position >= self.end && self.pending.is_none()
    }

    /// The end of records that begin before the next known one.
    fn limit(&self) -> usize {
        let next = self.known.partition_point(|&offset| offset <= self.position);
        self.known.get(next).copied().unwrap_or(self.end)
    }

    /// Reads the record at the current position. Returns it with its end.
    fn read(&mut self) -> Result<(Record<'a>, usize), Error> {
        let cut = |eof| Error::cut_short("record", eof);
        let offset = self.position as u64;
        let limit = self.limit();
        let mut cursor = Cursor::new(self.bytes.get(self.position..limit).unwrap_or_default(), offset);
        let (kind, misc) = (cursor.u32().map_err(cut)?, cursor.u16().map_err(cut)?);
        let size = cursor.u16().map_err(cut)?;
        let body = size.checked_sub(RECORD_HEADER_SIZE);
        let body =
            body.ok_or(Error::invalid(offset + 6, "the size of a record", u64::from(size), "at least 8"))?;
        let body = cursor.take(usize::from(body)).map_err(cut)?;
        let trailing = self.trailing(kind, body, &mut cursor)?;
        let end = self.position + usize::from(size) + trailing.len();
        Ok((Record { offset, kind, misc, body, trailing }, end))
    }

    /// Reads the data after a record whose first field is the size of the data. If some is missing, returns the rest and
    /// sets the pending error.
    fn trailing(&mut self, kind: u32, body: &[u8], cursor: &mut Cursor<'a>) -> Result<&'a [u8], Error> {
        let start = cursor.offset();
        let mut head = Cursor::new(body, start - body.len() as u64);
        let (wanted, what) = match kind {
            record::AUXTRACE => (head.u64(), "trace bytes of an AUXTRACE record"),
            record::HEADER_TRACING_DATA => {
                (head.u32().map(u64::from), "bytes of a HEADER_TRACING_DATA record")
            }
            _ => return Ok(&[]),
        };
        let wanted = wanted.map_err(|eof| Error::cut_short("record", eof))?;
        let rest = cursor.rest();
        let taken = usize::try_from(wanted).ok().and_then(|wanted| rest.get(..wanted));
        Ok(taken.unwrap_or_else(|| {
            let left = rest.len() as u64;
            let kind = ErrorKind::CutShort { what, wanted, left };
            self.pending = Some(Error { at: start + left, kind });
            rest
        }))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.pending.take() {
            return Some(Err(error));
        }
        if self.position >= self.end {
            return None;
        }
        match self.read() {
            Ok((record, end)) => {
                self.position = end;
                Some(Ok(record))
            }
            Err(error) => {
                self.position = self.limit();
                Some(Err(error))
            }
        }
    }
}
