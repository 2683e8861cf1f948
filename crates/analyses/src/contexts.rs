//! Call stacks as numbers, so that the effect of runs on a stack is known without looking at its frames.
//!
//! The effect depends on the frames and on the edge over which execution arrives: together a *state*.

use std::num::NonZero;

use hodo_model::{Arrival, FunctionId, Place, Run};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::stack::{
    ArrivedAt, Below, FlowEdge, FrameEntry, KnownFrames, ReturnAddress, StackFrame, Watch, arrive,
};

/// A stack of known frames, identified by its newest frame, which refers to the one below it.
pub(crate) type ContextId = u32;

/// The context below the oldest known frame.
pub(crate) const BELOW: ContextId = ContextId::MAX;

/// Maximum depth of a numbered stack.
const DEEPEST: usize = 1 << 9;

/// Receives the effect of runs.
pub(crate) trait Notes {
    /// Called before each arrival, with the edge that leads there.
    fn arrives(&mut self, _edge: FlowEdge, _at: &Arrival) {}

    /// Called when a frame is entered, as the newest of `context`.
    fn enter(&mut self, context: ContextId, frame: &StackFrame<ContextId>);

    /// Called when the newest frame is left.
    fn leave(&mut self);

    /// Called when the newest frame of a context executes instructions.
    fn ran(&mut self, context: ContextId, run: &Run);
}

/// Distinct contexts.
#[derive(Clone, Debug, Default)]
struct Contexts {
    /// The note of a frame is the context below it.
    frames: IndexSet<StackFrame<ContextId>, FxBuildHasher>,
    /// The depth of each.
    depths: Vec<u32>,
}

/// Assigns numbers to the contexts that are entered.
struct Entered<'c, N> {
    contexts: &'c mut Contexts,
    notes: &'c mut N,
}

impl<N: Notes> Watch<ContextId> for Entered<'_, N> {
    fn enter(
        &mut self,
        from: &StackFrame<ContextId>,
        function: FunctionId,
        entry: FrameEntry,
        back: ReturnAddress,
    ) -> ContextId {
        let below = from.note;
        let context = self.contexts.number(below, function, entry, back);
        self.notes.enter(context, &self.contexts.frames[context as usize]);
        context
    }

    fn leave(&mut self, _: &StackFrame<ContextId>) {
        self.notes.leave();
    }
}

impl Contexts {
    /// Returns the context of a frame on top of the context `below`.
    fn number(
        &mut self,
        below: ContextId,
        function: FunctionId,
        entry: FrameEntry,
        back: ReturnAddress,
    ) -> ContextId {
        let (index, is_new) =
            self.frames.insert_full(StackFrame { function, entry, return_address: back, note: below });
        if is_new {
            self.depths.push(if below == BELOW { 0 } else { self.depths[below as usize] + 1 });
        }
        index as ContextId
    }

    /// Moves the stack over an edge; `None` if it reaches below the oldest frame.
    fn arrive(
        &mut self,
        top: ContextId,
        edge: FlowEdge,
        at: &Arrival,
        notes: &mut impl Notes,
    ) -> Option<ContextId> {
        let frame = self.frames[top as usize];
        let enters = match edge {
            // Nearly all arrivals.
            FlowEdge::Flow | FlowEdge::Indirect if frame.function == at.function => return Some(top),
            FlowEdge::Call { return_address } => Some((FrameEntry::Call, NonZero::new(return_address))),
            FlowEdge::Indirect if at.place == Place::Entry && frame.entry == FrameEntry::Call => {
                Some((FrameEntry::Tail, None))
            }
            FlowEdge::Return if at.place != Place::Entry => {
                let jumped = frame.entry == FrameEntry::Tail;
                let callee = if jumped { self.frames[frame.note as usize] } else { frame };
                if callee.entry == FrameEntry::Call
                    && callee.returns_to(at.address)
                    && self.frames[callee.note as usize].function == at.function
                {
                    (0..=u8::from(jumped)).for_each(|_| notes.leave());
                    return Some(callee.note);
                }
                None
            }
            _ => None,
        };
        let mut entered = Entered { contexts: self, notes };
        if let Some((entry, back)) = enters {
            let from = StackFrame { note: top, ..frame };
            return Some(entered.enter(&from, at.function, entry, back));
        }
        let mut stack = entered.contexts.stack(top);
        arrive(&mut stack, &mut entered, Below::Unknown, edge, &ArrivedAt::of(at)).ok()?;
        stack.last().map(|frame| frame.note)
    }

