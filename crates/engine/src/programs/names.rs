//! The names of threads over time, and which of them are selected.

use std::{borrow::Cow, collections::HashMap};

use hodo_clock::Tsc;
use hodo_formats::recording::{Recording, SidebandKind, Thread};

use crate::programs::process_history::ticks;

/// The names of each thread.
#[derive(Debug, Default)]
pub(crate) struct Names<'f> {
    /// Each thread's names with the ticks from which on it has them. A thread begins with the name of its creator, as in the
    /// kernel.
    given: HashMap<Thread, Vec<(Tsc, &'f [u8])>>,
    /// The selected names; all if empty.
    selected: Vec<String>,
}

impl<'f> Names<'f> {
    /// Reads the names of a recording.
    pub(crate) fn new(recording: &Recording<'f>, selected: &[String]) -> Names<'f> {
        let mut given: HashMap<Thread, Vec<(Tsc, &[u8])>> = HashMap::new();
        for sideband in recording.of_host() {
            let tick = Tsc(ticks(recording, sideband));
            match sideband.kind {
                SidebandKind::Comm { name, .. } => {
                    given.entry(sideband.thread).or_default().push((tick, name))
                }
                SidebandKind::Fork { parent } => {
                    let of_parent = given.get(&parent).and_then(|names| names.last());
                    if let Some(&(_, name)) = of_parent {
                        given.entry(sideband.thread).or_default().push((tick, name));
                    }
                }
                _ => {}
            }
        }
        Names { given, selected: selected.to_vec() }
    }

    fn is_selected(&self, name: &[u8]) -> bool {
        self.selected.is_empty() || self.selected.iter().any(|selected| selected.as_bytes() == name)
    }

    fn of(&self, thread: Thread) -> &[(Tsc, &'f [u8])] {
        self.given.get(&thread).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a thread ever has a selected name.
    pub(crate) fn select(&self, thread: Thread) -> bool {
        self.selected.is_empty() || self.of(thread).iter().any(|(_, name)| self.is_selected(name))
    }

    /// Returns whether a thread's name at a tick is selected. The first known name counts from the beginning on.
    pub(crate) fn select_at(&self, thread: Thread, tick: Tsc) -> bool {
        let names = self.of(thread);
        let known = names.partition_point(|&(since, _)| since <= tick).saturating_sub(1);
        self.selected.is_empty() || names.get(known).is_some_and(|(_, name)| self.is_selected(name))
    }

    /// Returns the ticks between two others at which a thread gets another name, if that can change whether it is selected.
    pub(crate) fn changes(&self, thread: Thread, from: Tsc, to: Tsc) -> impl Iterator<Item = Tsc> {
        let names = if self.selected.is_empty() { &[] } else { self.of(thread) };
        names.iter().map(|&(tick, _)| tick).filter(move |&tick| from < tick && tick < to)
    }

    /// Returns the last name of a thread, of the selected ones.
    pub(crate) fn last(&self, thread: Thread) -> Option<Cow<'f, str>> {
        let (_, name) = self.of(thread).iter().rfind(|(_, name)| self.is_selected(name))?;
        Some(String::from_utf8_lossy(name))
    }
}

#[cfg(test)]
mod tests {
    use hodo_clock::{Nanos, PerfClock};
    use hodo_formats::recording::Sideband;
    use hodo_intel_pt::Config;

    use super::*;

    const SHELL: Thread = Thread { pid: 7, tid: 7 };
    const CHILD: Thread = Thread { pid: 8, tid: 8 };

    fn recording() -> Recording<'static> {
        let record =
            |time, thread, kind| Sideband { time: Some(Nanos(time)), cpu: None, thread, guest: None, kind };
        let name = |name: &'static str| SidebandKind::Comm { name: name.as_bytes(), exec: true };
        Recording {
            config: Config { tsc: true, clock: PerfClock::new(0, 1, 0), ..Config::default() },
            sideband: vec![
                record(10, SHELL, name("sh")),
                record(20, CHILD, SidebandKind::Fork { parent: SHELL }),
                record(30, CHILD, name("ls")),
                record(40, SHELL, name("bash")),
            ],
            ..Recording::default()
        }
    }

    #[test]
    fn a_thread_is_selected_while_it_has_a_selected_name() {
        let recording = recording();
        let names = |selected: &[&str]| {
            Names::new(&recording, &selected.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        };
        let selected_at = |names: &Names<'_>, thread, ticks: &[u64]| {
            ticks.iter().map(|&tick| names.select_at(thread, Tsc(tick))).collect::<Vec<_>>()
        };
        let shell = names(&["sh"]);
        assert_eq!(selected_at(&shell, SHELL, &[0, 10, 39, 40]), [true, true, true, false]);
        assert_eq!(selected_at(&shell, CHILD, &[20, 29, 30]), [true, true, false]);
        assert_eq!(shell.changes(CHILD, Tsc(20), Tsc(100)).collect::<Vec<_>>(), [Tsc(30)]);
        assert_eq!((shell.last(SHELL).as_deref(), shell.last(CHILD).as_deref()), (Some("sh"), Some("sh")));
        let list = names(&["ls"]);
        assert!(list.select(CHILD) && !list.select(SHELL) && !list.select_at(CHILD, Tsc(29)));
        let all = names(&[]);
        assert!(all.select_at(SHELL, Tsc(0)) && all.changes(SHELL, Tsc(0), Tsc(100)).next().is_none());
        assert_eq!(all.last(CHILD).as_deref(), Some("ls"));
    }
}
