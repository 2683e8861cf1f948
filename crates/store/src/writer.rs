//! Writes a store from any number of threads, with rows in any order, in bounded memory.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use rustc_hash::FxHashMap;

use crate::{
    block::{Codec, Compression, MOST_ROWS},
    dictionary::Dictionary,
    error::{Error, Refused},
    finish, history,
    log::{self, Head, Log},
    rows::{CommonFields, Rows},
    schema::{Kind, Schema},
};

/// Rows that a feed buffers before it writes them as a run: sorted by their begin.
const RUN_ROWS: usize = 1 << 19;
/// Rows of a block in a run.
const RUN_BLOCK_ROWS: usize = 1024;
const _: () = assert!(RUN_BLOCK_ROWS <= MOST_ROWS);

/// A store under construction. Flushed rows survive if the process is killed.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    shared: Arc<Shared>,
    head: Head,
}

#[derive(Debug)]
struct Shared {
    dictionary: Mutex<Dictionary>,
    log: Mutex<Log>,
    /// Unflushed rows of dropped feeds.
    dropped: AtomicU64,
    run_rows: usize,
}

/// Locks a mutex, ignoring poisoning.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handle of a table in a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(u32);

impl Writer {
    /// Begins a store in a folder and removes an existing one. `identity` identifies the inputs.
    ///
    /// # Errors
    /// If the operating system reports an error, or another process writes the store.
    pub fn create(folder: &Path, identity: &str) -> Result<Writer, Error> {
        let (path, file) = Writer::open(folder)?;
        history::remove(folder)?;
        let head = Head { identity: identity.to_owned(), generation: generation(), follows: 0 };
        Writer::begin(folder, &path, file, head, Dictionary::default())
    }

    /// Continues the store of a folder, finished or not: new rows are added to the existing ones.
    ///
    /// # Errors
    /// If the folder has no store, it is damaged, the operating system reports an error, or another process writes it.
    pub fn append(folder: &Path) -> Result<Writer, Error> {
        let (path, file) = Writer::open(folder)?;
        let history = history::open(folder)?;
        let log = log::read_head(&path, &file)?.map(|(head, _)| head);
        let before = history.as_ref().map(|history| history.footer.dictionary());
        let goes_on = match (&history, &log) {
            (None, None) => return Err(Error::None(folder.to_owned())),
            (None, Some(log)) => log.follows == 0,
            (Some(history), Some(log)) => log.follows == history.footer.generation,
            (Some(_), None) => false,
        };
        if goes_on {
            let copy = file.try_clone().map_err(Error::system(&path))?;
            let read = log::read(&path, copy, before.unwrap_or_default())?.expect("its head was read");
            let log = Log::resume(&path, file, &read)?;
            return Ok(Writer::with(folder, read.head, read.dictionary, log));
        }
        // There is no log, or only one whose rows the history holds already: a new log follows the history.
        let history = history.ok_or_else(|| Error::None(folder.to_owned()))?;
        let (identity, follows) = (history.footer.identity.clone(), history.footer.generation);
        let head = Head { identity, generation: generation(), follows };
        Writer::begin(folder, &path, file, head, before.unwrap_or_default())
    }

    /// Opens and locks the log's file.
    fn open(folder: &Path) -> Result<(PathBuf, File), Error> {
        fs::create_dir_all(folder).map_err(Error::system(folder))?;
        let path = folder.join(log::NAME);
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(Error::system(&path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(Error::Busy(folder.to_owned())),
                Err(TryLockError::Error(error)) => return Err(Error::System { file: path, error }),
            }
            // The previous owner of the lock may have finished and removed the file; then try again.
            let own = file.metadata().map_err(Error::system(&path))?;
            if fs::metadata(&path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
                return Ok((path, file));
            }
        }
    }

    fn begin(
        folder: &Path,
        path: &Path,
        file: File,
        head: Head,
        dictionary: Dictionary,
    ) -> Result<Writer, Error> {
        let log = Log::begin(path, file, &head, &dictionary)?;
        Ok(Writer::with(folder, head, dictionary, log))
    }

    fn with(folder: &Path, head: Head, dictionary: Dictionary, log: Log) -> Writer {
        let shared = Shared {
            dictionary: Mutex::new(dictionary),
            log: Mutex::new(log),
            dropped: AtomicU64::new(0),
            run_rows: RUN_ROWS,
        };
        Writer { folder: folder.to_owned(), shared: Arc::new(shared), head }
    }

    /// Sets the number of rows that a feed buffers before it writes them: more rows cost memory and save time.
    ///
    /// # Panics
    /// If feeds exist already, or `rows` is 0.
    #[must_use]
    pub fn with_run_rows(mut self, rows: usize) -> Writer {
        assert!(rows > 0, "a run has rows");
        Arc::get_mut(&mut self.shared).expect("no feed was made yet").run_rows = rows;
        self
    }

    /// Returns the table of a schema, which is added if it is new.
    ///
    /// # Errors
    /// If a table of this name has other columns, or the schema has too many.
    pub fn table(&self, schema: &Schema) -> Result<TableId, Error> {
        Ok(TableId(locked(&self.shared.dictionary).table(schema)?))
    }

    /// Creates a feed, with which one thread adds rows to a table.
    pub fn feed(&self, table: TableId) -> Feed {
        let schema = locked(&self.shared.dictionary).tables[table.0 as usize].schema.clone();
        Feed {
            shared: Arc::clone(&self.shared),
            table: table.0,
            rows: Rows::new(schema.columns.len()),
            schema,
            names: FxHashMap::default(),
            lanes: FxHashMap::default(),
            known_names: 0,
            known_lanes: 0,
        }
    }

