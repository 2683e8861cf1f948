//! Steps of a debugger, in both directions.

use std::ops::Range;

use hodo_model::FunctionId;

use crate::{
    execution::{Direction, Interrupted, Position, Stepper, Stop},
    index::{CallId, Slice},
    piece::{Piece, PlaceInSource, Run},
};

/// Which calls a step enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// All.
    Into,
    /// None: to the next place of the same function, or of the one to which it returns.
    Over,
    /// None: to the function that called this one.
    Out,
}

/// How far a step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// An instruction.
    Instruction,
    /// To the begin of another source line; where lines are unknown, of another function.
    Line,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which calls it enters.
    pub motion: Motion,
    /// How far it goes.
    pub granularity: Granularity,
    /// Where to.
    pub direction: Direction,
}

/// Where a step led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The position.
    pub to: Position,
    /// Whether the execution has no such place: it is the thread's first or last position.
    pub at_limit: bool,
}

impl Moved {
    pub(crate) fn to(to: Position) -> Moved {
        Moved { to, at_limit: false }
    }
}

/// The line of an instruction in an execution of its function.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LineOfCall {
    call: CallId,
    function: FunctionId,
    place: Option<PlaceInSource>,
}

impl Stepper<'_, '_> {
    /// Makes a step. It ends where flow is missing.
    ///
    /// # Errors
    /// Returns an error if the answer is no longer awaited.
    pub fn step(&mut self, from: Position, step: Step) -> Result<Moved, Interrupted> {
        let Step { motion, granularity, direction } = step;
        let single = motion == Motion::Into && granularity == Granularity::Instruction;
        if single || from.stop == Stop::Gap {
            return Ok(self.neighbour(from, direction));
        }
        let most = match motion {
            Motion::Into => u32::MAX,
            Motion::Over => self.machine_frames(from),
            Motion::Out => self.machine_frames(from).saturating_sub(1),
        };
        let by_line = granularity == Granularity::Line && motion != Motion::Out;
        let range = self.without_gap(from, direction);
        let found = match direction {
            _ if !by_line => self.first_within(from.thread, range, direction, most)?,
            Direction::Forward => self.other_line(from, range, direction, most)?,
            Direction::Backward => {
                return self.line_before(from, range, most);
            }
        };
        Ok(found.map_or_else(
            || self.beyond(from, direction),
            |number| Moved::to(Position { number, stop: Stop::Instruction, ..from }),
        ))
    }

    /// The position next to one, if there is one.
    fn neighbour(&self, from: Position, direction: Direction) -> Moved {
        let to = match direction {
            Direction::Forward => self.next(from),
            Direction::Backward => self.previous(from),
        };
        Moved { to: to.unwrap_or(from), at_limit: to.is_none() }
    }

    /// The instructions after or before a position, up to where flow is missing.
    fn without_gap(&self, from: Position, direction: Direction) -> Range<u64> {
        let gap = self.gap(from, direction).map(|gap| gap.number);
        match direction {
            Direction::Forward => {
                from.number + 1..gap.unwrap_or_else(|| self.thread(from.thread).instructions)
            }
            Direction::Backward => gap.unwrap_or(0)..from.number,
        }
    }

    /// Where a step ends that finds no place up to a gap or the end.
    fn beyond(&self, from: Position, direction: Direction) -> Moved {
        if let Some(gap) = self.gap(from, direction) {
            return Moved::to(gap);
        }
        let limit = match direction {
            Direction::Forward => self.last(from.thread),
            Direction::Backward => self.first(from.thread),
        };
        Moved { to: limit.unwrap_or(from), at_limit: true }
    }

    fn machine_frames(&mut self, at: Position) -> u32 {
        let piece = self.piece(at.thread, at.number);
        piece.frame(piece.instruction(at.number).frame).machine_frames
    }

    /// The first instruction on the way whose stack has at most this many machine frames.
    fn first_within(
        &mut self,
        thread: u32,
        range: Range<u64>,
        direction: Direction,
        most: u32,
    ) -> Result<Option<u64>, Interrupted> {
        self.scan(thread, range, direction, may_have(most), |piece, run, span| {
            let is_within = piece.frame(run.frame).machine_frames <= most;
            is_within.then(|| if direction == Direction::Forward { span.start } else { span.end - 1 })
        })
    }

    fn line_of(&mut self, at: Position) -> LineOfCall {
        let piece = self.piece(at.thread, at.number);
        let instruction = piece.instruction(at.number);
        let frame = piece.frame(instruction.frame);
        let place = instruction.block.lines(self.trace)[instruction.index].clone();
        LineOfCall { call: frame.into(), function: frame.function, place }
    }

    /// The first instruction on the way that is of another line than the position, and whose stack has at most this many
    /// machine frames.
    fn other_line(
        &mut self,
        from: Position,
        range: Range<u64>,
        direction: Direction,
        most: u32,
    ) -> Result<Option<u64>, Interrupted> {
        let line = self.line_of(from);
        let trace = self.trace;
        let mut numbers = |piece: &Piece, run: &Run, span: Range<u64>| {
            let frame = piece.frame(run.frame);
            if frame.machine_frames > most {
                return None;
            }
            if CallId::from(frame) != line.call {
                return Some(if direction == Direction::Forward { span.start } else { span.end - 1 });
            }
            let lines = piece.block(run).lines(trace);
            let differs = |&number: &u64| lines[(number - run.number) as usize] != line.place;
            match direction {
                Direction::Forward => span.into_iter().find(differs),
                Direction::Backward => span.rev().find(differs),
            }
        };
        // A function without lines may execute most of a recording by itself.
        let is_one_line = trace.modules.is_one_line(line.function);
        let wants =
            |slice: &Slice| may_have(most)(slice) && !(is_one_line && slice.has_only(line.call, most));
        self.scan(from.thread, range, direction, wants, &mut numbers)
    }

    /// Steps back to the begin of the line, or, from there, to the begin of the line before.
    fn line_before(&mut self, from: Position, range: Range<u64>, most: u32) -> Result<Moved, Interrupted> {
        let at = |number| Position { number, stop: Stop::Instruction, ..from };
        let before = self.other_line(from, range.clone(), Direction::Backward, most)?;
        let begin = self.begin_of_line(from, &range, before, most)?;
        if begin < from.number {
            return Ok(Moved::to(at(begin)));
        }
        let Some(before) = before else { return Ok(self.beyond(from, Direction::Backward)) };
        // A line that called this function is searched among what its own function executed.
        let most = if most == u32::MAX { most } else { self.machine_frames(at(before)) };
        let range = range.start..before;
        let earlier = self.other_line(at(before), range.clone(), Direction::Backward, most)?;
        Ok(Moved::to(at(self.begin_of_line(at(before), &range, earlier, most)?)))
    }

    /// The first instruction of the line of a position. `before` is the last one of the line before.
    fn begin_of_line(
        &mut self,
        from: Position,
        range: &Range<u64>,
        before: Option<u64>,
        most: u32,
    ) -> Result<u64, Interrupted> {
        let start = before.map_or(range.start, |before| before + 1);
        let found = self.first_within(from.thread, start..from.number, Direction::Forward, most)?;
        Ok(found.unwrap_or(from.number))
    }
}

/// Whether a slice may have an instruction whose stack has at most this many machine frames.
fn may_have(most: u32) -> impl Fn(&Slice) -> bool {
    move |slice| slice.least_frames <= most
}
