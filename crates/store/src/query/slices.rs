//! Slices for drawing: the records of a lane if they are few, else cells of time with their summaries.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{
    Budget, Lanes,
    scan::{Block, LaneSet, Scan, blocks, blocks_of, summaries_of},
};
use crate::{
    Error, Record, Refused, Table,
    bins::{Bin, cell, end, start, width_log2},
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
    digits: u32,
    /// The first cell and the last.
    cells: (u64, u64),
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
        let (digits, cells) = cells_of((begin, behind), most);
        let set = LaneSet::new(lanes, self.data.keys.len());
        let mut picture = Picture { table: *self, digits, cells, most, lanes: BTreeMap::new() };
        let mut scan = Scan::new(self.data, budget);
        for part in &self.data.parts {
            picture.part(part, &set, &mut scan)?;
        }
        picture.read_few(&mut scan)?;
        let kind = self.data.schema.value.kind;
        let lane = |(lane, of): (u32, Lane)| LaneSlices { lane, slices: of.slices(most, digits, kind) };
        Ok(picture.lanes.into_iter().map(lane).collect())
    }
}

/// Returns the span that [`Table::slices`] of a span covers: its first instant and its last.
///
/// # Panics
/// If the span is empty or `most` is 0.
pub fn widened(span: (u64, u64), most: usize) -> (u64, u64) {
    let (digits, (first, last)) = cells_of(span, most);
    (start(first, digits), end(last, digits))
}

/// Returns the binary logarithm of the width of the cells of a span, and the first and the last of them.
fn cells_of((begin, behind): (u64, u64), most: usize) -> (u32, (u64, u64)) {
    assert!(begin < behind && most > 0, "a span has instants and cells");
    let cells = |digits: u32| (cell(begin, digits), cell(behind - 1, digits));
    let fits = |digits: &u32| {
        let (first, last) = cells(*digits);
        last - first < most as u64
    };
    let digits = (0..=64).step_by(2).find(fits).expect("all time is one cell of 64 digits");
    (digits, cells(digits))
}

impl Picture<'_> {
    /// Returns the first and the last instant.
    fn span(&self) -> (u64, u64) {
        (start(self.cells.0, self.digits), end(self.cells.1, self.digits))
    }

    fn part(&mut self, part: &RowsOfFile, lanes: &LaneSet, scan: &mut Scan<'_>) -> Result<(), Error> {
        let (first, last) = self.span();
        let mut blocks = Vec::new();
        let whole = part.bins.as_ref().filter(|bins| bins.base <= self.digits);
        if let Some(bins) = whole {
            // The records of a bin that is no wider than a cell lie in one cell.
            let level = ((self.digits - bins.base) / 2).min(bins.top.into()) as u8;
            blocks_of(part, (first, last), lanes, level + 1..=u8::MAX, &mut blocks);
            self.add_bins(part, bins, level, lanes, scan, &mut blocks)?;
        } else {
            blocks_of(part, (first, last), lanes, 0..=u8::MAX, &mut blocks);
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
        let (first, last) = self.span();
        let digits = width_log2(bins.base, level);
        let (first_bin, last_bin) = (cell(first, digits), cell(last, digits));
        let begin = bins.summarised.partition_point(|bin| *bin < Bin { level, index: first_bin });
        let behind = bins.summarised.partition_point(|bin| *bin <= Bin { level, index: last_bin });
        // Bins without summaries lie between those with summaries.
        let mut next = Some(first_bin);
        for bin in &bins.summarised[begin..behind.max(begin)] {
            if let Some(from) = next.filter(|&from| from < bin.index) {
                let span = (start(from, digits), end(bin.index - 1, digits));
                blocks_of(part, span, lanes, 0..=level, blocks);
            }
            next = bin.index.checked_add(1);
        }
        if let Some(from) = next.filter(|&from| from <= last_bin) {
            blocks_of(part, (start(from, digits), end(last_bin, digits)), lanes, 0..=level, blocks);
        }
        for zone in summaries_of(&bins.summaries, level, first_bin..=last_bin, lanes) {
            let wants = |bin: u64, lane: u32| (first_bin..=last_bin).contains(&bin) && lanes.has(lane);
            for Summary { bin, lane, mix } in scan.summaries(part, zone, wants)? {
                self.summary(cell(start(bin, digits), self.digits), lane, &mix);
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

    fn summary(&mut self, at: u64, lane: u32, mix: &Mix) {
        let lane = self.lane(lane);
        lane.total += mix.rows;
        lane.summarised = true;
        lane.cells.entry(at).or_default().merge(mix);
    }

    fn blocks(&mut self, blocks: Vec<Block<'_>>, lanes: &LaneSet, scan: &mut Scan<'_>) -> Result<(), Error> {
        let (first, last) = self.span();
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
        let (digits, cells, most) = (self.digits, self.cells, self.most as u64);
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
            touched += lane.fill(row, (digits, cells), kind);
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
        let (digits, cells, schema) = (self.digits, self.cells, &self.table.data.schema);
        let kind = (schema.shape, schema.value.kind);
        for lane in self.lanes.values_mut().filter(|lane| lane.total > most) {
            let kept = std::mem::take(&mut lane.records);
            let touched = kept.rows.iter().map(|row| lane.fill(row, (digits, cells), kind)).sum();
            scan.spend(touched)?;
        }
        if few.is_empty() {
            return Ok(());
        }
        few.iter().for_each(|lane| drop(self.lanes.remove(lane)));
        let lanes = LaneSet::new(Lanes::Some(&few), self.table.data.keys.len());
        self.blocks(blocks(self.table.data, self.span(), &lanes), &lanes, scan)
    }
}

impl Lane {
    /// Adds a row to the cells that it touches; returns their number.
    fn fill(&mut self, row: &CommonFields, (digits, cells): (u32, (u64, u64)), kind: (Shape, Kind)) -> u64 {
        let (begin, last) = (cell(row.begin, digits), cell(row.last(), digits));
        if begin == last {
            let mix = self.cells.entry(begin).or_default();
            mix.rows += 1;
            mix.add(row.value(), row.weight(kind.0), kind);
            return 1;
        }
        let (first, behind) = (begin.max(cells.0), last.min(cells.1));
        for at in first..=behind {
            // A row that touches two cells has a duration, so its end is one after its last instant.
            let inside = row.last().min(end(at, digits)) - row.begin.max(start(at, digits));
            let mix = self.cells.entry(at).or_default();
            mix.rows += u64::from(at == begin);
            mix.add(row.value(), inside.saturating_add(1), kind);
        }
        behind - first + 1
    }

    fn slices(self, most: usize, digits: u32, kind: Kind) -> Slices {
        if self.total <= most as u64 {
            let mut records: Vec<Record> =
                self.records.rows.iter().map(|row| self.records.record(row)).collect();
            records.sort_unstable();
            return Slices::Records(records);
        }
        let slice = |(at, mut mix): (u64, Mix)| {
            mix.keep_heaviest();
            mix.values.sort_by_key(|(value, weight)| (std::cmp::Reverse(*weight), *value));
            TimeCell {
                begin: start(at, digits),
                last: end(at, digits),
                rows: mix.rows,
                weight: mix.weight,
                values: mix.values,
                missing: mix.missing,
                range: mix.range.map(|(least, most)| (kind.of_ordered(least), kind.of_ordered(most))),
            }
        };
        let mut slices: Vec<TimeCell> = self.cells.into_iter().map(slice).collect();
        slices.sort_unstable_by_key(|slice| slice.begin);
        Slices::Cells(slices)
    }
}
