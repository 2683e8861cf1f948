//! Finds the steps of a clock and the pairs that contradict the rest, once all messages of an edge are known.
//!
//! There are two passes. The first allows the full drift bound. The remaining pairs give the drift over time, and the
//! second pass allows only deviations from that trend, so it finds smaller steps and finer contradictions. Both passes
//! place a step where it saves more than [`STEP_COST`] contradicting pairs.

use crate::{
    bounds::{Bound, LOWER, UPPER, envelope, on_envelope, thinned},
    clocks::DropCause,
    cover::{conflicts, consistent, fewest},
    edge::{Dropped, Edge, Message, late, orient, without},
    graph::LONGEST_GAP,
    lines::Point,
    units::{PER_SECOND, Slope},
    widen::{wider_drifts, within},
};

/// Contradicting pairs that a step must save; fewer are dropped instead.
pub(crate) const STEP_COST: usize = 8;

/// Pairs in a window of the step search, and the distance between windows.
const WINDOW: usize = 256;
const STRIDE: usize = WINDOW / 2;

/// Distance between the places that the coarse search for a step tries.
const GRID: usize = 8;

/// Steps of an edge at most; further steps are not searched for.
const STEPS: usize = 1_000;

/// Bounds in a sample of an edge at most, and the recursion depth of the search in samples.
const SAMPLE: usize = 4_096;
const FAR_DEPTH: u32 = 5;

/// Least number of bounds in a window that measures drift; a window also spans at least one second.
const TREND_BOUNDS: usize = 32;

/// The messages of an edge, divided at steps and without wrong pairs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolved {
    /// Messages in order, by segment between steps.
    pub(crate) segments: Vec<Vec<Message>>,
    /// The steps between the segments, one fewer than segments.
    pub(crate) steps: Vec<EdgeStep>,
    pub(crate) dropped: Dropped,
    /// Whether messages that others imply were discarded as they arrived.
    pub(crate) thinned: bool,
    /// Messages of the segments that others imply.
    pub(crate) implied: u64,
    /// Pairs that contradict others.
    contradicting: u64,
    /// The drift bound within which the rest is consistent, in parts per billion.
    pub(crate) drift_ppb: u64,
    /// Median of half the distance between the two envelopes, in units.
    pub(crate) half_width: i64,
}

impl Resolved {
    /// Returns whether this leaves fewer contradictions than `other` without more steps, or fewer steps without more
    /// contradictions.
    fn explains_more(&self, other: &Resolved) -> bool {
        let (steps, others) = (self.steps.len(), other.steps.len());
        (self.contradicting < other.contradicting && steps <= others)
            || (self.contradicting <= other.contradicting && steps < others)
    }
}

/// A step between two messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeStep {
    /// The last message that is certainly before the step, and the first that is certainly after it.
    pub(crate) last: Message,
    pub(crate) first: Message,
    /// Time between them by the primary clock, in units.
    pub(crate) gap: i64,
    /// The last message that is probably before the step, and the first that is probably after it.
    pub(crate) likely_last: Message,
    pub(crate) likely_first: Message,
    /// Jump of `b` against `a`.
    pub(crate) jump: Jump,
}

/// A jump of a clock, in units, between two limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jump {
    pub(crate) least: i64,
    pub(crate) greatest: i64,
}

impl Jump {
    /// Returns the jump of the other clock.
    pub(crate) fn reversed(self) -> Jump {
        Jump { least: -self.greatest, greatest: -self.least }
    }
}

/// Finds the steps and wrong pairs of an edge. `drift_ppb` and `wander` are the bounds assumed between the two clocks.
///
/// A wider drift bound that leaves fewer contradictions, or fewer steps, explains more: the clock was slewed.
pub(crate) fn resolve(edge: &Edge, drift_ppb: u64, wander: u64) -> Resolved {
    let assumed = resolve_within(edge, drift_ppb, Some(wander));
    if assumed.dropped.count() == 0 && assumed.steps.is_empty() {
        return assumed;
    }
    let drifts: Vec<u64> = wider_drifts(drift_ppb).collect();
    let Some(&widest) = drifts.last() else { return assumed };
    let widest = resolve_within(edge, widest, None);
    if !widest.explains_more(&assumed) {
        return assumed;
    }
    let enough = |resolved: &Resolved| !widest.explains_more(resolved) && resolved.explains_more(&assumed);
    let narrower =
        drifts[..drifts.len() - 1].iter().map(|&drift| resolve_within(edge, drift, None)).find(enough);
    narrower.unwrap_or(widest)
}

