//! What every thread did: the times at which it began to run, to wait for a CPU, or to wait for something else, and who
//! ended that wait.

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize};

/// A thread or a CPU of one trace. Other traces are of other machines, with the same numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct TraceKey {
    /// Index of the trace.
    pub(crate) trace: u32,
    /// Thread id, or number of the CPU.
    pub(crate) id: u32,
}

/// Where a thread waited: in a system call, in a page fault, for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum WaitIn {
    /// In the system call with this name.
    Call(u32),
    /// In user code, in a page fault.
    Fault,
    /// For a message.
    Message,
    /// Not known: system calls were not recorded, or it is a kernel thread.
    Unknown,
}

/// Why it is unknown what a thread did or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Why {
    /// No event of the thread came yet.
    Before,
    /// An event is missing.
    Lost,
    /// The code of its state has no known meaning.
    State,
    /// The thread ran again, but no wake-up was recorded.
    NoWakeup,
    /// An interrupt woke it, and the trace does not record which.
    Interrupt,
    /// It was not woken before the trace ended.
    NotWoken,
    /// According to the trace, the waker did not run.
    Waker,
    /// Who caused the request or the packet is not known.
    Sender,
    /// The trace has no events of a scheduler, and no function is known to run.
    NoScheduler,
}

impl Why {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Why::Before => "before the thread's first event",
            Why::Lost => "events are missing",
            Why::State => "the code of its state has no known meaning",
            Why::NoWakeup => "its wake-up is not recorded",
            Why::Interrupt => "woken by an interrupt that is not recorded",
            Why::NotWoken => "not woken before the end",
            Why::Waker => "its waker did not run, according to the trace",
            Why::Sender => "who asked for it is not recorded",
            Why::NoScheduler => "no function runs, and the trace has no scheduler",
        }
    }
}

/// The kind of interrupt that woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum InterruptSource {
    /// A device's, by number.
    Irq(u32),
    /// A soft interrupt, by vector.
    Softirq(u32),
    /// A timer.
    Timer,
}

/// Who woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Waker {
    /// This thread.
    Thread(u32),
    /// The thread that ran on this CPU before the first switch there.
    Cpu(u32),
    /// An interrupt.
    Interrupt(InterruptSource),
    /// An interrupt of unknown kind: the trace records only that it happened.
    SomeInterrupt,
    /// The completion of this [`CompletedWork`].
    Work(u32),
}

/// What a thread does from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Doing {
    /// It runs on this CPU.
    Running(u32),
    /// It could run, and waits for this CPU.
    Ready(u32),
    /// It was woken, and waits for this CPU.
    Woken(u32, Waker),
    /// It waits.
    Blocked(WaitIn),
    /// It left a board's CPU. The next change decides whether it was preempted or waited.
    Left(u32),
    /// It is being made by this thread.
    Born(u32),
    /// Unknown.
    Unknown(Why),
    /// It ended.
    Ended,
}

/// A change of what a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ActivityChange {
    pub(crate) time: Nanos,
    pub(crate) to: Doing,
}

/// Who began a [`CompletedWork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Author {
    /// This thread.
    Thread(TraceKey),
    /// The thread that ran on this CPU before the first switch there.
    Cpu(TraceKey),
    /// An interrupt.
    Interrupt,
}

/// The kind of a [`CompletedWork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum WorkKind {
    /// A request to this block device.
    Block(u32),
    /// A network packet.
    Packet,
    /// A message.
    Message,
}

/// Work that a thread began and an interrupt completed: a block request, a packet, a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompletedWork {
    pub(crate) kind: WorkKind,
    pub(crate) begin: Nanos,
    pub(crate) author: Author,
}

/// A stretch of a thread's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryStretch {
    pub(crate) begin: Nanos,
    /// `None` if it lasts to the end of the trace.
    pub(crate) end: Option<Nanos>,
    pub(crate) to: Doing,
    /// What follows.
    pub(crate) next: Option<Doing>,
}

/// The changes of a thread, in order of time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ThreadHistory(Vec<ActivityChange>);

