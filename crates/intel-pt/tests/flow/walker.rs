//! Random code, its execution and its trace: the reference for the decoder.

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_intel_pt::{
    Config,
    encoder::{Encoder, Settings},
    flow::{Cause, ControlFlowKind, Decoder, Event, Executed, Gap, Sink, Switch},
    packet::{PSB, Packet, find_psb},
};

pub(crate) const BASE: u64 = 0xffff_ffff_8100_0000;
/// Code is made of slots of this many bytes.
pub(crate) const SLOT: u64 = 32;
pub(crate) const SLOTS: u64 = 24;

/// How a slot ends. Direct jumps and calls only go forward, so that each loop contains a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    RunOn,
    Conditional(u64),
    Jump(u64),
    Call(u64),
    /// `call +0`, which reads the instruction pointer.
    CallNext,
    /// A call over a speculation trap, whose return address is discarded.
    CallOver,
    IndirectJump,
    IndirectCall,
    Return,
    SystemCall,
    /// Returns from an interrupt.
    InterruptReturn,
    PtWrite,
}

#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
    /// The end of each slot, and the one-byte instructions before it.
    pub(crate) ends: Vec<(End, u64)>,
}

impl Code {
    /// The bytes after a slot's end are one-byte instructions up to the next slot.
    pub(crate) fn new(ends: Vec<(End, u64)>) -> Code {
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
                End::CallOver => vec![0xe8, 1, 0, 0, 0, 0xcc],
                End::IndirectJump => vec![0xff, 0xe0],
                End::IndirectCall => vec![0xff, 0xd0],
                End::Return => vec![0xc3],
                End::SystemCall => vec![0x0f, 0x05],
                End::InterruptReturn => vec![0x48, 0xcf],
                End::PtWrite => vec![0xf3, 0x0f, 0xae, 0xe0],
            };
            bytes[at as usize..at as usize + machine_code.len()].copy_from_slice(&machine_code);
        }
        // Code that runs off the end reaches a system call.
        let length = bytes.len();
        bytes[length - 2..].copy_from_slice(&[0x0f, 0x05]);
        Code { bytes, ends }
    }
}

/// The last instruction of a slot.
pub(crate) struct SlotEnd {
    pub(crate) end: End,
    pub(crate) address: u64,
    /// Size in bytes; 0 if the slot has no last instruction.
    pub(crate) length: u64,
}

/// The virtual clock when a walk begins, in ticks.
pub(crate) const START: u64 = 1000;

/// Executes the code with random outcomes, and traces it.
pub(crate) struct Walker<'a> {
    pub(crate) code: &'a Code,
    pub(crate) choices: std::iter::Cycle<std::slice::Iter<'a, u32>>,
    pub(crate) encoder: Encoder,
    pub(crate) trace: Vec<u8>,
    pub(crate) truth: Vec<u64>,
    /// Trace bytes written before each instruction ran.
    pub(crate) written: Vec<usize>,
    pub(crate) ip: u64,
    pub(crate) now: u64,
    pub(crate) stack: Vec<u64>,
    /// On average, one step in `loss` loses packets; 0 for no loss.
    pub(crate) loss: u64,
    /// Number of interrupts reported by event trace.
    pub(crate) interrupts: usize,
    /// Whether event trace, PTWRITE, power events and blocks of values are traced.
    pub(crate) events: bool,
    /// The asynchronous transfers to traced code.
    pub(crate) transfers: Vec<Transfer>,
    /// Addresses that interrupts left and have not returned to.
    pub(crate) interrupted: Vec<u64>,
    /// The address of each PTWRITE that ran; its operand is its index.
    pub(crate) ptwrites: Vec<u64>,
}

/// An asynchronous transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// Number of instructions that ran before it.
    pub(crate) after: usize,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The interrupt's vector, if event trace reports it.
    pub(crate) vector: Option<u8>,
}

