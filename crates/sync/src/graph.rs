//! A graph of clocks and the messages between them, filled as messages arrive.

use std::{collections::BTreeMap, fmt};

use crate::{
    clocks::{Clock, ClockId, Method, Pair},
    edge::{Edge, Message},
    solve,
    timeline::Timeline,
    units::{MOST_DRIFT_PPB, PER_SECOND, PPB, Scale},
};

/// The longest time without messages over which the bound of wander is relied on, in units: 64 ms. Even the shortest slew of
/// NTP, half a second, shows in some messages that are no farther apart.
pub(crate) const LONGEST_GAP: i64 = PER_SECOND / 1_000 * 64;

/// Clocks, and an edge between any two of them that exchanged messages.
///
/// The first clock is the reference clock, whose time the timeline shows, unless [`ClockGraph::set_reference`] chooses
/// another.
///
/// Memory: pairs that others imply are discarded as they arrive, so an edge keeps its envelope and at most 65,536
/// recent pairs. If clocks contradict their bounds all the time, all pairs are kept.
#[derive(Clone, Debug, Default)]
pub struct ClockGraph {
    clocks: Vec<Clock>,
    scales: Vec<Scale>,
    reference: u32,
    /// The two clocks of each edge, the lower number first, and the edge.
    edges: Vec<((u32, u32), Edge)>,
    indices: BTreeMap<(u32, u32), usize>,
    /// Index of the last pair's edge, which is mostly the next pair's edge too.
    recent: usize,
}

/// Why a pair was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairError {
    /// The graph has no such clock; add it first.
    UnknownClock(ClockId),
    /// Sender and receiver are the same clock, so the pair bounds nothing.
    SameClock(ClockId),
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairError::UnknownClock(clock) => {
                write!(f, "clock {} is not in the graph; add it first", clock.0)
            }
            PairError::SameClock(clock) => {
                write!(f, "clock {} sends to itself; a pair needs two clocks", clock.0)
            }
        }
    }
}

impl std::error::Error for PairError {}

impl ClockGraph {
    /// Creates a graph without clocks.
    pub fn new() -> ClockGraph {
        ClockGraph::default()
    }

    /// Adds a clock and returns its index.
    pub fn add(&mut self, clock: Clock) -> ClockId {
        self.scales.push(Scale::new(clock.frequency_hz));
        self.clocks.push(clock);
        ClockId(self.clocks.len() as u32 - 1)
    }

    /// Chooses the clock whose time the timeline shows.
    ///
    /// # Errors
    ///
    /// If the graph has no such clock.
    pub fn set_reference(&mut self, clock: ClockId) -> Result<(), PairError> {
        self.check(clock)?;
        self.reference = clock.0;
        Ok(())
    }

    /// Returns the clock whose time the timeline shows.
    pub fn reference(&self) -> ClockId {
        ClockId(self.reference)
    }

    /// Returns the clocks, indexed by [`ClockId`].
    pub fn clocks(&self) -> &[Clock] {
        &self.clocks
    }

    fn check(&self, clock: ClockId) -> Result<(), PairError> {
        if (clock.0 as usize) < self.clocks.len() { Ok(()) } else { Err(PairError::UnknownClock(clock)) }
    }

    /// Adds a message. Messages may arrive in any order.
    ///
    /// # Errors
    ///
    /// If the graph lacks one of the clocks, or both are the same.
    pub fn push(&mut self, pair: Pair) -> Result<(), PairError> {
        self.check(pair.send_clock)?;
        self.check(pair.recv_clock)?;
        if pair.send_clock == pair.recv_clock {
            return Err(PairError::SameClock(pair.send_clock));
        }
        let to_b = pair.send_clock < pair.recv_clock;
        let (ends, message) = if to_b {
            let ends = (pair.send_clock.0, pair.recv_clock.0);
            (ends, Message { a: pair.send_ticks, b: pair.recv_ticks, id: pair.id, to_b })
        } else {
            let ends = (pair.recv_clock.0, pair.send_clock.0);
            (ends, Message { a: pair.recv_ticks, b: pair.send_ticks, id: pair.id, to_b })
        };
        if self.edges.get(self.recent).is_none_or(|(known, _)| *known != ends) {
            self.recent = self.edge(ends);
        }
        self.edges[self.recent].1.push(message);
        Ok(())
    }

    fn edge(&mut self, ends: (u32, u32)) -> usize {
        if let Some(&index) = self.indices.get(&ends) {
            return index;
        }
        let scales = [self.scales[ends.0 as usize], self.scales[ends.1 as usize]];
        self.edges.push((ends, Edge::new(scales, self.drift(ends.0, ends.1))));
        self.indices.insert(ends, self.edges.len() - 1);
        self.edges.len() - 1
    }

    /// Returns the drift bound of one clock against another, in parts per billion: the sum plus the second-order term.
    pub(crate) fn drift(&self, a: u32, b: u32) -> u64 {
        let drift = |clock: u32| self.clocks[clock as usize].drift_ppb.min(MOST_DRIFT_PPB);
        let sum = drift(a) + drift(b);
        // (1 + a) / (1 - b) is at most 1 + s + 2 s², where s = a + b is a share of one.
        sum + sum * sum / (PPB / 2) + 1
    }

    /// Returns the wander bound of one clock against another, in parts per billion per second.
    pub(crate) fn wander(&self, a: u32, b: u32) -> u64 {
        let wander = |clock: u32| self.clocks[clock as usize].wander_ppb_per_s;
        wander(a).saturating_add(wander(b)).min(PPB)
    }

    /// Returns the longest time without messages, in units, over which the wander bound between two clocks is relied on.
    pub(crate) fn longest_gap(&self, a: u32, b: u32) -> i64 {
        let known = [a, b].iter().all(|&clock| self.clocks[clock as usize].wander_is_known);
        if known { i64::MAX } else { LONGEST_GAP }
    }

    pub(crate) fn scale(&self, clock: u32) -> Scale {
        self.scales[clock as usize]
    }

    /// Returns the edges, sorted by their clocks.
    pub(crate) fn edges(&self) -> impl Iterator<Item = ((u32, u32), &Edge)> {
        self.indices.iter().map(|(&ends, &index)| (ends, &self.edges[index].1))
    }

    /// Returns the number of messages held in memory.
    pub fn messages_in_memory(&self) -> usize {
        self.edges.iter().map(|(_, edge)| edge.messages.len()).sum()
    }

    /// Places all clocks on one timeline.
    ///
    /// Takes O(n log n) time, where n is the number of messages held.
    ///
    /// # Panics
    ///
    /// If the graph has no clocks.
    pub fn solve(&self, method: Method) -> Timeline {
        assert!(!self.clocks.is_empty(), "a timeline needs a clock");
        solve::solve(self, method)
    }
}
