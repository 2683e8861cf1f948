//! Clocks and the messages between them, as they come in.

use std::{collections::BTreeMap, fmt};

use crate::{
    clocks::{Clock, ClockId, Method, Pair},
    edge::{Edge, Message},
    solve,
    timeline::Timeline,
    units::{Scale, Slope},
};

/// Clocks, and an edge between any two of them that exchanged messages.
///
/// The first clock is the reference whose time the timeline shows, until another one is chosen.
///
/// Memory: pairs that others imply are forgotten as they come in, so an edge keeps its compact envelope and at most
/// 65,536 recent pairs. Where clocks contradict their bounds all the time, all pairs are kept.
#[derive(Clone, Debug, Default)]
pub struct ClockGraph {
    clocks: Vec<Clock>,
    scales: Vec<Scale>,
    reference: u32,
    edges: Vec<((u32, u32), Edge)>,
    places: BTreeMap<(u32, u32), usize>,
    /// Where the last pair went: most often the next one goes there too.
    recent: usize,
}

/// Why a pair was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairError {
    /// The graph has no such clock; add it first.
    UnknownClock(ClockId),
    /// Sender and receiver are the same clock: nothing follows from that.
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
    /// A graph without clocks.
    pub fn new() -> ClockGraph {
        ClockGraph::default()
    }

    /// Adds a clock.
    pub fn add(&mut self, clock: Clock) -> ClockId {
        self.scales.push(Scale::new(clock.frequency_hz));
        self.clocks.push(clock);
        ClockId(self.clocks.len() as u32 - 1)
    }

    /// Chooses the clock whose time the timeline shows.
    ///
    /// # Errors
    ///
    /// Where the graph has no such clock.
    pub fn set_reference(&mut self, clock: ClockId) -> Result<(), PairError> {
        self.known(clock)?;
        self.reference = clock.0;
        Ok(())
    }

    /// The clock whose time the timeline shows.
    pub fn reference(&self) -> ClockId {
        ClockId(self.reference)
    }

    /// The clocks, by number.
    pub fn clocks(&self) -> &[Clock] {
        &self.clocks
    }

    fn known(&self, clock: ClockId) -> Result<(), PairError> {
        if (clock.0 as usize) < self.clocks.len() { Ok(()) } else { Err(PairError::UnknownClock(clock)) }
    }

    /// Adds a message. Messages may come in any order.
    ///
    /// # Errors
    ///
    /// Where the graph lacks one of the clocks, or both are the same.
    pub fn push(&mut self, pair: Pair) -> Result<(), PairError> {
        self.known(pair.send_clock)?;
        self.known(pair.recv_clock)?;
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
        if let Some(&place) = self.places.get(&ends) {
            return place;
        }
        let scales = [self.scales[ends.0 as usize], self.scales[ends.1 as usize]];
        let slope = Slope::from_ppb(self.drift(ends.0, ends.1));
        self.edges.push((ends, Edge::new(scales, slope)));
        self.places.insert(ends, self.edges.len() - 1);
        self.edges.len() - 1
    }

    /// The bound of drift of one clock against another, in parts per billion: the sum, and what second order adds.
    pub(crate) fn drift(&self, a: u32, b: u32) -> u64 {
        let of = |clock: u32| self.clocks[clock as usize].drift_ppb.min(250_000_000);
        let sum = of(a) + of(b);
        sum + sum * sum / 500_000_000 + 1
    }

    /// The bound of wander of one clock against another, in parts per billion a second.
    pub(crate) fn wander(&self, a: u32, b: u32) -> u64 {
        let of = |clock: u32| self.clocks[clock as usize].wander_ppb_per_s;
        of(a).saturating_add(of(b)).min(1_000_000_000)
    }

    pub(crate) fn scale(&self, clock: u32) -> Scale {
        self.scales[clock as usize]
    }

    /// The edges, in order of their clocks.
    pub(crate) fn edges(&self) -> impl Iterator<Item = ((u32, u32), &Edge)> {
        self.places.iter().map(|(&ends, &place)| (ends, &self.edges[place].1))
    }

    /// How many messages are held in memory now.
    pub fn messages_in_memory(&self) -> usize {
        self.edges.iter().map(|(_, edge)| edge.messages.len()).sum()
    }

    /// Puts all clocks on one timeline.
    ///
    /// Takes O(n log n) of the messages held.
    ///
    /// # Panics
    ///
    /// On a graph without clocks.
    pub fn solve(&self, method: Method) -> Timeline {
        assert!(!self.clocks.is_empty(), "a timeline needs a clock");
        solve::solve(self, method)
    }
}
