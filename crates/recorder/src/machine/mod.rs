//! Records with a whole machine: runs QEMU with a plugin and a small guest, then converts its spool to a perf.data.
//!
//! ```text
//! kernel, initramfs, host's root (read-only) ──► QEMU, plugin ──► trace, code, what really ran ─┐
//!                        guest's first process ──► perf records, symbols, status ──────────────┴► perf.data
//! ```

mod btf;
mod code;
mod collect;
mod disk;
mod encoded;
mod ended;
mod files;
mod guest;
mod initramfs;
mod kallsyms;
mod kind;
mod lttng;
mod maps;
mod memory;
mod modules;
mod spinning;
mod switches;
mod sysroot;
mod tracers;
mod user_code;

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{ffi::OsStringExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::ExitStatus,
};

use hodo_emulator::{
    Target,
    machine::{
        Privilege, Settings, spool, syscall_prefix, ticks_per_second,
        trigger::{Latency, Limit, Trigger},
    },
};

use crate::{Beside, Engine, Error, Outcome, Request, Tracer, emulate, event::Event, filter, trigger, units};
use collect::{Collected, Spool, System};
use memory::Memory;

/// The default period of MTC packets is long: the emulated processor is slow, and most of the trace would otherwise be
/// time.
const MTC_PERIOD: u8 = 9;

/// Times in a second of the trace of an Arm or RISC-V machine, about.
const TIMES_PER_SECOND: u64 = 100_000;

/// If this variable is set, the spool stays: a folder `.hodo-…` in the recording's folder.
const KEEP_SPOOL: &str = "HODO_KEEP_SPOOL";

/// If this variable is set, QEMU executes one instruction per block, and its own log of them goes to the spool.
const LOG: &str = "HODO_QEMU_LOG";

pub(crate) fn record(request: &Request) -> Result<Outcome, Error> {
    let (target, sysroot) = target(request)?;
    let (event, privilege) = event(request, target)?;
    refuse(request, target, privilege)?;
    let files = files::Files::find(kind::of(target))?;
    let engine = files.version()?;
    let plugin = emulate::find_plugin()?;
    let mut folder = emulate::spool(&request.output)?;
    // The judges inspect the spool.
    let is_kept = std::env::var_os(KEEP_SPOOL).is_some();
    folder.disable_cleanup(is_kept);
    let log = std::env::var_os(LOG).is_some();
    let modules = btf::module_layout(&files.kernel);
    let settings = Settings { modules, ..settings(request, target, &event, privilege, log)? };
    let host = host(folder.path());
    let tracers = tracers::settings(request, &host, &files.lttng)?;
    let prepared = settings.save(folder.path()).and_then(|()| {
        fs::write(folder.path().join("tracers"), tracers)?;
        prepare(request, &files, folder.path(), sysroot.is_some())
    });
    prepared.map_err(Error::file(folder.path()))?;
    let memory = Memory::new(files.kind.memory).map_err(Error::file(folder.path()))?;
    let (pace, nested) = (pace(request, log), request.nested);
    let ended = guest::run(&files, &plugin, folder.path(), &memory, sysroot.as_deref(), pace, nested)?;
    if let Ok(name) = fs::read_to_string(folder.path().join(spool::REFUSED)) {
        return Err(unknown_function(request, target, &name));
    }
    let status = status(folder.path(), &request.command)?;
    let is_ring = settings.ring.is_some();
    let system = System { target, init: files.init.clone(), sysroot };
    let mut recording = match Collected::read(folder.path(), engine, system, &memory, is_ring) {
        Ok(recording) if recording.cpus() > 0 => recording,
        Ok(_) => return Err(nothing_recorded(folder.path(), ended.status)),
        Err(_) if status.is_none() => return Err(nothing_recorded(folder.path(), ended.status)),
        Err(error) => return Err(error),
    };
    if status.is_none() || recording.failed().is_some() {
        recording.set_end(ended.reason(folder.path(), recording.failed(), recording.is_complete()));
    }
    let spool = Spool { folder: folder.path(), is_kept };
    recording.encode(spool).map_err(Error::file(folder.path()))?;
    let command: Vec<Vec<u8>> =
        request.recorded_by.iter().map(|argument| argument.clone().into_vec()).collect();
    let bytes = emulate::write(&request.output, |out| {
        recording.write(spool, out, &event, &settings, &host, &command)
    })?;
    let mut warnings = recording.warnings();
    warnings.extend(fs::read_to_string(folder.path().join("warning")));
    warnings.extend(spinning::warning(&recording, request.counts_time));
    let (beside, warnings_beside) = beside(request, &recording, folder.path());
    warnings.extend(warnings_beside);
    Ok(Outcome {
        engine: Engine::Machine,
        // If the guest was ended: as if the signal had ended the command.
        status: status.unwrap_or(ExitStatus::from_raw(signal_hook::consts::SIGTERM)),
        instructions: Some(recording.instructions()),
        threads: None,
        snapshots: (!settings.triggers.is_empty()).then(|| recording.snapshots()),
        bytes,
        beside,
        warnings,
    })
}

