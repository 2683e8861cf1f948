//! Finds the fewest pairs to drop: a minimum vertex cover of the conflicts, computed from a maximum matching.
//!
//! A lower and an upper bound of a clock's offset conflict if the lower one exceeds the upper one by more than the
//! drift bound allows over their distance. With `falling = value + slope · x` and `rising = value − slope · x`, a
//! conflict is dominance in both coordinates, so:
//!
//! * a greedy sweep finds a maximum matching of conflicting bounds;
//! * König's theorem turns it into a minimum vertex cover: the smallest set whose removal leaves no conflict.
//!
//! Both take O(n log n). A set of bounds without pairwise conflicts has a function of bounded slope through it
//! (McShane 1934), so checking pairs is sufficient.

use std::collections::BTreeSet;

use crate::bounds::{Bound, LOWER, UPPER};

/// Rounding error of `slope · x` in units, which must not cause a conflict.
const ROUNDING: i64 = 2;

/// Returns whether no two bounds conflict. `bounds` are sorted by x.
pub(crate) fn consistent(bounds: &[Bound]) -> bool {
    let (mut highest, mut lowest) = (i64::MIN, i64::MAX);
    for bound in bounds {
        if bound.upper {
            if bound.falling + ROUNDING < highest {
                return false;
            }
            lowest = lowest.min(bound.rising);
        } else {
            if bound.rising > lowest.saturating_add(ROUNDING) {
                return false;
            }
            highest = highest.max(bound.falling);
        }
    }
    true
}

/// Returns the least number of bounds to remove until none conflict.
pub(crate) fn conflicts(bounds: &[Bound]) -> usize {
    if consistent(bounds) { 0 } else { Conflicts::new(bounds).matched }
}

/// Returns the ascending indices of a smallest set of bounds whose removal makes the rest consistent.
pub(crate) fn fewest(bounds: &[Bound]) -> Vec<usize> {
    if consistent(bounds) {
        return Vec::new();
    }
    Conflicts::new(bounds).cover()
}

/// A bound in the coordinates of dominance.
#[derive(Clone, Copy)]
struct Corner {
    rising: i64,
    falling: i64,
    index: usize,
}

/// Lower and upper bounds sorted by `rising`, and a maximum matching of conflicting bounds.
struct Conflicts {
    lowers: Vec<Corner>,
    uppers: Vec<Corner>,
    /// For each lower bound, the index of its partner in `uppers`.
    partner_of_lower: Vec<Option<usize>>,
    partner_of_upper: Vec<Option<usize>>,
    matched: usize,
}

impl Conflicts {
    fn new(bounds: &[Bound]) -> Conflicts {
        let side = |upper: bool| {
            let rounding = if upper { ROUNDING } else { 0 };
            let of_side = bounds.iter().enumerate().filter(|(_, bound)| bound.upper == upper);
            let corner = |(index, bound): (usize, &Bound)| Corner {
                rising: bound.rising + rounding,
                falling: bound.falling + rounding,
                index,
            };
            let mut corners: Vec<Corner> = of_side.map(corner).collect();
            corners.sort_unstable_by_key(|corner| (corner.rising, corner.index));
            corners
        };
        let (lowers, uppers) = (side(LOWER), side(UPPER));
        let mut conflicts = Conflicts {
            partner_of_lower: vec![None; lowers.len()],
            partner_of_upper: vec![None; uppers.len()],
            lowers,
            uppers,
            matched: 0,
        };
        conflicts.match_greedily();
        conflicts
    }

    /// Matches each lower bound, in order of `rising`, with the free upper bound of greatest `falling` that it
    /// dominates. Later lower bounds dominate at least as much in `rising`, so no other choice is better.
    fn match_greedily(&mut self) {
        let mut free = BTreeSet::new();
        let mut next = 0;
        for (index, lower) in self.lowers.iter().enumerate() {
            while next < self.uppers.len() && self.uppers[next].rising < lower.rising {
                free.insert((self.uppers[next].falling, next));
                next += 1;
            }
            let Some(&best) = free.range(..(lower.falling, 0)).next_back() else { continue };
            free.remove(&best);
            let (_, upper) = best;
            self.partner_of_lower[index] = Some(upper);
            self.partner_of_upper[upper] = Some(index);
            self.matched += 1;
        }
    }

