use hodo_isa::x86::disassembler::{Decoder, DecoderOptions, Formatter, GasFormatter};

use super::*;
use crate::{AddressSpace, Content, Isa, Label, NO_OUTCOMES, NOT_TAKEN, Origin, Place, TAKEN};

/// A function starts every 16 bytes.
struct Functions;

impl Labels for Functions {
    fn label(&self, origin: Origin) -> (Label, u64) {
        let behind_entry = origin.offset % 16;
        let function = (origin.offset / 16) as u32;
        let place = if behind_entry == 0 { Place::Entry } else { Place::Middle };
        (Label { module: 0, function, place }, 16 - behind_entry)
    }
}

const START: u64 = 0x40_1000;

/// The same code is mapped here too, at an address that does not fit 32 bits.
const FAR: u64 = 0x7f00_0000_1000;

fn space(bytes: &[u8]) -> AddressSpace<'_> {
    let mut space = AddressSpace::new();
    let content = Content { bytes, origin: Origin { module: 0, offset: 0 } };
    for start in [START, FAR] {
        space.map(start..start + bytes.len() as u64, content, 0);
    }
    space
}

/// Whether a walk ends right after its last outcome.
const STOPS: bool = true;
const GOES_ON: bool = false;

/// Walks over the native code of a graph from an address, generating it at once. Unless `stops`, the target of an
/// indirect branch, [`START`], follows the outcomes: so the walk goes on after the last one.
fn walk(
    graph: &mut Graph<'_, Functions>,
    from: u64,
    outcomes: &mut u64,
    stops: bool,
    returns: &mut ReturnStack,
) -> (NativeExit, FunctionRuns) {
    let id = graph.at(from, 0).unwrap();
    let mut function_runs = FunctionRuns::default();
    function_runs.begin(from, graph.compact(id));
    let are_returns_compressed = true;
    graph.has_code(are_returns_compressed);
    let count = 63 - outcomes.trailing_zeros() as u8;
    let mut branch_batches = BranchBatches::default();
    assert!(branch_batches.push(*outcomes >> (63 - count) >> 1, count, Some(START).filter(|_| !stops)));
    let rules = Rules { tick: 0, are_returns_compressed };
    let exit = graph.run(id, &mut branch_batches, &mut function_runs, returns, rules).expect("there is code");
    *outcomes = branch_batches.current().map_or(NO_OUTCOMES, |batch| batch.outcomes);
    (exit, function_runs)
}

/// Returns `count` outcomes, the first one highest.
fn outcomes(bits: u64, count: u32) -> u64 {
    (bits << 1 | 1) << (63 - count)
}

/// Returns the disassembly of new code for a block and its successors, and the block's checked entry.
fn generated(graph: &mut Graph<'_, Functions>, from: BlockId, are_returns_compressed: bool) -> (String, u32) {
    graph.native = Native::Made(Box::new(Code::new(1 << 12, are_returns_compressed).unwrap()));
    graph.translate(from, 0).unwrap();
    let Native::Made(code) = &graph.native else { panic!("there is code") };
    let mut formatter = GasFormatter::new();
    let mut text = String::new();
    for (instruction, offset) in code.instructions(|bytes, offset| {
        let decoder = Decoder::with_ip(64, bytes, offset.into(), DecoderOptions::NONE);
        decoder.into_iter().map(|instruction| (instruction, instruction.ip())).collect::<Vec<_>>()
    }) {
        text.push_str(&format!("{offset:3x}: "));
        formatter.format(&instruction, &mut text);
        text.push('\n');
    }
    (text, code.offsets(from).checked)
}

/// Compares the code for each kind of block with `expected.s` beside this file.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn machine_code_is_as_expected() {
    let mut bytes = [0x90; 64];
    bytes[..4].copy_from_slice(&[0x74, 0x0e, 0xeb, 0x04]); // je 401010; jmp 401008
    bytes[8..14].copy_from_slice(&[0xe8, 0x13, 0, 0, 0, 0xc3]); // call 401020; ret
    bytes[0x10..0x14].copy_from_slice(&[0xff, 0xd0, 0xff, 0xe0]); // call *%rax; jmp *%rax
    bytes[0x20..0x22].copy_from_slice(&[0x90, 0xc3]); // nop; ret
    let space = space(&bytes);
    let mut graph = Graph::new(&space, &Functions, Isa::X86_64);
    let from = graph.at(START, 0).unwrap();
    let [fall, taken] = [NOT_TAKEN, TAKEN].map(|taken| graph.follow(from, taken, 0).unwrap());
    graph.follow(fall, TAKEN, 0).unwrap();
    graph.follow(taken, NOT_TAKEN, 0).unwrap();
    let are_returns_compressed = true;
    let mut text = generated(&mut graph, from, are_returns_compressed).0;
    text.push_str("far away, where returns are reported:\n");
    let from = graph.at(FAR + 8, 0).unwrap();
    let are_returns_compressed = false;
    let (all, start) = generated(&mut graph, from, are_returns_compressed);
    // Skips the common code that precedes the blocks.
    let own = all.lines().skip_while(|line| !line.trim_start().starts_with(&format!("{start:x}: ")));
    own.for_each(|line| text.extend([line, "\n"]));
    if text != include_str!("expected.s") {
        std::fs::write("src/native/expected.s.new", &text).unwrap();
        panic!("the machine code differs from expected.s: see expected.s.new beside it");
    }
}