/// Writes what the guest needs; `has_sysroot`: files of another system hide those of this one.
fn prepare(request: &Request, files: &files::Files, spool: &Path, has_sysroot: bool) -> io::Result<()> {
    fs::write(spool.join("request"), guest::request(&request.command)?)?;
    if has_sysroot {
        fs::write(spool.join("sysroot"), "")?;
    }
    let lttng = match request.with.contains(&Tracer::Lttng) {
        true => lttng::modules(&files.lttng, &tracers::events(request))?,
        false => Vec::new(),
    };
    let archive = initramfs::build(&files.init, &files.modules, request.nested, &lttng)?;
    fs::write(guest::initrd(spool), archive)
}

fn pace(request: &Request, log: bool) -> guest::Pace {
    if request.counts_time {
        guest::Pace::Counted
    } else if log {
        guest::Pace::OneByOne
    } else {
        guest::Pace::Free
    }
}

/// Returns what the plugin is to trace.
fn settings(
    request: &Request,
    target: Target,
    event: &Event,
    privilege: Privilege,
    log: bool,
) -> Result<Settings, Error> {
    Ok(Settings {
        psb_period: event.psb_bytes(),
        tsc: event.tsc,
        mtc_period: event.mtc.then_some(event.mtc_period),
        cyc_threshold: event.cyc.then(|| event.cyc_cycles()),
        time_every: (target != Target::X86_64)
            .then(|| ticks_per_second(target, request.counts_time) / TIMES_PER_SECOND),
        overflow: request.overflow.clone(),
        return_compression: !event.no_return_compression,
        privilege,
        filter: request.filter.as_deref().map_or_else(|| Ok(Vec::new()), filter::parts)?,
        process: request.process.clone(),
        ring: ring(request, event)?,
        triggers: request.triggers.clone(),
        counts_time: request.counts_time,
        witness: request.witness,
        log,
        modules: None,
    })
}

/// Writes the software traces of the run beside its recording. Returns them, and warnings.
fn beside(request: &Request, recording: &Collected, spool: &Path) -> (Vec<Beside>, Vec<String>) {
    let (mut beside, mut warnings) = (Vec::new(), Vec::new());
    for &tracer in &request.with {
        match recording.beside(tracer, request, spool) {
            Ok((written, warning)) => {
                beside.push(written);
                warnings.extend(warning);
            }
            // The recording of Intel PT is complete without it.
            Err(error) => warnings.push(error.to_string()),
        }
    }
    (beside, warnings)
}

/// The guest's name, which is new in each boot. Two traces have one clock only if it is the same in both.
fn host(spool: &Path) -> String {
    let random = spool.file_name().unwrap_or_default().to_string_lossy();
    format!("machine-{}", random.trim_start_matches(".hodo-"))
}

