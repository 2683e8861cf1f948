//! Each event class as a table: a row for each event, a column for each field.

use std::collections::BTreeMap;

use hodo_clock::OriginNanos;
use hodo_engine::{
    EventReading, Losses, Traces,
    events::{Classes, Filter, Merge, Slice, Wanted, plan},
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
/// The number of the columns above, and the index of each.
const FIXED_COLUMNS: usize = 2;
const TIME_INDEX: usize = 0;
const STREAM_INDEX: usize = 1;
/// The column of the CPU, if one is known.
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
    /// Where the columns after [`FIXED_COLUMNS`] are from.
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
enum CellSource {
    Field(FieldPath),
    Name,
    Fields,
}

impl Origin {
    fn find(&self, trace: &Trace<'_>, stream: &Stream<'_>, event: &EventClass) -> Option<CellSource> {
        let has = |name: &String| {
            let mut members = event.payload.iter().flat_map(|payload| &payload.members);
            members.any(|member| member.name == *name)
        };
        let path = match self {
            Origin::Name => return Some(CellSource::Name),
            Origin::Fields => return Some(CellSource::Fields),
            Origin::Cpu => {
                let mut names = vocabulary::context("cpu_id").iter();
                names.find_map(|name| trace.find_context(stream, event, &[name]))
            }
            Origin::Context(name) => trace.find_context(stream, event, &[name]),
            Origin::Field(name) if has(name) => trace.find(stream, event, &[name]),
            Origin::Field(_) => None,
        };
        path.map(CellSource::Field)
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

    /// Whether events of this class have rows in the table.
    fn contains(&self, event: &EventClass) -> bool {
        self.origins.contains(&Origin::Name) || event.name == self.name
    }

    /// Adds a column for each member. One whose name another column has gets the prefix.
    fn add_all(&mut self, structure: Option<&Structure>, origin: fn(String) -> Origin, prefix: &str) {
        for member in structure.iter().flat_map(|structure| &structure.members) {
            let Some(kind) = member.class.column_type() else { continue };
            let origin = origin(member.name.clone());
            let has_its_name = |(column, other): (&Column, &Origin)| {
                column.name.eq_ignore_ascii_case(&member.name) && *other != origin
            };
            let taken = [TIME, STREAM].contains(&member.name.as_str())
                || self.columns[FIXED_COLUMNS..].iter().zip(&self.origins).any(has_its_name);
            let name = if taken { format!("{prefix}{}", member.name) } else { member.name.clone() };
            self.add(&name, origin, kind);
        }
    }

    /// Adds a column, or widens the type of the one that has this origin.
    fn add(&mut self, name: &str, origin: Origin, kind: Type) {
        match self.origins.iter().position(|known| *known == origin) {
            Some(index) => {
                let known = &mut self.columns[FIXED_COLUMNS + index].kind;
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

/// By column: where the cells of a class are from; `None` if the class has none for it, or the column is not read.
type CellSources = Vec<Option<CellSource>>;

struct TableReader<'t, 'a> {
    table: &'t EventTable,
    traces: &'t Traces<'a>,
    filter: Filter,
    classes: Classes,
    reading: &'t EventReading,
    names: Vec<Vec<StreamNames>>,
    /// By trace, stream and class; `None` for classes that the table does not contain.
    sources: Vec<Vec<Vec<Option<CellSources>>>>,
    reads_time: bool,
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
        let sources_of_class = |trace: &Trace<'a>, stream: &Stream<'a>, event: &EventClass| {
            if !table.contains(event) {
                return None;
            }
            let mut sources = CellSources::new();
            for (origin, column) in table.origins.iter().zip(FIXED_COLUMNS..) {
                sources.push(origin.find(trace, stream, event).filter(|_| is_read(column)));
            }
            Some(sources)
        };
        let mut sources: Vec<Vec<Vec<Option<CellSources>>>> = Vec::new();
        for trace in &traces.events {
            let mut of_streams = Vec::new();
            for stream in &trace.streams {
                let classes = trace.stream_class(stream).events.iter();
                of_streams.push(classes.map(|event| sources_of_class(trace, stream, event)).collect());
            }
            sources.push(of_streams);
        }
        let (filter, names) = (Filter::new(traces, wanted), names(traces));
        let classes = Classes::new(traces, |trace, stream, class| {
            sources[trace][stream][class].is_some() && filter.wants_class(trace, stream, class)
        });
        let (reads_time, reads_stream) = (is_read(TIME_INDEX), is_read(STREAM_INDEX));
        TableReader { table, traces, filter, classes, reading, names, sources, reads_time, reads_stream }
    }

    fn slice(&self, slice: &Slice) -> (Vec<RecordBatch>, Losses) {
        let (mut builder, mut batches, mut losses) = (self.table.builder(), Vec::new(), Losses::default());
        let mut row = RowCells::default();
        let mut merge = Merge::new(self.traces, &slice.parts, &self.classes);
        while let Some(index) = merge.next_source() {
            let source = &merge.sources[index];
            let Some((time, Item::Event(parts))) = &source.next else { continue };
            let cells = &self.sources[source.trace_index][source.stream_index][parts.class as usize];
            let Some(cells) = cells.as_ref().filter(|_| self.reading.wants(*time)) else { continue };
            let event = source.cursor.event(*parts);
            if !self.filter.wants(source.trace_index, source.stream_index, &event) {
                continue;
            }
            match self.read_row(*time, &event, cells, &mut row) {
                Ok(()) => {
                    let stream = &self.names[source.trace_index][source.stream_index].name;
                    row.add(stream, &event.class().name, &mut builder);
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
        event: &Event<'_, '_, '_>,
        sources: &CellSources,
        row: &mut RowCells,
    ) -> Result<(), Trouble> {
        row.cells.clear();
        row.text.clear();
        let time = time.filter(|_| self.reads_time).and_then(|time| i64::try_from(time.0).ok());
        let time = time.map_or(Cell::Null, Cell::Signed);
        let stream = if self.reads_stream { Content::Stream } else { Content::Cell(Cell::Null) };
        row.cells.extend([Content::Cell(time), stream]);
        for (source, column) in sources.iter().zip(&self.table.columns[FIXED_COLUMNS..]) {
            let content = match source {
                Some(CellSource::Field(path)) => read_cell(event, path, column.kind, &mut row.text)?,
                Some(CellSource::Name) => Content::Event,
                Some(CellSource::Fields) => {
                    let start = row.text.len();
                    row.text.push(b'{');
                    event.emit(Scope::Payload, &mut JsonFields::new(&mut row.text))?;
                    row.text.push(b'}');
                    Content::Text { start, end: row.text.len() }
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
    /// Adds the row to a table.
    fn add(&self, stream_name: &str, event_name: &str, builder: &mut TableBuilder) {
        let text = str::from_utf8(&self.text).expect("JSON, and text that was made valid");
        builder.row(self.cells.iter().map(|content| match *content {
            Content::Cell(cell) => cell,
            Content::Text { start, end } => Cell::Text(&text[start..end]),
            Content::Stream => Cell::Text(stream_name),
            Content::Event => Cell::Text(event_name),
        }));
    }
}

/// A cell whose text is elsewhere.
#[derive(Clone, Copy)]
enum Content {
    Cell(Cell<'static>),
    /// A range of bytes of the row's text.
    Text {
        start: usize,
        end: usize,
    },
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
        if json.is_empty() || json == b"null" {
            return Ok(Content::Cell(Cell::Null));
        }
        // A field that is a text becomes a cell without quotes and escapes.
        if json.starts_with(b"\"")
            && let Ok(unquoted) = serde_json::from_slice::<String>(json)
        {
            text.truncate(start);
            text.extend_from_slice(unquoted.as_bytes());
        }
        return Ok(Content::Text { start, end: text.len() });
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
        (Content::Text { .. }, kind) => kind == Type::Name,
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
        self.content = Content::Text { start, end: self.text.len() };
    }
}
