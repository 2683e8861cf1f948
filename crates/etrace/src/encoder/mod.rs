//! Encodes an account of retired instructions.
//!
//! ```text
//! retire, trap, end ──► instruction, between the one before and what follows ──► Packet…
//! ```
//!
//! Source: "Reference Compressed Branch Trace Algorithm". As there, a packet about an instruction is decided when what
//! follows it is known.

mod returns;

use hodo_isa::riscv::{Instruction, Kind};

use self::returns::Returns;
use crate::{
    Parameters,
    modes::{Predictor, TargetCache},
    packet::{
        BranchMap, Context, Options, Packet, Prediction, Qualification, Reported, Start, Support, Trap,
    },
};

/// Branches that a packet can contain.
const FULL: u64 = 31;
/// The range of no addresses.
const NOTHING: (u64, u64) = (u64::MAX, 0);
/// The greatest number of predicted branches that a packet can count; the encoder reports an address then.
const LONGEST_COUNT: u64 = u32::MAX as u64;

/// An instruction that retired.
#[derive(Clone, Copy, Debug)]
pub struct Retired {
    /// Its address.
    pub address: u64,
    /// What it is.
    pub instruction: Instruction,
    /// Its privilege level.
    pub privilege: u8,
    /// Whether a trigger asks to report it.
    pub notify: bool,
}

/// An exception or interrupt.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The cause, without the highest bit of `*cause`.
    pub cause: u64,
    /// Whether it is an interrupt.
    pub is_interrupt: bool,
    /// `*tval`.
    pub value: u64,
    /// `*epc`: the address to which a return from the handler goes.
    pub address: u64,
}

/// What follows an instruction.
#[derive(Clone, Copy)]
enum Next<'r> {
    Instruction(&'r Retired),
    /// A trap that returns to this address.
    Trap(u64),
    /// Nothing that is traced; the address at which it is, if known.
    End(Option<u64>),
}

impl Next<'_> {
    fn address(self) -> Option<u64> {
        match self {
            Next::Instruction(next) => Some(next.address),
            Next::Trap(address) => Some(address),
            Next::End(address) => address,
        }
    }
}

/// What came before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing that is traced, or a trap whose packet did not contain the handler.
    Nothing,
    /// A trap, which is not reported yet.
    Trap,
    /// An instruction.
    Instruction,
}

/// The encoder of one hart.
#[derive(Clone, Debug)]
pub struct Encoder {
    parameters: Parameters,
    options: Options,
    /// Number of packets after which a synchronization packet is sent.
    resync_after: u64,
    packets: Vec<Packet>,
    /// The instruction whose follower is not known yet.
    current: Option<Retired>,
    /// The trap whose handler did not begin yet.
    trap: Option<Taken>,
    before: Before,
    /// Whether the code does not determine what follows the instruction before.
    uninferable: bool,
    /// Whether the instruction before is an indirect jump whose target the one before it determines.
    is_inferred: bool,
    /// The register that the instruction before set to a value that the code determines.
    upper: Option<u8>,
    privilege: u8,
    time: Option<u64>,
    context: Option<u64>,
    /// Whether a change of context is not reported yet.
    context_changed: bool,
    /// The address reported last.
    reported: u64,
    /// Outcomes of branches that are not reported, the oldest lowest, as far as they fit.
    map: u32,
    branches: u64,
    /// How many of them were predicted correctly, from the oldest one on.
    predicted: u64,
    predictor: Predictor,
    cache: TargetCache,
    returns: Returns,
    /// The lowest and the highest address that was passed since the last packet.
    passed: (u64, u64),
    /// Packets since the last synchronization packet.
    since_sync: u64,
    /// Whether the next instruction is to be sent as a synchronization packet.
    resync: bool,
    /// Whether the caller asked for that.
    is_sync_due: bool,
}

