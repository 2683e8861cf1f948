//! Computes the timeline from the edges: one clock after the other, from the reference clock outwards.
//!
//! ```text
//! edges ──resolve──► steps, wrong pairs ──layout──► nodes and links ──► nodes by distance ──► curves ──close──► timeline
//! ```
//!
//! The distance of a node is the sum of the edges' half-widths. A node's bounds come from all solved neighbours. If an
//! edge does not touch the reference clock, a second round propagates bounds from farther clocks to nearer ones, and
//! closing rounds then remove the remaining violations, so that no message is received before it was sent.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    clocks::Method,
    curve::Curve,
    edge::Edge,
    graph::ClockGraph,
    node::{self, Sighting},
    reach::Motion,
    segments::{Layout, Link, Node, layout},
    steps::{Resolved, resolve},
    summary::{self, Findings},
    timeline::{ClockLine, ClockSegment, Instant, Timeline},
    units::Slope,
};

/// Closing rounds at most. Each propagates bounds over one more message; drift widens them on the way, so few rounds
/// suffice.
const ROUNDS: usize = 24;

/// Places the clocks of a graph on one timeline.
pub(crate) fn solve(graph: &ClockGraph, method: Method) -> Timeline {
    let edges: Vec<((u32, u32), &Edge)> = graph.edges().collect();
    let ends: Vec<(u32, u32)> = edges.iter().map(|(ends, _)| *ends).collect();
    let resolved: Vec<Resolved> =
        edges.iter().map(|&((a, b), edge)| resolve(edge, graph.drift(a, b), graph.wander(a, b))).collect();
    let hops = hops(graph, &ends);
    let layout = layout(graph, &ends, &resolved, &hops);
    let mut solver = Solver::new(graph, &layout, &resolved);
    match method {
        Method::Bounded => solver.bounded(),
        Method::Hull | Method::Regression => solver.lines(method),
    }
    let Solver { lines, findings, .. } = solver;
    let mut timeline = Timeline { method, clocks: lines, report: Default::default() };
    timeline.report = summary::report(graph, &edges, &resolved, &layout, &hops, &findings, &timeline);
    timeline
}

/// Returns each clock's least number of edges to the reference clock.
fn hops(graph: &ClockGraph, ends: &[(u32, u32)]) -> Vec<Option<u32>> {
    let mut hops = vec![None; graph.clocks().len()];
    hops[graph.reference().0 as usize] = Some(0);
    let mut reached = vec![graph.reference().0];
    let mut neighbours = vec![Vec::new(); graph.clocks().len()];
    for &(a, b) in ends {
        neighbours[a as usize].push(b);
        neighbours[b as usize].push(a);
    }
    let mut next = 0;
    while next < reached.len() {
        let clock = reached[next] as usize;
        next += 1;
        for &neighbour in &neighbours[clock] {
            if hops[neighbour as usize].is_none() {
                hops[neighbour as usize] = hops[clock].map(|hops| hops + 1);
                reached.push(neighbour);
            }
        }
    }
    hops
}

/// A link of a node.
#[derive(Clone, Copy)]
struct Attached {
    link: usize,
    /// The node's side of the link.
    side: usize,
    other: usize,
}

/// A node in order of distance.
#[derive(Clone, Copy)]
struct ReachedNode {
    node: usize,
    /// The link on the shortest path to it; `None` for the reference clock's.
    link: Option<usize>,
}

struct Solver<'a> {
    graph: &'a ClockGraph,
    layout: &'a Layout,
    resolved: &'a [Resolved],
    lines: Vec<ClockLine>,
    attached: Vec<Vec<Attached>>,
    /// Nodes in order of distance.
    order: Vec<ReachedNode>,
    /// What is reported of each clock.
    findings: Vec<Findings>,
    /// The bounds of each node's motion against the timeline: those assumed, or wider ones once it is solved.
    motions: Vec<Motion>,
}

