//! Tiles: pictures of some lanes and some cells of time, which a page puts together and keeps.
//!
//! The cells of a tile are 4^n nanoseconds wide, and tiles lie side by side, so the same tile serves every view that
//! contains it. A lane with few records in a tile has these; other lanes have a row for each cell and heavy value.

use std::ops::Range;

use hodo_model::{Column, Shape, Table, Unit, Value};
use hodo_store::{Kind, LaneSlices, Lanes, Record, Slices, TimeCell};

use super::values::{module, number, value};
use crate::{
    answer::{Answer, Failure, Question},
    index::Snapshot,
};

/// Cells of time of a tile.
pub(crate) const CELLS: u64 = 256;
/// Lanes of a tile.
pub(crate) const LANES: u32 = 32;
/// Values of a cell that the picture distinguishes; the rest of its weight is shown as other values.
const VALUES: usize = 4;
/// Rows that a tile may decode.
const BUDGET: u64 = 1 << 25;

pub(super) fn tile(question: &Question<'_>) -> Result<Answer, Failure> {
    Ok(tile_with_detail(question)?.0)
}

/// Makes a tile; also returns whether finer tiles show more than it does.
pub(crate) fn tile_with_detail(question: &Question<'_>) -> Result<(Answer, bool), Failure> {
    let snapshot = super::snapshot(question)?;
    let table = super::table(question, &snapshot)?;
    let (digits, tile, first) =
        (question.number("digits")?, question.number("tile")?, question.number("first")?);
    let span = span(digits, tile)?;
    let lanes: Vec<u32> = (first..table.lanes().min(u32::saturating_add(first, LANES))).collect();
    if lanes.is_empty() {
        return Err(Failure::Refused(format!("first={first}: the table has {} lanes", table.lanes())));
    }
    let most = CELLS as usize;
    let slices = table.slices((span.start, span.end), Lanes::Some(&lanes), most, &question.budget(BUDGET))?;
    let is_coarse = slices.iter().any(|lane| matches!(lane.slices, Slices::Cells(_)));
    let rows =
        slices.into_iter().flat_map(|lane| rows(lane, question, &table, &snapshot)).collect::<Vec<_>>();
    let table = Table::new("tile", Shape::Intervals, Vec::new(), columns(), rows);
    Ok((Answer::table(&table, usize::MAX)?, is_coarse))
}

/// Returns the span of a tile, whose cells are `2^digits` nanoseconds wide.
fn span(digits: u32, tile: u64) -> Result<Range<u64>, Failure> {
    let wrong = || Failure::Refused(format!("digits={digits}&tile={tile}: there is no such tile"));
    let width = 1u64.checked_shl(digits).and_then(|cell| cell.checked_mul(CELLS));
    let width = width.filter(|_| digits.is_multiple_of(2)).ok_or_else(wrong)?;
    let begin = tile.checked_mul(width).ok_or_else(wrong)?;
    Ok(begin..begin.saturating_add(width))
}

fn columns() -> Vec<Column> {
    vec![
        Column::integer("lane", Unit::None),
        Column::real("begin", Unit::Nanoseconds),
        Column::real("end", Unit::Nanoseconds),
        // Records that begin in the cell; a record by itself counts as null.
        Column::integer("records", Unit::Count),
        Column::real("weight", Unit::None),
        Column::name("value"),
        Column::name("module"),
        Column::real("value_weight", Unit::None),
        Column::real("missing", Unit::None),
        Column::real("low", Unit::None),
        Column::real("high", Unit::None),
    ]
}

fn rows(
    lane: LaneSlices,
    question: &Question<'_>,
    table: &hodo_store::Table<'_>,
    snapshot: &Snapshot,
) -> Vec<Vec<Value>> {
    let row = LaneRows { lane: lane.lane, kind: table.schema().value.kind, question, table, snapshot };
    match lane.slices {
        Slices::Records(records) => records.iter().map(|record| row.record(record)).collect(),
        Slices::Cells(cells) => cells.iter().flat_map(|cell| row.cell(cell)).collect(),
    }
}

/// Makes rows of a lane.
struct LaneRows<'s> {
    lane: u32,
    kind: Kind,
    question: &'s Question<'s>,
    table: &'s hodo_store::Table<'s>,
    snapshot: &'s Snapshot,
}

/// What a row shows, before it has words.
struct TileRow {
    begin: u64,
    end: u64,
    records: Option<u64>,
    weight: u64,
    value: Option<u64>,
    value_weight: u64,
    missing: u64,
    low: Option<u64>,
    high: Option<u64>,
}

impl LaneRows<'_> {
    fn record(&self, record: &Record) -> Vec<Value> {
        let Record { begin, end, value, .. } = *record;
        let weight = end.abs_diff(begin);
        let records = None;
        let (value_weight, missing, low, high) = (weight, 0, value, value);
        self.row(TileRow { begin, end, records, weight, value, value_weight, missing, low, high })
    }

    fn cell(&self, cell: &TimeCell) -> Vec<Vec<Value>> {
        let TimeCell { begin, rows, weight, missing, .. } = *cell;
        let (end, records) = (cell.last.saturating_add(1), Some(rows));
        let (low, high) = cell.range.unzip();
        let row = |(value, value_weight)| {
            self.row(TileRow { begin, end, records, weight, value, value_weight, missing, low, high })
        };
        match cell.values.as_slice() {
            // Records without duration have no weight, and must not vanish.
            [] => vec![row((None, 0))],
            values => values.iter().take(VALUES).map(|&value| row(value)).collect(),
        }
    }

    fn row(&self, row: TileRow) -> Vec<Value> {
        let bound = |bits| number(bits, self.kind).map_or(Value::Null, Value::from);
        vec![
            u64::from(self.lane).into(),
            self.snapshot.since(row.begin).into(),
            self.snapshot.since(row.end).into(),
            row.records.into(),
            (row.weight as f64).into(),
            value(&self.snapshot.store, row.value, self.kind).into(),
            module(self.question, self.snapshot, self.table, row.value).into(),
            (row.value_weight as f64).into(),
            (row.missing as f64).into(),
            bound(row.low),
            bound(row.high),
        ]
    }
}
