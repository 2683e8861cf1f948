//! Decoded pieces of a thread's execution.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use hodo_analyses::frames::{Checkpoints, Frame, FrameTree, InstructionTimes, StackWalk};
use hodo_clock::Nanos;
use hodo_code::{Isa, Origin};
use hodo_engine::{Chunk, FlowReceiver, SliceId, Trace, decode_chunk};
use hodo_flow::Gap;
use hodo_model::{Arrival, Code, End, FlowEvent, FunctionId, Sources};
use rustc_hash::FxHashMap;

use crate::index::ThreadIndex;

/// Instructions of a piece, at most, if nothing else is said: a segment may be as long as the recording, and a piece must fit
/// into memory.
pub(crate) const MOST: u64 = 1 << 20;

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlaceInSource {
    pub(crate) file: Arc<str>,
    pub(crate) line: u32,
}

/// Straight-line code of one function, as far as it was executed.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) function: FunctionId,
    /// Where it is in the function's module.
    pub(crate) offset: u64,
    pub(crate) lengths: Box<[u8]>,
    bytes: Box<[u8]>,
    pub(crate) isa: Isa,
    pub(crate) end: End,
    pub(crate) target: u64,
    lines: OnceLock<Box<[Option<PlaceInSource>]>>,
}

impl Block {
    /// The distance of an instruction from the first one, in bytes.
    pub(crate) fn distance(&self, index: usize) -> u64 {
        self.lengths[..index].iter().map(|&length| u64::from(length)).sum()
    }

    /// The bytes of an instruction.
    pub(crate) fn bytes(&self, index: usize) -> &[u8] {
        let from = self.distance(index) as usize;
        &self.bytes[from..from + usize::from(self.lengths[index])]
    }

    /// The origin of an instruction.
    pub(crate) fn origin(&self, index: usize) -> Origin {
        Origin { module: self.function.module, offset: self.offset.wrapping_add(self.distance(index)) }
    }

    /// The index of the instruction with this origin.
    pub(crate) fn find(&self, origin: Origin) -> Option<usize> {
        if origin.module != self.function.module {
            return None;
        }
        let mut at = self.offset;
        for (index, &length) in self.lengths.iter().enumerate() {
            if at == origin.offset {
                return Some(index);
            }
            at = at.wrapping_add(u64::from(length));
        }
        None
    }

    /// The source lines of the instructions.
    pub(crate) fn lines(&self, trace: &Trace<'_>) -> &[Option<PlaceInSource>] {
        self.lines.get_or_init(|| {
            let module = self.function.module;
            let mut last: Option<PlaceInSource> = None;
            let line = |index| {
                let found = trace.modules.line(module, trace.modules.address(self.origin(index)))?;
                let same = last.as_ref().filter(|last| *last.file == *found.file);
                let file = same.map_or_else(|| Arc::from(found.file), |last| Arc::clone(&last.file));
                last = Some(PlaceInSource { file, line: found.line });
                last.clone()
            };
            (0..self.lengths.len()).map(line).collect()
        })
    }
}

/// An execution of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The number of its first instruction.
    pub(crate) number: u64,
    /// The index of its frame.
    pub(crate) frame: u32,
    pub(crate) block: u32,
}

/// Consecutive instructions of a thread, within a slice.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) context: u32,
    pub(crate) span: Range<u64>,
    pub(crate) runs: Vec<Run>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) frames: FrameTree,
    pub(crate) times: InstructionTimes,
    /// Instructions before which the thread executed code that is not recorded.
    pub(crate) returned: Vec<u64>,
}

/// An executed instruction.
#[derive(Clone, Copy)]
pub(crate) struct Instruction<'p> {
    pub(crate) block: &'p Block,
    /// Its index in the block.
    pub(crate) index: usize,
    /// The index of its frame.
    pub(crate) frame: u32,
}

impl Instruction<'_> {
    pub(crate) fn address(&self) -> u64 {
        self.block.address.wrapping_add(self.block.distance(self.index))
    }

    pub(crate) fn origin(&self) -> Origin {
        self.block.origin(self.index)
    }
}

impl Piece {
    pub(crate) fn block(&self, run: &Run) -> &Block {
        &self.blocks[run.block as usize]
    }

