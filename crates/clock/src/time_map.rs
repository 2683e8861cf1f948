//! From the times of one clock to those of a timeline.

use serde::{Deserialize, Serialize};

use crate::{CycleClock, Cycles, OriginNanos};

/// Differences of times beyond this many nanoseconds (292 years) are no clock's: products with them would overflow.
const FARTHEST: i128 = 1 << 63;

/// A point of a curve: what a clock shows, and when that is on the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeKnot {
    /// The clock's own time, in nanoseconds from its origin.
    pub own: i128,
    /// The best estimate, in nanoseconds of the timeline.
    pub estimate: i128,
    /// The truth is not before this; `None` where nothing bounds it.
    pub lower: Option<i128>,
    /// Nor after this.
    pub upper: Option<i128>,
}

/// When something was on the timeline, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBounds {
    /// The best estimate.
    pub estimate: OriginNanos,
    /// Not before this; `None` where nothing is known.
    pub lower: Option<OriginNanos>,
    /// Not after this.
    pub upper: Option<OriginNanos>,
}

impl TimeBounds {
    /// Half the length of the interval in nanoseconds, rounded up; `None` where a side is open.
    pub fn half_width(&self) -> Option<u64> {
        let width = self.upper?.0.abs_diff(self.lower?.0).div_ceil(2);
        Some(u64::try_from(width).unwrap_or(u64::MAX))
    }

    /// Whether the clocks decide that this was before `other`.
    pub fn surely_before(&self, other: &TimeBounds) -> bool {
        self.upper.zip(other.lower).is_some_and(|(upper, lower)| upper < lower)
    }
}

/// Maps the times of a clock to a timeline: by a constant, or along a curve between knots. It never runs back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeMap {
    shift: i128,
    /// In order of `own`; estimates never fall.
    knots: Vec<TimeKnot>,
}

impl TimeMap {
    /// Adds a constant, in nanoseconds.
    pub fn shift(nanos: i128) -> TimeMap {
        TimeMap { shift: nanos.clamp(-FARTHEST, FARTHEST), knots: Vec::new() }
    }

    /// Follows straight lines between knots, and goes on with slope 1 outside of them. Knots may come in any order; of
    /// several at one time the last one counts.
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

    /// Whether it changes nothing.
    pub fn is_identity(&self) -> bool {
        self.shift == 0 && self.knots.is_empty()
    }

    /// The constant that it adds; `None` where it follows a curve.
    pub fn constant(&self) -> Option<i128> {
        self.knots.is_empty().then_some(self.shift)
    }

    /// A constant before it: the map of a clock whose times, with the constant, are those that this maps.
    pub fn behind(&self, nanos: i128) -> TimeMap {
        if self.knots.is_empty() {
            return TimeMap::shift(self.shift + nanos);
        }
        let knots = self.knots.iter().map(|knot| TimeKnot { own: knot.own - nanos, ..*knot }).collect();
        TimeMap { shift: 0, knots }
    }

    /// Half the longest interval at its knots in nanoseconds, rounded up; `None` where a side is open.
    pub fn half_width(&self) -> Option<u64> {
        let widths = self.knots.iter().map(|knot| Some(knot.upper?.abs_diff(knot.lower?).div_ceil(2)));
        let longest = widths.collect::<Option<Vec<u128>>>()?.into_iter().max().unwrap_or(0);
        Some(u64::try_from(longest).unwrap_or(u64::MAX))
    }

    /// The knots before and behind a time; one and the same outside of all.
    fn around(&self, own: i128) -> Option<(&TimeKnot, &TimeKnot)> {
        let behind = self.knots.partition_point(|knot| knot.own <= own);
        let next = self.knots.get(behind).or(self.knots.last())?;
        Some((self.knots.get(behind.saturating_sub(1))?, next))
    }

    /// The time on the timeline.
    #[inline]
    pub fn estimate(&self, own: OriginNanos) -> OriginNanos {
        match self.around(own.0) {
            None => OriginNanos(own.0 + self.shift),
            Some((before, next)) => OriginNanos(between(own.0, before, next, |knot| knot.estimate, false)),
        }
    }

