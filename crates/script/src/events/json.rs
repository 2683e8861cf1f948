//! Formats events as JSON objects, one per line; every integer is exact.

use std::io::Write;

use hodo_clock::{OriginNanos, TimeBounds};
use hodo_formats::events::{Event, Lost, Trouble, schema::Scope};
use hodo_model::{
    digits::signed_decimal,
    event::{Compound, FieldSink, JsonFields, Name},
};

use super::names::StreamNames;

/// Writes the context of a packet as members of an object.
pub(super) fn packet(event: &Event<'_, '_, '_>, out: &mut Vec<u8>) -> Result<(), Trouble> {
    event.emit(Scope::PacketContext, &mut JsonFields::new(out))
}

/// Writes the line of an event.
pub(super) fn event(
    names: &StreamNames,
    (time, bounds): (Option<OriginNanos>, Option<TimeBounds>),
    packet: &[u8],
    event: &Event<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Trouble> {
    out.extend_from_slice(b"{\"ts\":");
    nanos(time, out);
    if let Some(bounds) = bounds {
        out.extend_from_slice(b",\"lower_ns\":");
        nanos(bounds.lower, out);
        out.extend_from_slice(b",\"upper_ns\":");
        nanos(bounds.upper, out);
    }
    let class = event.parts.class as usize;
    out.extend_from_slice(names.json_events[class].as_bytes());
    event.emit(Scope::Payload, &mut JsonFields::new(out))?;
    out.extend_from_slice(b"},\"context\":{");
    let nested = names.nested[class];
    let mut fields = JsonFields::new(out);
    if nested.packet {
        fields.begin(Name::Member("packet_context"), Compound::Structure);
        fields.append(packet);
        fields.end(Compound::Structure);
    } else {
        fields.append(packet);
    }
    if nested.common {
        fields.begin(Name::Member("common_context"), Compound::Structure);
        event.emit(Scope::CommonContext, &mut fields)?;
        fields.end(Compound::Structure);
    } else {
        event.emit(Scope::CommonContext, &mut fields)?;
    }
    event.emit(Scope::SpecificContext, &mut fields)?;
    out.extend_from_slice(b"}}\n");
    Ok(())
}

fn nanos(time: Option<OriginNanos>, out: &mut Vec<u8>) {
    match time {
        Some(time) => match i64::try_from(time.0) {
            Ok(nanos) => signed_decimal(nanos, out),
            Err(_) => drop(write!(out, "{}", time.0)),
        },
        None => out.extend_from_slice(b"null"),
    }
}

/// Writes a line for lost events or packets.
pub(super) fn lost(names: &StreamNames, lost: &Lost, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"ts\":");
    nanos(lost.after.or(lost.before), out);
    out.push(b',');
    out.extend_from_slice(names.json.as_bytes());
    let what = if lost.packets { "packets" } else { "events" };
    let _ = write!(out, ",\"lost_{what}\":");
    nanos((lost.count > 0).then_some(OriginNanos(lost.count.into())), out);
    out.extend_from_slice(b",\"after_ns\":");
    nanos(lost.after, out);
    out.extend_from_slice(b",\"before_ns\":");
    nanos(lost.before, out);
    out.extend_from_slice(b"}\n");
}
