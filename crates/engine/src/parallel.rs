//! Work on all cores, results in order.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// Chunks that may be folded but not yet merged, for each thread; bounds the memory of partial states.
const IN_FLIGHT: usize = 4;

/// Parts of a result that may wait for their turn, for each job.
const PARTS: usize = 2;

/// What a job has handed over.
struct Delivery<R> {
    parts: VecDeque<R>,
    /// There is no more to come.
    complete: bool,
}

impl<R> Default for Delivery<R> {
    fn default() -> Delivery<R> {
        Delivery { parts: VecDeque::new(), complete: false }
    }
}

struct Shared<R> {
    /// The next job to start.
    next: usize,
    /// Jobs whose results were consumed.
    consumed: usize,
    delivered: BTreeMap<usize, Delivery<R>>,
    /// The consumer asked for no more, or somebody panicked.
    stopped: bool,
}

/// Where workers and the consumer meet.
struct Exchange<R> {
    shared: Mutex<Shared<R>>,
    changed: Condvar,
}

impl<R> Exchange<R> {
    fn lock(&self) -> MutexGuard<'_, Shared<R>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, now: MutexGuard<'a, Shared<R>>) -> MutexGuard<'a, Shared<R>> {
        self.changed.wait(now).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next of so many jobs to start, once no more than `window` are not consumed.
    fn next_job(&self, jobs: usize, window: usize) -> Option<usize> {
        let mut now = self.lock();
        while !now.stopped && now.next < jobs && now.next >= now.consumed + window {
            now = self.wait(now);
        }
        let job = Some(now.next).filter(|&next| !now.stopped && next < jobs);
        now.next += 1;
        job
    }

    /// Delivers a part of a job's result, in its turn; whether to go on.
    fn hand_over(&self, job: usize, part: R) -> bool {
        let mut now = self.lock();
        while !now.stopped && now.delivered.entry(job).or_default().parts.len() >= PARTS {
            now = self.wait(now);
        }
        now.delivered.entry(job).or_default().parts.push_back(part);
        self.changed.notify_all();
        !now.stopped
    }

    /// Delivers the last part.
    fn complete(&self, job: usize, part: R) {
        let mut now = self.lock();
        let delivery = now.delivered.entry(job).or_default();
        delivery.parts.push_back(part);
        delivery.complete = true;
        self.changed.notify_all();
    }

    /// The next part of a job's result; `None` where there will be no more because somebody stopped.
    fn next_part(&self, job: usize) -> Option<R> {
        let mut now = self.lock();
        loop {
            match now.delivered.entry(job).or_default().parts.pop_front() {
                Some(part) => return Some(part),
                None if now.stopped => return None,
                None => now = self.wait(now),
            }
        }
    }

    /// A part of a job's result was consumed: whether that was its last.
    fn consumed(&self, job: usize, go_on: bool) -> bool {
        let mut now = self.lock();
        let done = now.delivered.get(&job).is_some_and(|all| all.complete && all.parts.is_empty());
        if done {
            now.delivered.remove(&job);
            now.consumed = job + 1;
        }
        now.stopped |= !go_on;
        self.changed.notify_all();
        done
    }
}

/// Stops everybody when a thread unwinds, so that nobody waits for it.
struct StopOnPanic<'a, R>(&'a Exchange<R>);

impl<R> Drop for StopOnPanic<'_, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().stopped = true;
            self.0.changed.notify_all();
        }
    }
}

/// Does `jobs` on `threads` threads, each with its own `start`ed state, and hands the results to
/// `consume` in the order of the jobs, beside the work. `consume` returns whether to go on.
pub(crate) fn in_order<J: Sync, W, R: Send>(
    jobs: &[J],
    threads: usize,
    start: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &J) -> R + Sync,
    consume: impl FnMut(R) -> bool,
) {
    parts_in_order(jobs, threads, start, |state, job, _| work(state, job), consume);
}

