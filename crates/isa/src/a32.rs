//! A32: four-byte instructions of AArch32 state.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), chapter F4.1, "A32 instruction set encoding". Most
//! instructions have a condition: an indirect branch or a call that is not taken runs on.

use crate::{Step, Terminator, Undecodable, a64::word};

/// Length of every instruction.
pub(crate) const LENGTH: u8 = 4;
/// The distance from an instruction to the value of the program counter that it reads.
const PC: u64 = 8;
/// The link register and the program counter.
const LR: u32 = 14;
const PC_REGISTER: u32 = 15;
/// The conditions "always", and of instructions without one.
const ALWAYS: u32 = 0xe;
const UNCONDITIONAL: u32 = 0xf;

/// Decodes the first instruction of `bytes`, which is at `address`.
///
/// # Errors
/// There are less than four bytes.
pub fn decode(bytes: &[u8], address: u64) -> Result<Step, Undecodable> {
    let word = word(bytes)?;
    let plain = Step::plain(LENGTH, address);
    let offset = i64::from(word << 8) << 32 >> 38;
    let target = address.wrapping_add(PC).wrapping_add_signed(offset) & u64::from(u32::MAX);
    let condition = word >> 28;
    Ok(match (condition, word >> 25 & 0b111) {
        // BLX, whose H bit is part of the displacement; BL; B.
        (UNCONDITIONAL, 0b101) => plain.to(Terminator::Call, target | u64::from(word >> 24 & 1) << 1),
        (UNCONDITIONAL, _) => plain.with(unconditional(word)),
        (_, 0b101) if word >> 24 & 1 == 1 => plain.to(Terminator::Call, target),
        (ALWAYS, 0b101) => plain.to(Terminator::Jump, target),
        (_, 0b101) => plain.to(Terminator::Conditional, target),
        (_, 0b111) => plain.with(coprocessor(word)),
        (_, 0b100) => plain.with(load_multiple(word)),
        (_, 0b010 | 0b011) => plain.with(load(word)),
        (_, 0b000) => plain.with(miscellaneous(word)),
        (_, 0b001) => plain.with(immediate(word)),
        _ => plain,
    })
}

/// Returns whether an instruction is a call that changes to T32: BLX with an address.
pub(crate) fn calls_other_state(word: u32) -> bool {
    word >> 25 == 0b111_1101
}

/// RFE and ISB.
fn unconditional(word: u32) -> Terminator {
    match word {
        _ if word & 0xfe50_0000 == 0xf810_0000 => Terminator::Far,
        _ if word & 0xffff_fff0 == 0xf57f_f060 => Terminator::Barrier,
        _ => Terminator::None,
    }
}

/// SVC, and the ISB of older processors, which is a write of a coprocessor's register.
fn coprocessor(word: u32) -> Terminator {
    match word {
        _ if word >> 24 & 1 == 1 => Terminator::Trap,
        _ if word & 0x0fff_0fff == 0x0e07_0f95 => Terminator::Barrier,
        _ => Terminator::None,
    }
}

/// LDM of the program counter.
fn load_multiple(word: u32) -> Terminator {
    let (is_load, has_pc) = (word >> 20 & 1 == 1, word >> 15 & 1 == 1);
    if !is_load || !has_pc {
        return Terminator::None;
    }
    // With S, it also restores the processor's state.
    if word >> 22 & 1 == 1 {
        return Terminator::Far;
    }
    // LDM from the stack pointer, which is then increased.
    let is_pop = word & 0x0fff_0000 == 0x08bd_0000;
    if is_pop { Terminator::Return } else { Terminator::IndirectJump }
}

/// LDR of the program counter, among loads, stores and media instructions.
fn load(word: u32) -> Terminator {
    let is_media = word >> 25 & 1 == 1 && word >> 4 & 1 == 1;
    if is_media {
        // UDF.
        return if word & 0x0ff0_00f0 == 0x07f0_00f0 { Terminator::Trap } else { Terminator::None };
    }
    let (is_load, is_byte) = (word >> 20 & 1 == 1, word >> 22 & 1 == 1);
    if !is_load || is_byte || word >> 12 & 0xf != PC_REGISTER {
        return Terminator::None;
    }
    // LDR from the stack pointer, which is then increased by four.
    let is_pop = word & 0x0fff_ffff == 0x049d_f004;
    if is_pop { Terminator::Return } else { Terminator::IndirectJump }
}

/// Data processing with registers, branches to registers, exceptions.
fn miscellaneous(word: u32) -> Terminator {
    let register = word & 0xf;
    // BX, BXJ, BLX and ERET.
    match word & 0x0fff_fff0 {
        0x012f_ff10 if register == LR => return Terminator::Return,
        0x012f_ff10 | 0x012f_ff20 => return Terminator::IndirectJump,
        0x012f_ff30 => return Terminator::IndirectCall,
        0x0160_0060 if register == 0xe => return Terminator::Far,
        _ => {}
    }
    // HLT and BKPT have no condition, unlike HVC and SMC.
    let is_always = word >> 28 == ALWAYS;
    match word & 0x0ff0_00f0 {
        0x0100_0070 | 0x0120_0070 if is_always => return Terminator::Trap,
        0x0140_0070 | 0x0160_0070 => return Terminator::Trap,
        _ => {}
    }
    // Multiplications and further loads; MRS, MSR and others in the place of comparisons without flags.
    let is_other = word & 0x90 == 0x90 || word >> 23 & 0b11 == 0b10 && word >> 20 & 1 == 0;
    if is_other { Terminator::None } else { data_processing(word) }
}

fn immediate(word: u32) -> Terminator {
    if word >> 23 & 0b11 == 0b10 && word >> 20 & 1 == 0 {
        // WFE and WFI.
        let is_wait = matches!(word & 0x0fff_ffff, 0x0320_f002 | 0x0320_f003);
        return if is_wait { Terminator::Wait } else { Terminator::None };
    }
    data_processing(word)
}

/// An operation whose result may go to the program counter; with S, it returns from an exception.
fn data_processing(word: u32) -> Terminator {
    let compares = word >> 23 & 0b11 == 0b10;
    if compares || word >> 12 & 0xf != PC_REGISTER {
        return Terminator::None;
    }
    match word {
        _ if word >> 20 & 1 == 1 => Terminator::Far,
        // MOV PC, LR.
        _ if word & 0x0fff_ffff == 0x01a0_f00e => Terminator::Return,
        _ => Terminator::IndirectJump,
    }
}
