//! Chooses the bounds of drift and wander that a clock is solved with: those assumed, or wider ones that its messages ask
//! for.
//!
//! A bound that is too small shows in four ways:
//!
//! * No clock within it satisfies all messages.
//! * A clock satisfies them only if one direction took longer for a while: many messages of that direction in a row lie far
//!   from the interval, while elsewhere one in as many comes near. Chance rarely does that ([`EVIDENCE`]).
//! * The interval is narrower than the least delay there and back together ([`GAP`]).
//! * No single clock explains all messages of a direction by ordinary delays. Where the other direction is slow, the
//!   interval may hold only because it has room for a different clock at each message ([`Side::is_explained_by`]).
//!
//! These tests run with ever wider bounds, from less than what is assumed. Bounds that pass are not yet safe: the motion of
//! a clock that is just beyond them may be hidden by delays. The bounds used are therefore wider than those that pass, by
//! [`DRIFT_MARGIN`] and [`WANDER_MARGIN`], and never tighter than those assumed.

use std::ops::Range;

use crate::{
    bounds::{Bound, LOWER, UPPER, envelope},
    cover::conflicts,
    edge::median,
    reach::{Motion, Reach, reach, reach_all, satisfiable},
    units::{LIMIT, PER_NANO, Slope},
};

/// Drift between two clocks up to which bounds are widened, in parts per billion: each may be slewed by 500 ppm (what
/// `adjtime` and NTP do at most) beside 100 ppm of its crystal. Beyond it are steps and wrong pairs.
pub const WIDEST_DRIFT_PPB: u64 = 1_200_000;

/// Ratio of the drift bound used to the least that passes.
const DRIFT_MARGIN: u64 = 2;

/// Ratio of the next tried wander bound to the last.
const WANDER_STEP: f64 = 4.0;

/// Ratio of the bound assumed to the first that is tried.
const FIRST_WANDER: f64 = 64.0;

/// Ratio of the wander bound used to the least that passes.
///
/// A frequency that jumps by `f` bends away from a clock of wander `w` by `f²/8w`. The tests see it where that exceeds the
/// delays of both directions together, or their noise in one; the interval misses the truth where it exceeds the delay of
/// one. So this is also the greatest ratio between the delays of the two directions that is tolerated.
const WANDER_MARGIN: f64 = 16.0;

/// The greatest wander bound that is tried, as a multiple of the one assumed. Where it does not pass, the frequency changes at
/// once, and the intervals rest on drift alone.
const LAST_WANDER: f64 = 16.0;

/// The least wander bound that is tried.
const LEAST_WANDER: f64 = 1.0;

/// A row of messages far from the interval is more than chance if its length times its least distance, in units of the mean
/// delay above the least, exceeds this value plus the logarithm of the number of all messages. With exponential delays, some
/// row exceeds that by chance with a probability of `exp(−EVIDENCE)`.
const EVIDENCE: f64 = 12.0;

/// Messages in a row at least: a few long delays in a row are ordinary.
const LEAST_ROW: usize = 6;

/// Messages of one direction at least for that test.
const LEAST_MESSAGES: usize = 12;

/// Share of the least delay there and back together that the interval is at least as wide as, if the truth is within the
/// bounds.
const GAP: f64 = 0.9;

/// Windows at least by which the least delay there and back is estimated.
const LEAST_WINDOWS: usize = 16;

/// How far the least delays fall from some windows to endless ones, as a multiple of their fall to those windows from windows
/// half as long. It is 1 if short delays are as frequent as slightly longer ones, and 2.4 if their frequency grows in
/// proportion to the delay above the least.
const EXTRAPOLATION: f64 = 2.0;

/// Rounds in which the least delays of a direction are found. Each takes the drift from those of the last.
const ROUNDS: usize = 3;

/// Further drift of a clock that breaks a bound, in parts per billion: what `adjtime` and NTP slew by at most.
/// Messages show only its mean from one to the next: a slew that begins and ends between two of them may be faster.
pub const SLEW_PPB: u64 = 500_000;