    /// Returns the frames of a context, the oldest first. The note of each is its own context.
    fn stack(&self, top: ContextId) -> KnownFrames<ContextId> {
        let contexts = std::iter::successors(Some(top), |context| {
            Some(self.frames[*context as usize].note).filter(|&id| id != BELOW)
        });
        let mut stack: Vec<_> =
            contexts.map(|note| StackFrame { note, ..self.frames[note as usize] }).collect();
        stack.reverse();
        stack.into()
    }
}

/// Distinct states.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathStates {
    contexts: Contexts,
    states: IndexSet<(ContextId, FlowEdge), FxBuildHasher>,
}

impl PathStates {
    /// Returns the number of the state after an edge from a stack; `None` if the stack has too many frames.
    pub(crate) fn enter<T>(
        &mut self,
        stack: impl ExactSizeIterator<Item = StackFrame<T>>,
        edge: FlowEdge,
    ) -> Option<u32> {
        if stack.len() > DEEPEST {
            return None;
        }
        let mut top = BELOW;
        for StackFrame { function, entry, return_address, .. } in stack {
            top = self.contexts.number(top, function, entry, return_address);
        }
        Some(self.number(top, edge))
    }

    fn number(&mut self, context: ContextId, edge: FlowEdge) -> u32 {
        self.states.insert_full((context, edge)).0 as u32
    }

    /// Follows runs from a state and reports their effect to `notes`; `None` if they reach below the oldest frame, or
    /// the stack becomes too deep.
    pub(crate) fn follow(
        &mut self,
        state: u32,
        runs: impl Iterator<Item = Run>,
        notes: &mut impl Notes,
    ) -> Option<u32> {
        let (mut context, mut edge) = self.states[state as usize];
        for run in runs {
            notes.arrives(edge, &run.at);
            context = self.contexts.arrive(context, edge, &run.at, notes)?;
            notes.ran(context, &run);
            edge = FlowEdge::after(&run);
        }
        let fits = self.contexts.depths[context as usize] < DEEPEST as u32;
        fits.then(|| self.number(context, edge))
    }

    /// Returns the context of a state: its stack.
    pub(crate) fn context(&self, state: u32) -> ContextId {
        self.states[state as usize].0
    }

    /// Returns the edge of a state.
    pub(crate) fn edge(&self, state: u32) -> FlowEdge {
        self.states[state as usize].1
    }

    /// Returns the stack of a state, and the edge after it. The note of each frame is its own context.
    pub(crate) fn stack(&self, state: u32) -> (KnownFrames<ContextId>, FlowEdge) {
        let (context, edge) = self.states[state as usize];
        (self.contexts.stack(context), edge)
    }

    /// The newest frame of a context. Its note is the context below it.
    pub(crate) fn frame(&self, context: ContextId) -> &StackFrame<ContextId> {
        &self.contexts.frames[context as usize]
    }

    /// Returns the frames of a context, the newest first.
    pub(crate) fn frames(&self, context: ContextId) -> impl Iterator<Item = &StackFrame<ContextId>> {
        let frame = |context: ContextId| self.contexts.frames.get_index(context as usize);
        std::iter::successors(frame(context), move |newer| frame(newer.note))
    }

    /// The number of contexts.
    pub(crate) fn contexts(&self) -> usize {
        self.contexts.frames.len()
    }
}
