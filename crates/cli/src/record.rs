//! `hodo record`.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitCode, ExitStatus},
};

use clap::ValueEnum;
use hodo_recorder::{Beside, Engine, Error, Outcome, Privilege, Process, Request, Target, Tracer};

use crate::{
    arguments::{self, Record},
    failure::Failure,
    quantities::size,
};

/// A tracer inside an emulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TracerName {
    /// The kernel's own tracer, into a trace.dat
    Ftrace,
    /// Tracepoints, by this system's perf, into a perf.data
    Perf,
    /// Tracepoints, by this system's LTTng, into a folder in CTF
    Lttng,
}

/// Runs the command, and ends as the recorded program ended.
pub fn run(command: &Record) -> Result<ExitCode, Failure> {
    let request = request(command)?;
    if request.engine != Engine::Board && command.board.is_some() {
        return Err(Failure::usage("--board needs --engine board"));
    }
    let output = match (request.engine, request.command.first()) {
        (Engine::Board, Some(folder)) => Path::new(folder),
        _ => &command.output,
    };
    // A complete recording replaces a file; it must never replace a device.
    if request.engine != Engine::Board && fs::metadata(output).is_ok_and(|metadata| !metadata.is_file()) {
        let reason = format!("{}: not a regular file, which a recording requires", output.display());
        return Err(Failure::usage(reason));
    }
    let outcome = hodo_recorder::record(&request, &|line| {
        if !command.quiet {
            message!("{line}")
        }
    })
    .map_err(|error| match error {
        Error::NoCommand | Error::Event { .. } | Error::Filter { .. } | Error::Trigger(_) => {
            Failure::usage(error)
        }
        error => Failure::unreadable(error),
    })?;
    outcome.warnings.iter().for_each(|warning| message!("{warning}"));
    if !command.quiet {
        message!("{} in {}", sentence(&outcome, command.icount || command.deterministic), output.display());
        report_beside(&output.display().to_string(), &outcome.beside);
    }
    Ok(end_as(outcome.status))
}

fn request(command: &Record) -> Result<Request, Failure> {
    Ok(Request {
        engine: match command.engine {
            arguments::Engine::Auto => Engine::Auto,
            arguments::Engine::Perf => Engine::Perf,
            arguments::Engine::Native => Engine::Native,
            arguments::Engine::Emulate => Engine::Emulate,
            arguments::Engine::Machine => Engine::Machine,
            arguments::Engine::Ftrace => Engine::Ftrace,
            arguments::Engine::Board => Engine::Board,
        },
        events: command.event.clone(),
        function: command.function.clone(),
        buffer_size: command.buffer_size.as_deref().map(size).transpose()?,
        filter: (!command.filter.is_empty()).then(|| command.filter.join(",")),
        pid: command.pid,
        duration: command.duration,
        threads: command.threads.clone(),
        after: command.after,
        native_memory: command.native_memory.as_deref().map(size).transpose()?,
        time_every: command.time_every,
        deterministic: command.deterministic,
        overflow: command.overflow.clone(),
        snapshot: command.snapshot.as_deref().map(size).transpose()?,
        triggers: command.trigger.clone(),
        privilege: match (command.kernel, command.user) {
            (true, false) => Privilege::Kernel,
            (false, true) => Privilege::User,
            _ => Privilege::All,
        },
        process: command.process.as_ref().map(|name| match name {
            Some(name) => Process::Named(name.clone()),
            None => Process::Command,
        }),
        witness: command.witness,
        counts_time: command.icount,
        nested: command.nested,
        with: tracers(&command.with),
        with_events: command.with_events.clone(),
        board: command.board.clone().unwrap_or_default(),
        target: match command.arch {
            arguments::Architecture::Auto => None,
            arguments::Architecture::X86_64 => Some(Target::X86_64),
            arguments::Architecture::Aarch64 => Some(Target::Aarch64),
            arguments::Architecture::Riscv64 => Some(Target::Riscv64),
        },
        sysroot: command.sysroot.clone(),
        output: command.output.clone(),
        command: command.command.clone(),
        surroundings: None,
        recorded_by: std::env::args_os().collect(),
    })
}

/// Returns the sentence about what was recorded.
fn sentence(outcome: &Outcome, counts_time: bool) -> String {
    let threads = outcome.threads.map_or(String::new(), |threads| {
        format!(", {threads} {}", if threads == 1 { "thread" } else { "threads" })
    });
    let instructions = outcome.instructions.map_or(String::new(), |count| format!(", {count} instructions"));
    let engine = match outcome.engine {
        Engine::Native if counts_time => {
            "the native recorder (virtual time: one instruction is one nanosecond)"
        }
        Engine::Native => "the native recorder (real time, slowed by the recording)",
        Engine::Emulate => "the emulated processor (virtual time: one instruction is one nanosecond)",
        Engine::Machine if counts_time => {
            "an emulated machine (virtual time: one instruction is one nanosecond)"
        }
        Engine::Machine => "an emulated machine",
        Engine::Ftrace => "ftrace",
        Engine::Board => "an emulated board",
        _ => "Intel PT of this processor",
    };
    let snapshots = outcome.snapshots.map_or(String::new(), |count| {
        format!(", {count} {}", if count == 1 { "snapshot" } else { "snapshots" })
    });
    format!("recorded by {engine}{threads}{snapshots}{instructions}, {} bytes", outcome.bytes)
}

/// Returns the tracers of these names, each once.
fn tracers(names: &[TracerName]) -> Vec<Tracer> {
    let mut all = Vec::new();
    for name in names {
        let tracer = match name {
            TracerName::Ftrace => Tracer::Ftrace,
            TracerName::Perf => Tracer::Perf,
            TracerName::Lttng => Tracer::Lttng,
        };
        if !all.contains(&tracer) {
            all.push(tracer);
        }
    }
    all
}

/// Reports the software traces of the run, and how to read all of them.
fn report_beside(recording: &str, traces: &[Beside]) {
    for Beside { tracer, path, bytes } in traces {
        let tracer = match tracer {
            Tracer::Ftrace => "ftrace",
            Tracer::Perf => "perf",
            Tracer::Lttng => "LTTng",
        };
        message!("events of the same run by {tracer}, {bytes} bytes in {}", path.display());
    }
    if !traces.is_empty() {
        let paths: Vec<_> = traces.iter().map(|trace| trace.path.display().to_string()).collect();
        let paths = paths.join(" ");
        message!(
            "they have one clock; every command reads them together: hodo report all {recording} {paths}"
        );
    }
}

/// A shell adds this to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

/// Returns the exit code of the recorded program, or raises the signal that killed it.
fn end_as(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, Some(signal)) => {
            // This call returns if the signal's default action does not end a process.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            ExitCode::from((SIGNALLED + signal) as u8)
        }
        (None, None) => ExitCode::FAILURE,
    }
}
