//! The critical path of a thread: backwards from its end, always with the thread on which progress depended.
//!
//! ```text
//! subject  ██████▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁██████      █ runs, ▁ waits, ▒ waits for a CPU
//!                ▼                 ▲ wakes
//! other        ██████▁▁▁▁▁▁▁▁▒▒▒████
//!                            ▲ wakes
//! third                   █████
//!
//! path     ██████..........third▒▒▒██████
//! ```
//!
//! A wait from `b` to `w` is replaced by what its waker did from `b` to `w`, whose own waits are replaced likewise. A
//! wait for a device or a timer stays, from when the request was made: until then the path is of the thread that made it.
//! Each moment belongs to one piece, so the pieces add up to the span.
//!
//! Source: F. Giraldeau, M. Dagenais, "Wait analysis of distributed systems using kernel tracing", IEEE TPDS 2016.

use hodo_clock::Nanos;

use super::{
    history::{
        Author, CompletedWork, Doing, InterruptSource, ThreadHistory, TraceKey, WaitIn, Waker, Why, WorkKind,
    },
    machine::Histories,
};

/// What a piece of the path was spent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PieceCause {
    /// The thread ran.
    Running,
    /// The thread could run, and this thread ran on the CPU instead; thread 0 idles.
    Cpu(TraceKey),
    /// A request to this device.
    Block(u32),
    /// A packet in the network.
    Network,
    /// A message on its way.
    Message,
    /// A timer.
    Timer,
    /// Another interrupt.
    Interrupt(InterruptSource),
    /// Unknown.
    Unknown(Why),
}

/// A piece of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPiece {
    pub(crate) begin: Nanos,
    pub(crate) end: Nanos,
    /// The thread that the path is of.
    pub(crate) thread: TraceKey,
    pub(crate) cause: PieceCause,
    /// How the subject waits for this thread, and each thread between for the next; empty for the subject itself.
    pub(crate) waits: Vec<(TraceKey, WaitIn)>,
}

/// A thread that the path follows, backwards in time down to `floor`. Before that, the path follows the thread one level
/// below, which waited for this one.
#[derive(Clone, Copy, Debug)]
struct Level {
    thread: TraceKey,
    floor: Nanos,
    /// When the path came here.
    since: Nanos,
    /// How the thread below waits.
    via: WaitIn,
}

struct PathWalk<'h> {
    histories: &'h Histories,
    levels: Vec<Level>,
    /// Everything after it is done.
    now: Nanos,
    /// Latest first.
    path: Vec<PathPiece>,
}

/// Threads that wait for each other at one moment, which real traces do not have, are not followed deeper than this.
const DEEPEST: usize = 1 << 12;

/// The pieces of a thread's path, in order of time.
pub(crate) fn walk(histories: &Histories, subject: TraceKey, from: Nanos, to: Nanos) -> Vec<PathPiece> {
    // If the subject waits at `to`, the walk begins at the end of that wait, which shows who ended it.
    let last = histories.history(subject).and_then(|history| history.before(to));
    let wait = last.filter(|stretch| matches!(stretch.to, Doing::Blocked(_) | Doing::Left(_)));
    let end = wait.and_then(|wait| wait.end).map_or(to, |end| end.max(to));
    let level = Level { thread: subject, floor: from, since: end, via: WaitIn::Unknown };
    let mut walk = PathWalk { histories, levels: vec![level], now: end, path: Vec::new() };
    while let Some(&level) = walk.levels.last() {
        if walk.now <= level.floor {
            walk.levels.pop();
            continue;
        }
        walk.step(level);
    }
    walk.path.retain(|piece| piece.begin < to);
    walk.path.iter_mut().for_each(|piece| piece.end = piece.end.min(to));
    walk.path.reverse();
    walk.path
}