/// Finds the steps and wrong pairs under a drift bound. With a bound of `wander`, it also searches for steps that are
/// smaller than drift, if there is any contradiction.
fn resolve_within(edge: &Edge, drift_ppb: u64, wander: Option<u64>) -> Resolved {
    let slope = Slope::from_ppb(drift_ppb);
    let oriented = orient(&edge.messages, edge.scales, slope);
    let mut resolved = Resolved { drift_ppb, thinned: edge.is_thinned(), ..Resolved::default() };
    for &index in &oriented.out_of_range {
        resolved.dropped.push(edge.messages[index].id, DropCause::OutOfRange);
    }
    let mut runs = Vec::new();
    for run in &split(&oriented.bounds) {
        let trend = wander
            .filter(|_| !consistent(&run.bounds))
            .and_then(|wander| trend(&without_fewest(&run.bounds), slope, wander));
        let Some(trend) = trend else {
            runs.push(run.with(drop_fewest(edge, &run.bounds, &mut resolved.dropped)));
            continue;
        };
        // Pairs that contradict by drift alone may show a small step, so the second pass starts from all pairs.
        let mut fine = split(&trend.level(&run.bounds));
        if let Some(first) = fine.first_mut() {
            first.sure_first = run.sure_first;
        }
        if let Some(last) = fine.last_mut() {
            last.sure_last = run.sure_last;
        }
        for part in fine {
            let kept = drop_fewest(edge, &part.bounds, &mut resolved.dropped);
            let kept: Vec<Bound> = kept.into_iter().map(|bound| trend.restore(bound, slope)).collect();
            runs.push(part.with(drop_fewest(edge, &kept, &mut resolved.dropped)));
        }
    }
    runs.retain(|run| !run.bounds.is_empty());
    for pair in runs.windows(2) {
        let step = step(edge, slope, &pair[0], &pair[1]);
        resolved
            .steps
            .push(EdgeStep { jump: if oriented.by_a { step.jump } else { step.jump.reversed() }, ..step });
    }
    resolved.contradicting = resolved.dropped.count() - oriented.out_of_range.len() as u64;
    resolved.half_width = half_width(&runs, slope);
    for BoundsRun { bounds: run, .. } in runs {
        let late = late(&run, slope);
        let owner = |bound: &Bound| edge.messages[bound.owner as usize];
        for &index in &late {
            resolved.dropped.push(owner(&run[index]).id, DropCause::Late);
        }
        let mut punctual = Vec::with_capacity(run.len());
        without(&run, &late, &mut punctual);
        if edge.is_thinned() {
            // Thins the messages since the last full block as that block was thinned when they arrived. Otherwise delays would seem to
            // differ more among these messages than elsewhere.
            let mut keep = thinned(&within(&punctual, edge.widest), LONGEST_GAP / 2).into_iter();
            punctual.retain(|_| keep.next() == Some(true));
        }
        // Implied messages stay: a wider bound may need them, and they show how much delays differ.
        resolved.implied += on_envelope(&punctual).iter().filter(|on| !**on).count() as u64;
        resolved.segments.push(punctual.iter().map(owner).collect());
    }
    resolved
}

fn without_fewest(run: &[Bound]) -> Vec<Bound> {
    let mut rest = Vec::with_capacity(run.len());
    without(run, &fewest(run), &mut rest);
    rest
}

fn drop_fewest(edge: &Edge, run: &[Bound], dropped: &mut Dropped) -> Vec<Bound> {
    let contradicting = fewest(run);
    for &index in &contradicting {
        dropped.push(edge.messages[run[index].owner as usize].id, DropCause::Contradicts);
    }
    let mut rest = Vec::with_capacity(run.len());
    without(run, &contradicting, &mut rest);
    rest
}

/// Bounds between two steps.
struct BoundsRun {
    bounds: Vec<Bound>,
    /// The first bound that is certainly after the previous step, and the last that is certainly before the next step;
    /// `None` without that step.
    sure_first: Option<Bound>,
    sure_last: Option<Bound>,
}