/// The first successor that a branch takes lies right after it; the other one is reached as well.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn code_lies_in_the_order_in_which_it_runs() {
    // je 401008; nops; je 401000 twice
    let mut bytes = [0x90; 12];
    bytes[..2].copy_from_slice(&[0x74, 6]);
    bytes[8..].copy_from_slice(&[0x74, 0xf6, 0x74, 0xf4]);
    let space = space(&bytes);
    let checked = |graph: &Graph<'_, Functions>, id| match &graph.native {
        Native::Made(code) => code.offsets(id).checked,
        _ => panic!("there is code"),
    };
    for first in [false, true] {
        let mut graph = Graph::new(&space, &Functions, Isa::X86_64).native_after(1);
        let from = graph.at(START, 0).unwrap();
        for taken in [first, !first, first, !first] {
            let mut left = outcomes(taken.into(), 1);
            let (exit, function_runs) =
                walk(&mut graph, START, &mut left, STOPS, &mut ReturnStack::default());
            let next = graph.follow(from, taken, 0).unwrap();
            assert_eq!(
                (exit, left, function_runs.is_empty()),
                (NativeExit::Before(next), NO_OUTCOMES, false)
            );
            // The branch's own code has 19 bytes.
            let (successor, behind) = (checked(&graph, next), checked(&graph, from) + 19);
            assert!(
                if taken == first { successor == behind } else { successor > behind },
                "{successor}, {behind}"
            );
        }
    }
}

/// A block without code of its own, the first successor of a branch, keeps its exit when the other successor is met.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn a_block_that_is_left_stays_as_it_is() {
    // je 401008; syscall; nops; je 401000
    let mut bytes = [0x90; 16];
    bytes[..4].copy_from_slice(&[0x74, 6, 0x0f, 0x05]);
    bytes[8..10].copy_from_slice(&[0x74, 0xf6]);
    let space = space(&bytes);
    let mut graph = Graph::new(&space, &Functions, Isa::X86_64).native_after(1);
    let mut returns = ReturnStack::default();
    for taken in [0, 1] {
        walk(&mut graph, START, &mut outcomes(taken, 1), STOPS, &mut returns);
    }
    let mut left = outcomes(1, 1);
    let (exit, _) = walk(&mut graph, START + 2, &mut left, STOPS, &mut returns);
    assert_eq!((exit, left), (NativeExit::Before(graph.at(START + 2, 0).unwrap()), outcomes(1, 1)));
}

/// A return without a known call takes no outcome.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn returns_without_a_known_call_end_the_walk_before_their_block() {
    let space = space(&[0x90, 0xc3]);
    let mut graph = Graph::new(&space, &Functions, Isa::X86_64).native_after(1);
    for bits in [0b1011, 0b0101] {
        let mut left = outcomes(bits, 4);
        let (exit, function_runs) = walk(&mut graph, START, &mut left, STOPS, &mut ReturnStack::default());
        assert_eq!(exit, NativeExit::Before(graph.at(START, 0).unwrap()));
        assert_eq!(left, outcomes(bits, 4));
        assert!(function_runs.is_empty());
    }
}

