//! Rows in memory: records before encoding and after decoding.

use crate::{Record, schema::Shape};

/// The fields of a record that all tables share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommonFields {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The value; 0 if it is null.
    pub(crate) bits: u64,
    pub(crate) lane: u32,
    /// Bit 0: the value is null. Bit `n + 1`: column `n` is null.
    pub(crate) nulls: u32,
    /// Index of its cells in [`Rows::cells`], in multiples of the width. Sorting moves the row, but not its cells.
    pub(crate) index: u32,
    /// While its bin is written: the child bins in which the row begins and ends.
    pub(crate) group: u8,
}

impl CommonFields {
    /// Returns the last instant of the row: its end is exclusive, unless it has no duration.
    pub(crate) fn last(&self) -> u64 {
        if self.end > self.begin { self.end - 1 } else { self.begin }
    }

    pub(crate) fn value(&self) -> Option<u64> {
        (self.nulls & 1 == 0).then_some(self.bits)
    }

    pub(crate) fn duration(&self) -> u64 {
        self.end - self.begin
    }

    /// Returns its weight in summaries: its duration, or 1 in tables without durations.
    pub(crate) fn weight(&self, shape: Shape) -> u64 {
        if shape.has_duration() { self.duration() } else { 1 }
    }
}

/// Rows and their cells.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<CommonFields>,
    pub(crate) cells: Vec<u64>,
    /// Cells per row.
    pub(crate) width: usize,
}

impl Rows {
    pub(crate) fn new(width: usize) -> Rows {
        Rows { width, ..Rows::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.cells.clear();
    }

    /// Returns the cells of a row.
    pub(crate) fn cells_of(&self, row: &CommonFields) -> &[u64] {
        &self.cells[row.index as usize * self.width..][..self.width]
    }

    /// Adds a row with its cells.
    pub(crate) fn push(&mut self, row: CommonFields, cells: impl IntoIterator<Item = u64>) {
        let index = self.rows.len() as u32;
        self.rows.push(CommonFields { index, ..row });
        self.cells.extend(cells);
    }

    /// Converts a row to a record.
    pub(crate) fn record(&self, row: &CommonFields) -> Record {
        let cell = |(index, &bits): (usize, &u64)| (row.nulls & (2 << index) == 0).then_some(bits);
        let cells = self.cells_of(row).iter().enumerate().map(cell).collect();
        Record { lane: row.lane, begin: row.begin, end: row.end, value: row.value(), cells }
    }

    /// Sorts by begin.
    pub(crate) fn sort_by_begin(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.begin);
    }

    /// Sorts by group, then as records are ordered. `keys` is memory for reuse.
    pub(crate) fn sort_by_group(&mut self, keys: &mut Vec<SortKey>) {
        keys.clear();
        keys.extend(self.rows.iter().zip(0..).map(|(row, index)| SortKey {
            group_and_lane: (u64::from(row.group) << 32) | u64::from(row.lane),
            begin: row.begin,
            index,
        }));
        // Sorting keys is faster than sorting rows: they are smaller, and compared without branches.
        keys.sort_unstable_by_key(SortKey::order);
        let (rows, cells, width) = (&self.rows, &self.cells, self.width);
        let row = |key: &SortKey| &rows[key.index as usize];
        let rest = |key: &SortKey| {
            let row = row(key);
            let cells = &cells[row.index as usize * width..][..width];
            (row.end, row.value(), row.nulls, cells)
        };
        for same in keys.chunk_by_mut(|one, other| one.order() == other.order()) {
            if same.len() > 1 {
                same.sort_unstable_by(|one, other| rest(one).cmp(&rest(other)));
            }
        }
        self.rows = keys.iter().map(row).copied().collect();
    }
}

/// The fields that decide the order of most rows, and the index of the row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SortKey {
    /// The group in the upper half, the lane in the lower one.
    group_and_lane: u64,
    begin: u64,
    index: u32,
}

impl SortKey {
    #[inline]
    fn order(&self) -> u128 {
        (u128::from(self.group_and_lane) << 64) | u128::from(self.begin)
    }
}
