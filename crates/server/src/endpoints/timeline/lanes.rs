//! The values that matter most in the lanes of a table, and how much each lane has of them.

use std::collections::BTreeMap;

use hodo_store::{Error, Kind, Lanes, Slices, Table, Wanted};

use super::values::{module, value};
use crate::{
    answer::{Failure, Question},
    index::Snapshot,
};

/// Values of a table that get a colour of their own.
const VALUES: usize = 24;
/// Rows that a question may decode.
const BUDGET: u64 = 1 << 23;

/// Values whose weights are given for a lane.
const VALUES_OF_LANE: usize = 8;
/// Calls at the bottom of stacks whose instructions are summed.
const CALLS: usize = 1 << 16;

/// What a table has most of.
#[derive(Default)]
pub(super) struct Heaviest {
    /// The heaviest values, with their weights in all lanes; none of a table that is too large to ask.
    pub(super) values: Vec<(Option<String>, f64)>,
    /// The modules of these values, if they are functions of control flow.
    pub(super) modules: Vec<Option<String>>,
    /// For each lane: places in `values`, with the weights in that lane.
    pub(super) of_lanes: Vec<Vec<(usize, f64)>>,
}

/// Returns the heaviest values of a table and of its first `listed` lanes.
pub(super) fn heaviest(
    question: &Question<'_>,
    snapshot: &Snapshot,
    table: &Table<'_>,
    listed: u32,
) -> Result<Heaviest, Failure> {
    let (kind, Some((begin, last))) = (table.schema().value.kind, table.span()) else {
        return Ok(Heaviest::default());
    };
    if kind != Kind::Name {
        return Ok(Heaviest::default());
    }
    let lanes = match table.slices((begin, last.saturating_add(1)), Lanes::All, 4, &question.budget(BUDGET)) {
        Err(Error::TooMuch(_)) => return Ok(Heaviest::default()),
        lanes => lanes?,
    };
    let mut weights: BTreeMap<Option<u64>, u64> = BTreeMap::new();
    let mut of_lanes: Vec<Vec<(Option<u64>, u64)>> = vec![Vec::new(); listed as usize];
    for lane in lanes {
        let mut own: BTreeMap<Option<u64>, u64> = BTreeMap::new();
        for (name, weight) in values_of(lane.slices) {
            *weights.entry(name).or_default() += weight;
            *own.entry(name).or_default() += weight;
        }
        if let Some(place) = of_lanes.get_mut(lane.lane as usize) {
            *place = first_of(own, VALUES_OF_LANE);
        }
    }
    let values = first_of(weights, VALUES);
    let places: BTreeMap<Option<u64>, usize> =
        (0..).zip(&values).map(|(at, &(name, _))| (name, at)).collect();
    let placed = |own: Vec<(Option<u64>, u64)>| -> Vec<(usize, f64)> {
        own.iter().filter_map(|(name, weight)| Some((*places.get(name)?, *weight as f64))).collect()
    };
    let named = |(name, weight): (Option<u64>, u64)| (value(&snapshot.store, name, kind), weight as f64);
    let modules = values.iter().map(|&(name, _)| module(question, snapshot, table, name)).collect();
    Ok(Heaviest {
        modules,
        of_lanes: of_lanes.into_iter().map(placed).collect(),
        values: values.into_iter().map(named).collect(),
    })
}

fn values_of(slices: Slices) -> Vec<(Option<u64>, u64)> {
    match slices {
        Slices::Records(records) => {
            records.iter().map(|record| (record.value, record.end - record.begin)).collect()
        }
        Slices::Cells(cells) => cells.into_iter().flat_map(|cell| cell.values).collect(),
    }
}

/// The heaviest values, at most `most`.
fn first_of(weights: BTreeMap<Option<u64>, u64>, most: usize) -> Vec<(Option<u64>, u64)> {
    let mut weights: Vec<(Option<u64>, u64)> = weights.into_iter().collect();
    weights.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    weights.truncate(most);
    weights
}

/// Returns the instructions of each listed lane that is the bottom of a call stack, callees included; of its first
/// calls, if there are very many. Empty if the table has no calls with instructions.
pub(super) fn instructions(
    question: &Question<'_>,
    table: &Table<'_>,
    listed: u32,
) -> Result<Vec<f64>, Failure> {
    let schema = table.schema();
    let column = schema.columns.iter().position(|field| field.unit == "instructions");
    let depth = schema.key.iter().position(|field| field.name == "depth");
    let (Some(column), Some(depth), Some(_)) = (column, depth, table.span()) else {
        return Ok(Vec::new());
    };
    let is_bottom = |lane: &u32| table.key(*lane).is_some_and(|key| key.get(depth) == Some(&Some(0)));
    let bottoms: Vec<u32> = (0..listed).filter(is_bottom).collect();
    if bottoms.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = Wanted { lanes: Lanes::Some(&bottoms), ..Wanted::ALL };
    let calls = match table.records(&wanted, None, CALLS, &question.budget(BUDGET)) {
        Err(Error::TooMuch(_)) => return Ok(Vec::new()),
        calls => calls?,
    };
    let mut sums = vec![0.0; listed as usize];
    for call in calls {
        if let (Some(sum), Some(Some(count))) = (sums.get_mut(call.lane as usize), call.cells.get(column)) {
            *sum += *count as f64;
        }
    }
    Ok(sums)
}
