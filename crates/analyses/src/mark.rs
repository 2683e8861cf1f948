//! Positions in a thread's execution, and their clock values.

use std::mem;

use hodo_clock::Nanos;
use hodo_model::FlowEvent;
use serde::{Deserialize, Serialize};

use crate::clock::Shares;

/// The value is unknown.
const UNKNOWN: u64 = u64::MAX;
/// The next clock reading determines the value.
const PENDING: u64 = u64::MAX - 1;

/// A position between two instructions of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Number of instructions of the thread, or of the partial, before it.
    pub(crate) before: u64,
    /// In nanoseconds.
    time: u64,
    /// Core cycles since the beginning of its segment.
    cycles: u64,
    /// Number of segments of the thread, or of the partial, before its own.
    segment: u32,
}

impl Mark {
    /// Returns its time in nanoseconds, if known.
    pub(crate) fn time(&self) -> Option<u64> {
        Some(self.time).filter(|&time| time < PENDING)
    }

    /// Returns the core cycles from here to a later mark, if they are counted without interruption.
    pub(crate) fn cycles_until(&self, later: &Mark) -> Option<u64> {
        let counted = self.segment == later.segment && self.cycles < PENDING && later.cycles < PENDING;
        counted.then(|| later.cycles.saturating_sub(self.cycles))
    }

    /// Shifts the mark by the instructions and segments before its partial.
    pub(crate) fn after(self, instructions: u64, segments: u32) -> Mark {
        Mark {
            before: self.before.saturating_add(instructions),
            segment: self.segment.saturating_add(segments),
            ..self
        }
    }
}

/// A clock that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockKind {
    Time,
    Cycles,
}

/// How many marks at the front of a list have their values, by [`ClockKind`].
pub(crate) type StampedMarks = [usize; 2];

/// The difference between two readings of a clock, spread evenly over the instructions executed between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadingDelta {
    clock: ClockKind,
    /// `None` if one of the readings is unknown.
    since: Option<EarlierReading>,
}

#[derive(Clone, Copy, Debug)]
struct EarlierReading {
    value: u64,
    /// Number of instructions before it.
    before: u64,
    /// The share of each instruction since then.
    shares: Shares,
}

impl ReadingDelta {
    /// Sets the value of a mark that waits for it.
    #[inline]
    pub(crate) fn stamp(&self, mark: &mut Mark) {
        let value = match self.clock {
            ClockKind::Time => &mut mark.time,
            ClockKind::Cycles => &mut mark.cycles,
        };
        if *value == PENDING {
            *value = self.since.map_or(UNKNOWN, |since| {
                let share = since.shares.of(mark.before.saturating_sub(since.before));
                since.value.saturating_add(share).min(PENDING - 1)
            });
        }
    }

    /// Returns whether a mark waits for it.
    #[inline]
    pub(crate) fn is_awaited(&self, mark: &Mark) -> bool {
        PENDING == if self.clock == ClockKind::Time { mark.time } else { mark.cycles }
    }

    /// Returns its clock.
    pub(crate) fn clock(&self) -> ClockKind {
        self.clock
    }
}

/// The last reading of a clock in a segment.
#[derive(Clone, Copy, Debug, Default)]
struct LastReading {
    value: Option<u64>,
    /// Number of instructions before it.
    before: u64,
}

/// The clocks of some chunks of a thread, and its progress.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Clocks {
    /// Number of instructions so far.
    pub(crate) instructions: u64,
    /// Number of segments that ended.
    pub(crate) segments: u32,
    // Partials are serialised only between segments, where no clock is known.
    #[serde(skip)]
    time: LastReading,
    #[serde(skip)]
    cycles: LastReading,
}

impl Clocks {
    /// Returns a mark at the current position.
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark { before: self.instructions, time: PENDING, cycles: PENDING, segment: self.segments }
    }

    /// Folds an event, and passes each new reading to `emit`, which stamps the marks that wait for it.
    #[inline]
    pub(crate) fn fold(&mut self, event: &FlowEvent<'_>, mut emit: impl FnMut(&ReadingDelta)) {
        match *event {
            FlowEvent::Begin(time) => {
                let before = self.instructions;
                self.time = LastReading { value: time.map(|time| time.0), before };
                self.cycles = LastReading { value: Some(0), before };
            }
            FlowEvent::Time(now) => emit(&self.time(now)),
            FlowEvent::Cycles(count) => emit(&self.read(ClockKind::Cycles, Some(count))),
            FlowEvent::End => {
                emit(&self.read(ClockKind::Time, None));
                emit(&self.read(ClockKind::Cycles, None));
                self.segments = self.segments.saturating_add(1);
            }
            _ => {}
        }
    }

    /// Returns the reading of a timestamp.
    #[inline]
    pub(crate) fn time(&mut self, now: Nanos) -> ReadingDelta {
        self.read(ClockKind::Time, Some(now.0))
    }

    #[inline]
    fn read(&mut self, clock: ClockKind, now: Option<u64>) -> ReadingDelta {
        let last = if clock == ClockKind::Time { &mut self.time } else { &mut self.cycles };
        let reading = LastReading { value: now, before: self.instructions };
        let LastReading { value, before } = mem::replace(last, reading);
        let ran = self.instructions.saturating_sub(before).max(1);
        let since = value.zip(now).map(|(value, now)| EarlierReading {
            value,
            before,
            shares: Shares::new(now.saturating_sub(value), ran),
        });
        ReadingDelta { clock, since }
    }

    /// Adds the progress of the next partial.
    pub(crate) fn add(&mut self, later: &Clocks) {
        self.instructions = self.instructions.saturating_add(later.instructions);
        self.segments = self.segments.saturating_add(later.segments);
    }
}
