//! Writes each packet on a line.

use std::{fmt::Display, io::Write, mem, ops::Range};

use hodo_engine::{Chunk, Extent, ExtentKind, Reading, RiscVExtent, Trace, parts_in_order};
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
    lines.outcome(trace.recorded_losses())
}

/// Formats the packets from the first segment of a chunk to the first one after the chunk. Returns the last lines; hands
/// over those before in parts.
fn format_chunk(trace: &Trace<'_>, chunk: &Chunk, hand_over: &dyn Fn(Vec<u8>) -> bool) -> Vec<u8> {
    let stream = &trace.streams[chunk.stream];
    let extent = &stream.extents[chunk.extent];
    let mut text = Vec::new();
    if chunk.span.start == 0 && trace.streams.len() > 1 {
        text.extend_from_slice(format!("# {}\n", stream.name).as_bytes());
    }
    let first = extent.find_segment_within(chunk.span.clone());
    if chunk.span.start == 0 && first != Some(0) {
        let bytes = first.or_else(|| extent.find_segment(chunk.span.end)).unwrap_or(extent.length());
        let from = extent.file_offset(0);
        text.extend_from_slice(
            format!("{from:08x}: # {bytes} bytes before the first {}\n", begin_of(extent)).as_bytes(),
        );
    }
    let Some(first) = first else { return text };
    let end = extent.find_segment(chunk.span.end).unwrap_or(extent.length());
    let mut lines = PacketLines { extent, span: first..end, text, hand_over };
    match extent.kind() {
        ExtentKind::IntelPt | ExtentKind::Log(..) => lines.intel_pt(trace),
        ExtentKind::Etm(config) => lines.etm(config),
        ExtentKind::RiscV(riscv) => lines.riscv(riscv),
    }
    lines.text
}

/// Returns the name of the packet with which segments begin.
fn begin_of(extent: &Extent<'_>) -> &'static str {
    match extent.kind() {
        ExtentKind::IntelPt | ExtentKind::Log(..) => "PSB",
        ExtentKind::Etm(_) => "A-Sync with Trace Info",
        ExtentKind::RiscV(_) => "synchronization",
    }
}

/// The lines of packets from one segment to another, or to the end.
struct PacketLines<'x, 'f> {
    extent: &'x Extent<'f>,
    span: Range<u64>,
    /// The last lines; those before were handed over in parts of [`PART`] bytes.
    text: Vec<u8>,
    hand_over: &'x dyn Fn(Vec<u8>) -> bool,
}

impl PacketLines<'_, '_> {
    /// Adds a line about bytes at an offset in the span. Returns whether more are wanted.
    fn add(&mut self, at: usize, bytes: &[u8], packet: &dyn Display) -> bool {
        let offset = self.extent.file_offset(self.span.start + at as u64);
        let raw: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
        self.line(&format!("{offset:08x}: {raw:48} {packet}\n"))
    }

    /// Adds a line about bytes that are no packet.
    fn skip(&mut self, at: usize, bytes: usize, reason: &dyn Display) -> bool {
        let offset = self.extent.file_offset(self.span.start + at as u64);
        self.line(&format!("{offset:08x}: # {reason}; {bytes} bytes skipped\n"))
    }

    fn line(&mut self, line: &str) -> bool {
        self.text.extend_from_slice(line.as_bytes());
        self.text.len() < PART || (self.hand_over)(mem::take(&mut self.text))
    }

    fn intel_pt(&mut self, trace: &Trace<'_>) {
        // Include the PSB at the end, so that a packet cut off by it is shown as such.
        let psb_size = packet::PSB.len();
        let bytes =
            self.extent.bytes(self.span.start..(self.span.end + psb_size as u64).min(self.extent.length()));
        let end = (self.span.end - self.span.start) as usize;
        let find_psb = |from: usize| {
            let distance = bytes.get(from..).and_then(packet::find_psb);
            distance.map_or(end, |distance| (from + distance).min(end))
        };
        let mut packets = packet::Decoder::new(&bytes, 0).with_errata(trace.recording.config.errata());
        let mut next_psb = find_psb(psb_size);
        loop {
            let start = packets.position();
            if start >= end {
                return;
            }
            if start >= next_psb {
                next_psb = find_psb(start + psb_size);
            }
            let wants_more = match packets.next_before(next_psb) {
                Ok(None) => return,
                // The packet decoder reports bytes without a meaning as padding.
                Ok(Some(Packet::Pad)) if packets.position() - start > 1 => {
                    let reason = "# TMA and a byte without meaning (erratum SKZ84)";
                    self.add(start, &bytes[start..packets.position()], &reason)
                }
                Ok(Some(packet)) => self.add(start, &bytes[start..packets.position()], &packet),
                Err(error) => {
                    packets.synchronize_after(start);
                    self.skip(start, packets.position().min(end) - start, &error)
                }
            };
            if !wants_more {
                return;
            }
        }
    }

    fn etm(&mut self, config: &hodo_etm::Config) {
        let bytes = self.extent.bytes(self.span.clone());
        let mut packets = hodo_etm::packet::Decoder::new(&bytes, 0, config);
        loop {
            let start = packets.position();
            let wants_more = match packets.next_packet() {
                Ok(None) => return,
                Ok(Some(packet)) => self.add(start, &bytes[start..packets.position()], &packet),
                Err(error) => {
                    let next = hodo_etm::packet::find_sync(&bytes[start + 1..]);
                    let next = next.map_or(bytes.len(), |distance| start + 1 + distance);
                    packets.set_position(next);
                    self.skip(start, next - start, &error)
                }
            };
            if !wants_more {
                return;
            }
        }
    }

    fn riscv(&mut self, riscv: &RiscVExtent) {
        let options = self.extent.riscv_options(riscv, self.span.start);
        let bytes = self.extent.bytes(self.span.clone());
        let mut wants_more = true;
        riscv.settings.show(&bytes, 0..bytes.len(), options, &mut |span, text| {
            wants_more = wants_more && self.add(span.start, &bytes[span], &text);
        });
    }
}
