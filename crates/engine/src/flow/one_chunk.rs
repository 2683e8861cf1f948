//! Decodes a chunk alone.

use hodo_clock::{Nanos, Tsc};
use hodo_flow::{Event, Executed, Gap, PacketKind, Sink};
use hodo_model::{FlowEvent, FunctionRun, Numbering, Run};

use crate::{
    flow::{
        event_sink::FlowEventSink,
        fold::ThreadSink,
        segments::{StreamSink, decode_alone},
        selection_filter::SelectionFilter,
        stream::Chunk,
        trace::Trace,
    },
    reading::{Chunks, Reading},
};

/// Receives the flow of a chunk, slice by slice: what a thread executed on the stream without interruption.
pub trait FlowReceiver {
    /// Begins the next slice of the chunk, of the thread with this index in the trace.
    fn slice(&mut self, context: u32);

    /// Receives the next item. Code comes as runs with their instructions.
    fn take(&mut self, event: FlowEvent<'_>);

    /// Says why flow is missing, before [`FlowEvent::Gap`].
    fn gap(&mut self, gap: &Gap);
}

/// Decodes one chunk. The call stack at its begin is unknown to the decoder.
pub fn decode_chunk(trace: &Trace<'_>, chunk: &Chunk, receiver: &mut dyn FlowReceiver) {
    let threads = 1;
    let reading = Reading::new(threads, Chunks::Default);
    let slices = Slices { receiver, context: None };
    let sink = FlowEventSink::new(slices, SelectionFilter::new(trace, chunk, reading));
    decode_alone(trace, chunk, &mut WithGaps(sink));
}

/// Passes items on, slice by slice.
struct Slices<'r> {
    receiver: &'r mut dyn FlowReceiver,
    /// The thread of the last slice.
    context: Option<u32>,
}

impl ThreadSink for Slices<'_> {
    fn take(&mut self, _: u32, event: FlowEvent<'_>) {
        self.receiver.take(event);
    }

    const TAKES_FUNCTION_RUNS: bool = false;

    fn take_function_runs(&mut self, _: &impl Numbering, _: &[FunctionRun], _: Option<Nanos>) {
        unreachable!("it takes blocks");
    }

    fn takes_paths(&self) -> bool {
        false
    }

    fn state(&mut self) -> Option<u32> {
        None
    }

    fn learn(&mut self, _: u32, _: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        None
    }

    fn take_path(&mut self, _: u32, _: u32) {
        unreachable!("it learns no path");
    }

    fn forget(&mut self) {}

    fn switch(&mut self, context: u32, _: Option<Tsc>) {
        if self.context.replace(context) != Some(context) {
            self.receiver.slice(context);
        }
    }
}

/// Reports also why flow is missing.
struct WithGaps<'x, 'f, 'r>(FlowEventSink<'x, 'f, Slices<'r>>);

impl Sink for WithGaps<'_, '_, '_> {
    fn executed(&mut self, executed: Executed<'_>) {
        self.0.executed(executed);
    }

    fn event(&mut self, event: Event) {
        if let Event::Gap(gap) = &event {
            self.0.thread_sink().receiver.gap(gap);
        }
        self.0.event(event);
    }

    fn packet(&mut self, kind: PacketKind) {
        self.0.packet(kind);
    }
}

impl StreamSink for WithGaps<'_, '_, '_> {
    fn segment_at(&mut self, file_offset: u64) {
        self.0.segment_at(file_offset);
    }

    fn begin_segment(&mut self) {
        self.0.begin_segment();
    }

    fn end_segment(&mut self) {
        self.0.end_segment();
    }

    fn untimed(&self) -> u64 {
        self.0.untimed()
    }
}
