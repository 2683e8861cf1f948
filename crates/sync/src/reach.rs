//! Computes the possible states of a clock of bounded drift and wander, given bounds of its offset. The states are
//! sets of (drift, offset), propagated cell by cell forwards from the first bound and backwards from the last.
//!
//! ```text
//!   forwards   ■──cut──pass──■──cut──pass──■      at each cell, the possible states are the intersection
//!   backwards  ■──pass──cut──■──pass──cut──■
//! ```
//!
//! A cell is short enough that wander bends a straight line by less than [`CELL_SAG`]. Each bound cuts the set at its
//! own place, tilted by the drift, so cells lose no tightness.

use crate::{
    bounds::{Bound, LOWER, UPPER, envelope, on_envelope},
    convex::{ConvexSet, Interval},
    curve::Sides,
    lines::Point,
    units::{PER_NANO, PER_SECOND, Slope},
};

/// Greatest bend of a clock by wander within half a cell, in nanoseconds.
const CELL_SAG: f64 = 4.0;

/// Cells in a gap without bounds, at most.
const GAP_CELLS: i64 = 32;

/// Interval, in cells, between stored forward sets; the sets in between are recomputed.
const CHECKPOINT: usize = 256;

/// Distance of the assumed other bound for a clock that is bounded from one side only, in units (16 s).
const FAR: i64 = 16 * PER_SECOND;

/// Rounding error of a bound, in nanoseconds.
const ROUNDING: f64 = 1.0 / PER_NANO as f64;

/// The bounds of a clock's motion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Motion {
    pub(crate) drift_ppb: u64,
    /// Infinite where the frequency may change at once.
    pub(crate) wander_ppb_per_s: f64,
    /// The frequency may also change at once where no message arrives for longer than this, in units.
    pub(crate) longest_gap: i64,
}

impl Motion {
    /// Returns the wider of both bounds.
    pub(crate) fn widest(self, other: Motion) -> Motion {
        Motion {
            drift_ppb: self.drift_ppb.max(other.drift_ppb),
            wander_ppb_per_s: self.wander_ppb_per_s.max(other.wander_ppb_per_s),
            ..self
        }
    }
}

/// The result at a cell, in units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    pub(crate) x: i64,
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) estimate: i64,
    /// Greatest distance to a neighbour up to which wander bounds the bend between; 0 if both ends are straight.
    pub(crate) apart: i64,
}

/// The result of both passes.
pub(crate) struct Reach {
    pub(crate) cells: Vec<Reached>,
    /// Number of bounds that no possible state satisfies.
    pub(crate) refused: usize,
    /// Whether bounds exist from below and from above.
    pub(crate) sides: Sides,
}

impl Reach {
    /// Returns the upper or the lower end of the range at each of `xs`, which are sorted. Beyond the cells it is that of the
    /// outermost cell.
    pub(crate) fn side(&self, xs: &[i64], upper: bool) -> Option<Vec<i64>> {
        let has_side = if upper { self.sides.high } else { self.sides.low };
        let end = |cell: &Reached| if upper { cell.high } else { cell.low };
        let mut index = 0;
        let end_at = |&x: &i64| {
            while index + 1 < self.cells.len() && self.cells[index + 1].x <= x {
                index += 1;
            }
            let from = &self.cells[index];
            let Some(to) = self.cells.get(index + 1).filter(|_| from.x <= x) else { return end(from) };
            let rise = i128::from(end(to) - end(from)) * i128::from(x - from.x) / i128::from(to.x - from.x);
            end(from) + rise as i64
        };
        has_side.then(|| xs.iter().map(end_at).collect())
    }
}

/// A span of time, and the index range of the bounds in it.
#[derive(Clone, Copy)]
struct Cell {
    x: i64,
    from: usize,
    to: usize,
    /// Whether the frequency may change at once between this cell and the next.
    loose: bool,
}

