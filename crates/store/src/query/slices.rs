//! Slices for drawing: the records of a lane if they are few, else cells of time with their summaries.

use std::{collections::BTreeMap, ops::RangeInclusive};

use rustc_hash::FxHashMap;

use super::{
    Budget, Lanes,
    scan::{Block, LaneSet, Scan, blocks, blocks_of, summaries_of},
};
use crate::{
    Error, Record, Refused, Table,
    bins::{Bin, FAN_BITS, cell, end, start, width_log2},
    fold::{Mix, Summary},
    reader::{Bins, RowsOfFile},
    rows::{CommonFields, Rows},
    schema::{Kind, Shape},
};

/// The slices of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSlices {
    /// Number of the lane.
    pub lane: u32,
    /// The slices.
    pub slices: Slices,
}

/// The content of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slices {
    /// Each record, in order.
    Records(Vec<Record>),
    /// Cells of time that records touch, in order.
    Cells(Vec<TimeCell>),
}

/// A cell of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeCell {
    /// Its first instant, in nanoseconds.
    pub begin: u64,
    /// Its last instant.
    pub last: u64,
    /// Number of records that begin in it.
    pub rows: u64,
    /// Nanoseconds of the cell that records cover; for points and counters, their number. Exceeds the width if records
    /// of a lane overlap.
    pub weight: u64,
    /// The heaviest values, at most eight, with their weights; the first one is dominant.
    pub values: Vec<(Option<u64>, u64)>,
    /// Greatest weight of any one value beyond the one in `values`; 0 if these are exact. A value is certainly
    /// dominant if it exceeds the next one by more than this.
    pub missing: u64,
    /// For counters: the least and the greatest number, in the schema's type.
    pub range: Option<(u64, u64)>,
}

/// The slices under construction.
struct Picture<'t> {
    table: Table<'t>,
    /// Binary logarithm of a cell's width.
    shift: u32,
    cells: RangeInclusive<u64>,
    /// Slices of a lane, at most.
    most: usize,
    lanes: BTreeMap<u32, Lane>,
}

/// A lane under construction.
struct Lane {
    total: u64,
    /// The records, while they are few.
    records: Rows,
    /// Whether it includes summaries of records that were not read.
    summarised: bool,
    cells: FxHashMap<u64, Mix>,
}

impl Table<'_> {
    /// Returns the slices of lanes in a span (its first instant, and the first after it), at most `most` per lane.
    /// Omits lanes without a record.
    ///
    /// The span is widened to whole cells, whose width is the smallest power of four that gives no more than `most` of
    /// them. A lane with at most `most` records returns these, unclipped; other lanes return the cells that a record
    /// touches.
    ///
    /// # Errors
    /// If the span is empty, `most` is 0, the store is damaged or replaced, or the budget is exceeded.
    pub fn slices(
        &self,
        (begin, behind): (u64, u64),
        lanes: Lanes<'_>,
        most: usize,
        budget: &Budget,
    ) -> Result<Vec<LaneSlices>, Error> {
        if behind <= begin || most == 0 {
            return Err(Refused::EmptySpan.into());
        }
        let (shift, cells) = cells_of(begin..=behind - 1, most);
        let set = LaneSet::new(lanes, self.data.keys.len());
        let mut picture = Picture { table: *self, shift, cells, most, lanes: BTreeMap::new() };
        let mut scan = Scan::new(self.data, budget);
        for part in &self.data.parts {
            picture.part(part, &set, &mut scan)?;
        }
        picture.read_few(&mut scan)?;
        let kind = self.data.schema.value.kind;
        let slices =
            |(number, lane): (u32, Lane)| LaneSlices { lane: number, slices: lane.slices(most, shift, kind) };
        Ok(picture.lanes.into_iter().map(slices).collect())
    }
}

/// Returns the span that [`Table::slices`] of a span covers: its first instant and its last.
///
/// # Panics
/// If the span is empty or `most` is 0.
pub fn widened((begin, behind): (u64, u64), most: usize) -> (u64, u64) {
    assert!(begin < behind && most > 0, "a span has instants and cells");
    let (shift, cells) = cells_of(begin..=behind - 1, most);
    (start(*cells.start(), shift), end(*cells.end(), shift))
}

