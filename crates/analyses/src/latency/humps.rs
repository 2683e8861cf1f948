//! Two kinds of executions: a histogram with two humps.

/// The least ratio between the lengths on both sides of the gap between two humps.
const GAP: u64 = 4;

/// A hump of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hump {
    /// Number of executions.
    pub count: u64,
    /// Their median.
    pub median: u64,
}

/// Two humps with a gap between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Humps {
    /// The short executions.
    pub fast: Hump,
    /// The long ones.
    pub slow: Hump,
    /// The shortest of the long ones.
    pub from: u64,
    /// What all long ones took beyond the median of the short ones.
    pub extra: u64,
}

/// Splits lengths, in ascending order with their counts, at the gap that separates them best: no length lies between
/// one and four times that one, and of several such gaps it is the one with the greatest variance of the logarithms
/// between both sides (Otsu's method). `None` without such a gap.
pub fn humps(lengths: &[(u64, u64)]) -> Option<Humps> {
    let mut all = Logarithms::default();
    lengths.iter().for_each(|&(length, count)| all.add(length, count));
    let (mut below, mut best) = (Logarithms::default(), None);
    for (index, pair) in lengths.windows(2).enumerate() {
        let [(short, count), (long, _)] = *pair else { continue };
        below.add(short, count);
        if short.max(1).saturating_mul(GAP) > long {
            continue;
        }
        let above = Logarithms { count: all.count - below.count, sum: all.sum - below.sum };
        let distance = above.sum / above.count - below.sum / below.count;
        let variance = above.count * below.count * distance * distance;
        if best.is_none_or(|(most, _)| variance > most) {
            best = Some((variance, index + 1));
        }
    }
    let (fast, slow) = lengths.split_at(best?.1);
    let [fast_hump, slow_hump] = [fast, slow].map(hump);
    let extra = slow.iter().fold(0, |sum: u64, &(length, count)| {
        sum.saturating_add(length.saturating_sub(fast_hump.median).saturating_mul(count))
    });
    Some(Humps { fast: fast_hump, slow: slow_hump, from: slow.first()?.0, extra })
}

/// The number of some lengths, and the sum of their logarithms.
#[derive(Clone, Copy, Default)]
struct Logarithms {
    count: f64,
    sum: f64,
}

impl Logarithms {
    fn add(&mut self, length: u64, count: u64) {
        self.count += count as f64;
        self.sum += count as f64 * (length.max(1) as f64).ln();
    }
}

fn hump(lengths: &[(u64, u64)]) -> Hump {
    let count = lengths.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    let mut below = 0;
    let median = lengths.iter().find(|(_, own)| {
        below += own;
        below >= count.div_ceil(2)
    });
    Hump { count, median: median.map_or(0, |(length, _)| *length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_separates_two_humps_of_any_size() {
        for every in [2, 5, 20, 50, 99, 100, 200, 1000] {
            let slow = 3000 / every;
            let fast = 3000 - slow;
            let split = humps(&[(5, fast - fast / 2), (6, fast / 2), (80_000, slow)]).expect("two humps");
            assert_eq!((split.fast.count, split.slow.count), (fast, slow), "{every}");
            assert_eq!((split.fast.median, split.slow.median, split.from), (5, 80_000, 80_000), "{every}");
            assert_eq!(split.extra, 79_995 * slow, "{every}");
        }
        assert_eq!(humps(&[]), None);
        assert_eq!(humps(&[(7, 100)]), None);
        assert_eq!(humps(&[(10, 50), (20, 30), (39, 20)]), None, "no gap");
        // A single execution above both is not the second hump.
        let split = humps(&[(5, 2000), (80_000, 1000), (80_000_000, 1)]).expect("two humps");
        assert_eq!((split.fast.count, split.slow.count), (2000, 1001));
    }

    proptest! {
        #[test]
        fn both_humps_have_all_executions(lengths in prop::collection::btree_map(any::<u64>(), 1u64..1000, 0..40)) {
            let lengths: Vec<(u64, u64)> = lengths.into_iter().collect();
            if let Some(split) = humps(&lengths) {
                let all: u64 = lengths.iter().map(|(_, count)| count).sum();
                prop_assert_eq!(split.fast.count + split.slow.count, all);
                prop_assert!(split.fast.median.max(1).saturating_mul(GAP) <= split.from);
                prop_assert!(split.from <= split.slow.median);
            }
        }
    }
}
