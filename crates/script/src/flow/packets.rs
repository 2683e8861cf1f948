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
    let work = |(): &mut (), chunk: &Chunk, hand_over: &dyn Fn((Vec<u8>, u64)) -> bool| {
        (text(trace, chunk, &|part| hand_over((part, 0))), chunk.bytes())
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

/// Returns the packets from the first PSB of a chunk to the first PSB after the chunk, as text.
fn text(trace: &Trace<'_>, chunk: &Chunk, hand_over: &dyn Fn(Vec<u8>) -> bool) -> Vec<u8> {
    let track = &trace.tracks[chunk.track];
    let extent = &track.extents[chunk.extent];
    let mut text = Vec::new();
    if chunk.span.start == 0 && trace.tracks.len() > 1 {
        text.extend_from_slice(format!("# {}\n", track.name).as_bytes());
    }
    let first = extent.find_segment_within(chunk.span.clone());
    if chunk.span.start == 0 && first != Some(0) {
        let bytes = first.or_else(|| extent.find_segment(chunk.span.end)).unwrap_or(extent.length());
        let from = extent.file_offset(0);
        text.extend_from_slice(format!("{from:08x}: # {bytes} bytes before the first PSB\n").as_bytes());
    }
    let Some(first) = first else { return text };
    let end = extent.find_segment(chunk.span.end).unwrap_or(extent.length());
    show(trace, extent, first..end, text, hand_over)
}

/// Formats packets from one PSB to another, or to the end. Returns the last lines; hands over those before in parts of
/// [`PART`] bytes.
fn show(
    trace: &Trace<'_>,
    extent: &Extent<'_>,
    span: Range<u64>,
    mut text: Vec<u8>,
    hand_over: &dyn Fn(Vec<u8>) -> bool,
) -> Vec<u8> {
    // Include the PSB at the end, so that a packet cut off by it is shown as such.
    let size = packet::PSB.len();
    let bytes = extent.bytes(span.start..(span.end + size as u64).min(extent.length()));
    let end = (span.end - span.start) as usize;
    let next_psb = |from: usize| {
        let found = bytes.get(from..).and_then(packet::find_psb);
        found.map_or(end, |ahead| (from + ahead).min(end))
    };
    let mut packets = packet::Decoder::new(&bytes, 0).with_errata(trace.recording.config.errata());
    let mut psb = next_psb(size);
    loop {
        let at = packets.position();
        if at >= end {
            return text;
        }
        if at >= psb {
            psb = next_psb(at + size);
        }
        let offset = extent.file_offset(span.start + at as u64);
        let line = match packets.next_before(psb) {
            Ok(None) => return text,
            Ok(Some(packet)) => {
                let bytes = &bytes[at..packets.position()];
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
                packets.synchronize_after(at);
                format!("{offset:08x}: # {error}; {} bytes skipped\n", packets.position().min(end) - at)
            }
        };
        text.extend_from_slice(line.as_bytes());
        if text.len() >= PART && !hand_over(mem::take(&mut text)) {
            return text;
        }
    }
}
