//! Sums by thread and another key.

use std::hash::Hash;

use hodo_model::{
    Column, FinishContext, Unit, Value,
    kernel::{Thread, Threads},
};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::durations::Add;

/// What a sum is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SumKey<K> {
    pub(crate) thread: Thread,
    pub(crate) cpu: u32,
    pub(crate) key: K,
}

impl<K> SumKey<K> {
    pub(crate) fn is_wanted(&self, context: &FinishContext<'_>) -> bool {
        context.threads.wanted(self.thread, context.selection) && context.selection.wants_cpu(self.cpu)
    }
}

/// Sums by thread, CPU and a key. They lie in memory in order of their first use: those of one thread are near each
/// other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(
    serialize = "K: Serialize, V: Serialize",
    deserialize = "K: DeserializeOwned + Hash + Eq, V: DeserializeOwned"
))]
pub struct PerThreadSums<K, V>(IndexMap<SumKey<K>, V, FxBuildHasher>);

impl<K, V> Default for PerThreadSums<K, V> {
    fn default() -> PerThreadSums<K, V> {
        PerThreadSums(IndexMap::default())
    }
}

impl<K: Hash + Eq, V: Add + Default> PerThreadSums<K, V> {
    /// The sum of a thread on a CPU.
    #[inline]
    pub(crate) fn of(&mut self, thread: Thread, cpu: u32, key: K) -> &mut V {
        self.0.entry(SumKey { thread, cpu, key }).or_default()
    }

    /// Adds the sums of the next task; `threads` are the threads that run at its begin.
    pub(crate) fn add(&mut self, later: PerThreadSums<K, V>, threads: &Threads) {
        for (SumKey { thread, cpu, key }, sum) in later.0 {
            self.of(threads.known(thread), cpu, key).add(sum);
        }
    }

    /// Returns the sums of the whole trace by thread, CPU and key; a combination may occur several times.
    pub(crate) fn settled<'s>(
        &'s self,
        threads: &'s Threads,
    ) -> impl Iterator<Item = (SumKey<&'s K>, &'s V)> {
        self.0.iter().map(|(SumKey { thread, cpu, key }, sum)| {
            (SumKey { thread: threads.settled(*thread), cpu: *cpu, key }, sum)
        })
    }

    /// Returns the selected ones by value.
    pub(crate) fn into_wanted(self, context: &FinishContext<'_>) -> impl Iterator<Item = (SumKey<K>, V)> {
        let sums = self.0.into_iter();
        let settled =
            sums.map(|(key, sum)| (SumKey { thread: context.threads.settled(key.thread), ..key }, sum));
        settled.filter(|(key, _)| key.is_wanted(context))
    }

    /// The selected ones.
    pub(crate) fn wanted<'s>(
        &'s self,
        context: &'s FinishContext<'_>,
    ) -> impl Iterator<Item = (SumKey<&'s K>, &'s V)> {
        self.settled(context.threads).filter(|(key, _)| key.is_wanted(context))
    }
}

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsOf {
    Threads,
    Processes,
}

impl RowsOf {
    /// Returns the thread, or its process's main thread if rows are processes. A thread of an unknown process counts as
    /// a process.
    pub(crate) fn of(self, threads: &Threads, thread: Thread) -> Thread {
        let pid = threads.pid(thread).filter(|_| self == RowsOf::Processes);
        pid.map_or(thread, |pid| Thread::new(pid.into(), 0))
    }

    pub(crate) fn columns(self) -> Vec<Column> {
        let tid = (self == RowsOf::Threads).then_some(Column::integer("tid", Unit::None));
        let pid = Column { secondary: self == RowsOf::Threads, ..Column::integer("pid", Unit::None) };
        [Column::name("comm")].into_iter().chain(tid).chain([pid]).collect()
    }

    pub(crate) fn cells(self, threads: &Threads, thread: Thread) -> Vec<Value> {
        let [comm, tid, pid] = threads.cells(thread);
        match self {
            RowsOf::Threads => vec![comm, tid, pid],
            RowsOf::Processes => vec![comm, if pid == Value::Null { tid } else { pid }],
        }
    }
}
