//! What a synchronisation used, left out and found.

use serde::{Deserialize, Serialize};

use crate::clocks::{ClockId, DroppedPair};

/// The account of a [`Timeline`](crate::Timeline).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// By pair of clocks, in order.
    pub edges: Vec<EdgeReport>,
    /// By clock, in order.
    pub clocks: Vec<ClockReport>,
}

/// What is known of a clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReport {
    /// The clock.
    pub clock: ClockId,
    /// How many messages lie between it and the reference clock at least; `None` where nothing connects them.
    pub hops: Option<u32>,
    /// Whether its times are bounded from below and from above.
    pub bounded: (bool, bool),
    /// Mean drift against the timeline, in parts per billion: positive where the clock is slow.
    pub drift_ppb: i64,
    /// Greatest minus least drift over time, in parts per billion.
    pub wander_ppb: i64,
    /// Half the interval at half of the messages, in nanoseconds.
    pub half_width_median_ns: Option<u64>,
    /// The widest half interval between the first and the last message, in nanoseconds.
    pub half_width_max_ns: Option<u64>,
    /// Steps that were found, in order of time.
    pub steps: Vec<Step>,
    /// Places where the messages leave no clock within its bounds possible: the intervals there rest on drift alone.
    pub contradictions: u64,
}

/// A step of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The last reading known to lie before it.
    pub last_ticks: u64,
    /// The first reading known to lie behind it.
    pub first_ticks: u64,
    /// By how much the clock jumped forward, at least, in nanoseconds.
    pub jump_low_ns: i64,
    /// And at most.
    pub jump_high_ns: i64,
}

/// What became of the messages between two clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeReport {
    /// The clock with the lower number.
    pub a: ClockId,
    /// The other.
    pub b: ClockId,
    /// Messages given.
    pub pairs: u64,
    /// Of these, sent by `a`.
    pub pairs_to_b: u64,
    /// Messages that bound something.
    pub used: u64,
    /// Messages that agree, and bound nothing that others do not.
    pub implied: u64,
    /// Messages left out.
    pub dropped: u64,
    /// Which, and why; the first 1,048,576 of them.
    pub dropped_pairs: Vec<DroppedPair>,
    /// Messages received before they were sent, were the clocks a constant apart.
    pub violations_before: u64,
    /// The same on the timeline, of those that were used.
    pub violations_after: u64,
    /// Mean drift of `b` against `a` in parts per billion: positive where `b` is slow.
    pub drift_ppb: i64,
    /// Greatest minus least drift over time.
    pub wander_ppb: i64,
    /// Half the distance between the best bounds of both directions, by drift alone; `None` for one direction.
    pub half_width_ns: Option<u64>,
    /// Steps between these two clocks.
    pub steps: u64,
}
