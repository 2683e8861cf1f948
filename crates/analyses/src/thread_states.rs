//! The state of each thread, from the beginning of the trace.
//!
//! ```text
//!            switch to it                    switch from it, and it can run on
//! Runnable ───────────────► Running ──────────────────────────────────────────► Runnable
//!     ▲                        │ switch from it, and it waits
//!     └────── wake-up ─────── Blocked
//! ```
//!
//! A thread has no state until an event names it. The first switch on a CPU names the thread that ran there until then. A
//! wake-up of that thread before the switch looked like the begin of a wait, but changes nothing for a running thread: so the
//! switch takes that wait back. If an earlier switch on another CPU named the thread, it came to this CPU by a switch that is
//! missing.
//!
//! If the previous thread of a switch is not the next thread of the switch before it, a switch is missing, and the
//! state of both threads is unknown. The same holds for an event that contains another thread than the running one (see
//! `running`): the other one runs from there on, and the length of its last state is unknown.
//!
//! The running time is counted from switch to switch of each CPU, as in `cpu`, so that both agree whatever events are
//! lost. The states of threads are not sufficient for that: events of any CPU change them, and a thread that was
//! switched in on one CPU before a loss may appear on another one after it.

use std::{
    hash::{Hash, Hasher},
    mem,
};

use hodo_clock::Nanos;
use hodo_model::{
    EventPartial, FinishContext, Interest, Start,
    kernel::{Cpus, KernelEvent, Kind, PrevState, Thread, Threads, field},
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    deferred_ops::{DeferredOps, StateMachine},
    running::RunningThreads,
};

/// The kind of a wait, according to the kernel's `prev_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WaitKind {
    /// A signal ends the wait.
    Interruptible,
    /// Only the awaited event ends the wait, not a signal.
    Uninterruptible,
    /// An idle kernel thread.
    Idle,
    /// Stopped, traced or parked.
    Stopped,
}

impl WaitKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            WaitKind::Interruptible => "interruptible",
            WaitKind::Uninterruptible => "uninterruptible",
            WaitKind::Idle => "idle",
            WaitKind::Stopped => "stopped",
        }
    }
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Activity {
    /// On this CPU.
    Running(u32),
    /// It waits for this CPU.
    Runnable(u32),
    /// The thread waits for something other than a CPU, in the system call with this name.
    Blocked(WaitKind, Option<u32>),
}

impl Activity {
    /// Returns the CPU on which a thread in this state runs, or for which it waits.
    pub(crate) fn cpu(self) -> Option<u32> {
        match self {
            Activity::Running(cpu) | Activity::Runnable(cpu) => Some(cpu),
            Activity::Blocked(..) => None,
        }
    }

    /// Returns whether a thread in this state is selected.
    pub(crate) fn is_wanted(self, tid: u32, context: &FinishContext<'_>) -> bool {
        self.cpu().is_none_or(|cpu| context.selection.wants_cpu(cpu))
            && context.threads.wanted(Thread::new(tid.into(), 0), context.selection)
    }
}

impl Hash for Activity {
    // States are looked up at each change, and a single number identifies one.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let (kind, number) = match *self {
            Activity::Running(cpu) => (0, cpu),
            Activity::Runnable(cpu) => (1, cpu),
            Activity::Blocked(wait, call) => (2 + wait as u64, call.map_or(0, |call| call.wrapping_add(1))),
        };
        hasher.write_u64(kind << 32 | u64::from(number));
    }
}

/// What follows when a thread leaves its CPU.
enum AfterSwitch {
    State(Activity),
    Ended,
    Unknown,
}

