//! Formats events as JSON objects, one per line; every integer is exact.

use std::io::Write;

use hodo_clock::{OriginNanos, TimeBounds};
use hodo_formats::events::{Event, Lost, Trouble, schema::Scope};
use hodo_model::event::{Compound, FieldSink, Meaning, Name};

use super::{names::StreamNames, text::is_plain};
use crate::fast_format::{decimal, signed_decimal};

/// Writes fields as members of an open object.
pub(super) struct JsonFields<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
    /// Whether the next field is the content of a variant, which is written in place of the variant.
    held: bool,
}

impl<'o> JsonFields<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, first: bool) -> JsonFields<'o> {
        JsonFields { out, first, held: false }
    }

    /// Writes one field without its name.
    pub(super) fn of_one(out: &'o mut Vec<u8>) -> JsonFields<'o> {
        JsonFields { out, first: true, held: true }
    }
}

/// Writes the context of a packet as members of an object.
pub(super) fn packet(event: &Event<'_, '_, '_>, out: &mut Vec<u8>) -> Result<(), Trouble> {
    event.emit(Scope::PacketContext, &mut JsonFields::new(out, true))
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
    event.emit(Scope::Payload, &mut JsonFields::new(out, true))?;
    out.extend_from_slice(b"},\"context\":{");
    let [packet_is_nested, common_is_nested] = names.nested[class];
    let mut fields = JsonFields::new(out, true);
    if packet_is_nested {
        fields.begin(Name::Member("packet_context"), Compound::Structure);
        fields.out.extend_from_slice(packet);
        fields.end(Compound::Structure);
    } else {
        fields.out.extend_from_slice(packet);
        fields.first = packet.is_empty();
    }
    if common_is_nested {
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

/// Writes text as a JSON string; invalid UTF-8 becomes U+FFFD.
fn string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if is_plain(text) {
        out.extend_from_slice(text);
    } else {
        for c in String::from_utf8_lossy(text).chars() {
            match c {
                '"' | '\\' => out.extend([b'\\', c as u8]),
                c if u32::from(c) < 0x20 => drop(write!(out, "\\u{:04x}", u32::from(c))),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
    out.push(b'"');
}

impl JsonFields<'_> {
    fn name(&mut self, name: Name<'_>) {
        if std::mem::take(&mut self.held) {
            return;
        }
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        if let Name::Member(name) = name {
            string(name.as_bytes(), self.out);
            self.out.push(b':');
        }
    }
}

impl FieldSink for JsonFields<'_> {
    #[inline]
    fn unsigned(&mut self, name: Name<'_>, value: u64, _: &Meaning) {
        self.name(name);
        decimal(value, self.out);
    }

    #[inline]
    fn signed(&mut self, name: Name<'_>, value: i64, _: &Meaning) {
        self.name(name);
        signed_decimal(value, self.out);
    }

    /// JSON has no infinities and no NaN: they are written as strings.
    fn real(&mut self, name: Name<'_>, value: f64) {
        self.name(name);
        let _ =
            if value.is_finite() { write!(self.out, "{value:?}") } else { write!(self.out, "\"{value}\"") };
    }

    fn boolean(&mut self, name: Name<'_>, value: bool) {
        self.name(name);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn text(&mut self, name: Name<'_>, text: &[u8]) {
        self.name(name);
        string(text, self.out);
    }

    /// Writes bytes in hexadecimal.
    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        self.name(name);
        self.out.push(b'"');
        bytes.iter().for_each(|byte| drop(write!(self.out, "{byte:02x}")));
        self.out.push(b'"');
    }

    fn absent(&mut self, name: Name<'_>) {
        self.name(name);
        self.out.extend_from_slice(b"null");
    }

    fn begin(&mut self, name: Name<'_>, compound: Compound) {
        self.name(name);
        match compound {
            Compound::Structure => self.out.push(b'{'),
            Compound::Array => self.out.push(b'['),
            Compound::Variant => {
                self.held = true;
                return;
            }
        }
        self.first = true;
    }

    fn end(&mut self, compound: Compound) {
        match compound {
            Compound::Structure => self.out.push(b'}'),
            Compound::Array => self.out.push(b']'),
            Compound::Variant => {}
        }
        self.first = false;
    }
}
