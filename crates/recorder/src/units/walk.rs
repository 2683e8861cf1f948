//! Follows the plugin's packets through the code.

use hodo_code::{Isa, Terminator};
use hodo_intel_pt::{
    LastIp,
    packet::{Decoder, IpPayload, Packet, Tnt},
};

use super::{
    Clock, Encoded, Unit,
    code::{Code, Instruction},
};

/// Why a walk can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The code at an address is unknown.
    Code(u64),
    /// The instruction at an address does not fit the packet.
    Packet(u64),
    /// Bytes that are no packet.
    Bytes(usize),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Code(at) => write!(f, "no code at {at:#x}"),
            Trouble::Packet(at) => write!(f, "another branch than at {at:#x} was recorded"),
            Trouble::Bytes(at) => write!(f, "the recorded packets are damaged at byte {at}"),
        }
    }
}

/// The walk of a thread.
pub(super) struct Walk<'w, 'a, U> {
    code: &'w mut Code<'a>,
    unit: U,
    /// The position of the part.
    position: usize,
    /// The next instruction; `None` while nothing is traced.
    next: Option<u64>,
    /// The time in nanoseconds.
    now: u64,
    clock: Clock<'w>,
    /// The cause of the trap that follows, if it has one.
    cause: Option<u8>,
    hidden: u64,
    missing: Option<String>,
    last_ip: LastIp,
    /// The address of a FUP whose packet follows.
    source: Option<u64>,
    /// Whether the packets describe the state at a PSB.
    in_status: bool,
}

impl<'w, 'a, U: Unit> Walk<'w, 'a, U> {
    pub(super) fn new(code: &'w mut Code<'a>, unit: U, now: u64, clock: Clock<'w>) -> Walk<'w, 'a, U> {
        Walk {
            code,
            unit,
            position: 0,
            next: None,
            now,
            clock,
            cause: None,
            hidden: 0,
            missing: None,
            last_ip: LastIp::ZERO,
            source: None,
            in_status: false,
        }
    }

    /// Encodes what packets show. They may begin within one.
    pub(super) fn follow(mut self, packets: &[u8]) -> Encoded {
        self.packets(packets);
        self.finish()
    }

    /// Encodes what a part of the packets shows; each part but the first begins with a PSB. Returns the bytes that are complete.
    pub(super) fn part(&mut self, packets: &[u8]) -> Vec<u8> {
        self.packets(packets);
        self.position += packets.len();
        self.unit.take()
    }

    fn packets(&mut self, packets: &[u8]) {
        let mut decoder = Decoder::new(packets, 0);
        if decoder.synchronize() {
            loop {
                let at = decoder.position();
                let result = match decoder.next_packet() {
                    Ok(None) => break,
                    Ok(Some(packet)) => self.packet(packet),
                    Err(_) => Err(Trouble::Bytes(self.position + at)),
                };
                let Err(trouble) = result else { continue };
                self.missing.get_or_insert_with(|| format!("a part is missing: {trouble}"));
                self.unit.lost();
                (self.next, self.source) = (None, None);
                if !decoder.synchronize() {
                    break;
                }
            }
        }
    }

    /// Ends the trace; the bytes are those that no part returned.
    pub(super) fn finish(self) -> Encoded {
        Encoded { bytes: self.unit.finish(), hidden: self.hidden, missing: self.missing }
    }

