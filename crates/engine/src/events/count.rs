//! How many events there are, of each name and stream.

use hodo_clock::{Cycles, OriginNanos};
use hodo_formats::ctf::{Cursor, Item, Trace};
use hodo_trace::{Loss, Table};

use super::{
    EventReading, EventTraces,
    counts::{Counts, Figures},
    filter::{Filter, Wanted},
    runs::{Run, each_of, runs},
};
use crate::Losses;

/// What was counted in a run, or in a stream.
#[derive(Default)]
pub(super) struct Counted {
    /// By index of the class.
    pub(super) events: Vec<u64>,
    pub(super) figures: Figures,
    pub(super) losses: Vec<Loss>,
}

/// Counts the wanted events; rows are what `view` says, events or streams. `progress` is told the bytes that were
/// read, and returns whether to go on.
pub fn count(
    traces: &EventTraces<'_>,
    wanted: &Wanted,
    view: &str,
    reading: &EventReading,
    progress: impl FnMut(u64) -> bool + Send,
) -> Table {
    let mut losses = Losses::default();
    traces.loss().into_iter().for_each(|loss| losses.add(loss));
    let runs = runs(traces, reading);
    let counts = count_runs(traces, wanted, runs, reading, &mut losses, progress);
    counts.table(view, losses)
}

/// Counts the wanted events of some runs.
pub(super) fn count_runs(
    traces: &EventTraces<'_>,
    wanted: &Wanted,
    runs: Vec<Run<'_, '_>>,
    reading: &EventReading,
    losses: &mut Losses,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Counts {
    let filter = (!wanted.is_all()).then(|| Filter::new(traces, wanted));
    let nothing = |trace: &Trace<'_>| trace.streams.iter().map(|_| Counted::default()).collect();
    let mut sums: Vec<Vec<Counted>> = traces.traces.iter().map(nothing).collect();
    let mut done = 0;
    let work = |run: &Run<'_, '_>| match &filter {
        Some(filter) => count_wanted(run, filter, reading),
        None => count_all(run, reading),
    };
    each_of(traces, &runs, reading, work, |run, counted: Counted| {
        sums[run.trace][run.stream].add(counted, losses);
        done += run.bytes;
        progress(done)
    });
    Counts::new(traces, sums)
}

fn count_all(run: &Run<'_, '_>, reading: &EventReading) -> Counted {
    let mut counted = Counted::new(run);
    let [mut one, mut other] = run.cursors();
    let clock = one.clock();
    // Times are looked at as the clock counts them.
    let without = reading.wants(None);
    let within = clock.map(|clock| clock.cycles(reading.from, reading.to));
    let within = within.unwrap_or(if without { Cycles::ALL } else { Cycles::NONE });
    let (mut first, mut last) = (u64::MAX, 0);
    let mut count = |class: u32, cycles: Option<u64>| {
        if cycles.map_or(without, |cycles| within.contains(cycles)) {
            counted.events[class as usize] += 1;
            (first, last) = cycles.map_or((first, last), |cycles| (first.min(cycles), last.max(cycles)));
        }
    };
    let mut lost = Vec::new();
    let mut lose = |time, item| match item {
        Item::Lost(of) if reading.wants(time) => lost.push(of),
        _ => {}
    };
    while let Some(is_other) = Cursor::go_over_both(&mut one, &mut other, &mut count) {
        let cursor = if is_other { &mut other } else { &mut one };
        let next = cursor.next_where(|_, class, cycles| {
            count(class, cycles);
            true
        });
        let Some((time, item)) = next else { break };
        lose(time, item);
    }
    for cursor in [&mut one, &mut other] {
        let mut over = |_, class, cycles| {
            count(class, cycles);
            false
        };
        std::iter::from_fn(|| cursor.next_where(&mut over)).for_each(|(time, item)| lose(time, item));
    }
    lost.iter().for_each(|lost| counted.lose(lost));
    if let Some(clock) = clock.filter(|_| first <= last) {
        counted.figures.span = Some((clock.nanos(first), clock.nanos(last)));
    }
    counted.losses = one.loss;
    counted.losses.append(&mut other.loss);
    counted
}

fn count_wanted(run: &Run<'_, '_>, filter: &Filter, reading: &EventReading) -> Counted {
    let mut counted = Counted::new(run);
    let mut cursor = run.cursor();
    while let Some((time, item)) = cursor.next_item() {
        if !reading.wants(time) {
            continue;
        }
        match item {
            Item::Event(parts) if filter.wants(run.trace, run.stream, &cursor.event(parts)) => {
                counted.events[parts.class as usize] += 1;
                counted.see(time);
            }
            Item::Event(_) => {}
            Item::Lost(lost) => counted.lose(&lost),
        }
    }
    counted.losses = cursor.loss;
    counted
}

impl Counted {
    fn new(run: &Run<'_, '_>) -> Counted {
        Counted { events: vec![0; run.classes().len()], ..Counted::default() }
    }

    /// Adds what was counted in another run of the stream.
    fn add(&mut self, other: Counted, losses: &mut Losses) {
        self.events.resize(self.events.len().max(other.events.len()), 0);
        self.events.iter_mut().zip(other.events).for_each(|(own, other)| *own += other);
        self.figures.add(other.figures);
        other.losses.into_iter().for_each(|loss| losses.add(loss));
    }

    #[inline]
    fn see(&mut self, time: Option<OriginNanos>) {
        let Some(time) = time else { return };
        let span = &mut self.figures.span;
        *span = Some(span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
    }

    fn lose(&mut self, lost: &hodo_formats::ctf::Lost) {
        let Figures { events_lost, packets_lost, .. } = &mut self.figures;
        let sum = if lost.packets { packets_lost } else { events_lost };
        *sum = sum.saturating_add(lost.count);
    }
}
