//! Places traces on one timeline by matching events that two traces recorded.
//!
//! ```text
//! traces ──MatchRule──► ends of messages ──Matcher──► pairs ──ClockGraph──► Timeline ──► knots ──► Synchronised
//! ```

use std::collections::BTreeMap;

use hodo_clock::{CycleClock, OriginNanos, TimeKnot};
use hodo_formats::events::{Cursor, Item, Parts, Trace};
use hodo_sync::{
    Clock, ClockGraph, ClockId, EdgeReport, HalfWidths, MatchReport, Matcher, MessageEnd, Method, Stamp,
    Timeline,
};

use super::{
    super::Experiment,
    MatchRule, Related, Synchronised, SynchronisedTrace, Unit,
    matching::{End, Key, Peer, names_slave},
    relate, synchronised,
};
use crate::{
    input::Input,
    losses::Losses,
    refusal::Refusal,
    traces::{Traces, cover},
};

/// Maximum number of unmatched keys in a matcher; the oldest are dropped first.
const MOST_KEYS: usize = 1 << 22;
/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// The settings of a synchronisation.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// The rules that find messages; [`MatchRule::DEFAULT`] if empty.
    pub rules: Vec<MatchRule>,
    /// The method that fits the clocks to one timeline.
    pub method: Method,
    /// The input whose clock is the timeline's; `None` selects the first.
    pub reference: Option<String>,
    /// Maximum deviation of a clock from its nominal frequency, in parts per billion.
    pub drift_ppb: u64,
    /// Maximum change of that deviation, in parts per billion per second.
    pub wander_ppb_per_s: u64,
    /// Whether that bound holds even where messages are too rare to refute it.
    pub wander_is_known: bool,
}

/// The matches of a rule.
#[derive(Clone, Debug)]
pub struct Matched {
    /// The rule.
    pub rule: MatchRule,
    /// The number of events that are ends of messages by this rule.
    pub ends: u64,
    /// How they were matched.
    pub report: MatchReport,
}

/// A step of a clock, between two times of the timeline in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncStep {
    /// The last time of a message that is certainly before the step.
    pub after: i128,
    /// The first time of a message that is certainly after it.
    pub before: i128,
    /// Least and greatest forward jump, in nanoseconds.
    pub jump: (i64, i64),
}

/// The outcome of a synchronisation.
#[derive(Debug)]
pub struct SyncOutcome {
    /// The traces on the timeline, for other commands.
    pub synchronised: Synchronised,
    /// The matches of each rule.
    pub matched: Vec<Matched>,
    /// The inputs of each clock; several inputs may share a clock.
    pub clocks: Vec<Vec<String>>,
    /// The fitted timeline, with the messages used and the quality of the fit.
    pub timeline: Timeline,
    /// The parts of the traces that can't be read.
    pub losses: Losses,
    /// Half the widths of the intervals of each clock's events: of all times from its inputs' first to their last; `None` if
    /// some have no lower or no upper bound.
    pub half_widths: Vec<Option<HalfWidths>>,
    /// The steps of each clock.
    pub steps: Vec<Vec<SyncStep>>,
    /// The name of each input, and its knots from its first to its last own time, in order of inputs.
    pub curves: Vec<(String, Vec<TimeKnot>)>,
}

impl SyncOutcome {
    /// Returns a report of the messages for each pair of clocks.
    pub fn edges(&self) -> &[EdgeReport] {
        &self.timeline.report().edges
    }
}

/// The conversion of an input's times to ticks of a clock of the graph.
struct Ticking {
    clock: ClockId,
    ticks: Ticks,
}

/// What a tick is.
#[derive(Clone, Copy)]
enum Ticks {
    /// A cycle of this clock.
    Cycles(CycleClock),
    /// A nanosecond of the input's own time, counted from this time on.
    NanosSince(i128),
}

impl Ticking {
    /// Returns an event's time in ticks.
    fn of(&self, parts: Parts, time: OriginNanos) -> Option<u64> {
        match self.ticks {
            Ticks::Cycles(_) => parts.cycles,
            Ticks::NanosSince(base) => u64::try_from(time.0 - base).ok(),
        }
    }

