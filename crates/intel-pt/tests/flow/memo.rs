//! Property test of the memo and of function runs: for any trace and code, the reports are the same, except for how
//! runs are divided.

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Graph, Label, Labels, Origin, Place, Program};
use hodo_intel_pt::{
    Config,
    encoder::{Settings, Timing},
    flow::{Decoder, Event, Executed, FunctionRun, Memos, Sink, Step, Switch, Transfer},
    packet::{IpPayload, PSB, Packet, Tnt, find_psb},
};
use proptest::prelude::*;

use super::{
    code, defer_tips, holes,
    walker::{BASE, SLOT, SLOTS, START, space_with_holes, walker},
};

/// A function for every two slots.
struct Functions;

impl Labels for Functions {
    fn label(&self, origin: Origin) -> (Label, u64) {
        let length = 2 * SLOT;
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
    /// Number of paths that consist of two others.
    joined: u32,
    /// Whether the sink also takes function runs.
    function_runs: bool,
    /// Number of instructions reported together with others.
    together: u32,
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
        true
    }

    fn takes_function_runs(&self) -> bool {
        // Single blocks come in between from time to time.
        self.function_runs && self.items.len() % 5 != 4
    }

    fn function_runs<L: Labels>(
        &mut self,
        function_runs: &[FunctionRun],
        graph: &Graph<'_, L>,
        until: Option<Tsc>,
    ) {
        let mut before = 0;
        for function_run in function_runs {
            let &FunctionRun { start, until, transfer, end, .. } = function_run;
            let instructions = until - std::mem::replace(&mut before, until);
            self.together += instructions.saturating_sub(1);
            let function = graph.function(function_run.function());
            let label =
                Label { module: function.module, function: function.index, place: function_run.place() };
            self.run(start, end, label, instructions.into(), transfer);
        }
        until.into_iter().for_each(|until| self.event(Event::Time(until)));
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

    fn join(&mut self, first: u32, second: u32) -> Option<u32> {
        // Paths come one by one from some time on.
        if self.joined >= 50 {
            return None;
        }
        self.joined += 1;
        let joined = [first, second].map(|path| self.paths[path as usize].clone()).concat();
        self.paths.push(joined);
        Some(self.paths.len() as u32 - 1)
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

/// Reduces reports to what function runs contain: clears the ends of runs except for return addresses, and the start
/// of a run that continues the previous one after time reports only.
fn reduce_to_function_runs<const BLOCKS: bool>(mut reported: Reports<BLOCKS>) -> Vec<Item> {
    let mut still_running = None;
    for item in &mut reported.items {
        match item {
            Item::Run { start, end, label, transfer, .. } => {
                if *transfer != Transfer::Call {
                    *end = 0;
                }
                let function = (label.module, label.function);
                if still_running == Some(function) {
                    (*start, label.place) = (0, Place::Unknown);
                }
                still_running = Some(function).filter(|_| *transfer == Transfer::None);
            }
            Item::Event(Event::Time(_) | Event::Cycles(_)) => {}
            Item::Event(_) => still_running = None,
        }
    }
    reported.items
}

/// For [`reported`]: without a memo.
const NO_MEMO: Option<Memos> = None;
/// For [`reported`]: without function runs.
const NO_FUNCTION_RUNS: Option<u32> = None;

/// One thread and one program.
const NO_SWITCHES: [Switch; 1] = [Switch { at: Tsc(0), program: 0, context: 0 }];

/// What to decode, and how.
#[derive(Clone, Copy)]
struct Recording<'r> {
    /// The code of both programs.
    space: &'r AddressSpace<'r>,
    trace: &'r [u8],
    config: &'r Config,
    schedule: &'r [Switch],
}

impl<'r> Recording<'r> {
    fn of_one_thread(space: &'r AddressSpace<'r>, trace: &'r [u8], config: &'r Config) -> Recording<'r> {
        Recording { space, trace, config, schedule: &NO_SWITCHES }
    }
}

/// Decodes a trace segment by segment, twice, and with the same memo if there is one. `function_runs`: for a sink that
/// takes them, by native code after this many walks over a graph.
fn reported<const BLOCKS: bool>(
    Recording { space, trace, config, schedule }: Recording<'_>,
    memo: Option<Memos>,
    function_runs: Option<u32>,
) -> Reports<BLOCKS> {
    let program = || Program::new(space, &Functions).native_after(function_runs.unwrap_or(u32::MAX));
    let mut programs = [program(), program()];
    let mut memo = memo;
    let next = |from: usize| Some(from + find_psb(trace.get(from..)?)?);
    let starts: Vec<usize> = std::iter::successors(next(0), |&start| next(start + PSB.len())).collect();
    let ends = || starts.iter().copied().skip(1).chain([trace.len()]);
    let mut reported = Reports::<BLOCKS> { function_runs: function_runs.is_some(), ..Reports::default() };
    for (start, end) in starts.iter().copied().zip(ends()).chain(starts.iter().copied().zip(ends())) {
        let decoder = Decoder::new(trace, start..end, config, schedule);
        match &mut memo {
            Some(memo) => decoder.decode_with_memo(&mut programs, memo, &mut reported),
            None => decoder.decode(&mut programs, &mut reported),
        }
    }
    reported
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn memos_and_function_runs_change_nothing(
        code in code(),
        choices in prop::collection::vec(any::<u32>(), 101..400),
        steps in 1usize..3000,
        return_compression: bool,
        mtc_period in prop::option::of(0u8..4),
        cyc_threshold in prop::option::of(0u64..3),
        loss in prop_oneof![3 => Just(0u64), 1 => 20u64..200],
        holes in holes(0..6),
        changed in prop::option::of((0..SLOTS, 0u64..3000)),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        deferred: bool,
        most in 1usize..40,
        native_after in 1u32..100,
        switches in prop::collection::vec((0u64..3000, 0usize..2, 0u32..3), 0..6),
    ) {
        let timing = Timing { tsc: true, mtc_period, cyc_threshold };
        let trace = walker(&code, &choices, Settings { return_compression, timing }, loss).run(steps).trace;
        let mut trace = if deferred { defer_tips(&trace) } else { trace };
        for (position, byte) in damage {
            let position = position.index(trace.len());
            trace[position] = byte;
        }
        let mut space = space_with_holes(&code, &holes);
        if let Some((slot, at)) = changed {
            // The same bytes from another origin: the code continues, but belongs to another function.
            let offset = slot * SLOT;
            let content = Content { bytes: &code.bytes[offset as usize..], origin: Origin { module: 2, offset } };
            space.map(BASE + offset..BASE + offset + SLOT, content, 1000 + at);
        }
        let config = Config {
            no_return_compression: !return_compression,
            mtc_frequency: mtc_period,
            tsc_ctc_ratio: Some((40, 1)),
            cyc_threshold: cyc_threshold.unwrap_or(0),
            max_nonturbo_ratio: Some(10),
            ..Config::default()
        };
        let mut schedule = NO_SWITCHES.to_vec();
        schedule.extend(switches.into_iter().map(|(at, program, context)| {
            Switch { at: Tsc(START + at), program, context }
        }));
        schedule.sort_by_key(|switch| switch.at);
        let recording = Recording { space: &space, trace: &trace, config: &config, schedule: &schedule };
        let without = reported::<false>(recording, NO_MEMO, NO_FUNCTION_RUNS);
        let memo = || Some(Memos::default());
        prop_assert_eq!(&reported::<false>(recording, memo(), NO_FUNCTION_RUNS).items, &without.items);
        let small = Some(Memos::with_capacity(most));
        prop_assert_eq!(&reported::<true>(recording, small, NO_FUNCTION_RUNS).items, &without.items);
        let without = reduce_to_function_runs(without);
        for native_after in [u32::MAX, native_after] {
            let function_runs = Some(native_after);
            prop_assert_eq!(&reduce_to_function_runs(reported::<false>(recording, NO_MEMO, function_runs)), &without);
            prop_assert_eq!(&reduce_to_function_runs(reported::<false>(recording, memo(), function_runs)), &without);
        }
    }
}

/// The fast path must be used for a plain trace.
#[test]
fn a_plain_trace_is_reported_by_paths_and_function_runs() {
    // A loop over six branches.
    let bytes = [&[0x74, 0].repeat(6)[..], &[0xeb, 0xf2]].concat();
    let mut space = AddressSpace::new();
    let content = Content { bytes: &bytes, origin: Origin { module: 0, offset: 0 } };
    space.map(BASE..BASE + bytes.len() as u64, content, 0);
    let psb_plus = [Packet::Psb, Packet::Fup(IpPayload::Full(BASE)), Packet::PsbEnd];
    let mut trace: Vec<u8> = psb_plus.iter().flat_map(|packet| packet.encode().to_vec()).collect();
    let (packets, branches) = (60, Tnt { bits: 1, count: 2 });
    trace.extend((0..packets).flat_map(|_| Packet::Tnt8(branches).encode().to_vec()));
    let config = Config::default();
    let recording = Recording::of_one_thread(&space, &trace, &config);
    let with = reported::<false>(recording, Some(Memos::default()), NO_FUNCTION_RUNS);
    // The trace is decoded twice; the first packet and some of the last eight bytes need the decoder.
    assert!(with.by_path >= 2 * 2 * (packets - 1 - 8));
    assert!(with.joined > 0);
    // Several consecutive blocks are in one function.
    let together = reported::<false>(recording, NO_MEMO, Some(u32::MAX)).together;
    assert!(together >= packets as u32, "{together} instructions");
}

/// A loop without a packet is reported identically up to its detection.
#[test]
fn endless_loops_are_reported_alike() {
    let jump =
        |from: u64, to: u64| [&[0xe9][..], &((to as i64 - from as i64 - 5) as i32).to_le_bytes()].concat();
    // A branch, and a loop over code of two functions.
    let mut bytes = vec![0x90; (4 * SLOT) as usize];
    bytes[..2].copy_from_slice(&[0x74, 0]);
    bytes[10..15].copy_from_slice(&jump(10, 3 * SLOT));
    bytes[(3 * SLOT) as usize..][..5].copy_from_slice(&jump(3 * SLOT, 4));
    let mut space = AddressSpace::new();
    let content = Content { bytes: &bytes, origin: Origin { module: 0, offset: 0 } };
    space.map(BASE..BASE + bytes.len() as u64, content, 0);
    endless_loops_are_reported_alike_in(&space);
    // A part of the loop changes at some time.
    let offset = 3 * SLOT;
    let content = Content { bytes: &bytes[offset as usize..], origin: Origin { module: 2, offset } };
    space.map(BASE + offset..BASE + offset + SLOT, content, 1000);
    endless_loops_are_reported_alike_in(&space);
}

fn endless_loops_are_reported_alike_in(space: &AddressSpace<'_>) {
    let (branch, branches) = (Tnt { bits: 0, count: 1 }, Tnt { bits: 0, count: 2 });
    // Enough branches for native code.
    let many = Tnt { bits: 0, count: 22 };
    let indirect = Packet::Tip(IpPayload::Full(BASE));
    for (start, packets) in [
        (BASE, &[Packet::Tnt8(branches)][..]),
        (BASE, &[Packet::Tnt8(branch), Packet::Tnt8(branch)]),
        (BASE, &[Packet::Tnt8(branch), indirect]),
        (BASE, &[Packet::Tnt64(many)]),
        (BASE, &[Packet::Tnt8(branch), Packet::Tnt64(many)]),
        (BASE + 2, &[Packet::Tnt64(many)]),
        (BASE + 2, &[Packet::Tnt8(branch)]),
        (BASE + 2, &[indirect]),
    ] {
        let psb_plus = [Packet::Psb, Packet::Fup(IpPayload::Full(start)), Packet::PsbEnd];
        let trace: Vec<u8> =
            psb_plus.iter().chain(packets).flat_map(|packet| packet.encode().to_vec()).collect();
        let config = Config::default();
        let recording = Recording::of_one_thread(space, &trace, &config);
        let without = reduce_to_function_runs(reported::<false>(recording, NO_MEMO, NO_FUNCTION_RUNS));
        let gaps = without.iter().filter(|item| matches!(item, Item::Event(Event::Gap(_)))).count();
        assert_eq!(gaps, 2, "each time that the trace is decoded");
        let memo = || Some(Memos::default());
        for (memo, native_after) in
            [(NO_MEMO, Some(u32::MAX)), (NO_MEMO, Some(1)), (memo(), Some(1)), (memo(), NO_FUNCTION_RUNS)]
        {
            assert_eq!(reduce_to_function_runs(reported::<false>(recording, memo, native_after)), without);
        }
    }
}
