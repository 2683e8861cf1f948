//! The system calls of each thread, shared by the analyses that read them.
//!
//! A call is a `syscall_entry_NAME` and the next `syscall_exit_NAME` of the same thread. An exit is unmatched if its
//! entry is not in the trace or it follows the entry of another call; so is the second return of `fork` and its
//! variants, in the child. An entry without an exit is unfinished.

use std::{cell::RefCell, fmt::Debug};

use hodo_clock::Nanos;
use hodo_model::{
    EventPartial, FinishContext, Interest, Start,
    kernel::{KernelEvent, Kind, Thread, Threads, field},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    durations::{Add, Durations, Longest},
    pairs::Unpaired,
    per_thread_sums::{PerThreadSums, SumKey},
    registers::{RegisterContent, Registers},
    settling::SettlingRows,
};

/// The events that [`CallsPartial`] needs.
pub(crate) const INTEREST: [(Kind, &[usize]); 4] = [
    (Kind::SchedSwitch, &[field::switch::PREV_TID, field::switch::NEXT_TID]),
    (Kind::SyscallEntry, &[]),
    (Kind::SyscallExit, &[field::exit::RET]),
    (Kind::Syscall, &[]),
];

/// The highest error number: the kernel's `MAX_ERRNO`.
const MOST_ERRORS: i64 = 4095;

/// Returns whether the result of a call is an error.
pub(crate) fn is_error(result: i64) -> bool {
    (-MOST_ERRORS..0).contains(&result)
}

/// The kept arguments of a call: none, or all of them as text.
pub trait KeptArguments:
    Clone + Debug + Default + Ord + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Returns the arguments of a call from its entry event.
    fn of(event: &KernelEvent<'_>) -> Self;
}

impl KeptArguments for () {
    #[inline]
    fn of(_: &KernelEvent<'_>) {}
}

impl KeptArguments for Box<str> {
    fn of(event: &KernelEvent<'_>) -> Box<str> {
        String::from_utf8_lossy(event.text(field::entry::ALL).unwrap_or_default()).into()
    }
}

/// A call in progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenSystemCall<A> {
    name: u32,
    time: Nanos,
    arguments: A,
}

impl<A: KeptArguments> OpenSystemCall<A> {
    #[inline]
    fn of(event: &KernelEvent<'_>) -> OpenSystemCall<A> {
        OpenSystemCall { name: event.name, time: event.time, arguments: A::of(event) }
    }
}

/// The end of a call.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SystemCallExit {
    name: u32,
    time: Nanos,
    result: i64,
    thread: Thread,
    cpu: u32,
}

impl SystemCallExit {
    #[inline]
    fn of(event: &KernelEvent<'_>, time: Nanos, result: i64) -> SystemCallExit {
        SystemCallExit { name: event.name, time, result, thread: event.thread, cpu: event.cpu }
    }

    /// Returns the call that began at this time.
    fn call(self, begin: Nanos) -> EndedCall {
        let SystemCallExit { name, result, thread, cpu, .. } = self;
        EndedCall { cpu, thread, begin, name, result }
    }
}

/// The system call events of a thread in a chunk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SystemCallDelta<A> {
    /// Whether any call began or ended in the chunk.
    touched: bool,
    /// The first exit, if the state before it is unknown. Boxed, because few threads have one and every context switch
    /// moves the whole struct.
    first: Option<Box<SystemCallExit>>,
    /// The call in progress.
    open: Option<OpenSystemCall<A>>,
}

/// The accumulated data of complete calls.
pub trait SummedCalls:
    Clone + Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The type of a call's arguments, kept until it ends.
    type Arguments: KeptArguments;

    /// Adds a call.
    fn see(&mut self, length: u64, entry: OpenSystemCall<Self::Arguments>, exit: SystemCallExit);

    /// Adds the sums of the next task; `threads` are the threads that run at its begin.
    fn add(&mut self, later: Self, threads: &Threads);
}

/// The accumulated data of calls with one name.
pub trait OfCalls:
    Add + Clone + Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Adds a call with this duration and result.
    fn see(&mut self, length: u64, result: i64);
}

/// By thread, CPU and name.
impl<V: OfCalls> SummedCalls for PerThreadSums<u32, V> {
    type Arguments = ();

    #[inline]
    fn see(&mut self, length: u64, _: OpenSystemCall<()>, exit: SystemCallExit) {
        self.of(exit.thread, exit.cpu, exit.name).see(length, exit.result);
    }

