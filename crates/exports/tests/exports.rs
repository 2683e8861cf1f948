//! Laws for every export: the tests iterate over the list, so a new one is tested without further lines.

use std::io::{self, Write};

use flate2::read::GzDecoder;
use hodo_exports::{
    BranchProfiles, Content, CoverageRow, Covered, EXPORTS, Export, PathRow, SourceProfile, Track,
};
use hodo_model::{Cause, Column, Loss, Shape, Table, Unit, Value};
use proptest::prelude::*;

/// The names in an exported file.
#[derive(Clone, Debug)]
struct Names {
    function: String,
    module: String,
    thread: String,
}

fn plain() -> Names {
    Names { function: "sobel_filter".into(), module: "pictures".into(), thread: "worker".into() }
}

fn losses() -> Vec<Loss> {
    let detail = "lost_on_purpose".to_owned();
    vec![Loss {
        stream: "cpu 0".to_owned(),
        cause: Cause::Overflow,
        bytes: 7..9,
        time: None,
        count: 3,
        detail,
    }]
}

fn numbers(names: &[&'static str]) -> Vec<Column> {
    names.iter().map(|name| Column::integer(name, Unit::Count)).collect()
}

/// Call paths: a function below the thread.
fn paths(names: &Names) -> Table {
    let mut columns =
        numbers(&["depth", "entries", "self_instructions", "self_time_ns", "total_instructions"]);
    columns.extend(numbers(&["total_time_ns"]));
    columns.extend([Column::name("function"), Column::name("module")]);
    let row = |depth: u64, own: u64, total: u64, name: &str| {
        let mut row: Vec<Value> = [depth, 1, own, 10 * own, total, 10 * total].map(Value::from).into();
        row.extend([name.into(), names.module.as_str().into()]);
        row
    };
    let rows = [row(0, 2, 7, &names.thread), row(1, 5, 5, &names.function)];
    Table::new("paths", Shape::Tree, vec![], columns, rows)
}

/// The first lines of the thread's function and of the other one.
fn lines(names: &Names) -> Table {
    let mut columns = numbers(&["instructions", "time_ns", "address"]);
    columns.extend(["line", "function", "module"].map(Column::name));
    let row = |address: u64, name: &str| {
        let mut row: Vec<Value> = [5, 50, address].map(Value::from).into();
        row.extend([format!("filter.c:{address}").into(), name.into(), names.module.as_str().into()]);
        row
    };
    let rows = [row(7, &names.thread), row(20, &names.function)];
    Table::new("lines", Shape::Counters, vec![], columns, rows)
}

/// The call from the one to the other.
fn calls(names: &Names) -> Table {
    let mut columns = vec![Column::name("kind")];
    columns.extend(numbers(&["executions", "to"]));
    columns.extend(["function", "module", "to_function", "to_module", "line"].map(Column::name));
    let Names { function, module, thread } = names;
    let mut row: Vec<Value> = vec!["taken".into(), 5_u64.into(), 20_u64.into()];
    row.extend([thread, module, function, module].map(|name| Value::from(name.as_str())));
    row.push("filter.c:9".into());
    Table::new("branches", Shape::Counters, vec![], columns, [row])
}

fn branches(names: &Names) -> Table {
    let mut columns = vec![Column::name("kind")];
    columns.extend(numbers(&["executions", "from", "to"]));
    columns.extend(
        ["module", "to_module", "from_function", "from_line", "to_function", "to_line"].map(Column::name),
    );
    let row = |kind: &str, from: u64, to: u64| {
        let mut row = vec![kind.into(), 4_u64.into(), from.into(), to.into()];
        row.extend([&names.module, &names.module, &names.thread].map(|name| Value::from(name.as_str())));
        row.extend(["f.c:3", names.function.as_str(), "f.c:9"].map(Value::from));
        row
    };
    let rows = [row("taken", 16, 64), row("next", 16, 18), row("run", 64, 80)];
    Table::new("branches", Shape::Counters, vec![], columns, rows)
}

/// Writes a file with content of the export's kind and these names; an empty one if `names` is `None`.
fn write(
    export: &Export,
    names: Option<&Names>,
    losses: &[Loss],
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    match export.content {
        Content::Timeline(begin) | Content::Calls(begin) => {
            let mut file = begin(out)?;
            if let Some(names) = names {
                let name = names.thread.clone();
                file.begin_track(&Track::Thread { pid: 1, tid: 2, name, what: String::new() })?;
                file.begin_track(&Track::Named(names.module.clone()))?;
                file.name(&names.function)?;
                file.begin(0, 100, 0)?;
                file.begin(0, 150, 0)?;
                file.end(0, 170)?;
                file.end(0, 300)?;
                file.begin(1, 400, 0)?;
                file.end(1, 500)?;
            }
            file.finish(losses)
        }
        Content::Paths(begin) => {
            let mut file = begin(out)?;
            if let Some(names) = names {
                let batches = paths(names);
                let mut row = |row: &PathRow<'_>| file.row(row);
                for batch in batches.batches() {
                    assert!(hodo_exports::path_rows(batch, &mut row)?);
                }
            }
            file.finish(losses)
        }
        Content::Sources(write) => {
            let mut profile = SourceProfile::default();
            if let Some(names) = names {
                assert!(paths(names).batches().iter().all(|batch| profile.add_paths(batch)));
                assert!(lines(names).batches().iter().all(|batch| profile.add_lines(batch)));
                assert!(calls(names).batches().iter().all(|batch| profile.add_branches(batch)));
            }
            write(&profile, losses, out)
        }
        Content::Coverage(begin) => {
            let mut file = begin(out)?;
            if let Some(Names { function, module, .. }) = names {
                let parts = [
                    Covered::Function { name: function },
                    Covered::Line,
                    Covered::Branch { taken: 30, not_taken: 4 },
                ];
                for covered in parts {
                    file.row(&CoverageRow { module, file: function, line: 12, executions: 34, covered })?;
                }
            }
            file.finish(losses)
        }
        Content::Branches(write) => {
            let mut profiles = BranchProfiles::default();
            if let Some(names) = names {
                assert!(branches(names).batches().iter().all(|batch| profiles.add(batch)));
            }
            let profile = names.and_then(|names| profiles.get(&names.module)).cloned().unwrap_or_default();
            write(&profile, losses, out)
        }
    }
}

fn written(export: &Export, names: Option<&Names>, losses: &[Loss]) -> Vec<u8> {
    let mut out = Vec::new();
    write(export, names, losses, &mut out).unwrap_or_else(|error| panic!("{}: {error}", export.name));
    out
}

/// The content of a file, without its compression.
fn unpacked(bytes: Vec<u8>) -> Vec<u8> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut content = Vec::new();
    io::copy(&mut GzDecoder::new(&*bytes), &mut content).expect("a file that begins as gzip is one");
    content
}

