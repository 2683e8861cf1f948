//! A clock's offset over its own time: an estimate between two bounds, piecewise-linear, in integer arithmetic.

use serde::{Deserialize, Serialize};

use crate::{
    bounds::{Bound, LOWER, UPPER, envelope},
    units::Slope,
};

/// Fractional bits of a line's slope: the product of [`LIMIT`](crate::units::LIMIT) and a slope is exact to one unit.
const RISE_BITS: u32 = 60;

/// Rounds that add knots only at violated bounds; later rounds add a knot at every bound.
const ROUNDS: usize = 64;

/// The values of the three lines at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub(crate) low: i64,
    pub(crate) estimate: i64,
    pub(crate) high: i64,
}

/// A knot: its place, the values there, and their slopes towards the next knot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Knot {
    pub(crate) x: i64,
    pub(crate) low: i64,
    pub(crate) estimate: i64,
    pub(crate) high: i64,
    low_rise: i64,
    estimate_rise: i64,
    high_rise: i64,
}

impl Knot {
    pub(crate) const fn new(x: i64, low: i64, estimate: i64, high: i64) -> Knot {
        Knot { x, low, estimate, high, low_rise: 0, estimate_rise: 0, high_rise: 0 }
    }

    /// Returns the values at `x` on the lines that start at this knot. The bounds enclose the estimate, though rounded and
    /// clamped slopes let lines cross.
    pub(crate) fn at(&self, x: i64) -> Offsets {
        // Distances are below 2^62 and slopes at most 1, so the product fits.
        let apart = i128::from(x - self.x);
        let value =
            |start: i64, rise: i64| start.saturating_add(((apart * i128::from(rise)) >> RISE_BITS) as i64);
        let estimate = value(self.estimate, self.estimate_rise);
        Offsets {
            low: value(self.low, self.low_rise).min(estimate),
            estimate,
            high: value(self.high, self.high_rise).max(estimate),
        }
    }
}

/// Returns the slope of the line between two knots, rounded down and clamped to ±1, which no clock exceeds.
fn rise(from: i64, to: i64, apart: i64) -> i64 {
    let rise = i128::from(to) - i128::from(from);
    let slope = (rise << RISE_BITS).div_euclid(i128::from(apart.max(1)));
    slope.clamp(-1 << RISE_BITS, 1 << RISE_BITS) as i64
}

/// The sides from which something is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sides {
    pub(crate) low: bool,
    pub(crate) high: bool,
}

impl Sides {
    pub(crate) const BOTH: Sides = Sides { low: true, high: true };
    pub(crate) const NEITHER: Sides = Sides { low: false, high: false };
}

/// The estimate and its two bounds, as lines through common knots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Curve {
    knots: Vec<Knot>,
    /// Rate at which the bounds widen before the first and after the last knot; `None` extends the lines straight.
    fades: Option<Slope>,
    pub(crate) has_low: bool,
    pub(crate) has_high: bool,
}

/// A piece of a curve, with all that a conversion needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurvePiece {
    pub(crate) knot: Knot,
    /// The x of the next knot; not after `knot` if there is no piece.
    pub(crate) end: i64,
    /// Number of the piece on the curve.
    pub(crate) number: usize,
    pub(crate) sides: Sides,
}

/// The lines that [`Curve::satisfy`] moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    AllLines,
    Estimate,
}

impl CurvePiece {
    pub(crate) const NONE: CurvePiece =
        CurvePiece { knot: Knot::new(0, 0, 0, 0), end: 0, number: 0, sides: Sides::NEITHER };
}

impl Curve {
    /// Creates the lines through `knots`, which have strictly ascending x.
    pub(crate) fn new(knots: Vec<Knot>, fades: Option<Slope>, sides: Sides) -> Curve {
        let mut curve = Curve { knots, fades, has_low: sides.low, has_high: sides.high };
        curve.join();
        curve
    }

    /// The curve of the reference clock, whose readings are the timeline.
    pub(crate) fn exact(tick: i64) -> Curve {
        Curve::new(vec![Knot::new(0, 0, 0, tick)], None, Sides::BOTH)
    }

    /// Adds the reading uncertainty: an event may read a value up to one tick after the clock reached it.
    pub(crate) fn add_tick(&mut self, tick: i64) {
        for knot in &mut self.knots {
            knot.estimate += tick / 2;
            knot.high = knot.high.saturating_add(tick);
        }
        self.join();
    }

