//! The reports of events that a store contains, and the conversion of their rows to records.

use hodo_model::{
    Heading, Parameters, Selection, Type,
    table::{Cell, Cells},
};
use hodo_store::{Error, Feed, Field, Kind, Naming, Schema, Shape, Writer};

use crate::{experiment::Request, reading::Chunks, registry::report};

/// A report whose rows are records of a store. A table of the store has the name of its report.
pub(super) struct Indexed {
    pub(super) report: &'static str,
    pub(super) view: &'static str,
    shape: Shape,
    /// What the records are, for people.
    title: &'static str,
    /// The columns that identify a lane.
    lane: &'static [&'static str],
    value: Source,
    /// The path of a lane in the tree of all lanes; see [`Naming::path`].
    path: &'static [&'static str],
}

/// What becomes the value of a record.
enum Source {
    /// The cell of a column.
    Column(&'static str),
    /// The lane that these columns identify, for links.
    Lane(&'static [&'static str]),
}

/// A thread in the tree of lanes. All of its lanes are below it.
pub(super) const THREAD: [&str; 3] = ["Threads", "process {pid}", "{comm} ({tid})"];

/// The reports that a store contains. Their rows settle, so that they are written in bounded memory.
pub(super) const INDEXED: &[Indexed] = &[
    Indexed {
        report: "cpu",
        view: "interval",
        shape: Shape::Intervals,
        title: "running threads",
        lane: &["cpu"],
        value: Source::Column("comm"),
        path: &["CPUs", "CPU {cpu}"],
    },
    Indexed {
        report: "irq",
        view: "interval",
        shape: Shape::Intervals,
        title: "interrupt handlers",
        lane: &["cpu", "kind"],
        value: Source::Column("name"),
        path: &["CPUs", "CPU {cpu}", "{kind} interrupts"],
    },
    Indexed {
        report: "queue",
        view: "change",
        shape: Shape::Counters,
        title: "threads that wait for a CPU",
        lane: &["cpu"],
        value: Source::Column("waiting"),
        path: &["CPUs", "CPU {cpu}", "waiting threads"],
    },
    Indexed {
        report: "states",
        view: "interval",
        shape: Shape::Intervals,
        title: "states of threads",
        lane: &["pid", "tid", "comm"],
        value: Source::Column("state"),
        path: &THREAD,
    },
    Indexed {
        report: "syscalls",
        view: "interval",
        shape: Shape::Intervals,
        title: "system calls",
        lane: &["pid", "tid", "comm"],
        value: Source::Column("call"),
        path: &["Threads", "process {pid}", "{comm} ({tid})", "system calls"],
    },
    Indexed {
        report: "tasks",
        view: "interval",
        shape: Shape::Intervals,
        title: "running tasks of boards",
        lane: &["host"],
        value: Source::Column("task"),
        path: &["Boards", "{host}"],
    },
    Indexed {
        report: "callstack",
        view: "interval",
        shape: Shape::Intervals,
        title: "calls, by events at their entry and exit",
        lane: &["host", "thread", "depth"],
        value: Source::Column("function"),
        path: &["Call stacks", "{host}", "{thread}", "{depth}"],
    },
    Indexed {
        report: "wakers",
        view: "wakeup",
        shape: Shape::Links,
        title: "wake-ups",
        lane: &["waker_pid", "waker_tid", "waker"],
        value: Source::Lane(&["woken_pid", "woken_tid", "woken"]),
        path: &["Threads", "process {waker_pid}", "{waker} ({waker_tid})"],
    },
    Indexed {
        report: "messages",
        view: "message",
        shape: Shape::Links,
        title: "messages",
        lane: &["from"],
        value: Source::Lane(&["to"]),
        path: &["Boards", "{from}"],
    },
];

/// Columns with the begin of a record.
const BEGINS: [&str; 2] = ["begin_ns", "at_ns"];
/// The column with the duration of an interval.
const DURATION: &str = "duration_ns";
/// Bytes of trace that are folded before rows leave: what a report keeps at a time is much smaller than its bounds.
const CHUNK: u64 = 8 << 20;

/// Returns the names of a table and its lanes.
pub(super) fn naming(title: &str, path: &[&str]) -> Naming {
    Naming { title: title.to_owned(), path: path.iter().map(|part| (*part).to_owned()).collect() }
}

