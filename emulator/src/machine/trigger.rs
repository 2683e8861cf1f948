//! Triggers: conditions under which the last part of the trace is written.
//!
//! ```text
//! entry of a function, system call ──► Pending: stack pointer, time ──┐
//! its return, by that stack pointer ──────────────────────────────────┴─► longer than the limit? ──► Snapshot
//! a thread is woken ─────► Pending: the thread ──it runs──────────────────► the same
//! interrupts go off ─────► kept by the vCPU ─────they go on───────────────► the same
//! ```
//!
//! A stack pointer identifies one execution of a function: each thread has a stack of its own, and keeps it on all vCPUs.

use std::{
    collections::HashMap,
    ops::Range,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use serde::{Deserialize, Serialize};

/// The most executions that are watched at the same time. Functions that never return would otherwise fill memory.
const MOST_PENDING: usize = 1 << 16;
/// The most snapshots of a recording.
pub const MOST_SNAPSHOTS: usize = 10_000;

/// A condition: a latency longer than its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// The condition as the user wrote it.
    pub text: String,
    /// What is measured.
    pub latency: Latency,
    /// The longest latency that is no reason for a snapshot.
    pub limit: Limit,
}

/// What a trigger measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Latency {
    /// A system call with this name: from its instruction until user space goes on after it.
    Syscall(String),
    /// A function of the kernel, from its entry to its return.
    Kernel(String),
    /// A function of a file, from its entry to its return.
    File {
        /// The file's path, without symbolic links.
        path: PathBuf,
        /// Offsets of the function's code in the file.
        range: Range<u64>,
    },
    /// Code with interrupts off, on one vCPU.
    InterruptsOff,
    /// From a thread's wake-up until it runs; threads with this name, or all.
    Wakeup(Option<String>),
}

/// The limit of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// In nanoseconds.
    Nanoseconds(u64),
    /// In instructions that the vCPU runs, of any thread.
    Instructions(u64),
}

/// A snapshot, and why it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The index of the trigger.
    pub trigger: usize,
    /// The vCPU on which the latency ended.
    pub cpu: u32,
    /// Begin and end of the latency, in ticks.
    pub time: Range<u64>,
    /// The instructions between, if it began and ended on the same vCPU.
    pub instructions: Option<u64>,
}

/// A point in the execution of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) cpu: u32,
    /// In ticks.
    pub(crate) time: u64,
    /// Instructions that the vCPU has run.
    pub(crate) instructions: u64,
}

/// Identifies a pending latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LatencyKey {
    pub(crate) trigger: usize,
    /// The address space; 0 for the kernel.
    pub(crate) space: u64,
    /// The stack pointer; the thread for a wake-up.
    pub(crate) owner: u64,
}

/// In place of the address at which a wake-up ends.
pub(crate) const NO_ADDRESS: u64 = 0;

/// The begin of a latency.
#[derive(Clone, Copy, Debug)]
struct Begin {
    moment: Moment,
    /// The address at which it ends, or [`NO_ADDRESS`].
    end_address: u64,
}

