//! The tables of a session: which columns a statement reads of each, and the rows once they are needed.

use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use hodo_model::Column;

use crate::{
    Source,
    index::{Layout, Rows},
};

/// A table, shared by all its uses in the statements of a session.
pub(crate) struct Shared {
    source: Arc<dyn Source>,
    layout: OnceLock<Result<Layout, String>>,
    /// By column, up to the most that SQLite supports: whether the statement reads it.
    read: Vec<AtomicBool>,
    /// Whether the statement used the rows.
    is_used: AtomicBool,
    /// Whether the statement will run, so that its planner may make the rows and see how many there are.
    runs: AtomicBool,
    made: Mutex<Made>,
}

/// What was made of a source so far.
#[derive(Default)]
struct Made {
    rows: Option<Arc<Rows>>,
    /// By column: whether the rows have its cells.
    has: Vec<bool>,
    /// Why the rows could not be made.
    failure: Option<String>,
}

/// The most columns of a table in SQLite.
const MOST_COLUMNS: usize = 2000;

impl Shared {
    pub(crate) fn new(source: Arc<dyn Source>) -> Shared {
        let read = (0..MOST_COLUMNS).map(|_| AtomicBool::new(false)).collect();
        let (is_used, runs) = (AtomicBool::new(false), AtomicBool::new(false));
        Shared { source, layout: OnceLock::new(), read, is_used, runs, made: Mutex::default() }
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Forgets what the statement before this one read. The rows stay.
    pub(crate) fn begin_statement(&self) {
        self.read.iter().for_each(|read| read.store(false, Relaxed));
        self.is_used.store(false, Relaxed);
        self.made().failure = None;
    }

    /// Says whether statements that are prepared from now on will run.
    pub(crate) fn set_runs(&self, runs: bool) {
        self.runs.store(runs, Relaxed);
    }

    /// Whether the statement will run.
    pub(crate) fn runs(&self) -> bool {
        self.runs.load(Relaxed)
    }

    /// The number of rows, if they are made.
    pub(crate) fn row_count(&self) -> Option<usize> {
        self.made().rows.as_ref().map(|rows| rows.table.row_count())
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.source.name().eq_ignore_ascii_case(name)
    }

    /// The columns, once the statement named the table.
    pub(crate) fn columns(&self) -> &[Column] {
        self.layout().map_or(&[], |layout| &layout.columns)
    }

    /// The columns as SQL has them; asks the source for them the first time.
    pub(crate) fn make_layout(&self) -> &Result<Layout, String> {
        self.layout.get_or_init(|| {
            let layout = Layout::new(self.source.columns()?);
            match layout.columns.len() {
                0..=MOST_COLUMNS => Ok(layout),
                many => {
                    let name = self.source.name();
                    Err(format!("the table `{name}` has {many} columns, and SQL supports {MOST_COLUMNS}"))
                }
            }
        })
    }

    /// The columns as SQL has them, once the statement named the table.
    pub(crate) fn layout(&self) -> Option<&Layout> {
        self.layout.get()?.as_ref().ok()
    }

    /// Notes that the statement reads a column.
    pub(crate) fn note_read(&self, name: &str) {
        let index = self.columns().iter().position(|column| column.name.eq_ignore_ascii_case(name));
        let computed = self.layout().filter(|layout| index.is_some_and(|index| layout.is_computed(index)));
        let needed = computed.map_or([index, None], |layout| [layout.begin, layout.duration]);
        for read in needed.into_iter().flatten().filter_map(|index| self.read.get(index)) {
            read.store(true, Relaxed);
        }
    }

    /// The number of the source's own columns: all but the computed one.
    fn own_columns(&self) -> usize {
        let has_computed = self.layout().is_some_and(|layout| layout.duration.is_some());
        self.columns().len() - usize::from(has_computed)
    }

    /// The columns that the statement reads, but the computed one.
    pub(crate) fn read_columns(&self) -> Vec<usize> {
        let is_read = |column: &usize| self.read[*column].load(Relaxed);
        (0..self.own_columns()).filter(is_read).collect()
    }

    /// Why the table can't be computed.
    pub(crate) fn failure(&self) -> Option<String> {
        let layout = self.layout.get().and_then(|layout| layout.as_ref().err());
        layout.cloned().or_else(|| self.made().failure.clone())
    }

    pub(crate) fn name(&self) -> &str {
        self.source.name()
    }

    /// The rows, if the statement used them.
    pub(crate) fn used(&self) -> Option<Arc<Rows>> {
        if self.is_used.load(Relaxed) { self.made().rows.clone() } else { None }
    }

    /// The columns that rows must have: those that the statement reads, and those that the rows have already. `None` if
    /// the rows do.
    fn wanted(&self, made: &Made) -> Option<Vec<bool>> {
        let has = |column: usize| made.has.get(column).copied().unwrap_or(false);
        let read: Vec<bool> =
            self.read.iter().take(self.own_columns()).map(|read| read.load(Relaxed)).collect();
        let lacks = read.iter().enumerate().any(|(column, read)| *read && !has(column));
        let wanted = || read.iter().enumerate().map(|(column, read)| *read || has(column)).collect();
        (lacks || made.rows.is_none()).then(wanted)
    }

    /// Passes the columns that the statement reads to the source.
    fn expect(&self) {
        let is_read = self.read.iter().any(|read| read.load(Relaxed));
        let wanted = if is_read { self.wanted(&self.made()) } else { None };
        self.source.expect(wanted.as_deref());
    }

    /// The rows; makes them, unless an earlier statement did and read the same columns.
    fn rows(&self) -> rusqlite::Result<Arc<Rows>> {
        self.is_used.store(true, Relaxed);
        let mut made = self.made();
        let wanted = match (self.wanted(&made), &made.rows) {
            (None, Some(rows)) => return Ok(Arc::clone(rows)),
            (wanted, _) => wanted.unwrap_or_default(),
        };
        match self.source.table(&wanted).and_then(Rows::new) {
            Ok(rows) => {
                let rows = made.rows.insert(Arc::new(rows));
                let rows = Arc::clone(rows);
                made.has = if self.source.has_all_columns() { vec![true; wanted.len()] } else { wanted };
                Ok(rows)
            }
            Err(error) => {
                made.failure = Some(error.clone());
                Err(rusqlite::Error::ModuleError(error))
            }
        }
    }
}

/// All tables of a session.
pub(crate) struct Tables {
    all: Vec<Arc<Shared>>,
    /// Whether the sources know what the statement reads.
    are_told: AtomicBool,
}

impl Tables {
    pub(crate) fn new(sources: impl IntoIterator<Item = Arc<dyn Source>>) -> Tables {
        let all = sources.into_iter().map(|source| Arc::new(Shared::new(source))).collect();
        Tables { all, are_told: AtomicBool::new(false) }
    }

    pub(crate) fn begin_statement(&self) {
        self.are_told.store(false, Relaxed);
        self.all.iter().for_each(|table| table.begin_statement());
    }

    /// The rows of a table. All columns that the statement reads are known when the first rows are needed.
    pub(crate) fn rows(&self, table: &Shared) -> rusqlite::Result<Arc<Rows>> {
        if !self.are_told.swap(true, Relaxed) {
            self.all.iter().for_each(|table| table.expect());
        }
        table.rows()
    }
}

impl Deref for Tables {
    type Target = [Arc<Shared>];

    fn deref(&self) -> &[Arc<Shared>] {
        &self.all
    }
}