impl PathWalk<'_> {
    /// Adds the piece from `begin` to now.
    fn add(&mut self, begin: Nanos, cause: PieceCause) {
        let begin = begin.max(self.levels.last().map_or(begin, |level| level.floor));
        if begin >= self.now {
            return;
        }
        let thread = self.levels.last().map_or_else(TraceKey::default, |level| level.thread);
        let waits = self.levels.windows(2).map(|pair| (pair[0].thread, pair[1].via)).collect();
        self.path.push(PathPiece { begin, end: self.now, thread, cause, waits });
        self.now = begin;
    }

    fn step(&mut self, level: Level) {
        let history = self.histories.history(level.thread);
        let Some(stretch) = history.and_then(|history| history.before(self.now)) else {
            return self.add(level.floor, PieceCause::Unknown(Why::Before));
        };
        let is_over = stretch.end == Some(self.now);
        let begin = stretch.begin.max(level.floor);
        match (stretch.to, stretch.next) {
            (Doing::Running(_), _) => self.add(begin, PieceCause::Running),
            (Doing::Ready(cpu) | Doing::Woken(cpu, _), _) => self.waits_for_cpu(begin, level.thread, cpu),
            (Doing::Left(cpu), Some(Doing::Running(_))) => self.waits_for_cpu(begin, level.thread, cpu),
            (Doing::Blocked(via), Some(Doing::Woken(_, by))) if is_over => self.resolve(begin, by, via),
            (Doing::Left(_), Some(Doing::Woken(_, by))) if is_over => {
                self.resolve(begin, by, WaitIn::Unknown)
            }
            (Doing::Born(parent), _) => {
                let parent = TraceKey { id: parent, ..level.thread };
                self.enter(level.floor, parent, WaitIn::Unknown);
            }
            (Doing::Unknown(why), _) => self.add(begin, PieceCause::Unknown(why)),
            (Doing::Ended, _) => self.add(begin, PieceCause::Unknown(Why::Lost)),
            (Doing::Blocked(_) | Doing::Left(_), Some(next)) if is_over => {
                let lost = matches!(next, Doing::Unknown(_) | Doing::Ended);
                self.add(begin, PieceCause::Unknown(if lost { Why::Lost } else { Why::NoWakeup }));
            }
            (Doing::Blocked(_) | Doing::Left(_), _) => self.add(begin, PieceCause::Unknown(Why::NotWoken)),
        }
    }

    /// The thread waits for a CPU from `begin` to `self.now`: adds a piece for each thread that ran there.
    fn waits_for_cpu(&mut self, begin: Nanos, thread: TraceKey, cpu: u32) {
        let cpu = TraceKey { id: cpu, ..thread };
        let Some(occupants) = self.histories.occupants(cpu) else {
            return self.add(begin, PieceCause::Unknown(Why::Lost));
        };
        while self.now > begin {
            let (since, tid) = occupants.before(self.now);
            let since = since.max(begin);
            let occupant = tid.map(|id| TraceKey { id, ..cpu }).filter(|key| *key != thread);
            let history = occupant.and_then(|key| self.histories.history(key));
            let cause = match occupant {
                Some(key) if key.id == 0 => PieceCause::Cpu(key),
                Some(key) if history.is_some_and(|history| history.ran(cpu.id, since, self.now)) => {
                    PieceCause::Cpu(key)
                }
                _ => PieceCause::Unknown(Why::Lost),
            };
            self.add(since, cause);
        }
    }

    /// The thread waits from `begin` to `self.now`, when it is woken.
    fn resolve(&mut self, begin: Nanos, by: Waker, via: WaitIn) {
        let level = self.levels[self.levels.len() - 1];
        let key = |id| TraceKey { id, ..level.thread };
        match by {
            Waker::Thread(tid) => self.enter(begin, key(tid), via),
            Waker::Cpu(cpu) => match self.histories.occupants(key(cpu)).and_then(|cpu| cpu.first()) {
                Some(0) | None => self.add(begin, PieceCause::Unknown(Why::Interrupt)),
                Some(tid) => self.enter(begin, key(tid), via),
            },
            Waker::Interrupt(InterruptSource::Timer) => self.device(begin, PieceCause::Timer, via),
            Waker::Interrupt(source) => self.device(begin, PieceCause::Interrupt(source), via),
            Waker::SomeInterrupt => self.device(begin, PieceCause::Unknown(Why::Interrupt), via),
            Waker::Work(index) => match self.histories.work(index).copied() {
                Some(work) => self.work(begin, work, via),
                None => self.add(begin, PieceCause::Unknown(Why::Lost)),
            },
        }
    }

    /// No thread is waited for: the piece is one level below the thread, to show how it waits.
    fn device(&mut self, begin: Nanos, cause: PieceCause, via: WaitIn) {
        let level = self.levels[self.levels.len() - 1];
        self.levels.push(Level { via, floor: begin, since: self.now, ..level });
        self.add(begin, cause);
        self.levels.pop();
    }

    /// The thread waits for work; before that began, the path follows the thread that began it.
    fn work(&mut self, begin: Nanos, work: CompletedWork, via: WaitIn) {
        let cause = match work.kind {
            WorkKind::Block(device) => PieceCause::Block(device),
            WorkKind::Packet => PieceCause::Network,
            WorkKind::Message => PieceCause::Message,
        };
        self.device(work.begin.clamp(begin, self.now), cause, via);
        if self.now <= begin {
            return;
        }
        let author = match work.author {
            Author::Thread(key) => Some(key),
            Author::Cpu(cpu) => {
                let tid = self.histories.occupants(cpu).and_then(|cpu| cpu.first());
                tid.filter(|&tid| tid != 0).map(|id| TraceKey { id, ..cpu })
            }
            Author::Interrupt => None,
        };
        match author {
            Some(author) => self.enter(begin, author, via),
            None => self.device(begin, PieceCause::Unknown(Why::Sender), via),
        }
    }

    /// The path goes on with another thread, down to `floor`.
    fn enter(&mut self, floor: Nanos, thread: TraceKey, via: WaitIn) {
        let ran = self.histories.history(thread).is_some_and(|history| history.ran_at(self.now));
        let mut entered_now = self.levels.iter().rev().take_while(|level| level.since == self.now);
        // A thread that the path entered at this moment waits for the last one, which seems to wait for that thread.
        let is_cycle = entered_now.any(|level| level.thread == thread);
        let last = self.levels[self.levels.len() - 1].thread;
        if !ran || is_cycle || thread == last || self.levels.len() >= DEEPEST {
            return self.device(floor, PieceCause::Unknown(Why::Waker), via);
        }
        self.levels.push(Level { thread, floor, since: self.now, via });
    }
}

