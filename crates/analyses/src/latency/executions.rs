//! Executions of functions, from call to return, according to the call stack.
//!
//! A partial begins with an unknown stack. Executions above the oldest known frame are reported immediately. What reaches
//! below it is stored in [`FrameLogEntry`]s until [`ExecutionsPartial::merge`] combines it with the earlier partials.

mod paths;

use std::mem;

use hodo_clock::Nanos;
use hodo_model::{Arrival, FlowEvent, FunctionId, FunctionRun, Numbering, Place};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

pub(super) use self::paths::ExecutionPaths;
use super::{
    IntervalEnd,
    outermost::{Outermost, OutermostSum},
};
use crate::{
    durations::{Durations, add_all, add_fields},
    mark::{ClockKind, Clocks, Mark, ReadingDelta, StampedMarks},
    stack::{
        self, ArrivedAt, Below, FlowEdge, FrameEntry, KnownFrames, ReturnAddress, StackFrame, Watch, arrive,
        cut,
    },
};

/// What to analyse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// One function; each execution is kept.
    One(FunctionId),
    /// All functions; sums are kept.
    Each,
    /// All functions; sums are kept, of instructions alone. Without times, paths can be memoized.
    EachUntimed,
    /// System calls, from the kernel's entry to the return to user space: interrupts in which one of these functions,
    /// in order, is called; each execution is kept.
    SystemCalls { name: String, functions: Vec<FunctionId> },
}

impl Which {
    /// Whether executions of the function are kept.
    #[inline(always)]
    fn is(&self, function: FunctionId) -> bool {
        matches!(self, Which::One(one) if *one == function)
    }

    /// Whether the function implements one of the system calls to analyse.
    #[inline(always)]
    fn implements(&self, function: FunctionId) -> bool {
        match self {
            Which::SystemCalls { functions, .. } => functions.binary_search(&function).is_ok(),
            Which::One(_) | Which::Each | Which::EachUntimed => false,
        }
    }

    /// Whether the outermost executions of each function are summed.
    #[inline(always)]
    fn is_each(&self) -> bool {
        matches!(self, Which::Each | Which::EachUntimed)
    }

    /// Whether marks need their times.
    #[inline(always)]
    fn is_timed(&self) -> bool {
        !matches!(self, Which::EachUntimed)
    }

    fn is_of_system_calls(&self) -> bool {
        matches!(self, Which::SystemCalls { .. })
    }
}

/// An interrupt on the stack, or the oldest frame, while system calls are analysed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Interrupted {
    /// Whether it is one of the system calls to analyse.
    is_asked: bool,
    /// Whether its begin is known.
    begins: bool,
}

/// A completed execution.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CompletedExecution {
    pub(super) begin: Mark,
    pub(super) end: Mark,
    pub(super) function: FunctionId,
    pub(super) caller: FunctionId,
    /// Number of executions of the same function below it on the stack.
    pub(super) level: u32,
    pub(super) ended: IntervalEnd,
}

/// An entry of a partial's log, in order, that may depend on the frames of earlier partials.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum FrameLogEntry {
    /// An execution ended whose begin is known.
    Done(CompletedExecution),
    /// Execution arrived at a frame below those that are known.
    Arrive(Box<Arrived>, Mark),
    /// All open executions are lost.
    Forget(Mark),
    /// The newest interrupt below the known frames is one of the system calls to analyse.
    SystemCall,
    /// Executions above the oldest known frame, before another one replaced it.
    Outermost(FxHashMap<FunctionId, OutermostSum>),
}

/// How execution arrived at a frame, and whether it came from untraced code.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Arrived {
    edge: FlowEdge,
    at: Arrival,
    entered: bool,
}

/// The note of a frame.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct BegunExecution {
    begin: Mark,
    caller: FunctionId,
}

/// The summed executions of a function.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ExecutionSum {
    pub(super) time: Durations,
    pub(super) instructions: Durations,
    /// Number of executions that began or ended outside the recording.
    pub(super) incomplete: u64,
}

add_fields!(ExecutionSum { time, instructions, incomplete });

/// The executions in some chunks of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecutionsPartial {
    clocks: Clocks,
    items: Vec<FrameLogEntry>,
    /// Known frames; the oldest is the last one at which execution arrived from unknown frames.
    stack: KnownFrames<BegunExecution>,
    edge: FlowEdge,
    /// Number of open executions of the selected function, above the oldest frame.
    level: u32,
    /// The oldest frame and each interrupt on the stack, if system calls are analysed.
    interrupts: Vec<Interrupted>,
    /// Sums by function, if all functions are analysed with times.
    pub(super) sums: FxHashMap<FunctionId, ExecutionSum>,
    /// The outermost executions, if all functions are analysed; without times, the sums of all.
    outermost: Outermost,
    /// Executions that wait for the next timestamp, if all functions are analysed.
    #[serde(skip)]
    waiting: Vec<CompletedExecution>,
    /// How many items are stamped.
    #[serde(skip)]
    stamped: StampedMarks,
    /// The memoized paths.
    #[serde(skip)]
    paths: ExecutionPaths,
}

