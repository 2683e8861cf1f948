//! Sharing what passed between two readings of a clock out over what ran meanwhile: nanoseconds, or core cycles.

use std::mem;

use serde::{Deserialize, Serialize};

/// A piece of time: nanoseconds, or core cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where it begins.
    pub(crate) from: u64,
    /// Where it ends.
    pub(crate) to: u64,
}

impl Span {
    /// Its length.
    #[inline]
    pub(crate) fn length(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// A part of some time by instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    all: Span,
    /// Instructions before it, up to its end, and in all.
    ran: [u64; 3],
}

impl Piece {
    /// Where it lies if the time is cut into whole units.
    pub(crate) fn span(&self) -> Span {
        let [before, until, all] = self.ran;
        let shares = Shares::new(self.all.length(), all);
        Span { from: self.all.from + shares.of(before), to: self.all.from + shares.of(until) }
    }
}

/// Whom a piece of time belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share<N> {
    /// Who ran, in order, and how many instructions; how much of the time that took, and where it lies.
    Ran { who: N, instructions: u64, took: Time, piece: Piece },
    /// Who ran last: nobody is known to have run meanwhile.
    Waited(Span),
    /// Nobody: the thread was outside of what is traced.
    Outside(Span),
    /// Nobody knows whom: flow was missing.
    Lost(Span),
}

/// A sum of shares of time, in parts of `2^-32` of a nanosecond. Damaged clocks may tell any times; no sum overflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(u128);

impl Time {
    /// Parts of a nanosecond, as a power of two.
    const FINE: u32 = 32;

    /// Whole nanoseconds.
    pub fn of(nanoseconds: u64) -> Time {
        Time(u128::from(nanoseconds) << Time::FINE)
    }

    /// In nanoseconds, rounded down.
    pub fn nanoseconds(self) -> u64 {
        u64::try_from(self.0 >> Time::FINE).unwrap_or(u64::MAX)
    }

    /// Both together.
    #[inline]
    #[must_use]
    pub fn and(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }

    /// Both together, where sums may be less than nothing for a while.
    #[inline]
    #[must_use]
    pub(crate) fn wrapping_and(self, other: Time) -> Time {
        Time(self.0.wrapping_add(other.0))
    }

    /// Less another one; likewise.
    #[inline]
    #[must_use]
    pub(crate) fn wrapping_less(self, other: Time) -> Time {
        Time(self.0.wrapping_sub(other.0))
    }

    /// The same, if it is short.
    #[inline]
    pub(crate) fn short(self) -> Option<ShortTime> {
        u64::try_from(self.0).ok().map(ShortTime)
    }

    /// The same, if so many times as much is short.
    #[inline]
    pub(crate) fn short_up_to(self, count: u64) -> Option<ShortTime> {
        self.short().filter(|short| short.0.checked_mul(count).is_some())
    }

    /// So many times as much.
    #[inline]
    #[must_use]
    pub fn times(self, count: u64) -> Time {
        match self.short() {
            Some(short) => short.times(count),
            None => Time(self.0.saturating_mul(u128::from(count))),
        }
    }

    /// How much more than an earlier sum this one is.
    #[inline]
    #[must_use]
    pub(crate) fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }

    /// The part from `from` to `to` of `of` equal ones.
    pub(crate) fn part(self, from: u64, to: u64, of: u64) -> Time {
        let until = |index: u64| self.0.saturating_mul(u128::from(index)) / u128::from(of);
        Time(until(to) - until(from))
    }
}

/// A [`Time`] of less than four seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortTime(u64);

impl ShortTime {
    /// So many times as much.
    #[inline]
    pub(crate) fn times(self, count: u64) -> Time {
        Time(u128::from(self.0) * u128::from(count))
    }

    /// So many times as much, which is [short](Time::short_up_to), too.
    #[inline]
    pub(crate) fn few_times(self, count: u64) -> Time {
        Time((self.0 * count).into())
    }
}

/// Some time shared out evenly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Even {
    /// For each instruction.
    pub(crate) each: Time,
    /// What is left, which is less than the smallest part an instruction: for who ran last.
    pub(crate) rest: Time,
}

impl Even {
    #[inline]
    fn new(elapsed: u64, instructions: u64) -> Even {
        let (each, rest) = match (elapsed.checked_mul(1 << Time::FINE), instructions) {
            (_, 0) => return Even::default(),
            // Far faster than the same of twice the width.
            (Some(all), _) => ((all / instructions).into(), (all % instructions).into()),
            (None, _) => {
                let (all, instructions) = (u128::from(elapsed) << Time::FINE, u128::from(instructions));
                (all / instructions, all % instructions)
            }
        };
        Even { each: Time(each), rest: Time(rest) }
    }
}

