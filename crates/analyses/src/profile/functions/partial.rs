//! What a chunk tells about the functions of a thread.

use std::{iter, mem};

use hodo_trace::{Arrival, FunctionId, Run, Seen, Transfer};
use serde::{Deserialize, Serialize};

use super::{
    books::{Account, Amount, Books, Holder, Slot},
    paths::Paths,
};
use crate::{
    clock::{Clock, Even, Share, Time},
    learned::Learned,
    profile::cost::Sums,
    stack::{Below, Edge, Entry, Frame, Watch, arrive, cut},
};

/// Without a clock nothing waits for it: so many events are enough at once.
const ENOUGH: usize = 1 << 10;

/// The functions of a part of a thread's execution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    books: Books,
    /// The known frames at the end, but for while paths run; the oldest is the one that was arrived at last.
    stack: Vec<Frame<Slot>>,
    /// The edge after the last run.
    edge: Edge,
    clock: Clock<()>,
    log: Log,
    /// What belongs to the frame that ran at the start, before anything ran.
    before: Waits,
    /// Time outside of what is traced.
    outside: Time,
    sums: Sums,
    /// The last path, while paths run.
    path: Option<u32>,
    /// What is remembered of paths.
    #[serde(skip)]
    paths: Paths,
}

/// Time in which nothing is known to have run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Waits {
    /// While the thread was traced, but nothing of what ran was told yet.
    inside: Time,
    /// While it was outside of what is traced.
    outside: Time,
}

/// What happened since the clock was told last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Log {
    /// Each with the instructions before it.
    events: Vec<(u64, Event)>,
    /// Paths that ran, and how many of them events tell of.
    paths: Vec<u32>,
    told: usize,
    arrivals: Vec<(Edge, Arrival, Slot)>,
    instructions: u64,
    /// Nobody is told of those that ran last.
    unseen: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Event {
    /// A frame of a function stands on the stack.
    Open(Slot),
    /// The newest frame stands there no more.
    Close,
    /// The next so many paths ran.
    Paths(u32),
    /// The next of the arrivals at frames that were not known.
    Arrive,
    /// What runs is not to be looked at.
    Unseen,
}

impl Log {
    #[inline]
    fn push(&mut self, event: Event) {
        self.events.push((self.instructions, event));
    }

    /// Tells of the paths of which no event tells yet.
    fn push_paths(&mut self, learned: &Learned) {
        let instructions: u64 = self.paths[self.told..].iter().map(|&path| learned.instructions(path)).sum();
        if instructions > 0 {
            self.push(Event::Paths((self.paths.len() - self.told) as u32));
            self.instructions += instructions;
            self.told = self.paths.len();
        }
    }
}

/// Writes down in the log what happens to the stack.
struct Writer<'p> {
    books: &'p mut Books,
    log: &'p mut Log,
}

impl Watch<Slot> for Writer<'_> {
    #[inline]
    fn enter(&mut self, _: &Frame<Slot>, function: FunctionId, entry: Entry, _: Option<u64>) -> Slot {
        let slot = self.books.slot(function);
        self.books.entered(slot, entry, 1);
        self.log.push(Event::Open(slot));
        slot
    }

    #[inline]
    fn leave(&mut self, _: Frame<Slot>) {
        self.log.push(Event::Close);
    }
}

impl Watch<Slot> for Books {
    fn enter(&mut self, _: &Frame<Slot>, function: FunctionId, entry: Entry, _: Option<u64>) -> Slot {
        let slot = self.slot(function);
        self.entered(slot, entry, 1);
        self.open(slot, self.now());
        slot
    }

    fn leave(&mut self, _: Frame<Slot>) {
        self.close(self.now());
    }
}

impl Partial {
    pub(super) fn unknown() -> Partial {
        Partial {
            books: Books::default(),
            stack: Vec::new(),
            edge: Edge::Unknown,
            clock: Clock::default(),
            log: Log::default(),
            before: Waits::default(),
            outside: Time::default(),
            sums: Sums::default(),
            path: None,
            paths: Paths::default(),
        }
    }

    #[inline(always)]
    pub(super) fn fold(&mut self, seen: Seen<'_>) {
        match seen {
            Seen::Run { at, instructions, .. } => self.run(&at, instructions),
            Seen::Begin(clock) => self.clock.begin(clock.map(|clock| clock.0)),
            Seen::Time(clock) => {
                self.log.push_paths(&self.paths.learned);
                if self.clock.tell(clock.0) || self.log.instructions > 0 {
                    self.share();
                }
            }
            Seen::End => {
                self.settle(Even::default());
                self.share();
                self.clock.end();
            }
            Seen::Gap => {
                self.clock.gap();
                self.sums.gaps += 1;
                self.edge = Edge::Gap;
            }
            Seen::Number(_) | Seen::Cycles(_) => {}
            Seen::Skip { instructions } => {
                self.log.push(Event::Unseen);
                self.log.instructions += instructions;
                self.edge = Edge::Gap;
            }
            seen => {
                self.clock.left = matches!(seen, Seen::Leave { .. });
                self.sums.calls += u64::from(matches!(seen, Seen::Call { .. }));
                self.edge = self.edge.then(Edge::of(&seen));
            }
        }
    }