impl<'a> Solver<'a> {
    fn new(graph: &'a ClockGraph, layout: &'a Layout, resolved: &'a [Resolved]) -> Solver<'a> {
        let mut attached = vec![Vec::new(); layout.nodes.len()];
        for (index, link) in layout.links.iter().enumerate() {
            for side in 0..2 {
                attached[link.nodes[side]].push(Attached { link: index, side, other: link.nodes[1 - side] });
            }
        }
        let lines = (0..graph.clocks().len()).map(|clock| unsolved(graph, layout, clock)).collect();
        let findings = (0..graph.clocks().len())
            .map(|clock| Findings { contradictions: 0, motion: assumed(graph, clock), breaks_bounds: false })
            .collect();
        let motions = layout.nodes.iter().map(|node| assumed(graph, node.clock)).collect();
        let order = Vec::new();
        let mut solver = Solver { graph, layout, resolved, lines, attached, order, findings, motions };
        solver.order = solver.by_distance();
        solver
    }

    fn is_reference(&self, node: usize) -> bool {
        self.layout.nodes[node].clock == self.graph.reference().0 as usize
    }

    /// Orders nodes by Dijkstra's algorithm from the reference clock.
    fn by_distance(&self) -> Vec<ReachedNode> {
        let mut order = Vec::new();
        let mut done = vec![false; self.layout.nodes.len()];
        let mut open = BinaryHeap::new();
        let references = (0..done.len()).filter(|&node| self.is_reference(node));
        open.extend(references.map(|node| Reverse((0i64, node, None))));
        while let Some(Reverse((distance, node, link))) = open.pop() {
            if std::mem::replace(&mut done[node], true) {
                continue;
            }
            order.push(ReachedNode { node, link });
            for attached in &self.attached[node] {
                let width = self.resolved[self.layout.links[attached.link].edge].half_width;
                let next = Reverse((distance.saturating_add(width), attached.other, Some(attached.link)));
                if !done[attached.other] {
                    open.push(next);
                }
            }
        }
        order
    }

    fn segment(&self, node: usize) -> &ClockSegment {
        let Node { clock, segment } = self.layout.nodes[node];
        &self.lines[clock].segments[segment]
    }

    /// Returns the bounds that messages with solved neighbours set on a node. `choose` picks the bound from the
    /// neighbour's time and whether the node sent the message. `only` restricts the messages to one link.
    fn sightings(
        &self,
        node: usize,
        only: Option<usize>,
        choose: impl Fn(&Instant, bool) -> Option<i128>,
    ) -> Vec<Sighting> {
        let scale = self.lines[self.layout.nodes[node].clock].scale;
        let mut sightings = Vec::new();
        for attached in
            self.attached[node].iter().filter(|attached| only.is_none_or(|only| only == attached.link))
        {
            let other = self.segment(attached.other);
            if other.curve.is_none() {
                continue;
            }
            let other_scale = self.lines[self.layout.nodes[attached.other].clock].scale;
            for message in &self.layout.links[attached.link].messages {
                let (own, neighbour) =
                    if attached.side == 0 { (message.a, message.b) } else { (message.b, message.a) };
                let sent = message.to_b == (attached.side == 0);
                let time = other.time(other_scale.units(neighbour));
                if let Some(time) = choose(&time, sent) {
                    sightings.push(Sighting { units: scale.units(own), time, upper: sent });
                }
            }
        }
        sightings
    }

    /// Returns the bounds from messages exchanged with the reference clock, whose readings are the timeline.
    fn sightings_of_reference(&self, node: usize) -> Vec<Sighting> {
        let links = self.attached[node].iter().filter(|attached| self.is_reference(attached.other));
        let of_link =
            |attached: &Attached| self.sightings(node, Some(attached.link), |time, _| Some(time.estimate));
        links.flat_map(of_link).collect()
    }

    fn tick(&self, node: usize) -> i128 {
        i128::from(self.lines[self.layout.nodes[node].clock].scale.tick())
    }

    fn slope(&self, node: usize) -> Slope {
        Slope::from_ppb(self.motions[node].drift_ppb)
    }

    /// Returns the least bounds of a node's motion: the assumed ones, and the widening that every way to the reference clock
    /// shares. A way is a solved neighbour and the messages with it; if either needed wider bounds than assumed, some clock
    /// on that way is slewed, and it may be this one.
    fn least(&self, node: usize) -> Motion {
        let own = assumed(self.graph, self.layout.nodes[node].clock);
        let mut least: Option<(u64, f64)> = None;
        for attached in
            self.attached[node].iter().filter(|attached| self.segment(attached.other).curve.is_some())
        {
            let Link { edge, nodes, .. } = &self.layout.links[attached.link];
            let [a, b] = nodes.map(|node| self.layout.nodes[node].clock as u32);
            let wider = self.motions[attached.other];
            let other = assumed(self.graph, self.layout.nodes[attached.other].clock);
            let drift =
                wider.drift_ppb - other.drift_ppb + self.resolved[*edge].drift_ppb - self.graph.drift(a, b);
            let is_wider = wider.wander_ppb_per_s > other.wander_ppb_per_s;
            let wander = if is_wider { wider.wander_ppb_per_s } else { 0.0 };
            let (least_drift, least_wander) = least.unwrap_or((u64::MAX, f64::INFINITY));
            least = Some((least_drift.min(drift), least_wander.min(wander)));
        }
        let (drift, wander) = least.unwrap_or((0, 0.0));
        Motion { drift_ppb: own.drift_ppb + drift, wander_ppb_per_s: own.wander_ppb_per_s.max(wander), ..own }
    }

    fn solve_node(&mut self, node: usize, only: Option<usize>, method: Method) {
        let (clock, tick) = (self.layout.nodes[node].clock, self.tick(node));
        let (assumed, least) = (assumed(self.graph, clock), self.least(node));
        let published = self.sightings(node, only, |time, _| Some(time.estimate));
        let solved = match method {
            Method::Bounded => {
                // The clock may have reached the reading up to one tick before the message arrived.
                let choose =
                    |time: &Instant, sent| if sent { time.high } else { time.low.map(|low| low - tick) };
                let sightings = self.sightings(node, only, choose);
                let thinned = self.attached[node]
                    .iter()
                    .any(|attached| self.resolved[self.layout.links[attached.link].edge].thinned);
                node::bounded(&sightings, &published, tick as i64, assumed, least, thinned)
            }
            Method::Hull | Method::Regression => node::one_line(&published, least, method),
        };
        let Some(solved) = solved else { return };
        let Node { clock, segment: segment_index } = self.layout.nodes[node];
        self.motions[node] = solved.motion;
        let findings = &mut self.findings[clock];
        findings.contradictions = findings.contradictions.max(solved.contradictions);
        findings.motion = findings.motion.widest(solved.motion);
        findings.breaks_bounds |= solved.breaks_bounds;
        let segment = &mut self.lines[clock].segments[segment_index];
        (segment.origin, segment.base, segment.curve) = (solved.origin, solved.base, Some(solved.curve));
        if method == Method::Bounded {
            let exact = self.sightings_of_reference(node);
            let slope = self.slope(node);
            node::clamp_estimate(&mut self.lines[clock].segments[segment_index], &exact, slope);
        }
    }

    fn bounded(&mut self) {
        let nodes: Vec<usize> =
            self.order.iter().map(|reached| reached.node).filter(|&node| !self.is_reference(node)).collect();
        let beyond = |link: &Link| !link.nodes.iter().any(|&node| self.is_reference(node));
        let has_link_beyond = self.layout.links.iter().any(beyond);
        let all_links = None;
        for &node in &nodes {
            self.solve_node(node, all_links, Method::Bounded);
        }
        if !has_link_beyond {
            return;
        }
        for &node in &nodes {
            self.solve_node(node, all_links, Method::Bounded);
        }
        self.close(&nodes);
    }

    /// Makes bounds and estimates consistent over every message. Each node tightens its bounds first, then raises its
    /// estimate if a message would be received before it was sent.
    fn close(&mut self, nodes: &[usize]) {
        for _ in 0..ROUNDS {
            let mut changed = false;
            for &node in nodes {
                changed |= self.tighten(node);
            }
            if !changed {
                break;
            }
        }
    }

    /// Clamps a node to its neighbours' current times; returns whether anything changed.
    fn tighten(&mut self, node: usize) -> bool {
        let tick = self.tick(node);
        // The upper line of a solved curve includes the node's tick, unlike that of a node that is being solved.
        let choose = |time: &Instant, sent: bool| {
            if sent { time.high.map(|high| high + tick) } else { time.low.map(|low| low - tick) }
        };
        let all_links = None;
        let sightings = self.sightings(node, all_links, choose);
        let estimates = self.sightings(node, all_links, |time, sent| (!sent).then_some(time.estimate));
        let slope = self.slope(node);
        let Node { clock, segment } = self.layout.nodes[node];
        let segment = &mut self.lines[clock].segments[segment];
        let before = segment.curve.clone();
        node::clamp(segment, &sightings, slope);
        node::clamp_estimate(segment, &estimates, slope);
        segment.curve != before
    }

    fn lines(&mut self, method: Method) {
        for ReachedNode { node, link } in self.order.clone() {
            if !self.is_reference(node) {
                self.solve_node(node, link, method);
            }
        }
    }
}

/// Returns the bounds that are assumed of a clock's motion against the timeline.
fn assumed(graph: &ClockGraph, clock: usize) -> Motion {
    let (clock, reference) = (clock as u32, graph.reference().0);
    Motion {
        drift_ppb: graph.drift(clock, reference),
        wander_ppb_per_s: graph.wander(clock, reference) as f64,
        longest_gap: graph.longest_gap(clock, reference),
    }
}

/// Returns a clock's unsolved line. The reference clock defines the timeline; its steps are removed.
fn unsolved(graph: &ClockGraph, layout: &Layout, clock: usize) -> ClockLine {
    let boundaries = &layout.boundaries[clock];
    let is_reference = clock == graph.reference().0 as usize;
    let mut base = 0;
    let mut segments = Vec::with_capacity(boundaries.len() + 1);
    for index in 0..=boundaries.len() {
        let from = index.checked_sub(1).map(|before| &boundaries[before]);
        if let Some(boundary) = from.filter(|_| is_reference) {
            base -= i128::from(boundary.jump.least + (boundary.jump.greatest - boundary.jump.least) / 2);
        }
        segments.push(ClockSegment {
            origin: 0,
            base,
            curve: is_reference.then(|| Curve::exact(graph.scale(clock as u32).tick())),
            from: from.map_or(0, |boundary| boundary.earliest_after()),
            to: boundaries.get(index).map_or(u64::MAX, |boundary| boundary.latest_before()),
            begins: from.map_or(0, |boundary| boundary.likely_first),
            ends: boundaries.get(index).map_or(u64::MAX, |boundary| boundary.likely_last),
        });
    }
    ClockLine { scale: graph.scale(clock as u32), segments }
}
