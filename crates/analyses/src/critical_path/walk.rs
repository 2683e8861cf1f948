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
    history::{Author, By, Errand, History, Key, Source, Stretch, To, Via, Why, Work},
    machine::Histories,
};

/// What a stretch of the path was spent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cause {
    /// The thread ran.
    Running,
    /// The thread could run, and this thread ran on the CPU instead; thread 0 idles.
    Cpu(Key),
    /// A request to this device.
    Block(u32),
    /// A packet in the network.
    Network,
    /// A message on its way.
    Message,
    /// A timer.
    Timer,
    /// Another interrupt.
    Interrupt(Source),
    /// Unknown.
    Unknown(Why),
}

/// A stretch of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) begin: Nanos,
    pub(crate) end: Nanos,
    /// The thread that the path is of.
    pub(crate) thread: Key,
    pub(crate) cause: Cause,
    /// How the subject waits for this thread, and each thread between for the next; empty for the subject itself.
    pub(crate) waits: Vec<(Key, Via)>,
}

/// A thread that the path is of, down to a time; then it is of the thread that waited for it.
#[derive(Clone, Copy, Debug)]
struct Level {
    thread: Key,
    floor: Nanos,
    /// When the path came here.
    since: Nanos,
    /// How the thread below waits.
    via: Via,
}

struct Walk<'h> {
    histories: &'h Histories,
    levels: Vec<Level>,
    /// Everything after it is done.
    now: Nanos,
    pieces: Vec<Piece>,
}

/// Threads that wait for each other at one moment, which real traces do not have, are not followed deeper than this.
const DEEPEST: usize = 1 << 12;

/// The pieces of a thread's path, in order of time.
pub(crate) fn walk(histories: &Histories, subject: Key, from: Nanos, to: Nanos) -> Vec<Piece> {
    // A wait that lasts longer leads to who ends it, later.
    let waits = |stretch: &Stretch| matches!(stretch.to, To::Blocked(_) | To::Left(_));
    let last = histories.history(subject).and_then(|history| history.before(to)).filter(waits);
    let end = last.and_then(|wait| wait.end).map_or(to, |end| end.max(to));
    let level = Level { thread: subject, floor: from, since: end, via: Via::Unknown };
    let mut walk = Walk { histories, levels: vec![level], now: end, pieces: Vec::new() };
    while let Some(&level) = walk.levels.last() {
        if walk.now <= level.floor {
            walk.levels.pop();
            continue;
        }
        walk.step(level);
    }
    walk.pieces.retain(|piece| piece.begin < to);
    walk.pieces.iter_mut().for_each(|piece| piece.end = piece.end.min(to));
    walk.pieces.reverse();
    walk.pieces
}

