//! Writes what ran: calls, instructions, events beside the flow, packets and sideband records.
//!
//! All cores format chunks, whose text is written in order, so the output depends only on the input.

mod calls;
mod early_lines;
mod instructions;
mod marks;
mod packets;
mod sideband;
mod span;

pub use calls::calls;
pub use instructions::{Field, instructions};
pub use marks::{Marks, marks};
pub use packets::packets;
pub use sideband::sideband;

use std::{io::Write, mem};

use hodo_engine::{Chunk, Reading, StreamSink, Trace, decode_chunks};

use crate::{Outcome, lines::Lines};

/// Size in bytes from which a chunk's text is written before the chunk is done. A segment may be as long as the
/// recording, and its text a hundred times as long.
const PART: usize = 1 << 20;

/// Formats the events of a chunk as lines.
trait TextSink: StreamSink {
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
    trace: &Trace<'_>,
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
    let chunks = trace.chunks(reading);
    let losses = decode_chunks(trace, &chunks, reading, start, part, rest, write, progress);
    lines.outcome(losses)
}
