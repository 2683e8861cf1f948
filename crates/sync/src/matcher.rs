//! Matches the two ends of each message: events of two streams with equal fields.
//!
//! A key may be a sequence number, the addresses and numbers of a TCP segment, or any other fields that both ends
//! record. Matches are sound even if keys repeat: a reception is paired only with the sending of the same message or
//! of an earlier copy.

use std::{collections::VecDeque, hash::Hash, net::SocketAddr};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::clocks::{ClockId, Pair};

/// Maximum number of unmatched events that are listed; further ones are only counted.
const MOST_LISTED: usize = 1 << 16;

/// The end of a message that an event records.
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
    /// The clock that timestamped the event.
    pub clock: ClockId,
    /// The clock reading, in ticks.
    pub ticks: u64,
    /// Sending or reception.
    pub direction: Direction,
}

/// The fields of a TCP segment that both ends record.
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
    /// Flags, and the data offset if both ends record it.
    pub flags: u16,
}

/// Why an event has no partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnmatchedCause {
    /// The other end never arrived, or arrived after the matcher evicted this key.
    Lost,
    /// The key occurred again at the same end: a repeated message or a reused number.
    Repeated,
    /// Both ends are on one clock.
    SameClock,
}

/// An event without a partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unmatched {
    /// The event.
    pub end: MessageEnd,
    /// Why it is unmatched.
    pub cause: UnmatchedCause,
}

/// Counts of matched and unmatched events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchReport {
    /// Pairs found.
    pub pairs: u64,
    /// Sendings without a reception.
    pub lost_sends: u64,
    /// Receptions without a sending.
    pub lost_receives: u64,
    /// Events with a repeated key.
    pub repeated: u64,
    /// Events whose partner is on the same clock.
    pub same_clock: u64,
    /// The first 65,536 unmatched events.
    pub unmatched: Vec<Unmatched>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting(MessageEnd),
    /// The key occurred twice at one end, so the copy that the other end belongs to is unknown.
    Ambiguous,
    Matched,
}

/// Pairs events by equal keys. Streams may be read in any order.
///
/// It holds the last `capacity` keys, so memory is bounded.
#[derive(Clone, Debug)]
pub struct Matcher<K> {
    states: FxHashMap<K, State>,
    /// Keys in order of their first event.
    order: VecDeque<K>,
    capacity: usize,
    report: MatchReport,
}

impl<K: Hash + Eq + Clone> Matcher<K> {
    /// Creates a matcher that holds `capacity` keys, at least one. Streams that are read one after the other need as
    /// many keys as the longer stream has.
    pub fn new(capacity: usize) -> Matcher<K> {
        Matcher {
            states: FxHashMap::default(),
            order: VecDeque::new(),
            capacity: capacity.max(1),
            report: MatchReport::default(),
        }
    }

    /// Adds an event and returns the pair that it completes. Pairs are numbered from 0.
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
        if self.report.unmatched.len() < MOST_LISTED {
            self.report.unmatched.push(Unmatched { end, cause });
        }
    }

    /// Ends matching: events that still wait count as lost.
    pub fn finish(mut self) -> MatchReport {
        while let Some(key) = self.order.pop_front() {
            self.forget(&key);
        }
        self.report
    }
}

/// Extends wrapping counters to 64 bits, one stream at a time.
///
/// Each value is extended to the one nearest to the greatest value so far, which tolerates reordering by up to half
/// the range.
#[derive(Clone, Copy, Debug)]
pub struct Unwrapper {
    bits: u32,
    last: Option<u64>,
}

impl Unwrapper {
    /// Creates an unwrapper for counters of `bits` bits, from 1 to 63.
    ///
    /// # Panics
    ///
    /// If `bits` is outside 1 to 63.
    pub fn new(bits: u32) -> Unwrapper {
        assert!((1..64).contains(&bits), "a counter of {bits} bits does not wrap in 64");
        Unwrapper { bits, last: None }
    }

    /// Returns the extended value. The first value is raised by one range, so that values just before it stay positive.
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
        /// Sequence numbers of 9 bits wrap; some are lost and some arrive late. In every interleaving of the streams,
        /// all matches are correct, and no possible match is missing.
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
                // Both ends start from the same number.
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
