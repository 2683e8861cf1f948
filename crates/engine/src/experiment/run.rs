//! Runs a request on all traces, in this process.

use hodo_clock::Tsc;
use hodo_model::{
    AnyAnalysis, AnyPartial, Cause, FinishContext, Intervals, Loss, NoSources, Selection, Table,
    kernel::{Threads, VOCABULARY, Wakeups},
    pass::{Pass, interest},
    vocabulary,
};

use super::{
    Experiment, Outcome, Portion, Request,
    request::{Analyses, Requested},
};
use crate::{
    events::{
        Counting, Folded, MOST_BINS, PacketRange, fold_all, fold_counts, no_such_period, plan, reads_wakeups,
        tables,
    },
    flow::{passes::Progress, stream::Chunk, together::Overview, trace::Trace},
    losses::Losses,
    reading::{EventReading, Reading, Window},
    refusal::Refusal,
    registry::FlowPartial,
    traces::Traces,
};

/// The result of one control-flow trace, by analysis.
pub(super) type FlowResults = Vec<(FlowPartial, Losses)>;

/// The result of the event traces.
pub(super) struct EventResults {
    pub(super) folded: Folded,
    /// The variable parts of events' names.
    pub(super) names: Vec<String>,
    pub(super) losses: Losses,
}

/// The result of a request or of a part of it.
#[derive(Default)]
pub(super) struct State {
    /// By control-flow trace.
    pub(super) flows: Vec<FlowResults>,
    /// By count analysis.
    pub(super) counts: Vec<(AnyPartial, Losses)>,
    pub(super) events: Option<EventResults>,
}

/// The plan for reading the traces of a request.
pub(super) struct Plan<'t, 'f> {
    /// The selected window of each control-flow trace.
    windows: Vec<Window<Tsc>>,
    pub(super) events: EventReading,
    /// The portion of the traces to read; `None` reads everything.
    portion: Option<Portion>,
    traces: &'t Traces<'f>,
}

impl Experiment {
    /// Makes the tables of a request. `progress` receives the number of bytes read so far, of [`Experiment::work`], and
    /// returns whether to continue; if not, the tables cover what was read.
    ///
    /// # Errors
    /// Returns a refusal if the request does not fit the traces.
    pub fn run(&self, request: &Request, progress: Progress<'_>) -> Result<Outcome, Refusal> {
        request.check()?;
        let analyses = request.analyses();
        self.fits(&analyses)?;
        self.with(|traces| {
            check_events(traces, request)?;
            let state = Plan::new(traces, request, None)?.fold(request, &analyses, progress)?;
            Ok(finish(traces, state, &analyses, request.threads))
        })
    }

    /// Refuses a request if the traces contain the input of none of its analyses.
    pub(super) fn fits(&self, analyses: &Analyses) -> Result<(), Refusal> {
        let (flow, events) = (!analyses.flow.is_empty(), analyses.read_events());
        if flow && self.contents.flow || events && self.contents.events {
            return Ok(());
        }
        let wrong = match events {
            true => "this report is about software events, and the input has none",
            false => "this report is about control flow, and the input has software events",
        };
        Err(Refusal(wrong.to_owned()))
    }

    /// Returns the number of bytes that a request reads; bytes read in several passes count several times.
    pub fn work(&self, request: &Request) -> u64 {
        let analyses = request.analyses();
        let flow_passes = request.executions(&analyses.flow).passes() + passes(&analyses.flow);
        let event_passes = analyses.counts.len() as u64 + u64::from(!analyses.events.is_empty());
        self.with(|traces| {
            let flows: u64 = traces.flows.iter().map(|flow| flow.bytes()).sum();
            flows * flow_passes + traces.event_bytes() * event_passes
        })
    }
}

/// Returns the number of passes that fold these analyses of control flow.
fn passes(analyses: &[Requested]) -> u64 {
    let together = overview(analyses).map_or(0, |_| Overview::ANALYSES - 1);
    analyses.len() as u64 - together
}

/// Returns the analyses that are folded in one pass, if all are requested.
fn overview(analyses: &[Requested]) -> Option<Overview> {
    Overview::of(analyses.iter().map(Requested::flow))
}

