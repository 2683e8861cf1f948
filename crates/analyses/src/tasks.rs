//! In which state each thread is, from the beginning of the trace on.
//!
//! ```text
//!            switch to it                    switch from it, and it could go on
//! Runnable ───────────────► Running ──────────────────────────────────────────► Runnable
//!     ▲                        │ switch from it, and it waits
//!     └────── wake-up ─────── Blocked
//! ```
//!
//! What nothing told yet is not known: a thread is in no state until an event names it. Who runs before the first
//! switch on a CPU is told by that.

use hodo_clock::Nanos;
use hodo_trace::kernel::{KernelEvent, Kind, field};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::replay::{Machine, Replay};

/// How a thread waits: what the kernel's `prev_state` has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Wait {
    /// A signal ends it.
    Interruptible,
    /// Nothing but what it waits for ends it.
    Uninterruptible,
    /// A thread of the kernel that has nothing to do.
    Idle,
    /// Stopped, traced or parked.
    Stopped,
}

impl Wait {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wait::Interruptible => "interruptible",
            Wait::Uninterruptible => "uninterruptible",
            Wait::Idle => "idle",
            Wait::Stopped => "stopped",
        }
    }
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// On this CPU.
    Running(u32),
    /// It waits for this CPU.
    Runnable(u32),
    /// It waits for something else, in the system call with this name.
    Blocked(Wait, Option<u32>),
}

/// `TASK_REPORT_MAX`: what `prev_state` has of a thread that was preempted.
pub(crate) const PREEMPTED: i64 = 256;

/// Whether a thread that leaves its CPU could go on.
pub(crate) fn could_go_on(state: i64) -> bool {
    state == 0 || state & PREEMPTED != 0
}

/// How it waits, by `prev_state`; `None` of a thread that has ended.
fn wait(state: i64) -> Option<Wait> {
    match state & 0xff {
        state if state & 0x30 != 0 => None,
        state if state & 0x4c != 0 => Some(Wait::Stopped),
        state if state & 0x80 != 0 => Some(Wait::Idle),
        state if state & 0x02 != 0 => Some(Wait::Uninterruptible),
        _ => Some(Wait::Interruptible),
    }
}

/// What happens to threads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    /// One thread leaves a CPU, and another comes.
    Switch {
        time: Nanos,
        cpu: u32,
        prev: u32,
        next: u32,
        state: i64,
        call: Call,
    },
    Wakeup {
        time: Nanos,
        tid: u32,
        cpu: u32,
    },
    Migrate {
        time: Nanos,
        tid: u32,
        cpu: u32,
    },
    /// The system call in which the thread on a CPU is.
    Now {
        cpu: u32,
        call: Call,
    },
}

/// A system call; `None` where nothing is known, and `Some(None)` where it is none.
pub(crate) type Call = Option<Option<u32>>;

/// The events that [`Tasks`] needs, but for system calls.
pub(crate) const INTEREST: [(Kind, &[usize]); 3] = [
    (Kind::SchedSwitch, &[field::switch::PREV_TID, field::switch::PREV_STATE, field::switch::NEXT_TID]),
    (Kind::SchedWakeup, &[field::wakeup::TID, field::wakeup::TARGET_CPU]),
    (Kind::SchedMigrate, &[field::migrate::TID, field::migrate::DEST_CPU]),
];

/// Who is told of changes.
pub trait Observer: Default {
    /// A thread was in a state since some time, or since before the trace began, and comes into another.
    fn change(&mut self, tid: u32, before: Option<(Option<Nanos>, State)>, now: Option<State>, time: Nanos);
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Task {
    state: Option<(Option<Nanos>, State)>,
    call: Option<u32>,
}

/// The state of each thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tasks<O> {
    tasks: FxHashMap<u32, Task>,
    /// CPUs on which there was a switch.
    cpus: FxHashSet<u32>,
    /// What is known of the calls in which the threads on CPUs are.
    calls: FxHashMap<u32, Call>,
    pub(crate) observer: O,
}

impl<O: Observer> Tasks<O> {
    fn to(&mut self, tid: u32, state: Option<State>, time: Nanos) {
        let task = self.tasks.entry(tid).or_default();
        let before = std::mem::replace(&mut task.state, state.map(|state| (Some(time), state)));
        self.observer.change(tid, before, state, time);
    }

