//! The timeline of an experiment: which traces share a clock, and how the times of the others are converted to it.
//!
//! ```text
//! formats ──ClockIdentity──► relate ──┐
//! --offset TRACE=TIME ────────────────┼──► Placement of each input ──► its times, on one timeline
//! experiment.toml (`hodo sync`) ──────┘            └──► TraceClock: what is known, or missing
//! ```

mod matching;
mod relate;
mod synchronise;
mod synchronised;

use std::collections::{BTreeMap, btree_map::Entry};

use hodo_clock::{OriginNanos, PerfClock, TimeMap, Tsc};
use hodo_formats::{ClockIdentity, ClockKind, events};
use serde::Serialize;

pub use self::matching::MatchRule;
use self::relate::{Related, relate};
pub use self::synchronise::{Matched, SyncOutcome, SyncRequest, SyncStep};
pub use self::synchronised::micros;
pub use self::synchronised::{Synchronised, SynchronisedError, SynchronisedKnot, SynchronisedTrace};
use super::Experiment;
use crate::refusal::Refusal;
use crate::{
    flow::trace::Trace,
    input::Input,
    traces::{Traces, cover},
};

/// An offset that the user gives for the times of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOffset {
    /// The input: its path, or the last component of it.
    pub trace: String,
    /// The offset to add to its times, in nanoseconds.
    pub nanos: i128,
}

/// The user's settings of the timeline.
#[derive(Clone, Debug, Default)]
pub struct TimelineRequest {
    /// Offsets of `--offset`.
    pub offsets: Vec<TraceOffset>,
    /// The result of `hodo sync`.
    pub synchronised: Option<Synchronised>,
}

/// The placement of an input on the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Its clock is the timeline's.
    Reference,
    /// Its clock is known to be that of another trace.
    Related,
    /// The user gave its offset.
    ByHand,
    /// `hodo sync` derived it from events.
    Synchronised,
    /// It shares the input with other traces, but possibly not the clock: its times are used unchanged.
    AsItIs,
    /// Nothing is known: its times are used unchanged.
    Unrelated,
}

/// The clock of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceClock {
    /// The input.
    pub input: String,
    /// The trace in it.
    pub trace: String,
    /// The kind of clock, for display.
    pub clock: String,
    /// Its host, if the format records it.
    pub host: Option<String>,
    /// How it is placed on the timeline.
    pub relation: Relation,
    /// The placement in words: its source, or the missing information.
    pub how: String,
    /// The offset to add to its own times, in nanoseconds; `None` if they follow a curve.
    pub offset_ns: Option<i64>,
    /// Half of the longest uncertainty interval, in nanoseconds; 0 if the clock is the timeline's own.
    pub half_width_ns: Option<u64>,
}

/// The traces of an input, and their placement on the timeline.
struct Unit {
    input: usize,
    label: String,
    identity: ClockIdentity,
    has_events: bool,
    placement: Option<UnitPlacement>,
    /// Why it is not placed, in words.
    missing: String,
}

/// How the times of an input are placed on the timeline.
struct UnitPlacement {
    relation: Relation,
    map: TimeMap,
    /// The source of the placement, in words.
    how: String,
}

impl Unit {
    /// Returns whether a name refers to the input: its path, or the last component of its path.
    fn is_named(&self, name: &str) -> bool {
        is_named(&self.label, name)
    }
}

/// Returns whether a name refers to an input with this label: its path, or the last component of its path.
fn is_named(label: &str, name: &str) -> bool {
    label == name || label.trim_end_matches('/').rsplit('/').next() == Some(name)
}

impl Experiment {
    /// Places all traces on one timeline. Called once, before any request.
    ///
    /// # Errors
    /// Returns a refusal if an offset names no input or several.
    pub fn place(&mut self, request: &TimelineRequest) -> Result<(), Refusal> {
        let labels = self.inputs().iter().map(Input::to_string).collect::<Vec<_>>();
        let clocks = self.with_mut(|traces| place(traces, &labels, request))?;
        self.clocks = clocks;
        Ok(())
    }

