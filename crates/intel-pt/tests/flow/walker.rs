//! Random code, its execution and its trace: the reference for the decoder.

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Label, Labels, Origin, Program};
use hodo_intel_pt::{
    Config,
    encoder::{Encoder, Settings},
    flow::{Cause, ControlFlowKind, Decoder, Event, Executed, Gap, Sink, Switch},
    packet::{PSB, Packet, find_psb},
};

pub(crate) const BASE: u64 = 0x40_0000;
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
            };
            bytes[at as usize..at as usize + machine_code.len()].copy_from_slice(&machine_code);
        }
        // Code that runs off the end reaches a system call.
        let length = bytes.len();
        bytes[length - 2..].copy_from_slice(&[0x0f, 0x05]);
        Code { bytes, ends }
    }
}

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
}

impl Walker<'_> {
    pub(crate) fn choose(&mut self, below: u64) -> u64 {
        u64::from(*self.choices.next().unwrap()) % below
    }

    pub(crate) fn random_slot(&mut self) -> u64 {
        BASE + self.choose(SLOTS) * SLOT
    }

    /// Returns the end of the slot that contains `ip`, its address and its size.
    pub(crate) fn slot_end(&self) -> (End, u64, u64) {
        let slot = (self.ip - BASE) / SLOT;
        let (end, nops) = self.code.ends[slot as usize];
        let length = match end {
            End::RunOn => 0,
            End::Conditional(_) => 6,
            End::Jump(_) | End::Call(_) | End::CallNext | End::CallOver => 5,
            End::IndirectJump | End::IndirectCall | End::SystemCall => 2,
            End::Return => 1,
        };
        (end, BASE + slot * SLOT + nops, length)
    }

    pub(crate) fn step(&mut self) {
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
            End::CallNext | End::RunOn | End::SystemCall => next,
        }
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

    /// Returns the trace, the addresses of what ran, and the number of interrupts.
    pub(crate) fn walk(self, steps: usize) -> (Vec<u8>, Vec<u64>, usize) {
        let walked = self.run(steps);
        (walked.trace, walked.truth, walked.interrupts)
    }

    pub(crate) fn run(mut self, steps: usize) -> Self {
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

/// Creates a walker at the start of the code.
pub(crate) fn walker<'a>(code: &'a Code, choices: &'a [u32], settings: Settings, loss: u64) -> Walker<'a> {
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

pub(crate) struct NoLabels;

impl Labels for NoLabels {
    fn label(&self, _: Origin) -> (Label, u64) {
        (Label::default(), u64::MAX)
    }
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) addresses: Vec<u64>,
    pub(crate) gaps: Vec<Gap>,
    /// Number of addresses before each gap.
    pub(crate) gap_after: Vec<usize>,
    pub(crate) interrupts: usize,
    /// Each time, with the number of instructions reported before it.
    pub(crate) times: Vec<(u64, usize)>,
    pub(crate) cycles: u64,
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
pub(crate) fn decode_with_holes(code: &Code, holes: &[Hole], trace: &[u8], config: &Config) -> Seen {
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

/// Checks that each part between two gaps is what ran from the packet that ended the gap. Otherwise describes the
/// first part that differs.
pub(crate) fn goes_on_where_packets_say(seen: &Seen, truth: &[u64], written: &[usize]) -> Result<(), String> {
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

/// Decodes a trace with all of its code.
pub(crate) fn decode(code: &Code, trace: &[u8], config: &Config) -> Seen {
    decode_with_holes(code, &[], trace, config)
}
