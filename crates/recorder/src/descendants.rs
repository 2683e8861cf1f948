//! Recorded processes that continue after the command has ended.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use hodo_emulator::Launch;

use crate::supervise::Interrupt;

/// Interval between checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// No message before this time, so that processes that end soon cause none.
const QUIET_TIME: Duration = Duration::from_millis(300);
/// The most checks, one per millisecond, for the program that a process is about to execute.
const EXECVE_CHECKS: u32 = 1000;
/// The maximum length of the emulator's options; paths are shorter.
const OPTIONS: u64 = 32 << 10;

/// Waits until the processes that are recorded into `spool` have ended, or the user ends the wait; returns those that
/// still run. Reports a long wait to `notice`.
pub(crate) fn wait(spool: &Path, interrupt: &Interrupt, notice: &dyn Fn(&str)) -> BTreeSet<u32> {
    let start = Instant::now();
    let mut silent = true;
    loop {
        let running = running(spool);
        if running.is_empty() || interrupt.happened() {
            return running;
        }
        if silent && start.elapsed() >= QUIET_TIME {
            silent = false;
            let who = match running.len() {
                1 => "a process that it started goes".to_owned(),
                count => format!("{count} processes that it started go"),
            };
            notice(&format!(
                "the command has ended; {who} on and will be recorded to the end. Ctrl-C ends the recording now"
            ));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The processes that are recorded into `spool`.
fn running(spool: &Path) -> BTreeSet<u32> {
    let (mut recorded, mut executing) = find_recorded(spool);
    // The program that a process executes is known after a moment, even on a busy machine.
    for _ in 0..EXECVE_CHECKS {
        if !recorded.is_empty() || !executing {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        (recorded, executing) = find_recorded(spool);
    }
    if !recorded.is_empty() {
        return recorded;
    }
    // A process that ends before the list reaches it may have forked another behind the read position. The next list
    // contains that one.
    find_recorded(spool).0
}

/// The processes that are recorded into `spool`; and whether one is in the middle of an execve, after which it may be
/// recorded too.
fn find_recorded(spool: &Path) -> (BTreeSet<u32>, bool) {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let (mut recorded, mut executing) = (BTreeSet::new(), false);
    for process in numbers {
        match is_recorded(process, spool) {
            Some(true) => _ = recorded.insert(process),
            Some(false) => {}
            None => executing = true,
        }
    }
    (recorded, executing)
}

/// Whether a process is the emulator and records into `spool`: the program can't change the emulator's own command
/// line. `None` in the middle of an execve: the process then has an executable file but no command line. Ended processes
/// and kernel threads have neither.
fn is_recorded(process: u32, spool: &Path) -> Option<bool> {
    let mut line = Vec::new();
    let Ok(file) = File::open(format!("/proc/{process}/cmdline")) else { return Some(false) };
    // The process may end during the read.
    _ = file.take(OPTIONS).read_to_end(&mut line);
    if line.is_empty() {
        return std::fs::read_link(format!("/proc/{process}/exe")).is_err().then_some(false);
    }
    let mut words = line.split(|&byte| byte == 0).skip(1);
    let is_own = words.next() == Some(b"-plugin")
        && words.next().is_some_and(|options| Launch::records_into(options, spool));
    Some(is_own)
}