/// The executions of a whole thread.
pub(super) struct ClosedExecutions {
    /// Those of one function, in order of their ends.
    pub(super) done: Vec<CompletedExecution>,
    /// All executions by function.
    pub(super) sums: FxHashMap<FunctionId, ExecutionSum>,
    /// The outermost ones by function.
    pub(super) outermost: FxHashMap<FunctionId, OutermostSum>,
}

/// Observes where frames begin and end.
struct Watcher<'p> {
    which: &'p Which,
    below: Below,
    at: Mark,
    ended: IntervalEnd,
    /// Whether execution came from untraced code, as at the end of a signal handler.
    entered: bool,
    level: &'p mut u32,
    interrupts: &'p mut Vec<Interrupted>,
    items: &'p mut Vec<FrameLogEntry>,
    waiting: &'p mut Vec<CompletedExecution>,
    outermost: &'p mut Outermost,
}

impl Watch<BegunExecution> for Watcher<'_> {
    #[inline(always)]
    fn enter(
        &mut self,
        from: &StackFrame<BegunExecution>,
        function: FunctionId,
        entry: FrameEntry,
        _: ReturnAddress,
    ) -> BegunExecution {
        *self.level += u32::from(self.which.is(function));
        if self.which.is_each() {
            self.outermost.enter(function);
        }
        if self.which.is_of_system_calls() {
            self.enter_kernel(function, entry);
        }
        BegunExecution { begin: self.at, caller: from.function }
    }

    #[inline(always)]
    fn leave(&mut self, frame: &StackFrame<BegunExecution>) {
        let is_root = frame.entry == FrameEntry::Root;
        if *self.which == Which::EachUntimed {
            return self.leave_untimed(frame);
        }
        let is_outermost = self.which.is_each() && self.outermost.leave(frame.function);
        let Interrupted { is_asked, begins } = match self.which {
            Which::One(function) => Interrupted { is_asked: *function == frame.function, begins: !is_root },
            Which::Each | Which::EachUntimed => Interrupted { is_asked: true, begins: !is_root },
            Which::SystemCalls { .. } => self.leave_kernel(frame),
        };
        if !is_asked || is_root && self.below == Below::Unknown {
            return;
        }
        *self.level = self.level.saturating_sub(u32::from(matches!(self.which, Which::One(_))));
        let ended = self.ended(frame, begins);
        let BegunExecution { begin, caller } = frame.note;
        let (end, function, level) = (self.at, frame.function, *self.level);
        let done = CompletedExecution { begin, end, function, caller, level, ended };
        match self.which {
            Which::One(_) | Which::SystemCalls { .. } => self.items.push(FrameLogEntry::Done(done)),
            Which::Each | Which::EachUntimed => {
                if is_outermost && ended.is_complete() {
                    self.outermost.see(function, end.before.saturating_sub(begin.before));
                }
                self.waiting.push(done);
            }
        }
    }

    fn arrives_late(&mut self) {
        self.ended = IntervalEnd::Returned;
    }
}

impl Watcher<'_> {
    /// Returns how the execution of a frame ended, whose begin is known or not.
    #[inline(always)]
    fn ended(&self, frame: &StackFrame<BegunExecution>, begins: bool) -> IntervalEnd {
        let is_entered = frame.entry.is_interrupt() || frame.entry == FrameEntry::Root && begins;
        let is_over = self.entered && (is_entered || frame.entry == FrameEntry::Tail);
        match self.ended {
            _ if !begins => IntervalEnd::Begun,
            IntervalEnd::Unwound if is_over => IntervalEnd::Returned,
            ended => ended,
        }
    }

    /// Sums an execution at once: it waits for no timestamp.
    #[inline(always)]
    fn leave_untimed(&mut self, frame: &StackFrame<BegunExecution>) {
        let is_root = frame.entry == FrameEntry::Root;
        if is_root && self.below == Below::Unknown {
            self.outermost.leave(frame.function);
            return;
        }
        let is_complete = self.ended(frame, !is_root).is_complete();
        let length = self.at.before.saturating_sub(frame.note.begin.before);
        self.outermost.end(frame.function, is_complete.then_some(length));
    }

    /// Follows the interrupts on the stack: a frame is entered.
    fn enter_kernel(&mut self, function: FunctionId, entry: FrameEntry) {
        if entry.is_interrupt() {
            self.interrupts.push(Interrupted { is_asked: false, begins: true });
        }
        if self.which.implements(function) {
            note_system_call(self.interrupts, self.below, self.items);
        }
    }

    /// Follows the interrupts on the stack: a frame is left. Returns the interrupt if the frame is that of one.
    fn leave_kernel(&mut self, frame: &StackFrame<BegunExecution>) -> Interrupted {
        if frame.entry != FrameEntry::Root && !frame.entry.is_interrupt() {
            return Interrupted::default();
        }
        self.interrupts.pop().unwrap_or_default()
    }
}

