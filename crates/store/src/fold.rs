//! Summaries: the weight of each value in a bin, by lane.
//!
//! A bin's summary covers the records that it contains: its own, and those of the bins below. A summary is therefore a
//! sum of lower summaries, and no record is split at a border. Records that cross the borders of cells lie in higher
//! bins, and slice queries read them one by one.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    block::Bounds,
    columns::{decode, encode, unzigzag, zigzag},
    rows::CommonFields,
    schema::{Kind, Shape},
};

/// Values in a summary at most; `missing` bounds the weight of any other value.
pub(crate) const MOST_VALUES: usize = 8;
/// Own rows of a bin beyond which their values are not distinguished, so that memory is bounded.
const MOST_OWN_ROWS: u64 = 1 << 20;
/// Entries of a summary block, at most.
pub(crate) const BLOCK_ENTRIES: usize = 512;

/// The weight of each value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mix {
    /// Number of records.
    pub(crate) rows: u64,
    /// Their weight: nanoseconds, or their number for records without duration.
    pub(crate) weight: u64,
    /// By how much the weight of a value may exceed the one in `values`.
    pub(crate) missing: u64,
    /// Weights of values, sorted by value.
    pub(crate) values: Vec<(Option<u64>, u64)>,
    /// For counters: the least and the greatest number, as [`Kind::ordered`].
    pub(crate) range: Option<Bounds<u64>>,
}

impl Mix {
    /// Adds the weight of a record, or of the part of it inside a cell.
    pub(crate) fn add(&mut self, value: Option<u64>, weight: u64, kind: (Shape, Kind)) {
        self.weight = self.weight.saturating_add(weight);
        self.add_value(value, weight, kind);
    }

    fn add_value(&mut self, value: Option<u64>, weight: u64, (shape, kind): (Shape, Kind)) {
        if shape == Shape::Counters {
            let Some(bits) = value else { return };
            let number = kind.ordered(bits);
            self.range = Some(self.range.unwrap_or(Bounds::of(number)).with(number));
            return;
        }
        match self.values.binary_search_by_key(&value, |(value, _)| *value) {
            Ok(index) => self.values[index].1 = self.values[index].1.saturating_add(weight),
            Err(index) => self.values.insert(index, (value, weight)),
        }
    }

    /// Adds another mix.
    pub(crate) fn merge(&mut self, other: &Mix) {
        self.rows = self.rows.saturating_add(other.rows);
        self.weight = self.weight.saturating_add(other.weight);
        self.missing = self.missing.saturating_add(other.missing);
        self.range = match (self.range, other.range) {
            (Some(one), Some(other)) => Some(one.with(other.least).with(other.most)),
            (one, other) => one.or(other),
        };
        self.merge_values(&other.values);
    }

    /// Adds weights of values, sorted by value.
    fn merge_values(&mut self, values: &[(Option<u64>, u64)]) {
        if self.values.is_empty() {
            self.values.extend_from_slice(values);
            return;
        }
        let own = std::mem::take(&mut self.values);
        let (mut one, mut other) = (own.into_iter().peekable(), values.iter().copied().peekable());
        loop {
            let next = match (one.peek(), other.peek()) {
                (Some(a), Some(b)) if a.0 == b.0 => {
                    let (value, weight) = *a;
                    let sum = weight.saturating_add(b.1);
                    one.next();
                    other.next();
                    Some((value, sum))
                }
                (Some(a), Some(b)) if a.0 > b.0 => other.next(),
                (Some(_), _) => one.next(),
                (None, _) => other.next(),
            };
            match next {
                Some(next) => self.values.push(next),
                None => return,
            }
        }
    }

    /// Discards the values and adds their total weight to `missing`.
    fn forget(&mut self) {
        let most = self.values.iter().fold(0u64, |sum, (_, weight)| sum.saturating_add(*weight));
        self.missing = self.missing.saturating_add(most);
        self.values = Vec::new();
    }