impl AfterSwitch {
    /// By the `prev_state` of the switch on a CPU; the thread is in this system call.
    fn of(state: PrevState, cpu: u32, call: Option<u32>) -> AfterSwitch {
        let wait = match state {
            PrevState::Runnable => return AfterSwitch::State(Activity::Runnable(cpu)),
            PrevState::Ended => return AfterSwitch::Ended,
            PrevState::Unknown => return AfterSwitch::Unknown,
            PrevState::Interruptible => WaitKind::Interruptible,
            PrevState::Uninterruptible => WaitKind::Uninterruptible,
            PrevState::Idle => WaitKind::Idle,
            PrevState::Stopped => WaitKind::Stopped,
        };
        AfterSwitch::State(Activity::Blocked(wait, call))
    }
}

/// An operation on the states of threads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum ThreadStep {
    /// A switch on a CPU.
    Switch {
        time: Nanos,
        cpu: u32,
        prev: u32,
        next: u32,
        state: PrevState,
        call: OpenCall,
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
    SetOpenCall {
        cpu: u32,
        call: OpenCall,
    },
}

/// The system call in which a thread is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) enum OpenCall {
    #[default]
    Unknown,
    None,
    /// The one with this name.
    Named(u32),
}

impl OpenCall {
    /// Returns this one, or `other` if it is unknown.
    fn or(self, other: OpenCall) -> OpenCall {
        if let OpenCall::Unknown = self { other } else { self }
    }

    /// Returns the name of the call, if there is one; `known` if that is unknown.
    fn name_or(self, known: Option<u32>) -> Option<u32> {
        match self {
            OpenCall::Unknown => known,
            OpenCall::None => None,
            OpenCall::Named(name) => Some(name),
        }
    }
}

/// Since when the thread that leaves a CPU ran there.
#[derive(Clone, Copy, Debug)]
enum RanSince {
    /// It did not run there: a switch is missing.
    Elsewhere,
    /// The begin of the trace.
    Begin,
    Time(Nanos),
}

/// The events that [`ThreadStateMachine`] needs, except system calls.
pub(crate) const INTEREST: [(Kind, &[usize]); 3] = [
    (Kind::SchedSwitch, &[field::switch::PREV_TID, field::switch::PREV_STATE, field::switch::NEXT_TID]),
    (Kind::SchedWakeup, &[field::wakeup::TID, field::wakeup::TARGET_CPU]),
    (Kind::SchedMigrate, &[field::migrate::TID, field::migrate::DEST_CPU]),
];

/// The further events that show who runs, where they contain their thread. Exits of system calls are
/// left out: they may be joined with their entry.
pub(crate) const REPORTING: [Kind; 2] = [Kind::SyscallEntry, Kind::Syscall];

/// Receives changes.
pub trait Observer: Default + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// Called when the state of a thread changes. `before` is the state that ends and its begin; [`Activity::Running`] is
    /// reported by [`Observer::ran`] instead.
    fn change(&mut self, tid: u32, before: Option<(Nanos, Activity)>, now: Option<Activity>, time: Nanos);

    /// Called when a thread ran on a CPU from a switch, or from the begin of the trace, to the next switch there.
    fn ran(&mut self, tid: u32, cpu: u32, since: Option<Nanos>, until: Nanos) {
        let _ = (tid, cpu, since, until);
    }

    /// Called when a thread has ended, or the trace has, with the time of the first event that named it; `None` if it ran
    /// since before the trace.
    fn lived(&mut self, tid: u32, from: Option<Nanos>, until: Nanos) {
        let _ = (tid, from, until);
    }

    /// Called when the state `before`, which began at a known time, has ended at an unknown time before `time`.
    fn lose(&mut self, before: (Nanos, Activity), time: Nanos) {
        let _ = (before, time);
    }

    /// Called at the first switch on a CPU, which shows that the thread that leaves ran there until then. `taken_back` is the
    /// time since which it was counted as waiting for this CPU, if it was.
    fn begin(&mut self, cpu: u32, taken_back: Option<Nanos>, time: Nanos) {
        let _ = (cpu, taken_back, time);
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct FollowedThread {
    state: Option<(Nanos, Activity)>,
    call: Option<u32>,
    /// The time of the first event that named it.
    born: Option<Nanos>,
    /// Whether it ran on a CPU before the first switch there.
    is_older: bool,
    /// The time of the first switch from it or to it.
    switched: Option<Nanos>,
}

/// The state of each thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ThreadStateMachine<O> {
    threads: FxHashMap<u32, FollowedThread>,
    cpus: Cpus<RunningOnCpu>,
    pub(crate) observer: O,
}

