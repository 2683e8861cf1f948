//! The printed text of a packet encodes to the same packet.

use hodo_cases::{Assembly, Line, encode};
use hodo_intel_pt::packet::{Decoder, Packet};
use proptest::prelude::*;

/// The packets in some bytes, as printed.
fn printed(bytes: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::new(bytes, 0);
    let mut lines = Vec::new();
    while let Ok(Some(packet)) = decoder.next_packet() {
        lines.push(packet.to_string());
    }
    lines
}

/// First bytes of two-byte opcodes and TRIG, which are rare in random bytes.
fn rare_opcode() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(vec![]), Just(vec![2]), Just(vec![0xd9])]
}

proptest! {
    #[test]
    fn what_is_printed_is_read(opcode in rare_opcode(), in_block: bool, bytes in prop::collection::vec(any::<u8>(), 1..12)) {
        let block = if in_block { Packet::Bbp { short_items: true, kind: 4 }.encode().to_vec() } else { vec![] };
        let bytes = [&block[..], &opcode, &bytes].concat();
        let lines = printed(&bytes);
        let numbered: Vec<Line<'_>> = (1..).zip(&lines).map(|(number, text)| Line { number, text }).collect();
        let trace = encode(&numbered, &Assembly::default()).expect("a printed packet is one");
        prop_assert_eq!(printed(&trace.bytes), lines);
    }
}
