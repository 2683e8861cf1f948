//! Laws of N-Trace: messages and flow, as for E-Trace.

#[path = "flow/execution.rs"]
#[allow(dead_code)]
mod execution;

use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etrace::ntrace::{
    Branch, Configuration, Decoder, Encoder, Form, Message, Messages, Mode, Resource, Synchronization,
    synchronization_points,
};
use hodo_flow::{Event, Executed, Sink, Trouble};
use proptest::prelude::*;

use execution::{Execution, Returns, Step};

/// The addresses that a decoder reports, with `None` for each gap, and the gaps.
#[derive(Clone, Debug, Default)]
struct Report {
    ran: Vec<Option<u64>>,
    gaps: Vec<Trouble>,
}

impl Sink for Report {
    fn executed(&mut self, executed: Executed<'_>) {
        self.ran.extend(executed.addresses().map(Some));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Gap(gap) => {
                self.ran.push(None);
                self.gaps.push(gap.trouble);
            }
            Event::Disabled { cause, .. } | Event::Asynchronous { cause, .. } => {
                assert_eq!(cause, None, "messages do not contain the cause");
            }
            _ => {}
        }
    }
}

impl Report {
    fn addresses(&self) -> Vec<u64> {
        self.ran.iter().copied().flatten().collect()
    }

    /// Whether this is what ran, except for instructions in gaps.
    fn is_part_of(&self, ran: &[u64]) -> bool {
        let mut positions = vec![0];
        for line in &self.ran {
            match line {
                Some(address) => {
                    positions.retain(|&at: &usize| ran.get(at) == Some(address));
                    positions.iter_mut().for_each(|at| *at += 1);
                }
                None => positions = (positions.first().copied().unwrap_or(0)..=ran.len()).collect(),
            }
        }
        positions.last() == Some(&ran.len())
    }
}

fn encode(execution: &Execution, configuration: &Configuration, mode: Mode, resync_after: u64) -> Vec<u8> {
    use hodo_etrace::encoder::Retired;
    let mut encoder = Encoder::new(configuration, mode, resync_after);
    for step in &execution.steps {
        match *step {
            Step::Retired(address, instruction, privilege, notify) => {
                encoder.retire(&Retired { address, instruction, privilege, notify });
            }
            Step::Trap(taken) => encoder.trap(&taken),
            Step::End(next) => encoder.end(next),
            Step::Time(_) | Step::Context(_) | Step::Synchronize => {}
        }
    }
    encoder.end(None);
    let mut stream = vec![0xff; 3];
    for message in encoder.take() {
        message.write(configuration.source.unwrap_or(0), configuration.source_width, None, &mut stream);
    }
    stream
}

fn decode(stream: &[u8], configuration: &Configuration, parts: &[(u64, &[u8])], cuts: &[usize]) -> Report {
    let mut space = AddressSpace::new();
    for &(address, bytes) in parts {
        let content = Content { bytes, origin: Origin { module: 0, offset: address } };
        space.map(address..address + bytes.len() as u64, content, 0);
    }
    let mut program = Program::new(&space, &NoLabels);
    let mut report = Report::default();
    let points: Vec<usize> = std::iter::once(0).chain(cuts.iter().copied().filter(|&at| at > 3)).collect();
    for (index, &point) in points.iter().enumerate() {
        let end = points.get(index + 1).copied().unwrap_or(stream.len());
        Decoder::new(stream, point..end, configuration).decode(&mut program, &mut report);
    }
    report
}

fn configurations() -> impl Strategy<Value = Configuration> {
    (0_u8..=12, any::<bool>(), prop::option::of(1_u16..8)).prop_map(|(source_width, sijump, return_stack)| {
        Configuration { source_width, sijump, return_stack, ..Configuration::default() }
    })
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Branches), Just(Mode::History)]
}

