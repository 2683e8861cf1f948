//! Statistics of durations: exact sums, and percentiles of a fixed precision. Merging is commutative.

use hodo_clock::Nanos;
use hodo_model::Value;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Data of a span that merges with the data of a later span.
pub trait Add {
    /// Adds the data of a later span.
    fn add(&mut self, later: Self);
}

impl Add for u64 {
    #[inline]
    fn add(&mut self, later: u64) {
        *self = self.saturating_add(later);
    }
}

impl<A: Add, B: Add> Add for (A, B) {
    #[inline]
    fn add(&mut self, later: (A, B)) {
        self.0.add(later.0);
        self.1.add(later.1);
    }
}

/// Implements [`Add`] field by field. Sums of results that calls return, which may be anything in a damaged trace, are
/// `wrapping`.
macro_rules! add_fields {
    ($type:ty { $($field:ident),+ } $(wrapping { $($wrapping:ident),+ })?) => {
        impl $crate::durations::Add for $type {
            #[inline]
            fn add(&mut self, later: $type) {
                // All fields by name, so that none is forgotten.
                let Self { $($field),+ $(, $($wrapping),+)? } = later;
                $($crate::durations::Add::add(&mut self.$field, $field);)+
                $($(self.$wrapping = self.$wrapping.wrapping_add($wrapping);)+)?
            }
        }
    };
}
pub(crate) use add_fields;

/// Adds each entry of a map to the entry with the same key.
pub(crate) fn add_all<K: std::hash::Hash + Eq, V: Add + Default>(
    map: &mut rustc_hash::FxHashMap<K, V>,
    later: impl IntoIterator<Item = (K, V)>,
) {
    for (key, value) in later {
        map.entry(key).or_default().add(value);
    }
}

/// The count, sum, shortest, longest and distribution of some durations, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(into = "SerializedDurations", try_from = "SerializedDurations")]
pub struct Durations {
    /// The number of durations.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) total: u64,
    /// The shortest.
    pub(crate) min: u64,
    /// The longest.
    pub(crate) max: u64,
    /// The number of slots in use.
    used: u32,
    /// A hash table from bucket to count. Each slot holds both in one word, and 0 if it is free. Buckets are small
    /// numbers close to each other, so most are found in the first slot. Most threads make a call once or twice, which
    /// takes no further memory.
    slots: SmallVec<[u64; SMALLEST]>,
}

/// Slots of the smallest table.
const SMALLEST: usize = 4;
/// Maximum size of a table that may be completely full: scanning it is cheap.
const LARGEST_FULL: usize = 8;

/// Bits of the count in a slot: no trace contains more events.
const COUNT_BITS: u32 = 52;

/// The form that is sent between processes.
#[derive(Serialize, Deserialize)]
struct SerializedDurations {
    total: u64,
    min: u64,
    max: u64,
    /// In order, with their counts.
    buckets: Vec<(u16, u64)>,
}

impl From<Durations> for SerializedDurations {
    fn from(durations: Durations) -> SerializedDurations {
        let &Durations { total, min, max, .. } = &durations;
        SerializedDurations { total, min, max, buckets: durations.buckets().collect() }
    }
}

impl TryFrom<SerializedDurations> for Durations {
    type Error = &'static str;

    fn try_from(serialized: SerializedDurations) -> Result<Durations, &'static str> {
        let SerializedDurations { total, min, max, buckets } = serialized;
        let mut durations = Durations { total, min, max, ..Durations::default() };
        for (number, count) in buckets {
            let is_bucket = number <= bucket(u64::MAX) && (1..1 << COUNT_BITS).contains(&count);
            durations.count = durations.count.checked_add(count).filter(|_| is_bucket).ok_or("no bucket")?;
            durations.put(number, count);
        }
        Ok(durations)
    }
}

/// Number of bits after the leading one that determine the bucket of a duration: a bucket is at most 1/64 of its
/// durations wide.
const KEPT_BITS: u32 = 6;

/// Returns the bucket of a duration: below 128 the duration; above, its magnitude and the bits after the leading one.
fn bucket(length: u64) -> u16 {
    let shift = (64 - length.leading_zeros()).saturating_sub(KEPT_BITS + 1);
    ((u64::from(shift) << KEPT_BITS) + (length >> shift)) as u16
}

/// Returns the middle of a bucket, rounded down. It differs by at most 1/128 from each duration in the bucket.
fn middle(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    let shift = (bucket >> KEPT_BITS).saturating_sub(1);
    ((bucket - (shift << KEPT_BITS)) << shift) + ((1 << shift) >> 1)
}

impl Durations {
    /// Adds a duration.
    #[inline]
    pub(crate) fn see(&mut self, length: u64) {
        self.see_times(length, 1);
    }

    /// Adds a duration `times` times.
    #[inline]
    pub(crate) fn see_times(&mut self, length: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.min = if self.count == 0 { length } else { self.min.min(length) };
        self.max = self.max.max(length);
        self.count += times;
        self.total = self.total.saturating_add(length.saturating_mul(times));
        self.put(bucket(length), times);
    }

