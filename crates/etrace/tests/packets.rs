//! Laws of packets and transports: what is encoded is decoded, and any bytes are read without a panic.

use hodo_etrace::{
    Configuration, Layout, ParameterError, Parameters,
    packet::{
        BranchMap, Context, Options, Packet, Prediction, Qualification, Reported, Start, Support, Trap,
    },
    transport::{Kind, Transport, Unit, Units},
};
use proptest::prelude::*;

fn parameters() -> impl Strategy<Value = Parameters> {
    let widths = (3_u8..=64, 1_u8..=2, 0_u8..=8, 0_u8..=16, 0_u8..=64, 0_u8..=64);
    let sizes = (1_u8..=3, 0_u8..=10, 0_u8..=10, 0_u8..=8, any::<bool>(), 0_u8..=3, any::<bool>());
    (widths, sizes).prop_map(|(widths, sizes)| {
        let (iaddress_width, iaddress_lsb, privilege_width, ecause_width, context_width, time_width) = widths;
        let (f0s_width, cache_size, bpred_size, depth, is_counter, encoder_mode_width, pulp) = sizes;
        Parameters {
            iaddress_width,
            iaddress_lsb,
            privilege_width,
            ecause_width,
            context_width,
            time_width,
            f0s_width,
            cache_size,
            bpred_size,
            return_stack_size: if is_counter { 0 } else { depth },
            call_counter_size: if is_counter { depth } else { 0 },
            encoder_mode_width,
            options: if pulp { Layout::Pulp } else { Layout::Reference },
            ..Parameters::default()
        }
    })
}

fn low(value: u64, width: u8) -> u64 {
    if width == 64 { value } else { value & ((1 << width) - 1) }
}

fn signed(value: u64, width: u8) -> i64 {
    let unused = 64 - u32::from(width);
    ((value << unused) as i64) >> unused
}

/// The address that a field can contain.
fn address(value: u64, parameters: &Parameters) -> u64 {
    signed(value, parameters.iaddress_width) as u64 >> parameters.iaddress_lsb << parameters.iaddress_lsb
}

fn map(count: u8, bits: u64) -> BranchMap {
    BranchMap { count, not_taken: low(bits, count) as u32 }
}

fn depth(value: u64, parameters: &Parameters) -> Option<u32> {
    let width = match parameters.return_stack_size {
        0 => parameters.call_counter_size,
        stack => stack + 1,
    };
    (value & 1 == 1).then(|| low(value >> 1, width) as u32)
}

/// Any packet that the parameters can express, made of any numbers.
fn packet(kind: u8, numbers: [u64; 6], parameters: &Parameters, options: Options) -> Packet {
    let [a, b, c, d, e, f] = numbers;
    let context = Context {
        privilege: low(a, parameters.privilege_width) as u8,
        time: (parameters.time_width > 0).then(|| low(b, parameters.time_width)),
        context: (parameters.context_width > 0).then(|| low(c, parameters.context_width)),
    };
    let reported = Reported {
        address: signed(d, parameters.iaddress_width - parameters.iaddress_lsb),
        notify: e & 1 == 1,
        updiscon: e & 2 == 2,
        depth: depth(f, parameters),
    };
    match kind {
        0 => Packet::Start(Start { taken: f & 1 == 1, context, address: address(d, parameters) }),
        1 => {
            let (is_interrupt, is_handler) = (e & 1 == 1, e & 2 == 2);
            let is_implicit = options.implicit_exception && is_handler;
            Packet::Trap(Trap {
                taken: f & 1 == 1,
                context,
                cause: low(a, parameters.ecause_width),
                is_interrupt,
                is_handler,
                address: (!is_implicit).then(|| address(d, parameters)),
                value: (!is_interrupt).then(|| low(f, parameters.iaddress_width)),
            })
        }
        2 => Packet::Context(context),
        3 => Packet::Support(Support {
            enabled: a & 1 == 1,
            mode: low(b, parameters.encoder_mode_width) as u8,
            qualification: [
                Qualification::Unchanged,
                Qualification::EndedReported,
                Qualification::Lost,
                Qualification::Ended,
            ][(c & 3) as usize],
            options: Options {
                // The reference layout has no bit for it.
                sijump: parameters.options == Layout::Pulp && options.sijump,
                ..options
            },
            data: [d & 1 == 1, d & 2 == 2],
        }),
        4 => Packet::Address(reported),
        5 => Packet::Branches { map: map((a % 31) as u8 + 1, b), reported: Some(reported) },
        6 => Packet::Branches { map: map(31, b), reported: None },
        7 => {
            let end = match a % 3 {
                0 => Prediction::Failed,
                1 => Prediction::Address(reported),
                _ => Prediction::FailedAt(reported),
            };
            Packet::Predicted { count: low(b, 32) + 31, end }
        }
        _ => Packet::Cached {
            index: low(a, parameters.cache_size) as u32,
            map: map((b % 32) as u8, c),
            depth: depth(f, parameters),
        },
    }
}