/// Refuses a period or a filter that no event of the traces can satisfy.
pub(super) fn check_events(traces: &Traces<'_>, request: &Request) -> Result<(), Refusal> {
    if traces.events.is_empty() {
        return Ok(());
    }
    let of_intervals = match &request.parameters.intervals {
        Some(Intervals::Period(period)) => Some(period),
        _ => None,
    };
    let period = request.parameters.period.as_ref().or(of_intervals);
    if let Some(why) = period.and_then(|period| no_such_period(traces, period)) {
        return Err(Refusal(why));
    }
    let filters = request.reports.iter().any(|report| report.description().takes.events);
    match request.wanted().missing_contexts(traces).filter(|_| filters) {
        Some(name) => Err(Refusal(format!(
            "no event has the context `{name}`; record with it (such as lttng add-context -t {name}), or select by fields with --where"
        ))),
        None => Ok(()),
    }
}

impl<'t, 'f> Plan<'t, 'f> {
    pub(super) fn new(
        traces: &'t Traces<'f>,
        request: &Request,
        portion: Option<Portion>,
    ) -> Result<Plan<'t, 'f>, Refusal> {
        let span = request.times.span.as_ref().map(|span| traces.resolve(span)).transpose()?;
        let span = span.as_ref().map(|(span, _)| span);
        let windows = traces.windows(span)?;
        let of_events = || span.map(|span| span.of_events(traces.event_span())).transpose();
        let times = if traces.events.is_empty() { None } else { of_events()? };
        let window = times.unwrap_or(Window::ALL);
        let events = Reading { window, ..Reading::new(request.threads, request.chunks) };
        Ok(Plan { windows, events, portion, traces })
    }

    /// Folds all analyses.
    pub(super) fn fold(
        &self,
        request: &Request,
        analyses: &Analyses,
        progress: Progress<'_>,
    ) -> Result<State, Refusal> {
        let mut state = State::default();
        self.fold_into(&mut state, request, analyses, progress)?;
        let flows = state.flows.iter_mut().flatten().map(|(_, losses)| losses);
        let counts = state.counts.iter_mut().map(|(_, losses)| losses);
        let events = state.events.iter_mut().map(|events| &mut events.losses);
        // Files can shrink while they are read, so this comes last.
        let unreadable = self.traces.unreadable();
        for losses in flows.chain(counts).chain(events) {
            unreadable.iter().for_each(|loss| losses.add(loss.clone()));
        }
        Ok(state)
    }

    fn fold_into(
        &self,
        state: &mut State,
        request: &Request,
        analyses: &Analyses,
        progress: Progress<'_>,
    ) -> Result<(), Refusal> {
        let mut before = 0;
        for (trace, window) in self.traces.flows.iter().zip(&self.windows) {
            let flow = self.fold_flow(request, trace, *window, &analyses.flow, &mut before, progress)?;
            state.flows.push(flow);
        }
        if self.traces.events.is_empty() {
            return Ok(());
        }
        for requested in &analyses.counts {
            state.counts.push(self.fold_counts(request, requested, &mut |done| progress(before + done))?);
            before += self.traces.event_bytes();
        }
        let analyses = analyses.of_events();
        state.events = (!analyses.is_empty())
            .then(|| self.fold_events(&Pass::new(&analyses), &mut |done| progress(before + done)));
        Ok(())
    }

    fn fold_counts(
        &self,
        request: &Request,
        requested: &Requested,
        progress: Progress<'_>,
    ) -> Result<(AnyPartial, Losses), Refusal> {
        let interest = requested.analysis().interest().counts;
        let counting = Counting::new(self.traces, &request.wanted(), interest, &self.events);
        let counting = counting.ok_or_else(|| {
            Refusal(format!(
                "--every: the trace has more than {MOST_BINS} such spans; select a shorter part with --time"
            ))
        })?;
        let mut losses = self.losses();
        let choose = |ranges: Vec<_>| match self.portion {
            Some(portion) => portion.choose(ranges, |range: &PacketRange<'_, '_>| range.bytes),
            None => ranges,
        };
        let analysis = requested.analysis();
        let partial = fold_counts(self.traces, analysis, &counting, choose, &mut losses, progress);
        Ok((partial, losses))
    }

