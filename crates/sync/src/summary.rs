//! Builds the report of a timeline.

use crate::{
    clocks::{ClockId, DroppedPair},
    edge::{Dropped, Edge},
    graph::ClockGraph,
    reach::Motion,
    report::{ClockReport, ClockStep, EdgeReport, Report},
    segments::Layout,
    steps::Resolved,
    timeline::{ClockLine, Timeline},
    units::{PER_NANO, ceil_nanos, floor_nanos, saturate},
};

/// Number of intervals in which drift is measured.
const DRIFT_INTERVALS: usize = 64;

/// What the solver found out of a clock beside its line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) contradictions: u64,
    /// The widest bounds of its segments.
    pub(crate) motion: Motion,
    pub(crate) breaks_bounds: bool,
}

/// Builds the report. `hops` and `found` are indexed by clock, `resolved` by edge.
pub(crate) fn report(
    graph: &ClockGraph,
    edges: &[((u32, u32), &Edge)],
    resolved: &[Resolved],
    layout: &Layout,
    hops: &[Option<u32>],
    found: &[Found],
    timeline: &Timeline,
) -> Report {
    let clock_report = |clock: usize| clock_report(clock, layout, hops[clock], found[clock], timeline);
    let edge_report = |index: usize| {
        let (ends, edge) = edges[index];
        edge_report(index, ends, edge, &resolved[index], layout, timeline)
    };
    Report {
        edges: (0..edges.len()).map(edge_report).collect(),
        clocks: (0..graph.clocks().len()).map(clock_report).collect(),
    }
}

fn clock_report(
    clock: usize,
    layout: &Layout,
    hops: Option<u32>,
    found: Found,
    timeline: &Timeline,
) -> ClockReport {
    let line = &timeline.clocks[clock];
    let readings = readings(clock, layout);
    let wander = found.motion.wander_ppb_per_s;
    let curves = || line.segments.iter().filter_map(|segment| segment.curve.as_ref());
    let known = curves().count() == line.segments.len();
    let (drift_ppb, wander_ppb) = drift(&readings, |ticks| (line.scale.units(ticks), estimate(line, ticks)));
    ClockReport {
        clock: ClockId(clock as u32),
        hops,
        bounded: (
            known && curves().all(|curve| curve.has_low),
            known && curves().all(|curve| curve.has_high),
        ),
        drift_ppb,
        wander_ppb,
        drift_bound_ppb: found.motion.drift_ppb,
        wander_bound_ppb_per_s: wander.is_finite().then_some(wander.ceil() as u64),
        breaks_bounds: found.breaks_bounds,
        steps: layout.boundaries[clock].iter().map(step).collect(),
        contradictions: found.contradictions,
    }
}

fn step(boundary: &crate::segments::Boundary) -> ClockStep {
    ClockStep {
        last_ticks: boundary.last,
        first_ticks: boundary.first,
        jump_low_ns: floor_nanos(i128::from(boundary.jump.0)),
        jump_high_ns: ceil_nanos(i128::from(boundary.jump.1)),
    }
}

fn estimate(line: &ClockLine, ticks: u64) -> i128 {
    line.time(ticks).estimate
}

/// Returns the sorted readings of a clock in the segment that has the most.
fn readings(clock: usize, layout: &Layout) -> Vec<u64> {
    let nodes = layout.first_node[clock]..=layout.first_node[clock] + layout.boundaries[clock].len();
    let of_node = |node: usize| {
        let mut readings: Vec<u64> = Vec::new();
        for link in &layout.links {
            for side in (0..2).filter(|&side| link.nodes[side] == node) {
                readings.extend(
                    link.messages.iter().map(|message| if side == 0 { message.a } else { message.b }),
                );
            }
        }
        readings.sort_unstable();
        readings
    };
    nodes.map(of_node).max_by_key(Vec::len).unwrap_or_default()
}