    /// Keeps the heaviest values; ties keep the smallest value.
    pub(crate) fn keep_heaviest(&mut self) {
        if self.values.len() <= MOST_VALUES {
            return;
        }
        self.values.sort_by_key(|(value, weight)| (std::cmp::Reverse(*weight), *value));
        self.missing = self.missing.saturating_add(self.values[MOST_VALUES].1);
        self.values.truncate(MOST_VALUES);
        self.values.sort_unstable_by_key(|(value, _)| *value);
        self.values.shrink_to_fit();
    }
}

/// The summary of a bin under construction.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    /// Mixes of the bin's own records, by lane.
    own: FxHashMap<u32, Mix>,
    own_rows: u64,
    /// Mixes of the bins below, by lane.
    below: FxHashMap<u32, Mix>,
    /// Number of records in the bins below.
    below_rows: u64,
}

/// A summary entry: its lane and mix.
pub(crate) type Entry = (u32, Mix);

impl Fold {
    /// Adds own rows of one lane.
    pub(crate) fn add(
        &mut self,
        lane: u32,
        rows: &[CommonFields],
        (shape, kind): (Shape, Kind),
        scratch: &mut Mix,
    ) {
        scratch.values.clear();
        (scratch.range, scratch.weight, scratch.rows) = (None, 0, rows.len() as u64);
        let forgets = self.forgets();
        if shape == Shape::Counters {
            rows.iter().for_each(|row| scratch.add(row.value(), 1, (shape, kind)));
        } else {
            let weights = rows.iter().map(|row| (row.value(), row.weight(shape)));
            scratch.weight = rows.iter().fold(0, |sum, row| row.weight(shape).saturating_add(sum));
            if !forgets {
                // Sorting once bounds the time for any number and order of values.
                scratch.values.extend(weights);
                scratch.values.sort_unstable_by_key(|(value, _)| *value);
                scratch.values.dedup_by(|next, kept| {
                    let is_same = next.0 == kept.0;
                    if is_same {
                        kept.1 = kept.1.saturating_add(next.1);
                    }
                    is_same
                });
            }
        }
        let own = self.own.entry(lane).or_default();
        own.merge(scratch);
        if forgets && shape != Shape::Counters {
            own.missing = own.missing.saturating_add(scratch.weight);
        }
        self.own_rows += rows.len() as u64;
        if !forgets && self.forgets() {
            self.own.values_mut().for_each(Mix::forget);
        }
    }

    /// Returns whether the values of own rows are not distinguished any more.
    fn forgets(&self) -> bool {
        self.own_rows > MOST_OWN_ROWS
    }

    /// Adds the summary of a bin below.
    pub(crate) fn add_below(&mut self, entries: &[Entry], rows: u64) {
        for (lane, mix) in entries {
            self.below.entry(*lane).or_default().merge(mix);
        }
        self.below_rows += rows;
    }

    /// Merges the fold of another part of the rows.
    pub(crate) fn merge(&mut self, mut other: Fold) {
        let forgets = self.own_rows + other.own_rows > MOST_OWN_ROWS;
        for fold in [&mut *self, &mut other] {
            if forgets && !fold.forgets() {
                fold.own.values_mut().for_each(Mix::forget);
            }
        }
        other.own.iter().for_each(|(lane, mix)| self.own.entry(*lane).or_default().merge(mix));
        other.below.iter().for_each(|(lane, mix)| self.below.entry(*lane).or_default().merge(mix));
        self.own_rows += other.own_rows;
        self.below_rows += other.below_rows;
    }

    /// Returns the summary entries sorted by lane, and the number of records that they cover.
    pub(crate) fn close(self) -> (Vec<Entry>, u64) {
        let mut all = self.below;
        self.own.into_iter().for_each(|(lane, mix)| all.entry(lane).or_default().merge(&mix));
        let mut entries: Vec<Entry> = all.into_iter().collect();
        entries.sort_unstable_by_key(|(lane, _)| *lane);
        entries.iter_mut().for_each(|(_, mix)| mix.keep_heaviest());
        (entries, self.own_rows + self.below_rows)
    }
}

