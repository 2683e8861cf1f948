//! What threads show, each in order of time, whatever CPUs they ran on.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
};

use hodo_analyses::{
    FrameEntry,
    calls::{Calls, Moment},
};
use hodo_clock::Tsc;
use hodo_trace::{FunctionId, Run, Seen};

use crate::{
    Chunk, Experiment, Losses, Reading, Spans,
    experiment::tsc_after,
    fold::{SeenSink, Take},
    gate::Gate,
    segments::decode_chunks,
};

/// What a thread showed without interruption.
struct Stint {
    context: u32,
    since: Option<Tsc>,
    seen: Vec<Seen<'static>>,
}

/// What was seen in a chunk, kept for the thread that goes on with it.
struct Recorded {
    stints: Vec<Stint>,
    paths: Paths,
}

/// What is seen on paths that run again and again.
#[derive(Default)]
struct Paths {
    seen: Vec<Seen<'static>>,
    /// Where the paths end; each begins where the one before ends.
    ends: Vec<usize>,
}

impl Take for Recorded {
    #[inline]
    fn take(&mut self, context: u32, seen: Seen<'_>) {
        if self.stints.last().is_none_or(|stint| stint.context != context) {
            self.stints.push(Stint { context, since: None, seen: Vec::new() });
        }
        if let Some(stint) = self.stints.last_mut() {
            push(&mut stint.seen, seen.without_lengths());
        }
    }

    /// What a path shows is the same in any state.
    fn state(&mut self) -> Option<u32> {
        Some(0)
    }

    fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        let mut seen = Vec::new();
        runs.flat_map(Run::seen).for_each(|one| push(&mut seen, one));
        self.paths.seen.append(&mut seen);
        self.paths.ends.push(self.paths.seen.len());
        Some((self.paths.ends.len() as u32 - 1, state))
    }

    #[inline]
    fn take_path(&mut self, context: u32, path: u32) {
        let path = path as usize;
        let start = path.checked_sub(1).map_or(0, |before| self.paths.ends[before]);
        let [first, more @ ..] = &self.paths.seen[start..self.paths.ends[path]] else { return };
        match self.stints.last_mut() {
            Some(stint) if stint.context == context => {
                push(&mut stint.seen, *first);
                stint.seen.extend_from_slice(more);
            }
            _ => self.stints.push(Stint { context, since: None, seen: [&[*first], more].concat() }),
        }
    }

    fn forget(&mut self) {
        self.paths = Paths::default();
    }

    fn switch(&mut self, context: u32, since: Option<Tsc>) {
        match self.stints.last_mut() {
            Some(stint) if stint.context == context => stint.since = stint.since.or(since),
            _ => self.stints.push(Stint { context, since, seen: Vec::new() }),
        }
    }
}

/// Adds what is seen next. Runs that follow each other in one function are one to a call.
#[inline]
fn push(all: &mut Vec<Seen<'static>>, seen: Seen<'static>) {
    if let (Seen::Run { at, instructions, .. }, Some(Seen::Run { at: last, instructions: sum, .. })) =
        (&seen, all.last_mut())
        && last.function == at.function
    {
        *sum += instructions;
        return;
    }
    all.push(seen);
}

/// Whether threads share streams, as they do in recordings of CPUs.
pub(crate) fn shared_streams(experiment: &Experiment<'_>) -> bool {
    experiment.tracks.iter().any(|track| track.thread.is_none())
}

