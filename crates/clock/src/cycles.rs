//! Clocks of tracers that count cycles from an origin, as CTF describes them.

use std::{fmt, num::NonZeroU64};

use serde::{Deserialize, Serialize};

/// Nanoseconds in a second.
const SECOND: i128 = 1_000_000_000;

/// Nanoseconds from the origin of a trace's clock, 1970 for most; may be before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OriginNanos(pub i128);

impl fmt::Display for OriginNanos {
    /// Seconds with nine decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (seconds, rest) = (self.0.unsigned_abs() / 1_000_000_000, self.0.unsigned_abs() % 1_000_000_000);
        write!(f, "{sign}{seconds}.{rest:09}")
    }
}

/// A clock that counts cycles: CTF 1.8, "Clocks"; CTF 2, "Clock class fragment".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleClock {
    frequency: NonZeroU64,
    offset_seconds: i64,
    /// Beside the offset in seconds; CTF 1.8 allows any integer of 64 bits, signed or not.
    offset_cycles: i128,
    /// The offset in nanoseconds, of a clock that counts those.
    base: Option<i128>,
}

impl CycleClock {
    /// A clock of this frequency in Hz, whose cycle 0 lies this far behind its origin. `None` where the
    /// frequency is zero or the cycles are beyond 64 bits.
    pub fn new(frequency: u64, offset_seconds: i64, offset_cycles: i128) -> Option<CycleClock> {
        let frequency = NonZeroU64::new(frequency)?;
        if offset_cycles < i128::from(i64::MIN) || offset_cycles > i128::from(u64::MAX) {
            return None;
        }
        let base = i128::from(offset_seconds) * SECOND + offset_cycles;
        let base = (i128::from(frequency.get()) == SECOND).then_some(base);
        Some(CycleClock { frequency, offset_seconds, offset_cycles, base })
    }

    /// Cycles in a second.
    pub fn frequency(&self) -> u64 {
        self.frequency.get()
    }

    /// Seconds and cycles of its cycle 0 from its origin.
    pub fn offset(&self) -> (i64, i128) {
        (self.offset_seconds, self.offset_cycles)
    }

    /// Time of a cycle; exact but for the fraction of a nanosecond, which is dropped (towards the past).
    #[inline]
    pub fn nanos(&self, cycles: u64) -> OriginNanos {
        if let Some(base) = self.base {
            return OriginNanos(base + i128::from(cycles));
        }
        // At most 2^65 cycles and 2^30 nanoseconds in a second: far from the limits of 128 bits.
        let scaled = (self.offset_cycles + i128::from(cycles)) * SECOND;
        let nanos = scaled.div_euclid(i128::from(self.frequency.get()));
        OriginNanos(i128::from(self.offset_seconds) * SECOND + nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offsets_and_frequencies_are_exact() {
        let clock = CycleClock::new(1_000_000_000, 0, 1_795_170_017_304_825_393).unwrap();
        assert_eq!(clock.nanos(7), OriginNanos(1_795_170_017_304_825_400));
        let clock = CycleClock::new(2_100_000_000, -5, 1).unwrap();
        assert_eq!(clock.nanos(0), OriginNanos(-5_000_000_000));
        assert_eq!(clock.nanos(20), OriginNanos(-4_999_999_990));
        // Floating-point arithmetic, such as babeltrace2's, is off by hundreds of nanoseconds here.
        let clock = CycleClock::new(3, 0, 0).unwrap();
        assert_eq!(clock.nanos(u64::MAX), OriginNanos(6_148_914_691_236_517_205_000_000_000));
        assert_eq!(OriginNanos(-1_500_000_000).to_string(), "-1.500000000");
    }

    #[test]
    fn what_no_clock_has_is_refused() {
        assert_eq!(CycleClock::new(0, 0, 0), None);
        assert_eq!(CycleClock::new(1, 0, i128::MAX), None);
    }

    proptest! {
        #[test]
        fn time_never_runs_back(frequency in 1u64.., seconds: i64, offset: i64, cycle in 0..u64::MAX) {
            let clock = CycleClock::new(frequency, seconds, offset.into()).unwrap();
            let (now, next) = (clock.nanos(cycle), clock.nanos(cycle + 1));
            prop_assert!(now <= next);
            prop_assert!((next.0 - now.0) * i128::from(frequency) < SECOND + i128::from(frequency));
        }
    }
}
