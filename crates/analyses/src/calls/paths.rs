//! Memoized paths, and the calls that begin and end on them.

use std::{ops::Range, sync::Arc};

use hodo_model::{FunctionId, Run};
use rustc_hash::FxHashSet;

use crate::{
    contexts::{ContextId, Notes, PathStates},
    stack::{FrameEntry, StackFrame},
};

/// An operation on the known frames.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameStep {
    Enter(FunctionId, FrameEntry),
    Leave,
    /// A complete call: it began `instructions` before, inside `above` others that are complete as well.
    CompleteCall {
        function: FunctionId,
        entry: FrameEntry,
        instructions: u32,
        above: u32,
    },
}

/// The calls that a receiver wants.
#[derive(Clone, Debug)]
pub enum WantedCalls {
    /// All.
    All,
    /// Those of these functions, and the calls that contain them.
    Of(Arc<FxHashSet<FunctionId>>),
}

/// A memoized path.
#[derive(Clone, Copy, Debug)]
struct CallPath {
    instructions: u32,
    /// End index of its steps; they begin where those of the previous path end.
    steps_end: u32,
}

/// The memoized paths, kept from one chunk to the next.
#[derive(Debug, Default)]
pub struct CallPaths {
    pub(super) states: PathStates,
    paths: Vec<CallPath>,
    /// Each step with the number of instructions of the path before it.
    steps: Vec<(u32, FrameStep)>,
    /// The steps of the path that is being memoized.
    new_steps: Vec<(u32, FrameStep)>,
}

impl CallPaths {
    /// Memoizes the effect of runs in a state: returns the number of their path, and the state after it. `begins`: the
    /// begins of calls are reported.
    pub(super) fn learn(
        &mut self,
        state: u32,
        runs: impl Iterator<Item = Run>,
        begins: bool,
        wanted: &WantedCalls,
    ) -> Option<(u32, u32)> {
        self.new_steps.clear();
        let mut gatherer = StepGatherer { steps: &mut self.new_steps, instructions: 0 };
        let to = self.states.follow(state, runs, &mut gatherer)?;
        let instructions = gatherer.instructions;
        if let WantedCalls::Of(functions) = wanted {
            drop_others(&mut self.new_steps, functions);
        }
        self.keep(begins);
        self.paths.push(CallPath { instructions, steps_end: self.steps.len() as u32 });
        Some((self.paths.len() as u32 - 1, to))
    }

    /// Memoizes the path that consists of two memoized ones in a row.
    pub(super) fn join(&mut self, first: u32, second: u32, wanted: &WantedCalls) -> u32 {
        let before = self.paths[first as usize].instructions;
        self.new_steps.clear();
        for (path, begin) in [(first, 0), (second, before)] {
            let steps = self.range(path);
            self.new_steps.extend(self.steps[steps].iter().map(|&(at, step)| (begin + at, step)));
        }
        // A call that ends on the second may have begun on the first.
        if let WantedCalls::Of(functions) = wanted {
            drop_others(&mut self.new_steps, functions);
        }
        self.steps.append(&mut self.new_steps);
        let instructions = before + self.paths[second as usize].instructions;
        self.paths.push(CallPath { instructions, steps_end: self.steps.len() as u32 });
        self.paths.len() as u32 - 1
    }

    /// The instructions of a path.
    #[inline]
    pub(super) fn instructions(&self, path: u32) -> u64 {
        self.paths[path as usize].instructions.into()
    }

    /// Returns the steps of a path, each with the number of instructions of the path before it.
    #[inline]
    pub(super) fn steps(&self, path: u32) -> &[(u32, FrameStep)] {
        &self.steps[self.range(path)]
    }

    #[inline]
    fn range(&self, path: u32) -> Range<usize> {
        let path = path as usize;
        let start = path.checked_sub(1).map_or(0, |before| self.paths[before].steps_end as usize);
        start..self.paths[path].steps_end as usize
    }

    /// Adds the steps of the new path to the list. A call that begins and ends among them becomes one step, unless begins are
    /// reported.
    fn keep(&mut self, begins: bool) {
        let CallPaths { steps, new_steps, .. } = self;
        if begins {
            steps.append(new_steps);
            return;
        }
        // Whether each step is part of a complete call, and where the open calls begin.
        let (mut whole, mut open) = (vec![false; new_steps.len()], Vec::new());
        for (index, (_, step)) in new_steps.iter().enumerate() {
            match step {
                FrameStep::Enter(..) => open.push(index),
                _ => {
                    if let Some(begin) = open.pop() {
                        (whole[begin], whole[index]) = (true, true);
                    }
                }
            }
        }
        open.clear();
        for (index, &(at, step)) in new_steps.iter().enumerate() {
            match step {
                FrameStep::Enter(..) if whole[index] => open.push(index),
                FrameStep::Leave if whole[index] => {
                    let begin = open.pop().map(|begin| new_steps[begin]);
                    let Some((begin, FrameStep::Enter(function, entry))) = begin else {
                        unreachable!("a complete call has a begin");
                    };
                    let (instructions, above) = (at - begin, open.len() as u32);
                    steps.push((at, FrameStep::CompleteCall { function, entry, instructions, above }));
                }
                _ => steps.push((at, step)),
            }
        }
        new_steps.clear();
    }
}

/// Drops the calls that begin and end among these steps, unless they are of these functions or contain a call of one.
fn drop_others(steps: &mut Vec<(u32, FrameStep)>, functions: &FxHashSet<FunctionId>) {
    /// A call that began on the path.
    struct Begun {
        index: usize,
        is_wanted: bool,
    }
    let (mut dropped, mut open): (_, Vec<Begun>) = (vec![false; steps.len()], Vec::new());
    for (index, (_, step)) in steps.iter().enumerate() {
        match step {
            FrameStep::Enter(function, _) => {
                open.push(Begun { index, is_wanted: functions.contains(function) });
            }
            // A wanted call, and calls that it is in: of two joined paths, the first may have such a step.
            FrameStep::CompleteCall { .. } => {
                if let Some(caller) = open.last_mut() {
                    caller.is_wanted = true;
                }
            }
            FrameStep::Leave => {
                let Some(Begun { index: begin, is_wanted }) = open.pop() else { continue };
                if !is_wanted {
                    (dropped[begin], dropped[index]) = (true, true);
                } else if let Some(caller) = open.last_mut() {
                    caller.is_wanted = true;
                }
            }
        }
    }
    let mut index = 0;
    steps.retain(|_| {
        index += 1;
        !dropped[index - 1]
    });
}

/// Gathers the steps of a path.
struct StepGatherer<'p> {
    steps: &'p mut Vec<(u32, FrameStep)>,
    instructions: u32,
}

impl Notes for StepGatherer<'_> {
    fn enter(&mut self, _: ContextId, frame: &StackFrame<ContextId>) {
        self.steps.push((self.instructions, FrameStep::Enter(frame.function, frame.entry)));
    }

    fn leave(&mut self) {
        self.steps.push((self.instructions, FrameStep::Leave));
    }

    fn ran(&mut self, _: ContextId, run: &Run) {
        self.instructions += run.instructions as u32;
    }
}
