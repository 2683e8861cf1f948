//! Runs several analyses in one pass over kernel events.
//!
//! ```text
//! Records of each stream ──in order──► Threads: running thread ──► to each analysis, the events that it reads
//! ```
//!
//! Threads are tracked once for all analyses, and a base that several analyses share is folded once.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{Mutex, PoisonError},
    thread,
};

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize};

use crate::{
    AnyAnalysis, AnyPartial, FinishContext, Interest, Period, Selection, Sources, Start, Table, TableBuilder,
    kernel::{Chosen, EventIndex, Kind, Records, Threads, VOCABULARY, Wakeups},
};

/// Analyses that run together.
pub struct Pass<'a> {
    /// The requested analyses, then their bases that are not requested.
    analyses: Vec<&'a dyn AnyAnalysis>,
    /// The number of requested analyses.
    requested: usize,
    /// For each analysis, the index of the list of its events: analyses that read the same kinds share one.
    lists: Vec<usize>,
    by_kind: Vec<Needs>,
}

/// The readers of a kind of event.
#[derive(Clone, Debug, Default)]
struct Needs {
    /// Whether the thread state needs it.
    threads: bool,
    /// Indices of the lists that contain it.
    lists: Vec<usize>,
    /// Indices of the lists that contain it only if it contains its thread.
    reporting: Vec<usize>,
}

/// The kinds of events that an analysis reads.
#[derive(Debug, PartialEq, Eq)]
struct Kinds {
    all: BTreeSet<Kind>,
    /// Only those that contain their thread.
    reporting: BTreeSet<Kind>,
}

impl Kinds {
    fn of(interest: &Interest<'_>) -> Kinds {
        Kinds {
            all: interest.events.iter().map(|(kind, _)| *kind).collect(),
            reporting: interest.reporting.iter().copied().collect(),
        }
    }
}

/// The thread state and the partials after some events.
pub struct States {
    threads: Threads,
    wakeups: Wakeups,
    partials: Vec<AnyPartial>,
}

/// Serialized [`States`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Packed {
    threads: Threads,
    wakeups: Wakeups,
    partials: Vec<Vec<u8>>,
}

/// A reusable buffer: the events of a batch, by list.
#[derive(Debug, Default)]
pub struct Scratch(Vec<Vec<EventIndex>>);

/// The events and fields that an analysis and its base read.
pub fn interest(analysis: &dyn AnyAnalysis) -> Vec<(Kind, &'static [usize])> {
    let own = analysis.interest();
    let mut all = own.events.to_vec();
    all.extend(own.base.into_iter().flat_map(interest));
    all.extend(Threads::INTEREST.into_iter().filter(|_| own.threads));
    all
}

impl States {
    /// Thread names and running threads.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// The events from which wake-ups are known.
    pub fn wakeups(&self) -> Wakeups {
        self.wakeups
    }
}

