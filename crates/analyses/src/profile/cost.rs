//! What is counted.

use serde::{Deserialize, Serialize};

use crate::clock::{Span, Time};
use hodo_model::Every;

/// What ran at a node or of a function, without what it called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ran {
    /// Times that the frame was entered.
    pub(super) entries: u64,
    pub(super) instructions: u64,
    /// Time of execution.
    pub(super) time: Time,
}

/// What few of them have beside that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Beside {
    /// Time between leaving and coming back to what is traced.
    pub(super) outside: Time,
    /// Samples, where they were asked for.
    pub(super) samples: u64,
}

/// What was counted at a node or of a function, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) ran: Ran,
    pub(super) beside: Beside,
}

impl Beside {
    /// Adds the samples that fall into a time of execution.
    pub(super) fn sample(&mut self, time: Span, every: Option<Every>) {
        if let Some(Every::Nanoseconds(period)) = every {
            self.samples = self.samples.saturating_add((time.to / period).saturating_sub(time.from / period));
        }
    }
}

impl Cost {
    /// Adds a time of execution, and the samples that fall into it.
    pub(super) fn run_for(&mut self, time: Span, every: Option<Every>) {
        self.ran.time = self.ran.time.and(Time::of(time.length()));
        self.beside.sample(time, every);
    }

    /// Adds a time outside of what is traced.
    pub(super) fn wait_for(&mut self, time: Span) {
        self.beside.outside = self.beside.outside.and(Time::of(time.length()));
    }

    /// All time, that outside included.
    pub(super) fn elapsed(&self) -> Time {
        self.ran.time.and(self.beside.outside)
    }

    pub(super) fn add(&mut self, other: &Cost) {
        // A forged partial may have counted anything, and a damaged clock may be sampled any number of times.
        self.ran.entries = self.ran.entries.saturating_add(other.ran.entries);
        self.ran.instructions = self.ran.instructions.saturating_add(other.ran.instructions);
        self.ran.time = self.ran.time.and(other.ran.time);
        self.beside.samples = self.beside.samples.saturating_add(other.beside.samples);
        self.beside.outside = self.beside.outside.and(other.beside.outside);
    }
}

/// What is told of a thread as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sums {
    /// Nanoseconds in gaps.
    pub(super) lost_time: u64,
    /// Number of gaps.
    pub(super) gaps: u64,
    /// Near calls, those of functions that are not traced included.
    pub(super) calls: u64,
}

impl Sums {
    pub(super) fn lose(&mut self, nanoseconds: u64) {
        self.lost_time = self.lost_time.saturating_add(nanoseconds);
    }

    pub(super) fn add(&mut self, other: &Sums) {
        self.lose(other.lost_time);
        self.gaps = self.gaps.saturating_add(other.gaps);
        self.calls = self.calls.saturating_add(other.calls);
    }
}