impl BoundsRun {
    /// Returns the run with other bounds.
    fn with(&self, bounds: Vec<Bound>) -> BoundsRun {
        BoundsRun { bounds, sure_first: self.sure_first, sure_last: self.sure_last }
    }

    fn first(&self) -> Bound {
        self.sure_first.unwrap_or(self.bounds[0])
    }

    fn last(&self) -> Bound {
        self.sure_last.unwrap_or(self.bounds[self.bounds.len() - 1])
    }
}

/// A step before the bound `index`. Bounds before index `last` are certainly before the step, those from `first` on
/// certainly after it.
#[derive(Clone, Copy)]
struct Cut {
    last: usize,
    index: usize,
    first: usize,
}

/// Splits bounds where a step leaves fewer contradictions.
fn split(bounds: &[Bound]) -> Vec<BoundsRun> {
    let mut cuts = near_cuts(bounds);
    let mut edges: Vec<usize> = cuts.iter().map(|cut| cut.index).collect();
    edges.insert(0, 0);
    edges.push(bounds.len());
    for edge in edges.windows(2) {
        far_cuts(bounds, edge[0], edge[1], FAR_DEPTH, &mut cuts);
    }
    cuts.sort_unstable_by_key(|cut| cut.index);
    let mut runs = Vec::with_capacity(cuts.len() + 1);
    let (mut start, mut sure_first) = (0, None);
    for cut in cuts {
        let sure_last = cut.last.checked_sub(1).map(|last| bounds[last]);
        runs.push(BoundsRun { bounds: bounds[start..cut.index].to_vec(), sure_first, sure_last });
        (start, sure_first) = (cut.index, bounds.get(cut.first).copied());
    }
    runs.push(BoundsRun { bounds: bounds[start..].to_vec(), sure_first, sure_last: None });
    runs
}

/// Finds steps that are visible within one window.
fn near_cuts(bounds: &[Bound]) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut start = 0;
    while start < bounds.len() && cuts.len() < STEPS {
        let end = (start + WINDOW).min(bounds.len());
        match best_split(&bounds[start..end]) {
            Some((last, first)) => {
                let index = start + likely(&bounds[start..end], last, first);
                cuts.push(Cut { last: start + last, index, first: start + first });
                start += first;
            }
            None if end == bounds.len() => break,
            None => start += STRIDE,
        }
    }
    cuts
}

/// Finds steps that are visible only over long distances: a clock that stood still contradicts itself during that time
/// and stays behind afterwards. Searches a sample, first on a coarse grid and then around the best cut.
fn far_cuts(bounds: &[Bound], from: usize, to: usize, depth: u32, cuts: &mut Vec<Cut>) {
    let run = &bounds[from..to];
    let every = run.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<Bound> = run.iter().step_by(every).copied().collect();
    let whole = conflicts(&sample);
    // Up to a twelfth of the sample, contradictions are wrong pairs: the windows found no step in them, and a sample
    // can't either.
    if depth == 0 || cuts.len() >= STEPS || whole <= STEP_COST || whole * 12 <= sample.len() {
        return;
    }
    let cost = |index: usize| conflicts(&sample[..index]) + conflicts(&sample[index..]);
    let (mut low, mut high) = (1, sample.len());
    let mut best = (usize::MAX, 0);
    loop {
        let stride = (high - low).div_ceil(16).max(1);
        best = (low..high).step_by(stride).map(|index| (cost(index), index)).min().unwrap_or(best).min(best);
        if stride == 1 {
            break;
        }
        (low, high) = (best.1.saturating_sub(stride).max(1), (best.1 + stride).min(sample.len()));
    }
    let (least, index) = best;
    // In a large sample, a step must save more than a few pairs.
    if whole <= least + STEP_COST + sample.len() / 32 {
        return;
    }
    let index = from + index * every;
    let (last, first) = ((index + 1).saturating_sub(every).max(from + 1), (index + every - 1).min(to - 1));
    cuts.push(Cut { last, index, first });
    far_cuts(bounds, from, index, depth - 1, cuts);
    far_cuts(bounds, index, to, depth - 1, cuts);
}