fn options() -> impl Strategy<Value = Options> {
    any::<[bool; 6]>().prop_map(|bits| Options {
        implicit_return: bits[0],
        implicit_exception: bits[1],
        full_address: bits[2],
        jump_target_cache: bits[3],
        branch_prediction: bits[4],
        sijump: bits[5],
    })
}

fn transport() -> impl Strategy<Value = Transport> {
    prop_oneof![
        (0_u8..=16).prop_map(|source_width| Transport::Messages { source_width }),
        (0_u8..=16, 0_u8..=8, 0_u8..=3).prop_map(|(source_width, time_bytes, kind_width)| {
            Transport::Encapsulation { source_width, time_bytes, kind_width }
        }),
        Just(Transport::Esp32),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_encoded_is_decoded(
        parameters in parameters(),
        options in options(),
        kind in 0_u8..9,
        numbers in any::<[u64; 6]>(),
    ) {
        // The enabled extensions decide what format 0 without a subformat means.
        let options = match kind {
            7 => Options { branch_prediction: true, ..options },
            8 => Options { jump_target_cache: true, ..options },
            _ => options,
        };
        let packet = packet(kind, numbers, &parameters, options);
        let payload = packet.encode(&parameters, options);
        prop_assert_eq!(Packet::decode(&payload, &parameters, options), Ok(packet), "{:x?}", payload);
        // The sign of the last byte stands for all that could follow, so no shorter payload is the same packet.
        prop_assert!(payload.len() == 1 || !payload.ends_with(&[0, 0]) && !payload.ends_with(&[0xff, 0xff]));
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error(
        parameters in parameters(),
        options in options(),
        bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        if let Ok(packet) = Packet::decode(&bytes, &parameters, options) {
            let again = packet.encode(&parameters, options);
            prop_assert_eq!(Packet::decode(&again, &parameters, options), Ok(packet));
        }
    }

    #[test]
    fn transports_carry_any_payload(
        transport in transport(),
        payloads in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..18), any::<u64>()), 1..8),
        garbage in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut stream = garbage.clone();
        transport.write_padding(&mut stream);
        let begin = stream.len();
        let mut written = Vec::new();
        for (payload, random) in &payloads {
            let unit = unit(transport, payload, *random);
            written.push(stream.len());
            transport.write(&unit, &mut stream);
        }
        let mut units = Units::new(&stream, 0, transport);
        prop_assert!(units.synchronize());
        prop_assert_eq!(units.position(), begin);
        for ((payload, random), at) in payloads.iter().zip(written) {
            let expected = unit(transport, payload, *random);
            let read = units.next_unit().expect("a packet").expect("as many as written");
            prop_assert_eq!((read.at, read.source, read.time, read.kind), (at, expected.source, expected.time, expected.kind));
            prop_assert_eq!(bytes_of(&read, payload.len()), payload.clone());
        }
        prop_assert_eq!(units.next_unit(), Ok(None));
    }

    #[test]
    fn any_bytes_are_read_to_the_end(
        transport in transport(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        zeros in 0_usize..60,
    ) {
        let mut bytes = bytes;
        bytes.splice(bytes.len() / 2..bytes.len() / 2, vec![0; zeros]);
        let mut units = Units::new(&bytes, 0, transport);
        loop {
            let before = units.position();
            match units.next_unit() {
                Ok(None) => break,
                Ok(Some(unit)) => prop_assert!(unit.at >= before && !unit.payload.is_empty()),
                Err(_) => {}
            }
            prop_assert!(units.position() > before);
        }
        prop_assert_eq!(units.position(), bytes.len());
    }
}

