//! Any records in a store, which answers as a list of them does; then any damage to its files, and any bytes as the
//! heads of them, under checksums that hold.

#![no_main]

use std::{cell::RefCell, fs, path::Path};

use hodo_store::{Budget, Field, Kind, Lanes, Naming, Record, Schema, Shape, Store, Wanted, Writer};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

#[derive(Debug, Arbitrary)]
enum Input {
    /// Records, when to flush, and the damage: where in the file, in 1/65,536 of its length, and what is changed there.
    Records { shape: u8, records: Vec<FuzzedRecord>, flush: u8, finish: bool, damage: Vec<(u16, u8)> },
    /// The heads of the frames of a log, and the blocks behind the last.
    Log { heads: Vec<Vec<u8>>, blocks: Vec<u8> },
    /// Blocks of a history, and its footer.
    History { blocks: Vec<u8>, footer: Vec<u8> },
}

#[derive(Debug, Arbitrary)]
struct FuzzedRecord {
    lane: u8,
    begin: u64,
    duration: u32,
    value: Option<u8>,
}

/// Little enough that a target stays quick.
const BUDGET: Budget = Budget { rows: 1 << 16, stop: None };

fuzz_target!(|input: Input| {
    thread_local!(static FOLDER: RefCell<Option<Folder>> = const { RefCell::new(None) });
    FOLDER.with_borrow_mut(|folder| {
        let folder = &folder.get_or_insert_with(Folder::new).0;
        for name in ["growing", "history"] {
            let _ = fs::remove_file(folder.join(name));
        }
        match input {
            Input::Records { shape, records, flush, finish, damage } => {
                write(folder, shape, &records, flush, finish);
                damaged(folder, if finish { "history" } else { "growing" }, &damage);
            }
            Input::Log { heads, blocks } => fs::write(folder.join("growing"), log(&heads, &blocks)).unwrap(),
            Input::History { blocks, footer } => {
                fs::write(folder.join("history"), history(&blocks, &footer)).unwrap();
            }
        }
        match Store::open(folder) {
            Ok(store) => ask(&store),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
});

/// A folder of this process.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("hodo-fuzz-store-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

fn write(folder: &Path, shape: u8, records: &[FuzzedRecord], flush: u8, finish: bool) {
    let shape = [Shape::Intervals, Shape::Points, Shape::Counters][usize::from(shape % 3)];
    let schema = Schema {
        name: "fuzz".to_owned(),
        shape,
        key: vec![Field::new("lane", Kind::Integer)],
        value: Field::new("value", Kind::Integer),
        columns: Vec::new(),
        naming: Naming::default(),
    };
    let writer = Writer::create(folder, "fuzz").unwrap().with_run_rows(usize::from(flush) + 1);
    let mut feed = writer.feed(writer.table(&schema).unwrap());
    let mut plain = Vec::new();
    for &FuzzedRecord { lane, begin, duration, value } in records {
        let lane = feed.lane(&[Some(lane.into())]).unwrap();
        let end = if shape == Shape::Intervals { begin.saturating_add(duration.into()) } else { begin };
        feed.push(lane, (begin, end), value.map(u64::from), &[]).unwrap();
        plain.push((begin, end, value.map(u64::from)));
    }
    feed.flush().unwrap();
    drop(feed);
    if finish {
        writer.finish(2).unwrap();
    } else {
        drop(writer);
    }
    let store = Store::open(folder).unwrap();
    let table = store.table("fuzz");
    let records = table.map_or_else(Vec::new, |table| table.records(&Wanted::ALL, None, usize::MAX, &Budget::default()).unwrap());
    let mut found: Vec<_> =
        records.iter().map(|Record { begin, end, value, .. }| (*begin, *end, *value)).collect();
    // The end of a span is exclusive, so no span contains the last instant of all.
    plain.retain(|(begin, ..)| *begin < u64::MAX);
    found.sort();
    plain.sort();
    assert_eq!(found, plain);
}

/// Changes bytes of a file, at parts of 65,536 of it.
fn damaged(folder: &Path, name: &str, damage: &[(u16, u8)]) {
    let path = folder.join(name);
    let mut bytes = fs::read(&path).unwrap();
    for &(part, change) in damage {
        let offset = (bytes.len() * usize::from(part)) >> 16;
        bytes[offset] ^= change;
    }
    fs::write(&path, bytes).unwrap();
}

fn log(heads: &[Vec<u8>], blocks: &[u8]) -> Vec<u8> {
    let mut bytes = b"hodogrow\x01\x00".to_vec();
    for (number, head) in heads.iter().enumerate() {
        let own = if number + 1 == heads.len() { blocks } else { &[] };
        let begin = bytes.len();
        bytes.extend(b"hodF");
        bytes.extend((head.len() as u64).to_le_bytes());
        bytes.extend((own.len() as u64).to_le_bytes());
        bytes.extend(crc32fast::hash(head).to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes[begin..]).to_le_bytes());
        bytes.extend(head);
        bytes.extend(own);
    }
    bytes
}

fn history(blocks: &[u8], footer: &[u8]) -> Vec<u8> {
    let mut bytes = [b"hodohist\x01\x00", blocks].concat();
    let mut trailer = (bytes.len() as u64).to_le_bytes().to_vec();
    bytes.extend(footer);
    trailer.extend((footer.len() as u64).to_le_bytes());
    trailer.extend(crc32fast::hash(footer).to_le_bytes());
    trailer.extend(crc32fast::hash(&trailer).to_le_bytes());
    bytes.extend(trailer);
    bytes.extend(b"tsihodoh");
    bytes
}

/// Answers or errors, and no panic.
fn ask(store: &Store) {
    for table in store.tables() {
        let (first, last) = table.span().unwrap_or((0, 1));
        let _ = table.at(first, Lanes::All, &BUDGET);
        let _ = table.slices((first, last.saturating_add(1).max(1)), Lanes::All, 10, &BUDGET);
        let _ = table.slices((first, first.saturating_add(1).max(1)), Lanes::Some(&[0]), 1, &BUDGET);
        let _ = table.records(&Wanted::ALL, None, 10, &BUDGET);
        let _ = table.longest(&Wanted::ALL, 10, &BUDGET);
        let _ = table.next_change(0, first, &BUDGET);
        let _ = table.previous_change(0, last, &BUDGET);
    }
}
