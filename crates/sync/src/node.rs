//! Solves one clock between two of its steps: computes a curve from bounds of its time.

use crate::{
    bounds::{Bound, on_envelope},
    clocks::Method,
    cover::fewest,
    curve::{Curve, Knot, Sides},
    edge::{median, without},
    lines::{self, Line, Point},
    reach::{Motion, Reach, line},
    timeline::ClockSegment,
    units::{PER_NANO, PER_SECOND, Slope, within_limit},
    widen::{self, Chosen},
};

/// A bound of the timeline: at the clock reading `units`, the timeline is at least (or at most) at `time`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    pub(crate) units: i128,
    pub(crate) time: i128,
    pub(crate) upper: bool,
}

/// A solved segment of a clock.
pub(crate) struct Solved {
    pub(crate) origin: i128,
    pub(crate) base: i128,
    pub(crate) curve: Curve,
    /// Number of sightings that contradict the others.
    pub(crate) contradictions: u64,
    /// The bounds within which the curve holds.
    pub(crate) motion: Motion,
    /// Whether the messages break the bounds that are assumed.
    pub(crate) breaks_bounds: bool,
}

/// Sightings as bounds of timeline minus clock, without the fewest that contradict the others.
struct Framed {
    origin: i128,
    base: i128,
    bounds: Vec<Bound>,
    /// The drift bound within which they are consistent.
    drift_ppb: u64,
    contradictions: u64,
}

/// Widens the drift bound from `drift_ppb` until as few sightings as possible contradict the others, and drops those.
fn frame(sightings: &[Sighting], drift_ppb: u64) -> Framed {
    let origin = median(sightings.iter().map(|sighting| sighting.units));
    let base = median(sightings.iter().map(|sighting| sighting.time - sighting.units));
    let all = bounds(sightings, origin, base, Slope::from_ppb(drift_ppb));
    let drift_ppb = widen::consistent_drift(&all, drift_ppb);
    let all = widen::within(&all, Slope::from_ppb(drift_ppb));
    let contradicting = fewest(&all);
    let mut bounds = Vec::with_capacity(all.len());
    without(&all, &contradicting, &mut bounds);
    Framed { origin, base, bounds, drift_ppb, contradictions: contradicting.len() as u64 }
}

/// Converts sightings to bounds around a known origin, omitting those beyond the limit.
pub(crate) fn bounds(sightings: &[Sighting], origin: i128, base: i128, slope: Slope) -> Vec<Bound> {
    let bound = |sighting: &Sighting| {
        let x = within_limit(sighting.units - origin)?;
        let value = within_limit(sighting.time - sighting.units - base)?;
        Some(Bound::new(x, value, sighting.upper, slope, 0))
    };
    let mut bounds: Vec<Bound> = sightings.iter().filter_map(bound).collect();
    bounds.sort_by_key(|bound| (bound.x, bound.upper, bound.value));
    bounds
}

/// Makes a segment's curve satisfy further sightings.
pub(crate) fn clamp(segment: &mut ClockSegment, sightings: &[Sighting], slope: Slope) {
    let bounds = bounds(sightings, segment.origin, segment.base, slope);
    if let Some(curve) = &mut segment.curve {
        curve.clamp(&bounds, slope);
    }
}

/// Returns the curve between the bounds that the sightings set; `None` if they allow no time. `published` are the same
/// messages without the uncertainty of readings, as the published methods take them. `tick` is the clock's. The motion of
/// the clock is bounded by `assumed`, or by more if the messages require it, and never by less than `least`. `thinned`:
/// whether redundant messages were discarded.
pub(crate) fn bounded(
    sightings: &[Sighting],
    published: &[Sighting],
    tick: i64,
    assumed: Motion,
    least: Motion,
    thinned: bool,
) -> Option<Solved> {
    let Framed { origin, base, bounds, drift_ppb, contradictions } = frame(sightings, least.drift_ppb);
    let Chosen { motion, reach, calmest, breaks_bounds } =
        widen::choose(&bounds, assumed, Motion { drift_ppb, ..least }, thinned)?;
    let slope = Slope::from_ppb(motion.drift_ppb);
    let bounds = widen::within(&bounds, slope);
    let published = self::bounds(published, origin, base, slope);
    let calmest = calmest.as_ref().unwrap_or(&reach);
    let Estimates { values, is_line } = estimates(&bounds, &published, tick, &reach, calmest, slope, motion);
    let cells = &reach.cells;
    let knot = |(index, estimate): (usize, i64)| {
        let cell = cells[index];
        let sag = sag(cell.apart, slope, motion);
        let (low, high) = (cell.low - sag, cell.high + sag);
        let estimate = match reach.sides {
            Sides { low: true, high: false } => low,
            Sides { low: false, high: true } => high,
            _ if is_line => estimate.clamp(low, high),
            _ => near_middle(estimate, low, high),
        };
        Knot::new(cell.x, low, estimate, high)
    };
    let knots = values.into_iter().enumerate().map(knot).collect();
    let mut curve = Curve::new(knots, Some(slope), reach.sides);
    curve.clamp(&bounds, slope);
    curve.add_tick(tick);
    let contradictions = contradictions + reach.refused as u64;
    let breaks_bounds = breaks_bounds || least.drift_ppb < drift_ppb;
    Some(Solved { origin, base, curve, contradictions, motion, breaks_bounds })
}

