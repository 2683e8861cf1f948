//! One stream of trace bytes, cut into chunks that can be decoded independently.

use std::{
    borrow::Cow,
    ops::{Range, RangeInclusive},
    sync::{Arc, OnceLock},
};

use hodo_clock::Tsc;
use hodo_etm::{ThreadIds, flow::ThreadContext};
use hodo_etrace::{Point, Settings, packet::Options};
use hodo_flow::Switch;
use hodo_formats::recording::{Piece, Stream, StreamKind, Thread};
use hodo_intel_pt::packet::{self, PSB};
use hodo_native_log::{
    Log,
    packets::{self, Converter, Segment},
};
use memchr::memmem;

use crate::reading::Reading;

/// An extent of a stream: pieces without a gap between them. Positions count bytes from the first piece's start.
///
/// Segments begin at PSBs, in the log of a native recording at each of its blocks, in a trace of Arm at each A-Sync with
/// Trace Info, and in one of RISC-V at each synchronization packet.
#[derive(Clone, Debug)]
pub struct Extent<'f> {
    pieces: Vec<Piece<'f>>,
    /// Position of each piece, and of the end.
    starts: Vec<u64>,
    /// Position of the first segment, searched on first use.
    first_segment: OnceLock<Option<u64>>,
    kind: ExtentKind<'f>,
}

/// How the bytes of an extent are read.
#[derive(Clone, Debug)]
pub enum ExtentKind<'f> {
    /// As packets of Intel PT.
    IntelPt,
    /// As blocks of a log: each piece is one, the first of them with this index.
    Log(Arc<Log<'f>>, usize),
    /// As packets of a trace unit of Arm.
    Etm(hodo_etm::Config),
    /// As packets or messages of RISC-V's trace.
    RiscV(RiscVExtent),
}

/// The trace of a RISC-V hart.
#[derive(Clone, Debug)]
pub struct RiscVExtent {
    /// How its bytes are read.
    pub settings: Arc<Settings>,
    /// Where decoding can begin, searched on first use.
    points: OnceLock<Vec<Point>>,
}

/// Number of segments to search for a time if their PSB+ lacks it.
const MOST_WITHOUT_TIME: usize = 64;

/// Returns the TSC in the status packets after a PSB.
fn tsc_after(bytes: &[u8]) -> Option<Tsc> {
    let mut packets = packet::Decoder::new(bytes, 0);
    while let Ok(Some(packet)) = packets.next_packet() {
        match packet {
            packet::Packet::Tsc(tsc) => return Some(Tsc(tsc)),
            packet::Packet::PsbEnd => return None,
            _ => {}
        }
    }
    None
}

/// Returns whether these bytes begin with the header of a Trace Info packet.
fn is_trace_info(bytes: &[u8]) -> bool {
    bytes.first() == Some(&1)
}

/// Returns the time after an A-Sync, before any instruction.
fn etm_time_after(bytes: &[u8], config: &hodo_etm::Config) -> Option<Tsc> {
    use hodo_etm::packet::{Decoder, Packet};
    let mut packets = Decoder::new(bytes, 0, config);
    while let Ok(Some(packet)) = packets.next_packet() {
        match packet {
            Packet::Timestamp { time, .. } if time > 0 => return Some(Tsc(time)),
            Packet::Atoms(_) | Packet::Exception(_) | Packet::Q { .. } | Packet::SourceAddress(_) => {
                return None;
            }
            _ => {}
        }
    }
    None
}

/// Number of bytes after a segment that may belong to the PSB+ at its end, including padding.
const PSB_PLUS: u64 = 4096;

/// A trace stream of the recording.
#[derive(Clone, Debug)]
pub struct TraceStream<'f> {
    /// Displayed name: `tid 12` or `cpu 3`.
    pub name: String,
    /// The thread, for a stream of one thread.
    pub thread: Option<Thread>,
    /// The CPU, for a stream of a CPU.
    pub cpu: Option<u32>,
    /// The running thread by start tick; the context is an index into the experiment's threads.
    pub schedule: Vec<Switch>,
    /// Threads by the context ID in a trace of Arm, of a CPU's stream.
    pub(crate) contexts: Vec<ThreadContext>,
    /// Its bytes, without those that the recorder lost.
    pub extents: Vec<Extent<'f>>,
}

