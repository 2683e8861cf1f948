//! Parallel work with ordered results.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Amount of work that may be started but not consumed, per thread, in units of the largest job. Bounds the memory of
/// partial states.
const IN_FLIGHT: u64 = 4;

/// Number of parts of a job's result that may wait to be consumed.
const MOST_PARTS: usize = 2;

/// No restriction on the thread that produced a part.
const ANY_THREAD: Option<usize> = None;

/// Returns how much of what is `left` one of `threads` threads takes next, within limits: large shares first, so that
/// few results must be merged, and small shares last, so that all threads finish together (Polychronopoulos and Kuck,
/// "Guided self-scheduling", 1987).
pub(crate) fn share(left: u64, threads: usize, limits: RangeInclusive<u64>) -> u64 {
    // Each thread takes half of an equal share of the rest.
    const SHARES_PER_THREAD: u64 = 2;
    (left / (SHARES_PER_THREAD * threads.max(1) as u64)).min(*limits.end()).max(*limits.start())
}

/// The results that a job has delivered.
struct Delivery<R> {
    /// The thread that runs the job.
    thread: usize,
    parts: VecDeque<R>,
    /// Whether the job is done.
    complete: bool,
}

impl<R> Delivery<R> {
    fn of(thread: usize) -> Delivery<R> {
        Delivery { thread, parts: VecDeque::new(), complete: false }
    }
}

/// The jobs, which start in order.
struct Plan {
    /// Prefix sums of the jobs' sizes, from 0 to the total.
    before: Vec<u64>,
    /// Size that may be started but not consumed.
    window: u64,
}

impl Plan {
    fn new(sizes: &[u64], threads: usize) -> Plan {
        let largest = sizes.iter().fold(1, |largest, &size| size.max(largest));
        let mut before = vec![0];
        before.extend(sizes.iter().scan(0u64, |sum, &size| {
            *sum = sum.saturating_add(size.max(1));
            Some(*sum)
        }));
        Plan { before, window: largest.saturating_mul(IN_FLIGHT * threads as u64) }
    }

    fn jobs(&self) -> usize {
        self.before.len() - 1
    }
}

struct Shared<R, C> {
    /// The next job to start.
    next: usize,
    /// The next job whose result is consumed.
    due: usize,
    delivered: BTreeMap<usize, Delivery<R>>,
    /// The consumer; `None` while a thread runs it.
    consume: Option<C>,
    /// Whether the consumer wants no more, or a thread panicked.
    stopped: bool,
    /// Number of threads that wait for a change.
    waiting: usize,
}

impl<R, C: FnMut(R) -> bool> Shared<R, C> {
    fn new(consume: C) -> Shared<R, C> {
        Shared {
            next: 0,
            due: 0,
            delivered: BTreeMap::new(),
            consume: Some(consume),
            stopped: false,
            waiting: 0,
        }
    }

    /// Starts the next job, unless too much waits to be consumed.
    fn start(&mut self, plan: &Plan) -> Option<usize> {
        let waiting = |next: usize| plan.before[next] - plan.before[self.due];
        let job = Some(self.next).filter(|&next| next < plan.jobs() && waiting(next) < plan.window)?;
        self.next += 1;
        Some(job)
    }

    /// Takes the next part to consume, with the consumer, if both are available. With `only`, takes it only if that
    /// thread produced it.
    fn take(&mut self, only: Option<usize>) -> Option<(R, C)> {
        let delivery = self.delivered.get_mut(&self.due)?;
        if delivery.parts.is_empty() || only.is_some_and(|thread| delivery.thread != thread) {
            return None;
        }
        let consume = self.consume.take()?;
        delivery.parts.pop_front().map(|part| (part, consume))
    }

    /// Puts the consumer back after it consumed a part; `keep_going` if it wants more.
    fn consumed(&mut self, consume: C, keep_going: bool) {
        self.consume = Some(consume);
        self.stopped |= !keep_going;
        if self
            .delivered
            .get(&self.due)
            .is_some_and(|delivery| delivery.complete && delivery.parts.is_empty())
        {
            self.delivered.remove(&self.due);
            self.due += 1;
        }
    }
}

/// State shared by the threads.
struct Exchange<R, C> {
    plan: Plan,
    shared: Mutex<Shared<R, C>>,
    changed: Condvar,
}

