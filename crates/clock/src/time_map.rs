//! Maps the times of a clock to a timeline.

use crate::{CycleClock, Cycles, OriginNanos};

/// Bound on differences of times in nanoseconds (292 years), beyond which products would overflow. No real clock
/// reaches it.
const FARTHEST: i128 = 1 << 63;

/// A point of a curve: a clock's reading, and its time on the timeline with bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TimeKnot {
    /// The clock's own time, in nanoseconds from its origin.
    pub own: i128,
    /// The best estimate, in nanoseconds of the timeline.
    pub estimate: i128,
    /// Lower bound of the true time; `None` if unknown.
    pub lower: Option<i128>,
    /// Upper bound of the true time; `None` if unknown.
    pub upper: Option<i128>,
}

/// A time on the timeline, with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBounds {
    /// The best estimate.
    pub estimate: OriginNanos,
    /// Lower bound of the true time; `None` if unknown.
    pub lower: Option<OriginNanos>,
    /// Upper bound of the true time; `None` if unknown.
    pub upper: Option<OriginNanos>,
}

impl TimeBounds {
    /// Returns half the length of the interval in nanoseconds, rounded up; `None` if a bound is unknown.
    pub fn half_width(&self) -> Option<u64> {
        let width = self.upper?.0.abs_diff(self.lower?.0).div_ceil(2);
        Some(u64::try_from(width).unwrap_or(u64::MAX))
    }

    /// Returns whether this was certainly before `other`.
    pub fn surely_before(&self, other: &TimeBounds) -> bool {
        self.upper.zip(other.lower).is_some_and(|(upper, lower)| upper < lower)
    }
}

/// A monotonic map from the times of a clock to a timeline: a constant shift, or a piecewise-linear curve between
/// knots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeMap {
    shift: i128,
    /// Sorted by `own`; estimates never decrease.
    knots: Vec<TimeKnot>,
}

impl TimeMap {
    /// Creates a map that adds a constant, in nanoseconds.
    pub fn shift(nanos: i128) -> TimeMap {
        TimeMap { shift: nanos.clamp(-FARTHEST, FARTHEST), knots: Vec::new() }
    }

    /// Creates a map that interpolates linearly between knots, and continues with slope 1 outside of them. Knots may be
    /// in any order; the last of several at one time counts.
    pub fn along(mut knots: Vec<TimeKnot>) -> TimeMap {
        knots.sort_by_key(|knot| knot.own);
        knots.dedup_by(|later, earlier| {
            let same = later.own == earlier.own;
            if same {
                *earlier = *later;
            }
            same
        });
        let mut highest = i128::MIN;
        for knot in &mut knots {
            highest = highest.max(knot.estimate);
            knot.estimate = highest;
        }
        TimeMap { shift: 0, knots }
    }

    /// Returns whether the map changes no time.
    pub fn is_identity(&self) -> bool {
        self.shift == 0 && self.knots.is_empty()
    }

    /// Returns the constant that the map adds, in nanoseconds; `None` for a curve.
    pub fn constant(&self) -> Option<i128> {
        self.knots.is_empty().then_some(self.shift)
    }

    /// Returns the map that adds a constant first and then applies this one.
    pub fn delayed_by(&self, nanos: i128) -> TimeMap {
        if self.knots.is_empty() {
            return TimeMap::shift(self.shift + nanos);
        }
        let knots = self.knots.iter().map(|knot| TimeKnot { own: knot.own - nanos, ..*knot }).collect();
        TimeMap { shift: 0, knots }
    }

    /// Returns half of the widest interval between the bounds of a knot, in nanoseconds, rounded up; `None` if a bound
    /// is unknown.
    pub fn half_width(&self) -> Option<u64> {
        let widths = self.knots.iter().map(|knot| Some(knot.upper?.abs_diff(knot.lower?).div_ceil(2)));
        let longest = widths.collect::<Option<Vec<u128>>>()?.into_iter().max().unwrap_or(0);
        Some(u64::try_from(longest).unwrap_or(u64::MAX))
    }

    /// Returns the knots before and after a time; outside of all knots, both are the nearest one.
    fn around(&self, own: i128) -> Option<(&TimeKnot, &TimeKnot)> {
        let behind = self.knots.partition_point(|knot| knot.own <= own);
        let next = self.knots.get(behind).or(self.knots.last())?;
        Some((self.knots.get(behind.saturating_sub(1))?, next))
    }

    /// Returns the time on the timeline.
    #[inline]
    pub fn estimate(&self, own: OriginNanos) -> OriginNanos {
        match self.around(own.0) {
            None => OriginNanos(own.0 + self.shift),
            Some((before, next)) => {
                OriginNanos(between(own.0, before, next, |knot| knot.estimate, Round::Down))
            }
        }
    }

    /// Returns the time on the timeline, with its bounds. A constant shift is exact.
    pub fn bounds(&self, own: OriginNanos) -> TimeBounds {
        let estimate = self.estimate(own);
        let Some((before, next)) = self.around(own.0) else {
            return TimeBounds { estimate, lower: Some(estimate), upper: Some(estimate) };
        };
        let side = |line: fn(&TimeKnot) -> Option<i128>, round: Round| {
            line(before)?;
            line(next)?;
            let value = between(own.0, before, next, |knot| line(knot).unwrap_or(knot.estimate), round);
            Some(OriginNanos(match round {
                Round::Down => value.min(estimate.0),
                Round::Up => value.max(estimate.0),
            }))
        };
        TimeBounds {
            estimate,
            lower: side(|knot| knot.lower, Round::Down),
            upper: side(|knot| knot.upper, Round::Up),
        }
    }

