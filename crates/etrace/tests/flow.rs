//! Laws of the flow: what is encoded of any execution is decoded, in every mode, however the stream is cut.

#[path = "flow/execution.rs"]
mod execution;

use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etrace::{
    Configuration, Parameters,
    encoder::Encoder,
    flow::{Decoder, SynchronizationPoint, synchronization_points},
    packet::{Context, Options, Packet, Prediction, Start},
    transport::{Kind, Transport, Unit},
};
use hodo_flow::{Event, Executed, Sink, Trouble};
use proptest::prelude::*;

use execution::{Execution, Returns};

/// What a decoder reports, with gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Report {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Ran(u64),
    Event(Event),
}

impl Sink for Report {
    fn executed(&mut self, executed: Executed<'_>) {
        self.lines.extend(executed.addresses().map(Line::Ran));
    }

    fn event(&mut self, event: Event) {
        self.lines.push(Line::Event(event));
    }
}

impl Report {
    fn addresses(&self) -> Vec<u64> {
        let address = |line: &Line| match line {
            Line::Ran(address) => Some(*address),
            Line::Event(_) => None,
        };
        self.lines.iter().filter_map(address).collect()
    }

    /// Whether this is what ran, except for instructions in gaps.
    fn is_part_of(&self, ran: &[u64]) -> bool {
        // Where the next instruction may be.
        let mut positions = vec![0];
        for line in &self.lines {
            match line {
                Line::Ran(address) => {
                    positions.retain(|&at: &usize| ran.get(at) == Some(address));
                    positions.iter_mut().for_each(|at| *at += 1);
                }
                Line::Event(Event::Gap(_)) => {
                    positions = (positions.first().copied().unwrap_or(0)..=ran.len()).collect();
                }
                Line::Event(_) => {}
            }
            if positions.is_empty() {
                return false;
            }
        }
        positions.last() == Some(&ran.len()) || self.lines.is_empty()
    }

    fn gaps(&self) -> Vec<Trouble> {
        let gap = |line: &Line| match line {
            Line::Event(Event::Gap(gap)) => Some(gap.trouble),
            _ => None,
        };
        self.lines.iter().filter_map(gap).collect()
    }
}

fn modes() -> impl Strategy<Value = (Parameters, Options)> {
    let sizes = (0_u8..4, 0_u8..4, 0_u8..3, 0_u8..4, any::<bool>());
    (sizes, any::<[bool; 5]>(), 0_u8..=2).prop_map(|(sizes, bits, widths)| {
        let (stack, counter, cache_size, bpred_size, is_counter) = sizes;
        let parameters = Parameters {
            return_stack_size: if is_counter { 0 } else { stack },
            call_counter_size: if is_counter { counter } else { 0 },
            cache_size,
            bpred_size,
            f0s_width: 1,
            sijump: bits[0],
            time_width: widths * 20,
            context_width: widths * 4,
            ..Parameters::default()
        };
        let options = Options {
            implicit_return: bits[1],
            full_address: bits[2],
            jump_target_cache: bits[3],
            branch_prediction: bits[4],
            ..Options::default()
        };
        (parameters, options)
    })
}

fn encode(
    execution: &Execution,
    configuration: &Configuration,
    options: Options,
    resync_after: u64,
) -> Vec<u8> {
    let mut encoder = Encoder::new(&configuration.parameters, options, resync_after);
    execution.encode(&mut encoder);
    let options = encoder.options();
    let mut stream = Vec::new();
    for packet in encoder.take() {
        let payload = packet.encode(&configuration.parameters, options);
        let unit = Unit { at: 0, source: 0, time: None, kind: Kind::Instruction, payload: &payload, skip: 0 };
        configuration.transport.write(&unit, &mut stream);
    }
    stream
}

/// Decodes a stream that is cut at some of its synchronization points.
fn decode(
    stream: &[u8],
    configuration: &Configuration,
    code: &[u8],
    cuts: &[SynchronizationPoint],
) -> Report {
    decode_with(stream, configuration, &[(execution::BASE, code)], cuts)
}

