//! Formats a trace and its items as text.

use std::fmt::Write;

use hodo_formats::ctf::read_metadata;
use hodo_formats::events::{Cursor, DataFile, Event, Item, Trace, schema::Scope};
use hodo_model::event::{Compound, FieldSink, Meaning, Name};

/// Completes the TSDL of a little-endian trace.
pub(crate) fn tsdl(rest: &str) -> String {
    format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 8; }} := u8; typealias integer {{ size = 16; }} := u16;
        typealias integer {{ size = 32; }} := u32; typealias integer {{ size = 64; }} := u64;
        trace {{ major = 1; minor = 8; byte_order = le; }};
        {rest}"
    )
}

/// A trace with this metadata and these files.
pub(crate) fn trace<'a>(metadata: &str, files: &'a [(&str, Vec<u8>)]) -> Trace<'a> {
    let class = read_metadata(metadata.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let files = files.iter().map(|(name, bytes)| DataFile { name: (*name).to_owned(), bytes, index: None });
    Trace::new("trace".to_owned(), class, files.collect())
}

/// All items of all streams, one per line, then the losses.
pub(crate) fn read(trace: &Trace<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for stream in &trace.streams {
        let mut cursor = Cursor::new(trace, stream, 0..stream.packets.len());
        while let Some((time, item)) = cursor.next_item() {
            let time = time.map_or("-".to_owned(), |time| time.0.to_string());
            match item {
                Item::Event(parts) => lines.push(format!("{time} {}", event(&cursor.event(parts)))),
                Item::Lost(lost) if lost.packets => lines.push(format!("{time} lost {} packets", lost.count)),
                Item::Lost(lost) => lines.push(format!("{time} lost {}", lost.count)),
            }
        }
        lines.extend(cursor.loss.into_iter().map(|loss| format!("! {}", loss.detail)));
    }
    lines.extend(trace.loss.iter().map(|loss| format!("! {}", loss.detail)));
    lines
}

/// The items of a trace with one file.
pub(crate) fn lines(metadata: &str, bytes: &[u8]) -> Vec<String> {
    read(&trace(metadata, &[("stream", bytes.to_vec())]))
}

fn event(event: &Event<'_, '_, '_>) -> String {
    let mut show = Show(event.class().name.clone());
    for scope in [Scope::CommonContext, Scope::SpecificContext, Scope::Payload] {
        if let Err(trouble) = event.emit(scope, &mut show) {
            return format!("! {trouble}");
        }
    }
    show.0
}

/// The error of invalid metadata.
pub(crate) fn refused(metadata: &str) -> String {
    match read_metadata(metadata.as_bytes()) {
        Ok(_) => panic!("can be read"),
        Err(error) => error.to_string(),
    }
}

struct Show(String);

impl Show {
    fn value(&mut self, name: Name<'_>, value: impl std::fmt::Display) {
        let _ = match name {
            Name::Member(name) => write!(self.0, " {name}={value}"),
            Name::Element(_) => write!(self.0, " {value}"),
        };
    }

    fn integer(&mut self, name: Name<'_>, value: i128, meaning: &Meaning) {
        let labels: Vec<&str> = meaning.labels_of(value).collect();
        let labels = if labels.is_empty() { String::new() } else { format!(":{}", labels.join("|")) };
        self.value(name, format!("{value}{labels}"));
    }
}

impl FieldSink for Show {
    fn unsigned(&mut self, name: Name<'_>, value: u64, meaning: &Meaning) {
        self.integer(name, value.into(), meaning);
    }
    fn signed(&mut self, name: Name<'_>, value: i64, meaning: &Meaning) {
        self.integer(name, value.into(), meaning);
    }
    fn real(&mut self, name: Name<'_>, value: f64) {
        self.value(name, value);
    }
    fn boolean(&mut self, name: Name<'_>, value: bool) {
        self.value(name, value);
    }
    fn text(&mut self, name: Name<'_>, text: &[u8]) {
        self.value(name, format!("{:?}", String::from_utf8_lossy(text)));
    }
    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        self.value(name, format!("{bytes:?}"));
    }
    fn absent(&mut self, name: Name<'_>) {
        self.value(name, "none");
    }
    fn begin(&mut self, name: Name<'_>, compound: Compound) {
        self.value(name, if compound == Compound::Array { "[" } else { "{" });
    }
    fn end(&mut self, compound: Compound) {
        self.0 += if compound == Compound::Array { " ]" } else { " }" };
    }
}
