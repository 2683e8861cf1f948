//! Trace queues: one per CPU or thread, built from the bytes after AUXTRACE records.

use std::collections::BTreeMap;

use hodo_bytes::Eof;
use hodo_intel_pt::packet::PSB;
use hodo_model::{Cause, Loss};

use super::{
    layout::{AUXTRACE_ALIGNMENT, NO_CPU},
    overlap::overlap,
    records::Record,
};
use crate::recording::{Piece, Stream, StreamKind, Thread};

/// The owner of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A CPU.
    Cpu(u32),
    /// A thread, by its id.
    Thread(u32),
}

impl Owner {
    /// The name in loss reports.
    pub(super) fn name(self) -> String {
        match self {
            Owner::Cpu(cpu) => format!("cpu {cpu}"),
            Owner::Thread(tid) => format!("tid {tid}"),
        }
    }
}

/// Trace bytes and their offset in the AUX area, counted from the start of the recording or of the snapshot.
#[derive(Clone, Copy, Debug)]
struct Buffer<'a> {
    offset: u64,
    file_offset: u64,
    bytes: &'a [u8],
}

/// The queues of a recording under construction.
#[derive(Debug, Default)]
pub(super) struct Queues<'a> {
    /// Buffers by perf's queue number and by owner, in file order.
    buffers: BTreeMap<(u32, Owner), Vec<Buffer<'a>>>,
    /// Trace from samples, by owner.
    samples: BTreeMap<Owner, Vec<Buffer<'a>>>,
    /// AUX area offsets where a full buffer lost trace, by owner.
    lost_at: BTreeMap<Owner, Vec<u64>>,
}

impl<'a> Queues<'a> {
    /// Adds the bytes after an AUXTRACE record: u64 size, u64 offset, u64 reference, u32 idx, u32 tid, u32 cpu, u32
    /// reserved.
    pub(super) fn add(&mut self, record: &Record<'a>) -> Result<(), Eof> {
        let mut cursor = hodo_bytes::Cursor::new(record.body, record.body_offset());
        let (_size, offset, _reference) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let (idx, tid, cpu) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let owner = if cpu == NO_CPU { Owner::Thread(tid) } else { Owner::Cpu(cpu) };
        let buffer = Buffer { offset, file_offset: record.trailing_offset(), bytes: record.trailing };
        self.buffers.entry((idx, owner)).or_default().push(buffer);
        Ok(())
    }

    /// Adds the trace of a sample, at `file_offset` in the file.
    pub(super) fn add_sample(&mut self, owner: Owner, file_offset: u64, bytes: &'a [u8]) {
        self.samples.entry(owner).or_default().push(Buffer { offset: 0, file_offset, bytes });
    }

    /// Whether samples contained trace.
    pub(super) fn has_samples(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Records that trace was lost at `offset` of the AUX area.
    pub(super) fn lost_at(&mut self, owner: Owner, offset: u64) {
        self.lost_at.entry(owner).or_default().push(offset);
    }

    /// Returns the streams in perf's queue order, and the losses in them. `process` maps a thread to its process.
    pub(super) fn finish(
        self,
        snapshots: bool,
        process: impl Fn(u32) -> u32,
    ) -> (Vec<Stream<'a>>, Vec<Loss>) {
        let mut streams = Vec::new();
        let mut losses = Vec::new();
        for ((_, owner), buffers) in self.buffers {
            let mut lost_at = self.lost_at.get(&owner).cloned().unwrap_or_default();
            lost_at.sort_unstable();
            let pieces = if snapshots {
                from_snapshots(&buffers)
            } else {
                continuous(&buffers, &lost_at, |loss| losses.push(Loss { stream: owner.name(), ..loss }))
            };
            streams.push(stream(owner, pieces, &process));
        }
        let samples = self.samples.into_iter();
        streams.extend(samples.map(|(owner, buffers)| stream(owner, from_snapshots(&buffers), &process)));
        (streams, losses)
    }
}

fn stream<'a>(owner: Owner, pieces: Vec<Piece<'a>>, process: impl Fn(u32) -> u32) -> Stream<'a> {
    let (cpu, thread) = match owner {
        Owner::Cpu(cpu) => (Some(cpu), None),
        Owner::Thread(tid) => (None, Some(Thread { pid: process(tid), tid })),
    };
    Stream { cpu, thread, pieces, kind: StreamKind::IntelPt }
}

/// Joins buffers that are contiguous in the AUX area.
fn continuous<'a>(buffers: &[Buffer<'a>], lost_at: &[u64], mut lose: impl FnMut(Loss)) -> Vec<Piece<'a>> {
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    let mut expected = None;
    for (index, buffer) in buffers.iter().enumerate() {
        let next = buffers.get(index + 1);
        let bytes = without_padding(buffer, next);
        let continues = expected.is_none_or(|expected| expected == buffer.offset);
        if !continues {
            lose(discontinuity(buffer, expected.unwrap_or_default()));
        }
        let lost_before = lost_at.binary_search(&buffer.offset).is_ok();
        push_cut(&mut pieces, &Buffer { bytes, ..*buffer }, !continues || lost_before, lost_at);
        expected = buffer.offset.checked_add(bytes.len() as u64);
    }
    pieces
}

fn discontinuity(buffer: &Buffer<'_>, expected: u64) -> Loss {
    Loss {
        stream: String::new(),
        cause: Cause::Corrupt,
        bytes: buffer.file_offset..buffer.file_offset,
        time: None,
        count: 1,
        detail: format!("the trace continues at its byte {:#x}; expected {expected:#x}", buffer.offset),
    }
}