/// Why an address is reported.
#[derive(Clone, Copy, Default)]
struct Reason {
    /// The code does not say that this instruction follows the one before.
    after_uninferable: bool,
    /// A packet of format 3 follows immediately, or tracing ends.
    sync_follows: bool,
    /// A trigger asks for it, or the decoder could take another return for this one, or pass it.
    notify: bool,
}

impl Encoder {
    /// Creates an encoder, which reports its options first. `resync_after` is the number of packets after which it
    /// sends a synchronization packet.
    ///
    /// Options for which the parameters have no memory are unset.
    pub fn new(parameters: &Parameters, options: Options, resync_after: u64) -> Encoder {
        let options = Options {
            implicit_return: options.implicit_return && parameters.depth_bits() > 0,
            jump_target_cache: options.jump_target_cache && parameters.cache_size > 0,
            branch_prediction: options.branch_prediction && parameters.bpred_size > 0,
            sijump: options.sijump || parameters.sijump,
            ..options
        };
        // What is disabled has no entries.
        let enabled = Parameters {
            cache_size: if options.jump_target_cache { parameters.cache_size } else { 0 },
            bpred_size: if options.branch_prediction { parameters.bpred_size } else { 0 },
            ..parameters.clone()
        };
        let mut encoder = Encoder {
            parameters: parameters.clone(),
            options,
            resync_after,
            packets: Vec::new(),
            current: None,
            trap: None,
            before: Before::Nothing,
            uninferable: false,
            is_inferred: false,
            upper: None,
            privilege: 0,
            time: None,
            context: None,
            context_changed: false,
            reported: 0,
            map: 0,
            branches: 0,
            predicted: 0,
            predictor: Predictor::new(&enabled),
            cache: TargetCache::new(&enabled),
            returns: Returns::new(parameters, options.implicit_return),
            passed: NOTHING,
            since_sync: 0,
            resync: false,
            is_sync_due: false,
        };
        encoder.support(Qualification::Unchanged);
        encoder
    }

    /// Returns the packets since the last call.
    pub fn take(&mut self) -> Vec<Packet> {
        std::mem::take(&mut self.packets)
    }

    /// The options that are in force.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Sets the time of the packets that follow.
    pub fn set_time(&mut self, time: u64) {
        self.time = Some(time);
    }

    /// Sets the context of the instructions that follow; it need not be reported at the exact instruction.
    pub fn set_context(&mut self, context: u64) {
        self.context_changed = self.context != Some(context);
        self.context = Some(context);
    }

    /// Lets the next instruction that retires be sent as a synchronization packet, so that decoders apply the time in that packet
    /// exactly there. Call it where another thread begins to run.
    ///
    /// The packet comes later where a decoder that begins there could not go on: at a return that was not predicted, and at a jump
    /// whose target the instruction before it determines.
    pub fn synchronize_next(&mut self) {
        // Without an instruction before it, it is sent so anyway.
        self.is_sync_due = self.current.is_some();
    }

    /// An instruction retired.
    pub fn retire(&mut self, next: &Retired) {
        if let Some(current) = self.current.take() {
            self.process(&current, Next::Instruction(next));
        }
        self.current = Some(*next);
    }

    /// A trap was taken: no instruction retires before those of its handler.
    pub fn trap(&mut self, taken: &Taken) {
        if let Some(current) = self.current.take() {
            self.process(&current, Next::Trap(taken.address));
        }
        let is_nested = match self.trap.take() {
            // Its handler did not retire any instruction.
            Some(earlier) => {
                self.send_trap(&earlier, None);
                true
            }
            None => false,
        };
        if is_nested {
            self.trap = Some(*taken);
        } else if self.uninferable || self.before == Before::Nothing {
            // The decoder can't know at which instruction it happened.
            self.send_trap(taken, None);
            self.before = Before::Nothing;
        } else {
            self.trap = Some(*taken);
            self.before = Before::Trap;
        }
        self.uninferable = false;
    }