/// Returns the cells of a span, at most `most`, after the binary logarithm of their width.
fn cells_of(span: RangeInclusive<u64>, most: usize) -> (u32, RangeInclusive<u64>) {
    let cells = |shift: u32| cell(*span.start(), shift)..=cell(*span.end(), shift);
    let fits = |shift: &u32| cells(*shift).end() - cells(*shift).start() < most as u64;
    let shift =
        (0..=u64::BITS).step_by(FAN_BITS as usize).find(fits).expect("all time is one cell of 2^64 ns");
    (shift, cells(shift))
}

impl Picture<'_> {
    fn span(&self) -> RangeInclusive<u64> {
        start(*self.cells.start(), self.shift)..=end(*self.cells.end(), self.shift)
    }

    /// Adds what one file holds.
    fn part(&mut self, part: &RowsOfFile, lanes: &LaneSet, scan: &mut Scan<'_>) -> Result<(), Error> {
        let span = self.span();
        let mut blocks = Vec::new();
        let narrow = part.bins.as_ref().filter(|bins| bins.base <= self.shift);
        if let Some(bins) = narrow {
            // The records of a bin that is no wider than a cell lie in one cell.
            let level = ((self.shift - bins.base) / FAN_BITS).min(bins.top.into()) as u8;
            blocks_of(part, &span, lanes, level + 1..=u8::MAX, &mut blocks);
            self.add_bins(part, bins, level, lanes, scan, &mut blocks)?;
        } else {
            blocks_of(part, &span, lanes, 0..=u8::MAX, &mut blocks);
        }
        self.blocks(blocks, lanes, scan)
    }

    /// Adds the summaries of bins of a level; appends the blocks of bins without summaries to `blocks`.
    fn add_bins<'s>(
        &mut self,
        part: &'s RowsOfFile,
        bins: &'s Bins,
        level: u8,
        lanes: &LaneSet,
        scan: &mut Scan<'_>,
        blocks: &mut Vec<Block<'s>>,
    ) -> Result<(), Error> {
        let span = self.span();
        let shift = width_log2(bins.base, level);
        let (first_bin, last_bin) = (cell(*span.start(), shift), cell(*span.end(), shift));
        let begin = bins.summarised.partition_point(|bin| *bin < Bin { level, index: first_bin });
        let behind = bins.summarised.partition_point(|bin| *bin <= Bin { level, index: last_bin });
        // Bins without summaries lie between those with summaries.
        let mut next = Some(first_bin);
        for bin in &bins.summarised[begin..behind.max(begin)] {
            if let Some(from) = next.filter(|&from| from < bin.index) {
                let span = start(from, shift)..=end(bin.index - 1, shift);
                blocks_of(part, &span, lanes, 0..=level, blocks);
            }
            next = bin.index.checked_add(1);
        }
        if let Some(from) = next.filter(|&from| from <= last_bin) {
            blocks_of(part, &(start(from, shift)..=end(last_bin, shift)), lanes, 0..=level, blocks);
        }
        for zone in summaries_of(&bins.summaries, level, first_bin..=last_bin, lanes) {
            let wants = |bin: u64, lane: u32| (first_bin..=last_bin).contains(&bin) && lanes.has(lane);
            for Summary { bin, lane, mix } in scan.summaries(part, zone, wants)? {
                self.summary(cell(start(bin, shift), self.shift), lane, &mix);
            }
        }
        Ok(())
    }

    fn lane(&mut self, lane: u32) -> &mut Lane {
        let width = self.table.data.schema.columns.len();
        self.lanes.entry(lane).or_insert_with(|| Lane {
            total: 0,
            records: Rows::new(width),
            summarised: false,
            cells: FxHashMap::default(),
        })
    }

    /// Adds a summary to a cell of a lane.
    fn summary(&mut self, cell: u64, lane: u32, mix: &Mix) {
        let lane = self.lane(lane);
        lane.total += mix.rows;
        lane.summarised = true;
        lane.cells.entry(cell).or_default().merge(mix);
    }

    /// Adds the rows of blocks.
    fn blocks(&mut self, blocks: Vec<Block<'_>>, lanes: &LaneSet, scan: &mut Scan<'_>) -> Result<(), Error> {
        let (first, last) = self.span().into_inner();
        for block in blocks {
            let mut touched = 0;
            scan.read(block, |rows, row| {
                if row.begin <= last && row.last() >= first && lanes.has(row.lane) {
                    touched += self.row(rows, row);
                }
            })?;
            scan.spend(touched)?;
        }
        Ok(())
    }

    /// Adds a row; returns the number of cells filled.
    fn row(&mut self, rows: &Rows, row: &CommonFields) -> u64 {
        let (shift, cells, most) = (self.shift, self.cells.clone(), self.most as u64);
        let schema = &self.table.data.schema;
        let kind = (schema.shape, schema.value.kind);
        let lane = self.lane(row.lane);
        lane.total += 1;
        if lane.total <= most {
            lane.records.push(*row, rows.cells_of(row).iter().copied());
            return 0;
        }
        // The limit is exceeded, so the kept records become cells too.
        let mut touched = 0;
        let kept = std::mem::replace(&mut lane.records, Rows::new(rows.width));
        for row in kept.rows.iter().chain([row]) {
            touched += lane.fill(row, shift, &cells, kind);
        }
        touched
    }

    /// Reads the records of lanes that have few records but contain summaries.
    fn read_few(&mut self, scan: &mut Scan<'_>) -> Result<(), Error> {
        let most = self.most as u64;
        let is_few = |lane: &Lane| lane.summarised && lane.total <= most;
        let few: Vec<u32> =
            self.lanes.iter().filter(|(_, lane)| is_few(lane)).map(|(&lane, _)| lane).collect();
        // Other lanes may still hold records from higher bins, which become cells.
        let (shift, cells, schema) = (self.shift, self.cells.clone(), &self.table.data.schema);
        let kind = (schema.shape, schema.value.kind);
        for lane in self.lanes.values_mut().filter(|lane| lane.total > most) {
            let kept = std::mem::take(&mut lane.records);
            let touched = kept.rows.iter().map(|row| lane.fill(row, shift, &cells, kind)).sum();
            scan.spend(touched)?;
        }
        if few.is_empty() {
            return Ok(());
        }
        few.iter().for_each(|lane| drop(self.lanes.remove(lane)));
        let lanes = LaneSet::new(Lanes::Some(&few), self.table.data.keys.len());
        self.blocks(blocks(self.table.data, &self.span(), &lanes), &lanes, scan)
    }
}

