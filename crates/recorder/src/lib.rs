//! Records the execution of a program: with `perf` on hardware with Intel PT, natively elsewhere.
//!
//! ```text
//!            ┌─ perf record -e intel_pt//u ──────────────────────────────┐
//! Request ───┤                                                           ├──► perf.data, Outcome
//!            ├─ qemu-x86_64, -aarch64, -riscv64 -plugin emulator ──► spool ──collect, units, write──┘
//!            └─ translated by `crates/native` ──► native recording, Outcome
//!
//! Request of a machine ──► qemu-system-x86_64 -plugin emulator, a small guest ──► spool ──► perf.data, Outcome
//! Request of ftrace ──► tracefs, an instance ──► trace.dat, Outcome
//! Request of a board ──► slaves in QEMU, a master ──► folder of CTF traces, Outcome
//! ```
//!
//! The program keeps its own output, exit status and signals.

mod board;
mod collect;
mod descendants;
mod emulate;
mod event;
mod filter;
mod ftrace;
mod hardware;
mod machine;
mod native;
mod signals;
mod supervise;
mod surroundings;
mod trigger;
mod units;

use std::{cell::Cell, ffi::OsString, io, ops::Range, path::PathBuf, process::ExitStatus, time::Duration};

pub use board::{BoardSettings, Protocol};
pub use hodo_emulator::{
    Target,
    machine::{Privilege, Process, trigger::Trigger},
};
use hodo_model::ExpressionError;
pub use surroundings::Surroundings;
use thiserror::Error;
pub use trigger::parse_trigger;

/// How to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Hardware if available, else the native recorder; the emulated processor if only that does what is requested.
    #[default]
    Auto,
    /// The processor's own Intel PT, through `perf record`.
    Perf,
    /// The native recorder: the program runs translated, in real time.
    Native,
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
            Engine::Native => "native",
            Engine::Emulate => "emulate",
            Engine::Machine => "machine",
            Engine::Ftrace => "ftrace",
            Engine::Board => "board",
        }
    }
}

/// A tracer of software events inside an emulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// The kernel's own tracer.
    Ftrace,
    /// perf's tracepoints, by this system's perf.
    Perf,
    /// LTTng's kernel tracer, by this system's LTTng.
    Lttng,
}

/// What to record, and how.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How to record.
    pub engine: Engine,
    /// For Intel PT, one event in perf's syntax, such as `intel_pt/cyc,psb_period=0/u`; empty for perf's default. For
    /// ftrace, systems or events, such as `sched` or `sched:sched_switch`.
    pub events: Vec<String>,
    /// ftrace: the functions to trace, such as `vfs_*`.
    pub function: Option<String>,
    /// ftrace, and the tracers in a machine: buffer size per CPU in bytes.
    pub buffer_size: Option<u64>,
    /// Address filter in perf's syntax, such as `filter main @ ./program`.
    pub filter: Option<String>,
    /// Native and hardware: the running process to record instead of a command.
    pub pid: Option<u32>,
    /// Native, and hardware with `pid`: end the recording this long after it began; the programs continue.
    pub duration: Option<Duration>,
    /// Native: the threads to record, by number or by name, in which `*` stands for any characters; empty for all.
    pub threads: Vec<String>,
    /// Native: begin the recording after this time.
    pub after: Option<Duration>,
    /// Native: the most bytes of translated code in each process; `None`: 512 MiB.
    pub native_memory: Option<u64>,
    /// Native: exits of superblocks between two recorded times; 0 for none. `None`: 4,096, or 64 with triggers. System calls are
    /// always timed.
    pub time_every: Option<u32>,
    /// Native: times count instructions.
    pub deterministic: bool,
    /// Lose the packets of these instructions of each thread, or of each processor of a machine, counted from its
    /// start, as if a buffer had overflowed; not on hardware.
    pub overflow: Option<Range<u64>>,
    /// Keep only the last part of the trace of each thread, or of each processor of a machine: this many bytes.
    pub snapshot: Option<u64>,
    /// Machine and native: with `snapshot`, write that part whenever one of these latencies is too long, instead of at the
    /// end.
    pub triggers: Vec<Trigger>,
    /// Machine: the recorded code.
    pub privilege: Privilege,
    /// Machine: the recorded process; `None` for all.
    pub process: Option<Process>,
    /// Machine: count instructions one by one as well, and compare the count with the trace. Doubles the time.
    pub witness: bool,
    /// Machine: one processor, whose clock counts instructions: each is a nanosecond.
    pub counts_time: bool,
    /// Machine: the machine can run guests of its own, which are recorded too.
    pub nested: bool,
    /// Machine: the tracers that run inside the machine, besides Intel PT.
    pub with: Vec<Tracer>,
    /// Machine: the systems or events of these tracers, such as `sched` or `sched:sched_switch`; empty for the default.
    pub with_events: Vec<String>,
    /// Board: its settings.
    pub board: BoardSettings,
    /// Emulate: the processor that the program must be for; `None` for any.
    pub target: Option<Target>,
    /// Emulate: the folder with the libraries of a program for another processor; `None` to look for it.
    pub sysroot: Option<PathBuf>,
    /// Path of the recording, which is complete or absent.
    pub output: PathBuf,
    /// The program and its arguments; of a board, the folder that the recording goes to.
    pub command: Vec<OsString>,
    /// Native and hardware: what the program gets in place of the recorder's own surroundings.
    pub surroundings: Option<Surroundings>,
    /// The recorder's command line, which the recording contains.
    pub recorded_by: Vec<OsString>,
}

