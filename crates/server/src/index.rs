//! The store of the inputs as it grows.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use hodo_store::Store;
use serde::Serialize;

use crate::{Inputs, NoStore};

/// How far the store is.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Stage {
    /// It is being built.
    Building {
        /// Bytes read.
        done: u64,
        /// Bytes to read.
        total: u64,
    },
    /// It is complete.
    Ready,
    /// There is none.
    Absent {
        /// The reason, for people.
        why: String,
        /// Whether it should be there.
        failed: bool,
    },
}

/// The store and its stage.
pub(crate) struct Index {
    held: Mutex<Held>,
    /// Whether the user has had enough of its building.
    is_given_up: AtomicBool,
}

/// A store as the questions of a generation see it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) store: Store,
    /// Changes with each snapshot: lanes and names of different snapshots have different numbers.
    pub(crate) generation: u64,
    /// The first instant of all records, from which the page counts time; 0 without records.
    pub(crate) origin: u64,
    /// The last instant of all records.
    pub(crate) end: u64,
}

impl Snapshot {
    fn new(store: Store, generation: u64) -> Snapshot {
        let spans = || store.tables().filter_map(|table| table.span());
        let origin = spans().map(|(first, _)| first).min().unwrap_or(0);
        let end = spans().map(|(_, last)| last).max().unwrap_or(origin);
        Snapshot { store, generation, origin, end }
    }

    /// Returns a time in nanoseconds from the origin: exact within 104 days of it.
    pub(crate) fn since(&self, time: u64) -> f64 {
        (i128::from(time) - i128::from(self.origin)) as f64
    }
}

struct Held {
    stage: Stage,
    snapshot: Option<Arc<Snapshot>>,
    /// Bytes read when the last snapshot was taken.
    taken_at: u64,
}

impl Index {
    pub(crate) fn new() -> Index {
        let stage = Stage::Building { done: 0, total: 0 };
        Index {
            held: Mutex::new(Held { stage, snapshot: None, taken_at: 0 }),
            is_given_up: AtomicBool::new(false),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens or builds the store. `keep_going` says whether to continue.
    pub(crate) fn build(&self, inputs: &dyn Inputs, keep_going: impl Fn() -> bool + Sync) {
        let made = inputs.store(&mut |done, total| {
            self.held().stage = Stage::Building { done, total };
            keep_going() && !self.is_given_up.load(Ordering::Relaxed)
        });
        let mut held = self.held();
        match made {
            Ok(Some(store)) => {
                held.take(store);
                held.stage = Stage::Ready;
            }
            Ok(None) => {
                let why = "indexing was stopped, and begins again with the next `hodo view`".to_owned();
                held.stage = Stage::Absent { why, failed: true };
            }
            Err(NoStore::Nothing(why)) => held.stage = Stage::Absent { why, failed: false },
            // What was flushed before the failure stays visible.
            Err(NoStore::Failed(why)) => held.stage = Stage::Absent { why, failed: true },
        }
    }

    /// Ends the building. What pages have seen of the store stays.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> Stage {
        self.held().stage.clone()
    }

    /// Returns the store, or a snapshot of the one that grows; `None` while it has no records.
    pub(crate) fn snapshot(&self, inputs: &dyn Inputs) -> Option<Arc<Snapshot>> {
        let mut held = self.held();
        if let Stage::Building { done, total } = held.stage {
            // A snapshot is taken again when a tenth more was read.
            let is_old = held.snapshot.is_none() || done.saturating_sub(held.taken_at) > total / 10;
            if let Some(store) = is_old.then(|| inputs.growing()).flatten() {
                held.take(store);
                held.taken_at = done;
            }
        }
        held.snapshot.clone()
    }

    /// Returns the snapshot of a generation, if it is still the newest.
    pub(crate) fn of_generation(&self, generation: u64) -> Option<Arc<Snapshot>> {
        self.held().snapshot.clone().filter(|snapshot| snapshot.generation == generation)
    }
}

impl Held {
    fn take(&mut self, store: Store) {
        let generation = self.snapshot.as_ref().map_or(0, |before| before.generation) + 1;
        self.snapshot = Some(Arc::new(Snapshot::new(store, generation)));
    }
}
