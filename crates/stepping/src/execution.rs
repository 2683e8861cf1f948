//! Positions in the execution of threads, and the pieces around them.

use std::{ops::Range, sync::Arc};

use hodo_clock::Nanos;
use hodo_engine::{SliceId, Trace};
use rustc_hash::FxHashMap;

use crate::{
    index::{Index, Slice, ThreadIndex},
    piece::{self, Piece, Run},
    scene::{InlinedNames, InlinedPage},
};

/// A position in the execution of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The thread: its index in the trace.
    pub thread: u32,
    /// The number of the next instruction of the thread, counted from 0 over the known flow.
    pub number: u64,
    /// Where it is before that instruction.
    pub stop: Stop,
}

/// Where a position is before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stop {
    /// Flow is missing there.
    Gap,
    /// Directly before the instruction.
    Instruction,
}

/// A way through the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// In the order of execution.
    Forward,
    /// Against it.
    Backward,
}

/// The answer is no longer awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// The index of a recording, and the pieces that were decoded last.
#[derive(Debug)]
pub struct Execution {
    pub(crate) index: Index,
    /// The most recently used first.
    pieces: Vec<Arc<Piece>>,
    /// Instructions of a piece, at most.
    most: u64,
    pub(crate) inlined: FxHashMap<InlinedPage, InlinedNames>,
}

/// Pieces that are kept, at most; a piece takes up to some 20 MB, mostly far less.
const KEPT: usize = 8;

impl Execution {
    /// Reads a recording once, with `threads` threads. `progress` gets the number of bytes read and returns whether to
    /// continue; `None` if it doesn't.
    pub fn open(
        trace: &Trace<'_>,
        threads: usize,
        progress: impl FnMut(u64) -> bool + Send,
    ) -> Option<Execution> {
        let index = Index::read(trace, threads, progress)?;
        Some(Execution { index, pieces: Vec::new(), most: piece::MOST, inlined: FxHashMap::default() })
    }

    /// Decodes pieces of at most this many instructions, and at least one. Results do not depend on the size.
    pub fn limit_pieces(&mut self, most: u64) {
        self.most = most.max(1);
        self.pieces.clear();
    }

    /// The threads that execute at least one instruction: their indices in the trace.
    pub fn threads(&self) -> impl Iterator<Item = u32> {
        self.index.threads.keys().copied()
    }

    /// The number of instructions of a thread; 0 if it is not one of the [threads](Execution::threads).
    pub fn instructions(&self, thread: u32) -> u64 {
        self.index.threads.get(&thread).map_or(0, |thread| thread.instructions)
    }

    /// The number of slices between whose begins positions are found by decoding.
    pub fn checkpoints(&self) -> usize {
        self.index.threads.values().map(|thread| thread.slices.len()).sum()
    }

    /// Steps through this recording. `trace` is the one that it was opened with; long searches ask `keep_going`.
    pub fn stepper<'x, 'f>(
        &'x mut self,
        trace: &'x Trace<'f>,
        keep_going: &'x dyn Fn() -> bool,
    ) -> Stepper<'x, 'f> {
        Stepper { trace, execution: self, keep_going }
    }
}

/// Finds and moves positions in an execution.
pub struct Stepper<'x, 'f> {
    /// The trace.
    pub trace: &'x Trace<'f>,
    pub(crate) execution: &'x mut Execution,
    keep_going: &'x dyn Fn() -> bool,
}

impl Stepper<'_, '_> {
    pub(crate) fn thread(&self, thread: u32) -> &ThreadIndex {
        self.execution.index.threads.get(&thread).expect("positions are in known threads")
    }

    /// The position before the first instruction of a thread, or at the gap before it; `None` for an unknown thread.
    pub fn first(&self, thread: u32) -> Option<Position> {
        let known = self.execution.index.threads.get(&thread)?;
        let stop = if known.has_gap(0) { Stop::Gap } else { Stop::Instruction };
        Some(Position { thread, number: 0, stop })
    }

