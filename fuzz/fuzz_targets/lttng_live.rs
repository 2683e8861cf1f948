//! Any bytes as the answers of a relay daemon.

#![no_main]

use hodo_formats::ctf::lttng_live::{
    Attached, Connected, Index, LONGEST, MOST, MetadataHead, MetadataStatus, NewStreams, PacketHead,
    PacketStatus, Reply, Session, SessionCount, SessionCreated, StreamInfo,
};
use libfuzzer_sys::fuzz_target;

/// Decodes an answer from the first bytes, and removes them.
fn answer<R: Reply>(bytes: &mut &[u8]) -> Option<R> {
    let taken = bytes.len().min(R::SIZE);
    let (answer, rest) = bytes.split_at(taken);
    *bytes = rest;
    match R::decode(answer) {
        Ok(reply) => Some(reply),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes;
    while let Some((&kind, rest)) = bytes.split_first() {
        bytes = rest;
        let bytes = &mut bytes;
        let count = match kind % 10 {
            0 => answer::<Connected>(bytes).map(|_| 0),
            1 => answer::<SessionCount>(bytes).map(|count| count.0),
            2 => answer::<Session>(bytes).map(|_| 0),
            3 => answer::<SessionCreated>(bytes).map(|_| 0),
            4 => answer::<Attached>(bytes).map(|count| count.0),
            5 => answer::<StreamInfo>(bytes).map(|_| 0),
            6 => answer::<NewStreams>(bytes).map(|streams| match streams {
                NewStreams::Streams(count) => count,
                NewStreams::Ended => 0,
            }),
            7 => {
                let length = answer::<Index>(bytes).map_or(0, |index| index.length);
                assert!(u64::from(length) <= LONGEST);
                None
            }
            8 => {
                if let Some(PacketHead { status: PacketStatus::Bytes(length), .. }) = answer(bytes) {
                    assert!(u64::from(length) <= LONGEST);
                }
                None
            }
            _ => {
                if let Some(MetadataHead(MetadataStatus::Bytes(length))) = answer(bytes) {
                    assert!(u64::from(length) <= LONGEST);
                }
                None
            }
        };
        assert!(count.unwrap_or(0) <= MOST);
    }
});
