//! The reference: the same queries on a plain list of records, in the simplest way.

use hodo_store::{Kind, LaneSlices, Lanes, Record, Schema, Shape, Slices, TimeCell, Wanted};

/// All records of a table.
pub struct Plain {
    pub schema: Schema,
    pub records: Vec<Record>,
}

fn last(record: &Record) -> u64 {
    if record.end > record.begin { record.end - 1 } else { record.begin }
}

fn wants(lanes: Lanes<'_>, lane: u32) -> bool {
    match lanes {
        Lanes::All => true,
        Lanes::Some(lanes) => lanes.contains(&lane),
    }
}

/// Returns the number of the cell at a time; cells are 2^`shift` nanoseconds wide.
fn cell(time: u64, shift: u32) -> u64 {
    if shift == 64 { 0 } else { time >> shift }
}

/// Returns the first and the last instant of a cell.
fn borders(cell: u64, shift: u32) -> (u64, u64) {
    if shift == 64 { (0, u64::MAX) } else { (cell << shift, (cell << shift) | ((1 << shift) - 1)) }
}

impl Plain {
    pub fn at(&self, time: u64, lanes: Lanes<'_>) -> Vec<Record> {
        let wanted = self.records.iter().filter(|record| wants(lanes, record.lane) && record.begin <= time);
        let mut answer: Vec<Record> = Vec::new();
        if self.schema.shape.has_duration() {
            answer = wanted.filter(|record| time < record.end).cloned().collect();
            answer.sort();
        } else {
            let mut all: Vec<&Record> = wanted.collect();
            all.sort();
            for record in all {
                answer.retain(|other| other.lane != record.lane);
                answer.push(record.clone());
            }
        }
        answer
    }

    fn wanted<'a>(&'a self, wanted: &'a Wanted<'_>) -> impl Iterator<Item = &'a Record> {
        let is_link = self.schema.shape == Shape::Links;
        let of_lane = move |record: &Record| {
            wants(wanted.lanes, record.lane)
                || (is_link && record.value.is_some_and(|lane| wants(wanted.lanes, lane as u32)))
        };
        self.records.iter().filter(move |record| {
            record.begin < wanted.span.1
                && last(record) >= wanted.span.0
                && wanted.durations.contains(&(record.end - record.begin))
                && wanted.value.is_none_or(|value| Some(value) == record.value)
                && of_lane(record)
        })
    }

    pub fn records(&self, wanted: &Wanted<'_>, after: Option<&Record>, limit: usize) -> Vec<Record> {
        let mut all: Vec<Record> = self.wanted(wanted).cloned().collect();
        all.retain(|record| after.is_none_or(|after| (record.begin, record) > (after.begin, after)));
        all.sort_by_key(|record| (record.begin, record.clone()));
        all.truncate(limit);
        all
    }

    pub fn count_before(&self, time: u64) -> u64 {
        self.records.iter().filter(|record| record.begin < time).count() as u64
    }

    pub fn page(&self, index: usize, limit: usize) -> Vec<Record> {
        let mut all: Vec<&Record> = self.records.iter().collect();
        all.sort_by_key(|record| (record.begin, *record));
        all.into_iter().skip(index).take(limit).cloned().collect()
    }

    pub fn longest(&self, wanted: &Wanted<'_>, limit: usize) -> Vec<Record> {
        let mut all: Vec<&Record> = self.wanted(wanted).collect();
        all.sort_by_key(|record| (std::cmp::Reverse(record.end - record.begin), record.begin, *record));
        all.into_iter().take(limit).cloned().collect()
    }

    fn changes(&self, lane: u32) -> impl Iterator<Item = u64> {
        let of_lane = self.records.iter().filter(move |record| record.lane == lane);
        of_lane.flat_map(|record| [record.begin, record.end])
    }

    pub fn next_change(&self, lane: u32, time: u64) -> Option<u64> {
        self.changes(lane).filter(|&change| change > time).min()
    }

    pub fn previous_change(&self, lane: u32, time: u64) -> Option<u64> {
        self.changes(lane).filter(|&change| change < time).max()
    }

    /// Returns slices with all of their values.
    pub fn slices(&self, (begin, behind): (u64, u64), lanes: Lanes<'_>, most: usize) -> Vec<LaneSlices> {
        let cells = |shift| (cell(begin, shift), cell(behind - 1, shift));
        let fits = |shift: &u32| cells(*shift).1 - cells(*shift).0 < most as u64;
        let shift = (0..=64).step_by(2).find(fits).unwrap();
        let (first_cell, last_cell) = cells(shift);
        let span = (borders(first_cell, shift).0, borders(last_cell, shift).1);
        let touches =
            |record: &&Record| wants(lanes, record.lane) && record.begin <= span.1 && last(record) >= span.0;
        let mut touching: Vec<&Record> = self.records.iter().filter(touches).collect();
        touching.sort();
        let lane = |records: &[&Record]| LaneSlices {
            lane: records[0].lane,
            slices: if records.len() <= most {
                Slices::Records(records.iter().copied().cloned().collect())
            } else {
                Slices::Cells(self.cells(records, (first_cell, last_cell), shift))
            },
        };
        touching.chunk_by(|one, other| one.lane == other.lane).map(lane).collect()
    }

    fn cells(&self, records: &[&Record], (first, last_cell): (u64, u64), shift: u32) -> Vec<TimeCell> {
        let mut cells: std::collections::BTreeMap<u64, Vec<&Record>> = Default::default();
        for record in records {
            let (from, to) = (cell(record.begin, shift).max(first), cell(last(record), shift).min(last_cell));
            (from..=to).for_each(|cell| cells.entry(cell).or_default().push(record));
        }
        cells.into_iter().map(|(cell, records)| self.slice(&records, borders(cell, shift))).collect()
    }

    fn slice(&self, records: &[&Record], (begin, last_instant): (u64, u64)) -> TimeCell {
        let mut slice = TimeCell {
            begin,
            last: last_instant,
            rows: 0,
            weight: 0,
            values: Vec::new(),
            missing: 0,
            range: None,
        };
        let mut numbers = Vec::new();
        let mut weights: std::collections::BTreeMap<Option<u64>, u64> = Default::default();
        for record in records {
            slice.rows += u64::from(record.begin >= begin);
            let behind = record.end.min(last_instant.saturating_add(1)).max(record.begin);
            let inside = match (self.schema.shape.has_duration(), last_instant) {
                (true, u64::MAX) => record.end - record.begin.max(begin),
                (true, _) => behind - record.begin.max(begin).min(behind),
                (false, _) => 1,
            };
            slice.weight = slice.weight.saturating_add(inside);
            if self.schema.shape == Shape::Counters {
                numbers.extend(record.value);
            } else {
                let weight = weights.entry(record.value).or_default();
                *weight = weight.saturating_add(inside);
            }
        }
        match self.schema.value.kind {
            Kind::Signed => numbers.sort_by_key(|&bits| bits as i64),
            Kind::Real => {
                numbers.sort_by(|&one, &other| f64::from_bits(one).total_cmp(&f64::from_bits(other)))
            }
            _ => numbers.sort(),
        }
        slice.range = numbers.first().copied().zip(numbers.last().copied());
        slice.values = weights.into_iter().collect();
        slice.values.sort_by_key(|(value, weight)| (std::cmp::Reverse(*weight), *value));
        slice
    }
}
