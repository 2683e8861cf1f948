//! Builds the report of a timeline.

use std::array;

use crate::{
    clocks::{ClockId, DroppedPair},
    edge::{Edge, MOST_LISTED},
    graph::ClockGraph,
    reach::Motion,
    report::{ClockReport, ClockStep, EdgeReport, Report},
    segments::Layout,
    steps::{Resolved, UNBOUNDED_WIDTH},
    timeline::{ClockLine, Timeline},
    units::{PER_NANO, PPB, ceil_nanos, floor_nanos, saturate},
};

/// Number of intervals in which drift is measured.
const DRIFT_INTERVALS: usize = 64;

/// What the solver reports of a clock besides its line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Findings {
    pub(crate) contradictions: u64,
    /// The widest bounds of its segments.
    pub(crate) motion: Motion,
    pub(crate) breaks_bounds: bool,
}

/// Builds the report. `hops` and `findings` are indexed by clock, `resolved` by edge.
pub(crate) fn report(
    graph: &ClockGraph,
    edges: &[((u32, u32), &Edge)],
    resolved: &[Resolved],
    layout: &Layout,
    hops: &[Option<u32>],
    findings: &[Findings],
    timeline: &Timeline,
) -> Report {
    let clock_report = |clock: usize| clock_report(clock, layout, hops[clock], findings[clock], timeline);
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
    findings: Findings,
    timeline: &Timeline,
) -> ClockReport {
    let line = &timeline.clocks[clock];
    let readings = readings(clock, layout);
    let wander = findings.motion.wander_ppb_per_s;
    let curves = || line.segments.iter().filter_map(|segment| segment.curve.as_ref());
    let known = curves().count() == line.segments.len();
    let drift = drift(&readings, line);
    ClockReport {
        clock: ClockId(clock as u32),
        hops,
        bounded: (
            known && curves().all(|curve| curve.has_low),
            known && curves().all(|curve| curve.has_high),
        ),
        drift_ppb: drift.mean_ppb,
        wander_ppb: drift.range_ppb,
        drift_bound_ppb: findings.motion.drift_ppb,
        wander_bound_ppb_per_s: wander.is_finite().then_some(wander.ceil() as u64),
        breaks_bounds: findings.breaks_bounds,
        steps: layout.boundaries[clock].iter().map(step).collect(),
        contradictions: findings.contradictions,
    }
}

fn step(boundary: &crate::segments::Boundary) -> ClockStep {
    ClockStep {
        last_ticks: boundary.last,
        first_ticks: boundary.first,
        jump_low_ns: floor_nanos(i128::from(boundary.jump.least)),
        jump_high_ns: ceil_nanos(i128::from(boundary.jump.greatest)),
    }
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

/// A clock's drift against the timeline, in parts per billion.
#[derive(Clone, Copy, Default)]
struct Drift {
    mean_ppb: i64,
    /// Greatest minus least drift over time.
    range_ppb: i64,
}

/// Returns a clock's drift over the time of sorted readings.
fn drift(readings: &[u64], line: &ClockLine) -> Drift {
    let (Some(&first), Some(&last)) = (readings.first(), readings.last()) else { return Drift::default() };
    let ppb = |from: u64, to: u64| {
        let run = line.scale.units(to) - line.scale.units(from);
        let passed = line.time(to).estimate - line.time(from).estimate;
        // Limited, so that the product fits.
        let gained = (passed - run).clamp(-1 << 80, 1 << 80);
        (run > 0).then(|| saturate(gained * i128::from(PPB) / run))
    };
    let border =
        |index: usize| first + ((u128::from(last - first) * index as u128) / DRIFT_INTERVALS as u128) as u64;
    let (mut least, mut greatest) = (i64::MAX, i64::MIN);
    for drift in (0..DRIFT_INTERVALS).filter_map(|index| ppb(border(index), border(index + 1))) {
        least = least.min(drift);
        greatest = greatest.max(drift);
    }
    let range_ppb = greatest.saturating_sub(least).max(0);
    Drift { mean_ppb: ppb(first, last).unwrap_or(0), range_ppb }
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
    let dropped: u64 = all.iter().map(|dropped| dropped.count()).sum();
    let dropped_by_cause = array::from_fn(|cause| all.iter().map(|dropped| dropped.counts[cause]).sum());
    let dropped_pairs: Vec<DroppedPair> =
        all.iter().flat_map(|dropped| dropped.listed.clone()).take(MOST_LISTED).collect();
    let drift = edge_drift(index, (a, b), layout, timeline);
    let is_bounded = resolved.half_width < UNBOUNDED_WIDTH;
    EdgeReport {
        a: ClockId(a),
        b: ClockId(b),
        pairs: edge.pushed,
        pairs_to_b: edge.to_b,
        used,
        implied: edge.pushed.saturating_sub(used + dropped),
        dropped,
        dropped_by_cause,
        dropped_pairs,
        violations_before: edge.violations_before(),
        violations_after: violations_after(index, (a, b), layout, timeline),
        drift_ppb: drift.mean_ppb,
        wander_ppb: drift.range_ppb,
        half_width_ns: is_bounded.then(|| (resolved.half_width as u64).div_ceil(PER_NANO as u64)),
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
            let time_a = time(a, link.nodes[0], message.a);
            let time_b = time(b, link.nodes[1], message.b);
            violations += u64::from(if message.to_b { time_b < time_a } else { time_a < time_b });
        }
    }
    violations
}

/// Returns the drift of `b` against `a` over their longest link.
fn edge_drift(index: usize, (a, b): (u32, u32), layout: &Layout, timeline: &Timeline) -> Drift {
    let links = layout.links.iter().filter(|link| link.edge == index);
    let Some(link) = links.max_by_key(|link| link.messages.len()) else { return Drift::default() };
    let mut of_a: Vec<u64> = link.messages.iter().map(|message| message.a).collect();
    let mut of_b: Vec<u64> = link.messages.iter().map(|message| message.b).collect();
    of_a.sort_unstable();
    of_b.sort_unstable();
    let drift_a = drift(&of_a, &timeline.clocks[a as usize]);
    let drift_b = drift(&of_b, &timeline.clocks[b as usize]);
    Drift {
        mean_ppb: drift_b.mean_ppb.saturating_sub(drift_a.mean_ppb),
        range_ppb: drift_a.range_ppb.saturating_add(drift_b.range_ppb),
    }
}