    /// A run, which is known to be followed by what it ends with.
    #[inline]
    pub(super) fn fold_run(&mut self, run: &Run) {
        self.run(&run.at, run.instructions);
        if run.transfer != Transfer::None {
            self.edge = Edge::after(run);
            self.clock.left = false;
            self.sums.calls += u64::from(run.transfer == Transfer::Call);
        }
    }

    #[inline]
    fn run(&mut self, at: &Arrival, instructions: u64) {
        let edge = mem::replace(&mut self.edge, Edge::Flow);
        match self.stack.last() {
            Some(frame) if edge == Edge::Flow && frame.function == at.function => {}
            _ => self.arrive(edge, at),
        }
        self.log.instructions += instructions;
    }

    #[inline]
    fn arrive(&mut self, edge: Edge, at: &Arrival) {
        if !self.clock.runs() && self.log.events.len() >= ENOUGH {
            self.settle(Even::default());
        }
        let Partial { stack, books, log, .. } = self;
        let arrived = match stack.is_empty() {
            true => Err(edge),
            false => arrive(stack, &mut Writer { books, log }, Below::Unknown, edge, at),
        };
        if let Err(edge) = arrived {
            let function = at.function;
            let note = books.slot(function);
            log.arrivals.push((edge, *at, note));
            log.push(Event::Arrive);
            stack.push(Frame { function, entry: Entry::Root, return_address: None, note });
        }
    }

    /// Shares the time since the last one out over the instructions that ran in it.
    fn share(&mut self) {
        if self.log.instructions == 0 {
            // Who waited meanwhile is to be known.
            self.settle(Even::default());
        }
        let Partial { clock, books, sums, stack, edge, before, outside, path, paths, log, .. } = self;
        let even = clock.share(log.instructions, |share| match share {
            Share::Ran { .. } => {}
            Share::Lost(time) => sums.lose(time.length()),
            Share::Waited(time) | Share::Outside(time) if *edge == Edge::Gap => sums.lose(time.length()),
            Share::Waited(time) => {
                let time = Time::of(time.length());
                let amount = Amount { instructions: 0, time };
                match path {
                    Some(path) => {
                        paths.took(*path, time, false);
                        books.passed(amount);
                    }
                    None if stack.is_empty() => before.inside = before.inside.and(time),
                    None => books.ran(amount),
                }
            }
            Share::Outside(time) => {
                let time = Time::of(time.length());
                match path {
                    Some(path) => paths.took(*path, time, true),
                    None if stack.is_empty() => {
                        before.outside = before.outside.and(time);
                        return;
                    }
                    None => {}
                }
                *outside = outside.and(time);
                books.passed(Amount { instructions: 0, time });
            }
        });
        self.settle(even);
    }

    /// Brings the books up to the present: each instruction of the log took so long.
    fn settle(&mut self, even: Even) {
        let Partial { books, log, paths, sums, path, .. } = self;
        log.push_paths(&paths.learned);
        let amount = |instructions| Amount { instructions, time: even.each.times(instructions) };
        let (mut arrivals, mut ran) = (log.arrivals.drain(..), log.paths.drain(..));
        let (mut at, mut now) = (0, books.now());
        for (until, event) in log.events.drain(..) {
            if until > at {
                if !log.unseen {
                    books.credit(amount(until - at));
                    now.add(amount(until - at));
                }
                at = until;
            }
            log.unseen = false;
            match event {
                Event::Open(slot) => books.open(slot, now),
                Event::Close => books.close(now),
                Event::Paths(count) => {
                    let count = ran.by_ref().take(count as usize);
                    let instructions: u64 = count.map(|path| paths.learned.count(path, even.each)).sum();
                    now.add(amount(instructions));
                    at += instructions;
                }
                Event::Arrive => {
                    sums.calls += paths.expand(books);
                    if let Some((edge, arrival, slot)) = arrivals.next() {
                        books.begin_piece(edge, arrival, slot, now);
                    }
                }
                Event::Unseen => log.unseen = true,
            }
        }
        if !log.unseen {
            let mut last = amount(log.instructions - at);
            last.time = { last.time }.and(even.rest);
            match path {
                Some(path) => paths.took(*path, even.rest, false),
                None => books.credit(last),
            }
            now.add(last);
        }
        books.advance(now);
        log.instructions = 0;
        log.told = 0;
    }