    /// Returns a sentence for each input whose clock is not related to another clock, with the missing information.
    pub fn unrelated(&self) -> Vec<String> {
        let unrelated = self.clocks.iter().filter(|clock| clock.relation == Relation::Unrelated);
        let mut sentences: Vec<String> =
            unrelated.map(|clock| format!("{}: {}", clock.input, clock.how)).collect();
        sentences.dedup();
        sentences
    }
}

fn place(
    traces: &mut Traces<'_>,
    labels: &[String],
    request: &TimelineRequest,
) -> Result<Vec<TraceClock>, Refusal> {
    let mut units = units(traces, labels);
    place_by_hand(&mut units, labels, &request.offsets)?;
    if let Some(synchronised) = &request.synchronised {
        for unit in &mut units {
            let found = synchronised.trace(&unit.label);
            if let (Some(trace), None) = (found, &unit.placement) {
                same_trace(traces, unit, trace)?;
                let how = trace.describe(synchronised.method());
                let relation = if trace.reference { Relation::Reference } else { Relation::Synchronised };
                unit.placement = Some(UnitPlacement { relation, map: trace.time_map(), how });
            }
        }
    }
    place_related(&mut units);
    let maps: BTreeMap<usize, TimeMap> = units
        .iter()
        .filter_map(|unit| Some((unit.input, unit.placement.as_ref()?.map.clone())))
        .filter(|(_, map)| !map.is_identity())
        .collect();
    let clocks = describe(traces, &units);
    for flow in &mut traces.flows {
        if let Some(map) = maps.get(&flow.input) {
            move_flow(flow, map)?;
        }
    }
    for (trace, input) in traces.events.iter_mut().zip(&traces.event_inputs) {
        if let Some(map) = maps.get(input) {
            trace.place(map.clone());
        }
    }
    traces.wall = units.iter().find_map(|unit| {
        let map = &unit.placement.as_ref()?.map;
        Some(map.constant()? + unit.identity.shown_zero - unit.identity.unix_zero?)
    });
    let unplaced = units.iter().filter(|unit| unit.placement.is_none());
    traces.unrelated = unplaced.map(|unit| (unit.label.clone(), unit.missing.clone())).collect();
    Ok(clocks)
}

/// Checks that a trace is the one that was synchronised.
fn same_trace(traces: &Traces<'_>, unit: &Unit, known: &SynchronisedTrace) -> Result<(), Refusal> {
    let own = traces.event_inputs.iter().zip(&traces.events).filter(|(input, _)| **input == unit.input);
    let spans = own.filter_map(|(_, trace)| trace.span());
    let Some((begin, end)) = spans.reduce(cover) else {
        return Ok(());
    };
    let clamp = |time: i128| time.clamp(i64::MIN.into(), i64::MAX.into());
    match (clamp(begin.0), clamp(end.0)) == (known.begin_ns.into(), known.end_ns.into()) {
        true => Ok(()),
        false => Err(Refusal(format!(
            "{}: it lasts from {begin} s to {end} s, and another trace was synchronised; write the experiment again with `hodo sync -o`",
            unit.label
        ))),
    }
}