/// Notes that the newest interrupt is a system call to analyse. If it is below the known frames, the earlier partials will
/// find it.
fn note_system_call(interrupts: &mut [Interrupted], below: Below, items: &mut Vec<FrameLogEntry>) {
    let is_oldest = interrupts.len() == 1;
    if let Some(newest) = interrupts.last_mut()
        && !std::mem::replace(&mut newest.is_asked, true)
        && is_oldest
        && below == Below::Unknown
    {
        items.push(FrameLogEntry::SystemCall);
    }
}

/// Returns how frames end if execution leaves them over an edge to an arrival.
#[inline(always)]
fn frame_end(edge: FlowEdge, at: &Arrival) -> IntervalEnd {
    match edge {
        edge if edge.is_gap() => IntervalEnd::Lost,
        FlowEdge::Indirect | FlowEdge::Enter if at.place == Place::Middle => IntervalEnd::Unwound,
        FlowEdge::UnwindBelow
        | FlowEdge::InterruptReturn
        | FlowEdge::InterruptReturnBelow
        | FlowEdge::Interrupt { .. } => IntervalEnd::Unwound,
        _ => IntervalEnd::Returned,
    }
}

impl ExecutionsPartial {
    pub(super) fn unknown() -> ExecutionsPartial {
        ExecutionsPartial {
            clocks: Clocks::default(),
            items: Vec::new(),
            stack: KnownFrames::default(),
            edge: FlowEdge::Unknown,
            level: 0,
            interrupts: Vec::new(),
            sums: FxHashMap::default(),
            outermost: Outermost::default(),
            waiting: Vec::new(),
            stamped: StampedMarks::default(),
            paths: ExecutionPaths::default(),
        }
    }

    /// Returns the number of instructions of the partial.
    pub(super) fn instructions(&self) -> u64 {
        self.clocks.instructions
    }

    /// Returns whether it is consistent.
    pub(super) fn is_sound(&self, which: &Which) -> bool {
        let is_root = self.stack.iter().map(|frame| frame.entry == FrameEntry::Root);
        let asked = self.stack.iter().skip(1).filter(|frame| which.is(frame.function));
        let interrupts =
            self.stack.iter().filter(|frame| frame.entry == FrameEntry::Root || frame.entry.is_interrupt());
        let interrupts = if which.is_of_system_calls() { interrupts.count() } else { 0 };
        stack::is_sound(&self.stack)
            && is_root.eq((0..self.stack.len()).map(|index| index == 0))
            && asked.count() == self.level as usize
            && self.interrupts.len() == interrupts
            && (!which.is_each() || self.outermost.is_sound(self.stack.iter().map(|frame| frame.function)))
    }

    /// Folds the next event.
    #[inline]
    pub(super) fn fold(&mut self, which: &Which, event: &FlowEvent<'_>) {
        match *event {
            FlowEvent::Run { at, instructions, .. } => {
                let edge = mem::replace(&mut self.edge, FlowEdge::Flow);
                self.run(which, edge, &at, self.clocks.mark());
                self.clocks.instructions += instructions;
            }
            FlowEvent::Gap => self.forget(which, Below::Unknown, self.clocks.mark()),
            FlowEvent::Skip { instructions } => {
                if !self.edge.is_gap() {
                    self.forget(which, Below::Unknown, self.clocks.mark());
                }
                self.edge = FlowEdge::Gap;
                self.clocks.instructions += instructions;
            }
            FlowEvent::Begin(_) | FlowEvent::Time(_) | FlowEvent::Cycles(_) | FlowEvent::End => {
                if which.is_timed() {
                    let mut clocks = mem::take(&mut self.clocks);
                    clocks.fold(event, |reading| self.stamp(reading));
                    self.clocks = clocks;
                }
            }
            FlowEvent::Number(_) | FlowEvent::Interrupts(_) => {}
            _ => self.edge = self.edge.then(FlowEdge::of(event)),
        }
    }

