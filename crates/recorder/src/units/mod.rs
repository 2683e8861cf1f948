//! Makes the trace of an Arm or RISC-V unit of what the emulated processor's plugin wrote.
//!
//! ```text
//! packets of a thread ──Walk──► each instruction that ran ──Unit──► ETMv4 or E-Trace
//! notes, files ───────Code──────────▲
//! ```
//!
//! The plugin writes the outcomes of branches and the targets of indirect ones, in the packets of Intel PT, whatever the
//! processor is. A unit's encoder needs more memory and time than a plugin should take, and its state must not be lost if the
//! program is killed.

mod arm;
mod code;
mod machine;
mod riscv;
mod walk;

use std::io::Read;

use hodo_emulator::{
    Target,
    spool::{Note, ThreadRecord},
};
use hodo_formats::perf::write::TraceUnit;

use crate::{Error, event::Event};
pub(crate) use code::Code;
use code::{Files, Instruction};
pub(crate) use machine::{Ran, encode_processor};
use walk::Walk;

/// What the times in the plugin's packets are.
#[derive(Clone, Copy)]
pub(crate) enum Clock<'c> {
    /// Of a program: virtual time, in which an instruction takes a nanosecond.
    Instructions,
    /// Of a slave of a board: the host's time-stamp counter, which this converts to nanoseconds of the slave's clock.
    Counter(&'c dyn Fn(u64) -> u64),
}

impl Clock<'_> {
    pub(crate) fn nanos(self, time: u64) -> u64 {
        match self {
            Clock::Instructions => time,
            Clock::Counter(convert) => convert(time),
        }
    }

    /// How long an instruction takes if no time says otherwise.
    fn step(self) -> u64 {
        match self {
            Clock::Instructions => 1,
            Clock::Counter(_) => 0,
        }
    }

    /// The privilege level of the code: RISC-V's user or machine mode.
    fn privilege(self) -> u8 {
        match self {
            Clock::Instructions => 0,
            Clock::Counter(_) => 3,
        }
    }
}

/// Instructions between two times in a trace, at least.
const TIME_EVERY: u64 = 100;

/// Writes what ran in the packets of a trace unit.
trait Unit {
    /// Whether instructions that call the kernel are in the trace.
    const SHOWS_TRAPS: bool;

    /// Tracing begins at an address.
    fn begin(&mut self, address: u64, now: u64);

    /// An instruction ran, and execution continues at `next`. `now` is the time before it.
    fn executed(&mut self, instruction: &Instruction, next: u64, now: u64);

    /// The kernel runs, because of the instruction at an address, which ran; `after` is the one after it.
    fn system_call(&mut self, address: u64, after: u64);

    /// Code that is not traced runs because of a trap, such as the kernel, and will continue at an address. `cause` is that of the
    /// packets. Without one, a machine's recording just stops there.
    fn interrupted(&mut self, cause: Option<u8>, next: u64);

    /// The last instruction led to code that is not traced.
    fn left(&mut self, target: u64);

    /// Time passes, and then the instruction at an address runs, if it is traced.
    fn passes(&mut self, _now: u64, _next: Option<u64>) {}

    /// Returns the bytes that are complete, once.
    fn take(&mut self) -> Vec<u8>;

    /// A trap prevented the instruction at an address; its handler, which is traced, begins at `handler`. `cause` is that of the
    /// packets.
    fn trapped(&mut self, cause: u8, from: u64, handler: u64);

    /// Packets are lost from here on.
    fn lost(&mut self);

    /// Ends the trace.
    fn finish(self) -> Vec<u8>;
}

/// The trace of a thread's file.
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    /// Instructions that ran, but that the trace does not show.
    pub(crate) hidden: u64,
    /// What is missing at its end, for people.
    pub(crate) missing: Option<String>,
}

/// Returns the properties of the trace unit of a target; `None` for x86, whose packets are kept.
pub(crate) fn unit(target: Target) -> Option<TraceUnit<'static>> {
    match target {
        Target::X86_64 => None,
        Target::Aarch64 => Some(TraceUnit::CoreSight(arm::SETTINGS.registers())),
        Target::CortexM => Some(TraceUnit::CoreSight(arm::M_SETTINGS.registers())),
        Target::Riscv64 => Some(TraceUnit::RiscV(riscv::SETTINGS)),
    }
}

/// As [`unit`], of the processors of a machine.
pub(crate) fn machine_unit(target: Target) -> Option<TraceUnit<'static>> {
    match target {
        Target::Aarch64 => Some(TraceUnit::CoreSight(arm::machine_registers())),
        other => unit(other),
    }
}

/// Returns the event of a target's trace unit.
pub(crate) fn event(target: Target) -> Event {
    let text = match target {
        Target::X86_64 => return Event::default(),
        Target::Aarch64 => "cs_etm/timestamp,retstack/u",
        Target::CortexM => "cs_etm/timestamp/",
        Target::Riscv64 => "riscv_trace//u",
    };
    // The time follows from the number of instructions; a target in the trace is simpler than a return stack.
    Event { text: text.to_owned(), mtc: false, no_return_compression: true, ..Event::default() }
}

/// Returns the event of the trace units of a target's machine.
pub(crate) fn machine_event(target: Target) -> Event {
    let event = event(target);
    let text = event.text.trim_end_matches('u').replace("timestamp", "timestamp,contextid");
    Event { text, ..event }
}

/// Makes the traces of all threads' files. `code` are the bytes of the notes about code, in their order.
///
/// # Errors
/// A thread's file can't be read.
pub(crate) fn encode<'a>(
    target: Target,
    notes: &[Note],
    code: &[Vec<u8>],
    records: impl Iterator<Item = &'a ThreadRecord>,
    clock: Clock<'_>,
) -> Result<Vec<Encoded>, Error> {
    let files = Files::open(notes);
    let mut code = Code::new(target.isa(), notes, code, &files);
    records.map(|record| encode_record(target, record, &mut code, clock)).collect()
}

fn encode_record(
    target: Target,
    record: &ThreadRecord,
    code: &mut Code<'_>,
    clock: Clock<'_>,
) -> Result<Encoded, Error> {
    let mut packets = Vec::new();
    let (_, mut reader) = record.trace().map_err(Error::file(&record.path))?;
    reader.read_to_end(&mut packets).map_err(Error::file(&record.path))?;
    let start = clock.nanos(record.start);
    code.choose(record.pid, start);
    let privilege = clock.privilege();
    Ok(match target {
        Target::Riscv64 => Walk::new(code, riscv::Hart::new(Some(privilege)), start, clock).follow(&packets),
        Target::CortexM => Walk::new(code, arm::Processor::new_m(), start, clock).follow(&packets),
        _ => Walk::new(code, arm::Processor::new(), start, clock).follow(&packets),
    })
}
