//! Folds analyses over the chunks of a trace.

use std::collections::BTreeMap;

use hodo_clock::{Nanos, Tsc};
use hodo_model::{
    FastFlow, FinishContext, FlowEvent, FunctionRun, Item, Numbering, Run, Selection, Start, Table,
    kernel::Threads,
};

use crate::{
    flow::{
        event_sink::FlowEventSink,
        segments::{decode_chunks, in_one_piece},
        selection_filter::SelectionFilter,
        stream::Chunk,
        trace::Trace,
    },
    losses::Losses,
    reading::Reading,
};

/// A part of a thread's execution on one stream.
pub(crate) struct ThreadSlice<P> {
    pub(crate) context: u32,
    /// Tick at which it began, if known.
    pub(crate) since: Option<Tsc>,
    pub(crate) partial: P,
}

/// Partials of some chunks: for each stream, its thread slices in order.
pub(crate) type StreamSlices<P> = BTreeMap<usize, Vec<ThreadSlice<P>>>;

/// Folds an analysis over all streams. `progress` gets the number of decoded bytes and returns whether to continue.
pub fn profile<A: FastFlow>(
    trace: &Trace<'_>,
    analysis: &A,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> Table {
    let (threads, losses) = fold(trace, analysis, reading, progress);
    let (selection, known) = (Selection::default(), Threads::default());
    let whole = FinishContext::without_events(&selection, &known, &trace.modules);
    analysis.finish(threads, &whole).with_loss(losses.into_list())
}

/// Returns the input of [`profile`]'s table: the state of each thread, and the losses.
pub(crate) fn fold<A: FastFlow>(
    trace: &Trace<'_>,
    analysis: &A,
    reading: Reading<'_>,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> (Vec<A::Partial>, Losses) {
    let chunks = trace.chunks(reading);
    let (streams, losses) = fold_chunks(trace, analysis, &chunks, reading, &mut progress);
    let merge = |earlier, later| analysis.merge(earlier, later, &Threads::default());
    (by_thread(trace, streams, merge).into_iter().map(|(_, partial)| partial).collect(), losses)
}

/// Folds some chunks. `progress` is an object, as each copy of this function contains a decoder.
pub(crate) fn fold_chunks<A: FastFlow>(
    trace: &Trace<'_>,
    analysis: &A,
    chunks: &[Chunk],
    reading: Reading<'_>,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> (StreamSlices<A::Partial>, Losses) {
    let mut streams = StreamSlices::new();
    let losses = decode_chunks(
        trace,
        chunks,
        reading,
        |chunk, memory| {
            let folder = Folder { analysis, slices: Vec::new(), memory, threads_stay: trace.threads_stay };
            FlowEventSink::new(folder, SelectionFilter::new(trace, chunk, reading))
        },
        in_one_piece,
        |sink| sink.into_inner().finish(),
        |chunk, slices| {
            let merge = |earlier, later| analysis.merge(earlier, later, &Threads::default());
            join(streams.entry(chunk.stream).or_default(), slices, trace.threads_stay, merge);
            true
        },
        progress,
    );
    (streams, losses)
}

/// Appends the thread slices of a chunk to those of its stream. If each thread runs on one stream only, slices of a thread are
/// merged at once: a CPU switches hundreds of thousands of times between few threads.
pub(crate) fn join<P>(
    own: &mut Vec<ThreadSlice<P>>,
    slices: Vec<ThreadSlice<P>>,
    threads_stay: bool,
    merge: impl Fn(P, P) -> P,
) {
    for slice in slices {
        let searched = if threads_stay { own.len() } else { 1 };
        let place = own.iter().rev().take(searched).position(|before| before.context == slice.context);
        let merged = match place {
            // The threads that ran last are at the end.
            Some(place) => {
                let before = own.remove(own.len() - 1 - place);
                let partial = merge(before.partial, slice.partial);
                ThreadSlice { partial, since: before.since.or(slice.since), ..before }
            }
            None => slice,
        };
        own.push(merged);
    }
}

/// Merges the states of each thread over all streams that it ran on. Returns each with the thread's context.
pub(crate) fn by_thread<P>(
    trace: &Trace<'_>,
    streams: StreamSlices<P>,
    merge: impl Fn(P, P) -> P,
) -> Vec<(u32, P)> {
    let mut threads: BTreeMap<u32, Vec<ThreadSlice<P>>> = BTreeMap::new();
    for slice in streams.into_values().flatten().filter(|slice| trace.wants(slice.context)) {
        threads.entry(slice.context).or_default().push(slice);
    }
    let mut list: Vec<_> = threads.into_iter().collect();
    list.sort_by_key(|&(context, _)| trace.threads.get(context as usize).copied());
    let whole = |(context, mut slices): (u32, Vec<ThreadSlice<P>>)| {
        slices.sort_by_key(|slice| slice.since);
        let partials = slices.into_iter().map(|slice| slice.partial);
        (context, partials.reduce(&merge).expect("a thread has a slice"))
    };
    list.into_iter().map(whole).collect()
}

/// Receives the events of threads.
pub(crate) trait ThreadSink {
    /// Receives an event of the thread with this context.
    fn take(&mut self, context: u32, event: FlowEvent<'_>);

    /// Whether the sink accepts function runs, joined as far as they are of one function, in place of blocks.
    const TAKES_FUNCTION_RUNS: bool;

    /// Receives function runs of the current thread, whose functions are numbered by `functions` (0 is none), and then
    /// the time, if any.
    fn take_function_runs(
        &mut self,
        functions: &impl Numbering,
        function_runs: &[FunctionRun],
        until: Option<Nanos>,
    );

    /// Returns whether the sink accepts paths in place of runs.
    fn takes_paths(&self) -> bool {
        true
    }

    /// Returns a number that determines what runs do to the sink; `None` if it needs the runs themselves.
    fn state(&mut self) -> Option<u32>;

    /// Learns a path from a state: returns its number and the state after it.
    fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)>;

    /// Learns a path that is two learned ones; returns its number. `None` if the sink takes them one by one.
    fn join(&mut self, _first: u32, _second: u32) -> Option<u32> {
        None
    }

    /// Receives a learned path of the thread with this context.
    fn take_path(&mut self, context: u32, path: u32);

    /// Sets the state after paths.
    fn resume(&mut self, _state: u32) {}

    /// Invalidates all numbers of paths and states so far.
    fn forget(&mut self);

    /// Switches to the thread with this context, at this tick if known.
    fn switch(&mut self, _context: u32, _since: Option<Tsc>) {}
}

/// Folds the events of threads into thread slices of an analysis.
struct Folder<'a, A: FastFlow> {
    analysis: &'a A,
    slices: Vec<ThreadSlice<A::Partial>>,
    /// The memoized paths, except while a thread slice borrows them.
    memory: A::Memory,
    /// Whether each thread runs on one stream only.
    threads_stay: bool,
}