/// Distances below this are rounding of the possible states, in units (16 ns).
const FLOOR: i64 = 16 * PER_NANO;

/// Rows at most that even the widest drift does not explain, and whose delays are therefore taken to be long.
const ROWS: usize = 64;

/// The bounds chosen for a clock, and its states within them.
pub(crate) struct Chosen {
    pub(crate) motion: Motion,
    pub(crate) reach: Reach,
    /// The states under the least wander that satisfies all messages; `None` if that is the bound used, or none does.
    pub(crate) calmest: Option<Reach>,
    /// Whether the bounds assumed do not pass.
    pub(crate) breaks_bounds: bool,
}

/// Returns the drift bounds that are tried beyond `assumed`, in ascending order.
pub(crate) fn wider_drifts(assumed: u64) -> impl Iterator<Item = u64> {
    let next = |drift: &u64| (*drift < WIDEST_DRIFT_PPB).then(|| (*drift * 2).max(1));
    std::iter::successors(Some(assumed), next).skip(1)
}

/// Returns the least drift bound from `assumed` on under which the fewest bounds conflict.
pub(crate) fn consistent_drift(bounds: &[Bound], assumed: u64) -> u64 {
    let conflicts_at = |drift: u64| conflicts(&within(bounds, Slope::from_ppb(drift)));
    let least = conflicts_at(assumed);
    if least == 0 {
        return assumed;
    }
    let drifts: Vec<u64> = wider_drifts(assumed).collect();
    let Some(&widest) = drifts.last() else { return assumed };
    let fewest = conflicts_at(widest);
    if fewest == least {
        return assumed;
    }
    drifts.into_iter().find(|&drift| conflicts_at(drift) == fewest).unwrap_or(widest)
}

/// Returns the same bounds for another limit of drift.
pub(crate) fn within(bounds: &[Bound], slope: Slope) -> Vec<Bound> {
    let bound = |bound: &Bound| Bound::new(bound.x, bound.value, bound.upper, slope, bound.owner);
    bounds.iter().map(bound).collect()
}

/// Chooses bounds of at least `least`. `thinned` says whether messages that others imply were discarded. `bounds` are sorted
/// by x and consistent within the drift of `least`. `None` without bounds.
pub(crate) fn choose(bounds: &[Bound], assumed: Motion, least: Motion, thinned: bool) -> Option<Chosen> {
    let tested = Tested::new(bounds, thinned);
    let least_drift = tested.drift(assumed.drift_ppb);
    let mut drift_ppb = least.drift_ppb.max(least_drift * DRIFT_MARGIN);
    let slope = Slope::from_ppb(drift_ppb);
    let bounds = &within(bounds, slope);
    let mut calmest = None;
    let base = assumed.wander_ppb_per_s.max(LEAST_WANDER * FIRST_WANDER);
    let tried = std::iter::successors(Some(base / FIRST_WANDER), |wander| Some(wander * WANDER_STEP))
        .take_while(|&wander| wander <= base * LAST_WANDER);
    let mut least_wander = f64::INFINITY;
    for wander_ppb_per_s in tried {
        let motion = Motion { drift_ppb, wander_ppb_per_s, longest_gap: i64::MAX };
        let Some(reach) = reach_all(bounds, slope, motion) else { continue };
        let passes = tested.passes(|xs, upper| reach.side(xs, upper))
            && tested.sides.iter().all(|side| side.is_explained_by(slope, motion));
        calmest = calmest.or(Some(reach));
        if passes {
            least_wander = wander_ppb_per_s;
            break;
        }
    }
    let safe = least_wander * WANDER_MARGIN;
    let safe = if safe <= base { assumed.wander_ppb_per_s } else { safe };
    let wander_ppb_per_s = safe.max(least.wander_ppb_per_s);
    let breaks_bounds = least_drift > assumed.drift_ppb || least_wander > base;
    if breaks_bounds || drift_ppb > assumed.drift_ppb {
        drift_ppb = drift_ppb.max(assumed.drift_ppb + SLEW_PPB);
    }
    let slope = Slope::from_ppb(drift_ppb);
    let bounds = &within(bounds, slope);
    let motion = Motion { drift_ppb, wander_ppb_per_s, ..assumed };
    Some(Chosen { motion, reach: reach(bounds, slope, motion)?, calmest, breaks_bounds })
}