impl Lane {
    /// Adds a row to those of `cells` that it touches; returns their number. A cell is 2^`shift` nanoseconds wide.
    fn fill(
        &mut self,
        row: &CommonFields,
        shift: u32,
        cells: &RangeInclusive<u64>,
        kind: (Shape, Kind),
    ) -> u64 {
        let (begin, last) = (cell(row.begin, shift), cell(row.last(), shift));
        if begin == last {
            let mix = self.cells.entry(begin).or_default();
            mix.rows += 1;
            mix.add(row.value(), row.weight(kind.0), kind);
            return 1;
        }
        let touched = begin.max(*cells.start())..=last.min(*cells.end());
        for cell in touched.clone() {
            // A row that touches two cells has a duration, so its end is one after its last instant.
            let inside = row.last().min(end(cell, shift)) - row.begin.max(start(cell, shift));
            let mix = self.cells.entry(cell).or_default();
            mix.rows += u64::from(cell == begin);
            mix.add(row.value(), inside.saturating_add(1), kind);
        }
        touched.end() - touched.start() + 1
    }

    fn slices(self, most: usize, shift: u32, kind: Kind) -> Slices {
        if self.total <= most as u64 {
            let mut records: Vec<Record> =
                self.records.rows.iter().map(|row| self.records.record(row)).collect();
            records.sort_unstable();
            return Slices::Records(records);
        }
        let slice = |(cell, mut mix): (u64, Mix)| {
            mix.keep_heaviest();
            mix.values.sort_by_key(|(value, weight)| (std::cmp::Reverse(*weight), *value));
            TimeCell {
                begin: start(cell, shift),
                last: end(cell, shift),
                rows: mix.rows,
                weight: mix.weight,
                values: mix.values,
                missing: mix.missing,
                range: mix.range.map(|range| (kind.of_ordered(range.least), kind.of_ordered(range.most))),
            }
        };
        let mut slices: Vec<TimeCell> = self.cells.into_iter().map(slice).collect();
        slices.sort_unstable_by_key(|slice| slice.begin);
        Slices::Cells(slices)
    }
}