    /// Returns the first of the clock's own times that is mapped to `time` or later.
    pub fn first_own(&self, time: OriginNanos) -> OriginNanos {
        if self.knots.is_empty() {
            return OriginNanos(time.0.saturating_sub(self.shift));
        }
        // A binary search over more than any clock reaches: a knot, a shift and the way from the last knot are each at
        // most `FARTHEST`.
        let (mut low, mut high) = (-FARTHEST * 4, FARTHEST * 4);
        while low < high {
            let middle = (low + high).div_euclid(2);
            if self.estimate(OriginNanos(middle)) < time { low = middle + 1 } else { high = middle }
        }
        OriginNanos(low)
    }
}

#[derive(Clone, Copy)]
enum Round {
    Down,
    Up,
}

/// Interpolates between two knots, rounded: `line` returns the value of a knot.
fn between(
    own: i128,
    before: &TimeKnot,
    next: &TimeKnot,
    line: impl Fn(&TimeKnot) -> i128,
    round: Round,
) -> i128 {
    let length = next.own - before.own;
    let passed = own - before.own;
    // Outside of all knots, and if the product would overflow, the slope is 1.
    if length <= 0 || passed < 0 || length > FARTHEST || (line(next) - line(before)).abs() > FARTHEST {
        return line(before) + passed;
    }
    let product = (line(next) - line(before)) * passed;
    line(before)
        + match round {
            Round::Down => product.div_euclid(length),
            Round::Up => -(-product).div_euclid(length),
        }
}

/// A tracer's clock on a timeline.
#[derive(Clone, Copy, Debug)]
pub struct TimelineClock<'m> {
    cycles: CycleClock,
    map: Option<&'m TimeMap>,
}

impl<'m> TimelineClock<'m> {
    /// Creates the clock from a tracer's clock and the map of its times.
    pub fn new(cycles: CycleClock, map: &'m TimeMap) -> TimelineClock<'m> {
        TimelineClock { cycles, map: (!map.is_identity()).then_some(map) }
    }

    /// Returns the time of a cycle on the timeline.
    #[inline]
    pub fn nanos(&self, cycles: u64) -> OriginNanos {
        let own = self.cycles.nanos(cycles);
        match self.map {
            None => own,
            Some(map) => map.estimate(own),
        }
    }

    /// Returns the time of a cycle on the timeline, with its bounds.
    pub fn bounds(&self, cycles: u64) -> TimeBounds {
        let own = self.cycles.nanos(cycles);
        match self.map {
            None => TimeBounds { estimate: own, lower: Some(own), upper: Some(own) },
            Some(map) => map.bounds(own),
        }
    }

    /// Returns the cycles at or after the time `from` of the timeline and before `to`.
    pub fn cycles(&self, from: Option<OriginNanos>, to: Option<OriginNanos>) -> Cycles {
        let own = |time: Option<OriginNanos>| match self.map {
            None => time,
            Some(map) => time.map(|time| map.first_own(time)),
        };
        self.cycles.cycles(own(from), own(to))
    }

    /// Returns the number of cycles per second, according to the tracer.
    pub fn frequency(&self) -> u64 {
        self.cycles.frequency()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn knot(own: i128, estimate: i128, width: i128) -> TimeKnot {
        TimeKnot { own, estimate, lower: Some(estimate - width), upper: Some(estimate + width) }
    }

    #[test]
    fn a_constant_is_exact() {
        let map = TimeMap::shift(-5);
        let bounds = map.bounds(OriginNanos(12));
        assert_eq!((bounds.estimate, bounds.half_width()), (OriginNanos(7), Some(0)));
        assert_eq!(map.first_own(OriginNanos(7)), OriginNanos(12));
        assert!(!map.is_identity() && TimeMap::default().is_identity());
    }

    #[test]
    fn bounds_lie_on_lines_between_knots() {
        let map = TimeMap::along(vec![knot(100, 1_000, 10), knot(200, 1_200, 30)]);
        let bounds = map.bounds(OriginNanos(150));
        assert_eq!(bounds.estimate, OriginNanos(1_100));
        assert_eq!((bounds.lower, bounds.upper), (Some(OriginNanos(1_080)), Some(OriginNanos(1_120))));
        assert_eq!(map.estimate(OriginNanos(90)), OriginNanos(990));
        assert_eq!(map.estimate(OriginNanos(210)), OriginNanos(1_210));
        let other = map.bounds(OriginNanos(170));
        assert!(!bounds.surely_before(&other) && bounds.surely_before(&map.bounds(OriginNanos(199))));
    }

    #[test]
    fn a_bound_that_no_knot_has_stays_unknown() {
        let open = |own, estimate| TimeKnot { upper: None, ..knot(own, estimate, 1) };
        let map = TimeMap::along(vec![open(0, 0), open(10, 10)]);
        let bounds = map.bounds(OriginNanos(5));
        assert_eq!((bounds.lower, bounds.upper, bounds.half_width()), (Some(OriginNanos(4)), None, None));
    }

    proptest! {
        #[test]
        fn a_map_never_runs_back_and_first_own_undoes_it(
            knots in prop::collection::vec((-1_000i128..1_000, -1_000i128..1_000), 1..8),
            own in -2_000i128..2_000, time in -2_000i128..2_000,
        ) {
            let map = TimeMap::along(knots.into_iter().map(|(own, time)| knot(own, time, 3)).collect());
            prop_assert!(map.estimate(OriginNanos(own)) <= map.estimate(OriginNanos(own + 1)));
            let first = map.first_own(OriginNanos(time));
            prop_assert!(map.estimate(first).0 >= time);
            prop_assert!(map.estimate(OriginNanos(first.0 - 1)).0 < time);
        }
    }
}
