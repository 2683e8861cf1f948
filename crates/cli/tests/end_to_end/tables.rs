//! Tables as Arrow and Parquet files, read by other programs; and as Markdown.

use std::{collections::BTreeSet, process::Command};

use serde_json::{Map, Value};

use crate::{
    exports::{output, target},
    program, raw,
    run::{Folder, fixture, hodo},
};

/// Returns what pyarrow, polars and DuckDB read from the files of a table.
fn read(arrow: &str, parquet: &str) -> Map<String, Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/read.py");
    let mut python = Command::new(target().join("python/bin/python"));
    serde_json::from_str(&output(python.args([script, arrow, parquet]))).expect("JSON")
}

/// Returns the table of a report in JSON, and what other programs read from its files.
fn table(report: &[&str], folder: &Folder) -> (Value, Map<String, Value>) {
    let of_format = |format: &str, file: &str| {
        let file = folder.file(file);
        let arguments = [&["report"], report, &["--format", format, "-o", &file]].concat();
        assert!(hodo(&arguments).fine().stdout.is_empty());
        file
    };
    let arguments = [&["report"], report, &["--format", "json"]].concat();
    let json = hodo(&arguments).fine().json();
    (json, read(&of_format("arrow", "table.arrow"), &of_format("parquet", "table.parquet")))
}

/// Asserts that all readers get the names and rows of the JSON, and that pyarrow gets the units and these types.
#[track_caller]
fn check(report: &[&str], types: &[(&str, &str)]) {
    let folder = Folder::new();
    let (json, found) = table(report, &folder);
    let columns = json["columns"].as_array().unwrap();
    let of_columns = |member: &str| columns.iter().map(|column| column[member].clone()).collect::<Value>();
    assert!(!json["rows"].as_array().unwrap().is_empty(), "{report:?} has no rows to compare");
    assert_eq!(found.len(), 6);
    for (reader, table) in &found {
        assert_eq!(table["names"], of_columns("name"), "{report:?}: {reader}");
        assert_eq!(table["rows"], json["rows"], "{report:?}: {reader}");
    }
    for reader in ["pyarrow of arrow", "pyarrow of parquet"] {
        let found = &found[reader];
        assert_eq!(found["units"], of_columns("unit"), "{report:?}: {reader}");
        assert_eq!(found["metadata"]["hodo.table"], json["table"], "{report:?}: {reader}");
        for (member, key) in [("summary", "hodo.summary"), ("loss", "hodo.loss")] {
            let parsed: Value = serde_json::from_str(found["metadata"][key].as_str().unwrap()).unwrap();
            assert_eq!(parsed, json[member], "{report:?}: {reader}");
        }
        for (name, kind) in types {
            let index = columns.iter().position(|column| column["name"] == *name);
            let index = index.unwrap_or_else(|| panic!("{report:?} has no column {name}"));
            let kind = match *kind {
                STREAMED_NAME if reader == "pyarrow of arrow" => "string",
                STREAMED_NAME => NAME,
                kind => kind,
            };
            assert_eq!(found["types"][index], *kind, "{report:?}: {reader}: {name}");
        }
    }
}

/// pyarrow's name for the type of names.
const NAME: &str = "dictionary<values=string, indices=int32, ordered=0>";

/// Names of a table whose rows leave as they settle: an Arrow file can't replace a dictionary, so they are text there.
const STREAMED_NAME: &str = "a name that is streamed";

#[test]
fn others_read_arrow_and_parquet_with_equal_values_and_types() {
    let kernel = &fixture("ctf/lttng2.13-kernel");
    check(
        &["states", "--by", "interval", kernel],
        &[("begin_ns", "uint64"), ("comm", STREAMED_NAME), ("state", STREAMED_NAME), ("cpu", "uint64")],
    );
    check(&["cpu", kernel], &[("priority", "int64"), ("share", "double"), ("time_ns", "uint64")]);
    check(&["syscalls", "--by", "slowest", kernel], &[("result", "int64"), ("arguments", "string")]);
    check(&["io", "--by", "descriptor", kernel], &[("fd", "int64"), ("file", NAME)]);
    check(&["count", "--by", "stream", kernel], &[("begin_ns", "int64"), ("stream", NAME)]);
    let folder = Folder::new();
    let trace = folder.write("trace.pt", &raw::trace(0x1000, 10));
    let code = format!("{}@0x1000", folder.write("code.bin", &program::code(10)));
    check(
        &["functions", "--pt", &trace, "--code", &code],
        &[("function", NAME), ("self_instructions", "uint64"), ("share", "double")],
    );
}