/// Hands what each thread shows to `consume`, in order: one stream after the other where each is of one
/// thread, else the stints of all CPUs in order of time. `consume` and `progress` tell whether to go on.
pub(crate) fn in_time(
    experiment: &Experiment<'_>,
    reading: Reading<'_>,
    mut consume: impl FnMut(u32, Vec<Seen<'static>>) -> bool,
    progress: impl FnMut(u64) -> bool,
) -> Losses {
    let mut chunks = experiment.chunks(reading.chunk_size);
    let mut starts = VecDeque::new();
    if shared_streams(experiment) && experiment.tracks.len() > 1 {
        let mut timed: Vec<(Tsc, Chunk)> = with_starts(experiment, chunks);
        timed.sort_by_key(|(start, chunk)| (*start, chunk.index));
        starts = timed.iter().map(|&(start, _)| start).skip(1).collect();
        chunks = timed.into_iter().map(|(_, chunk)| chunk).collect();
    }
    // What later chunks may still be earlier than waits; the number keeps what has no time in its place.
    let mut waiting: BTreeMap<(Option<Tsc>, u64), Stint> = BTreeMap::new();
    let mut number = 0;
    decode_chunks(
        experiment,
        &chunks,
        reading,
        |chunk, paths| {
            SeenSink::new(Recorded { stints: Vec::new(), paths }, Gate::new(experiment, chunk, reading))
        },
        |_| None,
        |sink| {
            let Recorded { stints, paths } = sink.into_inner();
            (stints, paths)
        },
        |_, stints| {
            let in_stints = stints.into_iter().filter(|stint| !stint.seen.is_empty());
            if starts.is_empty() && waiting.is_empty() {
                return in_stints.into_iter().all(|stint| consume(stint.context, stint.seen));
            }
            for stint in in_stints {
                number += 1;
                waiting.insert((stint.since, number), stint);
            }
            let horizon = starts.pop_front();
            while let Some(entry) = waiting.first_entry() {
                if horizon.is_some_and(|horizon| entry.key().0 >= Some(horizon)) {
                    break;
                }
                let stint = entry.remove();
                if !consume(stint.context, stint.seen) {
                    return false;
                }
            }
            true
        },
        progress,
    )
}

/// The chunks, each with a time that nothing in it or in later chunks of its track is before.
fn with_starts(experiment: &Experiment<'_>, chunks: Vec<Chunk>) -> Vec<(Tsc, Chunk)> {
    let (mut track, mut start) = (usize::MAX, Tsc(0));
    let mut starts = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        if chunk.track != track {
            (track, start) = (chunk.track, Tsc(0));
        }
        let run = &experiment.tracks[chunk.track].runs[chunk.run];
        let first = run.find_psb_within(chunk.span.clone());
        let tsc = first.and_then(|at| tsc_after(&run.bytes(at..(at + 256).min(run.length()))));
        start = start.max(tsc.unwrap_or(start));
        starts.push((start, chunk));
    }
    starts
}

/// Which calls of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NthCalls {
    /// The function.
    pub function: FunctionId,
    /// Which calls of it by each thread, counted from 1 in the order in which they begin.
    pub numbers: RangeInclusive<u64>,
}

/// Finds when each thread ran some calls of a function: from its first instruction to its return, with all
/// that it called. `progress` is told the bytes that were decoded, and returns whether to go on.
pub fn find_calls(
    experiment: &Experiment<'_>,
    calls: &NthCalls,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool,
) -> Spans {
    let reading = Reading { window: None, numbers: None, spans: None, ..reading };
    let mut threads: BTreeMap<u32, (Calls, Finder)> = BTreeMap::new();
    in_time(
        experiment,
        reading,
        |context, seen| {
            let (stack, finder) =
                threads.entry(context).or_insert_with(|| (Calls::new(), Finder::new(calls.clone())));
            seen.into_iter().for_each(|seen| stack.follow(seen, &mut |moment| finder.moment(&moment)));
            true
        },
        progress,
    );
    let mut spans = Spans::default();
    for (context, (stack, mut finder)) in threads {
        stack.end(&mut |moment| finder.moment(&moment));
        let found = finder.into_spans();
        if !found.is_empty() {
            spans.by_context.insert(context, found);
        }
    }
    spans
}

/// Counts the calls of a function by a thread.
struct Finder {
    calls: NthCalls,
    begun: u64,
    /// Numbers of the first instructions of those that were chosen and have not ended.
    open: Vec<u64>,
    found: Vec<std::ops::Range<u64>>,
}

impl Finder {
    fn new(calls: NthCalls) -> Finder {
        Finder { calls, begun: 0, open: Vec::new(), found: Vec::new() }
    }

    fn moment(&mut self, moment: &Moment) {
        match moment {
            // What ran already when the trace began, or after a gap, was not called there.
            Moment::Begin { function, entry, before, .. }
                if *function == self.calls.function && *entry != FrameEntry::Root =>
            {
                self.begun += 1;
                if self.calls.numbers.contains(&self.begun) {
                    self.open.push(*before);
                }
            }
            Moment::End { call }
                if call.function == self.calls.function
                    && self.open.pop_if(|before| *before == call.before).is_some() =>
            {
                self.found.push(call.before..call.before + call.instructions);
            }
            _ => {}
        }
    }

    /// Calls within calls are part of these.
    fn into_spans(mut self) -> Vec<std::ops::Range<u64>> {
        self.found.sort_by_key(|span| span.start);
        self.found.dedup_by(|next, before| {
            let overlap = next.start < before.end;
            before.end = if overlap { before.end.max(next.end) } else { before.end };
            overlap
        });
        self.found
    }
}
