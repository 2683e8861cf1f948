//! What lanes hold in exactly a span: for a span that the user chose.

use std::collections::BTreeMap;

use hodo_store::{Budget, Kind, LaneSlices, Lanes, Record, Shape, Slices, Table};
use serde::Serialize;

use super::values::value;
use crate::{
    answer::{Answer, Failure, Question},
    index::Snapshot,
};

/// Cells of time that a span is divided into, at most. Those at its ends are divided again.
const CELLS: usize = 1024;
/// Values of a lane that an answer lists.
const VALUES: usize = 64;
/// Lanes of a question.
const LANES: usize = 4096;
/// Rows that a question may decode.
const BUDGET: u64 = 1 << 26;

/// What a lane holds in the span.
#[derive(Default)]
struct Sum {
    /// Records that begin in the span.
    records: u64,
    /// Nanoseconds of the span that records cover; the number of points.
    weight: u64,
    values: BTreeMap<Option<u64>, u64>,
    /// Weight that any one value may have beyond the one in `values`.
    missing: u64,
}

/// [`Sum`] with words.
#[derive(Serialize)]
struct LaneSum {
    lane: u32,
    records: u64,
    weight: u64,
    values: Vec<(Option<String>, u64)>,
    missing: u64,
}

pub(super) fn sums(question: &Question<'_>) -> Result<Answer, Failure> {
    let snapshot = super::snapshot(question)?;
    let table = super::table(question, &snapshot)?;
    let time = |name| Ok::<u64, Failure>(snapshot.origin.saturating_add(question.number(name)?));
    let lanes = lanes(question.text("lanes"))?;
    let mut summing = Summing {
        table,
        span: (time("begin")?, time("end")?),
        budget: question.budget(BUDGET),
        sums: BTreeMap::new(),
    };
    summing.add(summing.span, &lanes)?;
    let kind = table.schema().value.kind;
    let named = |(lane, sum)| named(&snapshot, kind, lane, sum);
    let sums: Vec<LaneSum> = summing.sums.into_iter().map(named).collect();
    Answer::json(&serde_json::json!({ "lanes": sums }))
}

/// Reads lanes such as `1,4-7`.
fn lanes(text: &str) -> Result<Vec<u32>, Failure> {
    let wrong = || Failure::Refused(format!("lanes={text}: expected at most {LANES} numbers such as 1,4-7"));
    let mut lanes = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if last < first || lanes.len() + (last - first) as usize >= LANES {
            return Err(wrong());
        }
        lanes.extend(first..=last);
    }
    Ok(lanes)
}

fn named(snapshot: &Snapshot, kind: Kind, lane: u32, sum: Sum) -> LaneSum {
    let mut values: Vec<(Option<u64>, u64)> = sum.values.into_iter().collect();
    values.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    // A value that is not listed may have as much as the first of those.
    let left_out = values.get(VALUES).map_or(0, |(_, weight)| *weight);
    values.truncate(VALUES);
    let word = |(bits, weight): (Option<u64>, u64)| (value(&snapshot.store, bits, kind), weight);
    let values = values.into_iter().map(word).collect();
    LaneSum { lane, records: sum.records, weight: sum.weight, values, missing: sum.missing + left_out }
}

/// Sums under construction.
struct Summing<'t> {
    table: Table<'t>,
    /// The first instant, and the first after it.
    span: (u64, u64),
    budget: Budget,
    sums: BTreeMap<u32, Sum>,
}

impl Summing<'_> {
    /// Adds a part of the span. Cells that cross its ends are parts again, so that every sum is of exactly the span.
    fn add(&mut self, (begin, behind): (u64, u64), lanes: &[u32]) -> Result<(), Failure> {
        let slices = self.table.slices((begin, behind), Lanes::Some(lanes), CELLS, &self.budget)?;
        let mut crossing: BTreeMap<(u64, u64), Vec<u32>> = BTreeMap::new();
        for LaneSlices { lane, slices } in slices {
            let cells = match slices {
                Slices::Records(records) => {
                    records.iter().for_each(|record| self.record(record, (begin, behind)));
                    continue;
                }
                Slices::Cells(cells) => cells,
            };
            for cell in cells {
                let (first, next) = (cell.begin.max(begin), cell.last.saturating_add(1).min(behind));
                if first != cell.begin || next != cell.last.saturating_add(1) {
                    crossing.entry((first, next)).or_default().push(lane);
                    continue;
                }
                let sum = self.sums.entry(lane).or_default();
                sum.records += cell.rows;
                sum.weight += cell.weight;
                sum.missing += cell.missing;
                for (value, weight) in cell.values {
                    *sum.values.entry(value).or_default() += weight;
                }
            }
        }
        for (part, lanes) in crossing {
            self.add(part, &lanes)?;
        }
        Ok(())
    }

    fn record(&mut self, record: &Record, (begin, behind): (u64, u64)) {
        let begins = (begin..behind).contains(&record.begin);
        let weight = match self.table.schema().shape {
            Shape::Intervals => record.end.min(behind).saturating_sub(record.begin.max(begin)),
            _ => u64::from(begins),
        };
        if weight == 0 && !begins {
            return;
        }
        let sum = self.sums.entry(record.lane).or_default();
        sum.records += u64::from(begins);
        sum.weight += weight;
        *sum.values.entry(record.value).or_default() += weight;
    }
}