/// The bounds of both directions, as the tests take them.
struct Tested<'a> {
    all: &'a [Bound],
    sides: Vec<Side>,
    xs: Vec<i64>,
    /// The least width of the interval that a clock within the bounds leaves; negative if unknown.
    gap: i64,
}

/// The bounds of one direction.
struct Side {
    upper: bool,
    xs: Vec<i64>,
    values: Vec<i64>,
    /// Mean delay above the least, in units; `None` for too few messages.
    noise: Option<f64>,
}

impl<'a> Tested<'a> {
    fn new(bounds: &'a [Bound], thinned: bool) -> Tested<'a> {
        let side = |upper: bool| {
            let of_side = || bounds.iter().filter(|bound| bound.upper == upper);
            let xs: Vec<i64> = of_side().map(|bound| bound.x).collect();
            let values: Vec<i64> = of_side().map(|bound| bound.value).collect();
            let mut side = Side { upper, noise: noise(&xs, &values, thinned), xs, values };
            side.leave_out_long_delays(bounds);
            side
        };
        let xs = bounds.iter().map(|bound| bound.x).collect();
        Tested { all: bounds, sides: vec![side(LOWER), side(UPPER)], xs, gap: least_gap(bounds) }
    }

    /// Returns the least drift bound that passes: half of the assumed one, the assumed one, or a wider one.
    fn drift(&self, assumed: u64) -> u64 {
        let passes = |drift: u64| {
            let bounds = within(self.all, Slope::from_ppb(drift));
            conflicts(&bounds) == 0
                && self.passes(|xs, upper| envelope(&bounds, xs, Slope::from_ppb(drift), upper))
        };
        let drifts = [assumed / DRIFT_MARGIN, assumed].into_iter().chain(wider_drifts(assumed));
        drifts.into_iter().find(|&drift| passes(drift)).unwrap_or(assumed / DRIFT_MARGIN)
    }

    /// Returns whether delays explain how far the messages lie from the interval. `end_at` returns the interval's upper or
    /// lower end at each x.
    fn passes(&self, end_at: impl Fn(&[i64], bool) -> Option<Vec<i64>>) -> bool {
        if let (Some(low), Some(high)) = (end_at(&self.xs, LOWER), end_at(&self.xs, UPPER))
            && low.iter().zip(&high).any(|(low, high)| high - low + FLOOR < self.gap)
        {
            return false;
        }
        self.sides.iter().all(|side| {
            let Some(ends) = end_at(&side.xs, side.upper) else { return true };
            side.longest_row(&ends).is_none()
        })
    }
}

/// Returns the width that the interval has at least at every place, if the truth is within the bounds: by the least delay
/// there and back of neighbouring messages, less what chance adds to the least of a number of delays, or by that of windows.
fn least_gap(bounds: &[Bound]) -> i64 {
    let slope = Slope::from_ppb(WIDEST_DRIFT_PPB);
    let mut before: [Option<&Bound>; 2] = [None; 2];
    let mut gaps = Vec::new();
    for bound in bounds {
        before[usize::from(bound.upper)] = Some(bound);
        if let [Some(low), Some(high)] = before {
            gaps.push(high.value - low.value - slope.times((high.x - low.x).abs()));
        }
    }
    if gaps.is_empty() {
        return 0;
    }
    gaps.sort_unstable();
    // As if the delays of both directions were exponential: the lower quartile of their sum gives the mean of the least sum.
    let spread = (gaps[gaps.len() / 4] - gaps[0]) as f64 * (2.0 / gaps.len() as f64).sqrt();
    let of_neighbours = gaps[0] as f64 - 2.0 * spread;
    // Nothing is known of delays shorter than any that was measured.
    let of_windows = gap_of_windows(bounds).map_or(of_neighbours, |gap| gap.min(gaps[0] as f64));
    (of_neighbours.max(of_windows) * GAP) as i64
}

/// Estimates the least delay there and back from messages that are not neighbours, as a short delay one way is rarely followed
/// by one the other way. `None` for too few messages.
///
/// The least delays in a window fall as it gets longer. The estimate extrapolates what endless windows would have.
/// Mean drift is subtracted; other drift within a window makes the estimate smaller.
fn gap_of_windows(bounds: &[Bound]) -> Option<f64> {
    let of_upper = || bounds.iter().filter(|bound| bound.upper);
    let xs: Vec<i64> = of_upper().map(|bound| bound.x).collect();
    let values: Vec<i64> = of_upper().map(|bound| bound.value).collect();
    let drift = mean_drift(&xs, &values)?;
    let level = |bound: &Bound| bound.value.saturating_sub((drift * bound.x as f64) as i64);
    let gap = |window: &[Bound]| {
        let side = |upper: bool| window.iter().filter(move |bound| bound.upper == upper).map(level);
        Some(side(UPPER).min()?.saturating_sub(side(LOWER).max()?))
    };
    let lower_quartile = |length: usize| {
        let mut gaps: Vec<i64> = bounds.chunks_exact(length).filter_map(gap).collect();
        let quarter = gaps.len() / 4;
        (gaps.len() >= LEAST_WINDOWS).then(|| *gaps.select_nth_unstable(quarter).1)
    };
    let mut best: Option<f64> = None;
    let (mut shorter, mut length) = (lower_quartile(2)?, 4);
    while let Some(longer) = lower_quartile(length) {
        let fall = shorter.saturating_sub(longer).max(0);
        let least = longer as f64 - EXTRAPOLATION * fall as f64;
        best = Some(best.map_or(least, |best| best.max(least)));
        (shorter, length) = (longer, length * 2);
    }
    best
}

impl Side {
    /// Returns the range of the messages in a row that are farthest from the interval, if chance does not explain it.
    fn longest_row(&self, ends: &[i64]) -> Option<Range<usize>> {
        let noise = self.noise?;
        let distance = |(value, end): (&i64, &i64)| if self.upper { value - end } else { end - value };
        let beyond = self.values.iter().zip(ends).map(distance).map(|distance| (distance - FLOOR).max(0));
        let (weight, row) = largest_rectangle(&beyond.collect::<Vec<_>>());
        let evidence = EVIDENCE + (self.values.len() as f64).ln();
        (weight as f64 > evidence * noise).then_some(row)
    }

