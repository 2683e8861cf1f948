//! Any bytes as a trace of Perfetto, as a bundle of events, or as a table of switches.

#![no_main]

use hodo_formats::events::{Cursor, Item, schema::Scope};
use hodo_formats::{Input, Unpacked, perfetto};
use hodo_model::event::Ignore;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/formats/tests/perfetto/packets.rs"]
#[allow(dead_code, reason = "the tests of the reader use all of it")]
mod packets;

fuzz_target!(|bytes: &[u8]| {
    let Some((&selection, rest)) = bytes.split_first() else { return };
    let whole = match selection % 4 {
        0 => rest.to_vec(),
        1 => packets::packet(&[packets::bytes(1, rest)]),
        2 => packets::bundle(0, &[packets::bytes(4, rest), packets::event(5, 57, &[])]),
        _ => packets::bundle(0, &[packets::bytes(2, rest)]),
    };
    let _ = perfetto::recognise(&whole);
    let unpacked = Unpacked::default();
    let Ok(traces) = perfetto::read(&Input::file(&whole, &unpacked)) else { return };
    for trace in &traces {
        for stream in &trace.streams {
            let mut cursor = Cursor::new(trace, stream, 0..stream.packets.len());
            while let Some((_, item)) = cursor.next_item() {
                let Item::Event(parts) = item else { continue };
                let event = cursor.event(parts);
                for scope in [Scope::PacketContext, Scope::CommonContext, Scope::SpecificContext, Scope::Payload] {
                    // Fields that can't be read are errors.
                    let _ = event.emit(scope, &mut Ignore);
                }
            }
        }
    }
});
