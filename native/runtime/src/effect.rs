//! Which general registers an instruction reads and writes, for common instructions.

use crate::decode::{Flow, Instruction, decode, prefix};

/// Bits of general registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Registers that it may read.
    pub reads: u32,
    /// Registers that it writes in full.
    pub writes: u32,
}

const RAX: u32 = 1;
const RCX: u32 = 2;
const RDX: u32 = 4;
const RSP: u32 = 1 << 4;
/// The registers whose second bytes have names: `ah`, `ch`, `dh` and `bh`.
const FIRST_FOUR: u32 = 0xf;
/// How many instructions are searched for a register that is free.
const SEARCHED: usize = 6;

/// The registers of the operand in memory.
fn address(instruction: &Instruction, bytes: &[u8]) -> u32 {
    if !instruction.in_memory() || instruction.relative_at != 0 {
        return 0;
    }
    let rex = u32::from(instruction.rex);
    let rm = u32::from(instruction.modrm & 7);
    if rm != 4 {
        return 1 << (rm | (rex & 1) << 3);
    }
    let sib = u32::from(bytes.get(instruction.modrm_at as usize + 1).copied().unwrap_or(0));
    let index = (sib >> 3 & 7) | (rex & 2) << 2;
    let base = (sib & 7) | (rex & 1) << 3;
    let mut registers = if index == 4 { 0 } else { 1 << index };
    if !(sib & 7 == 5 && instruction.modrm < 0x40) {
        registers |= 1 << base;
    }
    registers
}

/// The effect of an instruction; `None` if it is not known.
pub fn effect(instruction: &Instruction, bytes: &[u8]) -> Option<Effect> {
    if instruction.vector {
        return None;
    }
    let small = instruction.prefixes & prefix::OPERAND_SIZE != 0 && instruction.rex & 8 == 0;
    let reg = 1u32 << instruction.reg();
    let memory = address(instruction, bytes);
    let rm = instruction.rm().map_or(0, |r| 1u32 << r);
    let low = 1u32 << (instruction.opcode & 7 | (instruction.rex & 1) << 3);
    let bytes_of_operand = if instruction.opcode & 1 == 0 { bytes_of(instruction) } else { 0 };
    let known = |reads, writes| Some(Effect { reads, writes });
    // With an operand of 16 bits, the instruction keeps the rest of the register, as if it read it.
    let writes = |register: u32, reads: u32| {
        if small { known(reads | register, 0) } else { known(reads, register) }
    };
    match (instruction.map, instruction.opcode) {
        (0, 0x00..=0x3f) if instruction.opcode & 7 < 6 => arithmetic(instruction, reg, rm, memory, small),
        // PUSH and POP.
        (0, 0x50..=0x57) => known(low | RSP, 0),
        (0, 0x58..=0x5f) => writes(low, RSP),
        // MOVSXD, MOVZX and MOVSX.
        (0, 0x63) | (1, 0xb6 | 0xb7 | 0xbe | 0xbf) => writes(reg, rm | memory | bytes_of(instruction)),
        // TEST, and MOV to a byte or to memory; then the other forms of MOV, and LEA.
        (0, 0x84 | 0x85 | 0x88 | 0x89) if instruction.opcode != 0x89 || rm == 0 => {
            known(reg | rm | bytes_of_operand | memory, 0)
        }
        (0, 0x89) => writes(rm, reg),
        (0, 0x8a) => known(reg | rm | memory | FIRST_FOUR, 0),
        (0, 0x8b) => writes(reg, rm | memory),
        (0, 0x8d) => writes(reg, memory),
        // Arithmetic with an immediate, and TEST.
        (0, 0x80 | 0x83 | 0x81) => known(byte(instruction, rm) | memory, 0),
        (0, 0xa8 | 0xa9) => known(RAX, 0),
        // MOV of an immediate.
        (0, 0xb8..=0xbf) => writes(low, 0),
        // Shifts, also by CL.
        (0, 0xc0 | 0xc1 | 0xd0 | 0xd1) => known(byte(instruction, rm) | memory, 0),
        (0, 0xd2 | 0xd3) => known(byte(instruction, rm) | memory | RCX, 0),
        // XABORT and XBEGIN; then MOV of an immediate.
        (0, 0xc6 | 0xc7) if instruction.modrm >> 3 & 7 != 0 => None,
        (0, 0xc7) if rm != 0 => writes(rm, 0),
        (0, 0xc6 | 0xc7) => known(byte(instruction, rm) | memory, 0),
        // TEST, NOT and NEG; MUL and DIV; INC and DEC.
        (0, 0xf6 | 0xf7) if instruction.modrm >> 3 & 7 < 4 => known(byte(instruction, rm) | memory, 0),
        (0, 0xf6 | 0xf7) => known(byte(instruction, rm) | memory | RAX | RDX, 0),
        (0, 0xfe | 0xff) if instruction.modrm >> 3 & 7 < 2 => known(byte(instruction, rm) | memory, 0),
        // CDQE, CDQ and NOP.
        (0, 0x98) => known(RAX, 0),
        (0, 0x99) => writes(RDX, RAX),
        (0, 0x90) => known(0, 0),
        // IMUL, BSF and BSR; hints and prefetches.
        (0, 0x69 | 0x6b) | (1, 0xbc | 0xbd) => known(reg | rm | memory, 0),
        (1, 0x1e | 0x1f | 0x18 | 0x0d) => known(memory, 0),
        // CMOVcc and IMUL; SETcc; bit tests.
        (1, 0x40..=0x4f | 0xaf) => known(reg | rm | memory, 0),
        (1, 0x90..=0x9f) => known(rm | memory | bytes_of(instruction), 0),
        (1, 0xa3 | 0xab | 0xb3 | 0xbb) => known(reg | rm | memory, 0),
        (1, 0xba) => known(rm | memory, 0),
        // Moves and arithmetic between vector registers and memory.
        (
            1,
            0x10..=0x17 | 0x28 | 0x29 | 0x2e | 0x2f | 0x51..=0x6d | 0x6f | 0x70 | 0x74..=0x76 | 0x7f | 0xd6,
        ) => known(memory, 0),
        (1, 0xd4 | 0xd8..=0xdf | 0xe7..=0xef | 0xf8..=0xfe) => known(memory, 0),
        _ => None,
    }
}

