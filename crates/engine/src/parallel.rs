//! Work on all cores, results in order.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Work that may be done but not yet consumed, for each thread, in jobs as large as the largest; bounds the memory of
/// partial states.
const IN_FLIGHT: u64 = 4;

/// Parts of a result that may wait for their turn, for each job.
const PARTS: usize = 2;

/// How much one of so many threads is to take of what is `left`, within limits: much first, so that there are few
/// results to be merged, and little last, so that all threads end together (Polychronopoulos and Kuck, "Guided
/// self-scheduling", 1987).
pub(crate) fn share(left: u64, threads: usize, limits: RangeInclusive<u64>) -> u64 {
    // Half of what each thread would do if they shared the rest.
    const HALVES: u64 = 2;
    (left / (HALVES * threads.max(1) as u64)).min(*limits.end()).max(*limits.start())
}

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

/// The jobs, which are started in their order.
struct Plan {
    /// The sizes of all jobs before each of them, and of all.
    before: Vec<u64>,
    /// How much may be started, but not consumed.
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

struct Shared<R> {
    /// The next job to start.
    next: usize,
    /// Jobs whose results were consumed.
    consumed: usize,
    delivered: BTreeMap<usize, Delivery<R>>,
    /// The consumer asked for no more, or somebody panicked.
    stopped: bool,
}

/// What the consumer does next.
enum Turn<R> {
    /// It consumes this part.
    Consume(R),
    /// It works.
    Work,
    /// Nothing: somebody stopped.
    Stop,
}

impl<R> Shared<R> {
    /// The next job to start, if not too much waits to be consumed.
    fn start(&mut self, plan: &Plan) -> Option<usize> {
        let waiting = |next: usize| plan.before[next] - plan.before[self.consumed];
        let job = Some(self.next).filter(|&next| next < plan.jobs() && waiting(next) < plan.window)?;
        self.next += 1;
        Some(job)
    }

    /// Takes a part of a job's result if there is room for it; whether there was.
    fn take(&mut self, job: usize, part: &mut Option<R>) -> bool {
        let parts = &mut self.delivered.entry(job).or_default().parts;
        let has_room = parts.len() < PARTS;
        if has_room {
            parts.extend(part.take());
        }
        has_room
    }
}

/// Where workers and the consumer, which is one of them, meet.
struct Exchange<R> {
    plan: Plan,
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

    /// The next job to start, once not too much waits to be consumed.
    fn next_job(&self) -> Option<usize> {
        let mut now = self.lock();
        while !now.stopped && now.next < self.plan.jobs() {
            if let Some(job) = now.start(&self.plan) {
                return Some(job);
            }
            now = self.wait(now);
        }
        None
    }

