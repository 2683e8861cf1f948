//! Encodes an account of retired instructions as messages.

use hodo_isa::riscv::{Kind, Linkage};

use super::{Branch, Configuration, Form, Message, Resource, Synchronization, message::JUMP};
use crate::{
    encoder::{Retired, Taken},
    modes::Calls,
};

/// How branches are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Branch trace (BTM): a message for each branch that is taken.
    Branches,
    /// History trace (HTM): a bit for each branch.
    History,
}

/// Reasons of synchronization messages: tracing was enabled, or a number of messages has passed.
const ENABLED: u8 = 5;
const PERIODIC: u8 = 2;
/// Why a trace ends: it was disabled.
const DISABLED: u8 = 4;
/// Kinds of branches that are traps.
const EXCEPTION: u8 = 2;
const INTERRUPT: u8 = 3;
/// A history with its stop bit has at most 32 bits.
const FULL_HISTORY: u64 = 1 << 31;
/// A count of halfwords that is reported without anything else.
const FULL_COUNT: u64 = 1 << 16;
/// An empty history: the stop bit.
const EMPTY: u64 = 1;

/// The encoder of one hart.
#[derive(Clone, Debug)]
pub struct Encoder {
    mode: Mode,
    sijump: bool,
    calls: Option<Calls>,
    /// Number of messages after which a synchronization message is sent.
    resync_after: u64,
    messages: Vec<Message>,
    current: Option<Retired>,
    trap: Option<Taken>,
    is_on: bool,
    count: u64,
    history: u64,
    /// The last reported address, in halfwords.
    reported: u64,
    /// The register that the instruction before set, if no message came between.
    upper: Option<u8>,
    since_sync: u64,
    repeated: Option<RepeatedBranch>,
}

/// The last branch message, which further ones may repeat.
#[derive(Clone, Debug)]
struct RepeatedBranch {
    message: Message,
    target: u64,
    /// How often it came again.
    times: u64,
}

impl Encoder {
    /// Creates an encoder. `resync_after` is the number of messages after which it sends a synchronization message.
    pub fn new(configuration: &Configuration, mode: Mode, resync_after: u64) -> Encoder {
        Encoder {
            mode,
            sijump: configuration.sijump,
            calls: configuration.return_stack.map(|depth| Calls::with_depth(depth.into())),
            resync_after,
            messages: Vec::new(),
            current: None,
            trap: None,
            is_on: false,
            count: 0,
            history: EMPTY,
            reported: 0,
            upper: None,
            since_sync: 0,
            repeated: None,
        }
    }

    /// Returns the messages since the last call.
    pub fn take(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }

    /// An instruction retired.
    pub fn retire(&mut self, next: &Retired) {
        if let Some(current) = self.current.take() {
            self.process(&current, Some(next.address));
        }
        if let Some(trap) = self.trap.take() {
            self.send_trap(&trap, next.address);
        }
        self.start(next.address);
        self.current = Some(*next);
    }

    /// A trap was taken.
    pub fn trap(&mut self, taken: &Taken) {
        if let Some(current) = self.current.take() {
            self.process(&current, Some(taken.address));
        }
        if let Some(earlier) = self.trap.take() {
            // The next trap came at the first instruction of its handler.
            self.send_trap(&earlier, taken.address);
        }
        self.start(taken.address);
        self.trap = Some(*taken);
    }

    /// Tracing ends; `next` is the address at which execution continues untraced, if it is known.
    pub fn end(&mut self, next: Option<u64>) {
        if let Some(current) = self.current.take() {
            self.process(&current, next);
        }
        self.trap = None;
        if std::mem::take(&mut self.is_on) {
            let history = (self.mode == Mode::History).then_some(self.history);
            let count = self.count;
            self.push(Message::Correlation { event: DISABLED, count, history });
        }
    }

    /// Begins at an address, if tracing is off.
    fn start(&mut self, address: u64) {
        if !std::mem::replace(&mut self.is_on, true) {
            self.count = 0;
            self.synchronize(Form::Program, ENABLED, address);
        }
    }

    /// Sends a message with the full address.
    fn synchronize(&mut self, form: Form, reason: u8, address: u64) {
        let count = self.count;
        self.push(Message::Synchronization(Synchronization { form, reason, count, address: address >> 1 }));
        self.since_sync = 0;
        self.reported = address >> 1;
        if let Some(calls) = &mut self.calls {
            calls.clear();
        }
    }

    /// Sends what reports all that ran.
    fn push(&mut self, message: Message) {
        self.flush_repeated();
        self.messages.push(message);
        self.reset();
    }

