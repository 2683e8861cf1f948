//! `cargo judge analyses [FOLDER | ARCHIVE | trace.dat | perf.data]`: compares our reports on kernel events with a
//! second implementation of the definitions, slow and simple, in Python, over babeltrace2.
//!
//! ```text
//! a cut of the trace ─┬─► hodo report KIND --by VIEW, in chunks small and large ─┐ row by row: every
//!                     └─► lab/judges/kernel.py ──────────────────────────────────┴─► column of theirs
//! ```
//!
//! Recordings of ftrace and perf are made during the run, and are compared with the output of trace-cmd and perf.
//!
//! Percentiles may differ as docs/analyses.md states; everything else is equal.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Map, Value};

use super::ctf::unpacked;
use crate::{
    Outcome,
    command::{self, root},
    setup::{self, Need},
};

/// The default trace.
const ARCHIVE: &str = "../shared/data/ctf/lttng2.13-kernel6.1-4cpu-18M.tar.zst";
/// The analysed time span in nanoseconds: both ends are in the middle of activity.
const ANALYSED: Range<u64> = 2_000_000_000..42_000_000_000;
/// Chunk sizes: one makes many chunks, the other very few.
const CHUNKS: [&str; 2] = ["64K", "256M"];
/// Percentiles are accurate to this fraction of their value.
const PRECISION: u64 = 128;
/// The judged periods.
const PERIODS: [&str; 8] =
    ["--begin", "block_rq_issue", "--end", "block_rq_complete", "--match", "dev,sector", "--group", "dev"];
/// The width of the time spans in which events are counted.
const WIDTH: [&str; 2] = ["--every", "2s"];
/// Differences that are shown.
const SHOWN: usize = 5;

type Row = Map<String, Value>;

/// Judges the named trace; or the default trace, and new recordings.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let mut differing = Vec::new();
    if let Some(name) = names.first() {
        judge(Path::new(name), &mut differing)?;
    } else {
        judge(&root().join(ARCHIVE), &mut differing)?;
        for recording in record()? {
            judge(&recording, &mut differing)?;
        }
    }
    if differing.is_empty() { Ok(()) } else { Err(format!("not equal: {}", differing.join(", ")).into()) }
}

/// Records the present activity of this machine with ftrace and with perf.
fn record() -> Outcome<[PathBuf; 2]> {
    const WORKLOAD: [&str; 4] =
        ["--", "sh", "-c", "ls -lR /usr/share/doc /usr/lib | gzip > /tmp/hodo-judge; sync /tmp/hodo-judge"];
    let folder = root().join("target/judge");
    std::fs::create_dir_all(&folder)?;
    let (ftrace, perf) = (folder.join("analyses.dat"), folder.join("analyses.data"));
    let mut hodo = Command::new(command::hodo());
    hodo.args(["record", "-q", "--engine", "ftrace", "--buffer-size", "64M"]);
    hodo.args(["sched", "irq", "syscalls", "block"].iter().flat_map(|system| ["-e", system]));
    command::run(hodo.arg("-o").arg(&ftrace).args(WORKLOAD))?;
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-a", "-m", "32M", "-e", "sched:*,raw_syscalls:*,irq:*,block:*", "-o"]);
    command::run(record.arg(&perf).args(WORKLOAD))?;
    Ok([ftrace, perf])
}

/// Compares all tables of a trace, and collects the names of those that differ.
fn judge(name: &Path, differing: &mut Vec<String>) -> Outcome {
    let is_recording = name.extension().is_some_and(|end| end == "dat" || end == "data");
    let input = if is_recording { name.to_owned() } else { unpacked(name)? };
    let mut python = Command::new("/usr/bin/python3");
    let judges = root().join("lab/judges");
    if is_recording {
        python.arg(judges.join("tracers.py")).arg(&input);
    } else {
        let whole = report(&input, "count", None, &[])?;
        let begin = whole["summary"]["begin_ns"].as_u64().ok_or("the trace has no events")?;
        let cut = [begin + ANALYSED.start, begin + ANALYSED.end].map(|time| time.to_string());
        python.arg(judges.join("kernel.py")).arg(&input).args(cut);
    }
    let theirs: Value = serde_json::from_str(&command::capture(&mut python)?)?;
    let time = |name: &str| theirs[name].as_u64().ok_or("the trace has no events");
    let (from, to) = (time("begin")?, time("end")? + 1);
    println!("{}: {} events from {from} to {to} ns", name.display(), theirs["events"]);
    for (kind, views) in theirs["tables"].as_object().ok_or("no tables")? {
        for (view, rows) in views.as_object().ok_or("no views")? {
            let name = format!("{kind} {view}");
            let summaries = &theirs["summaries"];
            let summary = summaries.get(kind).unwrap_or(&summaries[&name]);
            let question = Question { kind, view: (!view.is_empty()).then_some(view), time: from..to };
            let found = differences(&input, &question, rows, summary)?;
            let count = rows.as_array().map_or(0, Vec::len);
            if found.is_empty() {
                println!("{name:20} {count:6} rows, equal")
            } else {
                println!("{name:20} {count:6} rows, DIFFERENT");
                found.iter().for_each(|difference| println!("  {difference}"));
                differing.push(name);
            }
        }
    }
    Ok(())
}

