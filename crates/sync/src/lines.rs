//! Published methods, for comparison: one line per clock.
//!
//! Duda et al. 1987, "Estimating global time in distributed systems", gives both: the bisector of the extreme
//! admissible lines, and linear regression.

use crate::bounds::{Bound, LOWER, UPPER};

/// A line through two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) from: (i64, i64),
    pub(crate) to: (i64, i64),
}

impl Line {
    fn at(&self, x: i64) -> i64 {
        let ((x0, y0), (x1, y1)) = (self.from, self.to);
        let run = i128::from(x1) - i128::from(x0);
        let rise = (i128::from(y1) - i128::from(y0)) * (i128::from(x) - i128::from(x0));
        (i128::from(y0) + if run == 0 { 0 } else { rise.div_euclid(run) }) as i64
    }
}

/// The steepest and the flattest line above all lower and below all upper bounds, spanning the first to the last place.
pub(crate) struct Extremes {
    pub(crate) steepest: Line,
    pub(crate) flattest: Line,
    /// Amount by which bounds were widened until a line was admissible, in units.
    pub(crate) widened: i64,
}

/// Returns the extreme lines of bounds sorted by x; `None` if all bounds share one place or a side is missing.
///
/// If no line is admissible, widens the bounds by the least integer that admits one, as implementations do that do not
/// fail.
pub(crate) fn extremes(bounds: &[Bound]) -> Option<Extremes> {
    let (first, last) = (bounds.first()?.x, bounds.last()?.x);
    let (above, below) = (hull(bounds, UPPER), hull(bounds, LOWER));
    if first == last || above.is_empty() || below.is_empty() {
        return None;
    }
    let (mut low, mut high) = (0, i64::MAX >> 2);
    while low < high {
        let middle = low + (high - low) / 2;
        if separable(&above, &below, middle) { high = middle } else { low = middle + 1 }
    }
    let widened = low;
    let above: Vec<(i64, i64)> = above.iter().map(|&(x, y)| (x, y + widened)).collect();
    let span = |line: Line| Line { from: (first, line.at(first)), to: (last, line.at(last)) };
    let steepest = steepest(&above, &below)?;
    // The flattest line is the steepest of the mirror image.
    let mirrored = |points: &[(i64, i64)]| points.iter().map(|&(x, y)| (x, -y)).collect::<Vec<_>>();
    let Line { from, to } = self::steepest(&mirrored(&below), &mirrored(&above))?;
    let flattest = Line { from: (from.0, -from.1), to: (to.0, -to.1) };
    Some(Extremes { steepest: span(steepest), flattest: span(flattest), widened })
}

