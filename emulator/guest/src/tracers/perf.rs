//! The host's perf, which records all events of the guest beside the command.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    ptr,
};

use super::{
    Settings,
    program::{FOLDER, PROGRAMS_FOLDER, Program, messages_of},
};
use crate::{
    setup::copy,
    system::{Error, Pipe, pipe},
};

/// Name of perf's recording. It is in the guest's memory until perf ends, because each write to the spool causes events that
/// perf records and writes in turn.
const FILE: &str = "perf.data";
/// Name of the file with perf's own messages, in the spool.
const MESSAGES: &str = "messages";
/// File descriptors of perf's commands and their acknowledgements.
const CONTROL: &str = "fd:3,4";

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
            let Pipe { read: their_control, write: control } = pipe()?;
            let Pipe { read: acknowledged, write: their_acknowledged } = pipe()?;
            let theirs = [
                File::open("/dev/null")?.into(),
                File::create(&messages)?.into(),
                File::options().append(true).open(&messages)?.into(),
                their_control,
                their_acknowledged,
            ];
            let arguments = arguments(settings);
            let program = Program {
                root,
                path,
                arguments: &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
                environment: &[c"PERF_CONFIG=/dev/null", c"HOME=/nonexistent"],
                binds: &[],
            };
            let pid = program.start(theirs)?;
            Ok(Perf { pid, control: control.into(), acknowledged: acknowledged.into(), spool })
        };
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
            let messages = messages_of(&format!("{}/{MESSAGES}", self.spool));
            Error::of(format!("perf ended before the command did; it says: {messages}"))(error)
        })
    }
}

/// Returns perf's arguments. Without build ids, for which perf would read every program that ran.
fn arguments(settings: &Settings) -> Vec<String> {
    // perf wants a number of pages that is a power of two.
    let pages = (settings.buffer / 4).max(1).next_power_of_two().to_string();
    let output = format!("{PROGRAMS_FOLDER}/{FILE}");
    let mut arguments = vec!["record", "--all-cpus", "--no-buildid", "--no-buildid-cache", "--no-bpf-event"];
    arguments.extend(["--delay", "-1", "--control", CONTROL, "--mmap-pages", &pages, "--output", &output]);
    for event in &settings.events {
        arguments.extend(["--event", event, "--exclude-perf"]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}