    /// Tracing ends after the instruction that retired last, for example because the privilege level is not traced. `next`
    /// is the address at which execution continues untraced, if it is known.
    pub fn end(&mut self, next: Option<u64>) {
        if let Some(current) = self.current.take() {
            self.process(&current, Next::End(next));
        }
        if let Some(earlier) = self.trap.take() {
            self.send_trap(&earlier, None);
            self.support(Qualification::EndedReported);
        }
        self.before = Before::Nothing;
        self.uninferable = false;
    }

    /// Packets were lost: those since the last call of [`Encoder::take`], and what they reported.
    pub fn lose(&mut self) {
        self.packets.clear();
        (self.current, self.trap, self.is_sync_due) = (None, None, false);
        self.before = Before::Nothing;
        self.uninferable = false;
        self.support(Qualification::Lost);
    }

    /// Sends the packets about an instruction, now that what follows it is known.
    fn process(&mut self, current: &Retired, next: Next<'_>) {
        let before = self.before;
        let is_sync = before != Before::Instruction || self.resync || current.privilege != self.privilege;
        let after_uninferable = self.uninferable;
        let taken = is_taken(current, next);
        let mispredicted = self.count_branch(current, taken, is_sync);
        self.resync = false;
        if self.is_sync_due || !is_sync && self.since_sync >= self.resync_after {
            // Without the depth of a return that failed, the decoder could take another one for it.
            self.resync = match next {
                Next::Instruction(next) => {
                    !self.returns.fails(current.instruction.kind, next.address) && !self.infers(current, next)
                }
                _ => false,
            };
            // What follows a trap or the end is a synchronization packet.
            self.is_sync_due &= !self.resync && matches!(next, Next::Instruction(_));
        }
        // Whether a packet of format 3 follows that is about the next instruction, or a trap.
        let sync_follows = match next {
            Next::Instruction(next) => self.resync || next.privilege != current.privilege,
            Next::Trap(_) => true,
            Next::End(_) => false,
        };
        let is_last = !matches!(next, Next::Instruction(_));
        let pending = self.branches > 0 || self.returns.is_ambiguous() || self.passes(current, next);
        let packets = self.packets.len();
        if is_sync {
            self.synchronize(current, taken);
        } else if after_uninferable {
            let reason = Reason { after_uninferable, sync_follows, ..Reason::default() };
            self.report(current, mispredicted, reason);
        } else if is_last || (sync_follows && pending) {
            // Behind an indirect jump, the specification's decoder stops only where that is asked for (2.0, "Decoder
            // reference algorithm"), even if the jump was inferred.
            let notify = self.is_inferred;
            self.report(current, mispredicted, Reason { sync_follows: true, notify, ..Reason::default() });
        } else if current.notify {
            self.report(current, mispredicted, Reason { notify: true, ..Reason::default() });
        } else if self.send_full_map(current, mispredicted) {
            // The decoder knows the instruction from the branches.
        } else if self.fails_ambiguously(current, next) {
            self.report(current, mispredicted, Reason { notify: true, ..Reason::default() });
        } else if self.context_changed {
            self.packets.push(Packet::Context(self.context_of(current.privilege)));
            self.context_changed = false;
        }
        if matches!(next, Next::End(_)) {
            let would_be_sent = after_uninferable && !is_sync;
            self.support(if would_be_sent { Qualification::Ended } else { Qualification::EndedReported });
        }
        // The decoder is at this instruction after a packet about it, which a context is not.
        let is_reported = self.packets[packets..].iter().any(|packet| !matches!(packet, Packet::Context(_)));
        self.passed = match is_reported {
            true => NOTHING,
            false => (self.passed.0.min(current.address), self.passed.1.max(current.address)),
        };
        self.advance(current, next, is_sync);
        (self.before, self.privilege) = (Before::Instruction, current.privilege);
    }

