//! Writes each packet on a line.

use std::{io::Write, mem, ops::Range};

use hodo_engine::{Chunk, Extent, Reading, Trace, parts_in_order};
use hodo_intel_pt::packet::{self, Packet};

use super::PART;
use crate::{Outcome, lines::Lines};

/// Writes every packet to `out`, at most `limit` lines: its file offset, its bytes, and the packet as text. Bytes that
/// are no packet are shown as such, up to the next PSB, as is a packet cut off by a PSB.
pub fn packets(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Outcome {
    let chunks = trace.chunks(reading);
    let mut lines = Lines::new(out, limit);
    let mut done = 0;
    // A chunk's bytes count as read once its last lines arrive.
    let work = |(): &mut (), chunk: &Chunk, hand_over: &dyn Fn((Vec<u8>, u64)) -> bool| {
        (format_chunk(trace, chunk, &|part| hand_over((part, 0))), chunk.bytes())
    };
    parts_in_order(
        &chunks,
        Chunk::bytes,
        reading.threads,
        || (),
        work,
        |(text, bytes)| {
            lines.write(&text);
            done += bytes;
            lines.want_more() && progress(done)
        },
    );
    Outcome { losses: trace.recorded_losses(), written: lines.result }
}

/// Formats the packets from the first PSB of a chunk to the first PSB after the chunk. Returns the last lines, as
/// [`format_packets`] does.
fn format_chunk(trace: &Trace<'_>, chunk: &Chunk, hand_over: &dyn Fn(Vec<u8>) -> bool) -> Vec<u8> {
    let stream = &trace.streams[chunk.stream];
    let extent = &stream.extents[chunk.extent];
    let mut text = Vec::new();
    if chunk.span.start == 0 && trace.streams.len() > 1 {
        text.extend_from_slice(format!("# {}\n", stream.name).as_bytes());
    }
    if let Some(unit) = stream.other_unit() {
        let from = extent.file_offset(chunk.span.start);
        text.extend_from_slice(
            format!("{from:08x}: # {} bytes of {unit}, whose packets are not listed\n", chunk.bytes())
                .as_bytes(),
        );
        return text;
    }
    let first = extent.find_segment_within(chunk.span.clone());
    if chunk.span.start == 0 && first != Some(0) {
        let bytes = first.or_else(|| extent.find_segment(chunk.span.end)).unwrap_or(extent.length());
        let from = extent.file_offset(0);
        text.extend_from_slice(format!("{from:08x}: # {bytes} bytes before the first PSB\n").as_bytes());
    }
    let Some(first) = first else { return text };
    let end = extent.find_segment(chunk.span.end).unwrap_or(extent.length());
    format_packets(trace, extent, first..end, text, hand_over)
}

/// Formats packets from one PSB to another, or to the end. Returns the last lines; hands over those before in parts of
/// [`PART`] bytes.
fn format_packets(
    trace: &Trace<'_>,
    extent: &Extent<'_>,
    span: Range<u64>,
    mut text: Vec<u8>,
    hand_over: &dyn Fn(Vec<u8>) -> bool,
) -> Vec<u8> {
    // Include the PSB at the end, so that a packet cut off by it is shown as such.
    let psb_size = packet::PSB.len();
    let bytes = extent.bytes(span.start..(span.end + psb_size as u64).min(extent.length()));
    let end = (span.end - span.start) as usize;
    let find_psb = |from: usize| {
        let distance = bytes.get(from..).and_then(packet::find_psb);
        distance.map_or(end, |distance| (from + distance).min(end))
    };
    let mut packets = packet::Decoder::new(&bytes, 0).with_errata(trace.recording.config.errata());
    let mut next_psb = find_psb(psb_size);
    loop {
        let start = packets.position();
        if start >= end {
            return text;
        }
        if start >= next_psb {
            next_psb = find_psb(start + psb_size);
        }
        let offset = extent.file_offset(span.start + start as u64);
        let line = match packets.next_before(next_psb) {
            Ok(None) => return text,
            Ok(Some(packet)) => {
                let bytes = &bytes[start..packets.position()];
                let raw: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
                match packet {
                    // The packet decoder reports bytes without a meaning as padding.
                    Packet::Pad if bytes.len() > 1 => {
                        format!("{offset:08x}: {raw:48} # TMA and a byte without meaning (erratum SKZ84)\n")
                    }
                    packet => format!("{offset:08x}: {raw:48} {packet}\n"),
                }
            }
            Err(error) => {
                packets.synchronize_after(start);
                format!("{offset:08x}: # {error}; {} bytes skipped\n", packets.position().min(end) - start)
            }
        };
        text.extend_from_slice(line.as_bytes());
        if text.len() >= PART && !hand_over(mem::take(&mut text)) {
            return text;
        }
    }
}
