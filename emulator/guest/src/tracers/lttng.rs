//! LTTng's kernel tracer: its modules, and the host's LTTng, which runs beside the command.

use std::{
    ffi::CStr,
    fs::{self, File},
    io,
};

use super::{
    Settings,
    program::{FOLDER, PROGRAMS_FOLDER, Program, messages_of},
};
use crate::{setup::copy, system::Error};

/// Name of LTTng's session, of its trace's folder in [`FOLDER`], and of that in the spool.
const NAME: &str = "lttng";
/// Folder of the daemon's sockets.
const SOCKETS: &str = "sockets";
/// Folder of the guest kernel's modules.
const MODULES: &str = "modules";
/// The daemon reads these files with libkmod, and then finds that its modules are loaded.
const INDEXES: [&str; 4] =
    ["modules.dep.bin", "modules.alias.bin", "modules.symbols.bin", "modules.builtin.bin"];
/// An index of libkmod without entries: magic number, version 2.1, no root.
const EMPTY_INDEX: [u8; 12] = [0xb0, 0x07, 0xf4, 0x57, 0, 2, 0, 1, 0, 0, 0, 0];
/// LTTng keeps the name of the current session in its home.
const ENVIRONMENT: [&CStr; 2] = [c"HOME=/run/hodo", c"PATH=/usr/sbin:/usr/bin:/sbin:/bin"];
/// The kernel's release, as in the path of its modules.
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// Sub-buffers of each CPU.
const SUB_BUFFERS: u64 = 4;

/// A session of LTTng.
pub(crate) struct Lttng {
    root: String,
    /// Path of the host's `lttng`.
    client: String,
    /// Where the guest's own modules are looked for.
    modules: String,
    /// The trace's folder in the spool.
    spool: String,
    messages: String,
}

impl Lttng {
    /// Starts the daemon, and makes a session with the requested events.
    pub(super) fn open(spool: &str, root: &str, client: &str, settings: &Settings) -> Result<Lttng, Error> {
        let modules = format!("{FOLDER}/{MODULES}");
        for folder in [&modules, &format!("{FOLDER}/{SOCKETS}")] {
            fs::create_dir_all(folder).map_err(Error::of(folder.as_str()))?;
        }
        for index in INDEXES {
            let path = format!("{modules}/{index}");
            fs::write(&path, EMPTY_INDEX).map_err(Error::of(path))?;
        }
        let release = fs::read_to_string(RELEASE).map_err(Error::of(RELEASE))?;
        let lttng = Lttng {
            root: root.to_owned(),
            client: client.to_owned(),
            modules: format!("/lib/modules/{}", release.trim()),
            spool: format!("{spool}/{NAME}"),
            messages: format!("{spool}/{NAME}-messages"),
        };
        lttng.run(&settings.lttng_daemon, &["--background"])?;
        lttng.client(&["create", NAME, "--output", &format!("{PROGRAMS_FOLDER}/{NAME}")])?;
        let size = (settings.buffer / SUB_BUFFERS).max(4).next_power_of_two();
        let (size, count) = (format!("--subbuf-size={size}K"), format!("--num-subbuf={SUB_BUFFERS}"));
        lttng.client(&["enable-channel", "--kernel", &size, &count, NAME])?;
        let enable = ["enable-event", "--kernel", "--channel", NAME];
        for events in
            [&settings.lttng_events, &settings.lttng_calls].into_iter().filter(|events| !events.is_empty())
        {
            let words: Vec<&str> = enable.into_iter().chain(events.split(' ')).collect();
            lttng.client(&words)?;
        }
        Ok(lttng)
    }

    pub(super) fn start(&self) -> Result<(), Error> {
        self.client(&["start"])
    }

    pub(super) fn stop(&self) -> Result<(), Error> {
        self.client(&["stop"])
    }

    /// Ends the session, which writes the rest of the trace, and copies the trace to the spool.
    pub(super) fn finish(self) -> Result<(), Error> {
        self.client(&["destroy"])?;
        copy_folder(&format!("{FOLDER}/{NAME}/kernel"), &self.spool)
    }

    /// A command of LTTng; it does not start a daemon of its own.
    fn client(&self, arguments: &[&str]) -> Result<(), Error> {
        self.run(&self.client, &[&["--no-sessiond"], arguments].concat())
    }

    /// Runs a program to its end.
    fn run(&self, path: &str, arguments: &[&str]) -> Result<(), Error> {
        let run = || -> io::Result<i32> {
            let program = Program {
                root: &self.root,
                path,
                arguments,
                environment: &ENVIRONMENT,
                binds: &[(SOCKETS, "/var/run/lttng"), (MODULES, &self.modules)],
            };
            let messages = || File::options().create(true).append(true).open(&self.messages);
            let pid =
                program.start([File::open("/dev/null")?.into(), messages()?.into(), messages()?.into()])?;
            let mut status = 0;
            // SAFETY: `status` is a valid place for the status.
            match unsafe { libc::waitpid(pid, &mut status, 0) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(status),
            }
        };
        match run() {
            Ok(0) => Ok(()),
            Ok(_) => {
                let what = format!("{path} {}", arguments.join(" "));
                Err(Error::of(what)(io::Error::other(messages_of(&self.messages))))
            }
            Err(error) => Err(Error::of(path)(error)),
        }
    }
}

/// Copies the files of a folder, and those of the folders in it.
fn copy_folder(from: &str, to: &str) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::of(to))?;
    for entry in fs::read_dir(from).map_err(Error::of(from))?.flatten() {
        let name = entry.file_name();
        let [from, to] = [from, to].map(|folder| format!("{folder}/{}", name.display()));
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => copy_folder(&from, &to)?,
            false => copy(&from, &to)?,
        }
    }
    Ok(())
}
