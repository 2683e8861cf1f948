//! Records an emulated board: slaves in QEMU, whose RAM is shared with a master on this machine.
//!
//! ```text
//! master (daemon) ──a byte into the UART──► slaves (QEMU, bare metal)
//!    │ CTF            RAM, a file: requests, answers, a ring of packets      │
//!    ▼                                                                       ▼
//! FOLDER/master/        FOLDER/slave-N/ ◄── the master drains the rings ── barectf
//! ```

mod files;
mod hardware;
mod processors;
mod settings;

use std::{
    fs,
    io::{self, BufRead, BufReader, Read},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

pub use settings::{BoardSettings, Protocol};

use crate::{Engine, Error, Outcome, Request, supervise::Interrupt};
use files::Kind;
use processors::Processors;

/// Memory size of a slave, as in `embedded/board/shared.h`.
const RAM_BYTES: u64 = 16 << 20;
/// Interval between looks at the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) fn record(request: &Request) -> Result<Outcome, Error> {
    let settings = &request.board;
    let unsupported = [
        (!request.events.is_empty(), "-e"),
        (request.filter.is_some(), "--filter"),
        (request.snapshot.is_some(), "--snapshot"),
        (request.overflow.is_some(), "--overflow"),
    ];
    if let Some((_, option)) = unsupported.iter().find(|(is_given, _)| *is_given) {
        return Err(Error::Missing(format!("--engine board does not support {option}, only --board")));
    }
    let [folder] = request.command.as_slice() else {
        return Err(Error::Missing("a board is recorded into a folder: name one, and no command".to_owned()));
    };
    let folder = PathBuf::from(folder);
    let kinds = [(settings.slaves, Kind::Riscv64), (settings.cortex_m3, Kind::CortexM3)];
    let kinds: Vec<Kind> = kinds.iter().filter(|(count, _)| *count > 0).map(|&(_, kind)| kind).collect();
    let programs = files::find(&kinds)?;
    refuse_taken(&folder)?;
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fresh = temporary(parent)?;
    // A file system in memory, if there is one.
    let memory = Path::new("/dev/shm");
    let spool = temporary(if memory.is_dir() { memory } else { parent })?;
    if spool.path().to_string_lossy().contains([' ', ',']) {
        let reason = format!(
            "{}: the path of a board's memory must contain no space or comma",
            spool.path().display()
        );
        return Err(Error::Missing(reason));
    }
    let output = run(settings, &programs, fresh.path(), spool.path())?;
    let mut warnings = warnings(&output);
    if settings.hardware {
        for slave in 0..settings.count() {
            let of_kind = (slave, kind_of(settings, slave));
            warnings.extend(hardware::write(spool.path(), of_kind, &programs, fresh.path())?);
        }
    }
    let bytes = size(fresh.path()).map_err(Error::file(fresh.path()))?;
    _ = fs::remove_dir(&folder);
    fs::rename(fresh.keep(), &folder).map_err(Error::file(&folder))?;
    Ok(Outcome {
        engine: Engine::Board,
        status: ExitStatus::from_raw(0),
        instructions: None,
        threads: None,
        snapshots: None,
        bytes,
        beside: Vec::new(),
        warnings,
    })
}

/// Rejects a folder that is not empty.
fn refuse_taken(folder: &Path) -> Result<(), Error> {
    let taken = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    if taken {
        let reason = format!("{}: a board is recorded into a folder that is new or empty", folder.display());
        return Err(Error::Missing(reason));
    }
    Ok(())
}

fn temporary(parent: &Path) -> Result<tempfile::TempDir, Error> {
    let made = std::path::absolute(parent).and_then(|parent| {
        tempfile::Builder::new().prefix(".hodo-").permissions(permissions()).tempdir_in(parent)
    });
    made.map_err(Error::file(parent))
}

/// Returns the permissions of a folder that others may read, as far as the user's mask allows.
fn permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

/// Runs slaves and master to the end; returns the master's output.
fn run(settings: &BoardSettings, programs: &Path, out: &Path, spool: &Path) -> Result<String, Error> {
    for slave in 0..settings.count() {
        let ram = settings::ram(spool, slave);
        fs::File::create(&ram).and_then(|ram| ram.set_len(RAM_BYTES)).map_err(Error::file(&ram))?;
    }
    let path = spool.join("settings");
    fs::write(&path, settings.for_master(out, programs, spool)).map_err(Error::file(&path))?;
    let interrupt = Interrupt::watch().map_err(Error::file(&path))?;
    let program = programs.join("hodo-board-master");
    let processors = Processors::find(settings.protocol == Protocol::Polling);
    let mut master = processors.master(&program);
    // Ctrl-C reaches the master through the recorder only.
    master.arg(&path).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(vec![master.spawn().map_err(Error::file(&program))?]);
    let (stdout, stderr) = (running.0[0].stdout.take(), running.0[0].stderr.take());
    let mut stdout = BufReader::new(stdout.ok_or(Error::NoCommand)?);
    let (mut output, mut errors) = (String::new(), String::new());
    // Without this line the master is about to exit.
    if stdout.read_line(&mut output).map_err(Error::file(&program))? > 0 {
        start(settings, &processors, programs, spool, &mut running)?;
    }
    let status = wait(&mut running, &interrupt).map_err(Error::file(&program))?;
    stdout.read_to_string(&mut output).map_err(Error::file(&program))?;
    stderr.map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut errors)).map_err(Error::file(&program))?;
    if status.success() {
        return Ok(output);
    }
    let messages = fs::read_to_string(spool.join("messages")).unwrap_or_default();
    let messages: Vec<&str> = errors.lines().chain(messages.lines()).map(str::trim).collect();
    Err(Error::Missing(format!(
        "the board ended ({status}): {}. After an update, run `cargo xtask setup --board` to rebuild its programs",
        messages.join("; ")
    )))
}

