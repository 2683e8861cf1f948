//! Several analyses in one pass over the events of a kernel.
//!
//! ```text
//! Records of each stream ──in order──► Threads: who runs ──► to each analysis, the events that it needs
//! ```
//!
//! Who runs is followed once for all of them, and so is what several analyses rest on.

use std::ops::Range;

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize};

use crate::{
    AnyEventAnalysis, AnyPartial, Choice, Period, Start, Table, Whole,
    kernel::{Kind, Merged, Place, Records, Threads, VOCABULARY},
};

/// The analyses.
pub struct Pass<'a> {
    /// Those that are asked for, then those that they rest on and nobody asked for.
    analyses: Vec<&'a dyn AnyEventAnalysis>,
    /// How many are asked for.
    asked: usize,
    /// The places of those that need events of a kind.
    by_kind: Vec<Vec<usize>>,
    needs_threads: bool,
}

/// What is known after some events.
pub struct States {
    threads: Threads,
    partials: Vec<AnyPartial>,
}

/// The same as bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Packed {
    threads: Threads,
    partials: Vec<Vec<u8>>,
}

/// Where the events of a batch lie, and which of them each analysis needs; to be used again.
#[derive(Debug, Default)]
pub struct Order {
    places: Vec<Place>,
    chosen: Vec<Vec<u32>>,
}

/// Which events an analysis and what it rests on need, and which of their fields.
pub fn interest(analysis: &dyn AnyEventAnalysis) -> Vec<(Kind, &'static [usize])> {
    let mut all = analysis.interest().to_vec();
    all.extend(analysis.base().into_iter().flat_map(interest));
    all.extend(Threads::INTEREST.into_iter().filter(|_| analysis.needs_threads()));
    all
}

impl<'a> Pass<'a> {
    /// A pass of some analyses.
    pub fn new(asked: &[&'a dyn AnyEventAnalysis]) -> Pass<'a> {
        let mut analyses = asked.to_vec();
        for base in asked.iter().filter_map(|analysis| analysis.base()) {
            if analyses.iter().all(|known| known.state() != base.state()) {
                analyses.push(base);
            }
        }
        let needs = |kind: Kind| {
            let needs =
                |analysis: &dyn AnyEventAnalysis| analysis.interest().iter().any(|(own, _)| *own == kind);
            (0..analyses.len()).filter(|&place| needs(analyses[place])).collect()
        };
        let mut by_kind = vec![Vec::new(); VOCABULARY.len()];
        VOCABULARY.iter().for_each(|words| by_kind[words.kind as usize] = needs(words.kind));
        let needs_threads = analyses.iter().any(|analysis| analysis.needs_threads());
        Pass { analyses, asked: asked.len(), by_kind, needs_threads }
    }

    /// The events that it needs, and the places of the fields that it needs of them.
    pub fn interest(&self) -> Vec<(Kind, &'static [usize])> {
        self.analyses.iter().flat_map(|analysis| interest(*analysis)).collect()
    }

    /// The periods that somebody asks for.
    pub fn period(&self) -> Option<&Period> {
        self.analyses.iter().find_map(|analysis| analysis.period())
    }

    /// What is known at the start of a chunk.
    pub fn begin(&self, start: &Start<'_>) -> States {
        let partials = self.analyses.iter().map(|analysis| analysis.begin(start)).collect();
        States { threads: Threads::default(), partials }
    }

    /// Adds a batch of events: of some streams, runs of their records that come one after the other.
    pub fn fold(
        &self,
        states: &mut States,
        streams: &[Records],
        runs: &[(usize, Range<usize>)],
        order: &mut Order,
    ) {
        order.places.clear();
        order.chosen.resize_with(self.analyses.len(), Vec::new);
        order.chosen.iter_mut().for_each(Vec::clear);
        for (stream, run) in runs {
            for index in run.clone() {
                let (kind, cpu) = streams[*stream].kind(index);
                let thread = states.threads.running(cpu);
                for &place in &self.by_kind[kind as usize] {
                    order.chosen[place].push(order.places.len() as u32);
                }
                order.places.push(Place { stream: *stream as u32, index: index as u32, thread });
                if self.needs_threads && Threads::INTEREST.iter().any(|(own, _)| *own == kind) {
                    states.threads.see(&streams[*stream].event(index, thread));
                }
            }
        }
        for ((analysis, partial), chosen) in self.analyses.iter().zip(&mut states.partials).zip(&order.chosen)
        {
            analysis.fold(partial, Merged { streams, order: &order.places, chosen });
        }
    }

    /// Joins what is known of two neighbouring spans of time.
    pub fn merge(&self, mut earlier: States, later: States) -> States {
        let pairs = earlier.partials.into_iter().zip(later.partials).zip(&self.analyses);
        let merged = pairs.map(|((one, other), analysis)| analysis.merge(one, other, &earlier.threads));
        earlier.partials = merged.collect();
        earlier.threads.add(later.threads);
        earlier
    }

    /// The tables of the whole.
    pub fn finish(
        &self,
        whole: States,
        names: &[String],
        span: (Nanos, Nanos),
        choice: &Choice,
    ) -> Vec<Table> {
        let mut partials: Vec<Option<AnyPartial>> = whole.partials.into_iter().map(Some).collect();
        let base = |place: usize| {
            let state = self.analyses[place].base()?.state();
            self.analyses.iter().position(|analysis| analysis.state() == state)
        };
        // What others rest on comes last.
        let (resting, others): (Vec<usize>, Vec<usize>) =
            (0..self.asked).partition(|&place| base(place).is_some());
        let mut tables: Vec<(usize, Table)> = Vec::new();
        for place in resting.into_iter().chain(others) {
            let partial = partials[place].take().expect("each has its own");
            let base = base(place).and_then(|base| partials[base].as_ref());
            let of = Whole { names, span, choice, threads: &whole.threads, base };
            tables.push((place, self.analyses[place].finish(partial, &of)));
        }
        tables.sort_by_key(|(place, _)| *place);
        tables.into_iter().map(|(_, table)| table).collect()
    }

    /// States as bytes, to travel to another process.
    pub fn pack(&self, states: &States) -> Packed {
        let pairs = self.analyses.iter().zip(&states.partials);
        let partials = pairs.map(|(analysis, partial)| analysis.pack(partial)).collect();
        Packed { threads: states.threads.clone(), partials }
    }

    /// The states that bytes stand for.
    ///
    /// # Errors
    /// The place of the first analysis that does not know its state.
    pub fn unpack(&self, packed: Packed) -> Result<States, usize> {
        let bytes = |place: usize| packed.partials.get(place).map_or(&[][..], Vec::as_slice);
        let one =
            |(place, analysis): (usize, &&dyn AnyEventAnalysis)| analysis.unpack(bytes(place)).ok_or(place);
        let partials = self.analyses.iter().enumerate().map(one).collect::<Result<_, _>>()?;
        Ok(States { threads: packed.threads, partials })
    }
}
