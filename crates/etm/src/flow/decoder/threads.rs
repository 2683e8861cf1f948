//! Which thread runs: by context IDs, or else by the time of switches.

use hodo_clock::Tsc;
use hodo_flow::{Event, Sink, Switch};

use super::{Decoder, State};

/// Bit 63, which all kernel addresses have set.
const KERNEL: u64 = 1 << 63;

/// A thread by its context ID, which Linux sets to the thread's ID (CONFIG_PID_IN_CONTEXTIDR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadContext {
    /// Its context ID in the trace.
    pub context_id: u32,
    /// What runs when it does, from a time on.
    pub switch: Switch,
}

/// Returns the time of a switch; the highest if there is none.
pub(super) fn time_of(switch: Option<&Switch>) -> Tsc {
    switch.map_or(Tsc(u64::MAX), |switch| switch.at)
}

impl Decoder<'_> {
    /// Selects the program of the current thread, by time if that is known. Returns whether the thread is known.
    pub(super) fn follow_thread(&mut self, sink: &mut impl Sink) -> bool {
        let Some(id) = self.thread else { return false };
        let first = self.threads.partition_point(|thread| thread.context_id < id);
        let count = self.threads[first..].partition_point(|thread| thread.context_id == id);
        let of_thread = &self.threads[first..first + count];
        // Without times the last program is the likeliest: a thread runs its first one until its `exec` only.
        let now = Tsc(self.time.unwrap_or(u64::MAX));
        let begun = of_thread.partition_point(|thread| thread.switch.at <= now);
        let Some(thread) = of_thread.get(begun.saturating_sub(1)) else { return false };
        self.run(thread.switch.program, thread.switch.context, sink);
        true
    }

    fn run(&mut self, program: usize, context: u32, sink: &mut impl Sink) {
        if (program, context) != (self.program, self.context) {
            (self.program, self.context) = (program, context);
            self.walk.forget_block();
            sink.event(Event::Switch(context));
        }
    }

    /// Selects the program that runs at the current time.
    pub(super) fn follow_schedule(&mut self, sink: &mut impl Sink) {
        let now = Tsc(self.time.unwrap_or(0));
        let after = self.schedule.partition_point(|switch| switch.at <= now);
        let switch = self.schedule[after.saturating_sub(1)];
        self.next_switch = time_of(self.schedule.get(after.max(1)));
        self.switch_is_due = false;
        if !self.follow_thread(sink) {
            self.run(switch.program, switch.context, sink);
        }
    }

    /// Notes whether a switch of the schedule is due at this time.
    pub(super) fn pass_switches(&mut self, now: Tsc) {
        self.switch_is_due = now >= self.next_switch;
    }

    /// Applies a switch that is due, if kernel code runs: only the kernel switches threads, and its code is part of all
    /// programs.
    pub(super) fn switch_within_kernel(&mut self, sink: &mut impl Sink) {
        if self.switch_is_due && self.state == State::On && self.walk.ip & KERNEL != 0 {
            self.follow_schedule(sink);
        }
    }
}
