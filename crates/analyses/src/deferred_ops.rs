//! States that only grow right from the beginning of the trace on.
//!
//! ```text
//! first chunk:   events ──► operations ──► machine
//! other chunks:  events ──► operations, kept ──merge──► the machine of the chunks before
//! ```
//!
//! What a file descriptor stands for, or how long a queue is, depends on all that came before, and no chunk can
//! tell it by itself. So a chunk that does not begin the trace only boils its events down to operations, and the
//! merge, which goes in order of time, carries them out. Whatever the cuts, the machine sees the same operations.
//! As merges follow folds closely, no more than the chunks in flight are kept.

use serde::{Deserialize, Serialize};

/// What carries out operations, in order of time.
pub(crate) trait Machine<O>: Default {
    /// Carries out the next one.
    fn apply(&mut self, operation: O);
}

/// A machine, or the operations for one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeferredOps<M, O> {
    /// From the beginning of the trace on.
    machine: Option<M>,
    kept: Vec<O>,
}

impl<M: Machine<O>, O> DeferredOps<M, O> {
    pub(crate) fn new(is_first: bool) -> DeferredOps<M, O> {
        DeferredOps { machine: is_first.then(M::default), kept: Vec::new() }
    }

    /// Takes in the next operation.
    #[inline]
    pub(crate) fn see(&mut self, operation: O) {
        match &mut self.machine {
            Some(machine) => machine.apply(operation),
            None => self.kept.push(operation),
        }
    }

    /// Adds what the later of two neighbours has.
    pub(crate) fn add(&mut self, later: DeferredOps<M, O>) {
        later.kept.into_iter().for_each(|operation| self.see(operation));
    }

    /// The machine, if the trace begins here.
    pub(crate) fn machine(&mut self) -> Option<&mut M> {
        self.machine.as_mut()
    }

    /// The machine after all of the trace.
    pub(crate) fn finish(self) -> M {
        let mut machine = self.machine.unwrap_or_default();
        self.kept.into_iter().for_each(|operation| machine.apply(operation));
        machine
    }
}
