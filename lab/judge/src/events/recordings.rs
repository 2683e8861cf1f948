//! Makes the recordings to judge.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Outcome, command};

/// The program that also reads a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    TraceCmd,
    Perf,
}

/// A recording.
pub(super) struct Recording {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) peer: Peer,
}

impl Recording {
    /// An existing file; its extension decides the peer.
    pub(super) fn new(file: &str) -> Recording {
        let peer = if file.ends_with(".dat") { Peer::TraceCmd } else { Peer::Perf };
        Recording { name: file.to_owned(), path: file.into(), peer }
    }
}

const SYSTEMS: [&str; 4] = ["sched", "irq", "raw_syscalls", "syscalls"];
/// Events of tracepoints and of software, for perf.
const PERF: &str = "sched:*,raw_syscalls:*,irq:*,cpu-clock,context-switches,page-faults";
const TRACEFS: &str = "/sys/kernel/tracing/instances";

/// Makes many system calls and thread switches, and names with all kinds of characters.
fn workload(calls: u64) -> Command {
    let bytes = calls / 4;
    let script = format!(
        "dd if=/dev/zero bs=1 count={bytes} 2>/dev/null | dd of=/dev/null bs=1 2>/dev/null; ls -lR /usr/share/doc >/dev/null"
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]);
    shell
}

/// `command` with the workload as its last arguments.
fn around(mut command: Command, calls: u64) -> Command {
    let workload = workload(calls);
    command.arg("--").arg(workload.get_program()).args(workload.get_args());
    command
}

pub(super) fn record(folder: &Path, calls: u64) -> Outcome<Vec<Recording>> {
    let own = folder.join("own.dat");
    let mut hodo = Command::new(command::hodo());
    hodo.args(["record", "-q", "--engine", "ftrace", "--buffer-size", "32M", "-o"]).arg(&own);
    for system in SYSTEMS {
        hodo.args(["-e", system]);
    }
    command::run(&mut around(hodo, calls / 2))?;
    let functions = folder.join("functions.dat");
    let mut hodo = Command::new(command::hodo());
    hodo.args([
        "record",
        "-q",
        "--engine",
        "ftrace",
        "--function",
        "vfs_*",
        "-e",
        "sched:sched_switch",
        "-o",
    ]);
    hodo.arg(&functions);
    // Not every machine permits function tracing.
    let has_functions = command::run(&mut around(hodo, calls / 8)).is_ok();
    let (seven, six) = (folder.join("seven.dat"), folder.join("six.dat"));
    extract(&seven, calls / 2)?;
    let mut convert = Command::new("trace-cmd");
    convert.args(["convert", "--file-version", "6", "-i"]).arg(&seven).arg("-o").arg(&six);
    command::quietly(convert.stdout(std::process::Stdio::null()))?;
    let perf = folder.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-a", "-m", "16M", "-e", PERF, "-o"]).arg(&perf);
    command::run(&mut around(record, calls))?;
    let recording = |name: &str, path, peer| Recording { name: name.to_owned(), path, peer };
    let functions = recording("trace.dat 6 of functions by hodo", functions, Peer::TraceCmd);
    let mut recordings = vec![
        recording("trace.dat 6 by hodo", own, Peer::TraceCmd),
        recording("trace.dat 7 by trace-cmd", seven, Peer::TraceCmd),
        recording("trace.dat 6 by trace-cmd", six, Peer::TraceCmd),
        recording("perf.data", perf, Peer::Perf),
    ];
    recordings.extend(has_functions.then_some(functions));
    Ok(recordings)
}

/// Records into an instance, and has trace-cmd write a file from it; trace-cmd also removes the instance.
fn extract(file: &Path, calls: u64) -> Outcome {
    const NAME: &str = "hodo-judge";
    let instance = Path::new(TRACEFS).join(NAME);
    fs::create_dir_all(&instance)?;
    fs::write(instance.join("buffer_size_kb"), "131072")?;
    for system in SYSTEMS {
        fs::write(instance.join("events").join(system).join("enable"), "1")?;
    }
    command::run(&mut workload(calls))?;
    fs::write(instance.join("trace_marker"), "a mark, with = and [signs]")?;
    fs::write(instance.join("tracing_on"), "0")?;
    let mut extract = Command::new("trace-cmd");
    // Times of day, which need the option DATE.
    extract.args(["extract", "-B", NAME, "--date", "-o"]).arg(file).stdout(std::process::Stdio::null());
    command::quietly(&mut extract)?;
    _ = fs::remove_dir(&instance);
    Ok(())
}
