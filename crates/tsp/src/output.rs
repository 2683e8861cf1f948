//! Outputs: what the protocol shows of each table, by the shape of its records.

use hodo_store::{Error, Schema, Shape};

use crate::{
    Service,
    model::{Provider, TimeRange},
};

/// A kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    TimeGraph,
    Chart,
    Table,
    DataTree,
}

/// An output of a table: its kind and the table's number.
pub(crate) type Output = (Kind, usize);

impl Kind {
    const ALL: [Kind; 4] = [Kind::TimeGraph, Kind::Chart, Kind::DataTree, Kind::Table];

    /// The protocol's name.
    fn name(self) -> &'static str {
        match self {
            Kind::TimeGraph => "TIME_GRAPH",
            Kind::Chart => "TREE_TIME_XY",
            Kind::Table => "TABLE",
            Kind::DataTree => "DATA_TREE",
        }
    }

    /// The first part of identifiers of outputs.
    fn word(self) -> &'static str {
        match self {
            Kind::TimeGraph => "timeline",
            Kind::Chart => "chart",
            Kind::Table => "table",
            Kind::DataTree => "statistics",
        }
    }

    /// Whether tables of a shape have such an output.
    fn fits(self, shape: Shape) -> bool {
        match self {
            Kind::TimeGraph | Kind::DataTree => shape == Shape::Intervals,
            Kind::Chart => shape == Shape::Counters,
            Kind::Table => true,
        }
    }
}

/// What a table's records are, for people.
pub(crate) fn title(schema: &Schema) -> &str {
    if schema.naming.title.is_empty() { &schema.name } else { &schema.naming.title }
}

impl Service {
    /// Returns the outputs of all tables that have records.
    pub(crate) fn outputs(&self) -> Vec<Provider> {
        let outputs = Kind::ALL.into_iter().flat_map(|kind| {
            let tables = self.store.tables().filter(move |table| table.rows() > 0);
            tables.filter(move |table| kind.fits(table.schema().shape)).map(move |table| {
                let schema = table.schema();
                Provider {
                    id: format!("{}.{}", kind.word(), schema.name),
                    name: format!("{}: {}", kind.word(), title(schema)),
                    description: format!(
                        "The {} of the table {} as a {}.",
                        title(schema),
                        schema.name,
                        kind.word()
                    ),
                    kind: kind.name(),
                }
            })
        });
        outputs.collect()
    }

    /// Returns the output with an identifier.
    pub(crate) fn output(&self, id: &str) -> Option<Output> {
        let (word, name) = id.split_once('.')?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word)?;
        let table = self.store.tables().position(|table| table.schema().name == name)?;
        kind.fits(self.table(table).schema().shape).then_some((kind, table))
    }
}

/// The most times of a query, and the most slices in all.
const MOST_TIMES: usize = 1 << 14;
const MOST_SLICES: usize = 1 << 22;
/// The number of times if a query names none.
const DEFAULT_TIMES: usize = 1000;

/// A span of time with a resolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledSpan {
    /// The first instant.
    pub(crate) begin: u64,
    /// The first instant after it.
    pub(crate) behind: u64,
    /// Times at most.
    pub(crate) times: usize,
}

impl TimeRange {
    /// Returns the span, which has at least one instant.
    pub(crate) fn span(self) -> SampledSpan {
        let time = |time: i64| u64::try_from(time).unwrap_or(0);
        let (begin, end) = (time(self.start), time(self.end));
        let times = self.nb_times.map_or(DEFAULT_TIMES, |times| usize::try_from(times).unwrap_or(1));
        SampledSpan { begin, behind: end.max(begin) + 1, times: times.clamp(1, MOST_TIMES) }
    }
}

impl SampledSpan {
    /// Returns the most slices of each of some lanes, so that all of them stay within bounds.
    pub(crate) fn slices(self, lanes: usize) -> usize {
        self.times.min(MOST_SLICES / lanes.max(1)).max(1)
    }
}

/// The outcome of a query: a model, and a remark on it, which is empty if there is none.
pub(crate) type Outcome<T> = Result<(T, String), Error>;
