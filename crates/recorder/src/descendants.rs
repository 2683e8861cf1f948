//! Processes of a recording that go on when its command has ended.

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

/// How often to look whether they run.
const NAP: Duration = Duration::from_millis(20);
/// What ends so soon is waited for without a word.
const SILENCE: Duration = Duration::from_millis(300);
/// Looks, a millisecond apart, until it shows what a process becomes that executes a program.
const EXECUTIONS: u32 = 1000;
/// The emulator's options that are looked at; paths are shorter.
const OPTIONS: u64 = 32 << 10;

/// Waits until the processes that are recorded into `spool` have ended, or until the user ends the wait; gives those
/// that still run. A user who waits long is told so by `notice`.
pub(crate) fn wait(spool: &Path, interrupt: &Interrupt, notice: &dyn Fn(&str)) -> BTreeSet<u32> {
    let start = Instant::now();
    let mut silent = true;
    loop {
        let running = running(spool);
        if running.is_empty() || interrupt.happened() {
            return running;
        }
        if silent && start.elapsed() >= SILENCE {
            silent = false;
            let who = match running.len() {
                1 => "a process that it started goes".to_owned(),
                count => format!("{count} processes that it started go"),
            };
            notice(&format!(
                "the command has ended; {who} on and will be recorded to the end. Ctrl-C ends the recording now"
            ));
        }
        thread::sleep(NAP);
    }
}

/// The processes that are recorded into `spool`.
fn running(spool: &Path) -> BTreeSet<u32> {
    let (mut found, mut executing) = look(spool);
    // What a process that executes a program becomes shows in a moment, also on a machine that is busy.
    for _ in 0..EXECUTIONS {
        if !found.is_empty() || !executing {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        (found, executing) = look(spool);
    }
    if !found.is_empty() {
        return found;
    }
    // A process that was forked behind the place where the list was being read, by one that ended before its own
    // turn came, is in the next list.
    look(spool).0
}

/// The processes that are recorded into `spool`, and whether one may be that is executing a program.
fn look(spool: &Path) -> (BTreeSet<u32>, bool) {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let (mut found, mut executing) = (BTreeSet::new(), false);
    for process in numbers {
        match is_recorded(process, spool) {
            Some(true) => drop(found.insert(process)),
            Some(false) => {}
            None => executing = true,
        }
    }
    (found, executing)
}

/// Whether a process is the emulator, and records into `spool`: the program can't change the emulator's own command
/// line. `None` while the process executes a program: it has no command line then, but a file that it runs, which a
/// process that is no more and the kernel's threads do not have.
fn is_recorded(process: u32, spool: &Path) -> Option<bool> {
    let mut line = Vec::new();
    let Ok(file) = File::open(format!("/proc/{process}/cmdline")) else { return Some(false) };
    // It may end while it is being read.
    _ = file.take(OPTIONS).read_to_end(&mut line);
    if line.is_empty() {
        return std::fs::read_link(format!("/proc/{process}/exe")).is_err().then_some(false);
    }
    let mut words = line.split(|&byte| byte == 0).skip(1);
    let is_own = words.next() == Some(b"-plugin")
        && words.next().is_some_and(|options| Launch::records_into(options, spool));
    Some(is_own)
}
