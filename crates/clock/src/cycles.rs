//! Clocks of tracers that count cycles from an origin, as in CTF.

use std::{fmt, num::NonZeroU64};

/// Nanoseconds in a second.
const SECOND: i128 = 1_000_000_000;

/// Nanoseconds from the origin of a trace's clock, mostly 1970; negative before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OriginNanos(pub i128);

impl fmt::Display for OriginNanos {
    /// Writes seconds with nine decimals.
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
    /// Added to the offset in seconds; CTF 1.8 allows any 64-bit integer, signed or not.
    offset_cycles: i128,
    /// The offset in nanoseconds, for a clock of 1 GHz.
    base: Option<i128>,
}

impl CycleClock {
    /// Creates a clock with a frequency in Hz, whose cycle 0 is at the given offset from its origin. Returns `None`
    /// if the frequency is zero or the cycles exceed 64 bits.
    pub fn new(frequency: u64, offset_seconds: i64, offset_cycles: i128) -> Option<CycleClock> {
        let frequency = NonZeroU64::new(frequency)?;
        if offset_cycles < i128::from(i64::MIN) || offset_cycles > i128::from(u64::MAX) {
            return None;
        }
        let base = i128::from(offset_seconds) * SECOND + offset_cycles;
        let base = (i128::from(frequency.get()) == SECOND).then_some(base);
        Some(CycleClock { frequency, offset_seconds, offset_cycles, base })
    }

    /// Returns the number of cycles per second.
    pub fn frequency(&self) -> u64 {
        self.frequency.get()
    }

    /// Returns the whole seconds of the offset of cycle 0 from the origin.
    pub fn offset_seconds(&self) -> i64 {
        self.offset_seconds
    }

    /// Returns the cycles of that offset, which come on top of its seconds.
    pub fn offset_cycles(&self) -> i128 {
        self.offset_cycles
    }

    /// Returns the time of a cycle, rounded down to nanoseconds.
    #[inline]
    pub fn nanos(&self, cycles: u64) -> OriginNanos {
        if let Some(base) = self.base {
            return OriginNanos(base + i128::from(cycles));
        }
        // At most 2^65 cycles times 2^30 nanoseconds: 128 bits suffice.
        let scaled = (self.offset_cycles + i128::from(cycles)) * SECOND;
        let nanos = scaled.div_euclid(i128::from(self.frequency.get()));
        OriginNanos(i128::from(self.offset_seconds) * SECOND + nanos)
    }

    /// Returns the cycles at or after `from` and before `to`; without one of them, no cycle is excluded on that side.
    pub fn cycles(&self, from: Option<OriginNanos>, to: Option<OriginNanos>) -> Cycles {
        let Some(first) = from.map_or(Some(0), |from| self.first_at(from)) else { return Cycles::NONE };
        // The clock may not reach `to`: then the last cycle lies before it.
        let Some(end) = to.and_then(|to| self.first_at(to)) else { return Cycles { first, last: u64::MAX } };
        end.checked_sub(1).map_or(Cycles::NONE, |last| Cycles { first, last })
    }

    /// Returns the first cycle at or after `time`, or `None` if the clock does not reach it.
    fn first_at(&self, time: OriginNanos) -> Option<u64> {
        let since = time.0.saturating_sub(i128::from(self.offset_seconds) * SECOND);
        let (seconds, rest) = (since.div_euclid(SECOND), since.rem_euclid(SECOND));
        let frequency = i128::from(self.frequency.get());
        // Less than 2^30 nanoseconds times 2^64 cycles, rounded up.
        let part = (rest * frequency + (SECOND - 1)) / SECOND;
        let cycles = seconds.saturating_mul(frequency).saturating_add(part);
        let cycle = cycles.saturating_sub(self.offset_cycles);
        if cycle <= 0 { Some(0) } else { u64::try_from(cycle).ok() }
    }
}

/// An inclusive range of cycles; empty if `last` is less than `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycles {
    /// First cycle.
    pub first: u64,
    /// Last cycle.
    pub last: u64,
}

impl Cycles {
    /// All cycles.
    pub const ALL: Cycles = Cycles { first: 0, last: u64::MAX };
    /// No cycles.
    pub const NONE: Cycles = Cycles { first: 1, last: 0 };

    /// Returns whether the range contains a cycle.
    #[inline]
    pub fn contains(&self, cycle: u64) -> bool {
        self.first <= cycle && cycle <= self.last
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
        // Floating-point arithmetic, as in babeltrace2, is off by hundreds of nanoseconds here.
        let clock = CycleClock::new(3, 0, 0).unwrap();
        assert_eq!(clock.nanos(u64::MAX), OriginNanos(6_148_914_691_236_517_205_000_000_000));
        assert_eq!(OriginNanos(-1_500_000_000).to_string(), "-1.500000000");
    }

    #[test]
    fn a_frequency_of_zero_and_an_offset_beyond_64_bits_are_refused() {
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

        #[test]
        fn cycles_between_two_times_are_those_whose_time_lies_there(
            frequency in prop_oneof![1u64.., 1u64..10_000_000_000, Just(1_000_000_000)],
            seconds in prop_oneof![any::<i64>(), -10..10i64],
            offset: i64, cycle: u64, near in -3i128..3, length in 0i128..5,
        ) {
            let clock = CycleClock::new(frequency, seconds, offset.into()).unwrap();
            let from = OriginNanos(clock.nanos(cycle).0 + near);
            let to = OriginNanos(from.0 + length);
            for cycle in [cycle.saturating_sub(1), cycle, cycle.saturating_add(1), 0, u64::MAX] {
                let time = clock.nanos(cycle);
                prop_assert_eq!(clock.cycles(Some(from), Some(to)).contains(cycle), from <= time && time < to);
                prop_assert_eq!(clock.cycles(None, Some(to)).contains(cycle), time < to);
                prop_assert_eq!(clock.cycles(Some(from), None).contains(cycle), from <= time);
            }
            prop_assert!(clock.cycles(None, None).contains(cycle));
        }
    }
}
