//! The reports of `hodo report`, with the engine's loop over control flow.
//!
//! ```text
//! hodo_analyses::reports ──► AnyReport ──make(parameters)──► Made ──fold, merge, finish──► Table
//! ```
//!
//! The loop is compiled for each analysis of control flow: dynamic dispatch happens per fold of many chunks, never per
//! item. Each copy contains a decoder, so analyses of events get none.

use std::{any::Any, borrow::Cow, collections::BTreeMap};

use hodo_clock::Tsc;
use hodo_model::{
    AnyAnalysis, AnyPartial, FastFlow, FinishContext, FlowInterest, FlowLoop, FlowThread, Made, NoSources,
    Parameters, Report, Role, Selection, Start, Table, kernel::Threads, pass::Pass,
};
use serde::{Deserialize, Serialize};

use crate::{
    flow::{
        fold::{StreamSlices, ThreadSlice, by_thread, fold_chunks, join},
        stream::Chunk,
        trace::Trace,
    },
    losses::Losses,
    reading::Reading,
};

/// A report with the engine's loop.
pub type AnyReport = Report<EngineLoop>;

/// An analysis with the engine's loop, if it reads control flow.
pub type RunnableAnalysis = Made<EngineLoop>;

/// The engine's loop over control flow.
#[derive(Clone, Copy, Debug)]
pub struct EngineLoop;

impl FlowLoop for EngineLoop {
    type Analysis = dyn AnyFlow;

    fn compile(analysis: impl FastFlow) -> Box<dyn AnyFlow> {
        Box::new(analysis)
    }

    fn analysis(analysis: &dyn AnyFlow) -> &dyn AnyAnalysis {
        analysis
    }
}

/// An analysis of control flow that the engine can run.
pub trait AnyFlow: AnyAnalysis {
    /// Returns the analysis, to compare its type.
    fn as_any(&self) -> &dyn Any;

    /// Folds chunks of control flow. `progress` receives the number of bytes decoded so far, and returns whether to
    /// continue.
    fn fold_flow(
        &self,
        trace: &Trace<'_>,
        chunks: &[Chunk],
        reading: Reading<'_>,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> (FlowPartial, Losses);
}

/// Returns every report, in the order of `hodo report --list`.
pub fn reports() -> &'static [AnyReport] {
    hodo_analyses::reports()
}

/// Returns the report of this name.
pub fn report(name: &str) -> Option<&'static AnyReport> {
    reports().iter().find(|report| report.description.name == name)
}

/// Returns the reports with this role.
pub fn reports_for(role: Role) -> Vec<&'static AnyReport> {
    reports().iter().filter(|report| report.description.roles.contains(&role)).collect()
}

/// Returns the report with this role.
///
/// # Panics
/// If no report has it.
pub fn report_for(role: Role) -> &'static AnyReport {
    reports_for(role).first().expect("each role has a report")
}

/// Returns the table that a view of a report makes of nothing: its columns, without rows. Reports of periods have the
/// columns that need no fields.
pub fn empty_table(report: &AnyReport, view: &str) -> Table {
    let selection = Selection { view: view.to_owned(), ..Selection::default() };
    let made = report.make(&Parameters { selection: selection.clone(), ..Parameters::default() });
    let analysis = made.analysis();
    if analysis.interest().flow != FlowInterest::None {
        let threads = Threads::default();
        let context = FinishContext::without_events(&selection, &threads, &NoSources);
        return analysis.finish(Vec::new(), &context);
    }
    let pass = Pass::new(&[analysis]);
    let states = pass.begin(&Start { is_first: true, ..Start::default() });
    let mut tables = pass.finish(states, &[], Default::default(), &[&selection], &NoSources, 1);
    tables.pop().expect("one table for one analysis")
}

impl<A: FastFlow> AnyFlow for A {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn fold_flow(
        &self,
        trace: &Trace<'_>,
        chunks: &[Chunk],
        reading: Reading<'_>,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> (FlowPartial, Losses) {
        let (streams, losses) = fold_chunks(trace, self, chunks, reading, progress);
        let any_slice = |slice: ThreadSlice<A::Partial>| ThreadSlice {
            context: slice.context,
            since: slice.since,
            partial: Box::new(slice.partial) as AnyPartial,
        };
        let any_stream =
            |(stream, slices): (usize, Vec<_>)| (stream, slices.into_iter().map(any_slice).collect());
        let streams = streams.into_iter().map(any_stream).collect();
        (FlowPartial::of(streams, chunks, reading), losses)
    }
}

/// The folded state of some chunks of control flow, in the order of the recording.
pub struct FlowPartial {
    streams: StreamSlices<AnyPartial>,
    /// Bytes of the chunks; `None` if only a window of them was selected.
    bytes: Option<u64>,
}

