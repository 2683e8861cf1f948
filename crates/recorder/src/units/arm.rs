//! The trace unit of an Arm processor: an ETMv4 that traces user mode, or all of a Cortex-M or of a machine.

use std::collections::VecDeque;

use hodo_code::Terminator;
use hodo_emulator::slave::INTERRUPT as FROM_OUTSIDE;
use hodo_etm::{
    Registers,
    encoder::{Encoder, Settings},
    frames::frames_of,
    packet::Context,
};
use hodo_formats::perf::write::TraceUnit;

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

/// What the unit of a machine's processor traces: the context ID is that of the thread, as Linux sets it with
/// CONFIG_PID_IN_CONTEXTIDR.
const MACHINE_SETTINGS: Settings = Settings { context_ids: true, ..SETTINGS };

/// The bit of TRCCONFIGR for the virtual context, which these units leave out.
const VIRTUAL_CONTEXT: u32 = 1 << 7;

/// The registers of the units of a machine.
pub(super) fn machine_registers() -> Registers {
    let registers = MACHINE_SETTINGS.registers();
    Registers { config: registers.config & !VIRTUAL_CONTEXT, ..registers }
}

/// The ID of the unit of a processor in frames.
fn trace_id(cpu: Option<u32>) -> u8 {
    let unit = TraceUnit::CoreSight(machine_registers());
    cpu.and_then(|cpu| unit.trace_id(cpu)).unwrap_or(SETTINGS.registers().trace_id as u8)
}

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

/// The kernel's half of the addresses, and its exception level.
const KERNEL: u64 = 1 << 63;
const KERNEL_LEVEL: u8 = 1;

/// Exception types (ETMv4, "Exception packet").
const DEBUG_HALT: u16 = 1;
const CALL: u16 = 2;
const TRAP: u16 = 3;
const SYSTEM_ERROR: u16 = 4;
const INSTRUCTION_DEBUG: u16 = 6;
const DATA_DEBUG: u16 = 7;
const ALIGNMENT: u16 = 0xa;
const INSTRUCTION_FAULT: u16 = 0xb;
const DATA_FAULT: u16 = 0xc;
const INTERRUPT: u16 = 0xe;
const FAST_INTERRUPT: u16 = 0xf;

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
    /// Of a machine's processor: the time that is due, if it is not in the trace yet. Of others, when the next time is due.
    time_due: u64,
    /// The number of a machine's processor; its trace contains the kernel.
    cpu: Option<u32>,
    /// The threads that its processor runs next: since when, and their IDs.
    threads: VecDeque<(u64, u32)>,
    /// Whether the context is another one than the trace says.
    is_context_due: bool,
    /// Whether tracing has begun, and whether instructions ran since the last waypoint.
    has_begun: bool,
    is_within: bool,
}

impl Processor {
    pub(super) fn new() -> Processor {
        Processor {
            encoder: Encoder::new(SETTINGS),
            context: CONTEXT,
            mark: 0,
            returns: Vec::new(),
            time_due: 0,
            cpu: None,
            threads: VecDeque::new(),
            is_context_due: false,
            has_begun: false,
            is_within: false,
        }
    }

    pub(super) fn new_m() -> Processor {
        Processor { encoder: Encoder::new(M_SETTINGS), context: M_CONTEXT, mark: 1, ..Processor::new() }
    }

    /// A machine's processor, which runs these threads, each since a time. The times are in order.
    pub(super) fn of_machine(cpu: u32, threads: &[(u64, u32)]) -> Processor {
        let first = threads.first().map(|&(_, thread)| thread);
        Processor {
            encoder: Encoder::new(MACHINE_SETTINGS),
            context: Context { context_id: Some(first.unwrap_or(0)), ..CONTEXT },
            cpu: Some(cpu),
            threads: threads.iter().copied().collect(),
            ..Processor::new()
        }
    }

    fn timestamp(&mut self, now: u64) {
        self.encoder.timestamp(now);
        self.time_due = if self.cpu.is_some() { 0 } else { now + TIME_EVERY };
    }

    /// The context of code at an address.
    fn context_at(&self, address: u64) -> Context {
        let level = if self.cpu.is_some() && address & KERNEL != 0 { KERNEL_LEVEL } else { CONTEXT.level };
        Context { level, ..self.context }
    }

    /// Code at this address follows a waypoint, with this context in the trace.
    fn enter(&mut self, address: u64) {
        self.context = self.context_at(address);
        self.is_within = false;
        if self.time_due != 0 {
            self.timestamp(self.time_due);
        }
        if std::mem::take(&mut self.is_context_due) {
            self.encoder.context(self.context, address);
        }
    }