    fn add(&mut self, later: Self, threads: &Threads) {
        self.add(later, threads);
    }
}

/// Sums by name for all threads, which suffice if no threads are selected.
impl SummedCalls for Vec<OfName> {
    type Arguments = ();

    #[inline]
    fn see(&mut self, length: u64, _: OpenSystemCall<()>, exit: SystemCallExit) {
        let index = exit.name as usize;
        if index >= self.len() {
            self.resize_with(index + 1, OfName::default);
        }
        self[index].see(length, exit.result);
    }

    fn add(&mut self, later: Self, _: &Threads) {
        self.resize_with(self.len().max(later.len()), OfName::default);
        self.iter_mut().zip(later).for_each(|(own, later)| own.add(later));
    }
}

/// One of the longest calls, and its arguments.
pub(crate) type LongCall = (EndedCall, Box<str>);

/// Sums by thread, CPU and name, and the longest calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WithLongest {
    pub(crate) calls: PerThreadSums<u32, OfName>,
    pub(crate) longest: Longest<LongCall>,
}

impl SummedCalls for WithLongest {
    type Arguments = Box<str>;

    fn see(&mut self, length: u64, entry: OpenSystemCall<Box<str>>, exit: SystemCallExit) {
        self.calls.of(exit.thread, exit.cpu, exit.name).see(length, exit.result);
        self.longest.see(length, entry.time, (exit.call(entry.time), entry.arguments));
    }

    fn add(&mut self, later: WithLongest, threads: &Threads) {
        self.calls.add(later.calls, threads);
        let known = |(call, arguments): LongCall| (call.known(|thread| threads.known(thread)), arguments);
        self.longest.add(later.longest.map(known));
    }
}

/// Each call, by its duration in nanoseconds.
impl SummedCalls for Vec<(u64, EndedCall)> {
    type Arguments = ();

    #[inline]
    fn see(&mut self, length: u64, entry: OpenSystemCall<()>, exit: SystemCallExit) {
        self.push((length, exit.call(entry.time)));
    }

    fn add(&mut self, later: Self, threads: &Threads) {
        self.extend(
            later.into_iter().map(|(length, call)| (length, call.known(|thread| threads.known(thread)))),
        );
    }
}

/// A complete call; the CPU is that on which it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndedCall {
    pub(crate) cpu: u32,
    pub(crate) thread: Thread,
    pub(crate) begin: Nanos,
    pub(crate) name: u32,
    pub(crate) result: i64,
}

impl EndedCall {
    /// Replaces the thread by another name of it.
    pub(crate) fn known(self, thread: impl FnOnce(Thread) -> Thread) -> EndedCall {
        EndedCall { thread: thread(self.thread), ..self }
    }
}

/// Each call, when it ends.
impl SummedCalls for SettlingRows<EndedCall> {
    type Arguments = ();

    #[inline]
    fn see(&mut self, _: u64, entry: OpenSystemCall<()>, exit: SystemCallExit) {
        // A damaged trace may end a call before its begin; rows must not end before what was emitted already.
        self.see(exit.time.max(entry.time), exit.call(entry.time));
    }

    fn add(&mut self, later: Self, threads: &Threads) {
        self.add(later, |call| call.known(|thread| threads.known(thread)));
    }
}

/// What a `futex` call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FutexEffect {
    /// It waited until it was woken.
    Waited,
    /// It woke at least one thread.
    Woke,
    /// It would have woken a thread, but none waited.
    WokeNobody,
}

/// A `futex` call that waited for a lock, or released one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FutexCall {
    /// The address of the lock in its process.
    pub(crate) address: u64,
    pub(crate) effect: FutexEffect,
    pub(crate) begin: Nanos,
    pub(crate) end: Nanos,
    pub(crate) thread: Thread,
}

/// The address and the operation of a `futex` call; none of other calls.
impl KeptArguments for Option<(u64, i64)> {
    #[inline]
    fn of(event: &KernelEvent<'_>) -> Self {
        Some((event.integer(field::entry::LOCK)? as u64, event.integer(field::entry::COMMAND)?))
    }
}

/// What a `futex` operation is for. Source: futex(2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum FutexOperation {
    Wait,
    Wake,
    /// `UNLOCK_PI` returns 0 when it has handed the lock over, the others how many threads they woke.
    UnlockPi,
}

