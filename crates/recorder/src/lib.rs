//! Records what a program does: with `perf` on hardware that has Intel PT, on the emulated processor
//! elsewhere.
//!
//! ```text
//!            ┌─ perf record -e intel_pt//u ──────────────────────────────┐
//! Request ───┤                                                           ├──► perf.data, Outcome
//!            └─ qemu-x86_64 -plugin emulator ──► spool ──collect, write──┘
//!
//! Request of a machine ──► qemu-system-x86_64 -plugin emulator, a small guest ──► spool ──► perf.data, Outcome
//! Request of ftrace ──► tracefs, an instance ──► trace.dat, Outcome
//! Request of a board ──► slaves in QEMU, a master ──► folder of CTF traces, Outcome
//! ```
//!
//! Both ways to Intel PT give the same kind of file. The program keeps its own output, exit status and signals.

mod board;
mod collect;
mod descendants;
mod emulate;
mod event;
mod filter;
mod ftrace;
mod hardware;
mod machine;
mod signals;
mod supervise;

use std::{ffi::OsString, io, ops::Range, path::PathBuf, process::ExitStatus};

pub use board::{BoardSettings, Protocol};
pub use hodo_emulator::machine::Privilege;
use thiserror::Error;

/// What records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Hardware where there is some, else the emulated processor.
    #[default]
    Auto,
    /// The processor's own Intel PT, through `perf record`.
    Perf,
    /// The emulated processor.
    Emulate,
    /// A whole emulated machine, kernel and user space.
    Machine,
    /// The kernel's own tracer: events of the system while the command runs.
    Ftrace,
    /// A board: slaves in QEMU, a master on this machine, each with a clock of its own.
    Board,
}

impl Engine {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Perf => "perf",
            Engine::Emulate => "emulate",
            Engine::Machine => "machine",
            Engine::Ftrace => "ftrace",
            Engine::Board => "board",
        }
    }
}

/// What is to be recorded, and how.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// What records.
    pub engine: Engine,
    /// Of Intel PT one event in perf's syntax, such as `intel_pt/cyc,psb_period=0/u`, or perf's default where
    /// there is none. Of ftrace systems or events, such as `sched` or `sched:sched_switch`.
    pub events: Vec<String>,
    /// ftrace: the functions to trace, such as `vfs_*`.
    pub function: Option<String>,
    /// ftrace: bytes of the buffer of each CPU.
    pub buffer_size: Option<u64>,
    /// Address filter in perf's syntax, such as `filter main @ ./program`.
    pub filter: Option<String>,
    /// Lose the packets of these instructions of each thread, counted from its start, as if a buffer had
    /// overflowed; on the emulated processor only.
    pub overflow: Option<Range<u64>>,
    /// Keep only the last part of each thread's trace: so many bytes, or 4 MiB.
    pub snapshot: Option<Option<u64>>,
    /// A machine: which code is recorded.
    pub privilege: Privilege,
    /// A machine: count instructions one by one as well, and hold the trace's own count against it. Takes about as
    /// long again.
    pub witness: bool,
    /// A board: what it is.
    pub board: BoardSettings,
    /// Where the recording goes; absent or whole, never a part.
    pub output: PathBuf,
    /// The program and its arguments; of a board, the folder that the recording goes to.
    pub command: Vec<OsString>,
    /// What the recording says of how it was made: the whole command line of the recorder.
    pub recorded_by: Vec<OsString>,
}

impl Request {
    /// The event of Intel PT.
    fn event(&self) -> Option<&str> {
        self.events.first().map(String::as_str)
    }

    /// Refuses what only ftrace does.
    fn only_flow(&self) -> Result<(), Error> {
        if self.function.is_some() || self.buffer_size.is_some() {
            return Err(Error::Missing("--function and --buffer-size need --engine ftrace".to_owned()));
        }
        match self.events.as_slice() {
            [] | [_] => Ok(()),
            [_, second, ..] => {
                let reason = "Intel PT has one event; several are for --engine ftrace".to_owned();
                Err(Error::Event { event: second.clone(), reason })
            }
        }
    }
}

/// What became of a recording.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What recorded.
    pub engine: Engine,
    /// How the program ended.
    pub status: ExitStatus,
    /// Instructions that ran, by the emulated processor's count; unknown on hardware.
    pub instructions: Option<u64>,
    /// Threads that were recorded; unknown on hardware.
    pub threads: Option<usize>,
    /// Size of the recording, in bytes.
    pub bytes: u64,
    /// What the user should know, a sentence each.
    pub warnings: Vec<String>,
}

/// Why there is no recording.
#[derive(Debug, Error)]
pub enum Error {
    /// The command is empty.
    #[error("no command to record; give one after --")]
    NoCommand,
    /// The command is not there or can't be executed.
    #[error("{command}: {reason}")]
    Command {
        /// The command's first word.
        command: String,
        /// Why.
        reason: String,
    },
    /// The event is not understood.
    #[error("event {event}: {reason}")]
    Event {
        /// The event.
        event: String,
        /// What is wrong.
        reason: String,
    },
    /// The filter is not understood, or names something that is not there.
    #[error("filter {filter}: {reason}")]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong.
        reason: String,
    },
    /// Something that recording needs is missing; says what helps.
    #[error("{0}")]
    Missing(String),
    /// A file can't be written or read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl Error {
    /// For `map_err` on what is done with a file.
    fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |error| Error::File { path, error }
    }
}

/// Runs a command and records it. What the user should know meanwhile goes to `notice`, a sentence each.
///
/// # Errors
/// What is missing, wrong in the request, or can't be written. That the command fails is no error
/// but an [`Outcome::status`].
pub fn record(request: &Request, notice: &dyn Fn(&str)) -> Result<Outcome, Error> {
    if request.command.is_empty() {
        return Err(Error::NoCommand);
    }
    if request.engine != Engine::Ftrace {
        request.only_flow()?;
    }
    if request.engine != Engine::Machine && (request.privilege != Privilege::All || request.witness) {
        return Err(Error::Missing("--kernel, --user and --witness need --engine machine".to_owned()));
    }
    match request.engine {
        Engine::Ftrace => ftrace::record(request),
        Engine::Board => board::record(request),
        Engine::Perf => hardware::record(request),
        Engine::Emulate => emulate::record(request, notice),
        Engine::Machine => machine::record(request),
        Engine::Auto if hardware::present() => hardware::record(request),
        Engine::Auto => emulate::record(request, notice),
    }
}
