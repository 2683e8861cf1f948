//! Why a machine ended before the recorded command did.

use std::{fs, path::Path, process::ExitStatus};

use super::guest::{CONSOLE, MESSAGES};

/// Why the recorder ended a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A signal was repeated.
    Signal,
    /// The disk is full but for this number of bytes.
    Disk(u64),
}

/// How a machine ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// QEMU's own status.
    pub(super) status: ExitStatus,
    /// Whether the recorder ended it.
    pub(super) stop: Option<Stop>,
}

impl Ended {
    /// The reason, in a sentence. `failed` is why the plugin could not write, `is_complete` whether it wrote its account.
    pub(super) fn reason(&self, spool: &Path, failed: Option<&str>, is_complete: bool) -> String {
        let text = |name: &str| {
            String::from_utf8_lossy(&fs::read(spool.join(name)).unwrap_or_default()).into_owned()
        };
        let console = text(CONSOLE);
        let folder = spool.parent().unwrap_or(spool).display();
        if let Some(failed) = failed {
            return format!("nothing more could be written to {folder}: {failed}");
        }
        if let Some(panic) = panic_of(&console) {
            return panic;
        }
        if let Some(Stop::Disk(free)) = self.stop {
            return format!("the disk is full: {} MiB are left for {folder}", free >> 20);
        }
        if !is_complete {
            let messages = text(MESSAGES);
            let last = last_line(&messages).map_or_else(String::new, |line| format!("; it says: {line}"));
            return format!("QEMU ended ({}){last}", self.status);
        }
        if self.stop == Some(Stop::Signal) {
            return match complaint_of(&console) {
                Some(complaint) => format!("a signal ended the machine; its kernel said: {complaint}"),
                None => "a signal ended the machine".to_owned(),
            };
        }
        let error = text("error");
        if !error.trim().is_empty() {
            return format!("the guest's first process failed: {}", error.trim());
        }
        match complaint_of(&console).or_else(|| last_line(&console)) {
            Some(line) => format!("the guest ended; its kernel's last words: {line}"),
            None => "the guest ended".to_owned(),
        }
    }
}

/// The reason that a kernel gives for its panic, as a sentence.
fn panic_of(console: &str) -> Option<String> {
    let mut lines = console.lines().map(message);
    let reason = lines.find_map(|line| line.strip_prefix("Kernel panic - not syncing: "))?;
    Some(match complaint_of(console) {
        Some(complaint) => format!("the guest's kernel panicked: {reason} ({complaint})"),
        None => format!("the guest's kernel panicked: {reason}"),
    })
}

/// The first message of a kernel about a fault, or about a processor or thread that hangs.
fn complaint_of(console: &str) -> Option<&str> {
    const BEGINS: [&str; 8] = [
        "BUG: ",
        "watchdog: ",
        "kernel BUG at ",
        "general protection fault",
        "Oops: ",
        "INFO: task ",
        "rcu: INFO: ",
        "NMI watchdog: ",
    ];
    console.lines().map(message).find(|line| BEGINS.iter().any(|begin| line.starts_with(begin)))
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().map(message).rfind(|line| !line.is_empty())
}

/// A line without its time.
fn message(line: &str) -> &str {
    let line = line.trim();
    let after = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    after.filter(|(time, _)| time.trim().parse::<f64>().is_ok()).map_or(line, |(_, message)| message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const CRASH: &str = "[    2.000000] sysrq: Trigger a crash\r\n\
                         [   17.495489] Kernel panic - not syncing: sysrq triggered crash\r\n\
                         [   17.495500] CPU: 0 PID: 78 Comm: sh Not tainted 6.1.0-50-amd64\r\n\
                         [   17.501923] Kernel Offset: disabled\r\n";
    const FAULT: &str = "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000008\n\
                         [    1.1] Oops: 0002 [#1] PREEMPT SMP\n\
                         [    1.2] Kernel panic - not syncing: Fatal exception\n";

    #[test]
    fn a_panic_is_quoted_with_what_led_to_it() {
        assert_eq!(panic_of(CRASH).unwrap(), "the guest's kernel panicked: sysrq triggered crash");
        let expected = "the guest's kernel panicked: Fatal exception (BUG: kernel NULL pointer dereference, address: \
                        0000000000000008)";
        assert_eq!(panic_of(FAULT).unwrap(), expected);
        assert_eq!(panic_of("[ 1.0] all is well\n"), None);
    }

    #[test]
    fn the_reason_names_what_ended_the_machine() {
        let spool = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(spool.path().join(name), text).unwrap();
        let ended = |status: i32, stop| Ended { status: ExitStatus::from_raw(status), stop };
        let complete = |ended: Ended| ended.reason(spool.path(), None, true);
        let cut_short = |ended: Ended| ended.reason(spool.path(), None, false);
        write(MESSAGES, "thread 'x' panicked at emulator/src/block.rs:1:\nindex out of bounds\n");
        let killed = cut_short(ended(9, None));
        assert_eq!(killed, "QEMU ended (signal: 9 (SIGKILL)); it says: index out of bounds");
        write(
            CONSOLE,
            "[    9.5] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [sh:78]\n[   10.0] Modules linked in:\n",
        );
        let hung = complete(ended(0, Some(Stop::Signal)));
        assert!(
            hung.starts_with("a signal ended the machine; its kernel said: watchdog: BUG: soft lockup"),
            "{hung}"
        );
        let full = complete(ended(0, Some(Stop::Disk(3 << 20))));
        assert!(full.starts_with("the disk is full: 3 MiB are left for "), "{full}");
        let is_complete = true;
        let failed = ended(0, None).reason(spool.path(), Some("No space left on device"), is_complete);
        assert!(
            failed.starts_with("nothing more could be written to ")
                && failed.ends_with(": No space left on device")
        );
        write(CONSOLE, CRASH);
        assert_eq!(complete(ended(0, None)), panic_of(CRASH).unwrap());
    }
}
