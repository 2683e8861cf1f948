//! The index of a recording: the state of each thread where each chunk begins.

use std::collections::BTreeMap;

use hodo_analyses::{
    FrameEntry,
    calls::{Moment, OpenCalls, Spare},
    frames::{Checkpoints, Frame, LastStack, StackCheckpoint},
};
use hodo_clock::Nanos;
use hodo_engine::{CHUNKS_IN_ORDER, Chunk, Reading, SliceId, ThreadCalls, Trace, calls_by_chunk};
use hodo_model::FunctionId;
use rustc_hash::FxHashMap;

/// An execution of a function: a thread has no other with this begin and depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    /// The number of its first instruction.
    pub(crate) begin: u64,
    /// The number of frames below it.
    pub(crate) depth: u32,
}

impl From<&Frame> for CallId {
    fn from(frame: &Frame) -> CallId {
        CallId { begin: frame.begin, depth: frame.depth }
    }
}

/// What a thread executed in a chunk without interruption.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) id: SliceId,
    /// The call stack at its begin, and the number of its first instruction.
    pub(crate) checkpoint: StackCheckpoint,
    /// The last timestamp of the thread before it: no earlier instruction is later.
    pub(crate) before: Option<Nanos>,
    /// No instruction in it has fewer machine frames on its stack.
    pub(crate) least_frames: u32,
    /// No instruction in it has more.
    most_frames: u32,
    /// The call that executed all instructions with the least machine frames; `None` if several did.
    lowest: Option<CallId>,
    /// The functions that are executed in it, and maybe others, by their numbers in the index, sorted.
    functions: Box<[u32]>,
}

impl Slice {
    /// The number of its first instruction.
    pub(crate) fn begin(&self) -> u64 {
        self.checkpoint.instructions
    }

    /// Returns whether a function may be executed in it.
    pub(crate) fn has(&self, function: u32) -> bool {
        self.functions.binary_search(&function).is_ok()
    }

    /// Returns whether one call executed all of its instructions that have at most `most` machine frames on their stack.
    pub(crate) fn has_only(&self, call: CallId, most: u32) -> bool {
        self.lowest == Some(call) && (most <= self.least_frames || self.most_frames == self.least_frames)
    }
}

/// A place where flow is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GapAt {
    /// The number of the next instruction.
    pub(crate) number: u64,
    /// The slice in which it is.
    pub(crate) slice: SliceId,
}

/// The slices of a thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadIndex {
    /// In order of execution.
    pub(crate) slices: Vec<Slice>,
    pub(crate) by_id: FxHashMap<SliceId, usize>,
    /// In order of execution; several may have one number.
    pub(crate) gaps: Vec<GapAt>,
    /// The number of its instructions.
    pub(crate) instructions: u64,
    /// Its last timestamp.
    pub(crate) latest: Option<Nanos>,
}

impl ThreadIndex {
    /// The index of the slice that has an instruction.
    pub(crate) fn slice_of(&self, number: u64) -> usize {
        self.slices.partition_point(|slice| slice.begin() <= number) - 1
    }

    /// The number of the first instruction after a slice.
    pub(crate) fn end_of(&self, slice: usize) -> u64 {
        self.slices.get(slice + 1).map_or(self.instructions, Slice::begin)
    }

    /// Returns whether flow is missing directly before an instruction, or at the end.
    pub(crate) fn has_gap(&self, number: u64) -> bool {
        self.gaps_at(number).next().is_some()
    }

    /// The gaps directly before an instruction.
    pub(crate) fn gaps_at(&self, number: u64) -> impl Iterator<Item = &GapAt> {
        let first = self.gaps.partition_point(|gap| gap.number < number);
        self.gaps[first..].iter().take_while(move |gap| gap.number == number)
    }
}

/// The state of all threads at all chunks.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) threads: BTreeMap<u32, ThreadIndex>,
    pub(crate) checkpoints: Checkpoints,
    /// The numbers of functions.
    pub(crate) functions: FxHashMap<FunctionId, u32>,
}

impl Index {
    /// Reads the whole trace once, with `threads` threads. `progress` gets the number of bytes read and returns whether to
    /// continue; `None` if it doesn't.
    pub(crate) fn read(
        trace: &Trace<'_>,
        threads: usize,
        mut progress: impl FnMut(u64) -> bool + Send,
    ) -> Option<Index> {
        let reading = Reading::new(threads, CHUNKS_IN_ORDER);
        let mut builder = Builder {
            index: Index { chunks: trace.chunks(reading), ..Index::default() },
            open: BTreeMap::new(),
        };
        let mut wants_more = true;
        let goes_on = true;
        calls_by_chunk(
            trace,
            reading,
            |calls| (builder.add(calls), goes_on),
            |done| {
                wants_more = progress(done);
                wants_more
            },
        );
        wants_more.then(|| builder.finish())
    }
}