/// The clock of a segment, and who ran since it was told last. Between segments, where partials travel, it is as new.
#[derive(Clone, Debug)]
pub(crate) struct Clock<N> {
    /// The clock, and where time was shared out last.
    now: Option<u64>,
    shared_until: Option<u64>,
    /// Instructions since then, in order of execution.
    untimed: Vec<(N, u64)>,
    /// The thread is outside of what is traced.
    pub(crate) left: bool,
    /// Flow was missing since time was shared out last.
    after_gap: bool,
}

impl<N> Default for Clock<N> {
    fn default() -> Clock<N> {
        Clock { now: None, shared_until: None, untimed: Vec::new(), left: false, after_gap: false }
    }
}

impl<N: Copy + PartialEq> Clock<N> {
    /// Whether the clock was told in this segment.
    pub(crate) fn runs(&self) -> bool {
        self.now.is_some()
    }

    /// A segment begins.
    pub(crate) fn begin(&mut self, clock: Option<u64>) {
        (self.now, self.shared_until) = (clock, clock);
    }

    /// Someone ran.
    #[inline]
    pub(crate) fn ran(&mut self, who: N, instructions: u64) {
        match self.untimed.last_mut() {
            Some((last, count)) if *last == who => *count += instructions,
            // Without a clock nobody would ever share time out.
            _ if self.now.is_some() => self.untimed.push((who, instructions)),
            _ => {}
        }
    }

    /// Flow is missing. What ran since the last time is known, but not for how long.
    pub(crate) fn gap(&mut self) {
        self.after_gap = true;
        self.left = false;
    }

    /// The clock stands at `now`; whether time is to be shared out. Where nothing ran since it was, although
    /// tracing is on, what ran is still to come: branches wait in the processor until their packet is full.
    #[inline]
    pub(crate) fn tell(&mut self, now: u64) -> bool {
        if self.now.replace(now).is_none() {
            // What passed before the first time that is told nobody knows.
            self.shared_until = Some(now);
        }
        self.left || self.after_gap || !self.untimed.is_empty()
    }

    /// No clock of this segment says how long the last instructions ran.
    pub(crate) fn last_of_segment(&mut self) {
        self.untimed.clear();
    }

    /// The segment is over; the next one has a clock of its own.
    pub(crate) fn end(&mut self) {
        (self.now, self.shared_until, self.left) = (None, None, false);
    }

    /// Shares the time since the last one out over the instructions that ran in it, `others` among them that the
    /// clock was not told of. What is left for those, if there are any.
    #[inline]
    pub(crate) fn share(&mut self, others: u64, mut give: impl FnMut(Share<N>)) -> Even {
        let since = mem::replace(&mut self.shared_until, self.now);
        let (from, to) = since.zip(self.now).map_or((0, 0), |(since, now)| (since, now.max(since)));
        let all = Span { from, to };
        if mem::take(&mut self.after_gap) {
            // How much of it passed in the gap nobody knows.
            self.untimed.clear();
            give(Share::Lost(all));
            return Even::default();
        }
        let told: u64 = self.untimed.iter().map(|&(_, count)| count).sum();
        let mut even = Even::new(to - from, told + others);
        if self.untimed.is_empty() {
            if others == 0 {
                give(if self.left { Share::Outside(all) } else { Share::Waited(all) });
            }
            return even;
        }
        let mut ran = 0;
        for &(who, count) in &self.untimed {
            let piece = Piece { all, ran: [ran, ran + count, told] };
            ran += count;
            let last = ran == told && others == 0;
            let rest = if last { mem::take(&mut even.rest) } else { Time::default() };
            let took = even.each.times(count).and(rest);
            give(Share::Ran { who, instructions: count, took, piece });
        }
        self.untimed.clear();
        even
    }
}

/// Some time in equal parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    elapsed: u64,
    total: u64,
    /// `2^64` by `total`, rounded down, or one less.
    reciprocal: u64,
}

impl Shares {
    pub(crate) fn new(elapsed: u64, total: u64) -> Shares {
        Shares { elapsed, total, reciprocal: u64::MAX.checked_div(total).unwrap_or(0) }
    }

    /// `elapsed` times `ran` by `total`, rounded down; `ran` is not more than `total`.
    #[inline]
    pub(crate) fn of(&self, ran: u64) -> u64 {
        match self.elapsed.checked_mul(ran) {
            // Multiplying by the reciprocal is too little by one at most, and faster than dividing.
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
