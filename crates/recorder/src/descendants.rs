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
    let found = look(spool);
    if !found.is_empty() {
        return found;
    }
    // A process that was forked behind the place where the list was being read, by one that ended before its own
    // turn came, is in the next list.
    look(spool)
}

fn look(spool: &Path) -> BTreeSet<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|&process| is_recorded(process, spool)).collect()
}

/// Whether a process is the emulator, and records into `spool`: the program can't change the emulator's own
/// command line, and a process that is no more has none.
fn is_recorded(process: u32, spool: &Path) -> bool {
    let mut line = Vec::new();
    let Ok(file) = File::open(format!("/proc/{process}/cmdline")) else { return false };
    // It may end while it is being read.
    _ = file.take(OPTIONS).read_to_end(&mut line);
    let mut words = line.split(|&byte| byte == 0).skip(1);
    words.next() == Some(b"-plugin")
        && words.next().is_some_and(|options| Launch::records_into(options, spool))
}
