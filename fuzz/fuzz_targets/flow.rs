//! Any packets over any code: the decoder comes to an end, what it shows lies in the code, time never runs
//! backwards, gaps lie in the stream, function runs show as much as blocks, and a segment decodes to the same wherever the
//! stream is cut.

#![no_main]

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Graph, Label, Labels, Origin, Program};
use hodo_intel_pt::{
    Config, Cpu,
    flow::{Decoder, Event, Executed, Sink, FunctionRun, Switch},
    packet::{IpPayload, PSB, Packet, Tnt, find_psb},
};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

/// Where the code lies.
const BASE: u64 = 0x7f00_1000;
/// How much of it there is at most.
const CODE: usize = 1 << 10;
/// Packets and raw bytes in a stream, at most.
const STEPS: usize = 300;

#[derive(Arbitrary, Debug)]
struct Input {
    code: Vec<u8>,
    /// Code that replaces `code` later on.
    later: Vec<u8>,
    settings: Settings,
    /// Ticks since the switch before, and whether the other program runs then.
    switches: [(u16, bool); 2],
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
struct Settings {
    model: u8,
    no_return_compression: bool,
    /// Modulo 8: for 1, TNT packets are left out, for 2, all packets of branches.
    leaves_out: u8,
    /// Where a filter's range begins and how long it is.
    filter: Option<(u16, u16)>,
    mtc_frequency: Option<u8>,
    tsc_ctc_ratio: Option<(u32, u32)>,
    max_nonturbo_ratio: Option<u8>,
}

/// Something in a stream. Random bytes are seldom packets, so most of it is made of packets.
#[derive(Arbitrary, Debug)]
enum Step {
    Tnt(u64, u8),
    Tip(Address),
    TipPge(Address),
    TipPgd(Address),
    Fup(Address),
    /// PSB, what stands in its PSB+, PSBEND.
    Plus(Vec<Status>),
    Status(Status),
    Simple(u8),
    PtWrite { payload: u64, wide: bool, ip: bool },
    Block { short_items: bool, kind: u8, items: Vec<(u8, u64)>, ip: bool },
    Event { ip: bool, kind: u8, vector: u8, payload: u64 },
    /// The bits of three packets.
    Power(u8, u8, u8),
    Trigger { ip: bool, instructions: Option<u16>, multiple: bool, triggers: u8 },
    Timing(Timing),
    Raw(Vec<u8>),
}

/// What a PSB+ may hold.
#[derive(Arbitrary, Debug)]
enum Status {
    Fup(Address),
    Mode { cs_l: bool, cs_d: bool, interrupt_flag: bool },
    Tsx { in_transaction: bool, aborted: bool },
    Pip { cr3: u64, non_root: bool },
    Vmcs(u64),
    Overflow,
    Timing(Timing),
}

#[derive(Arbitrary, Debug)]
enum Timing {
    Tsc(u32),
    FullTsc(u64),
    Tma(u16, u16),
    Mtc(u8),
    Cyc(u16),
    Cbr(u8),
}

#[derive(Arbitrary, Debug)]
enum Address {
    Suppressed,
    Near(u16),
    Inside(u16),
    Full(u16),
    Any(u64),
}

impl Address {
    fn payload(&self) -> IpPayload {
        let inside = |offset: &u16| BASE + u64::from(*offset) % CODE as u64;
        match self {
            Address::Suppressed => IpPayload::Suppressed,
            Address::Near(low) => IpPayload::Update16(*low),
            Address::Inside(offset) => IpPayload::Sext48(inside(offset)),
            Address::Full(offset) => IpPayload::Full(inside(offset)),
            Address::Any(ip) => IpPayload::Full(*ip),
        }
    }
}

impl Timing {
    fn packet(&self) -> Packet {
        match *self {
            Timing::Tsc(tsc) => Packet::Tsc(tsc.into()),
            Timing::FullTsc(tsc) => Packet::Tsc(tsc >> 8),
            Timing::Tma(ctc, fast_counter) => Packet::Tma { ctc, fast_counter: fast_counter & 0x1ff },
            Timing::Mtc(payload) => Packet::Mtc(payload),
            Timing::Cyc(cycles) => Packet::Cyc(cycles.into()),
            Timing::Cbr(ratio) => Packet::Cbr(ratio),
        }
    }
}

impl Status {
    fn packet(&self) -> Packet {
        match self {
            Status::Fup(address) => Packet::Fup(address.payload()),
            &Status::Mode { cs_l, cs_d, interrupt_flag } => {
                Packet::ModeExec { cs_l, cs_d: cs_d && !cs_l, interrupt_flag }
            }
            &Status::Tsx { in_transaction, aborted } => Packet::ModeTsx { in_transaction, aborted },
            &Status::Pip { cr3, non_root } => Packet::Pip { cr3: cr3 & 0xf_ffff_ffff_ffe0, non_root },
            Status::Vmcs(base) => Packet::Vmcs(base & 0xf_ffff_ffff_f000),
            Status::Overflow => Packet::Overflow,
            Status::Timing(timing) => timing.packet(),
        }
    }
}

impl Step {
    fn write(&self, stream: &mut Vec<u8>) {
        let mut put = |packet: Packet| stream.extend_from_slice(&packet.encode());
        match self {
            &Step::Tnt(bits, count) => {
                let count = count % 47 + 1;
                let tnt = Tnt { bits: bits & ((1 << count) - 1), count };
                put(if count <= 6 { Packet::Tnt8(tnt) } else { Packet::Tnt64(tnt) });
            }
            Step::Tip(address) => put(Packet::Tip(address.payload())),
            Step::TipPge(address) => put(Packet::TipPge(address.payload())),
            Step::TipPgd(address) => put(Packet::TipPgd(address.payload())),
            Step::Fup(address) => put(Packet::Fup(address.payload())),
            Step::Plus(status) => {
                put(Packet::Psb);
                status.iter().for_each(|status| put(status.packet()));
                put(Packet::PsbEnd);
            }
            Step::Status(status) => put(status.packet()),
            Step::Simple(which) => put(match which % 6 {
                0 => Packet::Pad,
                1 => Packet::Psb,
                2 => Packet::PsbEnd,
                3 => Packet::TraceStop,
                4 => Packet::ExStop { ip: which & 64 != 0 },
                _ => Packet::Mnt(u64::from(*which)),
            }),
            &Step::PtWrite { payload, wide, ip } => {
                put(Packet::PtWrite {
                    payload: if wide { payload } else { payload & 0xffff_ffff },
                    wide,
                    ip,
                });
            }
            Step::Block { short_items, kind, items, ip } => {
                put(Packet::Bbp { short_items: *short_items, kind: kind & 31 });
                for (id, payload) in items {
                    let payload = if *short_items { payload & 0xffff_ffff } else { *payload };
                    stream.extend_from_slice(&Packet::Bip { id: id & 31, payload }.encode_item(*short_items));
                }
                stream.extend_from_slice(&Packet::Bep { ip: *ip }.encode());
            }
            &Step::Event { ip, kind, vector, payload } => {
                put(Packet::Evd { kind: kind & 63, payload });
                put(Packet::Cfe { ip, kind: kind & 31, vector });
            }
            &Step::Power(a, b, c) => {
                put(Packet::Mwait { hints: a, extensions: b & 3 });
                put(Packet::Pwre { hardware: c & 1 != 0, state: a & 15, sub_state: b & 15 });
                put(Packet::Pwrx { last: a & 15, deepest: b & 15, reason: c & 15 });
            }
            &Step::Trigger { ip, instructions, multiple, triggers } => {
                put(Packet::Trig { ip, instructions, multiple, triggers });
            }
            Step::Timing(timing) => put(timing.packet()),
            Step::Raw(bytes) => stream.extend_from_slice(bytes),
        }
    }
}

impl Settings {
    fn config(&self) -> Config {
        // Models of each family of errata, and an unknown one; or no processor.
        let models = [0x3d, 0x4e, 0x55, 0x5c, 0x66, 0x7a, 0x8e, 0x97, 0xff];
        let model = models.get(usize::from(self.model) % (models.len() + 1));
        Config {
            cpu: model.map(|&model| Cpu { family: 6, model, stepping: 1 }),
            no_return_compression: self.no_return_compression,
            no_tnt: self.leaves_out % 8 == 1,
            no_branches: self.leaves_out % 8 == 2,
            filter: self.filter.map_or(String::new(), |(offset, length)| {
                format!("filter {:#x}/{length:#x}", BASE + u64::from(offset) % CODE as u64)
            }),
            tsc: true,
            mtc_frequency: self.mtc_frequency,
            tsc_ctc_ratio: self.tsc_ctc_ratio,
            cyc: true,
            max_nonturbo_ratio: self.max_nonturbo_ratio,
            ..Config::default()
        }
    }
}

/// All code is one function; a label covers 16 bytes of it.
struct NoLabels;

impl Labels for NoLabels {
    fn label(&self, _origin: Origin) -> (Label, u64) {
        (Label::default(), 16)
    }
}

/// What a segment showed.
#[derive(Default)]
struct Shown {
    /// Positions count from here.
    start: u64,
    text: Vec<String>,
    time: Option<Tsc>,
}

impl Sink for Shown {
    fn executed(&mut self, executed: Executed<'_>) {
        assert!(!executed.lengths.is_empty());
        let code = BASE..BASE + CODE as u64;
        let last = executed.addresses().inspect(|address| assert!(code.contains(address))).last();
        assert!(executed.lengths.len() <= executed.block.instructions as usize);
        self.text.push(format!("{:x}..={last:x?}", executed.block.start));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => {
                assert!(self.time.is_none_or(|before| before < now), "{now:?} after {:?}", self.time);
                self.time = Some(now);
                self.text.push(format!("{now:?}"));
            }
            Event::Gap(mut gap) => {
                assert!(gap.from <= gap.to && self.start <= gap.from, "{gap:?}");
                (gap.from, gap.to) = (gap.from - self.start, gap.to - self.start);
                gap.doubtful_since = gap.doubtful_since.map(|since| since - self.start);
                self.text.push(format!("{gap:?}"));
            }
            event => self.text.push(format!("{event:?}")),
        }
    }
}

