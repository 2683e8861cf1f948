//! Portions: shares of a request's chunks, about equal in bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Upper limit of the number of portions, far above any number of processes.
pub(super) const MOST_PORTIONS: u32 = 1 << 20;

/// Portion `number` of `of`; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Portion {
    number: u32,
    of: u32,
}

/// Adjacent portions of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct PortionRange {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) of: u32,
}

impl Portion {
    /// Parses `I/N`; returns `None` if there is no such portion.
    pub fn parse(text: &str) -> Option<Portion> {
        let (number, of) = text.split_once('/')?;
        let (number, of) = (number.parse().ok()?, of.parse().ok()?);
        ((1..=of).contains(&number) && of <= MOST_PORTIONS).then_some(Portion { number, of })
    }

    /// Returns whether this is the first portion, which has the losses of opening: merged parts have them once.
    pub(super) fn is_first(self) -> bool {
        self.number == 1
    }

    /// Returns the range of this portion alone.
    pub(super) fn alone(self) -> PortionRange {
        PortionRange { first: self.number, last: self.number, of: self.of }
    }

    /// Returns all portions of `of`, at most 2^20.
    pub fn all(of: u32) -> impl Iterator<Item = Portion> {
        (1..=of.min(MOST_PORTIONS)).map(move |number| Portion { number, of })
    }

    /// Returns its share of `bytes`.
    pub fn share(self, bytes: u64) -> u64 {
        bytes / u64::from(self.of)
    }

    /// Selects the chunks or slices of this portion, so that all portions have about the same number of bytes.
    pub(super) fn choose<S>(self, mut all: Vec<S>, bytes: impl Fn(&S) -> u64) -> Vec<S> {
        let total: u64 = all.iter().map(&bytes).sum();
        let mut before = 0;
        all.retain(|one| {
            // A chunk belongs to the portion that contains its middle; the first one, which knows the state of
            // everything before it, to the first portion.
            let middle = if before == 0 { 0 } else { u128::from(before) + u128::from(bytes(one) / 2) };
            before += bytes(one);
            let number = middle * u128::from(self.of) / u128::from(total.max(1)) + 1;
            number.min(self.of.into()) == u128::from(self.number)
        });
        all
    }
}

impl fmt::Display for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}