impl FutexOperation {
    /// `None` for operations that do neither.
    fn new(operation: i64) -> Option<FutexOperation> {
        // Without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME.
        match operation & 0x7f {
            // WAIT, LOCK_PI, WAIT_BITSET, LOCK_PI2
            0 | 6 | 9 | 13 => Some(FutexOperation::Wait),
            // WAKE, WAKE_OP, WAKE_BITSET
            1 | 5 | 10 => Some(FutexOperation::Wake),
            7 => Some(FutexOperation::UnlockPi),
            _ => None,
        }
    }
}

/// Waits that succeeded, and calls that wake threads.
impl SummedCalls for Vec<FutexCall> {
    type Arguments = Option<(u64, i64)>;

    #[inline]
    fn see(&mut self, _: u64, entry: OpenSystemCall<Self::Arguments>, exit: SystemCallExit) {
        let Some((address, operation)) = entry.arguments else { return };
        let Some(operation) = FutexOperation::new(operation) else { return };
        let effect = match (operation, exit.result) {
            (FutexOperation::Wait, 0) => FutexEffect::Waited,
            (FutexOperation::Wait, _) => return,
            (FutexOperation::Wake, 0) => FutexEffect::WokeNobody,
            (FutexOperation::Wake, _) | (FutexOperation::UnlockPi, 0) => FutexEffect::Woke,
            (FutexOperation::UnlockPi, _) => FutexEffect::WokeNobody,
        };
        if !is_error(exit.result) {
            self.push(FutexCall { address, effect, begin: entry.time, end: exit.time, thread: exit.thread });
        }
    }

    fn add(&mut self, later: Self, threads: &Threads) {
        self.extend(later.into_iter().map(|call| FutexCall { thread: threads.known(call.thread), ..call }));
    }
}

/// Durations and results of calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OfName {
    /// The durations.
    pub(crate) durations: Durations,
    /// Calls that returned an error.
    pub(crate) errors: u64,
    /// Sum of the other results except addresses: for calls that return bytes, the number of bytes.
    pub(crate) returned: u64,
}

impl OfName {
    /// Adds the calls of `others`.
    pub(crate) fn join(&mut self, others: &OfName) {
        self.durations.join(&others.durations);
        self.errors += others.errors;
        self.returned = self.returned.wrapping_add(others.returned);
    }
}

impl OfCalls for OfName {
    #[inline]
    fn see(&mut self, length: u64, result: i64) {
        self.durations.see(length);
        if is_error(result) {
            self.errors += 1;
        } else {
            self.returned = self.returned.wrapping_add(result as u64);
        }
    }
}

impl Add for OfName {
    fn add(&mut self, later: OfName) {
        match self.durations.count {
            0 => *self = later,
            _ => self.join(&later),
        }
    }
}

/// The data of complete calls, and the number of incomplete ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct CallTotals<S> {
    calls: S,
    unmatched: u64,
    unfinished: u64,
}

impl<S: SummedCalls> CallTotals<S> {
    #[inline]
    fn complete(&mut self, entry: OpenSystemCall<S::Arguments>, exit: SystemCallExit) {
        self.calls.see(exit.time.0.saturating_sub(entry.time.0), entry, exit);
    }

    /// Adds the beginning of a call.
    #[inline]
    fn enter(&mut self, delta: &mut SystemCallDelta<S::Arguments>, entry: OpenSystemCall<S::Arguments>) {
        self.unfinished += u64::from(delta.open.replace(entry).is_some());
        delta.touched = true;
    }

    /// Adds a whole call.
    #[inline]
    fn whole(
        &mut self,
        delta: &mut SystemCallDelta<S::Arguments>,
        entry: OpenSystemCall<S::Arguments>,
        exit: SystemCallExit,
    ) {
        self.unfinished += u64::from(delta.open.take().is_some());
        delta.touched = true;
        self.complete(entry, exit);
    }

    /// Adds the end of a call.
    #[inline]
    fn exit(&mut self, content: &mut RegisterContent<SystemCallDelta<S::Arguments>>, exit: SystemCallExit) {
        let delta = &mut content.since;
        match delta.open.take() {
            Some(entry) if entry.name == exit.name => self.complete(entry, exit),
            Some(_) => {
                self.unfinished += 1;
                self.unmatched += 1;
            }
            None if content.from.is_some() && !delta.touched => delta.first = Some(Box::new(exit)),
            None => self.unmatched += 1,
        }
        delta.touched = true;
    }

