//! The law encode∘decode: what the encoder traces of a random walk over random code, the decoder follows
//! instruction by instruction.

mod memo;

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Label, Labels, Origin, Program};
use hodo_intel_pt::{
    Config,
    encoder::{Encoder, Settings, Timing},
    flow::{Cause, ControlFlowKind, Decoder, Event, Executed, Gap, Sink, Switch},
    packet::{self, IpPayload, PSB, Packet, Tnt, find_psb},
};
use proptest::prelude::*;

const BASE: u64 = 0x40_0000;
/// Code is made of slots of this many bytes.
const SLOT: u64 = 32;
const SLOTS: u64 = 24;

/// How a slot ends. Direct jumps and calls go forward only, so that no circle is without a packet.
#[derive(Clone, Copy, Debug)]
enum End {
    RunOn,
    Conditional(u64),
    Jump(u64),
    Call(u64),
    /// `call +0`, which reads the instruction pointer.
    CallNext,
    IndirectJump,
    IndirectCall,
    Return,
    SystemCall,
}

#[derive(Clone, Debug)]
struct Code {
    bytes: Vec<u8>,
    /// The end of each slot, and the one-byte instructions before it.
    ends: Vec<(End, u64)>,
}

fn end(slot: u64) -> impl Strategy<Value = End> {
    let indirect = prop_oneof![Just(End::IndirectJump), Just(End::IndirectCall), Just(End::Return)];
    if slot + 1 == SLOTS {
        return prop_oneof![indirect, Just(End::SystemCall)].boxed();
    }
    let forward = slot + 1..SLOTS;
    prop_oneof![
        1 => Just(End::RunOn),
        4 => (0..SLOTS).prop_map(End::Conditional),
        2 => forward.clone().prop_map(End::Jump),
        3 => forward.prop_map(End::Call),
        1 => Just(End::CallNext),
        4 => indirect,
        1 => Just(End::SystemCall),
    ]
    .boxed()
}

/// What stands behind a slot's end is one-byte instructions up to the next slot.
fn code() -> impl Strategy<Value = Code> {
    let slots: Vec<_> = (0..SLOTS).map(|slot| (end(slot), 0..16u64)).collect();
    slots.prop_map(|ends| {
        let mut bytes = vec![0x90; (SLOT * SLOTS) as usize];
        for (slot, &(end, nops)) in ends.iter().enumerate() {
            let at = slot as u64 * SLOT + nops;
            let relative = |target: u64, length: u64| ((target * SLOT) as i64 - (at + length) as i64) as i32;
            let machine_code = match end {
                End::RunOn => vec![],
                End::Conditional(target) => [&[0x0f, 0x84][..], &relative(target, 6).to_le_bytes()].concat(),
                End::Jump(target) => [&[0xe9][..], &relative(target, 5).to_le_bytes()].concat(),
                End::Call(target) => [&[0xe8][..], &relative(target, 5).to_le_bytes()].concat(),
                End::CallNext => vec![0xe8, 0, 0, 0, 0],
                End::IndirectJump => vec![0xff, 0xe0],
                End::IndirectCall => vec![0xff, 0xd0],
                End::Return => vec![0xc3],
                End::SystemCall => vec![0x0f, 0x05],
            };
            bytes[at as usize..at as usize + machine_code.len()].copy_from_slice(&machine_code);
        }
        // Code that runs off the end meets a system call.
        let length = bytes.len();
        bytes[length - 2..].copy_from_slice(&[0x0f, 0x05]);
        Code { bytes, ends }
    })
}

/// Executes the code with random outcomes, and traces it.
struct Walker<'a> {
    code: &'a Code,
    choices: std::iter::Cycle<std::slice::Iter<'a, u32>>,
    encoder: Encoder,
    trace: Vec<u8>,
    truth: Vec<u64>,
    /// Bytes of trace that were written before each instruction ran.
    written: Vec<usize>,
    ip: u64,
    now: u64,
    stack: Vec<u64>,
    /// One step in so many loses packets; none does where it is zero.
    loss: u64,
    /// Interrupts that event trace tells of.
    interrupts: usize,
}