    fn state(&self, tid: u32) -> Option<State> {
        Some(self.tasks.get(&tid)?.state?.1)
    }

    /// Nothing more happens.
    pub(crate) fn end(mut self, time: Nanos) -> O {
        let mut tids: Vec<u32> = self.tasks.keys().copied().collect();
        tids.sort_unstable();
        tids.into_iter().for_each(|tid| self.to(tid, None, time));
        self.observer
    }
}

impl<O: Observer> Machine<Step> for Tasks<O> {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Switch { time, cpu, prev, next, state, call } => {
                let is_first = self.cpus.insert(cpu);
                let call = call.or(self.calls.remove(&cpu).flatten());
                if prev != 0 {
                    let task = self.tasks.entry(prev).or_default();
                    task.call = call.unwrap_or(task.call);
                    if is_first && task.state.is_none() {
                        task.state = Some((None, State::Running(cpu)));
                    }
                    let now = match could_go_on(state) {
                        true => Some(State::Runnable(cpu)),
                        false => wait(state).map(|wait| State::Blocked(wait, task.call)),
                    };
                    self.to(prev, now, time);
                }
                if next != 0 {
                    self.to(next, Some(State::Running(cpu)), time);
                }
            }
            Step::Wakeup { time, tid, cpu } => {
                if !matches!(self.state(tid), Some(State::Running(_) | State::Runnable(_))) {
                    self.to(tid, Some(State::Runnable(cpu)), time);
                }
            }
            Step::Migrate { time, tid, cpu } => {
                if self.state(tid).is_some_and(|state| matches!(state, State::Runnable(on) if on != cpu)) {
                    self.to(tid, Some(State::Runnable(cpu)), time);
                }
            }
            Step::Now { cpu, call } => drop(self.calls.insert(cpu, call)),
        }
    }
}

/// A chunk's part in that.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Course<O> {
    steps: Replay<Tasks<O>, Step>,
    /// What is known of the calls in which the threads on CPUs are.
    calls: FxHashMap<u32, Call>,
}

impl<O: Observer> Course<O> {
    pub(crate) fn new(is_first: bool) -> Course<O> {
        Course { steps: Replay::new(is_first), calls: FxHashMap::default() }
    }

    /// Takes in an event of those that it needs.
    pub(crate) fn see(&mut self, event: &KernelEvent<'_>) {
        let (time, cpu) = (event.time, event.cpu);
        let tid = |place| event.integer(place).map(|tid| tid as u32);
        let on = |place| event.integer(place).and_then(|cpu| u32::try_from(cpu).ok()).unwrap_or(cpu);
        match event.kind {
            Kind::SyscallEntry => drop(self.calls.insert(cpu, Some(Some(event.name)))),
            Kind::SyscallExit => drop(self.calls.insert(cpu, Some(None))),
            Kind::SchedSwitch => {
                let tids = tid(field::switch::PREV_TID).zip(tid(field::switch::NEXT_TID));
                let Some((prev, next)) = tids else { return };
                let state = event.integer(field::switch::PREV_STATE).unwrap_or(0);
                let call = self.calls.remove(&cpu).flatten();
                self.steps.see(Step::Switch { time, cpu, prev, next, state, call });
            }
            Kind::SchedWakeup => {
                if let Some(tid) = tid(field::wakeup::TID).filter(|&tid| tid != 0) {
                    self.steps.see(Step::Wakeup { time, tid, cpu: on(field::wakeup::TARGET_CPU) });
                }
            }
            Kind::SchedMigrate => {
                if let Some(tid) = tid(field::migrate::TID).filter(|&tid| tid != 0) {
                    self.steps.see(Step::Migrate { time, tid, cpu: on(field::migrate::DEST_CPU) });
                }
            }
            _ => {}
        }
    }

    /// Adds what the later of two neighbours has.
    pub(crate) fn add(&mut self, later: Course<O>) {
        for (cpu, call) in std::mem::take(&mut self.calls) {
            self.steps.see(Step::Now { cpu, call });
        }
        self.steps.add(later.steps);
        self.calls = later.calls;
    }

    /// What the observer saw by the end of the trace.
    pub(crate) fn finish(self, end: Nanos) -> O {
        self.steps.finish().end(end)
    }
}
