//! Builds blocks and summaries of bins from rows in order of their begin.

use std::{collections::BTreeMap, ops::RangeInclusive};

use crate::{
    bins::{Bin, MOST_LEVEL, bin_of, cell, group, width_log2},
    block::{BLOCK_ROWS, Codec, Compression, Zone},
    error::Error,
    fold::{BLOCK_ENTRIES, Entry, Fold, Mix, Summary, SummaryZone, encode_summaries},
    history::{LaneExtent, Output},
    rows::{CommonFields, Rows, SortKey},
    schema::{Kind, Shape},
};

/// Rows of a bin that are buffered before they are written.
const CHUNK_ROWS: usize = 1 << 18;
/// Bytes of blocks that are buffered before they are written.
const OUT_BYTES: usize = 1 << 20;
/// Least number of records per summary entry, on average; below this, reading the records takes no longer than reading
/// the summaries.
const ROWS_PER_ENTRY: u64 = 8;

/// The properties of a table that its builders share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) kind: (Shape, Kind),
    /// Number of columns.
    pub(crate) width: usize,
    pub(crate) lanes: usize,
    /// Binary logarithm of the nanoseconds of a bin of level 0.
    pub(crate) base: u32,
    /// The level of the bin that contains all records.
    pub(crate) top: u8,
}

/// The blocks and summaries written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) blocks: Vec<(Bin, Zone)>,
    pub(crate) summarised: Vec<Bin>,
    pub(crate) summaries: Vec<SummaryZone>,
    /// By lane.
    pub(crate) extents: Vec<LaneExtent>,
    /// Bins that extend beyond this part of the time, with their folds so far.
    pub(crate) shared: Vec<(Bin, Fold)>,
}

/// Writes the bins of one part of the time.
#[derive(Debug)]
pub(crate) struct Builder<'o> {
    form: Form,
    part: RangeInclusive<u64>,
    open: Vec<Option<Open>>,
    out: Out<'o>,
    /// Row buffers of closed bins, for reuse.
    spare: Vec<Rows>,
}

/// A bin that still receives rows.
#[derive(Debug)]
struct Open {
    index: u64,
    rows: Rows,
    fold: Fold,
}

/// The sink for blocks and summaries.
#[derive(Debug)]
struct Out<'o> {
    output: &'o Output,
    codec: Codec,
    bytes: Vec<u8>,
    written: Written,
    /// Number of blocks that have their file offset.
    placed_blocks: usize,
    /// Number of summary blocks that have their file offset.
    placed_summaries: usize,
    /// Summaries by level that do not fill a block yet.
    pending: Vec<Vec<Summary>>,
    scratch: Mix,
    keys: Vec<SortKey>,
}