/// The state of a CPU.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct RunningOnCpu {
    /// The next thread of the last switch, and its time.
    now: Option<(u32, Nanos)>,
    /// Who runs: the next thread of the last switch, or the thread of an event since then.
    runs: Option<u32>,
    /// The open system call of the running thread.
    call: OpenCall,
}

impl FollowedThread {
    /// Changes the state of the thread `tid`, which is this one; `None` if it has ended.
    fn change_to(&mut self, tid: u32, state: Option<Activity>, time: Nanos, observer: &mut impl Observer) {
        let before = std::mem::replace(&mut self.state, state.map(|state| (time, state)));
        let before = before.filter(|(_, state)| !matches!(state, Activity::Running(_)));
        observer.change(tid, before, state, time);
        let born = *self.born.get_or_insert(time);
        if state.is_none() {
            observer.lived(tid, Some(born).filter(|_| !self.is_older), time);
            (self.born, self.is_older) = (None, false);
        }
    }

    fn state(&self) -> Option<Activity> {
        self.state.map(|(_, state)| state)
    }

    /// Sets the state to unknown.
    fn lose(&mut self, time: Nanos, observer: &mut impl Observer) {
        if let Some(before) = self.state.take() {
            observer.lose(before, time);
        }
    }

    /// Records that it ran on a CPU before the first switch there. Returns since when it was counted as waiting for that CPU,
    /// if that was its first state.
    fn set_older(&mut self, cpu: u32, time: Nanos) -> Option<Nanos> {
        let first = self.born.filter(|_| !self.is_older);
        let taken_back =
            self.state.filter(|&(since, state)| state == Activity::Runnable(cpu) && first == Some(since));
        if taken_back.is_some() {
            self.state = None;
        }
        self.born.get_or_insert(time);
        self.is_older = true;
        taken_back.map(|(since, _)| since)
    }
}

impl<O: Observer> ThreadStateMachine<O> {
    /// Ends the trace.
    pub(crate) fn end(mut self, time: Nanos) -> O {
        let mut running: Vec<(u32, (u32, Nanos))> =
            self.cpus.all().filter_map(|(cpu, on)| Some((cpu, on.now?))).collect();
        running.sort_unstable();
        for (cpu, (tid, since)) in running.into_iter().filter(|(_, (tid, _))| *tid != 0) {
            self.observer.ran(tid, cpu, Some(since), time);
        }
        let mut threads: Vec<(u32, FollowedThread)> = self.threads.into_iter().collect();
        threads.sort_unstable_by_key(|(tid, _)| *tid);
        threads
            .into_iter()
            .for_each(|(tid, mut thread)| thread.change_to(tid, None, time, &mut self.observer));
        self.observer
    }

    /// A switch is missing, so a thread does not run on a CPU any more.
    fn lose_on(&mut self, cpu: u32, tid: u32, time: Nanos) {
        let thread =
            self.threads.get_mut(&tid).filter(|thread| thread.state() == Some(Activity::Running(cpu)));
        thread.into_iter().for_each(|thread| thread.lose(time, &mut self.observer));
    }

    /// A thread runs on a CPU.
    fn runs(&mut self, time: Nanos, cpu: u32, tid: u32) {
        let running = self.cpus.get_or(cpu, RunningOnCpu::default);
        let other = running.runs.replace(tid);
        if other == Some(tid) || running.now.is_none() {
            return;
        }
        let call = mem::take(&mut running.call);
        if let Some(other) = other {
            self.lose_on(cpu, other, time);
            let thread = self.threads.entry(other).or_default();
            thread.call = call.name_or(thread.call);
        }
        if tid != 0 {
            let thread = self.threads.entry(tid).or_default();
            thread.lose(time, &mut self.observer);
            thread.change_to(tid, Some(Activity::Running(cpu)), time, &mut self.observer);
        }
    }

