//! Exceptions of M-profile: handlers that end with a branch to EXC_RETURN, one directly after another.

#![allow(missing_docs)]

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Isa, NoLabels, Origin, Program};
use hodo_etm::{
    encoder::{Encoder, Settings},
    flow::Decoder,
    packet::{self, Context, Packet},
};
use hodo_flow::{Cause, ControlFlowKind, Event, Executed, Sink, Switch};

const START: u64 = 0x100;
const EXC_RETURN: u64 = 0xffff_fff8;
const T32: u64 = 1;
/// Numbers of exceptions: an interrupt, and the one that its handler asks for.
const INTERRUPT: u16 = 0x209;
const PENDSV: u16 = 14;

#[derive(Default)]
struct Ran {
    addresses: Vec<u64>,
    exceptions: Vec<(u64, u64, &'static str)>,
    gaps: Vec<String>,
}

impl Sink for Ran {
    fn executed(&mut self, executed: Executed<'_>) {
        self.addresses.extend(executed.addresses());
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Asynchronous {
                from,
                to,
                cause: Some(Cause { kind: ControlFlowKind::Named(name), .. }),
            } => {
                self.exceptions.push((from, to, name));
            }
            Event::Gap(gap) => self.gaps.push(gap.trouble.to_string()),
            _ => {}
        }
    }
}

#[test]
fn handlers_follow_each_other_and_return() {
    // 100: nop; 102: nop; 104: b 100; 106: bx lr; 108: nop; 10a: bx lr
    let halfwords = [0xbf00u16, 0xbf00, 0xe7fc, 0x4770, 0xbf00, 0x4770];
    let code: Vec<u8> = halfwords.into_iter().flat_map(u16::to_le_bytes).collect();
    let settings = Settings { is_m_profile: true, ..Settings::default() };
    let mut encoder = Encoder::new(settings);
    let context = Context { is_non_secure: false, is_64: false, ..Context::default() };
    encoder.begin(START | T32, context);
    let run = |encoder: &mut Encoder, address: u64, next: u64| {
        let bytes = &code[(address - START) as usize..];
        let step = Isa::T32.instruction(bytes, address).expect("it is an instruction").step();
        encoder.executed(address | T32, &step, next | T32);
    };
    run(&mut encoder, 0x100, 0x102);
    encoder.exception(INTERRUPT, 0x102 | T32);
    encoder.handler(0x106 | T32, context);
    run(&mut encoder, 0x106, EXC_RETURN);
    encoder.exception(PENDSV, EXC_RETURN | T32);
    encoder.handler(0x108 | T32, context);
    run(&mut encoder, 0x108, 0x10a);
    run(&mut encoder, 0x10a, 0x102);
    encoder.exception_return();
    run(&mut encoder, 0x102, 0x104);
    run(&mut encoder, 0x104, 0x100);
    let trace = encoder.finish();

    let mut space = AddressSpace::new();
    let content = Content { bytes: &code, origin: Origin::default() };
    space.map(START..START + code.len() as u64, content, 0);
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut ran = Ran::default();
    Decoder::new(&trace, 0..trace.len(), &settings.config(), &schedule)
        .decode(&mut [Program::new(&space, &NoLabels)], &mut ran);
    assert_eq!(ran.addresses, [0x100, 0x106, 0x108, 0x10a, 0x102, 0x104], "{:?}", ran.gaps);
    assert_eq!(ran.exceptions, [(0x102, 0x106, "IRQ"), (EXC_RETURN, 0x108, "PendSV")]);
    assert!(ran.gaps.is_empty());
    let mut packets = packet::Decoder::new(&trace, 0, &settings.config());
    let mut returns = 0;
    while let Ok(Some(packet)) = packets.next_packet() {
        returns += u32::from(packet == Packet::ExceptionReturn);
    }
    assert_eq!(returns, 1);
}