    /// Adds a count to a bucket.
    #[inline]
    fn put(&mut self, bucket: u16, count: u64) {
        let own = u64::from(bucket) + 1;
        let mask = self.slots.len().wrapping_sub(1);
        // The bound keeps the search finite for any content of the table.
        for step in 0..self.slots.len() {
            let slot = &mut self.slots[(usize::from(bucket) + step) & mask];
            if *slot >> COUNT_BITS == own {
                *slot += count;
                return;
            }
            if *slot == 0 {
                break;
            }
        }
        self.insert(bucket, count);
    }

    /// Puts a bucket into a free slot. A small table grows when it is full, a large one when it is three quarters full.
    #[inline(never)]
    fn insert(&mut self, bucket: u16, count: u64) {
        let size = self.slots.len();
        if self.used as usize >= if size <= LARGEST_FULL { size } else { size / 4 * 3 } {
            let slots = SmallVec::from_elem(0, (size * 2).max(SMALLEST));
            let full = std::mem::replace(&mut self.slots, slots);
            self.used = 0;
            full.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.fill(slot));
        }
        self.fill((u64::from(bucket) + 1) << COUNT_BITS | count);
    }

    /// Writes the content of a slot to the first free one.
    fn fill(&mut self, own: u64) {
        let mask = self.slots.len() - 1;
        let first = (own >> COUNT_BITS) as usize - 1;
        let free = (0..=mask).map(|step| (first + step) & mask).find(|&slot| self.slots[slot] == 0);
        if let Some(free) = free {
            self.slots[free] = own;
            self.used += 1;
        }
    }

    /// Returns the used buckets in order, with their counts.
    fn buckets(&self) -> impl Iterator<Item = (u16, u64)> {
        let mut all: Vec<u64> = self.slots.iter().copied().filter(|slot| *slot != 0).collect();
        all.sort_unstable();
        all.into_iter().map(split)
    }

    /// Returns the duration of a rank from the longest on, to within 1/128.
    pub(crate) fn longest(&self, rank: u64) -> Option<u64> {
        let mut counted = 0;
        let buckets: Vec<(u16, u64)> = self.buckets().collect();
        let (bucket, _) = buckets.into_iter().rev().find(|(_, count)| {
            counted += count;
            counted >= rank
        })?;
        Some(middle(bucket).max(self.min).min(self.max))
    }

    /// Returns the durations in ascending order, each to within 1/128, with the number of durations in its bucket.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets().map(|(bucket, count)| (middle(bucket).max(self.min).min(self.max), count))
    }

    /// The durations in bins from one power of two to the next, and one bin for 0: its lower bound, and its count.
    /// Bins between the first and the last may be empty.
    pub(crate) fn doubling(&self) -> Vec<(u64, u64)> {
        let mut bins: Vec<(u64, u64)> = Vec::new();
        for (bucket, count) in self.buckets() {
            // A bucket lies within one bin.
            let from = middle(bucket).checked_ilog2().map_or(0, |bits| 1 << bits);
            while let Some(&(last, _)) = bins.last()
                && last < from
            {
                bins.push((last.saturating_mul(2).max(1), 0));
            }
            match bins.last_mut() {
                Some((_, sum)) => *sum += count,
                None => bins.push((from, count)),
            }
        }
        bins
    }

    /// Adds the durations of `others`.
    pub(crate) fn join(&mut self, others: &Durations) {
        if others.count == 0 {
            return;
        }
        self.min = if self.count == 0 { others.min } else { self.min.min(others.min) };
        self.max = self.max.max(others.max);
        self.count += others.count;
        self.total = self.total.saturating_add(others.total);
        let slots = others.slots.iter().copied().filter(|slot| *slot != 0);
        slots.map(split).for_each(|(bucket, count)| self.put(bucket, count));
    }

    /// The mean, rounded down.
    pub(crate) fn average(&self) -> Option<u64> {
        self.total.checked_div(self.count)
    }

    /// Returns percentiles by nearest rank, for shares in ascending order: the smallest duration that at least this
    /// share of the durations does not exceed, to within 1/128.
    pub(crate) fn percentiles<const N: usize>(&self, per_cent: [u64; N]) -> [Option<u64>; N] {
        let mut buckets = self.buckets();
        let (mut last, mut counted) = (None, 0);
        per_cent.map(|per_cent| {
            let rank = (self.count * per_cent).div_ceil(100).max(1);
            while counted < rank {
                let (bucket, count) = buckets.next()?;
                (last, counted) = (Some(bucket), counted + count);
            }
            last.map(|bucket| middle(bucket).max(self.min).min(self.max))
        })
    }
}

impl Add for Durations {
    fn add(&mut self, later: Durations) {
        match self.count {
            0 => *self = later,
            _ => self.join(&later),
        }
    }
}

/// Returns the bucket and the count of a slot.
fn split(slot: u64) -> (u16, u64) {
    ((slot >> COUNT_BITS) as u16 - 1, slot & ((1 << COUNT_BITS) - 1))
}

/// An item with its duration in nanoseconds and its begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LongItem<T> {
    pub(crate) length: u64,
    pub(crate) begin: Nanos,
    pub(crate) item: T,
}

