//! Analyses over the chunks of an experiment.

use std::collections::BTreeMap;

use hodo_clock::{PerfClock, Tsc};
use hodo_code::{Block, Terminator};
use hodo_intel_pt::flow::{Event, Executed, Sink};
use hodo_trace::{Analysis, Arrival, FunctionId, Place, Seen, Table};

use crate::{
    Chunk, Experiment, Losses, Window,
    parallel::in_order,
    segments::{self, TrackSink},
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
    mut progress: impl FnMut(u64) -> bool,
) -> Table {
    let chunks = experiment.chunks(reading.chunk_size);
    let mut losses = experiment.recorded_losses();
    let mut tracks: BTreeMap<usize, Vec<Stint<A::Partial>>> = BTreeMap::new();
    let mut done = 0;
    in_order(
        &chunks,
        reading.threads,
        || experiment.programs(),
        |programs, chunk: &Chunk| {
            let first = experiment.tracks[chunk.track].schedule[0].context;
            let mut losses = Losses::default();
            let clock = experiment.recording.config.clock;
            let mut sink = FoldSink::new(analysis, reading, clock, first);
            segments::decode(experiment, chunk, programs, &mut losses, &mut sink);
            (chunk.track, chunk.bytes(), sink.stints, losses)
        },
        |(track, bytes, stints, of_chunk)| {
            join(analysis, tracks.entry(track).or_default(), stints);
            of_chunk.into_list().into_iter().for_each(|loss| losses.add(loss));
            done += bytes;
            progress(done)
        },
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
    for stint in tracks.into_values().flatten() {
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

/// Tells an analysis what a track shows.
struct FoldSink<'a, A: Analysis> {
    analysis: &'a A,
    reading: Reading,
    clock: Option<PerfClock>,
    /// The context that each segment begins with.
    first: u32,
    stints: Vec<Stint<A::Partial>>,
    /// The segment's clock was not told yet.
    fresh: bool,
    /// The time is one to look at.
    open: bool,
}

impl<'a, A: Analysis> FoldSink<'a, A> {
    fn new(analysis: &'a A, reading: Reading, clock: Option<PerfClock>, first: u32) -> Self {
        let open = reading.window.is_none();
        FoldSink { analysis, reading, clock, first, stints: Vec::new(), fresh: false, open }
    }

    #[inline]
    fn fold(&mut self, seen: Seen) {
        if self.fresh {
            self.fresh = false;
            self.fold(Seen::Begin(None));
        }
        if self.open
            && let Some(stint) = self.stints.last_mut()
        {
            self.analysis.fold(&mut stint.partial, seen);
        }
    }

    fn switch(&mut self, context: u32) {
        if self.stints.last().is_none_or(|stint| stint.context != context) {
            self.stints.push(Stint { context, since: None, partial: self.analysis.unknown() });
        }
    }

    fn time(&mut self, now: Tsc) {
        let was_open = self.open;
        self.open = self.reading.wants(now);
        let clock = self.clock.map(|clock| clock.nanos(now));
        if let Some(stint) = self.stints.last_mut() {
            stint.since.get_or_insert(now);
        }
        if self.fresh || !was_open {
            self.fresh = false;
            self.fold(Seen::Begin(clock));
        } else if let Some(clock) = clock {
            self.fold(Seen::Time(clock));
        }
    }
}

impl<A: Analysis> TrackSink for FoldSink<'_, A> {
    fn begin_segment(&mut self) {
        self.switch(self.first);
        self.fresh = true;
    }
}

impl<A: Analysis> Sink for FoldSink<'_, A> {
    #[inline]
    fn executed(&mut self, executed: Executed<'_>) {
        let block = executed.block;
        self.fold(Seen::Run { at: arrival(block), instructions: executed.lengths.len() as u64 });
        if executed.is_whole() {
            match block.terminator {
                Terminator::Call | Terminator::IndirectCall if block.is_call() => {
                    self.fold(Seen::Call { return_address: block.end });
                }
                Terminator::Return => self.fold(Seen::Return),
                Terminator::IndirectJump => self.fold(Seen::IndirectJump),
                _ => {}
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => self.time(now),
            Event::Switch(context) => self.switch(context),
            Event::Enabled(_) | Event::Asynchronous { .. } => self.fold(Seen::Enter),
            Event::Disabled { .. } => self.fold(Seen::Leave),
            Event::Gap(_) => self.fold(Seen::Gap),
        }
    }
}

/// Where a block begins, in the words of analyses.
#[inline]
fn arrival(block: &Block) -> Arrival {
    let function = FunctionId { module: block.label.module, index: block.label.function };
    let place = match block.label.at_entry {
        Some(true) => Place::Entry,
        Some(false) => Place::Middle,
        None => Place::Unknown,
    };
    Arrival { address: block.start, function, place }
}
