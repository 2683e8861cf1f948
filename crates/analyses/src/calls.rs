//! The calls of a thread, one after the other, with their times.
//!
//! Unlike an analysis, this is a stream: it takes what was seen of one thread from its start on, in order,
//! and tells of each call when it begins and when it ends.

use std::mem;

use hodo_clock::Nanos;
use hodo_trace::{FunctionId, Seen};

use crate::{
    clock::Shares,
    stack::{Below, Edge, Entry, Frame, Watch, arrive, cut},
};

/// A call that begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A function begins.
    Begin {
        /// Frames below it.
        depth: usize,
        /// The function.
        function: FunctionId,
        /// How it came to be.
        entry: Entry,
        /// When; `None` where no clock was told after it.
        time: Option<Nanos>,
        /// Instructions of the thread before it.
        before: u64,
    },
    /// A function ends: it returned, was unwound, or the trace ends.
    End {
        /// The call.
        call: Call,
    },
    /// Flow is missing: all calls that were open have ended as far as is known.
    Gap,
}

/// A whole call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Frames below it.
    pub depth: usize,
    /// The function.
    pub function: FunctionId,
    /// How it came to be.
    pub entry: Entry,
    /// When it began; `None` where no clock was told after that.
    pub begin: Option<Nanos>,
    /// When it ended; likewise.
    pub end: Option<Nanos>,
    /// Instructions of the thread before it.
    pub before: u64,
    /// Instructions executed, those of the functions that it called included.
    pub instructions: u64,
}

/// What is noted of an open call.
#[derive(Clone, Copy, Debug)]
struct Open {
    depth: usize,
    /// Instructions of the thread before it.
    before: u64,
    time: Option<Nanos>,
}

/// Follows the calls of one thread.
#[derive(Debug, Default)]
pub struct Calls {
    stack: Vec<Frame<Open>>,
    edge: Option<Edge>,
    log: Log,
}

/// Moments since the clock was told last: their times depend on when it is told next.
#[derive(Debug, Default)]
struct Log {
    clock: Option<Nanos>,
    /// Instructions of the thread so far, and at the last time.
    instructions: u64,
    at_clock: u64,
    moments: Vec<(u64, Pending)>,
}

#[derive(Clone, Copy, Debug)]
enum Pending {
    Begin { depth: usize, function: FunctionId, entry: Entry },
    End(Frame<Open>),
    Gap,
}

impl Watch<Open> for Log {
    fn enter(&mut self, from: &Frame<Open>, function: FunctionId, entry: Entry, _: Option<u64>) -> Open {
        self.open(from.note.depth + 1, function, entry)
    }

    fn leave(&mut self, frame: Frame<Open>) {
        self.moments.push((self.instructions, Pending::End(frame)));
    }
}

impl Log {
    fn open(&mut self, depth: usize, function: FunctionId, entry: Entry) -> Open {
        self.moments.push((self.instructions, Pending::Begin { depth, function, entry }));
        Open { depth, before: self.instructions, time: None }
    }
}

impl Calls {
    /// Nothing was seen yet.
    pub fn new() -> Calls {
        Calls::default()
    }

    /// Takes in what is seen next; `tell` is told of what is certain by now.
    pub fn follow(&mut self, seen: Seen<'_>, tell: &mut impl FnMut(Moment)) {
        match seen {
            Seen::Run { at, instructions, .. } => {
                let edge = self.edge.replace(Edge::Flow).unwrap_or(Edge::Unknown);
                let known = match self.stack.is_empty() {
                    true => Err(edge),
                    false => arrive(&mut self.stack, &mut self.log, Below::Nothing, edge, &at),
                };
                if known.is_err() {
                    let note = self.log.open(0, at.function, Entry::Root);
                    let (function, entry) = (at.function, Entry::Root);
                    self.stack.push(Frame { function, entry, return_address: None, note });
                }
                self.log.instructions += instructions;
            }
            Seen::Begin(clock) => self.time(clock, tell),
            Seen::Time(clock) => self.time(Some(clock), tell),
            Seen::End => self.time(None, tell),
            Seen::Gap => {
                cut(&mut self.stack, &mut self.log, 0);
                self.log.moments.push((self.log.instructions, Pending::Gap));
                self.edge = Some(Edge::Gap);
            }
            Seen::Number(_) | Seen::Cycles(_) => {}
            Seen::Skip { instructions } => {
                cut(&mut self.stack, &mut self.log, 0);
                self.log.instructions += instructions;
                self.edge = Some(Edge::Gap);
            }
            seen => self.edge = Some(self.edge.unwrap_or(Edge::Unknown).then(Edge::of(&seen))),
        }
        // Without a clock there is nothing to wait for.
        if self.log.clock.is_none() {
            self.time(None, tell);
        }
    }

