//! Places in a thread's execution, and the clocks that tell when that was.

use std::mem;

use hodo_clock::Nanos;
use hodo_model::FlowEvent;
use serde::{Deserialize, Serialize};

use crate::clock::Shares;

/// No clock tells.
const UNKNOWN: u64 = u64::MAX;
/// The next clock tells.
const PENDING: u64 = u64::MAX - 1;

/// A place between two instructions of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Instructions of the thread, or of the part, before it.
    pub(super) before: u64,
    /// In nanoseconds.
    time: u64,
    /// Core cycles of the segment before it.
    cycles: u64,
    /// Segments of the thread, or of the part, before its own.
    segment: u32,
}

impl Mark {
    /// When that was, where a clock tells.
    pub(super) fn time(&self) -> Option<u64> {
        Some(self.time).filter(|&time| time < PENDING)
    }

    /// Core cycles from here to a later mark, where they are counted through.
    pub(super) fn cycles_until(&self, later: &Mark) -> Option<u64> {
        let counted = self.segment == later.segment && self.cycles < PENDING && later.cycles < PENDING;
        counted.then(|| later.cycles.saturating_sub(self.cycles))
    }

    /// The same mark where so many instructions and segments came before the part.
    pub(super) fn behind(self, instructions: u64, segments: u32) -> Mark {
        Mark {
            before: self.before.saturating_add(instructions),
            segment: self.segment.saturating_add(segments),
            ..self
        }
    }
}

/// Which clock a reading is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Time,
    Cycles,
}

/// What passed between two readings of a clock, spread evenly over the instructions that ran meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    of: Of,
    /// The earlier reading, and the instructions before it; none where nobody knows.
    since: Option<(u64, u64, Shares)>,
}

impl Reading {
    /// Tells a mark, which waits for it.
    #[inline]
    pub(super) fn tell(&self, mark: &mut Mark) {
        let value = match self.of {
            Of::Time => &mut mark.time,
            Of::Cycles => &mut mark.cycles,
        };
        if *value == PENDING {
            *value = self.since.map_or(UNKNOWN, |(since, before, shares)| {
                since.saturating_add(shares.of(mark.before.saturating_sub(before))).min(PENDING - 1)
            });
        }
    }

    /// Whether a mark waits for it.
    #[inline]
    pub(super) fn is_awaited(&self, mark: &Mark) -> bool {
        PENDING == if self.of == Of::Time { mark.time } else { mark.cycles }
    }

    /// Which clock it is of.
    pub(super) fn of(&self) -> Of {
        self.of
    }
}

/// A clock of a segment: its last reading, and the instructions before that.
type Last = (Option<u64>, u64);

/// The clocks of a part of a thread, and how much ran so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Clocks {
    /// Instructions so far.
    pub(super) instructions: u64,
    /// Segments that ended.
    pub(super) segments: u32,
    // Between segments, where parts travel, nothing is known of clocks.
    #[serde(skip)]
    time: Last,
    #[serde(skip)]
    cycles: Last,
}

impl Clocks {
    /// The present place.
    #[inline]
    pub(super) fn mark(&self) -> Mark {
        Mark { before: self.instructions, time: PENDING, cycles: PENDING, segment: self.segments }
    }

    /// Takes in what is seen, and hands `tell` the readings that this makes, for all marks that wait for them.
    #[inline]
    pub(super) fn fold(&mut self, seen: &FlowEvent<'_>, mut tell: impl FnMut(&Reading)) {
        match *seen {
            FlowEvent::Begin(time) => {
                self.time = (time.map(|time| time.0), self.instructions);
                self.cycles = (Some(0), self.instructions);
            }
            FlowEvent::Time(now) => tell(&self.time(now)),
            FlowEvent::Cycles(count) => tell(&self.read(Of::Cycles, Some(count))),
            FlowEvent::End => {
                tell(&self.read(Of::Time, None));
                tell(&self.read(Of::Cycles, None));
                self.segments = self.segments.saturating_add(1);
            }
            _ => {}
        }
    }

    /// The reading that a time makes.
    #[inline]
    pub(super) fn time(&mut self, now: Nanos) -> Reading {
        self.read(Of::Time, Some(now.0))
    }

    #[inline]
    fn read(&mut self, of: Of, now: Option<u64>) -> Reading {
        let last = if of == Of::Time { &mut self.time } else { &mut self.cycles };
        let (since, before) = mem::replace(last, (now, self.instructions));
        let ran = self.instructions.saturating_sub(before).max(1);
        let shares = |(since, now): (u64, u64)| (since, before, Shares::new(now.saturating_sub(since), ran));
        Reading { of, since: since.zip(now).map(shares) }
    }

    /// Counts what ran in a later part.
    pub(super) fn add(&mut self, later: &Clocks) {
        self.instructions = self.instructions.saturating_add(later.instructions);
        self.segments = self.segments.saturating_add(later.segments);
    }
}