/// Returns a line that satisfies all bounds, as its points at the first and at the last bound; `None` if no line does, or
/// all bounds are on one side.
pub(crate) fn line(bounds: &[Bound], slope: Slope, motion: Motion) -> Option<[Point; 2]> {
    let (first, last) = (bounds.first()?.x, bounds.last()?.x);
    let x = first + (last - first) / 2;
    let low = envelope(bounds, &[x], slope, LOWER)?[0];
    let high = envelope(bounds, &[x], slope, UPPER)?[0];
    let base = low + (high - low) / 2;
    let drift = motion.drift_ppb as f64;
    let half = (high - low).max(0) as f64 / PER_NANO as f64 / 2.0 + 1.0;
    let mut set = ConvexSet::rectangle(Interval::within(drift), Interval::within(half));
    for bound in bounds {
        let no_wander = 0.0;
        if !cut(&mut set, bound, x, base, no_wander) {
            return None;
        }
    }
    let centre = set.centre();
    let point = |end: i64| {
        let offset = centre.offset + centre.drift * seconds(end - x);
        Point { x: end, y: base + (offset * PER_NANO as f64).round() as i64 }
    };
    Some([point(first), point(last.max(first + 1))])
}

fn seconds(units: i64) -> f64 {
    units as f64 / PER_SECOND as f64
}

/// Applies a bound to a set at `x`, whose offsets are relative to `base`. If nothing would remain, returns false and
/// leaves the set unchanged.
fn cut(set: &mut ConvexSet, bound: &Bound, x: i64, base: i64, wander: f64) -> bool {
    let apart = seconds(bound.x - x);
    let sag = wander * apart * apart / 2.0 + ROUNDING;
    let value = (bound.value - base) as f64 / PER_NANO as f64;
    let (across, up, least) =
        if bound.upper { (-apart, -1.0, -value - sag) } else { (apart, 1.0, value - sag) };
    // Most bounds cut nothing; this check saves the copy of the set.
    if set.satisfies(across, up, least) {
        return true;
    }
    let mut smaller = *set;
    smaller.cut(across, up, least);
    let possible = !smaller.is_empty();
    if possible {
        *set = smaller;
    }
    possible
}

/// Returns the range of the clock at every cell; `None` without bounds. `bounds` are sorted by x.
pub(crate) fn reach(bounds: &[Bound], slope: Slope, motion: Motion) -> Option<Reach> {
    if motion.wander_ppb_per_s.is_infinite() {
        return drift_alone(bounds, slope);
    }
    reach_with_refusals(bounds, slope, motion, usize::MAX)
}

/// Like [`reach`], but returns `None` if no clock of this motion satisfies all bounds.
pub(crate) fn reach_all(bounds: &[Bound], slope: Slope, motion: Motion) -> Option<Reach> {
    let most_refusals = 0;
    reach_with_refusals(bounds, slope, motion, most_refusals)
}

/// Returns whether a clock of this motion satisfies all bounds. `bounds` are sorted by x.
pub(crate) fn satisfiable(bounds: &[Bound], slope: Slope, motion: Motion) -> bool {
    let Some(mut pass) = Pass::new(bounds, slope, motion) else { return true };
    let mut set = pass.start();
    for index in 0..pass.cells.len() {
        set = pass.forward(index, set);
        if pass.refused > 0 {
            return false;
        }
    }
    true
}

/// Returns the range at every cell; `None` if more than `most_refusals` bounds are refused.
fn reach_with_refusals(
    bounds: &[Bound],
    slope: Slope,
    motion: Motion,
    most_refusals: usize,
) -> Option<Reach> {
    let mut pass = Pass::new(bounds, slope, motion)?;
    let mut checkpoints = Vec::new();
    let mut set = pass.start();
    for index in 0..pass.cells.len() {
        if index % CHECKPOINT == 0 {
            checkpoints.push(set);
        }
        set = pass.forward(index, set);
        if pass.refused > most_refusals {
            return None;
        }
    }
    let refused = pass.refused;
    let mut cells = Vec::with_capacity(pass.cells.len());
    let mut behind: Option<ConvexSet> = None;
    for (block, &checkpoint) in checkpoints.iter().enumerate().rev() {
        let from = block * CHECKPOINT;
        let to = (from + CHECKPOINT).min(pass.cells.len());
        let mut forward = Vec::with_capacity(to - from);
        let mut set = checkpoint;
        for index in from..to {
            set = pass.forward(index, set);
            forward.push(set);
        }
        for index in (from..to).rev() {
            let set = pass.backward(index, behind);
            cells.push(pass.reached(index, forward[index - from], &set));
            behind = Some(set);
        }
    }
    cells.reverse();
    let cells = pass.with_bends(cells, slope);
    Some(Reach { cells, refused, sides: pass.sides })
}

