//! What our reader decodes from a file: the instructions of each segment, and its gaps.

use std::path::Path;

use hodo_code::Terminator;
use hodo_engine::{Chunks, FileSearchPaths, Files, Input, Options, Reading, StreamSink, Trace, decode_all};
use hodo_flow::{Event, Executed, Gap, Sink, Trouble};

/// The instructions between one PSB and the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Segment {
    /// The offset of its PSB in the file; `None` before the first PSB.
    pub(crate) psb_offset: Option<u64>,
    pub(crate) instructions: Vec<u64>,
    /// The gaps, each with the number of instructions before it.
    pub(crate) gaps: Vec<(usize, Gap)>,
    /// The numbers of instructions before each start of tracing.
    pub(crate) enabled: Vec<usize>,
    /// The first address that the code before it does not lead to, without a gap between them.
    pub(crate) jump: Option<u64>,
}

/// Reads a recording of one thread in chunks of this size, as every command of `hodo` does.
pub(crate) fn read(file: &Path, symfs: Option<&Path>, chunk_size: u64) -> Result<Vec<Segment>, String> {
    let files = Files::default();
    let input = Input::File(file.to_owned());
    let places = FileSearchPaths { symfs: symfs.map(Path::to_owned), ..FileSearchPaths::default() };
    let options = Options { places, ..Options::default() };
    let trace = Trace::open(&files, &input, &options).map_err(|error| error.to_string())?;
    let chunks = Chunks::Bytes(chunk_size);
    let reading = Reading { memo: false, ..Reading::new(1, chunks) };
    let mut segments = Vec::new();
    decode_all(
        &trace,
        reading,
        |_, ()| Collector::default(),
        |collector| (collector.segments, ()),
        |_, chunk| {
            segments.extend(chunk);
            true
        },
        |_| true,
    );
    Ok(segments)
}

/// The instructions that the emulated processor counted while it traced.
pub(crate) fn counted(file: &Path) -> Result<u64, String> {
    let files = Files::default();
    let input = Input::File(file.to_owned());
    let trace = Trace::open(&files, &input, &Options::default()).map_err(|error| error.to_string())?;
    let emulated = trace.recording.recorder.as_ref().ok_or("no count of the emulated processor")?;
    Ok(emulated.notes.threads.iter().map(|thread| thread.traced_instructions).sum())
}

#[derive(Default)]
struct Collector {
    next: Option<u64>,
    /// The possible successors of the last block; `None` if any address is possible.
    leads: Option<[u64; 2]>,
    segments: Vec<Segment>,
}

impl Collector {
    fn segment(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a segment began")
    }
}

impl StreamSink for Collector {
    fn segment_at(&mut self, file_offset: u64) {
        self.next = Some(file_offset);
    }

    fn begin_segment(&mut self) {
        self.leads = None;
        self.segments.push(Segment { psb_offset: self.next.take(), ..Segment::default() });
    }
}

impl Sink for Collector {
    fn executed(&mut self, executed: Executed<'_>) {
        let block = executed.block;
        if self.leads.is_some_and(|leads| !leads.contains(&block.start)) {
            self.segment().jump.get_or_insert(block.start);
        }
        self.segment().instructions.extend(executed.addresses());
        let behind = block.start + executed.lengths.iter().map(|&length| u64::from(length)).sum::<u64>();
        self.leads = match block.terminator {
            _ if !executed.is_whole() => Some([behind; 2]),
            Terminator::None => Some([block.end; 2]),
            Terminator::Conditional => Some([block.end, block.target]),
            Terminator::Jump | Terminator::Call => Some([block.target; 2]),
            _ => None,
        };
    }

    fn event(&mut self, event: Event) {
        let shown = self.segment().instructions.len();
        if matches!(
            event,
            Event::Gap(_) | Event::Enabled(_) | Event::Disabled { .. } | Event::Asynchronous { .. }
        ) {
            self.leads = None;
        }
        let segment = self.segment();
        match event {
            // The bytes before the first PSB are not part of this segment.
            Event::Gap(gap) if shown == 0 && gap.trouble == Trouble::Missing => {}
            Event::Gap(gap) => segment.gaps.push((shown, gap)),
            Event::Enabled(_) => segment.enabled.push(shown),
            _ => {}
        }
    }
}
