//! The next or previous execution of a place.

use hodo_code::Origin;
use hodo_engine::Trace;
use hodo_model::{End, FunctionId};

use crate::{
    execution::{Direction, Interrupted, Position, Stepper, Stop},
    index::{Index, Slice},
    piece::{Block, Piece, Run},
};
use hodo_analyses::FrameEntry;

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The begin of each execution of a function.
    Function(FunctionId),
    /// An instruction.
    Code {
        /// The module.
        module: u32,
        /// Where it is in the module's file; the address of code without a file.
        offset: u64,
    },
    /// A conditional branch.
    Branch {
        /// The module.
        module: u32,
        /// Where it is in the module's file; the address of code without a file.
        offset: u64,
        /// Whether it is taken.
        taken: bool,
    },
}

impl Place {
    /// The places where a source line begins. `file` is the end of the file's path.
    pub fn of_line(trace: &Trace<'_>, file: &str, line: u32) -> Vec<Place> {
        let places = trace.modules.code_of_line(file, line).into_iter();
        places.map(|(module, offset)| Place::Code { module, offset }).collect()
    }

    fn origin(self) -> Option<Origin> {
        match self {
            Place::Function(_) => None,
            Place::Code { module, offset } | Place::Branch { module, offset, .. } => {
                Some(Origin { module, offset })
            }
        }
    }

    fn function(self, trace: &Trace<'_>) -> FunctionId {
        match (self, self.origin()) {
            (_, Some(origin)) => trace.modules.function(origin).0,
            (Place::Function(function), _) => function,
            _ => unreachable!("only functions have no origin"),
        }
    }
}

/// The functions of places, by their numbers in the index.
fn functions(trace: &Trace<'_>, index: &Index, places: &[Place]) -> Vec<u32> {
    let numbers = places.iter().filter_map(|place| index.functions.get(&place.function(trace)));
    numbers.copied().collect()
}

impl Stepper<'_, '_> {
    /// The next execution of one of these places after a position of a thread, or the last one before it; a gap in between
    /// does not end the search.
    ///
    /// # Errors
    /// Returns an error if the answer is no longer awaited.
    pub fn find(
        &mut self,
        from: Position,
        places: &[Place],
        direction: Direction,
    ) -> Result<Option<Position>, Interrupted> {
        let functions = functions(self.trace, &self.execution.index, places);
        if functions.is_empty() {
            return Ok(None);
        }
        let end = self.thread(from.thread).instructions;
        // From a gap, the instruction after it is next.
        let next = from.number + u64::from(from.stop == Stop::Instruction);
        let mut range = match direction {
            Direction::Forward => next.min(end)..end,
            Direction::Backward => 0..from.number,
        };
        let has_any = |slice: &Slice| functions.iter().any(|&function| slice.has(function));
        loop {
            let found = self.scan(from.thread, range.clone(), direction, has_any, |piece, run, span| {
                let hits = places.iter().flat_map(|&place| hit(piece, run, place));
                let hits = hits.filter(|(number, _)| span.contains(number));
                match direction {
                    Direction::Forward => hits.min_by_key(|&(number, _)| number),
                    Direction::Backward => hits.max_by_key(|&(number, _)| number),
                }
            })?;
            let Some((number, wanted)) = found else { return Ok(None) };
            let is_it = match wanted {
                Wanted::Always => true,
                Wanted::Taken(taken) => self.taken(from.thread, number) == Some(taken),
            };
            if is_it {
                return Ok(Some(Position { number, stop: Stop::Instruction, ..from }));
            }
            match direction {
                Direction::Forward => range.start = number + 1,
                Direction::Backward => range.end = number,
            }
        }
    }

    /// Returns whether the next instruction of a position is at one of these places.
    pub fn is_at(&mut self, at: Position, places: &[Place]) -> bool {
        if at.stop == Stop::Gap {
            return false;
        }
        let piece = self.piece(at.thread, at.number);
        let run = piece.runs[piece.run_of(at.number)];
        let hits = places.iter().filter_map(|&place| hit(&piece, &run, place));
        let mut hits = hits.filter(|&(number, _)| number == at.number);
        hits.any(|(number, wanted)| match wanted {
            Wanted::Always => true,
            Wanted::Taken(taken) => self.taken(at.thread, number) == Some(taken),
        })
    }

    /// Whether an executed conditional branch was taken; `None` for other instructions, and if flow is missing after it.
    pub(crate) fn taken(&mut self, thread: u32, number: u64) -> Option<bool> {
        let piece = self.piece(thread, number);
        let branch = piece.instruction(number);
        let Block { end, target, ref lengths, .. } = *branch.block;
        if end != End::Conditional || branch.index + 1 != lengths.len() {
            return None;
        }
        let known = self.thread(thread);
        if number + 1 >= known.instructions || known.has_gap(number + 1) {
            return None;
        }
        let fall_through = branch.address().wrapping_add(u64::from(lengths[branch.index]));
        let next = self.piece(thread, number + 1).instruction(number + 1).address();
        // An interrupt may come first, and a branch may lead to the next instruction.
        match next {
            next if next == target => Some(true),
            next if next == fall_through => Some(false),
            _ => None,
        }
    }
}

/// What must be true of a hit.
#[derive(Clone, Copy)]
enum Wanted {
    Always,
    Taken(bool),
}

/// The instruction of a run that is at a place.
fn hit(piece: &Piece, run: &Run, place: Place) -> Option<(u64, Wanted)> {
    let wanted = match place {
        Place::Function(function) => {
            let frame = piece.frame(run.frame);
            let begins = frame.function == function && frame.begin == run.number;
            return (begins && frame.entry != FrameEntry::Root).then_some((run.number, Wanted::Always));
        }
        Place::Code { .. } => Wanted::Always,
        Place::Branch { taken, .. } => Wanted::Taken(taken),
    };
    let index = piece.block(run).find(place.origin()?)?;
    Some((run.number + index as u64, wanted))
}
