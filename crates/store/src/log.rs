//! The log: a file of frames, each either complete or ignored.
//!
//! ```text
//! magic, version │ frame: Head │ frame: Table │ frame: Names │ frame: Run, blocks │ …
//! frame: "hodF", bytes of the head, bytes of the blocks, CRC-32 of the head, CRC-32 of these words │ head │ blocks
//! ```
//!
//! A head is an [`Entry`] in postcard's encoding. A run refers only to tables, names and lanes of earlier frames.

use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    block::Zone,
    dictionary::{Dictionary, Key},
    error::Error,
    schema::Schema,
};

/// The file's name in the folder of a store.
pub(crate) const NAME: &str = "growing";
const MAGIC: [u8; 8] = *b"hodogrow";
/// The format version of all files.
pub(crate) const VERSION: u16 = 2;
const FRAME: [u8; 4] = *b"hodF";
const FRAME_BYTES: usize = 28;
/// Bytes of a frame's head at most.
const MOST_HEAD: u64 = 1 << 28;

/// The head of a frame.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// The first frame.
    Head(Head),
    /// A table, which gets the next number.
    Table(Schema),
    /// Names, which get the next numbers.
    Names(Vec<Box<str>>),
    /// Lanes of a table, which get the next numbers.
    Lanes(u32, Vec<Key>),
    /// Rows of a table sorted by begin, in blocks that follow the head.
    Run(u32, Vec<Zone>),
}

/// The identity of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Identity of the inputs.
    pub(crate) identity: String,
    /// Unique number of the log.
    pub(crate) generation: u64,
    /// The generation that the history held when this log began; 0 without a history.
    pub(crate) follows: u64,
}

/// A log open for writing.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// Bytes written.
    length: u64,
    /// The part of the dictionary that is in the log.
    known: Sizes,
}

/// How much of a dictionary is known.
#[derive(Debug)]
struct Sizes {
    tables: usize,
    names: usize,
    /// Lanes of each table.
    lanes: Vec<usize>,
}

impl Log {
    /// Truncates the file and begins a log.
    pub(crate) fn begin(path: &Path, file: File, head: &Head, known: &Dictionary) -> Result<Log, Error> {
        file.set_len(0).map_err(Error::system(path))?;
        let mut log = Log { path: path.to_owned(), file, length: 0, known: known.sizes() };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        frame(&Entry::Head(head.clone()), &[], &mut bytes);
        log.write(&bytes)?;
        Ok(log)
    }

    /// Continues a log that was read, and cuts off what follows its last complete frame.
    pub(crate) fn resume(path: &Path, file: File, read: &Read) -> Result<Log, Error> {
        file.set_len(read.length).map_err(Error::system(path))?;
        Ok(Log { path: path.to_owned(), file, length: read.length, known: read.dictionary.sizes() })
    }

    /// Appends a run, after the dictionary entries that it may refer to. The zones' offsets are relative to `blocks`,
    /// in the file too: a reader adds the offset of the blocks.
    pub(crate) fn append(
        &mut self,
        dictionary: &Dictionary,
        table: u32,
        zones: Vec<Zone>,
        blocks: &[u8],
    ) -> Result<(), Error> {
        let mut bytes = Vec::new();
        self.add_dictionary(dictionary, &mut bytes);
        frame(&Entry::Run(table, zones), blocks, &mut bytes);
        self.write(&bytes)?;
        self.known = dictionary.sizes();
        Ok(())
    }

    /// Appends the tables, names and lanes that the log lacks.
    pub(crate) fn append_dictionary(&mut self, dictionary: &Dictionary) -> Result<(), Error> {
        let mut bytes = Vec::new();
        self.add_dictionary(dictionary, &mut bytes);
        self.write(&bytes)?;
        self.known = dictionary.sizes();
        Ok(())
    }

    fn add_dictionary(&self, dictionary: &Dictionary, bytes: &mut Vec<u8>) {
        let Sizes { tables, names, lanes } = &self.known;
        for table in &dictionary.tables[*tables..] {
            frame(&Entry::Table(table.schema.clone()), &[], bytes);
        }
        let new: Vec<Box<str>> = dictionary.names.iter().skip(*names).cloned().collect();
        if !new.is_empty() {
            frame(&Entry::Names(new), &[], bytes);
        }
        for (number, table) in dictionary.tables.iter().enumerate() {
            let known = lanes.get(number).copied().unwrap_or(0);
            let new: Vec<Key> = table.lanes.iter().skip(known).cloned().collect();
            if !new.is_empty() {
                frame(&Entry::Lanes(number as u32, new), &[], bytes);
            }
        }
    }

    /// Writes at an explicit offset, which overwrites the remains of a failed write.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(bytes, self.length).map_err(Error::system(&self.path))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Cuts off the remains of a failed write.
    pub(crate) fn end(&self) -> Result<(), Error> {
        self.file.set_len(self.length).map_err(Error::system(&self.path))
    }
}

impl Dictionary {
    fn sizes(&self) -> Sizes {
        let lanes = self.tables.iter().map(|table| table.lanes.len()).collect();
        Sizes { tables: self.tables.len(), names: self.names.len(), lanes }
    }
}

