//! `timeline/…`: pictures and records of the store.
//!
//! Times are nanoseconds from the snapshot's origin, which doubles hold exactly for 104 days.
//!
//! | path | parameters | answer |
//! |---|---|---|
//! | `timeline` | – | JSON: the tables, their columns and lanes, and the path of each lane |
//! | `timeline/tile` | generation, table, first, digits, tile | a picture of 32 lanes and 256 cells of time |
//! | `timeline/at` | generation, table, lane, time | JSON: the records there, with all cells |
//! | `timeline/change` | generation, table, lane, time, next | JSON: the next change of the lane, or the one before |
//! | `timeline/longest` | generation, table, begin, end | JSON: the longest records of the span |
//! | `timeline/links` | generation, table, begin, end | the links that begin in the span, and their number |
//! | `timeline/path` | tid | the pieces of a thread's critical path; their times are absolute |
//! | `timeline/sums` | generation, table, lanes, begin, end | JSON: what each lane holds in exactly this span |
//! | `timeline/search` | generation, text | the records whose value matches the regular expression, or contains the text |

mod critical;
mod lanes;
mod links;
mod records;
mod search;
mod sums;
mod tile;
mod values;

use std::sync::Arc;

use hodo_store::{Shape, Table};
use serde::Serialize;

pub(crate) use self::tile::{CELLS, LANES, tile_with_detail};
use self::values::{cut, value};
use crate::{
    answer::{Answer, Endpoint, Failure, Question, Work},
    index::Snapshot,
};

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "timeline", work: Work::Query, answer: tables },
    Endpoint { path: "timeline/tile", work: Work::Query, answer: tile::tile },
    Endpoint { path: "timeline/at", work: Work::Query, answer: records::at },
    Endpoint { path: "timeline/change", work: Work::Query, answer: records::change },
    Endpoint { path: "timeline/longest", work: Work::Query, answer: records::longest },
    Endpoint { path: "timeline/links", work: Work::Query, answer: links::links },
    Endpoint { path: "timeline/path", work: Work::Pass, answer: critical::path },
    Endpoint { path: "timeline/sums", work: Work::Query, answer: sums::sums },
    Endpoint { path: "timeline/search", work: Work::Query, answer: search::search },
];

/// The most lanes of a table that a page lists.
const MOST_LANES: u32 = 20_000;

fn tables(question: &Question<'_>) -> Result<Answer, Failure> {
    let session = question.session;
    let Some(snapshot) = session.index.snapshot(&*session.inputs) else {
        return Err(Failure::NotYet("the store has no records yet".to_owned()));
    };
    let tables = snapshot.store.tables().map(|table| described(question, &snapshot, &table));
    Answer::json(&Described {
        generation: snapshot.generation,
        origin: snapshot.origin.to_string(),
        length: snapshot.end - snapshot.origin,
        half_width: session.inputs.half_width(),
        tables: tables.collect::<Result<_, Failure>>()?,
        active: session.extent.span.map(|(from, to)| Active::within(&snapshot, from, to)),
        filter: session.extent.rows.as_deref(),
    })
}

/// The tables of a store.
#[derive(Serialize)]
struct Described<'s> {
    generation: u64,
    /// Exact in a page only as text.
    origin: String,
    length: u64,
    half_width: u64,
    tables: Vec<DescribedTable<'s>>,
    /// The span and the filter of rows that are shown first.
    active: Option<Active>,
    filter: Option<&'s str>,
}

/// A span of the timeline, in nanoseconds from the origin.
#[derive(Serialize)]
struct Active {
    begin: f64,
    length: f64,
}

impl Active {
    /// The part of a span that has records.
    fn within(snapshot: &Snapshot, from: u64, to: u64) -> Active {
        let (from, to) = (from.max(snapshot.origin), to.min(snapshot.end));
        Active { begin: snapshot.since(from), length: to.saturating_sub(from) as f64 }
    }
}

#[derive(Serialize)]
struct DescribedTable<'s> {
    name: &'s str,
    title: &'s str,
    shape: &'static str,
    key: Vec<&'s str>,
    value: &'s str,
    unit: &'s str,
    rows: u64,
    lanes: Vec<Vec<Option<String>>>,
    /// The place of each lane in the tree of all lanes.
    paths: Vec<Vec<String>>,
    lanes_left_out: u32,
    /// The names of a record's further cells.
    columns: Vec<&'s str>,
    values: Vec<(Option<String>, f64)>,
    /// The modules of these values, if they are functions of control flow.
    modules: Vec<Option<String>>,
    /// For each lane: places in `values`, with the weights in that lane.
    weights: Vec<Vec<(usize, f64)>>,
    /// For each lane: the instructions of calls at the bottom of stacks; empty without any.
    instructions: Vec<f64>,
}

fn described<'s>(
    question: &Question<'_>,
    snapshot: &'s Snapshot,
    table: &Table<'s>,
) -> Result<DescribedTable<'s>, Failure> {
    let schema = table.schema();
    let listed = 0..table.lanes().min(MOST_LANES);
    let path = |lane| snapshot.store.path(*table, lane).iter().map(|part| cut(part)).collect::<Vec<String>>();
    let lanes = listed.clone().map(|lane| {
        let cells = table.key(lane).unwrap_or_default().iter().zip(&schema.key);
        cells.map(|(cell, field)| value(&snapshot.store, *cell, field.kind)).collect()
    });
    let heaviest = lanes::heaviest(question, snapshot, table, listed.end)?;
    Ok(DescribedTable {
        name: &schema.name,
        title: &schema.naming.title,
        shape: shape(schema.shape),
        key: schema.key.iter().map(|field| field.name.as_str()).collect(),
        value: &schema.value.name,
        unit: &schema.value.unit,
        rows: table.rows(),
        lanes: lanes.collect(),
        paths: listed.map(path).collect(),
        lanes_left_out: table.lanes().saturating_sub(MOST_LANES),
        columns: schema.columns.iter().map(|field| field.name.as_str()).collect(),
        values: heaviest.values,
        modules: heaviest.modules,
        weights: heaviest.of_lanes,
        instructions: lanes::instructions(question, table, MOST_LANES.min(table.lanes()))?,
    })
}

fn shape(shape: Shape) -> &'static str {
    match shape {
        Shape::Intervals => "intervals",
        Shape::Points => "points",
        Shape::Counters => "counters",
        Shape::Links => "links",
    }
}

/// Returns the snapshot that the page means.
fn snapshot(question: &Question<'_>) -> Result<Arc<Snapshot>, Failure> {
    let generation = question.number("generation")?;
    let known = question.session.index.of_generation(generation);
    known.ok_or_else(|| Failure::NotYet("the store has grown meanwhile: ask for `timeline` again".to_owned()))
}

/// Returns the table that the page means.
fn table<'s>(question: &Question<'_>, snapshot: &'s Snapshot) -> Result<Table<'s>, Failure> {
    let name = question.text("table");
    snapshot.store.table(name).ok_or_else(|| Failure::Refused(format!("the store has no table {name}")))
}