    /// The last position of a thread.
    pub fn last(&self, thread: u32) -> Option<Position> {
        let known = self.execution.index.threads.get(&thread)?;
        Some(match known.has_gap(known.instructions) {
            true => Position { thread, number: known.instructions, stop: Stop::Gap },
            false => Position { thread, number: known.instructions - 1, stop: Stop::Instruction },
        })
    }

    /// The position before the n-th instruction of a thread, counted from 0; `None` if it has fewer.
    pub fn position(&self, thread: u32, number: u64) -> Option<Position> {
        let known = self.execution.index.threads.get(&thread)?;
        (number < known.instructions).then_some(Position { thread, number, stop: Stop::Instruction })
    }

    /// The position after this one; `None` at the last one.
    pub fn next(&self, from: Position) -> Option<Position> {
        let known = self.thread(from.thread);
        let number = if from.stop == Stop::Gap { from.number } else { from.number + 1 };
        let stop = match from.stop {
            Stop::Instruction if known.has_gap(number) => Stop::Gap,
            _ => Stop::Instruction,
        };
        (stop == Stop::Gap || number < known.instructions).then_some(Position { number, stop, ..from })
    }

    /// The position before this one; `None` at the first one.
    pub fn previous(&self, from: Position) -> Option<Position> {
        if from.stop == Stop::Instruction && self.thread(from.thread).has_gap(from.number) {
            return Some(Position { stop: Stop::Gap, ..from });
        }
        Some(Position { number: from.number.checked_sub(1)?, stop: Stop::Instruction, ..from })
    }

    /// The position of a thread at an instant: before the last instruction that began by then, which is the one before
    /// the first later one. Before the first timestamp it is the first one.
    ///
    /// # Errors
    /// Returns an error if the answer is no longer awaited.
    pub fn at(&mut self, thread: u32, instant: Nanos) -> Result<Option<Position>, Interrupted> {
        let Some(known) = self.execution.index.threads.get(&thread) else { return Ok(None) };
        let slice = known.slices.partition_point(|slice| slice.before <= Some(instant)).saturating_sub(1);
        let range = known.slices[slice].begin()..known.instructions;
        let any = |_: &Slice| true;
        let later = self.scan(thread, range, Direction::Forward, any, |piece, _, span| {
            span.into_iter().find(|&number| piece.time(number).is_some_and(|time| time > instant))
        })?;
        let number = later.unwrap_or(self.execution.instructions(thread)).saturating_sub(1);
        Ok(self.position(thread, number))
    }

    /// The time of a position, between those of the timestamps around it.
    pub fn time(&mut self, position: Position) -> Option<Nanos> {
        let number = position.number.min(self.thread(position.thread).instructions - 1);
        self.piece(position.thread, number).time(number)
    }

    /// The number of frames of the call stack at a position; 0 where flow is missing.
    pub fn depth(&mut self, at: Position) -> u64 {
        if at.stop == Stop::Gap {
            return 0;
        }
        let piece = self.piece(at.thread, at.number);
        u64::from(piece.frame(piece.instruction(at.number).frame).depth) + 1
    }

    /// The last timestamp of a thread.
    pub fn latest(&self, thread: u32) -> Option<Nanos> {
        self.execution.index.threads.get(&thread)?.latest
    }

    /// The next gap of a thread after a position, or the one before it.
    pub fn gap(&self, from: Position, direction: Direction) -> Option<Position> {
        let known = self.thread(from.thread);
        let at = |number| Position { number, stop: Stop::Gap, ..from };
        let all = &known.gaps;
        match direction {
            Direction::Forward => {
                let next = all.partition_point(|gap| at(gap.number) <= from);
                all.get(next).map(|gap| at(gap.number))
            }
            Direction::Backward => {
                let next = all.partition_point(|gap| at(gap.number) < from);
                all.get(next.checked_sub(1)?).map(|gap| at(gap.number))
            }
        }
    }

