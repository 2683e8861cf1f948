//! Shares the time between two clock readings (nanoseconds or core cycles) among the instructions executed meanwhile.

use std::mem;

use serde::{Deserialize, Serialize};

/// A span of time: nanoseconds, or core cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockSpan {
    /// Where it begins.
    pub(crate) from: u64,
    /// Where it ends.
    pub(crate) to: u64,
}

impl ClockSpan {
    /// Its length.
    #[inline]
    pub(crate) fn length(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// The share of a span for some of its instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanShare {
    all: ClockSpan,
    /// Instructions executed in the span before the piece.
    before: u64,
    /// Instructions executed in the span up to the end of the piece.
    until: u64,
    /// Instructions that were added to the clock in the span. The share is exact if there are no others.
    total: u64,
}

impl SpanShare {
    /// Returns its begin and end in whole units.
    pub(crate) fn span(&self) -> ClockSpan {
        let shares = Shares::new(self.all.length(), self.total);
        ClockSpan { from: self.all.from + shares.of(self.before), to: self.all.from + shares.of(self.until) }
    }
}

/// The owner of a piece of time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimeShare<N> {
    /// The owner executed `instructions`; the time that they took, and its position in the span.
    Ran { owner: N, instructions: u64, time: Time, piece: SpanShare },
    /// The owner of the last instructions; no instruction was executed in this time.
    Waited(ClockSpan),
    /// No owner: the thread executed code that is not traced.
    Outside(ClockSpan),
    /// Unknown: flow was missing.
    Lost(ClockSpan),
}

/// A sum of shares of time, in units of `2^-32` nanoseconds. Sums saturate, because damaged clocks may contain any
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(u128);

impl Time {
    /// Binary logarithm of the units per nanosecond.
    const FINE: u32 = 32;

    /// From whole nanoseconds.
    pub fn of(nanoseconds: u64) -> Time {
        Time(u128::from(nanoseconds) << Time::FINE)
    }

    /// In nanoseconds, rounded down.
    pub fn nanoseconds(self) -> u64 {
        u64::try_from(self.0 >> Time::FINE).unwrap_or(u64::MAX)
    }

    /// The sum.
    #[inline]
    #[must_use]
    pub fn saturating_add(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }

    /// Returns the sum; intermediate sums may be negative, so it wraps.
    #[inline]
    #[must_use]
    pub(crate) fn wrapping_add(self, other: Time) -> Time {
        Time(self.0.wrapping_add(other.0))
    }

    /// Returns the difference; intermediate sums may be negative, so it wraps.
    #[inline]
    #[must_use]
    pub(crate) fn wrapping_sub(self, other: Time) -> Time {
        Time(self.0.wrapping_sub(other.0))
    }

    /// Converts it to a [`ShortTime`], if it is short enough.
    #[inline]
    pub(crate) fn short(self) -> Option<ShortTime> {
        u64::try_from(self.0).ok().map(ShortTime)
    }

    /// Converts it to a [`ShortTime`], if `count` times the time is short enough.
    #[inline]
    pub(crate) fn short_up_to(self, count: u64) -> Option<ShortTime> {
        self.short().filter(|short| short.0.checked_mul(count).is_some())
    }

    /// `count` times the time.
    #[inline]
    #[must_use]
    pub fn times(self, count: u64) -> Time {
        match self.short() {
            Some(short) => short.times(count),
            None => Time(self.0.saturating_mul(u128::from(count))),
        }
    }

    /// Returns the difference to an earlier sum.
    #[inline]
    #[must_use]
    pub(crate) fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }

    /// Divides it into `count` equal parts, and returns the sum of parts `from..to`.
    pub(crate) fn part(self, from: u64, to: u64, count: u64) -> Time {
        let until = |index: u64| self.0.saturating_mul(u128::from(index)) / u128::from(count);
        Time(until(to) - until(from))
    }
}

/// A [`Time`] of less than 2^32 nanoseconds, about four seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortTime(u64);

impl ShortTime {
    /// `count` times the time.
    #[inline]
    pub(crate) fn times(self, count: u64) -> Time {
        Time(u128::from(self.0) * u128::from(count))
    }

    /// Returns `count` times the time, which must be [short](Time::short_up_to) as well.
    #[inline]
    pub(crate) fn few_times(self, count: u64) -> Time {
        Time((self.0 * count).into())
    }
}

/// A time shared evenly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Even {
    /// The time of each instruction.
    pub(crate) each: Time,
    /// The remainder, less than one unit per instruction: it belongs to the last owner.
    pub(crate) rest: Time,
}

impl Even {
    #[inline]
    fn new(elapsed: u64, instructions: u64) -> Even {
        let (each, rest) = match (elapsed.checked_mul(1 << Time::FINE), instructions) {
            (_, 0) => return Even::default(),
            // Far faster than dividing twice the width.
            (Some(all), _) => ((all / instructions).into(), (all % instructions).into()),
            (None, _) => {
                let (all, instructions) = (u128::from(elapsed) << Time::FINE, u128::from(instructions));
                (all / instructions, all % instructions)
            }
        };
        Even { each: Time(each), rest: Time(rest) }
    }
}

/// For [`SegmentClock::share`]: all instructions were added to the clock.
pub(crate) const NO_OTHERS: u64 = 0;

