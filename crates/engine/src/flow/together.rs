//! Analyses that are folded side by side, so that the trace is decoded once for all of them.

use hodo_analyses::{
    latency,
    profile::{Profile, ProfileReport},
    threads,
};
use hodo_clock::Nanos;
use hodo_model::{
    Analysis, AnyPartial, FastFlow, FinishContext, FlowInterest, FunctionRun, Interest, Item, Numbering, Run,
    Start, Table, kernel::Threads,
};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};

use crate::{
    flow::{
        fold::{StreamSlices, ThreadSlice, fold_chunks},
        passes::Progress,
        stream::Chunk,
        trace::Trace,
    },
    losses::Losses,
    reading::Reading,
    registry::AnyFlow,
};

/// Two analyses of runs whose paths are memoized.
#[derive(Clone, Debug)]
struct Pair<A, B>(A, B);

/// The partials of a [`Pair`].
#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "A: Serialize, B: Serialize"))]
#[serde(bound(deserialize = "A: Deserialize<'de>, B: Deserialize<'de>"))]
struct PairPartial<A, B> {
    first: A,
    second: B,
    #[serde(skip)]
    paths: PairPaths,
}

/// The states and the paths of both analyses.
#[derive(Debug, Default)]
struct PairPaths {
    states: IndexSet<[u32; 2], FxBuildHasher>,
    paths: Vec<[u32; 2]>,
}

impl PairPaths {
    fn number(&mut self, states: [u32; 2]) -> u32 {
        self.states.insert_full(states).0 as u32
    }

    fn push(&mut self, paths: [u32; 2]) -> u32 {
        self.paths.push(paths);
        self.paths.len() as u32 - 1
    }
}

/// The memoized paths of both analyses, and the pairs of them.
#[derive(Default)]
struct PairMemory<A, B> {
    first: A,
    second: B,
    paths: PairPaths,
}

impl<A: FastFlow, B: FastFlow> Analysis for Pair<A, B> {
    type Partial = PairPartial<A::Partial, B::Partial>;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, start: &Start<'_>) -> Self::Partial {
        let (first, second) = (self.0.begin(start), self.1.begin(start));
        PairPartial { first, second, paths: PairPaths::default() }
    }

    #[inline]
    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>) {
        self.0.fold(&mut partial.first, item);
        self.1.fold(&mut partial.second, item);
    }

    fn merge(&self, earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial {
        let first = self.0.merge(earlier.first, later.first, threads);
        let second = self.1.merge(earlier.second, later.second, threads);
        PairPartial { first, second, paths: earlier.paths }
    }

    /// Makes the table of the first.
    fn finish(&self, partials: Vec<Self::Partial>, context: &FinishContext<'_>) -> Table {
        self.0.finish(partials.into_iter().map(|partial| partial.first).collect(), context)
    }
}

impl<A: FastFlow, B: FastFlow> FastFlow for Pair<A, B> {
    type Memory = PairMemory<A::Memory, B::Memory>;

    const TAKES_FUNCTION_RUNS: bool = A::TAKES_FUNCTION_RUNS && B::TAKES_FUNCTION_RUNS;

    #[inline]
    fn fold_function_runs(
        &self,
        partial: &mut Self::Partial,
        functions: &impl Numbering,
        runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        self.0.fold_function_runs(&mut partial.first, functions, runs, until);
        self.1.fold_function_runs(&mut partial.second, functions, runs, until);
    }

    fn exchange(&self, partial: &mut Self::Partial, memory: &mut Self::Memory) {
        self.0.exchange(&mut partial.first, &mut memory.first);
        self.1.exchange(&mut partial.second, &mut memory.second);
        std::mem::swap(&mut partial.paths, &mut memory.paths);
    }

    fn state(&self, partial: &mut Self::Partial) -> Option<u32> {
        // A call tree notes the state from which paths continue, so it is asked when the others have agreed.
        let second = self.1.state(&mut partial.second)?;
        let first = self.0.state(&mut partial.first)?;
        Some(partial.paths.number([first, second]))
    }

    fn learn(
        &self,
        partial: &mut Self::Partial,
        state: u32,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        let runs: Vec<Run> = runs.collect();
        let [first, second] = partial.paths.states[state as usize];
        let (first, after_first) = self.0.learn(&mut partial.first, first, runs.iter().copied())?;
        let (second, after_second) = self.1.learn(&mut partial.second, second, runs.into_iter())?;
        let path = partial.paths.push([first, second]);
        Some((path, partial.paths.number([after_first, after_second])))
    }

