//! State machines whose state is only correct from the beginning of the trace.
//!
//! ```text
//! first chunk:   events ──► operations ──► machine
//! other chunks:  events ──► operations, kept ──merge──► the machine of the chunks before
//! ```
//!
//! What a file descriptor refers to, or the length of a queue, depends on all earlier events, so a single chunk cannot
//! determine it. A chunk that does not begin the trace therefore only reduces its events to operations, and the merge,
//! in order of time, applies them. The machine sees the same operations for any chunk borders. Merges follow folds
//! closely, so only the operations of a few chunks are in memory.

use serde::{Deserialize, Serialize};

/// A state machine to which operations are applied in order of time.
pub(crate) trait StateMachine<O>: Default {
    /// Applies the next operation.
    fn apply(&mut self, operation: O);
}

/// A machine, or the operations to be applied to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeferredOps<M, O> {
    /// `None` if the trace does not begin here.
    machine: Option<M>,
    kept: Vec<O>,
}

impl<M: StateMachine<O>, O> DeferredOps<M, O> {
    pub(crate) fn new(is_first: bool) -> DeferredOps<M, O> {
        DeferredOps { machine: is_first.then(M::default), kept: Vec::new() }
    }

    /// Folds the next operation.
    #[inline]
    pub(crate) fn see(&mut self, operation: O) {
        match &mut self.machine {
            Some(machine) => machine.apply(operation),
            None => self.kept.push(operation),
        }
    }

    /// Adds the operations of the chunks that follow.
    pub(crate) fn add(&mut self, later: DeferredOps<M, O>) {
        later.kept.into_iter().for_each(|operation| self.see(operation));
    }

    /// Returns the machine, if the trace begins here.
    pub(crate) fn machine(&mut self) -> Option<&mut M> {
        self.machine.as_mut()
    }

    /// Returns the machine at the end of the trace.
    pub(crate) fn finish(self) -> M {
        let mut machine = self.machine.unwrap_or_default();
        self.kept.into_iter().for_each(|operation| machine.apply(operation));
        machine
    }
}
