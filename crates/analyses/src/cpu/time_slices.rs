//! The thread slices of each CPU, from switch to switch.
//!
//! The thread that leaves at the first switch on a CPU ran there since the begin of the trace, unless a switch on another
//! CPU names it before: then it came later, by a switch that is missing, as the tracer began later on this CPU.

use hodo_clock::Nanos;
use hodo_model::kernel::{Cpus, KernelEvent, Thread, Threads};
use serde::{Deserialize, Serialize};

/// A thread slice: one thread on one CPU from one time to another. The thread is unknown where a switch is missing.
pub(super) struct CpuSlice {
    pub(super) cpu: u32,
    pub(super) thread: Option<Thread>,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

/// The switches of a CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SwitchesOfCpu {
    /// The time of the first switch, and its previous thread.
    first: (Nanos, Thread),
    /// The time of the last switch, and its next thread.
    last: (Nanos, Thread),
    missing: Missing,
}

/// Missing switches of one or more CPUs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Missing {
    /// The number of switches whose previous thread is not the next thread of the switch before.
    pub(super) switches: u64,
    /// Nanoseconds between the switches around the missing ones.
    pub(super) time: u64,
}

/// The switches of all CPUs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct TimeSlices(Cpus<SwitchesOfCpu>);

impl SwitchesOfCpu {
    /// Adds the switches that follow, and returns the slice between the two partials.
    #[inline]
    fn append(&mut self, cpu: u32, later: SwitchesOfCpu) -> CpuSlice {
        let ((start, next_thread), (end, prev_thread)) = (self.last, later.first);
        self.last = later.last;
        self.missing.add(later.missing);
        let thread = (next_thread == prev_thread).then_some(prev_thread);
        let slice = CpuSlice { cpu, thread, from: start, to: end };
        if thread.is_none() {
            self.missing.add(Missing { switches: 1, time: slice.length() });
        }
        slice
    }
}

impl Missing {
    pub(super) fn add(&mut self, later: Missing) {
        self.switches += later.switches;
        self.time += later.time;
    }
}

impl CpuSlice {
    pub(super) fn length(&self) -> u64 {
        self.to.0.saturating_sub(self.from.0)
    }
}

impl TimeSlices {
    /// Adds a switch, and returns the slice that it ends.
    #[inline]
    pub(super) fn see(&mut self, event: &KernelEvent<'_>) -> Option<CpuSlice> {
        let (prev, next) = event.switch()?;
        let missing = Missing::default();
        self.append(event.cpu, SwitchesOfCpu { first: (event.time, prev), last: (event.time, next), missing })
    }

    /// Adds the switches of the next task, and returns the slices across the border.
    pub(super) fn add(&mut self, later: TimeSlices) -> Vec<CpuSlice> {
        later.0.into_all().filter_map(|(cpu, later)| self.append(cpu, later)).collect()
    }

    #[inline]
    fn append(&mut self, cpu: u32, later: SwitchesOfCpu) -> Option<CpuSlice> {
        let mut is_first = false;
        let known = self.0.get_or(cpu, || {
            is_first = true;
            later
        });
        if is_first { None } else { Some(known.append(cpu, later)) }
    }

    /// Returns the slices before the first switch of each CPU and after its last one, within a span of time.
    pub(super) fn ends<'s>(
        &'s self,
        (begin, end): (Nanos, Nanos),
        threads: &'s Threads,
    ) -> impl Iterator<Item = CpuSlice> + use<'s> {
        self.before_first(begin, threads).chain(self.after_last(end))
    }

    /// Returns the slices before the first switch of each CPU.
    pub(super) fn before_first<'s>(
        &'s self,
        begin: Nanos,
        threads: &'s Threads,
    ) -> impl Iterator<Item = CpuSlice> + use<'s> {
        self.0.all().map(move |(cpu, &SwitchesOfCpu { first: (to, thread), .. })| {
            let thread = Some(thread).filter(|thread| !threads.switched_before(*thread, to));
            CpuSlice { cpu, thread, from: begin, to }
        })
    }

    /// Returns the slices after the last switch of each CPU.
    pub(super) fn after_last(&self, end: Nanos) -> impl Iterator<Item = CpuSlice> {
        self.0.all().map(move |(cpu, &SwitchesOfCpu { last: (from, thread), .. })| CpuSlice {
            cpu,
            thread: Some(thread),
            from,
            to: end,
        })
    }

    /// Missing switches of each CPU, in a trace that begins at this time.
    pub(super) fn missing<'s>(
        &'s self,
        begin: Nanos,
        threads: &'s Threads,
    ) -> impl Iterator<Item = (u32, Missing)> + use<'s> {
        self.before_first(begin, threads).zip(self.0.all()).map(|(before, (cpu, switches))| {
            let mut missing = switches.missing;
            if before.thread.is_none() {
                missing.add(Missing { switches: 1, time: before.length() });
            }
            (cpu, missing)
        })
    }
}
