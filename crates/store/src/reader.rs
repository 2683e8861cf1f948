//! Reads a snapshot of a store, finished or not.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    bins::Bin,
    block::Zone,
    dictionary::Dictionary,
    error::Error,
    fold::SummaryZone,
    history::{self, History, LaneExtent},
    log,
    schema::Schema,
};

/// The completeness of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The store was finished.
    Complete,
    /// A writer still adds rows; those flushed so far are readable.
    Growing,
    /// The writer ended before it finished the store: rows may be missing.
    CutShort,
}

/// A snapshot of a store. Later writes do not change it.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    identity: String,
    state: State,
    names: Vec<Box<str>>,
    tables: Vec<TableData>,
    bytes: u64,
}

/// A table of an open store.
#[derive(Debug)]
pub(crate) struct TableData {
    pub(crate) schema: Schema,
    pub(crate) keys: Vec<Box<[Option<u64>]>>,
    /// By lane; `None` if a log holds further rows.
    pub(crate) extents: Option<Vec<LaneExtent>>,
    pub(crate) rows: u64,
    pub(crate) parts: Vec<RowsOfFile>,
}

/// The rows of a table in one file.
#[derive(Debug)]
pub(crate) struct RowsOfFile {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    /// Blocks, sorted by bin if the part has bins.
    pub(crate) blocks: Vec<(Bin, Zone)>,
    pub(crate) bins: Option<Bins>,
}

/// Bins of a history.
#[derive(Debug)]
pub(crate) struct Bins {
    pub(crate) base: u32,
    /// The highest level with a record.
    pub(crate) top: u8,
    pub(crate) summarised: Vec<Bin>,
    pub(crate) summaries: Vec<SummaryZone>,
}

