//! Attributes steps to clocks, and divides clocks into the segments between their steps.
//!
//! An edge shows that two clocks moved against each other, but not which clock stepped. A step is attributed to the
//! clock on which more other edges show one at that reading, and else to the clock farther from the reference clock.

use std::collections::BTreeMap;

use crate::{
    clocks::DropCause,
    edge::{Dropped, Message},
    graph::ClockGraph,
    steps::{EdgeStep, Jump, Resolved},
    units::PER_SECOND,
};

/// A step of a clock.
#[derive(Clone, Debug)]
pub(crate) struct Boundary {
    /// The last reading before the step and the first reading after it, over all edges that show it.
    pub(crate) last: u64,
    pub(crate) first: u64,
    /// Ticks that passed between the two readings, without the step.
    pub(crate) gap: u64,
    /// The last reading that is probably before the step, and the first that is probably after it.
    pub(crate) likely_last: u64,
    pub(crate) likely_first: u64,
    /// Forward jump of the clock.
    pub(crate) jump: Jump,
    /// The least jump in ticks.
    jump_ticks: i128,
    /// The steps of edges that show this one.
    shown_by: Vec<StepIndex>,
}

/// A step of an edge.
#[derive(Clone, Copy, Debug)]
struct StepIndex {
    edge: usize,
    /// Number of the step on the edge.
    step: usize,
}

impl Boundary {
    /// Returns whether a clock reading is later than the step; `None` if it may be either.
    fn passed(&self, ticks: u64) -> Option<bool> {
        if self.first > self.last {
            return if ticks >= self.first { Some(true) } else { (ticks <= self.last).then_some(false) };
        }
        if ticks > self.latest_before() {
            Some(true)
        } else {
            (ticks < self.earliest_after()).then_some(false)
        }
    }

    /// Returns the last reading that the clock may have shown before the step. The gap limits it from the last known
    /// reading, and the jump limits it from the first reading after the step.
    pub(crate) fn latest_before(&self) -> u64 {
        let by_jump = i128::from(self.first) - self.jump_ticks;
        let by_gap = i128::from(self.last) + i128::from(self.gap);
        by_gap.min(by_jump).max(i128::from(self.last)).min(i128::from(u64::MAX)) as u64
    }

    /// Returns the first reading that the clock may have shown after the step.
    pub(crate) fn earliest_after(&self) -> u64 {
        let by_jump = i128::from(self.last) + self.jump_ticks;
        let by_gap = i128::from(self.first) - i128::from(self.gap);
        by_gap.max(by_jump).min(i128::from(self.first)).max(0) as u64
    }

    fn near(&self, other: &Boundary) -> bool {
        self.last.abs_diff(other.last) <= self.gap.saturating_add(other.gap)
    }

    fn absorb(&mut self, other: Boundary) {
        self.last = self.last.max(other.last);
        self.first = self.first.min(other.first);
        self.gap = self.gap.min(other.gap);
        self.likely_last = self.likely_last.max(other.likely_last);
        self.likely_first = self.likely_first.min(other.likely_first);
        let least = self.jump.least.max(other.jump.least);
        let greatest = self.jump.greatest.min(other.jump.greatest);
        if least <= greatest {
            self.jump = Jump { least, greatest };
            self.jump_ticks = self.jump_ticks.max(other.jump_ticks);
        }
        self.shown_by.extend(other.shown_by);
    }
}

/// Messages between two nodes.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) edge: usize,
    pub(crate) nodes: [usize; 2],
    pub(crate) messages: Vec<Message>,
}

/// A node: one segment of a clock, between two of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) clock: usize,
    pub(crate) segment: usize,
}

/// The graph with clocks divided at their steps.
pub(crate) struct Layout {
    /// Steps by clock, in order of time.
    pub(crate) boundaries: Vec<Vec<Boundary>>,
    pub(crate) nodes: Vec<Node>,
    /// Index of the first node of each clock.
    pub(crate) first_node: Vec<usize>,
    pub(crate) links: Vec<Link>,
    /// Messages whose segment is unknown, by edge.
    pub(crate) dropped: Vec<Dropped>,
}

/// Divides clocks at the steps of their edges. `ends` holds the clocks of each edge, `hops` each clock's distance from
/// the reference clock.
pub(crate) fn layout(
    graph: &ClockGraph,
    ends: &[(u32, u32)],
    resolved: &[Resolved],
    hops: &[Option<u32>],
) -> Layout {
    let boundaries = boundaries(graph, ends, resolved, hops);
    let mut nodes = Vec::new();
    let mut first_node = Vec::new();
    for (clock, boundaries) in boundaries.iter().enumerate() {
        first_node.push(nodes.len());
        nodes.extend((0..=boundaries.len()).map(|segment| Node { clock, segment }));
    }
    let mut links: BTreeMap<(usize, [usize; 2]), Vec<Message>> = BTreeMap::new();
    let mut dropped = vec![Dropped::default(); ends.len()];
    for (edge, (&(a, b), resolved)) in ends.iter().zip(resolved).enumerate() {
        for (segment, messages) in resolved.segments.iter().enumerate() {
            let [of_a, of_b] =
                [a, b].map(|clock| SegmentCandidates::new(&boundaries[clock as usize], edge, segment));
            for message in messages {
                let (Some(segment_a), Some(segment_b)) = (of_a.segment(message.a), of_b.segment(message.b))
                else {
                    dropped[edge].push(message.id, DropCause::AtStep);
                    continue;
                };
                let nodes = [first_node[a as usize] + segment_a, first_node[b as usize] + segment_b];
                links.entry((edge, nodes)).or_default().push(*message);
            }
        }
    }
    let link = |((edge, nodes), messages)| Link { edge, nodes, messages };
    Layout { boundaries, nodes, first_node, links: links.into_iter().map(link).collect(), dropped }
}