/// Returns the first and the last of the best indices for a step, if it saves more than [`STEP_COST`] pairs. They are `last`
/// and `first` of a [`Cut`]: bounds before the first best index certainly precede the step.
fn best_split(window: &[Bound]) -> Option<(usize, usize)> {
    let whole = conflicts(window);
    if whole <= STEP_COST {
        return None;
    }
    let cost = |cut: usize| conflicts(&window[..cut]) + conflicts(&window[cut..]);
    let coarse = (GRID..window.len()).step_by(GRID).min_by_key(|&cut| cost(cut))?;
    let from = coarse.saturating_sub(GRID).max(1);
    let to = (coarse + GRID).min(window.len() - 1);
    let costs: Vec<usize> = (from..=to).map(cost).collect();
    let least = *costs.iter().min()?;
    let first = costs.iter().position(|&cost| cost == least)?;
    let last = costs.iter().rposition(|&cost| cost == least)?;
    (whole > least + STEP_COST).then_some((from + first, from + last))
}

/// Returns the most likely place of the step between two equally good places: after the last bound that is closer to
/// the bounds before the step than to those after it.
fn likely(window: &[Bound], last: usize, first: usize) -> usize {
    let nearest = |run: &[Bound], bound: &Bound| {
        let same = run.iter().filter(|other| other.upper == bound.upper);
        same.map(|other| other.value.abs_diff(bound.value)).min().unwrap_or(u64::MAX)
    };
    let before = |bound: &Bound| nearest(&window[..last], bound) < nearest(&window[first..], bound);
    window[last..first].iter().rposition(before).map_or(last, |index| last + index + 1)
}

/// Returns the step between two runs of bounds, with the jump of the clock that is not primary.
fn step(edge: &Edge, slope: Slope, before: &BoundsRun, behind: &BoundsRun) -> EdgeStep {
    let (last, first) = (before.last(), behind.first());
    let (before, behind) = (&before.bounds, &behind.bounds);
    let middle = last.x + (first.x - last.x) / 2;
    let message = |bound: Bound| edge.messages[bound.owner as usize];
    // Without a bound, the offset may be anything; a quarter of the range leaves room for sums.
    let low_at = |run: &[Bound]| envelope(run, &[middle], slope, LOWER).map_or(i64::MIN / 4, |low| low[0]);
    let high_at = |run: &[Bound]| envelope(run, &[middle], slope, UPPER).map_or(i64::MAX / 4, |high| high[0]);
    let near_before = &before[before.len().saturating_sub(WINDOW)..];
    let near_behind = &behind[..behind.len().min(WINDOW)];
    EdgeStep {
        last: message(last),
        first: message(first),
        gap: first.x - last.x,
        likely_last: message(before[before.len() - 1]),
        likely_first: message(behind[0]),
        jump: Jump {
            least: low_at(near_behind) - high_at(near_before),
            greatest: high_at(near_behind) - low_at(near_before),
        },
    }
}

/// A half-width that no pair of bounds has.
pub(crate) const UNBOUNDED_WIDTH: i64 = i64::MAX / 4;

/// Returns the median of half the distance between the envelopes; [`UNBOUNDED_WIDTH`] if all bounds are on one side.
fn half_width(runs: &[BoundsRun], slope: Slope) -> i64 {
    let mut widths = Vec::new();
    for run in runs.iter().map(|run| &run.bounds) {
        let places: Vec<i64> = run.iter().map(|bound| bound.x).collect();
        let (Some(low), Some(high)) =
            (envelope(run, &places, slope, LOWER), envelope(run, &places, slope, UPPER))
        else {
            continue;
        };
        widths.extend(low.iter().zip(high).map(|(low, high)| (high - low) / 2));
    }
    if widths.is_empty() {
        return UNBOUNDED_WIDTH;
    }
    let middle = widths.len() / 2;
    (*widths.select_nth_unstable(middle).1).max(1)
}

/// The offset over time, measured in windows, and the slope that deviations from it may have.
struct Trend {
    /// The windows' middles; the first and last lines extend beyond the ends.
    knots: Vec<Point>,
    slope: Slope,
}

