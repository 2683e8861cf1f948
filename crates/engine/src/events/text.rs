//! Formats events as lines of text, in the manner of babeltrace2.

use std::io::Write;

use hodo_clock::{OriginNanos, TimeBounds};
use hodo_formats::events::{Event, Lost, Trouble, schema::Scope};
use hodo_model::event::{Base, Compound, FieldSink, Meaning, Name};

use super::names::StreamNames;
use crate::{
    experiment::micros,
    fast_format::{append_first, decimal, hexadecimal, nine},
};

/// Nanoseconds in a second and in a day.
const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// Writes fields as `{ name = value, … }`.
pub(super) struct TextFields<'o> {
    out: &'o mut Vec<u8>,
    /// Whether the next field is the first of its structure.
    first: bool,
}

/// Writes times of day (UTC); formats the seconds only when they change.
#[derive(Clone, Debug)]
pub(super) struct TimeOfDay {
    /// The second that `text` shows.
    second: OriginNanos,
    /// The time at the begin of this second.
    text: [u8; 21],
}

impl TimeOfDay {
    pub(super) fn new() -> TimeOfDay {
        TimeOfDay { second: OriginNanos(0), text: *b"[00:00:00.000000000] " }
    }

    /// Writes the time of day in brackets, or question marks if it is unknown.
    #[inline]
    pub(super) fn write(&mut self, time: Option<OriginNanos>, out: &mut Vec<u8>) {
        let Some(time) = time else { return out.extend_from_slice(b"[??:??:??.?????????] ") };
        let mut nanos = time.0 - self.second.0;
        if !(0..SECOND).contains(&nanos) {
            nanos = time.0.rem_euclid(SECOND);
            self.second = OriginNanos(time.0 - nanos);
            self.text[1..10].copy_from_slice(&clock_time((time.0.rem_euclid(DAY) / SECOND) as u32));
        }
        out.extend_from_slice(&self.text);
        put_nanos(nanos as u32, 2, out);
    }
}

/// Overwrites the nine digits that end `after` bytes before the end. Copying text with digits that have just been written
/// would wait for them.
#[inline]
fn put_nanos(nanos: u32, after: usize, out: &mut [u8]) {
    let end = out.len() - after;
    out[end - 9..end].copy_from_slice(&nine(nanos));
}

/// Formats hours, minutes and seconds.
fn clock_time(seconds: u32) -> [u8; 9] {
    let [hours, minutes, seconds] = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    let mut text = *b"00:00:00.";
    for (number, at) in [(hours, 0), (minutes, 3), (seconds, 6)] {
        (text[at], text[at + 1]) = (b'0' + (number / 10) as u8, b'0' + (number % 10) as u8);
    }
    text
}

/// Writes `(+seconds.nanoseconds)` since the previous line.
pub(super) fn since(before: Option<OriginNanos>, time: Option<OriginNanos>, out: &mut Vec<u8>) {
    let (Some(before), Some(time)) = (before, time) else {
        return out.extend_from_slice(b"(+?.?????????)");
    };
    let nanos = time.0 - before.0;
    // Dividing 128 bits takes long.
    if (0..SECOND).contains(&nanos) {
        out.extend_from_slice(b"(+0.000000000)");
        return put_nanos(nanos as u32, 1, out);
    }
    out.extend_from_slice(if nanos < 0 { b"(-" } else { b"(+" });
    decimal((nanos / SECOND).unsigned_abs() as u64, out);
    out.extend_from_slice(b".000000000)");
    put_nanos((nanos % SECOND).unsigned_abs() as u32, 1, out);
}

/// Writes `±0.4 µs ` before an event whose time is not exact; an unbounded side is `∞`.
pub(super) fn uncertainty(bounds: &TimeBounds, out: &mut Vec<u8>) {
    let half = bounds.half_width().map(|half| format!("±{} µs ", micros(half)));
    match (half, bounds.lower, bounds.upper) {
        (Some(_), ..) if bounds.lower == bounds.upper => {}
        (Some(half), ..) => out.extend_from_slice(half.as_bytes()),
        (None, Some(_), _) => out.extend_from_slice("+∞ ".as_bytes()),
        (None, _, Some(_)) => out.extend_from_slice("-∞ ".as_bytes()),
        (None, None, None) => out.extend_from_slice("±∞ ".as_bytes()),
    }
}

