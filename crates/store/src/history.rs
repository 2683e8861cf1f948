//! The file of a finished store: blocks of rows by bin, blocks of summaries, and a footer that finds them.
//!
//! ```text
//! magic, version │ blocks, in any order │ footer │ offset and bytes of the footer, its CRC-32, CRC-32 of these words, magic
//! ```
//!
//! The file is written under a temporary name and renamed after it is synced, so it is either complete or absent.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{
    bins::Bin,
    block::Zone,
    dictionary::{Dictionary, Key, TableKeys},
    error::Error,
    fold::SummaryZone,
    log::VERSION,
    schema::Schema,
};

/// The file's name in the folder of a store.
pub(crate) const NAME: &str = "history";
const PART: &str = "history.part";
const MAGIC: [u8; 8] = *b"hodohist";
const END: [u8; 8] = *b"tsihodoh";
const TRAILER_BYTES: u64 = 32;

/// The index of the file, which finds all blocks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Footer {
    pub(crate) identity: String,
    /// Generation of the last log whose rows the history holds.
    pub(crate) generation: u64,
    pub(crate) names: Vec<Box<str>>,
    pub(crate) tables: Vec<TableFooter>,
}

/// The index of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TableFooter {
    pub(crate) schema: Schema,
    pub(crate) lanes: Vec<LaneFooter>,
    pub(crate) rows: u64,
    /// Binary logarithm of the width of a bin of level 0; even.
    pub(crate) base: u32,
    /// Blocks, sorted by bin, then by first begin.
    pub(crate) blocks: Vec<(Bin, Zone)>,
    /// Bins with summaries, sorted.
    pub(crate) summarised: Vec<Bin>,
    /// Summary blocks, sorted by level and first bin.
    pub(crate) summaries: Vec<SummaryZone>,
}

/// The key and the extent of a lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaneFooter {
    pub(crate) key: Key,
    pub(crate) extent: LaneExtent,
}

/// The extent of a lane's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaneExtent {
    pub(crate) rows: u64,
    /// The first begin; [`u64::MAX`] if the lane has no record.
    pub(crate) first: u64,
    /// The last end.
    pub(crate) last: u64,
}

impl Default for LaneExtent {
    fn default() -> LaneExtent {
        LaneExtent { rows: 0, first: u64::MAX, last: 0 }
    }
}

impl LaneExtent {
    pub(crate) fn add(&mut self, other: LaneExtent) {
        self.rows += other.rows;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}

impl Footer {
    /// Returns the names, tables and lanes.
    pub(crate) fn dictionary(&self) -> Dictionary {
        let table = |table: &TableFooter| TableKeys {
            schema: table.schema.clone(),
            lanes: table.lanes.iter().map(|lane| lane.key.clone()).collect(),
        };
        Dictionary {
            names: self.names.iter().cloned().collect(),
            tables: self.tables.iter().map(table).collect(),
        }
    }

    /// Returns whether the footer is valid, in a file with `file` bytes before it.
    fn is_sound(&self, file: u64) -> bool {
        let dictionary = self.dictionary();
        // A dictionary keeps equal names and keys once.
        let is_distinct = dictionary.names.len() == self.names.len()
            && dictionary
                .tables
                .iter()
                .zip(&self.tables)
                .all(|(keys, table)| keys.lanes.len() == table.lanes.len());
        let table = |table: &TableFooter| {
            let (lanes, width) = (table.lanes.len(), table.schema.columns.len());
            let is_known = |lane: &LaneFooter| {
                let mut cells = table.schema.key.iter().zip(&lane.key);
                lane.key.len() == table.schema.key.len()
                    && cells.all(|(field, cell)| {
                        field.kind != crate::Kind::Name
                            || cell.is_none_or(|name| name < self.names.len() as u64)
                    })
            };
            table.schema.fits()
                && table.base <= 62
                && table.base.is_multiple_of(2)
                && table.lanes.iter().all(is_known)
                && table.blocks.iter().all(|(_, zone)| zone.is_sound(lanes, width, file))
                && table.blocks.is_sorted_by_key(|(bin, zone)| (*bin, zone.begins.least))
                && table.summarised.is_sorted()
                && table.summaries.iter().all(|zone| zone.is_sound(lanes, file))
                && table.summaries.is_sorted_by_key(|zone| (zone.level, zone.bins.least))
        };
        is_distinct && self.tables.iter().all(table)
    }
}

/// An open history.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) footer: Footer,
    /// Size of the file, in bytes.
    pub(crate) size: u64,
}