    /// Takes over the thread that runs at a time.
    fn follow_threads(&mut self, now: u64) {
        let before = self.context.context_id;
        while let Some((_, thread)) = self.threads.pop_front_if(|(since, _)| *since <= now) {
            self.context.context_id = Some(thread);
        }
        self.is_context_due |= self.context.context_id != before;
    }
}

/// The type of an exception of a machine, by the class of its syndrome (Arm Architecture Reference Manual, `ESR_EL1`), or the
/// place of an interrupt's vector.
fn exception_type(cause: u8) -> u16 {
    match (cause & FROM_OUTSIDE != 0, cause & !FROM_OUTSIDE) {
        (true, 2) => FAST_INTERRUPT,
        (true, 3) => SYSTEM_ERROR,
        (true, _) => INTERRUPT,
        (false, 0x11..=0x17) => CALL,
        (false, 0x20 | 0x21) => INSTRUCTION_FAULT,
        (false, 0x22 | 0x26) => ALIGNMENT,
        (false, 0x24 | 0x25) => DATA_FAULT,
        (false, 0x2f) => SYSTEM_ERROR,
        (false, 0x34 | 0x35) => DATA_DEBUG,
        (false, 0x30..=0x33 | 0x38 | 0x3c) => INSTRUCTION_DEBUG,
        (false, _) => TRAP,
    }
}

impl Unit for Processor {
    const SHOWS_TRAPS: bool = true;

    fn begin(&mut self, address: u64, now: u64) {
        self.returns.clear();
        self.encoder.pass_time(now);
        self.follow_threads(now);
        (self.context, self.is_context_due) = (self.context_at(address), false);
        if self.cpu.is_some() && self.has_begun {
            // Another thread may run now, whose code begins here.
            self.timestamp(now);
        }
        self.encoder.begin(address | self.mark, self.context);
        if self.cpu.is_none() || !self.has_begun {
            self.timestamp(now);
        }
        (self.has_begun, self.is_within) = (true, false);
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
        if self.cpu.is_none() {
            if is_waypoint && now >= self.time_due {
                self.timestamp(now + 1);
            }
        } else if is_waypoint {
            let context = self.context_at(next);
            self.is_context_due |= context.level != self.context.level;
            self.enter(next);
        } else {
            self.is_within = true;
        }
    }

    fn passes(&mut self, now: u64, next: Option<u64>) {
        if self.cpu.is_none() {
            return;
        }
        self.encoder.pass_time(now);
        self.follow_threads(now);
        self.time_due = now;
        if let Some(next) = next.filter(|_| !self.is_within) {
            self.enter(next);
        }
    }

    fn system_call(&mut self, _address: u64, after: u64) {
        self.encoder.exception(CALL, after | self.mark);
    }

    fn interrupted(&mut self, cause: Option<u8>, next: u64) {
        let kind = match cause {
            _ if self.cpu.is_none() => INTERRUPT,
            Some(cause) => exception_type(cause),
            None => DEBUG_HALT,
        };
        self.encoder.exception(kind, next | self.mark);
    }

    /// A unit that just stopped would leave out the instructions behind the last waypoint.
    fn left(&mut self, target: u64) {
        self.encoder.exception(DEBUG_HALT, target | self.mark);
    }

    fn trapped(&mut self, cause: u8, from: u64, handler: u64) {
        let kind = match u16::from(cause) {
            _ if self.cpu.is_some() => exception_type(cause),
            _ if self.mark == 0 => INTERRUPT,
            number @ ..FIRST_FAR_INTERRUPT => number,
            number => 0x200 + number - FIRST_INTERRUPT,
        };
        // A handler that another one follows leaves the return to that one.
        if self.mark != 0 && from < EXC_RETURN {
            self.returns.push(from);
        }
        self.encoder.exception(kind, from | self.mark);
        self.encoder.handler(handler | self.mark, self.context_at(handler));
        if self.cpu.is_some() {
            self.is_context_due = false;
            self.enter(handler);
        }
    }

    fn lost(&mut self) {
        self.encoder.overflow();
    }

    fn take(&mut self) -> Vec<u8> {
        frames_of(trace_id(self.cpu), &self.encoder.take())
    }

    fn finish(self) -> Vec<u8> {
        frames_of(trace_id(self.cpu), &self.encoder.finish())
    }
}
