//! The running thread of each CPU, and the events which show that a switch is missing.
//!
//! Kernels leave out switches without counting them as lost: Linux 6.18 does under load. But many events contain the
//! thread that ran (`common_pid` of ftrace, the sample of perf, a context of LTTng). If it is not the next thread of the
//! last switch on its CPU, the switches between the two are missing.

use hodo_model::kernel::{KernelEvent, Kind, field};
use rustc_hash::FxHashMap;

/// The running threads, by trace and CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningThreads(FxHashMap<(u32, u32), u32>);

impl RunningThreads {
    /// Sees the next event. Returns the thread that it contains, if that one was not known to run on its CPU.
    #[inline]
    pub(crate) fn see(&mut self, event: &KernelEvent<'_>) -> Option<u32> {
        let cpu = (event.trace(), event.cpu);
        if event.kind == Kind::SchedSwitch {
            // Most traces' events contain no thread: then there is nothing to keep up to date.
            let next = event.integer(field::switch::NEXT_TID)?;
            self.0.get_mut(&cpu).into_iter().for_each(|running| *running = next as u32);
            return None;
        }
        // perf has no number for a thread that has ended.
        let tid = event.reported()?.tid().filter(|&tid| tid != u32::MAX)?;
        (self.0.insert(cpu, tid) != Some(tid)).then_some(tid)
    }
}
