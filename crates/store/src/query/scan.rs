//! Selects the blocks that may match a query, and reads their rows.

use std::{ops::RangeInclusive, os::unix::fs::FileExt, sync::atomic::Ordering};

use super::{Budget, Lanes};
use crate::{
    bins::{Bin, cell, width_log2},
    block::{Bounds, Codec, Compression, Zone},
    error::Error,
    finish::read_block,
    fold::{Summary, SummaryZone, decode_summaries},
    reader::{RowsOfFile, TableData},
    rows::{CommonFields, Rows},
};

/// A block, and the file that holds it.
pub(super) type Block<'s> = (&'s RowsOfFile, &'s Zone);

/// A set of lanes, prepared for fast tests.
#[derive(Debug)]
pub(super) struct LaneSet {
    /// Sorted; `None` for all lanes.
    lanes: Option<Vec<u32>>,
    /// The remainders of the lanes modulo 64, one bit each: a quick test that rules out most blocks.
    bits: u64,
    /// The lanes themselves, one bit each.
    members: Vec<u64>,
}

impl LaneSet {
    pub(super) fn new(lanes: Lanes<'_>, count: usize) -> LaneSet {
        let Lanes::Some(lanes) = lanes else {
            return LaneSet { lanes: None, bits: u64::MAX, members: Vec::new() };
        };
        let mut lanes: Vec<u32> = lanes.iter().copied().filter(|&lane| (lane as usize) < count).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let mut members = vec![0; count.div_ceil(64)];
        lanes.iter().for_each(|&lane| members[lane as usize / 64] |= 1 << (lane & 63));
        LaneSet {
            bits: lanes.iter().fold(0, |bits, lane| bits | 1 << (lane & 63)),
            lanes: Some(lanes),
            members,
        }
    }

    /// Returns the lanes of the set, of `count` lanes.
    pub(super) fn list(&self, count: u32) -> Vec<u32> {
        self.lanes.clone().unwrap_or_else(|| (0..count).collect())
    }

    fn meets_range(&self, range: Bounds<u32>) -> bool {
        match &self.lanes {
            None => true,
            Some(lanes) => {
                let next = lanes.partition_point(|&lane| lane < range.least);
                lanes.get(next).is_some_and(|&lane| lane <= range.most)
            }
        }
    }

    pub(super) fn meets(&self, zone: &Zone) -> bool {
        zone.lane_bits & self.bits != 0 && self.meets_range(zone.lanes)
    }

    #[inline]
    pub(super) fn has(&self, lane: u32) -> bool {
        self.lanes.is_none()
            || self.members.get(lane as usize / 64).is_some_and(|word| word >> (lane & 63) & 1 == 1)
    }
}

/// The state of a running query.
#[derive(Debug)]
pub(super) struct Scan<'b> {
    budget: &'b Budget,
    left: u64,
    codec: Codec,
    rows: Rows,
}

impl<'b> Scan<'b> {
    pub(super) fn new(table: &TableData, budget: &'b Budget) -> Scan<'b> {
        let rows = Rows::new(table.schema.columns.len());
        Scan { budget, left: budget.rows, codec: Codec::default(), rows }
    }

    /// Subtracts work from the budget.
    pub(super) fn spend(&mut self, work: u64) -> Result<(), Error> {
        if self.budget.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Error::Stopped);
        }
        self.left = self.left.checked_sub(work).ok_or(Error::TooMuch(self.budget.rows))?;
        Ok(())
    }

    /// Passes each row of a block to `receive`, with all rows of the block.
    pub(super) fn read(
        &mut self,
        (part, zone): Block<'_>,
        mut receive: impl FnMut(&Rows, &CommonFields),
    ) -> Result<(), Error> {
        self.spend(zone.rows.into())?;
        // The blocks of a history, which has bins, are compressed; those of a log are not.
        let compression = if part.bins.is_some() { Compression::Lz4 } else { Compression::None };
        read_block(&part.path, &part.file, (zone, compression), &mut self.codec, &mut self.rows)?;
        self.rows.rows.iter().for_each(|row| receive(&self.rows, row));
        Ok(())
    }

    /// Reads the summaries of the bins and lanes that `wants` selects.
    pub(super) fn summaries(
        &mut self,
        part: &RowsOfFile,
        zone: &SummaryZone,
        wants: impl Fn(u64, u32) -> bool,
    ) -> Result<Vec<Summary>, Error> {
        self.spend(zone.entries.into())?;
        let mut bytes = vec![0; zone.length as usize];
        part.file.read_exact_at(&mut bytes, zone.offset).map_err(Error::system(&part.path))?;
        decode_summaries(&bytes, zone, wants).ok_or_else(|| Error::Damaged {
            file: part.path.clone(),
            offset: zone.offset,
            expected: "a block of summaries that is whole",
        })
    }
}

/// Appends the blocks of a part that may hold records of `lanes` in `span`, in bins of `levels`.
pub(super) fn blocks_of<'s>(
    part: &'s RowsOfFile,
    span: &RangeInclusive<u64>,
    lanes: &LaneSet,
    levels: RangeInclusive<u8>,
    to: &mut Vec<Block<'s>>,
) {
    let (&first, &last) = (span.start(), span.end());
    let mut take = |blocks: &'s [(Bin, Zone)]| {
        for (_, zone) in blocks {
            if zone.begins.least <= last && zone.lasts.most >= first && lanes.meets(zone) {
                to.push((part, zone));
            }
        }
    };
    let Some(bins) = &part.bins else { return take(&part.blocks) };
    for level in levels.filter(|&level| level <= bins.top) {
        let bin = |time| Bin { level, index: cell(time, width_log2(bins.base, level)) };
        let begin = part.blocks.partition_point(|(own, _)| *own < bin(first));
        let end = part.blocks.partition_point(|(own, _)| *own <= bin(last));
        take(&part.blocks[begin..end.max(begin)]);
    }
}

/// Returns the blocks of all parts and levels that may hold records of `lanes` in `span`.
pub(super) fn blocks<'s>(
    table: &'s TableData,
    span: &RangeInclusive<u64>,
    lanes: &LaneSet,
) -> Vec<Block<'s>> {
    let mut blocks = Vec::new();
    table.parts.iter().for_each(|part| blocks_of(part, span, lanes, 0..=u8::MAX, &mut blocks));
    blocks
}

/// Returns the summary blocks of a level that may hold `lanes` in a range of bins.
pub(super) fn summaries_of<'s>(
    summaries: &'s [SummaryZone],
    level: u8,
    bins: RangeInclusive<u64>,
    lanes: &LaneSet,
) -> impl Iterator<Item = &'s SummaryZone> {
    let begin = summaries.partition_point(|zone| zone.level < level);
    let end = summaries.partition_point(|zone| (zone.level, zone.bins.least) <= (level, *bins.end()));
    let may_hold =
        move |zone: &&SummaryZone| zone.bins.most >= *bins.start() && lanes.meets_range(zone.lanes);
    summaries[begin..end.max(begin)].iter().filter(may_hold)
}
