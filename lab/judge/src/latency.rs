//! `cargo judge latency`: finds a hundred executions among a million that are slow for known reasons.
//!
//! ```text
//! planted.c ──hodo record──► recording ─┬─► hodo latency --function serve ──► all executions, the slow ones, their paths
//!                                       └─► hodo explain ──► the same paths and extra instructions in its first finding
//! ```

use std::{path::Path, process::Command};

use serde_json::Value;

use crate::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

/// The program, and compiler flags under which `serve` runs what it states.
pub(super) const SOURCE: &str = "planted.c";
pub(super) const FLAGS: &[&str] = &["-O1", "-fcf-protection=none"];
/// Its arguments: number of executions, and the distance between slow ones.
pub(super) const ARGUMENTS: &[&str] = &["1000000", "10000"];
/// Words of the first finding of `hodo explain`: every slow execution, and what it ran more.
pub(super) const FINDING: &[&str] = &[
    "serve has a heavy tail: 999,900 executions run 4 instructions (median), 100 (every 10,000th) run ",
    "34 ran 4,006 more, 4,002 in serve → grow",
    "33 ran 2,007 more, 2,002 in serve → flush → copy",
    "33 ran 804 more in its own code",
];

/// Number of calls, and calls from one slow one to the next, as in [`ARGUMENTS`].
const CALLS: u64 = 1_000_000;
const DISTANCE: u64 = 10_000;
/// Number of instructions of a slow execution, by cause.
const SLOW: [u64; 3] = [4010, 2011, 808];
/// Each call path that runs more: its last function, the number of executions, their least and most extra instructions.
const PATHS: [(&str, [u64; 3]); 4] = [
    ("serve", [100, 804, 4006]),
    ("grow", [34, 4002, 4002]),
    ("flush", [33, 2004, 2004]),
    ("copy", [33, 2002, 2002]),
];

/// Records the program and judges.
pub(super) fn run() -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/latency");
    let binary = workloads::compile(SOURCE, FLAGS, &folder)?;
    let recording = folder.join("recording.perf.data");
    let mut record = Command::new(command::hodo());
    record.args(["record", "--engine", "emulate", "-q", "-o"]).arg(&recording).arg("--").arg(&binary);
    command::capture(record.args(ARGUMENTS))?;
    let judged = [latency(&recording)?, explain(&recording)?];
    match judged {
        [true, true] => Ok(()),
        _ => Err("planted.c: what was found is not what was planted".into()),
    }
}

/// Returns the JSON that a command of `hodo` prints of a recording.
fn json(arguments: &[&str], recording: &Path) -> Outcome<Value> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(arguments).args(["--format", "json", "-q"]).arg(recording);
    Ok(serde_json::from_str(&command::capture(&mut hodo)?)?)
}

/// Prints whether `found` is as expected, and returns it.
fn compare<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> bool {
    let is_equal = found == expected;
    println!("{} {what}", if is_equal { "equal    " } else { "DIFFERENT" });
    if !is_equal {
        println!("    found    {found:?}\n    expected {expected:?}");
    }
    is_equal
}

fn latency(recording: &Path) -> Outcome<bool> {
    let found = json(&["latency", "--function", "serve", "--outliers", "100", "--compare"], recording)?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let outliers = found["outliers"].as_array().into_iter().flatten();
    let mut slow: Vec<_> =
        outliers.map(|outlier| (number(&outlier["number"]), number(&outlier["instructions"]))).collect();
    slow.sort_unstable();
    let planted =
        (0..CALLS / DISTANCE).map(|slow| (slow * DISTANCE + DISTANCE / 2 + 1, SLOW[slow as usize % 3]));
    let rows = found["compare"]["rows"].as_array().into_iter().flatten();
    let path = |row: &Value| {
        let extra = ["executions", "extra_min", "extra_max"].map(|name| number(&row[name]));
        (row["function"].as_str().unwrap_or_default().to_owned(), extra)
    };
    let judged = [
        compare("1,000,000 executions of serve", &number(&found["summary"]["count"]), &CALLS),
        compare("the 100 worst executions are the planted ones", &slow, &planted.collect()),
        compare(
            "the paths that run more, and their extra instructions",
            &rows.map(path).collect::<Vec<_>>(),
            &PATHS.map(|(function, extra)| (function.to_owned(), extra)).to_vec(),
        ),
    ];
    Ok(judged == [true; 3])
}

fn explain(recording: &Path) -> Outcome<bool> {
    let found = json(&["explain"], recording)?;
    let first = found["rows"][0][2].as_str().unwrap_or_default();
    let missing: Vec<_> = FINDING.iter().copied().filter(|words| !first.contains(words)).collect();
    println!("    {first}");
    Ok(compare("`hodo explain` says so first", &missing, &Vec::new()))
}
