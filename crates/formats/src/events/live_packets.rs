//! Reads packets of a stream one at a time, while it is recorded.

use super::{
    packet,
    trace::{Counters, Stream, StreamPacket, Trace},
};

/// The state carried from one packet to the next.
#[derive(Clone, Debug, Default)]
pub struct LivePacketReader {
    counters: Counters,
    clock: u64,
}

impl LivePacketReader {
    /// Reads the next packet of the stream; `bytes` must be exactly this packet.
    ///
    /// # Errors
    /// Why the bytes are no packet of this trace.
    pub fn next<'a>(
        &mut self,
        trace: &Trace<'a>,
        file: usize,
        bytes: &'a [u8],
    ) -> Result<StreamPacket<'a>, String> {
        let packet = packet::single(&trace.class, bytes)?;
        let (class, id) = (packet.stream_class, packet.stream);
        let mut packet = StreamPacket::new(file, bytes, packet);
        packet.clock = self.clock;
        let stream =
            Stream { class, id, name: String::new(), packets: Vec::new(), had_pre_pass: false, number: None };
        if let Some(clock) = trace.clock(&stream) {
            packet.set_times(clock);
            // A time of less bits wraps: only the events say how often, up to the next packet.
            if packet.packet.begin.is_none_or(|begin| begin.size < 64) {
                let mut reader = trace.reader(&stream);
                reader.open(packet.bytes, &packet.packet, packet.clock);
                while let Ok(Some(_)) = reader.next_event() {}
                self.clock = reader.clock();
            }
        }
        self.counters.count(&mut packet);
        Ok(packet)
    }
}