/// Appends a frame.
fn frame(entry: &Entry, blocks: &[u8], bytes: &mut Vec<u8>) {
    let head = postcard::to_allocvec(entry).expect("memory takes what is written to it");
    let begin = bytes.len();
    bytes.extend(FRAME);
    bytes.extend((head.len() as u64).to_le_bytes());
    bytes.extend((blocks.len() as u64).to_le_bytes());
    bytes.extend(crc32fast::hash(&head).to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes[begin..]).to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(blocks);
}

/// The content of a log.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) file: Arc<File>,
    pub(crate) head: Head,
    /// The dictionary after the log, including that of the history.
    pub(crate) dictionary: Dictionary,
    /// Runs: the table and the zones of each.
    pub(crate) runs: Vec<(u32, Vec<Zone>)>,
    /// Bytes of complete frames.
    pub(crate) length: u64,
    /// Whether an incomplete frame follows.
    pub(crate) is_cut: bool,
}

/// Returns the head of a log and the offset after it; `None` if the head is incomplete.
pub(crate) fn read_head(path: &Path, file: &File) -> Result<Option<(Head, u64)>, Error> {
    let size = file.metadata().map_err(Error::system(path))?.len();
    let begin = (MAGIC.len() + 2) as u64;
    let mut magic = [0; MAGIC.len() + 2];
    if size < begin || file.read_exact_at(&mut magic, 0).is_err() || magic[..MAGIC.len()] != MAGIC {
        return Ok(None);
    }
    let found = u16::from_le_bytes([magic[MAGIC.len()], magic[MAGIC.len() + 1]]);
    if found != VERSION {
        return Err(Error::Version { file: path.to_owned(), found, known: VERSION });
    }
    Ok(match read_frame(file, begin, size) {
        Some((Entry::Head(head), blocks)) if blocks.is_empty() => Some((head, blocks.end)),
        _ => None,
    })
}

/// Reads all complete frames of a log. `before` is the dictionary of the history that it follows. `None` if the head
/// is incomplete.
pub(crate) fn read(path: &Path, file: File, before: Dictionary) -> Result<Option<Read>, Error> {
    let Some((head, length)) = read_head(path, &file)? else { return Ok(None) };
    let size = file.metadata().map_err(Error::system(path))?.len();
    let mut read =
        Read { file: Arc::new(file), head, dictionary: before, runs: Vec::new(), length, is_cut: false };
    while let Some((entry, blocks)) = read_frame(&read.file, read.length, size) {
        let end = blocks.end;
        if read.take(entry, blocks).is_none() {
            break;
        }
        read.length = end;
    }
    read.is_cut = read.length < size;
    Ok(Some(read))
}

/// Returns the frame at an offset: its head, and where its blocks are.
fn read_frame(file: &File, offset: u64, size: u64) -> Option<(Entry, Range<u64>)> {
    let mut words = [0; FRAME_BYTES];
    let left = size.checked_sub(offset)?.checked_sub(FRAME_BYTES as u64)?;
    file.read_exact_at(&mut words, offset).ok()?;
    let (checked, crc) = words.split_at(FRAME_BYTES - 4);
    if checked[..4] != FRAME || crc32fast::hash(checked).to_le_bytes() != *crc {
        return None;
    }
    let word =
        |offset: usize| u64::from_le_bytes(checked[offset..offset + 8].try_into().expect("eight bytes"));
    let (head, blocks) = (word(4), word(12));
    if head > MOST_HEAD || left.checked_sub(head)? < blocks {
        return None;
    }
    let mut bytes = vec![0; head as usize];
    file.read_exact_at(&mut bytes, offset + FRAME_BYTES as u64).ok()?;
    if crc32fast::hash(&bytes).to_le_bytes() != checked[20..24] {
        return None;
    }
    let entry = postcard::from_bytes(&bytes).ok()?;
    let begin = offset + FRAME_BYTES as u64 + head;
    Some((entry, begin..begin + blocks))
}

impl Read {
    /// Applies a frame; `None` if it is invalid after the earlier frames.
    fn take(&mut self, entry: Entry, blocks: Range<u64>) -> Option<()> {
        match entry {
            Entry::Head(_) => return None,
            Entry::Table(schema) => {
                let next = self.dictionary.tables.len();
                (self.dictionary.table(&schema).ok()? as usize == next).then_some(())?;
            }
            Entry::Names(names) => {
                let mut is_new = |name| self.dictionary.names.insert_full(name).1;
                names.into_iter().all(&mut is_new).then_some(())?;
            }
            Entry::Lanes(table, keys) => {
                for key in keys {
                    self.dictionary.lane(table, &key).ok()?;
                }
            }
            Entry::Run(table, mut zones) => {
                let table_of_log = self.dictionary.tables.get(table as usize)?;
                let (lanes, width) = (table_of_log.lanes.len(), table_of_log.schema.columns.len());
                for zone in &mut zones {
                    zone.is_sound(lanes, width, blocks.end - blocks.start).then_some(())?;
                    zone.offset += blocks.start;
                }
                zones.is_sorted_by(|one, next| one.begins.most <= next.begins.least).then_some(())?;
                self.runs.push((table, zones));
            }
        }
        Some(())
    }
}
