//! Writes the history of an experiment to a store, and identifies the store's inputs.
//!
//! ```text
//! events ──one pass──► rows of each report with lanes, as they settle ──► Rows ──┐ a thread for each report
//! control flow ──────► calls of each thread ─────────────────────────► calls ─────┼─► Writer
//! losses, and what tracers discarded ─────────────────────────────────────────────┘
//! ```

mod calls;
mod losses;
mod tables;

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File, Metadata},
    io::{self, Read},
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::mpsc::{self, SyncSender},
    thread::{self, Scope, ScopedJoinHandle},
    time::UNIX_EPOCH,
};

use hodo_model::{
    Cause, Loss, Table, Value,
    table::{RecordBatch, cells},
};
use hodo_store::{Error, Writer};

use self::tables::{Rows, indexed, request};
use crate::{
    experiment::{Experiment, Request},
    flow::trace::Trace,
    refusal::Refusal,
    traces::cover,
};

/// Rows that each table buffers before it writes them: nine tables are written at a time.
const RUN_ROWS: usize = 1 << 17;
/// Number of bytes at the start of each file that are part of the identity.
const BEGINNING: u64 = 64 << 10;

/// The span without records: its first begin and its last end.
const NO_SPAN: (u64, u64) = (u64::MAX, 0);

/// Counts changes of what is computed from the same input, so that older stores are stale.
const CONTENTS: u32 = 3;

/// Identity of a store's inputs. A store is valid while its inputs have this identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Folder name, derived only from the inputs' paths, so that a changed input replaces its store.
    pub name: String,
    /// The files of the inputs, with their sizes, modification times and checksums of their first bytes.
    pub text: String,
}

impl Identity {
    /// Returns the identity of inputs that are read with this clock.
    ///
    /// # Errors
    /// The system's error if an input can't be read.
    pub fn of(inputs: &[PathBuf], clock_frequency: Option<u64>) -> io::Result<Identity> {
        let mut text = format!("hodo {} contents {CONTENTS}\n", env!("CARGO_PKG_VERSION"));
        text.extend(clock_frequency.map(|hertz| format!("clock {hertz}\n")));
        for (report, lanes) in indexed() {
            text.push_str(&format!("table {} {}\n", report.description().name, lanes.view));
        }
        let mut paths = String::new();
        for input in inputs {
            let path = fs::canonicalize(input)?;
            paths.push_str(&format!("{}\n", path.display()));
            describe(&path, &mut text)?;
        }
        Ok(Identity { name: format!("{:016x}", fowler_noll_vo(paths.as_bytes())), text })
    }
}

/// Returns a 64-bit hash of bytes: FNV-1a, which is the same in all versions.
fn fowler_noll_vo(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Adds a line for a file, or for each file in a folder, in order.
fn describe(path: &Path, text: &mut String) -> io::Result<()> {
    each_file(path, &mut |path, metadata, checksum| {
        let changed = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        text.push_str(&format!("{} {} {changed} {checksum:08x}\n", path.display(), metadata.len()));
        Ok(())
    })
}

/// Calls `each` with a file, or with each file in a folder, in order, and the checksum of its first 64 KiB.
///
/// # Errors
/// The system's error if a file or folder can't be read, and those of `each`.
pub(crate) fn each_file(
    path: &Path,
    each: &mut impl FnMut(&Path, &Metadata, u32) -> io::Result<()>,
) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        paths.sort();
        return paths.iter().try_for_each(|path| each_file(path, each));
    }
    let mut beginning = Vec::new();
    if metadata.is_file() {
        File::open(path)?.take(BEGINNING).read_to_end(&mut beginning)?;
    }
    each(path, &metadata, crc32fast::hash(&beginning))
}

/// Why a store can't be written.
#[derive(Debug)]
pub enum IndexError {
    /// The traces can't be read.
    Refused(Refusal),
    /// An error of the store.
    Store(Error),
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Refused(refusal) => refusal.fmt(f),
            IndexError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for IndexError {}

impl From<Error> for IndexError {
    fn from(error: Error) -> IndexError {
        IndexError::Store(error)
    }
}

impl From<Refusal> for IndexError {
    fn from(refusal: Refusal) -> IndexError {
        IndexError::Refused(refusal)
    }
}

impl Experiment {
    /// Returns the number of bytes that [`Experiment::index`] reads; bytes read in several passes count several times.
    pub fn index_work(&self) -> u64 {
        let flows = self.with(|traces| traces.flows.iter().map(|flow| flow.bytes()).sum::<u64>());
        let events = self.with(|traces| traces.event_bytes());
        flows + 2 * events
    }

