//! One stream of trace bytes, cut into chunks that can be decoded independently.

use std::{borrow::Cow, ops::Range, sync::OnceLock};

use hodo_formats::recording::{Piece, Stream, Thread};
use hodo_intel_pt::{flow::Switch, packet::PSB};
use memchr::memmem;

use crate::parallel::share;

/// A contiguous range: pieces without a gap between them. Positions count bytes from the first piece's start.
#[derive(Clone, Debug)]
pub(crate) struct Run<'f> {
    pieces: Vec<Piece<'f>>,
    /// Position of each piece, and of the end.
    starts: Vec<u64>,
    /// Position of the first PSB, searched on first use.
    first_psb: OnceLock<Option<u64>>,
}

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
    pub(crate) schedule: Vec<Switch>,
    pub(crate) runs: Vec<Run<'f>>,
}

/// A part of a stream, of about the requested size: the segments that begin in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Index among all chunks.
    pub(crate) index: usize,
    /// Index of the stream.
    pub track: usize,
    /// Index of the contiguous range in the stream.
    pub(crate) run: usize,
    /// Positions in the contiguous range.
    pub(crate) span: Range<u64>,
}

impl Chunk {
    /// Returns the number of bytes of trace in it.
    pub fn bytes(&self) -> u64 {
        self.span.end - self.span.start
    }
}

/// The size of the chunks that are decoded at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkSize {
    /// About this number of bytes.
    Bytes(u64),
    /// A share of what is left, for this number of threads. Each chunk has its own state, which begins without a call
    /// stack and must be merged, so chunks are few; the last ones are small, so that all threads finish together.
    Shares(usize),
}

impl ChunkSize {
    /// Returns the size of the next chunk if `left` bytes are left.
    fn next(self, left: u64) -> u64 {
        const SMALLEST: u64 = 1 << 19;
        const LARGEST: u64 = 1 << 23;
        match self {
            ChunkSize::Bytes(bytes) => bytes.max(1),
            ChunkSize::Shares(1) => LARGEST,
            ChunkSize::Shares(threads) => share(left, threads, SMALLEST..=LARGEST),
        }
    }
}

impl<'f> TraceStream<'f> {
    pub(crate) fn new(stream: &Stream<'f>, schedule: Vec<Switch>) -> TraceStream<'f> {
        let mut runs: Vec<Run<'f>> = Vec::new();
        for piece in stream.pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
            match runs.last_mut() {
                Some(run) if !piece.after_gap => run.push(*piece),
                _ => runs.push(Run::new(*piece)),
            }
        }
        let name = match (stream.thread, stream.cpu) {
            (Some(thread), _) => format!("tid {}", thread.tid),
            (None, Some(cpu)) => format!("cpu {cpu}"),
            (None, None) => "trace".to_owned(),
        };
        TraceStream { name, thread: stream.thread, cpu: stream.cpu, schedule, runs }
    }

    /// Returns the number of bytes of trace.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(Run::length).sum()
    }

    /// Returns the bytes in parts of at least `size`, each from one PSB to another.
    pub fn parts(&self, size: u64) -> impl Iterator<Item = Cow<'f, [u8]>> {
        self.runs.iter().flat_map(move |run| {
            let mut next = run.first_psb();
            std::iter::from_fn(move || {
                let start = next?;
                next = run.find_psb(start.saturating_add(size.max(PSB.len() as u64)));
                Some(run.bytes(start..next.unwrap_or(run.length())))
            })
        })
    }

    /// Cuts the stream into chunks. This and later streams have `left` bytes.
    pub(crate) fn chunks(&self, track: usize, size: ChunkSize, mut left: u64) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for (run, of) in self.runs.iter().enumerate() {
            let mut start = 0;
            while start < of.length() {
                let end = start.saturating_add(size.next(left)).min(of.length());
                left = left.saturating_sub(end - start);
                chunks.push(Chunk { index: 0, track, run, span: start..end });
                start = end;
            }
        }
        chunks
    }
}

