//! Property test of the memo: for any trace and code, the reports are the same, except for how runs are divided.

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Graph, Isa, Label, Labels, Origin, Place, Program, Transfer};
use hodo_etm::{
    encoder::{Encoder, Settings},
    flow::{Decoder, Memos},
};
use hodo_flow::{Event, Executed, Sink, Step, Switch};
use proptest::prelude::*;

use super::{LENGTH, START, decision, instruction, record, segments, settings, user};

/// A function for every eight instructions.
struct Functions;

impl Labels for Functions {
    fn label(&self, origin: Origin) -> (Label, u64) {
        let length = 32;
        let at = origin.offset % length;
        let function = (origin.offset / length) as u32;
        let place = if at == 0 { Place::Entry } else { Place::Middle };
        (Label { module: origin.module, function, place }, length - at)
    }
}

#[derive(Debug, PartialEq)]
enum Item {
    Run { start: u64, end: u64, label: Label, instructions: u64, transfer: Transfer },
    Event(Event),
}

/// The reports, with consecutive runs of one function joined.
#[derive(Default)]
struct Reports<const BLOCKS: bool> {
    items: Vec<Item>,
    paths: Vec<Vec<Step>>,
    /// Number of instructions reported by paths.
    by_path: u64,
}

impl<const BLOCKS: bool> Reports<BLOCKS> {
    fn run(&mut self, start: u64, end: u64, label: Label, instructions: u64, transfer: Transfer) {
        if let Some(Item::Run { end: until, label: last, instructions: sum, transfer: by, .. }) =
            self.items.last_mut()
            && *by == Transfer::None
            && (last.module, last.function) == (label.module, label.function)
        {
            (*until, *by) = (end, transfer);
            *sum += instructions;
            return;
        }
        self.items.push(Item::Run { start, end, label, instructions, transfer });
    }
}

impl<const BLOCKS: bool> Sink for Reports<BLOCKS> {
    const TAKES_BLOCKS: bool = BLOCKS;

    fn executed(&mut self, executed: Executed<'_>) {
        let block = executed.block;
        let transfer = if executed.is_whole() { block.transfer() } else { Transfer::None };
        let length: u64 = executed.lengths.iter().map(|&length| u64::from(length)).sum();
        let instructions = executed.lengths.len() as u64;
        self.run(block.start, block.start + length, block.label, instructions, transfer);
    }

    fn takes_paths(&self) -> bool {
        // Blocks come in between from time to time.
        self.items.len() % 11 != 10
    }

    fn state(&mut self) -> Option<u32> {
        Some(self.items.len() as u32 % 3)
    }

    fn learn<L: Labels>(&mut self, state: u32, steps: &[Step], graph: &Graph<'_, L>) -> Option<(u32, u32)> {
        if BLOCKS {
            assert!(steps.iter().all(|step| graph.block(step.block).end == step.end));
        }
        self.paths.push(steps.to_vec());
        (steps.len() % 7 != 6).then_some((self.paths.len() as u32 - 1, (state + steps.len() as u32) % 3))
    }

    fn path(&mut self, path: u32) {
        for step in self.paths[path as usize].clone() {
            self.by_path += u64::from(step.instructions);
            self.run(step.start, step.end, step.label(), u64::from(step.instructions), step.transfer);
        }
    }

    fn forget(&mut self) {
        self.paths.clear();
    }

    fn event(&mut self, event: Event) {
        self.items.push(Item::Event(event));
    }
}

/// Decodes a trace segment by segment, twice, and with the same memo if there is one.
fn reported<const BLOCKS: bool>(
    space: &AddressSpace<'_>,
    trace: &[u8],
    settings: &Settings,
    schedule: &[Switch],
    mut memos: Option<Memos>,
) -> Reports<BLOCKS> {
    let mut programs = [Program::new(space, &Functions), Program::new(space, &Functions)];
    let mut reported = Reports::<BLOCKS>::default();
    for span in [segments(trace), segments(trace)].concat() {
        let decoder = Decoder::new(trace, span, &settings.config(), schedule);
        match &mut memos {
            Some(memos) => decoder.decode_with_memo(&mut programs, memos, &mut reported),
            None => decoder.decode(&mut programs, &mut reported),
        }
    }
    reported
}

