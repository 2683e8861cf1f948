//! Parts: separate processes fold portions of a request, and their results are merged.
//!
//! ```text
//! request ──1/N──► fold ──► Part ──bytes──┐
//!         ──2/N──► fold ──► Part ──bytes──┴──► merge, in any grouping of neighbours ──► Part of all ──► tables
//! ```
//!
//! A part records its origin: parts of other inputs, of other analyses, or of another version are refused. The view,
//! threads and CPUs to show are selected when tables are made.

use std::{fmt, ops::RangeInclusive};

use hodo_formats::events;
use hodo_model::{
    AnyPartial, CacheGeometry, Every, Intervals, Loss, Parameters, Period, Root, Selection,
    kernel::Threads,
    pass::{Packed, Pass},
};
use serde::{Deserialize, Serialize};

use super::{
    Experiment, Outcome, Portion, Request,
    portion::{MOST_PORTIONS, PortionRange},
    request::{Analyses, Requested},
    run::{EventResults, FlowResults, Plan, State, check_events, finish, finish_events},
};
use crate::{
    events::{Folded, Totals},
    flow::{passes::Progress, trace::Trace},
    losses::Losses,
    refusal::Refusal,
    registry::{AnyReport, FlowPartial, PackedFlow, report},
    traces::Traces,
};

/// The magic number of a part file; its checksum and its content follow.
const MAGIC: &[u8] = b"hodo part\n";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Upper limit of the number of reports in a part.
const MOST_REPORTS: usize = 1 << 10;
/// The name of a system call is known only after its begin, so its executions are selected by an earlier pass over all chunks,
/// which a part does not have.
const NO_SYSTEM_CALL: &str = "--syscall selects while a whole recording is read, not from parts";
/// Maximum number of missing parts that an error lists.
const SHOWN: usize = 10;

/// The properties that all parts of one request have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    /// The names of the inputs, to open them again.
    inputs: Vec<String>,
    traces: Vec<TraceOrigin>,
    reports: Vec<String>,
    view: String,
    every: Option<Every>,
    icache: Option<CacheGeometry>,
    period: Option<Period>,
    intervals: Option<Intervals>,
    /// The times, as text.
    times: String,
    /// The chunks, as text.
    chunks: String,
    names: Vec<String>,
}

/// Identifies a trace, independent of its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TraceOrigin {
    uuid: Option<[u8; 16]>,
    streams: usize,
    bytes: u64,
    /// First and last time, in ticks or nanoseconds.
    span: Option<(i128, i128)>,
}

impl TraceOrigin {
    pub(super) fn of_all(traces: &Traces<'_>) -> Vec<TraceOrigin> {
        let flows = traces.flows.iter().map(|flow| TraceOrigin::of_flow(flow));
        flows.chain(traces.events.iter().map(TraceOrigin::of_events)).collect()
    }

    fn of_events(trace: &events::Trace<'_>) -> TraceOrigin {
        let packets = trace.streams.iter().flat_map(|stream| &stream.packets);
        TraceOrigin {
            uuid: trace.class.uuid,
            streams: trace.streams.len(),
            bytes: packets.map(|packet| packet.size()).sum(),
            span: trace.span().map(|(first, last)| (first.0, last.0)),
        }
    }

    fn of_flow(trace: &Trace<'_>) -> TraceOrigin {
        TraceOrigin {
            uuid: None,
            streams: trace.streams.len(),
            bytes: trace.bytes(),
            span: trace.span().map(|(first, last)| (first.0.into(), last.0.into())),
        }
    }
}

/// The folded event traces.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct EventPart {
    totals: Totals,
    losses: Vec<Loss>,
    states: Packed,
}

/// A folded portion of a request, or several adjacent portions, merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    portions: PortionRange,
    origin: Origin,
    /// By control-flow trace and analysis.
    flows: Vec<Vec<(PackedFlow, Vec<Loss>)>>,
    /// By count analysis.
    counts: Vec<(Vec<u8>, Vec<Loss>)>,
    events: Option<EventPart>,
}