/// Who ended a wait, or who ran instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WaitEndedBy {
    Thread(TraceKey),
    Cause(PieceCause),
}

/// A wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathWait {
    pub(crate) begin: Nanos,
    pub(crate) end: Nanos,
    /// Where it waits; `None` if for a CPU.
    pub(crate) what: Option<WaitIn>,
    pub(crate) awaited: WaitEndedBy,
}

/// The waits of a thread in a span, latest first in each stretch of its history.
pub(crate) fn waits(
    histories: &Histories,
    thread: TraceKey,
    history: &ThreadHistory,
    (first, last): (Nanos, Nanos),
) -> Vec<PathWait> {
    let mut waits = Vec::new();
    for stretch in history.stretches() {
        let (begin, end) = (stretch.begin.max(first), stretch.end.unwrap_or(last));
        if begin >= end {
            continue;
        }
        let what = match (stretch.to, stretch.next) {
            (Doing::Ready(_) | Doing::Woken(..), _) | (Doing::Left(_), Some(Doing::Running(_))) => None,
            (Doing::Left(_), _) => Some(WaitIn::Unknown),
            (Doing::Blocked(via), _) => Some(via),
            _ => continue,
        };
        let level = Level { thread, floor: begin, since: end, via: WaitIn::Unknown };
        let mut walk = PathWalk { histories, levels: vec![level], now: end, path: Vec::new() };
        walk.step(level);
        let entered = walk.levels.get(1).map(|level| WaitEndedBy::Thread(level.thread));
        match (what, walk.path.first(), entered) {
            (None, ..) => waits.extend(walk.path.iter().map(|piece| {
                let awaited = WaitEndedBy::Cause(piece.cause);
                PathWait { begin: piece.begin, end: piece.end, what, awaited }
            })),
            (_, Some(piece), _) => {
                waits.push(PathWait { begin, end, what, awaited: WaitEndedBy::Cause(piece.cause) })
            }
            (_, None, entered) => waits.extend(entered.map(|awaited| PathWait { begin, end, what, awaited })),
        }
    }
    waits
}
