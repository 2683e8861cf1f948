//! Finds the two ends of each message: events of two streams with equal fields.
//!
//! A key may be a sequence number, the addresses and numbers of a TCP segment, or any other fields that both ends record.
//! What is matched is sound even where keys repeat: a reception is only ever paired with a sending that the same
//! message, or an earlier copy of it, left.

use std::{collections::VecDeque, hash::Hash, net::SocketAddr};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::clocks::{ClockId, Pair};

/// Events left out that are named; more are only counted.
const NAMED: usize = 1 << 16;

/// Which end of a message an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// It was sent.
    Send,
    /// It was received.
    Receive,
}

/// One end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MessageEnd {
    /// The clock of the event.
    pub clock: ClockId,
    /// Its ticks.
    pub ticks: u64,
    /// Which end.
    pub direction: Direction,
}

/// The fields of a TCP segment that both ends see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpKey {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address and port of the receiver.
    pub destination: SocketAddr,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags, and the data offset where both ends record it.
    pub flags: u16,
}

/// Why an event has no partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnmatchedCause {
    /// The other end never came, or only after this one was forgotten.
    Lost,
    /// The key came again at the same end: a repeated message or a number used twice.
    Repeated,
    /// Both ends are on one clock.
    SameClock,
}

/// An event without a partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unmatched {
    /// The event.
    pub end: MessageEnd,
    /// Why.
    pub cause: UnmatchedCause,
}

/// What a matcher did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchReport {
    /// Pairs found.
    pub pairs: u64,
    /// Sendings whose reception never came.
    pub lost_sends: u64,
    /// Receptions whose sending never came.
    pub lost_receives: u64,
    /// Events whose key was there before.
    pub repeated: u64,
    /// Events whose partner is on the same clock.
    pub same_clock: u64,
    /// Which; the first 65,536 of them.
    pub unmatched: Vec<Unmatched>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting(MessageEnd),
    /// Seen twice at one end: which copy the other end belongs to is unknown.
    Ambiguous,
    Matched,
}

/// Pairs events by equal keys, in whatever order streams are read.
///
/// It remembers the last `capacity` keys; memory stays bounded whatever comes in.
#[derive(Clone, Debug)]
pub struct Matcher<K> {
    states: FxHashMap<K, State>,
    /// Keys in order of their first event.
    order: VecDeque<K>,
    capacity: usize,
    report: MatchReport,
}

impl<K: Hash + Eq + Clone> Matcher<K> {
    /// A matcher that remembers `capacity` keys, at least one. Streams that are read one after the other need as many
    /// as the longer one has.
    pub fn new(capacity: usize) -> Matcher<K> {
        Matcher {
            states: FxHashMap::default(),
            order: VecDeque::new(),
            capacity: capacity.max(1),
            report: MatchReport::default(),
        }
    }

    /// Takes an event; gives the pair that it completes. Pairs are numbered from 0.
    pub fn push(&mut self, key: K, end: MessageEnd) -> Option<Pair> {
        let Some(state) = self.states.get_mut(&key) else {
            self.remember(key, end);
            return None;
        };
        let waiting = match *state {
            State::Waiting(waiting) => waiting,
            State::Ambiguous | State::Matched => {
                self.leave_out(end, UnmatchedCause::Repeated);
                return None;
            }
        };
        if waiting.direction == end.direction {
            *state = State::Ambiguous;
            self.leave_out(waiting, UnmatchedCause::Repeated);
            self.leave_out(end, UnmatchedCause::Repeated);
            return None;
        }
        *state = State::Matched;
        if waiting.clock == end.clock {
            self.leave_out(waiting, UnmatchedCause::SameClock);
            self.leave_out(end, UnmatchedCause::SameClock);
            return None;
        }
        let (sent, received) =
            if end.direction == Direction::Receive { (waiting, end) } else { (end, waiting) };
        self.report.pairs += 1;
        Some(Pair {
            send_clock: sent.clock,
            send_ticks: sent.ticks,
            recv_clock: received.clock,
            recv_ticks: received.ticks,
            id: self.report.pairs - 1,
        })
    }

    fn remember(&mut self, key: K, end: MessageEnd) {
        if self.order.len() == self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.forget(&oldest);
        }
        self.order.push_back(key.clone());
        self.states.insert(key, State::Waiting(end));
    }

    fn forget(&mut self, key: &K) {
        if let Some(State::Waiting(end)) = self.states.remove(key) {
            self.leave_out(end, UnmatchedCause::Lost);
        }
    }

    fn leave_out(&mut self, end: MessageEnd, cause: UnmatchedCause) {
        match (cause, end.direction) {
            (UnmatchedCause::Lost, Direction::Send) => self.report.lost_sends += 1,
            (UnmatchedCause::Lost, Direction::Receive) => self.report.lost_receives += 1,
            (UnmatchedCause::Repeated, _) => self.report.repeated += 1,
            (UnmatchedCause::SameClock, _) => self.report.same_clock += 1,
        }
        if self.report.unmatched.len() < NAMED {
            self.report.unmatched.push(Unmatched { end, cause });
        }
    }

    /// Everything was read: what still waits is lost.
    pub fn finish(mut self) -> MatchReport {
        while let Some(key) = self.order.pop_front() {
            self.forget(&key);
        }
        self.report
    }
}

/// Makes counters of few bits count on where they wrap, one stream at a time.
///
/// Each value is taken for the one nearest to the last: reordering by up to half the range is followed.
#[derive(Clone, Copy, Debug)]
pub struct Unwrapper {
    bits: u32,
    last: Option<u64>,
}

