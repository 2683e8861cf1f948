//! Calls of threads, each thread in order of time over all CPUs.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Range, RangeInclusive},
    sync::{Mutex, PoisonError},
};

use hodo_analyses::{
    FrameEntry,
    calls::{CallPaths, ChunkCalls, Moment, OpenCalls, Spare, WantedCalls},
};
use hodo_clock::{Nanos, Tsc};
use hodo_model::{FlowEvent, FunctionId, FunctionRun, Names, Numbering, Run};

use crate::{
    flow::{
        event_sink::FlowEventSink,
        fold::ThreadSink,
        segments::decode_chunks,
        selection_filter::{Numberer, Numbers, SelectionFilter, Spans},
        stream::Chunk,
        trace::Trace,
    },
    losses::Losses,
    reading::{Chunks, Reading, Window},
    refusal::Refusal,
};

/// Calls of a thread without interruption, in a chunk or in a part of it.
#[derive(Debug)]
pub struct ThreadCalls {
    /// The index of the thread in the trace.
    pub context: u32,
    /// Where they are in the trace.
    pub slice: SliceId,
    /// The last timestamp so far in the slice.
    pub latest: Option<Nanos>,
    /// The calls.
    pub calls: ChunkCalls,
    since: Option<Tsc>,
    /// Whether it contains any event.
    has_events: bool,
}

/// The n-th slice of a chunk: what a thread executed on its stream without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SliceId {
    /// The index of the chunk.
    pub chunk: usize,
    /// The number of the slice in it.
    pub slice: u32,
}

impl ThreadCalls {
    fn saw(&mut self, event: &FlowEvent<'_>) {
        if let FlowEvent::Begin(Some(now)) | FlowEvent::Time(now) = *event {
            self.latest = self.latest.max(Some(now));
        }
    }
}

/// Buffers of consumed parts, for reuse.
#[derive(Default)]
struct Spares(Mutex<Vec<Spare>>);

impl Spares {
    /// Maximum number of buffers.
    const MOST: usize = 16;

    fn take(&self) -> Spare {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, spare: Spare) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < Spares::MOST {
            kept.push(spare);
        }
    }
}

/// Collects the calls in a chunk, for the thread that merges them in order.
struct Gathered<'s> {
    /// The index of the chunk.
    chunk: usize,
    /// Buffers of consumed parts.
    spares: &'s Spares,
    reported: &'s Reported,
    slices: Vec<ThreadCalls>,
    /// The memoized paths, except while a thread slice borrows them.
    paths: CallPaths,
}

impl Gathered<'_> {
    /// Size from which a part is handed over early: larger than most chunks, so that only exceptional ones wait until
    /// they are due.
    const EARLY_SIZE: usize = 1 << 16;

    /// Lends the memoized paths to the last thread slice, or takes them back.
    fn exchange(&mut self) {
        if let Some(slice) = self.slices.last_mut() {
            slice.calls.exchange(&mut self.paths);
        }
    }

    /// Returns the calls so far once they exceed [`Self::EARLY_SIZE`].
    #[inline]
    fn part(&mut self) -> Option<Vec<ThreadCalls>> {
        let [slice] = &mut self.slices[..] else { return None };
        let calls = slice.calls.take(Self::EARLY_SIZE, || self.spares.take())?;
        Some(vec![ThreadCalls { calls, ..*slice }])
    }

    fn finish(mut self) -> (Vec<ThreadCalls>, CallPaths) {
        self.exchange();
        (self.slices, self.paths)
    }
}