/// Moves the times of a control-flow trace. Its clock is a line: a curve is replaced by the line through its values at the
/// trace's begin and end. Its times are never negative.
fn move_flow(flow: &mut Trace<'_>, map: &TimeMap) -> Result<(), Refusal> {
    let Some((span, clock)) = flow.span().zip(flow.recording.config.clock) else { return Ok(()) };
    let [first, last] = [span.0, span.1].map(|tick| {
        let own = OriginNanos(clock.nanos(tick).0.into());
        Moved { tick, own, placed: map.estimate(own) }
    });
    if first.placed.0 < 0 || u64::try_from(last.placed.0).is_err() {
        let shift = first.placed.0 - first.own.0;
        return Err(Refusal(format!(
            "{}: by {} s its times would begin at {} s, before zero; move the other traces instead",
            flow.name,
            signed_seconds(shift),
            signed_seconds(first.placed.0)
        )));
    }
    let shift = first.placed.0 - first.own.0;
    match map.constant().and_then(|_| i64::try_from(shift).ok()) {
        Some(shift) => flow.recording.shift(shift),
        None => {
            let clock = line(&first, &last).unwrap_or_else(|| clock.shifted(shift as i64));
            let place = |time: u64| map.estimate(OriginNanos(time.into())).0.max(0) as u64;
            flow.recording.place(Some(clock), place);
        }
    }
    Ok(())
}

/// Returns how far the curve of a clock is from the line that control flow has instead, at most, in nanoseconds.
fn bend(flow: &Trace<'_>, map: &TimeMap) -> Option<u64> {
    /// Places at which they are compared.
    const PLACES: i128 = 256;
    if map.constant().is_some() {
        return None;
    }
    let ((first, last), clock) = (flow.span()?, flow.recording.config.clock?);
    let [first, last] = [first, last].map(|tick| i128::from(clock.nanos(tick).0));
    let [begin, end] = [first, last].map(|own| map.estimate(OriginNanos(own)).0);
    let distances = (0..=PLACES).map(|place| {
        let own = first + (last - first) * place / PLACES;
        let straight = begin + (end - begin) * place / PLACES;
        map.estimate(OriginNanos(own)).0.abs_diff(straight)
    });
    distances.max().and_then(|distance| u64::try_from(distance).ok())
}

/// A tick of a trace, with its own time and its time on the timeline.
struct Moved {
    tick: Tsc,
    own: OriginNanos,
    placed: OriginNanos,
}

/// Returns the clock that gives two ticks their times on the timeline; `None` if it is no line of a clock.
fn line(first: &Moved, last: &Moved) -> Option<PerfClock> {
    /// Bits of the multiplier: a line over an hour is exact to some microseconds.
    const BITS: u32 = 32;
    let ticks = u128::from(last.tick.0.checked_sub(first.tick.0).filter(|&ticks| ticks > 0)?);
    let nanos = u128::try_from(last.placed.0 - first.placed.0).ok().filter(|&nanos| nanos > 0)?;
    // The largest shift whose multiplier fits, and whose product does not overflow.
    let multiplier = |shift: u32| (nanos << shift).div_ceil(ticks);
    let most = nanos.leading_zeros().min(63);
    let shift = (0..=most).rev().find(|&shift| multiplier(shift) >> BITS == 0)?;
    let multiplier = u64::try_from(multiplier(shift)).ok()?;
    let passed = (u128::from(first.tick.0) * u128::from(multiplier)) >> shift;
    let zero = (first.placed.0 as u64).wrapping_sub(passed as u64);
    PerfClock::new(shift.into(), multiplier, zero)
}

/// Returns every input that has traces, in order. Its clock is that of its control flow, else that of its first event
/// trace.
fn units(traces: &Traces<'_>, labels: &[String]) -> Vec<Unit> {
    let flows = traces.flows.iter().map(|flow| (flow.input, ClockIdentity::of_recording(&flow.recording)));
    let events = traces.event_inputs.iter().zip(&traces.events);
    let events = events.map(|(&input, trace)| (input, ClockIdentity::of_trace(trace)));
    let mut all: BTreeMap<usize, ClockIdentity> = BTreeMap::new();
    for (input, identity) in flows.chain(events) {
        match all.entry(input) {
            Entry::Vacant(entry) => _ = entry.insert(identity),
            // A hardware trace beside events has their clock.
            Entry::Occupied(mut entry) if entry.get().kind == ClockKind::Virtual => {
                _ = entry.insert(identity)
            }
            Entry::Occupied(_) => {}
        }
    }
    let unit = |(input, identity): (usize, ClockIdentity)| Unit {
        input,
        label: labels.get(input).cloned().unwrap_or_default(),
        identity,
        has_events: traces.event_inputs.contains(&input),
        placement: None,
        missing: String::new(),
    };
    all.into_iter().map(unit).collect()
}

