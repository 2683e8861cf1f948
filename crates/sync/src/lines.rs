//! Published methods, for comparison: one line per clock.
//!
//! Duda et al. 1987, "Estimating global time in distributed systems", gives both: the bisector of the extreme
//! admissible lines, and linear regression.

use crate::bounds::{Bound, LOWER, UPPER};

/// An offset `y` at the clock reading `x`, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) x: i64,
    pub(crate) y: i64,
}

impl Point {
    fn mirrored(self) -> Point {
        Point { x: self.x, y: -self.y }
    }
}

/// The way from one point to another.
#[derive(Clone, Copy)]
struct Way {
    run: i128,
    rise: i128,
}

impl Way {
    fn between(from: Point, to: Point) -> Way {
        let apart = |from: i64, to: i64| i128::from(to) - i128::from(from);
        Way { run: apart(from.x, to.x), rise: apart(from.y, to.y) }
    }

    /// Returns whether this is less steep than `other`; both lead to the right.
    fn is_flatter(self, other: Way) -> bool {
        self.rise * other.run < other.rise * self.run
    }
}

/// A line through two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) from: Point,
    pub(crate) to: Point,
}

impl Line {
    fn at(&self, x: i64) -> Point {
        let Way { run, rise } = Way::between(self.from, self.to);
        let scaled = rise * (i128::from(x) - i128::from(self.from.x));
        let y = i128::from(self.from.y) + if run == 0 { 0 } else { scaled.div_euclid(run) };
        Point { x, y: y as i64 }
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
    let above: Vec<Point> = above.iter().map(|&Point { x, y }| Point { x, y: y + widened }).collect();
    let span = |line: Line| Line { from: line.at(first), to: line.at(last) };
    let steepest = steepest(&above, &below)?;
    // The flattest line is the steepest of the mirror image.
    let mirrored = |points: &[Point]| points.iter().map(|point| point.mirrored()).collect::<Vec<_>>();
    let Line { from, to } = self::steepest(&mirrored(&below), &mirrored(&above))?;
    let flattest = Line { from: from.mirrored(), to: to.mirrored() };
    Some(Extremes { steepest: span(steepest), flattest: span(flattest), widened })
}

/// Returns the lower hull of upper bounds, or the upper hull of lower bounds, from left to right.
fn hull(bounds: &[Bound], upper: bool) -> Vec<Point> {
    let mut hull: Vec<Point> = Vec::new();
    for bound in bounds.iter().filter(|bound| bound.upper == upper) {
        let point = Point { x: bound.x, y: bound.value };
        if let Some(last) = hull.last().filter(|last| last.x == point.x) {
            if (last.y <= point.y) == upper {
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
fn cross(a: Point, b: Point, c: Point) -> i128 {
    let (to_b, to_c) = (Way::between(a, b), Way::between(a, c));
    // Each factor is below 2^63, so the products fit.
    to_b.run * to_c.rise - to_b.rise * to_c.run
}

/// Returns whether the hull of upper bounds, raised by `raise`, lies nowhere below that of lower bounds.
fn separable(above: &[Point], below: &[Point], raise: i64) -> bool {
    // A sign of 1: the points lie above the hull; -1: below it.
    let is_beyond = |points: &[Point], hull: &[Point], sign: i128| {
        let mut edge = 0;
        points.iter().all(|&point| {
            while edge + 2 < hull.len() && hull[edge + 1].x < point.x {
                edge += 1;
            }
            let is_inside = hull[0].x <= point.x && point.x <= hull[hull.len() - 1].x;
            let [a, b] = [hull[edge], hull[(edge + 1).min(hull.len() - 1)]];
            let (edge_way, point_way) = (Way::between(a, b), Way::between(a, point));
            let up = point_way.rise + sign * i128::from(raise);
            let turn = match edge_way.run {
                0 => up,
                run => up * run - edge_way.rise * point_way.run,
            };
            !is_inside || sign * turn >= 0
        })
    };
    is_beyond(above, below, 1) && is_beyond(below, above, -1)
}

/// Returns the steepest line between the hulls: it touches a lower bound and, to its right, an upper bound.
///
/// For each lower corner, bisection finds the upper corner of least slope to its right, because slopes from a point to
/// a convex chain fall and then rise.
fn steepest(above: &[Point], below: &[Point]) -> Option<Line> {
    let mut best: Option<Line> = None;
    for &from in below {
        let right = above.partition_point(|point| point.x <= from.x);
        let candidates = &above[right..];
        let falls = |pair: &[Point]| Way::between(from, pair[1]).is_flatter(Way::between(from, pair[0]));
        let mut low = 0;
        let mut high = candidates.len().saturating_sub(1);
        while low < high {
            let middle = (low + high) / 2;
            if falls(&candidates[middle..middle + 2]) { low = middle + 1 } else { high = middle }
        }
        let Some(&to) = candidates.get(low) else { continue };
        let line = Line { from, to };
        if best.is_none_or(|best| Way::between(from, to).is_flatter(Way::between(best.from, best.to))) {
            best = Some(line);
        }
    }
    best
}

/// Returns the point half-way between two points of the same x.
fn mean(a: Point, b: Point) -> Point {
    Point { x: a.x, y: a.y + (b.y - a.y) / 2 }
}

/// Returns the mean of the two extreme lines.
pub(crate) fn bisector(extremes: &Extremes) -> Line {
    let (a, b) = (extremes.steepest, extremes.flattest);
    // Lowering by half of the raise violates both sides equally.
    let lowered = |point: Point| Point { x: point.x, y: point.y - extremes.widened / 2 };
    Line { from: lowered(mean(a.from, b.from)), to: lowered(mean(a.to, b.to)) }
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
        let at = |x: i64| Point { x, y: y0 + (slope * (x - x0) as f64).round() as i64 };
        Some(Line { from: at(first), to: at(last) })
    };
    let (above, below) = (fit(UPPER)?, fit(LOWER)?);
    Some(Line { from: mean(above.from, below.from), to: mean(above.to, below.to) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Slope;
    use proptest::prelude::*;

    fn lower(x: i64, value: i64) -> Bound {
        Bound::new(x, value, LOWER, Slope::from_ppb(0), 0)
    }

    fn upper(x: i64, value: i64) -> Bound {
        Bound::new(x, value, UPPER, Slope::from_ppb(0), 0)
    }

    fn line(from: (i64, i64), to: (i64, i64)) -> Line {
        let [from, to] = [from, to].map(|(x, y)| Point { x, y });
        Line { from, to }
    }

    /// Two points per side, as in Duda's figure: the extreme lines run through opposite corners.
    #[test]
    fn the_bisector_of_four_points_is_the_textbook_one() {
        let bounds = [upper(0, 10), lower(0, -10), upper(100, 10), lower(100, -10)];
        let extremes = extremes(&bounds).unwrap();
        assert_eq!(extremes.steepest, line((0, -10), (100, 10)));
        assert_eq!(extremes.flattest, line((0, 10), (100, -10)));
        assert_eq!(bisector(&extremes), line((0, 0), (100, 0)));
    }

    /// Uppers lie on y = 2x + 6, lowers on y = 2x − 2 (least squares are exact on lines).
    #[test]
    fn regression_of_two_parallel_lines_is_the_one_between() {
        let bounds: Vec<_> = (0..50)
            .flat_map(|step| [upper(step * 10, 20 * step + 6), lower(step * 10, 20 * step - 2)])
            .collect();
        assert_eq!(regression(&bounds).unwrap(), line((0, 2), (490, 982)));
    }

    #[test]
    fn bounds_that_admit_no_line_are_widened_alike() {
        let bounds = [upper(0, 5), lower(0, 0), lower(50, 25), upper(100, 5), lower(100, 0)];
        let extremes = extremes(&bounds).unwrap();
        assert_eq!(extremes.widened, 20);
        assert_eq!(bisector(&extremes), line((0, 15), (100, 15)));
    }

    proptest! {
        /// Compares with every pair of bounds: slope ≤ (u − l)/(x_u − x_l) if a lower bound lies left of an upper
        /// bound.
        #[test]
        fn the_steepest_line_is_the_least_slope_of_all_pairs(
            points in prop::collection::vec((0i64..10_000, 1i64..400, any::<bool>()), 2..40),
        ) {
            let mut bounds: Vec<Bound> = points.iter().map(|&(x, room, is_upper)| {
                if is_upper { upper(x, x / 3 + room) } else { lower(x, x / 3 - room) }
            }).collect();
            bounds.sort_by_key(|bound| bound.x);
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
            let rise = |line: Line| (line.to.y - line.from.y) as f64;
            prop_assert!((rise(extremes.steepest) - least * span).abs() <= 1.0);
            prop_assert!((rise(extremes.flattest) - most * span).abs() <= 1.0);
        }
    }
}
