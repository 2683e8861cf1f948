//! Who ran on each CPU, from switch to switch.

use hodo_clock::Nanos;
use hodo_model::kernel::{Cpus, KernelEvent, Thread};
use serde::{Deserialize, Serialize};

/// A thread that ran on a CPU, from when to when.
pub(super) struct Stint {
    pub(super) cpu: u32,
    pub(super) thread: Thread,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

/// The switches of a CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Switches {
    /// When the first was, and who left.
    first: (Nanos, Thread),
    /// When the last was, and who came.
    last: (Nanos, Thread),
    missing: Missing,
}

/// What is not known of a CPU, or of some.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Missing {
    /// How often who leaves is not who came before.
    pub(super) switches: u64,
    /// Nanoseconds between the switches before and after those.
    pub(super) time: u64,
}

/// The switches of all CPUs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Stints(Cpus<Switches>);

impl Switches {
    /// Adds what comes next: the stint between, if it is known whose that is.
    #[inline]
    fn then(&mut self, cpu: u32, later: Switches) -> Option<Stint> {
        let ((from, came), (to, left)) = (self.last, later.first);
        self.last = later.last;
        self.missing.add(later.missing);
        let stint = Stint { cpu, thread: left, from, to };
        if came == left {
            return Some(stint);
        }
        self.missing.add(Missing { switches: 1, time: stint.length() });
        None
    }
}

impl Missing {
    pub(super) fn add(&mut self, later: Missing) {
        self.switches += later.switches;
        self.time += later.time;
    }
}

impl Stint {
    pub(super) fn length(&self) -> u64 {
        self.to.0.saturating_sub(self.from.0)
    }
}

impl Stints {
    /// Adds a switch: the stint that it ends, if it is known whose that is.
    #[inline]
    pub(super) fn see(&mut self, event: &KernelEvent<'_>) -> Option<Stint> {
        let (prev, next) = event.switch()?;
        let missing = Missing::default();
        self.then(event.cpu, Switches { first: (event.time, prev), last: (event.time, next), missing })
    }

    /// Adds those of the later of two neighbours: the stints over the border.
    pub(super) fn add(&mut self, later: Stints) -> Vec<Stint> {
        later.0.into_all().filter_map(|(cpu, later)| self.then(cpu, later)).collect()
    }

    #[inline]
    fn then(&mut self, cpu: u32, later: Switches) -> Option<Stint> {
        let mut is_first = false;
        let known = self.0.get_or(cpu, || {
            is_first = true;
            later
        });
        if is_first { None } else { known.then(cpu, later) }
    }

    /// The stints before the first switch of each CPU and after its last, within a span of time.
    pub(super) fn ends(&self, (begin, end): (Nanos, Nanos)) -> impl Iterator<Item = Stint> {
        self.0.all().flat_map(move |(cpu, &Switches { first, last, .. })| {
            let before = Stint { cpu, thread: first.1, from: begin, to: first.0 };
            [before, Stint { cpu, thread: last.1, from: last.0, to: end }]
        })
    }

    /// What is not known of each CPU.
    pub(super) fn missing(&self) -> impl Iterator<Item = (u32, Missing)> {
        self.0.all().map(|(cpu, switches)| (cpu, switches.missing))
    }
}
