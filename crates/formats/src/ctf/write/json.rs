//! Writes CTF 2 metadata: JSON fragments (CTF2-SPEC-2.0 section 5).

use hodo_model::event::{Base, Meaning};
use serde_json::{Map, Value, json};

use crate::events::schema::{
    ByteOrder, Choice, ClockClass, Encoding, Environment, EventClass, FieldClass, Integer, Length, Real,
    Reference, Role, Scope, StreamClass, Structure, TraceClass, VariableInteger,
};

/// Formats the metadata of a trace.
pub(super) fn metadata(trace: &TraceClass) -> String {
    let mut out = String::new();
    let mut fragment = |value: Value| out += &format!("\u{1e}{value}\n");
    let mut preamble = json!({"type": "preamble", "version": 2});
    if let Some(uuid) = trace.uuid {
        preamble["uuid"] = json!(uuid);
    }
    fragment(preamble);
    fragment(trace_class(trace));
    trace.clocks.iter().enumerate().for_each(|(index, clock)| fragment(clock_class(index, clock)));
    for stream in trace.streams.values() {
        fragment(stream_class(stream));
        stream.events.iter().for_each(|event| fragment(event_class(stream.id, event)));
    }
    out
}

fn set_root(object: &mut Value, name: &str, root: Option<&Structure>) {
    if let Some(root) = root {
        object[name] = structure(root);
    }
}

fn trace_class(trace: &TraceClass) -> Value {
    let mut object = json!({"type": "trace-class"});
    if let Some(name) = &trace.name {
        object["name"] = json!(name);
    }
    let mut environment = Map::new();
    for (name, value) in &trace.environment {
        let value = match value {
            Environment::Integer(integer) => number(*integer),
            Environment::Text(text) => json!(text),
        };
        environment.insert(name.clone(), value);
    }
    if !environment.is_empty() {
        object["environment"] = Value::Object(environment);
    }
    set_root(&mut object, "packet-header-field-class", trace.packet_header.as_ref());
    object
}

/// Formats an integer; those in metadata have at most 64 bits.
fn number(integer: i128) -> Value {
    i64::try_from(integer)
        .map(Value::from)
        .or_else(|_| u64::try_from(integer).map(Value::from))
        .unwrap_or_default()
}

fn clock_id(index: usize) -> String {
    format!("clock{index}")
}

fn clock_class(index: usize, clock: &ClockClass) -> Value {
    let (seconds, cycles) = (clock.cycles.offset_seconds(), clock.cycles.offset_cycles());
    let frequency = i128::from(clock.cycles.frequency());
    // CTF 2 requires the cycles to be less than a second.
    let seconds = i128::from(seconds) + cycles.div_euclid(frequency);
    let mut object = json!({
        "type": "clock-class", "id": clock_id(index), "name": clock.name,
        "frequency": clock.cycles.frequency(),
        "offset-from-origin": {"seconds": number(seconds), "cycles": number(cycles.rem_euclid(frequency))},
    });
    if !clock.description.is_empty() {
        object["description"] = json!(clock.description);
    }
    if let Some(uid) = &clock.uid {
        object["uid"] = json!(uid);
    }
    if clock.unix {
        object["origin"] = json!("unix-epoch");
    }
    object
}

fn stream_class(stream: &StreamClass) -> Value {
    let mut object = json!({"type": "data-stream-class", "id": stream.id});
    if let Some(clock) = stream.clock {
        object["default-clock-class-id"] = json!(clock_id(clock));
    }
    set_root(&mut object, "packet-context-field-class", stream.packet_context.as_ref());
    set_root(&mut object, "event-record-header-field-class", stream.event_header.as_ref());
    set_root(&mut object, "event-record-common-context-field-class", stream.common_context.as_ref());
    object
}

fn event_class(stream: u64, event: &EventClass) -> Value {
    let mut object = json!({
        "type": "event-record-class", "id": event.id, "data-stream-class-id": stream, "name": event.name,
    });
    if let Some(level) = event.log_level {
        object["attributes"] = json!({"lttng.org,2009": {"log-level": level}});
    }
    set_root(&mut object, "specific-context-field-class", event.specific_context.as_ref());
    set_root(&mut object, "payload-field-class", event.payload.as_ref());
    object
}

fn structure(structure: &Structure) -> Value {
    let members: Vec<Value> = structure
        .members
        .iter()
        .map(|member| json!({"name": member.raw_name, "field-class": class(&member.class)}))
        .collect();
    json!({"type": "structure", "minimum-alignment": structure.minimum_alignment, "member-classes": members})
}

fn class(class: &FieldClass) -> Value {
    match class {
        FieldClass::Integer(integer) => fixed_integer(integer),
        FieldClass::VariableInteger(integer) => variable_integer(integer),
        FieldClass::Real(real) => floating_point(real),
        FieldClass::String(encoding) => with_encoding(json!({"type": "null-terminated-string"}), *encoding),
        FieldClass::Text(encoding, length) => with_encoding(with_length("string", length), *encoding),
        FieldClass::Blob(length, role) => {
            let mut object = with_length("blob", length);
            if *role == Some(Role::MetadataUuid) {
                object["roles"] = json!(["metadata-stream-uuid"]);
            }
            object
        }
        FieldClass::Structure(inner) => structure(inner),
        FieldClass::Array(array) => {
            let mut object = with_length("array", &array.length);
            object["element-field-class"] = self::class(&array.element);
            object["minimum-alignment"] = json!(array.minimum_alignment);
            object
        }
        FieldClass::Optional(choice) => optional(choice),
        FieldClass::Variant(choice) => variant(choice),
        FieldClass::ForeignField(_) => unreachable!("only classes of CTF are written"),
    }
}