/// Places inputs by `--offset`. A name may refer to an input that this command does not read, and then places nothing.
fn place_by_hand(units: &mut [Unit], labels: &[String], offsets: &[TraceOffset]) -> Result<(), Refusal> {
    for TraceOffset { trace, nanos } in offsets {
        let exact = labels.iter().position(|label| label == trace);
        let named: Vec<usize> = match exact {
            Some(input) => vec![input],
            None => (0..labels.len()).filter(|&input| is_named(&labels[input], trace)).collect(),
        };
        let &[input] = named.as_slice() else {
            let count = if named.is_empty() { "no input" } else { "several inputs" };
            return Err(Refusal(format!(
                "--offset {trace}: {count} of this name; the inputs are {}",
                labels.join(", ")
            )));
        };
        let how = format!("{} s by --offset", signed_seconds(*nanos));
        if let Some(unit) = units.iter_mut().find(|unit| unit.input == input) {
            let map = TimeMap::shift(*nanos);
            unit.placement = Some(UnitPlacement { relation: Relation::ByHand, map, how });
        }
    }
    Ok(())
}

/// Formats a duration with its sign, as `+0.000000500`.
pub(crate) fn signed_seconds(nanos: i128) -> String {
    let sign = if nanos < 0 { '-' } else { '+' };
    let size = nanos.unsigned_abs();
    format!("{sign}{}.{:09}", size / 1_000_000_000, size % 1_000_000_000)
}

/// Places every input whose clock is related to a placed one. If no placement anchors the timeline, a reference is
/// selected first.
fn place_related(units: &mut [Unit]) {
    let is_anchored = units.iter().any(is_anchor);
    if let Some(index) = reference(units).filter(|_| !is_anchored) {
        units[index].placement = Some(UnitPlacement {
            relation: Relation::Reference,
            map: TimeMap::default(),
            how: "the clock of the timeline".to_owned(),
        });
    }
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for index in 0..units.len() {
            if units[index].placement.is_some() {
                continue;
            }
            let mut missing = Vec::new();
            let placed = units.iter().filter(|unit| unit.placement.is_some());
            let found = placed.into_iter().find_map(|placed| {
                match relate(&placed.identity, &units[index].identity) {
                    Ok(related) => Some((placed, related)),
                    Err(why) => {
                        missing.push(format!("not related to {}: {why}", placed.label));
                        None
                    }
                }
            });
            let placement = found.map(|(placed, related)| {
                let map = placed.placement.as_ref().map(|placement| placement.map.clone());
                // First shift to the other input's own times, then apply the placement of that input.
                let map = shift_then(related.shift, &map.unwrap_or_default());
                let how = format!("{} ({})", related.how, placed.label);
                UnitPlacement { relation: Relation::Related, map, how }
            });
            changed |= placement.is_some();
            units[index].missing = missing.into_iter().next().unwrap_or_default();
            units[index].placement = placement;
        }
    }
}

/// Returns the input whose clock becomes the timeline's: the first whose times count from 1970, else the first with
/// events, else the first.
fn reference(units: &[Unit]) -> Option<usize> {
    let first =
        |wanted: fn(&Unit) -> bool| units.iter().position(|unit| unit.placement.is_none() && wanted(unit));
    first(|unit| unit.identity.unix_zero == Some(unit.identity.shown_zero))
        .or_else(|| first(|unit| unit.has_events))
        .or_else(|| first(|_| true))
}

/// Returns whether the placement of an input defines the timeline.
fn is_anchor(unit: &Unit) -> bool {
    let defines = |placement: &UnitPlacement| {
        matches!(placement.relation, Relation::Reference | Relation::Synchronised)
    };
    unit.placement.as_ref().is_some_and(defines)
}