/// One program.
const ALWAYS: [Switch; 1] = [Switch { at: Tsc(0), program: 0, context: 0 }];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_memo_changes_nothing(
        settings in settings(),
        speculates in prop::bool::weighted(0.1),
        words in prop::collection::vec(instruction(), LENGTH as usize),
        decisions in prop::collection::vec(decision(), 1..400),
        repeats in 1..5usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        changed in prop::option::of((0..LENGTH, 1..100_000u64)),
        most in 1usize..40,
        switches in prop::collection::btree_map(1..100_000u64, (0..2usize, 0..3u32), 0..4),
    ) {
        let depth = if speculates { settings.speculation_depth } else { 0 };
        let settings = Settings { speculation_depth: depth, cycles_commit: settings.cycles_commit && depth > 0, ..settings };
        let recorded = record(settings, &words, &decisions.repeat(repeats));
        let mut trace = recorded.trace;
        for (index, byte) in damage {
            let at = index.index(trace.len());
            trace[at] ^= byte;
        }
        let mut space = AddressSpace::new();
        space.map(START..START + 4 * LENGTH, Content { bytes: &recorded.code, origin: Origin { module: 0, offset: 0 } }, 0);
        if let Some((from, at)) = changed {
            // The same bytes from another origin: the code continues, but belongs to another function.
            let content = Content { bytes: &recorded.code[4 * from as usize..], origin: Origin { module: 2, offset: 4 * from } };
            space.map(START + 4 * from..START + 4 * LENGTH, content, at);
        }
        let later = switches.into_iter().map(|(at, (program, context))| Switch { at: Tsc(at), program, context });
        let schedule: Vec<Switch> = ALWAYS.into_iter().chain(later).collect();
        let no_memo = None;
        let without = reported::<false>(&space, &trace, &settings, &schedule, no_memo);
        let with = reported::<false>(&space, &trace, &settings, &schedule, Some(Memos::default()));
        prop_assert_eq!(&with.items, &without.items);
        let small = reported::<true>(&space, &trace, &settings, &schedule, Some(Memos::with_capacity(most)));
        prop_assert_eq!(&small.items, &without.items);
    }
}

/// The memo must be used for a plain trace.
#[test]
fn a_plain_trace_is_reported_by_paths() {
    // A loop: a conditional branch that is taken each second time, a call of a function that returns, and a branch back.
    let words = [0x5400_0040u32, 0xd503_201f, 0x9400_0002, 0x17ff_fffd, 0xd65f_03c0];
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut space = AddressSpace::new();
    let content = Content { bytes: &code, origin: Origin { module: 0, offset: 0 } };
    space.map(START..START + code.len() as u64, content, 0);
    for return_stack in [false, true] {
        let settings = Settings {
            is_ete: false,
            is_m_profile: false,
            return_stack,
            cycle_threshold: None,
            cycles_commit: false,
            context_ids: false,
            synchronization: 1000,
            speculation_depth: 0,
        };
        let mut encoder = Encoder::new(settings);
        encoder.begin(START, user(1));
        let (mut ip, mut ran) = (START, 0);
        for round in 0..20_000 {
            let step = Isa::A64.instruction(&code[(ip - START) as usize..], ip).expect("code").step();
            let next = match ip - START {
                0 if round % 2 == 0 => step.target,
                8 | 12 => step.target,
                16 => START + 12,
                _ => ip + 4,
            };
            encoder.executed(ip, &step, next);
            (ip, ran) = (next, ran + 1);
        }
        let trace = encoder.finish();
        let with = reported::<false>(&space, &trace, &settings, &ALWAYS, Some(Memos::default()));
        let no_memo = None;
        assert_eq!(with.items, reported::<false>(&space, &trace, &settings, &ALWAYS, no_memo).items);
        // The trace is decoded twice. Blocks are asked for now and then, as the number of items says.
        assert!(with.by_path > ran, "{} of {ran} instructions twice", with.by_path);
    }
}
