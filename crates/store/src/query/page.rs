//! Records by their number in order of time, for tables on a screen. The counts of ever smaller cells of time find a
//! record, so that no query reads all records before it.

use super::{Budget, Lanes, Slices, scan::Scan};
use crate::{
    Error, Record, Table,
    bins::{FAN_BITS, cell, end, start},
};

/// Parts into which a cell is divided.
const QUARTERS: usize = 1 << FAN_BITS;
/// A cell with fewer records is read instead of divided.
const FEW_ROWS: u64 = 4096;
/// The most records of a page, with those that are skipped before it.
const MOST_ROWS: usize = 1 << 20;

/// A cell of time.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Its first instant.
    begin: u64,
    /// Binary logarithm of its width.
    shift: u32,
    /// Number of records that begin in it.
    rows: u64,
    /// Number of records that begin before it.
    before: u64,
}

impl Table<'_> {
    /// Returns the number of records that begin before an instant.
    ///
    /// # Errors
    /// If the store is damaged or replaced, or the budget is exceeded.
    pub fn count_before(&self, time: u64, budget: &Budget) -> Result<u64, Error> {
        let (mut scan, mut count) = (Scan::new(self.data, budget), 0);
        for part in &self.data.parts {
            // Only blocks in which some records begin before the instant, and some not, are read.
            for (_, zone) in part.blocks.iter().filter(|(_, zone)| zone.begins.least < time) {
                if zone.begins.most < time {
                    count += u64::from(zone.rows);
                } else {
                    scan.read((part, zone), |_, row| count += u64::from(row.begin < time))?;
                }
            }
        }
        Ok(count)
    }

    /// Returns at most `limit` records from the one with the number `index` on, which counts from 0, in the order of
    /// [`Table::records`].
    ///
    /// # Errors
    /// If the store is damaged or replaced, or the budget is exceeded; also if too many records begin at one instant.
    pub fn page(&self, index: u64, limit: usize, budget: &Budget) -> Result<Vec<Record>, Error> {
        if index >= self.rows() {
            return Ok(Vec::new());
        }
        let cell = self.narrow(index, budget)?;
        let skipped = index - cell.before;
        let mut records = self.from(&cell, skipped.saturating_add(limit as u64), budget)?;
        records.drain(..records.len().min(skipped as usize));
        Ok(records)
    }

    /// Returns the first records that begin in a cell or after it.
    fn from(&self, cell: &Cell, limit: u64, budget: &Budget) -> Result<Vec<Record>, Error> {
        let limit = usize::try_from(limit).ok().filter(|limit| *limit <= MOST_ROWS);
        let limit = limit.ok_or(Error::TooMuch(budget.rows))?;
        // A record that is greater than all that begin before the cell.
        let after = cell.begin.checked_sub(1).map(|begin| {
            let (lane, end, value) = (u32::MAX, u64::MAX, Some(u64::MAX));
            Record { lane, begin, end, value, cells: Vec::new() }
        });
        self.records_from(cell.begin, after.as_ref(), limit, budget)
    }

    /// Returns a cell in which the record with a number begins: divides the time of all records into ever smaller cells, as
    /// long as the cell has many records and can be divided.
    fn narrow(&self, index: u64, budget: &Budget) -> Result<Cell, Error> {
        let (first, last) = self.span().unwrap_or_default();
        let is_one_cell = |shift: &u32| cell(first, *shift) == cell(last, *shift);
        let shift = (0..=u64::BITS).step_by(FAN_BITS as usize).find(is_one_cell).unwrap_or(u64::BITS);
        let begin = start(cell(first, shift), shift);
        let mut whole = Cell { begin, shift, rows: self.rows(), before: 0 };
        while whole.shift > 0 && whole.rows > FEW_ROWS {
            let quarters = self.quarters(whole, budget)?;
            let holds = |quarter: &&Cell| index < quarter.before + quarter.rows;
            // The counts of a damaged store may not add up.
            whole = *quarters.iter().find(holds).unwrap_or(&quarters[QUARTERS - 1]);
        }
        Ok(whole)
    }

    /// Counts the records of the four quarters of a cell.
    fn quarters(&self, whole: Cell, budget: &Budget) -> Result<[Cell; QUARTERS], Error> {
        let shift = whole.shift - FAN_BITS;
        let first = cell(whole.begin, shift);
        let quarter = |number: u64| Cell { begin: (first + number) << shift, shift, rows: 0, before: 0 };
        let mut quarters = [0, 1, 2, 3].map(quarter);
        let behind = end(first + 3, shift).saturating_add(1);
        let mut add = |begin: u64, rows: u64| {
            let index = cell(begin, shift).checked_sub(first).and_then(|index| usize::try_from(index).ok());
            if let Some(quarter) = index.and_then(|index| quarters.get_mut(index)) {
                quarter.rows += rows;
            }
        };
        for lane in self.slices((whole.begin, behind), Lanes::All, QUARTERS, budget)? {
            match lane.slices {
                Slices::Records(records) => records.iter().for_each(|record| add(record.begin, 1)),
                Slices::Cells(cells) => cells.iter().for_each(|cell| add(cell.begin, cell.rows)),
            }
        }
        let mut before = whole.before;
        for quarter in &mut quarters {
            quarter.before = before;
            before += quarter.rows;
        }
        Ok(quarters)
    }
}