/// The scopes of an event, in display order.
const SCOPES: [Scope; 3] = [Scope::CommonContext, Scope::SpecificContext, Scope::Payload];

/// Writes the context of a packet as its events show it; nothing if all its fields are internal to the decoder.
pub(super) fn packet(event: &Event<'_, '_, '_>, out: &mut Vec<u8>) -> Result<(), Trouble> {
    let mut fields = TextFields { out, first: true };
    event.emit(Scope::PacketContext, &mut fields)?;
    if !fields.first {
        out.splice(0..0, *b" {");
        out.extend_from_slice(b" }");
    }
    Ok(())
}

/// Writes what follows the time: host and name, contexts and fields.
pub(super) fn event(
    names: &StreamNames,
    packet: &[u8],
    event: &Event<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Trouble> {
    out.extend_from_slice(names.text[event.parts.class as usize].as_bytes());
    out.extend_from_slice(packet);
    let mut first = packet.is_empty();
    for scope in SCOPES {
        if event.has(scope) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.extend_from_slice(b" {");
            event.emit(scope, &mut TextFields { out, first: true })?;
            out.extend_from_slice(b" }");
        }
    }
    out.push(b'\n');
    Ok(())
}

/// Fields that ftrace and perf record among a system call's arguments and that are not arguments.
const NO_ARGUMENTS: [&[u8]; 2] = [b"__syscall_nr", b"id"];
/// The prefix of fields that all events have.
const COMMON: &[u8] = b"common_";

/// Formats the fields of an event as arguments of a call: `fd = 3, count = 100`.
pub(super) fn arguments(event: &Event<'_, '_, '_>) -> Result<Vec<u8>, Trouble> {
    let mut out = Vec::new();
    event.emit(Scope::Payload, &mut TextFields { out: &mut out, first: true })?;
    let mut rest = out.as_slice().trim_ascii();
    while let Some(end) = rest.iter().position(|&byte| byte == b' ') {
        if !rest.starts_with(COMMON) && !NO_ARGUMENTS.contains(&&rest[..end]) {
            break;
        }
        let behind = rest.iter().position(|&byte| byte == b',').map_or(rest.len(), |comma| comma + 1);
        rest = rest[behind..].trim_ascii_start();
    }
    Ok(rest.to_vec())
}

/// Writes a line for lost events or packets.
pub(super) fn lost(stream: &str, lost: &Lost, out: &mut Vec<u8>) {
    let what = if lost.packets { "packet" } else { "event" };
    let plural = if lost.count == 1 { "" } else { "s" };
    let _ = match lost.count {
        0 => write!(out, "# an unknown number of {what}s lost in {stream}"),
        count => write!(out, "# {count} {what}{plural} lost in {stream}"),
    };
    let mut time = |word: &str, time: Option<OriginNanos>| {
        if time.is_some() {
            out.extend_from_slice(word.as_bytes());
            let mut text = Vec::new();
            TimeOfDay::new().write(time, &mut text);
            out.extend_from_slice(&text[1..19]);
        }
    };
    time(" after ", lost.after);
    time(" before ", lost.before);
    out.push(b'\n');
}

impl TextFields<'_> {
    #[inline]
    fn name(&mut self, name: Name<'_>) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        self.out.push(b' ');
        match name {
            Name::Member(name) => self.out.extend_from_slice(name.as_bytes()),
            Name::Element(index) => {
                self.out.push(b'[');
                decimal(index, self.out);
                self.out.push(b']');
            }
        }
        self.out.extend_from_slice(b" = ");
    }

    /// Writes a number in its base; `negative` if it is below zero and decimal.
    fn number(&mut self, value: u64, negative: bool, base: Base) {
        match base {
            Base::Decimal => {
                if negative {
                    self.out.push(b'-');
                }
                decimal(value, self.out);
            }
            Base::Hexadecimal => {
                self.out.extend_from_slice(b"0x");
                let (digits, count) = hexadecimal(value, b'A');
                append_first(digits, count, self.out);
            }
            Base::Octal => drop(write!(self.out, "0{value:o}")),
            Base::Binary => drop(write!(self.out, "0b{value:b}")),
        }
    }

    fn integer(&mut self, name: Name<'_>, value: i128, shown: (u64, bool), meaning: &Meaning) {
        self.name(name);
        if meaning.labels.is_empty() {
            return self.number(shown.0, shown.1, meaning.base);
        }
        self.out.extend_from_slice(b"( ");
        let mut labels = meaning.labels_of(value).peekable();
        if labels.peek().is_none() {
            self.out.extend_from_slice(b"<unknown>");
        }
        for (index, label) in labels.enumerate() {
            self.out.extend_from_slice(if index > 0 { b", " } else { b"" });
            quoted(label.as_bytes(), self.out);
        }
        self.out.extend_from_slice(b" : container = ");
        self.number(shown.0, shown.1, meaning.base);
        self.out.extend_from_slice(b" )");
    }
}