/// Any message made of any numbers.
fn message(kind: u8, numbers: [u64; 4]) -> Message {
    let [a, b, c, d] = numbers;
    let history = (a & 8 == 8).then_some(c | 1);
    let (small, two) = ((d & 15) as u8, (d >> 4 & 3) as u8);
    let form = match d >> 6 & 3 {
        0 => Form::Program,
        1 => Form::Direct,
        _ => Form::Indirect { kind: two, history },
    };
    match kind {
        0 => Message::Ownership { process: a },
        1 => Message::DirectBranch { count: a },
        2 => Message::IndirectBranch(Branch { kind: two, count: a, address: b, history }),
        3 => Message::Error { kind: small, code: a },
        4 => Message::Synchronization(Synchronization { form, reason: small, count: a, address: b }),
        5 => Message::ResourceFull(Resource::Count(a)),
        6 => Message::ResourceFull(Resource::History(a | 1)),
        7 => Message::ResourceFull(Resource::Repeated { history: a | 1, times: b }),
        8 => Message::RepeatBranch { count: a },
        _ => Message::Correlation { event: small, count: a, history },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn messages_that_are_written_are_read(
        written in prop::collection::vec((0_u8..10, any::<[u64; 4]>(), prop::option::of(any::<u64>())), 1..6),
        source in any::<u16>(),
        source_width in 0_u8..=12,
    ) {
        let source = source & ((1 << source_width) - 1);
        let mut stream = Vec::new();
        for &(kind, numbers, time) in &written {
            message(kind, numbers).write(source, source_width, time, &mut stream);
            stream.push(0xff);
        }
        let mut messages = Messages::new(&stream, 0, source_width);
        for &(kind, numbers, time) in &written {
            let unit = messages.next_message().expect("a message").expect("as many as written");
            prop_assert_eq!((unit.message, unit.source, unit.time), (message(kind, numbers), source, time));
        }
        prop_assert_eq!(messages.next_message(), Ok(None));
    }

    #[test]
    fn any_bytes_are_read_to_the_end(bytes in prop::collection::vec(any::<u8>(), 0..100), source_width in 0_u8..=12) {
        let mut messages = Messages::new(&bytes, 0, source_width);
        loop {
            let before = messages.position();
            match messages.next_message() {
                Ok(None) => break,
                _ => prop_assert!(messages.position() > before),
            }
        }
        prop_assert_eq!(messages.position(), bytes.len());
    }

    #[test]
    fn what_is_encoded_is_decoded(
        configuration in configurations(),
        mode in modes(),
        resync_after in prop_oneof![1_u64..20, Just(u64::MAX)],
        seed in any::<u64>(),
        length in 1_usize..400,
    ) {
        let execution = Execution::new(seed, length, Returns::Anywhere);
        let stream = encode(&execution, &configuration, mode, resync_after);
        let code = [(execution::BASE, &execution.code[..])];
        let points = synchronization_points(&stream, &configuration);
        for cut in [usize::MAX, 1, 3] {
            let cuts: Vec<usize> = points.iter().copied().step_by(cut).collect();
            let report = decode(&stream, &configuration, &code, &cuts);
            prop_assert_eq!(&report.gaps, &vec![]);
            prop_assert_eq!(report.addresses(), execution.retired());
        }
    }

    #[test]
    fn missing_code_makes_gaps(
        configuration in configurations(),
        mode in modes(),
        seed in any::<u64>(),
        length in 1_usize..300,
        missing in 0_usize..6,
    ) {
        let execution = Execution::new(seed, length, Returns::Anywhere);
        let stream = encode(&execution, &configuration, mode, 10);
        let size = execution::SIZE as usize;
        let (before, after) = (&execution.code[..missing * size], &execution.code[(missing + 1) * size..]);
        let parts = [(execution::BASE, before), (execution::BASE + (missing as u64 + 1) * execution::SIZE, after)];
        let report = decode(&stream, &configuration, &parts, &[]);
        prop_assert!(report.gaps.iter().all(|gap| matches!(gap, Trouble::Code(_))), "{:x?}", report.gaps);
        let ran = execution.retired();
        prop_assert!(report.is_part_of(&ran), "{:x?}, not {:x?}", report, ran);
    }

    #[test]
    fn damaged_streams_decode_alike_however_they_are_cut(
        configuration in configurations(),
        mode in modes(),
        seed in any::<u64>(),
        length in 1_usize..300,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let execution = Execution::new(seed, length, Returns::Anywhere);
        let mut stream = encode(&execution, &configuration, mode, 8);
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let code = [(execution::BASE, &execution.code[..])];
        let whole = decode(&stream, &configuration, &code, &[]);
        let points = synchronization_points(&stream, &configuration);
        for cut in [1, 3] {
            let cuts: Vec<usize> = points.iter().copied().step_by(cut).collect();
            let chunks = decode(&stream, &configuration, &code, &cuts);
            prop_assert_eq!(chunks.addresses(), whole.addresses());
        }
    }

    #[test]
    fn any_code_is_walked_over_alike_however_the_stream_is_cut(
        configuration in configurations(),
        mode in modes(),
        seed in any::<u64>(),
        length in 1_usize..300,
        code in prop::collection::vec(any::<u8>(), 0..400),
        other in prop::option::of(any::<u64>()),
    ) {
        let execution = Execution::new(seed, length, Returns::Anywhere);
        let stream = encode(&execution, &configuration, mode, 8);
        let code = other.map_or(code, |seed| Execution::new(seed, 1, Returns::Anywhere).code);
        let code = [(execution::BASE, &code[..])];
        let whole = decode(&stream, &configuration, &code, &[]);
        let chunks = decode(&stream, &configuration, &code, &synchronization_points(&stream, &configuration));
        prop_assert_eq!(chunks.addresses(), whole.addresses());
    }
}

/// Examples of the specification, section "I-CNT Details" and "Address XOR Calculation Examples".
#[test]
fn bytes_are_those_of_the_specification() {
    let mut bytes = Vec::new();
    let start = Synchronization { form: Form::Program, reason: 3, count: 0, address: 0x80 };
    Message::Synchronization(start).write(0, 0, None, &mut bytes);
    // TCODE 9; SYNC 3 and the count 0 in six bits; the address in two bytes.
    assert_eq!(bytes, [9 << 2, 3 << 2 | 1, 0, 2 << 2 | 3]);
    bytes.clear();
    Message::DirectBranch { count: 3 }.write(0, 0, None, &mut bytes);
    assert_eq!(bytes, [3 << 2, 3 << 2 | 3]);
    assert_eq!((0x3f368 ^ 0x3fc04) >> 1, 0x7b6_u64);
}

/// Repetitions that a damaged message asks for.
#[test]
fn a_count_that_so_few_bytes_cannot_have_is_a_gap() {
    let configuration = Configuration::default();
    // beq x0, x0, .
    let code = 0x63_u32.to_le_bytes();
    let start = Message::Synchronization(Synchronization {
        form: Form::Program,
        reason: 0,
        count: 0,
        address: execution::BASE >> 1,
    });
    let branch = Message::DirectBranch { count: 2 };
    let repeated = Message::ResourceFull(Resource::Repeated { history: 0b111, times: 1000 });
    let run = |messages: &[Message]| {
        let mut stream = vec![0xff; 3];
        for message in messages {
            message.write(0, configuration.source_width, None, &mut stream);
        }
        decode(&stream, &configuration, &[(execution::BASE, &code)], &[])
    };
    let check = |messages: &[Message], expected: usize, gaps: usize| {
        let report = run(messages);
        assert_eq!((report.addresses().len(), report.gaps.len()), (expected, gaps), "{messages:?}");
    };
    check(&[start, branch, Message::RepeatBranch { count: 1000 }], 1001, 0);
    check(&[start, repeated], 2000, 0);
    let most = (1 << 18) - 1;
    let long = Message::ResourceFull(Resource::Repeated { history: 0xffff_ffff, times: most });
    // The second one is too much for so few bytes.
    let branches = most as usize * 31;
    check(&[start, long, long, start], branches, 1);
    // So many repetitions of one branch take long enough for the bytes of some messages only.
    let repetitions = [Message::RepeatBranch { count: most }; 40];
    let report = run(&[&[start, branch], &repetitions[..], &[start]].concat());
    assert_eq!(report.gaps.len(), 1);
    assert!((16..20).contains(&(report.addresses().len() / most as usize)), "{}", report.addresses().len());
}
