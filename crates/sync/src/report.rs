//! The report of a synchronisation: messages used, messages dropped, and steps found.

use serde::{Deserialize, Serialize};

use crate::clocks::{ClockId, DropCause, DroppedPair};

/// A result is refused if more than one in this many of the messages between two clocks contradicts the others.
const CONTRADICTING: u64 = 10;

/// The report of a [`Timeline`](crate::Timeline).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Reports of the edges, sorted by clock pair.
    pub edges: Vec<EdgeReport>,
    /// Reports of the clocks, indexed by [`ClockId`].
    pub clocks: Vec<ClockReport>,
}

/// The result for a clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReport {
    /// The clock.
    pub clock: ClockId,
    /// Number of edges on the shortest path to the reference clock; `None` if no path exists.
    pub hops: Option<u32>,
    /// Whether its times have a lower and an upper bound.
    pub bounded: (bool, bool),
    /// Mean drift against the timeline, in parts per billion; positive if the clock is slow.
    pub drift_ppb: i64,
    /// Greatest minus least drift over time, in parts per billion.
    pub wander_ppb: i64,
    /// The bound of its drift against the timeline, in parts per billion, on which its intervals rest: what was assumed, or
    /// more if messages need it.
    pub drift_bound_ppb: u64,
    /// The same for the rate of change of its drift, in parts per billion per second; `None` if its frequency changes at once.
    pub wander_bound_ppb_per_s: Option<u64>,
    /// Whether messages break an assumed bound, so that the intervals rest on a wider one. A bound that messages only come
    /// near to is widened too, as a margin; that does not count as broken.
    pub breaks_bounds: bool,
    /// Detected steps, in order of time.
    pub steps: Vec<ClockStep>,
    /// Places where no clock satisfies the messages, however wide its bounds; the intervals there rest on drift alone.
    pub contradictions: u64,
}

/// A step of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStep {
    /// The last reading that is certainly before the step.
    pub last_ticks: u64,
    /// The first reading that is certainly after the step.
    pub first_ticks: u64,
    /// Least forward jump of the clock, in nanoseconds.
    pub jump_low_ns: i64,
    /// Greatest forward jump of the clock, in nanoseconds.
    pub jump_high_ns: i64,
}

/// The use of the messages between two clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeReport {
    /// The clock with the lower number.
    pub a: ClockId,
    /// The other.
    pub b: ClockId,
    /// Messages pushed.
    pub pairs: u64,
    /// Messages sent by `a`.
    pub pairs_to_b: u64,
    /// Messages that set a bound.
    pub used: u64,
    /// Messages that are consistent, and implied by others.
    pub implied: u64,
    /// Messages dropped.
    pub dropped: u64,
    /// The same for each cause, indexed by [`DropCause`].
    #[serde(default)]
    pub(crate) dropped_by_cause: [u64; DropCause::COUNT],
    /// The first 1,048,576 dropped messages, with causes.
    pub dropped_pairs: Vec<DroppedPair>,
    /// Messages received before they were sent if the clocks differ by a constant only.
    pub violations_before: u64,
    /// Used messages that are received before they were sent on the timeline.
    pub violations_after: u64,
    /// Mean drift of `b` against `a`, in parts per billion; positive if `b` is slow.
    pub drift_ppb: i64,
    /// Greatest minus least drift over time, in parts per billion.
    pub wander_ppb: i64,
    /// Half the distance between the tightest bounds of both directions, by drift alone, in nanoseconds; `None` if
    /// messages run in one direction only.
    pub half_width_ns: Option<u64>,
    /// Steps between these two clocks.
    pub steps: u64,
}

impl EdgeReport {
    /// Returns how many messages were dropped for a cause.
    pub fn dropped_because(&self, cause: DropCause) -> u64 {
        self.dropped_by_cause[cause as usize]
    }

    /// Returns how many messages contradict the others.
    pub fn contradicting(&self) -> u64 {
        self.dropped_because(DropCause::Contradicts)
    }

    /// Returns whether more than a tenth of the messages contradict the others at any drift that is assumed. Then the
    /// intervals may not contain the true times, and the timeline should be refused.
    pub fn is_refuted(&self) -> bool {
        self.contradicting() * CONTRADICTING > self.pairs
    }
}