fn has(content: &[u8], text: &str) -> bool {
    content.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Whether a file has control characters, as binary ones do.
fn has_control_characters(content: &[u8]) -> bool {
    String::from_utf8_lossy(content).contains(|c: char| c.is_control() && c != '\n' && c != '\t')
}

/// An output that is full after some bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 && !bytes.is_empty() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_file_contains_the_names_of_its_functions() {
    for export in EXPORTS.iter().filter(|export| !matches!(export.content, Content::Branches(_))) {
        let content = unpacked(written(export, Some(&plain()), &[]));
        assert!(has(&content, "sobel_filter"), "{}: {}", export.name, String::from_utf8_lossy(&content));
    }
}

#[test]
fn a_file_of_branches_contains_those_of_its_module() {
    for export in EXPORTS.iter().filter(|export| matches!(export.content, Content::Branches(_))) {
        let empty = written(export, None, &[]);
        assert!(written(export, Some(&plain()), &[]).len() > empty.len(), "{}", export.name);
    }
}

/// A file mentions the losses, if its format has a place for them.
#[test]
fn losses_are_in_the_file() {
    const NO_PLACE: &[&str] = &["folded", "llvm", "autofdo", "bolt"];
    for export in EXPORTS {
        let content = unpacked(written(export, Some(&plain()), &losses()));
        let text = String::from_utf8_lossy(&content);
        let has_place = !NO_PLACE.contains(&export.name);
        assert_eq!(has(&content, "lost_on_purpose"), has_place, "{}: {text}", export.name);
    }
}

#[test]
fn an_empty_file_is_written_without_an_error() {
    EXPORTS.iter().for_each(|export| drop(written(export, None, &losses())));
}

/// No file depends on a hash or on the time of day.
#[test]
fn files_are_the_same_each_time() {
    for export in EXPORTS {
        let first = written(export, Some(&plain()), &losses());
        assert!((0..8).all(|_| written(export, Some(&plain()), &losses()) == first), "{}", export.name);
    }
}

#[test]
fn a_full_output_is_an_error() {
    for export in EXPORTS {
        let size = written(export, Some(&plain()), &losses()).len();
        for room in [0, 1, size / 2, size - 1] {
            let end = write(export, Some(&plain()), &losses(), &mut Full(room));
            assert!(end.is_err(), "{} with room for {room} of {size} bytes", export.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Names are data: none ends a file early or breaks its syntax, as far as the syntax is JSON or lines of text without
    /// control characters.
    #[test]
    fn names_may_be_anything(function in any::<String>(), module in any::<String>(), thread in any::<String>()) {
        let names = Names { function, module, thread };
        for export in EXPORTS {
            let content = unpacked(written(export, Some(&names), &losses()));
            let usual = unpacked(written(export, Some(&plain()), &losses()));
            if usual.starts_with(b"{") || usual.starts_with(b"[") {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&content).is_ok(), "{}", export.name);
            } else if !has_control_characters(&usual) {
                let text = String::from_utf8_lossy(&content);
                prop_assert!(!has_control_characters(&content), "{}: {text}", export.name);
            }
        }
    }
}
