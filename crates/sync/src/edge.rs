//! What is kept of the messages between two clocks.
//!
//! ```text
//! pairs ──push──► block of 65,536 ──► windows of 64: the fewest that contradict go ──► envelope ──► kept
//! ```
//!
//! Pairs that others imply are counted and forgotten, so memory follows the envelope: with messages of similar
//! delay one each `√(delay · spacing / drift bound)` is kept. Where a window contradicts itself so much that a clock may
//! have stepped, all of it is kept for the end, when steps are looked for.

use crate::{
    bounds::{Bound, envelope, on_envelope},
    clocks::{DropCause, DroppedPair},
    cover::{consistent, fewest},
    units::{Scale, Slope, within_limit},
};

/// Pairs that are looked at together while they come in.
const BLOCK: usize = 1 << 16;

/// Pairs that have to agree before any are forgotten.
const WINDOW: usize = 64;

/// A window with more contradictions may hold a step: nothing is decided yet.
const WINDOW_CONTRADICTIONS: usize = 4;

/// Dropped pairs that are named; more are only counted.
const NAMED: usize = 1 << 20;

/// A pair takes far too long where it exceeds this many times the delay that nine in ten keep.
const LATE: i64 = 64;

/// Jumps back of less than 0.1 ms in order of the other clock are reordered messages, not steps.
const REORDERED: i128 = 1_600_000;

/// A message on an edge: readings of both clocks, and who sent it.
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
    /// The bound of drift of one clock against the other.
    pub(crate) slope: Slope,
    /// Settled messages first, then those that came in since.
    pub(crate) messages: Vec<Message>,
    settled: usize,
    pub(crate) dropped: Dropped,
    /// All messages ever given.
    pub(crate) given: u64,
    /// Messages to the clock `b`.
    pub(crate) to_b: u64,
    /// The offset of the clocks in the first block.
    first_offset: Option<i128>,
    /// Messages of settled blocks that this offset has received before they were sent.
    violations_settled: u64,
}

/// Pairs that were left out: all counted, most named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) named: Vec<DroppedPair>,
    pub(crate) count: u64,
}

impl Dropped {
    pub(crate) fn push(&mut self, id: u64, cause: DropCause) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(DroppedPair { id, cause });
        }
    }
}

impl Edge {
    pub(crate) fn new(scales: [Scale; 2], slope: Slope) -> Edge {
        Edge {
            scales,
            slope,
            messages: Vec::new(),
            settled: 0,
            dropped: Dropped::default(),
            given: 0,
            to_b: 0,
            first_offset: None,
            violations_settled: 0,
        }
    }

    pub(crate) fn push(&mut self, message: Message) {
        self.given += 1;
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

    /// Messages received before they were sent, were the clocks only a constant apart.
    pub(crate) fn violations_before(&self) -> u64 {
        let fresh = &self.messages[self.settled..];
        self.violations_settled
            + self.violations(fresh, self.first_offset.unwrap_or_else(|| self.offset(fresh)))
    }

    /// The offset of `b` over `a` in the middle of some messages, in units.
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

    /// Drops what contradicts, forgets what is implied.
    fn settle(&mut self, block: &[Message]) -> Vec<Message> {
        let oriented = orient(block, self.scales, self.slope);
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

    /// Keeps what bounds of windows without contradictions imply together.
    fn keep_envelope(&mut self, block: &[Message], mut clean: Vec<Bound>, kept: &mut Vec<Message>) {
        let agree = self.agree(block, &mut clean);
        if agree {
            let late = late(&clean, self.slope);
            self.drop_bounds(block, &clean, &late, DropCause::Late);
            let mut punctual = Vec::with_capacity(clean.len());
            without(&clean, &late, &mut punctual);
            clean = punctual;
        }
        // An envelope across a step would take what is true behind it for implied by what was true before.
        let run = if agree { BLOCK } else { WINDOW };
        for window in clean.chunks(run) {
            let on = window.iter().zip(on_envelope(window)).filter(|(_, on)| *on);
            kept.extend(on.map(|(bound, _)| block[bound.owner as usize]));
        }
    }

    /// Whether windows agree with each other, after a few more were dropped.
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

/// Whether two parts of a window agree with themselves, but not with each other.
fn may_step(window: &[Bound]) -> bool {
    // Of a part that is smaller, nothing says that it is not simply wrong.
    const LEAST: usize = 4;
    let prefix = (LEAST..window.len()).rev().find(|&end| consistent(&window[..end]));
    prefix.is_some_and(|end| end + LEAST <= window.len() && consistent(&window[end..]))
}

/// Adds `bounds` to `rest`, but for those at the ascending indices `gone`.
pub(crate) fn without(bounds: &[Bound], gone: &[usize], rest: &mut Vec<Bound>) {
    let mut gone = gone.iter().peekable();
    for (index, bound) in bounds.iter().enumerate() {
        if gone.next_if(|&&gone| gone == index).is_none() {
            rest.push(*bound);
        }
    }
}

/// Indices of bounds whose messages took far longer than others: they lie far off the envelope of their own side.
pub(crate) fn late(bounds: &[Bound], slope: Slope) -> Vec<usize> {
    let places: Vec<i64> = bounds.iter().map(|bound| bound.x).collect();
    let mut late = Vec::new();
    for upper in [false, true] {
        let Some(best) = envelope(bounds, &places, slope, upper) else { continue };
        let excess = |index: usize| bounds[index].value.abs_diff(best[index]) as i64;
        let of_side: Vec<usize> = (0..bounds.len()).filter(|&index| bounds[index].upper == upper).collect();
        let mut sorted: Vec<i64> = of_side.iter().map(|&index| excess(index)).collect();
        let ninth = sorted.len() * 9 / 10;
        let usual = *sorted.select_nth_unstable(ninth.min(of_side.len() - 1)).1;
        // Less than a microsecond is no delay to speak of.
        let limit = usual.max(16_000).saturating_mul(LATE);
        late.extend(of_side.into_iter().filter(|&index| excess(index) > limit));
    }
    late.sort_unstable();
    late
}

/// Messages as bounds of one clock's offset over the other's time.
pub(crate) struct Oriented {
    /// In order of the primary clock.
    pub(crate) bounds: Vec<Bound>,
    pub(crate) out_of_range: Vec<usize>,
    /// Whether `a` is the primary clock.
    pub(crate) by_a: bool,
}

/// The offset of the other clock over the time of the primary one: the clock in whose order the other jumps back less.
///
/// A message that the primary clock sends bounds the offset from above: when it was sent, the receiver's clock had not
/// reached the reading at which it was received.
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
                // The receiver's clock was read up to a tick after it had turned to what it showed.
                let tick = scales[usize::from(to_b)].tick();
                let value = if upper { value + tick } else { value - tick };
                bounds.push(Bound::new(x, value, upper, slope, index as u32));
            }
            _ => out_of_range.push(index),
        }
    }
    Oriented { bounds, out_of_range, by_a: primary == 0 }
}

/// How often a clock jumps back where messages are in order of the other.
fn jumps_back(readings: &[[i128; 2]], order: &[usize], clock: usize) -> usize {
    let jumps = |pair: &&[usize]| readings[pair[1]][clock] + REORDERED < readings[pair[0]][clock];
    order.windows(2).filter(jumps).count()
}

/// The middle value; 0 of none.
pub(crate) fn median(values: impl Iterator<Item = i128>) -> i128 {
    let mut values: Vec<i128> = values.collect();
    if values.is_empty() {
        return 0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}
