//! perf's decoder as a judge: `lab/judges/perf.c` in `perf script`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::streams::Streams;
use crate::{Outcome, command};

/// Compiles the library that perf loads; returns its path.
pub(super) fn compile(folder: &Path) -> Outcome<PathBuf> {
    let library = folder.join("judge-perf.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library);
    command::quietly(gcc.arg(command::root().join("lab/judges/perf.c")))?;
    Ok(library)
}

/// The streams and times of perf's decoder; its errors become notices.
pub(super) fn read(recording: &Path, library: &Path) -> Outcome<Streams> {
    let digest = recording.with_extension("perf.digest");
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=i0ns", "--dlfilter"]).arg(library).arg("--dlarg").arg(&digest);
    let mut streams = Streams::default();
    perf.arg("-i").arg(recording);
    command::each_line(perf, |line| streams.notice(line))?;
    streams.read(&digest)?;
    std::fs::remove_file(&digest)?;
    Ok(streams)
}

/// perf's output for the sideband of a recording: mappings, executed programs, new processes; in order of time, with
/// full precision.
pub(super) fn sideband(recording: &Path) -> Outcome<String> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-itrace", "--ns", "--show-mmap-events", "--show-task-events", "-i"]);
    command::capture(perf.arg(recording))
}

/// The command that prints perf's instructions of a thread.
pub(super) fn instruction_command(recording: &Path, tid: u32) -> Command {
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=i0ns", "-F", "tid,ip", "--tid", &tid.to_string(), "-i"]).arg(recording);
    perf
}