impl Request {
    /// The event of Intel PT.
    fn event(&self) -> Option<&str> {
        self.events.first().map(String::as_str)
    }

    /// Whether only some threads are recorded, or only from some time on.
    fn is_partial(&self) -> bool {
        !self.threads.is_empty() || self.after.is_some()
    }

    /// Rejects options that only ftrace supports.
    fn refuse_ftrace_options(&self) -> Result<(), Error> {
        if self.function.is_some() || self.buffer_size.is_some() && self.with.is_empty() {
            let needs = "--function needs --engine ftrace, and --buffer-size needs --engine ftrace or --with";
            return Err(Error::Missing(needs.to_owned()));
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

/// A recording of software events beside that of Intel PT.
#[derive(Clone, Debug)]
pub struct Beside {
    /// What recorded it.
    pub tracer: Tracer,
    /// Path of the file; of LTTng, of the folder.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The result of a recording.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The engine that recorded.
    pub engine: Engine,
    /// How the program ended.
    pub status: ExitStatus,
    /// Instructions that ran, counted by the emulated processor; unknown on hardware.
    pub instructions: Option<u64>,
    /// Threads that were recorded; unknown on hardware.
    pub threads: Option<usize>,
    /// Snapshots that triggers asked for, if there were triggers.
    pub snapshots: Option<usize>,
    /// Size of the recording, in bytes.
    pub bytes: u64,
    /// Software traces of the same run, on the same clock.
    pub beside: Vec<Beside>,
    /// Messages for the user, one sentence each.
    pub warnings: Vec<String>,
}

/// Why there is no recording.
#[derive(Debug, Error)]
pub enum Error {
    /// The command is empty.
    #[error("no command to record; give one after --")]
    NoCommand,
    /// The command does not exist or can't be executed.
    #[error("{command}: {reason}")]
    Command {
        /// The command's first word.
        command: String,
        /// The reason.
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
    /// The filter is not understood, or its file or function does not exist.
    #[error("filter {filter}: {reason}")]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong.
        reason: String,
    },
    /// A trigger can't be followed.
    #[error("--trigger: {0}")]
    Trigger(#[from] ExpressionError),
    /// A requirement of recording is missing; the text explains what helps.
    #[error("{0}")]
    Missing(String),
    /// A file can't be written or read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl Error {
    /// For `map_err` on file operations.
    fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |error| Error::File { path, error }
    }
}

/// Runs a command and records it. Messages for the user during the recording go to `notice`, one sentence each.
///
/// # Errors
/// If a requirement is missing, the request is wrong, or a file can't be written. A failed command is not an error: see
/// [`Outcome::status`].
pub fn record(request: &Request, notice: &dyn Fn(&str)) -> Result<Outcome, Error> {
    if request.command.first().is_none_or(|name| name.is_empty()) && request.pid.is_none() {
        return Err(Error::NoCommand);
    }
    if request.engine != Engine::Ftrace {
        request.refuse_ftrace_options()?;
    }
    let has_machine_option = request.privilege != Privilege::All
        || request.witness
        || request.counts_time
        || request.process.is_some()
        || !request.with.is_empty();
    if request.engine != Engine::Machine && has_machine_option {
        let options = "--kernel, --user, --process, --witness, --icount and --with need --engine machine";
        return Err(Error::Missing(options.to_owned()));
    }
    let can_trigger = matches!(request.engine, Engine::Auto | Engine::Native | Engine::Machine);
    if !can_trigger && !request.triggers.is_empty() {
        return Err(Error::Missing("--trigger needs --engine native or --engine machine".to_owned()));
    }
    let has_target = request.target.is_some() || request.sysroot.is_some();
    if !matches!(request.engine, Engine::Auto | Engine::Emulate | Engine::Machine) && has_target {
        return Err(Error::Missing(
            "--arch and --sysroot need --engine emulate or --engine machine".to_owned(),
        ));
    }
    let has_native_option = request.native_memory.is_some()
        || request.time_every.is_some()
        || request.deterministic
        || request.is_partial();
    if !matches!(request.engine, Engine::Auto | Engine::Native) && has_native_option {
        let options =
            "--threads, --after, --native-memory, --time-every and --deterministic need --engine native";
        return Err(Error::Missing(options.to_owned()));
    }
    let has_pid_or_duration = request.pid.is_some() || request.duration.is_some();
    if !matches!(request.engine, Engine::Auto | Engine::Native | Engine::Perf) && has_pid_or_duration {
        return Err(Error::Missing("--pid and --for need --engine native or perf".to_owned()));
    }
    match request.engine {
        Engine::Ftrace => ftrace::record(request),
        Engine::Board => board::record(request),
        Engine::Perf => hardware::record(request),
        Engine::Native => native::record(request, &Notices::of_wanted(notice)),
        Engine::Emulate => emulate::record(request, &Notices::of_wanted(notice)),
        Engine::Machine => machine::record(request),
        Engine::Auto => auto(request, notice),
    }
}

/// Sentences for the user during a recording.
struct Notices<'n> {
    /// Which engine was chosen, and why, if the user did not ask for it. It is said when the recording begins: errors before that
    /// have other causes.
    choice: Cell<Option<String>>,
    notice: &'n dyn Fn(&str),
}

impl<'n> Notices<'n> {
    /// Those of an engine that the user asked for.
    fn of_wanted(notice: &'n dyn Fn(&str)) -> Notices<'n> {
        Notices { choice: Cell::default(), notice }
    }

    /// Those of an engine that was chosen.
    fn of_chosen(choice: String, notice: &'n dyn Fn(&str)) -> Notices<'n> {
        Notices { choice: Cell::new(Some(choice)), notice }
    }

    /// Passes a sentence on.
    fn say(&self, text: &str) {
        (self.notice)(text);
    }

    /// The recording has begun.
    fn begin(&self) {
        if let Some(choice) = self.choice.take() {
            self.say(&choice);
        }
    }
}

/// Chooses an engine, and reports the choice to `notice` unless it is the hardware.
fn auto(request: &Request, notice: &dyn Fn(&str)) -> Result<Outcome, Error> {
    let target = request.target.filter(|&target| target != Target::X86_64);
    if let Some(target) = target.or_else(|| emulate::foreign::target_of(request)) {
        let choice = format!(
            "it is a program for {}: the emulated processor is used ({}, 10 to 50 times slower, in virtual time)",
            target.name(),
            target.qemu()
        );
        return emulate::record(request, &Notices::of_chosen(choice, notice));
    }
    let needs_native = !request.triggers.is_empty() || request.is_partial() || request.deterministic;
    if hardware::present() && !needs_native {
        return hardware::record(request);
    }
    if !request.events.is_empty() || request.overflow.is_some() {
        let choice = "this machine has no Intel PT: the emulated processor makes the packets that -e or --overflow ask \
                      for (10 to 50 times slower, in virtual time)";
        return emulate::record(request, &Notices::of_chosen(choice.to_owned(), notice));
    }
    let why = if !hardware::present() {
        "this machine has no Intel PT"
    } else if request.is_partial() {
        "perf knows neither --threads nor --after"
    } else if request.deterministic {
        "perf knows no --deterministic"
    } else {
        "perf knows no --trigger"
    };
    let choice = format!(
        "{why}: the native recorder is used (the same control flow; real time, but programs are 2 to 7 times slower)"
    );
    native::record(request, &Notices::of_chosen(choice, notice))
}
