//! Encodes an account as a trace unit that traces user mode only would.

use std::ops::Range;

use hodo_code::{Isa, Terminator};
use hodo_etm::{
    encoder::{Encoder, Settings},
    frames::frames_of,
    packet::Context,
};

use crate::{
    Outcome,
    account::{CALL, INTERRUPT, Instruction, Ran, Stop},
    configurations::Configuration,
};

/// The traced context and virtual context. perf takes the latter for the thread if it is traced, as where the kernel runs at EL2.
pub(crate) const PROCESS: u32 = 1234;

/// Instructions before the end of a thread without times: perf loses what the last commit contains after a time.
const LAST: usize = 1000;

/// The trace ID of the source.
pub(crate) const TRACE_ID: u8 = 0x10;

/// The context at an address: the kernel has the upper half.
fn context(address: u64, is_64: bool) -> Context {
    Context {
        is_same: false,
        level: (address >> 63) as u8,
        is_64,
        is_non_secure: true,
        virtual_context: Some(PROCESS),
        context_id: Some(PROCESS),
    }
}

/// Encodes the instructions of a thread.
pub(crate) fn encode(
    ran: Ran<'_>,
    stops: &[(usize, Stop)],
    configuration: &Configuration,
) -> Outcome<Vec<u8>> {
    encode_losing(ran, stops, configuration, 0..0)
}

/// Encodes the instructions of a thread but `lost`, at which the unit's buffer is full.
pub(crate) fn encode_losing(
    ran: Ran<'_>,
    stops: &[(usize, Stop)],
    configuration: &Configuration,
    lost: Range<usize>,
) -> Outcome<Vec<u8>> {
    let settings = &configuration.settings;
    let mut encoder = Encoder::new(*settings);
    let Some(first) = ran.get(0) else { return Ok(Vec::new()) };
    let context = |address| context(address, first.isa == Isa::A64);
    let mut stops = stops.iter().peekable();
    let mut is_on = false;
    for index in 0..=ran.len() {
        if lost.contains(&index) {
            if is_on {
                encoder.overflow();
                is_on = false;
            }
            while stops.next_if(|(after, _)| *after <= index).is_some() {}
            continue;
        }
        while let Some((_, stop)) = stops.next_if(|(after, _)| *after == index) {
            let last = index.checked_sub(1).and_then(|last| ran.get(last));
            let mark = last.map_or(0, Instruction::mark);
            let (kind, from, handler) = exception(stop, last)?;
            if !is_on {
                encoder.begin(from | mark, context(from));
            }
            encoder.exception(kind, from | mark);
            if let Some(handler) = handler {
                encoder.handler(handler, context(handler));
            }
            is_on = handler.is_some();
        }
        let Some(instruction) = ran.get(index) else { break };
        if !is_on {
            encoder.begin(instruction.address | instruction.mark(), context(instruction.address));
            is_on = true;
        }
        let (to, is_last) = match (stops.peek(), ran.get(index + 1)) {
            (Some((after, Stop::Signal(from))), _) if *after == index + 1 => {
                (from | instruction.mark(), true)
            }
            (Some((after, Stop::SystemCall)), _) if *after == index + 1 => {
                (instruction.after() | instruction.mark(), true)
            }
            (Some(&&(after, Stop::Exception { from, .. })), _) if after == index + 1 => (from, true),
            (_, Some(next)) => (next.address | next.mark(), false),
            // The thread ended with its process.
            (_, None) => (continuation(instruction), true),
        };
        execute(&mut encoder, instruction, to, !is_last && index.is_multiple_of(5), settings)?;
        if context(to) != context(instruction.address) {
            encoder.context(context(to), to);
        }
        // A time between two waypoints would be one before the instructions that are already passed.
        if !matches!(instruction.step.terminator, Terminator::None | Terminator::Trap | Terminator::Wait) {
            let is_near_end = index >= 8 && index + LAST > ran.len();
            beside(&mut encoder, index, configuration, is_near_end);
        }
    }
    if is_on {
        let last = ran.get(ran.len() - 1).ok_or("no instruction")?;
        encoder.exception(INTERRUPT, continuation(last));
    }
    let bytes = encoder.finish();
    Ok(if configuration.frames { frames_of(TRACE_ID, &bytes) } else { bytes })
}

/// Returns the type of the exception that a stop is, the address that it returns to, and its handler if that is traced.
fn exception(stop: &Stop, last: Option<&Instruction>) -> Outcome<(u16, u64, Option<u64>)> {
    match (stop, last) {
        (Stop::SystemCall, Some(last)) => Ok((CALL, last.after(), None)),
        (Stop::SystemCall, None) => Err("a system call before the first instruction".into()),
        (&Stop::Signal(from), _) => Ok((INTERRUPT, from, None)),
        (&Stop::Exception { kind, from, to }, _) => Ok((kind, from, Some(to))),
    }
}

/// Encodes an instruction after which execution continues at `to`; a taken branch may have been predicted wrongly.
fn execute(
    encoder: &mut Encoder,
    instruction: &Instruction,
    to: u64,
    mispredicts: bool,
    settings: &Settings,
) -> Outcome {
    let step = &instruction.step;
    if !leads_to(instruction, to & !1) {
        return Err(format!("nothing leads from {:x} to {to:x}", instruction.address).into());
    }
    encoder.pass_cycles(1);
    let is_taken = step.terminator == Terminator::Conditional
        && step.target != instruction.after()
        && to & !1 == step.target;
    match is_taken && mispredicts && settings.speculation_depth > 0 {
        true => encoder.mispredicted(is_taken),
        false => encoder.executed(instruction.address | instruction.mark(), step, to),
    }
    Ok(())
}

/// Returns whether execution may continue at an address without an exception.
fn leads_to(instruction: &Instruction, to: u64) -> bool {
    let (step, after) = (&instruction.step, instruction.after());
    match step.terminator {
        // In A32 and T32 any branch may have a condition.
        Terminator::Jump | Terminator::Call if instruction.isa != Isa::A64 && to == after => true,
        Terminator::Conditional => to == step.target || to == after,
        Terminator::Jump | Terminator::Call => to == step.target,
        Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => true,
        _ => to == after,
    }
}

/// Returns an address at which execution may continue.
fn continuation(instruction: &Instruction) -> u64 {
    match instruction.step.terminator {
        Terminator::Jump | Terminator::Call => instruction.step.target,
        _ => instruction.after() | instruction.mark(),
    }
}

/// Writes what is beside the flow, now and then.
fn beside(encoder: &mut Encoder, index: usize, configuration: &Configuration, is_near_end: bool) {
    if !is_near_end && configuration.timestamps.is_some_and(|distance| index % distance < 8) {
        encoder.timestamp(index as u64 + 1);
    }
    if index.is_multiple_of(7) {
        encoder.count_cycles();
    }
    if configuration.settings.speculation_depth > 0 {
        match index % 11 {
            0 => encoder.commit((index % 5) as u32),
            3 => encoder.cancelled(&[true, false, true, true][..index % 4 + 1]),
            _ => {}
        }
    }
}