    /// The time on the timeline, with its bounds. A constant is exact.
    pub fn bounds(&self, own: OriginNanos) -> TimeBounds {
        let estimate = self.estimate(own);
        let Some((before, next)) = self.around(own.0) else {
            return TimeBounds { estimate, lower: Some(estimate), upper: Some(estimate) };
        };
        let side = |of: fn(&TimeKnot) -> Option<i128>, up: bool| {
            of(before)?;
            of(next)?;
            let value = between(own.0, before, next, |knot| of(knot).unwrap_or(knot.estimate), up);
            Some(OriginNanos(if up { value.max(estimate.0) } else { value.min(estimate.0) }))
        };
        TimeBounds { estimate, lower: side(|knot| knot.lower, false), upper: side(|knot| knot.upper, true) }
    }

    /// The first of the clock's own times that is not before a time of the timeline.
    pub fn first_own(&self, time: OriginNanos) -> OriginNanos {
        if self.knots.is_empty() {
            return OriginNanos(time.0.saturating_sub(self.shift));
        }
        let (mut low, mut high) = (-FARTHEST * 4, FARTHEST * 4);
        while low < high {
            let middle = (low + high).div_euclid(2);
            match self.estimate(OriginNanos(middle)) < time {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        OriginNanos(low)
    }
}

/// A value between two knots, rounded down, or up.
fn between(own: i128, before: &TimeKnot, next: &TimeKnot, of: impl Fn(&TimeKnot) -> i128, up: bool) -> i128 {
    let run = next.own - before.own;
    let gone = own - before.own;
    // Outside of all knots, and where numbers are too large for a product.
    if run <= 0 || gone < 0 || run > FARTHEST || (of(next) - of(before)).abs() > FARTHEST {
        return of(before) + gone;
    }
    let product = (of(next) - of(before)) * gone;
    of(before) + if up { -(-product).div_euclid(run) } else { product.div_euclid(run) }
}

/// A tracer's clock on a timeline.
#[derive(Clone, Copy, Debug)]
pub struct TimelineClock<'m> {
    cycles: CycleClock,
    map: Option<&'m TimeMap>,
}

impl<'m> TimelineClock<'m> {
    /// A clock whose own times `map` maps.
    pub fn new(cycles: CycleClock, map: &'m TimeMap) -> TimelineClock<'m> {
        TimelineClock { cycles, map: (!map.is_identity()).then_some(map) }
    }

    /// When a cycle is on the timeline.
    #[inline]
    pub fn nanos(&self, cycles: u64) -> OriginNanos {
        let own = self.cycles.nanos(cycles);
        match self.map {
            None => own,
            Some(map) => map.estimate(own),
        }
    }

    /// The same, with its bounds.
    pub fn bounds(&self, cycles: u64) -> TimeBounds {
        let own = self.cycles.nanos(cycles);
        match self.map {
            None => TimeBounds { estimate: own, lower: Some(own), upper: Some(own) },
            Some(map) => map.bounds(own),
        }
    }

    /// The cycles from one time of the timeline on, and before another.
    pub fn cycles(&self, from: Option<OriginNanos>, to: Option<OriginNanos>) -> Cycles {
        let own = |time: Option<OriginNanos>| match self.map {
            None => time,
            Some(map) => time.map(|time| map.first_own(time)),
        };
        self.cycles.cycles(own(from), own(to))
    }

    /// Cycles in a second, as the tracer says.
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
    fn a_side_that_nothing_bounds_stays_open() {
        let open = |own, estimate| TimeKnot { upper: None, ..knot(own, estimate, 1) };
        let map = TimeMap::along(vec![open(0, 0), open(10, 10)]);
        let bounds = map.bounds(OriginNanos(5));
        assert_eq!((bounds.lower, bounds.upper, bounds.half_width()), (Some(OriginNanos(4)), None, None));
    }

    proptest! {
        #[test]
        fn it_never_runs_back_and_is_undone(
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
