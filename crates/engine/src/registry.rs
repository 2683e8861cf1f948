//! The reports of `hodo report`, each as an object that the engine can run.
//!
//! ```text
//! hodo_analyses::each ──erase──► AnyReport ──make(parameters)──► AnyRun ──fold, merge, finish──► Table
//! ```
//!
//! Control-flow loops are monomorphised for each analysis of control flow: dynamic dispatch happens per fold of many
//! chunks, never per item. Each copy contains a decoder, so analyses of events get none.

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use hodo_clock::Tsc;
use hodo_model::{
    Analysis, AnyAnalysis, AnyPartial, Description, FastFlow, FinishContext, FlowInterest, FlowThread, Maker,
    NoSources, Parameters, Report, Selection, Start, Table, Visitor, kernel::Threads, pass::Pass,
};
use serde::{Deserialize, Serialize};

use crate::{
    flow::{
        fold::{ThreadSlice, Tracks, by_thread, fold_chunks, join},
        stream::Chunk,
        trace::Trace,
    },
    losses::Losses,
    reading::Reading,
};

/// A report, independent of the type of its analysis.
pub trait AnyReport: Send + Sync {
    /// Returns its description in lists.
    fn description(&self) -> &Description;

    /// Makes its analysis for `parameters`.
    fn make(&self, parameters: &Parameters) -> Box<dyn AnyRun>;
}

/// An analysis that the engine can run.
pub trait AnyRun: Send + Sync {
    /// Returns the analysis.
    fn analysis(&self) -> &dyn AnyAnalysis;

    /// Returns the analysis as one of control flow; `None` if it reads events or counts.
    fn flow(&self) -> Option<&dyn AnyFlow>;
}

/// An analysis of control flow that the engine can run.
pub trait AnyFlow: Send + Sync {
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
pub fn reports() -> &'static [Box<dyn AnyReport>] {
    static REPORTS: LazyLock<Vec<Box<dyn AnyReport>>> = LazyLock::new(|| {
        let mut list = List(Vec::new());
        hodo_analyses::each(&mut list);
        list.0
    });
    &REPORTS
}

/// Returns the report of this name.
pub fn report(name: &str) -> Option<&'static dyn AnyReport> {
    reports().iter().find(|report| report.description().name == name).map(|report| &**report)
}

/// Returns the table that a view of a report makes of nothing: its columns, without rows. Reports of periods have the
/// columns that need no fields.
pub fn empty_table(report: &dyn AnyReport, view: &str) -> Table {
    let selection = Selection { view: view.to_owned(), ..Selection::default() };
    let run = report.make(&Parameters { selection: selection.clone(), ..Parameters::default() });
    let analysis = run.analysis();
    if analysis.interest().flow != FlowInterest::None {
        let threads = Threads::default();
        let of = FinishContext::without_events(&selection, &threads, &NoSources);
        return analysis.finish(Vec::new(), &of);
    }
    let pass = Pass::new(&[analysis]);
    let states = pass.begin(&Start { is_first: true, ..Start::default() });
    let mut tables = pass.finish(states, &[], Default::default(), &[&selection], &NoSources, 1);
    tables.pop().expect("one table for one analysis")
}

struct List(Vec<Box<dyn AnyReport>>);

impl Visitor for List {
    fn visit<R: Report>(&mut self, report: &'static R) {
        self.0.push(Box::new(Erased(report)));
    }
}

struct Erased<R: 'static>(&'static R);

impl<R: Report> AnyReport for Erased<R> {
    fn description(&self) -> &Description {
        self.0.description()
    }

    fn make(&self, parameters: &Parameters) -> Box<dyn AnyRun> {
        self.0.make(parameters, Runs)
    }
}

struct Runs;

impl Maker for Runs {
    type Made = Box<dyn AnyRun>;

    fn analysis<A: Analysis>(self, analysis: A) -> Self::Made {
        Box::new(Events(analysis))
    }

    fn fast<A: FastFlow>(self, analysis: A) -> Self::Made {
        Box::new(Flow(analysis))
    }
}

struct Events<A>(A);

impl<A: Analysis> AnyRun for Events<A> {
    fn analysis(&self) -> &dyn AnyAnalysis {
        &self.0
    }

    fn flow(&self) -> Option<&dyn AnyFlow> {
        None
    }
}

/// Runs an analysis of control flow.
pub(crate) struct Flow<A>(pub(crate) A);

impl<A: FastFlow> AnyRun for Flow<A> {
    fn analysis(&self) -> &dyn AnyAnalysis {
        &self.0
    }

    fn flow(&self) -> Option<&dyn AnyFlow> {
        Some(self)
    }
}

