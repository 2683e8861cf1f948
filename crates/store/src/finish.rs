//! Builds a history from a log. Each thread merges the runs over one part of the time.
//!
//! ```text
//! runs, each in order of begin ──cursors──► rows of one bin of level 0 at a time ──Builder──► blocks, summaries
//! ```

use std::{
    fs::{self, File, OpenOptions},
    ops::RangeInclusive,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use crate::{
    bins::{bin_of, cell, end, start},
    block::{Codec, Compression, Zone},
    build::{Builder, Form, Written, finish_shared},
    dictionary::Renumbering,
    error::Error,
    history::{self, Footer, History, LaneFooter, Output, TableFooter},
    log::{self, Head},
    rows::{CommonFields, Rows},
    schema::{Kind, Schema},
};

/// Rows of a run that is re-sorted from an earlier history.
const RUN_ROWS: usize = 1 << 19;
/// Rows of a block of such a run.
const RUN_BLOCK_ROWS: usize = 1 << 10;
/// Rows of a bin of level 0, on average: this many per lane, within [`LEAST_BIN_ROWS`] and [`MOST_BIN_ROWS`].
const LANE_ROWS: u64 = 32;
const LEAST_BIN_ROWS: u64 = 1 << 12;
const MOST_BIN_ROWS: u64 = 1 << 17;

/// The name under which rows of an earlier history are sorted, until the file is opened.
const SORTED_NAME: &str = "growing.again";

/// Rows of a table in order of their begin, in blocks.
#[derive(Debug)]
struct SortedRows {
    path: PathBuf,
    file: Arc<File>,
    zones: Vec<Zone>,
}

/// Builds the history from a store's log and its earlier history.
pub(crate) fn finish(folder: &Path, head: &Head, threads: usize) -> Result<(), Error> {
    let path = folder.join(log::NAME);
    let file = File::open(&path).map_err(Error::system(&path))?;
    let before = if head.follows == 0 { None } else { history::open(folder)? };
    let known = before.as_ref().map(|history| history.footer.dictionary()).unwrap_or_default();
    let read = log::read(&path, file, known)?.filter(|read| read.head == *head && !read.is_cut);
    let Some(read) = read else {
        return Err(Error::Damaged { file: path, offset: 0, expected: "the log that was written" });
    };
    let (dictionary, renumbering) = read.dictionary.in_order();
    let output = Output::create(folder)?;
    let mut footer = Footer {
        identity: head.identity.clone(),
        generation: head.generation,
        names: dictionary.names.iter().cloned().collect(),
        tables: Vec::new(),
    };
    for (number, table) in dictionary.tables.iter().enumerate() {
        let own = read.runs.iter().filter(|(table, _)| *table as usize == number);
        let run = |(_, zones): &(u32, Vec<Zone>)| SortedRows {
            path: path.clone(),
            file: Arc::clone(&read.file),
            zones: zones.clone(),
        };
        let mut runs: Vec<SortedRows> = own.map(run).collect();
        if let Some((before, table)) =
            before.as_ref().and_then(|history| Some((history, history.footer.tables.get(number)?)))
        {
            runs.extend(sorted_again(folder, before, table)?);
        }
        let numbers = Numbers { renumbering: &renumbering, table: number, schema: &table.schema };
        let written = write_table(&runs, numbers, threads, &output)?;
        footer.tables.push(written.footer(&table.schema, table.lanes.iter().cloned()));
    }
    output.finish(&footer)?;
    fs::remove_file(&path).map_err(Error::system(&path))
}

/// Re-sorts the rows of a history's table into runs, in an unlinked file.
fn sorted_again(folder: &Path, history: &History, table: &TableFooter) -> Result<Vec<SortedRows>, Error> {
    let path = folder.join(SORTED_NAME);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let file = Arc::new(file.map_err(Error::system(&path))?);
    fs::remove_file(&path).map_err(Error::system(&path))?;
    let width = table.schema.columns.len();
    let (mut codec, mut length, mut runs) = (Codec::default(), 0, Vec::new());
    let (mut rows, mut block) = (Rows::new(width), Rows::new(width));
    let mut blocks = table.blocks.iter().peekable();
    while let Some((_, zone)) = blocks.next() {
        read_block(&history.path, &history.file, (zone, Compression::Lz4), &mut codec, &mut block)?;
        block.rows.iter().for_each(|row| rows.push(*row, block.cells_of(row).iter().copied()));
        if rows.len() < RUN_ROWS && blocks.peek().is_some() {
            continue;
        }
        rows.sort_by_begin();
        let (mut bytes, mut zones) = (Vec::new(), Vec::new());
        for part in rows.rows.chunks(RUN_BLOCK_ROWS) {
            let zone = codec.encode(&rows, part, Compression::None, &mut bytes);
            zones.push(Zone { offset: zone.offset + length, ..zone });
        }
        file.write_all_at(&bytes, length).map_err(Error::system(&path))?;
        length += bytes.len() as u64;
        runs.push(SortedRows { path: path.clone(), file: Arc::clone(&file), zones });
        rows.clear();
    }
    Ok(runs)
}

/// Reads and decodes a block.
pub(crate) fn read_block(
    path: &Path,
    file: &File,
    (zone, compression): (&Zone, Compression),
    codec: &mut Codec,
    rows: &mut Rows,
) -> Result<(), Error> {
    let mut bytes = std::mem::take(&mut codec.bytes);
    bytes.resize(zone.length as usize, 0);
    file.read_exact_at(&mut bytes, zone.offset).map_err(Error::system(path))?;
    let decoded = codec.decode(&bytes, zone, compression, rows);
    codec.bytes = bytes;
    decoded.ok_or_else(|| Error::Damaged {
        file: path.to_owned(),
        offset: zone.offset,
        expected: "a block that is whole",
    })
}

/// The renumbering of a table's names and lanes.
#[derive(Clone, Copy, Debug)]
struct Numbers<'a> {
    renumbering: &'a Renumbering,
    table: usize,
    schema: &'a Schema,
}

