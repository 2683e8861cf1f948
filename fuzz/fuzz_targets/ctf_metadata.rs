//! Any bytes as metadata of CTF 1.8 or 2, and the rest of them as packets under it. `read_head`, which skips the events, must
//! find the same packets.

#![no_main]

use hodo_formats::events::{Cursor, DataFile, FilePackets, Trace};
use hodo_formats::ctf::{read_head, read_metadata, recognise};
use libfuzzer_sys::fuzz_target;

/// What TSDL needs to say before types can be declared.
const BEGIN: &[u8] = b"trace { byte_order = le; }; typealias integer { size = 8; } := u8; ";
/// What CTF 2 begins with.
const PREAMBLE: &[u8] = b"\x1e{\"type\": \"preamble\", \"version\": 2}\x1e";

fuzz_target!(|bytes: &[u8]| {
    let Some((&selection, rest)) = bytes.split_first() else { return };
    // Metadata ends at the first NUL, which it never has.
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let (metadata, data) = rest.split_at(end);
    let metadata = match selection % 3 {
        0 => metadata.to_vec(),
        1 => [BEGIN, metadata].concat(),
        _ => [PREAMBLE, metadata].concat(),
    };
    let _ = recognise(&metadata);
    let class = match read_metadata(&metadata) {
        Ok(class) => class,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let file = DataFile { name: "stream".to_owned(), bytes: data, index: None };
    if let Some(head) = read_head(&metadata).filter(|head| class.finds_packets_as(head)) {
        let packets = |class| FilePackets::read(class, &file, &|_| ());
        assert_eq!(packets(&head), packets(&class));
    }
    let trace = Trace::new("fuzz".to_owned(), class, vec![file]);
    for stream in &trace.streams {
        let mut cursor = Cursor::new(&trace, stream, 0..stream.packets.len());
        // Each event takes a bit, and each packet loses something at most twice.
        let most = data.len() * 8 + stream.packets.len() * 2;
        assert!(std::iter::from_fn(|| cursor.next_item()).take(most + 1).count() <= most);
    }
});