    fn join(&self, partial: &mut Self::Partial, first: u32, second: u32) -> Option<u32> {
        let [[first_a, first_b], [second_a, second_b]] =
            [first, second].map(|path| partial.paths.paths[path as usize]);
        let joined_a = self.0.join(&mut partial.first, first_a, second_a)?;
        let joined_b = self.1.join(&mut partial.second, first_b, second_b)?;
        Some(partial.paths.push([joined_a, joined_b]))
    }

    #[inline]
    fn fold_path(&self, partial: &mut Self::Partial, path: u32) {
        let [first, second] = partial.paths.paths[path as usize];
        self.0.fold_path(&mut partial.first, first);
        self.1.fold_path(&mut partial.second, second);
    }

    fn resume(&self, partial: &mut Self::Partial, state: u32) {
        let [first, second] = partial.paths.states[state as usize];
        self.0.resume(&mut partial.first, first);
        self.1.resume(&mut partial.second, second);
    }
}

/// Thread slices of an analysis whose type is erased.
type AnyStreams = StreamSlices<AnyPartial>;

/// Splits the partials of a pair.
fn split<A, B>(streams: StreamSlices<PairPartial<A, B>>) -> (StreamSlices<A>, StreamSlices<B>) {
    let (mut first_streams, mut second_streams) = (StreamSlices::new(), StreamSlices::new());
    for (stream, slices) in streams {
        let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
        for ThreadSlice { context, since, partial } in slices {
            firsts.push(ThreadSlice { context, since, partial: partial.first });
            seconds.push(ThreadSlice { context, since, partial: partial.second });
        }
        first_streams.insert(stream, firsts);
        second_streams.insert(stream, seconds);
    }
    (first_streams, second_streams)
}

fn erased<P: Send + Sync + 'static>(streams: StreamSlices<P>) -> AnyStreams {
    let any = |ThreadSlice { context, since, partial }: ThreadSlice<P>| ThreadSlice {
        context,
        since,
        partial: Box::new(partial) as AnyPartial,
    };
    streams.into_iter().map(|(stream, slices)| (stream, slices.into_iter().map(any).collect())).collect()
}

/// The analyses that `hodo explain` reads of each recording: where they are in a list.
pub(crate) struct Overview {
    tree: usize,
    threads: usize,
    executions: usize,
}

impl Overview {
    /// Number of its analyses.
    pub(crate) const ANALYSES: u64 = 3;

    /// Finds the analyses in a list; `None` unless all are there.
    pub(crate) fn of<'a>(analyses: impl Iterator<Item = &'a dyn AnyFlow> + Clone) -> Option<Overview> {
        let position = |is: fn(&dyn AnyFlow) -> bool| analyses.clone().position(is);
        Some(Overview {
            tree: position(|analysis| {
                let profile = analysis.as_any().downcast_ref::<Profile>();
                profile.is_some_and(|own| own.every.is_none() && own.report == ProfileReport::Tree)
            })?,
            threads: position(|analysis| analysis.as_any().is::<threads::Instructions>())?,
            executions: position(|analysis| {
                let executions = analysis.as_any().downcast_ref::<latency::Executions>();
                executions.is_some_and(latency::Executions::takes_paths)
            })?,
        })
    }

    /// Returns whether it contains the analysis at this place of the list.
    pub(crate) fn contains(&self, index: usize) -> bool {
        [self.tree, self.threads, self.executions].contains(&index)
    }

    /// Folds its analyses in one pass; returns the state of each with its place in the list.
    pub(crate) fn fold(
        &self,
        trace: &Trace<'_>,
        chunks: &[Chunk],
        reading: Reading<'_>,
        progress: Progress<'_>,
    ) -> (Vec<(usize, AnyStreams)>, Losses) {
        let tree = Profile { every: None, report: ProfileReport::Tree };
        let counts = Pair(threads::Instructions, latency::Executions::untimed());
        let (streams, losses) = fold_chunks(trace, &Pair(tree, counts), chunks, reading, progress);
        let (tree, counts) = split(streams);
        let (threads, executions) = split(counts);
        let all = vec![
            (self.tree, erased(tree)),
            (self.threads, erased(threads)),
            (self.executions, erased(executions)),
        ];
        (all, losses)
    }
}
