//! `cargo judge deltas`: compares the intervals between two markers with a simple reference in Python.
//!
//! ```text
//! program ──hodo record──► recording ─┬─► hodo latency --by executions ──────────────────┐ every delta, in order,
//!                                     └─► hodo script --insns ──► deltas.py: one pass ───┴─► however it is cut
//! ```

use std::{
    fs,
    process::{Command, Stdio},
};

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
    match failed.is_empty() && compared > 0 {
        true => Ok(()),
        false => Err(format!("not equal: {}", failed.join(", ")).into()),
    }
}

/// Returns our intervals in the reference's format.
fn deltas(csv: &str) -> Outcome<String> {
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let index = |name: &str| {
        columns.iter().position(|column| *column == name).ok_or_else(|| format!("no column {name}"))
    };
    let [thread, first, instructions, ended] =
        [index("thread")?, index("first_instruction")?, index("instructions")?, index("ended")?];
    let line = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let tid = cells[thread].rsplit('/').next().unwrap_or_default();
        format!("{tid} {} {} {}", cells[first], cells[instructions], cells[ended])
    };
    Ok(lines.map(line).collect::<Vec<_>>().join("\n"))
}