/// The longest items in descending order; of equally long ones, the earlier first. With `ALL` all items, in order of begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Longest<T, const ALL: bool = false> {
    items: Vec<LongItem<T>>,
    /// The number of items, of which some are dropped.
    count: u64,
}

impl<T, const ALL: bool> Default for Longest<T, ALL> {
    fn default() -> Longest<T, ALL> {
        Longest { items: Vec::new(), count: 0 }
    }
}

impl<T: Ord, const ALL: bool> Longest<T, ALL> {
    /// How many are kept.
    const KEPT: usize = 100;

    /// Adds an item with its duration and begin.
    #[inline]
    pub(crate) fn see(&mut self, length: u64, begin: Nanos, item: T) {
        self.count += 1;
        if ALL {
            self.items.push(LongItem { length, begin, item });
        } else if self.items.last().is_none_or(|last| self.items.len() < Self::KEPT || last.length <= length)
        {
            self.insert(LongItem { length, begin, item });
        }
    }

    fn insert(&mut self, new: LongItem<T>) {
        let index = self.items.partition_point(|other| {
            (new.length, other.begin, &other.item) < (other.length, new.begin, &new.item)
        });
        self.items.insert(index, new);
        self.items.truncate(Self::KEPT);
    }

    /// Returns the items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LongItem<T>> {
        let mut items: Vec<_> = self.items.iter().collect();
        if ALL {
            items.sort_by_key(|long| (long.begin, long.length, &long.item));
        }
        items.into_iter()
    }

    /// Returns a figure of a summary that says how many items there were, if some were dropped.
    pub(crate) fn note(&self) -> Option<(&'static str, Value)> {
        let (kept, count) = (self.items.len(), self.count);
        let text = format!("the {kept} longest of {count}; the view `interval` has all");
        (count > kept as u64).then(|| ("note", text.into()))
    }

    /// Maps each item.
    pub(crate) fn map(self, mut to: impl FnMut(T) -> T) -> Longest<T, ALL> {
        let items = self.items.into_iter().map(|long| LongItem { item: to(long.item), ..long });
        Longest { items: items.collect(), count: self.count }
    }
}

impl<T: Ord, const ALL: bool> Add for Longest<T, ALL> {
    fn add(&mut self, later: Longest<T, ALL>) {
        self.count = self.count.saturating_add(later.count);
        match ALL {
            true => self.items.extend(later.items),
            false => later.items.into_iter().for_each(|item| self.insert(item)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_say_how_many_there_were() {
        let (mut longest, mut all) = (Longest::<u64>::default(), Longest::<u64, true>::default());
        for n in 0..100 {
            longest.see(n % 7, Nanos(n), n);
            all.see(n % 7, Nanos(n), n);
        }
        assert_eq!(longest.note(), None);
        let (mut more, mut rest) = (Longest::<u64>::default(), Longest::<u64, true>::default());
        for n in 100..170 {
            more.see(n, Nanos(n), n);
            rest.see(n, Nanos(n), n);
        }
        longest.add(more);
        rest.add(all);
        let note = Value::from("the 100 longest of 170; the view `interval` has all");
        assert_eq!((longest.note(), longest.iter().count()), (Some(("note", note)), 100));
        assert_eq!(rest.note(), None);
        assert!(rest.iter().map(|item| item.begin.0).eq(0..170));
    }

    proptest! {
        #[test]
        fn the_middle_of_a_bucket_is_near_each_of_its_lengths(bits in 0u32..64, length: u64) {
            let length = length >> bits;
            let middle = middle(bucket(length));
            prop_assert!(middle.abs_diff(length) <= length / 128, "{length} and {middle}");
        }

        #[test]
        fn bins_that_double_hold_each_duration(lengths in prop::collection::vec((any::<u64>(), 0u32..64), 1..60), times in 1u64..5) {
            let mut durations = Durations::default();
            let lengths: Vec<u64> = lengths.into_iter().map(|(length, shift)| length >> shift).collect();
            lengths.iter().for_each(|&length| durations.see_times(length, times));
            prop_assert_eq!(durations.count, lengths.len() as u64 * times);
            for (from, count) in durations.doubling() {
                let inside = lengths.iter().filter(|&&length| length >= from && (length >> 1) < from.max(1) && (from > 0 || length == 0));
                prop_assert_eq!(inside.count() as u64 * times, count);
            }
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_list(
            lengths in prop::collection::vec(0u64..100_000, 1..300),
            mut per_cent in prop::array::uniform3(1u64..=100),
        ) {
            let mut durations = Durations::default();
            lengths.iter().for_each(|&length| durations.see(length));
            let mut sorted = lengths;
            sorted.sort_unstable();
            per_cent.sort_unstable();
            for (per_cent, found) in per_cent.into_iter().zip(durations.percentiles(per_cent)) {
                let exact = sorted[(sorted.len() as u64 * per_cent).div_ceil(100) as usize - 1];
                prop_assert!(found.unwrap().abs_diff(exact) <= exact / 128);
            }
        }
    }
}