/// Returns whether text needs no escapes between quotes.
pub(super) fn is_plain(text: &[u8]) -> bool {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
    // No early exit, so that the compiler vectorises the loop.
    text.iter().fold(true, |plain, &byte| plain & is_plain(byte))
}

/// Writes text between quotes, with escapes for control characters and invalid UTF-8.
fn quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if is_plain(text) {
        out.extend_from_slice(text);
    } else {
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => out.extend([b'\\', c as u8]),
                    '\n' => out.extend_from_slice(b"\\n"),
                    '\t' => out.extend_from_slice(b"\\t"),
                    '\r' => out.extend_from_slice(b"\\r"),
                    c if c.is_control() => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
                    c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            chunk.invalid().iter().for_each(|byte| drop(write!(out, "\\x{byte:02x}")));
        }
    }
    out.push(b'"');
}

impl FieldSink for TextFields<'_> {
    #[inline]
    fn unsigned(&mut self, name: Name<'_>, value: u64, meaning: &Meaning) {
        self.integer(name, i128::from(value), (value, false), meaning);
    }

    #[inline]
    fn signed(&mut self, name: Name<'_>, value: i64, meaning: &Meaning) {
        let shown = match meaning.base {
            Base::Decimal => (value.unsigned_abs(), value < 0),
            _ => (value as u64 & (u64::MAX >> (64 - meaning.size.clamp(1, 64))), false),
        };
        self.integer(name, i128::from(value), shown, meaning);
    }

    fn real(&mut self, name: Name<'_>, value: f64) {
        self.name(name);
        let _ = write!(self.out, "{value}");
    }

    fn boolean(&mut self, name: Name<'_>, value: bool) {
        self.name(name);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn text(&mut self, name: Name<'_>, text: &[u8]) {
        self.name(name);
        quoted(text, self.out);
    }

    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        self.name(name);
        self.out.push(b'<');
        bytes.iter().for_each(|byte| drop(write!(self.out, "{byte:02x}")));
        self.out.push(b'>');
    }

    fn absent(&mut self, name: Name<'_>) {
        self.name(name);
        self.out.extend_from_slice(b"none");
    }

    fn begin(&mut self, name: Name<'_>, compound: Compound) {
        self.name(name);
        self.out.push(if compound == Compound::Array { b'[' } else { b'{' });
        self.first = true;
    }

    fn end(&mut self, compound: Compound) {
        self.out.extend_from_slice(if compound == Compound::Array { b" ]" } else { b" }" });
        self.first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_time_of_day_does_not_depend_on_the_one_before(times: Vec<(i64, u32)>) {
            let mut clock = TimeOfDay::new();
            for time in times.iter().flat_map(|&(time, step)| [i128::from(time), i128::from(time) + i128::from(step)]) {
                let (mut one, mut other) = (Vec::new(), Vec::new());
                clock.write(Some(OriginNanos(time)), &mut one);
                TimeOfDay::new().write(Some(OriginNanos(time)), &mut other);
                prop_assert_eq!(&one, &other);
                let day = time.rem_euclid(DAY);
                let (seconds, nanos) = (day / SECOND, day % SECOND);
                let expected =
                    format!("[{:02}:{:02}:{:02}.{nanos:09}] ", seconds / 3600, seconds / 60 % 60, seconds % 60);
                prop_assert_eq!(String::from_utf8(one).unwrap(), expected);
            }
        }
    }

    #[test]
    fn times_since_are_signed_and_may_be_long() {
        let shown = |before, time| {
            let mut out = Vec::new();
            since(Some(OriginNanos(before)), Some(OriginNanos(time)), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(5, 1_000_000_006), "(+1.000000001)");
        assert_eq!(shown(1, 0), "(-0.000000001)");
        assert_eq!(shown(0, 1 << 70), "(+1180591620717.411303424)");
    }
}