    pub(crate) fn end_of(&self, run: &Run) -> u64 {
        run.number + self.block(run).lengths.len() as u64
    }

    /// The index of the run that has an instruction of the piece.
    pub(crate) fn run_of(&self, number: u64) -> usize {
        self.runs.partition_point(|run| run.number <= number) - 1
    }

    /// An instruction of the piece.
    pub(crate) fn instruction(&self, number: u64) -> Instruction<'_> {
        let run = &self.runs[self.run_of(number)];
        let index = (number - run.number) as usize;
        Instruction { block: self.block(run), index, frame: run.frame }
    }

    pub(crate) fn frame(&self, index: u32) -> &Frame {
        self.frames.frame(index)
    }

    pub(crate) fn time(&self, number: u64) -> Option<Nanos> {
        self.times.at(number)
    }
}

/// Decodes the slices of a thread in a chunk. Of the slice that has the instruction `around`, the `most` instructions around it;
/// of the others the first ones.
pub(crate) fn decode(
    trace: &Trace<'_>,
    chunk: &Chunk,
    (context, thread): (u32, &ThreadIndex),
    checkpoints: &Checkpoints,
    (around, most): (u64, u64),
) -> Vec<Piece> {
    let mut reader = Reader {
        chunk,
        context,
        thread,
        checkpoints,
        around,
        most,
        slices: 0,
        open: None,
        pieces: Vec::new(),
    };
    decode_chunk(trace, chunk, &mut reader);
    reader.close();
    reader.pieces
}

struct Reader<'x> {
    chunk: &'x Chunk,
    context: u32,
    thread: &'x ThreadIndex,
    checkpoints: &'x Checkpoints,
    around: u64,
    /// Instructions of a piece, at most.
    most: u64,
    /// Slices so far, of all threads.
    slices: u32,
    open: Option<Recorder>,
    pieces: Vec<Piece>,
}

impl Reader<'_> {
    fn close(&mut self) {
        let pieces = self.open.take().map(Recorder::finish);
        self.pieces.extend(pieces.filter(|piece| !piece.span.is_empty()));
    }
}

impl FlowReceiver for Reader<'_> {
    fn slice(&mut self, context: u32) {
        self.close();
        let id = SliceId { chunk: self.chunk.index, slice: self.slices };
        self.slices += 1;
        let known = self.thread.by_id.get(&id).filter(|_| context == self.context);
        self.open = known.map(|&index| {
            let checkpoint = &self.thread.slices[index].checkpoint;
            let begin = checkpoint.instructions;
            let has_it = (begin..self.thread.end_of(index)).contains(&self.around);
            let from = if has_it { self.around.saturating_sub(self.most / 2).max(begin) } else { begin };
            Recorder::new(context, self.checkpoints.walk(checkpoint), from..from + self.most)
        });
    }

    fn take(&mut self, event: FlowEvent<'_>) {
        if let Some(open) = &mut self.open {
            open.take(&event);
        }
    }

    fn gap(&mut self, _: &Gap) {}
}

/// What identifies a block: two versions of code may have one address.
#[derive(PartialEq, Eq, Hash)]
struct BlockKey {
    address: u64,
    offset: u64,
    since: u64,
    module: u32,
    instructions: u64,
}

/// Records a piece.
struct Recorder {
    context: u32,
    /// The instructions to record.
    wanted: Range<u64>,
    walk: StackWalk,
    /// Instructions of the thread so far.
    number: u64,
    /// Number of frames at which those that are not open are dropped, before the first wanted instruction.
    drop_at: usize,
    known: FxHashMap<BlockKey, u32>,
    /// Whether the timestamp after the last instruction was seen.
    complete: bool,
    runs: Vec<Run>,
    blocks: Vec<Block>,
    times: InstructionTimes,
    returned: Vec<u64>,
}

/// Frames that are kept without need, at most.
const UNUSED_FRAMES: usize = 1 << 16;

