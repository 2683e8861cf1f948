//! The calls of a thread in order, with their times.
//!
//! Unlike an analysis, this is a stream. A [`ChunkCalls`] gathers the calls of one chunk of a thread, beginning with an
//! unknown stack: calls that begin and end in it are complete. [`OpenCalls`] joins chunks in order, and reports the begin
//! and the end of each call.

mod paths;
mod timed;

use std::mem;

use hodo_clock::Nanos;
use hodo_model::{Arrival, FlowEvent, FunctionId, FunctionRun, Numbering, Run};

pub use paths::{CallPaths, WantedCalls};

use self::{paths::FrameStep, timed::Timed};
use crate::{
    clock::Shares,
    stack::{
        ArrivedAt, Below, FlowEdge, FrameEntry, KnownFrames, ReturnAddress, StackFrame, Watch, arrive, cut,
    },
};

/// A call that begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A function begins.
    Begin {
        /// Frames below it.
        depth: usize,
        /// The function.
        function: FunctionId,
        /// How it was entered.
        entry: FrameEntry,
        /// The time; `None` if no timestamp follows.
        time: Option<Nanos>,
        /// Instructions that the thread executed before it.
        before: u64,
    },
    /// A function ends: it returned, was unwound, or the trace ends.
    End {
        /// The call.
        call: Call,
    },
    /// Flow is missing: all open calls count as ended.
    Gap {
        /// Instructions that the thread executed before it.
        before: u64,
    },
}

/// A complete call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Frames below it.
    pub depth: usize,
    /// The function.
    pub function: FunctionId,
    /// How it was entered.
    pub entry: FrameEntry,
    /// When it began; `None` if no timestamp follows.
    pub begin: Option<Nanos>,
    /// When it ended; `None` if no timestamp follows.
    pub end: Option<Nanos>,
    /// Instructions that the thread executed before it.
    pub before: u64,
    /// Instructions executed, callees included.
    pub instructions: u64,
    /// Whether it did not end: the thread's trace ends in it.
    pub is_open: bool,
}

/// A time in nanoseconds, or [`When::UNKNOWN`]; half the size of an `Option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct When(u64);

impl When {
    const UNKNOWN: When = When(u64::MAX);

    fn known(self) -> Option<Nanos> {
        (self != When::UNKNOWN).then_some(Nanos(self.0))
    }
}

/// An open call.
#[derive(Clone, Copy, Debug)]
struct BegunCall {
    function: FunctionId,
    depth: u32,
    entry: FrameEntry,
    time: When,
    /// Instructions that the thread or the chunk executed before it.
    before: u64,
}

impl BegunCall {
    /// Converts depth and instruction count from the chunk to the thread, given the frames and instructions before the
    /// chunk.
    fn above(self, frames: usize, instructions: u64) -> BegunCall {
        BegunCall { depth: self.depth + frames as u32, before: self.before + instructions, ..self }
    }

    fn ended(self, end: When, until: u64) -> CompletedCall {
        let BegunCall { depth, function, entry, time, before } = self;
        CompletedCall { time, end, before, until, function, depth, entry }
    }

    fn begin(&self) -> Moment {
        let BegunCall { depth, function, entry, time, before } = *self;
        Moment::Begin { depth: depth as usize, function, entry, time: time.known(), before }
    }

    fn end(&self, end: When, until: u64) -> Moment {
        let BegunCall { depth, function, entry, time, before } = *self;
        let (depth, begin, end) = (depth as usize, time.known(), end.known());
        let (instructions, is_open) = (until - before, false);
        Moment::End { call: Call { depth, function, entry, begin, end, before, instructions, is_open } }
    }
}

/// An entry of a chunk's log, in order. Depths count from the frame that ran at its start, or from the oldest frame that
/// execution has reached since; instructions count from the start of the chunk.
#[derive(Debug)]
enum CallLogEntry {
    Begin(BegunCall),
    /// A call ends.
    End(CompletedCall),
    /// Execution arrives at a frame below the known ones.
    Arrive {
        arrival: Box<(FlowEdge, Arrival)>,
        time: When,
        before: u64,
    },
    /// All calls end because flow is missing (`is_gap`) or not selected.
    Forget {
        is_gap: bool,
        time: When,
        before: u64,
    },
}

/// A call that ended, with the time and instruction count of its end. The fields written last are apart from the other
/// fields, so that no wide load of a copy spans recent and older stores, which would stall store forwarding.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct CompletedCall {
    time: When,
    end: When,
    before: u64,
    until: u64,
    function: FunctionId,
    depth: u32,
    entry: FrameEntry,
}

/// The buffer of reported items, for reuse.
#[derive(Debug, Default)]
pub struct Spare(Vec<CallLogEntry>);

