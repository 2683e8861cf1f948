//! The trace encoder of a RISC-V hart: E-Trace of user mode, or all of a slave or of a machine.

use hodo_code::Terminator;
use hodo_emulator::slave::INTERRUPT;
use hodo_etrace::{
    Configuration,
    encoder::{Encoder, Retired, Taken},
    packet::Options,
    transport::{Kind, Unit as Carried},
};
use hodo_isa::riscv::{self, Set};

use super::{TIME_EVERY, Unit, code::Instruction};

/// The settings that a decoder needs.
pub(super) const SETTINGS: &str = "\
protocol = \"e-trace\"
carrier_time = true

[transport]
kind = \"encapsulation\"
time_bytes = 6

[parameters]
time_width = 48
";

/// The kernel's half of the addresses, and the privilege levels of both halves.
const KERNEL: u64 = 1 << 63;
const SUPERVISOR: u8 = 1;
const USER: u8 = 0;

/// Packets between two synchronizations.
const RESYNC_AFTER: u64 = 200;
/// The cause of an interrupt by the timer (Privileged Architecture, `mcause`). Which one it was is not recorded.
const TIMER: u64 = 5;

/// A hart with its encoder.
pub(super) struct Hart {
    configuration: Configuration,
    /// The privilege level; `None`: of a machine, that of the kernel in the upper half of the addresses, else that of programs.
    privilege: Option<u8>,
    encoder: Encoder,
    stream: Vec<u8>,
    now: u64,
    /// When the next time is due.
    time_due: u64,
    /// Of a machine's hart: the time since the last instruction, which holds for what follows.
    passed: Option<u64>,
}

impl Hart {
    pub(super) fn new(privilege: Option<u8>) -> Hart {
        let text = SETTINGS.replace("protocol = \"e-trace\"\n", "");
        let configuration = Configuration::parse(&text).expect("the settings are valid");
        let encoder = Encoder::new(&configuration.parameters, Options::default(), RESYNC_AFTER);
        Hart { configuration, privilege, encoder, stream: Vec::new(), now: 0, time_due: 0, passed: None }
    }

    /// What is reported from now on is later.
    fn pass(&mut self) {
        if let Some(now) = self.passed.take() {
            self.now = now;
            self.encoder.set_time(now);
        }
    }

    /// Writes the packets that are complete.
    fn write(&mut self) {
        for packet in self.encoder.take() {
            let payload = packet.encode(&self.configuration.parameters, self.encoder.options());
            let time = (self.now >= self.time_due).then_some(self.now);
            if time.is_some() {
                self.time_due = self.now + TIME_EVERY;
            }
            let unit =
                Carried { at: 0, source: 0, time, kind: Kind::Instruction, payload: &payload, skip: 0 };
            self.configuration.transport.write(&unit, &mut self.stream);
        }
    }
}

impl Unit for Hart {
    /// An instruction that raises an exception does not retire.
    const SHOWS_TRAPS: bool = false;

    fn begin(&mut self, _address: u64, now: u64) {
        self.now = now;
        if self.privilege.is_none() {
            self.encoder.set_time(now);
        }
    }

    fn executed(&mut self, instruction: &Instruction, _next: u64, now: u64) {
        if instruction.step.terminator == Terminator::Trap {
            return;
        }
        let address = instruction.address;
        let Some(instruction) = riscv::decode(&instruction.bytes, address, Set::RV64GC) else { return };
        // The packet about an instruction is decided when the next one retires.
        if self.privilege.is_some() {
            self.now = now;
            self.encoder.set_time(now);
        }
        let privilege = self.privilege.unwrap_or(if address & KERNEL != 0 { SUPERVISOR } else { USER });
        self.encoder.retire(&Retired { address, instruction, privilege, notify: false });
        self.write();
        self.pass();
    }

    /// Another thread may run from here on, so the next instruction is reported with the time.
    fn passes(&mut self, now: u64, _next: Option<u64>) {
        if self.privilege.is_none() {
            self.encoder.synchronize_next();
            self.passed = Some(now);
        }
    }

    fn system_call(&mut self, address: u64, _after: u64) {
        self.encoder.end(Some(address));
        self.write();
    }

    fn interrupted(&mut self, cause: Option<u8>, next: u64) {
        let (is_interrupt, cause) = match (self.privilege, cause) {
            (None, Some(cause)) => (cause & INTERRUPT != 0, u64::from(cause & !INTERRUPT)),
            (None, None) => return self.left(next),
            (Some(_), _) => (true, TIMER),
        };
        self.encoder.trap(&Taken { cause, is_interrupt, value: 0, address: next });
        self.encoder.end(None);
        self.write();
    }

    fn left(&mut self, target: u64) {
        self.encoder.end(Some(target));
        self.write();
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.stream)
    }

    fn trapped(&mut self, cause: u8, from: u64, _handler: u64) {
        let (is_interrupt, cause) = (cause & INTERRUPT != 0, u64::from(cause & !INTERRUPT));
        self.encoder.trap(&Taken { cause, is_interrupt, value: 0, address: from });
        self.write();
        self.pass();
    }

    fn lost(&mut self) {
        // The last instruction ran before the loss.
        self.encoder.end(None);
        self.write();
        self.encoder.lose();
        self.write();
    }

    fn finish(mut self) -> Vec<u8> {
        self.encoder.end(None);
        self.write();
        self.stream
    }
}