impl<A: FastFlow> Folder<'_, A> {
    /// Lends the memoized paths to the last thread slice, or takes them back.
    fn exchange(&mut self) {
        if let Some(slice) = self.slices.last_mut() {
            self.analysis.exchange(&mut slice.partial, &mut self.memory);
        }
    }

    /// Merges the last thread slice with the one of the same thread before it, if there is one and the thread was nowhere else.
    fn join_last(&mut self) {
        if self.threads_stay
            && let Some(last) = self.slices.pop()
        {
            let merge = |earlier, later| self.analysis.merge(earlier, later, &Threads::default());
            join(&mut self.slices, vec![last], self.threads_stay, merge);
        }
    }

    fn finish(mut self) -> (Vec<ThreadSlice<A::Partial>>, A::Memory) {
        self.exchange();
        self.join_last();
        (self.slices, self.memory)
    }
}

impl<A: FastFlow> ThreadSink for Folder<'_, A> {
    #[inline(always)]
    fn take(&mut self, _: u32, event: FlowEvent<'_>) {
        if let Some(slice) = self.slices.last_mut() {
            self.analysis.fold(&mut slice.partial, Item::Flow(event));
        }
    }

    const TAKES_FUNCTION_RUNS: bool = A::TAKES_FUNCTION_RUNS;

    #[inline]
    fn take_function_runs(
        &mut self,
        functions: &impl Numbering,
        function_runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        if let Some(slice) = self.slices.last_mut() {
            self.analysis.fold_function_runs(&mut slice.partial, functions, function_runs, until);
        }
    }

    fn state(&mut self) -> Option<u32> {
        self.analysis.state(&mut self.slices.last_mut()?.partial)
    }

    fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.analysis.learn(&mut self.slices.last_mut()?.partial, state, runs)
    }

    fn join(&mut self, first: u32, second: u32) -> Option<u32> {
        self.analysis.join(&mut self.slices.last_mut()?.partial, first, second)
    }

    #[inline]
    fn take_path(&mut self, _: u32, path: u32) {
        if let Some(slice) = self.slices.last_mut() {
            self.analysis.fold_path(&mut slice.partial, path);
        }
    }

    fn resume(&mut self, state: u32) {
        if let Some(slice) = self.slices.last_mut() {
            self.analysis.resume(&mut slice.partial, state);
        }
    }

    fn forget(&mut self) {
        self.exchange();
        self.memory = A::Memory::default();
        self.exchange();
    }

    fn switch(&mut self, context: u32, since: Option<Tsc>) {
        match self.slices.last_mut() {
            Some(slice) if slice.context == context => slice.since = slice.since.or(since),
            _ => {
                self.exchange();
                self.join_last();
                self.slices.push(ThreadSlice {
                    context,
                    since,
                    partial: self.analysis.begin(&Start::default()),
                });
                self.exchange();
            }
        }
    }
}