    /// Folds consecutive function runs, each followed by its transfer, and then a timestamp.
    #[inline]
    pub(super) fn fold_function_runs(
        &mut self,
        which: &Which,
        functions: &impl Numbering,
        runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        // The time of each mark is known before the runs are folded, so that none has to wait for it.
        let mut after = self.clocks.clone();
        after.instructions += FunctionRun::instructions(runs);
        let reading = until.filter(|_| which.is_timed()).map(|until| after.time(until));
        reading.iter().for_each(|reading| self.stamp(reading));
        let mut edge = self.edge;
        for run in FunctionRun::runs(runs, functions) {
            let mut mark = self.clocks.mark();
            reading.iter().for_each(|reading| reading.stamp(&mut mark));
            self.run(which, edge, &run.at, mark);
            self.clocks.instructions += run.instructions;
            edge = FlowEdge::after(&run);
        }
        self.edge = edge;
        self.clocks = after;
        if until.is_some() {
            self.stamped[ClockKind::Time as usize] = self.items.len();
            if which.is_timed() {
                self.sum_waiting();
            }
        }
    }

    #[inline(always)]
    fn run(&mut self, which: &Which, edge: FlowEdge, at: &Arrival, mark: Mark) {
        let arrived = Arrived { edge, at: *at, entered: edge.enters() };
        if let Err(edge) = self.arrive(which, Below::Unknown, &arrived, mark) {
            self.count_paths();
            self.log_outermost();
            self.items.push(FrameLogEntry::Arrive(Box::new(Arrived { edge, ..arrived }), mark));
        }
    }

    /// Moves the stack over an edge.
    ///
    /// # Errors
    /// Returns the edge as the unknown frames see it; the arrived frame is then the oldest.
    #[inline(always)]
    fn arrive(&mut self, which: &Which, below: Below, arrived: &Arrived, mark: Mark) -> Result<(), FlowEdge> {
        let &Arrived { edge, at, entered } = arrived;
        let ExecutionsPartial { stack, level, interrupts, items, waiting, outermost, .. } = self;
        let ended = frame_end(edge, &at);
        let mut watcher =
            Watcher { which, below, at: mark, ended, entered, level, interrupts, items, waiting, outermost };
        let known = match stack.is_empty() {
            true => Err(edge),
            false => arrive(stack, &mut watcher, below, edge, &ArrivedAt::of(&at)),
        };
        if known.is_err() {
            let is_known = below == Below::Nothing;
            *watcher.level += u32::from(which.is(at.function) && is_known);
            if which.is_each() {
                watcher.outermost.enter(at.function);
            }
            if which.is_of_system_calls() {
                let is_asked = which.implements(at.function) && is_known;
                watcher.interrupts.push(Interrupted { is_asked, begins: edge.begins_interrupt() });
            }
            stack.push(StackFrame::root(at.function, BegunExecution { begin: mark, caller: at.function }));
        }
        known
    }

    /// Discards the stack: it is unknown after a gap.
    fn forget(&mut self, which: &Which, below: Below, at: Mark) {
        self.leave_all(which, below, at, IntervalEnd::Lost);
        if below == Below::Unknown {
            self.count_paths();
            self.log_outermost();
            self.items.push(FrameLogEntry::Forget(at));
        }
        self.edge = FlowEdge::Gap;
    }

    fn leave_all(&mut self, which: &Which, below: Below, at: Mark, ended: IntervalEnd) {
        let ExecutionsPartial { stack, level, interrupts, items, waiting, outermost, .. } = self;
        let entered = false;
        let mut watcher =
            Watcher { which, below, at, ended, entered, level, interrupts, items, waiting, outermost };
        cut(stack, &mut watcher, 0);
    }

    /// Logs the executions above a frame that is the oldest no longer: the frames below it decide whether they are
    /// outermost.
    fn log_outermost(&mut self) {
        let sums = self.outermost.take();
        if !sums.is_empty() {
            self.items.push(FrameLogEntry::Outermost(sums));
        }
    }