    /// Delivers a part of a job's result, in its turn; whether to go on.
    fn hand_over(&self, job: usize, part: R) -> bool {
        let (mut now, mut part) = (self.lock(), Some(part));
        while !now.stopped && !now.take(job, &mut part) {
            now = self.wait(now);
        }
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

    /// What the consumer does next, which waits for parts of a job's result: it works if it can.
    fn turn(&self, job: usize, mut can_work: impl FnMut(&mut Shared<R>) -> bool) -> Turn<R> {
        let mut now = self.lock();
        loop {
            if now.stopped {
                return Turn::Stop;
            }
            if let Some(part) = now.delivered.get_mut(&job).and_then(|all| all.parts.pop_front()) {
                return Turn::Consume(part);
            }
            if can_work(&mut now) {
                return Turn::Work;
            }
            now = self.wait(now);
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

/// The consumer, which works too while nothing is there to consume.
struct Consumer<'x, R, C> {
    exchange: &'x Exchange<R>,
    consume: C,
    /// The job whose result it waits for.
    job: usize,
}

impl<R, C: FnMut(R) -> bool> Consumer<'_, R, C> {
    fn consume(&mut self, part: R) {
        let go_on = (self.consume)(part);
        self.job += usize::from(self.exchange.consumed(self.job, go_on));
    }

    /// The next job to start, once there is nothing to consume; `None` where all is consumed, or somebody stopped.
    fn next_job(&mut self) -> Option<usize> {
        while self.job < self.exchange.plan.jobs() {
            let mut job = None;
            let can_work = |now: &mut Shared<R>| {
                job = now.start(&self.exchange.plan);
                job.is_some()
            };
            match self.exchange.turn(self.job, can_work) {
                Turn::Consume(part) => self.consume(part),
                Turn::Work => return job,
                Turn::Stop => return None,
            }
        }
        None
    }

    /// Delivers a part of the result of a job of its own, in its turn; whether to go on.
    fn hand_over(&mut self, job: usize, part: R) -> bool {
        let mut part = Some(part);
        loop {
            match self.exchange.turn(self.job, |now| now.take(job, &mut part)) {
                Turn::Consume(part) => self.consume(part),
                Turn::Work => return true,
                Turn::Stop => return false,
            }
        }
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
/// `consume` in the order of the jobs, beside the work, on the caller's thread, which is one of them. `consume` returns
/// whether to go on.
pub(crate) fn in_order<J: Sync, W, R: Send>(
    jobs: &[J],
    threads: usize,
    start: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &J) -> R + Sync,
    consume: impl FnMut(R) -> bool,
) {
    parts_in_order(jobs, |_| 1, threads, start, |state, job, _| work(state, job), consume);
}

/// The same for jobs of several sizes, of which one alone may give more than memory can hold: `work` may hand over
/// parts of the result before it returns the last one, waits there for its turn, and learns whether to go on.
pub(crate) fn parts_in_order<J: Sync, W, R: Send>(
    jobs: &[J],
    size: impl Fn(&J) -> u64,
    threads: usize,
    start: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &J, &dyn Fn(R) -> bool) -> R + Sync,
    consume: impl FnMut(R) -> bool,
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
    let shared = Shared { next: 0, consumed: 0, delivered: BTreeMap::new(), stopped: false };
    let exchange = Exchange { plan, shared: Mutex::new(shared), changed: Condvar::new() };
    let worker = || {
        let _guard = StopOnPanic(&exchange);
        let mut state = start();
        while let Some(job) = exchange.next_job() {
            let last = work(&mut state, &jobs[job], &|part| exchange.hand_over(job, part));
            exchange.complete(job, last);
        }
    };
    pool(threads).in_place_scope(|scope| {
        (1..threads).for_each(|_| scope.spawn(|_| worker()));
        // Where `consume` panics, nobody may wait for it for ever.
        let _guard = StopOnPanic(&exchange);
        let mut state = start();
        let consumer = RefCell::new(Consumer { exchange: &exchange, consume, job: 0 });
        let next_job = || consumer.borrow_mut().next_job();
        while let Some(job) = next_job() {
            let last = work(&mut state, &jobs[job], &|part| consumer.borrow_mut().hand_over(job, part));
            exchange.complete(job, last);
        }
    });
}

/// The threads that work beside a caller's where there are so many in all. They stay: systems wake a thread that
/// waits at once, but may let a new one wait for a processor.
fn pool(threads: usize) -> Arc<ThreadPool> {
    static POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let start = || {
        let pool = ThreadPoolBuilder::new().num_threads(threads - 1).build();
        let pool = pool.expect("the system has room for threads");
        // A system may put a new thread behind the one that started it, until that waits for something.
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
        let mut shared: Shared<()> =
            Shared { next: 0, consumed: 0, delivered: BTreeMap::new(), stopped: false };
        let mut start_all = |consumed| {
            shared.consumed = consumed;
            iter::from_fn(|| shared.start(&plan)).last()
        };
        // As much as four large ones, so that more fits only behind the first.
        assert_eq!(start_all(0), Some(103));
        assert_eq!(start_all(1), Some(104));
        assert_eq!(start_all(102), Some(105));
        assert_eq!(start_all(102), None);
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
            let mut seen = 0;
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
        let work = |(): &mut (), _: &usize| assert!(thread::current().id() != caller, "enough");
        in_order(&(0..10_000).collect::<Vec<_>>(), 2, || (), work, |()| true);
    }
}
