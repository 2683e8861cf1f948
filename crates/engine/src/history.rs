//! Writes tables of an experiment to a store, and identifies the store's inputs.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use hodo_model::{
    Heading, Loss, Parameters, Selection, Type,
    table::{Cell, Cells, cells},
};
use hodo_store::{Error, Feed, Field, Kind, Schema, Shape, Writer};

use crate::{Experiment, Refusal, Request, report};

/// A report whose rows are intervals, and how to convert them to records.
struct Indexed {
    report: &'static str,
    view: &'static str,
    /// The column that identifies a lane.
    lane: &'static str,
    /// The column with a lane's state.
    value: &'static str,
}

/// The reports that a store contains.
const INDEXED: &[Indexed] = &[Indexed { report: "states", view: "interval", lane: "tid", value: "state" }];
const BEGIN: &str = "begin_ns";
const DURATION: &str = "duration_ns";
/// Name of the table of losses.
const LOSSES: &str = "losses";
/// Number of bytes at the start of each file that are part of the identity.
const BEGINNING: u64 = 64 << 10;

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
        let mut text = format!("hodo {}\n", env!("CARGO_PKG_VERSION"));
        text.extend(clock_frequency.map(|hertz| format!("clock {hertz}\n")));
        INDEXED.iter().for_each(|indexed| text.push_str(&format!("table {}\n", indexed.report)));
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
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        paths.sort();
        return paths.iter().try_for_each(|path| describe(path, text));
    }
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let mut beginning = Vec::new();
    if metadata.is_file() {
        File::open(path)?.take(BEGINNING).read_to_end(&mut beginning)?;
    }
    let checksum = crc32fast::hash(&beginning);
    text.push_str(&format!("{} {} {changed} {checksum:08x}\n", path.display(), metadata.len()));
    Ok(())
}

/// Why a store can't be written.
#[derive(Debug)]
pub enum IndexError {
    /// The traces contain nothing for a store.
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

/// Returns the requests for the tables of a store; each reads [`Experiment::work`] twice.
pub fn indexed(threads: usize) -> Vec<Request> {
    let request = |indexed: &Indexed| {
        let selection = Selection { view: indexed.view.to_owned(), ..Selection::default() };
        let parameters = Parameters { selection, alone: true, ..Parameters::default() };
        let known = report(indexed.report).expect("what is indexed is a report");
        Request { threads, ..Request::of(vec![known], parameters) }
    };
    INDEXED.iter().map(request).collect()
}

impl Experiment {
    /// Writes the tables of [`indexed`] to a store in a folder. `progress` gets the number of bytes read so far and
    /// returns whether to continue; if not, the store stays incomplete and this returns `None`. Otherwise returns what
    /// is missing from the store.
    ///
    /// # Errors
    /// The traces contain nothing for a store, or it can't be written.
    pub fn index(
        &self,
        folder: &Path,
        identity: &Identity,
        threads: usize,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<Option<Vec<Loss>>, IndexError> {
        let requests = indexed(threads);
        let known: Vec<_> = INDEXED
            .iter()
            .zip(&requests)
            .filter_map(|(indexed, request)| Some((indexed, request, self.heading(request)?)))
            .collect();
        if known.is_empty() {
            let why = "a store takes software events of a kernel, and the input has none";
            return Err(Refusal(why.to_owned()).into());
        }
        let writer = Writer::create(folder, &identity.text)?;
        let (mut before, mut losses, mut span) = (0, Vec::new(), (u64::MAX, 0));
        for (indexed, request, heading) in known {
            let mut rows = Rows::new(&writer, indexed, &heading)?;
            let (mut fed, mut goes_on) = (Ok(()), true);
            let outcome = self.stream(
                request,
                &mut |batch| {
                    fed = rows.add(&cells(batch), batch.num_rows());
                    fed.is_ok()
                },
                &mut |done| {
                    goes_on = progress(before + done);
                    goes_on
                },
            )?;
            fed?;
            if !goes_on {
                return Ok(None);
            }
            for table in outcome.tables {
                table.batches().iter().try_for_each(|batch| rows.add(&cells(batch), batch.num_rows()))?;
                losses.extend(table.loss);
            }
            rows.feed.flush()?;
            span = (span.0.min(rows.span.0), span.1.max(rows.span.1));
            before += 2 * self.work(request);
        }
        add_losses(&writer, &losses, span)?;
        writer.finish(threads)?;
        Ok(Some(losses))
    }
}

/// Returns the kind of a column's cells; `None` for lists, which records don't support.
fn kind(of: Type) -> Option<Kind> {
    Some(match of {
        Type::Text | Type::Name => Kind::Name,
        Type::Integer => Kind::Integer,
        Type::Signed => Kind::Signed,
        Type::Real => Kind::Real,
        Type::Boolean => Kind::Boolean,
        Type::List(_) => return None,
    })
}

/// Converts rows of a table to records of a store.
struct Rows {
    feed: Feed,
    /// Indexes of the columns for begin, duration, lane and value.
    places: [usize; 4],
    /// Indexes of the other columns.
    others: Vec<usize>,
    /// The first begin and the last end.
    span: (u64, u64),
}

impl Rows {
    fn new(writer: &Writer, indexed: &Indexed, heading: &Heading) -> Result<Rows, Error> {
        let place = |name: &str| {
            let place = heading.columns.iter().position(|column| column.name == name);
            place.expect("a table that is indexed has the columns that its index names")
        };
        let places = [BEGIN, DURATION, indexed.lane, indexed.value].map(place);
        let field = |place: usize| {
            let column = &heading.columns[place];
            let kind = kind(column.kind)?;
            Some(Field { name: column.name.to_owned(), kind, unit: column.unit.name().to_owned() })
        };
        let is_other = |place: &usize| !places.contains(place) && field(*place).is_some();
        let others: Vec<usize> = (0..heading.columns.len()).filter(is_other).collect();
        let schema = Schema {
            name: heading.name.to_owned(),
            shape: Shape::Intervals,
            key: field(places[2]).into_iter().collect(),
            value: field(places[3]).expect("a value is no list"),
            columns: others.iter().filter_map(|&place| field(place)).collect(),
        };
        let feed = writer.feed(writer.table(&schema)?);
        Ok(Rows { feed, places, others, span: (u64::MAX, 0) })
    }

