//! `hodo index`: a store of a trace, and its description by `hodo info`.

use std::{collections::BTreeSet, fs, path::Path};

use hodo_store::{Budget, Kind, Lanes, State, Store, Wanted};
use serde_json::{Value, json};

use crate::run::{Folder, command, fixture, hodo, reports, wait, word};

/// Copies a trace of the fixtures, to be changed.
fn trace(folder: &Folder) -> String {
    let copy = folder.file("trace");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(fixture("ctf/lttng2.13-kernel")).unwrap() {
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

/// Inputs of the fixtures that together have rows of every table.
const INPUTS: &[&[&str]] = &[&["lttng2.13-kernel"], &["board/master", "board/slave-0", "board/slave-1"]];

#[test]
fn a_store_has_the_rows_that_the_reports_have() {
    let mut reports = reports();
    reports.retain(|report| !report["lanes"].is_null());
    let names: BTreeSet<&str> = reports.iter().map(|report| report["name"].as_str().unwrap()).collect();
    let mut without_rows = names.clone();
    for input in INPUTS {
        let input: Vec<String> = input.iter().map(|name| fixture(&format!("ctf/{name}"))).collect();
        let input: Vec<&str> = input.iter().map(String::as_str).collect();
        let run = |arguments: &[&str]| hodo(&[arguments, &input].concat()).fine();
        let table = |report: &Value| {
            let [name, view] = [&report["name"], &report["lanes"]["view"]].map(|name| name.as_str().unwrap());
            run(&["report", name, "-q", "--by", view, "--format", "json"]).json()
        };
        let tables: Vec<Value> = reports.iter().map(table).collect();
        for jobs in ["1", "3"] {
            let folder = Folder::new();
            let store = &folder.file("store");
            assert!(run(&["index", "-j", jobs, "--store", store]).stdout.contains(" records, "));
            let history = Store::open(Path::new(store)).unwrap();
            assert_eq!(history.state(), State::Complete);
            for (report, table) in reports.iter().zip(&tables) {
                let name = report["name"].as_str().unwrap();
                if check(&history, name, &report["lanes"], table) > 0 {
                    without_rows.remove(name);
                }
            }
            let info = run(&["info", "--format", "json", "--store", store]).json();
            let stored = info["store"]["tables"].as_array().unwrap().iter();
            let stored: BTreeSet<&str> = stored.map(|table| table["name"].as_str().unwrap()).collect();
            assert!(stored.is_superset(&names), "{stored:?}");
            let text = run(&["info", "--store", store]).stdout;
            assert!(text.contains(store) && text.contains("states of threads"), "{text}");
        }
    }
    assert_eq!(without_rows, BTreeSet::new(), "add an input that has rows of them");
}

#[test]
fn each_call_of_a_board_is_an_interval() {
    let [first, second] = &["ctf/board/slave-0", "ctf/board/slave-1"].map(fixture);
    let summary = |view: &str| {
        let report = hodo(&["report", "callstack", "--by", view, "--format", "json", first, second]);
        report.fine().json()["summary"].clone()
    };
    assert_eq!(summary("path")["calls"], summary("interval")["intervals"]);
}

/// A record, with text for names and numbers.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TextRecord {
    begin: u64,
    duration: u64,
    lane: Vec<String>,
    /// The value, or the key of the other lane.
    value: Vec<String>,
}

/// Compares a table of a store with the rows of its report. Returns how many there are.
#[track_caller]
fn check(store: &Store, name: &str, lanes: &Value, report: &Value) -> usize {
    let table = store.table(name).unwrap();
    let columns = report["columns"].as_array().unwrap();
    let index = |name: &str| columns.iter().position(|column| column["name"] == name);
    let words = |row: &Value, names: &str| -> Vec<String> {
        let names = lanes[names].as_array().unwrap().iter();
        names.map(|name| word(&row[index(name.as_str().unwrap()).unwrap()])).collect()
    };
    let time = |row: &Value, name: &str| row[index(name)?].as_u64();
    let rows = report["rows"].as_array().unwrap().iter();
    let mut expected: Vec<TextRecord> = rows
        .map(|row| {
            let begin = time(row, "begin_ns").or(time(row, "at_ns")).unwrap();
            let duration = time(row, "duration_ns").unwrap_or(0);
            TextRecord { begin, duration, lane: words(row, "lane"), value: words(row, "value") }
        })
        .collect();
    let schema = table.schema();
    assert_eq!(json!(schema.naming.path), lanes["path"]);
    let all = table.records(&Wanted::ALL, None, usize::MAX, &Budget::default()).unwrap();
    let of_lane = |lane: u32| -> Vec<String> {
        let cells = schema.key.iter().zip(table.key(lane).unwrap());
        cells.map(|(field, cell)| store.words(field.kind, *cell)).collect()
    };
    let mut stored: Vec<TextRecord> = all
        .iter()
        .map(|record| {
            let value = match record.value {
                Some(lane) if schema.value.kind == Kind::Lane => of_lane(lane as u32),
                value => vec![store.words(schema.value.kind, value)],
            };
            let duration = record.end - record.begin;
            TextRecord { begin: record.begin, duration, lane: of_lane(record.lane), value }
        })
        .collect();
    expected.sort();
    stored.sort();
    assert_eq!(stored, expected, "{name}");
    // A picture counts each record once.
    let (first, last) = table.span().unwrap_or_default();
    let picture = table.slices((first, last + 1), Lanes::All, 2, &Budget::default()).unwrap();
    let records: usize = picture
        .iter()
        .map(|lane| match &lane.slices {
            hodo_store::Slices::Records(records) => records.len(),
            hodo_store::Slices::Cells(cells) => cells.iter().map(|cell| cell.rows as usize).sum(),
        })
        .sum();
    assert_eq!(records, all.len(), "{name}");
    records
}

#[test]
fn a_store_has_what_the_tracer_discarded() {
    let folder = Folder::new();
    let store = folder.file("store");
    let trace = &fixture("ctf/barectf3.1");
    hodo(&["index", "--store", &store, trace]).fine();
    let info = hodo(&["info", "--format", "json", trace]).fine().json();
    let stream = &info["traces"][0]["streams"][0];
    let store = Store::open(Path::new(&store)).unwrap();
    let losses = store.table("losses").unwrap();
    let index = losses.schema().columns.iter().position(|field| field.name == "count").unwrap();
    let records = losses.records(&Wanted::ALL, None, usize::MAX, &Budget::default()).unwrap();
    let count: u64 = records.iter().map(|record| record.cells[index].unwrap()).sum();
    assert_eq!(Value::from(count), stream["events_lost"]);
    // Each lies between the ends of two packets.
    let (begin, end) = (stream["begin_ns"].as_u64().unwrap(), stream["end_ns"].as_u64().unwrap());
    assert!(
        records.iter().all(|record| begin <= record.begin && record.begin < record.end && record.end <= end)
    );
}

#[test]
fn a_store_of_a_trace_that_changed_is_stale_and_built_again() {
    let folder = Folder::new();
    let (trace, store) = (trace(&folder), folder.file("store"));
    assert_eq!(state(&trace, &store)["state"], "none");
    hodo(&["index", "-q", "--store", &store, &trace]).fine();
    assert_eq!(state(&trace, &store)["state"], "complete");
    fs::write(Path::new(&trace).join("index.notes"), "another file").unwrap();
    assert_eq!(state(&trace, &store)["state"], "stale");
    hodo(&["index", "-q", "--store", &store, &trace]).fine();
    assert_eq!(state(&trace, &store)["state"], "complete");
}

#[test]
fn a_damaged_store_is_reported_and_built_again() {
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

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimedCall {
    begin: u64,
    end: u64,
    tid: u64,
    depth: u64,
    function: String,
    instructions: u64,
}

#[test]
fn a_store_of_control_flow_has_its_calls() {
    let folder = Folder::new();
    let store = folder.file("store");
    let [recording, code] = ["perf/tiny.data", "perf/symfs"].map(fixture);
    hodo(&["index", "-q", "--symfs", &code, "--store", &store, &recording]).fine();
    let calls = hodo(&["script", "--calls", "--format", "jsonl", "--symfs", &code, &recording]).fine().stdout;
    let calls: Vec<Value> = calls.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let number = |call: &Value, name: &str| call[name].as_u64().unwrap();
    // The recording has one thread. No timestamp follows its last calls: they last until its last known time.
    let known = calls.iter().flat_map(|call| [call["time_ns"].as_u64(), call["end_ns"].as_u64()]).flatten();
    let last = known.max().unwrap();
    assert!(calls.iter().any(|call| call["end_ns"].is_null()));
    let mut expected: Vec<_> = calls
        .iter()
        .map(|call| {
            let [begin, end] = ["time_ns", "end_ns"].map(|name| call[name].as_u64().unwrap_or(last));
            let [tid, depth, instructions] = ["tid", "depth", "instructions"].map(|name| number(call, name));
            let function = call["function"].as_str().unwrap().to_owned();
            TimedCall { begin, end, tid, depth, function, instructions }
        })
        .collect();
    let store = Store::open(Path::new(&store)).unwrap();
    let table = store.table("calls").unwrap();
    let all = table.records(&Wanted::ALL, None, usize::MAX, &Budget::default()).unwrap();
    let mut stored: Vec<_> = all
        .iter()
        .map(|record| {
            let key = table.key(record.lane).unwrap();
            let function = store.name(record.value.unwrap()).unwrap().to_owned();
            let (tid, depth) = (key[1].unwrap(), key[3].unwrap());
            let (begin, end, instructions) = (record.begin, record.end, record.cells[0].unwrap());
            TimedCall { begin, end, tid, depth, function, instructions }
        })
        .collect();
    expected.sort();
    stored.sort();
    assert!(stored.len() > 1000, "{}", stored.len());
    assert_eq!(stored, expected);
    // Nothing is lost.
    assert!(store.table("losses").is_none_or(|losses| losses.lanes() == 0));
    let path = store.path(table, 0);
    assert_eq!((path[0].as_str(), path[3].as_str()), ("Threads", "call stack"));
}

#[test]
fn a_part_of_an_input_has_no_store() {
    let folder = Folder::new();
    let store = folder.file("store");
    let ran = hodo(&["index", "--time", "1,2", "--store", &store, "x"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(!Path::new(&store).exists());
}
