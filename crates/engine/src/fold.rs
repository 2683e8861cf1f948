//! Analyses over the chunks of an experiment.

use std::collections::BTreeMap;

use hodo_clock::{PerfClock, Tsc};
use hodo_code::Terminator;
use hodo_intel_pt::flow::{Event, Executed, Sink};
use hodo_trace::{Analysis, Arrival, Code, End, FunctionId, Place, Seen, Table};

use crate::{
    Chunk, Experiment, Window,
    segments::{TrackSink, decode_all},
};

/// How to read an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Threads that decode.
    pub threads: usize,
    /// Bytes of trace in a chunk.
    pub chunk_size: u64,
    /// Times to look at; all where `None`.
    pub window: Option<Window>,
}

impl Reading {
    /// Whether what happened up to `now` is to be looked at.
    pub(crate) fn wants(&self, now: Tsc) -> bool {
        self.window.is_none_or(|window| window.from <= now && now < window.to)
    }
}

/// A part of a thread's execution on one track.
struct Stint<P> {
    context: u32,
    /// Tick at which it began, where known.
    since: Option<Tsc>,
    partial: P,
}

/// Folds an analysis over all tracks. `progress` is told the bytes that were decoded, and returns whether
/// to go on.
pub fn profile<A: Analysis>(
    experiment: &Experiment<'_>,
    analysis: &A,
    reading: Reading,
    progress: impl FnMut(u64) -> bool,
) -> Table {
    let mut tracks: BTreeMap<usize, Vec<Stint<A::Partial>>> = BTreeMap::new();
    let losses = decode_all(
        experiment,
        reading,
        |chunk| SeenSink::new(Folder { analysis, stints: Vec::new() }, experiment, chunk, reading),
        |sink| sink.into_inner().stints,
        |chunk, stints| {
            join(analysis, tracks.entry(chunk.track).or_default(), stints);
            true
        },
        progress,
    );
    let mut table = analysis.finish(by_thread(experiment, analysis, tracks));
    table.loss = losses.into_list();
    table
}

/// Adds the stints of a chunk to those of its track.
fn join<A: Analysis>(analysis: &A, track: &mut Vec<Stint<A::Partial>>, stints: Vec<Stint<A::Partial>>) {
    for stint in stints {
        match track.pop() {
            Some(before) if before.context == stint.context => {
                let partial = analysis.merge(before.partial, stint.partial);
                track.push(Stint { partial, since: before.since.or(stint.since), ..before });
            }
            before => {
                track.extend(before);
                track.push(stint);
            }
        }
    }
}

/// One state for each thread, whatever tracks it ran on.
fn by_thread<A: Analysis>(
    experiment: &Experiment<'_>,
    analysis: &A,
    tracks: BTreeMap<usize, Vec<Stint<A::Partial>>>,
) -> Vec<A::Partial> {
    let mut threads: BTreeMap<u32, Vec<Stint<A::Partial>>> = BTreeMap::new();
    for stint in tracks.into_values().flatten().filter(|stint| experiment.wants(stint.context)) {
        threads.entry(stint.context).or_default().push(stint);
    }
    let mut list: Vec<_> = threads.into_iter().collect();
    list.sort_by_key(|&(context, _)| experiment.threads.get(context as usize).copied());
    let whole = |(_, mut stints): (u32, Vec<Stint<A::Partial>>)| {
        stints.sort_by_key(|stint| stint.since);
        let partials = stints.into_iter().map(|stint| stint.partial);
        partials.reduce(|earlier, later| analysis.merge(earlier, later)).expect("a thread has a stint")
    };
    list.into_iter().map(whole).collect()
}

/// Takes in what threads show.
pub(crate) trait Take {
    /// Something was seen of the thread with this context.
    fn take(&mut self, context: u32, seen: Seen<'_>);

    /// The thread with this context runs from here on; at this tick, where it is known.
    fn switch(&mut self, _context: u32, _since: Option<Tsc>) {}
}

/// Folds what threads show into stints of an analysis.
struct Folder<'a, A: Analysis> {
    analysis: &'a A,
    stints: Vec<Stint<A::Partial>>,
}

impl<A: Analysis> Take for Folder<'_, A> {
    #[inline]
    fn take(&mut self, _: u32, seen: Seen<'_>) {
        if let Some(stint) = self.stints.last_mut() {
            self.analysis.fold(&mut stint.partial, seen);
        }
    }

    fn switch(&mut self, context: u32, since: Option<Tsc>) {
        match self.stints.last_mut() {
            Some(stint) if stint.context == context => stint.since = stint.since.or(since),
            _ => self.stints.push(Stint { context, since, partial: self.analysis.unknown() }),
        }
    }
}