    /// Returns whether one clock of the motion explains all messages of this direction by delays that chance explains: of each
    /// few in a row, one at least lies near it.
    ///
    /// [`Side::longest_row`] asks the same of the interval's end, which may be of a different clock at each message. What it allows
    /// for one row bounds the clock here from the other side.
    fn is_explained_by(&self, slope: Slope, motion: Motion) -> bool {
        let Some(noise) = self.noise else { return true };
        let evidence = EVIDENCE + (self.values.len() as f64).ln();
        let depth = ((evidence * noise / LEAST_ROW as f64) as i64).min(LIMIT / 4) + FLOOR;
        let farthest = if self.upper { -depth } else { depth };
        let mut bounds = Vec::new();
        for index in self.least_delays() {
            let (x, value) = (self.xs[index], self.values[index]);
            bounds.push(Bound::new(x, value, self.upper, slope, 0));
            bounds.push(Bound::new(x, value + farthest, !self.upper, slope, 0));
        }
        satisfiable(&bounds, slope, motion)
    }

    /// Returns the ascending indices of the messages with the least delay of each few in a row; none for too few messages.
    fn least_delays(&self) -> Vec<usize> {
        let Some(drift) = mean_drift(&self.xs, &self.values) else { return Vec::new() };
        let sign = if self.upper { 1.0 } else { -1.0 };
        // Rows overlap, so that a slew that begins within one lies between two others.
        let last = self.values.len() - LEAST_ROW;
        let starts: Vec<usize> = (0..last).step_by(LEAST_ROW / 2).chain([last]).collect();
        let least = |start: usize, drift: f64| {
            let delay = |index: &usize| {
                let apart = self.xs[*index] - self.xs[start];
                sign * (self.values[*index] as f64 - drift * apart as f64)
            };
            (start..start + LEAST_ROW).min_by(|a, b| delay(a).total_cmp(&delay(b))).unwrap_or(start)
        };
        let mut nearest: Vec<usize> = starts.iter().map(|&start| least(start, drift)).collect();
        for _ in 0..ROUNDS {
            let drift_near = |row: usize| {
                let (from, to) = (nearest[row.saturating_sub(2)], nearest[(row + 2).min(nearest.len() - 1)]);
                let run = self.xs[to] - self.xs[from];
                let rise = (self.values[to] - self.values[from]) as f64;
                if run > 0 { rise / run as f64 } else { drift }
            };
            nearest = starts.iter().enumerate().map(|(row, &start)| least(start, drift_near(row))).collect();
        }
        nearest.sort_unstable();
        nearest.dedup();
        nearest
    }