/// An operation that waits for the timestamp that dates it.
#[derive(Debug)]
enum Pending {
    Step(FrameStep),
    Path(u32),
    Arrive(Box<(FlowEdge, Arrival)>),
    Forget { is_gap: bool },
}

/// Operations since the last timestamp.
#[derive(Debug, Default)]
struct UntimedOperations {
    /// Each operation with the number of instructions of the chunk before it.
    pending: Vec<(u64, Pending)>,
    /// Number of instructions of the chunk so far.
    instructions: u64,
}

impl UntimedOperations {
    #[inline]
    fn push(&mut self, pending: Pending) {
        self.pending.push((self.instructions, pending));
    }
}

impl Watch<()> for UntimedOperations {
    fn enter(&mut self, _: &StackFrame<()>, function: FunctionId, entry: FrameEntry, _: ReturnAddress) {
        self.push(Pending::Step(FrameStep::Enter(function, entry)));
    }

    fn leave(&mut self, _: &StackFrame<()>) {
        self.push(Pending::Step(FrameStep::Leave));
    }
}

/// The calls in one chunk of a thread.
#[derive(Debug)]
pub struct ChunkCalls {
    timed: Timed,
    /// The known frames; stale while paths run. The oldest one is the frame that execution reached last.
    stack: KnownFrames<()>,
    edge: FlowEdge,
    clock: Option<Nanos>,
    /// Instructions at that time.
    at_clock: u64,
    log: UntimedOperations,
    paths: CallPaths,
}

impl ChunkCalls {
    /// Creates a chunk with an unknown stack. `begins`: the begins of calls are reported too.
    pub fn unknown(begins: bool, spare: Spare) -> ChunkCalls {
        ChunkCalls {
            timed: Timed { begins, wanted: WantedCalls::All, items: spare.0, open: Vec::new() },
            stack: KnownFrames::default(),
            edge: FlowEdge::Unknown,
            clock: None,
            at_clock: 0,
            log: UntimedOperations::default(),
            paths: CallPaths::default(),
        }
    }

    /// Leaves out calls that are not wanted and contain no wanted one, as far as it is known before they are reported.
    pub fn only(mut self, wanted: WantedCalls) -> ChunkCalls {
        self.timed.wanted = wanted;
        self
    }

    /// Folds the next event.
    pub fn fold(&mut self, event: &FlowEvent<'_>) {
        match *event {
            FlowEvent::Run { at, instructions, .. } => {
                let edge = mem::replace(&mut self.edge, FlowEdge::Flow);
                self.arrive(edge, &at);
                self.log.instructions += instructions;
            }
            FlowEvent::Begin(clock) => self.time(clock),
            FlowEvent::Time(clock) => self.time(Some(clock)),
            FlowEvent::End => self.time(None),
            FlowEvent::Gap => self.forget(Pending::Forget { is_gap: true }),
            FlowEvent::Number(_) | FlowEvent::Cycles(_) | FlowEvent::Interrupts(_) => {}
            FlowEvent::Skip { instructions } => {
                if !self.edge.is_gap() {
                    self.forget(Pending::Forget { is_gap: false });
                }
                self.edge = FlowEdge::Gap;
                self.log.instructions += instructions;
            }
            _ => self.edge = self.edge.then(FlowEdge::of(event)),
        }
        self.report_untimed();
    }

    /// Folds consecutive function runs and their transfers, and then a timestamp, if there is one.
    pub fn fold_function_runs(
        &mut self,
        functions: &impl Numbering,
        runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        let waits = self.log.instructions > self.at_clock || !self.log.pending.is_empty();
        let times = match (self.clock, until) {
            (Some(since), Some(until)) => Some((When(since.0), until.0.saturating_sub(since.0))),
            // No timestamp will come.
            (None, None) => Some((When::UNKNOWN, 0)),
            _ => None,
        };
        if let Some(times) = times.filter(|_| !waits && !self.stack.is_empty()) {
            self.fold_timed(functions, runs, times);
            return self.time(until);
        }
        // Reading a value that was written in parts stalls store forwarding, so it stays out of memory.
        let mut edge = self.edge;
        for run in FunctionRun::runs(runs, functions) {
            self.arrive(edge, &run.at);
            self.log.instructions += run.instructions;
            edge = FlowEdge::after(&run);
        }
        self.edge = edge;
        self.report_untimed();
        until.into_iter().for_each(|until| self.time(Some(until)));
    }

    #[inline(always)]
    fn arrive(&mut self, edge: FlowEdge, at: &Arrival) {
        let arrived = match self.stack.is_empty() {
            true => Err(edge),
            false => arrive(&mut self.stack, &mut self.log, Below::Unknown, edge, &ArrivedAt::of(at)),
        };
        if let Err(edge) = arrived {
            self.log.push(Pending::Arrive(Box::new((edge, *at))));
            self.stack.push(StackFrame::root(at.function, ()));
        }
    }

