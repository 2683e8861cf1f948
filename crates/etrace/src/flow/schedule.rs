//! Which program runs, by the time of switches.

use hodo_clock::Tsc;
use hodo_code::{Graph, Labels, Program};
use hodo_flow::Switch;
use hodo_isa::Isa;

/// Returns whether an address is the kernel's: then bit 63 is set. Only the kernel switches threads, and its code is part of all
/// programs.
pub(super) fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// The programs that a stream may show, and the one that runs.
pub(super) struct Programs<'p, 'a, L> {
    all: &'p mut [Program<'a, L>],
    schedule: &'p [Switch],
    /// Number of switches up to the one that runs.
    begun: usize,
    now: Tsc,
}

impl<'p, 'a, L: Labels> Programs<'p, 'a, L> {
    pub(super) fn new(all: &'p mut [Program<'a, L>], schedule: &'p [Switch]) -> Programs<'p, 'a, L> {
        assert!(!schedule.is_empty(), "some program runs at any time");
        Programs { all, schedule, begun: 1, now: Tsc(0) }
    }

    /// Returns the code of the program that runs.
    pub(super) fn graph(&mut self, isa: Isa) -> &mut Graph<'a, L> {
        self.all[self.schedule[self.begun - 1].program].graph(isa)
    }

    /// Sets the time.
    pub(super) fn pass(&mut self, now: Tsc) {
        self.now = now;
    }

    /// Selects the program that runs at the current time. Returns its context if another one ran before.
    pub(super) fn follow_schedule(&mut self) -> Option<u32> {
        let switch_is_due = self.schedule.get(self.begun).is_some_and(|next| next.at <= self.now);
        if !switch_is_due {
            return None;
        }
        let before = self.schedule[self.begun - 1];
        self.begun = self.schedule.partition_point(|switch| switch.at <= self.now);
        let next = self.schedule[self.begun - 1];
        ((next.program, next.context) != (before.program, before.context)).then_some(next.context)
    }
}