impl ThreadSink for Gathered<'_> {
    #[inline]
    fn take(&mut self, _: u32, event: FlowEvent<'_>) {
        if let Some(slice) = self.slices.last_mut() {
            slice.has_events = true;
            slice.saw(&event);
            slice.calls.fold(&event);
        }
    }

    const TAKES_FUNCTION_RUNS: bool = true;

    #[inline]
    fn take_function_runs(
        &mut self,
        functions: &impl Numbering,
        function_runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        if let Some(slice) = self.slices.last_mut() {
            slice.has_events = true;
            slice.latest = slice.latest.max(until);
            slice.calls.fold_function_runs(functions, function_runs, until);
        }
    }

    fn state(&mut self) -> Option<u32> {
        self.slices.last_mut()?.calls.state()
    }

    fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.slices.last_mut()?.calls.learn(state, runs)
    }

    fn join(&mut self, first: u32, second: u32) -> Option<u32> {
        Some(self.slices.last_mut()?.calls.join(first, second))
    }

    #[inline]
    fn take_path(&mut self, _: u32, path: u32) {
        if let Some(slice) = self.slices.last_mut() {
            slice.calls.fold_path(path);
        }
    }

    fn resume(&mut self, state: u32) {
        if let Some(slice) = self.slices.last_mut() {
            slice.calls.resume(state);
        }
    }

    fn forget(&mut self) {
        self.exchange();
        self.paths = CallPaths::default();
        self.exchange();
    }

    fn switch(&mut self, context: u32, since: Option<Tsc>) {
        match self.slices.last_mut() {
            Some(slice) if slice.context == context => slice.since = slice.since.or(since),
            _ => {
                self.exchange();
                let Reported { begins, wanted } = self.reported;
                let calls = ChunkCalls::unknown(*begins, self.spares.take()).only(wanted.clone());
                let slice = SliceId { chunk: self.chunk, slice: self.slices.len() as u32 };
                self.slices.push(ThreadCalls {
                    context,
                    slice,
                    latest: None,
                    calls,
                    since,
                    has_events: false,
                });
                self.exchange();
            }
        }
    }
}

/// Returns whether threads share streams, as in per-CPU recordings.
fn has_shared_streams(trace: &Trace<'_>) -> bool {
    trace.streams.iter().any(|stream| stream.thread.is_none())
}

/// What is reported of calls.
struct Reported {
    /// Whether to report where they begin.
    begins: bool,
    wanted: WantedCalls,
}

impl Reported {
    /// The begins and ends of all calls.
    const BEGINS: Reported = Reported { begins: true, wanted: WantedCalls::All };
}

