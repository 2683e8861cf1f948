//! `locks`: which locks did threads wait for, and which thread released them?
//!
//! A lock is an address that `futex` calls name, of one process where the tracer records processes. A wait is a call
//! that waits and succeeds; a release is a call that wakes at least one thread. Between two releases of a lock it was in
//! the hands of the thread that releases it next: time that threads waited in between counts against that thread. The
//! tracer must name the arguments of system calls, as LTTng and ftrace do.
//!
//! Threads also wait at such addresses for the work or the end of another thread. A thread that got a lock releases it: it
//! later wakes the others that wait there, or tries to. A thread that waits for work (at condition variables, semaphores)
//! wakes no others. The end of a thread wakes the thread that joins it without a call.

use std::collections::{BTreeMap, BTreeSet};

use hodo_clock::Nanos;
use hodo_model::{
    Column, Description, EventAnalysis, FinishContext, FlowLoop, Interest, Made, Report, Shape, Table, Takes,
    Unit,
    kernel::{Kind, Thread, field},
};

use crate::{
    columns::{duration_cells, duration_columns, most_first},
    durations::Durations,
    system_calls::{CallsPartial, FutexCall, FutexEffect, INTEREST},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Locks;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "locks",
            help: "kernel events: the locks (futex) that threads waited for, and who released them",
            views: &["lock"],
            takes: Takes::THREADS,
            in_all: true,
            ..Description::EMPTY
        },
        make: |_| Made::of_events(Locks),
    }
}

impl EventAnalysis for Locks {
    type Partial = CallsPartial<Vec<FutexCall>>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(
            const {
                let [switch, entry, exit, whole] = INTEREST;
                &[
                    switch,
                    entry,
                    exit,
                    whole,
                    (Kind::SyscallEntry, &[field::entry::LOCK, field::entry::COMMAND]),
                ]
            },
        )
    }

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let mut locks: BTreeMap<(Option<u32>, u64), Lock> = BTreeMap::new();
        for call in whole.complete() {
            let thread = context.threads.settled(call.thread);
            let lock = locks.entry((context.threads.pid(thread), call.address)).or_default();
            lock.add(call, thread, context.threads.wanted(thread, context.selection));
        }
        locks.retain(|_, lock| lock.waits.count > 0);
        let sum = |figure: fn(&Durations) -> u64| locks.values().map(|lock| figure(&lock.waits)).sum::<u64>();
        let summary = vec![
            ("locks", (locks.len() as u64).into()),
            ("waits", sum(|waits| waits.count).into()),
            ("total_ns", sum(|waits| waits.total).into()),
        ];
        let mut columns = vec![
            Column::name("lock"),
            Column::name("kind"),
            Column::integer("pid", Unit::None).secondary(),
            Column::integer("waiters", Unit::Count),
            Column::integer("count", Unit::Count),
        ];
        columns.extend(duration_columns());
        columns.extend([
            Column::name("holder"),
            Column::integer("holder_tid", Unit::None),
            Column::integer("holder_ns", Unit::Nanoseconds),
        ]);
        let rows = most_first(locks.into_iter().map(|((pid, address), lock)| {
            let mut row = vec![
                format!("{address:#x}").as_str().into(),
                lock.kind().into(),
                pid.into(),
                (lock.waiters.len() as u64).into(),
                lock.waits.count.into(),
            ];
            row.extend(duration_cells(&lock.waits));
            let (total, holder) = (lock.waits.total, lock.holder());
            row.extend([
                holder.and_then(|(thread, _)| context.threads.comm(thread)).into(),
                holder.and_then(|(thread, _)| thread.tid()).into(),
                holder.map(|(_, waited)| waited).into(),
            ]);
            ((total, (pid, address)), row)
        }));
        Table::new("locks", Shape::Counters, summary, columns, rows)
    }
}

/// The calls of one lock.
#[derive(Debug, Default)]
struct Lock {
    waits: Durations,
    waiters: BTreeSet<Thread>,
    /// Threads that released it, or would have if others had waited.
    wakers: BTreeSet<Thread>,
    changes: Vec<(Nanos, LockChange)>,
}