/// The thread with this number in a trace.
fn flow_thread(trace: &Trace<'_>, number: u32) -> FlowThread {
    let known = trace.threads.get(number as usize).copied();
    let comm = known.and_then(|thread| trace.thread_name(thread)).map(Cow::into_owned);
    let (pid, tid) = known.map_or((0, 0), |thread| (thread.pid, thread.tid));
    FlowThread { pid, tid, comm }
}

/// A [`ThreadSlice`] as bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PackedThreadSlice {
    pub(crate) context: u32,
    since: Option<u64>,
    pub(crate) partial: Vec<u8>,
}

/// A [`FlowPartial`] as bytes: the thread slices of each trace stream, and the bytes of the chunks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PackedFlow(BTreeMap<usize, Vec<PackedThreadSlice>>, Option<u64>);

impl FlowPartial {
    /// Creates the state of an analysis from that of some chunks.
    pub(crate) fn of(
        streams: StreamSlices<AnyPartial>,
        chunks: &[Chunk],
        reading: Reading<'_>,
    ) -> FlowPartial {
        let bytes = reading.is_of_all().then(|| chunks.iter().map(Chunk::bytes).sum());
        FlowPartial { streams, bytes }
    }

    /// Merges the state of the following chunks into this one.
    pub fn merge(mut self, later: FlowPartial, analysis: &dyn AnyAnalysis) -> FlowPartial {
        let threads = Threads::default();
        for (stream, slices) in later.streams {
            let own = self.streams.entry(stream).or_default();
            // Whether threads stay on a stream is known of a trace only.
            let threads_stay = false;
            join(own, slices, threads_stay, |earlier, later| analysis.merge(earlier, later, &threads));
        }
        let both = self.bytes.zip(later.bytes);
        self.bytes = both.map(|(earlier, later)| earlier.saturating_add(later));
        self
    }

    /// Returns whether its trace streams and threads exist in a trace.
    pub(crate) fn is_of(&self, trace: &Trace<'_>) -> bool {
        let is_there = |slice: &ThreadSlice<_>| (slice.context as usize) < trace.threads.len();
        self.streams
            .iter()
            .all(|(stream, slices)| *stream < trace.streams.len() && slices.iter().all(is_there))
    }

    /// Makes the tables of the complete states of several traces: one for each, or one of all.
    pub fn finish(
        states: Vec<(FlowPartial, &Trace<'_>)>,
        analysis: &dyn AnyAnalysis,
        selection: &Selection,
    ) -> Vec<Table> {
        let threads = Threads::default();
        let merge = |earlier, later| analysis.merge(earlier, later, &threads);
        let mut partials = Vec::new();
        let mut flow_threads: Vec<Vec<FlowThread>> = Vec::new();
        let mut contexts = Vec::new();
        for (state, trace) in states {
            let (numbers, of_trace): (Vec<u32>, Vec<AnyPartial>) =
                by_thread(trace, state.streams, merge).into_iter().unzip();
            flow_threads.push(numbers.iter().map(|number| flow_thread(trace, *number)).collect());
            partials.push(of_trace);
            contexts.push((trace, state.bytes.filter(|_| selection.is_of_all())));
        }
        let mut finished = Vec::new();
        for ((partials, (trace, trace_bytes)), flow_threads) in
            partials.into_iter().zip(contexts).zip(&flow_threads)
        {
            let context = FinishContext::without_events(selection, &threads, &trace.modules);
            finished.push((partials, FinishContext { flow_threads, trace_bytes, ..context }));
        }
        analysis.finish_several(finished)
    }

    /// Encodes the partial.
    pub fn pack(&self, analysis: &dyn AnyAnalysis) -> PackedFlow {
        let slice = |slice: &ThreadSlice<AnyPartial>| PackedThreadSlice {
            context: slice.context,
            since: slice.since.map(|since| since.0),
            partial: analysis.pack(&slice.partial),
        };
        let stream = |(&stream, slices): (&usize, &Vec<_>)| (stream, slices.iter().map(slice).collect());
        PackedFlow(self.streams.iter().map(stream).collect(), self.bytes)
    }

    /// Decodes a partial; `None` if the bytes are not of the analysis.
    pub fn unpack(packed: PackedFlow, analysis: &dyn AnyAnalysis) -> Option<FlowPartial> {
        let slice = |PackedThreadSlice { context, since, partial }| {
            Some(ThreadSlice { context, since: since.map(Tsc), partial: analysis.unpack(&partial)? })
        };
        let stream = |(stream, slices): (usize, Vec<_>)| {
            Some((stream, slices.into_iter().map(slice).collect::<Option<Vec<_>>>()?))
        };
        let PackedFlow(streams, bytes) = packed;
        Some(FlowPartial { streams: streams.into_iter().map(stream).collect::<Option<_>>()?, bytes })
    }
}
