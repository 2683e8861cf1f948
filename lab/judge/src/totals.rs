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
    check(
        "calls in the summary".to_owned(),
        report["summary"]["calls"].as_u64().unwrap_or(0),
        truth.values().map(|truth| truth.calls).sum(),
    );
    Ok(complaints)
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