    /// The first switch on a CPU. Returns since when the thread that leaves ran there.
    fn first(&mut self, cpu: u32, prev: u32, time: Nanos) -> RanSince {
        let thread = (prev != 0).then(|| self.threads.entry(prev).or_default());
        let ran_here = thread.filter(|thread| thread.switched.is_none_or(|before| before >= time));
        let since = if prev == 0 || ran_here.is_some() { RanSince::Begin } else { RanSince::Elsewhere };
        let taken_back = ran_here.and_then(|thread| thread.set_older(cpu, time));
        self.observer.begin(cpu, taken_back, time);
        since
    }

    /// Applies a switch away from a thread.
    fn leave(
        &mut self,
        tid: u32,
        cpu: u32,
        time: Nanos,
        ran_since: RanSince,
        call: OpenCall,
        state: PrevState,
    ) {
        let thread = self.threads.entry(tid).or_default();
        thread.switched.get_or_insert(time);
        thread.call = call.name_or(thread.call);
        match ran_since {
            RanSince::Elsewhere => {}
            RanSince::Begin => self.observer.ran(tid, cpu, None, time),
            RanSince::Time(since) => self.observer.ran(tid, cpu, Some(since), time),
        }
        let runs_elsewhere = matches!(thread.state(), Some(Activity::Running(on)) if on != cpu);
        if runs_elsewhere && !matches!(ran_since, RanSince::Elsewhere) {
            // It already runs on another CPU: keep that state.
            return;
        }
        if thread.state() != Some(Activity::Running(cpu)) {
            thread.lose(time, &mut self.observer);
        }
        match AfterSwitch::of(state, cpu, thread.call) {
            AfterSwitch::State(state) => thread.change_to(tid, Some(state), time, &mut self.observer),
            AfterSwitch::Ended => thread.change_to(tid, None, time, &mut self.observer),
            AfterSwitch::Unknown => {
                thread.born.get_or_insert(time);
                thread.state = None;
            }
        }
    }
}

impl<O: Observer> StateMachine<ThreadStep> for ThreadStateMachine<O> {
    fn apply(&mut self, step: ThreadStep) {
        match step {
            ThreadStep::Switch { time, cpu, prev, next, state, call } => {
                let running = self.cpus.get_or(cpu, RunningOnCpu::default);
                let before = running.now.replace((next, time));
                let other = running.runs.replace(next).filter(|&tid| tid != prev);
                let call = call.or(mem::take(&mut running.call));
                if let Some(other) = other {
                    self.lose_on(cpu, other, time);
                }
                let ran_since = match before {
                    None => self.first(cpu, prev, time),
                    Some((tid, since)) if tid == prev => RanSince::Time(since),
                    Some(_) => RanSince::Elsewhere,
                };
                if prev != 0 {
                    self.leave(prev, cpu, time, ran_since, call, state);
                }
                if next != 0 {
                    let thread = self.threads.entry(next).or_default();
                    thread.switched.get_or_insert(time);
                    thread.change_to(next, Some(Activity::Running(cpu)), time, &mut self.observer);
                }
            }
            ThreadStep::Runs { time, cpu, tid } => self.runs(time, cpu, tid),
            ThreadStep::Wakeup { time, tid, cpu } => {
                let thread = self.threads.entry(tid).or_default();
                if !matches!(thread.state(), Some(Activity::Running(_) | Activity::Runnable(_))) {
                    thread.change_to(tid, Some(Activity::Runnable(cpu)), time, &mut self.observer);
                }
            }
            ThreadStep::Migrate { time, tid, cpu } => {
                if let Some(thread) = self.threads.get_mut(&tid)
                    && matches!(thread.state(), Some(Activity::Runnable(on)) if on != cpu)
                {
                    thread.change_to(tid, Some(Activity::Runnable(cpu)), time, &mut self.observer);
                }
            }
            ThreadStep::SetOpenCall { cpu, call } => self.cpus.get_or(cpu, RunningOnCpu::default).call = call,
        }
    }
}