    fn join(&mut self) {
        for index in 1..self.knots.len() {
            let (before, next) = self.knots.split_at_mut(index);
            let (knot, next) = (&mut before[index - 1], &next[0]);
            let apart = next.x - knot.x;
            knot.low_rise = rise(knot.low, next.low, apart);
            knot.estimate_rise = rise(knot.estimate, next.estimate, apart);
            knot.high_rise = rise(knot.high, next.high, apart);
        }
        if let [.., before, last] = self.knots.as_mut_slice() {
            last.low_rise = before.low_rise;
            last.estimate_rise = before.estimate_rise;
            last.high_rise = before.high_rise;
        }
    }

    pub(crate) fn sides(&self) -> Sides {
        Sides { low: self.has_low, high: self.has_high }
    }

    /// Returns the x of each knot.
    pub(crate) fn places(&self) -> impl Iterator<Item = i64> {
        self.knots.iter().map(|knot| knot.x)
    }

    /// Returns the piece that holds `x`: 0 before the first knot, else one more than the index of the preceding knot.
    pub(crate) fn piece(&self, x: i64) -> usize {
        self.knots.partition_point(|knot| knot.x <= x)
    }

    /// Returns the piece that holds `x`; `None` if `x` lies outside the knots. Tries the pieces after `near` first.
    pub(crate) fn piece_around(&self, near: usize, x: i64) -> Option<CurvePiece> {
        let lies_on = |piece: &usize| {
            *piece > 0
                && *piece < self.knots.len()
                && self.knots[piece - 1].x <= x
                && x < self.knots[*piece].x
        };
        let number = (near + 1..near + 4).find(lies_on).unwrap_or_else(|| self.piece(x));
        let (knot, end) = (*self.knots.get(number.checked_sub(1)?)?, self.knots.get(number)?.x);
        Some(CurvePiece { knot, end, number, sides: self.sides() })
    }

    /// Returns the values at `x`, which lies on `piece`.
    pub(crate) fn at_piece(&self, piece: usize, x: i64) -> Offsets {
        let is_inside = piece > 0 && piece < self.knots.len();
        let knot = &self.knots[piece.saturating_sub(1)];
        let mut offsets = knot.at(x);
        if !is_inside && let Some(slope) = self.fades {
            let fade = slope.times(x.abs_diff(knot.x).min(i64::MAX as u64) as i64).saturating_add(1);
            offsets.low = knot.low.saturating_sub(fade);
            offsets.high = knot.high.saturating_add(fade);
            // The estimate must stay within its bounds.
            offsets.estimate = offsets.estimate.clamp(offsets.low, offsets.high);
        }
        offsets
    }

    /// Returns the values at `x`.
    pub(crate) fn at(&self, x: i64) -> Offsets {
        self.at_piece(self.piece(x), x)
    }

    /// Makes the three lines satisfy `bounds` (sorted by x) exactly, and limits every line to `slope`.
    ///
    /// At each knot the lines are clamped to the envelopes of the bounds; a bound that a piece between two knots still
    /// violates becomes a knot. The envelopes are at most as steep as `slope`, and so is the result.
    pub(crate) fn clamp(&mut self, bounds: &[Bound], slope: Slope) {
        self.limit(slope);
        self.satisfy(bounds, slope, Moves::AllLines);
    }

    /// Makes the estimate satisfy `bounds`, and leaves the two bounding lines unchanged except to enclose it.
    pub(crate) fn clamp_estimate(&mut self, bounds: &[Bound], slope: Slope) {
        self.satisfy(bounds, slope, Moves::Estimate);
    }

    fn satisfy(&mut self, bounds: &[Bound], slope: Slope, moves: Moves) {
        let satisfied = |bound: &Bound| {
            let estimate = self.at(bound.x).estimate;
            if bound.upper { estimate <= bound.value } else { estimate >= bound.value }
        };
        if moves == Moves::Estimate && bounds.iter().all(satisfied) {
            return;
        }
        for round in 0.. {
            let places: Vec<i64> = self.knots.iter().map(|knot| knot.x).collect();
            if let Some(low) = envelope(bounds, &places, slope, LOWER) {
                for (knot, low) in self.knots.iter_mut().zip(low) {
                    knot.low = if moves == Moves::AllLines { knot.low.max(low) } else { knot.low };
                    knot.estimate = knot.estimate.max(low);
                }
            }
            if let Some(high) = envelope(bounds, &places, slope, UPPER) {
                for (knot, high) in self.knots.iter_mut().zip(high) {
                    knot.high = if moves == Moves::AllLines { knot.high.min(high) } else { knot.high };
                    knot.estimate = knot.estimate.min(high);
                }
            }
            self.enclose();
            self.join();
            let violated = self.violated(bounds, round >= ROUNDS);
            if violated.is_empty() {
                return;
            }
            self.insert(&violated);
        }
    }

