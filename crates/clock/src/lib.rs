//! Ticks and nanoseconds, with exact conversions between them.
//!
//! ```text
//! processor ticks (Tsc) ──PerfClock───► nanoseconds of perf's clock (Nanos)
//! cycles of a tracer    ──CycleClock──► nanoseconds from its clock's origin (OriginNanos) ──TimeMap──► a timeline
//! ```
//!
//! This crate does arithmetic only and reads no clock. Products have 128 bits, so a conversion rounds only once, at
//! its end.

#![deny(missing_docs)]

mod cycles;
mod time_map;

use std::fmt;

pub use cycles::{CycleClock, Cycles, OriginNanos};
pub use time_map::{TimeBounds, TimeKnot, TimeMap, TimelineClock};

/// A value of the processor's time-stamp counter, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tsc(pub u64);

/// Nanoseconds since the origin of a trace's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Nanos(pub u64);

impl fmt::Display for Nanos {
    /// Writes seconds with nine decimals, like `perf script --ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Conversion between the time-stamp counter and perf's clock: the `time_shift`, `time_mult` and `time_zero` that the
/// kernel publishes in `perf_event_mmap_page` (perf_event_open(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfClock {
    /// Right shift after the multiplication, in bits; less than 64.
    shift: u32,
    /// Nanoseconds per tick, scaled by `2^shift`; never zero.
    multiplier: u32,
    /// Nanoseconds of perf's clock at tick 0; may wrap.
    zero: u64,
}

impl PerfClock {
    /// The clock of a counter whose ticks are nanoseconds. Any shift does.
    pub const NANOSECONDS: PerfClock = PerfClock { shift: 10, multiplier: 1 << 10, zero: 0 };

    /// Creates a clock from a recording's shift in bits, multiplier, and nanoseconds at tick 0. Returns `None` for a
    /// multiplier of zero or of more than 32 bits, and for a shift of 64 bits or more.
    pub fn new(shift: u64, multiplier: u64, zero: u64) -> Option<PerfClock> {
        let multiplier = u32::try_from(multiplier).ok().filter(|&m| m != 0)?;
        let shift = u32::try_from(shift).ok().filter(|&s| s < 64)?;
        Some(PerfClock { shift, multiplier, zero })
    }

    /// Returns the clock with its times shifted by this many nanoseconds; sums wrap as in the kernel.
    pub fn shifted(self, nanos: i64) -> PerfClock {
        PerfClock { zero: self.zero.wrapping_add_signed(nanos), ..self }
    }

    /// Returns the shift to the right after the multiplication, in bits.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Returns the nanoseconds per tick, scaled by two to the power of the shift.
    pub fn multiplier(&self) -> u32 {
        self.multiplier
    }

    /// Returns the nanoseconds of perf's clock at tick 0; one in the upper half is negative, as sums wrap.
    pub fn zero(&self) -> u64 {
        self.zero
    }

    /// Returns the ticks in a second, rounded down.
    pub fn frequency(&self) -> u64 {
        let ticks = (1_000_000_000u128 << self.shift) / u128::from(self.multiplier);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Returns the time of a tick: `zero + (tsc >> shift)·mult + (((tsc & mask)·mult) >> shift)`, which equals the
    /// product rounded down once; sums wrap as in the kernel.
    pub fn nanos(&self, tsc: Tsc) -> Nanos {
        let product = (u128::from(tsc.0) * u128::from(self.multiplier)) >> self.shift;
        Nanos(self.zero.wrapping_add(product as u64))
    }

    /// Returns the first tick at or after `time`; tick 0 for earlier times.
    pub fn ticks(&self, time: Nanos) -> Tsc {
        let since_zero = time.0.wrapping_sub(self.zero);
        // `zero` may be "before" 0 by wrapping, so a difference in the upper half is negative.
        if since_zero >> 63 == 1 {
            return Tsc(0);
        }
        let scaled = u128::from(since_zero) << self.shift;
        let ticks = scaled.div_ceil(u128::from(self.multiplier));
        Tsc(u64::try_from(ticks).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gigahertz_clock_counts_nanoseconds() {
        let clock = PerfClock::new(10, 1024, 5).unwrap();
        assert_eq!(clock.nanos(Tsc(1_000)), Nanos(1_005));
        assert_eq!(clock.ticks(Nanos(1_005)), Tsc(1_000));
        assert_eq!(clock.ticks(Nanos(3)), Tsc(0));
    }

    #[test]
    fn a_multiplier_of_zero_and_a_shift_of_64_bits_are_refused() {
        assert_eq!(PerfClock::new(10, 0, 0), None);
        assert_eq!(PerfClock::new(64, 1, 0), None);
    }

    proptest! {
        #[test]
        fn ticks_is_the_first_tick_of_its_time(
            shift in 0u64..40, multiplier in 1u64..u64::from(u32::MAX), zero: u64, tick in 0u64..1 << 56,
        ) {
            let clock = PerfClock::new(shift, multiplier, zero).unwrap();
            let product = (u128::from(tick) * u128::from(multiplier)) >> shift;
            prop_assume!(product < 1 << 63);
            let time = clock.nanos(Tsc(tick));
            let first = clock.ticks(time);
            prop_assert!(first <= Tsc(tick));
            prop_assert_eq!(clock.nanos(first), time);
            prop_assert!(first.0 == 0 || clock.nanos(Tsc(first.0 - 1)) != time);
        }
    }
}

/// The examples of the page that package registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