/// The clock of a segment, and the instructions executed since the last reading. It is reset between segments, so a
/// partial is stored without it.
#[derive(Clone, Debug)]
pub(crate) struct SegmentClock<N> {
    /// The last reading.
    now: Option<u64>,
    /// The reading up to which time was shared.
    shared_until: Option<u64>,
    /// Instructions since then, in order of execution.
    untimed: Vec<(N, u64)>,
    /// The thread executes code that is not traced.
    pub(crate) left: bool,
    /// Whether flow was missing since the last sharing of time.
    after_gap: bool,
}

impl<N> Default for SegmentClock<N> {
    fn default() -> SegmentClock<N> {
        SegmentClock { now: None, shared_until: None, untimed: Vec::new(), left: false, after_gap: false }
    }
}

impl<N: Copy + PartialEq> SegmentClock<N> {
    /// Whether the clock was read in this segment.
    pub(crate) fn runs(&self) -> bool {
        self.now.is_some()
    }

    /// Begins a segment.
    pub(crate) fn begin(&mut self, clock: Option<u64>) {
        (self.now, self.shared_until) = (clock, clock);
    }

    /// Adds instructions.
    #[inline]
    pub(crate) fn ran(&mut self, owner: N, instructions: u64) {
        match self.untimed.last_mut() {
            Some((last, count)) if *last == owner => *count += instructions,
            // Time before the first reading is unknown, so it is not shared.
            _ if self.now.is_some() => self.untimed.push((owner, instructions)),
            _ => {}
        }
    }

    /// Records a gap: the time of the instructions since the last reading becomes unknown.
    pub(crate) fn gap(&mut self) {
        self.after_gap = true;
        self.left = false;
    }

    /// Sets the clock to `now`, and returns whether to share time. If nothing ran since the last sharing although
    /// tracing is on, the instructions are still to come: the processor holds branches back until their packet is full.
    #[inline]
    pub(crate) fn read(&mut self, now: u64) -> bool {
        if self.now.replace(now).is_none() {
            // Time before the first timestamp is unknown.
            self.shared_until = Some(now);
        }
        self.left || self.after_gap || !self.untimed.is_empty()
    }

    /// Ends the sharing: no reading of this segment covers the last instructions.
    pub(crate) fn last_of_segment(&mut self) {
        self.untimed.clear();
    }

    /// Ends the segment; the next one has its own clock.
    pub(crate) fn end(&mut self) {
        (self.now, self.shared_until, self.left) = (None, None, false);
    }

    /// Shares the time since the last sharing among the instructions executed in it, including `others` that were not
    /// added; returns the share of these others.
    #[inline]
    pub(crate) fn share(&mut self, others: u64, mut emit: impl FnMut(TimeShare<N>)) -> Even {
        let since = mem::replace(&mut self.shared_until, self.now);
        let (from, to) = since.zip(self.now).map_or((0, 0), |(since, now)| (since, now.max(since)));
        let all = ClockSpan { from, to };
        if mem::take(&mut self.after_gap) {
            // How much of the time the gap took is unknown.
            self.untimed.clear();
            emit(TimeShare::Lost(all));
            return Even::default();
        }
        let added: u64 = self.untimed.iter().map(|&(_, count)| count).sum();
        let mut even = Even::new(to - from, added + others);
        if self.untimed.is_empty() {
            if others == 0 {
                emit(if self.left { TimeShare::Outside(all) } else { TimeShare::Waited(all) });
            }
            return even;
        }
        let mut ran = 0;
        for &(owner, count) in &self.untimed {
            let piece = SpanShare { all, before: ran, until: ran + count, total: added };
            ran += count;
            let last = ran == added && others == 0;
            let rest = if last { mem::take(&mut even.rest) } else { Time::default() };
            let time = even.each.times(count).saturating_add(rest);
            emit(TimeShare::Ran { owner, instructions: count, time, piece });
        }
        self.untimed.clear();
        even
    }
}

/// A time that is divided into equal shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    elapsed: u64,
    total: u64,
    /// `2^64` divided by `total`, rounded down, or one less.
    reciprocal: u64,
}

impl Shares {
    pub(crate) fn new(elapsed: u64, total: u64) -> Shares {
        Shares { elapsed, total, reciprocal: u64::MAX.checked_div(total).unwrap_or(0) }
    }

    /// Returns `elapsed * ran / total`, rounded down; `ran` is at most `total`.
    #[inline]
    pub(crate) fn of(&self, ran: u64) -> u64 {
        match self.elapsed.checked_mul(ran) {
            // Multiplying by the reciprocal gives at most one too little, and is faster than dividing.
            Some(product) => {
                let quotient = ((u128::from(product) * u128::from(self.reciprocal)) >> 64) as u64;
                quotient + u64::from(product - quotient * self.total >= self.total)
            }
            None => (u128::from(self.elapsed) * u128::from(ran) / u128::from(self.total)) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_are_rounded_down(elapsed: u64, total in 1u64.., ran: u64, small in 1u64..1000, shift in 0u32..64) {
            for total in [total, small, total >> shift | 1] {
                for elapsed in [elapsed, elapsed >> shift] {
                    let ran = ran % total;
                    let exact = u128::from(elapsed) * u128::from(ran) / u128::from(total);
                    prop_assert_eq!(u128::from(Shares::new(elapsed, total).of(ran)), exact);
                    prop_assert_eq!(Shares::new(elapsed, total).of(total), elapsed);
                }
            }
        }
    }
}