/// What to do where the emulated processor is missing.
pub(crate) fn offer() -> &'static str {
    match files::Files::find(kind::of(Target::X86_64)) {
        Ok(_) => "record a whole emulated machine, kernel included, with --engine machine: it is set up here",
        Err(_) => {
            "record a whole emulated machine, kernel included, with --engine machine, after cargo xtask setup --machine"
        }
    }
}

/// The processor of the machine, that of the command unless the request names one, and the folder with the libraries of its
/// programs.
fn target(request: &Request) -> Result<(Target, Option<PathBuf>), Error> {
    let program = emulate::find_program(&request.command).ok();
    let own = program.as_ref().map(|program| program.target);
    let target = request.target.or(own).unwrap_or_default();
    let sysroot = match program.filter(|program| program.target == target) {
        Some(program) => emulate::foreign::sysroot(request, &program)?,
        None => request.sysroot.clone(),
    };
    match own.filter(|&own| own != target && sysroot.is_none()) {
        None => Ok((target, sysroot)),
        Some(own) => Err(Error::Missing(format!(
            "the command is a program for {}, and a machine for {} can't execute it",
            own.name(),
            target.name()
        ))),
    }
}

/// Rejects what only machines for x86 do.
fn refuse_for_others(request: &Request, target: Target) -> Result<(), Error> {
    let wrong = [
        (!request.events.is_empty(), "-e is for Intel PT"),
        (request.nested, "--nested needs a machine for x86_64"),
        (
            request.with.iter().any(|&tracer| tracer != Tracer::Ftrace),
            "--with perf and --with lttng need a machine for x86_64; --with ftrace works",
        ),
    ];
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, why)) => Err(Error::Missing(format!("{why}, and this one is for {}", target.name()))),
        None => Ok(()),
    }
}

/// Rejects options of other engines.
fn refuse(request: &Request, target: Target, privilege: Privilege) -> Result<(), Error> {
    if target != Target::X86_64 {
        refuse_for_others(request, target)?;
    } else if request.sysroot.is_some() {
        let why = "--sysroot is for programs of other processors, and this machine is for x86_64";
        return Err(Error::Missing(why.to_owned()));
    }
    let is_part = privilege != Privilege::All
        || request.filter.is_some()
        || request.process.is_some()
        || request.snapshot.is_some()
        || request.overflow.is_some();
    if request.nested && is_part {
        let why = "--nested records all of the machine, without --kernel, --user, --filter, --process, --snapshot and \
                   --overflow";
        return Err(Error::Missing(why.to_owned()));
    }
    if request.snapshot.is_none() && !request.triggers.is_empty() {
        return Err(Error::Missing("--trigger needs --snapshot".to_owned()));
    }
    let needs_one_processor = |trigger: &&Trigger| {
        matches!(trigger.limit, Limit::Instructions(_)) && trigger.latency != Latency::InterruptsOff
    };
    if !request.counts_time
        && let Some(wrong) = request.triggers.iter().find(needs_one_processor)
    {
        let why = "a limit in instructions needs --icount, so that there is one processor; only interrupts-off takes one \
                   without it";
        return Err(trigger::wrong(wrong, None, why.to_owned()).into());
    }
    Ok(())
}

/// The most bytes to keep of each processor's trace; they lie in memory.
const LARGEST_RING: u64 = 32 << 20;
/// The fewest periods of PSB to keep: a snapshot begins with a PSB, so what precedes the first is lost.
const LEAST_PSB_PERIODS: u64 = 4;

/// The number of bytes to keep of each processor's trace, if not all are kept.
fn ring(request: &Request, event: &Event) -> Result<Option<u64>, Error> {
    let Some(size) = request.snapshot else { return Ok(None) };
    let size = size.max(emulate::SMALLEST_SNAPSHOT).max(LEAST_PSB_PERIODS * event.psb_bytes());
    match size <= LARGEST_RING {
        true => Ok(Some(size)),
        false => Err(Error::Missing("--snapshot of a machine keeps at most 32M".to_owned())),
    }
}