/// What happened, after how many instructions.
#[derive(Default)]
struct Counted {
    function_runs: bool,
    instructions: u64,
    events: Vec<(u64, Event)>,
}

impl Sink for Counted {
    fn executed(&mut self, executed: Executed<'_>) {
        self.instructions += executed.lengths.len() as u64;
    }

    fn event(&mut self, event: Event) {
        self.events.push((self.instructions, event));
    }

    fn takes_function_runs(&self) -> bool {
        self.function_runs
    }

    fn function_runs<L: Labels>(&mut self, function_runs: &[FunctionRun], _: &Graph<'_, L>, until: Option<Tsc>) {
        self.instructions += function_runs.last().map_or(0, |last| u64::from(last.until));
        until.into_iter().for_each(|until| self.event(Event::Time(until)));
    }
}

fn decode(
    stream: &[u8],
    span: Range<usize>,
    config: &Config,
    schedule: &[Switch],
    programs: &mut [Program<'_, NoLabels>],
) -> Vec<String> {
    let mut shown = Shown { start: span.start as u64, ..Shown::default() };
    Decoder::new(stream, span.clone(), config, schedule).decode(programs, &mut shown);
    let [blocks, function_runs] = [false, true].map(|function_runs| {
        let mut counted = Counted { function_runs, ..Counted::default() };
        Decoder::new(stream, span.clone(), config, schedule).decode(programs, &mut counted);
        (counted.instructions, counted.events)
    });
    assert_eq!(function_runs, blocks);
    shown.text
}

fuzz_target!(|input: Input| {
    let mut stream = PSB.to_vec();
    input.steps.iter().take(STEPS).for_each(|step| step.write(&mut stream));
    let padded =
        |code: &[u8]| code.iter().copied().chain(std::iter::repeat(0x90)).take(CODE).collect::<Vec<u8>>();
    let (code, later) = (padded(&input.code), padded(&input.later));
    let end = BASE + CODE as u64;
    let content = |bytes| Content { bytes, origin: Origin { module: 0, offset: 0 } };
    let mut spaces = [AddressSpace::new(), AddressSpace::new()];
    spaces[0].map(BASE..end, content(&code), 0);
    // From tick 2^14 on, other code replaces all but the first 256 bytes.
    spaces[0].map(BASE + 256..end, content(&later[256..]), 1 << 14);
    // Of the second half of the other program nothing is known.
    spaces[1].map(BASE..end, content(&later[..CODE / 2]), 0);
    // Machine code is made after the first walk.
    let programs = || spaces.each_ref().map(|space| Program::new(space, &NoLabels).native_after(1));
    let [first, second] = input.switches;
    let switch = |(after, other): (u16, bool), since: u64| Switch {
        at: Tsc(since + u64::from(after)),
        program: usize::from(other),
        context: u32::from(other),
    };
    let schedule =
        [Switch { at: Tsc(0), program: 0, context: 0 }, switch(first, 0), switch(second, u64::from(first.0))];
    let config = input.settings.config();
    let mut shared = programs();
    let mut start = 0;
    while start < stream.len() {
        let next = find_psb(&stream[start + PSB.len()..]).map(|ahead| start + PSB.len() + ahead);
        let span = start..next.unwrap_or(stream.len());
        let whole = decode(&stream, span.clone(), &config, &schedule, &mut shared);
        let alone = decode(&stream[start..], 0..span.len(), &config, &schedule, &mut programs());
        assert_eq!(whole, alone);
        start = span.end;
    }
});
