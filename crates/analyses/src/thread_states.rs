//! The state of each thread, from the beginning of the trace.
//!
//! ```text
//!            switch to it                    switch from it, and it can run on
//! Runnable ───────────────► Running ──────────────────────────────────────────► Runnable
//!     ▲                        │ switch from it, and it waits
//!     └────── wake-up ─────── Blocked
//! ```
//!
//! A thread has no state until an event names it. The first switch on a CPU names the thread that ran there until then.
//! If the previous thread of a switch is not the next thread of the switch before it, a switch is missing, and the
//! state of both threads is unknown. The same holds for an event that contains another thread (see `running`): that one
//! runs from there on, and how long its last state was is unknown.
//!
//! The running time is counted from switch to switch of each CPU, as in `cpu`, so that both agree whatever events are
//! lost. The states of threads are not sufficient for that: events of any CPU change them, and a thread that was
//! switched in on one CPU before a loss may appear on another one after it.

use std::hash::{Hash, Hasher};

use hodo_clock::Nanos;
use hodo_model::kernel::{Cpus, KernelEvent, Kind, field};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    deferred_ops::{DeferredOps, Machine},
    running::Running,
};

/// The kind of a wait, according to the kernel's `prev_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Wait {
    /// A signal ends the wait.
    Interruptible,
    /// Only the awaited event ends the wait, not a signal.
    Uninterruptible,
    /// An idle kernel thread.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// On this CPU.
    Running(u32),
    /// It waits for this CPU.
    Runnable(u32),
    /// The thread waits for something other than a CPU, in the system call with this name.
    Blocked(Wait, Option<u32>),
}

impl Hash for State {
    // States are looked up at each change, and a single number identifies one.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let (kind, number) = match *self {
            State::Running(cpu) => (0, cpu),
            State::Runnable(cpu) => (1, cpu),
            State::Blocked(wait, call) => (2 + wait as u64, call.map_or(0, |call| call.wrapping_add(1))),
        };
        hasher.write_u64(kind << 32 | u64::from(number));
    }
}

/// `TASK_REPORT_MAX`: the `prev_state` of a preempted thread.
pub(crate) const PREEMPTED: i64 = 256;

/// Returns whether the previous thread of a switch is still runnable.
pub(crate) fn could_go_on(state: i64) -> bool {
    state == 0 || state & PREEMPTED != 0
}

/// Whether the previous thread of a switch has ended.
pub(crate) fn has_ended(state: i64) -> bool {
    wait(state).is_none()
}

/// Returns the kind of a wait by `prev_state`; `None` if the thread has ended.
fn wait(state: i64) -> Option<Wait> {
    match state & 0xff {
        state if state & 0x30 != 0 => None,
        state if state & 0x4c != 0 => Some(Wait::Stopped),
        state if state & 0x80 != 0 => Some(Wait::Idle),
        state if state & 0x02 != 0 => Some(Wait::Uninterruptible),
        _ => Some(Wait::Interruptible),
    }
}

/// An operation on the states of threads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    /// A switch on a CPU.
    Switch {
        time: Nanos,
        cpu: u32,
        prev: u32,
        next: u32,
        state: i64,
        call: Call,
    },
    /// An event contains the thread that runs on a CPU.
    Runs {
        time: Nanos,
        cpu: u32,
        tid: u32,
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
    /// The thread on a CPU enters or leaves a system call.
    Now {
        cpu: u32,
        call: Call,
    },
}

/// The open system call: `None` if unknown, `Some(None)` if there is none.
pub(crate) type Call = Option<Option<u32>>;

/// The events that [`ThreadStateMachine`] needs, except system calls.
pub(crate) const INTEREST: [(Kind, &[usize]); 3] = [
    (Kind::SchedSwitch, &[field::switch::PREV_TID, field::switch::PREV_STATE, field::switch::NEXT_TID]),
    (Kind::SchedWakeup, &[field::wakeup::TID, field::wakeup::TARGET_CPU]),
    (Kind::SchedMigrate, &[field::migrate::TID, field::migrate::DEST_CPU]),
];

/// The further events that show who runs, where they contain their thread. The end of a system call is none, as it may
/// be joined with its begin.
pub(crate) const REPORTING: [Kind; 2] = [Kind::SyscallEntry, Kind::Syscall];

/// Receives changes.
pub trait Observer: Default {
    /// Called when the state of a thread changes. `before` is the state that ends and its begin; [`State::Running`] is
    /// reported by [`Observer::ran`] instead.
    fn change(&mut self, tid: u32, before: Option<(Nanos, State)>, now: Option<State>, time: Nanos);

    /// Called when a thread ran on a CPU from a switch, or from the begin of the trace, to the next switch there.
    fn ran(&mut self, tid: u32, cpu: u32, since: Option<Nanos>, until: Nanos) {
        let _ = (tid, cpu, since, until);
    }

