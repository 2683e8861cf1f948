//! Tracks the state of threads across CPUs.
//!
//! A system call begins on one CPU and may end on another, and its events do not name the thread. So each CPU and each
//! thread has a register: the state of the running thread is in the register of its CPU. A switch moves it to the
//! register of the previous thread, and moves the register of the next thread to the CPU. At the begin of a chunk, the
//! contents of the registers are unknown; each content records the register from which it came. Merging two neighbours
//! composes these permutations, which is exact even if events are missing.

use hodo_model::kernel::{Cpus, Thread};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Where a content was at the begin of the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Register {
    /// On a CPU.
    Cpu(u32),
    /// The register of a thread that did not run.
    Thread(Thread),
}

/// The content of a register.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RegisterContent<S> {
    /// Where it was at the begin of the chunk; `None` if it was created in the chunk.
    pub(crate) from: Option<Register>,
    /// Its changes since then.
    pub(crate) since: S,
}

/// The registers in use, and contents that were overwritten.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "S: DeserializeOwned"))]
pub(crate) struct Registers<S> {
    cpus: Cpus<RegisterContent<S>>,
    threads: FxHashMap<Thread, RegisterContent<S>>,
    /// Overwritten contents, which exist only if events are missing.
    overwritten: Vec<RegisterContent<S>>,
}

impl<S> Default for Registers<S> {
    fn default() -> Registers<S> {
        Registers { cpus: Cpus::default(), threads: FxHashMap::default(), overwritten: Vec::new() }
    }
}

impl<S: Default> Registers<S> {
    /// The state on a CPU.
    #[inline]
    pub(crate) fn running(&mut self, cpu: u32) -> &mut RegisterContent<S> {
        self.cpus.get_or(cpu, || RegisterContent { from: Some(Register::Cpu(cpu)), since: S::default() })
    }

    /// Moves contents for a context switch. `is_empty` recognizes a content without changes.
    pub(crate) fn switch(&mut self, cpu: u32, prev: Thread, next: Thread, is_empty: impl Fn(&S) -> bool) {
        let unknown = |thread| RegisterContent { from: Some(Register::Thread(thread)), since: S::default() };
        let nothing = || RegisterContent { from: None, since: S::default() };
        let left = std::mem::replace(self.running(cpu), nothing());
        let waiting = self.threads.insert(prev, left).unwrap_or_else(|| unknown(prev));
        if waiting.from.is_some() || !is_empty(&waiting.since) {
            self.overwritten.push(waiting);
        }
        let comes = self.threads.insert(next, nothing()).unwrap_or_else(|| unknown(next));
        *self.running(cpu) = comes;
    }

    /// Adds the registers of the next task. `join` adds later changes to a content; `end` receives overwritten contents
    /// that were created in the task.
    pub(crate) fn add(
        &mut self,
        later: Registers<S>,
        mut join: impl FnMut(&mut RegisterContent<S>, S),
        mut end: impl FnMut(S),
    ) {
        let Registers { cpus, threads, overwritten } = later;
        let mut before = std::mem::take(self);
        let mut resolve = |content: RegisterContent<S>| {
            let Some(register) = content.from else { return content };
            let mut joined = before.take(register);
            join(&mut joined, content.since);
            joined
        };
        for (cpu, content) in cpus.into_all() {
            let resolved = resolve(content);
            self.cpus.get_or(cpu, || resolved);
        }
        self.threads = threads.into_iter().map(|(thread, content)| (thread, resolve(content))).collect();
        let overwritten: Vec<RegisterContent<S>> = overwritten.into_iter().map(&mut resolve).collect();
        // What the later chunk did not touch stays.
        for (cpu, content) in before.cpus.into_all() {
            self.cpus.get_or(cpu, || content);
        }
        for (thread, content) in before.threads {
            self.threads.entry(thread).or_insert(content);
        }
        self.overwritten = before.overwritten;
        for content in overwritten {
            match content.from {
                Some(_) => self.overwritten.push(content),
                None => end(content.since),
            }
        }
    }

    /// Takes the content of a register, to move it to another.
    fn take(&mut self, register: Register) -> RegisterContent<S> {
        let taken = match register {
            Register::Cpu(cpu) => self.cpus.remove(cpu),
            Register::Thread(thread) => self.threads.remove(&thread),
        };
        taken.unwrap_or(RegisterContent { from: Some(register), since: S::default() })
    }

    /// All contents.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &S> {
        let of_cpus = self.cpus.all().map(|(_, content)| content);
        let held = of_cpus.chain(self.threads.values()).chain(&self.overwritten);
        held.map(|content| &content.since)
    }
}
