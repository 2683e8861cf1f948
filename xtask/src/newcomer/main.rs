//! What somebody would write first with the published crates: packets, flow, edges and software events.

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_formats::{Input, Unpacked};
use hodo_intel_pt::{
    Config, EdgeMap,
    flow::{Decoder, Event, Executed, Sink, Switch},
    packet::{self, IpPayload, Packet, Tnt},
};

/// Addresses of executed instructions.
struct Addresses(Vec<u64>);

impl Sink for Addresses {
    fn executed(&mut self, executed: Executed<'_>) {
        self.0.extend(executed.addresses());
    }

    fn event(&mut self, _: Event) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let branches = Packet::Tnt8(Tnt { bits: 0b10, count: 2 });
    let [on, off] = [Packet::TipPge(IpPayload::Full(0x1000)), Packet::TipPgd(IpPayload::Suppressed)];
    let packets = [Packet::Psb, Packet::PsbEnd, on, branches, off];
    let trace: Vec<u8> = packets.iter().flat_map(|packet| packet.encode().to_vec()).collect();

    let mut decoder = packet::Decoder::new(&trace, 0);
    let mut found = Vec::new();
    while let Some(packet) = decoder.next_packet()? {
        found.push(packet);
    }
    assert_eq!(found, packets);

    // nop; jne back to it; ret
    let mut space = AddressSpace::new();
    let code = Content { bytes: &[0x90, 0x75, 0xfd, 0xc3], origin: Origin::default() };
    space.map(0x1000..0x1004, code, 0);
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let decode = |sink: &mut dyn FnMut(Decoder<'_>)| {
        sink(Decoder::new(&trace, 0..trace.len(), &Config::default(), &schedule));
    };
    let mut ran = Addresses(Vec::new());
    decode(&mut |decoder| decoder.decode(&mut [Program::new(&space, &NoLabels)], &mut ran));
    assert_eq!(ran.0, [0x1000, 0x1001, 0x1000, 0x1001, 0x1003]);

    let mut map = vec![0; EdgeMap::USUAL_SIZE];
    let mut edges = EdgeMap::new(&mut map);
    decode(&mut |decoder| decoder.decode(&mut [Program::new(&space, &NoLabels)], &mut edges));
    assert_eq!(map.iter().filter(|&&count| count > 0).count(), 3);

    let path = std::env::args().nth(1).ok_or("usage: newcomer PERF.DATA")?;
    let (bytes, unpacked) = (std::fs::read(path)?, Unpacked::default());
    let recording = hodo_formats::read(&Input::file(&bytes, &unpacked))?;
    println!("{} streams of Intel PT, {} records of the sideband", recording.streams.len(), recording.sideband.len());
    Ok(())
}
