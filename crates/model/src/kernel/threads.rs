//! Tracks the running thread of each CPU, and thread names.
//!
//! The thread that runs on a CPU at the beginning of a chunk is unknown. A placeholder for the CPU stands for it
//! until states are merged: then it is the thread that ran there last. The placeholder at the beginning of the trace
//! is resolved at the end, from the CPU's first switch.

use hodo_clock::Nanos;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{Cpus, KernelEvent, Kind, field};
use crate::{Selection, Value, table::Cell};

/// A thread, the idle thread of a CPU, or the placeholder for the thread that runs on a CPU when the chunk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Thread(i64);

impl Thread {
    /// The thread with a 32-bit id, on a CPU. All idle threads have id 0.
    #[inline]
    pub fn new(tid: i64, cpu: u32) -> Thread {
        let tid = tid as u32;
        if tid == 0 { Thread(-1 - i64::from(cpu)) } else { Thread(i64::from(tid)) }
    }

    /// The placeholder for the thread that runs on a CPU when the chunk begins.
    pub fn before(cpu: u32) -> Thread {
        Thread(i64::MIN + i64::from(cpu))
    }

    /// The CPU, if this is a placeholder.
    pub fn cpu_if_placeholder(self) -> Option<u32> {
        u32::try_from(self.0.wrapping_sub(i64::MIN)).ok()
    }

    /// Whether it is an idle thread.
    pub fn is_idle(self) -> bool {
        self.0 < 0 && self.cpu_if_placeholder().is_none()
    }

    /// The thread id: 0 for idle threads, `None` for a placeholder.
    pub fn tid(self) -> Option<u32> {
        match self.cpu_if_placeholder() {
            Some(_) => None,
            None => Some(u32::try_from(self.0).unwrap_or(0)),
        }
    }
}

/// Pads a name of at most [`COMM`] bytes with zeros.
#[inline]
fn padded(name: &[u8]) -> Option<[u8; COMM]> {
    let mut padded = [0; COMM];
    padded.get_mut(..name.len())?.copy_from_slice(name);
    Some(padded)
}

/// The known name and process of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Facts {
    comm: Option<String>,
    pid: Option<u32>,
    /// The time of the first switch from it or to it.
    first_switch: Option<Nanos>,
}

impl Facts {
    /// Sets the name, if an event contains one. Returns whether the name is new.
    #[inline]
    fn rename(&mut self, comm: Option<&[u8]>) -> bool {
        let new = comm.filter(|comm| self.comm.as_ref().is_none_or(|known| known.as_bytes() != *comm));
        if let Some(comm) = new {
            self.comm = Some(String::from_utf8_lossy(comm).into_owned());
        }
        new.is_some()
    }
}

/// The state of a CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cpu {
    /// The thread before the first switch.
    first: Thread,
    /// The running thread.
    now: Thread,
    /// The running thread's name in its switch.
    #[serde(skip)]
    comm: [u8; COMM],
    /// [`Threads::renames`] after that switch.
    #[serde(skip)]
    renames: u64,
}

/// The kernel's `TASK_COMM_LEN`. Size of a thread name in bytes; shorter names are padded with zeros.
const COMM: usize = 16;

impl Cpu {
    fn new(first: Thread, now: Thread) -> Cpu {
        Cpu { first, now, comm: [0; COMM], renames: 0 }
    }
}

/// The running thread of each CPU, and what is known of threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Threads {
    cpus: Cpus<Cpu>,
    facts: FxHashMap<Thread, Facts>,
    /// A counter that changes whenever a name does.
    #[serde(skip)]
    renames: u64,
}

impl Threads {
    /// The events to pass to [`Threads::see`].
    pub const INTEREST: [(Kind, &[usize]); 3] = [
        (
            Kind::SchedSwitch,
            &[
                field::switch::PREV_COMM,
                field::switch::PREV_TID,
                field::switch::NEXT_COMM,
                field::switch::NEXT_TID,
                field::switch::PREV_PID,
            ],
        ),
        (Kind::SchedFork, &[field::fork::CHILD_COMM, field::fork::CHILD_TID, field::fork::CHILD_PID]),
        (Kind::StateProcess, &[field::process::TID, field::process::PID, field::process::NAME]),
    ];

    /// Updates the state from an event; ignores kinds outside [`Threads::INTEREST`].
    #[inline]
    pub fn see(&mut self, event: &KernelEvent<'_>) {
        match event.kind {
            Kind::SchedSwitch => self.switch(event),
            Kind::SchedFork => self.fact(
                event.integer(field::fork::CHILD_TID),
                event.integer(field::fork::CHILD_PID),
                event.text(field::fork::CHILD_COMM),
            ),
            Kind::StateProcess => self.fact(
                event.integer(field::process::TID),
                event.integer(field::process::PID),
                event.text(field::process::NAME),
            ),
            _ => {}
        }
    }

    fn switch(&mut self, event: &KernelEvent<'_>) {
        let Some((prev, next)) = event.switch() else { return };
        let comm = event.text(field::switch::PREV_COMM);
        if !self.has_known_name(event.cpu, prev, comm) {
            self.switched(prev, comm, event.time);
        }
        let comm = event.text(field::switch::NEXT_COMM);
        self.switched(next, comm, event.time);
        // perf records -1 for a thread that has ended.
        let pid = event.integer(field::switch::PREV_PID).filter(|&pid| pid > 0 && !prev.is_idle());
        if let Some(pid) = pid {
            self.facts.entry(prev).or_default().pid = Some(pid as u32);
        }
        let cpu = self.cpus.get_or(event.cpu, || Cpu::new(prev, next));
        cpu.now = next;
        cpu.comm = padded(comm.unwrap_or_default()).unwrap_or_default();
        cpu.renames = self.renames;
    }