    fn forget(&mut self, forget: Pending) {
        cut(&mut self.stack, &mut self.log, 0);
        self.log.push(forget);
        self.edge = FlowEdge::Gap;
    }

    /// Moves the operations to the items without times, if the trace has no clock.
    #[inline]
    fn report_untimed(&mut self) {
        if self.clock.is_none() {
            self.time(None);
        }
    }

    /// Sets the clock to `now`, and spreads the operations since the last timestamp evenly over the instructions
    /// executed in between. Without a `now`, their times are unknown.
    fn time(&mut self, now: Option<Nanos>) {
        let since = mem::replace(&mut self.clock, now);
        let at_clock = mem::replace(&mut self.at_clock, self.log.instructions);
        if self.log.pending.is_empty() {
            return;
        }
        let total = (self.log.instructions - at_clock).max(1);
        let span =
            since.zip(now).map(|(since, now)| (since, Shares::new(now.0.saturating_sub(since.0), total)));
        let when = |before: u64| {
            span.map_or(When::UNKNOWN, |(since, shares)| When(since.0 + shares.of(before - at_clock)))
        };
        for (before, pending) in self.log.pending.drain(..) {
            match pending {
                Pending::Path(path) => {
                    for &(after, step) in self.paths.steps(path) {
                        self.timed.step(step, before + u64::from(after), when);
                    }
                }
                Pending::Step(step) => self.timed.step(step, before, when),
                Pending::Arrive(arrival) => {
                    let time = when(before);
                    self.timed.items.push(CallLogEntry::Arrive { arrival, time, before });
                }
                Pending::Forget { is_gap } => {
                    let time = when(before);
                    self.timed.items.push(CallLogEntry::Forget { is_gap, time, before });
                }
            }
        }
    }

    /// Returns the number of instructions so far.
    pub fn instructions(&self) -> u64 {
        self.log.instructions
    }

    /// Returns the number of the current state, which determines the effect of further runs; `None` if they may reach
    /// frames below the known ones.
    pub fn state(&mut self) -> Option<u32> {
        match self.stack.is_empty() || self.edge.is_gap() {
            true => None,
            false => self.paths.states.enter(self.stack.iter().copied(), self.edge),
        }
    }

    /// Memoizes the effect of runs in a state: returns the number of their path, and the state after it.
    pub fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.paths.learn(state, runs, self.timed.begins, &self.timed.wanted)
    }

    /// Memoizes the path that consists of two memoized ones in a row; returns its number.
    pub fn join(&mut self, first: u32, second: u32) -> u32 {
        self.paths.join(first, second, &self.timed.wanted)
    }

    /// Folds a path.
    #[inline]
    pub fn fold_path(&mut self, path: u32) {
        if !self.paths.steps(path).is_empty() {
            self.log.push(Pending::Path(path));
        }
        self.log.instructions += self.paths.instructions(path);
        self.report_untimed();
    }

    /// Restores the stack from the state after the last path.
    pub fn resume(&mut self, state: u32) {
        let (stack, edge) = self.paths.states.stack(state);
        self.stack.clear();
        for &StackFrame { function, entry, return_address, .. } in stack.iter() {
            self.stack.push(StackFrame { function, entry, return_address, note: () });
        }
        self.edge = edge;
    }

    /// Takes the items so far if there are at least `enough`; the chunk continues with another buffer.
    #[inline]
    pub fn take(&mut self, enough: usize, spare: impl FnOnce() -> Spare) -> Option<ChunkCalls> {
        if self.timed.items.len() < enough {
            return None;
        }
        let mut part = ChunkCalls::unknown(self.timed.begins, spare());
        mem::swap(&mut part.timed.items, &mut self.timed.items);
        self.timed.items.reserve(enough);
        Some(part)
    }

    /// Exchanges the memoized paths.
    pub fn exchange(&mut self, paths: &mut CallPaths) {
        for (before, pending) in mem::take(&mut self.log.pending) {
            match pending {
                Pending::Path(path) => {
                    for &(after, step) in self.paths.steps(path) {
                        self.log.pending.push((before + u64::from(after), Pending::Step(step)));
                    }
                }
                other => self.log.pending.push((before, other)),
            }
        }
        mem::swap(&mut self.paths, paths);
    }
}

/// The open calls of one thread, after the chunks so far.
#[derive(Debug)]
pub struct OpenCalls {
    stack: KnownFrames<BegunCall>,
    edge: FlowEdge,
    /// Instructions so far.
    instructions: u64,
}