    /// Sets the values of all marks that wait for a clock reading.
    fn stamp(&mut self, reading: &ReadingDelta) {
        let stamped = &mut self.stamped[reading.clock() as usize];
        for item in &mut self.items[*stamped..] {
            match item {
                FrameLogEntry::Done(done) => {
                    reading.stamp(&mut done.begin);
                    reading.stamp(&mut done.end);
                }
                FrameLogEntry::Arrive(_, mark) | FrameLogEntry::Forget(mark) => reading.stamp(mark),
                FrameLogEntry::SystemCall | FrameLogEntry::Outermost(_) => {}
            }
        }
        *stamped = self.items.len();
        // Frames entered since the last reading are on top of the stack.
        for frame in self.stack.iter_mut().rev() {
            if !reading.is_awaited(&frame.note.begin) {
                break;
            }
            reading.stamp(&mut frame.note.begin);
        }
        if reading.clock() == ClockKind::Time {
            for done in &mut self.waiting {
                reading.stamp(&mut done.begin);
                reading.stamp(&mut done.end);
            }
            self.sum_waiting();
        }
    }

    /// Sums the executions that waited.
    fn sum_waiting(&mut self) {
        for done in self.waiting.drain(..) {
            let sum = self.sums.entry(done.function).or_default();
            if !done.ended.is_complete() {
                sum.incomplete = sum.incomplete.saturating_add(1);
                continue;
            }
            sum.instructions.see(done.end.before.saturating_sub(done.begin.before));
            if let Some((begin, end)) = done.begin.time().zip(done.end.time()) {
                sum.time.see(end.saturating_sub(begin));
            }
        }
    }

    /// Adds the next partial; `below` is what lies below this one's frames.
    fn follow(&mut self, which: &Which, below: Below, mut later: ExecutionsPartial) {
        let (instructions, segments) = (self.clocks.instructions, self.clocks.segments);
        let shifted = |mark: Mark| mark.after(instructions, segments);
        self.items.reserve(later.items.len());
        for item in mem::take(&mut later.items) {
            match item {
                FrameLogEntry::Done(done) => {
                    let (begin, end) = (shifted(done.begin), shifted(done.end));
                    let level = done.level.saturating_add(self.level);
                    self.items.push(FrameLogEntry::Done(CompletedExecution { begin, end, level, ..done }));
                }
                FrameLogEntry::Arrive(arrived, mark) => {
                    let (Arrived { edge, at, entered }, mark) = (*arrived, shifted(mark));
                    let edge = mem::replace(&mut self.edge, FlowEdge::Flow).then(edge);
                    let arrived = Arrived { edge, at, entered: entered || edge.enters() };
                    if let (Err(edge), Below::Unknown) = (self.arrive(which, below, &arrived, mark), below) {
                        self.log_outermost();
                        self.items.push(FrameLogEntry::Arrive(Box::new(Arrived { edge, ..arrived }), mark));
                    }
                }
                FrameLogEntry::Forget(mark) => self.forget(which, below, shifted(mark)),
                FrameLogEntry::SystemCall => note_system_call(&mut self.interrupts, below, &mut self.items),
                FrameLogEntry::Outermost(sums) => self.outermost.add(sums),
            }
        }
        self.outermost.add(later.outermost.take());
        self.outermost.add_all(&later.outermost);
        self.interrupts.extend(later.interrupts.into_iter().skip(1));
        for frame in later.stack.iter().skip(1) {
            let BegunExecution { begin, caller } = frame.note;
            if which.is_each() {
                self.outermost.enter(frame.function);
            }
            self.stack.push(StackFrame { note: BegunExecution { begin: shifted(begin), caller }, ..*frame });
        }
        self.level = self.level.saturating_add(later.level);
        self.edge = self.edge.then(later.edge);
        self.clocks.add(&later.clocks);
        add_all(&mut self.sums, later.sums);
        self.stamped = [self.items.len(); 2];
        self.sum_waiting();
    }

    /// Merges the next partial.
    pub(super) fn merge(mut self, which: &Which, later: ExecutionsPartial) -> ExecutionsPartial {
        self.follow(which, Below::Unknown, later);
        self
    }

    /// Returns the executions of a whole thread: of all functions as sums.
    pub(super) fn close(self, which: &Which) -> ClosedExecutions {
        let mut whole = ExecutionsPartial::unknown();
        whole.follow(which, Below::Nothing, self);
        let end = whole.clocks.mark();
        whole.leave_all(which, Below::Nothing, end, IntervalEnd::Cut);
        whole.sum_waiting();
        let done = whole.items.into_iter().filter_map(|item| match item {
            FrameLogEntry::Done(done) => Some(done),
            FrameLogEntry::Arrive(..)
            | FrameLogEntry::Forget(_)
            | FrameLogEntry::SystemCall
            | FrameLogEntry::Outermost(_) => None,
        });
        let done = done.collect();
        let mut sums = whole.sums;
        add_all(&mut sums, whole.outermost.all());
        ClosedExecutions { done, sums, outermost: whole.outermost.take() }
    }
}

#[cfg(test)]
mod tests;