impl Numbers<'_> {
    /// Returns the new content of a cell; `None` if it is an unknown number.
    fn cell(&self, kind: Kind, bits: u64) -> Option<u64> {
        let numbers = match kind {
            Kind::Name => &self.renumbering.names,
            Kind::Lane => &self.renumbering.lanes[self.table],
            Kind::Integer | Kind::Signed | Kind::Real | Kind::Boolean => return Some(bits),
        };
        numbers.get(usize::try_from(bits).ok()?).map(|&number| number.into())
    }

    /// Renumbers rows; `None` if a number is unknown.
    fn renumber(&self, rows: &mut Rows) -> Option<()> {
        let lanes = &self.renumbering.lanes[self.table];
        let kind = self.schema.value.kind;
        for row in &mut rows.rows {
            row.lane = *lanes.get(row.lane as usize)?;
            if row.nulls & 1 == 0 {
                row.bits = self.cell(kind, row.bits)?;
            }
        }
        for (index, field) in self.schema.columns.iter().enumerate() {
            if !matches!(field.kind, Kind::Name | Kind::Lane) {
                continue;
            }
            for row in &rows.rows {
                if row.nulls & (2 << index) == 0 {
                    let cell = &mut rows.cells[row.index as usize * rows.width + index];
                    *cell = self.cell(field.kind, *cell)?;
                }
            }
        }
        Some(())
    }
}

/// The written history of a table.
#[derive(Debug, Default)]
struct Table {
    rows: u64,
    base: u32,
    written: Written,
}

impl Table {
    fn footer(self, schema: &Schema, lanes: impl Iterator<Item = Box<[Option<u64>]>>) -> TableFooter {
        let Table { rows, base, mut written } = self;
        written.blocks.sort_by_key(|(bin, zone)| (*bin, zone.begins.least, zone.lanes.least, zone.offset));
        written.summarised.sort_unstable();
        written.summaries.sort_by_key(|zone| (zone.level, zone.bins.least, zone.lanes.least, zone.offset));
        let mut extents = written.extents.into_iter();
        let lane = |key| LaneFooter { key, extent: extents.next().unwrap_or_default() };
        TableFooter {
            schema: schema.clone(),
            lanes: lanes.map(lane).collect(),
            rows,
            base,
            blocks: written.blocks,
            summarised: written.summarised,
            summaries: written.summaries,
        }
    }
}

fn write_table(
    runs: &[SortedRows],
    numbers: Numbers<'_>,
    threads: usize,
    output: &Output,
) -> Result<Table, Error> {
    let zones = || runs.iter().flat_map(|run| &run.zones);
    let rows: u64 = zones().map(|zone| u64::from(zone.rows)).sum();
    let Some(first) = zones().map(|zone| zone.begins.least).min() else { return Ok(Table::default()) };
    let last = zones().map(|zone| zone.lasts.most).max().unwrap_or(first);
    let lanes = numbers.renumbering.lanes[numbers.table].len();
    let base = base(rows, lanes as u64, last - first);
    let form = Form {
        kind: (numbers.schema.shape, numbers.schema.value.kind),
        width: numbers.schema.columns.len(),
        lanes,
        base,
        top: bin_of(base, first, last).level,
    };
    let parts = parts(runs, rows, base, threads);
    let write = |part: RangeInclusive<u64>| write_part(runs, numbers, form, part, output);
    let all: Vec<Result<Written, Error>> = thread::scope(|scope| {
        let started: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || write(part))).collect();
        started.into_iter().map(|thread| thread.join().expect("a part does not panic")).collect()
    });
    let mut written = Written::default();
    for part in all {
        written.add(part?);
    }
    let shared = std::mem::take(&mut written.shared);
    written.add(finish_shared(form, shared, output)?);
    Ok(Table { rows, base, written })
}

