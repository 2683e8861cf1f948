//! Detects the begin and end events of user-defined periods, and records them as events of their own for the analysis.

use hodo_clock::Nanos;
use hodo_formats::events::{Event, FieldPath, Stream, Trace, schema::EventClass};
use hodo_model::{
    Edge, Period,
    event::{Compound, FieldSink, Meaning, Name},
    kernel::{Kind, Records},
};

use super::{
    Traces,
    condition::Condition,
    filter::{Filter, Wanted, find},
    fold::{cpu, path_of_cpu},
};

/// Separates values that are joined to one text.
const BETWEEN: &[u8] = b", ";

/// The edges of periods, bound to every event class.
pub(super) struct Edges {
    begin: Side,
    end: Side,
}

/// The begin edge or the end edge.
struct Side {
    kind: Kind,
    filter: Filter,
    /// By trace, stream and class: the fields to record, for classes that have all the fields to match.
    reported: Vec<Vec<Vec<Option<EdgeFields>>>>,
}

/// The fields to record of an event.
struct EdgeFields {
    /// The event field with the CPU, if events record their own.
    cpu: Option<FieldPath>,
    key: Vec<ValueSource>,
    group: Vec<Option<ValueSource>>,
}

/// The source of a value.
enum ValueSource {
    Cpu,
    /// The event's name.
    Event(String),
    Field(FieldPath),
}

/// Resolves a field by its name; `cpu` and `event` mean the CPU and the event's name if there is no field of that name.
fn source(trace: &Trace<'_>, stream: &Stream<'_>, class: &EventClass, name: &str) -> Option<ValueSource> {
    let names: Vec<&str> = name.split('.').collect();
    match (find(trace, stream, class, &names), name) {
        (Some(path), _) => Some(ValueSource::Field(path)),
        (None, "cpu") => Some(ValueSource::Cpu),
        (None, "event") => Some(ValueSource::Event(class.name.clone())),
        _ => None,
    }
}

fn wanted(edge: &Edge) -> Wanted {
    let condition = Condition::parse(&edge.condition).ok();
    Wanted { events: vec![edge.pattern.clone()], condition, ..Wanted::default() }
}

impl Side {
    fn new(traces: &Traces<'_>, kind: Kind, edge: &Edge, key: &[&String], group: &[String]) -> Side {
        let filter = Filter::new(traces, &wanted(edge));
        let mut reported: Vec<Vec<Vec<Option<EdgeFields>>>> = Vec::new();
        for (trace_index, trace) in traces.events.iter().enumerate() {
            let of_stream = |(index, stream): (usize, &Stream<'_>)| {
                let classes = trace.stream_class(stream).events.iter().enumerate();
                let of_class = |(class_index, class): (usize, &EventClass)| {
                    let source = |name: &String| source(trace, stream, class, name);
                    let key = key.iter().map(|name| source(name)).collect::<Option<_>>()?;
                    let group = group.iter().map(source).collect();
                    let cpu = path_of_cpu(trace, stream, class).filter(|path| !path.is_of_packet());
                    filter.wants_class(trace_index, index, class_index).then_some(EdgeFields {
                        cpu,
                        key,
                        group,
                    })
                };
                classes.map(of_class).collect()
            };
            reported.push(trace.streams.iter().enumerate().map(of_stream).collect());
        }
        Side { kind, filter, reported }
    }

    /// Records an event if periods begin, or end, at it.
    #[inline]
    fn emit(
        &self,
        (trace, stream): (usize, usize),
        event: &Event<'_, '_, '_>,
        (time, packet_cpu): (Nanos, u32),
        records: &mut Records,
    ) {
        let Some(reported) = &self.reported[trace][stream][event.parts.class as usize] else { return };
        if !self.filter.wants(trace, stream, event) {
            return;
        }
        let cpu = reported.cpu.as_ref().and_then(|path| cpu(path, event)).unwrap_or(packet_cpu);
        let (mut key, mut group) = (Vec::new(), Vec::new());
        reported.key.iter().for_each(|source| put(Some(source), event, cpu, &mut key));
        reported.group.iter().for_each(|source| put(source.as_ref(), event, cpu, &mut group));
        let (no_thread, no_name) = (None, 0);
        records.push(time, (cpu, no_thread), self.kind, no_name);
        records.text(&key);
        records.text(&group);
    }

