//! A64: instructions of AArch64 state.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), chapter C4.1, "A64 instruction set encoding".
//! Encodings without an instruction are taken for plain ones: a trace that proves that they ran comes from a newer
//! processor.

use crate::{Step, Terminator, Undecodable};

/// Length of every instruction.
pub(crate) const LENGTH: u8 = 4;

/// Returns the first word of `bytes`: instructions are little-endian also in big-endian programs.
pub(crate) fn word(bytes: &[u8]) -> Result<u32, Undecodable> {
    bytes.first_chunk().map(|&word| u32::from_le_bytes(word)).ok_or(Undecodable::CutShort)
}

/// Decodes the first instruction of `bytes`, which is at `address`.
///
/// # Errors
/// There are less than four bytes.
#[inline]
pub fn decode(bytes: &[u8], address: u64) -> Result<Step, Undecodable> {
    let word = word(bytes)?;
    let plain = Step::plain(LENGTH, address);
    // "Branches, exception generating and system instructions" have 101 in bits 28:26, and the rest does not branch.
    if word >> 26 & 0b111 != 0b101 {
        // UDF, which is permanently undefined.
        let is_undefined = word <= 0xffff;
        return Ok(if is_undefined { plain.with(Terminator::Trap) } else { plain });
    }
    Ok(branch(word, address, plain))
}

fn branch(word: u32, address: u64, plain: Step) -> Step {
    let to = |terminator, low: u32, size: u32| {
        let offset = i64::from(word << (32 - low - size)) << 32 >> (64 - size);
        plain.to(terminator, address.wrapping_add_signed(offset << 2))
    };
    match word >> 24 {
        0x14..=0x17 => to(Terminator::Jump, 0, 26),
        0x94..=0x97 => to(Terminator::Call, 0, 26),
        // B.cond and BC.cond; CBZ and CBNZ.
        0x54 | 0x34 | 0x35 | 0xb4 | 0xb5 => to(Terminator::Conditional, 5, 19),
        // TBZ and TBNZ.
        0x36 | 0x37 | 0xb6 | 0xb7 => to(Terminator::Conditional, 5, 14),
        // CB, CBB and CBH (FEAT_CMPBR).
        0x74 | 0x75 | 0xf4 | 0xf5 if is_compare_and_branch(word) => to(Terminator::Conditional, 5, 9),
        // RETAASPPC and RETABSPPC (FEAT_PAuth_LR), with an immediate.
        0x55 if word & 0xffc0_001f == 0x5500_001f => plain.with(Terminator::Return),
        // SVC, HVC, SMC, BRK, HLT, DCPS1 to DCPS3.
        0xd4 if raises_exception(word) => plain.with(Terminator::Trap),
        0xd5 => plain.with(barrier(word)),
        0xd6 | 0xd7 => plain.with(branch_to_register(word)),
        _ => plain,
    }
}

/// "Compare and branch": the condition of bits 23:21 exists, and the size.
fn is_compare_and_branch(word: u32) -> bool {
    let condition = word >> 21 & 0b111;
    let is_wide = word >> 31 == 1;
    let has_size = match (word >> 24 & 1, word >> 14 & 0b11) {
        (1, size) => size & 1 == 0,
        (_, 0b00) => true,
        (_, size) => size >> 1 == 1 && !is_wide,
    };
    has_size && !matches!(condition, 0b100 | 0b101)
}

/// "Exception generation".
fn raises_exception(word: u32) -> bool {
    let (opcode, low) = (word >> 21 & 0b111, word & 0b1_1111);
    match opcode {
        0b000 => matches!(low, 1..=3),
        0b001 | 0b010 => low == 0,
        0b101 => matches!(low, 1..=3),
        _ => false,
    }
}

/// ISB; TSTART, after which a failed transaction goes on; WFE and WFI, also with a timeout.
fn barrier(word: u32) -> Terminator {
    match word {
        _ if word & 0xffff_f0ff == 0xd503_30df => Terminator::Barrier,
        _ if word & 0xffff_ffe0 == 0xd523_3060 => Terminator::Barrier,
        0xd503_205f | 0xd503_207f => Terminator::Wait,
        _ if word & 0xffff_ffc0 == 0xd503_1000 => Terminator::Wait,
        _ => Terminator::None,
    }
}

/// "Unconditional branch (register)", with the forms that authenticate pointers.
fn branch_to_register(word: u32) -> Terminator {
    let (opcode, op2) = (word >> 21 & 0b1111, word >> 16 & 0b1_1111);
    let (op3, register, op4) = (word >> 10 & 0b11_1111, word >> 5 & 0b1_1111, word & 0b1_1111);
    if op2 != 0b1_1111 {
        return Terminator::None;
    }
    // Bits 11:10 are 00 without authentication, 10 with key A and 11 with key B.
    let (is_plain, authenticates) = (op3 == 0 && op4 == 0, op3 >> 1 == 1);
    let is_zero_modifier = authenticates && op4 == 0b1_1111;
    match opcode {
        0b0000 if is_plain || is_zero_modifier => Terminator::IndirectJump,
        0b0001 if is_plain || is_zero_modifier => Terminator::IndirectCall,
        // Any modifier but the zero register: RETAASPPC and RETABSPPC with a register.
        0b0010 if is_plain || authenticates && register == 0b1_1111 => Terminator::Return,
        0b0100 if register == 0b1_1111 && (is_plain || is_zero_modifier) => Terminator::Far,
        // DRPS leaves debug state, in which nothing is traced.
        0b0101 if register == 0b1_1111 && is_plain => Terminator::Far,
        0b1000 if authenticates => Terminator::IndirectJump,
        0b1001 if authenticates => Terminator::IndirectCall,
        _ => Terminator::None,
    }
}