    fn reset(&mut self) {
        (self.count, self.history, self.upper) = (0, EMPTY, None);
        self.since_sync += 1;
    }

    /// Sends a branch message, or counts it if it is the same as the last one.
    fn push_branch(&mut self, message: Message, target: u64) {
        match &mut self.repeated {
            Some(last) if last.target == target && same_branch(&last.message, &message) => last.times += 1,
            _ => {
                self.flush_repeated();
                self.messages.push(message);
                self.repeated = Some(RepeatedBranch { message, target, times: 0 });
            }
        }
        self.reset();
    }

    fn flush_repeated(&mut self) {
        if let Some(RepeatedBranch { times: count @ 1.., .. }) = self.repeated.take() {
            self.messages.push(Message::RepeatBranch { count });
        }
    }

    fn send_trap(&mut self, trap: &Taken, handler: u64) {
        let kind = if trap.is_interrupt { INTERRUPT } else { EXCEPTION };
        self.send_indirect(kind, handler);
    }

    fn send_indirect(&mut self, kind: u8, to: u64) {
        let history = (self.mode == Mode::History).then_some(self.history);
        if self.since_sync >= self.resync_after {
            self.synchronize(Form::Indirect { kind, history }, PERIODIC, to);
            return;
        }
        let address = self.reported ^ (to >> 1);
        self.reported = to >> 1;
        let count = self.count;
        self.push_branch(Message::IndirectBranch(Branch { kind, count, address, history }), to);
    }

    /// Counts an instruction, and sends what is due after it.
    fn process(&mut self, current: &Retired, next: Option<u64>) {
        let kind = current.instruction.kind;
        let after = current.address.wrapping_add(current.instruction.length.into());
        self.count += u64::from(current.instruction.length) / 2;
        let upper = self.upper.take();
        let linkage = kind.linkage();
        // A synchronization message to the called function empties the stack, so the call is pushed before it.
        if let (Linkage::Call, Some(calls)) = (linkage, &mut self.calls) {
            calls.push(after);
        }
        match kind {
            Kind::Branch { target } => {
                let taken = next == Some(target) && target != after;
                self.branch(taken, target);
            }
            Kind::Upper { register, .. } if register != 0 => self.upper = Some(register),
            Kind::Indirect { base, .. } if self.sijump && upper == Some(base) && base != 0 => {}
            _ if kind.is_indirect() => {
                let is_implicit = match &mut self.calls {
                    Some(calls) if linkage == Linkage::Return && next.is_some() && calls.top() == next => {
                        calls.pop();
                        true
                    }
                    _ => false,
                };
                if let Some(next) = next.filter(|_| !is_implicit) {
                    self.send_indirect(JUMP, next);
                }
            }
            _ => {}
        }
        if self.count >= FULL_COUNT {
            self.flush_repeated();
            self.messages.push(Message::ResourceFull(Resource::Count(self.count)));
            (self.count, self.upper) = (0, None);
        }
    }

    fn branch(&mut self, taken: bool, target: u64) {
        match self.mode {
            Mode::Branches if taken && self.since_sync >= self.resync_after => {
                self.synchronize(Form::Direct, PERIODIC, target);
            }
            Mode::Branches if taken => self.push_branch(Message::DirectBranch { count: self.count }, target),
            Mode::Branches => {}
            Mode::History => {
                self.history = self.history << 1 | u64::from(taken);
                if self.history & FULL_HISTORY != 0 {
                    self.flush_repeated();
                    let resource = match self.messages.last_mut() {
                        Some(Message::ResourceFull(Resource::Repeated { history, times }))
                            if *history == self.history =>
                        {
                            *times += 1;
                            None
                        }
                        Some(Message::ResourceFull(Resource::History(history)))
                            if *history == self.history =>
                        {
                            self.messages.pop();
                            Some(Resource::Repeated { history: self.history, times: 2 })
                        }
                        _ => Some(Resource::History(self.history)),
                    };
                    self.messages.extend(resource.map(Message::ResourceFull));
                    self.history = EMPTY;
                    self.upper = None;
                }
            }
        }
    }
}

/// Whether two messages say the same of what ran before their target.
fn same_branch(one: &Message, other: &Message) -> bool {
    match (one, other) {
        (Message::IndirectBranch(one), Message::IndirectBranch(other)) => {
            one.kind == JUMP && *one == Branch { address: one.address, ..*other }
        }
        (Message::DirectBranch { .. }, Message::DirectBranch { .. }) => one == other,
        _ => false,
    }
}
