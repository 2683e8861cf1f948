//! Filters the flow of a trace stream by threads, times and calls.

use std::{collections::BTreeMap, ops::Range};

use hodo_analyses::threads::PathLengths;
use hodo_clock::Tsc;
use hodo_code::{Graph, Labels};
use hodo_flow::{Event, Executed, Sink, Step};
use hodo_model::FunctionRun;

use crate::{
    flow::{
        event::run,
        segments::{StreamSink, decode_all},
        stream::Chunk,
        trace::Trace,
    },
    reading::{Chunks, Reading, Window},
};

/// A part of a thread's execution on one stream, within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedSlice {
    pub(crate) context: u32,
    /// Its first known tick.
    pub(crate) since: Option<Tsc>,
    /// Number of instructions in it.
    pub(crate) instructions: u64,
}

/// For each thread slice of each chunk, the number of its first instruction in its thread, counted from 0 as far as
/// flow is known.
///
/// Numbers depend only on the recording, so a selection by number doesn't depend on chunks.
#[derive(Debug)]
pub struct Numbers {
    /// By the index of the chunk.
    chunks: Vec<Vec<u64>>,
    /// By the index of the chunk, its only thread slice; `None` if it has several, or may have.
    whole: Vec<Option<WholeChunk>>,
    /// The settings that determine the chunks for which the numbers hold: their size and the number of threads.
    cut: (Chunks, usize),
}

/// The instructions of a chunk in which one thread ran.
#[derive(Clone, Debug)]
struct WholeChunk {
    context: u32,
    /// Their numbers in the thread.
    instructions: Range<u64>,
}

/// Numbers instructions as the calls of threads arrive in order.
pub(crate) struct Numberer {
    numbers: Numbers,
    /// By the index of the chunk, whether its stream is that of a thread.
    is_of_thread: Vec<bool>,
}

impl Numberer {
    pub(crate) fn new(trace: &Trace<'_>, reading: Reading<'_>) -> Numberer {
        let chunks = trace.chunks(reading);
        let is_of_thread = |chunk: &Chunk| trace.streams[chunk.stream].thread.is_some();
        Numberer {
            is_of_thread: chunks.iter().map(is_of_thread).collect(),
            numbers: Numbers {
                whole: vec![None; chunks.len()],
                chunks: vec![Vec::new(); chunks.len()],
                cut: (reading.chunks, reading.threads),
            },
        }
    }

    /// Adds a part of a thread slice: the index of its chunk, that of the slice in the chunk, its context, and the numbers of its
    /// instructions.
    pub(crate) fn add(&mut self, chunk: usize, slice: usize, context: u32, instructions: Range<u64>) {
        let starts = &mut self.numbers.chunks[chunk];
        if starts.len() > slice {
            if let Some(whole) = &mut self.numbers.whole[chunk] {
                whole.instructions.end = instructions.end;
            }
            return;
        }
        // Nothing ran in slices before it that are left out.
        starts.resize(slice + 1, instructions.start);
        let is_only = slice == 0 && self.is_of_thread[chunk];
        self.numbers.whole[chunk] = is_only.then_some(WholeChunk { context, instructions });
    }

    pub(crate) fn finish(self) -> Numbers {
        self.numbers
    }
}

/// How much of a chunk is selected by spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkSelection {
    /// It has to be found by decoding.
    Unknown,
    /// Nothing. The chunk has this number of instructions.
    Nothing { instructions: u64 },
    /// A part of it.
    Part,
    /// All of it is in one span.
    All,
}

impl Numbers {
    /// Returns how much of a chunk spans select.
    pub(crate) fn selected(&self, chunk: usize, spans: &Spans) -> ChunkSelection {
        let Some(Some(WholeChunk { context, instructions })) = self.whole.get(chunk) else {
            return ChunkSelection::Unknown;
        };
        let spans = spans.by_context.get(context).map_or(&[][..], Vec::as_slice);
        let next = spans.partition_point(|span| span.end <= instructions.start);
        match spans.get(next) {
            _ if instructions.is_empty() => ChunkSelection::Unknown,
            Some(span) if span.start <= instructions.start && instructions.end <= span.end => {
                ChunkSelection::All
            }
            Some(span) if span.start < instructions.end => ChunkSelection::Part,
            _ => ChunkSelection::Nothing { instructions: instructions.end - instructions.start },
        }
    }
}

/// Spans of threads' execution, as numbers of instructions, by context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    pub(crate) by_context: BTreeMap<u32, Vec<Range<u64>>>,
}

impl Spans {
    /// Returns the number of spans.
    pub fn len(&self) -> usize {
        self.by_context.values().map(Vec::len).sum()
    }

    /// Returns whether there are no spans.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the intersection with other spans.
    pub(crate) fn within(&self, other: &Spans) -> Spans {
        let mut both = Spans::default();
        for (context, spans) in &self.by_context {
            let mut outer = other.by_context.get(context).into_iter().flatten().peekable();
            let mut parts = Vec::new();
            for span in spans {
                while outer.next_if(|outer| outer.end <= span.start).is_some() {}
                let mut next = outer.clone();
                while let Some(outer) = next.next_if(|outer| outer.start < span.end) {
                    parts.push(span.start.max(outer.start)..span.end.min(outer.end));
                }
            }
            both.by_context.insert(*context, parts);
        }
        both
    }
}