/// Measures the drift over time; `None` if the result is no tighter than the drift bound.
///
/// The trend only serves to find contradictions. Bounds of timestamps never depend on it.
fn trend(bounds: &[Bound], slope: Slope, wander: u64) -> Option<Trend> {
    let middles = windows(bounds, slope);
    if middles.len() < 4 {
        return None;
    }
    let mut drifts = Vec::new();
    let mut uncertainties = Vec::new();
    for pair in middles.windows(2) {
        let seconds = (pair[1].x - pair[0].x) as f64 / PER_SECOND as f64;
        let width = (pair[0].half_width + pair[1].half_width) as f64 / PER_SECOND as f64;
        drifts.push((pair[1].value - pair[0].value) as f64 / PER_SECOND as f64 / seconds);
        uncertainties.push(2.0 * width / seconds + wander as f64 * 1e-9 * 2.0 * seconds);
    }
    // One and a half times what nine in ten uncertainties do not exceed.
    let ninth_decile = uncertainties.len() * 9 / 10;
    let uncertainty = *uncertainties.select_nth_unstable_by(ninth_decile, f64::total_cmp).1;
    let narrow = Slope::from_ppb((uncertainty * 1.5e9) as u64 + 1);
    if narrow.times(PER_SECOND) * 2 > slope.times(PER_SECOND) {
        return None;
    }
    let mut knots = vec![Point { x: middles[0].x, y: middles[0].value }];
    for (index, pair) in middles.windows(2).enumerate() {
        let around = &drifts[index.saturating_sub(2)..(index + 3).min(drifts.len())];
        let mut sorted = around.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let rise = sorted[sorted.len() / 2] * (pair[1].x - pair[0].x) as f64;
        knots.push(Point { x: pair[1].x, y: knots[index].y + rise as i64 });
    }
    Some(Trend { knots, slope: narrow })
}

/// The offset range in the middle of a window.
struct Middle {
    x: i64,
    value: i64,
    half_width: i64,
}

fn windows(bounds: &[Bound], slope: Slope) -> Vec<Middle> {
    let mut middles = Vec::new();
    let mut start = 0;
    for end in 1..=bounds.len() {
        let window = &bounds[start..end];
        let (first, last) = (window[0].x, window[window.len() - 1].x);
        if window.len() < TREND_BOUNDS || last - first < PER_SECOND {
            continue;
        }
        let x = first + (last - first) / 2;
        if let (Some(low), Some(high)) =
            (envelope(window, &[x], slope, LOWER), envelope(window, &[x], slope, UPPER))
        {
            let (low, high) = (low[0], high[0]);
            middles.push(Middle { x, value: low + (high - low) / 2, half_width: (high - low).abs() / 2 });
            start = end;
            if start == bounds.len() {
                break;
            }
        }
    }
    middles
}

impl Trend {
    /// Returns the trend at each of `bounds`, which are sorted by x.
    fn values<'a>(&'a self, bounds: &'a [Bound]) -> impl Iterator<Item = i64> + 'a {
        let mut knot = 0;
        bounds.iter().map(move |bound| {
            while knot + 2 < self.knots.len() && self.knots[knot + 1].x <= bound.x {
                knot += 1;
            }
            self.at(knot, bound.x)
        })
    }

    /// Returns the trend at `x` on the line after `knot`, extended beyond both ends.
    fn at(&self, knot: usize, x: i64) -> i64 {
        let (from, to) = (self.knots[knot], self.knots[knot + 1]);
        let rise = i128::from(to.y - from.y) * i128::from(x - from.x) / i128::from((to.x - from.x).max(1));
        from.y + rise as i64
    }

    /// Returns the bounds with the trend subtracted.
    fn level(&self, bounds: &[Bound]) -> Vec<Bound> {
        let level = |(bound, value): (&Bound, i64)| {
            Bound::new(bound.x, bound.value - value, bound.upper, self.slope, bound.owner)
        };
        bounds.iter().zip(self.values(bounds)).map(level).collect()
    }

    /// Adds the trend back to a bound.
    fn restore(&self, bound: Bound, slope: Slope) -> Bound {
        let knot = self.knots.partition_point(|knot| knot.x <= bound.x);
        let knot = knot.saturating_sub(1).min(self.knots.len() - 2);
        Bound::new(bound.x, bound.value + self.at(knot, bound.x), bound.upper, slope, bound.owner)
    }
}