impl Written {
    fn add(&mut self, other: Written) {
        self.blocks.extend(other.blocks);
        self.summarised.extend(other.summarised);
        self.summaries.extend(other.summaries);
        self.shared.extend(other.shared);
        self.extents.resize(self.extents.len().max(other.extents.len()), Default::default());
        self.extents.iter_mut().zip(other.extents).for_each(|(own, other)| own.add(other));
    }
}

/// Returns the binary logarithm of the width of a bin of level 0, for a table over `span` nanoseconds. It is even, so cell widths are powers of four in all
/// stores.
fn base(rows: u64, lanes: u64, span: u64) -> u32 {
    let bin_rows = lanes.saturating_mul(LANE_ROWS).clamp(LEAST_BIN_ROWS, MOST_BIN_ROWS);
    let width = span / (rows / bin_rows).max(1);
    width.checked_ilog2().unwrap_or(0) & !1
}

/// Divides the time into parts of about equal row counts, at borders of bins of level 0.
fn parts(runs: &[SortedRows], rows: u64, base: u32, threads: usize) -> Vec<RangeInclusive<u64>> {
    // The begin and the rows of each block.
    let mut begins: Vec<(u64, u64)> =
        runs.iter().flat_map(|run| &run.zones).map(|zone| (zone.begins.least, zone.rows.into())).collect();
    begins.sort_unstable();
    let (mut parts, mut first, mut before) = (Vec::new(), 0, 0);
    for (begin, count) in begins {
        let border = start(cell(begin, base), base);
        let wanted = rows * (parts.len() as u64 + 1) / threads as u64;
        if before >= wanted && parts.len() + 1 < threads && border > first {
            parts.push(first..=border - 1);
            first = border;
        }
        before += count;
    }
    parts.push(first..=u64::MAX);
    parts
}

fn write_part(
    runs: &[SortedRows],
    numbers: Numbers<'_>,
    form: Form,
    part: RangeInclusive<u64>,
    output: &Output,
) -> Result<Written, Error> {
    let mut builder = Builder::new(form, part.clone(), output);
    let mut cursors = Vec::new();
    for run in runs {
        cursors.extend(Cursor::new(run, numbers, *part.start())?);
    }
    while let Some(time) = cursors.iter().map(Cursor::begin).min().filter(|time| time <= part.end()) {
        builder.enter(time)?;
        let last = end(cell(time, form.base), form.base);
        let mut index = 0;
        while let Some(cursor) = cursors.get_mut(index) {
            if cursor.take(last, &mut |row, cells| builder.push(row, cells))? {
                index += 1;
            } else {
                cursors.swap_remove(index);
            }
        }
    }
    builder.finish()
}

/// A read position in a run.
struct Cursor<'a> {
    run: &'a SortedRows,
    numbers: Numbers<'a>,
    codec: Codec,
    next_block: usize,
    /// The rows of the block before the next one.
    rows: Rows,
    next_row: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the first row that begins at or after `time`; `None` if there is no such row.
    fn new(run: &'a SortedRows, numbers: Numbers<'a>, time: u64) -> Result<Option<Cursor<'a>>, Error> {
        let next_block = run.zones.partition_point(|zone| zone.begins.most < time);
        let rows = Rows::new(numbers.schema.columns.len());
        let mut cursor = Cursor { run, numbers, codec: Codec::default(), next_block, rows, next_row: 0 };
        if !cursor.load()? {
            return Ok(None);
        }
        cursor.next_row = cursor.rows.rows.partition_point(|row| row.begin < time);
        Ok((cursor.next_row < cursor.rows.len()).then_some(cursor))
    }

    /// Reads the next block; returns whether there was one.
    fn load(&mut self) -> Result<bool, Error> {
        let Some(zone) = self.run.zones.get(self.next_block) else { return Ok(false) };
        let SortedRows { path, file, .. } = self.run;
        read_block(path, file, (zone, Compression::None), &mut self.codec, &mut self.rows)?;
        (self.next_block, self.next_row) = (self.next_block + 1, 0);
        let in_order = self.rows.rows.is_sorted_by_key(|row| row.begin);
        let known = in_order.then(|| self.numbers.renumber(&mut self.rows)).flatten();
        known.ok_or_else(|| Error::Damaged {
            file: path.clone(),
            offset: zone.offset,
            expected: "rows in order, whose names and lanes are known",
        })?;
        Ok(true)
    }

    /// Returns the begin of the next row.
    fn begin(&self) -> u64 {
        self.rows.rows[self.next_row].begin
    }

    /// Passes the rows that begin up to `last` to `receive`; returns whether more rows follow.
    fn take(
        &mut self,
        last: u64,
        receive: &mut impl FnMut(CommonFields, &[u64]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        loop {
            while let Some(row) = self.rows.rows.get(self.next_row) {
                if row.begin > last {
                    return Ok(true);
                }
                receive(*row, self.rows.cells_of(row))?;
                self.next_row += 1;
            }
            if !self.load()? {
                return Ok(false);
            }
        }
    }
}