/// Numbers the instructions of each thread, in a decoding pass. `progress` gets the number of decoded bytes and returns
/// whether to continue.
pub fn numbers(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Numbers {
    all_numbers(trace, reading, &mut progress)
}

/// As [`numbers`]. Compiled once for all callers, because it contains a decoder.
fn all_numbers(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Numbers {
    let reading = Reading { window: Window::ALL, numbers: None, spans: None, ..reading };
    /// A thread slice, the index of its chunk, and its index in the chunk.
    struct IndexedSlice {
        chunk: usize,
        index: usize,
        slice: CountedSlice,
    }
    let mut slices: Vec<IndexedSlice> = Vec::new();
    let (mut lengths, mut is_of_thread) = (Vec::new(), Vec::new());
    decode_all(
        trace,
        reading,
        |chunk, paths| Counter { filter: SelectionFilter::new(trace, chunk, reading), paths },
        |counter| (counter.filter.slices, counter.paths),
        |chunk, of_chunk| {
            // On the stream of a CPU slices are in order of their times, which decoding finds.
            is_of_thread.push(trace.streams[chunk.stream].thread.is_some());
            lengths.push(of_chunk.len());
            let chunk = lengths.len() - 1;
            let indexed = of_chunk.into_iter().enumerate();
            slices.extend(indexed.map(|(index, slice)| IndexedSlice { chunk, index, slice }));
            true
        },
        progress,
    );
    // A thread may migrate between CPUs. The sort is stable, so slices without a time keep their place.
    slices.sort_by_key(|indexed| indexed.slice.since);
    let mut chunks: Vec<Vec<u64>> = lengths.into_iter().map(|length| vec![0; length]).collect();
    let mut whole = vec![None; chunks.len()];
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for IndexedSlice { chunk, index, slice } in slices {
        let number = next.entry(slice.context).or_default();
        chunks[chunk][index] = *number;
        let instructions = *number..*number + slice.instructions;
        *number = instructions.end;
        if chunks[chunk].len() == 1 && is_of_thread[chunk] {
            whole[chunk] = Some(WholeChunk { context: slice.context, instructions });
        }
    }
    Numbers { chunks, whole, cut: (reading.chunks, reading.threads) }
}

/// Counts the instructions of thread slices.
struct Counter<'x, 'f> {
    filter: SelectionFilter<'x, 'f>,
    paths: PathLengths,
}

impl StreamSink for Counter<'_, '_> {
    fn begin_segment(&mut self) {
        self.filter.begin_segment();
    }
}

impl Sink for Counter<'_, '_> {
    #[inline]
    fn executed(&mut self, executed: Executed<'_>) {
        self.filter.ran(executed.lengths.len() as u64);
    }

    fn takes_function_runs(&self) -> bool {
        true
    }

    #[inline]
    fn function_runs<L: Labels>(&mut self, runs: &[FunctionRun], _: &Graph<'_, L>, until: Option<Tsc>) {
        self.filter.ran(FunctionRun::instructions(runs));
        if let Some(until) = until {
            self.filter.time(until);
        }
    }

    fn takes_paths(&self) -> bool {
        true
    }

    fn state(&mut self) -> Option<u32> {
        Some(PathLengths::STATE)
    }

    fn learn<L: Labels>(&mut self, _: u32, steps: &[Step], _: &Graph<'_, L>) -> Option<(u32, u32)> {
        Some((self.paths.learn(steps.iter().map(run)), PathLengths::STATE))
    }

    fn join(&mut self, first: u32, second: u32) -> Option<u32> {
        Some(self.paths.join(first, second))
    }

    #[inline]
    fn path(&mut self, path: u32) {
        self.filter.ran(self.paths.of(path));
    }

    fn forget(&mut self) {
        self.paths = PathLengths::default();
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => self.filter.time(now),
            Event::Switch(context) => self.filter.switch(context),
            _ => {}
        }
    }
}

/// Follows the threads and the clock of a stream, and decides what is selected.
pub struct SelectionFilter<'x, 'f> {
    /// The trace.
    pub trace: &'x Trace<'f>,
    reading: Reading<'x>,
    /// The context at the start of each segment.
    first: u32,
    /// The context of the current thread: its index in the trace's threads.
    pub context: u32,
    /// Whether the current thread is selected.
    pub wanted: bool,
    /// The last timestamp in this segment.
    pub now: Option<Tsc>,
    /// Whether that timestamp is in the window.
    pub open: bool,
    /// The thread slices so far, the current one last.
    slices: Vec<CountedSlice>,
    /// Numbers of the first instructions of this chunk's thread slices, if known.
    starts: &'x [u64],
    /// Selected spans of the thread, without those already passed.
    spans: Option<&'x [Range<u64>]>,
    /// Whether the whole chunk is in a selected span.
    is_whole: bool,
}

impl<'x, 'f> SelectionFilter<'x, 'f> {
    /// Begins before the first segment of a chunk.
    pub fn new(trace: &'x Trace<'f>, chunk: &Chunk, reading: Reading<'x>) -> SelectionFilter<'x, 'f> {
        let first = trace.streams[chunk.stream].schedule[0].context;
        let starts = reading.numbers.map_or(&[][..], |numbers| {
            assert_eq!(numbers.cut, (reading.chunks, reading.threads), "numbers are of other chunks");
            numbers.chunks.get(chunk.index).map_or(&[][..], Vec::as_slice)
        });
        let mut filter = SelectionFilter {
            trace,
            reading,
            first,
            context: first,
            wanted: false,
            now: None,
            open: reading.window.is_all(),
            slices: Vec::new(),
            starts,
            spans: None,
            is_whole: reading.selects(chunk.index) == ChunkSelection::All,
        };
        filter.switch(first);
        filter
    }

    /// Begins a segment, with unknown time and the first thread.
    pub fn begin_segment(&mut self) {
        self.now = None;
        self.open = self.reading.window.is_all();
        self.switch(self.first);
    }

    /// Switches to the thread with this context.
    pub fn switch(&mut self, context: u32) {
        if !self.slices.is_empty() && self.context == context {
            return;
        }
        self.context = context;
        self.wanted = self.trace.wants(context);
        self.slices.push(CountedSlice { context, since: self.now, instructions: 0 });
        let spans = |spans: &'x Spans| spans.by_context.get(&context).map_or(&[][..], Vec::as_slice);
        self.spans = self.reading.spans.filter(|_| !self.is_whole).map(spans);
    }

    /// Advances the clock to `now`.
    #[inline]
    pub fn time(&mut self, now: Tsc) {
        self.now = Some(now);
        self.open = self.reading.window.contains(now);
        let slice = self.slice();
        slice.since = slice.since.or(Some(now));
    }

    /// Returns whether only a time window is selected.
    pub fn is_part(&self) -> bool {
        !self.reading.window.is_all()
    }

    /// Returns whether an event at `now` is in the window.
    #[inline]
    pub fn wants(&self, now: Tsc) -> bool {
        self.reading.window.contains(now)
    }

    /// Returns whether the numbers of instructions are needed.
    #[inline]
    pub fn numbers_instructions(&self) -> bool {
        !self.is_whole && (self.reading.spans.is_some() || self.reading.numbers.is_some())
    }

    #[inline]
    fn slice(&mut self) -> &mut CountedSlice {
        self.slices.last_mut().expect("a new filter begins a slice")
    }

    /// Returns the number of the next instruction in its thread, if known.
    pub fn number(&self) -> Option<u64> {
        let slice = self.slices.len() - 1;
        self.starts.get(slice).map(|start| start + self.slices[slice].instructions)
    }

    /// Counts executed instructions, selected or not. Returns whether they are in a selected span.
    #[inline]
    pub fn ran(&mut self, instructions: u64) -> bool {
        let inside = self.spans.is_none() || self.is_in_span();
        self.slice().instructions += instructions;
        inside
    }

    fn is_in_span(&mut self) -> bool {
        let (Some(number), Some(spans)) = (self.number(), self.spans) else { return false };
        let passed = spans.iter().take_while(|span| span.end <= number).count();
        self.spans = Some(&spans[passed..]);
        spans.get(passed).is_some_and(|span| span.start <= number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_selected_by_the_numbers_of_its_instructions() {
        let chunk = |instructions| Some(WholeChunk { context: 1, instructions });
        let whole = vec![chunk(0..10), chunk(10..20), chunk(20..30), chunk(30..30), None];
        let numbers = Numbers { chunks: Vec::new(), whole, cut: (Chunks::Default, 1) };
        let spans = Spans { by_context: BTreeMap::from([(1, vec![0..5, 8..20, 29..31])]) };
        let selected: Vec<_> = (0..5).map(|chunk| numbers.selected(chunk, &spans)).collect();
        let (part, unknown) = (ChunkSelection::Part, ChunkSelection::Unknown);
        assert_eq!(selected, [part, ChunkSelection::All, part, unknown, unknown]);
        let nothing = ChunkSelection::Nothing { instructions: 10 };
        let before = Spans { by_context: BTreeMap::from([(1, vec![0..5, 8..20])]) };
        assert_eq!(numbers.selected(2, &before), nothing);
        assert_eq!(numbers.selected(1, &Spans::default()), nothing);
    }

    #[test]
    fn spans_within_others_are_what_both_have() {
        let spans = |spans: &[Range<u64>]| Spans { by_context: BTreeMap::from([(1, spans.to_vec())]) };
        let calls = spans(&[0..10, 10..20, 25..40]);
        assert_eq!(calls.within(&spans(&[5..12, 13..14, 30..50])), spans(&[5..10, 10..12, 13..14, 30..40]));
        assert_eq!(calls.within(&Spans::default()), spans(&[]));
    }
}
