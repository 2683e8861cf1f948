//! Each event class as a table: a row for each event, a column for each field.

use std::collections::BTreeMap;

use hodo_clock::OriginNanos;
use hodo_engine::{
    EventReading, Losses, Traces,
    events::{Filter, Merge, Slice, Wanted, plan},
    in_order,
};
use hodo_formats::events::{
    Event, FieldPath, Item, Stream, Trace, Trouble,
    schema::{EventClass, Scope, Structure},
};
use hodo_model::{
    Column, Shape, TableBuilder, Type, Unit,
    event::{FieldSink, JsonFields, Meaning, Name},
    table::{Cell, RecordBatch, interned},
    vocabulary,
};

use super::{
    names::{StreamNames, names},
    unreadable,
};

/// The columns that every table begins with.
const TIME: &str = "time_ns";
const STREAM: &str = "stream";
const CPU: &str = "cpu";
/// The name of the table of all events.
const ALL: &str = "events";
/// Prefixes of a context, and of a field, whose name another column has.
const CONTEXT_PREFIX: &str = "context_";
const FIELD_PREFIX: &str = "field_";

/// The events of one name as a table, over all traces and streams.
#[derive(Clone, Debug)]
pub struct EventTable {
    /// The name of the events; `events` for all.
    pub name: String,
    /// The columns: `time_ns` on the timeline, `stream`, `cpu`, contexts, fields.
    pub columns: Vec<Column>,
    /// Where the columns after the first two are from.
    origins: Vec<Origin>,
}

/// Where the cells of a column are from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// The CPU, whatever its name.
    Cpu,
    /// A context of this name.
    Context(String),
    /// A field of this name.
    Field(String),
    /// The name of the event.
    Name,
    /// All fields as JSON.
    Fields,
}

/// How to read the cells of a column from the events of a class.
#[derive(Clone, Debug)]
enum Reading {
    Field(FieldPath),
    Name,
    Fields,
}

impl Origin {
    fn find(&self, trace: &Trace<'_>, stream: &Stream<'_>, event: &EventClass) -> Option<Reading> {
        let has = |name: &String| {
            let mut members = event.payload.iter().flat_map(|payload| &payload.members);
            members.any(|member| member.name == *name)
        };
        let path = match self {
            Origin::Name => return Some(Reading::Name),
            Origin::Fields => return Some(Reading::Fields),
            Origin::Cpu => {
                let mut names = vocabulary::context("cpu_id").iter();
                names.find_map(|name| trace.find_context(stream, event, &[name]))
            }
            Origin::Context(name) => trace.find_context(stream, event, &[name]),
            Origin::Field(name) if has(name) => trace.find(stream, event, &[name]),
            Origin::Field(_) => None,
        };
        path.map(Reading::Field)
    }
}

/// Returns a table for each name of events that the traces' metadata describe, in order of the names, and one of all
/// events.
pub fn event_tables(traces: &Traces<'_>) -> Vec<EventTable> {
    let mut tables: BTreeMap<&str, EventTable> = BTreeMap::new();
    for trace in &traces.events {
        let mut classes = Vec::new();
        for stream in &trace.streams {
            let class = trace.stream_class(stream);
            if classes.contains(&class.id) {
                continue;
            }
            classes.push(class.id);
            for event in &class.events {
                let table = tables.entry(&event.name).or_insert_with(|| EventTable::new(&event.name));
                if Origin::Cpu.find(trace, stream, event).is_some() {
                    table.add(CPU, Origin::Cpu, Type::Integer);
                }
                for context in [&class.common_context, &event.specific_context] {
                    table.add_all(context.as_ref(), Origin::Context, CONTEXT_PREFIX);
                }
                table.add_all(event.payload.as_ref(), Origin::Field, FIELD_PREFIX);
            }
        }
    }
    let is_free = !tables.contains_key(ALL) && !tables.is_empty();
    tables.into_values().chain(is_free.then(EventTable::of_all)).collect()
}

impl EventTable {
    fn new(name: &str) -> EventTable {
        let columns = vec![Column::signed(TIME, Unit::Nanoseconds), Column::name(STREAM)];
        EventTable { name: name.to_owned(), columns, origins: Vec::new() }
    }

    /// All events: `time_ns`, `stream`, `cpu`, `event`, and `fields` as JSON.
    pub fn of_all() -> EventTable {
        let mut table = EventTable::new(ALL);
        table.add(CPU, Origin::Cpu, Type::Integer);
        table.add("event", Origin::Name, Type::Name);
        table.add("fields", Origin::Fields, Type::Text);
        table
    }

    fn is_of(&self, event: &EventClass) -> bool {
        self.origins.contains(&Origin::Name) || event.name == self.name
    }

    fn add_all(&mut self, structure: Option<&Structure>, origin: fn(String) -> Origin, prefix: &str) {
        for member in structure.iter().flat_map(|structure| &structure.members) {
            let Some(kind) = member.class.column_type() else { continue };
            let origin = origin(member.name.clone());
            let is_other = |(column, own): (&Column, &Origin)| {
                column.name.eq_ignore_ascii_case(&member.name) && *own != origin
            };
            let taken = [TIME, STREAM].contains(&member.name.as_str())
                || self.columns[2..].iter().zip(&self.origins).any(is_other);
            let name = if taken { format!("{prefix}{}", member.name) } else { member.name.clone() };
            self.add(&name, origin, kind);
        }
    }

