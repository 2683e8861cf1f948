//! The values that matter most in the lanes of a table.

use std::collections::BTreeMap;

use hodo_store::{Error, Kind, Lanes, Slices, Table};

use super::values::value;
use crate::{
    answer::{Failure, Question},
    index::Snapshot,
};

/// Values of a table that get a colour of their own.
const VALUES: usize = 24;
/// Rows that a question may decode.
const BUDGET: u64 = 1 << 23;

/// The heaviest values of a table, with their weights in all lanes; none of a table that is too large to ask.
pub(super) fn heaviest(
    question: &Question<'_>,
    snapshot: &Snapshot,
    table: &Table<'_>,
) -> Result<Vec<(Option<String>, f64)>, Failure> {
    let (kind, Some((begin, last))) = (table.schema().value.kind, table.span()) else {
        return Ok(Vec::new());
    };
    if kind != Kind::Name {
        return Ok(Vec::new());
    }
    let lanes = match table.slices((begin, last.saturating_add(1)), Lanes::All, 4, &question.budget(BUDGET)) {
        Err(Error::TooMuch(_)) => return Ok(Vec::new()),
        lanes => lanes?,
    };
    let mut weights: BTreeMap<Option<u64>, u64> = BTreeMap::new();
    for lane in lanes {
        let values: Vec<(Option<u64>, u64)> = match lane.slices {
            Slices::Records(records) => {
                records.iter().map(|record| (record.value, record.end - record.begin)).collect()
            }
            Slices::Cells(cells) => cells.into_iter().flat_map(|cell| cell.values).collect(),
        };
        for (name, weight) in values {
            *weights.entry(name).or_default() += weight;
        }
    }
    let mut weights: Vec<(Option<u64>, u64)> = weights.into_iter().collect();
    weights.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    let named = |(name, weight): (Option<u64>, u64)| (value(&snapshot.store, name, kind), weight as f64);
    Ok(weights.into_iter().take(VALUES).map(named).collect())
}
