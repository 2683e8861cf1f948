//! Writes the content of traces in order, as text.
//!
//! All cores format chunks, whose text is written in order, so the output depends only on the input.

mod calls;
mod instructions;
mod marks;
mod packets;
mod sideband;
mod span;

pub use calls::{CallFormat, calls};
pub use instructions::{Field, InstructionFormat, instructions};
pub use marks::{MarkFormat, Marks, marks};
pub use packets::packets;
pub use sideband::sideband;

use std::{
    io::{self, Write},
    mem,
};

use crate::{
    Chunk, FlowTrace, Losses, Reading,
    segments::{TrackSink, decode_chunks},
};

/// The outcome of writing.
#[derive(Debug)]
pub struct Outcome {
    /// What is missing from the output.
    pub losses: Losses,
    /// Whether everything was written, or the error.
    pub written: io::Result<()>,
}

/// Size in bytes from which a chunk's text is written before the chunk is done. A segment may be as long as the
/// recording, and its text a hundred times as long.
const PART: usize = 1 << 20;

/// Formats the events of a chunk as lines.
trait TextSink: TrackSink {
    /// Memoized paths, which are passed from sink to sink.
    type Memory: Default;

    /// Swaps the memoized paths.
    fn exchange(&mut self, _memory: &mut Self::Memory) {}

    /// Returns the lines so far.
    fn text(&mut self) -> &mut Vec<u8>;

    /// Returns whether no line waits for a value.
    fn is_complete(&self) -> bool {
        true
    }
}

/// Formats each chunk and writes the text in the order of the chunks, at most `limit` lines.
fn write_chunks<S: TextSink>(
    experiment: &FlowTrace<'_>,
    reading: Reading<'_>,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    start: impl Fn(&Chunk) -> S + Sync,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Outcome {
    let mut lines = Lines::new(out, limit);
    let write = |_: &Chunk, text: Vec<u8>| {
        lines.write(&text);
        lines.want_more()
    };
    let part = |sink: &mut S| {
        let enough = sink.text().len() >= PART && sink.is_complete();
        enough.then(|| mem::take(sink.text()))
    };
    let start = |chunk: &Chunk, mut memory: S::Memory| {
        let mut sink = start(chunk);
        sink.exchange(&mut memory);
        sink
    };
    let rest = |mut sink: S| {
        let mut memory = S::Memory::default();
        sink.exchange(&mut memory);
        (mem::take(sink.text()), memory)
    };
    let chunks = experiment.chunks(reading.chunk_size);
    let losses = decode_chunks(experiment, &chunks, reading, start, part, rest, write, progress);
    Outcome { losses, written: lines.result }
}

/// Writes whole lines up to a limit, and nothing more after an error.
pub(crate) struct Lines<'w> {
    out: &'w mut (dyn Write + Send),
    /// Number of lines that may still be written; `None` for all.
    left: Option<u64>,
    pub(crate) result: io::Result<()>,
}

impl<'w> Lines<'w> {
    pub(crate) fn new(out: &'w mut (dyn Write + Send), limit: Option<u64>) -> Lines<'w> {
        Lines { out, left: limit, result: Ok(()) }
    }

    /// Returns whether more lines would be written.
    pub(crate) fn want_more(&self) -> bool {
        self.result.is_ok() && self.left != Some(0)
    }

    /// Flushes the output.
    pub(crate) fn flush(&mut self) {
        if self.result.is_ok() {
            self.result = self.out.flush();
        }
    }

    /// Writes as many of the lines as the limit permits.
    pub(crate) fn write(&mut self, text: &[u8]) {
        if !self.want_more() {
            return;
        }
        let Some(left) = &mut self.left else {
            self.result = self.out.write_all(text);
            return;
        };
        let mut ends = text.iter().enumerate().filter(|&(_, &byte)| byte == b'\n');
        let length = match ends.nth(*left as usize - 1) {
            Some((end, _)) => {
                *left = 0;
                end + 1
            }
            None => {
                *left -= text.iter().filter(|&&byte| byte == b'\n').count() as u64;
                text.len()
            }
        };
        self.result = self.out.write_all(&text[..length]);
    }
}
