//! The reports of events that a store contains, and the conversion of their rows to records.

use hodo_model::{
    Heading, LaneValue, Lanes, Parameters, Selection, Type,
    table::{Cell, Cells},
};
use hodo_store::{Error, Feed, Field, Kind, Naming, Schema, Shape, Writer};

use super::NO_SPAN;
use crate::{
    experiment::Request,
    reading::Chunks,
    registry::{AnyReport, reports},
    traces::cover,
};

/// Columns with the begin of a record.
const BEGINS: [&str; 2] = ["begin_ns", "at_ns"];
/// The column with the duration of an interval.
const DURATION: &str = "duration_ns";
/// Bytes of trace that are folded before the finished rows are written: it bounds the rows that are in memory.
const CHUNK: u64 = 8 << 20;

/// Returns the names of a table and its lanes.
pub(super) fn naming(title: &str, path: &[&str]) -> Naming {
    Naming { title: title.to_owned(), path: path.iter().map(|part| (*part).to_owned()).collect() }
}

/// Returns the reports that a store contains. A table of the store has the name of its report.
///
/// Lanes come after those above them in the tree, so that threads are in the order of their states; links, which connect
/// lanes of other tables, come last.
pub(super) fn indexed() -> Vec<(&'static AnyReport, Lanes)> {
    let mut all: Vec<(&AnyReport, Lanes)> = Vec::new();
    for report in reports() {
        all.extend(report.description.lanes.map(|lanes| (report, lanes)));
    }
    all.sort_by_key(|(_, lanes)| (matches!(lanes.value, LaneValue::Lane(_)), lanes.path.len()));
    all
}

/// Returns the request for the rows of a report.
pub(super) fn request(report: &'static AnyReport, lanes: Lanes, threads: usize) -> Request {
    let selection = Selection { view: lanes.view.to_owned(), ..Selection::default() };
    let parameters = Parameters { selection, alone: true, ..Parameters::default() };
    Request { threads, chunks: Chunks::Bytes(CHUNK), ..Request::of(vec![report], parameters) }
}

/// Returns the kind of a column's cells; `None` for lists, which records don't support.
fn kind(column: Type) -> Option<Kind> {
    Some(match column {
        Type::Text | Type::Name => Kind::Name,
        Type::Integer => Kind::Integer,
        Type::Signed => Kind::Signed,
        Type::Real => Kind::Real,
        Type::Boolean => Kind::Boolean,
        Type::List(_) => return None,
    })
}

/// Indexes of the columns of a report by what they become.
struct ColumnIndices {
    begin: usize,
    duration: Option<usize>,
    lane: Vec<usize>,
    /// One column, or those of a lane.
    value: Vec<usize>,
    others: Vec<usize>,
}

impl ColumnIndices {
    fn new(lanes: &Lanes, heading: &Heading) -> ColumnIndices {
        let find = |name: &str| heading.columns.iter().position(|column| column.name == name);
        let index =
            |name: &&str| find(name).expect("a report that is indexed has the columns that its lanes name");
        let begin = BEGINS.iter().find_map(|name| find(name)).expect("a report that is indexed has times");
        let (duration, lane) = (find(DURATION), lanes.lane.iter().map(index).collect::<Vec<_>>());
        let value: Vec<usize> = match lanes.value {
            LaneValue::Column(name) => vec![index(&name)],
            LaneValue::Lane(names) => names.iter().map(index).collect(),
        };
        let is_other = |index: &usize| {
            !lane.contains(index) && !value.contains(index) && *index != begin && Some(*index) != duration
        };
        let is_cell = |index: &usize| kind(heading.columns[*index].kind).is_some();
        let others = (0..heading.columns.len()).filter(|index| is_other(index) && is_cell(index)).collect();
        ColumnIndices { begin, duration, lane, value, others }
    }
}

/// Converts rows of a report to records of a store.
pub(super) struct Rows {
    feed: Feed,
    indices: ColumnIndices,
    /// Whether the records are links, whose values are lanes.
    are_links: bool,
    /// The first begin and the last end.
    span: (u64, u64),
}

impl Rows {
    pub(super) fn new(writer: &Writer, lanes: &Lanes, heading: &Heading) -> Result<Rows, Error> {
        let indices = ColumnIndices::new(lanes, heading);
        let field = |index: usize| {
            let column = &heading.columns[index];
            let kind = kind(column.kind).expect("a key, a value and a cell of a record are no lists");
            Field { name: column.name.to_owned(), kind, unit: column.unit.name().to_owned() }
        };
        let fields = |indices: &[usize]| indices.iter().map(|&index| field(index)).collect();
        let value = match lanes.value {
            LaneValue::Column(_) => field(indices.value[0]),
            LaneValue::Lane(names) => Field::new(names[names.len() - 1], Kind::Lane),
        };
        let shape = match (lanes.value, indices.duration) {
            (LaneValue::Lane(_), _) => Shape::Links,
            (LaneValue::Column(_), Some(_)) => Shape::Intervals,
            (LaneValue::Column(_), None) => Shape::Counters,
        };
        let schema = Schema {
            name: heading.name.to_owned(),
            shape,
            key: fields(&indices.lane),
            value,
            columns: fields(&indices.others),
            naming: naming(lanes.title, lanes.path),
        };
        let feed = writer.feed(writer.table(&schema)?);
        Ok(Rows { feed, indices, are_links: schema.shape == Shape::Links, span: NO_SPAN })
    }

    /// Adds the records of `rows` rows.
    pub(super) fn add(&mut self, columns: &[Cells<'_>], rows: usize) -> Result<(), Error> {
        let Rows { feed, indices, are_links, span } = self;
        let mut cells = Vec::new();
        for row in 0..rows {
            let time = |index: usize| match columns[index].cell(row) {
                Cell::Integer(time) => time,
                cell => panic!("a time is {cell:?}"),
            };
            let begin = time(indices.begin);
            let end = indices.duration.map_or(begin, |index| begin.saturating_add(time(index)));
            *span = cover(*span, (begin, end));
            read_cells(feed, columns, row, &indices.lane, &mut cells)?;
            let lane = feed.lane(&cells)?;
            read_cells(feed, columns, row, &indices.value, &mut cells)?;
            let value = if *are_links { Some(feed.lane(&cells)?.into()) } else { cells[0] };
            read_cells(feed, columns, row, &indices.others, &mut cells)?;
            feed.push(lane, (begin, end), value, &cells)?;
        }
        Ok(())
    }

    /// Writes the last rows, and returns the first begin and the last end of all.
    pub(super) fn finish(&mut self) -> Result<(u64, u64), Error> {
        self.feed.flush()?;
        Ok(self.span)
    }
}

/// Replaces `cells` by the cells of a row at some indices, in the form of the store.
fn read_cells(
    feed: &mut Feed,
    columns: &[Cells<'_>],
    row: usize,
    indices: &[usize],
    cells: &mut Vec<Option<u64>>,
) -> Result<(), Error> {
    cells.clear();
    for &index in indices {
        cells.push(match columns[index].cell(row) {
            Cell::Null | Cell::List(_) => None,
            Cell::Text(text) => Some(feed.name(text)?),
            Cell::Integer(integer) => Some(integer),
            Cell::Signed(integer) => Some(integer as u64),
            Cell::Real(real) => Some(real.to_bits()),
            Cell::Boolean(truth) => Some(truth.into()),
        });
    }
    Ok(())
}