    /// Whether the code determines the target of an indirect jump. Decoders that begin at such a jump do not know what came before,
    /// and those that do not begin there infer it.
    fn infers(&self, current: &Retired, next: &Retired) -> bool {
        match (current.instruction.kind, next.instruction.kind) {
            (Kind::Upper { register, .. }, Kind::Indirect { base, .. }) => {
                self.options.sijump && register == base
            }
            _ => false,
        }
    }

    /// Whether the decoder may pass the next instruction's address on the way to an indirect jump that leads there: it
    /// would stop too early.
    fn passes(&self, current: &Retired, next: Next<'_>) -> bool {
        let Some(to) = next.address() else { return false };
        let (low, high) = (self.passed.0.min(current.address), self.passed.1.max(current.address));
        current.instruction.kind.is_indirect() && (low..=high).contains(&to)
    }

    /// Adds a branch to those that are not reported. Returns whether it was predicted wrongly.
    fn count_branch(&mut self, current: &Retired, taken: bool, is_sync: bool) -> bool {
        if is_sync || !matches!(current.instruction.kind, Kind::Branch { .. }) {
            return false;
        }
        if self.branches < FULL {
            self.map |= u32::from(!taken) << self.branches;
        }
        let prediction = self.predictor.predict(current.address);
        self.predictor.learn(current.address, taken);
        let is_correct = prediction == Some(taken);
        if is_correct && self.predicted == self.branches {
            self.predicted += 1;
        }
        self.branches += 1;
        !is_correct
    }

    /// Reports branches without an address if they fill a packet. Returns whether a packet was sent.
    fn send_full_map(&mut self, current: &Retired, mispredicted: bool) -> bool {
        if !matches!(current.instruction.kind, Kind::Branch { .. }) || self.branches < FULL {
            return false;
        }
        if self.predicted < FULL {
            self.push(Packet::Branches {
                map: BranchMap { count: FULL as u8, not_taken: self.map },
                reported: None,
            });
        } else if mispredicted {
            self.push(Packet::Predicted { count: self.predicted, end: Prediction::Failed });
        } else if self.predicted - FULL == LONGEST_COUNT {
            self.report(current, mispredicted, Reason::default());
        } else {
            return false;
        }
        true
    }

    /// Whether a return goes elsewhere than predicted, at a depth that another return since the last packet had: the
    /// decoder would take that one for it.
    fn fails_ambiguously(&self, current: &Retired, next: Next<'_>) -> bool {
        match next {
            Next::Instruction(next) => self.returns.fails_ambiguously(current.instruction.kind, next.address),
            _ => false,
        }
    }

    fn context_of(&self, privilege: u8) -> Context {
        Context { privilege, time: self.time, context: self.context }
    }

    /// Sends the packet of format 3 about an instruction.
    fn synchronize(&mut self, current: &Retired, taken: bool) {
        match self.trap.take() {
            Some(trap) => self.send_trap(&trap, Some((current, taken))),
            None => {
                let context = self.context_of(current.privilege);
                self.packets.push(Packet::Start(Start { taken, context, address: current.address }));
            }
        }
        self.reset();
        self.reported = current.address;
        if matches!(current.instruction.kind, Kind::Branch { .. }) {
            self.predictor.learn(current.address, taken);
        }
    }

    /// Sends a trap, with the first instruction of its handler if that retired.
    fn send_trap(&mut self, trap: &Taken, handler: Option<(&Retired, bool)>) {
        let (privilege, taken, address) = match handler {
            Some((retired, taken)) => (retired.privilege, taken, retired.address),
            None => (self.privilege, false, trap.address),
        };
        let is_implicit = self.options.implicit_exception && handler.is_some();
        self.packets.push(Packet::Trap(Trap {
            taken,
            context: self.context_of(privilege),
            cause: trap.cause,
            is_interrupt: trap.is_interrupt,
            is_handler: handler.is_some(),
            address: (!is_implicit).then_some(address),
            value: (!trap.is_interrupt).then_some(trap.value),
        }));
        self.reset();
        self.reported = address;
    }

