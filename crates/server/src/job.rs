//! Work for the page: a limited number of jobs at once, on their own threads, stopped when their answer is no longer awaited.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{sync::Semaphore, task};

use crate::answer::{Answer, Failure, Work};

/// Passes over the traces at once; each uses all cores.
const PASSES: usize = 1;
/// Queries of the store at once.
const MOST_QUERIES: usize = 4;

/// How much work may be done at once.
#[derive(Debug)]
pub(crate) struct Slots {
    passes: Arc<Semaphore>,
    queries: Arc<Semaphore>,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { passes: Arc::new(Semaphore::new(PASSES)), queries: Arc::new(Semaphore::new(MOST_QUERIES)) }
    }
}

/// Sets a flag when it is dropped: with the connection that waits for the work.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Slots {
    /// Does work on another thread, after earlier work. `work` gets the flag that is set when this future is dropped.
    pub(crate) async fn run(
        &self,
        kind: Work,
        work: impl FnOnce(&Arc<AtomicBool>) -> Result<Answer, Failure> + Send + 'static,
    ) -> Result<Answer, Failure> {
        let slots = match kind {
            Work::Pass => &self.passes,
            Work::Query => &self.queries,
        };
        let Ok(slot) = Arc::clone(slots).acquire_owned().await else { return Err(Failure::Stopped) };
        let stop = Arc::new(AtomicBool::new(false));
        let guard = StopOnDrop(Arc::clone(&stop));
        let done = task::spawn_blocking(move || {
            // The slot is free when the work has ended, not when its answer is no longer awaited.
            let _slot = slot;
            work(&stop)
        });
        let outcome = done.await;
        drop(guard);
        outcome.unwrap_or_else(|defect| {
            Err(Failure::Failed(format!("a defect of hodo, please report it: {defect}")))
        })
    }
}