#[test]
fn numbers_that_may_be_negative_are_numbers() {
    let kernel = &fixture("ctf/lttng2.13-kernel");
    let numbers = |report: &[&str], name: &str| {
        let json = hodo(&[&["report"], report, &["--format", "json", kernel]].concat()).fine().json();
        let columns = json["columns"].as_array().unwrap();
        let index = columns.iter().position(|column| column["name"] == name).unwrap();
        assert_eq!(columns[index]["type"], "integer", "{name}");
        let rows = json["rows"].as_array().unwrap();
        assert!(
            !rows.is_empty() && rows.iter().all(|row| row[index].is_i64() || row[index].is_null()),
            "{name}"
        );
    };
    numbers(&["cpu"], "priority");
    numbers(&["syscalls", "--by", "slowest"], "result");
    numbers(&["io", "--by", "descriptor"], "fd");
}

#[test]
fn columns_of_latencies_have_one_order_in_all_reports() {
    let kernel = &fixture("ctf/lttng2.13-kernel");
    let durations =
        ["total_ns", "min_ns", "average_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns"].map(Value::from);
    for (report, count) in [
        (&["syscalls"][..], "count"),
        (&["syscalls", "--by", "thread"], "count"),
        (&["irq"], "count"),
        (&["sched"], "wakeups"),
        (&["signals"], "taken"),
        (&["io", "--by", "operation"], "count"),
        (&["io", "--by", "device"], "count"),
        (&["states", "--by", "wait"], "count"),
        (&["periods", "--begin", "sched_*", "--end", "sched_*"], "count"),
    ] {
        let json = hodo(&[&["report"], report, &["--format", "json", kernel]].concat()).json();
        let columns = json["columns"].as_array().unwrap();
        let names: Vec<Value> = columns.iter().map(|column| column["name"].clone()).collect();
        let index =
            names.iter().position(|name| name == count).unwrap_or_else(|| panic!("{report:?}: {names:?}"));
        assert_eq!(names[index + 1..index + 8], durations, "{report:?}");
    }
}

#[test]
fn formats_of_one_table_refuse_several_before_there_is_work() {
    let kernel = fixture("ctf/lttng2.13-kernel");
    let help = hodo(&["help", "--json"]).fine().json();
    for command in [&["report", "all"][..], &["info"]] {
        let (mut supported, mut named) = (BTreeSet::new(), BTreeSet::new());
        for format in
            help["formats"].as_array().unwrap().iter().map(|format| format["name"].as_str().unwrap())
        {
            let ran = hodo(&[command, &["--format", format, &kernel]].concat());
            if ran.code == 0 {
                supported.insert(format.to_owned());
                continue;
            }
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
            let (_, names) = ran.stderr.trim().split_once("use one of the formats ").expect("a list");
            named.insert(names.split(", ").map(str::to_owned).collect());
        }
        assert!(supported.len() > 1, "{supported:?}");
        assert_eq!(named, BTreeSet::from([supported]), "{command:?}");
    }
    let missing = Folder::new().file("missing");
    assert_eq!(hodo(&["report", "functions", "--format", "arrow", &missing]).code, 3);
}

#[test]
fn several_tables_and_info_are_written_as_markdown() {
    let kernel = &fixture("ctf/lttng2.13-kernel");
    let all = hodo(&["report", "all", "--format", "markdown", kernel]).fine().stdout;
    let headings: Vec<&str> = all.lines().filter(|line| line.starts_with("### ")).collect();
    assert!(headings.len() > 5 && headings.contains(&"### syscalls"), "{headings:?}");
    let info = hodo(&["info", "--format", "markdown", kernel]).fine().stdout;
    assert!(info.starts_with("### trace\n\n- name:") && info.contains("\n| stream |"), "{info}");
}