/// Why parts can't be used.
#[derive(Debug, PartialEq, Eq)]
pub enum PartError {
    /// The bytes are not an intact output of [`Part::to_bytes`].
    Damaged,
    /// The part was written by this other version.
    Version(String),
    /// The part at this index differs from the first in this property.
    Differs(usize, &'static str),
    /// This portion is present twice.
    Twice(u32),
    /// These portions are missing.
    Missing(Vec<u32>),
    /// A partial of this report can't be read.
    Partial(String),
    /// The parts do not contain what the view of this report needs.
    View(String),
    /// The input is not the one that was folded.
    Input(String),
    /// The request itself is wrong.
    Refused(Refusal),
}

impl From<Refusal> for PartError {
    fn from(refusal: Refusal) -> PartError {
        PartError::Refused(refusal)
    }
}

impl Experiment {
    /// Folds a portion of a request. `inputs` are the names of the inputs, to open them again for the tables.
    /// `progress` receives the number of bytes read so far and returns whether to continue.
    ///
    /// # Errors
    /// Returns a refusal if the request does not fit the traces.
    pub fn fold(
        &self,
        request: &Request,
        inputs: &[String],
        portion: Portion,
        progress: Progress<'_>,
    ) -> Result<Part, Refusal> {
        if !request.views.is_empty() || request.system_call().is_some() {
            let several = "a part has one view for all of its reports";
            let why = if request.views.is_empty() { NO_SYSTEM_CALL } else { several };
            return Err(Refusal(why.to_owned()));
        }
        // The merged part may be shown in other views, so an analysis must not specialise on this one.
        let parameters = Parameters { alone: false, ..request.parameters.clone() };
        let request = &Request { parameters, ..request.clone() };
        let analyses = request.analyses();
        self.fits(&analyses)?;
        self.with(|traces| {
            check_events(traces, request)?;
            let state = Plan::new(traces, request, Some(portion))?.fold(request, &analyses, progress)?;
            let origin = Origin::of(traces, request, inputs, state.events.as_ref());
            Ok(Part::pack(portion.alone(), origin, state, &analyses))
        })
    }
}

impl Origin {
    fn of(
        traces: &Traces<'_>,
        request: &Request,
        inputs: &[String],
        events: Option<&EventResults>,
    ) -> Origin {
        let parameters = &request.parameters;
        Origin {
            inputs: inputs.to_vec(),
            traces: TraceOrigin::of_all(traces),
            reports: request.reports.iter().map(|report| report.description().name.to_owned()).collect(),
            view: parameters.selection.view.clone(),
            every: parameters.every,
            icache: parameters.icache,
            period: parameters.period.clone(),
            intervals: parameters.intervals.clone(),
            times: format!("{:?}", request.times),
            chunks: format!("{:?}", request.chunks),
            names: events.map_or_else(Vec::new, |events| events.names.clone()),
        }
    }

    /// Returns the first property that differs from another part's origin.
    fn differs(&self, other: &Origin) -> Option<&'static str> {
        let differences = [
            (self.traces != other.traces, "the trace"),
            (self.reports != other.reports, "KIND"),
            (self.view != other.view, "--by"),
            (self.every != other.every, "--every"),
            (self.icache != other.icache, "--icache"),
            (self.period != other.period, "the definition of periods"),
            (self.intervals != other.intervals, "the definition of intervals"),
            (self.times != other.times, "--time or --call"),
            (self.chunks != other.chunks, "--chunk-size"),
            (self.names != other.names, "the names of events"),
        ];
        differences.into_iter().find_map(|(differs, what)| differs.then_some(what))
    }

