//! An undamaged recording, and what really ran.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use hodo_intel_pt::packet::{Decoder, Packet};

use crate::{
    container::Container,
    flow::{self, Segment},
    mutation::Damaged,
    recovered::Ran,
};

/// How a recording was made, to be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) event: String,
    pub(crate) command: Vec<String>,
}

/// A recording and the instructions that really ran.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) recipe: Option<Recipe>,
    pub(crate) symfs: Option<PathBuf>,
    pub(crate) container: Container,
    /// All instructions, in order.
    pub(crate) ran: Ran,
    /// Its segments, in order.
    pub(crate) segments: Vec<TrueSegment>,
}

/// A segment of the undamaged trace.
#[derive(Clone, Debug)]
pub(crate) struct TrueSegment {
    /// From its PSB to the next.
    pub(crate) bytes: Range<usize>,
    /// The byte after the PSB+ that ends it, or the end of the trace.
    pub(crate) until: usize,
    /// The byte after its own PSB+.
    pub(crate) plus_end: usize,
    /// The index range of its instructions.
    pub(crate) instructions: Range<usize>,
}

impl Subject {
    /// Reads an undamaged recording. The number of its instructions must be the emulated processor's count.
    pub(crate) fn new(
        name: &str,
        file: &Path,
        symfs: Option<&Path>,
        recipe: Option<Recipe>,
    ) -> Result<Subject, String> {
        let container = Container::new(std::fs::read(file).map_err(|error| error.to_string())?)?;
        let read = flow::read(file, symfs, 1 << 20)?;
        if let Some(segment) = read.iter().find(|segment| !segment.gaps.is_empty()) {
            return Err(format!("{name} has a gap: {:?}", segment.gaps));
        }
        let instructions: Vec<u64> =
            read.iter().flat_map(|segment| segment.instructions.iter().copied()).collect();
        let counted = flow::counted(file)?;
        if counted != instructions.len() as u64 {
            return Err(format!("{name}: {counted} instructions ran, {} are shown", instructions.len()));
        }
        let segments = segments(&container, &read);
        let symfs = symfs.map(Path::to_owned);
        Ok(Subject { name: name.to_owned(), recipe, symfs, container, ran: Ran::new(instructions), segments })
    }

    /// The segment whose PSB is at this byte of the trace.
    pub(crate) fn segment_at(&self, at: usize) -> Option<usize> {
        self.segments.binary_search_by_key(&at, |segment| segment.bytes.start).ok()
    }

    /// The number of instructions of a segment that its packets prove, up to a byte of the trace.
    pub(crate) fn proven(&self, segment: usize, before: usize, scratch: &Path) -> Result<usize, String> {
        let start = self.segments[segment].bytes.start;
        let mut packets = Decoder::new(self.container.trace(), start);
        let mut end = start;
        while packets.position() <= before {
            end = packets.position();
            if !matches!(packets.next_packet(), Ok(Some(_))) {
                break;
            }
        }
        let part = Damaged::only(start..end);
        let snapshots = false;
        let (file, _) = self.container.with(&part.buffers(self.container.trace()), snapshots);
        std::fs::write(scratch, file).map_err(|error| error.to_string())?;
        let read = flow::read(scratch, self.symfs.as_deref(), 1 << 20)?;
        Ok(read.iter().map(|segment| segment.instructions.len()).sum())
    }
}

fn segments(container: &Container, read: &[Segment]) -> Vec<TrueSegment> {
    let trace = container.trace();
    let starts: Vec<usize> = read
        .iter()
        .filter_map(|segment| segment.psb_offset.map(|offset| (offset - container.trace_offset()) as usize))
        .collect();
    let mut shown = 0;
    let mut segments = Vec::new();
    for (index, segment) in read.iter().filter(|segment| segment.psb_offset.is_some()).enumerate() {
        let end = starts.get(index + 1).copied();
        let instructions = shown..shown + segment.instructions.len();
        shown = instructions.end;
        segments.push(TrueSegment {
            bytes: starts[index]..end.unwrap_or(trace.len()),
            until: end.map_or(trace.len(), |end| plus_end(trace, end)),
            plus_end: plus_end(trace, starts[index]),
            instructions,
        });
    }
    segments
}

/// The byte after the PSBEND of the PSB+ at `start`.
fn plus_end(trace: &[u8], start: usize) -> usize {
    let mut packets = Decoder::new(trace, start);
    while let Ok(Some(packet)) = packets.next_packet() {
        if packet == Packet::PsbEnd {
            break;
        }
    }
    packets.position()
}
