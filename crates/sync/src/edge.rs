//! The messages between two clocks, reduced as they arrive.
//!
//! ```text
//! pairs ──push──► block of 65,536 ──► windows of 64: drop the fewest that contradict ──► envelope ──► kept
//! ```
//!
//! Pairs that others imply are counted and discarded, so memory grows with the envelope: with messages of similar
//! delay, one pair per `√(delay · spacing / drift bound)` is kept. A window in which contradictions suggest a step of a
//! clock is kept whole until the step search at the end.

use crate::{
    bounds::{Bound, LOWER, UPPER, envelope, thinned},
    clocks::{DropCause, DroppedPair},
    cover::{consistent, fewest},
    graph::LONGEST_GAP,
    units::{PER_NANO, Scale, Slope, within_limit},
    widen::wider_drifts,
};

/// Pairs that are reduced together as they arrive.
const BLOCK: usize = 1 << 16;

/// Pairs that must be consistent before implied ones are discarded.
const WINDOW: usize = 64;

/// A window with more contradictions may hold a step, so its pairs are kept for the step search.
const WINDOW_CONTRADICTIONS: usize = 4;

/// Maximum number of dropped pairs that are listed; further ones are only counted.
pub(crate) const MOST_LISTED: usize = 1 << 20;

/// A pair is late if its delay exceeds this multiple of the 90th percentile.
const LATE: i64 = 64;

/// Delays that are never long, in units: 1 µs.
const USUAL: i64 = 1_000 * PER_NANO;

/// Smaller backward jumps, in order of the other clock, are reordered messages and not steps: 0.1 ms, in sixteenths of
/// a nanosecond.
const REORDERED: i128 = 1_600_000;

/// A message on an edge: readings of both clocks, and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) id: u64,
    pub(crate) to_b: bool,
}

/// The messages between two clocks.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) scales: [Scale; 2],
    /// The widest drift that may be assumed later. A message is discarded only if others imply it, or contradict it, at
    /// this drift too.
    pub(crate) widest: Slope,
    /// Reduced messages, followed by those that arrived since the last block.
    pub(crate) messages: Vec<Message>,
    settled: usize,
    pub(crate) dropped: Dropped,
    /// Messages pushed so far.
    pub(crate) pushed: u64,
    /// Messages received by clock `b`.
    pub(crate) to_b: u64,
    /// The offset of the clocks in the first block.
    first_offset: Option<i128>,
    /// Messages of reduced blocks that are received before they are sent at this offset.
    violations_settled: u64,
}

/// Dropped pairs: all are counted, the first [`MOST_LISTED`] listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) listed: Vec<DroppedPair>,
    /// Indexed by [`DropCause`].
    pub(crate) counts: [u64; DropCause::COUNT],
}