    /// Returns the parameters of the request.
    fn parameters(&self) -> Parameters {
        let selection = Selection { view: self.view.clone(), ..Selection::default() };
        let (every, period, intervals) = (self.every, self.period.clone(), self.intervals.clone());
        Parameters { selection, every, period, intervals, icache: self.icache, alone: false }
    }

    /// Returns the analyses that were folded.
    fn analyses(&self) -> Result<Analyses, PartError> {
        self.made_for(&Selection { view: self.view.clone(), ..Selection::default() })
    }

    /// Returns the analyses that make the tables of a selection.
    fn made_for(&self, selection: &Selection) -> Result<Analyses, PartError> {
        let known = |name: &String| report(name).ok_or_else(|| PartError::Partial(name.clone()));
        let reports = self.reports.iter().map(known).collect::<Result<Vec<&'static AnyReport>, _>>()?;
        let parameters = Parameters { selection: selection.clone(), ..self.parameters() };
        Ok(Request::of(reports, parameters).analyses())
    }
}

impl Part {
    fn pack(portions: PortionRange, origin: Origin, state: State, analyses: &Analyses) -> Part {
        let of_flow = |partials: FlowResults| {
            let pack = |((partial, losses), requested): ((FlowPartial, Losses), &Requested)| {
                (partial.pack(requested.analysis()), losses.into_list())
            };
            partials.into_iter().zip(&analyses.flow).map(pack).collect()
        };
        let of_counts = |((partial, losses), requested): ((AnyPartial, Losses), &Requested)| {
            (requested.analysis().pack(&partial), losses.into_list())
        };
        let of_events = |state: EventResults| EventPart {
            totals: state.folded.totals,
            losses: state.losses.into_list(),
            states: Pass::new(&analyses.of_events()).pack(&state.folded.states),
        };
        let flows = state.flows.into_iter().map(of_flow).collect();
        let counts = state.counts.into_iter().zip(&analyses.counts).map(of_counts).collect();
        Part { portions, origin, flows, counts, events: state.events.map(of_events) }
    }

    fn unpack(self, analyses: &Analyses) -> Result<State, PartError> {
        let wrong = |requested: &Requested| PartError::Partial(requested.name.to_owned());
        // `origin.traces` lists the control-flow traces first, then the event traces.
        let events = self.origin.traces.len().checked_sub(self.flows.len()).ok_or(PartError::Damaged)?;
        let expected = |list: &[Requested]| if events > 0 { list.len() } else { 0 };
        let is_whole = self.flows.iter().all(|flow| flow.len() == analyses.flow.len())
            && self.counts.len() == expected(&analyses.counts)
            && self.events.is_some() == (expected(&analyses.events) > 0);
        if !is_whole {
            return Err(PartError::Damaged);
        }
        let of_flow = |packed: Vec<(PackedFlow, Vec<Loss>)>| -> Result<FlowResults, PartError> {
            let unpack = |((packed, losses), requested): ((PackedFlow, Vec<Loss>), &Requested)| {
                let partial = FlowPartial::unpack(packed, requested.analysis());
                Ok((partial.ok_or_else(|| wrong(requested))?, gathered(losses)))
            };
            packed.into_iter().zip(&analyses.flow).map(unpack).collect()
        };
        let flows = self.flows.into_iter().map(of_flow).collect::<Result<_, _>>()?;
        let of_counts =
            |((packed, losses), requested): ((Vec<u8>, Vec<Loss>), &Requested)| -> Result<_, PartError> {
                Ok((requested.analysis().unpack(&packed).ok_or_else(|| wrong(requested))?, gathered(losses)))
            };
        let counts =
            self.counts.into_iter().zip(&analyses.counts).map(of_counts).collect::<Result<_, _>>()?;
        let names = self.origin.names;
        let of_events = |part: EventPart| -> Result<EventResults, PartError> {
            let last = analyses.events.len() - 1;
            // The requested analyses come first, then those that they depend on.
            let which = |index: usize| wrong(&analyses.events[index.min(last)]);
            let states = Pass::new(&analyses.of_events()).unpack(part.states).map_err(which)?;
            Ok(EventResults {
                folded: Folded::new(states, part.totals),
                names,
                losses: gathered(part.losses),
            })
        };
        Ok(State { flows, counts, events: self.events.map(of_events).transpose()? })
    }

