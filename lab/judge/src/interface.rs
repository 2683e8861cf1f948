//! `cargo judge libipt [MUTATIONS [JOBS]…]`: our `libipt.so.2` beside Intel's, by the same programs: one that uses every
//! part of the interface, over cases, recordings and damaged copies of them; and gdb, which decodes a stored trace itself.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    command::{self, cargo},
    setup::{self, Need},
};

/// Damaged copies of each trace, unless said otherwise.
const MUTATIONS: &str = "3";

/// Judges with the given number of damaged copies, and with more jobs.
pub(super) fn run(arguments: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    let folder = command::target().join("judge/libipt");
    fs::create_dir_all(&folder)?;
    let transcript = folder.join("transcript");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&transcript);
    command::quietly(gcc.arg(command::root().join("lab/judges/libipt_transcript.c")).arg("-lipt"))?;
    let library = library(&folder)?;
    let mut judge = cargo(&["run", "-q", "-p", "hodo-cases", "--bin", "judge-libipt", "--"]);
    judge.arg(&transcript).arg(&library).arg("fixtures");
    match arguments {
        [] => judge.arg(MUTATIONS),
        arguments => judge.args(arguments),
    };
    command::run(&mut judge)?;
    gdb(&library)
}

/// Builds our library; returns the folder in which it has its name.
fn library(folder: &Path) -> Outcome<PathBuf> {
    command::run(&mut cargo(&["build", "-q", "-p", "hodo-libipt"]))?;
    fs::copy(command::target().join("debug/libipt.so"), folder.join("libipt.so.2"))?;
    Ok(folder.to_owned())
}

/// Lets gdb decode the trace of a recorded program with both libraries.
fn gdb(library: &Path) -> Outcome {
    let recording = command::root().join("fixtures/perf/tiny.data");
    let arguments = crate::harness_arguments(&recording)?;
    let first = arguments.into_values().flatten().next().ok_or("no thread with a trace")?;
    let mut code: Vec<String> = first.iter().filter(|word| word.contains('@')).cloned().collect();
    for place in &mut code {
        // The program is kept beside the recording.
        let kept = command::root().join("fixtures/perf/symfs").join(place.trim_start_matches('/'));
        *place = kept.display().to_string();
    }
    let trace = first.last().ok_or("no trace")?;
    let mut words = trace.rsplitn(3, ':');
    let (Some(size), Some(offset)) = (words.next(), words.next()) else {
        return Err("no part of a file".into());
    };
    let (offset, size): (usize, usize) = (offset.parse()?, size.parse()?);
    let bytes = fs::read(&recording)?;
    let path = library.join("tiny.pt");
    fs::write(&path, bytes.get(offset..offset + size).ok_or("a trace outside of its file")?)?;
    let mut python = Command::new("python3");
    python.arg(command::root().join("lab/judges/gdb_btrace.py")).arg(library).arg(path);
    command::run(python.args(code))
}