impl Walker<'_> {
    pub(crate) fn choose(&mut self, below: u64) -> u64 {
        u64::from(*self.choices.next().unwrap()) % below
    }

    pub(crate) fn random_slot(&mut self) -> u64 {
        BASE + self.choose(SLOTS) * SLOT
    }

    /// Returns the end of the slot that contains `ip`.
    pub(crate) fn slot_end(&self) -> SlotEnd {
        let slot = (self.ip - BASE) / SLOT;
        let (end, nops) = self.code.ends[slot as usize];
        let length = match end {
            End::RunOn => 0,
            End::Conditional(_) => 6,
            End::Jump(_) | End::Call(_) | End::CallNext | End::CallOver => 5,
            End::IndirectJump | End::IndirectCall | End::SystemCall | End::InterruptReturn => 2,
            End::PtWrite => 4,
            End::Return => 1,
        };
        SlotEnd { end, address: BASE + slot * SLOT + nops, length }
    }

    pub(crate) fn step(&mut self) {
        self.announce();
        self.written.push(self.trace.len());
        if self.encoder.next_mtc() <= self.now {
            self.encoder.tick(self.now, &mut self.trace);
        }
        self.truth.push(self.ip);
        self.now += 1;
        let SlotEnd { end, address, length } = self.slot_end();
        let is_last = self.ip == BASE + SLOT * SLOTS - 2;
        if is_last || (self.ip == address && matches!(end, End::SystemCall)) {
            self.encoder.disable(None, self.now, &mut self.trace);
            let elsewhere = is_last || self.choose(4) == 0;
            self.ip = if elsewhere { self.random_slot() } else { address + length };
            self.encoder.enable(self.ip, self.now, &mut self.trace);
        } else if self.ip == address && length > 0 {
            self.ip = self.branch(end, address + length);
        } else {
            self.ip += 1;
        }
    }

    /// Returns the target of a branch; `next` is the address after it.
    pub(crate) fn branch(&mut self, end: End, next: u64) -> u64 {
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
            End::CallOver => {
                self.encoder.call(next);
                next + 1
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
            End::InterruptReturn => {
                let target = self.interrupted.pop().filter(|_| !astray).unwrap_or(somewhere);
                self.encoder.indirect(target, now, &mut self.trace);
                target
            }
            End::CallNext | End::RunOn | End::SystemCall | End::PtWrite => next,
        }
    }

    /// Emits a packet beside the flow and, if it has one, its FUP.
    fn beside(&mut self, packet: Packet, ip: Option<u64>) {
        self.encoder.flush(self.now, &mut self.trace);
        self.trace.extend_from_slice(&packet.encode());
        if let Some(ip) = ip {
            self.encoder.fup(ip, &mut self.trace);
        }
    }

    /// Emits the packets that name the next instruction.
    fn announce(&mut self) {
        let SlotEnd { end, address, .. } = self.slot_end();
        if !self.events || self.ip != address {
            return;
        }
        let ip = Some(self.ip).filter(|_| self.choose(2) == 0);
        match end {
            End::PtWrite => {
                let payload = self.ptwrites.len() as u64;
                self.ptwrites.push(self.ip);
                self.beside(Packet::PtWrite { payload, wide: true, ip: ip.is_some() }, ip);
            }
            End::InterruptReturn => {
                self.beside(Packet::Cfe { ip: ip.is_some(), kind: 2, vector: 0 }, ip);
            }
            _ => {}
        }
    }

    /// Something happens before the next instruction.
    fn event(&mut self) {
        let ip = Some(self.ip).filter(|_| self.choose(2) == 0);
        match self.choose(7) {
            0..=2 => self.interrupt_to_code(),
            3 => {
                self.beside(Packet::Mwait { hints: 1, extensions: 0 }, None);
                self.beside(Packet::Pwre { hardware: false, state: 2, sub_state: 1 }, None);
                self.beside(Packet::ExStop { ip: ip.is_some() }, ip);
                self.beside(Packet::Pwrx { last: 2, deepest: 2, reason: 1 }, None);
            }
            4 => self.beside(Packet::ExStop { ip: ip.is_some() }, ip),
            5 => {
                self.beside(Packet::Bbp { short_items: false, kind: 4 }, None);
                let short_items = false;
                self.trace
                    .extend_from_slice(&Packet::Bip { id: 1, payload: self.ip }.encode_item(short_items));
                self.beside(Packet::Bep { ip: ip.is_some() }, ip);
            }
            _ => {
                let interrupt_flag = ip.is_some();
                self.beside(Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag }, Some(self.ip));
            }
        }
    }

    /// An interrupt with a traced handler. Event trace reports it in three of four cases.
    fn interrupt_to_code(&mut self) {
        let (from, to, vector) = (self.ip, self.random_slot(), self.transfers.len() as u8);
        let own_fup = match self.choose(4) {
            0 => None,
            choice => Some(choice == 1),
        };
        if let Some(ip) = own_fup {
            if self.choose(2) == 0 {
                self.beside(Packet::Evd { kind: 0, payload: vector.into() }, None);
            }
            self.beside(Packet::Cfe { ip, kind: 1, vector }, Some(from).filter(|_| ip));
        }
        self.encoder.interrupt_to(from, to, self.now, &mut self.trace);
        let vector = own_fup.map(|_| vector);
        self.transfers.push(Transfer { after: self.truth.len(), from, to, vector });
        self.interrupted.push(from);
        self.ip = to;
    }

    /// The processor's buffer overflows: the packets of some steps are lost.
    pub(crate) fn overflow(&mut self) {
        let kept = self.trace.len();
        for _ in 0..self.choose(30) {
            self.step();
        }
        self.trace.truncate(kept);
        let lost = self.written.iter().rposition(|&bytes| bytes <= kept).map_or(0, |last| last + 1);
        self.written[lost..].fill(kept);
        self.encoder.overflow(Some(self.ip), self.now, &mut self.trace);
    }

    /// An interrupt that event trace reports.
    pub(crate) fn interrupt(&mut self) {
        self.encoder.flush(self.now, &mut self.trace);
        self.trace.extend_from_slice(&Packet::Cfe { ip: false, kind: 1, vector: 14 }.encode());
        self.interrupts += 1;
        self.encoder.interrupt(self.ip, self.now, &mut self.trace);
    }

    /// Runs this many steps, some of which are several instructions.
    pub(crate) fn run(mut self, steps: usize) -> Self {
        self.encoder.synchronize(None, self.now, &mut self.trace);
        self.encoder.enable(self.ip, self.now, &mut self.trace);
        for _ in 0..steps {
            self.step();
            if self.loss > 0 && self.choose(self.loss) == 0 {
                self.overflow();
            }
            if self.events && self.choose(24) == 0 {
                self.event();
            }
            match self.choose(64) {
                0 => self.encoder.synchronize(Some(self.ip), self.now, &mut self.trace),
                1 => {
                    self.interrupt();
                    if self.events {
                        self.beside(Packet::Cfe { ip: false, kind: 1, vector: 3 }, None);
                        self.beside(Packet::Cfe { ip: false, kind: 2, vector: 0 }, None);
                    }
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

/// Creates a walker at the start of the code.
pub(crate) fn walker<'a>(code: &'a Code, choices: &'a [u32], settings: Settings, loss: u64) -> Walker<'a> {
    Walker {
        code,
        choices: choices.iter().cycle(),
        encoder: Encoder::new(settings, START),
        trace: Vec::new(),
        truth: Vec::new(),
        written: Vec::new(),
        ip: BASE,
        now: START,
        stack: Vec::new(),
        loss,
        interrupts: 0,
        events: false,
        transfers: Vec::new(),
        interrupted: Vec::new(),
        ptwrites: Vec::new(),
    }
}

/// What the decoder reports.
#[derive(Default)]
pub(crate) struct Decoded {
    pub(crate) addresses: Vec<u64>,
    pub(crate) gaps: Vec<Gap>,
    /// Number of addresses before each gap.
    pub(crate) gap_after: Vec<usize>,
    pub(crate) interrupts: usize,
    /// Each time, with the number of instructions reported before it.
    pub(crate) times: Vec<(u64, usize)>,
    pub(crate) cycles: u64,
    /// Asynchronous transfers, each after a number of addresses, with the number of gaps before it.
    pub(crate) transfers: Vec<(Transfer, usize)>,
    /// Operand and address of each PTWRITE.
    pub(crate) ptwrites: Vec<(u64, Option<u64>)>,
}

impl Sink for Decoded {
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
            Event::Asynchronous { from, to, cause } => {
                let after = self.addresses.len();
                let vector = cause.map(|cause| cause.vector);
                self.transfers.push((Transfer { after, from, to, vector }, self.gaps.len()));
            }
            Event::PtWrite { ip, payload } => self.ptwrites.push((payload, ip)),
            _ => {}
        }
    }
}

/// A slot without known code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hole {
    pub(crate) slot: u64,
    /// Whether the mapping is known, and only its bytes are missing.
    pub(crate) mapped: bool,
}

/// Returns the address space of the code without the holes.
pub(crate) fn space_with_holes<'a>(code: &'a Code, holes: &[Hole]) -> AddressSpace<'a> {
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

