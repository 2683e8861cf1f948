//! Far returns: `RETF` and `IRET`. Those that stay in 64-bit code are done here; others are refused, with a note.

use crate::{
    context::{Context, register},
    decode::{LONGEST, decode, prefix},
    dispatch, log, raw,
    state::{LINKS, lock},
    table,
    wire::note,
};

/// The segment of 64-bit code.
const CODE_64: u64 = 0x33;
/// Flags that a program may set.
const FLAGS: u64 = 0x24_4dd5;
const IRET: u8 = 0xcf;
/// `RETF` that also drops as many bytes of the stack as its last two bytes say.
const RETF_AND_DROP: u8 = 0xca;

/// Does the far return of a link, whose exit was just recorded.
pub fn go(context: &Context, number: u32) {
    let link = LINKS.get(number);
    let pc = link.cold;
    context.pc.set(pc);
    if context.pending.get() != crate::context::pending::NONE {
        return log::retract(context, &link);
    }
    match target(context, pc) {
        Some(target) => dispatch::go(context, target),
        None => {
            log::retract(context, &link);
            let lock = lock();
            table::note(note::INSTRUCTION, pc);
            let block = crate::translate::refused(pc);
            dispatch::resume(context, pc, block, lock);
        }
    }
}

/// Takes what the instruction pops from the stack; returns where it leads, if that is 64-bit code.
fn target(context: &Context, pc: u64) -> Option<u64> {
    let mut code = [0; LONGEST];
    let missing = raw::copy(code.as_mut_ptr() as u64, pc, LONGEST as u64) as usize;
    let instruction = decode(&code[..LONGEST - missing], pc)?;
    let size = match (instruction.rex & 8 != 0, instruction.prefixes & prefix::OPERAND_SIZE != 0) {
        (true, _) => 8,
        (_, true) => 2,
        _ => 4,
    };
    let rsp = context.register(register::RSP);
    let pop = |index: u64| {
        let mut value = 0u64;
        (raw::copy(&raw mut value as u64, rsp + index * size, size) == 0).then_some(value)
    };
    let target = pop(0)?;
    if pop(1)? & 0xffff != CODE_64 {
        return None;
    }
    if instruction.opcode == IRET {
        let (flags, stack) = (pop(2)?, pop(3)?);
        context.flags.set(context.flags.get() & !FLAGS | flags & FLAGS);
        context.set_register(register::RSP, stack);
    } else {
        let extra = if instruction.opcode == RETF_AND_DROP {
            u64::from(u16::from_le_bytes([
                code[instruction.length as usize - 2],
                code[instruction.length as usize - 1],
            ]))
        } else {
            0
        };
        context.set_register(register::RSP, rsp + 2 * size + extra);
    }
    Some(target)
}