/// Returns the range of a clock whose frequency may change at once: the two envelopes, at the places where they bend.
fn drift_alone(bounds: &[Bound], slope: Slope) -> Option<Reach> {
    let places = bends(bounds, slope);
    let Envelopes { low, high, sides } = envelopes(bounds, &places, slope)?;
    let cell = |((&x, &low), &high): ((&i64, &i64), &i64)| {
        // The envelopes are rounded down: two units make up for it.
        let (low, high) = (low.min(high) - 2, high.max(low) + 2);
        Reached { x, low, high, estimate: low + (high - low) / 2, apart: 0 }
    };
    let cells = places.iter().zip(&low).zip(&high).map(cell).collect();
    Some(Reach { cells, refused: 0, sides })
}

/// Returns the places where the envelopes bend: at the bounds on them, and half-way between.
fn bends(bounds: &[Bound], slope: Slope) -> Vec<i64> {
    let mut places = Vec::new();
    let mut before: [Option<&Bound>; 2] = [None; 2];
    for (bound, _) in bounds.iter().zip(on_envelope(bounds)).filter(|(_, on)| *on) {
        if let Some(before) = before[usize::from(bound.upper)].replace(bound) {
            let sign = if bound.upper { 1 } else { -1 };
            let point = |bound: &Bound| Point { x: bound.x, y: sign * bound.value };
            places.push(bend(point(before), point(bound), slope));
        }
        places.push(bound.x);
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// Returns the place between two upper bounds where the limits of drift from both meet.
fn bend(from: Point, to: Point, slope: Slope) -> i64 {
    let rise_per_second = i128::from(slope.times(PER_SECOND).max(1));
    let shift = (i128::from(to.y) - i128::from(from.y)) * i128::from(PER_SECOND) / rise_per_second;
    let middle = i128::from(from.x) + (i128::from(to.x) - i128::from(from.x) + shift) / 2;
    middle.clamp(from.x.into(), to.x.into()) as i64
}

/// Both envelopes at some places.
struct Envelopes {
    low: Vec<i64>,
    high: Vec<i64>,
    /// Which of them have bounds. Without bounds on one side its envelope is [`FAR`] away.
    sides: Sides,
}

/// Returns both envelopes at `places`.
fn envelopes(bounds: &[Bound], places: &[i64], slope: Slope) -> Option<Envelopes> {
    let low = envelope(bounds, places, slope, LOWER);
    let high = envelope(bounds, places, slope, UPPER);
    let sides = Sides { low: low.is_some(), high: high.is_some() };
    let far = |values: &[i64], by: i64| values.iter().map(|value| value + by).collect::<Vec<_>>();
    let (low, high) = match (low, high) {
        (Some(low), Some(high)) => (low, high),
        (Some(low), None) => (low.clone(), far(&low, FAR)),
        (None, Some(high)) => (far(&high, -FAR), high),
        (None, None) => return None,
    };
    Some(Envelopes { low, high, sides })
}

/// Bounds in cells, and the base that each cell's offsets are relative to.
struct Pass<'a> {
    bounds: &'a [Bound],
    cells: Vec<Cell>,
    bases: Vec<i64>,
    /// The range that drift alone allows at each cell, in nanoseconds from its base.
    ranges: Vec<Interval>,
    motion: Motion,
    sides: Sides,
    refused: usize,
}

impl<'a> Pass<'a> {
    fn new(bounds: &'a [Bound], slope: Slope, motion: Motion) -> Option<Pass<'a>> {
        let cells = cells(bounds, motion);
        let places: Vec<i64> = cells.iter().map(|cell| cell.x).collect();
        let Envelopes { low, high, sides } = envelopes(bounds, &places, slope)?;
        let bases: Vec<i64> = low.iter().zip(&high).map(|(low, high)| low + (high - low) / 2).collect();
        let nanos = |value: i64| value as f64 / PER_NANO as f64;
        let range = |((low, high), base): ((&i64, &i64), &i64)| {
            let (low, high) = (nanos(low - base), nanos(high - base));
            Interval { low: low.min(high), high: high.max(low) }.widened(1.0)
        };
        let ranges = low.iter().zip(&high).zip(&bases).map(range).collect();
        Some(Pass { bounds, cells, bases, ranges, motion, sides, refused: 0 })
    }

    fn start(&self) -> ConvexSet {
        self.everything(0)
    }

    /// Returns the states that drift alone allows at a cell.
    fn everything(&self, index: usize) -> ConvexSet {
        ConvexSet::rectangle(Interval::within(self.motion.drift_ppb as f64), self.ranges[index])
    }

    /// Returns the set at cell `index`, given the set of the previous cell (for the first cell: its own start set).
    fn forward(&mut self, index: usize, mut set: ConvexSet) -> ConvexSet {
        if index > 0 {
            self.travel(&mut set, index - 1, index);
        }
        self.cut_all(index, set)
    }

    fn backward(&mut self, index: usize, behind: Option<ConvexSet>) -> ConvexSet {
        let set = match behind {
            Some(mut set) => {
                self.travel(&mut set, index + 1, index);
                set
            }
            None => self.everything(index),
        };
        self.cut_all(index, set)
    }

    fn travel(&self, set: &mut ConvexSet, from: usize, to: usize) {
        let drift = self.motion.drift_ppb as f64;
        let elapsed = seconds(self.cells[to].x - self.cells[from].x);
        let shift = (self.bases[from] - self.bases[to]) as f64 / PER_NANO as f64;
        if self.cells[from.min(to)].loose && !set.is_empty() {
            let offsets = set.offsets().widened(drift * elapsed.abs() + ROUNDING).shifted(shift);
            *set = ConvexSet::rectangle(Interval::within(drift), offsets);
            return;
        }
        set.pass(elapsed, self.motion.wander_ppb_per_s);
        set.shift(shift);
        set.cut(1.0, 0.0, -drift);
        set.cut(-1.0, 0.0, -drift);
    }

    /// Applies a cell's bounds, and refuses a bound that leaves nothing. If more than half of at least three bounds
    /// are refused, the set is wrong and restarts from what drift allows.
    fn cut_all(&mut self, index: usize, mut set: ConvexSet) -> ConvexSet {
        if set.is_empty() {
            set = self.everything(index);
        }
        let cell = self.cells[index];
        let refused_before = self.refused;
        for bound in &self.bounds[cell.from..cell.to] {
            if !cut(&mut set, bound, cell.x, self.bases[index], self.motion.wander_ppb_per_s) {
                self.refused += 1;
            }
        }
        let refused = self.refused - refused_before;
        if refused > 2 && 2 * refused > cell.to - cell.from { self.everything(index) } else { set }
    }

    /// Adds the places between cells where the range bends if the frequency may change at once.
    fn with_bends(&self, cells: Vec<Reached>, slope: Slope) -> Vec<Reached> {
        let mut all = Vec::with_capacity(cells.len());
        for (index, cell) in cells.iter().enumerate() {
            all.push(*cell);
            let Some(next) = cells.get(index + 1).filter(|_| self.cells[index].loose) else { continue };
            let mut places = [
                bend(Point { x: cell.x, y: -cell.low }, Point { x: next.x, y: -next.low }, slope),
                bend(Point { x: cell.x, y: cell.high }, Point { x: next.x, y: next.high }, slope),
            ];
            places.sort_unstable();
            for x in places {
                let (before, behind) = (slope.times(x - cell.x) + 1, slope.times(next.x - x) + 1);
                let low = (cell.low - before).max(next.low - behind);
                let high = (cell.high + before).min(next.high + behind);
                let (low, high) = (low.min(high), low.max(high));
                if all.last().is_some_and(|last| last.x < x) && x < next.x {
                    all.push(Reached { x, low, high, estimate: low + (high - low) / 2, apart: 0 });
                }
            }
        }
        all
    }

    fn apart(&self, index: usize) -> i64 {
        let to_next = |index: usize| {
            let (cell, next) = (&self.cells[index], self.cells.get(index + 1));
            next.filter(|_| !cell.loose).map_or(0, |next| next.x - cell.x)
        };
        to_next(index).max(index.checked_sub(1).map_or(0, to_next))
    }

    fn reached(&self, index: usize, forward: ConvexSet, backward: &ConvexSet) -> Reached {
        let mut both = forward;
        both.intersect(backward);
        let Interval { low, high } = if both.is_empty() {
            let (ahead, behind) = (forward.offsets(), backward.offsets());
            Interval { low: ahead.low.min(behind.low), high: ahead.high.max(behind.high) }
        } else {
            both.offsets()
        };
        let estimate = if both.is_empty() { (low + high) / 2.0 } else { both.centre().offset };
        let base = self.bases[index];
        let units = |offset: f64| offset * PER_NANO as f64;
        Reached {
            x: self.cells[index].x,
            low: base + units(low).floor() as i64 - 1,
            high: base + units(high).ceil() as i64 + 1,
            estimate: base + units(estimate.clamp(low, high)).round() as i64,
            apart: self.apart(index),
        }
    }
}

/// Divides time into cells; gaps get cells without bounds, unless the frequency may change at once there.
fn cells(bounds: &[Bound], motion: Motion) -> Vec<Cell> {
    // In seconds; at most half a second, however small the wander is.
    let half = (2.0 * CELL_SAG / motion.wander_ppb_per_s.max(1e-3)).sqrt().min(0.5);
    let length = ((2.0 * half * PER_SECOND as f64) as i64).max(1);
    let mut cells: Vec<Cell> = Vec::new();
    let mut from = 0;
    while from < bounds.len() {
        let start = bounds[from].x;
        let mut to = from + bounds[from..].partition_point(|bound| bound.x - start < length);
        let gap = |index: &usize| bounds[*index].x - bounds[index - 1].x > motion.longest_gap;
        to = (from + 1..to).find(gap).unwrap_or(to);
        let (begins, ends) = (from == 0 || gap(&from), to == bounds.len() || gap(&to));
        let x = start + (bounds[to - 1].x - start) / 2;
        if let Some(last) = cells.last().map(|cell| cell.x).filter(|_| !begins) {
            let empty = ((x - last) / length - 1).clamp(0, GAP_CELLS);
            let length = (x - last) / (empty + 1);
            let cell = |number: i64| Cell { x: last + length * number, from, to: from, loose: false };
            cells.extend((1..=empty).map(cell));
        }
        // The interval is narrowest at the messages beside a gap.
        if begins && start < x {
            cells.push(Cell { x: start, from, to: from, loose: false });
        }
        cells.push(Cell { x, from, to, loose: false });
        if ends && x < bounds[to - 1].x {
            cells.push(Cell { x: bounds[to - 1].x, from: to, to, loose: false });
        }
        if ends && let Some(last) = cells.last_mut() {
            last.loose = true;
        }
        from = to;
    }
    if motion.longest_gap == i64::MAX {
        add_beyond(&mut cells, length, bounds.len());
    }
    cells
}

/// Adds cells at growing distances before the first and after the last bound, where the range widens.
fn add_beyond(cells: &mut Vec<Cell>, length: i64, bounds: usize) {
    let (Some(&first), Some(&last)) = (cells.first(), cells.last()) else { return };
    /// Cells on each side, and the distance of the farthest at most: ten minutes.
    const STEPS: u32 = 14;
    const FARTHEST: i64 = 600 * PER_SECOND;
    let far = |step: u32| length.saturating_mul(1 << step).min(FARTHEST);
    let cell = |x: i64, bound: usize| Cell { x, from: bound, to: bound, loose: false };
    cells.splice(0..0, (0..STEPS).rev().map(|step| cell(first.x - far(step), 0)));
    cells.iter_mut().for_each(|cell| cell.loose &= cell.x != last.x);
    cells.extend((0..STEPS).map(|step| cell(last.x + far(step), bounds)));
    cells.dedup_by_key(|cell| cell.x);
}