/// Returns the lower hull of upper bounds, or the upper hull of lower bounds, from left to right.
fn hull(bounds: &[Bound], upper: bool) -> Vec<(i64, i64)> {
    let mut hull: Vec<(i64, i64)> = Vec::new();
    for bound in bounds.iter().filter(|bound| bound.upper == upper) {
        let point = (bound.x, bound.value);
        if let Some(last) = hull.last().filter(|last| last.0 == point.0) {
            if (last.1 <= point.1) == upper {
                continue;
            }
            hull.pop();
        }
        while let [.., a, b] = hull[..] {
            let turn = cross(a, b, point);
            if (upper && turn > 0) || (!upper && turn < 0) {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// Returns a positive value if `a → b → c` turns left.
fn cross(a: (i64, i64), b: (i64, i64), c: (i64, i64)) -> i128 {
    let apart = |from: i64, to: i64| i128::from(to) - i128::from(from);
    // Each factor is below 2^63, so the products fit.
    apart(a.0, b.0) * apart(a.1, c.1) - apart(a.1, b.1) * apart(a.0, c.0)
}

/// Returns whether the hull of upper bounds, raised by `raise`, lies nowhere below that of lower bounds.
fn separable(above: &[(i64, i64)], below: &[(i64, i64)], raise: i64) -> bool {
    let over = |points: &[(i64, i64)], hull: &[(i64, i64)], sign: i128| {
        let mut edge = 0;
        points.iter().all(|&(x, y)| {
            while edge + 2 < hull.len() && hull[edge + 1].0 < x {
                edge += 1;
            }
            let inside = hull[0].0 <= x && x <= hull[hull.len() - 1].0;
            let [a, b] = [hull[edge], hull[(edge + 1).min(hull.len() - 1)]];
            let run = i128::from(b.0) - i128::from(a.0);
            let up = i128::from(y) - i128::from(a.1) + sign * i128::from(raise);
            let turn = if run == 0 {
                up
            } else {
                up * run - (i128::from(b.1) - i128::from(a.1)) * (i128::from(x) - i128::from(a.0))
            };
            !inside || sign * turn >= 0
        })
    };
    over(above, below, 1) && over(below, above, -1)
}

/// Returns the steepest line between the hulls: it touches a lower bound and, to its right, an upper bound.
///
/// For each lower corner, bisection finds the upper corner of least slope to its right, because slopes from a point to
/// a convex chain fall and then rise.
fn steepest(above: &[(i64, i64)], below: &[(i64, i64)]) -> Option<Line> {
    let slope_less = |a: (i128, i128), b: (i128, i128)| a.1 * b.0 < b.1 * a.0;
    let between = |from: (i64, i64), to: (i64, i64)| {
        (i128::from(to.0) - i128::from(from.0), i128::from(to.1) - i128::from(from.1))
    };
    let mut best: Option<Line> = None;
    for &from in below {
        let right = above.partition_point(|point| point.0 <= from.0);
        let candidates = &above[right..];
        let falls = |pair: &[(i64, i64)]| slope_less(between(from, pair[1]), between(from, pair[0]));
        let mut low = 0;
        let mut high = candidates.len().saturating_sub(1);
        while low < high {
            let middle = (low + high) / 2;
            if falls(&candidates[middle..middle + 2]) { low = middle + 1 } else { high = middle }
        }
        let Some(&to) = candidates.get(low) else { continue };
        let line = Line { from, to };
        if best.is_none_or(|best| slope_less(between(from, to), between(best.from, best.to))) {
            best = Some(line);
        }
    }
    best
}

/// Returns the mean of the two extreme lines.
pub(crate) fn bisector(extremes: &Extremes) -> Line {
    let (a, b) = (extremes.steepest, extremes.flattest);
    let mean = |y0: i64, y1: i64| y0 + (y1 - y0) / 2;
    // Lowering by half of the raise violates both sides equally.
    let lowered = extremes.widened / 2;
    Line {
        from: (a.from.0, mean(a.from.1, b.from.1) - lowered),
        to: (a.to.0, mean(a.to.1, b.to.1) - lowered),
    }
}

/// Fits a least-squares line through the bounds of each side and returns their mean; `None` if a side has fewer than
/// two places.
///
/// Floating-point sums use distances from the mean, so their error is far below one unit.
pub(crate) fn regression(bounds: &[Bound]) -> Option<Line> {
    let (first, last) = (bounds.first()?.x, bounds.last()?.x);
    let fit = |upper: bool| {
        let side = || bounds.iter().filter(|bound| bound.upper == upper);
        let count = side().count() as i128;
        if count < 2 {
            return None;
        }
        let x0 = (side().map(|bound| i128::from(bound.x)).sum::<i128>() / count) as i64;
        let y0 = (side().map(|bound| i128::from(bound.value)).sum::<i128>() / count) as i64;
        let (mut products, mut squares) = (0.0, 0.0);
        for bound in side() {
            let (x, y) = ((bound.x - x0) as f64, (bound.value - y0) as f64);
            products += x * y;
            squares += x * x;
        }
        if squares == 0.0 {
            return None;
        }
        let slope = products / squares;
        let at = |x: i64| y0 + (slope * (x - x0) as f64).round() as i64;
        Some((at(first), at(last)))
    };
    let (above, below) = (fit(UPPER)?, fit(LOWER)?);
    let mean = |y0: i64, y1: i64| y0 + (y1 - y0) / 2;
    Some(Line { from: (first, mean(above.0, below.0)), to: (last, mean(above.1, below.1)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Slope;
    use proptest::prelude::*;

    /// Bounds at a place, with a value, from above (`true`) or from below.
    fn bounds(points: &[(i64, i64, bool)]) -> Vec<Bound> {
        let slope = Slope::from_ppb(0);
        let mut bounds: Vec<Bound> =
            points.iter().map(|&(x, value, upper)| Bound::new(x, value, upper, slope, 0)).collect();
        bounds.sort_by_key(|bound| bound.x);
        bounds
    }

    /// Two points per side, as in Duda's figure: the extreme lines run through opposite corners.
    #[test]
    fn the_bisector_of_four_points_is_the_textbook_one() {
        let bounds = bounds(&[(0, 10, true), (100, 10, true), (0, -10, false), (100, -10, false)]);
        let extremes = extremes(&bounds).unwrap();
        assert_eq!(extremes.steepest, Line { from: (0, -10), to: (100, 10) });
        assert_eq!(extremes.flattest, Line { from: (0, 10), to: (100, -10) });
        assert_eq!(bisector(&extremes), Line { from: (0, 0), to: (100, 0) });
    }

    /// Uppers lie on y = 2x + 6, lowers on y = 2x − 2 (least squares are exact on lines).
    #[test]
    fn regression_of_two_parallel_lines_is_the_one_between() {
        let points: Vec<_> =
            (0..50).flat_map(|x| [(x * 10, 20 * x + 6, true), (x * 10, 20 * x - 2, false)]).collect();
        assert_eq!(regression(&bounds(&points)).unwrap(), Line { from: (0, 2), to: (490, 982) });
    }

    #[test]
    fn bounds_that_admit_no_line_are_widened_alike() {
        let bounds = bounds(&[(0, 5, true), (50, 25, false), (100, 5, true), (0, 0, false), (100, 0, false)]);
        let extremes = extremes(&bounds).unwrap();
        assert_eq!(extremes.widened, 20);
        assert_eq!(bisector(&extremes), Line { from: (0, 15), to: (100, 15) });
    }

    proptest! {
        /// Compares with every pair of bounds: slope ≤ (u − l)/(x_u − x_l) if a lower bound lies left of an upper
        /// bound.
        #[test]
        fn the_steepest_line_is_the_least_slope_of_all_pairs(
            points in prop::collection::vec((0i64..10_000, 1i64..400, any::<bool>()), 2..40),
        ) {
            let points: Vec<_> = points.iter().map(|&(x, room, upper)| {
                (x, x / 3 + if upper { room } else { -room }, upper)
            }).collect();
            let bounds = bounds(&points);
            let all = &bounds;
            let pairs = |left: bool| all.iter().filter(move |bound| bound.upper != left).flat_map(move |from| {
                all.iter().filter(move |to| to.upper == left && to.x > from.x).map(move |to| (from, to))
            });
            let slope = |(from, to): (&Bound, &Bound)| (to.value - from.value) as f64 / (to.x - from.x) as f64;
            let least = pairs(UPPER).map(slope).fold(f64::INFINITY, f64::min);
            let most = pairs(LOWER).map(slope).fold(f64::NEG_INFINITY, f64::max);
            prop_assume!(least.is_finite() && most.is_finite());
            let extremes = extremes(&bounds).unwrap();
            prop_assert_eq!(extremes.widened, 0);
            let span = (bounds[bounds.len() - 1].x - bounds[0].x) as f64;
            let rise = |line: Line| (line.to.1 - line.from.1) as f64;
            prop_assert!((rise(extremes.steepest) - least * span).abs() <= 1.0);
            prop_assert!((rise(extremes.flattest) - most * span).abs() <= 1.0);
        }
    }
}
