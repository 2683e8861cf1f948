//! Reads CTF 2 metadata: JSON fragments (CTF2-SPEC-2.0 section 5).
//!
//! ```text
//! fragments ──serde_json──► values ──Node──► classes ──resolve──► TraceClass
//! ```

mod draft;
mod fields;
mod node;

use std::collections::HashMap;

use hodo_clock::CycleClock;
use serde_json::Value;

use super::resolve;
use crate::error::{Error, ErrorKind};
use crate::events::schema::{
    ClockClass, Environment, EventClass, FieldClass, StreamClass, Structure, TraceClass,
};
use fields::Aliases;
use node::{Node, Wrong};

/// The first character of a fragment: RFC 7464.
const RECORD_SEPARATOR: char = '\u{1e}';

/// Reads CTF 2 metadata.
///
/// # Errors
/// The fragment, the JSON path in it, and what was expected there; for a reference to another field, the stream and the
/// event in place of these.
pub(super) fn read(bytes: &[u8]) -> Result<TraceClass, Error> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let reason = "CTF 2 metadata is UTF-8, and this is not".to_owned();
        wrong(error.valid_up_to(), reason)
    })?;
    parse(text).map_err(|error| match (error.kind, draft::sentence(text)) {
        (ErrorKind::Text { what, reason }, Some(draft)) => {
            let reason = format!("{reason}\n    {draft}");
            Error { at: error.at, kind: ErrorKind::Text { what, reason } }
        }
        (kind, _) => Error { at: error.at, kind },
    })
}

fn parse(text: &str) -> Result<TraceClass, Error> {
    let mut reader = Reader::default();
    let mut offset = 0;
    for (number, fragment) in text.split(RECORD_SEPARATOR).filter(|part| !part.trim().is_empty()).enumerate()
    {
        offset = fragment.as_ptr() as usize - text.as_ptr() as usize;
        let name = format!("fragment {}", number + 1);
        let value: Value =
            serde_json::from_str(fragment).map_err(|error| wrong(offset, format!("{name}: {error}")))?;
        let node = Node::root(&value);
        reader
            .fragment(number, &node)
            .map_err(|Wrong { path, reason }| wrong(offset, format!("{name}, {path}: {reason}")))?;
    }
    reader.trace.version = 2;
    let mut trace = reader.trace;
    // It concerns all fragments; the place of the last one is shown.
    resolve::resolve(&mut trace).map_err(|reason| wrong(offset, reason))?;
    Ok(trace)
}

fn wrong(offset: usize, reason: String) -> Error {
    Error { at: offset as u64, kind: ErrorKind::Text { what: "CTF 2 metadata", reason } }
}

/// The state of the reader.
#[derive(Default)]
struct Reader {
    trace: TraceClass,
    aliases: Aliases,
    /// Clock indices by id.
    clocks: HashMap<String, usize>,
}

impl Reader {
    fn fragment(&mut self, number: usize, node: &Node<'_>) -> Result<(), Wrong> {
        node.no_extensions()?;
        match node.text("type")?.unwrap_or_default() {
            "preamble" if number == 0 => self.preamble(node),
            _ if number == 0 => {
                Err(node.wrong("the first fragment is the preamble: `\"type\": \"preamble\"` expected"))
            }
            "field-class-alias" => self.alias(node),
            "trace-class" => self.trace_class(node),
            "clock-class" => self.clock_class(node),
            "data-stream-class" => self.stream_class(node),
            "event-record-class" => self.event_class(node),
            kind => Err(node.wrong(format!("CTF 2 has no fragment type `{kind}`"))),
        }
    }