    /// Says why flow is missing at a position; empty if it is not.
    pub fn gap_reasons(&self, at: Position) -> Vec<String> {
        if at.stop == Stop::Instruction {
            return Vec::new();
        }
        let (known, index) = (self.thread(at.thread), &self.execution.index);
        let mut slices: Vec<_> = known.gaps_at(at.number).map(|gap| gap.slice).collect();
        slices.dedup();
        let of_slice =
            |slice: SliceId| piece::gaps(self.trace, &index.chunks[slice.chunk], (known, slice), at.number);
        slices.into_iter().flat_map(of_slice).collect()
    }

    /// The piece that has an instruction.
    pub(crate) fn piece(&mut self, thread: u32, number: u64) -> Arc<Piece> {
        let Execution { index, pieces, most, .. } = &mut *self.execution;
        let has_it = |piece: &Arc<Piece>| piece.context == thread && piece.span.contains(&number);
        if let Some(found) = pieces.iter().position(has_it) {
            pieces[..=found].rotate_right(1);
        } else {
            let known = index.threads.get(&thread).expect("positions are in known threads");
            let chunk = &index.chunks[known.slices[known.slice_of(number)].id.chunk];
            let decoded =
                piece::decode(self.trace, chunk, (thread, known), &index.checkpoints, (number, *most));
            let (wanted, others): (Vec<_>, Vec<_>) =
                decoded.into_iter().map(Arc::new).partition(|piece| has_it(piece));
            pieces.retain(|kept| others.iter().all(|other| other.span != kept.span));
            pieces.splice(0..0, wanted.into_iter().chain(others));
            pieces.truncate(KEPT);
            assert!(pieces.first().is_some_and(has_it), "a chunk is decoded as it was indexed");
        }
        Arc::clone(&pieces[0])
    }

    /// Visits the runs of a thread's instructions in a range, each with those of its instructions that are in it, until
    /// `visit` returns something. Skips slices that `wants` does not want.
    pub(crate) fn scan<T>(
        &mut self,
        thread: u32,
        range: Range<u64>,
        direction: Direction,
        wants: impl Fn(&Slice) -> bool,
        mut visit: impl FnMut(&Piece, &Run, Range<u64>) -> Option<T>,
    ) -> Result<Option<T>, Interrupted> {
        let mut left = range;
        while !left.is_empty() {
            let at = if direction == Direction::Forward { left.start } else { left.end - 1 };
            let known = self.thread(thread);
            let slice = known.slice_of(at);
            let of_slice = known.slices[slice].begin()..known.end_of(slice);
            let passed = if wants(&known.slices[slice]) {
                if !(self.keep_going)() {
                    return Err(Interrupted);
                }
                let piece = self.piece(thread, at);
                if let Some(found) = visit_piece(&piece, &left, direction, &mut visit) {
                    return Ok(Some(found));
                }
                piece.span.clone()
            } else {
                of_slice
            };
            match direction {
                Direction::Forward => left.start = passed.end,
                Direction::Backward => left.end = passed.start,
            }
        }
        Ok(None)
    }
}

fn visit_piece<T>(
    piece: &Piece,
    range: &Range<u64>,
    direction: Direction,
    visit: &mut impl FnMut(&Piece, &Run, Range<u64>) -> Option<T>,
) -> Option<T> {
    let within = range.start.max(piece.span.start)..range.end.min(piece.span.end);
    if within.is_empty() {
        return None;
    }
    let runs = &piece.runs[piece.run_of(within.start)..=piece.run_of(within.end - 1)];
    let mut visit = |run: &Run| {
        let span = run.number.max(within.start)..piece.end_of(run).min(within.end);
        visit(piece, run, span)
    };
    match direction {
        Direction::Forward => runs.iter().find_map(&mut visit),
        Direction::Backward => runs.iter().rev().find_map(&mut visit),
    }
}