/// What changes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LockChange {
    Released(Thread),
    WaitEnds,
    WaitBegins,
}

impl Lock {
    fn add(&mut self, call: &FutexCall, thread: Thread, is_wanted: bool) {
        match call.effect {
            FutexEffect::Waited if is_wanted => {
                self.waits.see(call.end.0.saturating_sub(call.begin.0));
                self.waiters.insert(thread);
                self.changes.extend([(call.begin, LockChange::WaitBegins), (call.end, LockChange::WaitEnds)]);
            }
            FutexEffect::Waited => {}
            FutexEffect::Woke => {
                self.wakers.insert(thread);
                self.changes.push((call.begin, LockChange::Released(thread)));
            }
            FutexEffect::WokeNobody => _ = self.wakers.insert(thread),
        }
    }

    /// What threads wait for: `lock`, `work` of other threads, or the `end` of a thread.
    fn kind(&self) -> &'static str {
        if self.wakers.is_empty() {
            "end"
        } else if self.waiters.is_disjoint(&self.wakers) {
            "work"
        } else {
            "lock"
        }
    }

    /// Returns the thread in whose hands the lock was while threads waited longest, and how long they did together.
    fn holder(mut self) -> Option<(Thread, u64)> {
        self.changes.sort_unstable();
        let mut waited: BTreeMap<Thread, u64> = BTreeMap::new();
        let (mut waiting, mut since_release, mut last) = (0u64, 0u64, Nanos(0));
        for (time, change) in self.changes {
            let more = waiting.saturating_mul(time.0.saturating_sub(last.0));
            since_release = since_release.saturating_add(more);
            last = time;
            match change {
                LockChange::WaitBegins => waiting += 1,
                LockChange::WaitEnds => waiting = waiting.saturating_sub(1),
                LockChange::Released(thread) => {
                    let of_thread = waited.entry(thread).or_default();
                    *of_thread = of_thread.saturating_add(std::mem::take(&mut since_release));
                }
            }
        }
        // Of equal ones the first.
        waited.into_iter().rev().max_by_key(|&(_, waited)| waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_against_the_next_release() {
        let call = |tid, begin, end| {
            let thread = Thread::new(tid, 0);
            let effect = FutexEffect::Woke;
            FutexCall { address: 1, effect, begin: Nanos(begin), end: Nanos(end), thread }
        };
        let wait = |tid, begin, end| FutexCall { effect: FutexEffect::Waited, ..call(tid, begin, end) };
        let mut lock = Lock::default();
        // Thread 1 holds it for 20, then thread 2 for 3 while thread 3 still waits.
        let calls = [wait(2, 5, 20), wait(3, 6, 23), call(1, 20, 21), call(2, 23, 24)];
        let is_wanted = true;
        for call in &calls {
            lock.add(call, call.thread, is_wanted);
        }
        assert_eq!((lock.waits.count, lock.waits.total, lock.waiters.len()), (2, 32, 2));
        assert_eq!(lock.kind(), "lock");
        assert_eq!(lock.holder(), Some((Thread::new(1, 0), 29)));
        assert_eq!(Lock::default().holder(), None);
    }

    #[test]
    fn what_threads_wait_for_shows_in_who_wakes_them() {
        use FutexEffect::{Waited, Woke, WokeNobody};
        for (calls, kind) in [
            (&[(1, Waited), (2, Woke), (1, WokeNobody)][..], "lock"),
            (&[(1, Waited), (2, Woke), (1, Waited), (2, Woke)], "work"),
            (&[(1, Waited)], "end"),
        ] {
            let (mut lock, is_wanted) = (Lock::default(), true);
            for (time, &(tid, effect)) in (0..).zip(calls) {
                let thread = Thread::new(tid, 0);
                let call = FutexCall { address: 1, effect, begin: Nanos(time), end: Nanos(time), thread };
                lock.add(&call, thread, is_wanted);
            }
            assert_eq!(lock.kind(), kind);
        }
    }
}
