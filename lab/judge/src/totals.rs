//! Compares the sums of tables with the emulated processor's count.

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::Value;

use super::streams::Streams;
use crate::{Outcome, command};

/// The emulated processor's count of one thread while it traced.
pub(super) struct Truth {
    pub(super) instructions: u64,
    pub(super) calls: u64,
}

/// The counts in the recording, by thread id.
pub(super) fn truth(recording: &Path) -> Outcome<BTreeMap<u32, Truth>> {
    let info = json(&["info"], recording)?;
    let rows = info["truth"].as_array().ok_or("`hodo info` shows no count of the emulated processor")?;
    let row = |row: &Value| {
        let number = |name: &str| row[name].as_u64();
        let truth = Truth { instructions: number("traced_instructions")?, calls: number("traced_calls")? };
        Some((u32::try_from(number("tid")?).ok()?, truth))
    };
    let truth: Option<BTreeMap<u32, Truth>> = rows.iter().map(row).collect();
    Ok(truth.ok_or("`hodo info` shows a count without tid, traced_instructions or traced_calls")?)
}

/// The differences between the truth and the stream or the table of functions.
pub(super) fn compare(
    recording: &Path,
    truth: &BTreeMap<u32, Truth>,
    ours: &Streams,
) -> Outcome<Vec<String>> {
    let mut complaints = Vec::new();
    let mut check = |what: String, found: u64, expected: u64| {
        if found != expected {
            complaints.push(format!("  {what}: {found} by hodo, {expected} by the emulated processor"));
        }
    };
    for (tid, truth) in truth {
        let found = ours.threads.get(tid).map_or(0, |thread| thread.instructions);
        check(format!("instructions of thread {tid}"), found, truth.instructions);
    }
    let report = json(&["report", "functions"], recording)?;
    let instructions = truth.values().map(|truth| truth.instructions).sum();
    check(
        "instructions in the summary".to_owned(),
        report["summary"]["instructions"].as_u64().unwrap_or(0),
        instructions,
    );
    check("sum of self_instructions".to_owned(), sum(&report, "self_instructions")?, instructions);
    let calls = report["summary"]["calls"].as_u64().unwrap_or(0);
    let from_outside = calls_from_outside(&json(&["report", "paths"], recording)?)?;
    check(
        "calls in the summary".to_owned(),
        calls - from_outside,
        truth.values().map(|truth| truth.calls).sum(),
    );
    Ok(complaints)
}

/// The calls by code beyond a filter. The emulated processor counts call instructions, and those are not traced.
fn calls_from_outside(paths: &Value) -> Outcome<u64> {
    let columns = paths["columns"].as_array().ok_or("a table without columns")?;
    let column = |name: &str| {
        let position = columns.iter().position(|column| column["name"] == name);
        position.ok_or_else(|| format!("no column {name}"))
    };
    let (depth, function) = (column("depth")?, column("function")?);
    let (entries, entered_by, own) =
        (column("entries")?, column("entered_by")?, column("self_instructions")?);
    let mut calls = 0;
    // For each function on the path, whether it is code of which nothing was traced.
    let mut is_outside: Vec<bool> = Vec::new();
    for row in paths["rows"].as_array().ok_or("a table without rows")? {
        is_outside.truncate(row[depth].as_u64().ok_or("a row without depth")? as usize);
        if is_outside.last() == Some(&true) && row[entered_by] == "call" {
            calls += row[entries].as_u64().unwrap_or(0);
        }
        is_outside.push(row[function] == "[unknown]" && row[own] == 0);
    }
    Ok(calls)
}

/// The sum of a table's column.
fn sum(table: &Value, column: &str) -> Outcome<u64> {
    let columns = table["columns"].as_array().ok_or("a table without columns")?;
    let index = columns
        .iter()
        .position(|known| known["name"] == column)
        .ok_or_else(|| format!("no column {column}"))?;
    let rows = table["rows"].as_array().ok_or("a table without rows")?;
    Ok(rows.iter().filter_map(|row| row[index].as_u64()).sum())
}

/// The output of `hodo` for the recording, as JSON.
fn json(arguments: &[&str], recording: &Path) -> Outcome<Value> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(arguments).args(["--format", "json"]).arg(recording);
    Ok(serde_json::from_str(&command::capture(&mut hodo)?)?)
}