    /// Called when a thread has ended, or the trace has, with the time of the first event that named it.
    fn lived(&mut self, tid: u32, from: Nanos, until: Nanos) {
        let _ = (tid, from, until);
    }

    /// Called when a thread's state becomes unknown; the length of its last state is unknown too.
    fn lose(&mut self, state: State, time: Nanos) {
        let _ = (state, time);
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Task {
    state: Option<(Nanos, State)>,
    call: Option<u32>,
    /// The first time at which it had a state.
    born: Option<Nanos>,
}

/// The state of each thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ThreadStateMachine<O> {
    tasks: FxHashMap<u32, Task>,
    cpus: Cpus<OnCpu>,
    pub(crate) observer: O,
}

/// The state of a CPU.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct OnCpu {
    /// The next thread of the last switch, and its time.
    now: Option<(u32, Nanos)>,
    /// Who runs: the next thread of the last switch, or the thread of an event since then.
    runs: Option<u32>,
    /// The open system call of the running thread.
    call: Call,
}

impl Task {
    fn to(&mut self, tid: u32, state: Option<State>, time: Nanos, observer: &mut impl Observer) {
        let before = std::mem::replace(&mut self.state, state.map(|state| (time, state)));
        let before = before.filter(|(_, state)| !matches!(state, State::Running(_)));
        observer.change(tid, before, state, time);
        let born = *self.born.get_or_insert(time);
        if state.is_none() {
            self.born = None;
            observer.lived(tid, born, time);
        }
    }

    fn state(&self) -> Option<State> {
        self.state.map(|(_, state)| state)
    }

    /// Sets the state to unknown.
    fn lose(&mut self, time: Nanos, observer: &mut impl Observer) {
        if let Some((_, state)) = self.state.take() {
            observer.lose(state, time);
        }
    }
}

impl<O: Observer> ThreadStateMachine<O> {
    /// Ends the trace.
    pub(crate) fn end(mut self, time: Nanos) -> O {
        let came = |(cpu, on): (u32, &OnCpu)| Some((cpu, on.now?));
        let mut running: Vec<(u32, (u32, Nanos))> = self.cpus.all().filter_map(came).collect();
        running.sort_unstable();
        for (cpu, (tid, since)) in running.into_iter().filter(|(_, (tid, _))| *tid != 0) {
            self.observer.ran(tid, cpu, Some(since), time);
        }
        let mut tasks: Vec<(u32, Task)> = self.tasks.into_iter().collect();
        tasks.sort_unstable_by_key(|(tid, _)| *tid);
        tasks.into_iter().for_each(|(tid, mut task)| task.to(tid, None, time, &mut self.observer));
        self.observer
    }

    /// A switch is missing, so a thread does not run on a CPU any more.
    fn lose_on(&mut self, cpu: u32, tid: u32, time: Nanos) {
        let task = self.tasks.get_mut(&tid).filter(|task| task.state() == Some(State::Running(cpu)));
        task.into_iter().for_each(|task| task.lose(time, &mut self.observer));
    }

    /// A thread runs on a CPU.
    fn runs(&mut self, time: Nanos, cpu: u32, tid: u32) {
        let on = self.cpus.get_or(cpu, OnCpu::default);
        let other = on.runs.replace(tid);
        if other == Some(tid) || on.now.is_none() {
            return;
        }
        let call = on.call.take();
        if let Some(other) = other {
            self.lose_on(cpu, other, time);
            let task = self.tasks.entry(other).or_default();
            task.call = call.unwrap_or(task.call);
        }
        if tid != 0 {
            let task = self.tasks.entry(tid).or_default();
            task.lose(time, &mut self.observer);
            task.to(tid, Some(State::Running(cpu)), time, &mut self.observer);
        }
    }

    /// Applies a switch away from a thread. `came` is the time since which it ran there, or the begin of the trace;
    /// `None` if the last switch was to another thread. `now` makes the new state from the open system call.
    fn leave(
        &mut self,
        (tid, cpu, time): (u32, u32, Nanos),
        came: Option<Option<Nanos>>,
        call: Call,
        now: impl Fn(Option<u32>) -> Option<State>,
    ) {
        let task = self.tasks.entry(tid).or_default();
        task.call = call.unwrap_or(task.call);
        if let Some(since) = came {
            self.observer.ran(tid, cpu, since, time);
            // It came to another CPU meanwhile: it is there, or its state is unknown.
            if matches!(task.state(), Some(State::Running(on)) if on != cpu) {
                return;
            }
        }
        if task.state() != Some(State::Running(cpu)) {
            task.lose(time, &mut self.observer);
        }
        task.to(tid, now(task.call), time, &mut self.observer);
    }
}