impl Walker<'_> {
    fn choose(&mut self, below: u64) -> u64 {
        u64::from(*self.choices.next().unwrap()) % below
    }

    fn random_slot(&mut self) -> u64 {
        BASE + self.choose(SLOTS) * SLOT
    }

    /// The end of the slot that `ip` is in, where it lies, and how long it is.
    fn slot_end(&self) -> (End, u64, u64) {
        let slot = (self.ip - BASE) / SLOT;
        let (end, nops) = self.code.ends[slot as usize];
        let length = match end {
            End::RunOn => 0,
            End::Conditional(_) => 6,
            End::Jump(_) | End::Call(_) | End::CallNext => 5,
            End::IndirectJump | End::IndirectCall | End::SystemCall => 2,
            End::Return => 1,
        };
        (end, BASE + slot * SLOT + nops, length)
    }

    fn step(&mut self) {
        self.written.push(self.trace.len());
        if self.encoder.next_mtc() <= self.now {
            self.encoder.tick(self.now, &mut self.trace);
        }
        self.truth.push(self.ip);
        self.now += 1;
        let (end, at, length) = self.slot_end();
        let is_last = self.ip == BASE + SLOT * SLOTS - 2;
        if is_last || (self.ip == at && matches!(end, End::SystemCall)) {
            self.encoder.disable(None, self.now, &mut self.trace);
            let elsewhere = is_last || self.choose(4) == 0;
            self.ip = if elsewhere { self.random_slot() } else { at + length };
            self.encoder.enable(self.ip, self.now, &mut self.trace);
        } else if self.ip == at && length > 0 {
            self.ip = self.branch(end, at + length);
        } else {
            self.ip += 1;
        }
    }

    /// Where a branch goes; `next` is the address after it.
    fn branch(&mut self, end: End, next: u64) -> u64 {
        let (somewhere, taken, astray) = (self.random_slot(), self.choose(2) == 0, self.choose(8) == 0);
        let (now, trace) = (self.now, &mut self.trace);
        match end {
            End::Jump(target) => BASE + target * SLOT,
            End::Conditional(target) => {
                self.encoder.branch(taken, now, trace);
                if taken { BASE + target * SLOT } else { next }
            }
            End::Call(target) => {
                self.encoder.call(next);
                self.stack.push(next);
                BASE + target * SLOT
            }
            End::IndirectCall => {
                self.encoder.call(next);
                self.stack.push(next);
                self.encoder.indirect(somewhere, now, trace);
                somewhere
            }
            End::IndirectJump => {
                self.encoder.indirect(somewhere, now, trace);
                somewhere
            }
            End::Return => {
                let target = self.stack.pop().filter(|_| !astray).unwrap_or(somewhere);
                self.encoder.ret(target, now, trace);
                target
            }
            End::CallNext | End::RunOn | End::SystemCall => next,
        }
    }

    /// The processor's buffer overflows: what some steps would write is lost.
    fn overflow(&mut self) {
        let kept = self.trace.len();
        for _ in 0..self.choose(30) {
            self.step();
        }
        self.trace.truncate(kept);
        let lost = self.written.iter().rposition(|&bytes| bytes <= kept).map_or(0, |last| last + 1);
        self.written[lost..].fill(kept);
        self.encoder.overflow(Some(self.ip), self.now, &mut self.trace);
    }

    /// An interrupt that event trace tells of.
    fn interrupt(&mut self) {
        self.encoder.flush(self.now, &mut self.trace);
        self.trace.extend_from_slice(&Packet::Cfe { ip: false, kind: 1, vector: 14 }.encode());
        self.interrupts += 1;
        self.encoder.interrupt(self.ip, self.now, &mut self.trace);
    }

    /// The trace, the addresses of what ran, and how many interrupts came.
    fn walk(self, steps: usize) -> (Vec<u8>, Vec<u64>, usize) {
        let walked = self.run(steps);
        (walked.trace, walked.truth, walked.interrupts)
    }

    fn run(mut self, steps: usize) -> Self {
        self.encoder.synchronize(None, self.now, &mut self.trace);
        self.encoder.enable(self.ip, self.now, &mut self.trace);
        for _ in 0..steps {
            self.step();
            if self.loss > 0 && self.choose(self.loss) == 0 {
                self.overflow();
            }
            match self.choose(64) {
                0 => self.encoder.synchronize(Some(self.ip), self.now, &mut self.trace),
                1 => {
                    self.interrupt();
                    self.ip = self.random_slot();
                    self.encoder.enable(self.ip, self.now, &mut self.trace);
                }
                _ => {}
            }
        }
        self.interrupt();
        self
    }
}

