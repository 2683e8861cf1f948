//! The call stack before each instruction of a thread, as a tree of frames, from any chunk on.
//!
//! ```text
//! calls of chunks, in order ──OpenCalls──save──► Checkpoints: the stack where each chunk begins
//!                                                     │ walk
//! flow of a chunk ───────────────────────────────► StackWalk: the frame in which each run executes
//! ```
//!
//! Frames are shared: a stack is the path from its newest frame to the oldest one. So checkpoints take memory for the frames
//! that are new in them only.

use std::{mem, num::NonZero};

use hodo_clock::Nanos;
use hodo_model::{FlowEvent, FunctionId};

use crate::{
    calls::OpenCalls,
    clock::Shares,
    stack::{
        ArrivedAt, Below, FlowEdge, FrameEntry, KnownFrames, ReturnAddress, StackFrame, Watch, arrive, cut,
    },
};

/// A frame of a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The index of its caller in the tree; `None` for the oldest frame.
    pub below: Option<u32>,
    /// The function.
    pub function: FunctionId,
    /// How it was entered.
    pub entry: FrameEntry,
    /// The address after the call; for interrupts the address at which execution continues, if known.
    pub return_address: Option<NonZero<u64>>,
    /// The number of its first instruction in the thread.
    pub begin: u64,
    /// Frames below it.
    pub depth: u32,
    /// Frames of the machine up to this one: those that were not entered by a jump.
    pub machine_frames: u32,
}

/// Frames, each with its caller.
#[derive(Clone, Debug, Default)]
pub struct FrameTree(Vec<Frame>);

impl FrameTree {
    /// The frame with this index.
    pub fn frame(&self, index: u32) -> &Frame {
        &self.0[index as usize]
    }

    /// The frames of a stack, the newest first.
    pub fn stack(&self, top: Option<u32>) -> impl Iterator<Item = &Frame> {
        std::iter::successors(top.map(|top| self.frame(top)), |frame| {
            frame.below.map(|below| self.frame(below))
        })
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(
        &mut self,
        below: Option<u32>,
        function: FunctionId,
        entry: FrameEntry,
        return_address: ReturnAddress,
        begin: u64,
    ) -> u32 {
        let (depth, machine_frames) = match below.map(|below| self.frame(below)) {
            Some(below) => (below.depth + 1, below.machine_frames + u32::from(entry != FrameEntry::Tail)),
            None => (0, 1),
        };
        let index = u32::try_from(self.0.len()).expect("memory bounds the number of frames");
        self.0.push(Frame { below, function, entry, return_address, begin, depth, machine_frames });
        index
    }

    /// Copies the frames of a stack into another tree; returns the indices there, the oldest first.
    fn copy(&self, top: Option<u32>, to: &mut FrameTree) -> Vec<u32> {
        let mut frames: Vec<&Frame> = self.stack(top).collect();
        frames.reverse();
        let mut below = None;
        let mut copied = Vec::with_capacity(frames.len());
        for frame in frames {
            let index = to.add(below, frame.function, frame.entry, frame.return_address, frame.begin);
            copied.push(index);
            below = Some(index);
        }
        copied
    }
}

/// The state of a thread's call stack between two chunks.
#[derive(Clone, Copy, Debug)]
pub struct StackCheckpoint {
    /// The index of the newest frame.
    pub top: Option<u32>,
    edge: FlowEdge,
    /// Instructions that the thread executed before it.
    pub instructions: u64,
}

/// Checkpoints of the call stacks of threads.
#[derive(Debug, Default)]
pub struct Checkpoints {
    /// Their frames.
    pub frames: FrameTree,
}

/// The indices of the frames of a thread's last checkpoint, the oldest first.
#[derive(Debug, Default)]
pub struct LastStack(Vec<u32>);

impl Checkpoints {
    /// Saves the stack of a thread after the calls so far. `last` is that of the thread's checkpoint before.
    pub fn save(&mut self, calls: &OpenCalls, last: &mut LastStack) -> StackCheckpoint {
        let frames = calls.frames();
        let most = frames.len().min(last.0.len());
        // Where a frame is the same, those below it are too.
        let same = |depth: usize| {
            let (saved, open) = (self.frames.frame(last.0[depth]), frames.get(depth));
            (saved.function, saved.entry, saved.return_address, saved.begin)
                == (open.function, open.entry, open.return_address, open.note)
        };
        let (mut from, mut to) = (0, most);
        while from < to {
            let middle = (from + to) / 2;
            if same(middle) { from = middle + 1 } else { to = middle }
        }
        last.0.truncate(from);
        for depth in from..frames.len() {
            let StackFrame { function, entry, return_address, note: begin } = frames.get(depth);
            let index = self.frames.add(last.0.last().copied(), function, entry, return_address, begin);
            last.0.push(index);
        }
        StackCheckpoint {
            top: last.0.last().copied(),
            edge: calls.edge(),
            instructions: calls.instructions(),
        }
    }