    /// Returns the losses that were found when the traces were opened: unreadable parts of event files, and unrelated clocks.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        if self.portion.is_some_and(|portion| !portion.is_first()) {
            return losses;
        }
        self.traces.event_losses().into_iter().for_each(|loss| losses.add(loss));
        let several = self.traces.event_inputs.windows(2).any(|inputs| inputs[0] != inputs[1]);
        for (input, why) in self.traces.unrelated.iter().filter(|_| several) {
            losses.add(Loss {
                stream: input.clone(),
                cause: Cause::UnrelatedClocks,
                bytes: 0..0,
                time: None,
                count: 1,
                detail: format!("times as they are: {why}"),
            });
        }
        losses
    }

    fn fold_flow(
        &self,
        request: &Request,
        trace: &Trace<'_>,
        window: Window<Tsc>,
        analyses: &[Requested],
        before: &mut u64,
        progress: Progress<'_>,
    ) -> Result<FlowResults, Refusal> {
        let reading = Reading { window, ..Reading::new(request.threads, request.chunks) };
        let (executions, start) = (request.executions(analyses), *before);
        let work = |reading: Reading<'_>, progress: Progress<'_>| {
            let mut chunks = trace.chunks(reading);
            if let Some(portion) = self.portion {
                chunks = portion.choose(chunks, |chunk| chunk.bytes());
            }
            fold_each(trace, &chunks, reading, analyses, progress)
        };
        *before += trace.bytes() * (executions.passes() + passes(analyses));
        trace.read(reading, executions, &mut |done| progress(start + done), work)
    }

    pub(super) fn fold_events(&self, pass: &Pass<'_>, progress: Progress<'_>) -> EventResults {
        let mut slices = plan(self.traces, &self.events);
        if let Some(portion) = self.portion {
            slices = portion.choose(slices, |slice| slice.bytes);
        }
        let mut losses = self.losses();
        let (folded, names) =
            fold_all(self.traces, pass, &slices, &self.events, &mut losses, |_, _, read| progress(read));
        EventResults { folded, names, losses }
    }
}

/// Folds analyses of control flow.
fn fold_each(
    trace: &Trace<'_>,
    chunks: &[Chunk],
    reading: Reading<'_>,
    analyses: &[Requested],
    progress: Progress<'_>,
) -> FlowResults {
    let mut before = 0;
    let mut folded: Vec<Option<(FlowPartial, Losses)>> = analyses.iter().map(|_| None).collect();
    let together = overview(analyses);
    if let Some(overview) = &together {
        let (streams, losses) = overview.fold(trace, chunks, reading, progress);
        before += trace.bytes();
        for (index, streams) in streams {
            folded[index] = Some((FlowPartial::of(streams, chunks, reading), losses.clone()));
        }
    }
    for (index, requested) in analyses.iter().enumerate() {
        if together.as_ref().is_none_or(|overview| !overview.contains(index)) {
            let done = |bytes| progress(before + bytes);
            folded[index] = Some(requested.flow().fold_flow(trace, chunks, reading, &mut { done }));
            before += trace.bytes();
        }
    }
    folded.into_iter().map(|result| result.expect("each analysis is folded")).collect()
}

/// Makes the tables of a complete result, on `threads` threads.
pub(super) fn finish(traces: &Traces<'_>, state: State, analyses: &Analyses, threads: usize) -> Outcome {
    let mut tables = finish_flows(traces, state.flows, analyses);
    let mut of_events = finish_events(State { flows: Vec::new(), ..state }, analyses, threads);
    if let Some(half_width) = traces.uncertainty() {
        for table in &mut of_events.tables {
            table.summary.push(("uncertainty_ns", half_width.clone()));
        }
    }
    tables.extend(of_events.tables);
    Outcome { tables, ..of_events }
}

