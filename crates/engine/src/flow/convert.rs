//! The logs of a native recording as Intel PT packets.

use hodo_clock::Tsc;

use crate::{
    flow::{stream::Chunk, trace::Trace},
    parallel::in_order,
    reading::Reading,
};

/// The packets of one chunk, from a PSB on.
#[derive(Clone, Debug)]
pub struct ConvertedChunk {
    /// Index of the stream.
    pub stream: usize,
    /// The packets.
    pub packets: Vec<u8>,
    /// The begin of its last block.
    pub time: Option<Tsc>,
    /// Blocks that are damaged, and so have no packets.
    pub damaged: u64,
    /// Bytes of the log.
    pub bytes: u64,
}

/// Converts all streams on all cores, and passes the packets to `consume` in the order of streams and of time. `consume`
/// returns whether to continue.
pub fn convert_logs(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    consume: impl FnMut(ConvertedChunk) -> bool + Send,
) {
    let convert = |(): &mut (), chunk: &Chunk| {
        let extent = &trace.streams[chunk.stream].extents[chunk.extent];
        let mut converter = extent.converter();
        let (mut packets, mut time, mut damaged) = (Vec::new(), None, 0);
        let mut next = extent.find_segment_within(chunk.span.clone());
        while let Some(start) = next.filter(|&start| start < chunk.span.end) {
            next = extent.segment_after(start);
            time = extent.tsc_at(start);
            match converter.as_mut().map(|converter| converter.segment(extent.block_at(start))) {
                Some(Ok(segment)) => packets.extend_from_slice(&segment.bytes[..segment.length]),
                _ => damaged += 1,
            }
        }
        ConvertedChunk { stream: chunk.stream, packets, time, damaged, bytes: chunk.bytes() }
    };
    in_order(&trace.chunks(reading), reading.threads, || (), convert, consume);
}
