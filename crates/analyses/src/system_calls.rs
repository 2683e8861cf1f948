//! System calls: what is known of each thread's, for the analyses that look at them.
//!
//! A call is a `syscall_entry_NAME` and the next `syscall_exit_NAME` of the same thread. An exit whose entry is not
//! in the trace, or that comes after the entry of another call, is unmatched; so is the second return of `fork`
//! and its kin, in the child. An entry that no exit follows is unfinished.

use std::cell::RefCell;

use hodo_clock::Nanos;
use hodo_trace::{
    Whole,
    kernel::{KernelEvent, Kind, Thread, Threads, field},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    durations::{Add, Durations, Longest},
    registers::{Content, Registers},
    tally::Tally,
};

/// The events that [`Calls`] needs.
pub(crate) const INTEREST: [(Kind, &[usize]); 4] = [
    (Kind::SchedSwitch, &[field::switch::PREV_TID, field::switch::NEXT_TID]),
    (Kind::SyscallEntry, &[]),
    (Kind::SyscallExit, &[field::exit::RET]),
    (Kind::Syscall, &[]),
];

/// The highest number that is an error: the kernel's `MAX_ERRNO`.
const MOST_ERRORS: i64 = 4095;

/// Whether what a call returned is an error.
pub(crate) fn is_error(result: i64) -> bool {
    (-MOST_ERRORS..0).contains(&result)
}

/// What is kept of a call's arguments: nothing, or all of them as text.
pub trait Arguments: Clone + std::fmt::Debug + Default + Ord + Serialize + DeserializeOwned + Send {
    /// Those of a call that begins.
    fn of(event: &KernelEvent<'_>) -> Self;
}

impl Arguments for () {
    #[inline]
    fn of(_: &KernelEvent<'_>) {}
}

impl Arguments for Box<str> {
    fn of(event: &KernelEvent<'_>) -> Box<str> {
        String::from_utf8_lossy(event.text(field::entry::ALL).unwrap_or_default()).into()
    }
}

/// A call that goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry<A> {
    name: u32,
    time: Nanos,
    arguments: A,
}

impl<A: Arguments> Entry<A> {
    #[inline]
    fn of(event: &KernelEvent<'_>) -> Entry<A> {
        Entry { name: event.name, time: event.time, arguments: A::of(event) }
    }
}

/// The end of a call.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Exit {
    name: u32,
    time: Nanos,
    result: i64,
    thread: Thread,
    cpu: u32,
}

impl Exit {
    #[inline]
    fn of(event: &KernelEvent<'_>, time: Nanos, result: i64) -> Exit {
        Exit { name: event.name, time, result, thread: event.thread, cpu: event.cpu }
    }
}

/// What happened to a thread, or to whoever was on a CPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Course<A> {
    /// Whether any call began or ended.
    touched: bool,
    /// The exit that came first, where nothing is known of the time before; apart, as few have one and all of this
    /// moves with every switch.
    first: Option<Box<Exit>>,
    /// The call that goes on.
    open: Option<Entry<A>>,
}

/// A call among the longest: where it ended, whose it was, its name, what it returned, its arguments.
pub(crate) type LongCall<A> = (u32, Thread, u32, i64, A);

/// What is known of the calls of one name, of one thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfName {
    /// How long they took.
    pub(crate) durations: Durations,
    /// Those that returned an error.
    pub(crate) errors: u64,
    /// The sum of what the others returned, if they returned no address: for those that return bytes.
    pub(crate) returned: u64,
}