fn report(folder: &Path, kind: &str, view: Option<&str>, more: &[&str]) -> Outcome<Value> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["report", kind, "--format", "json", "-q"]).args(more);
    hodo.args(match (kind, view) {
        ("periods", _) => &PERIODS[..],
        ("count", Some("time")) => &WIDTH[..],
        _ => &[],
    });
    hodo.args(view.into_iter().flat_map(|view| ["--by", view])).arg(folder);
    Ok(serde_json::from_str(&command::capture(&mut hodo)?)?)
}

/// What is compared.
struct Question<'a> {
    /// The report.
    kind: &'a str,
    view: Option<&'a str>,
    /// In nanoseconds.
    time: Range<u64>,
}

/// The differences between our table and theirs.
fn differences(
    folder: &Path,
    question: &Question<'_>,
    theirs: &Value,
    summary: &Value,
) -> Outcome<Vec<String>> {
    let seconds = |nanos: u64| format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let Question { kind, view, time } = question;
    let time = format!("{},{}", seconds(time.start), seconds(time.end));
    let table = |chunk| report(folder, kind, *view, &["--time", &time, "--chunk-size", chunk]);
    let (ours, again) = (table(CHUNKS[0])?, table(CHUNKS[1])?);
    let mut found = Vec::new();
    if ours != again {
        found.push(format!("chunks of {} and of {} differ", CHUNKS[0], CHUNKS[1]));
    }
    for (name, figure) in summary.as_object().into_iter().flatten() {
        if ours["summary"][name] != *figure {
            found.push(format!("{name}: {}, and theirs {figure}", ours["summary"][name]));
        }
    }
    let theirs: Vec<Row> =
        theirs.as_array().into_iter().flatten().filter_map(Value::as_object).cloned().collect();
    let ours = rows(&ours, theirs.first())?;
    found.extend(
        (ours.len() != theirs.len()).then(|| format!("{} rows, and theirs {}", ours.len(), theirs.len())),
    );
    let sorted = |mut rows: Vec<Row>| {
        rows.sort_by_cached_key(exact_cells);
        rows
    };
    let pairs = sorted(ours).into_iter().zip(sorted(theirs));
    let unequal = pairs.filter(|(our, their)| exact_cells(our) != exact_cells(their) || !close(our, their));
    found.extend(
        unequal.take(SHOWN).map(|(our, their)| format!("{}\n   {}", Value::from(our), Value::from(their))),
    );
    Ok(found)
}

/// Rows as objects, with only the columns of theirs.
fn rows(table: &Value, like: Option<&Row>) -> Outcome<Vec<Row>> {
    let columns: Vec<&str> = table["columns"]
        .as_array()
        .ok_or("no columns")?
        .iter()
        .filter_map(|column| column["name"].as_str())
        .collect();
    let row = |row: &Value| {
        let cells = columns.iter().zip(row.as_array()?);
        let cells = cells.filter(|(name, _)| like.is_none_or(|like| like.contains_key(**name)));
        Some(cells.map(|(name, cell)| ((*name).to_owned(), cell.clone())).collect())
    };
    Ok(table["rows"].as_array().ok_or("no rows")?.iter().filter_map(row).collect())
}

fn is_percentile(name: &str) -> bool {
    name.strip_prefix('p').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The cells of a row that must be equal, as text in a fixed order.
fn exact_cells(row: &Row) -> String {
    let mut cells: Vec<String> = row
        .iter()
        .filter(|(name, _)| !is_percentile(name))
        .map(|(name, cell)| format!("{name}: {cell}"))
        .collect();
    cells.sort();
    cells.join(", ")
}

/// Whether percentiles are as accurate as required.
fn close(ours: &Row, theirs: &Row) -> bool {
    theirs.iter().filter(|(name, _)| is_percentile(name)).all(|(name, their)| {
        match (ours.get(name).and_then(Value::as_u64), their.as_u64()) {
            (Some(our), Some(their)) => our.abs_diff(their) <= their / PRECISION,
            (our, their) => our == their,
        }
    })
}