struct NoLabels;

impl Labels for NoLabels {
    fn label(&self, _: Origin) -> (Label, u64) {
        (Label::default(), u64::MAX)
    }
}

#[derive(Default)]
struct Seen {
    addresses: Vec<u64>,
    gaps: Vec<Gap>,
    /// How many addresses came before each gap.
    gap_after: Vec<usize>,
    interrupts: usize,
    /// Each with the number of instructions that were reported before.
    times: Vec<(u64, usize)>,
    cycles: u64,
}

impl Sink for Seen {
    fn executed(&mut self, executed: Executed<'_>) {
        self.addresses.extend(executed.addresses());
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(time) => self.times.push((time.0, self.addresses.len())),
            Event::Cycles(cycles) => self.cycles = cycles,
            Event::Gap(gap) => {
                self.gaps.push(gap);
                self.gap_after.push(self.addresses.len());
            }
            Event::Disabled {
                cause: Some(Cause { kind: ControlFlowKind::Interrupt, vector: 14 }), ..
            } => {
                self.interrupts += 1;
            }
            _ => {}
        }
    }
}

fn decode(code: &Code, trace: &[u8], config: &Config) -> Seen {
    decode_with_holes(code, &[], trace, config)
}

/// A slot whose code was withheld.
#[derive(Clone, Copy, Debug)]
struct Hole {
    slot: u64,
    /// Its bytes are missing, but what was mapped there is known.
    mapped: bool,
}

fn holes(count: Range<usize>) -> impl Strategy<Value = Vec<Hole>> {
    let hole = (0..SLOTS, any::<bool>()).prop_map(|(slot, mapped)| Hole { slot, mapped });
    prop::collection::vec(hole, count)
}

/// The code but for the holes.
fn space_with_holes<'a>(code: &'a Code, holes: &[Hole]) -> AddressSpace<'a> {
    let mut space = AddressSpace::new();
    for slot in 0..(code.bytes.len() as u64).div_ceil(SLOT) {
        let content = match holes.iter().find(|hole| hole.slot == slot) {
            None => Content {
                bytes: &code.bytes[(slot * SLOT) as usize..],
                origin: Origin { module: 0, offset: slot * SLOT },
            },
            Some(Hole { mapped: true, .. }) => {
                Content { bytes: &[], origin: Origin { module: 1, offset: 0 } }
            }
            Some(_) => continue,
        };
        let start = BASE + slot * SLOT;
        space.map(start..start + SLOT, content, 0);
    }
    space
}

