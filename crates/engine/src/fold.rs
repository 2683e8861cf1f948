//! Analyses over the chunks of an experiment.

use std::collections::BTreeMap;

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_code::{Graph, Labels};
use hodo_intel_pt::flow::{Event, Executed, Sink, Step};
use hodo_trace::{
    Arrival, Choice, FastFlow, FunctionId, Item, Numbering, Place, Run, Seen, Start, Stretch, Table,
    Transfer, Whole, kernel::Threads,
};

use crate::{
    Chunk, ChunkSize, FlowTrace, Losses, Numbers, Spans, Window,
    early::Early,
    gate::Gate,
    seen::{OfGraph, arrival, code, run},
    segments::{TrackSink, decode_chunks},
};

/// How to read an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Threads that decode.
    pub threads: usize,
    /// How much is decoded at a time.
    pub chunk_size: ChunkSize,
    /// Times to look at; all where `None`.
    pub window: Option<Window>,
    /// The numbers of the chunks' first instructions, for those who need them.
    pub numbers: Option<&'a Numbers>,
    /// Parts of the threads to look at, which need numbers; all where `None`.
    pub spans: Option<&'a Spans>,
    /// Whether what packets did is remembered, which is faster and changes no result.
    pub memo: bool,
}

impl Reading<'_> {
    /// Whether what happened up to `now` is to be looked at.
    pub(crate) fn wants(&self, now: Tsc) -> bool {
        self.window.is_none_or(|window| window.from <= now && now < window.to)
    }
}

/// A part of a thread's execution on one track.
pub(crate) struct Stint<P> {
    pub(crate) context: u32,
    /// Tick at which it began, where known.
    pub(crate) since: Option<Tsc>,
    pub(crate) partial: P,
}

/// The partials of some chunks: of each track, its stints in order.
pub(crate) type Tracks<P> = BTreeMap<usize, Vec<Stint<P>>>;

