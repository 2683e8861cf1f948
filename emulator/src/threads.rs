//! The threads by vCPU.
//!
//! A block's callback finds its thread with one load from [`THREADS`] and without a lock. Small numbers instead of a
//! pointer mean that there is no thread, or that it must wait.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use hodo_intel_pt::encoder::Encoder;

use crate::{
    block::OUTSIDE,
    filter,
    process::{PROCESS, Process},
    signal::Registers,
    spool::{FILTERED, GIVEN_UP, Identity, NoteKind, Thread},
    window,
};

/// The most vCPUs of a process; QEMU has one per thread.
const MOST: usize = 1 << 16;

/// The thread is stopped: another one is ending the process.
const PARKED: *mut Thread = ptr::without_provenance_mut(1);
/// The thread is not recorded: its file could not be made.
const UNRECORDED: *mut Thread = ptr::without_provenance_mut(2);

static THREADS: [AtomicPtr<Thread>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
/// One more than the highest used index.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The longest wait for the other threads to stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(50);

/// The thread that runs on a vCPU, if any.
#[inline(always)]
pub(crate) fn get(index: u32) -> Option<*mut Thread> {
    let thread = THREADS.get(index as usize)?.load(Ordering::Relaxed);
    (thread > UNRECORDED).then_some(thread)
}

/// The thread of a vCPU that [`get`] does not know: makes it if it is new, waits for it if it is parked. `None` if it
/// is not recorded.
#[cold]
#[inline(never)]
pub(crate) fn find(index: u32, registers: &Registers) -> Option<*mut Thread> {
    let slot = THREADS.get(index as usize)?;
    loop {
        match slot.load(Ordering::Acquire) {
            PARKED => std::thread::sleep(Duration::from_millis(1)),
            UNRECORDED => return None,
            thread if thread.is_null() => {
                let thread = begin(registers).unwrap_or(UNRECORDED);
                slot.store(thread, Ordering::Release);
                USED.fetch_max(index as usize + 1, Ordering::AcqRel);
            }
            thread => return Some(thread),
        }
    }
}

/// A new thread runs its first block.
fn begin(registers: &Registers) -> Option<*mut Thread> {
    // SAFETY: no arguments, no memory.
    let tid = unsafe { libc::gettid() } as u32;
    let mut process = PROCESS.lock();
    let process = process.as_mut()?;
    let start = if !process.started {
        process.started = true;
        crate::program_begins(registers);
        process.birth
    } else if let Some((parent_pid, parent_tid)) = process.forked_by.take() {
        process.note(process.birth, tid, NoteKind::Fork { parent_pid, parent_tid });
        process.birth
    } else {
        let (parent_tid, start) =
            process.clone_of(registers.stack_pointer()).unwrap_or((process.pid, process.birth));
        process.note(start, tid, NoteKind::Fork { parent_pid: process.pid, parent_tid });
        start
    };
    record(process, tid, start)
}

fn record(process: &Process, tid: u32, start: u64) -> Option<*mut Thread> {
    if process.has_given_up() {
        return None;
    }
    let settings = &process.settings;
    let who = Identity { pid: process.pid, tid, sequence: process.sequence };
    let encoder = Encoder::new(settings.encoder(), start);
    let mut thread = Thread::new(&who, settings.snapshot.unwrap_or(0), start, encoder, &OUTSIDE);
    thread.careful = AtomicU64::new(if filter::is_set() { FILTERED } else { 0 });
    let thread = window::create(&process.spool, thread).ok()?;
    // SAFETY: just made, and not shared yet.
    unsafe { (*thread).make_room() };
    Some(thread)
}

/// The thread of a vCPU has ended.
pub(crate) fn end(index: u32) {
    // A translating thread reads the clocks of all threads.
    let _process = PROCESS.lock();
    let thread = THREADS[index as usize].swap(ptr::null_mut(), Ordering::AcqRel);
    if thread > UNRECORDED {
        // SAFETY: the thread itself reports its end, so no other code uses its words any more.
        unsafe { window::close(thread) };
    }
}

/// A thread can't be recorded any more; its words stay as they are.
pub(crate) fn stop(thread: *mut Thread) {
    let used = &THREADS[..USED.load(Ordering::Acquire)];
    if let Some(slot) = used.iter().find(|slot| slot.load(Ordering::Relaxed) == thread) {
        slot.store(UNRECORDED, Ordering::Release);
    }
}

/// Notes can't be written any more: each thread ends its trace at its next block. `_process` is held, so that no thread
/// is unmapped meanwhile.
pub(crate) fn give_up(_process: &Process) {
    for index in 0..USED.load(Ordering::Acquire) {
        if let Some(thread) = get(index as u32) {
            // SAFETY: a thread is unmapped only while its process is locked. The word is atomic.
            unsafe { (*thread).careful.fetch_or(GIVEN_UP, Ordering::Relaxed) };
        }
    }
}

/// In a forked child: the parent's threads do not exist here, and nothing writes to their files.
pub(crate) fn forget_all() {
    (0..USED.load(Ordering::Acquire)).for_each(|index| end(index as u32));
}

/// Ticks that pass when code replaces other code, and when a program executes another.
///
/// A tracer's times are estimates between two timing packets; those of perf run ahead by up to the instructions between
/// them. What runs before and after a change must not be confused.
pub(crate) const CHANGE_TICKS: u64 = 100_000;

/// A time after everything that the threads ran so far. The process is locked.
pub(crate) fn later() -> u64 {
    let clocks = (0..USED.load(Ordering::Acquire)).filter_map(|index| {
        // SAFETY: a thread is unmapped only while its process is locked; a concurrent write of a clock makes the read
        // return the old or the new value.
        get(index as u32).map(|thread| unsafe { (&raw const (*thread).counts.now).read_volatile() })
    });
    clocks.max().unwrap_or(0) + CHANGE_TICKS
}

/// Stops all other threads between two blocks, so that their files are complete when another program replaces this one.
/// They continue when the result is dropped, which happens only if this one stays.
pub(crate) fn park_others(index: u32) -> Parked {
    Parked(take_others(index, PARKED))
}

/// Stops recording all other threads between two blocks, because the process ends: QEMU then waits for them, so they
/// must not stop.
pub(crate) fn leave_others(index: u32) {
    take_others(index, UNRECORDED);
}

/// Replaces the pointers of the other threads, and waits until none is in a callback.
fn take_others(index: u32, instead: *mut Thread) -> Vec<(usize, *mut Thread)> {
    let others = (0..USED.load(Ordering::Acquire)).filter(|&other| other != index as usize);
    let taken: Vec<_> = others
        .filter_map(|other| get(other as u32).map(|thread| (other, thread)))
        // A thread that ends meanwhile is gone, and its words with it.
        .filter(|&(other, thread)| put(other, thread, instead))
        .collect();
    let start = Instant::now();
    if !taken.is_empty() {
        // A thread may have loaded its pointer just before.
        std::thread::sleep(Duration::from_micros(200));
    }
    // SAFETY: these threads do not unmap their words.
    let busy =
        |&(_, thread): &(usize, *mut Thread)| unsafe { (&raw const (*thread).busy).read_volatile() != 0 };
    while taken.iter().any(busy) && start.elapsed() < STOP_TIMEOUT {
        std::thread::yield_now();
    }
    taken
}

/// Replaces a pointer if it is still `before`.
fn put(index: usize, before: *mut Thread, after: *mut Thread) -> bool {
    THREADS[index].compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Threads that are stopped.
pub(crate) struct Parked(Vec<(usize, *mut Thread)>);

impl Parked {
    /// A time after everything that these threads ran, and after `now`.
    pub(crate) fn later(&self, now: u64) -> u64 {
        // SAFETY: the threads are stopped.
        let clocks =
            self.0.iter().map(|&(_, thread)| unsafe { (&raw const (*thread).counts.now).read_volatile() });
        clocks.fold(now, u64::max) + CHANGE_TICKS
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        for &(index, thread) in &self.0 {
            // It may have ended while it was stopped.
            put(index, PARKED, thread);
        }
    }
}
