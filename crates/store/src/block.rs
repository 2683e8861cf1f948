//! Blocks: a few hundred rows stored as columns, with a zone map of their values.

use serde::{Deserialize, Serialize};

use crate::{
    columns::{decode, encode, unzigzag, zigzag},
    rows::{CommonFields, Rows},
};

/// Rows of a block in a history, at most.
pub(crate) const BLOCK_ROWS: usize = 512;
/// Rows of any block, at most.
pub(crate) const MOST_ROWS: usize = 4096;

/// The least and the greatest of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds<T> {
    pub(crate) least: T,
    pub(crate) most: T,
}

impl<T: Ord + Copy> Bounds<T> {
    pub(crate) fn of(number: T) -> Bounds<T> {
        Bounds { least: number, most: number }
    }

    /// Returns the bounds of these numbers and of one more.
    pub(crate) fn with(self, number: T) -> Bounds<T> {
        Bounds { least: self.least.min(number), most: self.most.max(number) }
    }

    fn contain(self, number: T) -> bool {
        self.least <= number && number <= self.most
    }
}

/// The location of a block, and its zone map: ranges and Bloom filters that let queries skip it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Zone {
    pub(crate) rows: u32,
    /// Offset of the first byte in the file.
    pub(crate) offset: u64,
    /// Bytes in the file.
    pub(crate) length: u32,
    /// Bytes before compression; equals `length` in uncompressed blocks.
    pub(crate) raw: u32,
    /// CRC-32 of the bytes in the file.
    pub(crate) crc: u32,
    pub(crate) lanes: Bounds<u32>,
    /// One bit per lane, modulo 64.
    pub(crate) lane_bits: u64,
    pub(crate) begins: Bounds<u64>,
    /// The last instants of the rows.
    pub(crate) lasts: Bounds<u64>,
    pub(crate) ends: Bounds<u64>,
    /// The longest duration.
    pub(crate) longest: u64,
    /// One bit per binary logarithm of a duration; a duration of 0 shares bit 0.
    pub(crate) duration_bits: u64,
    /// One bit per hash of a value.
    pub(crate) value_bits: u64,
}

/// Returns the bit index of a duration in [`Zone::duration_bits`].
pub(crate) fn duration_bit(duration: u64) -> u32 {
    duration.checked_ilog2().unwrap_or(0)
}