    /// Adds later changes to a content.
    fn join(
        &mut self,
        content: &mut RegisterContent<SystemCallDelta<S::Arguments>>,
        later: SystemCallDelta<S::Arguments>,
    ) {
        match later.first {
            Some(exit) => self.exit(content, *exit),
            None if later.touched => self.unfinished += u64::from(content.since.open.take().is_some()),
            None => return,
        }
        content.since.touched = true;
        content.since.open = later.open;
    }

    /// Ends the trace.
    fn end(&mut self, delta: &SystemCallDelta<S::Arguments>) {
        self.unmatched += u64::from(delta.first.is_some());
        self.unfinished += u64::from(delta.open.is_some());
    }

    /// Adds the later of two neighbours; `threads` are the threads that run where it begins.
    fn add(&mut self, later: CallTotals<S>, threads: &Threads) {
        self.calls.add(later.calls, threads);
        self.unmatched += later.unmatched;
        self.unfinished += later.unfinished;
    }
}

/// The calls after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct CallsPartial<S: SummedCalls = PerThreadSums<u32, OfName>> {
    registers: Registers<SystemCallDelta<S::Arguments>>,
    totals: CallTotals<S>,
}

impl<S: SummedCalls> EventPartial for CallsPartial<S> {
    fn interest() -> Interest<'static> {
        Interest::events(&INTEREST)
    }

    fn begin(_: &Start<'_>) -> CallsPartial<S> {
        CallsPartial::default()
    }

    #[inline]
    fn see(&mut self, event: &KernelEvent<'_>) {
        match event.kind {
            Kind::SyscallEntry => {
                self.totals.enter(&mut self.registers.running(event.cpu).since, OpenSystemCall::of(event));
            }
            Kind::SyscallExit => {
                let result = event.integer(field::exit::RET).unwrap_or(0);
                self.totals
                    .exit(self.registers.running(event.cpu), SystemCallExit::of(event, event.time, result));
            }
            Kind::Syscall => {
                let Some((end, result)) = event.ended() else { return };
                let delta = &mut self.registers.running(event.cpu).since;
                self.totals.whole(delta, OpenSystemCall::of(event), SystemCallExit::of(event, end, result));
            }
            _ => {
                if let Some((prev, next)) = event.switch() {
                    self.registers.switch(event.cpu, prev, next, |delta| !delta.touched);
                }
            }
        }
    }

    fn add(&mut self, later: CallsPartial<S>, threads: &Threads) {
        self.totals.add(later.totals, threads);
        let sums = RefCell::new(&mut self.totals);
        let join = |content: &mut RegisterContent<SystemCallDelta<S::Arguments>>,
                    later: SystemCallDelta<S::Arguments>| {
            let first = later
                .first
                .map(|exit| Box::new(SystemCallExit { thread: threads.known(exit.thread), ..*exit }));
            sums.borrow_mut().join(content, SystemCallDelta { first, ..later });
        };
        self.registers.add(later.registers, join, |delta| sums.borrow_mut().end(&delta));
    }
}

impl<S: SummedCalls> CallsPartial<S> {
    /// The complete calls.
    pub(crate) fn complete(&self) -> &S {
        &self.totals.calls
    }

    /// The complete calls, to take some of them.
    pub(crate) fn complete_mut(&mut self) -> &mut S {
        &mut self.totals.calls
    }

    /// Returns the numbers of unmatched and unfinished calls of all threads.
    pub(crate) fn left(&self) -> Unpaired {
        let (unmatched, unfinished) = (self.totals.unmatched, self.totals.unfinished);
        let mut left = CallTotals::<S> { unmatched, unfinished, ..CallTotals::default() };
        self.registers.contents().for_each(|delta| left.end(delta));
        Unpaired { unmatched: left.unmatched, unfinished: left.unfinished }
    }
}

impl<V: OfCalls> CallsPartial<PerThreadSums<u32, V>> {
    /// Returns the selected calls of the whole trace by thread, CPU and name; a combination may occur several times.
    pub(crate) fn wanted<'s>(
        &'s self,
        context: &'s FinishContext<'_>,
    ) -> impl Iterator<Item = (SumKey<&'s u32>, &'s V)> {
        self.complete().wanted(context)
    }
}