    /// The state that paths go on from; `None` where what comes next may reach below the frames that are known.
    pub(super) fn state(&mut self) -> Option<u32> {
        if self.stack.is_empty() || self.clock.left || self.edge == Edge::Gap {
            return None;
        }
        self.paths.enter(&self.stack, self.edge)
    }

    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.paths.learn(state, runs)
    }

    /// A path ran.
    #[inline]
    pub(super) fn fold_path(&mut self, path: u32) {
        if self.path.is_none() {
            let Partial { stack, books, log, .. } = self;
            // What runs on paths stands with their contexts, until they are left.
            cut(stack, &mut Writer { books, log }, 0);
        }
        self.path = Some(path);
        self.log.paths.push(path);
        if !self.clock.runs() && self.log.paths.len() >= ENOUGH {
            self.settle(Even::default());
        }
    }

    /// Paths led to this state.
    pub(super) fn resume(&mut self, state: u32) {
        if self.path.take().is_none() {
            return;
        }
        let Partial { stack, edge, books, log, paths, .. } = self;
        log.push_paths(&paths.learned);
        let (frames, after) = paths.learned.states.stack(state);
        for frame in frames {
            let note = books.slot(frame.function);
            let Frame { function, entry, return_address, .. } = frame;
            log.push(Event::Open(note));
            stack.push(Frame { function, entry, return_address, note });
        }
        *edge = after;
    }

    /// Exchanges what is remembered of paths.
    pub(super) fn exchange(&mut self, paths: &mut Paths) {
        self.spell_out();
        self.sums.calls += self.paths.expand(&mut self.books);
        mem::swap(&mut self.paths, paths);
    }

    /// Puts into the log what paths in it are, in place of their numbers.
    fn spell_out(&mut self) {
        let Partial { log, paths, books, sums, .. } = self;
        log.push_paths(&paths.learned);
        log.told = 0;
        let (events, ran) = (mem::take(&mut log.events), mem::take(&mut log.paths));
        let (states, mut ran) = (&paths.learned.states, ran.into_iter());
        for (mut at, event) in events {
            let Event::Paths(count) = event else {
                log.events.push((at, event));
                continue;
            };
            for path in ran.by_ref().take(count as usize) {
                sums.calls += u64::from(paths.learned.calls(path));
                for part in paths.learned.parts(path) {
                    let frame = states.frame(part.context);
                    let slot = books.slot(frame.function);
                    books.entered(slot, frame.entry, u64::from(part.entries));
                    let mut open: Vec<_> = states.frames(part.context).collect();
                    open.reverse();
                    let open = open.iter().map(|frame| (at, Event::Open(books.slot(frame.function))));
                    let before = log.events.len();
                    log.events.extend(open);
                    at += u64::from(part.instructions);
                    let frames = log.events.len() - before;
                    log.events.extend(iter::repeat_n((at, Event::Close), frames));
                }
            }
        }
    }

    /// Joins two neighbouring parts.
    pub(super) fn merge(mut self, later: Partial) -> Partial {
        self.append(&later, Below::Unknown);
        self
    }

    /// The whole thread: nothing came before it.
    pub(super) fn close(self) -> Whole {
        let mut whole = Partial::unknown();
        whole.append(&self, Below::Nothing);
        whole.books.close_all();
        Whole { books: whole.books, outside: whole.outside, sums: whole.sums }
    }

    fn append(&mut self, later: &Partial, below: Below) {
        let Waits { inside, outside } = later.before;
        if self.edge == Edge::Gap {
            self.sums.lose(inside.and(outside).nanoseconds());
        } else if self.stack.is_empty() {
            self.before.inside = self.before.inside.and(inside);
            self.before.outside = self.before.outside.and(outside);
        } else {
            self.books.ran(Amount { instructions: 0, time: inside });
            self.books.passed(Amount { instructions: 0, time: outside });
            self.outside = self.outside.and(outside);
        }
        let slots = self.books.add_accounts(&later.books);
        for (index, (edge, arrival)) in later.books.arrivals().enumerate() {
            let edge = mem::replace(&mut self.edge, Edge::Flow).then(edge);
            let arrived = match self.stack.is_empty() {
                true => Err(edge),
                false => arrive(&mut self.stack, &mut self.books, below, edge, arrival),
            };
            if let Err(edge) = arrived {
                let function = arrival.function;
                let note = self.books.slot(function);
                self.books.begin_piece(edge, *arrival, note, self.books.now());
                self.stack.push(Frame { function, entry: Entry::Root, return_address: None, note });
            }
            self.books.add_piece(&later.books, index, &slots);
        }
        let placed = |frame: &Frame<Slot>| Frame { note: slots[frame.note as usize], ..*frame };
        self.stack.extend(later.stack.iter().skip(1).map(placed));
        self.edge = self.edge.then(later.edge);
        self.outside = self.outside.and(later.outside);
        self.sums.add(&later.sums);
    }
}

/// The functions of a whole thread.
pub(super) struct Whole {
    books: Books,
    pub(super) outside: Time,
    pub(super) sums: Sums,
}

impl Whole {
    /// The accounts of functions, and what ran while each stood on the stack.
    pub(super) fn balance(&self) -> impl Iterator<Item = (&Holder, &Account, Amount)> {
        self.books.balance()
    }
}