impl Dropped {
    pub(crate) fn push(&mut self, id: u64, cause: DropCause) {
        self.counts[cause as usize] += 1;
        if self.listed.len() < MOST_LISTED {
            self.listed.push(DroppedPair { id, cause });
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Edge {
    /// Creates the edge of two clocks whose drift is assumed to be at most `drift_ppb`.
    pub(crate) fn new(scales: [Scale; 2], drift_ppb: u64) -> Edge {
        Edge {
            scales,
            widest: Slope::from_ppb(wider_drifts(drift_ppb).last().unwrap_or(drift_ppb)),
            messages: Vec::new(),
            settled: 0,
            dropped: Dropped::default(),
            pushed: 0,
            to_b: 0,
            first_offset: None,
            violations_settled: 0,
        }
    }

    pub(crate) fn push(&mut self, message: Message) {
        self.pushed += 1;
        self.to_b += u64::from(message.to_b);
        self.messages.push(message);
        if self.messages.len() - self.settled >= BLOCK {
            let block = self.messages.split_off(self.settled);
            let offset = self.first_offset.unwrap_or_else(|| self.offset(&block));
            self.first_offset = Some(offset);
            self.violations_settled += self.violations(&block, offset);
            let kept = self.settle(&block);
            self.messages.extend(kept);
            self.settled = self.messages.len();
        }
    }

    /// Returns whether messages that others imply were discarded.
    pub(crate) fn is_thinned(&self) -> bool {
        self.settled > 0
    }

    /// Returns the number of messages received before they were sent if the clocks differ by a constant only.
    pub(crate) fn violations_before(&self) -> u64 {
        let fresh = &self.messages[self.settled..];
        self.violations_settled
            + self.violations(fresh, self.first_offset.unwrap_or_else(|| self.offset(fresh)))
    }

    /// Returns the median offset of `b` over `a`, in units.
    fn offset(&self, messages: &[Message]) -> i128 {
        median(messages.iter().map(|message| self.apart(message)))
    }

    fn apart(&self, message: &Message) -> i128 {
        self.scales[1].units(message.b) - self.scales[0].units(message.a)
    }

    fn violations(&self, messages: &[Message], offset: i128) -> u64 {
        let violated = |message: &&Message| {
            let apart = self.apart(message);
            if message.to_b { apart < offset } else { apart > offset }
        };
        messages.iter().filter(violated).count() as u64
    }

    /// Drops contradicting messages and discards implied ones.
    fn settle(&mut self, block: &[Message]) -> Vec<Message> {
        let oriented = orient(block, self.scales, self.widest);
        for &index in &oriented.out_of_range {
            self.dropped.push(block[index].id, DropCause::OutOfRange);
        }
        let mut kept = Vec::new();
        let mut clean = Vec::new();
        for window in oriented.bounds.chunks(WINDOW) {
            let gone = fewest(window);
            if gone.len() > WINDOW_CONTRADICTIONS || (gone.len() > 1 && may_step(window)) {
                self.keep_envelope(block, std::mem::take(&mut clean), &mut kept);
                kept.extend(window.iter().map(|bound| block[bound.owner as usize]));
                continue;
            }
            self.drop_bounds(block, window, &gone, DropCause::Contradicts);
            without(window, &gone, &mut clean);
        }
        self.keep_envelope(block, clean, &mut kept);
        kept
    }

    /// Adds to `kept` the envelope of bounds from windows without contradictions.
    fn keep_envelope(&mut self, block: &[Message], mut clean: Vec<Bound>, kept: &mut Vec<Message>) {
        let agree = self.agree(block, &mut clean);
        if agree {
            let late = late(&clean, self.widest);
            self.drop_bounds(block, &clean, &late, DropCause::Late);
            let mut punctual = Vec::with_capacity(clean.len());
            without(&clean, &late, &mut punctual);
            clean = punctual;
        }
        // An envelope across a step would treat bounds after it as implied by bounds before it.
        let run = if agree { BLOCK } else { WINDOW };
        for window in clean.chunks(run) {
            let on = window.iter().zip(thinned(window, LONGEST_GAP / 2)).filter(|(_, on)| *on);
            kept.extend(on.map(|(bound, _)| block[bound.owner as usize]));
        }
    }

    /// Drops the few bounds that contradict other windows; returns whether the rest is consistent.
    fn agree(&mut self, block: &[Message], clean: &mut Vec<Bound>) -> bool {
        if consistent(clean) {
            return true;
        }
        let gone = fewest(clean);
        if gone.len() > clean.len() / WINDOW {
            return false;
        }
        self.drop_bounds(block, clean, &gone, DropCause::Contradicts);
        let mut rest = Vec::with_capacity(clean.len());
        without(clean, &gone, &mut rest);
        *clean = rest;
        true
    }

    fn drop_bounds(&mut self, block: &[Message], bounds: &[Bound], gone: &[usize], cause: DropCause) {
        for &index in gone {
            self.dropped.push(block[bounds[index].owner as usize].id, cause);
        }
    }
}

/// Returns whether a window splits into a beginning and an end that are each consistent.
fn may_step(window: &[Bound]) -> bool {
    // A shorter one may consist of wrong pairs only.
    const LEAST: usize = 4;
    let prefix = (LEAST..window.len()).rev().find(|&end| consistent(&window[..end]));
    prefix.is_some_and(|end| end + LEAST <= window.len() && consistent(&window[end..]))
}

/// Appends `bounds` to `rest`, except those at the ascending indices `gone`.
pub(crate) fn without(bounds: &[Bound], gone: &[usize], rest: &mut Vec<Bound>) {
    let mut gone = gone.iter().peekable();
    for (index, bound) in bounds.iter().enumerate() {
        if gone.next_if(|&&gone| gone == index).is_none() {
            rest.push(*bound);
        }
    }
}

/// Returns the indices of bounds whose messages took far longer than others: they lie far from the envelope of their
/// own side.
pub(crate) fn late(bounds: &[Bound], slope: Slope) -> Vec<usize> {
    let times: Vec<i64> = bounds.iter().map(|bound| bound.x).collect();
    let mut late = Vec::new();
    for upper in [LOWER, UPPER] {
        let Some(best) = envelope(bounds, &times, slope, upper) else { continue };
        let excess = |index: usize| bounds[index].value.abs_diff(best[index]) as i64;
        let of_side: Vec<usize> = (0..bounds.len()).filter(|&index| bounds[index].upper == upper).collect();
        let mut sorted: Vec<i64> = of_side.iter().map(|&index| excess(index)).collect();
        let ninth_decile = (sorted.len() * 9 / 10).min(of_side.len() - 1);
        let usual = *sorted.select_nth_unstable(ninth_decile).1;
        let limit = usual.max(USUAL).saturating_mul(LATE);
        late.extend(of_side.into_iter().filter(|&index| excess(index) > limit));
    }
    late.sort_unstable();
    late
}

/// Messages as bounds of one clock's offset over the other's time.
pub(crate) struct Oriented {
    /// Sorted by the reading of the primary clock.
    pub(crate) bounds: Vec<Bound>,
    pub(crate) out_of_range: Vec<usize>,
    /// Whether `a` is the primary clock.
    pub(crate) by_a: bool,
}

/// Turns messages into bounds of the other clock's offset over the primary clock's time. The primary clock is the one
/// in whose order the other clock jumps back less often.
///
/// A message that the primary clock sends bounds the offset from above: at the time of sending, the receiver's clock
/// had not reached its reading at reception.
pub(crate) fn orient(messages: &[Message], scales: [Scale; 2], slope: Slope) -> Oriented {
    let readings: Vec<[i128; 2]> =
        messages.iter().map(|message| [scales[0].units(message.a), scales[1].units(message.b)]).collect();
    let mut by_a: Vec<usize> = (0..messages.len()).collect();
    by_a.sort_by_key(|&index| (messages[index].a, messages[index].b, messages[index].id));
    let mut order = by_a;
    let mut primary = 0;
    let backward = jumps_back(&readings, &order, 1);
    if backward > 0 {
        let mut by_b: Vec<usize> = (0..messages.len()).collect();
        by_b.sort_by_key(|&index| (messages[index].b, messages[index].a, messages[index].id));
        if jumps_back(&readings, &by_b, 0) < backward {
            (order, primary) = (by_b, 1);
        }
    }
    let origin = order.get(order.len() / 2).map_or(0, |&middle| readings[middle][primary]);
    let offset = |reading: &[i128; 2]| reading[1 - primary] - reading[primary];
    let base = median(readings.iter().map(offset));
    let mut bounds = Vec::with_capacity(messages.len());
    let mut out_of_range = Vec::new();
    for index in order {
        let reading = &readings[index];
        match (within_limit(reading[primary] - origin), within_limit(offset(reading) - base)) {
            (Some(x), Some(value)) => {
                let to_b = messages[index].to_b;
                let upper = to_b == (primary == 0);
                // The receiver's clock was read up to one tick after it reached the value.
                let tick = scales[usize::from(to_b)].tick();
                let value = if upper { value + tick } else { value - tick };
                bounds.push(Bound::new(x, value, upper, slope, index as u32));
            }
            _ => out_of_range.push(index),
        }
    }
    Oriented { bounds, out_of_range, by_a: primary == 0 }
}

/// Counts backward jumps of a clock while messages are in order of the other clock.
fn jumps_back(readings: &[[i128; 2]], order: &[usize], clock: usize) -> usize {
    let jumps = |pair: &&[usize]| readings[pair[1]][clock] + REORDERED < readings[pair[0]][clock];
    order.windows(2).filter(jumps).count()
}

/// Returns the upper median; 0 for no values.
pub(crate) fn median(values: impl Iterator<Item = i128>) -> i128 {
    let mut values: Vec<i128> = values.collect();
    if values.is_empty() {
        return 0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_pairs_beyond_the_list_are_counted_with_their_cause() {
        let mut dropped = Dropped::default();
        for id in 0..=MOST_LISTED as u64 {
            dropped.push(id, DropCause::Contradicts);
        }
        dropped.push(0, DropCause::Late);
        assert_eq!((dropped.listed.len(), dropped.count()), (MOST_LISTED, MOST_LISTED as u64 + 2));
        assert_eq!(dropped.counts[DropCause::Contradicts as usize], MOST_LISTED as u64 + 1);
        assert_eq!(dropped.counts[DropCause::Late as usize], 1);
    }
}