/// A unit with all fields that a transport can carry.
fn unit(transport: Transport, payload: &[u8], random: u64) -> Unit<'_> {
    let (source_width, time_bits, kinds) = match transport {
        Transport::Messages { source_width } => (source_width, 16, 2),
        Transport::Encapsulation { source_width, time_bytes, kind_width } => {
            (source_width, 8 * time_bytes, 1 << kind_width.min(1))
        }
        Transport::Esp32 => (16, 0, 1),
    };
    let kind = if random.is_multiple_of(kinds) { Kind::Instruction } else { Kind::Data };
    let has_time = random & 4 == 4 && transport != Transport::Esp32;
    let time = has_time.then(|| if time_bits == 0 { 0 } else { low(random, time_bits) });
    Unit { at: 0, source: low(random >> 20, source_width) as u16, time, kind, payload, skip: 0 }
}

/// The bytes of a payload that need not begin with a whole byte.
fn bytes_of(unit: &Unit<'_>, length: usize) -> Vec<u8> {
    // Bytes that only repeat the sign are not sent.
    let sign = unit.payload.last().map_or(0, |last| if last & 0x80 != 0 { 0xff } else { 0 });
    let byte = |index: usize| u16::from(unit.payload.get(index).copied().unwrap_or(sign));
    (0..length).map(|index| ((byte(index) | byte(index + 1) << 8) >> unit.skip) as u8).collect()
}

#[test]
fn a_configuration_is_read_from_a_file() {
    let parse = |parameters: &str| Configuration::parse(&format!("[parameters]\n{parameters}"));
    let text = "iaddress_width = 32\nprivilege_width = 3\nxlen = 32\noptions = \"pulp\"\nsijump = true\n";
    let Configuration { parameters, .. } = parse(text).expect("valid");
    assert_eq!((parameters.iaddress_width, parameters.privilege_width, parameters.sijump), (32, 3, true));
    assert_eq!((parameters.options, parameters.ecause_width), (Layout::Pulp, 5));
    let error = |text: &str| parse(text).expect_err("not valid");
    let range = ParameterError::Range { name: "iaddress_lsb", value: 3, low: 1, high: 2 };
    assert_eq!(error("iaddress_lsb = 3"), range);
    assert_eq!(error("iaddress_lsb = 255").to_string(), "iaddress_lsb is 255, but must be 1 to 2");
    assert_eq!(error("return_stack_size = 2\ncall_counter_size = 3"), ParameterError::StackAndCounter);
    assert_eq!(error("cache_size = 2\nbpred_size = 3"), ParameterError::Subformat);
    assert!(error("cache = 2").to_string().contains("unknown field `cache`"));
    assert!(error("xlen = 16").to_string().contains("xlen is 32 or 64, not 16"));
    let transport = Configuration::parse("transport = { kind = \"encapsulation\", time_bytes = 9 }");
    let range = ParameterError::Range { name: "time_bytes", value: 9, low: 0, high: 8 };
    assert_eq!(transport, Err(range));
}

/// Bytes computed by hand from the tables of the specification.
#[test]
fn packets_have_the_layout_of_the_specification() {
    let parameters = Parameters { iaddress_width: 32, ..Parameters::default() };
    let options = Options::default();
    let start = Packet::Start(Start {
        taken: false,
        context: Context { privilege: 3, ..Context::default() },
        address: 0x8000_0000,
    });
    // 11 00 1 11, then the address from bit 7 on: bit 30 of 0x4000_0000 is bit 37, and the sign.
    assert_eq!(start.encode(&parameters, options)[..], [0x73, 0, 0, 0, 0xe0]);
    let branches = Packet::Branches { map: BranchMap { count: 31, not_taken: 0x2aaa_aaaa }, reported: None };
    // 10 00000, then 31 bits of map from bit 7 on.
    assert_eq!(branches.encode(&parameters, options)[..], [0x01, 0x55, 0x55, 0x55, 0x15]);
    let address = Packet::Address(Reported { address: -3, ..Reported::default() });
    // 01, then -3; all further bits are as its sign.
    assert_eq!(address.encode(&parameters, options)[..], [0xf6]);
    let updiscon = Packet::Address(Reported { address: 3, updiscon: true, ..Reported::default() });
    // The address takes bits 2 to 32, notify is 33, and updiscon and irreport are set.
    assert_eq!(updiscon.encode(&parameters, options)[..], [0x0e, 0, 0, 0, 0xfc]);
}