    /// Adds a column, or widens the type of the one that has this origin.
    fn add(&mut self, name: &str, origin: Origin, kind: Type) {
        match self.origins.iter().position(|known| *known == origin) {
            Some(index) => {
                let known = &mut self.columns[index + 2].kind;
                if *known != kind {
                    *known = Type::Text;
                }
            }
            None if self.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name)) => {}
            None => {
                self.columns.push(Column { kind, ..Column::name(interned(name)) });
                self.origins.push(origin);
            }
        }
    }

    /// Reads the events that pass the filter, in order of time. `rows` receives batches, and returns whether to continue.
    /// Cells of columns without a flag in `read` are null. `progress` receives the bytes read, and returns whether to
    /// continue. Returns what could not be read.
    pub fn read(
        &self,
        traces: &Traces<'_>,
        (wanted, reading): (&Wanted, &EventReading),
        read: &[bool],
        rows: &mut (dyn FnMut(RecordBatch) -> bool + Send),
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Losses {
        let mut losses = Losses::default();
        traces.event_losses().into_iter().for_each(|loss| losses.add(loss));
        let reader = TableReader::new(self, traces, (wanted, reading), read);
        let slices = plan(traces, reading);
        let mut done = 0;
        in_order(
            &slices,
            reading.threads,
            || (),
            |(), slice| (reader.slice(slice), slice.bytes),
            |((batches, lost), bytes)| {
                lost.into_list().into_iter().for_each(|loss| losses.add(loss));
                done += bytes;
                batches.into_iter().all(&mut *rows) && progress(done)
            },
        );
        losses
    }

    /// Returns a builder of its rows.
    pub fn builder(&self) -> TableBuilder {
        TableBuilder::new(interned(&self.name), Shape::Points, self.columns.clone())
    }
}

/// By column: where the cells of a class are from.
type Paths = Vec<Option<Reading>>;

struct TableReader<'t, 'a> {
    table: &'t EventTable,
    traces: &'t Traces<'a>,
    filter: Filter,
    reading: &'t EventReading,
    names: Vec<Vec<StreamNames>>,
    /// Of the classes with this name, by trace, stream and class.
    paths: Vec<Vec<Vec<Option<Paths>>>>,
    reads_stream: bool,
}

