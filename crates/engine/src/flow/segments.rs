//! Decodes a chunk segment by segment.

use std::{
    mem,
    ops::Range,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use hodo_clock::Tsc;
use hodo_code::{Graph, Labels, Program};
use hodo_flow::{Event, Executed, Gap, Hidden, PacketKind, Sink, Step, Trouble};
use hodo_intel_pt::flow::{Decoder, FunctionRun, Memos};
use hodo_model::{Cause, Loss};

use crate::{
    flow::{
        log::{LogContext, LogMemos, LogReader},
        selection_filter::ChunkSelection,
        self_check::{PathAccounts, SelfCheck},
        stream::{Chunk, Extent, ExtentKind, TraceStream},
        trace::Trace,
    },
    losses::Losses,
    parallel::parts_in_order,
    programs::modules::Modules,
    reading::{Chunks, Reading},
};

/// A sink for the flow of one trace stream, segment by segment.
pub trait StreamSink: Sink {
    /// Receives the file offset of the PSB of the next segment.
    fn segment_at(&mut self, _file_offset: u64) {}

    /// Begins a segment. The decoder restarts, with the first context of the stream.
    fn begin_segment(&mut self);

    /// Receives the number of instructions of a chunk that is left out, see [`Reading::skims`].
    fn skip(&mut self, _instructions: u64) {}

    /// Ends the segment.
    fn end_segment(&mut self) {}

    /// Returns the number of instructions or events of the current segment that are excluded from a time window because
    /// no timestamp dates them.
    fn untimed(&self) -> u64 {
        0
    }
}

/// Decodes all chunks on all cores, each with its own sink. Passes the sinks' results to `consume` in the order of the
/// chunks, and the number of decoded bytes to `progress`; both return whether to continue.
///
/// `start` gets a memory of learned paths, which `finish` returns for later chunks.
pub fn decode_all<S: StreamSink, M: Default, R: Send>(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    start: impl Fn(&Chunk, M) -> S + Sync,
    finish: impl Fn(S) -> (R, M) + Sync,
    consume: impl FnMut(&Chunk, R) -> bool + Send,
    progress: impl FnMut(u64) -> bool + Send,
) -> Losses {
    let chunks = trace.chunks(reading);
    decode_chunks(trace, &chunks, reading, start, in_one_piece, finish, consume, progress)
}

/// The `part` of [`decode_chunks`] for sinks that return their result only at the end of a chunk.
pub(crate) fn in_one_piece<S, R>(_: &mut S) -> Option<R> {
    None
}

/// Decodes chunks in the given order; see [`decode_all`]. A sink may return a `part` of its result before the chunk is
/// done, to limit its memory: `consume` gets the parts of a chunk one after the other.
#[allow(clippy::too_many_arguments, reason = "each is a step of the same pipeline")]
pub fn decode_chunks<'x, 'f, S: StreamSink, M: Default, R: Send>(
    trace: &'x Trace<'f>,
    chunks: &[Chunk],
    reading: Reading<'x>,
    start: impl Fn(&Chunk, M) -> S + Sync,
    part: impl Fn(&mut S) -> Option<R> + Sync,
    finish: impl Fn(S) -> (R, M) + Sync,
    mut consume: impl FnMut(&Chunk, R) -> bool + Send,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Losses {
    let mut order = chunks.iter().peekable();
    let mut losses = trace.losses_in(reading.window);
    let mut done = 0;
    let work = |(worker, memory): &mut (Worker<'x, 'f>, M),
                chunk: &Chunk,
                hand_over: &dyn Fn((R, Option<Losses>)) -> bool| {
        let mut losses = Losses::default();
        let mut sink = start(chunk, mem::take(memory));
        let mut give = |sink: &mut S| {
            if let Some(part) = part(sink) {
                hand_over((part, None));
            }
        };
        decode(trace, chunk, reading, worker, &mut losses, &mut sink, &mut give);
        let (rest, learned) = finish(sink);
        *memory = learned;
        (rest, Some(losses))
    };
    parts_in_order(
        chunks,
        Chunk::bytes,
        reading.threads,
        || (Worker::new(trace), M::default()),
        work,
        |(result, of_chunk)| {
            let chunk = *order.peek().expect("a result for each chunk");
            let Some(of_chunk) = of_chunk else { return consume(chunk, result) };
            order.next();
            let of_chunk = of_chunk.into_list();
            trace.decoded.add_first_gap(of_chunk.first());
            of_chunk.into_iter().for_each(|loss| losses.add(loss));
            done += chunk.bytes();
            consume(chunk, result) && progress(done)
        },
    );
    if order.peek().is_none() {
        trace.decoded.complete();
    }
    losses
}

/// Summary of the decoding of an experiment so far, by all threads.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// Whether all requested chunks are decoded.
    complete: AtomicBool,
    /// Whether any instruction ran.
    ran: AtomicBool,
    /// Cause of the first gap.
    first_gap: OnceLock<String>,
}

impl Decoded {
    fn complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    /// Ends a segment, in which any instruction `ran` or none.
    fn end(&self, ran: bool) {
        if ran {
            self.ran.store(true, Ordering::Relaxed);
        }
    }

    /// Adds the first loss of a chunk. Chunks arrive in order.
    fn add_first_gap(&self, loss: Option<&Loss>) {
        if let Some(loss) = loss {
            self.first_gap.get_or_init(|| loss.detail.clone());
        }
    }

    /// Returns whether everything was decoded and no instruction was found.
    pub(crate) fn found_nothing(&self) -> bool {
        self.complete.load(Ordering::Relaxed) && !self.ran.load(Ordering::Relaxed)
    }

    /// Returns the cause of the first gap, if there was one.
    pub(crate) fn first_gap(&self) -> Option<&str> {
        self.first_gap.get().map(String::as_str)
    }
}

/// What a decoding thread keeps from chunk to chunk.
struct Worker<'x, 'f> {
    programs: Vec<Program<'x, Modules<'f>>>,
    memos: Memos,
    etm_memos: hodo_etm::flow::Memos,
    log_memos: LogMemos,
    paths: PathAccounts,
}

impl<'x, 'f> Worker<'x, 'f> {
    fn new(trace: &'x Trace<'f>) -> Worker<'x, 'f> {
        let (memos, etm_memos, log_memos, paths) = Default::default();
        Worker { programs: trace.programs(), memos, etm_memos, log_memos, paths }
    }
}

/// Decodes one chunk alone, without a memo. What can't be decoded is reported to the sink at its position.
pub(crate) fn decode_alone<S: StreamSink>(trace: &Trace<'_>, chunk: &Chunk, sink: &mut S) {
    let threads = 1;
    let reading = Reading { memo: false, ..Reading::new(threads, Chunks::Default) };
    let mut losses = Losses::default();
    decode(trace, chunk, reading, &mut Worker::new(trace), &mut losses, sink, &mut |_| ());
}

/// Decodes a chunk, or skips it if nothing of it is selected.
fn decode<'x, 'f, S: StreamSink>(
    trace: &'x Trace<'f>,
    chunk: &Chunk,
    reading: Reading<'x>,
    worker: &mut Worker<'x, 'f>,
    losses: &mut Losses,
    sink: &mut S,
    give: &mut impl FnMut(&mut S),
) {
    if let ChunkSelection::Nothing { instructions } = reading.selects(chunk.index) {
        sink.begin_segment();
        sink.skip(instructions);
        sink.end_segment();
    } else {
        decode_selected(trace, chunk, reading, worker, losses, sink, give);
    }
}

/// Decodes a chunk. What can't be decoded is added to `losses`, and reported to the sink at its position.
fn decode_selected<'x, 'f, S: StreamSink>(
    trace: &'x Trace<'f>,
    chunk: &Chunk,
    reading: Reading<'x>,
    worker: &mut Worker<'x, 'f>,
    losses: &mut Losses,
    sink: &mut S,
    give: &mut impl FnMut(&mut S),
) {
    let Worker { programs, memos, etm_memos, log_memos, paths } = worker;
    let stream = &trace.streams[chunk.stream];
    let extent = &stream.extents[chunk.extent];
    let mut log = extent.log().map(LogReader::new);
    let mut next = extent.find_segment_within(chunk.span.clone());
    let mut skipped = skipped_before(next, extent, chunk);
    while let Some(start) = next.filter(|&start| start < chunk.span.end) {
        next = extent.segment_after(start);
        let end = next.unwrap_or(extent.length());
        let times = [Some(start), next].map(|position| extent.tsc_at(position?));
        let gap = skipped.take();
        if gap.is_none() && is_outside(times, reading) {
            continue;
        }
        sink.segment_at(extent.file_offset(start));
        sink.begin_segment();
        let check =
            SelfCheck::new(&trace.recording, stream, (chunk.extent, start..end), S::TAKES_BLOCKS, paths);
        let mut located = Located {
            trace,
            chunk,
            start,
            losses,
            sink: &mut *sink,
            give: &mut *give,
            reading,
            ran: false,
            has_gap: false,
            check,
        };
        if let Some(bytes) = gap {
            located.skip(0..bytes, times[0]);
        }
        match &mut log {
            Some(log) => {
                let (schedule, learns) = (&stream.schedule, reading.memo);
                let mut context = LogContext { programs, memos: log_memos, schedule, learns };
                if log.decode(extent.block_at(start), &mut context, &mut located).is_err() {
                    located.skip(start..end, times[1]);
                }
            }
            None => {
                let segment = Segment { trace, stream, extent, span: start..end };
                segment.decode(reading, programs, (memos, etm_memos), &mut located);
            }
        }
        located.lose_untimed(end - start);
        located.lose_wrong(start..end, times);
        trace.decoded.end(located.ran);
        sink.end_segment();
    }
    if let Some(bytes) = skipped {
        sink.begin_segment();
        let check = SelfCheck::of_nothing(paths);
        let (start, ran, has_gap) = (0, false, false);
        Located { trace, chunk, start, losses, sink: &mut *sink, give, reading, ran, has_gap, check }
            .skip(0..bytes, None);
        sink.end_segment();
    }
}

/// A segment of packets.
struct Segment<'x, 'f> {
    trace: &'x Trace<'f>,
    stream: &'x TraceStream<'f>,
    extent: &'x Extent<'f>,
    span: Range<u64>,
}

impl<'x, 'f> Segment<'x, 'f> {
    /// Decodes the packets.
    fn decode(
        self,
        reading: Reading<'_>,
        programs: &mut [Program<'x, Modules<'f>>],
        (memos, etm_memos): (&mut Memos, &mut hodo_etm::flow::Memos),
        sink: &mut impl Sink,
    ) {
        let length = (self.span.end - self.span.start) as usize;
        let start = self.span.start;
        let bytes = self.extent.with_psb_plus(self.span);
        if let ExtentKind::Etm(config) = self.extent.kind() {
            let decoder = hodo_etm::flow::Decoder::new(&bytes, 0..length, config, &self.stream.schedule);
            let decoder = decoder.with_threads(&self.stream.contexts);
            let is_first = self.extent.first_segment() == Some(start);
            let decoder = if is_first { decoder } else { decoder.behind_another() };
            return match reading.memo {
                true => decoder.decode_with_memo(programs, etm_memos, sink),
                false => decoder.decode(programs, sink),
            };
        }
        if let ExtentKind::RiscV(extent) = self.extent.kind() {
            let options = self.extent.riscv_options(extent, start);
            let schedule = &self.stream.schedule;
            return extent.settings.decode(&bytes, 0..length, options, programs, schedule, sink);
        }
        let decoder = Decoder::new(&bytes, 0..length, &self.trace.recording.config, &self.stream.schedule);
        let decoder = decoder.with_guests(&self.trace.guests);
        match reading.memo {
            true => decoder.decode_with_memo(programs, memos, sink),
            false => decoder.decode(programs, sink),
        }
    }
}

/// Returns the number of bytes before the first PSB of an extent, if a chunk whose first PSB is `next` reports them: they
/// are reported in the chunk of that PSB, or at the start if there is no PSB.
fn skipped_before(next: Option<u64>, extent: &Extent<'_>, chunk: &Chunk) -> Option<u64> {
    let skipped = match (next, extent.first_segment()) {
        (Some(next), Some(first)) if next == first => Some(first),
        (_, None) if chunk.span.start == 0 => Some(extent.length()),
        _ => None,
    };
    skipped.filter(|&bytes| bytes > 0 || chunk.extent > 0)
}

/// Returns whether a segment with these times at its begin and its end lies outside of the window: it begins after the
/// window, or would end before it if it were twice as long. (Estimated times between two PSBs may exceed the second PSB's.)
fn is_outside([begin, end]: [Option<Tsc>; 2], reading: Reading<'_>) -> bool {
    let window = reading.window;
    if window.is_all() || reading.numbers.is_some() {
        return false;
    }
    let Some(begin) = begin else { return false };
    let twice = end.map(|end| Tsc(end.0.saturating_add(end.0.saturating_sub(begin.0))));
    window.ends_by(&begin) || twice.is_some_and(|twice| window.begins_after(&twice))
}

/// Converts the gaps of a segment to file offsets and nanoseconds.
struct Located<'x, 'f, S, G> {
    trace: &'x Trace<'f>,
    chunk: &'x Chunk,
    /// Position of the segment in its extent.
    start: u64,
    losses: &'x mut Losses,
    sink: &'x mut S,
    /// Hands over the sink's result so far, if it is large.
    give: &'x mut G,
    reading: Reading<'x>,
    /// Whether any instruction ran.
    ran: bool,
    /// Whether there was a gap in which instructions may have run unseen.
    has_gap: bool,
    check: SelfCheck<'x>,
}

impl<'x, 'f, S: Sink, G: FnMut(&mut S)> Located<'x, 'f, S, G> {
    /// Reports bytes of the extent that can't be decoded: a block of a log that is damaged, or those before the
    /// first PSB, because no packet boundary is known.
    fn skip(&mut self, Range { start: from, end: to }: Range<u64>, until: Option<Tsc>) {
        let [from, to] = [from, to].map(|position| self.extent().file_offset(position));
        let trouble = Trouble::Missing;
        let gap = Gap { from, to, since: None, until, doubtful_since: None, trouble };
        self.lose(&gap);
        self.sink.event(Event::Gap(gap));
    }

    fn extent(&self) -> &'x Extent<'f> {
        &self.trace.streams[self.chunk.stream].extents[self.chunk.extent]
    }

    /// Returns the gap with file offsets.
    fn in_file(&self, gap: Gap) -> Gap {
        let offsets = |span| self.extent().offsets(self.start, span);
        let Range { start: from, end: to } = offsets(gap.from..gap.to);
        Gap { from, to, doubtful_since: gap.doubtful_since.map(|byte| offsets(byte..byte).start), ..gap }
    }

    /// Adds a gap to the losses, if it is in the window.
    fn lose(&mut self, gap: &Gap) {
        self.has_gap |= gap.trouble != Trouble::Overflow;
        let detail = self.trace.describe(&gap.trouble);
        self.lose_within(gap.from..gap.to, [gap.since, gap.until], cause(&gap.trouble), detail);
    }

    /// Adds a loss of these bytes, between the times before and after it, if it is in the window.
    fn lose_within(
        &mut self,
        bytes: Range<u64>,
        [since, until]: [Option<Tsc>; 2],
        cause: Cause,
        detail: String,
    ) {
        let window = self.reading.window;
        if since.is_some_and(|since| window.ends_by(&since))
            || until.or(since).is_some_and(|until| window.begins_after(&until))
        {
            return;
        }
        let stream = &self.trace.streams[self.chunk.stream];
        let clock = self.trace.recording.config.clock;
        let nanos = |tsc: Option<Tsc>| tsc.zip(clock).map(|(tsc, clock)| clock.nanos(tsc));
        let (since, until) = (nanos(since), nanos(until));
        let time = since.or(until).zip(until.or(since));
        self.losses.add(Loss { stream: stream.name.clone(), cause, bytes, time, count: 1, detail });
    }

    /// Adds a segment to the losses if other instructions were decoded than the recording says ran. `span` is the
    /// segment's.
    fn lose_wrong(&mut self, span: Range<u64>, times: [Option<Tsc>; 2]) {
        let Some(difference) = self.check.difference(self.has_gap) else { return };
        let bytes = self.extent().file_offset(span.start)..self.extent().file_offset(span.end);
        self.lose_within(bytes, times, Cause::Mismatch, difference.to_owned());
    }
}

impl<S: StreamSink, G: FnMut(&mut S)> Located<'_, '_, S, G> {
    /// Adds the instructions of the segment that the sink excludes to the losses. `length` is that of the segment.
    fn lose_untimed(&mut self, length: u64) {
        let instructions = self.sink.untimed();
        if instructions == 0 {
            return;
        }
        let stream = &self.trace.streams[self.chunk.stream];
        let extent = self.extent();
        self.losses.add(Loss {
            stream: stream.name.clone(),
            cause: Cause::Untimed,
            bytes: extent.file_offset(self.start)..extent.file_offset(self.start + length),
            time: None,
            count: 1,
            detail: format!(
                "no packet gives the time of {instructions} instructions or events, so they are in no part of the times"
            ),
        });
    }
}

impl<S: Sink, G: FnMut(&mut S)> Sink for Located<'_, '_, S, G> {
    const TAKES_BLOCKS: bool = S::TAKES_BLOCKS;

    #[inline]
    fn executed(&mut self, executed: Executed<'_>) {
        self.ran = true;
        self.check.executed(&executed);
        self.sink.executed(executed);
    }

    #[inline]
    fn takes_function_runs(&self) -> bool {
        self.sink.takes_function_runs()
    }

    #[inline]
    fn function_runs<L: Labels>(
        &mut self,
        function_runs: &[FunctionRun],
        graph: &Graph<'_, L>,
        until: Option<Tsc>,
    ) {
        self.ran = true;
        self.check.count(FunctionRun::instructions(function_runs));
        self.sink.function_runs(function_runs, graph, until);
    }

    #[inline]
    fn takes_paths(&self) -> bool {
        self.sink.takes_paths()
    }

    fn state(&mut self) -> Option<u32> {
        self.sink.state()
    }

    fn learn<L: Labels>(&mut self, state: u32, steps: &[Step], graph: &Graph<'_, L>) -> Option<(u32, u32)> {
        // The path runs now, and only learned paths run later: `path`, which is called often, need not set this.
        self.ran = true;
        let learned = self.sink.learn(state, steps, graph);
        if let Some((path, _)) = learned {
            self.check.learn(path, steps, graph);
        }
        learned
    }

    fn join(&mut self, first: u32, second: u32) -> Option<u32> {
        let joined = self.sink.join(first, second);
        if let Some(path) = joined {
            self.check.join(path, first, second);
        }
        joined
    }

    #[inline]
    fn path(&mut self, path: u32) {
        (self.give)(self.sink);
        self.check.path(path);
        self.sink.path(path);
    }

    fn resume(&mut self, state: u32) {
        self.sink.resume(state);
    }

    fn forget(&mut self) {
        self.check.forget();
        self.sink.forget();
    }

    #[inline]
    fn packet(&mut self, kind: PacketKind) {
        (self.give)(self.sink);
        self.sink.packet(kind);
    }

    #[inline(always)]
    fn event(&mut self, event: Event) {
        match event {
            Event::Gap(gap) => {
                let gap = self.in_file(gap);
                self.lose(&gap);
                self.sink.event(Event::Gap(gap));
            }
            event => self.sink.event(event),
        }
    }
}

fn cause(trouble: &Trouble) -> Cause {
    match trouble {
        Trouble::Overflow => Cause::Overflow,
        Trouble::Missing => Cause::Truncated,
        Trouble::Packet(_) => Cause::Corrupt,
        Trouble::Code(hodo_code::Unreadable::Invalid(_)) => Cause::Mismatch,
        Trouble::Code(_) | Trouble::Guest { .. } => Cause::MissingCode,
        Trouble::NotTraced { .. } | Trouble::UnknownFilter { .. } | Trouble::Ambiguous { .. } => {
            Cause::Untraced
        }
        Trouble::UnseenCall { hidden: Hidden::ByMissingCode, .. } => Cause::MissingCode,
        Trouble::UnseenCall { hidden: Hidden::ByOverflow, .. } => Cause::Overflow,
        Trouble::UnseenCall { hidden: Hidden::ByDamage, .. } => Cause::Mismatch,
        Trouble::Contradiction { .. }
        | Trouble::EmptyReturnStack { .. }
        | Trouble::EndlessLoop { .. }
        | Trouble::NoAddress
        | Trouble::LostAddress
        | Trouble::Uncommitted => Cause::Mismatch,
    }
}
