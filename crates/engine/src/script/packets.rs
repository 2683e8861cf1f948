//! Each packet, a line each.

use std::{io::Write, mem};

use hodo_intel_pt::packet;

use super::{Lines, Outcome, PART};
use crate::{Chunk, Experiment, Reading, parallel::parts_in_order, track::Run};

/// Writes every packet to `out`, at most `limit` lines: its offset in the file, its bytes, and the packet as
/// text. Bytes that are no packet show as such, up to the next PSB.
pub fn packets(
    experiment: &Experiment<'_>,
    reading: Reading<'_>,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Outcome {
    let chunks = experiment.chunks(reading.chunk_size);
    let mut lines = Lines::new(out, limit);
    let mut done = 0;
    let work = |(): &mut (), chunk: &Chunk, hand_over: &dyn Fn((Vec<u8>, u64)) -> bool| {
        (text(experiment, chunk, &|part| hand_over((part, 0))), chunk.bytes())
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
    Outcome { losses: experiment.recorded_losses(), written: lines.result }
}

/// The packets between the first PSB of a chunk and the first PSB after it.
fn text(experiment: &Experiment<'_>, chunk: &Chunk, hand_over: &dyn Fn(Vec<u8>) -> bool) -> Vec<u8> {
    let track = &experiment.tracks[chunk.track];
    let run = &track.runs[chunk.run];
    let mut text = Vec::new();
    if chunk.span.start == 0 && experiment.tracks.len() > 1 {
        text.extend_from_slice(format!("# {}\n", track.name).as_bytes());
    }
    let first = run.find_psb_within(chunk.span.clone());
    if chunk.span.start == 0 && first != Some(0) {
        let bytes = first.or_else(|| run.find_psb(chunk.span.end)).unwrap_or(run.length());
        let from = run.file_offset(0);
        text.extend_from_slice(format!("{from:08x}: # {bytes} bytes before the first PSB\n").as_bytes());
    }
    let Some(first) = first else { return text };
    let end = run.find_psb(chunk.span.end).unwrap_or(run.length());
    show(run, first, end, text, hand_over)
}

/// Gives the last lines back, those before in parts as large as [`PART`].
fn show(
    run: &Run<'_>,
    first: u64,
    end: u64,
    mut text: Vec<u8>,
    hand_over: &dyn Fn(Vec<u8>) -> bool,
) -> Vec<u8> {
    let bytes = run.bytes(first..end);
    let mut packets = packet::Decoder::new(&bytes, 0);
    loop {
        let at = packets.position();
        let offset = run.file_offset(first + at as u64);
        let line = match packets.next_packet() {
            Ok(None) => return text,
            Ok(Some(packet)) => {
                let raw: String =
                    bytes[at..packets.position()].iter().map(|byte| format!("{byte:02x} ")).collect();
                format!("{offset:08x}: {raw:48} {packet}\n")
            }
            Err(error) => {
                packets.synchronize_after(at);
                format!("{offset:08x}: # {error}; {} bytes skipped\n", packets.position() - at)
            }
        };
        text.extend_from_slice(line.as_bytes());
        if text.len() >= PART && !hand_over(mem::take(&mut text)) {
            return text;
        }
    }
}