/// Decodes a trace, each segment with a new decoder; the code of `holes` is unknown.
pub(crate) fn decode_with_holes(code: &Code, holes: &[Hole], trace: &[u8], config: &Config) -> Decoded {
    let space = space_with_holes(code, holes);
    let mut programs = [Program::new(&space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let next = |from: usize| Some(from + find_psb(trace.get(from..)?)?);
    let starts: Vec<usize> = std::iter::successors(next(0), |&start| next(start + PSB.len())).collect();
    let ends = starts.iter().skip(1).copied().chain([trace.len()]);
    let mut seen = Decoded::default();
    for (start, end) in starts.iter().copied().zip(ends) {
        let span = Range { start, end };
        Decoder::new(trace, span, config, &schedule).decode(&mut programs, &mut seen);
    }
    seen
}

/// Returns how many instructions ran before each part between two gaps.
fn starts<'s>(seen: &'s Decoded, written: &'s [usize]) -> impl Iterator<Item = usize> + 's {
    let starts = seen.gaps.iter().map(|gap| written.partition_point(|&bytes| bytes < gap.to as usize));
    std::iter::once(0).chain(starts)
}

/// Checks that each asynchronous transfer took place where it is shown, and that each PTWRITE ran where it is shown.
/// Otherwise describes the first that did not.
pub(crate) fn events_took_place(seen: &Decoded, ran: &Walker<'_>) -> Result<(), String> {
    let starts: Vec<usize> = starts(seen, &ran.written).collect();
    for &(transfer, gaps) in &seen.transfers {
        let before = gaps.checked_sub(1).map_or(0, |last| seen.gap_after[last]);
        let after = starts[gaps] + transfer.after - before;
        let transfer = Transfer { after, ..transfer };
        if !ran.transfers.contains(&transfer) {
            let real: Vec<_> = ran.transfers.iter().filter(|real| real.after.abs_diff(after) < 4).collect();
            return Err(format!("{transfer:x?} is shown, {real:x?} took place; {:?}", seen.gaps));
        }
    }
    for &(payload, ip) in &seen.ptwrites {
        let ran = ran.ptwrites.get(payload as usize);
        if ran.is_none() || ip.is_some() && ip.as_ref() != ran {
            return Err(format!("PTWRITE {payload} is shown at {ip:x?}, it ran at {ran:x?}"));
        }
    }
    Ok(())
}

/// Checks that each part between two gaps is what ran from the packet that ended the gap. Otherwise describes the
/// first part that differs.
pub(crate) fn gaps_end_where_packets_say(
    seen: &Decoded,
    truth: &[u64],
    written: &[usize],
) -> Result<(), String> {
    let ends = seen.gap_after.iter().copied().chain([seen.addresses.len()]);
    let mut shown = 0;
    for (index, (start, end)) in starts(seen, written).zip(ends).enumerate() {
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

/// Decodes a trace with all of its code.
pub(crate) fn decode(code: &Code, trace: &[u8], config: &Config) -> Decoded {
    decode_with_holes(code, &[], trace, config)
}

/// Bytes that are changed in a trace.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) position: usize,
    pub(crate) removed: usize,
    pub(crate) inserted: Vec<u8>,
}

/// More bytes than a PSB+ of the encoder has.
const PSB_PLUS: usize = 64;

/// Returns the end of the last packet whose meaning does not depend on later packets, as that of a FUP does.
fn end_of_self_contained(trace: &[u8]) -> usize {
    let mut packets = hodo_intel_pt::packet::Decoder::new(trace, 0);
    let mut end = 0;
    while let Ok(Some(packet)) = packets.next_packet() {
        let stands_alone = matches!(
            packet,
            Packet::Tnt8(_)
                | Packet::Tnt64(_)
                | Packet::Tip(_)
                | Packet::TipPge(_)
                | Packet::TipPgd(_)
                | Packet::PsbEnd
        );
        if stands_alone {
            end = packets.position();
        }
    }
    end
}

/// Checks that a damaged trace shows first what the packets before the damage prove. Otherwise describes what differs.
pub(crate) fn damage_changes_nothing_before(
    code: &Code,
    holes: &[Hole],
    trace: &[u8],
    damage: &Damage,
    config: &Config,
) -> Result<(), String> {
    let position = damage.position;
    let mut damaged = trace.to_vec();
    damaged.splice(position..(position + damage.removed).min(trace.len()), damage.inserted.iter().copied());
    // A damaged PSB+ proves nothing: compares up to its start then.
    let next = |from: usize| Some(from + find_psb(trace.get(from..)?)?);
    let psbs = std::iter::successors(next(0), |&start| next(start + PSB.len()));
    let psb = psbs.take_while(|&psb| psb <= position).last().unwrap_or(0);
    let whole = if position < psb + PSB_PLUS { psb } else { position };
    // The end of the packet before may form a PSB with bytes behind the damage: that packet is damaged too.
    let reach = (position + 1).saturating_sub(PSB.len())..position + PSB.len();
    let formed = damaged.get(reach.start..reach.end.min(damaged.len())).and_then(find_psb);
    let whole = formed.map_or(whole, |formed| whole.min(reach.start + formed));
    let before = decode_with_holes(code, holes, &trace[..end_of_self_contained(&trace[..whole])], config);
    let seen = decode_with_holes(code, holes, &damaged, config);
    let alike = seen.addresses.iter().zip(&before.addresses).take_while(|(one, other)| one == other).count();
    // Where the flow continues after a gap is found by reading ahead, possibly into the damage. Then the gap ends elsewhere,
    // or a later one says since where the flow is doubtful.
    let is_other = |gap: &Gap| seen.gaps.iter().any(|other| other.from == gap.from && other.to != gap.to);
    let is_doubtful = |gap: &Gap| seen.gaps.iter().any(|later| later.doubtful_since == Some(gap.to));
    let guessed =
        before.gaps.iter().zip(&before.gap_after).find(|(gap, _)| is_other(gap) || is_doubtful(gap));
    let certain = guessed.map_or(before.addresses.len(), |(_, &addresses)| addresses);
    if alike < certain {
        return Err(format!(
            "{alike} of {} as before byte {position}, then {:x?} for {:x?}; gaps {:?} for {:?}",
            before.addresses.len(),
            seen.addresses.get(alike),
            before.addresses[alike],
            seen.gaps.iter().take(before.gaps.len() + 1).collect::<Vec<_>>(),
            before.gaps,
        ));
    }
    // The FUP of the last PTW may be damaged.
    let ptwrites = &before.ptwrites[..before.ptwrites.len().saturating_sub(1)];
    if !seen.ptwrites.starts_with(ptwrites) {
        return Err(format!("PTWRITEs before byte {position}: {:x?} for {ptwrites:x?}", seen.ptwrites));
    }
    Ok(())
}