    /// Builds the history of all flushed rows with `threads` threads, then removes the log.
    ///
    /// # Errors
    /// If the operating system reports an error, or feeds were dropped with unflushed rows. The log stays, and
    /// [`append`](Writer::append) continues it.
    pub fn finish(self, threads: usize) -> Result<(), Error> {
        match self.shared.dropped.load(Ordering::Acquire) {
            0 => {}
            rows => return Err(Error::NotFlushed(rows)),
        }
        let mut log = locked(&self.shared.log);
        log.append_dictionary(&locked(&self.shared.dictionary))?;
        log.end()?;
        finish::finish(&self.folder, &self.head, threads.max(1))
    }
}

/// Returns a number that is unique to this log.
fn generation() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    (time ^ u64::from(process::id()).rotate_right(16)).max(1)
}

/// Adds rows to a table, from one thread. Dropping a feed with unflushed rows makes [`Writer::finish`] fail.
#[derive(Debug)]
pub struct Feed {
    shared: Arc<Shared>,
    table: u32,
    schema: Schema,
    rows: Rows,
    /// A cache of numbers that this thread looked up.
    names: FxHashMap<Box<str>, u32>,
    lanes: FxHashMap<Box<[Option<u64>]>, u32>,
    /// Numbers below these are known to be valid.
    known_names: u64,
    known_lanes: u64,
}

impl Feed {
    /// Returns the number of a name of the store, which is added if it is new.
    ///
    /// # Errors
    /// If there are more than 2^32 names.
    pub fn name(&mut self, name: &str) -> Result<u64, Error> {
        if let Some(&number) = self.names.get(name) {
            return Ok(number.into());
        }
        let number = locked(&self.shared.dictionary).name(name)?;
        self.names.insert(name.into(), number);
        self.known_names = self.known_names.max(u64::from(number) + 1);
        Ok(number.into())
    }

    /// Returns the lane with a key, which is added if it is new. `key` has a cell for each column of the table's key.
    ///
    /// # Errors
    /// If the key has another number of cells, or there are more than 2^32 lanes.
    pub fn lane(&mut self, key: &[Option<u64>]) -> Result<u32, Error> {
        if let Some(&number) = self.lanes.get(key) {
            return Ok(number);
        }
        let number = locked(&self.shared.dictionary).lane(self.table, key)?;
        self.lanes.insert(key.into(), number);
        self.known_lanes = self.known_lanes.max(u64::from(number) + 1);
        Ok(number)
    }

    /// Adds a record from its first instant to the first after it, in nanoseconds. Points and counters ignore the end.
    ///
    /// # Errors
    /// If the record does not fit the table, or buffered rows can't be written.
    #[inline]
    pub fn push(
        &mut self,
        lane: u32,
        (begin, end): (u64, u64),
        value: Option<u64>,
        cells: &[Option<u64>],
    ) -> Result<(), Error> {
        let end = if self.schema.shape.has_duration() { end } else { begin };
        if end < begin {
            return Err(Refused::EndsBeforeItBegins.into());
        }
        if cells.len() != self.rows.width {
            return Err(Refused::Cells.into());
        }
        self.check(Kind::Lane, Some(lane.into()))?;
        self.check(self.schema.value.kind, value)?;
        let mut nulls = u32::from(value.is_none());
        for (index, cell) in cells.iter().enumerate() {
            self.check(self.schema.columns[index].kind, *cell)?;
            nulls |= u32::from(cell.is_none()) << (index + 1);
        }
        let row =
            CommonFields { begin, end, bits: value.unwrap_or(0), lane, nulls, ..CommonFields::default() };
        self.rows.push(row, cells.iter().map(|cell| cell.unwrap_or(0)));
        if self.rows.len() >= self.shared.run_rows { self.flush() } else { Ok(()) }
    }

    /// Checks that a cell of names or lanes holds a valid number.
    #[inline]
    fn check(&mut self, kind: Kind, cell: Option<u64>) -> Result<(), Refused> {
        let known = match kind {
            Kind::Name => &mut self.known_names,
            Kind::Lane => &mut self.known_lanes,
            Kind::Integer | Kind::Signed | Kind::Real | Kind::Boolean => return Ok(()),
        };
        let Some(number) = cell.filter(|number| *number >= *known) else { return Ok(()) };
        // Another thread may have added the name or lane.
        let dictionary = locked(&self.shared.dictionary);
        *known = match kind {
            Kind::Name => dictionary.names.len(),
            _ => dictionary.tables[self.table as usize].lanes.len(),
        } as u64;
        if number < *known { Ok(()) } else { Err(Refused::Unknown) }
    }

    /// Writes the buffered rows.
    ///
    /// # Errors
    /// If the operating system reports an error; the rows stay buffered.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.rows.sort_by_begin();
        let (mut codec, mut blocks, mut zones) = (Codec::default(), Vec::new(), Vec::new());
        for rows in self.rows.rows.chunks(RUN_BLOCK_ROWS) {
            zones.push(codec.encode(&self.rows, rows, Compression::None, &mut blocks));
        }
        let mut log = locked(&self.shared.log);
        log.append(&locked(&self.shared.dictionary), self.table, zones, &blocks)?;
        self.rows.clear();
        Ok(())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.dropped.fetch_add(self.rows.len() as u64, Ordering::AcqRel);
    }
}
