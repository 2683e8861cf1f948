//! Convex sets of (drift, offset): the states of a clock that are possible at one moment.
//!
//! Offsets are in nanoseconds relative to a nearby integer, drifts in nanoseconds per second. Rounding only enlarges a
//! set, so the true state stays inside.

/// Corners that a set keeps at most; simplification removes the others outwards.
const CORNERS: usize = 14;

/// Corners before simplification: a kept set, two segments added, and a cut.
const ROOM: usize = CORNERS + 6;

/// Corners nearer than this in both units are the same corner.
const NEAR: f64 = 1e-6;

/// A range of drifts or of offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// From `-limit` to `limit`.
    pub(crate) fn within(limit: f64) -> Interval {
        Interval { low: -limit, high: limit }
    }

    /// Adds `margin` on both sides.
    pub(crate) fn widened(self, margin: f64) -> Interval {
        Interval { low: self.low - margin, high: self.high + margin }
    }

    pub(crate) fn shifted(self, by: f64) -> Interval {
        Interval { low: self.low + by, high: self.high + by }
    }

    fn middle(self) -> f64 {
        (self.low + self.high) / 2.0
    }
}

/// A corner: drift in ns/s, offset in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Corner {
    pub(crate) drift: f64,
    pub(crate) offset: f64,
}

/// A convex polygon, counter-clockwise with drift to the right and offset upwards; the empty set has no corners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvexSet {
    length: usize,
    corners: [Corner; ROOM],
}

