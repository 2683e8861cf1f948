//! Values over time, in bins whose width depends only on the time span that they cover.

use std::hash::Hash;

use hodo_clock::Nanos;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::durations::{Add, add_all};

/// Maximum number of bins; more are merged into wider ones.
const MOST: u64 = 100;
/// The width of the narrowest bins, in nanoseconds: 1 µs, then 5 µs, 10 µs, 50 µs …
const NARROWEST: u64 = 1000;

/// Returns the bin width of a level, a multiple of the width of the previous level.
fn width(level: u32) -> u64 {
    let tens = NARROWEST.saturating_mul(10u64.saturating_pow(level / 2));
    if level.is_multiple_of(2) { tens } else { tens.saturating_mul(5) }
}

/// One bin of a value that varies over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ValueBin {
    /// Integral of the value over the bin: value times nanoseconds.
    pub(crate) area: u64,
    /// The largest value.
    pub(crate) most: u64,
}

impl Add for ValueBin {
    fn add(&mut self, later: ValueBin) {
        self.area = self.area.saturating_add(later.area);
        self.most = self.most.max(later.most);
    }
}

/// Bins of several keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "K: Serialize", deserialize = "K: DeserializeOwned + Hash + Eq"))]
pub(crate) struct ValueBins<K> {
    level: u32,
    /// The earliest time and the latest.
    span: Option<(u64, u64)>,
    bins: FxHashMap<(u64, K), ValueBin>,
}

impl<K> Default for ValueBins<K> {
    fn default() -> ValueBins<K> {
        ValueBins { level: 0, span: None, bins: FxHashMap::default() }
    }
}

impl<K: Hash + Eq + Copy> ValueBins<K> {
    /// Adds an amount to a key's value in a span of time.
    pub(crate) fn see(&mut self, key: K, (from, to): (Nanos, Nanos), amount: u64) {
        if from >= to {
            return;
        }
        self.cover(from.0, to.0);
        let width = width(self.level);
        for index in from.0 / width..=(to.0 - 1) / width {
            let length = overlap(Nanos(index * width), width, (from, to));
            let bin = self.bins.entry((index, key)).or_default();
            bin.add(ValueBin { area: amount.saturating_mul(length), most: amount });
        }
    }

    /// Subtracts 1 from a key's value in a span of time that was added before; the largest values stay.
    pub(crate) fn take_out(&mut self, key: K, (from, to): (Nanos, Nanos)) {
        let width = width(self.level);
        if from >= to {
            return;
        }
        for index in from.0 / width..=(to.0 - 1) / width {
            let length = overlap(Nanos(index * width), width, (from, to));
            if let Some(bin) = self.bins.get_mut(&(index, key)) {
                bin.area = bin.area.saturating_sub(length);
            }
        }
    }

    /// Extends the span, and widens the bins if there are too many.
    fn cover(&mut self, from: u64, to: u64) {
        let (first, last) = self.span.map_or((from, to), |(first, last)| (first.min(from), last.max(to)));
        self.span = Some((first, last));
        // Fast path without divisions: the bins mostly suffice.
        if last - first < width(self.level).saturating_mul(MOST - 1) {
            return;
        }
        let mut level = self.level;
        while last / width(level) - first / width(level) >= MOST {
            level += 1;
        }
        self.widen(level);
    }

    fn widen(&mut self, level: u32) {
        if level == self.level {
            return;
        }
        let times = width(level) / width(self.level);
        let mut wider = FxHashMap::default();
        let bins = std::mem::take(&mut self.bins).into_iter();
        add_all(&mut wider, bins.map(|((index, key), bin)| ((index / times, key), bin)));
        (self.bins, self.level) = (wider, level);
    }

    /// Adds the bins of the next task; `known` maps its keys to those of this one.
    pub(crate) fn add(&mut self, mut later: ValueBins<K>, known: impl Fn(K) -> K) {
        let Some((first, last)) = later.span else { return };
        self.cover(first, last);
        self.widen(self.level.max(later.level));
        later.widen(self.level);
        add_all(&mut self.bins, later.bins.into_iter().map(|((index, key), bin)| ((index, known(key)), bin)));
    }

    /// The width of bins, in nanoseconds.
    pub(crate) fn width(&self) -> u64 {
        width(self.level)
    }

    /// Returns the bins that are not empty by their begin and key.
    pub(crate) fn into_bins(self) -> impl Iterator<Item = ((Nanos, K), ValueBin)> {
        let width = self.width();
        self.bins.into_iter().map(move |((index, key), bin)| ((Nanos(index * width), key), bin))
    }
}

/// Returns the length of the part of a bin that lies within a span, in nanoseconds.
pub(crate) fn overlap(begin: Nanos, width: u64, (first, last): (Nanos, Nanos)) -> u64 {
    last.0.min(begin.0.saturating_add(width)).saturating_sub(first.0.max(begin.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bins_are_the_same_of_one_task_and_of_two(
            spans in prop::collection::vec((0u64..1 << 40, 0u64..1 << 30, 0u64..5), 1..40),
            cut: prop::sample::Index,
        ) {
            let bins_of = |spans: &[(u64, u64, u64)]| {
                let mut bins = ValueBins::default();
                spans.iter().for_each(|&(from, length, amount)| bins.see((), (Nanos(from), Nanos(from + length)), amount));
                bins
            };
            let (whole, cut) = (bins_of(&spans), cut.index(spans.len()));
            let mut parts = bins_of(&spans[..cut]);
            parts.add(bins_of(&spans[cut..]), |()| ());
            prop_assert_eq!((whole.level, whole.span), (parts.level, parts.span));
            prop_assert!(whole.bins == parts.bins);
            let area: u64 = spans.iter().map(|(_, length, amount)| length * amount).sum();
            prop_assert_eq!(whole.bins.values().map(|bin| bin.area).sum::<u64>(), area);
        }
    }
}