impl<A: FastFlow> AnyFlow for Flow<A> {
    fn fold_flow(
        &self,
        trace: &Trace<'_>,
        chunks: &[Chunk],
        reading: Reading<'_>,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> (FlowPartial, Losses) {
        let (tracks, losses) = fold_chunks(trace, &self.0, chunks, reading, progress);
        let any = |slice: ThreadSlice<A::Partial>| ThreadSlice {
            context: slice.context,
            since: slice.since,
            partial: Box::new(slice.partial) as AnyPartial,
        };
        let any = |(track, slices): (usize, Vec<_>)| (track, slices.into_iter().map(any).collect());
        let bytes = reading.is_of_all().then(|| chunks.iter().map(Chunk::bytes).sum());
        (FlowPartial { tracks: tracks.into_iter().map(any).collect(), bytes }, losses)
    }
}

/// The folded state of some chunks of control flow, in the order of the recording.
pub struct FlowPartial {
    tracks: Tracks<AnyPartial>,
    /// Bytes of the chunks; `None` if only a window of them was selected.
    bytes: Option<u64>,
}

/// A thread slice as bytes: context, first tick and partial.
pub(crate) type PackedTimeSlice = (u32, Option<u64>, Vec<u8>);

/// A [`FlowPartial`] as bytes: the thread slices of each trace stream, and the bytes of the chunks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PackedFlow(BTreeMap<usize, Vec<PackedTimeSlice>>, Option<u64>);

impl FlowPartial {
    /// Merges it with the state of the following chunks.
    pub fn merge(mut self, later: FlowPartial, analysis: &dyn AnyAnalysis) -> FlowPartial {
        let threads = Threads::default();
        for (track, slices) in later.tracks {
            let own = self.tracks.entry(track).or_default();
            join(own, slices, |earlier, later| analysis.merge(earlier, later, &threads));
        }
        let both = self.bytes.zip(later.bytes);
        self.bytes = both.map(|(earlier, later)| earlier.saturating_add(later));
        self
    }

    /// Returns whether its trace streams and threads exist in a trace.
    pub(crate) fn is_of(&self, trace: &Trace<'_>) -> bool {
        let is_there = |slice: &ThreadSlice<_>| (slice.context as usize) < trace.threads.len();
        self.tracks.iter().all(|(track, slices)| *track < trace.tracks.len() && slices.iter().all(is_there))
    }

    /// Makes the table of the complete state.
    pub fn finish(self, trace: &Trace<'_>, analysis: &dyn AnyAnalysis, selection: &Selection) -> Table {
        let threads = Threads::default();
        let merge = |earlier, later| analysis.merge(earlier, later, &threads);
        let (contexts, partials): (Vec<u32>, Vec<AnyPartial>) =
            by_thread(trace, self.tracks, merge).into_iter().unzip();
        let thread = |&context: &u32| {
            let known = trace.threads.get(context as usize).copied();
            let comm = known.and_then(|thread| trace.thread_name(thread)).map(Cow::into_owned);
            let (pid, tid) = known.map_or((0, 0), |thread| (thread.pid, thread.tid));
            FlowThread { pid, tid, comm }
        };
        let flow_threads: Vec<FlowThread> = contexts.iter().map(thread).collect();
        let of = FinishContext::without_events(selection, &threads, &trace.modules);
        let trace_bytes = self.bytes.filter(|_| selection.is_of_all());
        analysis.finish(partials, &FinishContext { flow_threads: &flow_threads, trace_bytes, ..of })
    }

    /// Encodes the partial.
    pub fn pack(&self, analysis: &dyn AnyAnalysis) -> PackedFlow {
        let slice = |slice: &ThreadSlice<AnyPartial>| {
            (slice.context, slice.since.map(|since| since.0), analysis.pack(&slice.partial))
        };
        let track = |(&track, slices): (&usize, &Vec<_>)| (track, slices.iter().map(slice).collect());
        PackedFlow(self.tracks.iter().map(track).collect(), self.bytes)
    }

    /// Decodes a partial; `None` if the bytes are not of the analysis.
    pub fn unpack(packed: PackedFlow, analysis: &dyn AnyAnalysis) -> Option<FlowPartial> {
        let slice = |(context, since, bytes): PackedTimeSlice| {
            Some(ThreadSlice { context, since: since.map(Tsc), partial: analysis.unpack(&bytes)? })
        };
        let track = |(track, slices): (usize, Vec<_>)| {
            Some((track, slices.into_iter().map(slice).collect::<Option<Vec<_>>>()?))
        };
        let PackedFlow(tracks, bytes) = packed;
        Some(FlowPartial { tracks: tracks.into_iter().map(track).collect::<Option<_>>()?, bytes })
    }
}