    /// Leaves out messages that lie far from the interval even if drift is as wide as it may be: no clock explains these,
    /// so their delays were long.
    fn leave_out_long_delays(&mut self, bounds: &[Bound]) {
        let slope = Slope::from_ppb(WIDEST_DRIFT_PPB);
        for _ in 0..ROWS {
            let Some(ends) = envelope(bounds, &self.xs, slope, self.upper) else { return };
            let Some(row) = self.longest_row(&ends) else { return };
            self.xs.drain(row.clone());
            self.values.drain(row);
        }
    }
}

/// Returns how much the values rise per unit of time in the mean, by the medians of the first and the last eighth; `None` for
/// too few messages.
fn mean_drift(xs: &[i64], values: &[i64]) -> Option<f64> {
    if xs.len() < LEAST_MESSAGES {
        return None;
    }
    let part = xs.len() / 8;
    let middle = |values: &[i64]| median(values.iter().map(|&value| value.into()));
    let (first, last) = (..part, xs.len() - part..);
    let run = middle(&xs[last.clone()]) - middle(&xs[first]);
    Some((middle(&values[last]) - middle(&values[first])) as f64 / run.max(1) as f64)
}

/// Returns the mean delay above the least, in units, as if delays were exponential; `None` for too few messages. It is
/// measured by the differences of neighbours, less the mean drift.
fn noise(xs: &[i64], values: &[i64], thinned: bool) -> Option<f64> {
    let drift = mean_drift(xs, values)?;
    let neighbours = xs.windows(2).zip(values.windows(2));
    let apart = neighbours
        .map(|(xs, values)| ((values[1] - values[0]) as f64 - drift * (xs[1] - xs[0]) as f64).abs() as i128);
    // Half of the differences of two exponential delays are at most ln 2 times their mean.
    let noise = (median(apart) as f64 / std::f64::consts::LN_2).max(FLOOR as f64);
    // Of thinned messages, those that are left lie as far from the best ones as drift allows over the distance.
    let spacing = median(xs.windows(2).map(|pair| i128::from(pair[1] - pair[0])));
    let slack = if thinned { Slope::from_ppb(WIDEST_DRIFT_PPB).times(spacing as i64) } else { 0 };
    Some(noise + slack as f64)
}

/// Returns the largest product of a number of consecutive values, at least [`LEAST_ROW`], and the least of them, with
/// their range.
fn largest_rectangle(values: &[i64]) -> (i128, Range<usize>) {
    let mut best = (0, 0..0);
    // Ascending values, and the index from which on nothing is less.
    let mut open: Vec<(i64, usize)> = Vec::new();
    for (index, &value) in values.iter().chain([&i64::MIN]).enumerate() {
        let mut from = index;
        while let Some((height, begin)) = open.pop_if(|(height, _)| *height >= value) {
            let weight = height as i128 * (index - begin) as i128;
            if index - begin >= LEAST_ROW && weight > best.0 {
                best = (weight, begin..index);
            }
            from = begin;
        }
        open.push((value, from));
    }
    best
}
