//! Clocks and the messages between them.

use serde::{Deserialize, Serialize};

/// A clock of a [`ClockGraph`](crate::ClockGraph), by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClockId(pub u32);

/// What is known of a clock before any message is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// What reports call it.
    pub name: String,
    /// Ticks a second, as the clock's maker says.
    pub frequency_hz: u64,
    /// How far the true frequency is from the nominal one at most, in parts per billion; at most 250,000,000.
    pub drift_ppb: u64,
    /// How fast the true frequency changes at most, in parts per billion a second.
    pub wander_ppb_per_s: u64,
}

impl Clock {
    /// A clock with the bounds of ordinary crystals: 100 ppm of drift that changes by at most 1 ppm a second.
    pub fn new(name: impl Into<String>, frequency_hz: u64) -> Clock {
        Clock { name: name.into(), frequency_hz, drift_ppb: 100_000, wander_ppb_per_s: 1_000 }
    }

    /// The same clock with other bounds.
    pub fn with_bounds(self, drift_ppb: u64, wander_ppb_per_s: u64) -> Clock {
        Clock { drift_ppb, wander_ppb_per_s, ..self }
    }
}

/// A message: sent at a reading of one clock, received at a reading of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The sender's clock.
    pub send_clock: ClockId,
    /// Its ticks when the message was sent.
    pub send_ticks: u64,
    /// The receiver's clock.
    pub recv_clock: ClockId,
    /// Its ticks when the message was received.
    pub recv_ticks: u64,
    /// What reports name the pair by: a sequence number, or the index of an event.
    pub id: u64,
}

/// How clocks are put on one timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Piecewise-linear, within the bounds that messages, drift and wander set.
    #[default]
    Bounded,
    /// One line a clock: the bisector of the steepest and the flattest line that no message contradicts (Duda 1987).
    Hull,
    /// One line a clock: least squares through both kinds of messages, averaged (Duda 1987).
    Regression,
}

/// Why a pair was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropCause {
    /// It contradicts other pairs; it is among the fewest without which the others agree.
    Contradicts,
    /// It took far longer than messages on this edge do: probably a wrong match. It bounds nothing.
    Late,
    /// Its clocks are more than four years from those of the other pairs.
    OutOfRange,
    /// It lies where a step leaves its order unknown.
    AtStep,
}

/// A pair that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedPair {
    /// The pair's own name.
    pub id: u64,
    /// Why.
    pub cause: DropCause,
}