impl<'a> Pass<'a> {
    /// Creates a pass of some analyses.
    pub fn new(requested: &[&'a dyn AnyAnalysis]) -> Pass<'a> {
        let mut analyses = requested.to_vec();
        for base in requested.iter().filter_map(|analysis| analysis.interest().base) {
            if analyses.iter().all(|known| known.partial() != base.partial()) {
                analyses.push(base);
            }
        }
        let follows = analyses.iter().any(|analysis| analysis.interest().threads);
        let mut read: Vec<Kinds> = Vec::new();
        let mut list = |analysis: &&dyn AnyAnalysis| {
            let own = Kinds::of(&analysis.interest());
            read.iter().position(|other| *other == own).unwrap_or_else(|| {
                read.push(own);
                read.len() - 1
            })
        };
        let lists = analyses.iter().map(&mut list).collect();
        let mut by_kind = vec![Needs::default(); VOCABULARY.len()];
        for words in VOCABULARY {
            let kind = words.kind;
            let containing = |kinds: fn(&Kinds) -> &BTreeSet<Kind>| {
                (0..read.len()).filter(|&list| kinds(&read[list]).contains(&kind)).collect()
            };
            by_kind[kind as usize] = Needs {
                threads: follows && Threads::INTEREST.iter().any(|(own, _)| *own == kind),
                lists: containing(|kinds| &kinds.all),
                reporting: containing(|kinds| &kinds.reporting),
            };
        }
        Pass { analyses, requested: requested.len(), lists, by_kind }
    }

    /// The requested analyses, in the order of their tables.
    pub fn requested(&self) -> &[&'a dyn AnyAnalysis] {
        &self.analyses[..self.requested]
    }

    /// The events that the pass reads, and the positions of the fields.
    pub fn interest(&self) -> Vec<(Kind, &'static [usize])> {
        self.analyses.iter().flat_map(|analysis| interest(*analysis)).collect()
    }

    /// The events that the pass reads too where they contain their thread.
    pub fn reporting(&self) -> Vec<Kind> {
        self.analyses.iter().flat_map(|analysis| analysis.interest().reporting).copied().collect()
    }

    /// Whether the entry and exit of a system call may be joined into one event.
    pub fn joins_calls(&self) -> bool {
        self.analyses.iter().all(|analysis| {
            let reads = |kind| analysis.interest().events.iter().any(|(own, _)| *own == kind);
            reads(Kind::Syscall) || !reads(Kind::SyscallEntry) && !reads(Kind::SyscallExit)
        })
    }

    /// The period that an analysis requests.
    pub fn period(&self) -> Option<&Period> {
        self.analyses.iter().find_map(|analysis| analysis.interest().period)
    }

    /// The initial states of a chunk.
    pub fn begin(&self, start: &Start<'_>) -> States {
        let partials = self.analyses.iter().map(|analysis| analysis.begin(start)).collect();
        States { threads: Threads::default(), wakeups: start.wakeups, partials }
    }

    /// Adds a batch of events, in order of time: each of `ranges` has the index of a stream and the indices of its events
    /// that come next.
    pub fn fold(
        &self,
        states: &mut States,
        streams: &mut [Records],
        ranges: &[(usize, Range<usize>)],
        Scratch(chosen): &mut Scratch,
    ) {
        chosen.resize_with(self.lists.len(), Vec::new);
        chosen.iter_mut().for_each(Vec::clear);
        for (stream, indices) in ranges {
            let records = &mut streams[*stream];
            // Usually all events of a stream are on one CPU.
            let mut running = None;
            for index in indices.clone() {
                let event = records.event(index);
                let needs = &self.by_kind[event.kind as usize];
                let event_index = EventIndex { stream: *stream as u32, index: index as u32 };
                let mut choose = |list: &usize| chosen[*list].push(event_index);
                if let Some(thread) = event.reported() {
                    states.threads.runs(event.cpu, thread);
                    running = None;
                    needs.reporting.iter().for_each(&mut choose);
                }
                needs.lists.iter().for_each(&mut choose);
                let known = running.filter(|&(cpu, _)| cpu == event.cpu);
                let (_, thread) =
                    *running.insert(known.unwrap_or_else(|| (event.cpu, states.threads.running(event.cpu))));
                if needs.threads {
                    states.threads.see(&event);
                    running = None;
                }
                records.set_thread(index, thread);
            }
        }
        for ((analysis, partial), list) in self.analyses.iter().zip(&mut states.partials).zip(&self.lists) {
            analysis.fold(partial, Chosen { streams, events: &chosen[*list] });
        }
    }

    /// Merges the states of two adjacent chunks.
    pub fn merge(&self, mut earlier: States, later: States) -> States {
        let pairs = earlier.partials.into_iter().zip(later.partials).zip(&self.analyses);
        let merged = pairs.map(|((earlier_partial, later_partial), analysis)| {
            analysis.merge(earlier_partial, later_partial, &earlier.threads)
        });
        earlier.partials = merged.collect();
        earlier.threads.add(later.threads);
        earlier.wakeups = earlier.wakeups.max(later.wakeups);
        earlier
    }

    /// Moves settled rows of the requested analyses out of their partials, to a builder each; see
    /// [`Analysis::settle`].
    ///
    /// [`Analysis::settle`]: crate::Analysis::settle
    pub fn settle<'r>(
        &self,
        states: &mut States,
        context: &FinishContext<'_>,
        rows: impl IntoIterator<Item = &'r mut TableBuilder>,
    ) {
        let requested = self.analyses[..self.requested].iter().zip(&mut states.partials);
        for ((analysis, partial), rows) in requested.zip(rows) {
            analysis.settle(partial, context, rows);
        }
    }

    /// Makes the tables of the whole trace, on `workers` threads; `selections` has one for each requested analysis.
    pub fn finish(
        &self,
        whole: States,
        names: &[String],
        span: (Nanos, Nanos),
        selections: &[&Selection],
        sources: &dyn Sources,
        workers: usize,
    ) -> Vec<Table> {
        let all = Selection::default();
        let context = FinishContext::without_events(&all, &whole.threads, sources);
        let context = FinishContext { names, span, wakeups: whole.wakeups, ..context };
        let families = self.families(whole.partials);
        let workers = workers.min(families.len());
        let families = Mutex::new(families.into_iter());
        let next = || families.lock().unwrap_or_else(PoisonError::into_inner).next();
        let tables = Mutex::new(BTreeMap::new());
        let work = || {
            while let Some(family) = next() {
                let made = self.finish_family(family, selections, &context);
                tables.lock().unwrap_or_else(PoisonError::into_inner).extend(made);
            }
        };
        thread::scope(|scope| {
            (1..workers).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        tables.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
    }

    /// Groups the partials by base, with their analyses' indices. The base comes last in its family, and the largest
    /// families come first.
    fn families(&self, partials: Vec<AnyPartial>) -> Vec<Vec<(usize, AnyPartial)>> {
        let base = |index: usize| {
            let state = self.analyses[index].interest().base?.partial();
            self.analyses.iter().position(|analysis| analysis.partial() == state)
        };
        let mut families: BTreeMap<usize, Vec<(usize, AnyPartial)>> = BTreeMap::new();
        for (index, partial) in partials.into_iter().enumerate() {
            families.entry(base(index).unwrap_or(index)).or_default().push((index, partial));
        }
        for (base, family) in &mut families {
            family.sort_by_key(|(index, _)| index == base);
        }
        let mut families: Vec<_> = families.into_values().collect();
        families.sort_by_key(|family| std::cmp::Reverse(family.len()));
        families
    }

    /// Makes the tables of a family, with the indices of the requested analyses.
    fn finish_family(
        &self,
        mut family: Vec<(usize, AnyPartial)>,
        selections: &[&Selection],
        context: &FinishContext<'_>,
    ) -> Vec<(usize, Table)> {
        let base = family.pop();
        let finish = |index: usize, partial: AnyPartial, base: Option<&AnyPartial>| {
            // The bases that are not requested come after the requested analyses.
            let analysis = self.requested().get(index)?;
            let context = FinishContext { base, selection: selections[index], ..context.clone() };
            Some((index, analysis.finish(vec![partial], &context)))
        };
        let mut tables = Vec::new();
        for (index, partial) in family {
            tables.extend(finish(index, partial, base.as_ref().map(|(_, base)| base)));
        }
        if let Some((index, partial)) = base {
            tables.extend(finish(index, partial, None));
        }
        tables
    }

    /// Serializes the states, to send them to another process.
    pub fn pack(&self, states: &States) -> Packed {
        let pairs = self.analyses.iter().zip(&states.partials);
        let partials = pairs.map(|(analysis, partial)| analysis.pack(partial)).collect();
        Packed { threads: states.threads.clone(), wakeups: states.wakeups, partials }
    }

    /// Deserializes states.
    ///
    /// # Errors
    /// The index of the first analysis whose partial is invalid.
    pub fn unpack(&self, packed: Packed) -> Result<States, usize> {
        let bytes = |index: usize| packed.partials.get(index).map_or(&[][..], Vec::as_slice);
        let partials = self.analyses.iter().enumerate();
        let partials = partials.map(|(index, analysis)| analysis.unpack(bytes(index)).ok_or(index));
        let partials = partials.collect::<Result<_, _>>()?;
        Ok(States { threads: packed.threads, wakeups: packed.wakeups, partials })
    }
}
