//! What the recorder of a machine made the machine's kernel do: functions that make the records of mappings, names, forks
//! and switches, with their callees. The recorder's own process is left out as a thread.

use std::collections::HashMap;

use hodo_formats::recording::Thread;
use hodo_model::{Arrival, FunctionId, Names, Place, RECORDERS_FUNCTIONS, Transfer};
use rustc_hash::FxHashMap;

use crate::flow::trace::Trace;

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

/// Where the recorder's own share ends.
#[derive(Clone, Copy)]
enum Until {
    /// At this address, to which its function returns.
    Back(u64),
    /// At any other function.
    OtherThan(FunctionId),
}

/// Follows the recorder's own functions in a stream. If a segment begins within such a function, the functions that it calls
/// count as other code: where they return to is unknown.
pub(crate) struct OwnShare<'x, 'f> {
    trace: &'x Trace<'f>,
    known: FxHashMap<FunctionId, bool>,
    /// The address after the last call.
    called: Option<u64>,
    /// The end of the share that is executed, by context.
    within: HashMap<u32, Until>,
}

impl<'x, 'f> OwnShare<'x, 'f> {
    /// Returns `None` if nothing is left out.
    pub(crate) fn new(trace: &'x Trace<'f>) -> Option<OwnShare<'x, 'f>> {
        trace.without_recorder.then(|| OwnShare {
            trace,
            known: FxHashMap::default(),
            called: None,
            within: HashMap::new(),
        })
    }

    pub(crate) fn begin_segment(&mut self) {
        self.called = None;
        self.within.clear();
    }

    /// Code of a thread is executed; its last instruction makes this transfer, and ends at `end`.
    pub(crate) fn run(&mut self, context: u32, at: &Arrival, transfer: Transfer, end: u64) -> Share {
        let called = std::mem::replace(&mut self.called, (transfer == Transfer::Call).then_some(end));
        let before = self.within.get(&context).copied();
        let still_running = match before {
            Some(Until::Back(back)) => at.address != back,
            Some(Until::OtherThan(function)) => at.function == function,
            None => false,
        };
        if still_running {
            return Share::GoesOn;
        }
        if !self.is_own(at) {
            return self.within.remove(&context).map_or(Share::Other, |_| Share::Ended);
        }
        let until = match called {
            Some(back) if at.place == Place::Entry => Until::Back(back),
            _ => Until::OtherThan(at.function),
        };
        self.within.insert(context, until);
        before.map_or(Share::Begins, |_| Share::GoesOn)
    }

    fn is_own(&mut self, at: &Arrival) -> bool {
        at.address & KERNEL != 0
            && *self.known.entry(at.function).or_insert_with(|| {
                RECORDERS_FUNCTIONS.contains(&self.trace.modules.names(at.function).0.as_str())
            })
    }
}