/// Folds an analysis over all tracks. `progress` is told the bytes that were decoded, and returns whether
/// to go on.
pub fn profile<A: FastFlow>(
    experiment: &FlowTrace<'_>,
    analysis: &A,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> Table {
    let (threads, losses) = fold(experiment, analysis, reading, progress);
    let (choice, known) = (Choice::default(), Threads::default());
    let whole = Whole::without_events(&choice, &known, &experiment.modules);
    analysis.finish(threads, &whole).with_loss(losses.into_list())
}

/// What [`profile`] makes a table of: the state of each thread, and what is missing.
pub(crate) fn fold<A: FastFlow>(
    experiment: &FlowTrace<'_>,
    analysis: &A,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> (Vec<A::Partial>, Losses) {
    let chunks = experiment.chunks(reading.chunk_size);
    let (tracks, losses) = fold_chunks(experiment, analysis, &chunks, reading, progress);
    let merge = |earlier, later| analysis.merge(earlier, later, &Threads::default());
    (by_thread(experiment, tracks, merge), losses)
}

/// Folds some chunks.
pub(crate) fn fold_chunks<A: FastFlow>(
    experiment: &FlowTrace<'_>,
    analysis: &A,
    chunks: &[Chunk],
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> (Tracks<A::Partial>, Losses) {
    let mut tracks = Tracks::new();
    let losses = decode_chunks(
        experiment,
        chunks,
        reading,
        |chunk, memory| {
            let folder = Folder { analysis, stints: Vec::new(), memory };
            SeenSink::new(folder, Gate::new(experiment, chunk, reading))
        },
        |_| None,
        |sink| sink.into_inner().finish(),
        |chunk, stints| {
            let merge = |earlier, later| analysis.merge(earlier, later, &Threads::default());
            join(tracks.entry(chunk.track).or_default(), stints, merge);
            true
        },
        progress,
    );
    (tracks, losses)
}

/// Adds the stints of a chunk to those of its track.
pub(crate) fn join<P>(track: &mut Vec<Stint<P>>, stints: Vec<Stint<P>>, merge: impl Fn(P, P) -> P) {
    for stint in stints {
        match track.pop() {
            Some(before) if before.context == stint.context => {
                let partial = merge(before.partial, stint.partial);
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
pub(crate) fn by_thread<P>(
    experiment: &FlowTrace<'_>,
    tracks: Tracks<P>,
    merge: impl Fn(P, P) -> P,
) -> Vec<P> {
    let mut threads: BTreeMap<u32, Vec<Stint<P>>> = BTreeMap::new();
    for stint in tracks.into_values().flatten().filter(|stint| experiment.wants(stint.context)) {
        threads.entry(stint.context).or_default().push(stint);
    }
    let mut list: Vec<_> = threads.into_iter().collect();
    list.sort_by_key(|&(context, _)| experiment.threads.get(context as usize).copied());
    let whole = |(_, mut stints): (u32, Vec<Stint<P>>)| {
        stints.sort_by_key(|stint| stint.since);
        let partials = stints.into_iter().map(|stint| stint.partial);
        partials.reduce(&merge).expect("a thread has a stint")
    };
    list.into_iter().map(whole).collect()
}

/// Takes in what threads show.
pub(crate) trait Take {
    /// Something was seen of the thread with this context.
    fn take(&mut self, context: u32, seen: Seen<'_>);

    /// Whether it may be told of stretches, joined as far as they are of one function, in place of each block.
    const TAKES_STRETCHES: bool;

    /// Stretches were seen of the thread that runs, whose functions a source numbers (0 does not); and then this time,
    /// if one is given.
    fn take_stretches(&mut self, functions: &impl Numbering, stretches: &[Stretch], until: Option<Nanos>);

    /// Whether it may take paths in place of runs.
    fn takes_paths(&self) -> bool {
        true
    }

    /// What runs mean to it depends on this, and on nothing else; `None` where they may not be a path.
    fn state(&mut self) -> Option<u32>;

    /// Learns a path from a state: its number, and the state behind it.
    fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)>;

    /// A path of the thread with this context was seen.
    fn take_path(&mut self, context: u32, path: u32);

    /// Paths led to this state.
    fn resume(&mut self, _state: u32) {}

    /// Nobody will name the paths and states so far any more.
    fn forget(&mut self);

    /// The thread with this context runs from here on; at this tick, where it is known.
    fn switch(&mut self, _context: u32, _since: Option<Tsc>) {}
}

/// Folds what threads show into stints of an analysis.
struct Folder<'a, A: FastFlow> {
    analysis: &'a A,
    stints: Vec<Stint<A::Partial>>,
    /// What is remembered of paths, while no stint has it.
    memory: A::Memory,
}

impl<A: FastFlow> Folder<'_, A> {
    /// Lends what is remembered to the last stint, or takes it back.
    fn exchange(&mut self) {
        if let Some(stint) = self.stints.last_mut() {
            self.analysis.exchange(&mut stint.partial, &mut self.memory);
        }
    }

    fn finish(mut self) -> (Vec<Stint<A::Partial>>, A::Memory) {
        self.exchange();
        (self.stints, self.memory)
    }
}

impl<A: FastFlow> Take for Folder<'_, A> {
    #[inline(always)]
    fn take(&mut self, _: u32, seen: Seen<'_>) {
        if let Some(stint) = self.stints.last_mut() {
            self.analysis.fold(&mut stint.partial, Item::Flow(seen));
        }
    }

    const TAKES_STRETCHES: bool = A::TAKES_STRETCHES;

    #[inline]
    fn take_stretches(&mut self, functions: &impl Numbering, stretches: &[Stretch], until: Option<Nanos>) {
        if let Some(stint) = self.stints.last_mut() {
            self.analysis.fold_stretches(&mut stint.partial, functions, stretches, until);
        }
    }

    fn state(&mut self) -> Option<u32> {
        self.analysis.state(&mut self.stints.last_mut()?.partial)
    }

    fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.analysis.learn(&mut self.stints.last_mut()?.partial, state, runs)
    }

    #[inline]
    fn take_path(&mut self, _: u32, path: u32) {
        if let Some(stint) = self.stints.last_mut() {
            self.analysis.fold_path(&mut stint.partial, path);
        }
    }

    fn resume(&mut self, state: u32) {
        if let Some(stint) = self.stints.last_mut() {
            self.analysis.resume(&mut stint.partial, state);
        }
    }

    fn forget(&mut self) {
        self.exchange();
        self.memory = A::Memory::default();
        self.exchange();
    }

    fn switch(&mut self, context: u32, since: Option<Tsc>) {
        match self.stints.last_mut() {
            Some(stint) if stint.context == context => stint.since = stint.since.or(since),
            _ => {
                self.exchange();
                self.stints.push(Stint { context, since, partial: self.analysis.begin(&Start::default()) });
                self.exchange();
            }
        }
    }
}

/// From the flow of a track to what its threads show, as far as it is asked for.
pub(crate) struct SeenSink<'x, 'f, T> {
    taker: T,
    gate: Gate<'x, 'f>,
    clock: Option<PerfClock>,
    /// The segment's clock was not told yet.
    fresh: bool,
    /// Whether what went on since the last time that is to be looked at was told; else it is told of the
    /// thread where it is taken up again.
    open: bool,
    /// What happened before the segment's first time, which decides whether to look at it.
    early: Early,
    /// Whether blocks are joined, for now.
    joins: bool,
    /// What ran since the last run that was told; of no instruction where nothing did.
    run: Run,
}

/// A run is told in parts where so many instructions ran.
const LONG: u64 = 1 << 30;

/// Nothing ran.
const NO_RUN: Run = Run {
    at: Arrival { address: 0, function: FunctionId { module: 0, index: 0 }, place: Place::Unknown },
    instructions: 0,
    transfer: Transfer::None,
    end: 0,
};

impl<'x, 'f, T: Take> SeenSink<'x, 'f, T> {
    pub(crate) fn new(taker: T, gate: Gate<'x, 'f>) -> Self {
        let clock = gate.experiment.recording.config.clock;
        let open = gate.open;
        let early = Early::default();
        SeenSink { taker, gate, clock, fresh: false, open, early, joins: false, run: NO_RUN }
    }

    #[inline]
    pub(crate) fn taker(&mut self) -> &mut T {
        &mut self.taker
    }

    pub(crate) fn into_inner(self) -> T {
        self.taker
    }

    #[inline]
    fn take(&mut self, seen: Seen<'_>) {
        if self.fresh {
            if !self.open {
                self.early.push(seen);
                return;
            }
            self.fresh = false;
            self.tell(Seen::Begin(None));
        }
        self.tell(seen);
    }

    #[inline]
    fn tell(&mut self, seen: Seen<'_>) {
        if self.open && self.gate.wanted {
            self.taker.take(self.gate.context, seen);
        }
    }

    /// Adds what ran of a block to the run, which is told where it ends.
    #[inline]
    fn join(&mut self, executed: &Executed<'_>) {
        let block = executed.block;
        if self.run.instructions >= LONG {
            self.tell_run();
        }
        self.begin_run(arrival(block.start, block.label));
        self.run.instructions += executed.lengths.len() as u64;
        if executed.is_whole() {
            self.end_run(block.transfer(), || block.end);
        }
    }

    /// Begins a run, unless it goes on with the one before.
    #[inline]
    fn begin_run(&mut self, at: Arrival) {
        if self.run.instructions == 0 || self.run.at.function != at.function {
            self.tell_run();
            self.run.at = at;
        }
    }

    /// Ends a run, if that is what its last block does; with a call, at this address.
    #[inline]
    fn end_run(&mut self, transfer: Transfer, end: impl FnOnce() -> u64) {
        self.run.transfer = transfer;
        if self.run.transfer == Transfer::Call {
            self.run.end = end();
        }
        if self.run.transfer != Transfer::None {
            self.tell_run();
        }
    }

    /// Tells what ran, if anything did.
    #[inline]
    fn tell_run(&mut self) {
        if self.run.instructions > 0 {
            self.gate.ran(self.run.instructions);
            let Run { at: Arrival { address: start, function, place }, instructions, transfer, end } =
                self.run;
            let (begins, until) = (Stretch::begins(0, place), instructions as u32);
            self.taker.take_stretches(&function, &[Stretch { start, begins, until, transfer, end }], None);
            self.run.instructions = 0;
            self.run.transfer = Transfer::None;
        }
    }

    /// Whether nothing stands between what runs and who takes it.
    #[inline]
    fn is_direct(&self) -> bool {
        !self.fresh && self.open && self.gate.wanted && !self.gate.numbers_instructions()
    }

    /// Whether the next time is not the first one, nor one that something begins with.
    #[inline]
    fn goes_on(&self) -> bool {
        self.gate.now.is_some() && self.is_direct()
    }

    /// The thread runs whose turn it is at the gate.
    fn resume_thread(&mut self) {
        self.taker.switch(self.gate.context, self.gate.now);
        if let Some(number) = self.gate.number() {
            self.tell(Seen::Number(number));
        }
    }

    fn clock(&self) -> Option<Nanos> {
        Some(self.clock?.nanos(self.gate.now?))
    }

    #[inline]
    fn time(&mut self, now: Tsc) {
        let goes_on = self.goes_on();
        self.gate.time(now);
        if !(goes_on && self.gate.open) {
            return self.time_anew();
        }
        if let Some(clock) = self.clock() {
            self.taker.take(self.gate.context, Seen::Time(clock));
        }
    }

    /// The clock was told, where that may begin or end what is to be looked at.
    fn time_anew(&mut self) {
        let was_open = std::mem::replace(&mut self.open, self.gate.open);
        let opens = self.open;
        if was_open && !opens {
            self.open = true;
            self.tell(Seen::End);
            self.open = false;
        }
        self.resume_thread();
        if self.fresh || (opens && !was_open) {
            self.fresh = false;
            self.begin();
        } else if let Some(clock) = self.clock() {
            self.tell(Seen::Time(clock));
        }
    }

    /// The segment begins, or what is to be looked at does, and the clock was told.
    fn begin(&mut self) {
        if !self.open {
            self.early.clear();
        }
        if self.early.is_empty() {
            return self.tell(Seen::Begin(self.clock()));
        }
        self.tell(Seen::Begin(None));
        if let Some(number) = self.gate.number() {
            self.tell(Seen::Number(number - self.early.ran()));
        }
        let mut early = std::mem::take(&mut self.early);
        early.tell(|seen| self.tell(seen));
        self.early = early;
        if let Some(clock) = self.clock() {
            self.tell(Seen::Time(clock));
        }
    }

    fn other_event(&mut self, event: &Event) {
        match *event {
            Event::Switch(context) => self.switch(context),
            Event::Enabled(_) => self.take(Seen::Enter),
            Event::Asynchronous { from, .. } => {
                self.take(Seen::Leave { next: Some(from) });
                self.take(Seen::Enter);
            }
            Event::Disabled { from, to, .. } => self.take(Seen::Leave { next: from.or(to) }),
            Event::Gap(_) => self.take(Seen::Gap),
            _ => {}
        }
    }

    /// Another thread runs: what ran until now ran until the clock as it stands. Threads change by the clock, so
    /// nothing is early then.
    fn switch(&mut self, context: u32) {
        let runs = !self.fresh;
        if runs {
            self.tell(Seen::End);
        }
        self.gate.switch(context);
        self.resume_thread();
        if runs {
            self.tell(Seen::Begin(self.clock()));
        }
    }
}

impl<T: Take> TrackSink for SeenSink<'_, '_, T> {
    fn begin_segment(&mut self) {
        self.gate.begin_segment();
        self.open = self.gate.open;
        self.fresh = true;
        self.early.clear();
        self.joins = false;
        self.resume_thread();
    }

    fn end_segment(&mut self) {
        self.tell_run();
        self.joins = false;
        if self.fresh && !self.open {
            return self.early.clear();
        }
        self.take(Seen::End);
    }

    fn untimed(&self) -> u64 {
        match () {
            () if !self.gate.wanted => 0,
            () if self.fresh => self.early.instructions(),
            () => self.early.left_out(),
        }
    }
}

impl<T: Take> Sink for SeenSink<'_, '_, T> {
    #[inline]
    fn executed(&mut self, executed: Executed<'_>) {
        if self.joins {
            return self.join(&executed);
        }
        let block = executed.block;
        let (at, instructions) = (arrival(block.start, block.label), executed.lengths.len() as u64);
        if !self.gate.ran(instructions) {
            return self.take(Seen::Skip { instructions });
        }
        self.take(Seen::Run { at, instructions, code: code(&executed) });
        if executed.is_whole() {
            match block.transfer() {
                Transfer::Call => self.take(Seen::Call { return_address: block.end }),
                Transfer::Return => self.take(Seen::Return),
                Transfer::IndirectJump => self.take(Seen::IndirectJump),
                Transfer::None => {}
            }
        }
        self.joins = T::TAKES_STRETCHES && self.is_direct();
    }

    #[inline]
    fn takes_stretches(&self) -> bool {
        self.joins
    }

    #[inline]
    fn stretches<L: Labels>(&mut self, stretches: &[Stretch], graph: &Graph<'_, L>, until: Option<Tsc>) {
        self.tell_run();
        // A time may also be one that is not to be looked at.
        let goes_on = until.filter(|&until| self.goes_on() && self.gate.wants(until));
        let time = self.clock.zip(goes_on).map(|(clock, until)| clock.nanos(until));
        self.taker.take_stretches(&OfGraph(graph), stretches, time);
        self.gate.ran(Stretch::instructions(stretches));
        match until {
            Some(until) if time.is_some() => self.gate.time(until),
            Some(until) => self.event(Event::Time(until)),
            None => {}
        }
    }

    #[inline]
    fn takes_paths(&self) -> bool {
        self.is_direct() && self.taker.takes_paths()
    }

    fn state(&mut self) -> Option<u32> {
        self.tell_run();
        if self.takes_paths() { self.taker.state() } else { None }
    }

    fn learn<L: Labels>(&mut self, state: u32, steps: &[Step], _: &Graph<'_, L>) -> Option<(u32, u32)> {
        self.taker.learn(state, steps.iter().map(run))
    }

    #[inline]
    fn path(&mut self, path: u32) {
        self.taker.take_path(self.gate.context, path);
    }

    fn resume(&mut self, state: u32) {
        self.taker.resume(state);
    }

    fn forget(&mut self) {
        self.tell_run();
        self.taker.forget();
    }

    #[inline(always)]
    fn event(&mut self, event: Event) {
        self.tell_run();
        match event {
            // Nearly all events.
            Event::Time(now) => self.time(now),
            // A segment is seen to begin with its first time.
            Event::Cycles(count) if !self.fresh || !self.early.is_empty() => self.take(Seen::Cycles(count)),
            _ => self.other_event(&event),
        }
        self.joins = T::TAKES_STRETCHES && self.is_direct();
    }
}