/// The segments of a clock that may hold the messages of one segment of an edge.
struct SegmentCandidates<'a> {
    boundaries: &'a [Boundary],
    from: usize,
    to: usize,
}

impl<'a> SegmentCandidates<'a> {
    fn new(boundaries: &'a [Boundary], edge: usize, segment: usize) -> SegmentCandidates<'a> {
        let shown = |boundary: &Boundary, is_wanted: &dyn Fn(usize) -> bool| {
            boundary.shown_by.iter().any(|shown| shown.edge == edge && is_wanted(shown.step))
        };
        let is_before = |boundary: &Boundary| shown(boundary, &|step| step < segment);
        let is_after = |boundary: &Boundary| shown(boundary, &|step| step >= segment);
        let from = boundaries.iter().rposition(is_before).map_or(0, |index| index + 1);
        let to = boundaries.iter().position(is_after).unwrap_or(boundaries.len());
        SegmentCandidates { boundaries, from, to: to.max(from) }
    }

    fn segment(&self, ticks: u64) -> Option<usize> {
        let mut segment = self.from;
        for (index, boundary) in self.boundaries.iter().enumerate().take(self.to).skip(self.from) {
            if boundary.passed(ticks)? {
                segment = index + 1;
            }
        }
        Some(segment)
    }
}

/// Returns the steps of every clock.
fn boundaries(
    graph: &ClockGraph,
    ends: &[(u32, u32)],
    resolved: &[Resolved],
    hops: &[Option<u32>],
) -> Vec<Vec<Boundary>> {
    // Each step of an edge as a step of either of its clocks.
    let mut candidates: Vec<[(usize, Boundary); 2]> = Vec::new();
    for (edge, (&(a, b), resolved)) in ends.iter().zip(resolved).enumerate() {
        for (number, step) in resolved.steps.iter().enumerate() {
            let index = StepIndex { edge, step: number };
            let of_a = boundary(graph, a, Side::A, index, step);
            let of_b = boundary(graph, b, Side::B, index, step);
            candidates.push([(a as usize, of_a), (b as usize, of_b)]);
        }
    }
    let mut by_clock: Vec<Vec<&Boundary>> = vec![Vec::new(); graph.clocks().len()];
    for (clock, boundary) in candidates.iter().flatten() {
        by_clock[*clock].push(boundary);
    }
    let mut chosen: Vec<BTreeMap<usize, Vec<Boundary>>> = vec![BTreeMap::new(); graph.clocks().len()];
    for [of_a, of_b] in &candidates {
        let votes = |(clock, own): &(usize, Boundary)| {
            let is_vote =
                |other: &&&Boundary| other.shown_by[0].edge != own.shown_by[0].edge && other.near(own);
            (by_clock[*clock].iter().filter(is_vote).count(), hops[*clock])
        };
        let (clock, own) = if votes(of_b) >= votes(of_a) { of_b } else { of_a };
        chosen[*clock].entry(own.shown_by[0].edge).or_default().push(own.clone());
    }
    chosen.into_iter().map(|by_edge| merge(by_edge.into_values().collect())).collect()
}

/// One of the two clocks of an edge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    A,
    B,
}

/// Converts a step of an edge to a step of one of its clocks.
fn boundary(graph: &ClockGraph, clock: u32, side: Side, index: StepIndex, step: &EdgeStep) -> Boundary {
    let frequency = i128::from(graph.clocks()[clock as usize].frequency_hz);
    let gap = (i128::from(step.gap) * frequency / i128::from(PER_SECOND)).clamp(0, i128::from(u64::MAX / 4));
    let reading = |message: &Message| if side == Side::B { message.b } else { message.a };
    let jump = if side == Side::B { step.jump } else { step.jump.reversed() };
    let jump_ticks = (i128::from(jump.least) * frequency).div_euclid(i128::from(PER_SECOND));
    Boundary {
        last: reading(&step.last),
        first: reading(&step.first),
        gap: gap as u64 + 1,
        likely_last: reading(&step.likely_last),
        likely_first: reading(&step.likely_first),
        jump,
        jump_ticks,
        shown_by: vec![index],
    }
}

/// Merges the observations of the same steps by several edges. Each list is in order of time.
fn merge(mut lists: Vec<Vec<Boundary>>) -> Vec<Boundary> {
    lists.sort_by_key(|list| std::cmp::Reverse(list.len()));
    let mut lists = lists.into_iter();
    let mut merged = lists.next().unwrap_or_default();
    for list in lists {
        let mut cursor = 0;
        for boundary in list {
            if let Some(same) = (cursor..merged.len()).find(|&index| merged[index].near(&boundary)) {
                merged[same].absorb(boundary);
                cursor = same + 1;
            } else {
                let behind = (cursor..merged.len()).find(|&index| merged[index].last > boundary.last);
                cursor = behind.unwrap_or(merged.len());
                merged.insert(cursor, boundary);
                cursor += 1;
            }
        }
    }
    merged
}
