//! A session of LTTng in user space, with daemons of its own.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{Outcome, command};

/// Far longer than a daemon takes to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session that records the events of `lttng_ust_tracef`. Its drop ends it.
pub struct Session {
    folder: PathBuf,
    daemon: Child,
}

impl Session {
    /// Starts a session daemon and a session. `folder` becomes the home of LTTng, and is writable for everyone.
    ///
    /// # Errors
    /// A program of LTTng is missing or fails.
    pub fn start(folder: &Path) -> Outcome<Session> {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o777))?;
        let mut daemon = unprivileged("lttng-sessiond", folder)?;
        daemon.arg("--no-kernel").stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = daemon.spawn().map_err(|error| format!("can't start lttng-sessiond: {error}"))?;
        let session = Session { folder: folder.to_owned(), daemon };
        let begin = Instant::now();
        while session.lttng("list").is_err() {
            if begin.elapsed() > PATIENCE {
                return Err("lttng-sessiond does not answer".into());
            }
            thread::sleep(Duration::from_millis(100));
        }
        let output = format!("create costs --output={}", folder.join("events").display());
        for arguments in [&output, "enable-event -u lttng_ust_tracef:*", "start"] {
            session.lttng(arguments)?;
        }
        Ok(session)
    }

    /// A command that this session traces.
    ///
    /// # Errors
    /// The user of this process is unknown.
    pub fn command(&self, program: impl AsRef<Path>) -> Outcome<Command> {
        let mut command = unprivileged(program, &self.folder)?;
        command.env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
        Ok(command)
    }

    fn lttng(&self, arguments: &str) -> Outcome {
        let mut lttng = self.command("lttng")?;
        lttng.arg("-n").args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
        command::quietly(&mut lttng)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The daemon ends its session, and has to end itself as other processes wait for it.
        let _ = self.lttng("destroy --no-wait costs");
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
    }
}

/// A command that does not run as root, whose daemons are the machine's own.
fn unprivileged(program: impl AsRef<Path>, home: &Path) -> Outcome<Command> {
    let mut command = Command::new(program.as_ref());
    if fs::metadata("/proc/self")?.uid() == 0 {
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program.as_ref());
    }
    command.env("HOME", home).env("LTTNG_HOME", home);
    Ok(command)
}
