//! `cargo judge deltas`: compares the intervals between two markers with a simple reference in Python; and finds a
//! hundred executions that are slow for known reasons among a million.
//!
//! ```text
//! program ──hodo record──► recording ─┬─► hodo latency --by executions ──────────────────┐ every delta, in order,
//!                                     └─► hodo script --insns ──► deltas.py: one pass ───┴─► however it is cut
//! ```

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

/// The reference.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/deltas.py");

/// Programs: source, compiler flags, and arguments.
const PROGRAMS: [(&str, &[&str], &[&str]); 3] =
    [("threads.c", &["-pthread"], &[]), ("throws.cpp", &[], &[]), ("fib.c", &[], &["20"])];

/// Markers of begin and end, and their nesting.
const PATTERNS: [[&str; 3]; 5] = [
    ["call", "ret", "nested"],
    ["push; push", "pop; pop", "nested"],
    ["cmp; jne", "cmp; je", "first"],
    ["syscall", "syscall", "nested"],
    ["test %eax,%eax; je | test %rax,%rax; je", "lea *,%rdi", "last"],
];

/// Ways to divide a recording into chunks.
const CUTS: [&[&str]; 3] =
    [&["-j", "1"], &["-j", "2", "--chunk-size", "1K"], &["-j", "1", "--chunk-size", "7K"]];

/// Judges every program, or those with these sources.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/deltas");
    println!("{:12} {:40} {:24} {:>9}  result", "program", "from", "to", "deltas");
    let (mut failed, mut compared) = (Vec::new(), 0);
    for (source, flags, arguments) in PROGRAMS {
        if !names.is_empty() && !names.iter().any(|name| name == source) {
            continue;
        }
        let binary = workloads::compile(source, &[&["-O1", "-g"], flags].concat(), &folder.join(source))?;
        let recording = folder.join(source).join("recording.perf.data");
        let mut record = Command::new(command::hodo());
        record.args(["record", "--engine", "emulate", "-q", "-o"]).arg(&recording).arg("--").arg(&binary);
        command::capture(record.args(arguments))?;
        let recording = recording.to_string_lossy().into_owned();
        let insns = folder.join(source).join("instructions");
        let fields = ["script", "--insns", "--fields", "tid,insn", "-q", "-o"];
        command::capture(Command::new(command::hodo()).args(fields).arg(&insns).arg(&recording))?;
        for [from, to, nesting] in PATTERNS {
            let mut reference = Command::new("python3");
            reference.args([REFERENCE, from, to, nesting]).stdin(Stdio::from(fs::File::open(&insns)?));
            let expected = command::capture(&mut reference)?;
            let mut result = "equal";
            for cut in CUTS {
                let mut ours = Command::new(command::hodo());
                ours.args(["latency", "--by", "executions", "--format", "csv", "-q"]);
                ours.args(["--from", from, "--to", to, "--nesting", nesting]).args(cut).arg(&recording);
                if deltas(&command::capture(&mut ours)?)? != expected.trim_end() {
                    result = "DIFFERENT";
                    failed.push(format!("{source}: {from} to {to} {}", cut.join(" ")));
                }
            }
            let count = expected.lines().count();
            compared += count;
            println!("{source:12} {from:40} {to:24} {count:>9}  {result}");
        }
    }
    println!("\n{compared} deltas, each however the recording is cut");
    if names.is_empty() {
        planted()?;
    }
    match failed.is_empty() && compared > 0 {
        true => Ok(()),
        false => Err(format!("not equal: {}", failed.join(", ")).into()),
    }
}

/// Finds every planted slow execution among a million, and why it is slow. `planted.c` states what each executes.
fn planted() -> Outcome {
    const CALLS: u64 = 1_000_000;
    const DISTANCE: u64 = 10_000;
    /// Number of instructions of a slow execution, by cause.
    const SLOW: [u64; 3] = [4010, 2011, 808];
    let folder = command::target().join("judge/deltas/planted");
    let binary = workloads::compile("planted.c", &["-O1", "-fcf-protection=none"], &folder)?;
    let recording = folder.join("recording.perf.data");
    let mut record = Command::new(command::hodo());
    record.args(["record", "--engine", "emulate", "-q", "-o"]).arg(&recording).arg("--").arg(&binary);
    command::capture(record.args([CALLS.to_string(), DISTANCE.to_string()]))?;
    let mut latency = Command::new(command::hodo());
    latency.args([
        "latency",
        "--function",
        "serve",
        "--outliers",
        "100",
        "--compare",
        "--format",
        "json",
        "-q",
    ]);
    let found: Value = serde_json::from_str(&command::capture(latency.arg(&recording))?)?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let outliers = found["outliers"].as_array().into_iter().flatten();
    let mut reported: Vec<_> =
        outliers.map(|one| (number(&one["number"]), number(&one["instructions"]))).collect();
    reported.sort_unstable();
    let slow =
        (0..CALLS / DISTANCE).map(|slow| (slow * DISTANCE + DISTANCE / 2 + 1, SLOW[slow as usize % 3]));
    let rows = found["compare"]["rows"].as_array().into_iter().flatten();
    let path = |row: &Value| {
        let extra = ["executions", "extra_min", "extra_max"].map(|name| number(&row[name]));
        (row["function"].as_str().unwrap_or_default().to_owned(), extra)
    };
    let paths: Vec<_> = rows.map(path).collect();
    let expected = [
        ("serve", [100, 804, 4006]),
        ("grow", [34, 4002, 4002]),
        ("flush", [33, 2004, 2004]),
        ("copy", [33, 2002, 2002]),
    ];
    let expected = expected.map(|(function, extra)| (function.to_owned(), extra));
    let is_whole = number(&found["summary"]["count"]) == CALLS;
    match is_whole && reported == slow.collect::<Vec<_>>() && paths == expected {
        true => {
            println!(
                "planted.c: {CALLS} executions, {} slow ones found, their causes and extra instructions exact",
                reported.len()
            );
            Ok(())
        }
        false => {
            Err(format!("planted.c: {} executions, {reported:?}, {paths:?}", found["summary"]["count"])
                .into())
        }
    }
}

/// Returns our intervals in the reference's format.
fn deltas(csv: &str) -> Outcome<String> {
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let place = |name: &str| {
        columns.iter().position(|column| *column == name).ok_or_else(|| format!("no column {name}"))
    };
    let [thread, first, instructions, ended] =
        [place("thread")?, place("first_instruction")?, place("instructions")?, place("ended")?];
    let line = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let tid = cells[thread].rsplit('/').next().unwrap_or_default();
        format!("{tid} {} {} {}", cells[first], cells[instructions], cells[ended])
    };
    Ok(lines.map(line).collect::<Vec<_>>().join("\n"))
}
