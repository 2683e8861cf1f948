//! Clocks and the messages between them.

use serde::{Deserialize, Serialize};

/// Index of a clock in its [`ClockGraph`](crate::ClockGraph).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClockId(pub u32);

/// The properties of a clock that are known without messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Name of the clock in reports.
    pub name: String,
    /// Nominal frequency in ticks per second.
    pub frequency_hz: u64,
    /// Greatest deviation of the true frequency from the nominal one, in parts per billion; at most 250,000,000.
    pub drift_ppb: u64,
    /// Greatest rate of change of the true frequency, in parts per billion per second.
    pub wander_ppb_per_s: u64,
    /// Whether the bound of the rate of change also applies while no message arrives for more than 64 ms, when messages can't
    /// verify it. Otherwise only drift is bounded there.
    pub wander_is_known: bool,
}

impl Clock {
    /// Creates a clock with the bounds of ordinary crystals: 100 ppm of drift, changing by at most 1 ppm per second.
    pub fn new(name: impl Into<String>, frequency_hz: u64) -> Clock {
        Clock {
            name: name.into(),
            frequency_hz,
            drift_ppb: 100_000,
            wander_ppb_per_s: 1_000,
            wander_is_known: false,
        }
    }

    /// Replaces the bounds of drift and wander.
    pub fn with_bounds(self, drift_ppb: u64, wander_ppb_per_s: u64) -> Clock {
        Clock { drift_ppb, wander_ppb_per_s, ..self }
    }

    /// Relies on the bound of wander even where messages can't refute it.
    pub fn with_known_wander(self) -> Clock {
        Clock { wander_is_known: true, ..self }
    }
}

/// A message, with the sender's and the receiver's clock readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The sender's clock.
    pub send_clock: ClockId,
    /// The sender's clock reading, in ticks.
    pub send_ticks: u64,
    /// The receiver's clock.
    pub recv_clock: ClockId,
    /// The receiver's clock reading, in ticks.
    pub recv_ticks: u64,
    /// Identifies the pair in reports: a sequence number, or the index of an event.
    pub id: u64,
}

/// Method that places clocks on one timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// A piecewise-linear curve within the bounds that messages, drift and wander set.
    #[default]
    Bounded,
    /// One line per clock: the bisector of the steepest and the flattest line that no message contradicts (Duda 1987).
    Hull,
    /// One line per clock: the mean of the least-squares lines of the two message directions (Duda 1987).
    Regression,
}

/// Why a pair was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropCause {
    /// It contradicts other pairs, and belongs to the smallest set whose removal makes the rest consistent.
    Contradicts,
    /// Its delay far exceeds the usual delay on this edge: probably a wrong match. It bounds nothing.
    Late,
    /// Its clock readings are more than four years from those of the other pairs.
    OutOfRange,
    /// It lies near a step, and may have been sent or received on either side of it.
    AtStep,
}

impl DropCause {
    /// The number of causes.
    pub(crate) const COUNT: usize = DropCause::AtStep as usize + 1;
}

/// A dropped pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedPair {
    /// The pair's [`Pair::id`].
    pub id: u64,
    /// Why it was dropped.
    pub cause: DropCause,
}