    /// Writes the history of all traces to a store in a folder: the intervals, changes and links of events, the calls of
    /// control flow, and the losses. `progress` gets the number of bytes read so far, of [`Experiment::index_work`], and
    /// returns whether to continue; if not, the store stays incomplete and this returns `None`. Otherwise returns what
    /// is missing from the store.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn index(
        &self,
        folder: &Path,
        identity: &Identity,
        threads: usize,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<Option<Vec<Loss>>, IndexError> {
        let writer = Writer::create(folder, &identity.text)?.with_run_rows(RUN_ROWS);
        let mut indexing = Indexing { writer: &writer, losses: Vec::new(), span: NO_SPAN };
        let mut before = 0;
        if self.contents.flow {
            before = match indexing.calls(self, threads, progress)? {
                Some(bytes) => bytes,
                None => return Ok(None),
            };
        }
        let mut progress = |done| progress(before + done);
        if self.contents.events && !indexing.events(self, threads, &mut progress)? {
            return Ok(None);
        }
        let Indexing { losses, span, .. } = indexing;
        let discarded = self.with(losses::discarded);
        losses::add(&writer, losses.iter().chain(&discarded), span)?;
        writer.finish(threads)?;
        Ok(Some(losses))
    }
}

/// The names of recordings for people: the ends of their paths that tell them apart.
fn recording_names(flows: &[Trace<'_>]) -> Vec<String> {
    let parts: Vec<Vec<&str>> =
        flows.iter().map(|flow| flow.name.split('/').filter(|part| !part.is_empty()).collect()).collect();
    let end = |parts: &[&str], count: usize| parts[parts.len().saturating_sub(count)..].join("/");
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let names = |count: usize| parts.iter().map(|parts| end(parts, count)).collect::<Vec<String>>();
    let are_distinct = |count: &usize| names(*count).iter().collect::<BTreeSet<_>>().len() == flows.len();
    match (1..=longest).find(are_distinct) {
        Some(count) => names(count),
        // The same input several times.
        None => names(1).iter().zip(1..).map(|(name, number)| format!("{name} #{number}")).collect(),
    }
}

/// A store that is written.
struct Indexing<'w> {
    writer: &'w Writer,
    losses: Vec<Loss>,
    /// The first begin and the last end of all records.
    span: (u64, u64),
}

impl Indexing<'_> {
    /// Adds the calls of control flow. Returns the number of bytes read; `None` if `progress` stopped it.
    fn calls(
        &mut self,
        experiment: &Experiment,
        threads: usize,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<Option<u64>, Error> {
        experiment.with(|traces| {
            let mut before = 0;
            let names = recording_names(&traces.flows);
            for (flow, name) in traces.flows.iter().zip(&names) {
                let mut keep_going = true;
                let recording = Some(name.as_str()).filter(|_| names.len() > 1);
                let (losses, span) = calls::add(self.writer, flow, recording, threads, |done| {
                    keep_going = progress(before + done);
                    keep_going
                })?;
                if !keep_going {
                    return Ok(None);
                }
                self.losses.extend(losses.into_list());
                self.span = cover(self.span, span);
                before += flow.bytes();
            }
            Ok(Some(before))
        })
    }

    /// Adds the tables of events, in one pass. Returns whether `progress` let it end.
    fn events(
        &mut self,
        experiment: &Experiment,
        threads: usize,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<bool, IndexError> {
        let requests: Vec<Request> =
            indexed().into_iter().map(|(report, lanes)| request(report, lanes, threads)).collect();
        let headings = requests.iter().map(|request| experiment.heading(request));
        let headings = headings.map(|heading| heading.expect("the rows of what is indexed settle"));
        let rows = indexed()
            .into_iter()
            .zip(headings)
            .map(|((_, lanes), heading)| Rows::new(self.writer, &lanes, &heading));
        let rows = rows.collect::<Result<Vec<Rows>, Error>>()?;
        let mut keep_going = true;
        let (tables, spans) = thread::scope(|scope| {
            let (feeds, writers): (Vec<_>, Vec<_>) = rows.into_iter().map(|rows| write(scope, rows)).unzip();
            let outcome = experiment.stream_all(
                &requests,
                None,
                &mut |table, batch| feeds[table].send(batch.clone()).is_ok(),
                &mut |done| {
                    keep_going = progress(done);
                    keep_going
                },
            );
            let tables = outcome.map(|outcome| outcome.tables);
            for (feed, table) in feeds.into_iter().zip(tables.iter().flatten()) {
                // A writer that failed takes no more; its error comes with its end.
                let _ = table.batches().iter().try_for_each(|batch| feed.send(batch.clone()));
            }
            let ends =
                writers.into_iter().map(|writer| writer.join().unwrap_or_else(|why| resume_unwind(why)));
            (tables, ends.collect::<Result<Vec<_>, Error>>())
        });
        self.span = spans?.into_iter().fold(self.span, cover);
        let tables = tables?;
        if !keep_going {
            return Ok(false);
        }
        // All tables of a pass have the losses of the pass.
        self.losses.extend(tables.first().into_iter().flat_map(|table| table.loss.clone()));
        self.losses.extend(tables.iter().filter_map(left_out));
        Ok(true)
    }
}

/// A thread that writes a table; it returns the first begin and the last end of its records.
type WriterThread<'s> = ScopedJoinHandle<'s, Result<(u64, u64), Error>>;

/// Batches of a table that wait to be written.
const WAITING_BATCHES: usize = 4;

/// Starts a thread that writes the batches of a table, and returns their first begin and last end.
fn write<'s>(scope: &'s Scope<'s, '_>, mut rows: Rows) -> (SyncSender<RecordBatch>, WriterThread<'s>) {
    let (feed, batches) = mpsc::sync_channel::<RecordBatch>(WAITING_BATCHES);
    let write = move || {
        batches.iter().try_for_each(|batch| rows.add(&cells(&batch), batch.num_rows()))?;
        rows.finish()
    };
    (feed, scope.spawn(write))
}

/// Returns the loss of rows that a table left out, as it would have held too many at a time.
fn left_out(table: &Table) -> Option<Loss> {
    let Some(&Value::Integer(count)) = table.figure("left_out") else { return None };
    let detail = format!("rows of {} that were not settled: too many waited at a time", table.name());
    let loss = Loss { stream: String::new(), cause: Cause::CutShort, bytes: 0..0, time: None, count, detail };
    (count > 0).then_some(loss)
}