/// Opens the history of a folder; `None` if it has none.
pub(crate) fn open(folder: &Path) -> Result<Option<History>, Error> {
    let path = folder.join(NAME);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::System { file: path, error }),
    };
    let size = file.metadata().map_err(Error::system(&path))?.len();
    let damaged = |offset, expected| Error::Damaged { file: path.clone(), offset, expected };
    let mut begin = [0; MAGIC.len() + 2];
    let is_begun = size >= begin.len() as u64 && file.read_exact_at(&mut begin, 0).is_ok();
    if !is_begun || begin[..MAGIC.len()] != MAGIC {
        return Err(damaged(0, "the magic number of a history"));
    }
    let found = u16::from_le_bytes([begin[MAGIC.len()], begin[MAGIC.len() + 1]]);
    if found != VERSION {
        return Err(Error::Version { file: path, found, known: VERSION });
    }
    let trailer = size.saturating_sub(TRAILER_BYTES);
    let found = read_trailer(&file, trailer).ok_or_else(|| damaged(trailer, "the end of a history"))?;
    if found.footer.checked_add(found.length) != Some(trailer) {
        return Err(damaged(trailer, "a footer just before the end"));
    }
    let footer = read_footer(&file, &found);
    let footer = footer.ok_or_else(|| damaged(found.footer, "a footer that is whole"))?;
    Ok(Some(History { path, file, footer, size }))
}

/// The end of a history, which says where its footer is.
struct Trailer {
    /// The footer's offset.
    footer: u64,
    /// The footer's length in bytes.
    length: u64,
    /// The footer's checksum.
    crc: u32,
}

fn read_trailer(file: &File, offset: u64) -> Option<Trailer> {
    let mut bytes = [0; TRAILER_BYTES as usize];
    file.read_exact_at(&mut bytes, offset).ok()?;
    let is_whole = bytes[24..] == END && crc32fast::hash(&bytes[..20]).to_le_bytes() == bytes[20..24];
    let word = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
    let crc = u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes"));
    is_whole.then(|| Trailer { footer: word(0), length: word(8), crc })
}

fn read_footer(file: &File, trailer: &Trailer) -> Option<Footer> {
    // The length is checked against the file size, so a damaged trailer causes no huge allocation.
    let mut bytes = vec![0; usize::try_from(trailer.length).ok()?];
    file.read_exact_at(&mut bytes, trailer.footer).ok()?;
    if crc32fast::hash(&bytes) != trailer.crc {
        return None;
    }
    let footer: Footer = postcard::from_bytes(&bytes).ok()?;
    footer.is_sound(trailer.footer).then_some(footer)
}

/// Removes the history of a folder, if there is one.
pub(crate) fn remove(folder: &Path) -> Result<(), Error> {
    for name in [NAME, PART] {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::System { file: path, error });
            }
            _ => {}
        }
    }
    Ok(())
}

/// A history under construction, written by several threads.
#[derive(Debug)]
pub(crate) struct Output {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    length: Mutex<u64>,
}

impl Output {
    pub(crate) fn create(folder: &Path) -> Result<Output, Error> {
        let path = folder.join(PART);
        let file = File::create(&path).map_err(Error::system(&path))?;
        let mut begin = MAGIC.to_vec();
        begin.extend(VERSION.to_le_bytes());
        let output = Output { folder: folder.to_owned(), path, file, length: Mutex::new(0) };
        output.append(&begin)?;
        Ok(output)
    }

    /// Appends bytes and returns their offset.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64, Error> {
        let offset = {
            let mut length = self.length.lock().unwrap_or_else(PoisonError::into_inner);
            let offset = *length;
            *length += bytes.len() as u64;
            offset
        };
        self.file.write_all_at(bytes, offset).map_err(Error::system(&self.path))?;
        Ok(offset)
    }

    /// Completes the file and renames it to its final name.
    pub(crate) fn finish(self, footer: &Footer) -> Result<(), Error> {
        let bytes = postcard::to_allocvec(footer).expect("memory takes what is written to it");
        let offset = self.append(&bytes)?;
        let mut trailer = offset.to_le_bytes().to_vec();
        trailer.extend((bytes.len() as u64).to_le_bytes());
        trailer.extend(crc32fast::hash(&bytes).to_le_bytes());
        trailer.extend(crc32fast::hash(&trailer).to_le_bytes());
        trailer.extend(END);
        self.append(&trailer)?;
        self.file.sync_all().map_err(Error::system(&self.path))?;
        let path = self.folder.join(NAME);
        fs::rename(&self.path, &path).map_err(Error::system(&path))?;
        let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
        folder.map_err(Error::system(&self.folder))
    }
}
