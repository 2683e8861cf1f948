//! Any bytes as packets of traces whose metadata has a bit of everything.

#![no_main]

use hodo_formats::events::{Cursor, DataFile, Item, Trace, schema::Scope};
use hodo_formats::ctf::read_metadata;
use hodo_model::event::{Compound, FieldSink, Meaning, Name};
use libfuzzer_sys::fuzz_target;

const TSDL: &str = "trace { byte_order = be; packet.header := struct { integer { size = 1; } stream_id; }; };
typealias integer { size = 8; } := u8; clock { name = c; freq = 3; offset_s = -1; };
stream { id = 0;
    packet.context := struct { u8 packet_size; u8 content_size; u8 events_discarded; u8 packet_seq_num; };
    event.header := struct { enum : u8 { a = 0 ... 9, b = 10 } id; integer { size = 5; map = clock.c.value; } t; };
    event.context := struct { u8 n; variant <stream.event.header.id> { string a; u8 b; } v; };
};
stream { id = 1; };
event { stream_id = 0; fields := struct {
    struct { u8 n; u8 x[n]; struct { } empty[n]; } y[stream.event.context.n];
    integer { size = 13; align = 4; signed = true; byte_order = le; } z;
    integer { size = 8; encoding = UTF8; } text[y.n];
}; };
event { stream_id = 0; id = 10; };
event { stream_id = 1; fields := struct { floating_point { exp_dig = 8; mant_dig = 24; } f; string s; }; };";

const JSON: &str = r#"{"type": "preamble", "version": 2}
{"type": "trace-class"}
{"type": "data-stream-class"}
{"type": "event-record-class", "payload-field-class": {"type": "structure", "member-classes": [
    {"name": "u", "field-class": {"type": "variable-length-unsigned-integer"}},
    {"name": "s", "field-class": {"type": "variable-length-signed-integer"}},
    {"name": "w", "field-class": {"type": "null-terminated-string", "encoding": "utf-16le"}},
    {"name": "d", "field-class": {"type": "dynamic-length-string", "length-field-location": {"path": ["u"]}}},
    {"name": "b", "field-class": {"type": "dynamic-length-blob", "length-field-location": {"path": ["u"]}}},
    {"name": "o", "field-class": {"type": "optional", "selector-field-location": {"path": ["s"]},
        "selector-field-ranges": [[-64, -1]], "field-class": {"type": "static-length-array", "length": 3,
        "minimum-alignment": 64, "element-field-class": {"type": "fixed-length-boolean", "length": 3,
        "byte-order": "big-endian", "bit-order": "first-to-last"}}}}]}}"#;

fuzz_target!(|bytes: &[u8]| {
    let Some((&selection, data)) = bytes.split_first() else { return };
    let metadata =
        if selection % 2 == 0 { TSDL.to_owned() } else { format!("\x1e{}", JSON.replace("}\n{", "}\x1e{")) };
    let class = read_metadata(metadata.as_bytes()).expect("it is right");
    let trace =
        Trace::new("fuzz".to_owned(), class, vec![DataFile { name: "stream".to_owned(), bytes: data, index: None }]);
    for stream in &trace.streams {
        let mut cursor = Cursor::new(&trace, stream, 0..stream.packets.len());
        while let Some((_, item)) = cursor.next_item() {
            let Item::Event(parts) = item else { continue };
            let event = cursor.event(parts);
            for scope in [Scope::PacketContext, Scope::CommonContext, Scope::SpecificContext, Scope::Payload]
            {
                let mut open = Open(0);
                // What is stepped over can be read too, but for elements without a size.
                if event.emit(scope, &mut open).is_ok() {
                    assert_eq!(open.0, 0);
                }
            }
        }
    }
});

/// How many fields with parts are open.
struct Open(usize);

impl FieldSink for Open {
    fn unsigned(&mut self, _: Name<'_>, _: u64, _: &Meaning) {}
    fn signed(&mut self, _: Name<'_>, _: i64, _: &Meaning) {}
    fn real(&mut self, _: Name<'_>, _: f64) {}
    fn boolean(&mut self, _: Name<'_>, _: bool) {}
    fn text(&mut self, _: Name<'_>, _: &[u8]) {}
    fn blob(&mut self, _: Name<'_>, _: &[u8]) {}
    fn absent(&mut self, _: Name<'_>) {}
    fn begin(&mut self, _: Name<'_>, _: Compound) {
        self.0 += 1;
    }
    fn end(&mut self, _: Compound) {
        self.0 -= 1;
    }
}
