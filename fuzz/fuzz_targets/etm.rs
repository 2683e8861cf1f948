//! Any bytes as a trace of Arm over any code: the decoder comes to an end, what it shows lies in the code, and gaps lie
//! in the stream.

#![no_main]

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etm::{
    Config, Registers,
    flow::Decoder,
    frames,
    packet::{A_SYNC, find_sync},
};
use hodo_flow::{Event, Executed, Sink, Switch};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

/// Where the code lies.
const BASE: u64 = 0x40_0000;
/// Instructions of it, at most.
const CODE: usize = 256;

#[derive(Arbitrary, Debug)]
struct Input {
    code: Vec<u32>,
    config: u32,
    ids: [u32; 3],
    /// At most as many elements wait.
    speculation: u8,
    is_ete: bool,
    in_frames: bool,
    steps: Vec<Step>,
}

/// A part of a stream: packets by their header bytes. Random bytes are seldom synchronizations and addresses.
#[derive(Arbitrary, Debug)]
enum Step {
    Synchronization { state: u8 },
    Address(u8),
    ContextAddress(u8, u8),
    Exception(u8, u8),
    Bytes(Vec<u8>),
}

impl Step {
    fn write(&self, out: &mut Vec<u8>) {
        let context = |place: u8| [0x85, place, 0, 0x40, 0, 0, 0, 0, 0];
        match self {
            Step::Synchronization { state } => {
                out.extend(A_SYNC);
                // Trace Info with some of its sections; the content of each is 1.
                out.extend([1, state & 0x0f, 1, 1, 1, 1]);
            }
            Step::Address(place) => out.extend([0x95, place & 0x7f]),
            Step::ContextAddress(place, info) => {
                out.extend(context(place & 0x7f));
                out.push(info & 0x3f);
            }
            Step::Exception(kind, place) => out.extend([0x06, kind & 0x3e | 1, 0x95, place & 0x7f]),
            Step::Bytes(bytes) => out.extend(bytes),
        }
    }
}

struct Checks {
    code: u64,
    stream: u64,
}

impl Sink for Checks {
    fn executed(&mut self, executed: Executed<'_>) {
        for address in executed.addresses() {
            assert!((BASE..BASE + self.code).contains(&address));
        }
    }

    fn event(&mut self, event: Event) {
        if let Event::Gap(gap) = event {
            assert!(gap.from <= self.stream && gap.to <= self.stream);
        }
    }
}

fuzz_target!(|input: Input| {
    let code: Vec<u8> = input.code.iter().take(CODE).flat_map(|word| word.to_le_bytes()).collect();
    let mut space = AddressSpace::new();
    let content = Content { bytes: &code, origin: Origin::default() };
    space.map(BASE..BASE + code.len() as u64, content, 0);
    let [id0, id1, id2] = input.ids;
    let registers = Registers {
        config: input.config,
        trace_id: 0x10,
        id0,
        // The major version and the architecture part of an ETE.
        id1: if input.is_ete { id1 | 0xf00 } else { id1 },
        id2,
        id8: input.speculation.into(),
        device_architecture: if input.is_ete { 0xa13 } else { 0 },
    };
    let mut stream = Vec::new();
    input.steps.iter().for_each(|step| step.write(&mut stream));
    if input.in_frames {
        stream = frames::sources(&stream).into_iter().next().map(|source| source.bytes).unwrap_or_default();
    }
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut programs = [Program::new(&space, &NoLabels)];
    let mut next = find_sync(&stream);
    while let Some(start) = next {
        let behind = start + A_SYNC.len();
        next = find_sync(&stream[behind..]).map(|at| behind + at);
        let span = start..next.unwrap_or(stream.len());
        let mut checks = Checks { code: code.len() as u64, stream: stream.len() as u64 };
        Decoder::new(&stream, span, &Config::new(&registers), &schedule).decode(&mut programs, &mut checks);
    }
});
