//! How long things took: exact sums, and percentiles of a stated precision, that add up in any order.

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize};

/// A known span of things joins with the one that follows it.
pub(crate) trait Add {
    /// Adds what a later span has.
    fn add(&mut self, later: Self);
}

/// Adds each entry of a map to that of the same key.
pub(crate) fn add_all<K: std::hash::Hash + Eq, V: Add + Default>(
    map: &mut rustc_hash::FxHashMap<K, V>,
    later: impl IntoIterator<Item = (K, V)>,
) {
    for (key, value) in later {
        map.entry(key).or_default().add(value);
    }
}

/// Lengths of time: how many, their sum, the shortest and the longest, and how they are distributed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Durations {
    /// How many.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) total: u64,
    /// The shortest.
    pub(crate) min: u64,
    /// The longest.
    pub(crate) max: u64,
    /// Buckets in order; apart from how many there are of each, so that they are found in few lines of the cache.
    buckets: Vec<u16>,
    counts: Vec<u64>,
}

/// Bits of a length that its bucket keeps, beside the leading one: a bucket is at most 1/64 of its lengths wide.
const KEPT: u32 = 6;

/// The bucket of a length: itself below 128; above, its magnitude and the bits after the leading one.
fn bucket(length: u64) -> u16 {
    let shift = (64 - length.leading_zeros()).saturating_sub(KEPT + 1);
    ((u64::from(shift) << KEPT) + (length >> shift)) as u16
}

/// The middle of a bucket, rounded down: at most 1/128 from each length in it.
fn middle(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    let shift = (bucket >> KEPT).saturating_sub(1);
    ((bucket - (shift << KEPT)) << shift) + ((1 << shift) >> 1)
}

impl Durations {
    /// Adds one.
    #[inline]
    pub(crate) fn see(&mut self, length: u64) {
        self.min = if self.count == 0 { length } else { self.min.min(length) };
        self.max = self.max.max(length);
        self.count += 1;
        self.total = self.total.saturating_add(length);
        let bucket = bucket(length);
        match self.buckets.binary_search(&bucket) {
            Ok(at) => self.counts[at] += 1,
            Err(at) => self.insert(at, bucket, 1),
        }
    }

    #[cold]
    fn insert(&mut self, at: usize, bucket: u16, count: u64) {
        self.buckets.insert(at, bucket);
        self.counts.insert(at, count);
    }

    /// The mean, rounded down.
    pub(crate) fn average(&self) -> Option<u64> {
        self.total.checked_div(self.count)
    }

    /// The length that this share of them, in per cent, does not exceed: the smallest of which that is true, by
    /// nearest rank, to 1/128 of itself.
    pub(crate) fn percentile(&self, per_cent: u64) -> Option<u64> {
        let rank = (self.count * per_cent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().zip(&self.counts).find(|(_, count)| {
            seen += *count;
            seen >= rank
        });
        found.map(|(&bucket, _)| middle(bucket).clamp(self.min, self.max))
    }
}

impl Add for Durations {
    fn add(&mut self, later: Durations) {
        if later.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = later;
            return;
        }
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.count += later.count;
        self.total = self.total.saturating_add(later.total);
        let mut at = 0;
        for (bucket, count) in later.buckets.into_iter().zip(later.counts) {
            at += self.buckets[at..].partition_point(|&other| other < bucket);
            match self.buckets.get(at) {
                Some(&own) if own == bucket => self.counts[at] += count,
                _ => self.insert(at, bucket, count),
            }
        }
    }
}

/// The longest of some things, the longest first; of equally long ones the earlier.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Longest<T> {
    things: Vec<(u64, Nanos, T)>,
}

impl<T> Default for Longest<T> {
    fn default() -> Longest<T> {
        Longest { things: Vec::new() }
    }
}

impl<T: Ord> Longest<T> {
    /// How many are kept.
    const KEPT: usize = 100;

    /// Adds one that began at some time.
    #[inline]
    pub(crate) fn see(&mut self, length: u64, begin: Nanos, thing: T) {
        if self.things.last().is_none_or(|last| self.things.len() < Self::KEPT || last.0 <= length) {
            self.insert((length, begin, thing));
        }
    }

    fn insert(&mut self, thing: (u64, Nanos, T)) {
        let at = self.things.partition_point(|other| {
            (std::cmp::Reverse(other.0), other.1, &other.2) < (std::cmp::Reverse(thing.0), thing.1, &thing.2)
        });
        self.things.insert(at, thing);
        self.things.truncate(Self::KEPT);
    }

    /// Each with its length and its begin.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, Nanos, T)> {
        self.things.iter()
    }

    /// The same of what each is made to.
    pub(crate) fn map(self, mut to: impl FnMut(T) -> T) -> Longest<T> {
        let things = self.things.into_iter().map(|(length, begin, thing)| (length, begin, to(thing)));
        Longest { things: things.collect() }
    }
}

impl<T: Ord> Add for Longest<T> {
    fn add(&mut self, later: Longest<T>) {
        later.things.into_iter().for_each(|thing| self.insert(thing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_middle_of_a_bucket_is_near_each_of_its_lengths(bits in 0u32..64, length: u64) {
            let length = length >> bits;
            let middle = middle(bucket(length));
            prop_assert!(middle.abs_diff(length) <= length / 128, "{length} and {middle}");
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_list(lengths in prop::collection::vec(0u64..100_000, 1..300), per_cent in 1u64..=100) {
            let mut durations = Durations::default();
            lengths.iter().for_each(|&length| durations.see(length));
            let mut sorted = lengths;
            sorted.sort_unstable();
            let exact = sorted[(sorted.len() as u64 * per_cent).div_ceil(100) as usize - 1];
            prop_assert!(durations.percentile(per_cent).unwrap().abs_diff(exact) <= exact / 128);
        }
    }
}
