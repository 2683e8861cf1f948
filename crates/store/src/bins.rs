//! Bins of time. A bin of level 0 spans 2^`base` nanoseconds; a bin of a higher level spans four bins of the level
//! below. A record lies in the smallest bin that contains it.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Binary logarithm of the number of children of a bin.
pub(crate) const FAN_BITS: u32 = 2;
/// The number of the last child of a bin.
const LAST_CHILD: u64 = (1 << FAN_BITS) - 1;
/// The highest level, whose only bin spans all time.
pub(crate) const MOST_LEVEL: u8 = 32;

/// A bin: its level, and its index among the bins of that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Bin {
    pub(crate) level: u8,
    pub(crate) index: u64,
}

/// Returns the binary logarithm of a bin's width in nanoseconds.
pub(crate) fn width_log2(base: u32, level: u8) -> u32 {
    base + FAN_BITS * u32::from(level)
}

/// Returns the index of the cell of 2^`shift` nanoseconds that holds an instant.
pub(crate) fn cell(time: u64, shift: u32) -> u64 {
    time.checked_shr(shift).unwrap_or(0)
}

/// Returns the first instant of a cell of 2^`shift` nanoseconds.
pub(crate) fn start(index: u64, shift: u32) -> u64 {
    index.checked_shl(shift).unwrap_or(0)
}

/// Returns the last instant of a cell of 2^`shift` nanoseconds.
pub(crate) fn end(index: u64, shift: u32) -> u64 {
    let within = 1u64.checked_shl(shift).map_or(u64::MAX, |width| width - 1);
    start(index, shift) | within
}

/// Returns the smallest bin that holds both instants.
pub(crate) fn bin_of(base: u32, first: u64, last: u64) -> Bin {
    let different = cell(first, base) ^ cell(last, base);
    let level = match different.checked_ilog2() {
        None => 0,
        Some(digit) => (digit / FAN_BITS + 1) as u8,
    };
    Bin { level, index: cell(first, width_log2(base, level)) }
}

/// Returns the group of a record in its bin: the children in which it begins and ends.
pub(crate) fn group(base: u32, level: u8, first: u64, last: u64) -> u8 {
    match level.checked_sub(1) {
        None => 0,
        Some(below) => {
            let child = |time| (cell(time, width_log2(base, below)) & LAST_CHILD) as u8;
            (child(first) << FAN_BITS) | child(last)
        }
    }
}

impl Bin {
    pub(crate) fn parent(self) -> Bin {
        Bin { level: self.level + 1, index: self.index >> FAN_BITS }
    }

    /// Returns the first and the last instant of the bin.
    pub(crate) fn span(self, base: u32) -> RangeInclusive<u64> {
        let shift = width_log2(base, self.level);
        start(self.index, shift)..=end(self.index, shift)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_lies_in_the_smallest_bin_that_contains_it(first: u64, length: u64, cut in 0u32..64, half in 0u32..32) {
            let (base, last) = (half * 2, first.saturating_add(length >> cut));
            let bin = bin_of(base, first, last);
            let contains = |bin: Bin| bin.span(base).contains(&first) && bin.span(base).contains(&last);
            prop_assert!(bin.level <= MOST_LEVEL && contains(bin));
            if let Some(below) = bin.level.checked_sub(1) {
                let smaller = Bin { level: below, index: cell(first, width_log2(base, below)) };
                prop_assert!(!contains(smaller));
                prop_assert_eq!(smaller.parent(), bin);
            }
        }
    }
}
