//! Sums of what threads do, by something beside the thread.

use std::hash::Hash;

use hodo_trace::{Choice, Column, Unit, Value};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    durations::{Add, add_all},
    threads::{Thread, Threads},
};

/// Sums by thread, CPU and a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(
    serialize = "K: Serialize, V: Serialize",
    deserialize = "K: DeserializeOwned + Hash + Eq, V: DeserializeOwned"
))]
pub(crate) struct Tally<K, V> {
    pub(crate) threads: Threads,
    sums: FxHashMap<(Thread, u32, K), V>,
}

impl<K, V> Default for Tally<K, V> {
    fn default() -> Tally<K, V> {
        Tally { threads: Threads::default(), sums: FxHashMap::default() }
    }
}

impl<K: Hash + Eq, V: Add + Default> Tally<K, V> {
    /// The sum of whoever runs on a CPU.
    #[inline]
    pub(crate) fn of(&mut self, cpu: u32, key: K) -> &mut V {
        self.sums.entry((self.threads.running(cpu), cpu, key)).or_default()
    }

    /// Adds what the later of two neighbours has.
    pub(crate) fn add(&mut self, later: Tally<K, V>) {
        let known = later
            .sums
            .into_iter()
            .map(|((thread, cpu, key), sum)| ((self.threads.known(thread), cpu, key), sum));
        add_all(&mut self.sums, known);
        self.threads.add(later.threads);
    }

    /// The sums that are asked for, by thread and key.
    pub(crate) fn finish(self, choice: &Choice) -> (Threads, FxHashMap<(Thread, K), V>) {
        let Tally { threads, sums } = self;
        let settled =
            sums.into_iter().map(|((thread, cpu, key), sum)| (threads.settled(thread), cpu, key, sum));
        let wanted =
            settled.filter(|(thread, cpu, ..)| threads.wanted(*thread, choice) && choice.wants_cpu(*cpu));
        let mut all = FxHashMap::default();
        add_all(&mut all, wanted.map(|(thread, _, key, sum)| ((thread, key), sum)));
        (threads, all)
    }
}

/// Who a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Threads,
    Processes,
}

impl Of {
    /// The thread itself, or the one that stands for its process; a thread whose process is not known stands for
    /// itself.
    pub(crate) fn of(self, threads: &Threads, thread: Thread) -> Thread {
        let pid = threads.pid(thread).filter(|_| self == Of::Processes);
        pid.map_or(thread, |pid| Thread::new(pid.into(), 0))
    }

    pub(crate) fn columns(self) -> Vec<Column> {
        let tid = (self == Of::Threads).then_some(Column::integer("tid", Unit::None));
        let pid = Column { secondary: self == Of::Threads, ..Column::integer("pid", Unit::None) };
        [Column::text("comm")].into_iter().chain(tid).chain([pid]).collect()
    }

    pub(crate) fn cells(self, threads: &Threads, thread: Thread) -> Vec<Value> {
        let [comm, tid, pid] = threads.cells(thread);
        match self {
            Of::Threads => vec![comm, tid, pid],
            Of::Processes => vec![comm, if pid == Value::Null { tid } else { pid }],
        }
    }
}