/// Composes a constant shift with a map that follows it.
fn shift_then(shift: i128, map: &TimeMap) -> TimeMap {
    match map.constant() {
        Some(constant) => TimeMap::shift(shift + constant),
        None => map.delayed_by(shift),
    }
}

/// Describes the clock of every trace.
fn describe(traces: &Traces<'_>, units: &[Unit]) -> Vec<TraceClock> {
    let unit = |input: usize| units.iter().find(|unit| unit.input == input);
    let flows = traces.flows.iter().filter_map(|flow| {
        let identity = ClockIdentity::of_recording(&flow.recording);
        let unit = unit(flow.input)?;
        // Beside events, its clock is theirs.
        let identity = if identity.kind == ClockKind::Virtual { &unit.identity } else { &identity };
        let mut clock = trace_clock(unit, "control flow", identity, None);
        let map = unit.placement.as_ref().map(|placement| &placement.map);
        let bend = map.and_then(|map| bend(flow, map)).unwrap_or(0);
        clock.half_width_ns = clock.half_width_ns.map(|half| half.saturating_add(bend));
        Some(clock)
    });
    let events = traces.event_inputs.iter().zip(&traces.events).filter_map(|(&input, trace)| {
        let unit = unit(input)?;
        let identity = ClockIdentity::of_trace(trace);
        // Traces of one file or folder are taken to be on one timeline.
        let apart =
            if is_of_clock(trace, &unit.identity) { None } else { relate(&unit.identity, &identity).err() };
        Some(trace_clock(unit, &trace.name, &identity, apart))
    });
    flows.chain(events).collect()
}

/// Returns whether the times of a trace are of this clock. perf writes all events of a file by one clock.
fn is_of_clock(trace: &events::Trace<'_>, identity: &ClockIdentity) -> bool {
    ClockIdentity::of_trace(trace) == *identity || trace.format() == "perf.data"
}

fn trace_clock(unit: &Unit, trace: &str, identity: &ClockIdentity, apart: Option<String>) -> TraceClock {
    let (relation, how, map) = match (&unit.placement, apart) {
        (Some(UnitPlacement { map, .. }), Some(why)) => {
            (Relation::AsItIs, format!("its own times, not related to others of its input; {why}"), Some(map))
        }
        (Some(UnitPlacement { relation, map, how }), None) => (*relation, how.clone(), Some(map)),
        (None, _) => (Relation::Unrelated, unit.missing.clone(), None),
    };
    let constant = map.and_then(TimeMap::constant);
    TraceClock {
        input: unit.label.clone(),
        trace: trace.to_owned(),
        clock: identity.kind.to_string(),
        host: identity.host.clone(),
        relation,
        how,
        offset_ns: constant.and_then(|nanos| i64::try_from(nanos).ok()),
        half_width_ns: map.and_then(TimeMap::half_width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that is 37 ppm fast, over an hour: the line is right at both ends and in the middle.
    #[test]
    fn a_line_gives_ticks_their_times() {
        const HOUR: u64 = 3_600_000_000_000;
        let moved = |tick: u64| {
            let placed = i128::from(tick) - i128::from(tick / 1_000_000 * 37) + 5_000_000_000;
            Moved { tick: Tsc(tick), own: OriginNanos(tick.into()), placed: OriginNanos(placed) }
        };
        let (first, last) = (moved(12_000_000_000), moved(12_000_000_000 + HOUR));
        let clock = line(&first, &last).unwrap();
        for moved in [first, moved(12_000_000_000 + HOUR / 2), last] {
            let apart = moved.placed.0.abs_diff(clock.nanos(moved.tick).0.into());
            assert!(apart < 2_000, "{apart} ns");
        }
        assert!(line(&moved(5), &moved(5)).is_none());
    }
}