/// Decodes with parts of the code.
fn decode_with(
    stream: &[u8],
    configuration: &Configuration,
    parts: &[(u64, &[u8])],
    cuts: &[SynchronizationPoint],
) -> Report {
    let mut space = AddressSpace::new();
    for &(address, bytes) in parts {
        let content = Content { bytes, origin: Origin { module: 0, offset: address } };
        space.map(address..address + bytes.len() as u64, content, 0);
    }
    let mut program = Program::new(&space, &NoLabels);
    let mut report = Report::default();
    let begin = SynchronizationPoint { at: 0, options: Options::default() };
    let points: Vec<_> =
        std::iter::once(begin).chain(cuts.iter().copied().filter(|point| point.at > 0)).collect();
    for (index, point) in points.iter().enumerate() {
        let end = points.get(index + 1).map_or(stream.len(), |next| next.at);
        Decoder::new(stream, point.at..end, configuration, point.options).decode(&mut program, &mut report);
    }
    report
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded(
        (parameters, options) in modes(),
        resync_after in prop_oneof![1_u64..4, 5_u64..40, Just(u64::MAX)],
        seed in any::<u64>(),
        length in 1_usize..400,
        is_encapsulated in any::<bool>(),
        synchronize_every in prop::option::of(1_usize..50),
    ) {
        let transport = match is_encapsulated {
            true => Transport::Encapsulation { source_width: 3, time_bytes: 0, kind_width: 1 },
            false => Transport::default(),
        };
        // A counter does not notice returns that go elsewhere.
        let is_counter = options.implicit_return && parameters.return_stack_size == 0;
        let returns = if is_counter { Returns::ToCallers } else { Returns::Anywhere };
        let configuration = Configuration { source: None, carrier_time: false, transport, parameters };
        let mut execution = Execution::new(seed, length, returns);
        if let Some(every) = synchronize_every {
            execution.synchronize(every);
        }
        let stream = encode(&execution, &configuration, options, resync_after);
        let ran = execution.retired();
        let check = |report: &Report| {
            // Several paths may fit implicit returns by specification.
            let is_ambiguous = |trouble: &Trouble| matches!(trouble, Trouble::Ambiguous { .. });
            let all_known = if options.implicit_return { report.gaps().iter().all(is_ambiguous) } else { report.gaps().is_empty() };
            if !all_known {
                return Err(TestCaseError::fail(format!("{:x?}", report.gaps())));
            }
            if report.gaps().is_empty() {
                prop_assert_eq!(report.addresses(), ran.clone());
            }
            prop_assert!(report.is_part_of(&ran), "{:x?}, not {:x?}", report, ran);
            Ok(())
        };
        check(&decode(&stream, &configuration, &execution.code, &[]))?;
        let points = synchronization_points(&stream, &configuration);
        for cut in [1, 2, 5] {
            let cuts: Vec<_> = points.iter().copied().step_by(cut).collect();
            check(&decode(&stream, &configuration, &execution.code, &cuts))?;
        }
    }

    /// Code that is missing makes gaps; what is reported beside them is what ran.
    #[test]
    fn missing_code_makes_gaps(
        (parameters, options) in modes(),
        resync_after in prop_oneof![5_u64..40, Just(u64::MAX)],
        seed in any::<u64>(),
        length in 1_usize..300,
        missing in 0_usize..6,
    ) {
        let is_counter = options.implicit_return && parameters.return_stack_size == 0;
        let returns = if is_counter { Returns::ToCallers } else { Returns::Anywhere };
        let configuration = Configuration { transport: Transport::default(), parameters, ..Configuration::default() };
        let execution = Execution::new(seed, length, returns);
        let stream = encode(&execution, &configuration, options, resync_after);
        let size = execution::SIZE as usize;
        let (before, after) = (&execution.code[..missing * size], &execution.code[(missing + 1) * size..]);
        let parts = [(execution::BASE, before), (execution::BASE + (missing as u64 + 1) * execution::SIZE, after)];
        let report = decode_with(&stream, &configuration, &parts, &[]);
        let hidden = parts[1].0 - execution::SIZE..parts[1].0;
        prop_assert!(report.addresses().iter().all(|address| !hidden.contains(address)));
        // Where the target of a return that failed is missing, its packet has several readings.
        let is_known = |trouble: &Trouble| options.implicit_return || matches!(trouble, Trouble::Code(_));
        prop_assert!(report.gaps().iter().all(is_known), "{:x?}", report.gaps());
        prop_assert!(report.is_part_of(&execution.retired()), "{:x?}, not {:x?}", report, execution.retired());
    }

    /// Damaged bytes end in gaps, not in panics, and cutting still changes nothing.
    #[test]
    fn damaged_streams_decode_alike_however_they_are_cut(
        (parameters, options) in modes(),
        resync_after in 1_u64..10,
        seed in any::<u64>(),
        length in 1_usize..300,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        // A damaged count of predicted branches may be as long as millions of instructions.
        let parameters = Parameters { bpred_size: 0, ..parameters };
        let configuration = Configuration { transport: Transport::default(), parameters, ..Configuration::default() };
        let execution = Execution::new(seed, length, Returns::Anywhere);
        let mut stream = encode(&execution, &configuration, options, resync_after);
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let whole = decode(&stream, &configuration, &execution.code, &[]);
        let points = synchronization_points(&stream, &configuration);
        for cut in [1, 3] {
            let cuts: Vec<_> = points.iter().copied().step_by(cut).collect();
            let chunks = decode(&stream, &configuration, &execution.code, &cuts);
            prop_assert_eq!(chunks.addresses(), whole.addresses(), "{:x?}\n{:x?}", chunks, whole);
        }
    }

    /// Other code than what ran contradicts the trace, in any way.
    #[test]
    fn any_code_is_walked_over_alike_however_the_stream_is_cut(
        (parameters, options) in modes(),
        resync_after in 1_u64..10,
        seed in any::<u64>(),
        length in 1_usize..300,
        code in prop::collection::vec(any::<u8>(), 0..400),
        other in prop::option::of(any::<u64>()),
    ) {
        let configuration = Configuration { transport: Transport::default(), parameters, ..Configuration::default() };
        let execution = Execution::new(seed, length, Returns::Anywhere);
        let stream = encode(&execution, &configuration, options, resync_after);
        let code = other.map_or(code, |seed| Execution::new(seed, 1, Returns::Anywhere).code);
        let whole = decode(&stream, &configuration, &code, &[]);
        let chunks = decode(&stream, &configuration, &code, &synchronization_points(&stream, &configuration));
        prop_assert_eq!(chunks.addresses(), whole.addresses(), "{:x?}\n{:x?}", chunks, whole);
    }
}