    /// Forgets what a synchronization packet makes the decoder forget. Such a packet contains the context.
    fn reset(&mut self) {
        self.context_changed = false;
        (self.map, self.branches, self.predicted, self.since_sync) = (0, 0, 0, 0);
        self.predictor.reset();
        self.cache.reset();
        self.returns.reset();
    }

    fn support(&mut self, qualification: Qualification) {
        let options = self.options;
        self.packets.push(Packet::Support(Support {
            enabled: true,
            qualification,
            options,
            ..Support::default()
        }));
    }

    /// Sends a packet that reports the pending branches.
    fn push(&mut self, packet: Packet) {
        self.packets.push(packet);
        (self.map, self.branches, self.predicted) = (0, 0, 0);
        self.since_sync += 1;
        self.returns.reported();
    }

    /// Reports the address of an instruction, and the branches up to it.
    fn report(&mut self, current: &Retired, mispredicted: bool, reason: Reason) {
        let Reason { after_uninferable, sync_follows, notify } = reason;
        let depth = self.returns.depth_to_report(after_uninferable, sync_follows, notify);
        let updiscon = after_uninferable && sync_follows;
        let reported = Reported { address: self.field(current.address), notify, updiscon, depth };
        let map = BranchMap { count: self.branches.min(FULL) as u8, not_taken: self.map };
        let index = self.cache.find(current.address).filter(|_| after_uninferable && !updiscon);
        if after_uninferable {
            self.cache.enter(current.address);
        }
        self.reported = current.address;
        if self.predicted >= FULL {
            let failed = mispredicted && self.branches > self.predicted;
            let end = if failed { Prediction::FailedAt(reported) } else { Prediction::Address(reported) };
            self.push(Packet::Predicted { count: self.predicted, end });
            return;
        }
        let plain = match self.branches {
            0 => Packet::Address(reported),
            _ => Packet::Branches { map, reported: Some(reported) },
        };
        let length = |packet: &Packet| packet.encode(&self.parameters, self.options).len();
        let cached = index.map(|index| Packet::Cached { index, map, depth });
        // A small difference is shorter than the index.
        let shorter = cached.filter(|cached| length(cached) < length(&plain)).unwrap_or(plain);
        self.push(shorter);
    }

    /// The value of an address field.
    fn field(&self, address: u64) -> i64 {
        let base = if self.options.full_address { 0 } else { self.reported };
        let unused = 64 - u32::from(self.parameters.address_bits());
        let field = address.wrapping_sub(base) >> self.parameters.iaddress_lsb;
        (field << unused) as i64 >> unused
    }

    /// Decides what the code does not determine about the follower of an instruction.
    fn advance(&mut self, current: &Retired, next: Next<'_>, is_sync: bool) {
        let kind = current.instruction.kind;
        // The decoder may begin at a synchronization packet, and then does not know what came before.
        let is_inferred = match kind {
            Kind::Indirect { base, .. } => self.options.sijump && !is_sync && self.upper == Some(base),
            _ => false,
        };
        self.uninferable = kind.is_indirect() && !is_inferred;
        self.is_inferred = is_inferred;
        self.upper = match kind {
            Kind::Upper { register, .. } if register != 0 => Some(register),
            _ => None,
        };
        let after = current.address.wrapping_add(current.instruction.length.into());
        if self.returns.advance(kind, is_inferred, after, next.address()) {
            self.uninferable = false;
        }
    }
}

/// Whether an instruction is a branch that was taken.
fn is_taken(current: &Retired, next: Next<'_>) -> bool {
    let after = current.address.wrapping_add(current.instruction.length.into());
    match current.instruction.kind {
        Kind::Branch { target } => next.address().is_some_and(|next| next == target && next != after),
        _ => false,
    }
}
