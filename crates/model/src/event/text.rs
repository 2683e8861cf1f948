//! Fields as text, in the manner of babeltrace2.

use std::io::Write;

use super::{Base, Compound, FieldSink, Meaning, Name};
use crate::digits::{append_first, decimal, hexadecimal};

/// Writes fields as `{ name = value, … }`.
pub struct TextFields<'o> {
    out: &'o mut Vec<u8>,
    /// Whether the next field is the first of its structure.
    first: bool,
}

impl<'o> TextFields<'o> {
    /// Appends the fields to `out`.
    pub fn new(out: &'o mut Vec<u8>) -> TextFields<'o> {
        TextFields { out, first: true }
    }

    /// Returns whether there was a field.
    pub fn has_any(&self) -> bool {
        !self.first
    }
}

/// An integer as it is displayed.
#[derive(Clone, Copy)]
struct Magnitude {
    value: u64,
    /// Whether a minus precedes it. Only decimal numbers have a sign.
    is_negative: bool,
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

    /// Writes a number in its base.
    fn number(&mut self, Magnitude { value, is_negative }: Magnitude, base: Base) {
        match base {
            Base::Decimal => {
                if is_negative {
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

    fn integer(&mut self, name: Name<'_>, value: i128, magnitude: Magnitude, meaning: &Meaning) {
        self.name(name);
        if meaning.labels.is_empty() {
            return self.number(magnitude, meaning.base);
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
        self.number(magnitude, meaning.base);
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
        self.integer(name, i128::from(value), Magnitude { value, is_negative: false }, meaning);
    }

    #[inline]
    fn signed(&mut self, name: Name<'_>, value: i64, meaning: &Meaning) {
        let magnitude = match meaning.base {
            Base::Decimal => Magnitude { value: value.unsigned_abs(), is_negative: value < 0 },
            _ => {
                let bits = u64::MAX >> (64 - meaning.size.clamp(1, 64));
                Magnitude { value: value as u64 & bits, is_negative: false }
            }
        };
        self.integer(name, i128::from(value), magnitude, meaning);
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