    /// Encodes the part as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let content = postcard::to_allocvec(&(VERSION, self)).expect("memory takes what is written to it");
        [MAGIC, &crc32fast::hash(&content).to_le_bytes(), &content].concat()
    }

    /// Decodes the content of a part file.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a part or are of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Part, PartError> {
        let sum = bytes.strip_prefix(MAGIC).and_then(<[u8]>::split_first_chunk::<4>);
        let (sum, content) = sum.ok_or(PartError::Damaged)?;
        if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
            return Err(PartError::Damaged);
        }
        let (version, content) =
            postcard::take_from_bytes::<&str>(content).map_err(|_| PartError::Damaged)?;
        if version != VERSION {
            return Err(PartError::Version(version.to_owned()));
        }
        let (part, rest): (Part, _) = postcard::take_from_bytes(content).map_err(|_| PartError::Damaged)?;
        let PortionRange { first, last, count } = part.portions;
        let is_range =
            (1..=count).contains(&first) && (first..=count).contains(&last) && count <= MOST_PORTIONS;
        match is_range && part.origin.reports.len() <= MOST_REPORTS && rest.is_empty() {
            true => Ok(part),
            false => Err(PartError::Damaged),
        }
    }

    /// Returns the names of its reports.
    pub fn reports(&self) -> &[String] {
        &self.origin.reports
    }

    /// Returns the parameters with which it was folded.
    pub fn parameters(&self) -> Parameters {
        self.origin.parameters()
    }

    /// Returns the names of its inputs. Tables of control flow need them opened, to resolve function names.
    pub fn inputs(&self) -> &[String] {
        &self.origin.inputs
    }

    /// Returns whether its tables need the inputs.
    pub fn needs_inputs(&self) -> bool {
        self.flows.iter().any(|analyses| !analyses.is_empty())
    }

    fn numbers(&self) -> RangeInclusive<u32> {
        self.portions.first..=self.portions.last
    }

    /// Merges the part with the next one.
    fn joined(self, later: Part, analyses: &Analyses) -> Result<Part, PartError> {
        let portions = PortionRange { last: later.portions.last, ..self.portions };
        let origin = self.origin.clone();
        let (earlier, later) = (self.unpack(analyses)?, later.unpack(analyses)?);
        if earlier.flows.len() != later.flows.len() {
            return Err(PartError::Damaged);
        }
        let of_flow = |(one, other): (FlowResults, FlowResults)| {
            let mut joined = FlowResults::new();
            for (((one, losses), (other, more)), requested) in one.into_iter().zip(other).zip(&analyses.flow)
            {
                joined.push((one.merge(other, requested.analysis()), joined_losses(losses, more)));
            }
            joined
        };
        let flows = earlier.flows.into_iter().zip(later.flows).map(of_flow).collect();
        let mut counts = Vec::new();
        for (((one, losses), (other, more)), requested) in
            earlier.counts.into_iter().zip(later.counts).zip(&analyses.counts)
        {
            counts.push((
                requested.analysis().merge(one, other, &Threads::default()),
                joined_losses(losses, more),
            ));
        }
        let of_events = analyses.of_events();
        let pass = Pass::new(&of_events);
        let events = earlier.events.zip(later.events).map(|(one, other)| EventResults {
            folded: one.folded.merge(other.folded, &pass),
            losses: joined_losses(one.losses, other.losses),
            names: one.names,
        });
        Ok(Part::pack(portions, origin, State { flows, counts, events }, analyses))
    }

    /// Merges adjacent parts, given in any order, into one part.
    ///
    /// # Errors
    /// Returns an error if the parts are of different requests, overlap, or have gaps between them.
    pub fn merge(mut parts: Vec<Part>) -> Result<Part, PartError> {
        let Some(first) = parts.first() else { return Err(PartError::Missing(vec![1])) };
        for (index, part) in parts.iter().enumerate() {
            let difference = part.origin.differs(&first.origin);
            let count = (part.portions.count != first.portions.count).then_some("the number of parts");
            if let Some(what) = difference.or(count) {
                return Err(PartError::Differs(index, what));
            }
        }
        parts.sort_by_key(|part| part.portions);
        for pair in parts.windows(2) {
            let (end, next) = (*pair[0].numbers().end(), *pair[1].numbers().start());
            if next <= end {
                return Err(PartError::Twice(next));
            }
            if next > end + 1 {
                return Err(PartError::Missing((end + 1..next).take(SHOWN + 1).collect()));
            }
        }
        let analyses = parts[0].origin.analyses()?;
        let mut parts = parts.into_iter();
        let first = parts.next().expect("the first part is there");
        parts.try_fold(first, |earlier, later| earlier.joined(later, &analyses))
    }

    /// Makes the tables of a complete part. `experiment` is that of its inputs; it must be present if
    /// [`needs_inputs`](Part::needs_inputs) is true.
    ///
    /// # Errors
    /// Returns an error if portions are missing, if the part does not contain what `selection` needs, or if the input
    /// differs.
    pub fn tables(
        self,
        selection: &Selection,
        experiment: Option<&Experiment>,
        threads: usize,
    ) -> Result<Outcome, PartError> {
        let PortionRange { first, last, count } = self.portions;
        let missing: Vec<u32> = (1..first).chain(last + 1..=count).take(SHOWN + 1).collect();
        if !missing.is_empty() {
            return Err(PartError::Missing(missing));
        }
        if matches!(selection.root, Some(Root::SystemCall(_))) {
            return Err(Refusal(NO_SYSTEM_CALL.to_owned()).into());
        }
        let origin = self.origin.clone();
        let (folded, shown) = (origin.analyses()?, origin.made_for(selection)?);
        let kind = |requested: &Requested| requested.analysis().partial();
        let mut pairs = folded.all().zip(shown.all());
        if let Some((other, _)) = pairs.find(|(folded, shown)| kind(folded) != kind(shown)) {
            return Err(PartError::View(other.name.to_owned()));
        }
        let state = self.unpack(&folded)?;
        let Some(experiment) = experiment else {
            return Ok(finish_events(state, &shown, threads));
        };
        experiment.with(|traces| {
            let flows = traces.flows.iter().map(|flow| TraceOrigin::of_flow(flow));
            if !flows.eq(origin.traces.iter().take(traces.flows.len()).cloned()) {
                return Err(PartError::Input(origin.inputs.join(" ")));
            }
            let is_of = |(of_flow, trace): (&FlowResults, &Trace<'_>)| {
                of_flow.iter().all(|(partial, _)| partial.is_of(trace))
            };
            if state.flows.len() != traces.flows.len() || !state.flows.iter().zip(&traces.flows).all(is_of) {
                return Err(PartError::Damaged);
            }
            Ok(finish(traces, state, &shown, threads))
        })
    }
}