impl<'f> Run<'f> {
    fn new(piece: Piece<'f>) -> Run<'f> {
        let mut run = Run { pieces: Vec::new(), starts: vec![0], first_psb: OnceLock::new() };
        run.push(piece);
        run
    }

    fn push(&mut self, piece: Piece<'f>) {
        self.starts.push(self.length() + piece.bytes.len() as u64);
        self.pieces.push(piece);
    }

    pub(crate) fn length(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Returns the index of the piece that contains `position`.
    fn piece_at(&self, position: u64) -> usize {
        self.starts.partition_point(|&start| start <= position).saturating_sub(1).min(self.pieces.len() - 1)
    }

    /// Returns the file offset of the byte at `position`.
    pub(crate) fn file_offset(&self, position: u64) -> u64 {
        let index = self.piece_at(position);
        self.pieces[index].file_offset + (position - self.starts[index])
    }

    /// Returns the bytes of a span, borrowed if they are in one piece.
    pub(crate) fn bytes(&self, span: Range<u64>) -> Cow<'f, [u8]> {
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

    /// Returns the position of the first PSB.
    pub(crate) fn first_psb(&self) -> Option<u64> {
        *self.first_psb.get_or_init(|| self.find_psb(0))
    }

    /// Returns the positions of all PSBs.
    pub(crate) fn psbs(&self) -> impl Iterator<Item = u64> {
        std::iter::successors(self.find_psb(0), |at| self.find_psb(at + PSB.len() as u64))
    }

    /// Returns the position of the first PSB that begins at or after `from`.
    pub(crate) fn find_psb(&self, from: u64) -> Option<u64> {
        self.find_psb_within(from..self.length())
    }

    /// Returns the position of the first PSB that begins in `span`, without reading far beyond its end.
    pub(crate) fn find_psb_within(&self, span: Range<u64>) -> Option<u64> {
        let size = PSB.len() as u64;
        let mut at = self.find_pattern(span.clone())?;
        // See `packet::find_psb`; here the repeated bytes may continue in the next piece.
        while *self.bytes(at + size..(at + size + 2).min(self.length())) == PSB[..2] {
            at += 2;
        }
        Some(at).filter(|&at| at < span.end)
    }

    /// Returns the position of the first sixteen bytes in a span that look like a PSB.
    fn find_pattern(&self, span: Range<u64>) -> Option<u64> {
        let overlap = PSB.len() as u64 - 1;
        let mut from = span.start;
        while from < span.end {
            let index = self.piece_at(from);
            let (start, end) = (self.starts[index], self.starts[index + 1]);
            let rest = &self.pieces[index].bytes[(from - start) as usize..];
            let rest = &rest[..rest.len().min((span.end - from + overlap) as usize)];
            if let Some(ahead) = memmem::find(rest, &PSB) {
                return Some(from + ahead as u64);
            }
            // A PSB may begin in this piece and end in the next.
            let border = end.saturating_sub(overlap).max(from)..(end + overlap).min(self.length());
            if let Some(ahead) = memmem::find(&self.bytes(border.clone()), &PSB) {
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

    #[test]
    fn shares_are_large_first_and_small_last() {
        let shares = |threads, mut left: u64| {
            std::iter::from_fn(move || {
                let share = ChunkSize::Shares(threads).next(left).min(left);
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
        fn a_run_reads_as_its_pieces_joined(
            lengths in prop::collection::vec(1usize..40, 1..8),
            marks in prop::collection::vec(0usize..200, 0..4),
            from in 0u64..250,
            length in 0u64..100,
        ) {
            let total: usize = lengths.iter().sum();
            let mut whole = vec![0u8; total];
            for mark in marks {
                if let Some(place) = whole.get_mut(mark..mark + PSB.len()) {
                    place.copy_from_slice(&PSB);
                }
            }
            let mut run: Option<Run<'_>> = None;
            let mut start = 0;
            for size in lengths {
                let piece = Piece { file_offset: 1000 + start as u64, bytes: &whole[start..start + size], after_gap: false };
                match &mut run {
                    Some(run) => run.push(piece),
                    None => run = Some(Run::new(piece)),
                }
                start += size;
            }
            let run = run.unwrap();
            let from = from.min(total as u64);
            let expected = find_psb(&whole[from as usize..]).map(|at| at as u64 + from);
            prop_assert_eq!(run.find_psb(from), expected);
            let until = (from + length).min(total as u64);
            prop_assert_eq!(run.find_psb_within(from..until), expected.filter(|&at| at < until));
            prop_assert_eq!(&*run.bytes(from..total as u64), &whole[from as usize..]);
            prop_assert_eq!(run.file_offset(from.min(total as u64 - 1)), 1000 + from.min(total as u64 - 1));
        }
    }
}