    /// Converts ticks to the input's own time, in nanoseconds.
    fn own(&self, ticks: u64) -> i128 {
        match self.ticks {
            Ticks::Cycles(clock) => clock.nanos(ticks).0,
            Ticks::NanosSince(base) => base + i128::from(ticks),
        }
    }

    /// Converts a range of own times to a range of ticks.
    fn span(&self, first: i128, last: i128) -> (u64, u64) {
        match self.ticks {
            Ticks::Cycles(clock) => {
                let range = clock.cycles(Some(OriginNanos(first)), Some(OriginNanos(last + 1)));
                (range.first, range.last.max(range.first))
            }
            Ticks::NanosSince(base) => {
                let ticks = |own: i128| u64::try_from(own - base).unwrap_or(0);
                (ticks(first), ticks(last))
            }
        }
    }
}

impl Experiment {
    /// Places the event traces on one timeline. Must be called before [`Experiment::place`], while their times are
    /// their own. `progress` receives the number of bytes read so far and returns whether to continue. Returns `None`
    /// if `progress` stops it.
    ///
    /// # Errors
    /// Returns a refusal if fewer than two inputs have events with times, or if the reference names no input.
    pub fn synchronise(
        &self,
        request: &SyncRequest,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<SyncOutcome>, Refusal> {
        let labels = self.inputs().iter().map(Input::to_string).collect::<Vec<_>>();
        self.with(|traces| synchronise(traces, &labels, request, progress))
    }
}

/// An input with events that have times.
struct Member<'t, 'a> {
    unit: Unit,
    traces: Vec<&'t Trace<'a>>,
    /// First and last own time of its packets, in nanoseconds.
    span: (i128, i128),
}

fn synchronise(
    traces: &Traces<'_>,
    labels: &[String],
    request: &SyncRequest,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<SyncOutcome>, Refusal> {
    let mut members = members(traces, labels);
    if let Some(name) = &request.reference {
        let index = members.iter().position(|member| member.unit.is_named(name));
        let index =
            index.ok_or_else(|| Refusal(format!("--reference {name}: no input of this name has events")))?;
        members[..=index].rotate_right(1);
    }
    if members.len() < 2 {
        return Err(Refusal(
            "to synchronise takes two inputs with software events that have times: name the traces of both sides"
                .to_owned(),
        ));
    }
    let Clocks { mut graph, tickings, inputs: clocks } = clocks(&members, request);
    let mut losses = Losses::default();
    traces.event_losses().into_iter().for_each(|loss| losses.add(loss));
    let before = (graph.clone(), losses.clone());
    let peers = by_number(&members);
    let found = matched(&members, &tickings, (request, &peers), (&mut graph, &mut losses), progress);
    let Some(mut matched_ends) = found else { return Ok(None) };
    if matched_ends.iter().any(is_missed_exchange) {
        // The numbers at the end of the inputs' names are not the master's slave numbers: match without them.
        (graph, losses) = before;
        let peers = vec![Peer::default(); members.len()];
        let found = matched(&members, &tickings, (request, &peers), (&mut graph, &mut losses), progress);
        let Some(again) = found else { return Ok(None) };
        matched_ends = again;
    }
    let timeline = graph.solve(request.method);
    let zero = tickings[0].own(0);
    let curves: Vec<Vec<TimeKnot>> = members
        .iter()
        .zip(&tickings)
        .map(|(member, ticking)| curve(&timeline, ticking, member.span, zero))
        .collect();
    let (half_widths, steps) = (0..clocks.len() as u32)
        .map(|clock| clock_quality(ClockId(clock), &members, &tickings, &timeline, zero))
        .unzip();
    let mut entries = Vec::new();
    for (index, curve) in curves.iter().enumerate() {
        let is_reference = index == 0;
        entries.push(entry((&members[index], &tickings[index]), is_reference, curve, &timeline));
    }
    let named = members.iter().map(|member| member.unit.label.clone()).zip(curves).collect();
    Ok(Some(SyncOutcome {
        synchronised: Synchronised::new(request.method, entries),
        matched: matched_ends,
        clocks,
        timeline,
        losses,
        half_widths,
        steps,
        curves: named,
    }))
}

fn members<'t, 'a>(traces: &'t Traces<'a>, labels: &[String]) -> Vec<Member<'t, 'a>> {
    let member = |unit: Unit| {
        let own = traces.event_inputs.iter().zip(&traces.events);
        let own: Vec<&Trace<'_>> =
            own.filter(|(input, _)| **input == unit.input).map(|(_, trace)| trace).collect();
        let spans = own.iter().filter_map(|trace| trace.span());
        let (first, last) = spans.reduce(cover)?;
        Some(Member { unit, traces: own, span: (first.0, last.0) })
    };
    super::units(traces, labels).into_iter().filter_map(member).collect()
}

/// The clocks of the graph.
struct Clocks {
    graph: ClockGraph,
    /// How each member's times become ticks.
    tickings: Vec<Ticking>,
    /// The inputs of each clock.
    inputs: Vec<Vec<String>>,
}

/// Builds the clocks of the graph. Inputs whose clocks are known to be the same share a clock.
fn clocks(members: &[Member<'_, '_>], request: &SyncRequest) -> Clocks {
    let mut groups: Vec<Vec<(usize, i128)>> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let related = groups.iter_mut().find_map(|group| {
            let first = &members[group[0].0].unit.identity;
            let Related { shift, .. } = relate(first, &member.unit.identity).ok()?;
            Some((group, shift))
        });
        match related {
            Some((group, shift)) => group.push((index, shift)),
            None => groups.push(vec![(index, 0)]),
        }
    }
    let mut graph = ClockGraph::new();
    let mut tickings: BTreeMap<usize, Ticking> = BTreeMap::new();
    for group in &groups {
        let alone = one_clock(&members[group[0].0]).filter(|_| group.len() == 1);
        let frequency = alone.map_or(SECOND, |clock| clock.frequency());
        let name = members[group[0].0].unit.label.clone();
        let clock = Clock::new(name, frequency).with_bounds(request.drift_ppb, request.wander_ppb_per_s);
        let clock = if request.wander_is_known { clock.with_known_wander() } else { clock };
        let clock = graph.add(clock);
        let base = group.iter().map(|&(index, shift)| members[index].span.0 + shift).min().unwrap_or(0);
        // A margin of one second, because an event may precede the begin time of its packet.
        let base = base - i128::from(SECOND);
        for &(index, shift) in group {
            let ticks = alone.map_or(Ticks::NanosSince(base - shift), Ticks::Cycles);
            tickings.insert(index, Ticking { clock, ticks });
        }
    }
    let names = |group: &Vec<(usize, i128)>| {
        group.iter().map(|&(index, _)| members[index].unit.label.clone()).collect()
    };
    let inputs = groups.iter().map(names).collect();
    Clocks { graph, tickings: tickings.into_values().collect(), inputs }
}

/// Returns the clock of an input if all its streams have the same one.
fn one_clock(member: &Member<'_, '_>) -> Option<CycleClock> {
    let used = member.traces.iter().flat_map(|trace| {
        let clock = |class: &hodo_formats::events::schema::StreamClass| {
            Some(trace.class.clocks.get(class.clock?)?.cycles)
        };
        trace.class.streams.values().filter_map(clock).collect::<Vec<_>>()
    });
    let mut used = used.collect::<Vec<CycleClock>>().into_iter();
    let first = used.next()?;
    used.all(|other| other == first).then_some(first)
}

/// Finds the messages and adds them to the graph; returns `None` if `progress` stops the search.
fn matched(
    members: &[Member<'_, '_>],
    tickings: &[Ticking],
    (request, peers): (&SyncRequest, &[Peer]),
    (graph, losses): (&mut ClockGraph, &mut Losses),
    progress: &mut dyn FnMut(u64) -> bool,
) -> Option<Vec<Matched>> {
    let usual = MatchRule::DEFAULT;
    let rules = if request.rules.is_empty() { &usual[..] } else { &request.rules };
    let mut matchers: Vec<(Matcher<Key>, u64)> = rules.iter().map(|_| (Matcher::new(MOST_KEYS), 0)).collect();
    let mut bytes = 0;
    for ((member, ticking), &peer) in members.iter().zip(tickings).zip(peers) {
        for trace in &member.traces {
            let mut reading =
                Reading { rules, peer, ticking, matchers: &mut matchers, graph, losses, bytes, progress };
            bytes = reading.trace(trace)?;
        }
    }
    let matched = |(rule, (matcher, ends)): (&MatchRule, (Matcher<Key>, u64))| Matched {
        rule: rule.clone(),
        ends,
        report: matcher.finish(),
    };
    Some(rules.iter().zip(matchers).map(matched).collect())
}

/// Returns whether the traces contain exchanges between boards but no pair matched.
fn is_missed_exchange(matched: &Matched) -> bool {
    matched.rule == MatchRule::Exchanges && matched.ends > 0 && matched.report.pairs == 0
}

/// Distinguishes the slaves of one master by the numbers at the end of their inputs' names.
fn by_number(members: &[Member<'_, '_>]) -> Vec<Peer> {
    let is_slave = |member: &Member<'_, '_>| {
        let classes = member.traces.iter().flat_map(|trace| {
            let names_slaves = |stream| {
                let events = trace.stream_class(stream).events.iter();
                let exchanges = events.filter(|class| class.name == "sync_recv" || class.name == "sync_send");
                exchanges.map(|class| names_slave(trace, stream, class)).collect::<Vec<_>>()
            };
            trace.streams.iter().flat_map(names_slaves).collect::<Vec<_>>()
        });
        let named: Vec<bool> = classes.collect();
        !named.is_empty() && !named.contains(&true)
    };
    let number = |label: &str| {
        let name = label.trim_end_matches('/');
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        name[name.len() - digits..].parse().ok()
    };
    let numbers: Vec<Option<u64>> = members.iter().map(|member| number(&member.unit.label)).collect();
    let mut slaves = members.iter().zip(&numbers).filter(|(member, _)| is_slave(member));
    let is_in_key = slaves.any(|(_, number)| number.is_some());
    numbers.into_iter().map(|number| Peer { is_in_key, number }).collect()
}

/// Reads the ends of messages of one input.
struct Reading<'r> {
    rules: &'r [MatchRule],
    peer: Peer,
    ticking: &'r Ticking,
    matchers: &'r mut [(Matcher<Key>, u64)],
    graph: &'r mut ClockGraph,
    losses: &'r mut Losses,
    bytes: u64,
    progress: &'r mut dyn FnMut(u64) -> bool,
}