impl<'o> Builder<'o> {
    pub(crate) fn new(form: Form, part: RangeInclusive<u64>, output: &'o Output) -> Builder<'o> {
        let written = Written { extents: vec![LaneExtent::default(); form.lanes], ..Written::default() };
        let out = Out {
            output,
            codec: Codec::default(),
            bytes: Vec::new(),
            written,
            placed_blocks: 0,
            placed_summaries: 0,
            pending: vec![Vec::new(); usize::from(MOST_LEVEL) + 1],
            scratch: Mix::default(),
            keys: Vec::new(),
        };
        let open = (0..=form.top).map(|_| None).collect();
        Builder { form, part, open, out, spare: Vec::new() }
    }

    /// Advances to an instant, and closes the bins that end before it.
    pub(crate) fn enter(&mut self, time: u64) -> Result<(), Error> {
        for level in 0..=self.form.top {
            let index = cell(time, width_log2(self.form.base, level));
            if self.open[usize::from(level)].as_ref().is_some_and(|open| open.index != index) {
                self.close(level)?;
            }
        }
        Ok(())
    }

    /// Adds a row that begins in the current bin of level 0.
    #[inline]
    pub(crate) fn push(&mut self, row: CommonFields, cells: &[u64]) -> Result<(), Error> {
        let bin = bin_of(self.form.base, row.begin, row.last());
        let open = self.opened(bin);
        open.rows.push(row, cells.iter().copied());
        if open.rows.len() >= CHUNK_ROWS {
            let open = self.open[usize::from(bin.level)].as_mut().expect("it was just opened");
            self.out.rows(self.form, bin, open)?;
        }
        Ok(())
    }

    /// Returns the open bin of the level of `bin`, which is opened if there is none.
    fn opened(&mut self, bin: Bin) -> &mut Open {
        let (width, spare) = (self.form.width, &mut self.spare);
        let new = || Open {
            index: bin.index,
            rows: spare.pop().unwrap_or_else(|| Rows::new(width)),
            fold: Fold::default(),
        };
        self.open[usize::from(bin.level)].get_or_insert_with(new)
    }

    /// Closes the open bin of a level, if any.
    fn close(&mut self, level: u8) -> Result<(), Error> {
        let Some(mut open) = self.open[usize::from(level)].take() else { return Ok(()) };
        let bin = Bin { level, index: open.index };
        self.out.rows(self.form, bin, &mut open)?;
        self.spare.push(open.rows);
        let span = bin.span(self.form.base);
        if span.start() < self.part.start() || span.end() > self.part.end() {
            self.out.written.shared.push((bin, open.fold));
            return Ok(());
        }
        let (entries, rows) = open.fold.close();
        self.out.summary(bin, &entries, rows)?;
        if level < self.form.top {
            self.opened(bin.parent()).fold.add_below(&entries, rows);
        }
        Ok(())
    }

    /// Closes all bins.
    pub(crate) fn finish(mut self) -> Result<Written, Error> {
        (0..=self.form.top).try_for_each(|level| self.close(level))?;
        self.out.finish()
    }
}

/// Writes the summaries of bins that several parts share: merges the parts' folds, from the lowest level up.
pub(crate) fn finish_shared(form: Form, shared: Vec<(Bin, Fold)>, output: &Output) -> Result<Written, Error> {
    let mut builder = Builder::new(form, 0..=u64::MAX, output);
    let mut folds: BTreeMap<Bin, Fold> = BTreeMap::new();
    shared.into_iter().for_each(|(bin, fold)| folds.entry(bin).or_default().merge(fold));
    while let Some((bin, fold)) = folds.pop_first() {
        let (entries, rows) = fold.close();
        builder.out.summary(bin, &entries, rows)?;
        if bin.level < form.top {
            folds.entry(bin.parent()).or_default().add_below(&entries, rows);
        }
    }
    builder.finish()
}

impl Out<'_> {
    /// Writes the buffered rows of a bin, and adds them to its fold.
    fn rows(&mut self, form: Form, bin: Bin, open: &mut Open) -> Result<(), Error> {
        let rows = &mut open.rows;
        for row in &mut rows.rows {
            row.group = group(form.base, bin.level, row.begin, row.last());
        }
        rows.sort_by_group(&mut self.keys);
        for lane in rows.rows.chunk_by(|one, other| one.lane == other.lane) {
            let number = lane[0].lane;
            open.fold.add(number, lane, form.kind, &mut self.scratch);
            let first = lane.iter().map(|row| row.begin).min().unwrap_or(u64::MAX);
            let last = lane.iter().map(|row| row.end).max().unwrap_or(0);
            self.written.extents[number as usize].add(LaneExtent { rows: lane.len() as u64, first, last });
        }
        let mut begin = 0;
        while begin < rows.len() {
            // A block ends at a group border, unless the block would be very short.
            let longest = (rows.len() - begin).min(BLOCK_ROWS);
            let is_border =
                |length: &usize| rows.rows[begin + length].group != rows.rows[begin + length - 1].group;
            let length = (BLOCK_ROWS / 8..longest).find(is_border).unwrap_or(longest);
            let block = &rows.rows[begin..begin + length];
            let zone = self.codec.encode(rows, block, Compression::Lz4, &mut self.bytes);
            self.written.blocks.push((bin, zone));
            begin += length;
        }
        rows.clear();
        if self.bytes.len() >= OUT_BYTES { self.flush() } else { Ok(()) }
    }

    /// Adds the summary of a bin of `rows` records, if it has few enough entries to save reading time.
    fn summary(&mut self, bin: Bin, entries: &[Entry], rows: u64) -> Result<(), Error> {
        if (entries.len() as u64).saturating_mul(ROWS_PER_ENTRY) > rows {
            return Ok(());
        }
        self.written.summarised.push(bin);
        let level = usize::from(bin.level);
        let of_lane = |(lane, mix): &Entry| Summary { bin: bin.index, lane: *lane, mix: mix.clone() };
        self.pending[level].extend(entries.iter().map(of_lane));
        while self.pending[level].len() >= BLOCK_ENTRIES {
            let rest = self.pending[level].split_off(BLOCK_ENTRIES);
            let block = std::mem::replace(&mut self.pending[level], rest);
            self.written.summaries.push(encode_summaries(bin.level, &block, &mut self.bytes));
        }
        if self.bytes.len() >= OUT_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the buffered blocks, and adds their file offset to the zones.
    fn flush(&mut self) -> Result<(), Error> {
        let offset = self.output.append(&self.bytes)?;
        self.bytes.clear();
        let Written { blocks, summaries, .. } = &mut self.written;
        blocks[self.placed_blocks..].iter_mut().for_each(|(_, zone)| zone.offset += offset);
        summaries[self.placed_summaries..].iter_mut().for_each(|zone| zone.offset += offset);
        (self.placed_blocks, self.placed_summaries) = (blocks.len(), summaries.len());
        Ok(())
    }

    fn finish(mut self) -> Result<Written, Error> {
        for (level, entries) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            if !entries.is_empty() {
                let zone = encode_summaries(level as u8, &entries, &mut self.bytes);
                self.written.summaries.push(zone);
            }
        }
        self.flush()?;
        Ok(self.written)
    }
}
