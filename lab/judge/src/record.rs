//! Makes the recordings to judge.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    configurations::Configuration,
    programs::{Program, Ready},
};
use crate::{Outcome, command};

/// A program to record, and how.
pub(super) struct Job {
    pub(super) program: &'static Program,
    pub(super) configuration: &'static Configuration,
    /// In perf's syntax.
    pub(super) event: String,
}

/// A recording.
pub(super) struct Recorded {
    pub(super) job: Job,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// The emulated processor's count.
    pub(super) instructions: u64,
    /// The program's duration without recording, and with it.
    pub(super) unrecorded: Duration,
    pub(super) recorded: Duration,
}

impl Recorded {
    /// The slow-down by recording.
    pub(super) fn slow_down(&self) -> f64 {
        self.recorded.as_secs_f64() / self.unrecorded.as_secs_f64()
    }
}

/// Records one after the other, so that they do not disturb each other's timing.
pub(super) fn all(jobs: Vec<Job>, folder: &Path) -> Outcome<Vec<Recorded>> {
    let mut programs: BTreeMap<&str, (Ready, Duration)> = BTreeMap::new();
    let mut recordings = Vec::new();
    for job in jobs {
        let name = job.program.name;
        let folder = folder.join(name);
        if !programs.contains_key(name) {
            fs::create_dir_all(&folder)?;
            let ready = (job.program.prepare)(&folder)?;
            let unrecorded = unrecorded(&ready, &folder)?;
            programs.insert(name, (ready, unrecorded));
        }
        let (ready, unrecorded) = &programs[name];
        recordings.push(record(job, ready, *unrecorded, &folder)?);
    }
    Ok(recordings)
}

fn record(job: Job, ready: &Ready, unrecorded: Duration, folder: &Path) -> Outcome<Recorded> {
    eprintln!("record: {} {}", job.configuration.name, job.program.name);
    let path = folder.join(format!("{}.perf.data", job.configuration.name));
    let mut hodo = Command::new(command::hodo());
    hodo.args(["record", "--engine", "emulate", "-q", "-e", &job.event, "-o"]).arg(&path);
    if let Some(file) = job.configuration.filter {
        hodo.args(["--filter", &format!("filter * @ {file}")]);
    }
    let recorded = timed(hodo.arg("--").args(&ready.command), folder)?;
    let bytes = fs::metadata(&path)?.len();
    let instructions = super::instructions(&path)?;
    Ok(Recorded { job, path, bytes, instructions, unrecorded, recorded })
}

/// The median of three runs without recording.
fn unrecorded(ready: &Ready, folder: &Path) -> Outcome<Duration> {
    let mut times = Vec::new();
    for _ in 0..3 {
        let mut command = Command::new(&ready.command[0]);
        command.args(&ready.command[1..]);
        times.push(timed(&mut command, folder)?);
    }
    times.sort();
    Ok(times[1])
}

/// Runs a command in the folder, without output, and returns its duration.
fn timed(command: &mut Command, folder: &Path) -> Outcome<Duration> {
    let begin = Instant::now();
    command::quietly(command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()))?;
    Ok(begin.elapsed())
}
