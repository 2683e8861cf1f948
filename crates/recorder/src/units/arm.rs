//! The trace unit of an Arm processor: an ETMv4 that traces user mode.

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
    return_stack: true,
    cycle_threshold: None,
    cycles_commit: false,
    context_ids: false,
    synchronization: 4096,
    speculation_depth: 0,
};

/// The context of a program.
const CONTEXT: Context = Context {
    is_same: false,
    level: 0,
    is_64: true,
    is_non_secure: true,
    virtual_context: None,
    context_id: None,
};

/// Exception types (ETMv4, "Exception packet").
const CALL: u16 = 2;
const INTERRUPT: u16 = 0xe;

/// A processor with its unit.
pub(super) struct Processor {
    encoder: Encoder,
    /// When the next time is due.
    time_due: u64,
}

impl Processor {
    pub(super) fn new() -> Processor {
        Processor { encoder: Encoder::new(SETTINGS), time_due: 0 }
    }

    fn timestamp(&mut self, now: u64) {
        self.encoder.timestamp(now);
        self.time_due = now + TIME_EVERY;
    }
}

impl Unit for Processor {
    const SHOWS_TRAPS: bool = true;

    fn begin(&mut self, address: u64, now: u64) {
        self.encoder.begin(address, CONTEXT);
        self.timestamp(now);
    }

    fn executed(&mut self, instruction: &Instruction, next: u64, now: u64) {
        let step = &instruction.step;
        self.encoder.executed(instruction.address, step, next);
        // A time between two waypoints would be one before the instructions that are already passed.
        let is_waypoint = !matches!(step.terminator, Terminator::None | Terminator::Trap | Terminator::Wait);
        if is_waypoint && now >= self.time_due {
            self.timestamp(now + 1);
        }
    }

    fn system_call(&mut self, _address: u64, after: u64) {
        self.encoder.exception(CALL, after);
    }

    fn interrupted(&mut self, next: u64) {
        self.encoder.exception(INTERRUPT, next);
    }

    fn trapped(&mut self, _cause: u8, from: u64, handler: u64) {
        self.encoder.exception(INTERRUPT, from);
        self.encoder.handler(handler, CONTEXT);
    }

    fn lost(&mut self) {
        self.encoder.overflow();
    }

    fn finish(self) -> Vec<u8> {
        frames_of(SETTINGS.registers().trace_id as u8, &self.encoder.finish())
    }
}
