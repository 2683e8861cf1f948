//! Memoized paths, and the executions that begin and end on them.
//!
//! An execution that begins and ends on a path has as many instructions each time the path runs, so these are counted
//! once for all runs of the path. What remains for each run are the frames that a path leaves open or closes.

use hodo_model::{Arrival, FunctionId, Run};
use rustc_hash::FxHashMap;

use super::{BegunExecution, ExecutionsPartial, IntervalEnd, frame_end};
use crate::{
    contexts::{ContextId, Notes, PathStates},
    edge::FlowEdge,
    stack::{FrameEntry, ReturnAddress, StackFrame},
};

/// A frame that a path enters and leaves open.
#[derive(Clone, Copy, Debug)]
struct OpenFrame {
    function: FunctionId,
    entry: FrameEntry,
    return_address: ReturnAddress,
    /// Whether no known frame below it has the same function.
    is_outermost: bool,
}

/// Executions of one length that begin and end on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PathExecution {
    function: FunctionId,
    instructions: u32,
    /// Whether no known frame below it has the same function.
    is_outermost: bool,
}

/// A change of the stack, or executions.
#[derive(Clone, Copy, Debug)]
enum PathStep {
    Enter(OpenFrame),
    /// The newest frame of those before the path is left.
    Leave,
    /// At the first of these executions; several of one length are one step.
    Executions {
        each: PathExecution,
        times: u32,
    },
    /// A frame that was left later: its execution is a step of its own.
    Left,
}

/// A step with the number of instructions of the path before it.
type StepAt = (u32, PathStep);

/// A path and its runs.
#[derive(Clone, Copy, Debug)]
struct ExecutionPath {
    instructions: u32,
    /// End index of its steps; they begin where those of the previous path end.
    steps_end: u32,
    /// The same of its open steps.
    open_end: u32,
    /// Runs whose executions are not counted yet.
    runs: u32,
    /// Whether it is listed in [`ExecutionPaths::counted`].
    is_counted: bool,
}

/// The memoized paths of a decoding thread, reused from chunk to chunk.
#[derive(Clone, Debug, Default)]
pub struct ExecutionPaths {
    states: PathStates,
    paths: Vec<ExecutionPath>,
    steps: Vec<StepAt>,
    /// The steps that change the stack.
    open: Vec<StepAt>,
    /// Paths that ran since their executions were last counted.
    counted: Vec<u32>,
    /// By context, whether its newest frame is outermost; computed on demand.
    outermost: Vec<Option<bool>>,
    builder: PathBuilder,
}

/// Collects the steps of a path.
#[derive(Clone, Debug, Default)]
struct PathBuilder {
    steps: Vec<StepAt>,
    /// Where the open frames are among the steps.
    open: Vec<usize>,
    known: FxHashMap<PathExecution, usize>,
}

impl PathBuilder {
    fn add(&mut self, at: u32, step: PathStep) {
        match step {
            PathStep::Enter(_) => {
                self.open.push(self.steps.len());
                self.steps.push((at, step));
            }
            PathStep::Leave => match self.open.pop().map(|index| (index, self.steps[index])) {
                Some((index, (begin, PathStep::Enter(frame)))) => {
                    self.steps[index].1 = PathStep::Left;
                    let OpenFrame { function, is_outermost, .. } = frame;
                    let each = PathExecution { function, instructions: at - begin, is_outermost };
                    self.execute(at, each, 1);
                }
                _ => self.steps.push((at, step)),
            },
            PathStep::Executions { each, times } => self.execute(at, each, times),
            PathStep::Left => {}
        }
    }

    fn execute(&mut self, at: u32, each: PathExecution, more: u32) {
        let index = *self.known.entry(each).or_insert(self.steps.len());
        match self.steps.get_mut(index) {
            Some((_, PathStep::Executions { times, .. })) => *times += more,
            _ => self.steps.push((at, PathStep::Executions { each, times: more })),
        }
    }

    fn clear(&mut self) {
        self.steps.clear();
        self.open.clear();
        self.known.clear();
    }
}

