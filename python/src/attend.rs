//! Long work on a thread of its own, while the caller's thread attends to signals and progress.

use std::{
    panic::resume_unwind,
    process,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};

/// Time between two looks for signals.
const PAUSE: Duration = Duration::from_millis(50);

/// For work whose progress nobody asked for.
pub(crate) const NO_PROGRESS: Option<&Py<PyAny>> = None;

/// The process that used the engine first.
static USER: OnceLock<u32> = OnceLock::new();

/// Runs `work` without the GIL. Its argument receives the bytes done and the bytes to do, and returns false once the
/// caller pressed Ctrl-C or `progress` raised an exception.
///
/// # Errors
/// Returns what a signal handler or `progress` raised, after `work` has ended; an error in a fork of a process that used
/// the engine.
pub(crate) fn attended<R: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&mut (dyn FnMut(u64, u64) -> bool + Send)) -> R + Send,
) -> PyResult<R> {
    if *USER.get_or_init(process::id) != process::id() {
        return Err(PyRuntimeError::new_err(
            "the engine's threads do not survive a fork: start processes with multiprocessing's `spawn`, or fork before the first use",
        ));
    }
    let (done, total) = (AtomicU64::new(0), AtomicU64::new(0));
    let (stopped, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let waiting = thread::current();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work(&mut |now, of| {
                done.store(now, Relaxed);
                total.store(of, Relaxed);
                !stopped.load(Relaxed)
            });
            ended.store(true, Relaxed);
            waiting.unpark();
            result
        });
        let mut raised = Ok(());
        while !ended.load(Relaxed) && !worker.is_finished() {
            py.detach(|| thread::park_timeout(PAUSE));
            if raised.is_ok() {
                raised = look(py, progress, done.load(Relaxed), total.load(Relaxed));
                stopped.store(raised.is_err(), Relaxed);
            }
        }
        let result = py.detach(|| worker.join()).unwrap_or_else(|panic| resume_unwind(panic));
        raised.map(|()| result)
    })
}

/// Handles signals, and reports progress.
fn look(py: Python<'_>, progress: Option<&Py<PyAny>>, done: u64, total: u64) -> PyResult<()> {
    py.check_signals()?;
    match progress.filter(|_| total > 0) {
        Some(progress) => progress.call1(py, (done, total)).map(drop),
        None => Ok(()),
    }
}