impl Reading<'_> {
    /// Reads a trace; returns the total number of bytes read so far, or `None` if `progress` stops it.
    fn trace(&mut self, trace: &Trace<'_>) -> Option<u64> {
        for stream in &trace.streams {
            let classes = &trace.stream_class(stream).events;
            let ends: Vec<Vec<Option<End>>> = classes
                .iter()
                .map(|class| {
                    self.rules.iter().map(|rule| rule.end(trace, stream, class, self.peer)).collect()
                })
                .collect();
            let wanted: Vec<bool> = ends.iter().map(|ends| ends.iter().any(Option::is_some)).collect();
            for packet in 0..stream.packets.len() {
                if wanted.contains(&true) {
                    self.packet(Cursor::new(trace, stream, packet..packet + 1), &ends, &wanted);
                }
                self.bytes += stream.packets[packet].size();
                if !(self.progress)(self.bytes) {
                    return None;
                }
            }
        }
        Some(self.bytes)
    }

    /// Reads the message ends in a packet. `ends` is indexed by event class and rule.
    fn packet(&mut self, mut cursor: Cursor<'_, '_>, ends: &[Vec<Option<End>>], wanted: &[bool]) {
        while let Some((time, item)) = cursor.next_where(|_, class, _| wanted[class as usize]) {
            let (Some(time), Item::Event(parts)) = (time, item) else { continue };
            let event = cursor.event(parts);
            let Some(ticks) = self.ticking.of(parts, time) else { continue };
            for (rule, end) in ends[parts.class as usize].iter().enumerate() {
                let key = end.as_ref().and_then(|end| Some((end.direction, end.key(&event)?)));
                let Some((direction, key)) = key else { continue };
                self.push(rule, key, MessageEnd { clock: self.ticking.clock, ticks, direction });
            }
        }
        cursor.loss.into_iter().for_each(|loss| self.losses.add(loss));
    }

    fn push(&mut self, rule: usize, key: Key, end: MessageEnd) {
        let (matcher, ends) = &mut self.matchers[rule];
        *ends += 1;
        if let Some(pair) = matcher.push(key, end) {
            // The matcher drops messages within one clock, and the graph has all clocks.
            let pushed = self.graph.push(pair);
            debug_assert!(pushed.is_ok(), "{pushed:?}");
        }
    }
}