/// From the flow of a track to what its threads show, within the times to look at.
pub(crate) struct SeenSink<'x, 'f, T> {
    taker: T,
    experiment: &'x Experiment<'f>,
    reading: Reading,
    clock: Option<PerfClock>,
    /// The context that each segment begins with.
    first: u32,
    context: u32,
    /// The segment's clock was not told yet.
    fresh: bool,
    /// The tick that this segment told last.
    now: Option<Tsc>,
    /// The time is one to look at.
    open: bool,
    /// Flow is missing since the last time, which was none to look at.
    gap_before: bool,
    /// The thread is one to look at.
    wanted: bool,
}

impl<'x, 'f, T: Take> SeenSink<'x, 'f, T> {
    pub(crate) fn new(taker: T, experiment: &'x Experiment<'f>, chunk: &Chunk, reading: Reading) -> Self {
        let first = experiment.tracks[chunk.track].schedule[0].context;
        let clock = experiment.recording.config.clock;
        let open = reading.window.is_none();
        SeenSink {
            taker,
            experiment,
            reading,
            clock,
            first,
            context: first,
            fresh: false,
            now: None,
            open,
            gap_before: false,
            wanted: experiment.wants(first),
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.taker
    }

    #[inline]
    fn take(&mut self, seen: Seen<'_>) {
        if self.fresh {
            self.fresh = false;
            self.take(Seen::Begin(None));
        }
        if self.open && self.wanted {
            self.taker.take(self.context, seen);
        }
    }

    /// The thread with this context runs.
    fn run(&mut self, context: u32) {
        self.context = context;
        self.wanted = self.experiment.wants(context);
        self.taker.switch(context, self.now);
    }

    fn time(&mut self, now: Tsc) {
        let was_open = self.open;
        let opens = self.reading.wants(now);
        if was_open && !opens {
            self.take(Seen::End);
        }
        (self.open, self.now) = (opens, Some(now));
        let clock = self.clock.map(|clock| clock.nanos(now));
        self.taker.switch(self.context, Some(now));
        if std::mem::take(&mut self.gap_before) && opens {
            [Seen::Begin(None), Seen::Gap, Seen::End].into_iter().for_each(|seen| self.take(seen));
        }
        if self.fresh || !was_open {
            self.fresh = false;
            self.take(Seen::Begin(clock));
        } else if let Some(clock) = clock {
            self.take(Seen::Time(clock));
        }
    }
}

impl<T: Take> TrackSink for SeenSink<'_, '_, T> {
    fn begin_segment(&mut self) {
        self.now = None;
        self.run(self.first);
        self.fresh = true;
    }

    fn end_segment(&mut self) {
        self.take(Seen::End);
    }
}

impl<T: Take> Sink for SeenSink<'_, '_, T> {
    #[inline]
    fn executed(&mut self, executed: Executed<'_>) {
        let block = executed.block;
        let (at, instructions) = (arrival(&executed), executed.lengths.len() as u64);
        self.take(Seen::Run { at, instructions, code: code(&executed) });
        if executed.is_whole() {
            match block.terminator {
                Terminator::Call | Terminator::IndirectCall if block.is_call() => {
                    self.take(Seen::Call { return_address: block.end });
                }
                Terminator::Return => self.take(Seen::Return),
                Terminator::IndirectJump => self.take(Seen::IndirectJump),
                _ => {}
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => self.time(now),
            Event::Switch(context) => self.run(context),
            Event::Enabled(_) | Event::Asynchronous { .. } => self.take(Seen::Enter),
            Event::Disabled { to, .. } => self.take(Seen::Leave { to }),
            Event::Gap(_) if self.open => self.take(Seen::Gap),
            Event::Gap(_) => self.gap_before = true,
            _ => {}
        }
    }
}

/// Where a block begins, in the words of analyses.
#[inline]
fn arrival(executed: &Executed<'_>) -> Arrival {
    let block = executed.block;
    let function = FunctionId { module: block.label.module, index: block.label.function };
    let place = match block.label.at_entry {
        Some(true) => Place::Entry,
        Some(false) => Place::Middle,
        None => Place::Unknown,
    };
    Arrival { address: block.start, function, place }
}

/// What ran of a block, in the words of analyses.
#[inline]
fn code<'a>(executed: &Executed<'a>) -> Code<'a> {
    let block = executed.block;
    let lengths = executed.lengths;
    let (offset, since) = (block.origin.offset, block.valid.start);
    if !executed.is_whole() {
        let target = lengths.iter().fold(block.start, |at, &length| at.wrapping_add(u64::from(length)));
        return Code { offset, since, lengths, end: End::Next, target };
    }
    let end = match block.terminator {
        Terminator::None => End::Next,
        Terminator::Conditional => End::Conditional,
        Terminator::Jump => End::Jump,
        Terminator::Call | Terminator::IndirectCall if block.is_call() => End::Call,
        Terminator::Call | Terminator::IndirectCall => End::Jump,
        Terminator::Return => End::Return,
        Terminator::IndirectJump => End::Indirect,
        Terminator::Far => End::Far,
    };
    Code { offset, since, lengths, end, target: block.target }
}
