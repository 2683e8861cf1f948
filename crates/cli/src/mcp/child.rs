//! A call: `hodo` as a process of its own, whose output is bounded.

use std::{
    env,
    ffi::OsString,
    io::{self, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::annotate::SOURCE_FOLDERS;

/// The most bytes of output and of messages that are kept.
const MOST_OUTPUT: u64 = 16 << 20;
const MOST_MESSAGES: u64 = 1 << 16;
/// How often a call is looked after.
const PAUSE: Duration = Duration::from_millis(10);

/// What a call printed.
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) messages: String,
    pub(super) succeeded: bool,
}

/// Runs `hodo` with these arguments, until it ends, `timeout` is over, or `stop` is set. It reads sources in `folders` only.
pub(super) fn run(words: &[String], folders: &[PathBuf], timeout: Duration, stop: &AtomicBool) -> Outcome {
    start(words, folders, timeout, stop).unwrap_or_else(|error| Outcome {
        text: String::new(),
        messages: format!("hodo could not be started: {error}"),
        succeeded: false,
    })
}

fn start(words: &[String], folders: &[PathBuf], timeout: Duration, stop: &AtomicBool) -> io::Result<Outcome> {
    let folders = env::join_paths(folders).unwrap_or_else(|_| OsString::new());
    let mut command = Command::new(env::current_exe()?);
    command.args(words).env(SOURCE_FOLDERS, folders);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (text, messages, ended) = thread::scope(|scope| {
        let text = scope.spawn(|| read(stdout, MOST_OUTPUT));
        let messages = scope.spawn(|| read(stderr, MOST_MESSAGES));
        let ended = wait(&mut child, timeout, stop);
        (text.join().unwrap_or_default(), messages.join().unwrap_or_default(), ended)
    });
    Ok(match ended? {
        Some(succeeded) => Outcome { text, messages, succeeded },
        None => {
            let messages =
                format!("{messages}the call took longer than {} s and was stopped", timeout.as_secs());
            Outcome { text, messages, succeeded: false }
        }
    })
}

/// Returns whether the child succeeded; `None` if it was stopped.
fn wait(child: &mut Child, timeout: Duration, stop: &AtomicBool) -> io::Result<Option<bool>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if stop.load(Relaxed) || begin.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

/// Reads at most `most` bytes, and passes over the rest.
fn read(stream: Option<impl Read>, most: u64) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut bytes = Vec::new();
    let kept = Read::take(&mut stream, most).read_to_end(&mut bytes);
    let rest = kept.and_then(|_| io::copy(&mut stream, &mut io::sink())).unwrap_or(0);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if rest > 0 {
        text.push_str(&format!("\n({rest} bytes more were left out)\n"));
    }
    text
}
