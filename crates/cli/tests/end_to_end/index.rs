//! `hodo index`: a store of a trace, and its description by `hodo info`.

use std::{fs, path::Path};

use hodo_store::{Budget, Lanes, State, Store, Wanted};
use serde_json::Value;

use crate::run::{Folder, command, hodo, wait};

/// Copies a trace of the fixtures, to be changed.
fn trace(folder: &Folder) -> String {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ctf/lttng2.13-kernel");
    let copy = folder.file("trace");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), Path::new(&copy).join(entry.file_name())).unwrap();
        }
    }
    copy
}

#[track_caller]
fn state(trace: &str, store: &str) -> Value {
    hodo(&["info", "--format", "json", "--store", store, trace]).fine().json()["store"].clone()
}

#[test]
fn a_store_has_the_intervals_that_the_report_has() {
    let folder = Folder::new();
    let (trace, store) = (trace(&folder), folder.file("store"));
    assert_eq!(state(&trace, &store)["state"], "none");
    for jobs in ["1", "3"] {
        let said = hodo(&["index", "-j", jobs, "--store", &store, &trace]).fine();
        assert!(said.stdout.contains(" records, "), "{said:?}");
        let report =
            hodo(&["report", "states", "--by", "interval", "--format", "json", &trace]).fine().json();
        check(&store, &report);
    }
    let found = state(&trace, &store);
    assert_eq!(found["state"], "complete");
    let names: Vec<&Value> = found["tables"].as_array().unwrap().iter().map(|table| &table["name"]).collect();
    assert_eq!(names, ["states", "losses"]);
    let text = hodo(&["info", "--store", &store, &trace]).fine().stdout;
    assert!(text.contains(&store) && text.contains("states"), "{text}");
}

/// Compares a store with the rows of the report.
#[track_caller]
fn check(store: &str, report: &Value) {
    let store = Store::open(Path::new(store)).unwrap();
    assert_eq!(store.state(), State::Complete);
    let table = store.table("states").unwrap();
    let place = |name: &str| {
        let columns = report["columns"].as_array().unwrap();
        columns.iter().position(|column| column["name"] == name).unwrap()
    };
    let number = |row: &Value, name: &str| row[place(name)].as_u64().unwrap();
    let rows = report["rows"].as_array().unwrap();
    let mut expected: Vec<(u64, u64, u64, String)> = rows
        .iter()
        .map(|row| {
            let state = row[place("state")].as_str().unwrap().to_owned();
            (number(row, "begin_ns"), number(row, "duration_ns"), number(row, "tid"), state)
        })
        .collect();
    let all = table.records(&Wanted::ALL, None, usize::MAX, &Budget::default()).unwrap();
    let of = |lane| table.key(lane).unwrap()[0].unwrap();
    let mut found: Vec<(u64, u64, u64, String)> = all
        .iter()
        .map(|record| {
            let state = store.name(record.value.unwrap()).unwrap().to_owned();
            (record.begin, record.end - record.begin, of(record.lane), state)
        })
        .collect();
    expected.sort();
    found.sort();
    assert!(found.len() > 100);
    assert_eq!(found, expected);
    // A picture counts each record once.
    let (first, last) = table.span().unwrap();
    let picture = table.slices((first, last + 1), Lanes::All, 2, &Budget::default()).unwrap();
    let records: usize = picture
        .iter()
        .map(|lane| match &lane.slices {
            hodo_store::Slices::Records(records) => records.len(),
            hodo_store::Slices::Cells(cells) => cells.iter().map(|cell| cell.rows as usize).sum(),
        })
        .sum();
    assert_eq!(records, all.len());
}

#[test]
fn a_store_of_a_trace_that_changed_is_stale_and_built_again() {
    let folder = Folder::new();
    let (trace, store) = (trace(&folder), folder.file("store"));
    hodo(&["index", "-q", "--store", &store, &trace]).fine();
    assert_eq!(state(&trace, &store)["state"], "complete");
    fs::write(Path::new(&trace).join("index.notes"), "another file").unwrap();
    assert_eq!(state(&trace, &store)["state"], "stale");
    hodo(&["index", "-q", "--store", &store, &trace]).fine();
    assert_eq!(state(&trace, &store)["state"], "complete");
}

#[test]
fn a_damaged_store_is_said_to_be_and_built_again() {
    let folder = Folder::new();
    let (trace, store) = (trace(&folder), folder.file("store"));
    hodo(&["index", "-q", "--store", &store, &trace]).fine();
    let history = Path::new(&store).join("history");
    let bytes = fs::read(&history).unwrap();
    fs::write(&history, &bytes[..bytes.len() / 2]).unwrap();
    let found = state(&trace, &store);
    assert_eq!(found["state"], "damaged");
    assert!(found["problem"].as_str().unwrap().contains("build the store again"), "{found}");
    hodo(&["index", "-q", "--store", &store, &trace]).fine();
    assert_eq!(state(&trace, &store)["state"], "complete");
}

#[test]
fn a_store_lies_in_the_cache_of_the_user() {
    let folder = Folder::new();
    let (trace, cache) = (trace(&folder), folder.file("cache"));
    let with_cache = |arguments: &[&str]| {
        let child = command(arguments).env("XDG_CACHE_HOME", &cache).spawn().unwrap();
        wait(child).expect("it ends").fine()
    };
    let said = with_cache(&["index", &trace]);
    assert!(said.stdout.starts_with(&format!("{cache}/hodo/stores/")), "{said:?}");
    let found = with_cache(&["info", "--format", "json", &trace]).json();
    assert_eq!(found["store"]["state"], "complete");
}

#[test]
fn what_has_no_states_has_no_store() {
    let folder = Folder::new();
    let store = folder.file("store");
    let barectf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf/tiny.data");
    let ran = hodo(&["index", "--store", &store, &barectf.to_string_lossy()]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("software events"), "{ran:?}");
    assert!(!Path::new(&store).exists());
    let ran = hodo(&["index", "--time", "1,2", "--store", &store, "x"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}
