//! The file header, and the locations of the file's other parts.

use std::{collections::BTreeMap, ops::Range};

use hodo_bytes::{Cursor, Eof};

use super::{
    events::{Attr, Events},
    features,
    layout::{
        FEATURES_OFFSET, FILE_HEADER_SIZE, MAGIC, MAGIC_BIG_ENDIAN, PIPE_HEADER_SIZE, SECTION_SIZE, feature,
    },
    records::Records,
};
use crate::error::{Error, ErrorKind};

/// Magic number of a perf.data before about Linux 3.5.
const MAGIC_OLD: &[u8; 8] = b"PERFFILE";

/// Whether the bytes begin a perf.data of any version.
pub fn recognise(bytes: &[u8]) -> bool {
    [MAGIC, MAGIC_BIG_ENDIAN, MAGIC_OLD].iter().any(|magic| bytes.starts_with(*magic))
}

/// A perf.data with its header read.
#[derive(Clone, Debug)]
pub struct File<'a> {
    bytes: &'a [u8],
    /// The recorded events.
    pub events: Events,
    /// Byte range of the records, from the header. It may exceed the file.
    pub data: Range<u64>,
    /// Feature sections by feature bit, as far as the file contains them.
    pub(super) features: Features<'a>,
    /// Number of feature sections according to the header; `None` if the recorder was killed before it wrote them.
    promised_sections: Option<usize>,
}

/// Feature sections by feature bit.
pub(super) type Features<'a> = BTreeMap<u8, Section<'a>>;

/// A section of the file.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// File offset.
    pub offset: u64,
    /// The content.
    pub bytes: &'a [u8],
}

impl<'a> Section<'a> {
    /// A cursor over the section.
    pub fn cursor(&self) -> Cursor<'a> {
        Cursor::new(self.bytes, self.offset)
    }
}

impl<'a> File<'a> {
    /// Reads the header, the events and the locations of features.
    ///
    /// # Errors
    /// The file is no little-endian perf.data, or its header or list of events is cut short or invalid. Missing
    /// records and features are not an error.
    pub fn open(bytes: &'a [u8]) -> Result<File<'a>, Error> {
        check_magic(bytes)?;
        let cut = |eof| Error::cut_short("perf.data header", eof);
        let mut cursor = Cursor::new(bytes, 0);
        cursor.take(MAGIC.len()).map_err(cut)?;
        let size = cursor.u64().map_err(cut)?;
        if size == PIPE_HEADER_SIZE {
            let data = PIPE_HEADER_SIZE..bytes.len() as u64;
            return Ok(File {
                bytes,
                events: Events::default(),
                data,
                features: Features::new(),
                promised_sections: Some(0),
            });
        }
        if size < FILE_HEADER_SIZE {
            return Err(Error::invalid(8, "the size of the perf.data header", size, "16 or at least 104"));
        }
        let attr_size = cursor.u64().map_err(cut)?;
        let attrs = range(&mut cursor)?;
        let data = range(&mut cursor)?;
        // The section of event types, which newer versions of perf leave empty.
        range(&mut cursor)?;
        debug_assert_eq!(cursor.offset(), FEATURES_OFFSET as u64);
        let bits = cursor.take(32).map_err(cut)?;
        let present =
            |bit: &u8| bits.get(usize::from(bit / 8)).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
        let events = Events::new(read_attrs(bytes, attr_size, attrs)?);
        // A killed recorder leaves the data size at zero, as it is written last.
        let unfinished = data.is_empty();
        let data = if unfinished { data.start..bytes.len() as u64 } else { data };
        let wanted: Vec<u8> = (0..=u8::MAX).filter(|bit| present(bit)).collect();
        let promised_sections = (!unfinished).then_some(wanted.len());
        let features = if unfinished { Features::new() } else { sections(bytes, data.end, &wanted) };
        Ok(File { bytes, events, data, features, promised_sections })
    }

    /// The records, in file order.
    pub fn records(&self) -> Records<'a> {
        let index = self.features.get(&feature::AUXTRACE).copied();
        let index = index.map(features::auxtrace_index).unwrap_or_default();
        Records::new(self.bytes, self.data.clone(), index)
    }

