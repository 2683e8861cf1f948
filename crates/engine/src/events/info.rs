//! Summarises event traces without decoding each event.

use hodo_formats::ctf::uuid;
use hodo_formats::events::{
    Trace,
    schema::{Environment, EventClass},
};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::Traces;

/// The description of a trace. Serialises as one stable JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct TraceInfo {
    /// The name of its folder.
    pub name: String,
    /// `CTF 1.8`, `CTF 2`, `trace.dat`, `perf.data` or `Perfetto`.
    pub format: &'static str,
    /// Its UUID; folders with the same UUID are one trace.
    pub uuid: Option<String>,
    /// The tracer's description of the traced system.
    #[serde(serialize_with = "as_object")]
    pub environment: Vec<(String, String)>,
    /// Its clocks.
    pub clocks: Vec<ClockInfo>,
    /// First time of packets, in nanoseconds from its clocks' origin.
    pub begin_ns: Option<i64>,
    /// See `begin_ns`.
    pub end_ns: Option<i64>,
    /// Why the times are unknown, if they are.
    pub no_times: Option<String>,
    /// Its streams.
    pub streams: Vec<StreamInfo>,
    /// Its event classes.
    pub events: Vec<EventInfo>,
    /// Notes about how some of its files were interpreted.
    pub notes: Vec<NoteInfo>,
}

/// A note about how a file was interpreted.
#[derive(Clone, Debug, Serialize)]
pub struct NoteInfo {
    /// Its name.
    pub file: String,
    /// A sentence.
    pub note: String,
}

/// A clock.
#[derive(Clone, Debug, Serialize)]
pub struct ClockInfo {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Frequency in Hz.
    pub frequency: u64,
    /// Offset of its cycle 0 from its origin: whole seconds.
    pub offset_seconds: i64,
    /// Offset of its cycle 0 from its origin: additional cycles.
    pub offset_cycles: i128,
    /// Whether its origin is the Unix epoch.
    pub unix: bool,
}

/// A stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamInfo {
    /// The name of its first file.
    pub name: String,
    /// Id of its class.
    pub class: u64,
    /// Its own id.
    pub id: Option<u64>,
    /// Size of its packets in bytes.
    pub bytes: u64,
    /// The number of packets.
    pub packets: u64,
    /// Events that the tracer discarded.
    pub events_lost: u64,
    /// Number of missing packets.
    pub packets_lost: u64,
    /// First time of its packets, in nanoseconds from the clock's origin.
    pub begin_ns: Option<i64>,
    /// See `begin_ns`.
    pub end_ns: Option<i64>,
    /// The decoding plan.
    pub plan: String,
}

/// An event class.
#[derive(Clone, Debug, Serialize)]
pub struct EventInfo {
    /// Its name.
    pub name: String,
    /// Id of the class of its streams.
    pub stream_class: u64,
    /// Its id.
    pub id: u64,
    /// The names of its own fields.
    pub fields: Vec<String>,
}

/// Returns the description of each trace.
pub fn info(traces: &Traces<'_>) -> Vec<TraceInfo> {
    traces.events.iter().map(trace).collect()
}

fn trace(trace: &Trace<'_>) -> TraceInfo {
    let class = &trace.class;
    let span = trace.span();
    let clocks = class.clocks.iter().map(|clock| ClockInfo {
        name: clock.name.clone(),
        description: clock.description.clone(),
        frequency: clock.cycles.frequency(),
        offset_seconds: clock.cycles.offset_seconds(),
        offset_cycles: clock.cycles.offset_cycles(),
        unix: clock.unix,
    });
    let environment = class.environment.iter().map(|(name, value)| match value {
        Environment::Integer(integer) => (name.clone(), integer.to_string()),
        Environment::Text(text) => (name.clone(), text.clone()),
    });
    let events = class
        .streams
        .values()
        .flat_map(|stream| stream.events.iter().map(|event| self::event(stream.id, event)));
    TraceInfo {
        name: trace.name.clone(),
        format: trace.format(),
        uuid: class.uuid.as_ref().map(uuid::show),
        environment: environment.collect(),
        clocks: clocks.collect(),
        begin_ns: span.and_then(|span| i64::try_from(span.0.0).ok()),
        end_ns: span.and_then(|span| i64::try_from(span.1.0).ok()),
        no_times: span.is_none().then(|| no_times(trace)),
        streams: streams(trace),
        events: events.collect(),
        notes: trace.notes.iter().cloned().map(|(file, note)| NoteInfo { file, note }).collect(),
    }
}

/// Explains why the times of a trace's packets are unknown.
fn no_times(trace: &Trace<'_>) -> String {
    let class = &trace.class;
    let used = trace.streams.iter().map(|stream| trace.stream_class(stream));
    match class.clocks.len() {
        _ if trace.files.is_empty() => "there are no files except the metadata".to_owned(),
        _ if trace.streams.is_empty() => "no packet of a stream was found".to_owned(),
        _ if used.clone().any(|stream| stream.clock.is_some()) => {
            "no packet contains a time, and no event has one".to_owned()
        }
        0 => "the metadata describes no clock, and no header field is called `timestamp`".to_owned(),
        1 => format!("no header field is a value of the clock `{}`", class.clocks[0].name),
        count => format!("no header field is a value of one of the {count} clocks"),
    }
}

fn streams(trace: &Trace<'_>) -> Vec<StreamInfo> {
    let streams = trace.streams.iter().map(|stream| {
        let packets = &stream.packets;
        let times = || packets.iter().flat_map(|packet| [packet.begin, packet.end]).flatten();
        let plan = trace.plan(stream).describe();
        StreamInfo {
            name: stream.name.clone(),
            class: stream.class,
            id: stream.id,
            bytes: packets.iter().map(|packet| packet.size()).sum(),
            packets: packets.len() as u64,
            events_lost: packets.iter().fold(0, |sum, packet| packet.events_lost.saturating_add(sum)),
            packets_lost: packets.iter().fold(0, |sum, packet| packet.packets_lost.saturating_add(sum)),
            begin_ns: times().min().and_then(|time| i64::try_from(time.0).ok()),
            end_ns: times().max().and_then(|time| i64::try_from(time.0).ok()),
            plan: if stream.had_pre_pass { plan + ", with a pass ahead for the clock" } else { plan },
        }
    });
    streams.collect()
}

fn event(stream_class: u64, event: &EventClass) -> EventInfo {
    let members = event.payload.iter().flat_map(|payload| &payload.members);
    let fields = members.map(|member| member.name.clone()).collect();
    EventInfo { name: event.name.clone(), stream_class, id: event.id, fields }
}

fn as_object<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_map(Some(pairs.len()))?;
    for (name, value) in pairs {
        object.serialize_entry(name, value)?;
    }
    object.end()
}
