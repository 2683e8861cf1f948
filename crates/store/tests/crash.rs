//! Tests with killed writers, and with truncated and changed files: a store is complete or reports that it is not,
//! returns only records that were written, and never panics.

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use fastrand::Rng;
use hodo_store::{
    Budget, Error, Field, Kind, Lanes, Naming, Record, Schema, Shape, State, Store, Wanted, Writer,
};

const ROWS: u64 = 30_000;
const LANES: u64 = 40;
/// Number of rows that a writer flushes at once.
const RUN: usize = 1_000;

fn schema() -> Schema {
    Schema {
        name: "states".to_owned(),
        shape: Shape::Intervals,
        key: vec![Field::new("tid", Kind::Integer)],
        value: Field::new("state", Kind::Name),
        columns: vec![Field::new("number", Kind::Integer)],
        naming: Naming::default(),
    }
}

/// What is written of a record.
struct Written {
    begin: u64,
    end: u64,
    tid: u64,
    state: String,
}

/// Returns the record with a number.
fn record(number: u64) -> Written {
    let begin = (number * 7919) % (ROWS * 10);
    let state = format!("state {}", number % 5);
    Written { begin, end: begin + number % 1000, tid: number % LANES, state }
}

/// Writes the records with these numbers.
fn feed(writer: &Writer, numbers: impl Iterator<Item = u64>) -> Result<(), Error> {
    let mut feed = writer.feed(writer.table(&schema())?);
    for number in numbers {
        let Written { begin, end, tid, state } = record(number);
        let lane = feed.lane(&[Some(tid)])?;
        let state = feed.name(&state)?;
        feed.push(lane, (begin, end), Some(state), &[Some(number)])?;
    }
    feed.flush()
}

fn write(folder: &Path) -> Result<(), Error> {
    let writer = Writer::create(folder, "crash")?.with_run_rows(RUN);
    feed(&writer, 0..ROWS)?;
    writer.finish(2)
}

/// Checks that each record in a store was written, and occurs once; returns their number.
fn check(store: &Store) -> Result<u64, Error> {
    let Some(table) = store.table("states") else { return Ok(0) };
    let all = table.records(&Wanted::ALL, None, usize::MAX, &Budget::default())?;
    let mut seen = vec![false; ROWS as usize];
    for record in &all {
        check_record(store, record);
        let number = record.cells[0].expect("a record has its number") as usize;
        assert!(!std::mem::replace(&mut seen[number], true), "record {number} comes twice");
    }
    assert_eq!(all.len() as u64, table.rows());
    for time in [0, ROWS * 5, ROWS * 10] {
        table.at(time, Lanes::All, &Budget::default())?.iter().for_each(|record| check_record(store, record));
    }
    let picture = table.slices((0, ROWS * 11), Lanes::All, 50, &Budget::default())?;
    assert!(picture.len() <= LANES as usize);
    Ok(table.rows())
}

fn check_record(store: &Store, found: &Record) {
    let written = record(found.cells[0].expect("a record has its number"));
    assert_eq!((found.begin, found.end), (written.begin, written.end));
    let key = store.table("states").unwrap().key(found.lane);
    assert_eq!(key, Some(&[Some(written.tid)][..]));
    assert_eq!(store.name(found.value.unwrap()), Some(&*written.state));
}

/// Checks a damaged store: if it is complete, it has all records. Returns the number of its records; `None` if it can't
/// be read.
fn complete_or_not(folder: &Path) -> Option<u64> {
    match Store::open(folder) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
        Ok(store) => match check(&store) {
            Ok(rows) => {
                assert!(store.state() != State::Complete || rows == ROWS, "{rows} of a complete store");
                Some(rows)
            }
            Err(Error::Damaged { file, .. }) => {
                assert!(file.starts_with(folder));
                None
            }
            Err(error) => panic!("{error}"),
        },
    }
}

/// The process that another test starts and kills; without that test's variable, this tests nothing.
#[test]
fn a_writer_that_is_killed() {
    if let Some(folder) = env::var_os("HODO_STORE_CRASH") {
        write(Path::new(&folder)).unwrap();
    }
}

