//! What the recorder of a machine made the machine's kernel do: functions that make the records of mappings, names, forks
//! and switches, with their callees. The recorder's own process is left out as a thread.

use std::collections::HashMap;

use hodo_formats::recording::Thread;
use hodo_model::{Arrival, FunctionId, Names, Place, RECORDERS_FUNCTIONS, Transfer};
use rustc_hash::FxHashMap;

use crate::FlowTrace;

/// This bit is set in addresses of the kernel half.
const KERNEL: u64 = 1 << 63;
/// The recorder's process in a machine.
const PROCESS: u32 = 1;

/// Returns whether a thread of a recorded machine is the recorder's own.
pub(crate) fn is_recorders(trace_is_of_machine: bool, thread: Thread) -> bool {
    trace_is_of_machine && thread.pid == PROCESS
}

/// What executed code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Not the recorder's.
    Other,
    /// The first of the recorder's own.
    Begins,
    /// More of it.
    GoesOn,
    /// The first after it.
    Ended,
}

/// Follows the recorder's own functions in a stream. Where a segment begins within one, the rest of that counts as any
/// other code.
pub(crate) struct OwnShare<'x, 'f> {
    experiment: &'x FlowTrace<'f>,
    known: FxHashMap<FunctionId, bool>,
    /// The address after the last call.
    called: Option<u64>,
    /// Where the recorder's function returns to, by context.
    within: HashMap<u32, u64>,
}

impl<'x, 'f> OwnShare<'x, 'f> {
    /// Returns `None` if nothing is left out.
    pub(crate) fn new(experiment: &'x FlowTrace<'f>) -> Option<OwnShare<'x, 'f>> {
        experiment.without_recorder.then(|| OwnShare {
            experiment,
            known: FxHashMap::default(),
            called: None,
            within: HashMap::new(),
        })
    }

    pub(crate) fn begin_segment(&mut self) {
        self.called = None;
        self.within.clear();
    }

    /// Code of a thread is executed, and ends in this transfer before `end`.
    pub(crate) fn run(&mut self, context: u32, at: &Arrival, transfer: Transfer, end: u64) -> Share {
        let called = std::mem::replace(&mut self.called, (transfer == Transfer::Call).then_some(end));
        if let Some(&back) = self.within.get(&context) {
            if at.address != back {
                return Share::GoesOn;
            }
            self.within.remove(&context);
            return Share::Ended;
        }
        match called {
            Some(back) if at.place == Place::Entry && self.is_own(at) => {
                self.within.insert(context, back);
                Share::Begins
            }
            _ => Share::Other,
        }
    }

    fn is_own(&mut self, at: &Arrival) -> bool {
        at.address & KERNEL != 0
            && *self.known.entry(at.function).or_insert_with(|| {
                RECORDERS_FUNCTIONS.contains(&self.experiment.modules.names(at.function).0.as_str())
            })
    }
}
