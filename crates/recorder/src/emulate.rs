//! Records with the emulated processor: runs QEMU with a plugin, then converts its spool to a perf.data.

pub(crate) mod foreign;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::BufWriter,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    process::Command,
};

use hodo_emulator::{Launch, Program, Settings, Target, seal::seal};

use crate::{
    Engine, Error, Notices, Outcome, Request, collect, descendants,
    event::Event,
    filter, machine,
    supervise::{self, Interrupt},
    units,
};

/// The begin of the virtual clock: one second, because perf treats a time of 0 as no time.
const CLOCK_START: u64 = 1_000_000_000;
/// The smallest snapshot: a few PSB periods.
pub(crate) const SMALLEST_SNAPSHOT: u64 = 64 << 10;
const PAGE: u64 = 4096;

pub(crate) fn record(request: &Request, notices: &Notices<'_>) -> Result<Outcome, Error> {
    let program = find_program(&request.command)?;
    let target = foreign::check(request, &program)?;
    let event = match request.event() {
        Some(event) => Event::parse(event)?,
        None => units::event(target),
    };
    let qemu = find_in_path(OsStr::new(&target.qemu())).ok_or_else(|| no_qemu(target))?;
    let engine = check_qemu(&qemu, target)?;
    let plugin = find_plugin()?;
    let sysroot = foreign::sysroot(request, &program)?;
    let home = spool(&request.output)?;
    // The spool while threads write to it, and what is sealed of it then.
    let (spool, sealed) = (home.path().join("spool"), home.path().join("sealed"));
    let settings = settings(request, &event, &plugin, sysroot.as_deref())?;
    std::fs::create_dir(&spool).and_then(|()| settings.save(&spool)).map_err(Error::file(&spool))?;
    let sysroot = sysroot.as_deref();
    let launch = Launch { qemu: &qemu, sysroot, plugin: &plugin, spool: &spool, clock: CLOCK_START };
    let (arguments, environment) = launch.command(&program, environment());
    let mut command = Command::new(&qemu);
    command.args(arguments.into_iter().skip(1)).env_clear().envs(environment.iter().filter_map(|variable| {
        let equals = variable.iter().position(|&byte| byte == b'=')?;
        Some((OsStr::from_bytes(&variable[..equals]), OsStr::from_bytes(&variable[equals + 1..])))
    }));
    notices.begin();
    let status = supervise::run(&mut command).map_err(Error::file(&qemu))?;
    let interrupt = Interrupt::watch().map_err(Error::file(&spool))?;
    let running = descendants::wait(&spool, &interrupt, notices.notice);
    let threads = seal(&spool, &sealed, !running.is_empty()).map_err(Error::file(&spool))?;
    let messages = messages(&sealed);
    let recording =
        collect::Collected::read(&sealed, engine, target, &threads, &running, units::Clock::Instructions)?;
    if recording.is_empty() {
        let messages: Vec<_> = messages.into_iter().chain(recording.warnings()).collect();
        let reason =
            if messages.is_empty() { "for the reason above".to_owned() } else { messages.join("; ") };
        return Err(Error::Missing(format!(
            "nothing was recorded: the emulated processor did not start ({reason}), or ended ({status}) before \
             the program's first instruction"
        )));
    }
    let command: Vec<Vec<u8>> =
        request.recorded_by.iter().map(|argument| argument.clone().into_vec()).collect();
    let filter = filter::to_perf_syntax(&settings.filter);
    let bytes = write(&request.output, |out| recording.write(out, &event, &filter, &command))?;
    Ok(Outcome {
        engine: Engine::Emulate,
        status,
        instructions: Some(recording.instructions()),
        threads: Some(recording.threads()),
        snapshots: None,
        bytes,
        beside: Vec::new(),
        warnings: recording.warnings().into_iter().chain(messages).collect(),
    })
}

/// QEMU's messages, except how the program ended, which its status contains.
fn messages(spool: &Path) -> Vec<String> {
    let text = std::fs::read(spool.join(hodo_emulator::messages::FILE)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| !line.starts_with("qemu: uncaught target signal"));
    lines.map(|line| format!("QEMU says: {line}")).collect()
}

/// A temporary folder for the spool, in the folder of the recording.
pub(crate) fn spool(output: &Path) -> Result<tempfile::TempDir, Error> {
    let directory = match output.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let directory = directory.canonicalize().map_err(Error::file(directory))?;
    tempfile::Builder::new().prefix(".hodo-").tempdir_in(&directory).map_err(Error::file(&directory))
}

/// The file of a recording that is not complete yet.
pub(crate) fn partial(output: &Path) -> PathBuf {
    let mut partial = output.to_owned().into_os_string();
    partial.push(".partial");
    partial.into()
}

/// Writes the recording to a temporary file in the same folder, and renames it when it is complete.
pub(crate) fn write(
    output: &Path,
    write: impl FnOnce(BufWriter<File>) -> std::io::Result<()>,
) -> Result<u64, Error> {
    let partial = partial(output);
    let written = File::create(&partial)
        .and_then(|file| write(BufWriter::with_capacity(1 << 20, file)))
        .and_then(|()| std::fs::rename(&partial, output))
        .and_then(|()| std::fs::metadata(output));
    if written.is_err() {
        _ = std::fs::remove_file(&partial);
    }
    Ok(written.map_err(Error::file(output))?.len())
}