fn with_length(kind: &str, length: &Length) -> Value {
    match length {
        Length::Static(count) => json!({"type": format!("static-length-{kind}"), "length": count}),
        Length::Dynamic(reference) => {
            json!({"type": format!("dynamic-length-{kind}"), "length-field-location": location(reference)})
        }
    }
}

fn with_encoding(mut object: Value, encoding: Encoding) -> Value {
    let name = match encoding {
        Encoding::Utf8 => return object,
        Encoding::Utf16(ByteOrder::Big) => "utf-16be",
        Encoding::Utf16(ByteOrder::Little) => "utf-16le",
        Encoding::Utf32(ByteOrder::Big) => "utf-32be",
        Encoding::Utf32(ByteOrder::Little) => "utf-32le",
    };
    object["encoding"] = json!(name);
    object
}

fn location(reference: &Reference) -> Value {
    let mut object = json!({"path": reference.path});
    if let Some(scope) = reference.origin {
        object["origin"] = json!(match scope {
            Scope::PacketHeader => "packet-header",
            Scope::PacketContext => "packet-context",
            Scope::EventHeader => "event-record-header",
            Scope::CommonContext => "event-record-common-context",
            Scope::SpecificContext => "event-record-specific-context",
            Scope::Payload => "event-record-payload",
        });
    }
    object
}

fn role(role: Role) -> &'static str {
    match role {
        Role::PacketMagic => "packet-magic-number",
        Role::StreamClassId => "data-stream-class-id",
        Role::StreamId => "data-stream-id",
        Role::PacketTotalLength => "packet-total-length",
        Role::PacketContentLength => "packet-content-length",
        Role::Timestamp => "default-clock-timestamp",
        Role::PacketEndTimestamp => "packet-end-default-clock-timestamp",
        Role::DiscardedEvents => "discarded-event-record-counter-snapshot",
        Role::PacketSequenceNumber => "packet-sequence-number",
        Role::EventClassId => "event-record-class-id",
        Role::MetadataUuid => "metadata-stream-uuid",
    }
}

fn ranges(ranges: impl Iterator<Item = (i128, i128)>) -> Value {
    ranges.map(|(from, to)| json!([number(from), number(to)])).collect()
}

/// Sets the properties that fixed and variable-length integers share.
fn set_meaning(object: &mut Value, meaning: &Meaning, roles: &[Role]) {
    let base = match meaning.base {
        Base::Decimal => 10,
        Base::Hexadecimal => 16,
        Base::Octal => 8,
        Base::Binary => 2,
    };
    object["preferred-display-base"] = json!(base);
    let mut mappings = Map::new();
    for label in &meaning.labels {
        let own = label.ranges.iter().map(|range| (*range.start(), *range.end()));
        let list = ranges(own);
        match mappings.get_mut(&label.name).and_then(Value::as_array_mut) {
            Some(known) => known.extend(list.as_array().cloned().unwrap_or_default()),
            None => drop(mappings.insert(label.name.clone(), list)),
        }
    }
    if !mappings.is_empty() {
        object["mappings"] = Value::Object(mappings);
    }
    if !roles.is_empty() {
        object["roles"] = roles.iter().map(|&known| role(known)).collect();
    }
}

fn byte_order(object: &mut Value, order: ByteOrder, reversed: bool) {
    let little = order == ByteOrder::Little;
    object["byte-order"] = json!(if little { "little-endian" } else { "big-endian" });
    if reversed {
        object["bit-order"] = json!(if little { "last-to-first" } else { "first-to-last" });
    }
}

fn fixed_integer(integer: &Integer) -> Value {
    let kind = match integer {
        Integer { boolean: true, .. } => "fixed-length-boolean",
        Integer { signed: true, .. } => "fixed-length-signed-integer",
        _ => "fixed-length-unsigned-integer",
    };
    let mut object = json!({"type": kind, "length": integer.meaning.size, "alignment": integer.alignment});
    byte_order(&mut object, integer.byte_order, integer.reversed);
    if !integer.boolean {
        set_meaning(&mut object, &integer.meaning, &integer.roles);
    }
    object
}

fn variable_integer(integer: &VariableInteger) -> Value {
    let kind =
        if integer.signed { "variable-length-signed-integer" } else { "variable-length-unsigned-integer" };
    let mut object = json!({"type": kind});
    set_meaning(&mut object, &integer.meaning, &integer.roles);
    object
}

fn floating_point(real: &Real) -> Value {
    let mut object = json!({"type": "fixed-length-floating-point-number", "length": real.size, "alignment": real.alignment});
    byte_order(&mut object, real.byte_order, real.reversed);
    object
}

fn optional(choice: &Choice) -> Value {
    let mut object = json!({"type": "optional", "selector-field-location": location(&choice.selector)});
    if let Some(option) = choice.options.first() {
        object["field-class"] = class(&option.class);
        // A Boolean selector has no ranges; the reader represents it by this range.
        if option.ranges != [(1, i128::from(u64::MAX))] {
            object["selector-field-ranges"] = ranges(option.ranges.iter().copied());
        }
    }
    object
}

fn variant(choice: &Choice) -> Value {
    let options: Vec<Value> = choice
        .options
        .iter()
        .map(|option| {
            json!({
                "name": option.raw_name, "field-class": class(&option.class),
                "selector-field-ranges": ranges(option.ranges.iter().copied()),
            })
        })
        .collect();
    json!({"type": "variant", "selector-field-location": location(&choice.selector), "options": options})
}