impl ExecutionPaths {
    /// Memoizes the effect of runs in a state: returns the number of the path, and the state after it. `None` if they
    /// reach below the oldest frame, or if frames end otherwise than by a return.
    fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        let mut gatherer = StepGatherer::default();
        let to = self.states.follow(state, runs, &mut gatherer)?;
        if gatherer.unwinds {
            return None;
        }
        let mut builder = std::mem::take(&mut self.builder);
        builder.clear();
        for (at, step) in gatherer.steps {
            let step = match step {
                FrameStep::Leave => PathStep::Leave,
                FrameStep::Enter(context) => {
                    let is_outermost = self.is_outermost(context);
                    let StackFrame { function, entry, return_address, .. } = *self.states.frame(context);
                    PathStep::Enter(OpenFrame { function, entry, return_address, is_outermost })
                }
            };
            builder.add(at, step);
        }
        Some((self.push(gatherer.instructions, builder), to))
    }

    /// Memoizes the path that consists of two memoized ones in a row.
    fn join(&mut self, first: u32, second: u32) -> u32 {
        let mut builder = std::mem::take(&mut self.builder);
        builder.clear();
        let before = self.paths[first as usize].instructions;
        for (path, begin) in [(first, 0), (second, before)] {
            for &(at, step) in self.steps(path) {
                builder.add(begin + at, step);
            }
        }
        self.push(before + self.paths[second as usize].instructions, builder)
    }

    /// Adds a path with the steps of the builder.
    fn push(&mut self, instructions: u32, builder: PathBuilder) -> u32 {
        for &(at, step) in &builder.steps {
            match step {
                PathStep::Left => continue,
                PathStep::Enter(_) | PathStep::Leave => self.open.push((at, step)),
                PathStep::Executions { .. } => {}
            }
            self.steps.push((at, step));
        }
        self.builder = builder;
        let (steps_end, open_end) = (self.steps.len() as u32, self.open.len() as u32);
        let (runs, is_counted) = (0, false);
        self.paths.push(ExecutionPath { instructions, steps_end, open_end, runs, is_counted });
        self.paths.len() as u32 - 1
    }

    /// Returns whether no frame below the newest of a context has the same function.
    fn is_outermost(&mut self, context: ContextId) -> bool {
        let index = context as usize;
        if self.outermost.len() <= index {
            self.outermost.resize(self.states.contexts(), None);
        }
        *self.outermost[index].get_or_insert_with(|| {
            let mut frames = self.states.frames(context);
            let newest = frames.next().map(|frame| frame.function);
            !frames.any(|frame| Some(frame.function) == newest)
        })
    }

    fn before(&self, path: u32) -> (u32, u32) {
        let before = (path as usize).checked_sub(1).map(|before| &self.paths[before]);
        before.map_or((0, 0), |before| (before.steps_end, before.open_end))
    }

    fn steps(&self, path: u32) -> &[StepAt] {
        &self.steps[self.before(path).0 as usize..self.paths[path as usize].steps_end as usize]
    }

    /// Returns the instructions of a path.
    #[inline]
    fn instructions(&self, path: u32) -> u64 {
        self.paths[path as usize].instructions.into()
    }

    /// Notes a run of a path. Returns the steps that it takes at once: all of them the first time, which sets the order of
    /// first executions; later those that change the stack.
    #[inline]
    fn ran(&mut self, path: u32) -> &[StepAt] {
        let own = &mut self.paths[path as usize];
        if std::mem::replace(&mut own.is_counted, true) {
            own.runs += 1;
            let end = own.open_end;
            return &self.open[self.before(path).1 as usize..end as usize];
        }
        self.counted.push(path);
        self.steps(path)
    }

    /// Passes the executions of each path's further runs to `count`, with their number.
    fn take(&mut self, mut count: impl FnMut(PathExecution, u64)) {
        for path in std::mem::take(&mut self.counted) {
            let own = &mut self.paths[path as usize];
            own.is_counted = false;
            let runs = u64::from(std::mem::take(&mut own.runs));
            if runs == 0 {
                continue;
            }
            for (_, step) in self.steps(path) {
                if let PathStep::Executions { each, times } = step {
                    count(*each, u64::from(*times) * runs);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum FrameStep {
    Enter(ContextId),
    Leave,
}

/// Gathers the steps of a path.
#[derive(Debug)]
struct StepGatherer {
    steps: Vec<(u32, FrameStep)>,
    instructions: u32,
    /// How frames end at the current arrival.
    ended: IntervalEnd,
    /// Whether a frame ended otherwise than by a return.
    unwinds: bool,
}

impl Default for StepGatherer {
    fn default() -> StepGatherer {
        StepGatherer { steps: Vec::new(), instructions: 0, ended: IntervalEnd::Returned, unwinds: false }
    }
}

impl Notes for StepGatherer {
    fn arrives(&mut self, edge: FlowEdge, at: &Arrival) {
        self.ended = frame_end(edge, at);
    }

    fn enter(&mut self, context: ContextId, _: &StackFrame<ContextId>) {
        self.steps.push((self.instructions, FrameStep::Enter(context)));
    }

    fn leave(&mut self) {
        self.unwinds |= self.ended != IntervalEnd::Returned;
        self.steps.push((self.instructions, FrameStep::Leave));
    }

    fn ran(&mut self, _: ContextId, run: &Run) {
        self.instructions += run.instructions as u32;
    }
}

/// Paths run only while all functions are analysed, without times.
impl ExecutionsPartial {
    /// Returns the state from which paths continue; `None` if the next runs may reach below the known frames.
    pub(in crate::latency) fn state(&mut self) -> Option<u32> {
        match self.stack.is_empty() || self.edge.is_gap() {
            true => None,
            false => self.paths.states.enter(self.stack.iter().copied(), self.edge),
        }
    }

    pub(in crate::latency) fn learn(
        &mut self,
        state: u32,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        self.paths.learn(state, runs)
    }

    pub(in crate::latency) fn join(&mut self, first: u32, second: u32) -> u32 {
        self.paths.join(first, second)
    }

    /// Folds a run of a path.
    #[inline]
    pub(in crate::latency) fn fold_path(&mut self, path: u32) {
        let ExecutionsPartial { clocks, stack, outermost, paths, .. } = self;
        let before = clocks.instructions;
        clocks.instructions += paths.instructions(path);
        for &(at, step) in paths.ran(path) {
            let now = before + u64::from(at);
            match step {
                PathStep::Enter(OpenFrame { function, entry, return_address, .. }) => {
                    outermost.enter(function);
                    let mut begin = clocks.mark();
                    begin.before = now;
                    let caller = stack.last().map_or(function, |caller| caller.function);
                    let note = BegunExecution { begin, caller };
                    stack.push(StackFrame { function, entry, return_address, note });
                }
                PathStep::Leave => {
                    let Some(frame) = stack.pop() else { continue };
                    outermost.end(frame.function, Some(now.saturating_sub(frame.note.begin.before)));
                }
                PathStep::Executions { each, times } => {
                    let PathExecution { function, instructions, is_outermost } = each;
                    outermost.see_times(function, instructions.into(), times.into(), is_outermost);
                }
                PathStep::Left => {}
            }
        }
    }

    /// Continues after paths that led to this state. The stack is right already.
    pub(in crate::latency) fn resume(&mut self, state: u32) {
        self.edge = self.paths.states.edge(state);
    }

    /// Counts the executions on paths.
    pub(super) fn count_paths(&mut self) {
        let ExecutionsPartial { outermost, paths, .. } = self;
        paths.take(|PathExecution { function, instructions, is_outermost }, times| {
            outermost.see_times(function, instructions.into(), times, is_outermost);
        });
    }

    /// Exchanges the memoized paths.
    pub(in crate::latency) fn exchange(&mut self, memory: &mut ExecutionPaths) {
        self.count_paths();
        std::mem::swap(&mut self.paths, memory);
    }
}