    /// Describes what is missing, if the file is shorter than its header declares.
    pub fn cut_short(&self) -> Option<String> {
        let length = self.bytes.len() as u64;
        if self.data.end > length {
            return Some(format!(
                "the file has {length} bytes, but its header promises records up to offset {}",
                self.data.end
            ));
        }
        let Some(promised) = self.promised_sections else {
            return Some("the recorder was stopped before it had written the file's end".to_owned());
        };
        let missing = promised.saturating_sub(self.features.len());
        (missing > 0).then(|| {
            format!("the file has {length} bytes, and {missing} of its feature sections are missing")
        })
    }
}

fn unsupported(what: &'static str, help: &'static str) -> Error {
    Error { at: 0, kind: ErrorKind::Unsupported { what, help } }
}

fn check_magic(bytes: &[u8]) -> Result<(), Error> {
    if bytes.starts_with(MAGIC) {
        Ok(())
    } else if bytes.starts_with(MAGIC_BIG_ENDIAN) {
        Err(unsupported("a perf.data of a big-endian machine", "hodo reads little-endian ones only"))
    } else if bytes.starts_with(MAGIC_OLD) {
        Err(unsupported("a perf.data in the layout of the year 2009", "record it again with a newer perf"))
    } else {
        Err(Error { at: 0, kind: ErrorKind::NotRecognised })
    }
}

/// Reads a section's offset and size as a range.
fn range(cursor: &mut Cursor<'_>) -> Result<Range<u64>, Error> {
    let cut = |eof| Error::cut_short("perf.data header", eof);
    let offset = cursor.u64().map_err(cut)?;
    let size_offset = cursor.offset();
    let size = cursor.u64().map_err(cut)?;
    let end = offset.checked_add(size);
    let invalid = Error::invalid(size_offset, "the size of a section", size, "a size within the file");
    Ok(offset..end.ok_or(invalid)?)
}

/// Returns the bytes of a range, or an error that names the missing part.
fn slice(bytes: &[u8], range: Range<u64>) -> Result<Section<'_>, Eof> {
    let size = range.end - range.start;
    let start =
        usize::try_from(range.start).ok().filter(|&start| start <= bytes.len()).unwrap_or(bytes.len());
    let rest = bytes.get(start..).unwrap_or_default();
    let taken = usize::try_from(size).ok().and_then(|size| rest.get(..size));
    let taken = taken.ok_or(Eof { at: range.start, wanted: size, left: rest.len() as u64 })?;
    Ok(Section { offset: range.start, bytes: taken })
}

fn read_attrs(bytes: &[u8], size: u64, range: Range<u64>) -> Result<Vec<Attr>, Error> {
    let cut = |eof| Error::cut_short("perf.data list of events", eof);
    let attrs = slice(bytes, range).map_err(cut)?;
    let fits =
        |&size: &usize| size >= Attr::SMALLEST + SECTION_SIZE as usize && attrs.bytes.len() % size == 0;
    let Some(size) = usize::try_from(size).ok().filter(fits) else {
        return Err(Error::invalid(
            16,
            "the size of an event",
            size,
            "at least 80, and a divisor of their list's size",
        ));
    };
    let mut read = Vec::new();
    let mut ids_left = bytes.len();
    for (index, entry) in attrs.bytes.chunks_exact(size).enumerate() {
        let mut cursor = Cursor::new(entry, attrs.offset + (index * size) as u64);
        let mut attr = Attr::read(&mut cursor)?;
        let ids = slice(bytes, self::range(&mut cursor)?).map_err(cut)?;
        // Overlapping lists would let a small file request much memory.
        ids_left = ids_left.checked_sub(ids.bytes.len()).ok_or(Error::invalid(
            ids.offset,
            "the size of an event's list of ids",
            ids.bytes.len() as u64,
            "less than the file has left for it",
        ))?;
        let mut ids_cursor = ids.cursor();
        while let Ok(id) = ids_cursor.u64() {
            attr.ids.push(id);
        }
        read.push(attr);
    }
    Ok(read)
}

/// Returns the complete feature sections. Their table follows the records.
fn sections<'a>(bytes: &'a [u8], table: u64, wanted: &[u8]) -> Features<'a> {
    let end = table.saturating_add(wanted.len() as u64 * SECTION_SIZE).min(bytes.len() as u64);
    let Ok(table) = slice(bytes, table.min(end)..end) else { return Features::new() };
    let mut cursor = table.cursor();
    let described = wanted.iter().map_while(|&bit| Some((bit, range(&mut cursor).ok()?)));
    described.filter_map(|(bit, range)| Some((bit, slice(bytes, range).ok()?))).collect()
}