/// A branch to itself, predicted as taken, as often as a damaged packet says.
#[test]
fn a_count_that_so_few_bytes_cannot_have_is_a_gap() {
    let parameters = Parameters { bpred_size: 2, ..Parameters::default() };
    let options = Options { branch_prediction: true, ..Options::default() };
    let configuration =
        Configuration { source: None, transport: Transport::default(), carrier_time: false, parameters };
    // beq x0, x0, .
    let code = 0x63_u32.to_le_bytes();
    let context = Context { privilege: 0, time: None, context: None };
    let start = Packet::Start(Start { taken: true, context, address: execution::BASE });
    let predicted = |count| Packet::Predicted { count, end: Prediction::Failed };
    let check = |count: u64, expected: usize, gaps: usize| {
        let mut stream = Vec::new();
        for packet in [start, predicted(count), start] {
            let payload = packet.encode(&configuration.parameters, options);
            let unit =
                Unit { at: 0, source: 0, time: None, kind: Kind::Instruction, payload: &payload, skip: 0 };
            configuration.transport.write(&unit, &mut stream);
        }
        let content = Content { bytes: &code, origin: Origin::default() };
        let mut space = AddressSpace::new();
        space.map(execution::BASE..execution::BASE + 4, content, 0);
        let (mut program, mut report) = (Program::new(&space, &NoLabels), Report::default());
        Decoder::new(&stream, 0..stream.len(), &configuration, options).decode(&mut program, &mut report);
        assert_eq!((report.addresses().len(), report.gaps().len()), (expected, gaps), "{count}");
    };
    // Also the starts, and the branch that was mispredicted, which leaves the code.
    check(1000, 1003, 1);
    check(u32::MAX.into(), 2, 1);
}