/// Reports begins and ends of calls at one time.
struct Reporter<'t, F> {
    emit: &'t mut F,
    time: When,
    /// Number of instructions of the thread before it.
    before: u64,
}

impl<F: FnMut(Moment)> Reporter<'_, F> {
    fn open(&mut self, depth: u32, function: FunctionId, entry: FrameEntry) -> BegunCall {
        let open = BegunCall { depth, function, entry, time: self.time, before: self.before };
        (self.emit)(open.begin());
        open
    }
}

impl<F: FnMut(Moment)> Watch<BegunCall> for Reporter<'_, F> {
    fn enter(
        &mut self,
        from: &StackFrame<BegunCall>,
        function: FunctionId,
        entry: FrameEntry,
        _: ReturnAddress,
    ) -> BegunCall {
        self.open(from.note.depth + 1, function, entry)
    }

    fn leave(&mut self, frame: &StackFrame<BegunCall>) {
        (self.emit)(frame.note.end(self.time, self.before));
    }
}

/// The open frames of a thread, the newest last.
#[derive(Clone, Copy)]
pub(crate) struct OpenFrames<'o>(&'o [StackFrame<BegunCall>]);

impl OpenFrames<'_> {
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// A frame, with the number of its first instruction as note.
    pub(crate) fn get(self, depth: usize) -> StackFrame<u64> {
        let StackFrame { function, entry, return_address, note } = self.0[depth];
        StackFrame { function, entry, return_address, note: note.before }
    }
}

impl Default for OpenCalls {
    fn default() -> OpenCalls {
        OpenCalls { stack: KnownFrames::default(), edge: FlowEdge::Unknown, instructions: 0 }
    }
}

impl OpenCalls {
    /// Reports the calls of the next chunk, and returns its buffer.
    pub fn follow(&mut self, mut part: ChunkCalls, emit: &mut impl FnMut(Moment)) -> Spare {
        let so_far = self.instructions;
        let mut below = self.stack.len().saturating_sub(1);
        for item in part.timed.items.drain(..) {
            match item {
                CallLogEntry::Begin(open) => emit(open.above(below, so_far).begin()),
                CallLogEntry::End(CompletedCall { time, end, before, until, function, depth, entry }) => {
                    let open = BegunCall { depth, function, entry, time, before };
                    emit(open.above(below, so_far).end(end, so_far + until));
                }
                CallLogEntry::Arrive { arrival, time, before } => {
                    let ((edge, at), before) = (*arrival, so_far + before);
                    self.arrive(edge, &at, &mut Reporter { emit: &mut *emit, time, before });
                    below = self.stack.len().saturating_sub(1);
                }
                CallLogEntry::Forget { is_gap, time, before } => {
                    let before = so_far + before;
                    cut(&mut self.stack, &mut Reporter { emit: &mut *emit, time, before }, 0);
                    below = 0;
                    self.edge = FlowEdge::Gap;
                    if is_gap {
                        emit(Moment::Gap { before });
                    }
                }
            }
        }
        for (frame, open) in part.stack.iter().skip(1).zip(part.timed.open) {
            let StackFrame { function, entry, return_address, .. } = *frame;
            self.stack.push(StackFrame { function, entry, return_address, note: open.above(below, so_far) });
        }
        self.edge = self.edge.then(part.edge);
        self.instructions += part.log.instructions;
        Spare(part.timed.items)
    }

    fn arrive<F: FnMut(Moment)>(&mut self, edge: FlowEdge, at: &Arrival, reporter: &mut Reporter<'_, F>) {
        let edge = mem::replace(&mut self.edge, FlowEdge::Flow).then(edge);
        let known = match self.stack.is_empty() {
            true => Err(edge),
            false => arrive(&mut self.stack, reporter, Below::Nothing, edge, &ArrivedAt::of(at)),
        };
        if known.is_err() {
            let note = reporter.open(0, at.function, FrameEntry::Root);
            self.stack.push(StackFrame::root(at.function, note));
        }
    }

    /// The open frames.
    pub(crate) fn frames(&self) -> OpenFrames<'_> {
        OpenFrames(&self.stack)
    }

    /// The edge to the next run, as far as it is known.
    pub(crate) fn edge(&self) -> FlowEdge {
        self.edge
    }

    /// Instructions so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Ends the open calls at the end of the thread's trace.
    pub fn end(mut self, emit: &mut impl FnMut(Moment)) {
        let mut emit = |moment| match moment {
            Moment::End { call } => emit(Moment::End { call: Call { is_open: true, ..call } }),
            other => emit(other),
        };
        let mut reporter = Reporter { emit: &mut emit, time: When::UNKNOWN, before: self.instructions };
        cut(&mut self.stack, &mut reporter, 0);
    }
}

#[cfg(test)]
mod tests;