/// Returns the size of the files in a folder, in bytes.
fn bytes_in(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// Waits until the files in a folder have this many bytes, or the writer ends: a fixed time hits the middle of its work
/// on some machines only.
fn wait_for(folder: &Path, bytes: u64, writer: &mut Child) {
    while bytes_in(folder) < bytes && writer.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn a_store_whose_writer_was_killed_is_complete_or_built_again() {
    let mut rng = Rng::with_seed(3);
    let whole = folder(Stage::Finished);
    let (most, mut cut) = (bytes_in(whole.path()), 0);
    for _ in 0..25 {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Command::new(env::current_exe().unwrap());
        writer.args(["--exact", "a_writer_that_is_killed"]).env("HODO_STORE_CRASH", folder.path());
        let mut writer = writer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for(folder.path(), rng.u64(1..most), &mut writer);
        writer.kill().unwrap();
        writer.wait().unwrap();
        let rows = match Store::open(folder.path()) {
            Ok(store) => {
                let rows = check(&store).expect("what was flushed is whole");
                assert!(store.state() != State::Complete || rows == ROWS);
                cut += u32::from(store.state() == State::CutShort);
                rows
            }
            // The writer was killed before it made its file.
            Err(Error::None(_)) => 0,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(rows % RUN as u64, 0, "runs are whole or not there");
        // An unfinished store can be continued.
        if rows < ROWS && rows > 0 {
            let writer = Writer::append(folder.path()).unwrap().with_run_rows(RUN);
            feed(&writer, rows..ROWS).unwrap();
            writer.finish(2).unwrap();
        } else {
            write(folder.path()).unwrap();
        }
        assert_eq!(complete_or_not(folder.path()), Some(ROWS));
    }
    assert!(cut > 0, "some writer was killed in the middle");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Growing,
    Finished,
}

/// Writes a store to a new folder.
fn folder(stage: Stage) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::create(folder.path(), "crash").unwrap().with_run_rows(RUN);
    feed(&writer, 0..ROWS).unwrap();
    if stage == Stage::Finished {
        writer.finish(2).unwrap();
    }
    folder
}

#[test]
fn damaged_files_give_an_error_or_records_that_were_written() {
    let mut rng = Rng::with_seed(5);
    for (stage, name) in [(Stage::Finished, "history"), (Stage::Growing, "growing")] {
        let whole = folder(stage);
        let bytes = fs::read(whole.path().join(name)).unwrap();
        let mut kept = 0;
        for round in 0..150 {
            let damaged = tempfile::tempdir().unwrap();
            let mut bytes = bytes.clone();
            match round % 3 {
                0 => bytes.truncate(rng.usize(0..bytes.len())),
                1 => {
                    let offset = rng.usize(0..bytes.len());
                    bytes[offset] ^= 1 << rng.u32(0..8);
                }
                _ => {
                    let begin = rng.usize(0..bytes.len());
                    let end = bytes.len().min(begin + rng.usize(1..5000));
                    rng.fill(&mut bytes[begin..end]);
                }
            }
            fs::write(damaged.path().join(name), bytes).unwrap();
            kept += u32::from(complete_or_not(damaged.path()).is_some());
        }
        // Every byte of a history is needed; a log keeps the rows that were flushed before the damage.
        assert_eq!(kept > 0, stage == Stage::Growing, "{name}: {kept}");
    }
}

#[test]
fn a_log_that_its_history_holds_counts_once() {
    let log = fs::read(folder(Stage::Growing).path().join("growing")).unwrap();
    let copy = tempfile::tempdir().unwrap();
    fs::write(copy.path().join("growing"), &log).unwrap();
    Writer::append(copy.path()).unwrap().finish(1).unwrap();
    // The state after a crash between renaming the history and removing the log.
    fs::write(copy.path().join("growing"), &log).unwrap();
    assert_eq!(complete_or_not(copy.path()), Some(ROWS));
    assert_eq!(Store::open(copy.path()).unwrap().state(), State::Complete);
    // A log that does not belong to the history is an error.
    let other = folder(Stage::Finished);
    fs::write(other.path().join("growing"), &log).unwrap();
    assert!(matches!(Store::open(other.path()), Err(Error::Damaged { .. })));
}

#[test]
fn a_store_of_another_version_says_so() {
    let folder = folder(Stage::Finished);
    let path = folder.path().join("history");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] += 1;
    fs::write(&path, bytes).unwrap();
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Version { found: 3, known: 2, .. }), "{error}");
}
