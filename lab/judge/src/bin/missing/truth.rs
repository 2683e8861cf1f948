//! What really ran: a recording decoded with all of its code.

use hodo_engine::{Chunk, Chunks, Reading, StreamSink, Trace, Window, decode_all};
use hodo_flow::{Event, Executed, PacketKind, Sink};

/// The segments of a trace stream, in order.
pub(crate) type Segments = Vec<Segment>;

/// The execution between one PSB and the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) instructions: Vec<u64>,
    /// The modules of the instructions, in order: each up to an instruction index.
    pub(crate) modules: Vec<(u32, u32)>,
    /// The number of instructions that ran before each packet.
    pub(crate) before: Vec<u32>,
    /// Asynchronous transfers to traced code: from where to where.
    pub(crate) transfers: Vec<(u64, u64)>,
    /// A gap, although all code is available.
    pub(crate) gap: Option<String>,
}

impl Segment {
    /// Each instruction, and the module of its code.
    pub(crate) fn with_modules(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut modules = self.modules.iter().peekable();
        self.instructions.iter().enumerate().map(move |(index, &address)| {
            while modules.next_if(|(until, _)| *until as usize <= index).is_some() {}
            (address, modules.peek().map_or(0, |(_, module)| *module))
        })
    }
}

/// Decoding settings: packet by packet and block by block.
pub(crate) const READING: Reading<'static> = Reading {
    threads: 1,
    chunks: Chunks::Bytes(1 << 20),
    window: Window::ALL,
    numbers: None,
    spans: None,
    skims: false,
    keeps_whole_chunks: false,
    memo: false,
};

/// Reads all trace streams.
pub(crate) fn read(trace: &Trace<'_>) -> Vec<Segments> {
    let mut streams = vec![Segments::new(); trace.streams.len()];
    decode_all(
        trace,
        READING,
        |_: &Chunk, ()| Collector::default(),
        |collector| (collector.0, ()),
        |chunk, segments| {
            streams[chunk.stream].extend(segments);
            true
        },
        |_| true,
    );
    streams
}

#[derive(Default)]
struct Collector(Segments);

impl StreamSink for Collector {
    fn begin_segment(&mut self) {
        self.0.push(Segment::default());
    }
}

impl Sink for Collector {
    fn executed(&mut self, executed: Executed<'_>) {
        let Some(segment) = self.0.last_mut() else { return };
        segment.instructions.extend(executed.addresses());
        let (module, until) = (executed.block.label.module, segment.instructions.len() as u32);
        match segment.modules.last_mut() {
            Some((end, last)) if *last == module => *end = until,
            _ => segment.modules.push((until, module)),
        }
    }

    fn packet(&mut self, _: PacketKind) {
        if let Some(segment) = self.0.last_mut() {
            segment.before.push(segment.instructions.len() as u32);
        }
    }

    fn event(&mut self, event: Event) {
        let Some(segment) = self.0.last_mut() else { return };
        match event {
            Event::Gap(gap) => _ = segment.gap.get_or_insert_with(|| format!("{gap:?}")),
            Event::Asynchronous { from, to, .. } => segment.transfers.push((from, to)),
            _ => {}
        }
    }
}
