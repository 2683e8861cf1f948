//! Bounds that messages set on a clock's offset, and the filter that removes bounds which others imply.

use crate::units::Slope;

/// The constraint of one message: at `x`, the offset is at least (or at most) `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Reading of the clock, in units from the origin.
    pub(crate) x: i64,
    /// The bound, in units.
    pub(crate) value: i64,
    /// `value − slope · x`.
    pub(crate) rising: i64,
    /// `value + slope · x`.
    pub(crate) falling: i64,
    /// Whether it bounds from above: [`UPPER`] or [`LOWER`].
    pub(crate) upper: bool,
    /// The caller's index of the message that set this bound.
    pub(crate) owner: u32,
}

impl Bound {
    pub(crate) fn new(x: i64, value: i64, upper: bool, slope: Slope, owner: u32) -> Bound {
        let sloped = slope.times(x);
        Bound { x, value, rising: value - sloped, falling: value + sloped, upper, owner }
    }
}

/// Marks the bounds that no other bound implies: those on the Lipschitz envelope. `bounds` are sorted by x.
///
/// A lower bound is implied by an earlier one with at least its `falling` or a later one with a greater `rising`, an
/// upper bound likewise. Two prefix maxima find all implied bounds.
pub(crate) fn on_envelope(bounds: &[Bound]) -> Vec<bool> {
    let mut keep = vec![true; bounds.len()];
    let (mut highest, mut lowest) = (i64::MIN, i64::MAX);
    for (bound, keep) in bounds.iter().zip(&mut keep) {
        if bound.upper {
            *keep = bound.rising < lowest;
            lowest = lowest.min(bound.rising);
        } else {
            *keep = bound.falling > highest;
            highest = highest.max(bound.falling);
        }
    }
    let (mut highest, mut lowest) = (i64::MIN, i64::MAX);
    for (bound, keep) in bounds.iter().zip(&mut keep).rev() {
        if bound.upper {
            *keep &= bound.falling <= lowest;
            lowest = lowest.min(bound.falling);
        } else {
            *keep &= bound.rising >= highest;
            highest = highest.max(bound.rising);
        }
    }
    keep
}

/// Marks the bounds on the envelope, and others where marked ones would be more than `spacing` apart: even an implied bound
/// shows that a message arrived. `bounds` are sorted by x.
pub(crate) fn thinned(bounds: &[Bound], spacing: i64) -> Vec<bool> {
    let mut keep = on_envelope(bounds);
    let mut last = None;
    for (bound, keep) in bounds.iter().zip(&mut keep) {
        *keep |= last.is_none_or(|last| bound.x - last > spacing);
        if *keep {
            last = Some(bound.x);
        }
    }
    keep
}

/// Values of [`Bound::upper`].
pub(crate) const LOWER: bool = false;
pub(crate) const UPPER: bool = true;

/// Returns the envelope of the lower or of the upper bounds at each of `xs`: the tightest value that any bound and the
/// drift limit imply there. Both slices are sorted by x. `None` without bounds on that side.
pub(crate) fn envelope(bounds: &[Bound], xs: &[i64], slope: Slope, upper: bool) -> Option<Vec<i64>> {
    // Lower bounds are upper bounds of the mirrored offset.
    let sign = if upper { 1 } else { -1 };
    let of_side = || bounds.iter().filter(|bound| bound.upper == upper);
    of_side().next()?;
    let mut best = vec![i64::MAX; xs.len()];
    let mut before = of_side().peekable();
    let mut least = i64::MAX;
    for (&x, best) in xs.iter().zip(&mut best) {
        while let Some(bound) = before.next_if(|bound| bound.x <= x) {
            least = least.min(sign * bound.value - slope.times(bound.x));
        }
        *best = least.saturating_add(slope.times(x));
    }
    let mut behind = of_side().rev().peekable();
    let mut least = i64::MAX;
    for (&x, best) in xs.iter().zip(&mut best).rev() {
        while let Some(bound) = behind.next_if(|bound| bound.x >= x) {
            least = least.min(sign * bound.value + slope.times(bound.x));
        }
        *best = (*best).min(least.saturating_sub(slope.times(x)));
    }
    Some(best.into_iter().map(|value| sign * value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_bounds_leave_one() {
        let slope = Slope::from_ppb(1_000);
        let bounds = [Bound::new(5, 7, UPPER, slope, 0), Bound::new(5, 7, UPPER, slope, 1)];
        assert_eq!(on_envelope(&bounds), [true, false]);
    }

    proptest! {
        #[test]
        fn what_is_left_implies_the_rest(
            values in prop::collection::vec((0i64..1_000_000, -500i64..500, any::<bool>()), 1..60)
        ) {
            let slope = Slope::from_ppb(1_000_000);
            let mut bounds: Vec<Bound> =
                values.iter().map(|&(x, value, upper)| Bound::new(x, value, upper, slope, 0)).collect();
            bounds.sort_by_key(|bound| bound.x);
            let keep = on_envelope(&bounds);
            let kept: Vec<Bound> =
                bounds.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(bound, _)| *bound).collect();
            let xs: Vec<i64> = bounds.iter().map(|bound| bound.x).collect();
            for upper in [LOWER, UPPER] {
                let all = envelope(&bounds, &xs, slope, upper);
                prop_assert_eq!(&envelope(&kept, &xs, slope, upper), &all);
                for (bound, end) in bounds.iter().zip(all.iter().flatten()) {
                    let holds = if upper { *end <= bound.value } else { *end >= bound.value };
                    prop_assert!(holds || bound.upper != upper);
                }
            }
        }
    }
}
