//! The records of lanes at an instant.

use rustc_hash::FxHashMap;

use super::{
    Budget, Lanes,
    scan::{LaneSet, Scan, blocks},
};
use crate::{Error, Record, Table};

impl Table<'_> {
    /// Returns the sorted records of lanes at an instant: intervals and links that have begun and not ended, and the
    /// last point or counter of each lane up to that instant.
    ///
    /// # Errors
    /// If the store is damaged or replaced, or the budget is exceeded.
    pub fn at(&self, time: u64, lanes: Lanes<'_>, budget: &Budget) -> Result<Vec<Record>, Error> {
        let lanes = LaneSet::new(lanes, self.data.keys.len());
        let mut records = if self.data.schema.shape.has_duration() {
            self.lasting(time, &lanes, budget)?
        } else {
            self.latest(time, &lanes, budget)?
        };
        records.sort_unstable();
        Ok(records)
    }

    /// Returns the records that have begun and not ended.
    fn lasting(&self, time: u64, lanes: &LaneSet, budget: &Budget) -> Result<Vec<Record>, Error> {
        let (mut scan, mut records) = (Scan::new(self.data, budget), Vec::new());
        for block in blocks(self.data, &(time..=time), lanes) {
            scan.read(block, |rows, row| {
                if row.begin <= time && time < row.end && lanes.has(row.lane) {
                    records.push(rows.record(row));
                }
            })?;
        }
        Ok(records)
    }

    /// Returns the last record of each lane that begins up to an instant.
    fn latest(&self, time: u64, lanes: &LaneSet, budget: &Budget) -> Result<Vec<Record>, Error> {
        let mut scan = Scan::new(self.data, budget);
        // Only lanes with an earlier record are sought, so the search ends when all of them are found.
        let mut sought: Vec<u32> = lanes.list(self.lanes());
        if let Some(extents) = &self.data.extents {
            sought.retain(|lane| extents[*lane as usize].first <= time);
        }
        let mut candidates = blocks(self.data, &(0..=time), lanes);
        candidates.sort_unstable_by_key(|(_, zone)| std::cmp::Reverse(zone.begins.most.min(time)));
        let mut found: FxHashMap<u32, Record> = FxHashMap::default();
        for block in candidates {
            let last = block.1.begins.most.min(time);
            if found.len() == sought.len() && found.values().all(|record| record.begin > last) {
                break;
            }
            scan.read(block, |rows, row| {
                if row.begin > time || !lanes.has(row.lane) {
                    return;
                }
                let known = found.get(&row.lane).map(|known| known.begin);
                if known.is_none_or(|begin| begin <= row.begin) {
                    let record = rows.record(row);
                    let own = found.entry(row.lane).or_insert_with(|| record.clone());
                    if record > *own {
                        *own = record;
                    }
                }
            })?;
        }
        Ok(found.into_values().collect())
    }
}