/// The location and extent of a block of summaries of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SummaryZone {
    pub(crate) level: u8,
    /// Indices of the bins.
    pub(crate) bins: Bounds<u64>,
    pub(crate) lanes: Bounds<u32>,
    pub(crate) entries: u32,
    /// Number of values of all entries.
    pub(crate) values: u32,
    pub(crate) offset: u64,
    /// Size in bytes.
    pub(crate) length: u32,
    /// Size in bytes before compression.
    pub(crate) raw: u32,
    pub(crate) crc: u32,
}

impl SummaryZone {
    /// Returns whether the zone is valid for a table of `lanes` lanes, in a file of `file` bytes.
    pub(crate) fn is_sound(&self, lanes: usize, file: u64) -> bool {
        let (entries, values) = (self.entries as usize, self.values as usize);
        // A column has at most 8 bytes per number after its least number and width.
        let largest = (9 + 8 * entries) * ENTRY_COLUMNS + (9 + 8 * values) * VALUE_COLUMNS;
        (1..=BLOCK_ENTRIES).contains(&entries)
            && values <= entries * MOST_VALUES
            && self.raw as usize <= largest
            && self.length as usize <= 2 * largest
            && self.offset.checked_add(self.length.into()).is_some_and(|end| end <= file)
            && self.lanes.least <= self.lanes.most
            && (self.lanes.most as usize) < lanes
    }
}

/// A summary of a lane in a bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The bin's index.
    pub(crate) bin: u64,
    pub(crate) lane: u32,
    pub(crate) mix: Mix,
}

/// How a missing range is encoded.
const NO_RANGE: Bounds<u64> = Bounds { least: 1, most: 0 };

/// Columns of a block of summaries: those with a number for each entry, and those with one for each value.
const ENTRY_COLUMNS: usize = 8;
const VALUE_COLUMNS: usize = 3;

/// Appends a block of summaries of one level to `out`, and returns its zone.
pub(crate) fn encode_summaries(level: u8, entries: &[Summary], out: &mut Vec<u8>) -> SummaryZone {
    let (mut raw, mut column) = (Vec::new(), Vec::new());
    let mut add = |values: &mut dyn Iterator<Item = u64>| {
        column.clear();
        column.extend(values);
        encode(&column, &mut raw);
    };
    add(&mut entries.iter().map(|entry| entry.bin));
    add(&mut entries.iter().scan(0, |before, entry| {
        let lane = u64::from(entry.lane);
        Some(zigzag(std::mem::replace(before, lane), lane))
    }));
    add(&mut entries.iter().map(|entry| entry.mix.rows));
    add(&mut entries.iter().map(|entry| entry.mix.weight));
    add(&mut entries.iter().map(|entry| entry.mix.missing));
    add(&mut entries.iter().map(|entry| entry.mix.values.len() as u64));
    add(&mut entries.iter().map(|entry| entry.mix.range.unwrap_or(NO_RANGE).least));
    add(&mut entries.iter().map(|entry| entry.mix.range.unwrap_or(NO_RANGE).most));
    let values = || entries.iter().flat_map(|entry| &entry.mix.values);
    add(&mut values().map(|(value, _)| value.is_none().into()));
    add(&mut values().map(|(value, _)| value.unwrap_or(0)));
    add(&mut values().map(|(_, weight)| *weight));
    let begin = out.len();
    out.extend(lz4_flex::block::compress(&raw));
    let lanes = entries.iter().map(|entry| entry.lane);
    SummaryZone {
        level,
        bins: Bounds { least: entries[0].bin, most: entries[entries.len() - 1].bin },
        lanes: Bounds { least: lanes.clone().min().unwrap_or(0), most: lanes.max().unwrap_or(0) },
        entries: entries.len() as u32,
        values: values().count() as u32,
        offset: begin as u64,
        length: (out.len() - begin) as u32,
        raw: raw.len() as u32,
        crc: crc32fast::hash(&out[begin..]),
    }
}