/// The same for jobs of which one alone may give more than memory can hold: `work` may hand over parts of the
/// result before it returns the last one, waits there for its turn, and learns whether to go on.
pub(crate) fn parts_in_order<J: Sync, W, R: Send>(
    jobs: &[J],
    threads: usize,
    start: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &J, &dyn Fn(R) -> bool) -> R + Sync,
    mut consume: impl FnMut(R) -> bool,
) {
    if threads <= 1 || jobs.len() <= 1 {
        let mut state = start();
        let consume = RefCell::new(consume);
        let hand_over = |part| (consume.borrow_mut())(part);
        let _ = jobs.iter().all(|job| {
            let last = work(&mut state, job, &hand_over);
            hand_over(last)
        });
        return;
    }
    let window = threads * IN_FLIGHT;
    let shared = Shared { next: 0, consumed: 0, delivered: BTreeMap::new(), stopped: false };
    let exchange = Exchange { shared: Mutex::new(shared), changed: Condvar::new() };
    let worker = || {
        let _guard = StopOnPanic(&exchange);
        let mut state = start();
        while let Some(job) = exchange.next_job(jobs.len(), window) {
            let last = work(&mut state, &jobs[job], &|part| exchange.hand_over(job, part));
            exchange.complete(job, last);
        }
    };
    thread::scope(|scope| {
        (0..threads.min(jobs.len())).for_each(|_| drop(scope.spawn(worker)));
        // Where `consume` panics, nobody may wait for it for ever.
        let _guard = StopOnPanic(&exchange);
        let (mut job, mut go_on) = (0, true);
        while go_on && job < jobs.len() {
            let Some(part) = exchange.next_part(job) else { return };
            go_on = consume(part);
            job += usize::from(exchange.consumed(job, go_on));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..500).collect();
        for threads in [1, 2, 7] {
            let mut results = Vec::new();
            let slow = |_: &mut (), &job: &u64| {
                thread::sleep(std::time::Duration::from_micros(job * 7 % 50));
                job
            };
            in_order(
                &jobs,
                threads,
                || (),
                slow,
                |result| {
                    results.push(result);
                    true
                },
            );
            assert_eq!(results, jobs);
        }
    }

    #[test]
    fn parts_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..60).collect();
        for threads in [1, 2, 7] {
            let mut results = Vec::new();
            let work = |_: &mut (), &job: &u64, hand_over: &dyn Fn(u64) -> bool| {
                (0..job % 7).for_each(|part| assert!(hand_over(job * 10 + part)));
                job * 10 + 7
            };
            parts_in_order(
                &jobs,
                threads,
                || (),
                work,
                |result| {
                    results.push(result);
                    true
                },
            );
            let expected =
                jobs.iter().flat_map(|job| (0..job % 7).chain([7]).map(move |part| job * 10 + part));
            assert_eq!(results, expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_job_of_many_parts_can_be_stopped() {
        for threads in [1, 3] {
            let mut seen = 0;
            let work = |_: &mut (), _: &u64, hand_over: &dyn Fn(u64) -> bool| {
                (0..u64::MAX).find(|&part| !hand_over(part)).unwrap_or_default()
            };
            parts_in_order(
                &[0, 1, 2, 3],
                threads,
                || (),
                work,
                |part| {
                    seen = part;
                    part < 20
                },
            );
            assert_eq!(seen, 20);
        }
    }

    #[test]
    fn the_consumer_can_stop() {
        let jobs: Vec<u64> = (0..10_000).collect();
        let mut seen = 0;
        in_order(
            &jobs,
            3,
            || (),
            |_, &job| job,
            |result| {
                seen = result;
                result < 20
            },
        );
        assert_eq!(seen, 20);
    }

    #[test]
    #[should_panic(expected = "enough")]
    fn a_panic_of_the_consumer_is_not_a_hang() {
        let jobs: Vec<u64> = (0..1000).collect();
        in_order(&jobs, 2, || (), |(), &job| job, |job| if job == 3 { panic!("enough") } else { true });
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_of_a_worker_is_not_a_hang() {
        in_order(&[0, 1, 2, 3], 2, || (), |_, &job| assert_ne!(job, 2), |_| true);
    }
}
