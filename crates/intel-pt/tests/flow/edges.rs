//! Property test of maps of edges: known paths are counted like single blocks, and as AFL would count.

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, NoLabels, Program, Terminator};
use hodo_intel_pt::{
    Config, EdgeMap,
    encoder::{Settings, Timing},
    flow::{Decoder, Event, Executed, Memos, Sink, Switch},
    packet::{PSB, find_psb},
};
use proptest::prelude::*;

use super::{
    code, holes,
    walker::{space_with_holes, walker},
};

/// What AFL's instrumentation would do, by the executed blocks; a map of any size.
struct Model {
    map: Vec<u8>,
    previous: usize,
    /// Whether the last block ended with a branch.
    branched: bool,
    /// Where the last block ended.
    end: u64,
    /// Addresses to which branches led.
    path: Vec<u64>,
}

impl Sink for Model {
    fn executed(&mut self, executed: Executed<'_>) {
        let start = executed.block.start;
        if self.branched || start != self.end {
            let location = (start >> 4 ^ start << 8) as usize % self.map.len();
            let count = &mut self.map[location ^ self.previous];
            *count = count.wrapping_add(1);
            self.previous = location >> 1;
            self.path.push(start);
        }
        self.end = start + executed.lengths.iter().map(|&length| u64::from(length)).sum::<u64>();
        self.branched = executed.is_whole() && executed.block.terminator != Terminator::None;
    }

    fn event(&mut self, event: Event) {
        if let Event::Gap(_) = event {
            (self.previous, self.branched) = (0, true);
        }
    }
}

/// Decodes a trace segment by segment, twice, into a sink.
fn decode(space: &AddressSpace<'_>, trace: &[u8], memo: &mut Option<Memos>, sink: &mut impl Sink) {
    let mut programs = [Program::new(space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let next = |from: usize| Some(from + find_psb(trace.get(from..)?)?);
    let starts: Vec<usize> = std::iter::successors(next(0), |&start| next(start + PSB.len())).collect();
    let ends: Vec<usize> = starts.iter().copied().skip(1).chain([trace.len()]).collect();
    for (&start, &end) in starts.iter().zip(&ends).chain(starts.iter().zip(&ends)) {
        let config = Config::default();
        let decoder = Decoder::new(trace, start..end, &config, &schedule);
        match memo {
            Some(memo) => decoder.decode_with_memo(&mut programs, memo, sink),
            None => decoder.decode(&mut programs, sink),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn maps_are_those_of_single_blocks(
        code in code(),
        choices in prop::collection::vec(any::<u32>(), 101..400),
        steps in 1usize..3000,
        loss in prop_oneof![3 => Just(0u64), 1 => 20u64..200],
        holes in holes(0..6),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        most in 1usize..40,
        size in 4u32..17,
    ) {
        let timing = Timing { tsc: true, mtc_period: None, cyc_threshold: None };
        let settings = Settings { return_compression: true, timing };
        let mut trace = walker(&code, &choices, settings, loss).run(steps).trace;
        for (position, byte) in damage {
            let position = position.index(trace.len());
            trace[position] = byte;
        }
        let space = space_with_holes(&code, &holes);
        let size = 1 << size;
        let mut model = Model { map: vec![0; size], previous: 0, branched: true, end: 0, path: Vec::new() };
        decode(&space, &trace, &mut None, &mut model);
        let mut paths = Vec::new();
        for mut memo in [None, Some(Memos::default()), Some(Memos::with_capacity(most))] {
            let mut map = vec![0; size];
            let mut edges = EdgeMap::new(&mut map).with_path();
            decode(&space, &trace, &mut memo, &mut edges);
            paths.push(edges.path());
            prop_assert!(map == model.map, "a map differs, with a memo: {}", memo.is_some());
        }
        prop_assert!(paths.iter().all(|path| *path == paths[0]));
    }
}