/// Returns the line of a published method; `None` if the sightings do not determine one.
pub(crate) fn one_line(published: &[Sighting], assumed: Motion, method: Method) -> Option<Solved> {
    let Framed { origin, base, mut bounds, drift_ppb, contradictions } = frame(published, assumed.drift_ppb);
    let curve = match method {
        Method::Regression => {
            let mut keep = on_envelope(&bounds).into_iter();
            bounds.retain(|_| keep.next() == Some(true));
            let Line { from, to } = lines::regression(&bounds)?;
            let knot = |Point { x, y }: Point| Knot::new(x, y, y, y);
            Curve::new(vec![knot(from), knot(to)], None, Sides::NEITHER)
        }
        Method::Hull | Method::Bounded => {
            let extremes = lines::extremes(&bounds)?;
            let bisector = lines::bisector(&extremes);
            let (steep, flat) = (extremes.steepest, extremes.flattest);
            let knot = |Point { x, y }: Point, a: Point, b: Point| {
                Knot::new(x, a.y.min(b.y).min(y), y, a.y.max(b.y).max(y))
            };
            let from = knot(bisector.from, steep.from, flat.from);
            let to = knot(bisector.to, steep.to, flat.to);
            Curve::new(vec![from, to], None, Sides::BOTH)
        }
    };
    let motion = Motion { drift_ppb, ..assumed };
    Some(Solved { origin, base, curve, contradictions, motion, breaks_bounds: false })
}

/// Moves the estimate of a clock that wanders to within a quarter of the half-width from the middle. If bounds are wide,
/// the calmest clock that they allow may be far from the truth, while the middle is off by at most the half-width. The
/// estimate of a clock that does not wander stays: its line averages delays, which the middle follows one by one.
fn near_middle(estimate: i64, low: i64, high: i64) -> i64 {
    // Three quarters of the half-width.
    let margin = (high - low) / 8 * 3;
    estimate.clamp(low + margin, high - margin)
}

/// Returns the greatest deviation of a clock from the straight line between two places, in units: `w·t²/8`, limited by
/// the drift bound.
fn sag(apart: i64, slope: Slope, motion: Motion) -> i64 {
    if apart == 0 {
        return 0;
    }
    let seconds = apart as f64 / PER_SECOND as f64;
    let bend = motion.wander_ppb_per_s * seconds * seconds / 8.0 * PER_NANO as f64;
    (bend.ceil() as i64 + 1).min(slope.times(apart) + 1)
}

/// The estimate at each cell, and whether all estimates lie on one line.
struct Estimates {
    values: Vec<i64>,
    is_line: bool,
}

/// Returns the estimate at each cell: the centre of the possible states under the least wander that satisfies the
/// bounds. If one line satisfies all bounds, the estimate is the one of the published method: the bisector of the
/// steepest and the flattest line between the messages.
fn estimates(
    bounds: &[Bound],
    published: &[Bound],
    tick: i64,
    reach: &Reach,
    calmest: &Reach,
    slope: Slope,
    motion: Motion,
) -> Estimates {
    let xs: Vec<i64> = reach.cells.iter().map(|cell| cell.x).collect();
    if let Some(line) = line(bounds, slope, motion) {
        let points = bisector(published, tick).or_else(|| bisector(bounds, 0)).unwrap_or(line);
        return Estimates { values: through(&points, &xs), is_line: true };
    }
    let points: Vec<Point> = calmest.cells.iter().map(|cell| Point { x: cell.x, y: cell.estimate }).collect();
    Estimates { values: through(&points, &xs), is_line: false }
}

/// Returns the bisector of the lines that the bounds admit; `None` if they admit none. The bounds hold for the time in
/// the middle of a tick, and the curve for that of its begin, so the line is shifted back by half a tick.
fn bisector(bounds: &[Bound], tick: i64) -> Option<[Point; 2]> {
    let extremes = lines::extremes(bounds).filter(|extremes| extremes.widened == 0)?;
    let Line { from, to } = lines::bisector(&extremes);
    Some([from, to].map(|Point { x, y }| Point { x, y: y - tick / 2 }))
}

/// Returns the values at `xs` of the piecewise line through `points`, extended straight. Both are sorted by x; `points` has
/// at least two.
fn through(points: &[Point], xs: &[i64]) -> Vec<i64> {
    let mut index = 0;
    let value = |&x: &i64| {
        while index + 2 < points.len() && points[index + 1].x <= x {
            index += 1;
        }
        let (from, to) = (points[index], points[index + 1]);
        let rise = (i128::from(to.y) - i128::from(from.y)) * (i128::from(x) - i128::from(from.x));
        from.y + rise.div_euclid(i128::from((to.x - from.x).max(1))) as i64
    };
    xs.iter().map(value).collect()
}

/// Makes a segment's estimate satisfy sightings, without tightening its bounds.
pub(crate) fn clamp_estimate(segment: &mut ClockSegment, sightings: &[Sighting], slope: Slope) {
    let bounds = bounds(sightings, segment.origin, segment.base, slope);
    if let Some(curve) = &mut segment.curve {
        curve.clamp_estimate(&bounds, slope);
    }
}