impl<R, C> Exchange<R, C> {
    fn lock(&self) -> MutexGuard<'_, Shared<R, C>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, mut now: MutexGuard<'a, Shared<R, C>>) -> MutexGuard<'a, Shared<R, C>> {
        now.waiting += 1;
        let mut now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        now.waiting -= 1;
        now
    }

    /// Notifies waiting threads, if any: notification is a system call.
    fn notify(&self, now: &Shared<R, C>) {
        if now.waiting > 0 {
            self.changed.notify_all();
        }
    }
}

/// A thread, which runs jobs and consumes results. It prefers its own results, which are still in its caches, over new
/// jobs, and these over results of other threads.
struct Worker<'x, R, C> {
    exchange: &'x Exchange<R, C>,
    thread: usize,
}

impl<R, C: FnMut(R) -> bool> Worker<'_, R, C> {
    /// Consumes a part without holding the lock.
    fn consume<'n>(
        &'n self,
        now: MutexGuard<'n, Shared<R, C>>,
        (part, mut consume): (R, C),
    ) -> MutexGuard<'n, Shared<R, C>> {
        drop(now);
        let keep_going = consume(part);
        let mut now = self.exchange.lock();
        now.consumed(consume, keep_going);
        self.exchange.notify(&now);
        now
    }

    /// Returns the next job to start, once the limit permits; `None` if everything is consumed or a thread stopped.
    fn next_job(&self) -> Option<usize> {
        let plan = &self.exchange.plan;
        let mut now = self.exchange.lock();
        while !now.stopped && now.due < plan.jobs() {
            if let Some(own) = now.take(Some(self.thread)) {
                now = self.consume(now, own);
            } else if let Some(job) = now.start(plan) {
                return Some(job);
            } else if let Some(part) = now.take(ANY_THREAD) {
                now = self.consume(now, part);
            } else {
                now = self.exchange.wait(now);
            }
        }
        None
    }

    /// Delivers a part of a job's result, and waits while too many of its parts are pending. Returns whether to
    /// continue.
    fn hand_over(&self, job: usize, part: R) -> bool {
        let mut now = self.deliver(job, part);
        loop {
            let waiting = now.delivered.get(&job).map_or(0, |delivery| delivery.parts.len());
            if now.stopped || waiting == 0 {
                return !now.stopped;
            }
            if let Some(part) = now.take((waiting < MOST_PARTS).then_some(self.thread)) {
                now = self.consume(now, part);
            } else if waiting < MOST_PARTS {
                return true;
            } else {
                now = self.exchange.wait(now);
            }
        }
    }

    /// Delivers the last part of a job's result.
    fn complete(&self, job: usize, part: R) {
        let mut now = self.deliver(job, part);
        now.delivered.get_mut(&job).expect("was delivered").complete = true;
    }

    fn deliver(&self, job: usize, part: R) -> MutexGuard<'_, Shared<R, C>> {
        let mut now = self.exchange.lock();
        now.delivered.entry(job).or_insert_with(|| Delivery::of(self.thread)).parts.push_back(part);
        self.exchange.notify(&now);
        now
    }
}

/// Stops all threads when one unwinds, so that none waits for it.
struct StopOnPanic<'a, R, C>(&'a Exchange<R, C>);

impl<R, C> Drop for StopOnPanic<'_, R, C> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().stopped = true;
            self.0.changed.notify_all();
        }
    }
}

/// Runs `jobs` on `threads` threads, including the caller's, each with its own `start`ed state. Passes the results to
/// `consume` in the order of the jobs, one at a time, on any of these threads. `consume` returns whether to continue.
pub fn in_order<J: Sync, W, R: Send>(
    jobs: &[J],
    threads: usize,
    start: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &J) -> R + Sync,
    consume: impl FnMut(R) -> bool + Send,
) {
    parts_in_order(jobs, |_| 1, threads, start, |state, job, _| work(state, job), consume);
}

/// Like [`in_order`], for jobs of different sizes, one of which may produce more than memory can hold. `work` may hand
/// over parts of the result before it returns the last one; handing over waits until the part is due, and returns
/// whether to continue.
pub fn parts_in_order<J: Sync, W, R: Send>(
    jobs: &[J],
    size: impl Fn(&J) -> u64,
    threads: usize,
    start: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &J, &dyn Fn(R) -> bool) -> R + Sync,
    consume: impl FnMut(R) -> bool + Send,
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
    let threads = threads.min(jobs.len());
    let plan = Plan::new(&jobs.iter().map(size).collect::<Vec<_>>(), threads);
    let exchange = Exchange { plan, shared: Mutex::new(Shared::new(consume)), changed: Condvar::new() };
    let run = |thread| {
        let _guard = StopOnPanic(&exchange);
        let (worker, mut state) = (Worker { exchange: &exchange, thread }, start());
        while let Some(job) = worker.next_job() {
            let last = work(&mut state, &jobs[job], &|part| worker.hand_over(job, part));
            worker.complete(job, last);
        }
    };
    pool(threads).in_place_scope(|scope| {
        let run = &run;
        (1..threads).for_each(|thread| scope.spawn(move |_| run(thread)));
        run(0);
    });
}