/// Registers whose second byte an operand of 8 bits may name: without REX, numbers 4 to 7 stand for these bytes.
fn bytes_of(instruction: &Instruction) -> u32 {
    if instruction.rex == 0 { FIRST_FOUR } else { 0 }
}

fn byte(instruction: &Instruction, rm: u32) -> u32 {
    if instruction.opcode & 1 == 0 && rm != 0 { rm | bytes_of(instruction) } else { rm }
}

fn arithmetic(instruction: &Instruction, reg: u32, rm: u32, memory: u32, small: bool) -> Option<Effect> {
    let reads = match instruction.opcode & 7 {
        4 | 5 => RAX,
        // XOR and SUB of a register with itself.
        1 | 3 if rm == reg && matches!(instruction.opcode & 0x38, 0x30 | 0x28) && !small => {
            return Some(Effect { reads: 0, writes: reg });
        }
        0 | 2 => reg | rm | memory | FIRST_FOUR,
        _ => reg | rm | memory,
    };
    Some(Effect { reads, writes: 0 })
}

/// A register that the code at `pc` writes before it reads it. Never `rsp` or `r12`, whose addressing is longer.
pub fn dead_register(bytes: &[u8], mut pc: u64) -> Option<u8> {
    let mut read = RSP | 1 << 12;
    let mut offset = 0;
    for _ in 0..SEARCHED {
        let code = bytes.get(offset..)?;
        let instruction = decode(code, pc)?;
        let effect = effect(&instruction, code)?;
        let free = effect.writes & !read & !effect.reads;
        if free != 0 {
            return Some(free.trailing_zeros() as u8);
        }
        read |= effect.reads | effect.writes;
        if instruction.flow != Flow::Next {
            return None;
        }
        offset += instruction.length as usize;
        pc += u64::from(instruction.length);
    }
    None
}