/// Returns the buffer's bytes without its zero padding, which appears as an overlap with the next buffer.
fn without_padding<'a>(buffer: &Buffer<'a>, next: Option<&Buffer<'a>>) -> &'a [u8] {
    let end = buffer.offset.saturating_add(buffer.bytes.len() as u64);
    let padding = next.and_then(|next| end.checked_sub(next.offset)).unwrap_or(0);
    if padding >= AUXTRACE_ALIGNMENT {
        return buffer.bytes;
    }
    let real = buffer.bytes.len().saturating_sub(padding as usize);
    match buffer.bytes.split_at_checked(real) {
        Some((real, padding)) if padding.iter().all(|&byte| byte == 0) => real,
        _ => buffer.bytes,
    }
}

/// Appends a buffer, split where trace was lost inside it.
fn push_cut<'a>(pieces: &mut Vec<Piece<'a>>, buffer: &Buffer<'a>, mut after_gap: bool, lost_at: &[u64]) {
    let mut rest = *buffer;
    let first = lost_at.partition_point(|&offset| offset <= buffer.offset);
    for &offset in lost_at.get(first..).unwrap_or_default() {
        let length = usize::try_from(offset - rest.offset).ok();
        let Some((head, tail)) = length.and_then(|length| rest.bytes.split_at_checked(length)) else { break };
        push(pieces, head, rest.file_offset, after_gap);
        after_gap = true;
        rest = Buffer { offset, file_offset: rest.file_offset + head.len() as u64, bytes: tail };
    }
    push(pieces, rest.bytes, rest.file_offset, after_gap);
}

fn push<'a>(pieces: &mut Vec<Piece<'a>>, bytes: &'a [u8], file_offset: u64, after_gap: bool) {
    if !bytes.is_empty() {
        pieces.push(Piece { file_offset, bytes, after_gap });
    }
}

/// Builds pieces from snapshots or sample traces, each of which may overlap the previous one.
///
/// Equal bytes by coincidence do not count: an overlap must extend over the first PSB of the later snapshot. With a
/// shorter overlap, decoding starts at that PSB anyway, which is after the overlap.
fn from_snapshots<'a>(buffers: &[Buffer<'a>]) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let mut earlier: &[u8] = &[];
    for buffer in buffers {
        let later = buffer.bytes;
        let (repeated, rest) = later.split_at(overlap(earlier, later));
        let has_psb = repeated.windows(PSB.len()).any(|window| window == PSB);
        let (skipped, new) = if has_psb { (repeated.len(), rest) } else { (0, later) };
        push(&mut pieces, new, buffer.file_offset + skipped as u64, skipped == 0);
        earlier = later;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(offset: u64, file_offset: u64, bytes: &[u8]) -> Buffer<'_> {
        Buffer { offset, file_offset, bytes }
    }

    /// The file offset and the length of each piece, and whether bytes are missing before it.
    fn shown(pieces: &[Piece<'_>]) -> Vec<(u64, usize, bool)> {
        pieces.iter().map(|piece| (piece.file_offset, piece.bytes.len(), piece.after_gap)).collect()
    }

    #[test]
    fn padding_is_dropped_where_the_next_buffer_overlaps_it() {
        let buffers = [buffer(0, 100, &[1, 2, 3, 4, 5, 0, 0, 0]), buffer(5, 200, &[6; 8])];
        let pieces = continuous(&buffers, &[], |loss| panic!("{loss:?}"));
        assert_eq!(shown(&pieces), [(100, 5, false), (200, 8, false)]);
    }

    #[test]
    fn a_jump_in_the_offsets_is_a_gap_and_a_loss() {
        let buffers = [buffer(0, 100, &[1; 8]), buffer(24, 200, &[2; 8]), buffer(32, 300, &[3; 8])];
        let mut losses = Vec::new();
        let pieces = continuous(&buffers, &[], |loss| losses.push(loss.detail));
        assert_eq!(shown(&pieces), [(100, 8, false), (200, 8, true), (300, 8, false)]);
        assert_eq!(losses, ["the trace continues at its byte 0x18; expected 0x8"]);
    }

    #[test]
    fn a_truncated_buffer_is_cut_where_trace_was_lost() {
        let buffers = [buffer(0, 100, &[1; 8]), buffer(8, 200, &[2; 8]), buffer(16, 300, &[3; 8])];
        let pieces = continuous(&buffers, &[3, 5, 16], |loss| panic!("{loss:?}"));
        let expected = [(100, 3, false), (103, 2, true), (105, 3, true), (200, 8, false), (300, 8, true)];
        assert_eq!(shown(&pieces), expected);
    }

    #[test]
    fn a_snapshot_gives_only_what_the_one_before_did_not() {
        let mut stream: Vec<u8> = (1..=100).collect();
        stream[40..56].copy_from_slice(&PSB);
        let (earlier, later, foreign) = (&stream[..80], &stream[30..], &[7; 9][..]);
        let pieces =
            from_snapshots(&[buffer(0, 0, earlier), buffer(0, 1000, later), buffer(0, 2000, foreign)]);
        assert_eq!(shown(&pieces), [(0, 80, true), (1050, 20, false), (2000, 9, true)]);
    }

    #[test]
    fn an_overlap_without_a_psb_does_not_count() {
        let pieces = from_snapshots(&[buffer(0, 0, &[1, 2, 3]), buffer(0, 10, &[2, 3, 4])]);
        assert_eq!(shown(&pieces), [(0, 3, true), (10, 3, true)]);
    }
}