/// The error that the guest's kernel has no function with this name.
fn unknown_function(request: &Request, target: Target, name: &str) -> Error {
    let reason = format!(
        "the guest's kernel has no function {name}; a function of a program needs its file: filter FUNCTION @ FILE"
    );
    let wanted = name.strip_prefix(syscall_prefix(target)).unwrap_or(name);
    if let Some(wrong) = request.triggers.iter().find(|trigger| trigger.text.contains(wanted)) {
        let what = if wanted == name { "function" } else { "system call" };
        let why = format!("the guest's kernel has no {what} {wanted}");
        return trigger::wrong(wrong, Some(wanted), why).into();
    }
    match &request.filter {
        Some(filter) if filter.contains(name) => Error::Filter { filter: filter.clone(), reason },
        _ => Error::Missing(format!(
            "--process and --trigger can't be followed: the guest's kernel has no function {name}"
        )),
    }
}

/// The event, and the recorded code: from its modifier, or from the options.
fn event(request: &Request, target: Target) -> Result<(Event, Privilege), Error> {
    if target != Target::X86_64 {
        return Ok((units::machine_event(target), request.privilege));
    }
    let default = Event { text: "intel_pt//".to_owned(), mtc_period: MTC_PERIOD, ..Event::default() };
    let (event, modifier) = match request.event() {
        Some(text) => Event::parse_with_modifier(text, default)?,
        None => (default, String::new()),
    };
    let wrong = |reason: &str| Error::Event { event: event.text.clone(), reason: reason.to_owned() };
    if event.cyc && !request.counts_time {
        return Err(wrong(
            "cyc: an emulated machine has no cycles, and its time is that of the machine it runs on; with --icount an \
             instruction is a cycle",
        ));
    }
    let privilege = match (modifier.as_str(), request.privilege) {
        ("" | "uk" | "ku", privilege) => privilege,
        ("u", Privilege::All | Privilege::User) => Privilege::User,
        ("k", Privilege::All | Privilege::Kernel) => Privilege::Kernel,
        ("u" | "k", _) => return Err(wrong("its modifier contradicts --kernel or --user")),
        _ => return Err(wrong("its modifier is none of u, k and uk")),
    };
    Ok((event, privilege))
}

/// Returns the command's exit status; `None` if the guest did not report it.
fn status(spool: &Path, command: &[OsString]) -> Result<Option<ExitStatus>, Error> {
    let text = fs::read_to_string(spool.join("status")).unwrap_or_default();
    let Some((kind, number)) = text.trim().split_once(' ') else { return Ok(None) };
    let number: i32 = number.parse().unwrap_or(0);
    match kind {
        "exit" => Ok(Some(ExitStatus::from_raw((number & 0xff) << 8))),
        "signal" => Ok(Some(ExitStatus::from_raw(number))),
        _ => Err(Error::Command {
            command: command.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            reason: format!(
                "can't be executed in the machine: {}",
                std::io::Error::from_raw_os_error(number)
            ),
        }),
    }
}

/// The error of a machine whose QEMU ended without a recording.
fn nothing_recorded(spool: &Path, ended: ExitStatus) -> Error {
    Error::Missing(format!("nothing was recorded: QEMU ended ({ended}){}", last_messages(spool)))
}

/// Lines of a message that an error quotes.
const LAST_LINES: usize = 5;

/// The last messages of the guest and QEMU, if any.
fn last_messages(spool: &Path) -> String {
    let last = |name: &str| {
        let text = fs::read(spool.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let lines = lines[lines.len().saturating_sub(LAST_LINES)..].join("; ");
        (!lines.is_empty()).then_some(lines)
    };
    let [error, messages, console] = ["error", guest::MESSAGES, guest::CONSOLE].map(last);
    let parts = [("the guest says", error), ("QEMU says", messages), ("the console says", console)];
    let parts = parts.into_iter().filter_map(|(who, what)| Some(format!("; {who}: {}", what?)));
    parts.collect()
}