    /// Begins to follow the flow of a thread at a checkpoint.
    pub fn walk(&self, from: &StackCheckpoint) -> StackWalk {
        let mut walk = StackWalk {
            frames: FrameTree::default(),
            stack: KnownFrames::default(),
            edge: from.edge,
            instructions: from.instructions,
        };
        let copied = self.frames.copy(from.top, &mut walk.frames);
        walk.push(&copied);
        walk
    }
}

/// Follows the call stack of a thread, item by item.
#[derive(Debug)]
pub struct StackWalk {
    frames: FrameTree,
    /// The open frames, each with its index in the tree.
    stack: KnownFrames<u32>,
    edge: FlowEdge,
    instructions: u64,
}

impl Default for StackWalk {
    fn default() -> StackWalk {
        StackWalk {
            frames: FrameTree::default(),
            stack: KnownFrames::default(),
            edge: FlowEdge::Unknown,
            instructions: 0,
        }
    }
}

/// Adds the frames that are entered to a tree.
struct Grow<'t> {
    frames: &'t mut FrameTree,
    instructions: u64,
}

impl Watch<u32> for Grow<'_> {
    fn enter(
        &mut self,
        from: &StackFrame<u32>,
        function: FunctionId,
        entry: FrameEntry,
        back: ReturnAddress,
    ) -> u32 {
        self.frames.add(Some(from.note), function, entry, back, self.instructions)
    }

    fn leave(&mut self, _: &StackFrame<u32>) {}
}

impl StackWalk {
    /// Follows the next item of the flow.
    pub fn follow(&mut self, event: &FlowEvent<'_>) {
        match *event {
            FlowEvent::Run { at, instructions, .. } => {
                self.arrive(&ArrivedAt::of(&at));
                self.instructions += instructions;
            }
            FlowEvent::Gap => self.forget(),
            FlowEvent::Skip { instructions } => {
                self.forget();
                self.instructions += instructions;
            }
            _ => self.edge = self.edge.then(FlowEdge::of(event)),
        }
    }

    fn arrive(&mut self, at: &ArrivedAt<FunctionId>) {
        let edge = mem::replace(&mut self.edge, FlowEdge::Flow);
        let mut grow = Grow { frames: &mut self.frames, instructions: self.instructions };
        let known = match self.stack.is_empty() {
            true => Err(edge),
            false => arrive(&mut self.stack, &mut grow, Below::Nothing, edge, at),
        };
        if known.is_err() {
            let index = self.frames.add(None, at.function, FrameEntry::Root, None, self.instructions);
            self.stack.push(StackFrame::root(at.function, index));
        }
    }

    fn forget(&mut self) {
        let mut grow = Grow { frames: &mut self.frames, instructions: self.instructions };
        cut(&mut self.stack, &mut grow, 0);
        self.edge = FlowEdge::Gap;
    }

    fn push(&mut self, indices: &[u32]) {
        self.stack.clear();
        for &index in indices {
            let Frame { function, entry, return_address, .. } = *self.frames.frame(index);
            self.stack.push(StackFrame { function, entry, return_address, note: index });
        }
    }

    /// The index of the frame of the last run.
    pub fn top(&self) -> Option<u32> {
        self.stack.last().map(|frame| frame.note)
    }

    /// Instructions that the thread executed so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// All frames so far.
    pub fn frames(&self) -> &FrameTree {
        &self.frames
    }

    /// All frames, when nothing follows.
    pub fn into_frames(self) -> FrameTree {
        self.frames
    }

    /// Drops the frames that are not open, and changes the indices of the others.
    pub fn keep_open_frames(&mut self) {
        let mut kept = FrameTree::default();
        let copied = self.frames.copy(self.top(), &mut kept);
        self.frames = kept;
        self.push(&copied);
    }
}

/// The times of a thread's instructions: the time between two timestamps is shared evenly among the instructions executed in
/// it, as for calls.
#[derive(Clone, Debug, Default)]
pub struct InstructionTimes {
    /// Instructions before each timestamp, and the timestamp; `None` where the time is unknown.
    marks: Vec<(u64, Option<Nanos>)>,
}

impl InstructionTimes {
    /// Adds what an item says about the time; the thread executed `instructions` before it.
    pub fn follow(&mut self, instructions: u64, event: &FlowEvent<'_>) {
        match *event {
            FlowEvent::Begin(clock) => self.marks.push((instructions, clock)),
            FlowEvent::Time(clock) => self.marks.push((instructions, Some(clock))),
            FlowEvent::End => self.marks.push((instructions, None)),
            _ => {}
        }
    }

    /// The time of an instruction; `None` if a timestamp is missing before or after it.
    pub fn at(&self, number: u64) -> Option<Nanos> {
        let next = self.marks.partition_point(|&(before, _)| before <= number);
        let &(begin, since) = self.marks.get(next.checked_sub(1)?)?;
        let &(end, until) = self.marks.get(next)?;
        let (since, until) = since.zip(until)?;
        let shares = Shares::new(until.0.saturating_sub(since.0), (end - begin).max(1));
        Some(Nanos(since.0 + shares.of(number - begin)))
    }

    /// Drops the timestamps before an instruction.
    pub fn forget_before(&mut self, number: u64) {
        let next = self.marks.partition_point(|&(before, _)| before <= number);
        self.marks.drain(..next.saturating_sub(1));
    }
}
