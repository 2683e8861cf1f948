//! Any code and any bytes as RISC-V's traces: the decoders come to an end, what they report lies in the code, and it is the
//! same wherever the stream is cut.

#![no_main]

use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etrace::{
    Configuration, Parameters, flow,
    ntrace::{self, Messages},
    packet::{Options, Packet},
    transport::Transport,
};
use hodo_flow::{Event, Executed, Sink};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

const BASE: u64 = 0x1_0000;
/// Bytes of code and of a stream, at most.
const CODE: usize = 1 << 9;
const STREAM: usize = 1 << 9;

#[derive(Arbitrary, Debug)]
struct Input {
    code: Vec<u8>,
    stream: Vec<u8>,
    is_encapsulated: bool,
    zcmp: bool,
    sijump: bool,
    return_stack_size: u8,
    call_counter_size: u8,
    cache_size: u8,
    bpred_size: u8,
    has_prediction: bool,
    is_messages: bool,
}

/// The addresses that were reported.
#[derive(Default, PartialEq, Eq, Debug)]
struct Addresses(Vec<u64>);

impl Sink for Addresses {
    fn executed(&mut self, executed: Executed<'_>) {
        self.0.extend(executed.addresses());
    }

    fn event(&mut self, _: Event) {}
}

fuzz_target!(|input: Input| {
    let code = &input.code[..input.code.len().min(CODE)];
    let stream = &input.stream[..input.stream.len().min(STREAM)];
    let mut space = AddressSpace::new();
    space.map(BASE..BASE + code.len() as u64, Content { bytes: code, origin: Origin::default() }, 0);
    let (whole, cut) = match input.is_messages {
        true => messages(&input, stream, &space),
        false => packets(&input, stream, &space),
    };
    assert!(whole.0.iter().all(|address| (BASE..BASE + code.len() as u64).contains(address)));
    assert_eq!(whole, cut);
});

fn packets(input: &Input, stream: &[u8], space: &AddressSpace<'_>) -> (Addresses, Addresses) {
    let transport = match input.is_encapsulated {
        true => Transport::Encapsulation { source_width: 2, time_bytes: 1, kind_width: 1 },
        false => Transport::Messages { source_width: 0 },
    };
    let stack = input.return_stack_size % 6;
    let parameters = Parameters {
        zcmp: input.zcmp,
        sijump: input.sijump,
        return_stack_size: stack,
        call_counter_size: if stack == 0 { input.call_counter_size % 6 } else { 0 },
        bpred_size: input.bpred_size % 6,
        f0s_width: 1,
        cache_size: input.cache_size % 6,
        ..Parameters::default()
    };
    parameters.check().expect("parameters in their ranges");
    for options in [Options::default(), Options { implicit_return: true, ..Options::default() }] {
        if let Ok(packet) = Packet::decode(stream, &parameters, options) {
            let again = packet.encode(&parameters, options);
            assert_eq!(Packet::decode(&again, &parameters, options), Ok(packet));
        }
    }
    let configuration = Configuration { source: None, carrier_time: false, transport, parameters };
    let mut program = Program::new(space, &NoLabels);
    let mut whole = Addresses::default();
    let none = Options { branch_prediction: input.has_prediction, ..Options::default() };
    flow::Decoder::new(stream, 0..stream.len(), &configuration, none).decode(&mut program, &mut whole);
    let mut cut = Addresses::default();
    let mut points = vec![flow::SynchronizationPoint { at: 0, options: none }];
    let found = flow::synchronization_points(stream, &configuration);
    points.extend(found.into_iter().filter(|point| point.at > 0));
    for (index, point) in points.iter().enumerate() {
        let end = points.get(index + 1).map_or(stream.len(), |next| next.at);
        flow::Decoder::new(stream, point.at..end, &configuration, point.options).decode(&mut program, &mut cut);
    }
    (whole, cut)
}

fn messages(input: &Input, stream: &[u8], space: &AddressSpace<'_>) -> (Addresses, Addresses) {
    let configuration = ntrace::Configuration {
        zcmp: input.zcmp,
        sijump: input.sijump,
        return_stack: (input.return_stack_size > 0).then_some(u16::from(input.return_stack_size % 40)),
        ..ntrace::Configuration::default()
    };
    let mut messages = Messages::new(stream, 0, 0);
    while let Ok(Some(unit)) = messages.next_message() {
        let mut again = Vec::new();
        unit.message.write(unit.source, 0, unit.time, &mut again);
        let read = Messages::new(&again, 0, 0).next_message();
        assert_eq!(read, Ok(Some(ntrace::Unit { at: 0, ..unit })));
    }
    let mut program = Program::new(space, &NoLabels);
    let mut whole = Addresses::default();
    ntrace::Decoder::new(stream, 0..stream.len(), &configuration).decode(&mut program, &mut whole);
    let mut cut = Addresses::default();
    let found = ntrace::synchronization_points(stream, &configuration);
    let points: Vec<usize> = std::iter::once(0).chain(found.into_iter().filter(|&at| at > 0)).collect();
    for (index, &point) in points.iter().enumerate() {
        let end = points.get(index + 1).copied().unwrap_or(stream.len());
        ntrace::Decoder::new(stream, point..end, &configuration).decode(&mut program, &mut cut);
    }
    (whole, cut)
}