/// A part of a stream, of about the requested size: the segments that begin in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Index among all chunks.
    pub index: usize,
    /// Index of the stream.
    pub stream: usize,
    /// Index of the extent in the stream.
    pub extent: usize,
    /// Positions in the extent.
    pub span: Range<u64>,
}

impl Chunk {
    /// Returns the number of bytes of trace in it.
    pub fn bytes(&self) -> u64 {
        self.span.end - self.span.start
    }
}

/// Smallest and largest share of a thread in bytes. Each chunk has its own state, which begins without a call stack and
/// must be merged, so chunks are few.
const SHARES: RangeInclusive<u64> = 1 << 19..=1 << 23;

/// Returns the size of the next chunk if `left` bytes are left.
fn next_size(reading: Reading<'_>, left: u64) -> u64 {
    let smallest = if reading.threads > 1 { *SHARES.start() } else { *SHARES.end() };
    reading.chunks.bytes(left, reading.threads, smallest..=*SHARES.end()).unwrap_or(*SHARES.end())
}

impl<'f> TraceStream<'f> {
    pub(crate) fn new(stream: &Stream<'f>, schedule: Vec<Switch>) -> TraceStream<'f> {
        let mut extents: Vec<Extent<'f>> = Vec::new();
        for (index, piece) in stream.pieces.iter().enumerate().filter(|(_, piece)| !piece.bytes.is_empty()) {
            match extents.last_mut() {
                Some(extent) if !piece.after_gap => extent.push(*piece),
                _ => {
                    let kind = match &stream.kind {
                        StreamKind::IntelPt => ExtentKind::IntelPt,
                        StreamKind::Log(log) => ExtentKind::Log(log.clone(), index),
                        StreamKind::Etm(config) => ExtentKind::Etm(*config),
                        StreamKind::RiscV(settings) => {
                            let (settings, points) = (settings.clone(), OnceLock::new());
                            ExtentKind::RiscV(RiscVExtent { settings, points })
                        }
                    };
                    extents.push(Extent { kind, ..Extent::new(*piece) });
                }
            }
        }
        let name = match (stream.thread, stream.cpu) {
            (Some(thread), _) => format!("tid {}", thread.tid),
            (None, Some(cpu)) => format!("cpu {cpu}"),
            (None, None) => "trace".to_owned(),
        };
        let contexts = Vec::new();
        TraceStream { name, thread: stream.thread, cpu: stream.cpu, schedule, contexts, extents }
    }

    /// Whether context IDs in the packets of a CPU decide which thread runs: the kernel of the traced system wrote the IDs of
    /// threads there.
    pub(crate) fn has_contexts(&self) -> bool {
        let has_ids = |extent: &Extent<'_>| match extent.kind {
            ExtentKind::Etm(config) => config.thread_ids != ThreadIds::None,
            _ => false,
        };
        self.thread.is_none() && self.extents.iter().any(has_ids)
    }

    /// Returns the number of bytes of trace.
    pub fn bytes(&self) -> u64 {
        self.extents.iter().map(Extent::length).sum()
    }

    /// Returns whether the stream is the log of a native recording.
    pub fn is_log(&self) -> bool {
        self.extents.iter().any(|extent| extent.log().is_some())
    }

    /// Returns what wrote the stream, if neither Intel PT nor the native recorder did.
    pub fn other_unit(&self) -> Option<&'static str> {
        self.extents.iter().find_map(|extent| match extent.kind {
            ExtentKind::IntelPt | ExtentKind::Log(..) => None,
            ExtentKind::Etm(_) => Some("Arm's ETMv4 or ETE"),
            ExtentKind::RiscV(_) => Some("RISC-V's E-Trace or N-Trace"),
        })
    }

    /// Returns the packets in parts of at least `size` bytes, each from one PSB to another; of a log, block by block.
    pub fn parts(&self, size: u64) -> impl Iterator<Item = Cow<'f, [u8]>> {
        self.extents.iter().flat_map(move |extent| {
            let mut next = extent.first_segment();
            let mut converter = extent.converter();
            std::iter::from_fn(move || {
                let start = next?;
                let Some(converter) = &mut converter else {
                    next = extent.find_segment(start.saturating_add(size.max(PSB.len() as u64)));
                    return Some(extent.bytes(start..next.unwrap_or(extent.length())));
                };
                next = extent.segment_after(start);
                let Ok(Segment { mut bytes, length }) = converter.segment(extent.block_at(start)) else {
                    return Some(Cow::Borrowed(&[][..]));
                };
                bytes.truncate(length);
                Some(Cow::Owned(bytes))
            })
        })
    }

    /// Cuts the stream into chunks. This and later streams have `left` bytes.
    pub fn chunks(&self, stream: usize, reading: Reading<'_>, mut left: u64) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for (index, extent) in self.extents.iter().enumerate() {
            let mut start = 0;
            while start < extent.length() {
                let end = start.saturating_add(next_size(reading, left)).min(extent.length());
                left = left.saturating_sub(end - start);
                chunks.push(Chunk { index: 0, stream, extent: index, span: start..end });
                start = end;
            }
        }
        chunks
    }
}