/// Returns a clock's mean drift, and its greatest minus least drift over time, in parts per billion. `at` converts a
/// reading to (clock, time) in units.
fn drift(readings: &[u64], at: impl Fn(u64) -> (i128, i128)) -> (i64, i64) {
    let (Some(&first), Some(&last)) = (readings.first(), readings.last()) else { return (0, 0) };
    let ppb = |from: u64, to: u64| {
        let ((clock, time), (clock_behind, time_behind)) = (at(from), at(to));
        let run = clock_behind - clock;
        let gained = (time_behind - time - run).clamp(-1 << 80, 1 << 80);
        (run > 0).then(|| saturate(gained * 1_000_000_000 / run))
    };
    let mean = ppb(first, last).unwrap_or(0);
    let part =
        |index: usize| first + ((u128::from(last - first) * index as u128) / DRIFT_INTERVALS as u128) as u64;
    let drifts = (0..DRIFT_INTERVALS).filter_map(|index| ppb(part(index), part(index + 1)));
    let (least, greatest) =
        drifts.fold((i64::MAX, i64::MIN), |(least, greatest), ppb| (least.min(ppb), greatest.max(ppb)));
    (mean, greatest.saturating_sub(least).max(0))
}

fn edge_report(
    index: usize,
    (a, b): (u32, u32),
    edge: &Edge,
    resolved: &Resolved,
    layout: &Layout,
    timeline: &Timeline,
) -> EdgeReport {
    let links = || layout.links.iter().filter(|link| link.edge == index);
    let held: u64 = links().map(|link| link.messages.len() as u64).sum();
    let used = held.saturating_sub(resolved.implied);
    let all = [&edge.dropped, &resolved.dropped, &layout.dropped[index]];
    let dropped: u64 = all.iter().map(|dropped| dropped.count).sum();
    let named = |dropped: &&Dropped| dropped.named.clone();
    let dropped_pairs: Vec<DroppedPair> = all.iter().flat_map(named).take(1 << 20).collect();
    let (drift_ppb, wander_ppb) = edge_drift(index, (a, b), layout, timeline);
    let bounded = resolved.half_width < i64::MAX / 4;
    EdgeReport {
        a: ClockId(a),
        b: ClockId(b),
        pairs: edge.given,
        pairs_to_b: edge.to_b,
        used,
        implied: edge.given.saturating_sub(used + dropped),
        dropped,
        dropped_pairs,
        violations_before: edge.violations_before(),
        violations_after: violations_after(index, (a, b), layout, timeline),
        drift_ppb,
        wander_ppb,
        half_width_ns: bounded.then(|| (resolved.half_width as u64).div_ceil(PER_NANO as u64)),
        steps: resolved.steps.len() as u64,
    }
}

/// Counts messages that are received before they were sent by the timeline's estimates.
fn violations_after(index: usize, (a, b): (u32, u32), layout: &Layout, timeline: &Timeline) -> u64 {
    let time = |clock: u32, node: usize, ticks: u64| {
        let line = &timeline.clocks[clock as usize];
        line.segments[layout.nodes[node].segment].time(line.scale.units(ticks)).estimate
    };
    let mut violations = 0;
    for link in layout.links.iter().filter(|link| link.edge == index) {
        for message in &link.messages {
            let at_a = time(a, link.nodes[0], message.a);
            let at_b = time(b, link.nodes[1], message.b);
            violations += u64::from(if message.to_b { at_b < at_a } else { at_a < at_b });
        }
    }
    violations
}

/// Returns the drift of `b` against `a` over their longest link.
fn edge_drift(index: usize, (a, b): (u32, u32), layout: &Layout, timeline: &Timeline) -> (i64, i64) {
    let links = layout.links.iter().filter(|link| link.edge == index);
    let Some(link) = links.max_by_key(|link| link.messages.len()) else { return (0, 0) };
    let mut of_a: Vec<u64> = link.messages.iter().map(|message| message.a).collect();
    let mut of_b: Vec<u64> = link.messages.iter().map(|message| message.b).collect();
    of_a.sort_unstable();
    of_b.sort_unstable();
    let of_clock = |clock: u32, readings: &[u64]| {
        let line = &timeline.clocks[clock as usize];
        drift(readings, |ticks| (line.scale.units(ticks), estimate(line, ticks)))
    };
    let ((drift_a, wander_a), (drift_b, wander_b)) = (of_clock(a, &of_a), of_clock(b, &of_b));
    (drift_b.saturating_sub(drift_a), wander_a.saturating_add(wander_b))
}
