//! Any bytes as a trace.dat of either byte order, or as the pages of one, or as its version 7.

#![no_main]

use hodo_formats::{Input, Unpacked, ftrace};
use hodo_formats::events::{Cursor, Item, schema::Scope};
use hodo_model::event::Ignore;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the tests of the reader use all of it")]
#[path = "../../crates/formats/tests/ftrace/file.rs"]
mod file;

fuzz_target!(|bytes: &[u8]| {
    let Some((&selection, rest)) = bytes.split_first() else { return };
    let mark = b"\x17\x08\x44tracing";
    let whole = match selection % 6 {
        0 => [&mark[..], b"6\0\0\x08", rest].concat(),
        1 => [&mark[..], b"7\0\0\x08\0\x01\0\0none\0\0", rest].concat(),
        2 => [&mark[..], b"7\0\0\x08\0\x01\0\0zstd\x001\0", rest].concat(),
        3 => [&mark[..], b"7\0\0\x08\0\x01\0\0zlib\x001\0", rest].concat(),
        4 => [&mark[..], b"6\0\x01\x08", rest].concat(),
        _ => [file::head().bytes(&[rest.len() as u64]), rest.to_vec()].concat(),
    };
    let unpacked = Unpacked::default();
    let Ok(traces) = ftrace::read(&Input::file(&whole, &unpacked)) else { return };
    for trace in &traces {
        for stream in &trace.streams {
            let mut cursor = Cursor::new(trace, stream, 0..stream.packets.len());
            while let Some((_, item)) = cursor.next_item() {
                let Item::Event(parts) = item else { continue };
                let event = cursor.event(parts);
                for scope in [Scope::PacketContext, Scope::CommonContext, Scope::SpecificContext, Scope::Payload] {
                    // What lies outside of the record is an error.
                    let _ = event.emit(scope, &mut Ignore);
                }
            }
        }
    }
});
