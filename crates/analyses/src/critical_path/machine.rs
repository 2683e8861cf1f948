//! Follows threads, CPUs, interrupts, requests and packets, and writes the history of each thread.
//!
//! ```text
//! switches, wake-ups ─────────► history of each thread, occupants of each CPU
//! interrupts, requests, packets ──► who woke: a thread, an interrupt, the completion of what a thread began
//! ```

use hodo_clock::Nanos;
use hodo_model::kernel::PrevState;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{
    board::Boards,
    history::{
        Author, CompletedWork, Doing, InterruptSource, Occupants, ThreadHistory, TraceKey, WaitIn, Waker,
        Why, WorkKind,
    },
};
use crate::deferred_ops::StateMachine;

/// Whether a thread is in a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum InCall {
    No,
    In(u32),
}

/// What is known of the running thread of a CPU: whether it is in a system call, and had a page fault since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InsideKernel {
    pub(crate) call: Option<InCall>,
    pub(crate) fault: Option<bool>,
}

impl InsideKernel {
    /// With what was known before.
    fn or(self, earlier: InsideKernel) -> InsideKernel {
        InsideKernel { call: self.call.or(earlier.call), fault: self.fault.or(earlier.fault) }
    }

    /// Where a thread waits that leaves its CPU now.
    fn wait(self) -> WaitIn {
        match self.call {
            Some(InCall::In(call)) => WaitIn::Call(call),
            Some(InCall::No) if self.fault == Some(true) => WaitIn::Fault,
            _ => WaitIn::Unknown,
        }
    }
}

/// `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ`.
const IN_INTERRUPT: i64 = 0x18;

/// An operation. CPUs are those of a trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HistoryStep {
    Switch {
        time: Nanos,
        cpu: TraceKey,
        prev: u32,
        next: u32,
        state: PrevState,
        inside: InsideKernel,
    },
    /// An event contains the thread that runs on a CPU.
    Runs {
        time: Nanos,
        cpu: TraceKey,
        tid: u32,
    },
    /// `is_early`: `sched_waking`, after which the wake-up itself may come on another CPU.
    Wake {
        time: Nanos,
        cpu: TraceKey,
        tid: u32,
        target: u32,
        flags: Option<i64>,
        is_early: bool,
    },
    Migrate {
        time: Nanos,
        thread: TraceKey,
        cpu: u32,
    },
    Fork {
        time: Nanos,
        parent: u32,
        child: TraceKey,
    },
    Enter {
        cpu: TraceKey,
        source: InterruptSource,
    },
    Leave {
        cpu: TraceKey,
    },
    /// A request: its device and sector.
    Issue {
        time: Nanos,
        cpu: TraceKey,
        request: (u32, u64),
    },
    Complete {
        cpu: TraceKey,
        request: (u32, u64),
    },
    Send {
        time: Nanos,
        cpu: TraceKey,
        packet: u64,
    },
    Receive {
        cpu: TraceKey,
        packet: u64,
    },
    /// What the running thread of a CPU does where the next chunk begins.
    SetOpenCall {
        cpu: TraceKey,
        inside: InsideKernel,
    },
    /// An event of a board.
    Board {
        time: Nanos,
        trace: u32,
        event: super::board::BoardEvent,
    },
}

/// A CPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct CpuOccupancy {
    /// The next thread of the last switch; `None` before the first switch.
    now: Option<u32>,
    /// The thread that ran last: that of the last switch, or of a later event that contains its thread.
    runs: Option<u32>,
    inside: InsideKernel,
    /// The interrupts that run, the innermost last, and the index of the work that each of them completed last.
    interrupts: Vec<(InterruptSource, Option<u32>)>,
    occupants: Occupants,
}

/// A thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct TracedThread {
    history: ThreadHistory,
    inside: InsideKernel,
    /// Who began to wake it, before it left its CPU.
    waking: Option<Waker>,
}

/// Interrupts nested deeper than this are ignored: real ones nest four deep.
const DEEPEST: usize = 16;

/// The history of everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Histories {
    cpus: FxHashMap<TraceKey, CpuOccupancy>,
    threads: FxHashMap<TraceKey, TracedThread>,
    works: Vec<CompletedWork>,
    /// Requests that are not complete, by trace, device and sector.
    requests: FxHashMap<(u32, u32, u64), CompletedWork>,
    /// Packets that are not received, by trace and address of their buffer.
    packets: FxHashMap<(u32, u64), CompletedWork>,
    boards: Boards,
}

