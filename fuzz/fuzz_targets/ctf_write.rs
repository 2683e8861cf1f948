//! Any bytes as a trace with an index, which is then written in both versions and read again.

#![no_main]

use hodo_formats::events::{Cursor, DataFile, Item, Trace};
use hodo_formats::ctf::{read_metadata, write::{KeptTimes, StreamWriter, Target, Version}};
use libfuzzer_sys::fuzz_target;

const TSDL: &str = "trace { byte_order = be; packet.header := struct { integer { size = 1; } stream_id; }; };
typealias integer { size = 8; } := u8; clock { name = c; freq = 3; offset_s = -1; };
stream { id = 0;
    packet.context := struct { u8 packet_size; u8 content_size; u8 events_discarded; u8 packet_seq_num; };
    event.header := struct { enum : u8 { a = 0 ... 9, b = 10 } id; integer { size = 5; map = clock.c.value; } t; };
    event.context := struct { u8 n; };
};
stream { id = 1; };
event { stream_id = 0; fields := struct {
    struct { u8 n; u8 x[n]; struct { } empty[n]; } y[stream.event.context.n];
    integer { size = 13; align = 4; signed = true; byte_order = le; } z;
    integer { size = 8; encoding = UTF8; } text[3];
}; };
event { stream_id = 0; id = 10; };
event { stream_id = 1; fields := struct { floating_point { exp_dig = 8; mant_dig = 24; } f; string s; }; };";

/// The items of a trace's streams.
fn items(trace: &Trace<'_>) -> usize {
    let cursors = trace.streams.iter().map(|stream| Cursor::new(trace, stream, 0..stream.packets.len()));
    cursors.map(|mut cursor| std::iter::from_fn(|| cursor.next_item()).count()).sum()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&split, rest)) = bytes.split_first() else { return };
    let (index, data) = rest.split_at(usize::from(split).min(rest.len()));
    let class = read_metadata(TSDL.as_bytes()).expect("it is right");
    let file = DataFile { name: "stream".to_owned(), bytes: data, index: Some(index) };
    let trace = Trace::new("fuzz".to_owned(), class, vec![file]);
    for version in [Version::Ctf18, Version::Ctf2] {
        let target = Target::new(&trace.class, version, &|_, _| true).expect("both versions have all of it");
        for stream in &trace.streams {
            let mut writer = StreamWriter::new(&target, &trace, stream);
            let (keeps_begin, writes_empty) = (true, false);
            let mut written = 0;
            for (number, packet) in stream.packets.iter().enumerate() {
                writer.begin(packet);
                let mut cursor = Cursor::new(&trace, stream, number..number + 1);
                while let Some((_, item)) = cursor.next_item() {
                    if let Item::Event(parts) = item {
                        written += usize::from(writer.event(&cursor.event(parts), keeps_begin).is_ok());
                    }
                }
                let _ = writer.end(writes_empty, KeptTimes { begin: keeps_begin, end: true });
            }
            let class = read_metadata(target.metadata.as_bytes()).expect("we wrote it");
            let bytes = writer.take();
            let file = DataFile { name: "stream".to_owned(), bytes: &bytes, index: None };
            assert_eq!(items(&Trace::new("again".to_owned(), class, vec![file])), written);
        }
    }
});