    /// Widens the bounds until they enclose the estimate, which clamping may have moved outside.
    fn enclose(&mut self) {
        for knot in &mut self.knots {
            knot.low = knot.low.min(knot.estimate);
            knot.high = knot.high.max(knot.estimate);
        }
    }

    /// Returns the places of the bounds that the estimate violates, or of all bounds, unless they have a knot.
    fn violated(&self, bounds: &[Bound], all: bool) -> Vec<i64> {
        let mut piece = 0;
        let mut places = Vec::new();
        for bound in bounds {
            while self.knots.get(piece).is_some_and(|knot| knot.x <= bound.x) {
                piece += 1;
            }
            let estimate = self.at_piece(piece, bound.x).estimate;
            let violated = if bound.upper { estimate > bound.value } else { estimate < bound.value };
            let is_knot = piece > 0 && self.knots[piece - 1].x == bound.x;
            if (violated || all) && !is_knot && places.last() != Some(&bound.x) {
                places.push(bound.x);
            }
        }
        places
    }

    /// Adds knots on the lines without changing their values.
    fn insert(&mut self, places: &[i64]) {
        let added = places.iter().map(|&x| {
            let offsets = self.at(x);
            Knot::new(x, offsets.low, offsets.estimate, offsets.high)
        });
        let added: Vec<Knot> = added.collect();
        self.knots.extend(added);
        self.knots.sort_by_key(|knot| knot.x);
        self.join();
    }

    /// Limits every line to `slope`. Bounds only get tighter, because the true offset is no steeper.
    fn limit(&mut self, slope: Slope) {
        let tighten = |from: Knot, knot: &mut Knot| {
            let fall = slope.times((knot.x - from.x).abs()) + 1;
            knot.low = knot.low.max(from.low.saturating_sub(fall));
            knot.high = knot.high.min(from.high.saturating_add(fall));
            knot.estimate = knot.estimate.max(from.estimate.saturating_sub(fall - 1));
        };
        for index in 1..self.knots.len() {
            let from = self.knots[index - 1];
            tighten(from, &mut self.knots[index]);
        }
        for index in (1..self.knots.len()).rev() {
            let from = self.knots[index];
            tighten(from, &mut self.knots[index - 1]);
        }
        self.enclose();
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_extend_straight_without_fading_and_never_cross() {
        let knots = vec![Knot::new(0, 0, 0, 0), Knot::new(1_024, 10, 20, 30)];
        let curve = Curve::new(knots, None, Sides::BOTH);
        assert_eq!(curve.at(2_048), Offsets { low: 20, estimate: 40, high: 60 });
        assert_eq!(curve.at(-1_024), Offsets { low: -20, estimate: -20, high: -20 });
    }

    proptest! {
        #[test]
        fn a_clamped_curve_satisfies_every_bound_and_time_never_runs_back(
            values in prop::collection::vec((0i64..100_000, 0i64..300, any::<bool>()), 1..50),
            start in -500i64..500, end in -500i64..500,
        ) {
            let slope = Slope::from_ppb(10_000_000);
            // Bounds around a truth of constant drift never contradict each other.
            let mut bounds: Vec<Bound> = values.iter().map(|&(x, room, upper)| {
                let truth = x / 200;
                Bound::new(x, if upper { truth + room } else { truth - room }, upper, slope, 0)
            }).collect();
            bounds.sort_by_key(|bound| bound.x);
            let knots = vec![Knot::new(0, -5_000, start, 5_000), Knot::new(100_000, -5_000, end, 5_000)];
            let mut curve = Curve::new(knots, Some(slope), Sides::BOTH);
            curve.clamp(&bounds, slope);
            for bound in &bounds {
                let offsets = curve.at(bound.x);
                let (least, most) = if bound.upper { (i64::MIN, bound.value) } else { (bound.value, i64::MAX) };
                prop_assert!(least <= offsets.estimate && offsets.estimate <= most);
                let truth = bound.x / 200;
                prop_assert!(offsets.low <= truth + 1 && truth - 1 <= offsets.high);
            }
            let mut before = i64::MIN;
            for x in (-2_000..102_000).step_by(7) {
                let offsets = curve.at(x);
                prop_assert!(offsets.low <= offsets.estimate && offsets.estimate <= offsets.high);
                prop_assert!(x + offsets.estimate >= before);
                before = x + offsets.estimate;
            }
        }
    }
}