/// The contribution of a chunk to the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "O: Serialize", deserialize = "O: DeserializeOwned"))]
pub struct ThreadStatesDelta<O> {
    steps: DeferredOps<ThreadStateMachine<O>, ThreadStep>,
    /// The known open calls of the threads on CPUs.
    calls: Cpus<OpenCall>,
    #[serde(skip)]
    running: RunningThreads,
}

impl<O: Observer> EventPartial for ThreadStatesDelta<O> {
    fn interest() -> Interest<'static> {
        Interest::events(&INTEREST).with_reporting(&REPORTING)
    }

    fn begin(start: &Start<'_>) -> ThreadStatesDelta<O> {
        let steps = DeferredOps::new(start.is_first);
        ThreadStatesDelta { steps, calls: Cpus::default(), running: RunningThreads::default() }
    }

    fn see(&mut self, event: &KernelEvent<'_>) {
        let (time, cpu) = (event.time, event.cpu);
        let tid = |field| event.integer(field).map(|tid| tid as u32);
        let cpu_in = |field| event.integer(field).and_then(|cpu| u32::try_from(cpu).ok()).unwrap_or(cpu);
        // An exit that is joined with its entry is no event of its own. The result must not depend on joining, so exits do
        // not show which thread runs.
        let runs = if event.kind == Kind::SyscallExit { None } else { self.running.see(event) };
        if let Some(tid) = runs {
            self.keep_call(cpu);
            self.steps.see(ThreadStep::Runs { time, cpu, tid });
        }
        match event.kind {
            Kind::SyscallEntry => *self.calls.get_or(cpu, OpenCall::default) = OpenCall::Named(event.name),
            Kind::SyscallExit | Kind::Syscall => *self.calls.get_or(cpu, OpenCall::default) = OpenCall::None,
            Kind::SchedSwitch => {
                let tids = tid(field::switch::PREV_TID).zip(tid(field::switch::NEXT_TID));
                let Some((prev, next)) = tids else { return };
                let state = event.prev_state();
                let call = self.calls.remove(cpu).unwrap_or_default();
                self.steps.see(ThreadStep::Switch { time, cpu, prev, next, state, call });
            }
            Kind::SchedWakeup => {
                if let Some(tid) = tid(field::wakeup::TID).filter(|&tid| tid != 0) {
                    self.steps.see(ThreadStep::Wakeup { time, tid, cpu: cpu_in(field::wakeup::TARGET_CPU) });
                }
            }
            Kind::SchedMigrate => {
                if let Some(tid) = tid(field::migrate::TID).filter(|&tid| tid != 0) {
                    self.steps.see(ThreadStep::Migrate { time, tid, cpu: cpu_in(field::migrate::DEST_CPU) });
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, later: ThreadStatesDelta<O>, _: &Threads) {
        // An open call is known here and matters at the next switch, which is an operation of the later task.
        for (cpu, call) in mem::take(&mut self.calls).into_all() {
            self.steps.see(ThreadStep::SetOpenCall { cpu, call });
        }
        self.steps.add(later.steps);
        self.calls = later.calls;
        self.running = later.running;
    }
}

impl<O: Observer> ThreadStatesDelta<O> {
    /// Adds the open system call of the thread on a CPU as an operation, if it is known.
    fn keep_call(&mut self, cpu: u32) {
        if let Some(call) = self.calls.remove(cpu) {
            self.steps.see(ThreadStep::SetOpenCall { cpu, call });
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