impl Store {
    /// Opens the store of a folder. A store that was cut short contains the rows that were flushed.
    ///
    /// # Errors
    /// If the folder has no store, it is damaged, or the operating system reports an error.
    pub fn open(folder: &Path) -> Result<Store, Error> {
        let path = folder.join(log::NAME);
        // The log is opened first: if a writer finishes it meanwhile, the history's footer shows that it holds the log.
        let log = match File::open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::System { file: path, error }),
        };
        let history = history::open(folder)?;
        let Some(file) = log else {
            let history = history.ok_or_else(|| Error::None(folder.to_owned()))?;
            return Ok(Store::from_files(folder, State::Complete, Some(history), None, &path));
        };
        let state = match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => State::Growing,
            _ => State::CutShort,
        };
        let _ = file.unlock();
        let head = log::read_head(&path, &file)?.map(|(head, _)| head);
        // The log may have no complete first frame.
        let Some(head) = head else { return Ok(Store::from_files(folder, state, history, None, &path)) };
        let generation = history.as_ref().map_or(0, |history| history.footer.generation);
        if history.is_some() && head.generation == generation {
            return Ok(Store::from_files(folder, State::Complete, history, None, &path));
        }
        if head.follows != generation {
            let expected = "a log that follows the history beside it";
            return Err(Error::Damaged { file: path, offset: 0, expected });
        }
        let known = history.as_ref().map(|history| history.footer.dictionary());
        let log = log::read(&path, file, known.unwrap_or_default())?;
        Ok(Store::from_files(folder, state, history, log, &path))
    }

    /// Creates a snapshot of a history, and of the log at `path` that follows it.
    fn from_files(
        folder: &Path,
        state: State,
        history: Option<History>,
        log: Option<log::Read>,
        path: &Path,
    ) -> Store {
        let mut store = Store {
            folder: folder.to_owned(),
            identity: String::new(),
            state,
            names: Vec::new(),
            tables: Vec::new(),
            bytes: 0,
        };
        let mut dictionary = Dictionary::default();
        if let Some(history) = history {
            dictionary = history.footer.dictionary();
            store.take(history);
        }
        if let Some(read) = log {
            store.identity.clone_from(&read.head.identity);
            store.bytes += read.length;
            dictionary = read.dictionary;
            for (number, keys) in dictionary.tables.iter().enumerate() {
                let runs = read.runs.iter().filter(|(table, _)| *table as usize == number);
                // The blocks of a log are in no bin, and nothing reads theirs.
                let blocks: Vec<(Bin, Zone)> = runs
                    .flat_map(|(_, zones)| zones)
                    .map(|zone| (Bin { level: 0, index: 0 }, *zone))
                    .collect();
                if number >= store.tables.len() {
                    let (schema, parts) = (keys.schema.clone(), Vec::new());
                    store.tables.push(TableData { schema, keys: Vec::new(), extents: None, rows: 0, parts });
                }
                if !blocks.is_empty() {
                    let table = &mut store.tables[number];
                    table.rows += blocks.iter().map(|(_, zone)| u64::from(zone.rows)).sum::<u64>();
                    table.extents = None;
                    let file = Arc::clone(&read.file);
                    table.parts.push(RowsOfFile { path: path.to_owned(), file, blocks, bins: None });
                }
            }
        }
        store.names = dictionary.names.into_iter().collect();
        for (table, keys) in store.tables.iter_mut().zip(dictionary.tables) {
            table.keys = keys.lanes.into_iter().collect();
            if table.extents.as_ref().is_some_and(|extents| extents.len() < table.keys.len()) {
                table.extents = None;
            }
        }
        store
    }

    fn take(&mut self, history: History) {
        let History { path, file, footer, size } = history;
        let file = Arc::new(file);
        (self.identity, self.bytes) = (footer.identity, size);
        for table in footer.tables {
            let bins = Bins {
                base: table.base,
                top: table.blocks.iter().map(|(bin, _)| bin.level).max().unwrap_or(0),
                summarised: table.summarised,
                summaries: table.summaries,
            };
            let (path, file) = (path.clone(), Arc::clone(&file));
            self.tables.push(TableData {
                schema: table.schema,
                keys: Vec::new(),
                extents: Some(table.lanes.into_iter().map(|lane| lane.extent).collect()),
                rows: table.rows,
                parts: vec![RowsOfFile { path, file, blocks: table.blocks, bins: Some(bins) }],
            });
        }
    }

    /// Returns the folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the identity of the inputs.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns how complete the store is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the size on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the name with a number; `None` if there is none.
    pub fn name(&self, number: u64) -> Option<&str> {
        self.names.get(usize::try_from(number).ok()?).map(|name| &**name)
    }

    /// Returns the tables, in order of creation.
    pub fn tables(&self) -> impl Iterator<Item = Table<'_>> {
        self.tables.iter().map(|data| Table { data })
    }

    /// Returns the table with a name.
    pub fn table(&self, name: &str) -> Option<Table<'_>> {
        self.tables().find(|table| table.schema().name == name)
    }
}

/// A table of a store.
#[derive(Clone, Copy, Debug)]
pub struct Table<'s> {
    pub(crate) data: &'s TableData,
}

impl<'s> Table<'s> {
    /// Returns the name and columns.
    pub fn schema(&self) -> &'s Schema {
        &self.data.schema
    }

    /// Returns the number of records.
    pub fn rows(&self) -> u64 {
        self.data.rows
    }

    /// Returns the number of lanes, which are numbered from 0. In a finished store, lanes are sorted by key.
    pub fn lanes(&self) -> u32 {
        self.data.keys.len() as u32
    }

    /// Returns the key of a lane: a cell for each column of the schema's key.
    pub fn key(&self, lane: u32) -> Option<&'s [Option<u64>]> {
        self.data.keys.get(lane as usize).map(|key| &**key)
    }

    /// Returns the first and the last instant of all records; `None` without records.
    pub fn span(&self) -> Option<(u64, u64)> {
        let zones = || self.data.parts.iter().flat_map(|part| &part.blocks).map(|(_, zone)| zone);
        let first = zones().map(|zone| zone.begins.least).min()?;
        Some((first, zones().map(|zone| zone.lasts.most).max().unwrap_or(first)))
    }
}