/// Returns a pool of `threads - 1` threads, to work beside the caller's. Pools are kept: the system wakes a waiting
/// thread at once, but may let a new one wait for a processor.
fn pool(threads: usize) -> Arc<ThreadPool> {
    static POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let start = || {
        let pool = ThreadPoolBuilder::new().num_threads(threads - 1).build();
        let pool = pool.expect("the system has room for threads");
        // The system may queue a new thread on its creator's processor until that one blocks, so wait for all threads
        // here.
        pool.broadcast(|_| ());
        Arc::new(pool)
    };
    Arc::clone(pools.entry(threads).or_insert_with(start))
}

#[cfg(test)]
mod tests {
    use std::iter;

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
    fn small_jobs_do_not_wait_for_a_large_one() {
        let plan = Plan::new(&[&[1000], &[1; 100][..], &[1000; 5]].concat(), 1);
        let mut shared = Shared::new(|()| true);
        let mut start_all = |consumed| {
            shared.due = consumed;
            iter::from_fn(|| shared.start(&plan)).last()
        };
        // Four times the largest size may be in flight, so the last jobs wait for the first.
        assert_eq!(start_all(0), Some(103));
        assert_eq!(start_all(1), Some(104));
        assert_eq!(start_all(102), Some(105));
        assert_eq!(start_all(102), None);
    }

    #[test]
    fn a_part_is_taken_by_its_own_thread_or_by_one_without_other_work() {
        let mut shared = Shared::new(|_: u32| true);
        shared.delivered.insert(0, Delivery { thread: 1, parts: [5, 6].into(), complete: true });
        assert!(shared.take(Some(0)).is_none());
        let (first, consume) = shared.take(Some(1)).unwrap();
        assert!(shared.take(ANY_THREAD).is_none(), "the consumer is in use");
        let keep_going = true;
        shared.consumed(consume, keep_going);
        let (second, consume) = shared.take(ANY_THREAD).unwrap();
        shared.consumed(consume, keep_going);
        assert_eq!((first, second, shared.due), (5, 6, 1));
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
                |&job| job,
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
            let mut last = 0;
            let work = |_: &mut (), _: &u64, hand_over: &dyn Fn(u64) -> bool| {
                (0..u64::MAX).find(|&part| !hand_over(part)).unwrap_or_default()
            };
            parts_in_order(
                &[0, 1, 2, 3],
                |_| 1,
                threads,
                || (),
                work,
                |part| {
                    last = part;
                    part < 20
                },
            );
            assert_eq!(last, 20);
        }
    }

    #[test]
    fn the_consumer_can_stop() {
        let jobs: Vec<u64> = (0..10_000).collect();
        let mut last = 0;
        in_order(
            &jobs,
            3,
            || (),
            |_, &job| job,
            |result| {
                last = result;
                result < 20
            },
        );
        assert_eq!(last, 20);
    }

    #[test]
    #[should_panic(expected = "enough")]
    fn a_panic_of_the_consumer_is_not_a_hang() {
        let jobs: Vec<u64> = (0..1000).collect();
        in_order(&jobs, 2, || (), |(), &job| job, |job| if job == 3 { panic!("enough") } else { true });
    }

    #[test]
    #[should_panic(expected = "of a worker")]
    fn a_panic_of_a_worker_is_not_a_hang() {
        let caller = thread::current().id();
        let work = |(): &mut (), _: &usize| {
            assert_eq!(thread::current().id(), caller, "of a worker");
            thread::sleep(std::time::Duration::from_millis(1));
        };
        in_order(&(0..10_000).collect::<Vec<_>>(), 2, || (), work, |()| true);
    }

    #[test]
    #[should_panic(expected = "enough")]
    fn a_panic_of_the_caller_at_work_is_not_a_hang() {
        let caller = thread::current().id();
        let work = |(): &mut (), _: &usize| {
            assert_ne!(thread::current().id(), caller, "enough");
            // Otherwise the other thread may finish before the caller begins.
            thread::sleep(std::time::Duration::from_millis(1));
        };
        in_order(&(0..10_000).collect::<Vec<_>>(), 2, || (), work, |()| true);
    }
}
