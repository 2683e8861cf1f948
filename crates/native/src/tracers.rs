//! Notices debuggers that attach to recorded processes: they see translated code.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use crate::{
    arena::Arena,
    leave,
    stop::{is_recorded, status_of},
};

/// The shortest time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);
/// Looking takes at most this part of the time.
const SHARE: u32 = 200;

/// Who traces recorded processes.
pub(crate) struct Tracers {
    next: Instant,
    /// Processes and their tracers that were reported.
    known: BTreeSet<(u32, u32)>,
}

impl Tracers {
    pub(crate) fn new() -> Tracers {
        Tracers { next: Instant::now() + INTERVAL, known: BTreeSet::new() }
    }

    /// From time to time, looks for new ones. Returns a sentence about each.
    pub(crate) fn look(&mut self, arena: &Arena) -> Vec<String> {
        let now = Instant::now();
        if now < self.next {
            return Vec::new();
        }
        let processes = leave::processes(arena);
        self.known.retain(|(process, _)| processes.contains_key(process));
        let traced = processes.keys().filter_map(|&process| Some((process, tracer_of(process)?)));
        let new = traced.filter(|&pair| !self.known.contains(&pair)).collect::<Vec<_>>().into_iter();
        let new: Vec<_> = new.filter(|&(process, _)| is_recorded(process)).collect();
        self.known.extend(&new);
        self.next = Instant::now() + INTERVAL.max(now.elapsed() * SHARE);
        let sentence = |(process, tracer)| {
            format!(
                "{} traces process {process} while it is recorded: it sees translated code and the recorder's memory, and \
                 the process can't get its own code back until it is let go",
                named(tracer)
            )
        };
        new.into_iter().map(sentence).collect()
    }
}

/// The thread that traces a thread.
pub(crate) fn tracer_of(thread: u32) -> Option<u32> {
    status_of(thread, "TracerPid").filter(|&tracer| tracer != 0)
}

/// A process with its name, if it has one.
pub(crate) fn named(process: u32) -> String {
    match fs::read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => format!("{} (process {process})", name.trim_end()),
        Err(_) => format!("process {process}"),
    }
}