    /// The trace of the thread ends: so do its calls.
    pub fn end(mut self, tell: &mut impl FnMut(Moment)) {
        cut(&mut self.stack, &mut self.log, 0);
        self.time(None, tell);
    }

    /// The clock stands at `now`: what happened since it was told last is spread evenly over the
    /// instructions that ran meanwhile. Without a `now` nobody knows when that was.
    fn time(&mut self, now: Option<Nanos>, tell: &mut impl FnMut(Moment)) {
        let Log { clock, instructions, at_clock, .. } = self.log;
        let span = clock.zip(now).map(|(since, now)| {
            (since, Shares::new(now.0.saturating_sub(since.0), (instructions - at_clock).max(1)))
        });
        let when = |at: u64| span.map(|(since, shares)| Nanos(since.0 + shares.of(at - at_clock)));
        if self.log.moments.is_empty() {
            (self.log.clock, self.log.at_clock) = (now, instructions);
            return;
        }
        let moments = mem::take(&mut self.log.moments);
        let mut begun: Vec<Option<Nanos>> = Vec::new();
        for (at, moment) in &moments {
            let time = when(*at);
            match *moment {
                Pending::Begin { depth, function, entry } => {
                    begun.push(time);
                    tell(Moment::Begin { depth, function, entry, time, before: *at });
                }
                Pending::End(frame) => {
                    let Open { depth, before, time: begin } = frame.note;
                    // A call that began since the clock was told has no time noted yet.
                    let begin =
                        if before >= at_clock && !begun.is_empty() { begun.pop().flatten() } else { begin };
                    let (function, entry) = (frame.function, frame.entry);
                    let instructions = at - before;
                    let call = Call { depth, function, entry, begin, end: time, before, instructions };
                    tell(Moment::End { call });
                }
                Pending::Gap => tell(Moment::Gap),
            }
        }
        let newest = self.stack.len() - begun.len().min(self.stack.len());
        for (frame, time) in self.stack[newest..].iter_mut().zip(begun) {
            frame.note.time = time;
        }
        self.log.moments = moments;
        self.log.moments.clear();
        self.log.clock = now;
        self.log.at_clock = instructions;
    }
}

#[cfg(test)]
mod tests {
    use hodo_trace::{Arrival, Code, End, Place};

    use super::*;

    fn run(index: u32, place: Place, instructions: u64) -> Seen<'static> {
        let at =
            Arrival { address: u64::from(index) * 100, function: FunctionId { module: 1, index }, place };
        let code = Code { offset: at.address, since: 0, lengths: &[], end: End::Next, target: 0 };
        Seen::Run { at, instructions, code }
    }

    fn told(seen: &[Seen]) -> Vec<String> {
        let mut told = Vec::new();
        let time = |time: Option<Nanos>| time.map_or("?".to_owned(), |time| time.0.to_string());
        let mut tell = |moment: Moment| {
            told.push(match moment {
                Moment::Begin { depth, function, time: begin, .. } => {
                    format!("{:depth$}f{} at {}", "", function.index, time(begin))
                }
                Moment::End { call } => {
                    let (begin, end, depth) = (time(call.begin), time(call.end), call.depth);
                    format!(
                        "{:depth$}f{} {begin} to {end}, {} instructions",
                        "", call.function.index, call.instructions
                    )
                }
                Moment::Gap => "gap".to_owned(),
            });
        };
        let mut calls = Calls::new();
        seen.iter().for_each(|&seen| calls.follow(seen, &mut tell));
        calls.end(&mut tell);
        told
    }

    #[test]
    fn times_between_two_clocks_are_spread_over_the_instructions() {
        let call = Seen::Call { return_address: 100 };
        let seen = [
            Seen::Begin(Some(Nanos(1000))),
            run(1, Place::Entry, 10),
            call,
            run(2, Place::Entry, 20),
            Seen::Return,
            run(1, Place::Middle, 10),
            Seen::Time(Nanos(1080)),
            run(1, Place::Middle, 5),
        ];
        let expected = [
            "f1 at 1000",
            " f2 at 1020",
            " f2 1020 to 1060, 20 instructions",
            "f1 1000 to ?, 45 instructions",
        ];
        assert_eq!(told(&seen), expected);
    }

    #[test]
    fn a_gap_ends_what_was_open() {
        let seen = [Seen::Begin(None), run(1, Place::Entry, 3), Seen::Gap, run(2, Place::Middle, 4)];
        let expected =
            ["f1 at ?", "f1 ? to ?, 3 instructions", "gap", "f2 at ?", "f2 ? to ?, 4 instructions"];
        assert_eq!(told(&seen), expected);
    }
}
