//! The constant parts of a stream's lines, formatted once.

use std::collections::HashSet;

use hodo_engine::Traces;
use hodo_formats::events::{
    Trace,
    schema::{EventClass, Structure, TraceClass},
};

/// The constant texts of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamNames {
    /// By event class: `hostname:process:(pid) name:`, omitting unknown parts.
    pub(super) text: Vec<String>,
    /// `"trace":…,"stream":…`.
    pub(super) json: String,
    /// By event class: the value of `json`, with a comma before it and `,"name":…,"fields":{` after it.
    pub(super) json_events: Vec<String>,
    /// The display name.
    pub(super) name: String,
    /// By event class: whether the packet's context, or that of the stream, has a field name that also occurs in an
    /// inner context, and so must be nested.
    pub(super) nested: Vec<[bool; 2]>,
}

/// Returns the texts of every stream, by trace and stream.
pub(super) fn names(traces: &Traces<'_>) -> Vec<Vec<StreamNames>> {
    traces.events.iter().map(of_trace).collect()
}

fn of_trace(trace: &Trace<'_>) -> Vec<StreamNames> {
    let host = host(&trace.class);
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let stream = trace.streams.iter().map(|stream| {
        let name = stream.name.rsplit('/').next().unwrap_or(&stream.name).to_owned();
        let class = trace.stream_class(stream);
        let packet = members(class.packet_context.as_ref());
        let common = members(class.common_context.as_ref());
        let nested = class.events.iter().map(|event| {
            let specific = members(event.specific_context.as_ref());
            [!packet.is_disjoint(&common) || !packet.is_disjoint(&specific), !common.is_disjoint(&specific)]
        });
        let json = format!("\"trace\":{},\"stream\":{}", quoted(&trace.name), quoted(&name));
        let json_event =
            |event: &EventClass| format!(",{json},\"name\":{},\"fields\":{{", quoted(&event.name));
        StreamNames {
            text: class.events.iter().map(|event| format!("{host}{}:", event.name)).collect(),
            json_events: class.events.iter().map(json_event).collect(),
            json,
            nested: nested.collect(),
            name,
        }
    });
    stream.collect()
}

fn members(structure: Option<&Structure>) -> HashSet<&str> {
    structure.iter().flat_map(|structure| &structure.members).map(|member| member.name.as_str()).collect()
}

/// Formats the host and process as babeltrace2 does.
fn host(class: &TraceClass) -> String {
    let mut host = class.environment_text("hostname").unwrap_or_default().to_owned();
    if let Some(process) = class.environment_text("procname") {
        host += &format!("{}{process}", if host.is_empty() { "" } else { ":" });
    }
    if let Some(pid) = class.environment_integer("vpid") {
        host += &format!("{}({pid})", if host.is_empty() { "" } else { ":" });
    }
    if host.is_empty() { host } else { host + " " }
}