fn settings(
    request: &Request,
    event: &Event,
    plugin: &Path,
    sysroot: Option<&Path>,
) -> Result<Settings, Error> {
    Ok(Settings {
        plugin: plugin.as_os_str().as_bytes().to_vec(),
        sysroot: sysroot.map(|sysroot| sysroot.as_os_str().as_bytes().to_vec()),
        psb_period: event.psb_bytes(),
        tsc: event.tsc,
        mtc_period: event.mtc.then_some(event.mtc_period),
        cyc_threshold: event.cyc.then(|| event.cyc_cycles()),
        return_compression: !event.no_return_compression,
        snapshot: request.snapshot.map(|size| size.next_multiple_of(PAGE).max(SMALLEST_SNAPSHOT)),
        filter: request.filter.as_deref().map_or_else(|| Ok(Vec::new()), filter::parse)?,
        overflow: request.overflow.clone(),
    })
}

fn environment() -> Vec<Vec<u8>> {
    let variables = std::env::vars_os().map(|(name, value)| {
        let mut variable = name.into_vec();
        variable.push(b'=');
        variable.extend(value.into_vec());
        variable
    });
    variables.collect()
}

fn no_qemu(target: Target) -> Error {
    let name = target.qemu();
    let otherwise = match target {
        Target::X86_64 => format!("; or {}", machine::offer()),
        Target::Aarch64 | Target::Riscv64 | Target::CortexM => String::new(),
    };
    Error::Missing(format!(
        "{name}, which emulates the processor, is not installed; on Debian 12: apt-get install qemu-user{otherwise}"
    ))
}

/// The name and version of a QEMU that loads plugins.
fn check_qemu(qemu: &Path, target: Target) -> Result<String, Error> {
    let run = |option: &str| {
        let output = Command::new(qemu).arg(option).output().map_err(Error::file(qemu))?;
        Ok::<_, Error>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    if !run("--help")?.contains("-plugin") {
        let otherwise = match target {
            Target::X86_64 => format!("; or {}", machine::offer()),
            Target::Aarch64 | Target::Riscv64 | Target::CortexM => String::new(),
        };
        return Err(Error::Missing(format!(
            "{} loads no plugins, as the qemu-user of Debian 13 and later. What helps: Debian 12's qemu-user 7.2 \
             (unpack its package beside the system's own with dpkg -x, and put its {} first in PATH), or a \
             QEMU 7.2 built with --enable-plugins{otherwise}",
            qemu.display(),
            target.qemu(),
        )));
    }
    let version = run("--version")?;
    let number = version
        .split_whitespace()
        .skip_while(|&word| word != "version")
        .nth(1)
        .unwrap_or("of unknown version");
    Ok(format!("{} {number}", target.qemu()))
}

/// The plugin: named by the environment, or installed with this program.
pub(crate) fn find_plugin() -> Result<PathBuf, Error> {
    const NAME: &str = "libhodo_emulator.so";
    let named = std::env::var_os("HODO_EMULATOR").map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let candidates = match (named, beside) {
        (Some(named), _) => vec![named],
        (None, Some(folder)) => {
            vec![folder.join(NAME), folder.join("../lib/hodo").join(NAME), folder.join("..").join(NAME)]
        }
        (None, None) => Vec::new(),
    };
    let found = candidates.iter().find_map(|candidate| candidate.canonicalize().ok());
    found.ok_or_else(|| {
        let looked_for: Vec<_> = candidates.iter().map(|candidate| candidate.display().to_string()).collect();
        Error::Missing(format!(
            "the emulated processor {NAME} is not there (looked for {}); build it with cargo build --release -p hodo-emulator, \
             or name it in HODO_EMULATOR",
            looked_for.join(", ")
        ))
    })
}

/// The program of a command, found as a shell finds it.
pub(crate) fn find_program(command: &[OsString]) -> Result<Program, Error> {
    let Some(name) = command.first() else { return Err(Error::NoCommand) };
    let wrong = |reason: &str| Error::Command {
        command: name.to_string_lossy().into_owned(),
        reason: reason.to_owned(),
    };
    let path = match name.as_bytes().contains(&b'/') {
        true => PathBuf::from(name),
        false => find_in_path(name).ok_or_else(|| wrong("command not found"))?,
    };
    let arguments = command.iter().map(|argument| argument.clone().into_vec()).collect();
    match Program::find(&path, arguments) {
        Ok(Some(program)) => Ok(program),
        Ok(None) if !path.exists() => Err(wrong("no such file")),
        Ok(None) => {
            Err(wrong("can't be executed: no permission, or neither an ELF program nor a script with #!"))
        }
        Err(reason) => Err(wrong(&format!("can't be emulated: {reason}"))),
    }
}

/// A folder that `cargo xtask setup` fills: named by a variable, or this one of the user's cache.
pub(crate) fn set_up_folder(variable: &str, in_cache: &str) -> Option<PathBuf> {
    let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
    path(variable).or_else(|| Some(cache()?.join(in_cache)))
}

/// The file of a program in `PATH`.
pub(crate) fn find_in_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())?;
    std::path::absolute(found).ok()
}
