//! The host's perf, which records all events of the guest beside the command.

use std::{
    ffi::{CStr, CString},
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::{AsRawFd, OwnedFd},
    ptr,
};

use super::Settings;
use crate::{
    setup::copy,
    system::{Error, check, mount, pipe},
};

/// perf's recording is in memory until it ends: perf empties its buffers again and again while there are new events, and
/// each message to the spool makes some.
const FOLDER: &str = "/events";
/// Where perf sees that folder. Nothing else does.
const SEEN: &str = "/run/hodo";
const FILE: &str = "perf.data";
/// Name of the file with perf's own messages, in the spool.
const MESSAGES: &str = "messages";
/// File descriptors of perf's commands and their acknowledgements.
const CONTROL: &str = "fd:3,4";
/// Signals for the command, which init sends to all processes.
const COMMANDS_SIGNALS: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// A running perf.
pub(crate) struct Perf {
    pid: i32,
    control: File,
    acknowledged: File,
    spool: String,
}

impl Perf {
    /// Starts perf, with its events off.
    pub(super) fn open(spool: &str, root: &str, path: &str, settings: &Settings) -> Result<Perf, Error> {
        let open = || {
            let spool = format!("{spool}/events");
            fs::create_dir_all(&spool)?;
            let messages = format!("{spool}/{MESSAGES}");
            let (their_control, control) = pipe()?;
            let (acknowledged, their_acknowledged) = pipe()?;
            let program = CString::new(path)?;
            let arguments = arguments(settings)?;
            let theirs = [
                File::open("/dev/null")?.into(),
                File::create(&messages)?.into(),
                File::options().append(true).open(&messages)?.into(),
                their_control,
                their_acknowledged,
            ];
            let pid = start(root, &program, &arguments, theirs)?;
            Ok(Perf { pid, control: control.into(), acknowledged: acknowledged.into(), spool })
        };
        mount("events", FOLDER, "tmpfs", 0, "")?;
        open().map_err(|error: io::Error| Error::of("perf")(error))
    }

    pub(super) fn start(&mut self) -> Result<(), Error> {
        self.command("enable\n")
    }

    /// Ends perf, which writes the rest of its recording.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        // The answer may be lost, as perf ends.
        let ended = self.command("stop\n");
        // The loop that waits for the command may have reaped it.
        // SAFETY: the status is not asked for.
        let waited = unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
        let copied = copy(&format!("{FOLDER}/{FILE}"), &format!("{}/{FILE}", self.spool));
        if waited == self.pid { copied } else { ended }
    }

    /// Sends a command and waits until perf has executed it, or has ended.
    fn command(&mut self, command: &str) -> Result<(), Error> {
        let mut byte = [0];
        let mut done = self.control.write_all(command.as_bytes());
        while done.is_ok() && byte != *b"\n" {
            done = self.acknowledged.read_exact(&mut byte);
        }
        done.map_err(|error| {
            let said = fs::read_to_string(format!("{}/{MESSAGES}", self.spool)).unwrap_or_default();
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            Error::of(format!("perf ended before the command did; it says: {said}"))(error)
        })
    }
}

/// No build ids: perf would read every program that ran.
fn arguments(settings: &Settings) -> io::Result<Vec<CString>> {
    // perf wants a number of pages that is a power of two.
    let pages = (settings.buffer / 4).max(1).next_power_of_two().to_string();
    let output = format!("{SEEN}/{FILE}");
    let mut arguments =
        vec!["perf", "record", "--all-cpus", "--no-buildid", "--no-buildid-cache", "--no-bpf-event"];
    arguments.extend(["--delay", "-1", "--control", CONTROL, "--mmap-pages", &pages, "--output", &output]);
    for event in &settings.events {
        arguments.extend(["--event", event, "--exclude-perf"]);
    }
    arguments.into_iter().map(|argument| Ok(CString::new(argument)?)).collect()
}

/// Starts a program with these files as its descriptors from 0 on.
fn start(root: &str, program: &CStr, arguments: &[CString], files: [OwnedFd; 5]) -> io::Result<i32> {
    let pointers: Vec<_> = arguments.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    let environment = [c"PERF_CONFIG=/dev/null".as_ptr(), c"HOME=/nonexistent".as_ptr(), ptr::null()];
    let c_root = CString::new(root)?;
    // SAFETY: this process has one thread, so the child may call any function.
    let child = check(i64::from(unsafe { libc::fork() }))?;
    if child != 0 {
        return Ok(child as i32);
    }
    // SAFETY: strings end in NUL, arrays of them in a null pointer, and all of them outlive the calls.
    unsafe {
        // The command must not see the folder.
        libc::unshare(libc::CLONE_NEWNS);
        let is_mounted = mount(FOLDER, &format!("{root}{SEEN}"), "none", libc::MS_BIND, "").is_ok();
        let mut blocked = std::mem::zeroed();
        libc::sigemptyset(&mut blocked);
        COMMANDS_SIGNALS.iter().for_each(|&signal| _ = libc::sigaddset(&mut blocked, signal));
        libc::sigprocmask(libc::SIG_BLOCK, &blocked, ptr::null_mut());
        // Moved out of the way of the numbers first.
        let moved = files.each_ref().map(|file| libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 16));
        for (file, number) in moved.into_iter().zip(0..) {
            libc::dup2(file, number);
        }
        if is_mounted && libc::chroot(c_root.as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0 {
            libc::execve(program.as_ptr(), pointers.as_ptr(), environment.as_ptr());
        }
        let message = format!("can't be executed: {}\n", io::Error::last_os_error());
        libc::write(2, message.as_ptr().cast(), message.len());
        libc::_exit(127)
    }
}