    fn packet(&mut self, packet: Packet) -> Result<(), Trouble> {
        match packet {
            Packet::Psb => {
                self.last_ip = LastIp::ZERO;
                self.in_status = true;
            }
            Packet::PsbEnd => self.in_status = false,
            Packet::Tsc(time) => {
                self.now = self.clock.nanos(time);
                self.unit.passes(self.now, self.next);
            }
            Packet::Pip { cr3, .. } => self.code.choose_space(cr3),
            Packet::Cfe { vector, .. } => self.cause = Some(vector),
            Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => return self.branches(tnt),
            Packet::Tip(payload) => {
                if let Some(target) = self.last_ip.join(payload) {
                    return self.indirect(target);
                }
            }
            Packet::TipPge(payload) => {
                if let Some(target) = self.last_ip.join(payload) {
                    self.begin(target);
                }
            }
            Packet::TipPgd(payload) => return self.end(payload),
            Packet::Fup(payload) => {
                let Some(address) = self.last_ip.join(payload) else { return Ok(()) };
                match self.next {
                    None => self.begin(address),
                    Some(_) if self.in_status => return self.run_to(address),
                    Some(_) => self.source = Some(address),
                }
            }
            Packet::Overflow => {
                self.unit.lost();
                self.next = None;
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, address: u64) {
        self.unit.begin(address, self.now);
        self.next = Some(address);
    }

    /// The instruction that runs next; `None` while nothing is traced.
    fn peek(&mut self) -> Result<Option<Instruction>, Trouble> {
        let Some(address) = self.next else { return Ok(None) };
        match self.code.instruction(address, self.now) {
            Some(instruction) => Ok(Some(instruction)),
            None => Err(Trouble::Code(address)),
        }
    }

    fn execute(&mut self, instruction: &Instruction, next: u64) {
        self.unit.executed(instruction, next, self.now);
        self.now += self.clock.step();
        self.next = Some(next);
    }

    /// Whether the packets say if an instruction branches: in T32, one before it may give any branch a condition.
    fn is_conditional(&self, instruction: &Instruction) -> bool {
        match instruction.step.terminator {
            Terminator::Conditional => true,
            Terminator::Jump | Terminator::Call => self.code.isa() == Isa::T32,
            _ => false,
        }
    }

    /// Runs an instruction whose follower the code determines. Returns `false` for others.
    fn execute_plain(&mut self, instruction: &Instruction) -> bool {
        let next = match instruction.step.terminator {
            Terminator::None | Terminator::Barrier | Terminator::Wait => instruction.end(),
            Terminator::Jump | Terminator::Call if !self.is_conditional(instruction) => {
                instruction.step.target
            }
            _ => return false,
        };
        self.execute(instruction, next);
        true
    }

    /// Runs instructions up to one whose follower the code does not determine, which is returned.
    fn advance(&mut self) -> Result<Option<Instruction>, Trouble> {
        while let Some(instruction) = self.peek()? {
            if !self.execute_plain(&instruction) {
                return Ok(Some(instruction));
            }
        }
        Ok(None)
    }

    fn branches(&mut self, tnt: Tnt) -> Result<(), Trouble> {
        for index in (0..tnt.count).rev() {
            let Some(branch) = self.advance()? else { return Ok(()) };
            if !self.is_conditional(&branch) {
                return Err(Trouble::Packet(branch.address));
            }
            let is_taken = tnt.bits >> index & 1 == 1;
            self.execute(&branch, if is_taken { branch.step.target } else { branch.end() });
        }
        Ok(())
    }

    fn indirect(&mut self, target: u64) -> Result<(), Trouble> {
        if let Some(source) = self.source.take() {
            self.run_to(source)?;
            self.unit.trapped(self.cause.take().unwrap_or(0), source, target);
            self.next = Some(target);
            return Ok(());
        }
        let Some(branch) = self.advance()? else { return Ok(()) };
        match branch.step.terminator {
            _ if self.is_conditional(&branch) => return Err(Trouble::Packet(branch.address)),
            // The kernel was not seen to run.
            Terminator::Trap => {
                self.trap(&branch);
                self.begin(target);
            }
            _ => self.execute(&branch, target),
        }
        Ok(())
    }

    /// Tracing ends: at the FUP's address, with an instruction that calls the kernel, or with one that leads to code that is not
    /// traced.
    fn end(&mut self, payload: IpPayload) -> Result<(), Trouble> {
        let target = self.last_ip.join(payload);
        if let Some(source) = self.source.take() {
            self.run_to(source)?;
            self.unit.interrupted(self.cause.take(), source);
        } else if self.next.is_some_and(|next| Some(next) != target) {
            self.leave(target)?;
        } else if let Some(target) = target {
            self.unit.left(target);
        }
        self.next = None;
        Ok(())
    }

    /// Runs to the instruction that calls the kernel, or leads to code at `target` that is not traced.
    fn leave(&mut self, target: Option<u64>) -> Result<(), Trouble> {
        while let Some(last) = self.peek()? {
            if self.execute_plain(&last) {
                if self.next != target {
                    continue;
                }
            } else if last.step.terminator == Terminator::Trap {
                self.trap(&last);
                break;
            } else {
                let to = target.ok_or(Trouble::Packet(last.address))?;
                if self.is_conditional(&last) && ![last.step.target, last.end()].contains(&to) {
                    return Err(Trouble::Packet(last.address));
                }
                self.execute(&last, to);
            }
            target.into_iter().for_each(|target| self.unit.left(target));
            break;
        }
        Ok(())
    }

    /// Runs the instructions before an address.
    fn run_to(&mut self, address: u64) -> Result<(), Trouble> {
        while self.next.is_some_and(|next| next != address)
            && let Some(instruction) = self.peek()?
        {
            // A system call on Arm has run when its exception comes.
            let is_call = instruction.step.terminator == Terminator::Trap && instruction.end() == address;
            if is_call {
                self.execute(&instruction, address);
            } else if !self.execute_plain(&instruction) {
                return Err(Trouble::Packet(instruction.address));
            }
        }
        Ok(())
    }

    fn trap(&mut self, call: &Instruction) {
        self.execute(call, call.end());
        self.hidden += u64::from(!U::SHOWS_TRAPS);
        self.unit.system_call(call.address, call.end());
    }
}