/// Returns the bit of a value in [`Zone::value_bits`].
pub(crate) fn value_bit(value: Option<u64>) -> u64 {
    // Fibonacci hashing: the high bits depend on the whole value.
    1 << (value.map_or(0, |value| value.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
}

impl Zone {
    /// Computes the zone of at least one row, without its location.
    fn of(rows: &[CommonFields]) -> Zone {
        let first = rows[0];
        let mut zone = Zone {
            rows: rows.len() as u32,
            offset: 0,
            length: 0,
            raw: 0,
            crc: 0,
            lanes: Bounds::of(first.lane),
            lane_bits: 0,
            begins: Bounds::of(first.begin),
            lasts: Bounds::of(first.last()),
            ends: Bounds::of(first.end),
            longest: 0,
            duration_bits: 0,
            value_bits: 0,
        };
        for row in rows {
            zone.lanes = zone.lanes.with(row.lane);
            zone.lane_bits |= 1 << (row.lane & 63);
            zone.begins = zone.begins.with(row.begin);
            zone.lasts = zone.lasts.with(row.last());
            zone.ends = zone.ends.with(row.end);
            zone.longest = zone.longest.max(row.duration());
            zone.duration_bits |= 1 << duration_bit(row.duration());
            zone.value_bits |= value_bit(row.value());
        }
        zone
    }

    fn contains(&self, row: &CommonFields) -> bool {
        self.lanes.contain(row.lane) && self.begins.contain(row.begin) && self.lasts.contain(row.last())
    }

    /// Returns whether the zone is valid for a table of `lanes` lanes and `width` columns, in a file of `file` bytes.
    pub(crate) fn is_sound(&self, lanes: usize, width: usize, file: u64) -> bool {
        let rows = self.rows as usize;
        let within = self.offset.checked_add(self.length.into()).is_some_and(|end| end <= file);
        // Five common fields and the cells, each a column of at most 8 bytes per row after its least number and width.
        let largest = (9 + 8 * rows) * (5 + width) + 64;
        (1..=MOST_ROWS).contains(&rows)
            && within
            && self.raw as usize <= largest
            && self.length as usize <= 2 * largest
            && self.lanes.least <= self.lanes.most
            && (self.lanes.most as usize) < lanes
    }
}

/// Encodes rows as blocks and decodes blocks.
#[derive(Debug, Default)]
pub(crate) struct Codec {
    column: Vec<u64>,
    differences: Vec<u64>,
    raw: Vec<u8>,
    /// A buffer for the bytes of a block as stored in the file.
    pub(crate) bytes: Vec<u8>,
}

/// How a block is compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Lz4,
}

impl Codec {
    /// Appends a block of `rows`, which belong to `table`, to `out`. Returns its zone with the offset in `out`.
    pub(crate) fn encode(
        &mut self,
        table: &Rows,
        rows: &[CommonFields],
        compression: Compression,
        out: &mut Vec<u8>,
    ) -> Zone {
        let mut zone = Zone::of(rows);
        self.raw.clear();
        self.column(rows.iter().scan(0, |before, row| {
            let lane = u64::from(row.lane);
            Some(zigzag(std::mem::replace(before, lane), lane))
        }));
        // Relative to the end of the previous row if it is in the same lane, else to the earliest begin.
        let mut before = (rows[0].lane, zone.begins.least);
        self.column(rows.iter().map(|row| {
            let from = if before.0 == row.lane { before.1 } else { zone.begins.least };
            before = (row.lane, row.end);
            zigzag(from, row.begin)
        }));
        self.column(rows.iter().map(CommonFields::duration));
        self.column(rows.iter().map(|row| row.bits));
        self.column(rows.iter().map(|row| row.nulls.into()));
        for column in 0..table.width {
            self.column(rows.iter().map(|row| table.cells_of(row)[column]));
        }
        zone.offset = out.len() as u64;
        zone.raw = self.raw.len() as u32;
        if compression == Compression::Lz4 {
            let begin = out.len();
            out.resize(begin + lz4_flex::block::get_maximum_output_size(self.raw.len()), 0);
            let length = lz4_flex::block::compress_into(&self.raw, &mut out[begin..])
                .expect("the output has the largest size of compressed input");
            out.truncate(begin + length);
        } else {
            out.extend_from_slice(&self.raw);
        }
        let bytes = &out[zone.offset as usize..];
        zone.length = bytes.len() as u32;
        zone.crc = crc32fast::hash(bytes);
        zone
    }

    /// Appends an encoded column to the raw bytes.
    fn column(&mut self, values: impl Iterator<Item = u64>) {
        self.column.clear();
        self.column.extend(values);
        encode(&self.column, &mut self.raw);
    }

    /// Replaces `into` by the rows of a block; `None` if the bytes are not a valid block.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        zone: &Zone,
        compression: Compression,
        into: &mut Rows,
    ) -> Option<()> {
        if bytes.len() != zone.length as usize || crc32fast::hash(bytes) != zone.crc {
            return None;
        }
        let mut raw = std::mem::take(&mut self.raw);
        let plain = if compression == Compression::Lz4 {
            raw.resize(zone.raw as usize, 0);
            let length = lz4_flex::block::decompress_into(bytes, &mut raw).ok()?;
            raw.get(..length)?
        } else {
            bytes
        };
        let decoded = self.columns(plain, zone, into);
        self.raw = raw;
        decoded
    }

    /// Replaces `into` by the rows of uncompressed columns, in the order in which [`Codec::encode`] writes them.
    fn columns(&mut self, mut input: &[u8], zone: &Zone, into: &mut Rows) -> Option<()> {
        let (count, input) = (zone.rows as usize, &mut input);
        let Codec { column, differences, .. } = self;
        into.clear();
        into.rows.resize(count, CommonFields::default());
        decode(input, count, column)?;
        let mut lane = 0;
        for (index, (row, &difference)) in into.rows.iter_mut().zip(&*column).enumerate() {
            lane = unzigzag(lane, difference);
            row.lane = u32::try_from(lane).ok()?;
            row.index = index as u32;
        }
        decode(input, count, differences)?;
        decode(input, count, column)?;
        let mut before = (into.rows[0].lane, zone.begins.least);
        for ((row, &difference), &duration) in into.rows.iter_mut().zip(&*differences).zip(&*column) {
            let from = if before.0 == row.lane { before.1 } else { zone.begins.least };
            row.begin = unzigzag(from, difference);
            row.end = row.begin.checked_add(duration)?;
            before = (row.lane, row.end);
        }
        decode(input, count, column)?;
        into.rows.iter_mut().zip(&*column).for_each(|(row, &bits)| row.bits = bits);
        decode(input, count, column)?;
        into.rows.iter_mut().zip(&*column).for_each(|(row, &nulls)| row.nulls = nulls as u32);
        into.cells.resize(count * into.width, 0);
        for index in 0..into.width {
            decode(input, count, column)?;
            for (cell, &bits) in into.cells[index..].iter_mut().step_by(into.width).zip(&*column) {
                *cell = bits;
            }
        }
        into.rows.iter().all(|row| zone.contains(row)).then_some(())
    }
}