/// Decodes the summaries of the bins and lanes that `wants` selects; `None` if the bytes are not a valid block.
pub(crate) fn decode_summaries(
    bytes: &[u8],
    zone: &SummaryZone,
    wants: impl Fn(u64, u32) -> bool,
) -> Option<Vec<Summary>> {
    if bytes.len() != zone.length as usize || crc32fast::hash(bytes) != zone.crc {
        return None;
    }
    let raw = lz4_flex::block::decompress(bytes, zone.raw as usize).ok()?;
    let (mut input, entries, values) = (&raw[..], zone.entries as usize, zone.values as usize);
    let mut columns: [Vec<u64>; ENTRY_COLUMNS + VALUE_COLUMNS] = Default::default();
    for (index, column) in columns.iter_mut().enumerate() {
        decode(&mut input, if index < ENTRY_COLUMNS { entries } else { values }, column)?;
    }
    let [bins, lanes, rows, weights, missing, counts, least, most, nulls, bits, value_weights] = columns;
    let (mut summaries, mut lane, mut next_value) = (Vec::new(), 0, 0usize);
    for entry in 0..entries {
        lane = unzigzag(lane, lanes[entry]);
        let end =
            next_value.checked_add(usize::try_from(counts[entry]).ok()?).filter(|&end| end <= values)?;
        let (begin, number) = (std::mem::replace(&mut next_value, end), u32::try_from(lane).ok()?);
        if !wants(bins[entry], number) {
            continue;
        }
        let value = |index| ((nulls[index] == 0).then_some(bits[index]), value_weights[index]);
        let mix = Mix {
            rows: rows[entry],
            weight: weights[entry],
            missing: missing[entry],
            values: (begin..end).map(value).collect(),
            range: (least[entry] <= most[entry]).then_some(Bounds { least: least[entry], most: most[entry] }),
        };
        if !mix.values.is_sorted_by(|one, other| one.0 < other.0) {
            return None;
        }
        summaries.push(Summary { bin: bins[entry], lane: number, mix });
    }
    Some(summaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bounds_the_weight_of_values_that_are_not_kept() {
        let mut mix = Mix::default();
        for value in 0..20 {
            mix.add(Some(value), 100 - value, (Shape::Intervals, Kind::Name));
        }
        mix.keep_heaviest();
        let values: Vec<_> = (0..8).map(|value| (Some(value), 100 - value)).collect();
        assert_eq!((mix.values, mix.missing), (values, 92));
    }

    #[test]
    fn summaries_are_read_as_they_were_written() {
        let mix = |rows: u64| Mix {
            rows,
            weight: rows * 7,
            missing: rows & 1,
            values: vec![(None, 3), (Some(0), rows), (Some(u64::MAX), 1)],
            range: (rows > 2).then_some(Bounds { least: rows, most: u64::MAX }),
        };
        let entries = [(5, 0, mix(1)), (5, 9, mix(2)), (u64::MAX >> 8, 3, mix(3))];
        let entries = entries.map(|(bin, lane, mix)| Summary { bin, lane, mix }).to_vec();
        let mut bytes = vec![7];
        let zone = encode_summaries(2, &entries, &mut bytes);
        assert!(zone.is_sound(10, bytes.len() as u64));
        assert_eq!(
            decode_summaries(&bytes[1..], &zone, |_, lane| lane != 9),
            Some(vec![entries[0].clone(), entries[2].clone()])
        );
        assert_eq!(decode_summaries(&bytes[1..], &zone, |_, _| true), Some(entries));
    }
}
