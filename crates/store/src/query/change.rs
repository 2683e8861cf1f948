//! The next and the previous change of a lane.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    Budget, Lanes,
    scan::{LaneSet, Scan},
};
use crate::{Error, Table, block::Zone};

impl Table<'_> {
    /// Returns the first instant after `time` at which a record of the lane begins or ends; `None` if there is none.
    ///
    /// # Errors
    /// If the store is damaged or replaced, or the budget is exceeded.
    pub fn next_change(&self, lane: u32, time: u64, budget: &Budget) -> Result<Option<u64>, Error> {
        let extent = self.data.extents.as_ref().and_then(|extents| extents.get(lane as usize));
        if extent.is_some_and(|extent| extent.last <= time) {
            return Ok(None);
        }
        // The earliest possible change in a block.
        let first = |zone: &Zone| match zone {
            zone if zone.ends.most <= time => None,
            zone if zone.begins.least > time => Some(Reverse(zone.begins.least)),
            _ => Some(Reverse(time + 1)),
        };
        let mut next: Option<u64> = None;
        self.changes(lane, budget, first, |Reverse(first), change| match change {
            None => next.is_some_and(|next| next <= first),
            Some(change) => {
                if change > time && next.is_none_or(|next| change < next) {
                    next = Some(change);
                }
                false
            }
        })?;
        Ok(next)
    }

    /// Returns the last instant before `time` at which a record of the lane begins or ends; `None` if there is none.
    ///
    /// # Errors
    /// If the store is damaged or replaced, or the budget is exceeded.
    pub fn previous_change(&self, lane: u32, time: u64, budget: &Budget) -> Result<Option<u64>, Error> {
        let extent = self.data.extents.as_ref().and_then(|extents| extents.get(lane as usize));
        if extent.is_some_and(|extent| extent.first >= time) {
            return Ok(None);
        }
        // The latest possible change in a block.
        let last = |zone: &Zone| match zone {
            zone if zone.begins.least >= time => None,
            zone if zone.ends.most < time => Some(zone.ends.most),
            _ => Some(time - 1),
        };
        let mut previous: Option<u64> = None;
        self.changes(lane, budget, last, |last, change| match change {
            None => previous.is_some_and(|previous| previous >= last),
            Some(change) => {
                if change < time {
                    previous = previous.max(Some(change));
                }
                false
            }
        })?;
        Ok(previous)
    }

    /// Passes the begins and ends of a lane's records to `take`, block by block in order of `bound`, the nearest
    /// first. Skips blocks without a bound. Before each block, calls `take` with `None`, which returns whether to
    /// stop.
    fn changes<B: Ord + Copy>(
        &self,
        lane: u32,
        budget: &Budget,
        bound: impl Fn(&Zone) -> Option<B>,
        mut take: impl FnMut(B, Option<u64>) -> bool,
    ) -> Result<(), Error> {
        let lanes = LaneSet::new(Lanes::Some(&[lane]), self.data.keys.len());
        let mut blocks = Vec::new();
        for (index, part) in self.data.parts.iter().enumerate() {
            let of_lane = part.blocks.iter().enumerate().filter(|(_, (_, zone))| lanes.meets(zone));
            blocks.extend(of_lane.filter_map(|(block, (_, zone))| Some((bound(zone)?, index, block))));
        }
        let (mut blocks, mut scan) = (BinaryHeap::from(blocks), Scan::new(self.data, budget));
        while let Some((bound, part, block)) = blocks.pop() {
            if take(bound, None) {
                break;
            }
            let part = &self.data.parts[part];
            scan.read((part, &part.blocks[block].1), |_, row| {
                if row.lane == lane {
                    take(bound, Some(row.begin));
                    take(bound, Some(row.end));
                }
            })?;
        }
        Ok(())
    }
}