/// The triggers of a recording and their state.
pub(crate) struct Triggers {
    limits: Vec<Limit>,
    ticks_per_second: u64,
    pending: Mutex<HashMap<LatencyKey, Begin>>,
    /// The number of pending latencies, to look at without the lock.
    count: AtomicUsize,
    snapshots: Mutex<Vec<Snapshot>>,
    /// The number of snapshots: each vCPU writes its part when it sees another number.
    requested: AtomicU64,
    /// Latencies whose end was not waited for.
    forgotten: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Triggers {
    pub(crate) fn new(triggers: &[Trigger], ticks_per_second: u64) -> Triggers {
        Triggers {
            limits: triggers.iter().map(|trigger| trigger.limit).collect(),
            ticks_per_second,
            pending: Mutex::default(),
            count: AtomicUsize::new(0),
            snapshots: Mutex::default(),
            requested: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn are_pending(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// The number of snapshots so far.
    #[inline(always)]
    pub(crate) fn requested(&self) -> u64 {
        self.requested.load(Ordering::Acquire)
    }

    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        lock(&self.snapshots).clone()
    }

    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// A latency begins; it ends when control comes to `end_address`.
    pub(crate) fn begin(&self, key: LatencyKey, moment: Moment, end_address: u64) {
        let mut pending = lock(&self.pending);
        if pending.len() >= MOST_PENDING && !pending.contains_key(&key) {
            self.forgotten.fetch_add(pending.len() as u64, Ordering::Relaxed);
            pending.clear();
        }
        pending.insert(key, Begin { moment, end_address });
        self.count.store(pending.len(), Ordering::Release);
    }

    /// Control is at `pc`: the latency with this key ends if `pc` is its end address.
    pub(crate) fn end(&self, key: LatencyKey, pc: u64, now: impl FnOnce() -> Moment) {
        let mut pending = lock(&self.pending);
        if pending.get(&key).is_none_or(|begin| begin.end_address != pc) {
            return;
        }
        let begin = pending.remove(&key).expect("it was just found").moment;
        self.count.store(pending.len(), Ordering::Release);
        drop(pending);
        self.check(key.trigger, begin, now());
    }

    /// Requests a snapshot if a latency was too long.
    pub(crate) fn check(&self, trigger: usize, begin: Moment, end: Moment) {
        let ticks = end.time.saturating_sub(begin.time);
        let instructions =
            (begin.cpu == end.cpu).then(|| end.instructions.saturating_sub(begin.instructions));
        let too_long = match self.limits[trigger] {
            Limit::Nanoseconds(limit) => {
                u128::from(ticks) * 1_000_000_000 > u128::from(limit) * u128::from(self.ticks_per_second)
            }
            Limit::Instructions(limit) => instructions.is_some_and(|count| count > limit),
        };
        if !too_long {
            return;
        }
        let mut snapshots = lock(&self.snapshots);
        if snapshots.len() < MOST_SNAPSHOTS {
            snapshots.push(Snapshot { trigger, cpu: end.cpu, time: begin.time..end.time, instructions });
            self.requested.store(snapshots.len() as u64, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triggers(limits: &[Limit]) -> Triggers {
        let trigger =
            |&limit: &Limit| Trigger { text: String::new(), latency: Latency::InterruptsOff, limit };
        Triggers::new(&limits.iter().map(trigger).collect::<Vec<_>>(), 2_000_000_000)
    }

    fn key(trigger: usize, space: u64, owner: u64) -> LatencyKey {
        LatencyKey { trigger, space, owner }
    }

    fn moment(cpu: u32, time: u64, instructions: u64) -> Moment {
        Moment { cpu, time, instructions }
    }

    #[test]
    fn a_latency_ends_where_it_should_and_is_compared_with_its_limit() {
        let triggers = triggers(&[Limit::Nanoseconds(100), Limit::Instructions(50)]);
        for trigger in [0, 1] {
            triggers.begin(key(trigger, 7, 0x1000), moment(0, 1000, 10), 0x40);
        }
        // Another stack, another space, another address.
        for (space, stack, pc) in [(7, 0x2000, 0x40), (8, 0x1000, 0x40), (7, 0x1000, 0x41)] {
            triggers.end(key(0, space, stack), pc, || moment(0, 9000, 999));
        }
        assert!(triggers.are_pending() && triggers.requested() == 0);
        // At 2 GHz, 200 ticks are 100 ns.
        triggers.end(key(0, 7, 0x1000), 0x40, || moment(0, 1200, 60));
        triggers.end(key(1, 7, 0x1000), 0x40, || moment(0, 1200, 60));
        assert!(!triggers.are_pending() && triggers.requested() == 0);
        triggers.check(0, moment(0, 1000, 10), moment(1, 1201, 3));
        triggers.check(1, moment(0, 1000, 10), moment(1, 1001, 999));
        triggers.check(1, moment(0, 1000, 10), moment(0, 1001, 61));
        let expected = [
            Snapshot { trigger: 0, cpu: 1, time: 1000..1201, instructions: None },
            Snapshot { trigger: 1, cpu: 0, time: 1000..1001, instructions: Some(51) },
        ];
        assert_eq!(triggers.snapshots(), expected);
    }

    #[test]
    fn functions_that_never_return_do_not_fill_memory() {
        let triggers = triggers(&[Limit::Nanoseconds(100)]);
        (0..=MOST_PENDING as u64).for_each(|stack| triggers.begin(key(0, 0, stack), Moment::default(), 1));
        assert_eq!(triggers.forgotten(), MOST_PENDING as u64);
        assert_eq!(lock(&triggers.pending).len(), 1);
    }
}
