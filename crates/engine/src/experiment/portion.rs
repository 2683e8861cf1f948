//! Portions: shares of a request's chunks, about equal in bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Upper limit of the number of portions, far above any number of processes.
pub(super) const MOST_PORTIONS: u32 = 1 << 20;

/// One of `count` portions; the first has number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Portion {
    number: u32,
    count: u32,
}

/// Adjacent ones of `count` portions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct PortionRange {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
}

impl Portion {
    /// Parses `I/N`; returns `None` if there is no such portion.
    pub fn parse(text: &str) -> Option<Portion> {
        let (number, count) = text.split_once('/')?;
        let (number, count) = (number.parse().ok()?, count.parse().ok()?);
        ((1..=count).contains(&number) && count <= MOST_PORTIONS).then_some(Portion { number, count })
    }

    /// Returns whether this is the first portion, which alone has the losses that were found when the traces were opened.
    pub(super) fn is_first(self) -> bool {
        self.number == 1
    }

    /// Returns the range of this portion alone.
    pub(super) fn alone(self) -> PortionRange {
        PortionRange { first: self.number, last: self.number, count: self.count }
    }

    /// Returns all of `count` portions, at most 2^20.
    pub fn all(count: u32) -> impl Iterator<Item = Portion> {
        (1..=count.min(MOST_PORTIONS)).map(move |number| Portion { number, count })
    }

    /// Returns its share of `bytes`.
    pub fn share(self, bytes: u64) -> u64 {
        bytes / u64::from(self.count)
    }

    /// Selects the chunks or slices of this portion, so that all portions have about the same number of bytes.
    pub(super) fn choose<S>(self, mut all: Vec<S>, bytes: impl Fn(&S) -> u64) -> Vec<S> {
        let total: u64 = all.iter().map(&bytes).sum();
        let mut before = 0;
        all.retain(|chunk| {
            // A chunk belongs to the portion that contains its middle. The first chunk begins with a known state, so it
            // belongs to the first portion.
            let middle = if before == 0 { 0 } else { u128::from(before) + u128::from(bytes(chunk) / 2) };
            before += bytes(chunk);
            let number = middle * u128::from(self.count) / u128::from(total.max(1)) + 1;
            number.min(self.count.into()) == u128::from(self.number)
        });
        all
    }
}

impl fmt::Display for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}