impl ThreadHistory {
    pub(crate) fn last(&self) -> Option<ActivityChange> {
        self.0.last().copied()
    }

    pub(crate) fn first(&self) -> Option<ActivityChange> {
        self.0.first().copied()
    }

    pub(crate) fn push(&mut self, time: Nanos, to: Doing) {
        self.0.push(ActivityChange { time, to });
    }

    /// A switch is missing, after the one at `since`: what the thread does from there on is unknown.
    pub(crate) fn push_unknown(&mut self, since: Nanos) {
        let last = self.last().map_or(Nanos(0), |change| change.time);
        self.push(since.max(last), Doing::Unknown(Why::Lost));
    }

    /// Replaces what the thread does since its last change.
    pub(crate) fn correct(&mut self, to: Doing) {
        self.0.last_mut().into_iter().for_each(|change| change.to = to);
    }

    /// When it was last woken, and by whom, if it has run without a break since.
    pub(crate) fn woken_by(&mut self) -> Option<(Nanos, &mut Waker)> {
        match self.0.as_mut_slice() {
            [
                ..,
                ActivityChange { time, to: Doing::Woken(_, by) },
                ActivityChange { to: Doing::Running(_), .. },
            ] => Some((*time, by)),
            _ => None,
        }
    }

    /// Removes the last change.
    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the thread may have run since the trace began: nothing else is known of it, except that it may have been
    /// woken, which changes nothing for a running thread.
    pub(crate) fn may_run_since_begin(&self) -> bool {
        self.len() <= 2
            && self.last().is_none_or(|change| matches!(change.to, Doing::Woken(..)))
            && self.first().is_none_or(|change| change.time == Nanos(0))
    }

    /// What the thread does just before a time: the last stretch that began earlier.
    pub(crate) fn before(&self, time: Nanos) -> Option<HistoryStretch> {
        let index = self.0.partition_point(|change| change.time < time).checked_sub(1)?;
        Some(self.stretch(index))
    }

    fn stretch(&self, index: usize) -> HistoryStretch {
        let ActivityChange { time, to } = self.0[index];
        let next = self.0.get(index + 1);
        HistoryStretch { begin: time, end: next.map(|next| next.time), to, next: next.map(|next| next.to) }
    }

    /// All stretches, in order.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = HistoryStretch> {
        (0..self.0.len()).map(|index| self.stretch(index))
    }

    /// Whether it ran on this CPU from one time to the other.
    pub(crate) fn ran(&self, cpu: u32, begin: Nanos, end: Nanos) -> bool {
        self.before(end).is_some_and(|stretch| stretch.to == Doing::Running(cpu) && stretch.begin <= begin)
    }

    /// Whether it ran at a time, even if only for an instant.
    pub(crate) fn ran_at(&self, time: Nanos) -> bool {
        let last = self.0.partition_point(|change| change.time <= time);
        let around = (0..last).rev().map(|index| self.stretch(index));
        around
            .take_while(|stretch| stretch.end.is_none_or(|end| end >= time))
            .any(|stretch| matches!(stretch.to, Doing::Running(_)))
    }
}

/// Which thread ran on a CPU, from each of these times on; `None` where it is unknown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Occupants(Vec<(Nanos, Option<u32>)>);

impl Occupants {
    pub(crate) fn push(&mut self, time: Nanos, tid: u32) {
        self.0.push((time, Some(tid)));
    }

    /// The time of the last switch.
    pub(crate) fn last(&self) -> Nanos {
        self.0.last().map_or(Nanos(0), |(time, _)| *time)
    }

    /// Forgets which thread runs since the last switch.
    pub(crate) fn lose(&mut self) {
        self.0.last_mut().into_iter().for_each(|(_, tid)| *tid = None);
    }

    /// Who ran just before a time, and since when.
    pub(crate) fn before(&self, time: Nanos) -> (Nanos, Option<u32>) {
        let index = self.0.partition_point(|(begin, _)| *begin < time).checked_sub(1);
        index.map_or((Nanos(0), None), |index| self.0[index])
    }

    /// Who ran there before the first switch.
    pub(crate) fn first(&self) -> Option<u32> {
        self.0.first()?.1
    }
}