/// Decodes a trace segment by segment, each with a decoder of its own; the code of `holes` is not known.
fn decode_with_holes(code: &Code, holes: &[Hole], trace: &[u8], config: &Config) -> Seen {
    let space = space_with_holes(code, holes);
    let mut programs = [Program::new(&space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let next = |from: usize| Some(from + find_psb(trace.get(from..)?)?);
    let starts: Vec<usize> = std::iter::successors(next(0), |&start| next(start + PSB.len())).collect();
    let ends = starts[1..].iter().copied().chain([trace.len()]);
    let mut seen = Seen::default();
    for (start, end) in starts.iter().copied().zip(ends) {
        let span = Range { start, end };
        Decoder::new(trace, span, config, &schedule).decode(&mut programs, &mut seen);
    }
    seen
}

/// A mode that changes where no branch was followed: what was known of the code in the old one is void.
#[test]
fn the_mode_may_change_anywhere() {
    let code = Code { bytes: [0x74, 0].repeat(16), ends: Vec::new() };
    let mode = |cs_l| Packet::ModeExec { cs_l, cs_d: true, interrupt_flag: true };
    let psb_plus = |cs_l| [Packet::Psb, mode(cs_l), Packet::Fup(IpPayload::Full(BASE)), Packet::PsbEnd];
    let branch = Packet::Tnt8(Tnt { bits: 1, count: 1 });
    let off_and_on = [
        Packet::TipPgd(IpPayload::Full(BASE + 4)),
        mode(false),
        Packet::TipPge(IpPayload::Suppressed),
        Packet::Tsc(5),
    ];
    for packets in [&psb_plus(false)[..], &off_and_on[..]] {
        let packets = [&psb_plus(true)[..], &[branch], packets].concat();
        let trace: Vec<u8> = packets.iter().flat_map(|packet| packet.encode().to_vec()).collect();
        let seen = decode(&code, &trace, &Config::default());
        assert_eq!(seen.addresses[0], BASE);
        assert_eq!(seen.gaps.len(), 1);
    }
}

/// Whether what was seen between two gaps is, each time, what ran one after the other, in order and from the
/// beginning to the end.
fn is_part_of(seen: &Seen, truth: &[u64]) -> bool {
    let ends = seen.gap_after.iter().copied().chain([seen.addresses.len()]);
    let mut start = 0;
    let mut rest = truth;
    for end in ends {
        let chunk = &seen.addresses[start..end];
        start = end;
        let Some(at) =
            (0..=rest.len() - chunk.len().min(rest.len())).find(|&at| rest[at..].starts_with(chunk))
        else {
            return false;
        };
        rest = &rest[at + chunk.len()..];
    }
    true
}

/// Whether what was seen between two gaps is, each time, what ran from the packet on that ended the gap; the first
/// piece that is not, else.
fn goes_on_where_packets_say(seen: &Seen, truth: &[u64], written: &[usize]) -> Result<(), String> {
    let starts = seen.gaps.iter().map(|gap| written.partition_point(|&bytes| bytes < gap.to as usize));
    let ends = seen.gap_after.iter().copied().chain([seen.addresses.len()]);
    let mut shown = 0;
    for (index, (start, end)) in std::iter::once(0).chain(starts).zip(ends).enumerate() {
        let piece = &seen.addresses[std::mem::replace(&mut shown, end)..end];
        let alike = piece.iter().zip(&truth[start..]).take_while(|(one, other)| one == other).count();
        if alike < piece.len() {
            let around = |addresses: &[u64], from: usize| {
                format!(
                    "{:x?}",
                    &addresses[(from + alike).saturating_sub(4)..][..8.min(addresses.len() - from - alike)]
                )
            };
            return Err(format!(
                "piece {index} is wrong after {alike} of {} instructions: {} are shown, {} ran; gaps {:?}",
                piece.len(),
                around(piece, 0),
                around(truth, start),
                seen.gaps.iter().skip(index.saturating_sub(1)).take(2).collect::<Vec<_>>(),
            ));
        }
    }
    Ok(())
}

/// Sends TIP packets late, as a processor may (SDM, "Deferred TIPs"): `TNT TIP TNT` becomes `TNT TIP` with the
/// branches of both, where that fills a TNT or where another packet forces both out.
fn defer_tips(trace: &[u8]) -> Vec<u8> {
    let mut decoder = packet::Decoder::new(trace, 0);
    let mut packets: Vec<Packet> = std::iter::from_fn(|| decoder.next_packet().unwrap()).collect();
    let mut at = 0;
    while at + 3 < packets.len() {
        if let [Packet::Tnt8(before), tip @ Packet::Tip(_), Packet::Tnt8(after), next] = packets[at..at + 4] {
            let joined =
                Tnt { bits: before.bits << after.count | after.bits, count: before.count + after.count };
            let forced = !matches!(next, Packet::Tnt8(_) | Packet::Tnt64(_) | Packet::Tip(_));
            if joined.count == 6 || joined.count < 6 && forced {
                packets.splice(at..at + 3, [Packet::Tnt8(joined), tip]);
            }
        }
        at += 1;
    }
    packets.iter().flat_map(|packet| packet.encode().to_vec()).collect()
}

/// A walker at the start of the code.
fn walker<'a>(code: &'a Code, choices: &'a [u32], settings: Settings, loss: u64) -> Walker<'a> {
    Walker {
        code,
        choices: choices.iter().cycle(),
        encoder: Encoder::new(settings, 1000),
        trace: Vec::new(),
        truth: Vec::new(),
        written: Vec::new(),
        ip: BASE,
        now: 1000,
        stack: Vec::new(),
        loss,
        interrupts: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_decoder_follows_what_the_encoder_traces(
        code in code(),
        choices in prop::collection::vec(any::<u32>(), 101..400),
        steps in 1usize..3000,
        return_compression: bool,
        mtc_period in prop::option::of(0u8..4),
        cyc_threshold in prop::option::of(0u64..3),
        tsc: bool,
    ) {
        let settings = Settings { return_compression, timing: Timing { tsc, mtc_period, cyc_threshold } };
        let (trace, truth, interrupts) = walker(&code, &choices, settings, 0).walk(steps);
        let config = Config {
            no_return_compression: !return_compression,
            tsc,
            mtc_frequency: mtc_period,
            tsc_ctc_ratio: Some((40, 1)),
            cyc: cyc_threshold.is_some(),
            cyc_threshold: cyc_threshold.unwrap_or(0),
            max_nonturbo_ratio: Some(10),
            ..Config::default()
        };
        let seen = decode(&code, &trace, &config);
        prop_assert_eq!(&seen.gaps, &[]);
        prop_assert_eq!(seen.interrupts, interrupts);
        prop_assert!(seen.addresses == truth, "{} addresses, expected {}", seen.addresses.len(), truth.len());
        // No clock runs ahead of what was traced.
        let end = 1000 + truth.len() as u64;
        prop_assert!(seen.times.iter().all(|(time, _)| (1000..=end).contains(time)), "{:?} {end}", seen.times);
        // An instruction takes a tick: what was reported began not later than the time that was told then,
        // but for cycles that are too few for a CYC packet.
        let slack = 1 + cyc_threshold.unwrap_or(0);
        let late = seen.times.iter().find(|(time, before)| 1000 + *before as u64 > time + slack);
        prop_assert_eq!(late, None);
        let back = seen.times.windows(2).find(|pair| pair[1].0 < pair[0].0);
        prop_assert_eq!(back, None, "{:?}", seen.times);
        prop_assert!(seen.cycles <= truth.len() as u64);
        prop_assert!(seen.cycles > 0 || cyc_threshold.is_none() || truth.len() < 300);
        prop_assert_eq!(seen.times.is_empty(), !tsc);
    }

    /// Whatever is lost: what is decoded is what ran, in order, and complete but for the gaps.
    #[test]
    fn what_is_decoded_is_what_ran(
        code in code(),
        choices in prop::collection::vec(any::<u32>(), 101..400),
        steps in 1usize..3000,
        return_compression: bool,
        cyc_threshold in prop::option::of(0u64..3),
        loss in prop_oneof![Just(0u64), 20u64..200],
        holes in holes(0..12),
        deferred: bool,
    ) {
        let timing = Timing { tsc: true, mtc_period: Some(1), cyc_threshold };
        let Walker { trace, truth, written, .. } =
            walker(&code, &choices, Settings { return_compression, timing }, loss).run(steps);
        // A late TIP of a return could not be told from a compressed one.
        let deferred = deferred && !return_compression;
        let trace = if deferred { defer_tips(&trace) } else { trace };
        let config = Config { no_return_compression: !return_compression, ..Config::default() };
        let seen = decode_with_holes(&code, &holes, &trace, &config);
        // Packets that come late have other places.
        if !deferred {
            prop_assert_eq!(goes_on_where_packets_say(&seen, &truth, &written), Ok(()));
        }
        prop_assert!(is_part_of(&seen, &truth), "{:x?}\n{:x?}", seen.addresses, truth);
        prop_assert!(seen.gaps.iter().all(|gap| gap.doubtful_since.is_none()), "{:?}", seen.gaps);
        if loss == 0 && holes.is_empty() {
            prop_assert_eq!(seen.addresses.len(), truth.len());
        }
    }
}