    /// Applies König's theorem: the cover holds the lower bounds that alternating paths from unmatched lower bounds do
    /// not reach, and the upper bounds that they reach.
    fn cover(&self) -> Vec<usize> {
        let mut reached_lower = vec![false; self.lowers.len()];
        let mut unreached = MinimumTree::new(&self.uppers);
        let mut open: Vec<usize> =
            (0..self.lowers.len()).filter(|&lower| self.partner_of_lower[lower].is_none()).collect();
        for &lower in &open {
            reached_lower[lower] = true;
        }
        let mut cover = Vec::new();
        while let Some(index) = open.pop() {
            let lower = self.lowers[index];
            let end = self.uppers.partition_point(|upper| upper.rising < lower.rising);
            while let Some(upper) = unreached.take_below(end, lower.falling) {
                cover.push(self.uppers[upper].index);
                if let Some(partner) = self.partner_of_upper[upper]
                    && !std::mem::replace(&mut reached_lower[partner], true)
                {
                    open.push(partner);
                }
            }
        }
        let unreached = reached_lower.iter().zip(&self.lowers).filter(|(reached, _)| !**reached);
        cover.extend(unreached.map(|(_, lower)| lower.index));
        cover.sort_unstable();
        cover
    }
}

/// A segment tree of the least `falling` over ranges of upper bounds, with removal.
struct MinimumTree {
    leaves: usize,
    /// The least `falling` below each node; the root is 1.
    least: Vec<i64>,
}

impl MinimumTree {
    fn new(uppers: &[Corner]) -> MinimumTree {
        let leaves = uppers.len().next_power_of_two();
        let mut least = vec![i64::MAX; 2 * leaves];
        for (leaf, upper) in least[leaves..].iter_mut().zip(uppers) {
            *leaf = upper.falling;
        }
        for node in (1..leaves).rev() {
            least[node] = least[2 * node].min(least[2 * node + 1]);
        }
        MinimumTree { leaves, least }
    }

    /// Removes and returns a bound among the first `end` whose `falling` is less than `limit`.
    fn take_below(&mut self, end: usize, limit: i64) -> Option<usize> {
        let leaf = self.find(1, 0, self.leaves, end, limit)?;
        let mut node = leaf + self.leaves;
        self.least[node] = i64::MAX;
        while node > 1 {
            node /= 2;
            self.least[node] = self.least[2 * node].min(self.least[2 * node + 1]);
        }
        Some(leaf)
    }

    fn find(&self, node: usize, from: usize, length: usize, end: usize, limit: i64) -> Option<usize> {
        if from >= end || self.least[node] >= limit {
            return None;
        }
        if length == 1 {
            return Some(from);
        }
        let half = length / 2;
        self.find(2 * node, from, half, end, limit)
            .or_else(|| self.find(2 * node + 1, from + half, half, end, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Slope;
    use proptest::prelude::*;

    fn bound(x: i64, value: i64, upper: bool) -> Bound {
        Bound::new(x, value, upper, Slope::from_ppb(100_000_000), 0)
    }

    #[test]
    fn one_wrong_bound_against_many_is_the_one_that_is_removed() {
        let mut bounds: Vec<Bound> = (0..20).map(|index| bound(index * 100, 50, UPPER)).collect();
        bounds.extend((0..20).map(|index| bound(index * 100 + 50, -50, LOWER)));
        bounds.push(bound(1_000, 5_000, LOWER));
        bounds.sort_by_key(|bound| bound.x);
        let fewest = fewest(&bounds);
        assert_eq!(fewest.len(), 1);
        assert_eq!(bounds[fewest[0]].value, 5_000);
    }

    proptest! {
        /// Compares with every subset, on small inputs.
        #[test]
        fn the_cover_is_valid_and_minimal(
            values in prop::collection::vec((0i64..2_000, -200i64..200, any::<bool>()), 0..11)
        ) {
            let mut bounds: Vec<Bound> =
                values.iter().map(|&(x, value, upper)| bound(x, value, upper)).collect();
            bounds.sort_by_key(|bound| bound.x);
            // A set of removed bounds is a mask of their indices.
            let without = |removed: u32| -> Vec<Bound> {
                let stays = |&(index, _): &(usize, &Bound)| removed >> index & 1 == 0;
                bounds.iter().enumerate().filter(stays).map(|(_, bound)| *bound).collect()
            };
            let chosen = fewest(&bounds).iter().fold(0, |set, &index| set | 1u32 << index);
            prop_assert!(consistent(&without(chosen)));
            let least = (0..1u32 << bounds.len()).filter(|&removed| consistent(&without(removed)))
                .map(u32::count_ones).min().unwrap();
            prop_assert_eq!(chosen.count_ones(), least);
            prop_assert_eq!(conflicts(&bounds), least as usize);
        }
    }
}