impl<'t, 'a> TableReader<'t, 'a> {
    fn new(
        table: &'t EventTable,
        traces: &'t Traces<'a>,
        (wanted, reading): (&Wanted, &'t EventReading),
        read: &[bool],
    ) -> TableReader<'t, 'a> {
        let is_read = |column: usize| read.get(column).copied().unwrap_or(true);
        let paths = |trace: &Trace<'a>, stream: &Stream<'a>, event: &EventClass| {
            let origins = table.origins.iter().zip(2..);
            table.is_of(event).then(|| {
                let found = |(origin, column): (&Origin, usize)| {
                    origin.find(trace, stream, event).filter(|_| is_read(column))
                };
                origins.map(found).collect()
            })
        };
        let of_stream = |trace: &Trace<'a>, stream: &Stream<'a>| {
            let classes = &trace.stream_class(stream).events;
            classes.iter().map(|event| paths(trace, stream, event)).collect()
        };
        let of_trace = |trace: &Trace<'a>| trace.streams.iter().map(|one| of_stream(trace, one)).collect();
        let paths = traces.events.iter().map(of_trace).collect();
        let filter = Filter::new(traces, wanted);
        TableReader { table, traces, filter, reading, names: names(traces), paths, reads_stream: is_read(1) }
    }

    fn slice(&self, slice: &Slice) -> (Vec<RecordBatch>, Losses) {
        let (mut builder, mut batches, mut losses) = (self.table.builder(), Vec::new(), Losses::default());
        let mut row = RowCells::default();
        let mut merge = Merge::new(self.traces, &slice.parts);
        while let Some(index) = merge.next_source() {
            let source = &merge.sources[index];
            let Some((time, Item::Event(parts))) = &source.next else { continue };
            let paths = &self.paths[source.trace_index][source.stream_index][parts.class as usize];
            let Some(paths) = paths.as_ref().filter(|_| self.reading.wants(*time)) else { continue };
            let event = source.cursor.event(*parts);
            if !self.filter.wants(source.trace_index, source.stream_index, &event) {
                continue;
            }
            match self.read_row(*time, (&event, paths), &mut row) {
                Ok(()) => {
                    let stream = &self.names[source.trace_index][source.stream_index].name;
                    row.add((stream, &event.class().name), &mut builder);
                }
                Err(trouble) => losses.add(unreadable(source, &event, trouble)),
            }
            batches.extend(builder.full_batch());
        }
        batches.extend(std::iter::from_fn(|| builder.last_batch()));
        merge.sources.into_iter().flat_map(|source| source.cursor.loss).for_each(|loss| losses.add(loss));
        (batches, losses)
    }

    /// Reads the cells of an event in place of those in `row`.
    fn read_row(
        &self,
        time: Option<OriginNanos>,
        (event, paths): (&Event<'_, '_, '_>, &Paths),
        row: &mut RowCells,
    ) -> Result<(), Trouble> {
        row.cells.clear();
        row.text.clear();
        let time = time.and_then(|time| i64::try_from(time.0).ok()).map_or(Cell::Null, Cell::Signed);
        let stream = if self.reads_stream { Content::Stream } else { Content::Cell(Cell::Null) };
        row.cells.extend([Content::Cell(time), stream]);
        for (path, column) in paths.iter().zip(&self.table.columns[2..]) {
            let content = match path {
                Some(Reading::Field(path)) => read_cell(event, path, column.kind, &mut row.text)?,
                Some(Reading::Name) => Content::Event,
                Some(Reading::Fields) => {
                    let start = row.text.len();
                    row.text.push(b'{');
                    event.emit(Scope::Payload, &mut JsonFields::new(&mut row.text, true))?;
                    row.text.push(b'}');
                    Content::Text(start, row.text.len())
                }
                None => Content::Cell(Cell::Null),
            };
            row.cells.push(content);
        }
        Ok(())
    }
}

/// The cells of a row.
#[derive(Default)]
struct RowCells {
    cells: Vec<Content>,
    /// Texts, one after the other.
    text: Vec<u8>,
}

impl RowCells {
    /// Adds the row to a table. `names` are those of its stream and of its event.
    fn add(&self, names: (&str, &str), builder: &mut TableBuilder) {
        let text = str::from_utf8(&self.text).expect("JSON, and text that was made valid");
        builder.row(self.cells.iter().map(|content| match *content {
            Content::Cell(cell) => cell,
            Content::Text(from, to) => Cell::Text(&text[from..to]),
            Content::Stream => Cell::Text(names.0),
            Content::Event => Cell::Text(names.1),
        }));
    }
}

/// A cell whose text is elsewhere.
#[derive(Clone, Copy)]
enum Content {
    Cell(Cell<'static>),
    /// From a byte of the row's text to another.
    Text(usize, usize),
    /// The name of the stream.
    Stream,
    /// The name of the event.
    Event,
}

/// Reads a cell of a column of this type; its text is added to `text`.
fn read_cell(
    event: &Event<'_, '_, '_>,
    path: &FieldPath,
    kind: Type,
    text: &mut Vec<u8>,
) -> Result<Content, Trouble> {
    let start = text.len();
    if kind == Type::Text {
        event.emit_field(path, &mut JsonFields::of_one(text))?;
        let json = &text[start..];
        // A text alone is itself, not a string of JSON.
        let alone = json.starts_with(b"\"").then(|| serde_json::from_slice::<String>(json).ok()).flatten();
        if json.is_empty() || json == b"null" {
            return Ok(Content::Cell(Cell::Null));
        }
        if let Some(alone) = alone {
            text.truncate(start);
            text.extend_from_slice(alone.as_bytes());
        }
        return Ok(Content::Text(start, text.len()));
    }
    let mut scalar = Scalar { content: Content::Cell(Cell::Null), text };
    event.emit_field(path, &mut scalar)?;
    let fits = match (scalar.content, kind) {
        (Content::Cell(Cell::Signed(number)), Type::Integer) => {
            return Ok(Content::Cell(u64::try_from(number).map_or(Cell::Null, Cell::Integer)));
        }
        (Content::Cell(Cell::Integer(number)), Type::Signed) => {
            return Ok(Content::Cell(i64::try_from(number).map_or(Cell::Null, Cell::Signed)));
        }
        (Content::Cell(cell), kind) => matches!(
            (cell, kind),
            (Cell::Integer(_), Type::Integer)
                | (Cell::Signed(_), Type::Signed)
                | (Cell::Real(_), Type::Real)
                | (Cell::Boolean(_), Type::Boolean)
        ),
        (Content::Text(..), kind) => kind == Type::Name,
        (Content::Stream | Content::Event, _) => false,
    };
    Ok(if fits { scalar.content } else { Content::Cell(Cell::Null) })
}

/// Keeps the value of a field without parts.
struct Scalar<'t> {
    content: Content,
    text: &'t mut Vec<u8>,
}

impl FieldSink for Scalar<'_> {
    fn unsigned(&mut self, _: Name<'_>, value: u64, _: &Meaning) {
        self.content = Content::Cell(Cell::Integer(value));
    }

    fn signed(&mut self, _: Name<'_>, value: i64, _: &Meaning) {
        self.content = Content::Cell(Cell::Signed(value));
    }

    fn real(&mut self, _: Name<'_>, value: f64) {
        self.content = Content::Cell(Cell::Real(value));
    }

    fn boolean(&mut self, _: Name<'_>, value: bool) {
        self.content = Content::Cell(Cell::Boolean(value));
    }

    fn text(&mut self, _: Name<'_>, text: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(String::from_utf8_lossy(text).as_bytes());
        self.content = Content::Text(start, self.text.len());
    }
}
