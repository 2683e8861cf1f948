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
    /// By event class.
    pub(super) nested: Vec<NestedContexts>,
}

/// Which outer contexts have a field name that also occurs in an inner context, and so must be nested.
#[derive(Clone, Copy, Debug)]
pub(super) struct NestedContexts {
    /// The packet's context.
    pub(super) packet: bool,
    /// The common context of the stream's events.
    pub(super) common: bool,
}

/// Returns the texts of every stream, by trace and stream.
pub(super) fn names(traces: &Traces<'_>) -> Vec<Vec<StreamNames>> {
    traces.events.iter().map(names_of_trace).collect()
}

fn names_of_trace(trace: &Trace<'_>) -> Vec<StreamNames> {
    let host = host(&trace.class);
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let names = trace.streams.iter().map(|stream| {
        let name = stream.name.rsplit('/').next().unwrap_or(&stream.name).to_owned();
        let class = trace.stream_class(stream);
        let packet = members(class.packet_context.as_ref());
        let common = members(class.common_context.as_ref());
        let nested = class.events.iter().map(|event| {
            let specific = members(event.specific_context.as_ref());
            NestedContexts {
                packet: !packet.is_disjoint(&common) || !packet.is_disjoint(&specific),
                common: !common.is_disjoint(&specific),
            }
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
    names.collect()
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