impl<'f> Extent<'f> {
    fn new(piece: Piece<'f>) -> Extent<'f> {
        let (starts, first_segment) = (vec![0], OnceLock::new());
        let mut extent = Extent { pieces: Vec::new(), starts, first_segment, kind: ExtentKind::IntelPt };
        extent.push(piece);
        extent
    }

    fn push(&mut self, piece: Piece<'f>) {
        self.starts.push(self.length() + piece.bytes.len() as u64);
        self.pieces.push(piece);
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Returns the index of the piece that contains `position`.
    fn piece_at(&self, position: u64) -> usize {
        self.starts.partition_point(|&start| start <= position).saturating_sub(1).min(self.pieces.len() - 1)
    }

    /// Returns the log of which the extent is a part, in a native recording.
    pub(crate) fn log(&self) -> Option<&Log<'f>> {
        match &self.kind {
            ExtentKind::Log(log, _) => Some(log),
            ExtentKind::IntelPt | ExtentKind::Etm(_) | ExtentKind::RiscV(_) => None,
        }
    }

    /// Returns how its bytes are read.
    pub fn kind(&self) -> &ExtentKind<'f> {
        &self.kind
    }

    /// Returns the bytes with which each segment begins, unless it is a block of a log.
    fn pattern(&self) -> &'static [u8] {
        match self.kind {
            ExtentKind::Etm(_) => &hodo_etm::packet::A_SYNC,
            ExtentKind::IntelPt | ExtentKind::Log(..) | ExtentKind::RiscV(_) => &PSB,
        }
    }

    /// Returns the index of the block of the [log](Extent::log) at `position`.
    pub(crate) fn block_at(&self, position: u64) -> usize {
        let first = if let ExtentKind::Log(_, first) = self.kind { first } else { 0 };
        first + self.piece_at(position)
    }

    /// Returns a converter of its log to packets, if it has a log.
    pub(crate) fn converter(&self) -> Option<Converter<'_, 'f>> {
        Some(Converter::new(self.log()?, packets::Options { return_compression: true }))
    }

    /// Returns the bytes of a segment, and of the PSB+ at its end.
    pub(crate) fn with_psb_plus(&self, segment: Range<u64>) -> Cow<'f, [u8]> {
        self.bytes(segment.start..(segment.end + PSB_PLUS).min(self.length()))
    }

    /// Returns the file offset of the byte at `position`.
    pub fn file_offset(&self, position: u64) -> u64 {
        let index = self.piece_at(position);
        self.pieces[index].file_offset + (position - self.starts[index])
    }

    /// Returns the bytes of a span, borrowed if they are in one piece.
    pub fn bytes(&self, span: Range<u64>) -> Cow<'f, [u8]> {
        let mut index = self.piece_at(span.start);
        let within = |index: usize| {
            let (from, to) = (self.starts[index], self.starts[index + 1]);
            let start = span.start.max(from) - from;
            let end = span.end.min(to) - from;
            &self.pieces[index].bytes[start as usize..end as usize]
        };
        if span.end <= self.starts[index + 1] {
            return Cow::Borrowed(within(index));
        }
        let mut joined = Vec::with_capacity((span.end - span.start) as usize);
        while index < self.pieces.len() && self.starts[index] < span.end {
            joined.extend_from_slice(within(index));
            index += 1;
        }
        Cow::Owned(joined)
    }

    /// Returns the position of the first segment.
    pub fn first_segment(&self) -> Option<u64> {
        *self.first_segment.get_or_init(|| self.find_segment(0))
    }

    /// Returns the positions of all segments.
    pub fn segments(&self) -> impl Iterator<Item = u64> {
        std::iter::successors(self.find_segment(0), |&position| self.segment_after(position))
    }

    /// Returns the position of the segment after the one at `position`.
    pub fn segment_after(&self, position: u64) -> Option<u64> {
        let pattern = match self.kind {
            // Any packet may be the next one.
            ExtentKind::RiscV(_) => 1,
            _ => self.pattern().len() as u64,
        };
        self.find_segment(position + pattern)
    }

    /// Returns the position of the first segment that begins at or after `from`.
    pub fn find_segment(&self, from: u64) -> Option<u64> {
        self.find_segment_within(from..self.length())
    }

    /// Returns the position of the first segment that begins in `span`, without reading far beyond its end.
    pub fn find_segment_within(&self, span: Range<u64>) -> Option<u64> {
        if self.log().is_some() {
            let begin = self.starts[self.starts.partition_point(|&start| start < span.start)..].first();
            return begin.copied().filter(|&position| position < span.end.min(self.length()));
        }
        if let ExtentKind::RiscV(extent) = &self.kind {
            let points = self.riscv_points(extent);
            let next = points.partition_point(|point| (point.at as u64) < span.start);
            return points.get(next).map(|point| point.at as u64).filter(|&position| position < span.end);
        }
        let size = self.pattern().len() as u64;
        let mut position = self.find_pattern(span.clone())?;
        if let ExtentKind::Etm(_) = self.kind {
            while !is_trace_info(&self.bytes(position + size..(position + size + 1).min(self.length()))) {
                position = self.find_pattern(position + 1..span.end)?;
            }
            return Some(position).filter(|&position| position < span.end);
        }
        // See `packet::find_psb`; here the repeated bytes may continue in the next piece.
        while *self.bytes(position + size..(position + size + 2).min(self.length())) == PSB[..2] {
            position += 2;
        }
        Some(position).filter(|&position| position < span.end)
    }

    /// Returns the time at the begin of the segment at `position`, if its status packets or its block contain it.
    pub(crate) fn tsc_at(&self, position: u64) -> Option<Tsc> {
        let near = || self.bytes(position..(position + PSB_PLUS).min(self.length()));
        match &self.kind {
            ExtentKind::Log(log, first) => {
                Some(Tsc(log.blocks[first + self.piece_at(position)].header.first_tsc))
            }
            ExtentKind::IntelPt => tsc_after(&near()),
            ExtentKind::Etm(config) => etm_time_after(&near(), config),
            ExtentKind::RiscV(extent) => {
                let options = self.riscv_options(extent, position);
                extent.settings.time_at(&near(), Point { at: 0, options })
            }
        }
    }

    /// Returns where decoding of a RISC-V trace can begin.
    fn riscv_points<'e>(&self, extent: &'e RiscVExtent) -> &'e [Point] {
        extent.points.get_or_init(|| extent.settings.points(&self.bytes(0..self.length())))
    }

    /// Returns the options in force at a segment of a RISC-V trace.
    pub fn riscv_options(&self, extent: &RiscVExtent, position: u64) -> Options {
        let points = self.riscv_points(extent);
        let found = points.binary_search_by_key(&position, |point| point.at as u64);
        found.map_or_else(|_| Options::default(), |index| points[index].options)
    }

    /// Returns the first and the last time, as far as known from the first and the last segments.
    pub(crate) fn times(&self) -> Option<(Tsc, Tsc)> {
        if let ExtentKind::Log(log, first) = &self.kind {
            let blocks = &log.blocks[*first..][..self.pieces.len()];
            let (first, last) = blocks.first().zip(blocks.last())?;
            return Some((Tsc(first.header.first_tsc), Tsc(last.header.last_tsc)));
        }
        let first = self.segments().take(MOST_WITHOUT_TIME).find_map(|position| self.tsc_at(position));
        if let ExtentKind::RiscV(extent) = &self.kind {
            let latest = self.riscv_points(extent).iter().rev().take(MOST_WITHOUT_TIME);
            let last = latest.filter_map(|point| self.tsc_at(point.at as u64)).next().or(first);
            return first.zip(last);
        }
        // The last PSB lies within the last 64 KiB unless PSBs are very rare.
        let near_end = self.length().saturating_sub(1 << 16);
        let tail = self.bytes(near_end..self.length());
        let psbs = memmem::rfind_iter(&tail, self.pattern()).take(MOST_WITHOUT_TIME);
        let last = psbs.filter_map(|offset| self.tsc_at(near_end + offset as u64)).next().or(first);
        first.zip(last)
    }

    /// Returns the file offsets of what lies at `span` of the packets of the segment at `start`. For a log these are
    /// those of its block.
    pub(crate) fn offsets(&self, start: u64, span: Range<u64>) -> Range<u64> {
        if self.log().is_some() {
            let end = self.starts[self.piece_at(start) + 1];
            return self.file_offset(start)..self.file_offset(start) + (end - start);
        }
        self.file_offset(start + span.start)..self.file_offset(start + span.end)
    }

    /// Returns the position of the first bytes in a span that look like the begin of a segment.
    fn find_pattern(&self, span: Range<u64>) -> Option<u64> {
        let pattern = self.pattern();
        let overlap = pattern.len() as u64 - 1;
        let mut from = span.start;
        while from < span.end {
            let index = self.piece_at(from);
            let (start, end) = (self.starts[index], self.starts[index + 1]);
            let rest = &self.pieces[index].bytes[(from - start) as usize..];
            let rest = &rest[..rest.len().min((span.end - from + overlap) as usize)];
            if let Some(ahead) = memmem::find(rest, pattern) {
                return Some(from + ahead as u64);
            }
            // A PSB may begin in this piece and end in the next.
            let border = end.saturating_sub(overlap).max(from)..(end + overlap).min(self.length());
            if let Some(ahead) = memmem::find(&self.bytes(border.clone()), pattern) {
                return Some(border.start + ahead as u64);
            }
            from = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use hodo_intel_pt::packet::find_psb;
    use proptest::prelude::*;

    use super::*;
    use crate::reading::Chunks;

    #[test]
    fn shares_are_large_first_and_small_last() {
        let shares = |threads, mut left: u64| {
            std::iter::from_fn(move || {
                let share = next_size(Reading::new(threads, Chunks::Default), left).min(left);
                left -= share;
                (share > 0).then_some(share)
            })
            .collect::<Vec<_>>()
        };
        let many = shares(2, 100 << 20);
        assert_eq!((many[0], many.iter().sum()), (8 << 20, 100 << 20u64));
        assert!(many.is_sorted_by(|one, next| one >= next) && many[many.len() - 1] <= 1 << 19);
        assert!(shares(16, 100 << 20).len() > many.len());
        // A single thread needs no small chunks.
        assert_eq!(shares(1, 20 << 20), [8 << 20, 8 << 20, 4 << 20]);
    }

    proptest! {
        #[test]
        fn an_extent_reads_as_its_pieces_joined(
            lengths in prop::collection::vec(1usize..40, 1..8),
            marks in prop::collection::vec(0usize..200, 0..4),
            from in 0u64..250,
            length in 0u64..100,
        ) {
            let total: usize = lengths.iter().sum();
            let mut whole = vec![0u8; total];
            for mark in marks {
                if let Some(bytes) = whole.get_mut(mark..mark + PSB.len()) {
                    bytes.copy_from_slice(&PSB);
                }
            }
            let mut extent: Option<Extent<'_>> = None;
            let mut start = 0;
            for size in lengths {
                let piece = Piece { file_offset: 1000 + start as u64, bytes: &whole[start..start + size], after_gap: false };
                match &mut extent {
                    Some(extent) => extent.push(piece),
                    None => extent = Some(Extent::new(piece)),
                }
                start += size;
            }
            let extent = extent.unwrap();
            let from = from.min(total as u64);
            let expected = find_psb(&whole[from as usize..]).map(|at| at as u64 + from);
            prop_assert_eq!(extent.find_segment(from), expected);
            let until = (from + length).min(total as u64);
            prop_assert_eq!(extent.find_segment_within(from..until), expected.filter(|&at| at < until));
            prop_assert_eq!(&*extent.bytes(from..total as u64), &whole[from as usize..]);
            prop_assert_eq!(extent.file_offset(from.min(total as u64 - 1)), 1000 + from.min(total as u64 - 1));
        }
    }
}
