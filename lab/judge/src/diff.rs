//! `cargo judge diff`: what `hodo diff` says of programs whose differences are known, against the emulated processor's
//! own counts.
//!
//! ```text
//! a program without tracepoints, and five runs with ──► hodo diff --per step ──► within 1 %, and equal to the counts
//! one recording and itself, two builds, two requests ──► hodo diff ──► nothing, a table, the planted branch
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    Outcome, command, instructions,
    setup::{self, Need},
    workloads,
};
use workbench::lttng::Session;

/// Recordings of the program with tracepoints.
const REPETITIONS: usize = 5;
/// The allowed range of the extra instructions of a call, as a share.
const STABLE: f64 = 0.01;

/// Judges all.
pub(super) fn run() -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/diff");
    fs::create_dir_all(&folder)?;
    itself(&folder)?;
    builds(&folder)?;
    divergence(&folder)?;
    tracepoints()
}

/// Records a program of the lab, compiled with these flags.
fn record(source: &str, name: &str, flags: &[&str], folder: &Path) -> Outcome<PathBuf> {
    let binary = workloads::compile(source, flags, &folder.join(name))?;
    let recording = folder.join(name).join("recording.perf.data");
    let mut record = Command::new(command::hodo());
    record.args(["record", "--engine", "emulate", "-q", "-o"]).arg(&recording).arg("--").arg(binary);
    command::quietly(record.stdout(Stdio::null()))?;
    Ok(recording)
}

/// The output of `hodo diff`. It must exit with 0.
fn diff(arguments: &[&str], recordings: &[&Path]) -> Outcome<String> {
    let mut hodo = Command::new(command::hodo());
    command::capture(hodo.args(["diff", "-q", "--strict"]).args(arguments).args(recordings))
}

fn json(arguments: &[&str], recordings: &[&Path]) -> Outcome<Value> {
    Ok(serde_json::from_str(&diff(&[arguments, &["--format", "json"]].concat(), recordings)?)?)
}

fn expect(holds: bool, what: &str, found: impl std::fmt::Display) -> Outcome {
    println!("{} {what}", if holds { "ok       " } else { "DIFFERENT" });
    if holds { Ok(()) } else { Err(format!("{what}: {found}").into()) }
}

/// The extra instructions, of all or of an execution.
fn delta(table: &Value) -> Outcome<f64> {
    Ok(table["summary"]["delta_instructions"].as_f64().ok_or("no delta_instructions")?)
}

fn itself(folder: &Path) -> Outcome {
    let recording = record("threads.c", "threads", &["-pthread"], folder)?;
    for by in ["function", "path"] {
        let table = json(&["--by", by, "--fail-over", "0%"], &[&recording, &recording])?;
        let is_empty = table["rows"].as_array().is_some_and(Vec::is_empty) && delta(&table)? == 0.0;
        expect(is_empty, &format!("a recording and itself, by {by}: nothing"), table)?;
    }
    Ok(())
}

fn builds(folder: &Path) -> Outcome {
    let [old, new] = ["-O1", "-O2"].map(|level| record("slowpath.c", level, &[level], folder));
    let (old, new) = (old?, new?);
    let counted = instructions(&new)? as f64 - instructions(&old)? as f64;
    let table = json(&[], &[&old, &new])?;
    let found = delta(&table)?;
    expect(found == counted, &format!("gcc -O1 and -O2: {counted:+} instructions, as counted"), found)?;
    for format in ["text", "markdown"] {
        let text = diff(&["--per", "handle_request", "--format", format], &[&old, &new])?;
        let is_readable = text.contains("handle_request") && text.contains("answer");
        expect(is_readable, &format!("gcc -O1 and -O2: a table as {format}"), text)?;
    }
    Ok(())
}

/// The third request of `slowpath` rehashes nothing, the fourth does.
fn divergence(folder: &Path) -> Outcome {
    let recording = record("slowpath.c", "unoptimised", &["-O0"], folder)?;
    let source = fs::read_to_string(workloads::source("slowpath.c"))?;
    let planted = source.lines().position(|line| line.contains("used * 4 >= table->size * 3"));
    let planted =
        planted.map(|line| format!("slowpath.c:{}", line + 1)).ok_or("slowpath.c has no slow path")?;
    let arguments = ["--function", "handle_request", "--nth", "3,4", "--divergence"];
    let parted = json(&arguments, &[&recording])?;
    let found = parted[1]["rows"][0].to_string();
    expect(found.contains(&planted), &format!("two requests of slowpath part at {planted}"), &found)
}

/// What a tracepoint of LTTng costs.
fn tracepoints() -> Outcome {
    // The home of LTTng has sockets, whose paths must be short.
    let folder = std::env::temp_dir().join(format!("hodo-judge-{}", std::process::id()));
    let session = Session::start(&folder)?;
    let judged = with_session(&session, &folder);
    drop(session);
    fs::remove_dir_all(&folder)?;
    judged
}

fn with_session(session: &Session, folder: &Path) -> Outcome {
    let plain = workloads::compile("traced_step.c", &["-O1"], &folder.join("plain"))?;
    let flags = ["-O1", "-DTRACED", "-llttng-ust", "-ldl"];
    let traced = workloads::compile("traced_step.c", &flags, &folder.join("traced"))?;
    let record = |program: &Path, name: String| -> Outcome<PathBuf> {
        let recording = folder.join(name);
        let mut record = session.command(command::hodo())?;
        record.args(["record", "--engine", "emulate", "-q", "-o"]).arg(&recording).arg("--").arg(program);
        // QEMU's user mode fails where a process with LTTng's threads exits, which is after what is measured.
        record.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        Ok(recording)
    };
    let without = record(&plain, "plain.data".to_owned())?;
    let mut extra = Vec::new();
    for index in 0..REPETITIONS {
        let with = record(&traced, format!("traced-{index}.data"))?;
        let per_call = delta(&json(&["--per", "step"], &[&without, &with])?)?;
        let counted = instructions(&with)? as f64 - instructions(&without)? as f64;
        let found = delta(&json(&[], &[&without, &with])?)?;
        let what =
            format!("with a tracepoint: {per_call:+.2} instructions a call; {counted:+} in all, as counted");
        expect(found == counted, &what, found)?;
        extra.push(per_call);
    }
    let [least, most] = [f64::min, f64::max].map(|which| extra.iter().copied().reduce(which).unwrap_or(0.0));
    let what = format!("{REPETITIONS} repetitions: {least:.2} to {most:.2} instructions a call");
    expect(least > 0.0 && most <= least * (1.0 + STABLE), &what, "more than 1 % apart")
}