/// Returns the knots of an input between its first and last time; `zero` is the reference's time at its tick 0.
fn curve(timeline: &Timeline, ticking: &Ticking, span: (i128, i128), zero: i128) -> Vec<TimeKnot> {
    let (first, last) = ticking.span(span.0, span.1);
    let knot = |(ticks, stamp): (u64, Stamp)| TimeKnot {
        own: ticking.own(ticks),
        estimate: zero + i128::from(stamp.estimate.0),
        // The conversions to ticks and to nanoseconds each round once, so widen the bounds by 1 ns.
        lower: (stamp.lower.0 != i64::MIN).then(|| zero + i128::from(stamp.lower.0) - 1),
        upper: (stamp.upper.0 != i64::MAX).then(|| zero + i128::from(stamp.upper.0) + 1),
    };
    let mut knots: Vec<TimeKnot> = timeline.knots(ticking.clock, first, last).into_iter().map(knot).collect();
    knots.dedup_by_key(|knot| knot.own);
    knots
}

/// Returns how wide a clock's intervals are between the first and the last time of its inputs, and its steps. `zero` is the
/// reference's time at its tick 0.
fn clock_quality(
    clock: ClockId,
    members: &[Member<'_, '_>],
    tickings: &[Ticking],
    timeline: &Timeline,
    zero: i128,
) -> (Option<HalfWidths>, Vec<SyncStep>) {
    let own = members.iter().zip(tickings).filter(|(_, ticking)| ticking.clock == clock);
    let spans = own.map(|(member, ticking)| ticking.span(member.span.0, member.span.1));
    let span = spans.reduce(cover);
    let time = |ticks: u64| zero + i128::from(timeline.convert(clock, ticks).estimate.0);
    let step = |step: &hodo_sync::ClockStep| SyncStep {
        after: time(step.last_ticks),
        before: time(step.first_ticks),
        jump: (step.jump_low_ns, step.jump_high_ns),
    };
    let steps = timeline.report().clocks[clock.0 as usize].steps.iter().map(step).collect();
    (span.and_then(|(first, last)| timeline.half_widths(clock, first, last)), steps)
}