    fn preamble(&mut self, node: &Node<'_>) -> Result<(), Wrong> {
        match node.required("version")?.unsigned()? {
            2 => {}
            version => return Err(node.wrong(format!("version {version} of CTF is not known; 2 expected"))),
        }
        if let Some(uuid) = node.get("uuid") {
            let byte = |node: &Node<'_>| {
                u8::try_from(node.unsigned()?).map_err(|_| node.wrong("a number up to 255 expected"))
            };
            let bytes = uuid.list()?.iter().map(byte).collect::<Result<Vec<u8>, Wrong>>()?;
            self.trace.uuid = Some(bytes.try_into().map_err(|_| uuid.wrong("sixteen numbers expected"))?);
        }
        Ok(())
    }

    fn alias(&mut self, node: &Node<'_>) -> Result<(), Wrong> {
        let class = self.aliases.class(&node.required("field-class")?)?;
        let name = node.required("name")?;
        if self.aliases.name(name.string()?, class) {
            Ok(())
        } else {
            Err(name.wrong("this name is already used"))
        }
    }

    fn structure(&mut self, node: &Node<'_>, name: &str) -> Result<Option<Structure>, Wrong> {
        let Some(class) = node.get(name) else { return Ok(None) };
        match self.aliases.class(&class)? {
            FieldClass::Structure(structure) => Ok(Some(structure)),
            _ => Err(class.wrong("a structure expected")),
        }
    }

    fn trace_class(&mut self, node: &Node<'_>) -> Result<(), Wrong> {
        self.trace.name = node.text("name")?.map(str::to_owned);
        self.trace.packet_header = self.structure(node, "packet-header-field-class")?;
        if self.trace.uuid.is_none() {
            // LTTng's preamble also contains the UUID. For other tracers, the unique id may be a UUID.
            self.trace.uuid = node.text("uid")?.and_then(super::uuid::parse);
        }
        for (name, value) in node.members("environment")? {
            let value = match value.value() {
                Value::String(text) => Environment::Text(text.clone()),
                _ => Environment::Integer(value.integer()?),
            };
            self.trace.environment.push((name.to_owned(), value));
        }
        Ok(())
    }

    fn clock_class(&mut self, node: &Node<'_>) -> Result<(), Wrong> {
        let id = node.required("id")?.string()?;
        let frequency = node.required("frequency")?.unsigned()?;
        let (mut seconds, mut cycles) = (0, 0);
        if let Some(offset) = node.get("offset-from-origin") {
            if let Some(value) = offset.get("seconds") {
                seconds = i64::try_from(value.integer()?).map_err(|_| value.wrong("too many seconds"))?;
            }
            if let Some(value) = offset.get("cycles") {
                cycles = i128::from(value.unsigned()?);
            }
        }
        let cycles = CycleClock::new(frequency, seconds, cycles);
        let clock = ClockClass {
            name: node.text("name")?.unwrap_or(id).to_owned(),
            description: node.text("description")?.unwrap_or_default().to_owned(),
            cycles: cycles.ok_or_else(|| node.wrong("a frequency above zero expected"))?,
            uid: node.text("uid")?.map(str::to_owned),
            unix: node.get("origin").is_some_and(|origin| origin.value() == "unix-epoch"),
        };
        self.clocks.insert(id.to_owned(), self.trace.clocks.len());
        self.trace.clocks.push(clock);
        Ok(())
    }

    fn stream_class(&mut self, node: &Node<'_>) -> Result<(), Wrong> {
        let id = node.get("id").map_or(Ok(0), |id| id.unsigned())?;
        let clock = match node.get("default-clock-class-id") {
            Some(name) => {
                let index = self.clocks.get(name.string()?).copied();
                Some(index.ok_or_else(|| name.wrong("no clock before it has this id"))?)
            }
            None => None,
        };
        let stream = StreamClass {
            id,
            clock,
            packet_context: self.structure(node, "packet-context-field-class")?,
            event_header: self.structure(node, "event-record-header-field-class")?,
            common_context: self.structure(node, "event-record-common-context-field-class")?,
            events: Default::default(),
        };
        if self.trace.streams.insert(id, stream).is_some() {
            return Err(node.wrong(format!("two data stream classes have the id {id}")));
        }
        Ok(())
    }

    fn event_class(&mut self, node: &Node<'_>) -> Result<(), Wrong> {
        let id = node.get("id").map_or(Ok(0), |id| id.unsigned())?;
        let stream_id = node.get("data-stream-class-id").map_or(Ok(0), |id| id.unsigned())?;
        let event = EventClass {
            id,
            name: node.text("name")?.map_or_else(|| id.to_string(), str::to_owned),
            log_level: node.get("attributes").and_then(|attributes| log_level(&attributes)),
            specific_context: self.structure(node, "specific-context-field-class")?,
            payload: self.structure(node, "payload-field-class")?,
        };
        let stream = self.trace.streams.get_mut(&stream_id);
        let stream = stream
            .ok_or_else(|| node.wrong(format!("no data stream class before it has the id {stream_id}")))?;
        stream.events.push(event);
        Ok(())
    }
}

/// LTTng's log level, an attribute.
fn log_level(attributes: &Node<'_>) -> Option<i64> {
    let levels = ["lttng.org,2009", "babeltrace.org,2020"].iter();
    levels
        .filter_map(|space| attributes.get(space)?.get("log-level"))
        .find_map(|level| level.value().as_i64())
}
