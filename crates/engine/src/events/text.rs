//! Events as lines for people, in the manner of babeltrace2.

use std::io::Write;

use hodo_clock::OriginNanos;
use hodo_formats::ctf::{Event, Lost, Trouble, schema::Scope};
use hodo_trace::event::{Base, Compound, FieldSink, Meaning, Name};

/// Nanoseconds in a second and in a day.
const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// Writes fields as `{ name = value, … }`.
pub(super) struct TextFields<'o> {
    out: &'o mut Vec<u8>,
    /// Whether the next field is the first of its structure.
    first: bool,
}

/// The time of day (UTC), or what stands for one.
pub(super) fn time_of_day(time: Option<OriginNanos>, out: &mut Vec<u8>) {
    let Some(time) = time else { return out.extend_from_slice(b"??:??:??.?????????") };
    let nanos = time.0.rem_euclid(DAY);
    let (seconds, nanos) = ((nanos / SECOND) as u32, (nanos % SECOND) as u32);
    let two = |number: u32, after: u8, out: &mut Vec<u8>| {
        out.extend([digit(number / 10), digit(number % 10), after])
    };
    two(seconds / 3600, b':', out);
    two(seconds / 60 % 60, b':', out);
    two(seconds % 60, b'.', out);
    nine(nanos, out);
}

fn digit(number: u32) -> u8 {
    b'0' + (number % 10) as u8
}

/// Nine digits.
fn nine(mut nanos: u32, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 9];
    for place in digits.iter_mut().rev() {
        *place = digit(nanos);
        nanos /= 10;
    }
    out.extend_from_slice(&digits);
}

/// `(+seconds.nanoseconds)` since the line before.
pub(super) fn since(before: Option<OriginNanos>, time: Option<OriginNanos>, out: &mut Vec<u8>) {
    match before.zip(time) {
        Some((before, time)) => {
            let nanos = time.0 - before.0;
            out.extend_from_slice(if nanos < 0 { b"(-" } else { b"(+" });
            let nanos = nanos.unsigned_abs();
            decimal((nanos / SECOND.unsigned_abs()) as u64, out);
            out.push(b'.');
            nine((nanos % SECOND.unsigned_abs()) as u32, out);
            out.push(b')');
        }
        None => out.extend_from_slice(b"(+?.?????????)"),
    }
}

fn decimal(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Whether there is anything in the scope that people are to see, and all of it.
const SCOPES: [Scope; 4] =
    [Scope::PacketContext, Scope::CommonContext, Scope::SpecificContext, Scope::Payload];

/// What comes after the time: host, name, contexts and fields.
pub(super) fn event(host: &str, event: &Event<'_, '_, '_>, out: &mut Vec<u8>) -> Result<(), Trouble> {
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(event.class().name.as_bytes());
    out.push(b':');
    let mut separator: &[u8] = b" {";
    for scope in SCOPES {
        if !event.has(scope) {
            continue;
        }
        let start = out.len();
        out.extend_from_slice(separator);
        let mut fields = TextFields { out, first: true };
        event.tell(scope, &mut fields)?;
        if fields.first && scope == Scope::PacketContext {
            // All of it was for the reader.
            out.truncate(start);
            continue;
        }
        out.extend_from_slice(b" }");
        separator = b", {";
    }
    out.push(b'\n');
    Ok(())
}

/// A line where something was lost.
pub(super) fn lost(stream: &str, lost: &Lost, out: &mut Vec<u8>) {
    let what = if lost.packets { "packet" } else { "event" };
    let plural = if lost.count == 1 { "" } else { "s" };
    let _ = write!(out, "# {} {what}{plural} lost in {stream}", lost.count);
    let mut time = |word: &str, time: Option<OriginNanos>| {
        if time.is_some() {
            out.extend_from_slice(word.as_bytes());
            time_of_day(time, out);
        }
    };
    time(" after ", lost.after);
    time(" before ", lost.before);
    out.push(b'\n');
}

impl TextFields<'_> {
    fn name(&mut self, name: Name<'_>) {
        self.out.extend_from_slice(if self.first { b" " } else { b", " });
        self.first = false;
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

    /// A number in its base; `negative` where it is below zero and decimal.
    fn number(&mut self, value: u64, negative: bool, base: Base) {
        match base {
            Base::Decimal => {
                if negative {
                    self.out.push(b'-');
                }
                decimal(value, self.out);
            }
            Base::Hexadecimal => hexadecimal(value, self.out),
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

/// `0x` and upper-case digits.
fn hexadecimal(value: u64, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(b"0x");
    let count = (64 - value.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..count).rev().map(|place| DIGITS[(value >> (4 * place) & 0xf) as usize]));
}

/// Text between quotes, with escapes for what is no text.
fn quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if text.iter().all(|&byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
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