/// When calls nest too deeply, native code drops the oldest, as the processor does.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn the_oldest_calls_fall_out() {
    // je 401007; call 401000; ret
    let bytes = [0x74, 5, 0xe8, 0xf9, 0xff, 0xff, 0xff, 0xc3];
    let space = space(&bytes);
    let mut graph = Graph::new(&space, &Functions, Isa::X86_64).native_after(1);
    let mut returns = ReturnStack::default();
    let mut calls = |count: u32| {
        let mut left = outcomes(0, count);
        let (exit, function_runs) = walk(&mut graph, START, &mut left, GOES_ON, &mut returns);
        assert_eq!(
            exit,
            NativeExit::Before(graph.at(START, 0).unwrap()),
            "before a branch without an outcome"
        );
        assert_eq!((left, function_runs.ended().len()), (NO_OUTCOMES, count as usize));
        assert!(
            function_runs.ended().iter().all(|call| call.transfer == Transfer::Call && call.end == START + 7)
        );
    };
    calls(60);
    calls(10);
    assert!(returns.addresses().eq([START + 7; 64]));
    let mut left = outcomes(u64::MAX >> 1, 63);
    walk(&mut graph, START, &mut left, STOPS, &mut returns);
    // The branch takes one outcome.
    assert_eq!((left, returns.addresses().count()), (NO_OUTCOMES, 2));
    let mut left = outcomes(0b1111, 4);
    let (exit, function_runs) = walk(&mut graph, START + 7, &mut left, STOPS, &mut returns);
    assert_eq!(exit, NativeExit::Before(graph.at(START + 7, 0).unwrap()));
    assert_eq!((left, function_runs.ended().len()), (outcomes(0b11, 2), 2));
    assert!(returns.is_empty());
}

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn full_code_is_discarded_and_gets_more_space() {
    // Overlapping forward branches, either all taken or none.
    let bytes: Vec<u8> = [0x74, 1, 0x90].repeat(2000);
    let space = space(&bytes);
    let mut graph = Graph::new(&space, &Functions, Isa::X86_64);
    let are_returns_compressed = true;
    graph.native = Native::Made(Box::new(Code::new(1 << 14, are_returns_compressed).unwrap()));
    let mut returns = ReturnStack::default();
    let (mut from, mut instructions) = (START, 0);
    for taken in [0, u64::MAX >> 1].into_iter().cycle().take(30) {
        let mut left = outcomes(taken, 63);
        let (exit, function_runs) = walk(&mut graph, from, &mut left, STOPS, &mut returns);
        let NativeExit::Before(id) = exit else { panic!("all can be read") };
        from = graph.start(id);
        let mut function_runs = function_runs;
        function_runs.close();
        instructions += function_runs.ended().last().map_or(0, |last| last.until);
        if left != NO_OUTCOMES {
            // The native code was full and is discarded: the remaining outcomes are left.
            break;
        }
    }
    let Native::Made(code) = &graph.native else { panic!("there is more room") };
    assert!(code.size() > 1 << 14);
    assert!(instructions > 0);
}

/// Indirect branches lead from batch to batch, for new and for cached targets, up to unreadable code.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn indirect_branches_lead_from_batch_to_batch() {
    let mut bytes = [0x90; 48];
    bytes[..2].copy_from_slice(&[0xff, 0xe0]); // jmp *%rax
    bytes[16..18].copy_from_slice(&[0xff, 0xd0]); // call *%rax
    bytes[32] = 0xc3; // ret
    let space = space(&bytes);
    for are_returns_compressed in [true, false] {
        let mut graph = Graph::new(&space, &Functions, Isa::X86_64).native_after(1);
        let from = graph.at(START, 0).unwrap();
        graph.has_code(are_returns_compressed);
        let mut calls = ReturnStack::default();
        let mut function_runs = FunctionRuns::default();
        function_runs.begin(START, graph.compact(from));
        let rules = Rules { tick: 0, are_returns_compressed };
        let run = |graph: &mut Graph<'_, _>, function_runs: &mut _, calls: &mut _, to: &[u64]| {
            let mut branch_batches = BranchBatches::default();
            to.iter().for_each(|to| assert!(branch_batches.push(0, 0, Some(START + to))));
            (
                graph.run(from, &mut branch_batches, function_runs, calls, rules).unwrap(),
                branch_batches.passed(),
            )
        };
        for _ in 0..3 {
            // The walk passes an uncompressed return if all returns are uncompressed; else it exits there.
            let (exit, passed) = run(&mut graph, &mut function_runs, &mut calls, &[16, 32, 18]);
            let expected = if are_returns_compressed { (32, 2) } else { (18, 3) };
            assert_eq!(
                (exit, passed),
                (NativeExit::Before(graph.at(START + expected.0, 0).unwrap()), expected.1)
            );
            let reported: Vec<_> =
                function_runs.ended().iter().map(|run| (run.start - START, run.transfer)).collect();
            let all = [(0, Transfer::IndirectJump), (16, Transfer::Call), (32, Transfer::Return)];
            assert_eq!(reported, all[..passed]);
            assert!(calls.addresses().eq([START + 18].into_iter().filter(|_| are_returns_compressed)));
            calls.clear();
            function_runs.clear();
            function_runs.begin(START, graph.compact(from));
        }
        let (exit, passed) = run(&mut graph, &mut function_runs, &mut calls, &[16, 0x1000, 32]);
        assert_eq!((exit, passed), (NativeExit::Unreadable(START + 0x1000), 2));
    }
}