impl Histories {
    pub(crate) fn history(&self, thread: TraceKey) -> Option<&ThreadHistory> {
        Some(&self.threads.get(&thread)?.history)
    }

    /// All threads with their histories, in order.
    pub(crate) fn all(&self) -> Vec<(TraceKey, &ThreadHistory)> {
        let mut all: Vec<_> = self.threads.iter().map(|(key, traced)| (*key, &traced.history)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    pub(crate) fn occupants(&self, cpu: TraceKey) -> Option<&Occupants> {
        Some(&self.cpus.get(&cpu)?.occupants)
    }

    pub(crate) fn work(&self, index: u32) -> Option<&CompletedWork> {
        self.works.get(index as usize)
    }

    pub(crate) fn boards(&self) -> &Boards {
        &self.boards
    }

    pub(super) fn boards_mut(&mut self) -> &mut Boards {
        &mut self.boards
    }

    pub(super) fn occupants_mut(&mut self, cpu: TraceKey) -> &mut Occupants {
        &mut self.cpus.entry(cpu).or_default().occupants
    }

    /// Forgets the history of a thread.
    pub(super) fn forget(&mut self, thread: TraceKey) {
        self.threads.remove(&thread);
    }

    pub(super) fn thread_history(&mut self, thread: TraceKey) -> &mut ThreadHistory {
        &mut self.threads.entry(thread).or_default().history
    }

    /// Adds work that has begun; returns its index.
    pub(super) fn add_work(&mut self, work: CompletedWork) -> u32 {
        self.works.push(work);
        self.works.len() as u32 - 1
    }

    /// Events are missing: the last change in a thread's history is not what the thread does now.
    pub(super) fn lose(&mut self, thread: TraceKey) {
        let history = self.thread_history(thread);
        match history.last() {
            None => history.push(Nanos(0), Doing::Unknown(Why::Lost)),
            Some(change) if change.to == Doing::Ended => {}
            Some(_) => history.correct(Doing::Unknown(Why::Lost)),
        }
    }

    fn switch(
        &mut self,
        time: Nanos,
        cpu: TraceKey,
        (prev, next): (u32, u32),
        state: PrevState,
        inside: InsideKernel,
    ) {
        let next_thread = TraceKey { id: next, ..cpu };
        let resumed = self.threads.get(&next_thread).map(|traced| traced.inside);
        let previous = self.threads.get(&TraceKey { id: prev, ..cpu }).filter(|_| prev != 0);
        let is_from_elsewhere = previous.is_some_and(|traced| !traced.history.may_run_since_begin());
        let occupancy = self.cpus.entry(cpu).or_default();
        occupancy.runs = Some(next);
        let inside = inside.or(occupancy.inside);
        occupancy.inside = resumed.filter(|_| next != 0).unwrap_or_default();
        occupancy.interrupts.clear();
        let before = occupancy.now.replace(next);
        match before {
            None => {
                occupancy.occupants.push(Nanos(0), prev);
                if is_from_elsewhere {
                    occupancy.occupants.lose();
                }
            }
            Some(tid) if tid != prev => occupancy.occupants.lose(),
            Some(_) => {}
        }
        let since = occupancy.occupants.last();
        occupancy.occupants.push(time, next);
        if let Some(other) = before.filter(|&tid| tid != prev && tid != 0) {
            self.lose_on(cpu, other);
        }
        if prev != 0 {
            self.leaves((since, time), cpu, (prev, before.is_none()), state, inside);
        }
        if next != 0 {
            self.comes(time, cpu, next_thread);
        }
    }

    /// A thread runs on a CPU. If another one came there last, a switch is missing: who ran since then is unknown.
    fn runs(&mut self, time: Nanos, cpu: TraceKey, tid: u32) {
        let thread = TraceKey { id: tid, ..cpu };
        let resumed = self.threads.get(&thread).map(|traced| traced.inside);
        let occupancy = self.cpus.entry(cpu).or_default();
        if occupancy.runs.replace(tid) == Some(tid) {
            return;
        }
        occupancy.inside = resumed.filter(|_| tid != 0).unwrap_or_default();
        let Some(other) = occupancy.now.filter(|&now| now != tid) else { return };
        occupancy.now = Some(tid);
        let since = occupancy.occupants.last();
        occupancy.occupants.lose();
        occupancy.occupants.push(time, tid);
        if other != 0 {
            self.lose_on(cpu, other);
        }
        if tid != 0 {
            let history = self.thread_history(thread);
            if history.last().is_some_and(|change| !matches!(change.to, Doing::Running(_) | Doing::Ended)) {
                history.push_unknown(since);
            }
            self.comes(time, cpu, thread);
        }
    }

    /// A switch is missing: at some unknown time, a thread stopped running on a CPU.
    fn lose_on(&mut self, cpu: TraceKey, tid: u32) {
        let thread = TraceKey { id: tid, ..cpu };
        let last = self.thread_history(thread).last();
        if last.is_some_and(|change| change.to == Doing::Running(cpu.id)) {
            self.lose(thread);
        }
    }

    /// A thread leaves a CPU; the switch before was at `since`.
    fn leaves(
        &mut self,
        (since, time): (Nanos, Nanos),
        cpu: TraceKey,
        (tid, is_first): (u32, bool),
        state: PrevState,
        inside: InsideKernel,
    ) {
        let traced = self.threads.entry(TraceKey { id: tid, ..cpu }).or_default();
        traced.inside = inside;
        let history = &mut traced.history;
        // The thread that leaves at the first switch of a CPU ran there since the trace began: wake-ups until then changed
        // nothing.
        if is_first && history.may_run_since_begin() {
            *history = ThreadHistory::default();
            history.push(Nanos(0), Doing::Running(cpu.id));
        }
        if history.last().is_none_or(|change| change.to != Doing::Running(cpu.id)) {
            history.push_unknown(since);
        }
        let to = match state {
            PrevState::Runnable => Doing::Ready(cpu.id),
            PrevState::Ended => Doing::Ended,
            PrevState::Unknown => Doing::Unknown(Why::State),
            _ => Doing::Blocked(inside.wait()),
        };
        history.push(time, to);
    }

    fn comes(&mut self, time: Nanos, cpu: TraceKey, thread: TraceKey) {
        let traced = self.threads.entry(thread).or_default();
        traced.waking = None;
        match traced.history.last().map(|change| change.to) {
            None => traced.history.push(Nanos(0), Doing::Unknown(Why::Before)),
            // It runs elsewhere: the switch from there is missing.
            Some(Doing::Running(_) | Doing::Ended) => traced.history.correct(Doing::Unknown(Why::Lost)),
            Some(_) => {}
        }
        traced.history.push(time, Doing::Running(cpu.id));
    }

    /// Who wakes a thread on a CPU.
    fn waker(&self, cpu: TraceKey, flags: Option<i64>) -> Waker {
        let occupancy = self.cpus.get(&cpu);
        let interrupts = occupancy.map_or(&[][..], |occupancy| &occupancy.interrupts);
        let in_interrupt = flags.map_or(!interrupts.is_empty(), |flags| flags & IN_INTERRUPT != 0);
        if !in_interrupt {
            return match occupancy.and_then(|occupancy| occupancy.now) {
                Some(0) => Waker::SomeInterrupt,
                Some(tid) => Waker::Thread(tid),
                None => Waker::Cpu(cpu.id),
            };
        }
        let Some((source, _)) = interrupts.last() else { return Waker::SomeInterrupt };
        let completed = interrupts.iter().rev().find_map(|(_, completed)| *completed);
        completed.map_or(Waker::Interrupt(*source), Waker::Work)
    }

    fn wakes(&mut self, time: Nanos, cpu: TraceKey, (tid, target): (u32, u32), by: Waker, is_early: bool) {
        let traced = self.threads.entry(TraceKey { id: tid, ..cpu }).or_default();
        match traced.history.last().map(|change| change.to) {
            // The wake-up shows that it has slept since the trace began.
            None => traced.history.push(Nanos(0), Doing::Blocked(WaitIn::Unknown)),
            Some(Doing::Running(_) | Doing::Ready(_)) => {
                traced.waking = Some(by).filter(|_| is_early).or(traced.waking);
                return;
            }
            // It was woken already; this event says on which CPU it will run.
            Some(Doing::Woken(_, by)) => return traced.history.correct(Doing::Woken(target, by)),
            Some(_) => {}
        }
        let by = traced.waking.take().filter(|_| !is_early).unwrap_or(by);
        traced.history.push(time, Doing::Woken(target, by));
    }

    /// Who begins work on a CPU.
    fn author(&self, cpu: TraceKey) -> Author {
        let Some(occupancy) = self.cpus.get(&cpu) else { return Author::Cpu(cpu) };
        match occupancy.now {
            _ if !occupancy.interrupts.is_empty() => Author::Interrupt,
            Some(0) => Author::Interrupt,
            Some(tid) => Author::Thread(TraceKey { id: tid, ..cpu }),
            None => Author::Cpu(cpu),
        }
    }

    /// A CPU completes work: in an interrupt, or in a thread that an interrupt woke to complete it.
    fn completes(&mut self, cpu: TraceKey, work: Option<CompletedWork>) {
        let Some(work) = work else { return };
        let index = self.works.len() as u32;
        let Some(occupancy) = self.cpus.get_mut(&cpu) else { return };
        if let Some((_, done)) = occupancy.interrupts.last_mut() {
            *done = Some(index);
        } else {
            // A thread completes it: if an interrupt woke that thread, the interrupt came for this work.
            let traced = occupancy.now.and_then(|tid| self.threads.get_mut(&TraceKey { id: tid, ..cpu }));
            match traced.and_then(|traced| traced.history.woken_by()) {
                Some((woken, by @ Waker::Interrupt(InterruptSource::Irq(_)))) if work.begin <= woken => {
                    *by = Waker::Work(index);
                }
                _ => return,
            }
        }
        self.works.push(work);
    }
}

impl StateMachine<HistoryStep> for Histories {
    fn apply(&mut self, step: HistoryStep) {
        match step {
            HistoryStep::Switch { time, cpu, prev, next, state, inside } => {
                self.switch(time, cpu, (prev, next), state, inside);
            }
            HistoryStep::Runs { time, cpu, tid } => self.runs(time, cpu, tid),
            HistoryStep::Wake { time, cpu, tid, target, flags, is_early } => {
                let by = self.waker(cpu, flags);
                self.wakes(time, cpu, (tid, target), by, is_early);
            }
            HistoryStep::Migrate { time, thread, cpu } => {
                let history = self.thread_history(thread);
                match history.last().map(|change| change.to) {
                    Some(Doing::Woken(on, _) | Doing::Ready(on)) if on != cpu => {
                        history.push(time, Doing::Ready(cpu))
                    }
                    _ => {}
                }
            }
            HistoryStep::Fork { time, parent, child } => {
                let traced = self.threads.entry(child).or_default();
                *traced =
                    TracedThread { history: std::mem::take(&mut traced.history), ..TracedThread::default() };
                traced.history.push(time, Doing::Born(parent));
            }
            HistoryStep::Enter { cpu, source } => {
                let interrupts = &mut self.cpus.entry(cpu).or_default().interrupts;
                if interrupts.len() < DEEPEST {
                    interrupts.push((source, None));
                }
            }
            HistoryStep::Leave { cpu } => {
                self.cpus.entry(cpu).or_default().interrupts.pop();
            }
            HistoryStep::Issue { time, cpu, request: (device, sector) } => {
                let work =
                    CompletedWork { kind: WorkKind::Block(device), begin: time, author: self.author(cpu) };
                // A busy device returns a request, and a kernel worker issues it again: its author stays.
                self.requests.entry((cpu.trace, device, sector)).or_insert(work);
            }
            HistoryStep::Complete { cpu, request: (device, sector) } => {
                let work = self.requests.remove(&(cpu.trace, device, sector));
                self.completes(cpu, work);
            }
            HistoryStep::Send { time, cpu, packet } => {
                let work = CompletedWork { kind: WorkKind::Packet, begin: time, author: self.author(cpu) };
                self.packets.insert((cpu.trace, packet), work);
            }
            HistoryStep::Receive { cpu, packet } => {
                let work = self.packets.remove(&(cpu.trace, packet));
                self.completes(cpu, work);
            }
            HistoryStep::SetOpenCall { cpu, inside } => {
                let occupancy = self.cpus.entry(cpu).or_default();
                occupancy.inside = inside.or(occupancy.inside);
            }
            HistoryStep::Board { time, trace, event } => super::board::apply(self, time, trace, event),
        }
    }
}