impl Recorder {
    fn new(context: u32, walk: StackWalk, wanted: Range<u64>) -> Recorder {
        Recorder {
            context,
            wanted,
            number: walk.instructions(),
            drop_at: walk.frames().len() + UNUSED_FRAMES,
            walk,
            known: FxHashMap::default(),
            complete: false,
            runs: Vec::new(),
            blocks: Vec::new(),
            times: InstructionTimes::default(),
            returned: Vec::new(),
        }
    }

    fn take(&mut self, event: &FlowEvent<'_>) {
        if self.complete {
            return;
        }
        let number = self.number;
        self.times.follow(number, event);
        if number >= self.wanted.end {
            return self.take_after_end(event);
        }
        self.walk.follow(event);
        match *event {
            FlowEvent::Run { at, instructions, code } if instructions > 0 => {
                self.number += instructions;
                if self.number > self.wanted.start {
                    self.run(number, at, instructions, &code);
                } else if self.walk.frames().len() > self.drop_at {
                    self.walk.keep_open_frames();
                    self.times.forget_before(number);
                    self.drop_at = 2 * self.walk.frames().len() + UNUSED_FRAMES;
                }
            }
            FlowEvent::Skip { instructions } => self.number += instructions,
            FlowEvent::Enter if number >= self.wanted.start => self.returned.push(number),
            _ => {}
        }
    }

    /// Counts instructions up to the timestamp that dates the last wanted ones.
    fn take_after_end(&mut self, event: &FlowEvent<'_>) {
        match *event {
            FlowEvent::Run { instructions, .. } | FlowEvent::Skip { instructions } => {
                self.number += instructions
            }
            FlowEvent::Begin(_) | FlowEvent::Time(_) | FlowEvent::End => self.complete = true,
            _ => {}
        }
    }

    fn run(&mut self, number: u64, at: Arrival, instructions: u64, code: &Code<'_>) {
        let key = BlockKey {
            address: at.address,
            offset: code.offset,
            since: code.since,
            module: at.function.module,
            instructions,
        };
        let next = self.blocks.len() as u32;
        let block = *self.known.entry(key).or_insert(next);
        if block == next {
            self.blocks.push(Block {
                address: at.address,
                function: at.function,
                offset: code.offset,
                lengths: code.lengths.into(),
                bytes: code.bytes.into(),
                isa: code.isa,
                end: code.end,
                target: code.target,
                lines: OnceLock::new(),
            });
        }
        let frame = self.walk.top().expect("a run has a frame");
        self.runs.push(Run { number, frame, block });
    }

    fn finish(self) -> Piece {
        let Recorder { context, walk, runs, blocks, times, returned, .. } = self;
        let end = |run: &Run| run.number + blocks[run.block as usize].lengths.len() as u64;
        let span = runs.first().zip(runs.last()).map_or(0..0, |(first, last)| first.number..end(last));
        Piece { context, span, runs, blocks, frames: walk.into_frames(), times, returned }
    }
}

/// Returns why flow is missing directly before an instruction of a slice.
pub(crate) fn gaps(
    trace: &Trace<'_>,
    chunk: &Chunk,
    (thread, slice): (&ThreadIndex, SliceId),
    number: u64,
) -> Vec<String> {
    let counted = thread.by_id.get(&slice).map_or(0, |&index| thread.slices[index].begin());
    let mut reasons = Reasons { trace, slice: slice.slice, slices: 0, number, counted, reasons: Vec::new() };
    decode_chunk(trace, chunk, &mut reasons);
    reasons.reasons
}

struct Reasons<'x, 'f> {
    trace: &'x Trace<'f>,
    /// The slice that counts, and the number of slices so far.
    slice: u32,
    slices: u32,
    number: u64,
    /// Instructions of the thread so far.
    counted: u64,
    reasons: Vec<String>,
}

impl FlowReceiver for Reasons<'_, '_> {
    fn slice(&mut self, _: u32) {
        self.slices += 1;
    }

    fn take(&mut self, event: FlowEvent<'_>) {
        if self.slices == self.slice + 1
            && let FlowEvent::Run { instructions, .. } | FlowEvent::Skip { instructions } = event
        {
            self.counted += instructions;
        }
    }

    fn gap(&mut self, gap: &Gap) {
        if self.slices == self.slice + 1 && self.counted == self.number {
            self.reasons.push(self.trace.describe_gap(gap));
        }
    }
}