impl Unwrapper {
    /// For counters of `bits` bits; 1 to 63.
    ///
    /// # Panics
    ///
    /// For other widths.
    pub fn new(bits: u32) -> Unwrapper {
        assert!((1..64).contains(&bits), "a counter of {bits} bits does not wrap in 64");
        Unwrapper { bits, last: None }
    }

    /// The value, counted on. The first one stays as it is, plus one range, so that values just before it exist too.
    pub fn extend(&mut self, value: u64) -> u64 {
        let range = 1u64 << self.bits;
        let value = value & (range - 1);
        let Some(last) = self.last else {
            self.last = Some(value + range);
            return value + range;
        };
        let ahead = value.wrapping_sub(last) & (range - 1);
        let extended =
            if ahead <= range / 2 { last.saturating_add(ahead) } else { last.saturating_sub(range - ahead) };
        self.last = Some(extended.max(last));
        extended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end(clock: u32, ticks: u64, direction: Direction) -> MessageEnd {
        MessageEnd { clock: ClockId(clock), ticks, direction }
    }

    #[test]
    fn ends_match_in_either_order() {
        let mut matcher = Matcher::new(8);
        assert_eq!(matcher.push(1, end(0, 10, Direction::Send)), None);
        let pair = matcher.push(1, end(1, 20, Direction::Receive)).unwrap();
        assert_eq!((pair.send_ticks, pair.recv_ticks, pair.id), (10, 20, 0));
        assert_eq!(matcher.push(2, end(1, 40, Direction::Receive)), None);
        let pair = matcher.push(2, end(0, 30, Direction::Send)).unwrap();
        assert_eq!((pair.send_ticks, pair.recv_ticks, pair.id), (30, 40, 1));
        assert_eq!(matcher.finish().pairs, 2);
    }

    #[test]
    fn repeated_and_lost_ends_are_named() {
        let mut matcher = Matcher::new(8);
        matcher.push(1, end(0, 10, Direction::Send));
        matcher.push(1, end(0, 11, Direction::Send));
        assert_eq!(matcher.push(1, end(1, 20, Direction::Receive)), None);
        matcher.push(2, end(0, 30, Direction::Send));
        matcher.push(3, end(1, 50, Direction::Receive));
        matcher.push(4, end(0, 60, Direction::Send));
        matcher.push(4, end(0, 61, Direction::Receive));
        let report = matcher.finish();
        assert_eq!((report.pairs, report.repeated, report.same_clock), (0, 3, 2));
        assert_eq!((report.lost_sends, report.lost_receives), (1, 1));
        assert_eq!(report.unmatched.len(), 7);
    }

    #[test]
    fn a_full_matcher_forgets_the_oldest() {
        let mut matcher = Matcher::new(2);
        for key in 0..3 {
            matcher.push(key, end(0, key, Direction::Send));
        }
        assert_eq!(matcher.push(0, end(1, 9, Direction::Receive)), None);
        assert!(matcher.push(2, end(1, 9, Direction::Receive)).is_some());
    }

    #[test]
    fn counters_count_on_over_a_wrap() {
        let mut unwrapper = Unwrapper::new(32);
        let range = 1u64 << 32;
        assert_eq!(unwrapper.extend(u64::from(u32::MAX)), 2 * range - 1);
        assert_eq!(unwrapper.extend(1), 2 * range + 1);
        assert_eq!(unwrapper.extend(0), 2 * range);
        assert_eq!(unwrapper.extend(u64::from(u32::MAX) - 3), 2 * range - 4);
    }

    proptest! {
        /// Sequence numbers of 9 bits that wrap, of which some are lost and some come late: what is matched is right,
        /// and all that could be is, however streams interleave.
        #[test]
        fn what_is_matched_is_right(
            fates in prop::collection::vec((0u8..10, 0usize..3), 1..200), interleave in any::<u64>(),
        ) {
            let (mut sends, mut receives) = (Vec::new(), Vec::new());
            for (number, &(fate, late)) in (400u64..).zip(&fates) {
                if fate != 0 {
                    sends.push(number);
                }
                if fate != 1 {
                    let at = receives.len() - late.min(receives.len());
                    receives.insert(at, number);
                }
            }
            let keyed = |numbers: Vec<u64>, clock: u32, direction: Direction| -> VecDeque<(u64, MessageEnd)> {
                let mut unwrapper = Unwrapper::new(9);
                // Both ends know where counting began.
                unwrapper.extend(400);
                let key = |number| (unwrapper.extend(number & 511), end(clock, number, direction));
                numbers.into_iter().map(key).collect()
            };
            let mut sends = keyed(sends, 0, Direction::Send);
            let mut receives = keyed(receives, 1, Direction::Receive);
            let lost = fates.iter().filter(|fate| fate.0 <= 1).count();
            let mut matcher = Matcher::new(1 << 10);
            let mut rng = fastrand::Rng::with_seed(interleave);
            while !sends.is_empty() || !receives.is_empty() {
                let next = if rng.bool() { sends.pop_front() } else { receives.pop_front() };
                let Some((key, end)) = next else { continue };
                if let Some(pair) = matcher.push(key, end) {
                    prop_assert_eq!(pair.send_ticks, pair.recv_ticks);
                }
            }
            let report = matcher.finish();
            prop_assert_eq!(report.repeated, 0);
            prop_assert_eq!(report.pairs as usize, fates.len() - lost);
        }
    }
}