    fn is_anywhere(&self) -> bool {
        self.reported.iter().flatten().flatten().any(Option::is_some)
    }
}

/// Appends a value to a text.
fn put(source: Option<&ValueSource>, event: &Event<'_, '_, '_>, cpu: u32, text: &mut Vec<u8>) {
    if !text.is_empty() {
        text.extend_from_slice(BETWEEN);
    }
    match source {
        Some(ValueSource::Cpu) => text.extend_from_slice(cpu.to_string().as_bytes()),
        Some(ValueSource::Event(name)) => text.extend_from_slice(name.as_bytes()),
        // An unreadable field counts as absent.
        Some(ValueSource::Field(path)) => drop(event.emit_field(path, &mut Written { text, depth: 0 })),
        None => {}
    }
}

impl Edges {
    pub(super) fn new(traces: &Traces<'_>, period: &Period) -> Edges {
        let (begin, end): (Vec<_>, Vec<_>) = period.matched.iter().map(|(begin, end)| (begin, end)).unzip();
        Edges {
            begin: Side::new(traces, Kind::PeriodBegin, &period.begin, &begin, &period.group),
            end: Side::new(traces, Kind::PeriodEnd, &period.end, &end, &[]),
        }
    }

    /// Records the edges at an event, with its time and the CPU of its packet. If it is both edges, the end comes first.
    #[inline]
    pub(super) fn emit(
        &self,
        stream: (usize, usize),
        event: &Event<'_, '_, '_>,
        (time, packet_cpu): (Nanos, u32),
        records: &mut Records,
    ) {
        self.end.emit(stream, event, (time, packet_cpu), records);
        self.begin.emit(stream, event, (time, packet_cpu), records);
    }

    /// Returns whether events of a class can be an edge.
    #[inline]
    pub(super) fn may_be_edge(&self, (trace, stream): (usize, usize), class: usize) -> bool {
        let reported = |side: &Side| side.reported[trace][stream][class].is_some();
        reported(&self.begin) || reported(&self.end)
    }
}

/// Returns why the traces can contain no such period; `None` if they can.
pub fn no_such_period(traces: &Traces<'_>, period: &Period) -> Option<String> {
    let edges = Edges::new(traces, period);
    for (side, edge, what) in [(&edges.begin, &period.begin, "--begin"), (&edges.end, &period.end, "--end")] {
        let bare = Edge { condition: String::new(), ..edge.clone() };
        let requirements =
            [(&bare, &[][..], "has such a name"), (edge, &[][..], "has the fields of its condition")];
        for (edge, key, lacks) in requirements {
            if !Side::new(traces, side.kind, edge, key, &[]).is_anywhere() {
                return Some(format!("{what} {}: no event {lacks}", edge.pattern));
            }
        }
        if !side.is_anywhere() {
            return Some(format!("{what} {}: no such event has all fields of --match", edge.pattern));
        }
    }
    None
}

/// Writes a value as text; compound fields are ignored.
struct Written<'t> {
    text: &'t mut Vec<u8>,
    depth: u32,
}

impl Written<'_> {
    fn put(&mut self, text: &[u8]) {
        if self.depth == 0 {
            self.text.extend_from_slice(text);
        }
    }
}

impl FieldSink for Written<'_> {
    fn unsigned(&mut self, _: Name<'_>, value: u64, _: &Meaning) {
        self.put(value.to_string().as_bytes());
    }

    fn signed(&mut self, _: Name<'_>, value: i64, _: &Meaning) {
        self.put(value.to_string().as_bytes());
    }

    fn real(&mut self, _: Name<'_>, value: f64) {
        self.put(value.to_string().as_bytes());
    }

    fn boolean(&mut self, _: Name<'_>, value: bool) {
        self.put(value.to_string().as_bytes());
    }

    fn text(&mut self, _: Name<'_>, text: &[u8]) {
        self.put(text);
    }

    fn begin(&mut self, _: Name<'_>, _: Compound) {
        self.depth += 1;
    }

    fn end(&mut self, _: Compound) {
        self.depth -= 1;
    }
}