impl ConvexSet {
    /// The product of a range of drifts and a range of offsets.
    pub(crate) fn rectangle(drift: Interval, offset: Interval) -> ConvexSet {
        let mut set = ConvexSet { length: 0, corners: [Corner::default(); ROOM] };
        for (drift, offset) in [
            (drift.low, offset.low),
            (drift.high, offset.low),
            (drift.high, offset.high),
            (drift.low, offset.high),
        ] {
            set.push(Corner { drift, offset });
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn corners(&self) -> &[Corner] {
        &self.corners[..self.length]
    }

    /// Adds a corner unless it equals the last one.
    fn push(&mut self, corner: Corner) {
        if let Some(last) = self.corners().last()
            && (last.drift - corner.drift).abs() < NEAR
            && (last.offset - corner.offset).abs() < NEAR
        {
            return;
        }
        self.corners[self.length] = corner;
        self.length += 1;
    }

    /// Removes trailing corners that equal the first one.
    fn remove_closing_corners(&mut self) {
        while self.length > 1 {
            let (first, last) = (self.corners[0], self.corners[self.length - 1]);
            if (last.drift - first.drift).abs() >= NEAR || (last.offset - first.offset).abs() >= NEAR {
                break;
            }
            self.length -= 1;
        }
    }

    /// Returns whether every point satisfies `across · drift + up · offset ≥ least`.
    pub(crate) fn satisfies(&self, across: f64, up: f64, least: f64) -> bool {
        self.corners().iter().all(|corner| across * corner.drift + up * corner.offset >= least)
    }

    /// Keeps the points with `across · drift + up · offset ≥ least`.
    pub(crate) fn cut(&mut self, across: f64, up: f64, least: f64) {
        if self.satisfies(across, up, least) {
            return;
        }
        let above = |corner: &Corner| across * corner.drift + up * corner.offset - least;
        let mut kept = ConvexSet { length: 0, corners: [Corner::default(); ROOM] };
        for index in 0..self.length {
            let (from, to) = (self.corners[index], self.corners[(index + 1) % self.length]);
            let (start, end) = (above(&from), above(&to));
            // Rounding may leave a set that is not quite convex; one with more corners than fit stays as it is.
            if kept.length + 2 > ROOM {
                return;
            }
            if start >= 0.0 {
                kept.push(from);
            }
            if (start >= 0.0) != (end >= 0.0) {
                let share = start / (start - end);
                kept.push(Corner {
                    drift: from.drift + (to.drift - from.drift) * share,
                    offset: from.offset + (to.offset - from.offset) * share,
                });
            }
        }
        kept.remove_closing_corners();
        kept.simplify();
        *self = kept;
    }

    /// Keeps the intersection with `other`.
    pub(crate) fn intersect(&mut self, other: &ConvexSet) {
        // A set thinner than the rounding error has no area to cut by, so its offset range is used.
        if other.length < 3 {
            let Interval { low, high } = other.offsets();
            self.cut(0.0, 1.0, low);
            self.cut(0.0, -1.0, -high);
            return;
        }
        for index in 0..other.length {
            let (from, to) = (other.corners[index], other.corners[(index + 1) % other.length]);
            let (across, up) = (from.offset - to.offset, to.drift - from.drift);
            let size = across.abs().max(up.abs());
            let (across, up) = (across / size, up / size);
            self.cut(across, up, across * from.drift + up * from.offset - NEAR);
        }
    }

    /// Advances the set by `seconds` (negative: backwards) while the drift changes by at most `wander` ns/s per second.
    ///
    /// The change of (drift, offset) that bounded wander can cause lies in the parallelogram around the two extreme
    /// parabolas: `±(w·t, w·t²/2)` along and `±w·t²/4` up.
    pub(crate) fn pass(&mut self, seconds: f64, wander: f64) {
        for corner in &mut self.corners[..self.length] {
            corner.offset += corner.drift * seconds;
        }
        let turn = wander * seconds.abs();
        self.widen(Corner { drift: turn, offset: turn * seconds / 2.0 });
        self.widen(Corner { drift: 0.0, offset: turn * seconds.abs() / 4.0 + NEAR });
        self.simplify();
    }

    /// Adds `offset` to all offsets.
    pub(crate) fn shift(&mut self, offset: f64) {
        for corner in &mut self.corners[..self.length] {
            corner.offset += offset;
        }
    }

    /// Replaces the set by its Minkowski sum with the segment from `−by` to `by`.
    fn widen(&mut self, by: Corner) {
        if self.length == 0 || (by.drift.abs() < NEAR && by.offset.abs() < NEAR / 4.0) {
            return;
        }
        let moved = |corner: Corner, side: f64| Corner {
            drift: corner.drift + side * by.drift,
            offset: corner.offset + side * by.offset,
        };
        let mut wide = ConvexSet { length: 0, corners: [Corner::default(); ROOM] };
        if self.length < 3 {
            // A point or a segment has no interior, so it becomes a thin triangle first. Cutting a rectangle twice
            // would give a wider set.
            let (first, last) = (self.corners[0], self.corners[self.length - 1]);
            let (low, high) = if first.offset <= last.offset { (first, last) } else { (last, first) };
            let apart = 2.0 * NEAR;
            wide.push(Corner { drift: low.drift, offset: low.offset - apart });
            wide.push(Corner { drift: low.drift.max(high.drift) + apart, offset: high.offset + apart });
            wide.push(Corner { drift: low.drift.min(high.drift) - apart, offset: high.offset + apart });
            std::mem::swap(self, &mut wide);
            wide.length = 0;
        }
        let side = |index: usize| {
            let (from, to) = (self.corners[index % self.length], self.corners[(index + 1) % self.length]);
            let outward = by.drift * (to.offset - from.offset) - by.offset * (to.drift - from.drift);
            if outward > 0.0 { 1.0 } else { -1.0 }
        };
        for index in 0..self.length {
            let (before, after) = (side(index + self.length - 1), side(index));
            if wide.length + 2 > ROOM {
                *self = ConvexSet::rectangle(
                    self.drifts().widened(by.drift.abs()),
                    self.offsets().widened(by.offset.abs()),
                );
                return;
            }
            wide.push(moved(self.corners[index], before));
            if before != after {
                wide.push(moved(self.corners[index], after));
            }
        }
        wide.remove_closing_corners();
        *self = wide;
    }

    /// Removes the edge whose removal adds the least area, until at most [`CORNERS`] corners are left.
    fn simplify(&mut self) {
        while self.length > CORNERS {
            let corner = |index: usize| self.corners[index % self.length];
            let mut best: Option<(usize, EdgeRemoval)> = None;
            for edge in 0..self.length {
                let (a, b) = (corner(edge + self.length - 1), corner(edge));
                let (c, d) = (corner(edge + 1), corner(edge + 2));
                if let Some(removal) = edge_removal(a, b, c, d)
                    && best.is_none_or(|(_, best)| removal.area < best.area)
                {
                    best = Some((edge, removal));
                }
            }
            let Some((edge, EdgeRemoval { meeting, .. })) = best else {
                // Rounding left no edge that can go, as in a set that is far larger one way than the other.
                *self = ConvexSet::rectangle(self.drifts(), self.offsets());
                return;
            };
            self.corners[edge] = meeting;
            let removed = (edge + 1) % self.length;
            self.corners.copy_within(removed + 1..self.length, removed);
            self.length -= 1;
        }
    }

    /// Returns the least and the greatest offset.
    pub(crate) fn offsets(&self) -> Interval {
        range(self.corners().iter().map(|corner| corner.offset))
    }

    /// Returns the least and the greatest drift.
    pub(crate) fn drifts(&self) -> Interval {
        range(self.corners().iter().map(|corner| corner.drift))
    }

    /// Returns the centre of mass.
    pub(crate) fn centre(&self) -> Corner {
        let Some(&origin) = self.corners().first() else { return Corner::default() };
        let (mut weight, mut drift, mut offset) = (0.0, 0.0, 0.0);
        for pair in self.corners().windows(2).skip(1) {
            let (b, c) = (pair[0], pair[1]);
            let area = cross(origin, b, c);
            weight += area;
            drift += area * (b.drift + c.drift - 2.0 * origin.drift) / 3.0;
            offset += area * (b.offset + c.offset - 2.0 * origin.offset) / 3.0;
        }
        if weight > NEAR * NEAR {
            return Corner { drift: origin.drift + drift / weight, offset: origin.offset + offset / weight };
        }
        Corner { drift: self.drifts().middle(), offset: self.offsets().middle() }
    }
}

fn range(values: impl Iterator<Item = f64>) -> Interval {
    let nothing = Interval { low: f64::INFINITY, high: f64::NEG_INFINITY };
    values.fold(nothing, |range, value| Interval { low: range.low.min(value), high: range.high.max(value) })
}

/// Returns twice the signed area of a triangle; positive for a left turn.
fn cross(a: Corner, b: Corner, c: Corner) -> f64 {
    (b.drift - a.drift) * (c.offset - a.offset) - (b.offset - a.offset) * (c.drift - a.drift)
}

/// The effect of removing an edge.
#[derive(Clone, Copy)]
struct EdgeRemoval {
    /// The area that it adds.
    area: f64,
    /// The corner that replaces both ends.
    meeting: Corner,
}

/// Removes the edge `b → c`: the new corner lies beyond it, where `a → b` and `d → c` meet. `None` if they do not meet.
fn edge_removal(a: Corner, b: Corner, c: Corner, d: Corner) -> Option<EdgeRemoval> {
    let difference =
        |to: Corner, from: Corner| Corner { drift: to.drift - from.drift, offset: to.offset - from.offset };
    let (first, second, edge) = (difference(b, a), difference(c, d), difference(c, b));
    let turn = first.drift * second.offset - first.offset * second.drift;
    // Edges that are parallel or open outwards do not meet.
    if turn >= -1e-12 {
        return None;
    }
    let share = (edge.drift * second.offset - edge.offset * second.drift) / turn;
    if !(share >= 0.0 && share.is_finite()) {
        return None;
    }
    let meeting = Corner { drift: b.drift + first.drift * share, offset: b.offset + first.offset * share };
    Some(EdgeRemoval { area: cross(b, meeting, c).abs(), meeting })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contains(set: &ConvexSet, point: Corner, slack: f64) -> bool {
        (0..set.length).all(|index| {
            let (from, to) = (set.corners[index], set.corners[(index + 1) % set.length]);
            let size = (to.drift - from.drift).hypot(to.offset - from.offset);
            cross(from, to, point) >= -slack * size
        })
    }

    #[test]
    fn a_cut_square_has_the_centre_of_what_is_left() {
        let mut set = ConvexSet::rectangle(Interval::within(1.0), Interval::within(1.0));
        set.cut(1.0, 0.0, 0.0);
        assert_eq!(set.centre(), Corner { drift: 0.5, offset: 0.0 });
        set.cut(0.0, 1.0, 2.0);
        assert!(set.is_empty());
    }

    proptest! {
        /// A clock that keeps to its bounds stays inside the set, forwards and backwards, after every valid cut.
        #[test]
        fn the_truth_stays_inside(
            steps in prop::collection::vec((0.001f64..2.0, -1.0f64..1.0, 0.0f64..50.0, -3.0f64..3.0), 1..40),
            backwards: bool,
        ) {
            let wander = 100.0;
            let mut set = ConvexSet::rectangle(Interval::within(10_000.0), Interval::within(1e6));
            let mut truth = Corner { drift: 17.0, offset: -3.0 };
            for (seconds, turn, room, tilt) in steps {
                let seconds = if backwards { -seconds } else { seconds };
                truth.offset += truth.drift * seconds + turn * wander * seconds * seconds / 2.0;
                truth.drift += turn * wander * seconds;
                set.pass(seconds, wander);
                prop_assert!(contains(&set, truth, 1e-3), "after {seconds} s: {set:?} lacks {truth:?}");
                let level = tilt * truth.drift + truth.offset;
                set.cut(tilt, 1.0, level - room);
                set.cut(-tilt, -1.0, -level - room);
                prop_assert!(contains(&set, truth, 1e-3));
                prop_assert!(set.length <= CORNERS);
            }
        }
    }
}
