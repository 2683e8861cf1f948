//! Encodes an account as a trace unit that traces user mode only would.

use hodo_code::{Isa, Step, Terminator};
use hodo_etm::{encoder::Encoder, frames::frames_of, packet::Context};

use crate::{Outcome, account::Code, configurations::Configuration};

/// Exception types of system calls and interrupts.
const CALL: u16 = 2;
const INTERRUPT: u16 = 0xe;

/// The trace ID of the source.
pub(crate) const TRACE_ID: u8 = 0x10;

/// The context of a program.
fn context(is_64: bool) -> Context {
    Context {
        is_same: false,
        level: 0,
        is_64,
        is_non_secure: true,
        virtual_context: Some(3),
        context_id: Some(1234),
    }
}

/// Returns an address with bit 0 set where the code is T32.
fn marked(code: &Code, address: u64) -> u64 {
    address | u64::from(code.get(&address).is_some_and(|encoded| encoded.isa == Isa::T32))
}

/// Encodes the instructions of a thread.
pub(crate) fn encode(code: &Code, addresses: &[u64], configuration: &Configuration) -> Outcome<Vec<u8>> {
    let settings = &configuration.settings;
    let mut encoder = Encoder::new(*settings);
    let Some(&first) = addresses.first() else { return Ok(Vec::new()) };
    let context = context(code.get(&first).is_some_and(|encoded| encoded.isa == Isa::A64));
    encoder.begin(marked(code, first), context);
    let speculates = settings.speculation_depth > 0;
    for (index, &address) in addresses.iter().enumerate() {
        let encoded = code.get(&address).ok_or_else(|| format!("the code at {address:x} is unknown"))?;
        let step = encoded.isa.instruction(&encoded.bytes, address).map_err(|_| "no instruction")?.step();
        let is_64 = encoded.isa == Isa::A64;
        let after = address + u64::from(step.length);
        let next = addresses.get(index + 1).copied();
        encoder.pass_cycles(1);
        let is_taken =
            step.terminator == Terminator::Conditional && step.target != after && next == Some(step.target);
        if is_taken && speculates && index.is_multiple_of(5) {
            encoder.mispredicted(is_taken);
        } else {
            let to =
                next.filter(|&to| leads_to(&step, after, is_64, to)).unwrap_or(continuation(&step, after));
            // Without an instruction at the address, the state stays.
            let mark = if code.contains_key(&to) { 0 } else { marked(code, address) & 1 };
            encoder.executed(marked(code, address), &step, marked(code, to) | mark);
        }
        if step.terminator != Terminator::None {
            beside(&mut encoder, index, configuration);
        }
        let kind = if step.terminator == Terminator::Trap { CALL } else { INTERRUPT };
        let is_left =
            next.is_none_or(|to| step.terminator == Terminator::Trap || !leads_to(&step, after, is_64, to));
        if is_left {
            encoder.exception(kind, continuation(&step, after) | marked(code, address) & 1);
            if let Some(to) = next {
                encoder.begin(marked(code, to), context);
            }
        }
    }
    let bytes = encoder.finish();
    Ok(if configuration.frames { frames_of(TRACE_ID, &bytes) } else { bytes })
}

/// Returns whether execution may continue at an address without an exception.
fn leads_to(step: &Step, after: u64, is_64: bool, to: u64) -> bool {
    match step.terminator {
        Terminator::Jump | Terminator::Call if !is_64 && to == after => true,
        Terminator::Conditional => to == step.target || to == after,
        Terminator::Jump | Terminator::Call => to == step.target,
        Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => true,
        _ => to == after,
    }
}

/// Returns an address at which execution may continue.
fn continuation(step: &Step, after: u64) -> u64 {
    match step.terminator {
        Terminator::Jump | Terminator::Call => step.target,
        _ => after,
    }
}

/// Writes what is beside the flow, now and then.
fn beside(encoder: &mut Encoder, index: usize, configuration: &Configuration) {
    if configuration.timestamps.is_some_and(|distance| index % distance < 8) {
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