/// Passes the calls of each thread to `consume` in order: stream by stream if each stream is of one thread, else the
/// thread slices of all CPUs in order of time. `consume` and `progress`
/// return whether to continue; they are objects, as each copy of this function would contain a decoder.
fn in_time(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    reported: &Reported,
    consume: &mut (dyn FnMut(ThreadCalls) -> (Spare, bool) + Send),
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Losses {
    let mut chunks = trace.chunks(reading);
    let mut starts = VecDeque::new();
    if has_shared_streams(trace) && trace.streams.len() > 1 {
        let mut timed: Vec<(Tsc, Chunk)> = with_starts(trace, chunks);
        timed.sort_by_key(|(start, chunk)| (*start, chunk.index));
        starts = timed.iter().map(|&(start, _)| start).skip(1).collect();
        chunks = timed.into_iter().map(|(_, chunk)| chunk).collect();
    }
    // A slice waits while later chunks may contain an earlier one. The number keeps slices without a time in place.
    let mut waiting: BTreeMap<(Option<Tsc>, u64), ThreadCalls> = BTreeMap::new();
    let (mut number, spares) = (0, Spares::default());
    let mut consume = |slice: ThreadCalls| {
        let (spare, keep_going) = consume(slice);
        spares.give(spare);
        keep_going
    };
    let shared = has_shared_streams(trace);
    decode_chunks(
        trace,
        &chunks,
        reading,
        |chunk, paths| {
            let (chunk_index, slices) = (chunk.index, Vec::new());
            let gathered = Gathered { chunk: chunk_index, spares: &spares, reported, slices, paths };
            FlowEventSink::new(gathered, SelectionFilter::new(trace, chunk, reading))
        },
        |sink| if shared { None } else { sink.thread_sink().part() },
        |sink| sink.into_inner().finish(),
        |_, slices| {
            let in_slices = slices.into_iter().filter(|slice| slice.has_events);
            if starts.is_empty() && waiting.is_empty() {
                return in_slices.into_iter().all(&mut consume);
            }
            for slice in in_slices {
                number += 1;
                waiting.insert((slice.since, number), slice);
            }
            let horizon = starts.pop_front();
            while let Some(entry) = waiting.first_entry() {
                if horizon.is_some_and(|horizon| entry.key().0 >= Some(horizon)) {
                    break;
                }
                if !consume(entry.remove()) {
                    return false;
                }
            }
            true
        },
        progress,
    )
}

/// Chunk size for ordered output: small enough that a chunk's result stays in the cache until it is consumed. A byte of
/// trace may become hundreds of bytes of text.
pub const CHUNKS_IN_ORDER: Chunks = Chunks::Bytes(1 << 14);

/// Receives the calls of threads.
pub trait CallSink {
    /// Returns whether to report where calls begin.
    fn begins(&self) -> bool;

    /// Returns which calls it wants. It may receive others.
    fn wanted(&self) -> WantedCalls {
        WantedCalls::All
    }

    /// Switches to the calls of the thread with this context.
    fn thread(&mut self, context: u32);

    /// Receives the begin or end of a call of the current thread.
    fn moment(&mut self, moment: Moment);

    /// Returns whether to continue.
    fn wants_more(&mut self) -> bool {
        true
    }
}

/// Reports the calls of all threads: thread by thread if each has its own stream, else in order of time. `progress`
/// gets the number of decoded bytes and returns whether to continue.
pub fn calls<S: CallSink + Send>(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    sink: &mut S,
    progress: impl FnMut(u64) -> bool + Send,
) -> Losses {
    numbered_calls(trace, reading, sink, progress).0
}

/// As [`calls`], and returns the numbers of the instructions, which are right if everything is selected.
pub(crate) fn numbered_calls<S: CallSink + Send>(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    sink: &mut S,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> (Losses, Numbers) {
    let mut numberer = Numberer::new(trace, reading);
    let mut threads: BTreeMap<u32, OpenCalls> = BTreeMap::new();
    let shared = has_shared_streams(trace);
    let losses = in_time(
        trace,
        reading,
        &Reported { begins: sink.begins(), wanted: sink.wanted() },
        &mut |ThreadCalls { context, calls: part, slice, .. }| {
            // A thread with its own stream ends with the stream.
            if !shared && !threads.contains_key(&context) {
                let before = std::mem::take(&mut threads);
                before.into_values().for_each(|calls| calls.end(&mut |moment| sink.moment(moment)));
            }
            sink.thread(context);
            let calls = threads.entry(context).or_default();
            let before = calls.instructions();
            let instructions = before..before + part.instructions();
            numberer.add(slice.chunk, slice.slice as usize, context, instructions);
            let spare = calls.follow(part, &mut |moment| sink.moment(moment));
            (spare, sink.wants_more())
        },
        &mut progress,
    );
    for (context, calls) in threads {
        if sink.wants_more() {
            sink.thread(context);
            calls.end(&mut |moment| sink.moment(moment));
        }
    }
    (losses, numberer.finish())
}

/// Passes the calls of each thread in order, chunk by chunk, to `consume`, which returns their buffer and whether to continue:
/// thread by thread if each has its own stream, else in order of time. Calls report where they begin. `progress` gets the number
/// of decoded bytes and returns whether to continue.
pub fn calls_by_chunk(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    mut consume: impl FnMut(ThreadCalls) -> (Spare, bool) + Send,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Losses {
    in_time(trace, reading, &Reported::BEGINS, &mut consume, &mut progress)
}

/// Returns the chunks, each with a lower bound for the times in it and in later chunks of its stream.
fn with_starts(trace: &Trace<'_>, chunks: Vec<Chunk>) -> Vec<(Tsc, Chunk)> {
    let (mut stream, mut start) = (usize::MAX, Tsc(0));
    let mut starts = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        if chunk.stream != stream {
            (stream, start) = (chunk.stream, Tsc(0));
        }
        let extent = &trace.streams[chunk.stream].extents[chunk.extent];
        let first = extent.find_segment_within(chunk.span.clone());
        let tsc = first.and_then(|offset| extent.tsc_at(offset));
        start = start.max(tsc.unwrap_or(start));
        starts.push((start, chunk));
    }
    starts
}

/// Selects calls of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NthCalls {
    /// The function.
    pub function: FunctionId,
    /// The numbers of its calls in each thread, counted from 1 in the order of their begins.
    pub numbers: RangeInclusive<u64>,
}

impl NthCalls {
    /// Explains that the trace contains none of these calls.
    pub fn never_made(&self, trace: &Trace<'_>) -> Refusal {
        let name = trace.modules.names(self.function).0;
        Refusal(match (*self.numbers.start(), *self.numbers.end()) {
            (1, u64::MAX) => format!("--call: {name} is never called in the recording"),
            (from, _) => format!(
                "--call: no thread calls {name} {from} times; leave out # to see how often it is called"
            ),
        })
    }
}

/// Finds when each thread executed the selected calls of a function: from the first instruction to the return, callees
/// included. `progress` gets the number of decoded bytes and returns whether to continue.
pub fn find_calls(
    trace: &Trace<'_>,
    calls: &NthCalls,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> Spans {
    find(trace, || Finder::new(calls.clone()), reading, progress)
}

/// Finds executions among the calls of a thread.
pub(crate) trait Find: Send {
    /// Receives the next begin or end of a call.
    fn moment(&mut self, moment: &Moment);

    /// Returns the executions as numbers of instructions, in any order.
    fn executions(self) -> Vec<Range<u64>>;
}

/// Finds executions of all threads, with a finder for each.
pub(crate) fn find<F: Find>(
    trace: &Trace<'_>,
    finder: impl Fn() -> F + Sync,
    reading: Reading<'_>,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Spans {
    let reading = Reading { window: Window::ALL, numbers: None, spans: None, ..reading };
    let mut threads: BTreeMap<u32, (OpenCalls, F)> = BTreeMap::new();
    let goes_on = true;
    in_time(
        trace,
        reading,
        &Reported::BEGINS,
        &mut |ThreadCalls { context, calls: part, .. }| {
            let (stack, finder) = threads.entry(context).or_insert_with(|| (OpenCalls::default(), finder()));
            (stack.follow(part, &mut |moment| finder.moment(&moment)), goes_on)
        },
        &mut progress,
    );
    let mut spans = Spans::default();
    for (context, (stack, mut finder)) in threads {
        stack.end(&mut |moment| finder.moment(&moment));
        let found = joined(finder.executions());
        if !found.is_empty() {
            spans.by_context.insert(context, found);
        }
    }
    spans
}

/// Counts the calls of a function by a thread.
struct Finder {
    calls: NthCalls,
    begun: u64,
    /// Numbers of the first instructions of the selected calls that have not ended.
    open: Vec<u64>,
    found: Vec<Range<u64>>,
}

impl Finder {
    fn new(calls: NthCalls) -> Finder {
        Finder { calls, begun: 0, open: Vec::new(), found: Vec::new() }
    }
}

impl Find for Finder {
    fn moment(&mut self, moment: &Moment) {
        match moment {
            // A function that is already running at the start of the trace or after a gap is not called there.
            Moment::Begin { function, entry, before, .. }
                if *function == self.calls.function && *entry != FrameEntry::Root =>
            {
                self.begun += 1;
                if self.calls.numbers.contains(&self.begun) {
                    self.open.push(*before);
                }
            }
            Moment::End { call }
                if call.function == self.calls.function
                    && self.open.pop_if(|before| *before == call.before).is_some() =>
            {
                self.found.push(call.before..call.before + call.instructions);
            }
            _ => {}
        }
    }

    fn executions(self) -> Vec<Range<u64>> {
        self.found
    }
}

/// Returns spans in order; those that overlap become one.
fn joined(mut spans: Vec<Range<u64>>) -> Vec<Range<u64>> {
    spans.sort_by_key(|span| span.start);
    spans.dedup_by(|next, before| {
        let overlap = next.start < before.end;
        if overlap {
            before.end = before.end.max(next.end);
        }
        overlap
    });
    spans
}
