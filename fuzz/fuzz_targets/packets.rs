//! Any bytes as Intel PT: the decoder always moves on, its packets survive encoding, and reading many packets at once gives
//! the same as reading them one by one.

#![no_main]

use hodo_intel_pt::packet::{Decoder, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut at_once = Vec::new();
    let ended = Decoder::new(bytes, 0).for_each(|packet| at_once.push(packet));
    let mut one_by_one = Decoder::new(bytes, 0);
    let mut next = || one_by_one.next_packet();
    assert!(at_once.iter().all(|packet| next() == Ok(Some(*packet))));
    assert_eq!(next(), ended.map(|()| None));

    let mut decoder = Decoder::new(bytes, 0);
    // Size of block items, as the last BBP says.
    let mut short_items = false;
    loop {
        let before = decoder.position();
        match decoder.next_packet() {
            Ok(None) => break,
            Ok(Some(packet)) => {
                assert!(decoder.position() > before && decoder.position() <= bytes.len());
                if let Packet::Bbp { short_items: short, .. } = packet {
                    short_items = short;
                }
                survives(packet, short_items);
                let _ = packet.to_string();
            }
            Err(error) => {
                assert_eq!((error.at, decoder.position()), (before as u64, before));
                let _ = error.to_string();
                decoder = Decoder::new(bytes, before + 1);
                decoder.synchronize();
            }
        }
    }
});

/// A packet that is written and read again is the same.
fn survives(packet: Packet, short_items: bool) {
    let written = match packet {
        Packet::Bip { .. } => {
            let mut block = Packet::Bbp { short_items, kind: 0 }.encode().to_vec();
            block.extend_from_slice(&packet.encode_item(short_items));
            block
        }
        _ => packet.encode().to_vec(),
    };
    let mut decoder = Decoder::new(&written, 0);
    let mut last = None;
    while let Some(read) = decoder.next_packet().expect("what was encoded can be decoded") {
        last = Some(read);
    }
    assert_eq!(last, Some(packet));
}
