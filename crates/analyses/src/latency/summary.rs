//! Exact percentiles and histogram bins of complete lists.

use hodo_model::Unit;

use super::Interval;

/// A measure of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Nanoseconds.
    Time,
    /// Instructions.
    Instructions,
    /// Core cycles.
    Cycles,
}

impl Measure {
    /// All measures, in the order of tables.
    pub const ALL: [Measure; 3] = [Measure::Time, Measure::Instructions, Measure::Cycles];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Time => "time_ns",
            Measure::Instructions => "instructions",
            Measure::Cycles => "cycles",
        }
    }

    /// Returns its unit.
    pub fn unit(self) -> Unit {
        if self == Measure::Time { Unit::Nanoseconds } else { Unit::Count }
    }

    /// Returns the value of an interval, if known.
    pub fn of(self, interval: &Interval) -> Option<u64> {
        match self {
            Measure::Time => interval.time,
            Measure::Instructions => interval.instructions,
            Measure::Cycles => interval.cycles,
        }
    }

    /// Returns the values of all complete intervals, sorted.
    pub fn sorted(self, intervals: &[Interval]) -> Vec<u64> {
        let complete = intervals.iter().filter(|interval| interval.ended.is_complete());
        let mut all: Vec<u64> = complete.filter_map(|interval| self.of(interval)).collect();
        all.sort_unstable();
        all
    }
}

/// Returns the smallest value of a sorted list such that at least `permille`/1000 of the values do not exceed it
/// (nearest rank).
pub fn percentile(sorted: &[u64], permille: u64) -> Option<u64> {
    let rank = (sorted.len() as u128 * u128::from(permille)).div_ceil(1000).max(1);
    sorted.get(rank as usize - 1).copied()
}

/// The width of bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal width: 1, 2 or 5 times a power of ten, so that there are at most 20.
    Linear,
    /// Each twice as wide as the previous one: from one power of two to the next; the first contains only 0.
    Logarithmic,
}

impl Scale {
    /// Both scales, in the order of tables.
    pub const ALL: [Scale; 2] = [Scale::Linear, Scale::Logarithmic];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Linear => "linear",
            Scale::Logarithmic => "logarithmic",
        }
    }
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramBin {
    /// Lower bound, inclusive.
    pub from: u64,
    /// Upper bound, exclusive.
    pub until: u64,
    /// Number of values in it.
    pub count: u64,
    /// Number of values in it and below.
    pub cumulated: u64,
}

/// Maximum number of linear bins.
const MOST: u64 = 20;

/// Returns the bins of a sorted list, from that of its least to that of its greatest value; bins between them may be
/// empty.
pub fn bins(sorted: &[u64], scale: Scale) -> Vec<HistogramBin> {
    let (Some(&least), Some(&greatest)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let width = width(least, greatest);
    let mut bins = Vec::new();
    let mut from = match scale {
        Scale::Linear => least / width * width,
        Scale::Logarithmic => floor(least),
    };
    let mut below = 0;
    loop {
        let until = match scale {
            Scale::Linear => from.saturating_add(width),
            Scale::Logarithmic => from.saturating_mul(2).max(1),
        };
        // The upper bound `u64::MAX` is inclusive, because no larger bound exists.
        let is_last = greatest < until || until == u64::MAX;
        let cumulated =
            if is_last { sorted.len() } else { sorted.partition_point(|&value| value < until) } as u64;
        bins.push(HistogramBin { from, until, count: cumulated - below, cumulated });
        if is_last {
            return bins;
        }
        (from, below) = (until, cumulated);
    }
}

/// Returns the greatest power of two that is not greater than `value`; 0 for 0.
fn floor(value: u64) -> u64 {
    value.checked_ilog2().map_or(0, |bits| 1 << bits)
}

/// Returns the least width of 1, 2 or 5 times a power of ten that makes at most [`MOST`] bins.
fn width(least: u64, greatest: u64) -> u64 {
    let widths =
        (0..20).flat_map(|power| [1u64, 2, 5].map(|times| 10u64.saturating_pow(power).saturating_mul(times)));
    widths.into_iter().find(|width| greatest / width - least / width < MOST).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list() {
        let list: Vec<u64> = (1..=200).collect();
        assert_eq!(
            [0, 5, 500, 990, 999, 1000].map(|permille| percentile(&list, permille)),
            [1, 1, 100, 198, 200, 200].map(Some)
        );
        assert_eq!(percentile(&[], 500), None);
    }

    #[test]
    fn linear_bins_have_round_borders() {
        let borders = |list: &[u64]| {
            bins(list, Scale::Linear).iter().map(|bin| (bin.from, bin.count)).collect::<Vec<_>>()
        };
        assert_eq!(borders(&[7, 7, 9]), [(7, 2), (8, 0), (9, 1)]);
        assert_eq!(borders(&[103, 151, 299]).len(), 20);
        assert_eq!(borders(&[103, 151, 299])[0], (100, 1));
    }

    #[test]
    fn logarithmic_bins_double() {
        let list = [0, 1, 3, 3, 9];
        let expected = [(0, 1, 1, 1), (1, 2, 1, 2), (2, 4, 2, 4), (4, 8, 0, 4), (8, 16, 1, 5)];
        let bins = bins(&list, Scale::Logarithmic);
        assert_eq!(
            bins.iter().map(|bin| (bin.from, bin.until, bin.count, bin.cumulated)).collect::<Vec<_>>(),
            expected
        );
    }

    proptest! {
        #[test]
        fn each_value_is_in_its_bin(mut list in prop::collection::vec((any::<u64>(), 0u32..64), 1..50)
            .prop_map(|list| list.into_iter().map(|(value, shift)| value >> shift).collect::<Vec<u64>>())) {
            list.sort_unstable();
            for scale in Scale::ALL {
                let bins = bins(&list, scale);
                prop_assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), list.len() as u64);
                prop_assert_eq!(bins[bins.len() - 1].cumulated, list.len() as u64);
                prop_assert!(bins.len() <= 65 && (scale == Scale::Logarithmic || bins.len() as u64 <= MOST));
                for bin in &bins {
                    let inside = list.iter().filter(|&&value| bin.from <= value && (value < bin.until || bin.until == u64::MAX));
                    prop_assert_eq!(inside.count() as u64, bin.count);
                }
            }
        }
    }
}
