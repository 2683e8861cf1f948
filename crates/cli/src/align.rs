//! Offsets with which several recordings of control flow begin together, or do the same at the same instant.

use std::collections::BTreeSet;

use hodo_analyses::calls::Moment;
use hodo_clock::Nanos;
use hodo_engine::{CHUNKS_IN_ORDER, CallSink, Needs, Reading, Trace, TraceOffset, Traces, calls};
use hodo_model::FunctionId;

use crate::{
    arguments::Input,
    failure::Failure,
    input::{self, unplaced},
    live, timeline,
};

/// Returns offsets for all recordings but the first. With a function, its first calls are at the same instant. Otherwise
/// recordings that follow each other in time, those of several runs, begin together; none if the user gave offsets, or if
/// an input has events, whose times matter.
pub fn offsets(input: &Input, function: Option<&str>) -> Result<Vec<TraceOffset>, Failure> {
    let (_, synchronised) = timeline::files(input)?;
    let has_timeline = synchronised.is_some() || !input.offset.is_empty();
    let is_possible = input.files.len() > 1 && !has_timeline && live::address(input)?.is_none();
    if !is_possible {
        return match function {
            Some(_) => Err(Failure::usage(
                "--align needs several recordings of control flow, without --offset and `hodo sync`",
            )),
            None => Ok(Vec::new()),
        };
    }
    let experiment = unplaced(&Input { quiet: true, ..input.clone() }, Needs::ALL)?;
    experiment.with(|traces| match function {
        Some(name) => {
            let threads = input::threads(input);
            let begins = traces.flows.iter().map(|flow| first_call(flow, name, threads));
            let begins = begins.collect::<Result<Vec<Nanos>, Failure>>()?;
            to_first(traces, &begins)
                .ok_or_else(|| Failure::usage("--align: two recordings have the same name"))
        }
        None => {
            let begins = begins_of_runs(input, traces);
            Ok(begins.and_then(|begins| to_first(traces, &begins)).unwrap_or_default())
        }
    })
}

/// Returns when recordings begin, if each begins after the one before has ended.
fn begins_of_runs(input: &Input, traces: &Traces<'_>) -> Option<Vec<Nanos>> {
    if !traces.events.is_empty() || traces.flows.len() != input.files.len() {
        return None;
    }
    let times: Vec<(Nanos, Nanos)> = traces.flows.iter().map(|flow| flow.times()).collect::<Option<_>>()?;
    let mut in_order = times.clone();
    in_order.sort_unstable();
    let overlap = in_order.windows(2).any(|pair| pair[1].0 <= pair[0].1);
    (!overlap).then(|| times.into_iter().map(|(begin, _)| begin).collect())
}

/// Returns the offsets that move each of these instants to that of the first recording; `None` if two recordings
/// have the same name, as an offset must name one input.
fn to_first(traces: &Traces<'_>, instants: &[Nanos]) -> Option<Vec<TraceOffset>> {
    let mut offsets = Vec::new();
    for (flow, instant) in traces.flows.iter().zip(instants).skip(1) {
        let last = |name: &str| name.rsplit('/').next().map(str::to_owned);
        let is_meant = |other: &&Trace<'_>| last(&other.name) == last(&flow.name);
        if traces.flows.iter().filter(is_meant).count() > 1 && !flow.name.contains('/') {
            return None;
        }
        let nanos = i128::from(instants[0].0) - i128::from(instant.0);
        offsets.push(TraceOffset { trace: flow.name.clone(), nanos });
    }
    Some(offsets)
}

/// Returns when a function begins for the first time.
fn first_call(flow: &Trace<'_>, name: &str, threads: usize) -> Result<Nanos, Failure> {
    let functions: BTreeSet<FunctionId> = flow.modules.functions_named(name).into_iter().collect();
    let mut first = FirstCall { functions, time: None };
    calls(flow, Reading::new(threads, CHUNKS_IN_ORDER), &mut first, |_| true);
    first
        .time
        .ok_or_else(|| Failure::usage(format!("--align {name}: {} has no call of it with a time", flow.name)))
}

/// Keeps the earliest begin of some functions.
struct FirstCall {
    functions: BTreeSet<FunctionId>,
    time: Option<Nanos>,
}

impl CallSink for FirstCall {
    fn begins(&self) -> bool {
        true
    }

    fn thread(&mut self, _: u32) {}

    fn moment(&mut self, moment: Moment) {
        if let Moment::Begin { function, time: Some(time), .. } = moment
            && self.functions.contains(&function)
        {
            self.time = Some(self.time.map_or(time, |first| first.min(time)));
        }
    }
}
