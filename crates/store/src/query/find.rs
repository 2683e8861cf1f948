//! Records one by one: what overlaps a span, those of some duration, the longest.

use std::{cmp::Reverse, collections::BinaryHeap, ops::RangeInclusive};

use super::{
    Budget, Lanes,
    scan::{LaneSet, Scan, blocks},
};
use crate::{
    Error, Record, Refused, Table,
    block::{Zone, duration_bit, value_bit},
    rows::Row,
    schema::Shape,
};

/// Which records are wanted.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Of which lanes; links are those of both of their lanes.
    pub lanes: Lanes<'a>,
    /// With an instant in this span: the first instant, and the first behind it.
    pub span: (u64, u64),
    /// Of these durations, as those of a bar of a histogram.
    pub durations: RangeInclusive<u64>,
    /// With this value.
    pub value: Option<Option<u64>>,
}

impl Wanted<'_> {
    /// All records of all time.
    pub const ALL: Wanted<'static> =
        Wanted { lanes: Lanes::All, span: (0, u64::MAX), durations: 0..=u64::MAX, value: None };
}

/// The same, for quick tests.
struct Filter<'w> {
    wanted: &'w Wanted<'w>,
    /// The first and the last instant.
    span: (u64, u64),
    lanes: LaneSet,
    /// Whether the value is a lane too.
    both: bool,
    duration_bits: u64,
}

impl<'w> Filter<'w> {
    fn new(wanted: &'w Wanted<'w>, table: &Table<'_>) -> Result<Filter<'w>, Error> {
        let (begin, end) = wanted.span;
        if end <= begin {
            return Err(Refused::EmptySpan.into());
        }
        let (least, most) = (duration_bit(*wanted.durations.start()), duration_bit(*wanted.durations.end()));
        let bits = u64::MAX.checked_shr(63 - most).unwrap_or(0) & (u64::MAX << least);
        Ok(Filter {
            wanted,
            span: (begin, end - 1),
            lanes: LaneSet::new(wanted.lanes, table.data.keys.len()),
            both: table.data.schema.shape == Shape::Links && wanted.lanes != Lanes::All,
            duration_bits: bits,
        })
    }

    fn can(&self, zone: &Zone) -> bool {
        zone.duration_bits & self.duration_bits != 0
            && zone.longest >= *self.wanted.durations.start()
            && self.wanted.value.is_none_or(|value| zone.value_bits & value_bit(value) != 0)
    }

    fn has(&self, row: &Row) -> bool {
        let is_other =
            || row.value().and_then(|lane| u32::try_from(lane).ok()).is_some_and(|lane| self.lanes.has(lane));
        row.begin <= self.span.1
            && row.last() >= self.span.0
            && self.wanted.durations.contains(&row.duration())
            && self.wanted.value.is_none_or(|value| value == row.value())
            && (self.lanes.has(row.lane) || (self.both && is_other()))
    }

    fn blocks<'s>(&self, table: &Table<'s>) -> Vec<super::scan::Block<'s>> {
        let all = LaneSet::new(Lanes::All, 0);
        let mut blocks = blocks(table.data, self.span, if self.both { &all } else { &self.lanes });
        blocks.retain(|(_, zone)| self.can(zone));
        blocks
    }
}

/// Records by time.
type ByTime = (u64, Record);
/// Records by duration, the longest first.
type ByDuration = (Reverse<u64>, u64, Record);

impl Table<'_> {
    /// Records in order of begin, then lane, end, value and cells: at most `limit` behind the record `after`, which is
    /// the last one of an answer before.
    ///
    /// # Errors
    /// A span without an instant; a store that is damaged or replaced; a budget that does not suffice.
    pub fn records(
        &self,
        wanted: &Wanted<'_>,
        after: Option<&Record>,
        limit: usize,
        budget: &Budget,
    ) -> Result<Vec<Record>, Error> {
        let filter = Filter::new(wanted, self)?;
        let mut blocks = filter.blocks(self);
        blocks.retain(|(_, zone)| after.is_none_or(|after| zone.begins.1 >= after.begin));
        blocks.sort_unstable_by_key(|(_, zone)| zone.begins.0);
        let (mut scan, mut first) = (Scan::new(self.data, budget), First::<ByTime>::new(limit));
        for block in blocks {
            if first.is_before(|(begin, _)| *begin < block.1.begins.0) {
                break;
            }
            scan.read(block, |rows, row| {
                let early = after.is_some_and(|after| row.begin < after.begin);
                if early || !filter.has(row) || first.is_before(|(begin, _)| *begin < row.begin) {
                    return;
                }
                let record = rows.record(row);
                let is_behind = |after: &Record| (record.begin, &record) > (after.begin, after);
                if after.is_none_or(is_behind) {
                    first.add((record.begin, record));
                }
            })?;
        }
        Ok(first.into_sorted().into_iter().map(|(_, record)| record).collect())
    }

    /// The longest records, at most `limit`: the longest first, of those that are as long the earliest.
    ///
    /// # Errors
    /// A span without an instant; a store that is damaged or replaced; a budget that does not suffice.
    pub fn longest(&self, wanted: &Wanted<'_>, limit: usize, budget: &Budget) -> Result<Vec<Record>, Error> {
        let filter = Filter::new(wanted, self)?;
        let mut blocks = filter.blocks(self);
        blocks.sort_unstable_by_key(|(_, zone)| Reverse(zone.longest));
        let (mut scan, mut first) = (Scan::new(self.data, budget), First::<ByDuration>::new(limit));
        for block in blocks {
            if first.is_before(|(Reverse(duration), ..)| *duration > block.1.longest) {
                break;
            }
            scan.read(block, |rows, row| {
                let is_shorter = |(Reverse(duration), ..): &ByDuration| *duration > row.duration();
                if filter.has(row) && !first.is_before(is_shorter) {
                    first.add((Reverse(row.duration()), row.begin, rows.record(row)));
                }
            })?;
        }
        Ok(first.into_sorted().into_iter().map(|(.., record)| record).collect())
    }
}

/// The first of what comes, in order.
struct First<T> {
    limit: usize,
    heap: BinaryHeap<T>,
}

impl<T: Ord> First<T> {
    fn new(limit: usize) -> First<T> {
        First { limit, heap: BinaryHeap::new() }
    }

    /// Whether there are enough, and the last of them satisfies this.
    fn is_before(&self, is: impl FnOnce(&T) -> bool) -> bool {
        self.heap.len() >= self.limit && self.heap.peek().is_none_or(is)
    }

    fn add(&mut self, one: T) {
        self.heap.push(one);
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    fn into_sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec()
    }
}
