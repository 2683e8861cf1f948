//! The counted costs.

use serde::{Deserialize, Serialize};

use crate::clock::{ClockSpan, Time};
use hodo_model::Every;

/// Costs of a node or a function itself, without its callees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OwnCost {
    /// Number of entries into the frame.
    pub(super) entries: u64,
    pub(super) instructions: u64,
    /// Time of execution.
    pub(super) time: Time,
}

/// Costs that few nodes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RareCosts {
    /// Time between leaving traced code and returning to it.
    pub(super) outside: Time,
    /// Samples, if requested.
    pub(super) samples: u64,
}

/// The costs of a node, a function, or several of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProfileCost {
    pub(super) ran: OwnCost,
    pub(super) rare: RareCosts,
}

impl RareCosts {
    /// Adds the sampling points within a span of execution.
    pub(super) fn sample(&mut self, time: ClockSpan, every: Option<Every>) {
        if let Some(Every::Nanoseconds(period)) = every {
            self.samples = self.samples.saturating_add((time.to / period).saturating_sub(time.from / period));
        }
    }
}

impl ProfileCost {
    /// Adds a span of execution, and the sampling points within it.
    pub(super) fn run_for(&mut self, time: ClockSpan, every: Option<Every>) {
        self.ran.time = self.ran.time.saturating_add(Time::of(time.length()));
        self.rare.sample(time, every);
    }

    /// Adds a span outside traced code.
    pub(super) fn wait_for(&mut self, time: ClockSpan) {
        self.rare.outside = self.rare.outside.saturating_add(Time::of(time.length()));
    }

    /// Returns the time inside plus outside of traced code.
    pub(super) fn elapsed(&self) -> Time {
        self.ran.time.saturating_add(self.rare.outside)
    }

    pub(super) fn add(&mut self, other: &ProfileCost) {
        // A forged partial may contain any count, and a damaged clock may give any number of samples.
        self.ran.entries = self.ran.entries.saturating_add(other.ran.entries);
        self.ran.instructions = self.ran.instructions.saturating_add(other.ran.instructions);
        self.ran.time = self.ran.time.saturating_add(other.ran.time);
        self.rare.samples = self.rare.samples.saturating_add(other.rare.samples);
        self.rare.outside = self.rare.outside.saturating_add(other.rare.outside);
    }
}

/// Totals of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ThreadTotals {
    /// Nanoseconds in gaps.
    pub(super) lost_time: u64,
    /// Number of gaps.
    pub(super) gaps: u64,
    /// Near calls, including those of functions that are not traced.
    pub(super) calls: u64,
}

impl ThreadTotals {
    pub(super) fn add_lost_time(&mut self, nanoseconds: u64) {
        self.lost_time = self.lost_time.saturating_add(nanoseconds);
    }

    pub(super) fn add(&mut self, other: &ThreadTotals) {
        self.add_lost_time(other.lost_time);
        self.gaps = self.gaps.saturating_add(other.gaps);
        self.calls = self.calls.saturating_add(other.calls);
    }
}
