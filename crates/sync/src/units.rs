//! The unit of time inside this crate, and the nominal scale of a clock.

use serde::{Deserialize, Serialize};

/// Units per nanosecond. A unit is 62.5 ps, finer than the tick of any processor.
pub(crate) const PER_NANO: i64 = 1 << NANO_BITS;

/// A power of two makes rounding to nanoseconds a shift; a 128-bit division would cost more than the rest of a
/// conversion.
const NANO_BITS: u32 = 4;

/// Units per second.
pub(crate) const PER_SECOND: i64 = 1_000_000_000 * PER_NANO;

/// Distances and offsets stay below this many units (4.5 years), so sums fit 64 bits and products 128.
pub(crate) const LIMIT: i64 = 1 << 61;

/// One, in parts per billion.
pub(crate) const PPB: u64 = 1_000_000_000;

/// The greatest bound of a clock's drift. A wider one adds nothing to the monotonicity of clocks.
pub(crate) const MOST_DRIFT_PPB: u64 = PPB / 4;

/// Converts ticks of a clock to units at its nominal frequency.
///
/// The multiplier has 63 significant bits. Its rounding error (1 part in 2⁶²) counts as drift of the clock, because
/// every conversion uses the same multiplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scale {
    multiplier: u64,
    shift: u32,
}

impl Scale {
    /// Creates the scale of a clock of `frequency` ticks per second; 0 counts as 1.
    pub(crate) fn new(frequency: u64) -> Scale {
        let frequency = u128::from(frequency.max(1));
        let mut shift = 94;
        // At most 2^34 · 2^94: fits 128 bits.
        while ((PER_SECOND as u128) << shift) / frequency >= 1 << 63 {
            shift -= 1;
        }
        Scale { multiplier: (((PER_SECOND as u128) << shift) / frequency) as u64, shift }
    }

    /// Returns the length of a tick in units, rounded up: the uncertainty of a reading.
    pub(crate) fn tick(self) -> i64 {
        let fraction = u128::from(self.multiplier) & ((1 << self.shift) - 1);
        saturate(self.units(1) + i128::from(fraction != 0)).min(LIMIT)
    }

    /// Returns the last tick that is at most `units` after tick 0.
    pub(crate) fn ticks(self, units: i128) -> u64 {
        let Ok(units) = u128::try_from(units) else { return 0 };
        // The division gives a guess only if the shifted value fits 128 bits; otherwise bisection covers the full
        // range.
        let multiplier = u128::from(self.multiplier.max(1));
        let (mut low, mut high) = (0u64, u64::MAX);
        if self.shift < 64 && units < 1 << (127 - self.shift) {
            let guess = u64::try_from((units << self.shift) / multiplier).unwrap_or(u64::MAX);
            (low, high) = (guess.saturating_sub(1), guess.saturating_add(1));
        }
        while low < high {
            let middle = high - (high - low) / 2;
            if self.units(middle) as u128 <= units { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// Returns the units since tick 0, rounded down.
    pub(crate) fn units(self, ticks: u64) -> i128 {
        ((u128::from(ticks) * u128::from(self.multiplier)) >> self.shift) as i128
    }
}

/// A fixed-point slope, for integer products with distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slope(i64);

/// Fractional bits of a [`Slope`].
const SLOPE_BITS: u32 = 40;

impl Slope {
    /// Converts parts per billion, rounded up.
    pub(crate) fn from_ppb(ppb: u64) -> Slope {
        let scaled = (u128::from(ppb.min(MOST_DRIFT_PPB)) << SLOPE_BITS).div_ceil(PPB.into());
        Slope(scaled as i64)
    }

    /// Returns slope times distance, rounded down; monotone in the distance.
    pub(crate) fn times(self, distance: i64) -> i64 {
        ((i128::from(distance) * i128::from(self.0)) >> SLOPE_BITS) as i64
    }
}

/// Rounds units down to whole nanoseconds.
pub(crate) fn floor_nanos(units: i128) -> i64 {
    saturate(units >> NANO_BITS)
}

/// Rounds units up to whole nanoseconds.
pub(crate) fn ceil_nanos(units: i128) -> i64 {
    saturate(-(-units >> NANO_BITS))
}

/// Clamps to the range of `i64`.
pub(crate) fn saturate(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Returns `value` if its magnitude is below [`LIMIT`].
pub(crate) fn within_limit(value: i128) -> Option<i64> {
    (value.unsigned_abs() < LIMIT as u128).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_frequencies_are_exact() {
        assert_eq!(Scale::new(1_000_000_000).units(u64::MAX), i128::from(u64::MAX) * 16);
        assert_eq!(Scale::new(10_000_000).units(3), 4_800);
        assert_eq!(Scale::new(1).units(2), 2 * i128::from(PER_SECOND));
    }

    #[test]
    fn extreme_frequencies_do_not_overflow() {
        assert!(Scale::new(0).units(u64::MAX) > 0);
        assert_eq!(Scale::new(u64::MAX).units(u64::MAX), i128::from(PER_SECOND) - 1);
    }

    #[test]
    fn ticks_undo_units() {
        for frequency in [1, 10_000_000, 1_000_000_000, 3_700_000_000, u64::MAX] {
            let scale = Scale::new(frequency);
            for ticks in [0, 1, 12_345, 1 << 40, u64::MAX] {
                let last = scale.ticks(scale.units(ticks));
                assert!(
                    last >= ticks && scale.units(last) == scale.units(ticks),
                    "{frequency} {ticks} {last}"
                );
            }
        }
        assert_eq!(Scale::new(1).ticks(-1), 0);
    }

    #[test]
    fn nanoseconds_round_outwards() {
        assert_eq!((floor_nanos(-1), ceil_nanos(-1)), (-1, 0));
        assert_eq!((floor_nanos(17), ceil_nanos(17)), (1, 2));
        assert_eq!(floor_nanos(i128::MAX), i64::MAX);
    }
}
