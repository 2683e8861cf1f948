//! The trace unit of an Arm processor: an ETMv4 that traces user mode, or all of a Cortex-M.

use hodo_code::Terminator;
use hodo_etm::{
    encoder::{Encoder, Settings},
    frames::frames_of,
    packet::Context,
};

use super::{TIME_EVERY, Unit, code::Instruction};

/// What the unit traces.
pub(super) const SETTINGS: Settings = Settings {
    is_ete: false,
    is_m_profile: false,
    return_stack: true,
    cycle_threshold: None,
    cycles_commit: false,
    context_ids: false,
    synchronization: 4096,
    speculation_depth: 0,
};

/// What the unit of a Cortex-M traces.
pub(super) const M_SETTINGS: Settings = Settings { is_m_profile: true, return_stack: false, ..SETTINGS };

/// The context of a program.
const CONTEXT: Context = Context {
    is_same: false,
    level: 0,
    is_64: true,
    is_non_secure: true,
    virtual_context: None,
    context_id: None,
};

/// Handler and thread mode of a Cortex-M.
const M_CONTEXT: Context = Context { is_64: false, is_non_secure: false, ..CONTEXT };

/// Exception types (ETMv4, "Exception packet").
const CALL: u16 = 2;
const INTERRUPT: u16 = 0xe;

/// The number of a Cortex-M's first interrupt, and of the first one whose type is another number.
const FIRST_INTERRUPT: u16 = 16;
const FIRST_FAR_INTERRUPT: u16 = 24;

/// The lowest address that stands for the end of a Cortex-M's handler.
const EXC_RETURN: u64 = 0xffff_ff00;

/// A processor with its unit.
pub(super) struct Processor {
    encoder: Encoder,
    context: Context,
    /// Bit 0 of addresses: set in T32.
    mark: u64,
    /// Where the handlers of a Cortex-M that run return to, the outermost first.
    returns: Vec<u64>,
    /// When the next time is due.
    time_due: u64,
}

impl Processor {
    pub(super) fn new() -> Processor {
        let encoder = Encoder::new(SETTINGS);
        Processor { encoder, context: CONTEXT, mark: 0, returns: Vec::new(), time_due: 0 }
    }

    pub(super) fn new_m() -> Processor {
        let encoder = Encoder::new(M_SETTINGS);
        Processor { encoder, context: M_CONTEXT, mark: 1, returns: Vec::new(), time_due: 0 }
    }

    fn timestamp(&mut self, now: u64) {
        self.encoder.timestamp(now);
        self.time_due = now + TIME_EVERY;
    }
}

impl Unit for Processor {
    const SHOWS_TRAPS: bool = true;

    fn begin(&mut self, address: u64, now: u64) {
        self.returns.clear();
        self.encoder.pass_time(now);
        self.encoder.begin(address | self.mark, self.context);
        self.timestamp(now);
    }

    fn executed(&mut self, instruction: &Instruction, next: u64, now: u64) {
        let step = &instruction.step;
        self.encoder.pass_time(now);
        self.encoder.executed(instruction.address | self.mark, step, next | self.mark);
        let is_return = matches!(step.terminator, Terminator::Return | Terminator::IndirectJump);
        if is_return && self.returns.pop_if(|to| *to == next).is_some() {
            self.encoder.exception_return();
        }
        // A time between two waypoints would be one before the instructions that are already passed.
        let is_waypoint = !matches!(step.terminator, Terminator::None | Terminator::Trap | Terminator::Wait);
        if is_waypoint && now >= self.time_due {
            self.timestamp(now + 1);
        }
    }

    fn system_call(&mut self, _address: u64, after: u64) {
        self.encoder.exception(CALL, after | self.mark);
    }

    fn interrupted(&mut self, next: u64) {
        self.encoder.exception(INTERRUPT, next | self.mark);
    }

    fn trapped(&mut self, cause: u8, from: u64, handler: u64) {
        let kind = match u16::from(cause) {
            _ if self.mark == 0 => INTERRUPT,
            number @ ..FIRST_FAR_INTERRUPT => number,
            number => 0x200 + number - FIRST_INTERRUPT,
        };
        // A handler that another one follows leaves the return to that one.
        if self.mark != 0 && from < EXC_RETURN {
            self.returns.push(from);
        }
        self.encoder.exception(kind, from | self.mark);
        self.encoder.handler(handler | self.mark, self.context);
    }

    fn lost(&mut self) {
        self.encoder.overflow();
    }

    fn finish(self) -> Vec<u8> {
        frames_of(SETTINGS.registers().trace_id as u8, &self.encoder.finish())
    }
}