/// Returns the entry of an input for `experiment.toml`.
fn entry(
    (member, ticking): (&Member<'_, '_>, &Ticking),
    is_reference: bool,
    curve: &[TimeKnot],
    timeline: &Timeline,
) -> SynchronisedTrace {
    let report = &timeline.report().clocks[ticking.clock.0 as usize];
    let (first, last) = ticking.span(member.span.0, member.span.1);
    let half_widths = timeline.half_widths(ticking.clock, first, last);
    let edges = timeline.report().edges.iter();
    let own = edges.filter(|edge| edge.a == ticking.clock || edge.b == ticking.clock);
    SynchronisedTrace {
        input: member.unit.label.clone().into(),
        reference: is_reference,
        begin_ns: saturated(member.span.0),
        end_ns: saturated(member.span.1),
        messages: own.map(|edge| edge.pairs - edge.dropped).sum(),
        drift_ppb: report.drift_ppb,
        wander_ppb: report.wander_ppb,
        half_width_median_ns: half_widths.map(|widths| widths.median_ns),
        knots: match report.hops {
            None => Vec::new(),
            Some(_) if is_reference => Vec::new(),
            Some(_) => synchronised::packed(curve.iter().copied()),
        },
    }
}

/// Clamps to 64 bits.
fn saturated(nanos: i128) -> i64 {
    nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