struct Builder {
    index: Index,
    open: BTreeMap<u32, OpenThread>,
}

/// A thread after the chunks so far.
#[derive(Default)]
struct OpenThread {
    calls: OpenCalls,
    last: LastStack,
    /// The open frames, the oldest first.
    frames: Vec<OpenFrame>,
    /// The slice that may get more parts.
    slice: Option<OpenSlice>,
    latest: Option<Nanos>,
}

#[derive(Clone, Copy)]
struct OpenFrame {
    machine_frames: u32,
    function: u32,
    call: CallId,
}

struct OpenSlice {
    id: SliceId,
    checkpoint: StackCheckpoint,
    before: Option<Nanos>,
    least_frames: u32,
    most_frames: u32,
    lowest: Option<CallId>,
    /// The functions so far, each at least once.
    functions: Vec<u32>,
}

impl OpenSlice {
    fn runs(&mut self, frame: OpenFrame) {
        if frame.machine_frames < self.least_frames {
            self.least_frames = frame.machine_frames;
            self.lowest = Some(frame.call);
        } else if frame.machine_frames == self.least_frames && self.lowest != Some(frame.call) {
            self.lowest = None;
        }
        self.most_frames = self.most_frames.max(frame.machine_frames);
        if self.functions.last() != Some(&frame.function) {
            self.functions.push(frame.function);
        }
        // Loops over few calls must not make the list as long as the slice.
        const MANY: usize = 1 << 12;
        if self.functions.len() >= MANY && self.functions.len().is_power_of_two() {
            self.functions.sort_unstable();
            self.functions.dedup();
        }
    }

    fn close(mut self) -> Slice {
        self.functions.sort_unstable();
        self.functions.dedup();
        let OpenSlice { id, checkpoint, before, least_frames, most_frames, lowest, functions } = self;
        Slice { id, checkpoint, before, least_frames, most_frames, lowest, functions: functions.into() }
    }
}

impl Builder {
    fn add(&mut self, part: ThreadCalls) -> Spare {
        let Index { threads, checkpoints, functions, .. } = &mut self.index;
        let open = self.open.entry(part.context).or_default();
        let known = threads.entry(part.context).or_default();
        if open.slice.as_ref().is_none_or(|slice| slice.id != part.slice) {
            known.slices.extend(open.slice.take().map(OpenSlice::close));
            // The slice is added when it is complete, as the next one.
            known.by_id.insert(part.slice, known.slices.len());
            let top = open.frames.last().copied();
            let machine_frames = top.map_or(0, |frame| frame.machine_frames);
            open.slice = Some(OpenSlice {
                id: part.slice,
                checkpoint: checkpoints.save(&open.calls, &mut open.last),
                before: open.latest,
                least_frames: machine_frames,
                most_frames: machine_frames,
                lowest: top.map(|frame| frame.call),
                functions: top.map(|frame| frame.function).into_iter().collect(),
            });
        }
        open.latest = open.latest.max(part.latest);
        let OpenThread { calls, frames, slice, .. } = open;
        let slice = slice.as_mut().expect("it was begun above");
        let spare = calls.follow(part.calls, &mut |moment| match moment {
            Moment::Begin { depth, function, entry, before, .. } => {
                frames.truncate(depth);
                let below = frames.last().map_or(0, |frame| frame.machine_frames);
                let machine_frames = below + u32::from(entry != FrameEntry::Tail);
                let next = functions.len() as u32;
                let function = *functions.entry(function).or_insert(next);
                let call = CallId { begin: before, depth: depth as u32 };
                frames.push(OpenFrame { machine_frames, function, call });
                slice.runs(frames[frames.len() - 1]);
            }
            Moment::End { call } => {
                frames.truncate(call.depth);
                if let Some(&top) = frames.last() {
                    slice.runs(top);
                }
            }
            Moment::Gap { before } => {
                frames.clear();
                known.gaps.push(GapAt { number: before, slice: slice.id });
            }
        });
        known.instructions = calls.instructions();
        spare
    }

    fn finish(mut self) -> Index {
        for (context, open) in self.open {
            let known = self.index.threads.entry(context).or_default();
            known.slices.extend(open.slice.map(OpenSlice::close));
            known.latest = open.latest;
        }
        self.index.threads.retain(|_, thread| thread.instructions > 0);
        self.index
    }
}
