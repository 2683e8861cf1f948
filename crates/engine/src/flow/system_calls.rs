//! Executions of system calls in the control flow of a kernel.
//!
//! A system call lasts from the kernel's entry to the return to user space (SYSRET, IRET), whatever calls and jumps lie
//! in between: on the call stack, it is an interrupt frame. The function that implements the system call, somewhere above
//! that frame, shows which system call it is.

use std::ops::Range;

use hodo_analyses::{FrameEntry, calls::Moment};
use hodo_model::{FunctionId, Root};
use rustc_hash::FxHashSet;

use crate::{
    flow::{
        calls::{Find, find},
        selection_filter::Spans,
        trace::Trace,
    },
    reading::Reading,
};

/// Finds when each thread executed a system call, also those of which the begin is missing. `progress` gets the number
/// of decoded bytes and returns whether to continue.
pub(crate) fn find_system_calls(
    trace: &Trace<'_>,
    root: &Root,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> Spans {
    let functions: FxHashSet<FunctionId> = trace.modules.functions_of_root(root).collect();
    let finder = || Finder { functions: &functions, open: Vec::new(), found: Vec::new() };
    find(trace, finder, reading, progress)
}

/// Follows the interrupts of a thread.
struct Finder<'f> {
    /// The functions that implement the system call.
    functions: &'f FxHashSet<FunctionId>,
    /// For the oldest frame and each interrupt on the stack: whether it is the system call.
    open: Vec<bool>,
    found: Vec<Range<u64>>,
}

impl Find for Finder<'_> {
    fn moment(&mut self, moment: &Moment) {
        match moment {
            Moment::Begin { function, entry, .. } => {
                if is_interrupt(*entry) {
                    self.open.push(false);
                }
                if self.functions.contains(function)
                    && let Some(newest) = self.open.last_mut()
                {
                    *newest = true;
                }
            }
            Moment::End { call } => {
                if is_interrupt(call.entry) && self.open.pop() == Some(true) {
                    self.found.push(call.before..call.before + call.instructions);
                }
            }
            Moment::Gap { .. } => {}
        }
    }

    fn executions(self) -> Vec<Range<u64>> {
        self.found
    }
}

/// Returns whether a frame is that of an interrupt, or the oldest one.
fn is_interrupt(entry: FrameEntry) -> bool {
    entry == FrameEntry::Root || entry.is_interrupt()
}