    /// Fast path: whether the thread that leaves a CPU still has the name from its switch to the CPU, and no name has
    /// changed since. Avoids a hash look-up.
    #[inline]
    fn has_known_name(&self, cpu: u32, thread: Thread, comm: Option<&[u8]>) -> bool {
        let own = self.cpus.get(cpu).filter(|cpu| cpu.now == thread && cpu.renames == self.renames);
        own.zip(comm.and_then(padded)).is_some_and(|(cpu, comm)| cpu.comm == comm && comm[0] != 0)
    }

    fn fact(&mut self, tid: Option<i64>, pid: Option<i64>, comm: Option<&[u8]>) {
        // The idle thread belongs to no process.
        let Some(tid) = tid.filter(|&tid| tid != 0) else { return };
        let thread = Thread::new(tid, 0);
        self.called(thread, comm);
        let facts = self.facts.entry(thread).or_default();
        facts.pid = pid.map(|pid| pid as u32).or(facts.pid);
    }

    /// Adds a switch from a thread or to it, which names it.
    #[inline]
    fn switched(&mut self, thread: Thread, comm: Option<&[u8]>, time: Nanos) {
        let facts = self.facts.entry(thread).or_default();
        facts.first_switch.get_or_insert(time);
        self.renames += u64::from(facts.rename(comm));
    }

    #[inline]
    fn called(&mut self, thread: Thread, comm: Option<&[u8]>) {
        let facts = self.facts.entry(thread).or_default();
        self.renames += u64::from(facts.rename(comm));
    }

    /// Records that `thread` runs on a CPU, as an event reports, before that event is processed. It differs from the
    /// known thread after a lost switch.
    #[inline]
    pub fn runs(&mut self, cpu: u32, thread: Thread) {
        let own = self.cpus.get_or(cpu, || Cpu::new(thread, thread));
        if own.now != thread {
            *own = Cpu::new(own.first, thread);
        }
    }

    /// The running thread of a CPU.
    #[inline]
    pub fn running(&self, cpu: u32) -> Thread {
        self.cpus.get(cpu).map_or_else(|| Thread::before(cpu), |cpu| cpu.now)
    }

    /// Resolves a placeholder of the following chunk from the state at the end of this one.
    pub fn known(&self, thread: Thread) -> Thread {
        thread.cpu_if_placeholder().map_or(thread, |cpu| self.running(cpu))
    }

    /// Merges the state of the following chunk.
    pub fn add(&mut self, later: Threads) {
        self.renames = self.renames.max(later.renames) + 1;
        for (number, cpu) in later.cpus.into_all() {
            let now = self.known(cpu.now);
            self.cpus.get_or(number, || cpu).now = now;
        }
        for (thread, facts) in later.facts {
            let own = self.facts.entry(thread).or_default();
            own.comm = facts.comm.or(own.comm.take());
            own.pid = facts.pid.or(own.pid);
            own.first_switch = own.first_switch.or(facts.first_switch);
        }
    }

    /// Whether a switch before this time names a thread. Then the thread was not on another CPU all the time.
    pub fn switched_before(&self, thread: Thread, time: Nanos) -> bool {
        let first = self.facts.get(&thread).and_then(|facts| facts.first_switch);
        first.is_some_and(|first| first < time)
    }

    /// Resolves a placeholder thread from the CPU's first `sched_switch`.
    pub fn settled(&self, thread: Thread) -> Thread {
        let first = thread.cpu_if_placeholder().and_then(|cpu| self.cpus.get(cpu));
        first.map_or(thread, |cpu| cpu.first)
    }

    /// The name of a thread; `swapper/N` for idle ones.
    pub fn comm(&self, thread: Thread) -> Option<&str> {
        self.facts.get(&thread)?.comm.as_deref()
    }

    /// The process of a thread.
    pub fn pid(&self, thread: Thread) -> Option<u32> {
        self.facts.get(&thread)?.pid
    }

    /// Whether the selection includes a thread.
    pub fn wanted(&self, thread: Thread, selection: &Selection) -> bool {
        fn listed(list: &[u32], id: impl FnOnce() -> Option<u32>) -> bool {
            list.is_empty() || id().is_some_and(|id| list.contains(&id))
        }
        let called =
            || self.comm(thread).is_some_and(|comm| selection.comms.iter().any(|wanted| wanted == comm));
        listed(&selection.tids, || thread.tid())
            && listed(&selection.pids, || self.pid(thread))
            && (selection.comms.is_empty() || called())
    }

    /// Table cells that identify a thread: name, thread id and process id.
    pub fn cells(&self, thread: Thread) -> [Value; 3] {
        [self.comm(thread).into(), thread.tid().into(), self.pid(thread).into()]
    }

    /// The same cells, with a borrowed name.
    pub fn borrowed_cells(&self, thread: Thread) -> [Cell<'_>; 3] {
        let facts = self.facts.get(&thread);
        let comm = facts.and_then(|facts| facts.comm.as_deref());
        [comm.into(), thread.tid().into(), facts.and_then(|facts| facts.pid).into()]
    }
}
