//! Fields as JSON; every integer is exact.

use std::io::Write;

use super::{Compound, FieldSink, Meaning, Name, text::is_plain};
use crate::digits::{decimal, signed_decimal};

/// Writes fields as members of an open object.
pub struct JsonFields<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
    /// Whether the next field is written without its name: a single field, or the content of a variant, whose name is
    /// written already.
    is_named: bool,
}

impl<'o> JsonFields<'o> {
    /// Appends the members to `out`, where the object has no member yet.
    pub fn new(out: &'o mut Vec<u8>) -> JsonFields<'o> {
        JsonFields { out, first: true, is_named: false }
    }

    /// Writes one field without its name.
    pub fn of_one(out: &'o mut Vec<u8>) -> JsonFields<'o> {
        JsonFields { out, first: true, is_named: true }
    }

    /// Appends members that are formatted already.
    pub fn append(&mut self, members: &[u8]) {
        self.out.extend_from_slice(members);
        self.first &= members.is_empty();
    }
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
        if std::mem::take(&mut self.is_named) {
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
                self.is_named = true;
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