impl Indexed {
    /// Returns the request for the rows of the report.
    pub(super) fn request(&self, threads: usize) -> Request {
        let selection = Selection { view: self.view.to_owned(), ..Selection::default() };
        let parameters = Parameters { selection, alone: true, ..Parameters::default() };
        let known = report(self.report).expect("what is indexed is a report");
        Request { threads, chunks: Chunks::Bytes(CHUNK), ..Request::of(vec![known], parameters) }
    }
}

/// Returns the kind of a column's cells; `None` for lists, which records don't support.
fn kind(of: Type) -> Option<Kind> {
    Some(match of {
        Type::Text | Type::Name => Kind::Name,
        Type::Integer => Kind::Integer,
        Type::Signed => Kind::Signed,
        Type::Real => Kind::Real,
        Type::Boolean => Kind::Boolean,
        Type::List(_) => return None,
    })
}

/// Indexes of the columns of a report by what they become.
struct Places {
    begin: usize,
    duration: Option<usize>,
    lane: Vec<usize>,
    /// One column, or those of a lane.
    value: Vec<usize>,
    others: Vec<usize>,
}

impl Places {
    fn new(indexed: &Indexed, heading: &Heading) -> Places {
        let find = |name: &str| heading.columns.iter().position(|column| column.name == name);
        let place =
            |name: &&str| find(name).expect("a report that is indexed has the columns that its index names");
        let begin = BEGINS.iter().find_map(|name| find(name)).expect("a report that is indexed has times");
        let (duration, lane) = (find(DURATION), indexed.lane.iter().map(place).collect::<Vec<_>>());
        let value: Vec<usize> = match &indexed.value {
            Source::Column(name) => vec![place(name)],
            Source::Lane(names) => names.iter().map(place).collect(),
        };
        let is_other = |place: &usize| {
            !lane.contains(place) && !value.contains(place) && *place != begin && Some(*place) != duration
        };
        let is_cell = |place: &usize| kind(heading.columns[*place].kind).is_some();
        let others = (0..heading.columns.len()).filter(|place| is_other(place) && is_cell(place)).collect();
        Places { begin, duration, lane, value, others }
    }
}

/// Converts rows of a report to records of a store.
pub(super) struct Rows {
    feed: Feed,
    places: Places,
    /// Whether values are lanes.
    links: bool,
    /// The first begin and the last end.
    span: (u64, u64),
}

impl Rows {
    pub(super) fn new(writer: &Writer, indexed: &Indexed, heading: &Heading) -> Result<Rows, Error> {
        let places = Places::new(indexed, heading);
        let field = |place: usize| {
            let column = &heading.columns[place];
            let kind = kind(column.kind).expect("a key, a value and a cell of a record are no lists");
            Field { name: column.name.to_owned(), kind, unit: column.unit.name().to_owned() }
        };
        let fields = |places: &[usize]| places.iter().map(|&place| field(place)).collect();
        let value = match &indexed.value {
            Source::Column(_) => field(places.value[0]),
            Source::Lane(names) => Field::new(names[names.len() - 1], Kind::Lane),
        };
        let schema = Schema {
            name: heading.name.to_owned(),
            shape: indexed.shape,
            key: fields(&places.lane),
            value,
            columns: fields(&places.others),
            naming: naming(indexed.title, indexed.path),
        };
        let feed = writer.feed(writer.table(&schema)?);
        Ok(Rows { feed, places, links: schema.shape == Shape::Links, span: (u64::MAX, 0) })
    }

    pub(super) fn add(&mut self, columns: &[Cells<'_>], rows: usize) -> Result<(), Error> {
        let Rows { feed, places, links, span } = self;
        let mut cells = Vec::new();
        for row in 0..rows {
            let time = |place: usize| match columns[place].cell(row) {
                Cell::Integer(time) => time,
                cell => panic!("a time is {cell:?}"),
            };
            let begin = time(places.begin);
            let end = places.duration.map_or(begin, |place| begin.saturating_add(time(place)));
            *span = (span.0.min(begin), span.1.max(end));
            take(feed, columns, row, &places.lane, &mut cells)?;
            let lane = feed.lane(&cells)?;
            take(feed, columns, row, &places.value, &mut cells)?;
            let value = if *links { Some(feed.lane(&cells)?.into()) } else { cells[0] };
            take(feed, columns, row, &places.others, &mut cells)?;
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

/// Replaces `cells` by the cells of a row at some places, in the form of the store.
fn take(
    feed: &mut Feed,
    columns: &[Cells<'_>],
    row: usize,
    places: &[usize],
    cells: &mut Vec<Option<u64>>,
) -> Result<(), Error> {
    cells.clear();
    for &place in places {
        cells.push(match columns[place].cell(row) {
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