impl Walk<'_> {
    /// Adds the piece from `begin` to now.
    fn piece(&mut self, begin: Nanos, cause: Cause) {
        let begin = begin.max(self.levels.last().map_or(begin, |level| level.floor));
        if begin >= self.now {
            return;
        }
        let thread = self.levels.last().map_or_else(Key::default, |level| level.thread);
        let waits = self.levels.windows(2).map(|pair| (pair[0].thread, pair[1].via)).collect();
        self.pieces.push(Piece { begin, end: self.now, thread, cause, waits });
        self.now = begin;
    }

    fn step(&mut self, level: Level) {
        let history = self.histories.history(level.thread);
        let Some(stretch) = history.and_then(|history| history.before(self.now)) else {
            return self.piece(level.floor, Cause::Unknown(Why::Before));
        };
        let is_over = stretch.end == Some(self.now);
        let begin = stretch.begin.max(level.floor);
        match (stretch.to, stretch.next) {
            (To::Running(_), _) => self.piece(begin, Cause::Running),
            (To::Ready(cpu) | To::Woken(cpu, _), _) => self.waits_for_cpu(begin, level.thread, cpu),
            (To::Left(cpu), Some(To::Running(_))) => self.waits_for_cpu(begin, level.thread, cpu),
            (To::Blocked(via), Some(To::Woken(_, by))) if is_over => self.resolve(begin, by, via),
            (To::Left(_), Some(To::Woken(_, by))) if is_over => self.resolve(begin, by, Via::Unknown),
            (To::Born(parent), _) => {
                let parent = Key { id: parent, ..level.thread };
                self.enter(level.floor, parent, Via::Unknown);
            }
            (To::Unknown(why), _) => self.piece(begin, Cause::Unknown(why)),
            (To::Ended, _) => self.piece(begin, Cause::Unknown(Why::Lost)),
            (To::Blocked(_) | To::Left(_), Some(next)) if is_over => {
                let lost = matches!(next, To::Unknown(_) | To::Ended);
                self.piece(begin, Cause::Unknown(if lost { Why::Lost } else { Why::NoWakeup }));
            }
            (To::Blocked(_) | To::Left(_), _) => self.piece(begin, Cause::Unknown(Why::NotWoken)),
        }
    }

    /// The thread waits for a CPU from `begin` to now: one piece for each thread that ran there.
    fn waits_for_cpu(&mut self, begin: Nanos, thread: Key, cpu: u32) {
        let cpu = Key { id: cpu, ..thread };
        let Some(occupants) = self.histories.occupants(cpu) else {
            return self.piece(begin, Cause::Unknown(Why::Lost));
        };
        while self.now > begin {
            let (since, tid) = occupants.before(self.now);
            let since = since.max(begin);
            let occupant = tid.map(|id| Key { id, ..cpu });
            let ran = |key: Key| {
                let history = self.histories.history(key);
                key.id == 0 || history.is_some_and(|history| history.ran(cpu.id, since, self.now))
            };
            match occupant.filter(|&key| key != thread && ran(key)) {
                Some(key) => self.piece(since, Cause::Cpu(key)),
                None => self.piece(since, Cause::Unknown(Why::Lost)),
            }
        }
    }

    /// The thread waits from `begin` to now, when it is woken.
    fn resolve(&mut self, begin: Nanos, by: By, via: Via) {
        let level = self.levels[self.levels.len() - 1];
        let key = |id| Key { id, ..level.thread };
        match by {
            By::Thread(tid) => self.enter(begin, key(tid), via),
            By::Cpu(cpu) => match self.histories.occupants(key(cpu)).and_then(|cpu| cpu.first()) {
                Some(0) | None => self.piece(begin, Cause::Unknown(Why::Interrupt)),
                Some(tid) => self.enter(begin, key(tid), via),
            },
            By::Interrupt(Source::Timer) => self.device(begin, Cause::Timer, via),
            By::Interrupt(source) => self.device(begin, Cause::Interrupt(source), via),
            By::SomeInterrupt => self.device(begin, Cause::Unknown(Why::Interrupt), via),
            By::Work(index) => match self.histories.work(index).copied() {
                Some(work) => self.work(begin, work, via),
                None => self.piece(begin, Cause::Unknown(Why::Lost)),
            },
        }
    }

    /// No thread is waited for: the piece is one deeper than the thread, to tell how it waits.
    fn device(&mut self, begin: Nanos, cause: Cause, via: Via) {
        let level = self.levels[self.levels.len() - 1];
        self.levels.push(Level { via, floor: begin, since: self.now, ..level });
        self.piece(begin, cause);
        self.levels.pop();
    }

    /// Something that somebody began: until then, the path is of that thread.
    fn work(&mut self, begin: Nanos, work: Work, via: Via) {
        let cause = match work.errand {
            Errand::Block(device) => Cause::Block(device),
            Errand::Packet => Cause::Network,
            Errand::Message => Cause::Message,
        };
        self.device(work.begin.clamp(begin, self.now), cause, via);
        if self.now <= begin {
            return;
        }
        let author = match work.author {
            Author::Thread(key) => Some(key),
            Author::Cpu(cpu) => {
                let tid = self.histories.occupants(cpu).and_then(|cpu| cpu.first());
                tid.filter(|&tid| tid != 0).map(|id| Key { id, ..cpu })
            }
            Author::Interrupt => None,
        };
        match author {
            Some(author) => self.enter(begin, author, via),
            None => self.device(begin, Cause::Unknown(Why::Sender), via),
        }
    }

    /// The path goes on with another thread, down to `floor`.
    fn enter(&mut self, floor: Nanos, thread: Key, via: Via) {
        let ran = self.histories.history(thread).is_some_and(|history| history.ran_at(self.now));
        let is_known = self.levels.iter().rev().take_while(|level| level.since == self.now);
        let returns = is_known.clone().any(|level| level.thread == thread);
        let last = self.levels[self.levels.len() - 1].thread;
        if !ran || returns || thread == last || self.levels.len() >= DEEPEST {
            return self.device(floor, Cause::Unknown(Why::Waker), via);
        }
        self.levels.push(Level { thread, floor, since: self.now, via });
    }
}

/// Who ended a wait, or who ran instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Awaited {
    Thread(Key),
    Cause(Cause),
}

/// A wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) begin: Nanos,
    pub(crate) end: Nanos,
    /// Where it waits; `None` if for a CPU.
    pub(crate) what: Option<Via>,
    pub(crate) awaited: Awaited,
}

/// The waits of a thread in a span, latest first in each stretch.
pub(crate) fn waits(
    histories: &Histories,
    thread: Key,
    history: &History,
    (first, last): (Nanos, Nanos),
) -> Vec<Wait> {
    let mut waits = Vec::new();
    for stretch in history.stretches() {
        let (begin, end) = (stretch.begin.max(first), stretch.end.unwrap_or(last));
        if begin >= end {
            continue;
        }
        let what = match (stretch.to, stretch.next) {
            (To::Ready(_) | To::Woken(..), _) | (To::Left(_), Some(To::Running(_))) => None,
            (To::Left(_), _) => Some(Via::Unknown),
            (To::Blocked(via), _) => Some(via),
            _ => continue,
        };
        let level = Level { thread, floor: begin, since: end, via: Via::Unknown };
        let mut walk = Walk { histories, levels: vec![level], now: end, pieces: Vec::new() };
        walk.step(level);
        let entered = walk.levels.get(1).map(|level| Awaited::Thread(level.thread));
        match (what, walk.pieces.first(), entered) {
            (None, ..) => waits.extend(walk.pieces.iter().map(|piece| {
                let awaited = Awaited::Cause(piece.cause);
                Wait { begin: piece.begin, end: piece.end, what, awaited }
            })),
            (_, Some(piece), _) => {
                waits.push(Wait { begin, end, what, awaited: Awaited::Cause(piece.cause) })
            }
            (_, None, entered) => waits.extend(entered.map(|awaited| Wait { begin, end, what, awaited })),
        }
    }
    waits
}