/// Makes the tables of control flow: one for each trace, or one for all traces if the analysis joins them.
fn finish_flows(traces: &Traces<'_>, states: Vec<FlowResults>, analyses: &Analyses) -> Vec<Table> {
    let several = states.len() > 1;
    let mut by_analysis: Vec<Vec<(FlowPartial, Losses)>> = analyses.flow.iter().map(|_| Vec::new()).collect();
    for results in states {
        results.into_iter().zip(&mut by_analysis).for_each(|(result, results)| results.push(result));
    }
    let mut by_trace: Vec<Vec<Table>> = traces.flows.iter().map(|_| Vec::new()).collect();
    for (requested, results) in analyses.flow.iter().zip(by_analysis) {
        let (partials, mut losses): (Vec<FlowPartial>, Vec<Losses>) = results.into_iter().unzip();
        let states = partials.into_iter().zip(&traces.flows).collect();
        let made = FlowPartial::finish(states, requested.analysis(), &requested.selection);
        let are_joined = several && made.len() == 1;
        if are_joined {
            losses = vec![losses.into_iter().fold(Losses::default(), Losses::and)];
        }
        for ((mut table, losses), (trace, tables)) in
            made.into_iter().zip(losses).zip(traces.flows.iter().zip(&mut by_trace))
        {
            if several && !are_joined {
                table.summary.insert(0, ("input", trace.name.as_str().into()));
            }
            tables.push(table.with_loss(losses.into_list()));
        }
    }
    by_trace.into_iter().flatten().collect()
}

/// Makes the tables of counts and events.
pub(super) fn finish_events(state: State, analyses: &Analyses, threads: usize) -> Outcome {
    let no_threads = Threads::default();
    let count = |(requested, (partial, losses)): (&Requested, (AnyPartial, Losses))| {
        let whole = FinishContext::without_events(&requested.selection, &no_threads, &NoSources);
        requested.analysis().finish(vec![partial], &whole).with_loss(losses.into_list())
    };
    let mut made: Vec<Table> = analyses.counts.iter().zip(state.counts).map(count).collect();
    let of_events = analyses.of_events();
    let wakeups = state.events.as_ref().map(|events| events.folded.states.wakeups());
    if let Some(EventResults { folded, names, losses }) = state.events {
        let selections: Vec<&Selection> =
            analyses.events.iter().map(|requested| &requested.selection).collect();
        made.extend(tables(&Pass::new(&of_events), folded, &names, &selections, losses, threads));
    }
    let mut notes = match (of_events.as_slice(), made.as_slice()) {
        ([analysis], [table]) if table.is_empty() => {
            vec![format!("{}: nothing found; this report reads {}", table.name(), needed(*analysis))]
        }
        _ => Vec::new(),
    };
    notes.extend(wakeups.and_then(|wakeups| wakeups_note(wakeups, analyses)));
    Outcome { tables: made, notes }
}

/// Returns a note if the tables do not rest on the usual wake-ups.
fn wakeups_note(wakeups: Wakeups, analyses: &Analyses) -> Option<String> {
    let names = analyses.events.iter().filter(|requested| reads_wakeups(requested.analysis()));
    let names: Vec<&str> = names.map(|requested| requested.name).collect();
    let why = match wakeups {
        _ if names.is_empty() => return None,
        Wakeups::Wakeup => return None,
        Wakeups::Waking => {
            "sched_wakeup is not recorded; sched_waking counts in its place, so a wait for a CPU begins a little earlier, with the begin of the wake-up"
        }
        Wakeups::Missing => {
            "neither sched_wakeup nor sched_waking is recorded; when a thread could run again after it waited is unknown, and that time counts to the wait"
        }
    };
    Some(format!("{}: {why}", names.join(", ")))
}

/// Returns the names of the events that an analysis reads, without those of the state dump.
fn needed(analysis: &dyn AnyAnalysis) -> String {
    let mut kinds: Vec<_> = interest(analysis).into_iter().map(|(kind, _)| kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let name = |kind| {
        let words = VOCABULARY.iter().find(|words| words.kind == kind)?;
        let name = words.names.first().filter(|name| !name.starts_with("lttng_statedump"))?;
        Some(match vocabulary::others(name) {
            [] => (*name).to_owned(),
            others => format!("{name} (of ftrace and perf: {})", others.join(", ")),
        })
    };
    kinds.into_iter().filter_map(name).collect::<Vec<String>>().join(", ")
}
