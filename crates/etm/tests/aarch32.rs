//! Code of AArch32 state: T32 that calls A32, and branches that are conditional because of an IT instruction.

#![allow(missing_docs)]

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Isa, NoLabels, Origin, Program, Terminator};
use hodo_etm::{encoder::Settings, flow::Decoder, packet::A_SYNC};
use hodo_flow::{Event, Executed, Sink, Switch};

const START: u64 = 0x1000;

/// Instructions with their sets, and the terminators of blocks that took effect.
#[derive(Default)]
struct Ran {
    instructions: Vec<(u64, Isa)>,
    terminators: Vec<Terminator>,
    gaps: Vec<String>,
}

impl Sink for Ran {
    fn executed(&mut self, executed: Executed<'_>) {
        self.instructions.extend(executed.addresses().map(|address| (address, executed.code.isa)));
        if executed.is_whole() {
            self.terminators.push(executed.block.terminator);
        }
    }

    fn event(&mut self, event: Event) {
        if let Event::Gap(gap) = event {
            self.gaps.push(gap.trouble.to_string());
        }
    }
}

fn decode(settings: Settings, packets: &[u8]) -> Ran {
    let mut code = Vec::new();
    // it eq; bxeq lr; blx 1010 (A32); bx r3; nop; nop; nop
    for halfword in [0xbf08u16, 0x4770, 0xf000, 0xe804, 0x4718, 0xbf00, 0xbf00, 0xbf00] {
        code.extend(halfword.to_le_bytes());
    }
    // A32: bx lr
    code.extend(0xe12f_ff1eu32.to_le_bytes());
    let mut space = AddressSpace::new();
    let content = Content { bytes: &code, origin: Origin::default() };
    space.map(START..START + code.len() as u64, content, 0);
    // Trace info without cycle counts, and trace on.
    let state = [0x01, 0x01, 0x00, 0x04];
    // Address of 32 bits in T32, with its context: user mode, 32 bits.
    let begin = [0x83, 0x00, 0x10, 0x00, 0x00, 0x20];
    let trace = [&A_SYNC[..], &state, &begin, packets].concat();
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut ran = Ran::default();
    let decoder = Decoder::new(&trace, 0..trace.len(), &settings.config(), &schedule);
    decoder.decode(&mut [Program::new(&space, &NoLabels)], &mut ran);
    ran
}

const EXPECTED: [(u64, Isa); 5] =
    [(0x1000, Isa::T32), (0x1002, Isa::T32), (0x1004, Isa::T32), (0x1010, Isa::A32), (0x1008, Isa::T32)];

#[test]
fn calls_and_addresses_change_the_instruction_set() {
    // NE, E, the address 1008 in T32, E.
    let ran = decode(Settings::default(), &[0xda, 0xf7, 0x96, 0x04, 0xf7]);
    assert_eq!((&ran.instructions[..], ran.gaps.len()), (&EXPECTED[..], 0), "{:?}", ran.gaps);
    // The branch that did not take place is no return.
    assert_eq!(ran.terminators, [Terminator::Call, Terminator::Return, Terminator::IndirectJump]);
}

#[test]
fn the_return_stack_keeps_the_instruction_set() {
    let settings = Settings { return_stack: true, ..Settings::default() };
    let ran = decode(settings, &[0xda, 0xf7, 0xf7]);
    assert_eq!((&ran.instructions[..], ran.gaps.len()), (&EXPECTED[..], 0), "{:?}", ran.gaps);
}

#[test]
fn the_context_of_an_address_may_follow_it() {
    // The context of A64, trace on, the address 1010, the context of A32, E.
    let ran =
        decode(Settings::default(), &[0x81, 0x30, 0x04, 0x9a, 0x04, 0x08, 0x00, 0x00, 0x81, 0x20, 0xf7]);
    assert_eq!((&ran.instructions[..], ran.gaps.len()), (&[(0x1010, Isa::A32)][..], 0), "{:?}", ran.gaps);
}

#[test]
fn a_call_may_not_take_place() {
    // N at the call, in place of E: in A64 it would be a contradiction, here the call does not take place.
    let ran = decode(Settings::default(), &[0xd8]);
    assert_eq!(ran.instructions, EXPECTED[..3]);
    assert!(ran.terminators.is_empty() && ran.gaps.is_empty());
}

#[test]
fn branches_before_the_source_of_one_did_not_take_place() {
    let settings = Settings { is_ete: true, ..Settings::default() };
    // The branch at 1008 in T32 was taken.
    let ran = decode(settings, &[0xb5, 0x04]);
    let addresses: Vec<u64> = ran.instructions.iter().map(|(address, _)| *address).collect();
    assert_eq!(addresses, [0x1000, 0x1002, 0x1004, 0x1008], "{:?}", ran.gaps);
    assert_eq!(ran.terminators, [Terminator::IndirectJump]);
}