    fn add(&mut self, columns: &[Cells<'_>], rows: usize) -> Result<(), Error> {
        let [begin, duration, lane, value] = self.places;
        let mut cells = Vec::new();
        for row in 0..rows {
            let time = |place: usize| match columns[place].cell(row) {
                Cell::Integer(time) => time,
                cell => panic!("a time is {cell:?}"),
            };
            let begins = time(begin);
            let ends = begins.saturating_add(time(duration));
            self.span = (self.span.0.min(begins), self.span.1.max(ends));
            let key = number(&mut self.feed, columns[lane].cell(row))?;
            let lane = self.feed.lane(&[key])?;
            let value = number(&mut self.feed, columns[value].cell(row))?;
            cells.clear();
            for &other in &self.others {
                cells.push(number(&mut self.feed, columns[other].cell(row))?);
            }
            self.feed.push(lane, (begins, ends), value, &cells)?;
        }
        Ok(())
    }
}

/// Converts a cell to its form in the store.
fn number(feed: &mut Feed, cell: Cell<'_>) -> Result<Option<u64>, Error> {
    Ok(match cell {
        Cell::Null | Cell::List(_) => None,
        Cell::Text(text) => Some(feed.name(text)?),
        Cell::Integer(integer) => Some(integer),
        Cell::Signed(integer) => Some(integer as u64),
        Cell::Real(real) => Some(real.to_bits()),
        Cell::Boolean(truth) => Some(truth.into()),
    })
}

/// Adds losses as intervals. A loss without a time gets the span of all records, and `has_place` is false.
fn add_losses(writer: &Writer, losses: &[Loss], span: (u64, u64)) -> Result<(), Error> {
    let count = Field { unit: "count".to_owned(), ..Field::new("count", Kind::Integer) };
    let schema = Schema {
        name: LOSSES.to_owned(),
        shape: Shape::Intervals,
        key: vec![Field::new("stream", Kind::Name)],
        value: Field::new("cause", Kind::Name),
        columns: vec![count, Field::new("detail", Kind::Name), Field::new("has_place", Kind::Boolean)],
    };
    let mut feed = writer.feed(writer.table(&schema)?);
    let span = (span.0.min(span.1), span.1);
    for loss in losses {
        let stream = feed.name(&loss.stream)?;
        let lane = feed.lane(&[Some(stream)])?;
        let (cause, detail) = (feed.name(loss.cause.name())?, feed.name(&loss.detail)?);
        let place = loss.time.map(|(begin, end)| (begin.0, end.0.max(begin.0)));
        let cells = [Some(loss.count), Some(detail), Some(place.is_some().into())];
        feed.push(lane, place.unwrap_or(span), Some(cause), &cells)?;
    }
    feed.flush()
}