impl OfName {
    /// Adds what others are.
    pub(crate) fn join(&mut self, others: &OfName) {
        self.durations.join(&others.durations);
        self.errors += others.errors;
        self.returned = self.returned.wrapping_add(others.returned);
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

/// Calls that are complete, and how many are not.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "A: DeserializeOwned"))]
struct Totals<A> {
    /// By name.
    calls: Tally<u32, OfName>,
    longest: Longest<LongCall<A>>,
    unmatched: u64,
    unfinished: u64,
}

impl<A> Default for Totals<A> {
    fn default() -> Totals<A> {
        Totals { calls: Tally::default(), longest: Longest::default(), unmatched: 0, unfinished: 0 }
    }
}

impl<A: Arguments> Totals<A> {
    #[inline]
    fn complete(&mut self, entry: Entry<A>, exit: Exit) {
        let length = exit.time.0.saturating_sub(entry.time.0);
        let of = self.calls.of(exit.thread, exit.cpu, exit.name);
        of.durations.see(length);
        if is_error(exit.result) {
            of.errors += 1;
        } else {
            of.returned = of.returned.wrapping_add(exit.result as u64);
        }
        self.longest.see(
            length,
            entry.time,
            (exit.cpu, exit.thread, exit.name, exit.result, entry.arguments),
        );
    }

    /// A call begins.
    #[inline]
    fn enter(&mut self, course: &mut Course<A>, entry: Entry<A>) {
        self.unfinished += u64::from(course.open.replace(entry).is_some());
        course.touched = true;
    }

    /// A call begins, and ends.
    #[inline]
    fn whole(&mut self, course: &mut Course<A>, entry: Entry<A>, exit: Exit) {
        self.unfinished += u64::from(course.open.take().is_some());
        course.touched = true;
        self.complete(entry, exit);
    }

    /// A call ends.
    #[inline]
    fn exit(&mut self, content: &mut Content<Course<A>>, exit: Exit) {
        let course = &mut content.since;
        match course.open.take() {
            Some(entry) if entry.name == exit.name => self.complete(entry, exit),
            Some(_) => {
                self.unfinished += 1;
                self.unmatched += 1;
            }
            None if content.from.is_some() && !course.touched => course.first = Some(Box::new(exit)),
            None => self.unmatched += 1,
        }
        course.touched = true;
    }

    /// What happened later, to a content.
    fn join(&mut self, content: &mut Content<Course<A>>, later: Course<A>) {
        match later.first {
            Some(exit) => self.exit(content, *exit),
            None if later.touched => self.unfinished += u64::from(content.since.open.take().is_some()),
            None => return,
        }
        content.since.touched = true;
        content.since.open = later.open;
    }

    /// Nothing more happens.
    fn end(&mut self, course: &Course<A>) {
        self.unmatched += u64::from(course.first.is_some());
        self.unfinished += u64::from(course.open.is_some());
    }

    /// Adds what the later of two neighbours has; `threads` run where it begins.
    fn add(&mut self, later: Totals<A>, threads: &Threads) {
        self.calls.add(later.calls, threads);
        let known =
            |(cpu, thread, name, result, arguments)| (cpu, threads.known(thread), name, result, arguments);
        self.longest.add(later.longest.map(known));
        self.unmatched += later.unmatched;
        self.unfinished += later.unfinished;
    }
}

/// What is known of calls after some events.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "A: DeserializeOwned"))]
pub struct Calls<A = ()> {
    registers: Registers<Course<A>>,
    totals: Totals<A>,
}

impl<A> Default for Calls<A> {
    fn default() -> Calls<A> {
        Calls { registers: Registers::default(), totals: Totals::default() }
    }
}

impl<A: Arguments> Calls<A> {
    /// Takes in an event of those that it needs.
    #[inline]
    pub(crate) fn see(&mut self, event: &KernelEvent<'_>) {
        match event.kind {
            Kind::SyscallEntry => {
                self.totals.enter(&mut self.registers.running(event.cpu).since, Entry::of(event));
            }
            Kind::SyscallExit => {
                let result = event.integer(field::exit::RET).unwrap_or(0);
                self.totals.exit(self.registers.running(event.cpu), Exit::of(event, event.time, result));
            }
            Kind::Syscall => {
                let Some((end, result)) = event.ended() else { return };
                let course = &mut self.registers.running(event.cpu).since;
                self.totals.whole(course, Entry::of(event), Exit::of(event, end, result));
            }
            _ => {
                if let Some((prev, next)) = event.switch() {
                    self.registers.switch(event.cpu, prev, next, |course| !course.touched);
                }
            }
        }
    }

    /// Adds what the later of two neighbours knows; `threads` run where it begins.
    pub(crate) fn add(&mut self, later: Calls<A>, threads: &Threads) {
        self.totals.add(later.totals, threads);
        let sums = RefCell::new(&mut self.totals);
        let join = |content: &mut Content<Course<A>>, later: Course<A>| {
            let first =
                later.first.map(|exit| Box::new(Exit { thread: threads.known(exit.thread), ..*exit }));
            sums.borrow_mut().join(content, Course { first, ..later });
        };
        self.registers.add(later.registers, join, |course| sums.borrow_mut().end(&course));
    }

    /// Those of the whole that are asked for: of a thread, of one name; there may be several of both.
    pub(crate) fn wanted<'s>(&'s self, of: &'s Whole<'_>) -> impl Iterator<Item = (Thread, u32, &'s OfName)> {
        self.totals.calls.wanted(of).map(|(thread, _, name, calls)| (thread, *name, calls))
    }

    /// The longest of all.
    pub(crate) fn longest(&self) -> impl Iterator<Item = &(u64, Nanos, LongCall<A>)> {
        self.totals.longest.iter()
    }

    /// Unmatched and unfinished ones of all threads.
    pub(crate) fn left(&self) -> (u64, u64) {
        let mut left = Totals::<A> { unmatched: self.totals.unmatched, ..Totals::default() };
        left.unfinished = self.totals.unfinished;
        self.registers.contents().for_each(|course| left.end(course));
        (left.unmatched, left.unfinished)
    }
}