fn joined_losses(mut losses: Losses, more: Losses) -> Losses {
    more.into_list().into_iter().for_each(|loss| losses.add(loss));
    losses
}

fn gathered(losses: Vec<Loss>) -> Losses {
    let mut all = Losses::default();
    losses.into_iter().for_each(|loss| all.add(loss));
    all
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartError::Damaged => write!(f, "this file was not written by `hodo fold`, or it is damaged"),
            PartError::Version(version) => {
                write!(f, "this part is of version {version} of hodo, and this is {VERSION}: fold it again")
            }
            PartError::Differs(index, what) => {
                write!(f, "part number {} on the list is of another request: {what} differs", index + 1)
            }
            PartError::Twice(number) => write!(f, "part {number} is there twice"),
            PartError::Missing(numbers) => {
                let shown: Vec<String> = numbers.iter().take(SHOWN).map(u32::to_string).collect();
                let more = if numbers.len() > SHOWN { ", …" } else { "" };
                write!(f, "parts are missing: number {}{more}", shown.join(", "))
            }
            PartError::Partial(report) => write!(f, "a part's state of `{report}` can't be read"),
            PartError::View(report) => {
                write!(
                    f,
                    "the parts do not contain what this view of `{report}` needs: fold them with --by, or see it with `hodo report`"
                )
            }
            PartError::Input(inputs) => {
                write!(f, "{inputs}: this is not the input that was folded, or it has changed since")
            }
            PartError::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hodo_model::Role;

    use super::*;
    use crate::{
        input::{Input, Options},
        registry::{PackedThreadSlice, report_for},
        traces::Needs,
    };

    type Slices = Vec<PackedThreadSlice>;

    /// Makes the tables of a control-flow part after `change`.
    fn tables(change: impl FnOnce(&mut Part)) -> Result<usize, PartError> {
        let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf/tiny.data");
        let options = Options::default();
        let experiment =
            Experiment::open(vec![Input::File(input)], &options, Needs::ALL, 1, |_, _| ()).unwrap();
        let request = Request::of(vec![report_for(Role::Functions)], Parameters::default());
        let portion = Portion::parse("1/1").unwrap();
        let mut part = experiment.fold(&request, &[], portion, &mut |_| true).unwrap();
        change(&mut part);
        let part = Part::from_bytes(&part.to_bytes())?;
        part.tables(&Selection::default(), Some(&experiment), 1).map(|outcome| outcome.tables.len())
    }

    /// Changes the number of the first trace stream, and its thread slices.
    fn change_track(part: &mut Part, change: impl FnOnce(usize, Slices) -> (usize, Slices)) {
        let packed = &mut part.flows[0][0].0;
        let bytes = postcard::to_allocvec(packed).unwrap();
        let (mut streams, trace_bytes): (std::collections::BTreeMap<usize, Slices>, Option<u64>) =
            postcard::from_bytes(&bytes).unwrap();
        let (stream, slices) = streams.pop_first().unwrap();
        streams.extend([change(stream, slices)]);
        *packed = postcard::from_bytes(&postcard::to_allocvec(&(streams, trace_bytes)).unwrap()).unwrap();
    }

    #[test]
    fn parts_that_refer_to_unknown_streams_threads_or_analyses_are_damaged() {
        let with = |change: fn(usize, Slices) -> (usize, Slices)| tables(|part| change_track(part, change));
        assert_eq!(with(|stream, slices| (stream, slices)), Ok(1));
        assert_eq!(with(|_, slices| (1 << 40, slices)), Err(PartError::Damaged));
        let of_unknown_context = |stream, mut slices: Slices| {
            slices[0].context = 1 << 20;
            (stream, slices)
        };
        assert_eq!(with(of_unknown_context), Err(PartError::Damaged));
        assert_eq!(tables(|part| part.flows.clear()), Err(PartError::Damaged));
        assert_eq!(tables(|part| part.flows[0].clear()), Err(PartError::Damaged));
        assert_eq!(tables(|part| part.flows.push(part.flows[0].clone())), Err(PartError::Damaged));
        let more = |part: &mut Part| part.origin.reports = vec!["functions".to_owned(); MOST_REPORTS + 1];
        assert_eq!(tables(more), Err(PartError::Damaged));
    }

    #[test]
    fn bytes_after_a_partial_are_refused() {
        let longer = |stream, mut slices: Slices| {
            slices[0].partial.push(0);
            (stream, slices)
        };
        let tables = tables(|part| change_track(part, longer));
        assert_eq!(tables, Err(PartError::Partial("functions".to_owned())));
    }
}
