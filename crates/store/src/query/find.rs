//! Queries for single records: by span, duration and value, and the longest.

use std::{cmp::Reverse, collections::BinaryHeap, ops::RangeInclusive};

use super::{
    Budget, Lanes,
    scan::{LaneSet, Scan, blocks},
};
use crate::{
    Error, Record, Refused, Table,
    block::{Zone, duration_bit, value_bit},
    rows::CommonFields,
    schema::Shape,
};

/// The records that a query selects.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Only records of these lanes; links belong to both of their lanes.
    pub lanes: Lanes<'a>,
    /// Only records with an instant in this span: its first instant, and the first after it.
    pub span: (u64, u64),
    /// Only records of these durations, such as those of a bar of a histogram.
    pub durations: RangeInclusive<u64>,
    /// Only records with this value.
    pub value: Option<u64>,
}

impl Wanted<'_> {
    /// All records of all time.
    pub const ALL: Wanted<'static> =
        Wanted { lanes: Lanes::All, span: (0, u64::MAX), durations: 0..=u64::MAX, value: None };
}

/// [`Wanted`], prepared for fast tests.
struct Filter<'w> {
    wanted: &'w Wanted<'w>,
    span: RangeInclusive<u64>,
    lanes: LaneSet,
    /// Whether a record matches also by its value, which is a lane.
    value_is_lane: bool,
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
            span: begin..=end - 1,
            lanes: LaneSet::new(wanted.lanes, table.data.keys.len()),
            value_is_lane: table.data.schema.shape == Shape::Links && wanted.lanes != Lanes::All,
            duration_bits: bits,
        })
    }

    /// Returns whether a block may hold a wanted record, apart from its lanes and times.
    fn may_match(&self, zone: &Zone) -> bool {
        zone.duration_bits & self.duration_bits != 0
            && zone.longest >= *self.wanted.durations.start()
            && self.wanted.value.is_none_or(|value| zone.value_bits & value_bit(Some(value)) != 0)
    }

    fn matches(&self, row: &CommonFields) -> bool {
        let is_other =
            || row.value().and_then(|lane| u32::try_from(lane).ok()).is_some_and(|lane| self.lanes.has(lane));
        row.begin <= *self.span.end()
            && row.last() >= *self.span.start()
            && self.wanted.durations.contains(&row.duration())
            && self.wanted.value.is_none_or(|value| Some(value) == row.value())
            && (self.lanes.has(row.lane) || (self.value_is_lane && is_other()))
    }

    fn blocks<'s>(&self, table: &Table<'s>) -> Vec<super::scan::Block<'s>> {
        let all = LaneSet::new(Lanes::All, 0);
        let mut blocks = blocks(table.data, &self.span, if self.value_is_lane { &all } else { &self.lanes });
        blocks.retain(|(_, zone)| self.may_match(zone));
        blocks
    }
}

/// A record after its begin, by which it is ordered.
type ByTime = (u64, Record);
/// A record after its duration and begin, by which it is ordered, the longest first.
type ByDuration = (Reverse<u64>, u64, Record);

impl Table<'_> {
    /// Returns at most `limit` records, sorted by begin, then lane, end, value and cells. With `after`, the last
    /// record of an earlier result, continues after that record.
    ///
    /// # Errors
    /// If the span is empty, the store is damaged or replaced, or the budget is exceeded.
    pub fn records(
        &self,
        wanted: &Wanted<'_>,
        after: Option<&Record>,
        limit: usize,
        budget: &Budget,
    ) -> Result<Vec<Record>, Error> {
        self.filtered(&Filter::new(wanted, self)?, after, limit, budget)
    }

    /// As [`Table::records`] of all lanes from an instant on, the last one included.
    pub(super) fn records_from(
        &self,
        first: u64,
        after: Option<&Record>,
        limit: usize,
        budget: &Budget,
    ) -> Result<Vec<Record>, Error> {
        let filter = Filter { span: first..=u64::MAX, ..Filter::new(&Wanted::ALL, self)? };
        self.filtered(&filter, after, limit, budget)
    }

    fn filtered(
        &self,
        filter: &Filter<'_>,
        after: Option<&Record>,
        limit: usize,
        budget: &Budget,
    ) -> Result<Vec<Record>, Error> {
        let mut blocks = filter.blocks(self);
        blocks.retain(|(_, zone)| after.is_none_or(|after| zone.begins.most >= after.begin));
        blocks.sort_unstable_by_key(|(_, zone)| zone.begins.least);
        let (mut scan, mut first) = (Scan::new(self.data, budget), First::<ByTime>::new(limit));
        for block in blocks {
            if first.is_full(|(begin, _)| *begin < block.1.begins.least) {
                break;
            }
            scan.read(block, |rows, row| {
                let early = after.is_some_and(|after| row.begin < after.begin);
                if early || !filter.matches(row) || first.is_full(|(begin, _)| *begin < row.begin) {
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

    /// Returns the longest records, at most `limit`, the longest first; ties sort by begin.
    ///
    /// # Errors
    /// If the span is empty, the store is damaged or replaced, or the budget is exceeded.
    pub fn longest(&self, wanted: &Wanted<'_>, limit: usize, budget: &Budget) -> Result<Vec<Record>, Error> {
        let filter = Filter::new(wanted, self)?;
        let mut blocks = filter.blocks(self);
        blocks.sort_unstable_by_key(|(_, zone)| Reverse(zone.longest));
        let (mut scan, mut first) = (Scan::new(self.data, budget), First::<ByDuration>::new(limit));
        for block in blocks {
            if first.is_full(|(Reverse(duration), ..)| *duration > block.1.longest) {
                break;
            }
            scan.read(block, |rows, row| {
                let is_shorter = |(Reverse(duration), ..): &ByDuration| *duration > row.duration();
                if filter.matches(row) && !first.is_full(is_shorter) {
                    first.add((Reverse(row.duration()), row.begin, rows.record(row)));
                }
            })?;
        }
        Ok(first.into_sorted().into_iter().map(|(.., record)| record).collect())
    }
}

/// Collects the smallest `limit` elements.
struct First<T> {
    limit: usize,
    heap: BinaryHeap<T>,
}

impl<T: Ord> First<T> {
    fn new(limit: usize) -> First<T> {
        First { limit, heap: BinaryHeap::new() }
    }

    /// Returns whether the limit is reached and `comes_first` holds for the greatest element: what it is compared with is
    /// not among the smallest.
    fn is_full(&self, comes_first: impl FnOnce(&T) -> bool) -> bool {
        self.heap.len() >= self.limit && self.heap.peek().is_none_or(comes_first)
    }

    fn add(&mut self, element: T) {
        self.heap.push(element);
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    fn into_sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec()
    }
}
