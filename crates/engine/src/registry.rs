//! The reports of `hodo report`, each as an object that the engine can run.
//!
//! ```text
//! hodo_analyses::each ──erase──► AnyReport ──make(parameters)──► AnyRun ──fold, merge, finish──► Table
//! ```
//!
//! Loops over control flow are compiled for each analysis: an object stands for the fold of many chunks, never for
//! that of one item.

use std::{collections::BTreeMap, sync::LazyLock};

use hodo_clock::Tsc;
use hodo_model::{
    Analysis, AnyAnalysis, AnyPartial, Description, FastFlow, FinishContext, Maker, Parameters, Plain,
    Report, Selection, Table, Visitor, kernel::Threads,
};
use serde::{Deserialize, Serialize};

use crate::{
    Chunk, FlowTrace, Losses, Reading,
    fold::{ThreadSlice, Tracks, by_thread, fold_chunks, join},
};

/// A report, whatever its analysis.
pub trait AnyReport: Send + Sync {
    /// How it is listed.
    fn description(&self) -> &Description;

    /// Makes the analysis for some parameters.
    fn make(&self, parameters: &Parameters) -> Box<dyn AnyRun>;
}

/// An analysis that the engine can run.
pub trait AnyRun: Send + Sync {
    /// The analysis.
    fn analysis(&self) -> &dyn AnyAnalysis;

    /// Folds chunks of control flow. `progress` gets the bytes decoded so far, and returns whether to go on.
    fn fold_flow(
        &self,
        experiment: &FlowTrace<'_>,
        chunks: &[Chunk],
        reading: Reading<'_>,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> (FlowPartial, Losses);
}

/// Every report, in the order of `hodo report --list`.
pub fn reports() -> &'static [Box<dyn AnyReport>] {
    static REPORTS: LazyLock<Vec<Box<dyn AnyReport>>> = LazyLock::new(|| {
        let mut list = List(Vec::new());
        hodo_analyses::each(&mut list);
        list.0
    });
    &REPORTS
}

/// The report with a name.
pub fn report(name: &str) -> Option<&'static dyn AnyReport> {
    reports().iter().find(|report| report.description().name == name).map(|report| &**report)
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
        Box::new(Run(Plain(analysis)))
    }

    fn fast<A: FastFlow>(self, analysis: A) -> Self::Made {
        Box::new(Run(analysis))
    }
}

struct Run<A>(A);

impl<A: FastFlow> AnyRun for Run<A> {
    fn analysis(&self) -> &dyn AnyAnalysis {
        &self.0
    }

    fn fold_flow(
        &self,
        experiment: &FlowTrace<'_>,
        chunks: &[Chunk],
        reading: Reading<'_>,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> (FlowPartial, Losses) {
        let (tracks, losses) = fold_chunks(experiment, &self.0, chunks, reading, progress);
        let any = |stint: ThreadSlice<A::Partial>| ThreadSlice {
            context: stint.context,
            since: stint.since,
            partial: Box::new(stint.partial) as AnyPartial,
        };
        let any = |(track, stints): (usize, Vec<_>)| (track, stints.into_iter().map(any).collect());
        (FlowPartial { tracks: tracks.into_iter().map(any).collect() }, losses)
    }
}

/// What some chunks of control flow came to, in the order of the recording.
#[derive(Default)]
pub struct FlowPartial {
    tracks: Tracks<AnyPartial>,
}

/// A stint as bytes: context, first tick and partial.
pub(crate) type PackedStint = (u32, Option<u64>, Vec<u8>);

/// The same as bytes: of each track its stints.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PackedFlow(BTreeMap<usize, Vec<PackedStint>>);

impl FlowPartial {
    /// Joins it with that of the chunks that follow.
    pub fn merge(mut self, later: FlowPartial, analysis: &dyn AnyAnalysis) -> FlowPartial {
        let threads = Threads::default();
        for (track, stints) in later.tracks {
            let own = self.tracks.entry(track).or_default();
            join(own, stints, |earlier, later| analysis.merge(earlier, later, &threads));
        }
        self
    }

    /// Whether its tracks and threads are those of a trace.
    pub(crate) fn is_of(&self, trace: &FlowTrace<'_>) -> bool {
        let is_there = |stint: &ThreadSlice<_>| (stint.context as usize) < trace.threads.len();
        self.tracks.iter().all(|(track, stints)| *track < trace.tracks.len() && stints.iter().all(is_there))
    }

    /// The table of the whole.
    pub fn finish(
        self,
        experiment: &FlowTrace<'_>,
        analysis: &dyn AnyAnalysis,
        selection: &Selection,
    ) -> Table {
        let threads = Threads::default();
        let merge = |earlier, later| analysis.merge(earlier, later, &threads);
        let (contexts, partials): (Vec<u32>, Vec<AnyPartial>) =
            by_thread(experiment, self.tracks, merge).into_iter().unzip();
        let thread = |&context: &u32| {
            let thread = experiment.threads.get(context as usize);
            thread.map_or((0, 0), |thread| (thread.pid, thread.tid))
        };
        let flow_threads: Vec<(u32, u32)> = contexts.iter().map(thread).collect();
        let of = FinishContext::without_events(selection, &threads, &experiment.modules);
        analysis.finish(partials, &FinishContext { flow_threads: &flow_threads, ..of })
    }

    /// The partial as bytes.
    pub fn pack(&self, analysis: &dyn AnyAnalysis) -> PackedFlow {
        let stint = |stint: &ThreadSlice<AnyPartial>| {
            (stint.context, stint.since.map(|since| since.0), analysis.pack(&stint.partial))
        };
        let track = |(&track, stints): (&usize, &Vec<_>)| (track, stints.iter().map(stint).collect());
        PackedFlow(self.tracks.iter().map(track).collect())
    }

    /// The partial that bytes stand for; `None` where they are none of the analysis.
    pub fn unpack(packed: PackedFlow, analysis: &dyn AnyAnalysis) -> Option<FlowPartial> {
        let stint = |(context, since, bytes): PackedStint| {
            Some(ThreadSlice { context, since: since.map(Tsc), partial: analysis.unpack(&bytes)? })
        };
        let track = |(track, stints): (usize, Vec<_>)| {
            Some((track, stints.into_iter().map(stint).collect::<Option<Vec<_>>>()?))
        };
        Some(FlowPartial { tracks: packed.0.into_iter().map(track).collect::<Option<_>>()? })
    }
}