impl<O: Observer> Machine<Step> for ThreadStateMachine<O> {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Switch { time, cpu, prev, next, state, call } => {
                let on = self.cpus.get_or(cpu, OnCpu::default);
                let before = on.now.replace((next, time));
                let other = on.runs.replace(next).filter(|&tid| tid != prev);
                let call = call.or(on.call.take());
                let came = match before {
                    None => Some(None),
                    Some((tid, since)) => (tid == prev).then_some(Some(since)),
                };
                if let Some(other) = other {
                    self.lose_on(cpu, other, time);
                }
                if prev != 0 {
                    self.leave((prev, cpu, time), came, call, |call| match could_go_on(state) {
                        true => Some(State::Runnable(cpu)),
                        false => wait(state).map(|wait| State::Blocked(wait, call)),
                    });
                }
                if next != 0 {
                    let task = self.tasks.entry(next).or_default();
                    task.to(next, Some(State::Running(cpu)), time, &mut self.observer);
                }
            }
            Step::Runs { time, cpu, tid } => self.runs(time, cpu, tid),
            Step::Wakeup { time, tid, cpu } => {
                let task = self.tasks.entry(tid).or_default();
                if !matches!(task.state(), Some(State::Running(_) | State::Runnable(_))) {
                    task.to(tid, Some(State::Runnable(cpu)), time, &mut self.observer);
                }
            }
            Step::Migrate { time, tid, cpu } => {
                let task = self.tasks.get_mut(&tid);
                let waits = |task: &&mut Task| matches!(task.state(), Some(State::Runnable(on)) if on != cpu);
                if let Some(task) = task.filter(waits) {
                    task.to(tid, Some(State::Runnable(cpu)), time, &mut self.observer);
                }
            }
            Step::Now { cpu, call } => self.cpus.get_or(cpu, OnCpu::default).call = call,
        }
    }
}

/// The contribution of a chunk to the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StateDelta<O> {
    steps: DeferredOps<ThreadStateMachine<O>, Step>,
    /// The known open calls of the threads on CPUs.
    calls: Cpus<Call>,
    #[serde(skip)]
    running: Running,
}

impl<O: Observer> StateDelta<O> {
    pub(crate) fn new(is_first: bool) -> StateDelta<O> {
        StateDelta { steps: DeferredOps::new(is_first), calls: Cpus::default(), running: Running::default() }
    }

    /// Folds an event; only those in [`INTEREST`] and of system calls have an effect.
    pub(crate) fn see(&mut self, event: &KernelEvent<'_>) {
        let (time, cpu) = (event.time, event.cpu);
        let tid = |place| event.integer(place).map(|tid| tid as u32);
        let on = |place| event.integer(place).and_then(|cpu| u32::try_from(cpu).ok()).unwrap_or(cpu);
        let runs = if event.kind == Kind::SyscallExit { None } else { self.running.see(event) };
        if let Some(tid) = runs {
            self.keep_call(cpu);
            self.steps.see(Step::Runs { time, cpu, tid });
        }
        match event.kind {
            Kind::SyscallEntry => *self.calls.get_or(cpu, || None) = Some(Some(event.name)),
            Kind::SyscallExit | Kind::Syscall => *self.calls.get_or(cpu, || None) = Some(None),
            Kind::SchedSwitch => {
                let tids = tid(field::switch::PREV_TID).zip(tid(field::switch::NEXT_TID));
                let Some((prev, next)) = tids else { return };
                let state = event.integer(field::switch::PREV_STATE).unwrap_or(0);
                let call = self.calls.remove(cpu).flatten();
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

    /// Adds the contribution of the next task.
    pub(crate) fn add(&mut self, later: StateDelta<O>) {
        for (cpu, call) in std::mem::take(&mut self.calls).into_all() {
            self.steps.see(Step::Now { cpu, call });
        }
        self.steps.add(later.steps);
        self.calls = later.calls;
        self.running = later.running;
    }

    /// Adds the open system call of the thread on a CPU as an operation, if it is known.
    fn keep_call(&mut self, cpu: u32) {
        if let Some(call) = self.calls.remove(cpu) {
            self.steps.see(Step::Now { cpu, call });
        }
    }

    /// Returns the observer, if the trace begins in this task.
    pub(crate) fn observer(&mut self) -> Option<&mut O> {
        self.steps.machine().map(|machine| &mut machine.observer)
    }

    /// The observer after the last event; the states of the threads go on.
    pub(crate) fn observe(self) -> O {
        self.steps.finish().observer
    }

    /// Returns the observer at the end of the trace.
    pub(crate) fn finish(self, end: Nanos) -> O {
        self.steps.finish().end(end)
    }
}