/// The kind of a slave, by its number.
fn kind_of(settings: &BoardSettings, slave: u32) -> Kind {
    if slave < settings.slaves { Kind::Riscv64 } else { Kind::CortexM3 }
}

/// Starts the slaves.
fn start(
    settings: &BoardSettings,
    processors: &Processors,
    programs: &Path,
    spool: &Path,
    running: &mut Running,
) -> Result<(), Error> {
    let messages = fs::File::create(spool.join("messages")).map_err(Error::file(spool))?;
    for slave in 0..settings.count() {
        let kind = kind_of(settings, slave);
        let mut command = processors.emulator(kind.emulator());
        emulator(&mut command, kind, programs, spool, slave);
        if settings.hardware {
            command.arg("-plugin").arg(hardware::prepare(spool, slave)?);
        }
        let messages = messages.try_clone().map_err(Error::file(spool))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages).process_group(0);
        running.0.push(command.spawn().map_err(Error::file(Path::new(kind.emulator())))?);
    }
    Ok(())
}

/// Waits for the master. Ends it if the recorder is interrupted, or if a slave has exited.
fn wait(running: &mut Running, interrupt: &Interrupt) -> io::Result<ExitStatus> {
    let (master, emulators) = running.0.split_first_mut().ok_or(io::ErrorKind::NotFound)?;
    loop {
        if let Some(status) = master.try_wait()? {
            return Ok(status);
        }
        if interrupt.happened() {
            let pid = rustix::process::Pid::from_child(master);
            _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for emulator in &mut *emulators {
            if emulator.try_wait()?.is_some() {
                // The master would wait for ever for a slave to start, or for its answers.
                _ = master.kill();
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The processes of master and emulators, which are killed on drop.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// Adds the arguments of QEMU for a slave.
fn emulator(command: &mut Command, kind: Kind, programs: &Path, spool: &Path, slave: u32) {
    let machine = match kind {
        Kind::Riscv64 => "virt,memory-backend=ram",
        Kind::CortexM3 => "mps2-an385,memory-backend=ram",
    };
    let ram = settings::ram(spool, slave);
    let memory = format!("memory-backend-file,id=ram,size={RAM_BYTES},mem-path={},share=on", ram.display());
    let socket = settings::socket(spool, slave);
    let uart = format!("socket,id=uart,path={},server=on,wait=off", socket.display());
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none"]);
    command.args(["-accel", "tcg,thread=multi", "-machine", machine, "-object", &memory, "-m", "16M"]);
    command.args(["-chardev", &uart, "-serial", "chardev:uart"]);
    if kind == Kind::Riscv64 {
        command.args(["-bios", "none"]);
    }
    command.arg("-kernel").arg(programs.join(kind.program()));
}

/// Returns the total size of the files in a folder.
fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// Returns messages for the user from the master's output, which has a line for each slave, and whether the master had
/// real-time priority.
fn warnings(output: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for line in output.lines() {
        let wrong_rows = number_after("wrong", line);
        if line.starts_with("pictures ") && wrong_rows > 0 {
            warnings
                .push(format!("{wrong_rows} rows of the slaves' pictures are not what the master computes"));
        }
        if line == "realtime 0" {
            let text =
                "the master had no real-time priority, so exchanges took longer while the machine was busy";
            warnings.push(text.to_owned());
        }
        let Some((slave, counts)) = line.split_once(": ") else { continue };
        let (lost, discarded) = (number_after("lost", counts), number_after("discarded", counts));
        if lost > 0 {
            warnings.push(format!("{slave}: {lost} exchanges were not answered in time"));
        }
        if discarded > 0 {
            warnings.push(format!("{slave}: {discarded} events found no room in its ring"));
        }
        if number_after("stopped", counts) == 0 {
            warnings.push(format!("{slave} did not stop when requested: its last packet is missing"));
        }
    }
    warnings
}

/// The number that follows a word of a line; 0 without one.
fn number_after(name: &str, line: &str) -> u64 {
    let mut words = line.split(' ').skip_while(|&word| word != name);
    words.nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_is_reported() {
        let output = "slave 0: exchanges 9 lost 0 packets 3 discarded 0 stopped 1\n\
                    slave 1: exchanges 8 lost 1 packets 3 discarded 7 stopped 0\n\
                    pictures 9 rows wrong 2 shortest_us 1 longest_us 2\nrealtime 0\n";
        let warnings = warnings(output);
        assert_eq!(warnings.len(), 5);
        assert!(warnings[3].starts_with("2 rows"), "{warnings:?}");
        assert_eq!(warnings[0], "slave 1: 1 exchanges were not answered in time");
        assert_eq!(warnings[1], "slave 1: 7 events found no room in its ring");
    }

    #[test]
    fn a_folder_with_something_in_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refuse_taken(folder.path()).is_ok() && refuse_taken(&folder.path().join("new")).is_ok());
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(refuse_taken(folder.path()).is_err() && refuse_taken(&folder.path().join("file")).is_err());
    }
}
