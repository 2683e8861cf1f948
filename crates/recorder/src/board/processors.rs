//! Selects the CPUs and the priorities of a board's processes.
//!
//! Master and slaves wait for each other by polling shared memory: on one CPU, each would keep the other from
//! answering. So the master has a CPU of its own, if there are at least two.

use std::process::{Command, Stdio};

use crate::emulate::find_in_path;

/// Real-time priority of emulators that sleep until they are interrupted; the same as the master's.
const PRIORITY: &str = "10";

/// Maximum number of CPUs that are read from a list.
const MOST_CPUS: usize = 4096;

/// Prefixes of the command lines of master and emulators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Processors {
    master: Vec<String>,
    emulator: Vec<String>,
}

impl Processors {
    /// Selects among the CPUs that this process may use. Slaves that poll get no real-time priority, because they would
    /// block a CPU.
    pub(super) fn find(is_polling: bool) -> Processors {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let mut processors = match find_in_path("taskset".as_ref()) {
            Some(_) => Processors::among(allowed.unwrap_or("")),
            None => Processors::among(""),
        };
        let urgent = ["chrt", "--fifo", PRIORITY].map(str::to_owned);
        if !is_polling && find_in_path("chrt".as_ref()).is_some() {
            let mut chrt = Command::new("chrt");
            chrt.args(["--fifo", PRIORITY, "true"]).stdout(Stdio::null()).stderr(Stdio::null());
            if chrt.status().is_ok_and(|status| status.success()) {
                processors.emulator.extend(urgent);
            }
        }
        processors
    }

    /// Reserves the last CPU of a list such as `0-3,8` for the master; nothing if there is only one.
    fn among(allowed: &str) -> Processors {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let range = |part: &str| match part.split_once('-') {
            Some((first, last)) => number(first).zip(number(last)).map(|(first, last)| first..=last),
            None => number(part).map(|only| only..=only),
        };
        let mut cpus: Vec<u32> = allowed.split(',').filter_map(range).flatten().take(MOST_CPUS).collect();
        let (Some(last), false) = (cpus.pop(), cpus.is_empty()) else {
            return Processors { master: Vec::new(), emulator: Vec::new() };
        };
        let pin_to = |cpus: &[u32]| {
            let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
            vec!["taskset".to_owned(), "--cpu-list".to_owned(), list.join(",")]
        };
        Processors { master: pin_to(&[last]), emulator: pin_to(&cpus) }
    }

    /// Returns the command of the master.
    pub(super) fn master(&self, program: &std::path::Path) -> Command {
        prefixed(&self.master, program.as_ref())
    }

    /// Returns the command of an emulator.
    pub(super) fn emulator(&self, program: &str) -> Command {
        prefixed(&self.emulator, program.as_ref())
    }
}

fn prefixed(prefix: &[String], program: &std::ffi::OsStr) -> Command {
    match prefix.split_first() {
        None => Command::new(program),
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_has_a_processor_for_itself() {
        let words = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        for (allowed, master, emulator) in [
            ("\t0-1", "taskset --cpu-list 1", "taskset --cpu-list 0"),
            ("0-2,8", "taskset --cpu-list 8", "taskset --cpu-list 0,1,2"),
            ("5", "", ""),
            ("", "", ""),
        ] {
            let expected = Processors { master: words(master), emulator: words(emulator) };
            assert_eq!(Processors::among(allowed), expected, "{allowed}");
        }
    }
}
