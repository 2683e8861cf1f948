//! The length, operands in memory and control flow of an x86-64 instruction: Intel SDM vol. 2, chapter 2 and appendix A.

/// The longest instruction.
pub const LONGEST: usize = 15;

/// What an instruction does to control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continues behind itself.
    Next,
    /// A direct jump.
    Jump(u64),
    /// `Jcc`: the condition's number, and the target.
    Conditional(u8, u64),
    /// `LOOP`, `LOOPE`, `LOOPNE`, `JRCXZ`: the target.
    Counted(u64),
    /// A direct near call.
    Call(u64),
    /// An indirect near jump.
    JumpIndirect,
    /// An indirect near call.
    CallIndirect,
    /// A near return, and the number of bytes that it pops after the address.
    Return(u16),
    /// `XBEGIN`: where it continues if the transaction is aborted.
    Transaction(u64),
    /// `SYSCALL`.
    Syscall,
    /// A far transfer, a software interrupt, or `HLT`: the kernel decides.
    Far,
}

/// Segment, repeat and size prefixes.
pub mod prefix {
    /// 0x66.
    pub const OPERAND_SIZE: u8 = 1;
    /// 0x67.
    pub const ADDRESS_SIZE: u8 = 2;
    /// 0xf2.
    pub const REPNE: u8 = 4;
    /// 0xf3.
    pub const REP: u8 = 8;
    /// The segment `fs`.
    pub const FS: u8 = 16;
    /// The segment `gs`.
    pub const GS: u8 = 32;
    /// 0xf0.
    pub const LOCK: u8 = 64;
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its length in bytes.
    pub length: u8,
    /// 0: one-byte opcodes, 1: 0f, 2: 0f 38, 3: 0f 3a.
    pub map: u8,
    /// The opcode in its map.
    pub opcode: u8,
    /// Whether it begins with VEX or EVEX.
    pub vector: bool,
    /// Bits of [`prefix`].
    pub prefixes: u8,
    /// The REX prefix, or 0.
    pub rex: u8,
    /// Where the ModRM byte is; 0 without one.
    pub modrm_at: u8,
    /// The ModRM byte.
    pub modrm: u8,
    /// Where a displacement relative to RIP is; 0 without one.
    pub relative_at: u8,
    /// Where the last prefix [`prefix::GS`] is.
    pub gs_at: u8,
    /// Its effect on control flow.
    pub flow: Flow,
}

impl Instruction {
    /// The register in the ModRM byte's middle field.
    pub fn reg(&self) -> u8 {
        (self.modrm >> 3 & 7) | (self.rex & 4) << 1
    }

    /// The register in the ModRM byte's last field, if it is one.
    pub fn rm(&self) -> Option<u8> {
        (self.modrm_at != 0 && self.modrm >= 0xc0).then_some((self.modrm & 7) | (self.rex & 1) << 3)
    }

    /// Whether a ModRM operand is in memory.
    pub fn in_memory(&self) -> bool {
        self.modrm_at != 0 && self.modrm < 0xc0
    }

    /// The address of an operand relative to RIP, for an instruction at `pc` with these bytes.
    pub fn relative_address(&self, pc: u64, bytes: &[u8]) -> u64 {
        let next = pc.wrapping_add(u64::from(self.length));
        next.wrapping_add(signed(bytes, self.relative_at as usize, 4).unwrap_or(0))
    }
}

/// A ModRM byte.
const M: u8 = 1;
/// An immediate of one byte.
const I8: u8 = 2;
/// An immediate of the operand's size, four bytes at most.
const IZ: u8 = 4;
/// An immediate of two bytes.
const I16: u8 = 8;
/// No instruction of 64-bit mode.
const BAD: u8 = 128;

/// Operands of one-byte opcodes.
const ONE_BYTE: [u8; 256] = one_byte();
/// Operands of opcodes after 0f.
const TWO_BYTES: [u8; 256] = two_bytes();

const fn fill(mut table: [u8; 256], from: usize, to: usize, value: u8) -> [u8; 256] {
    let mut position = from;
    while position <= to {
        table[position] = value;
        position += 1;
    }
    table
}

const fn one_byte() -> [u8; 256] {
    let mut table = [0; 256];
    let mut row = 0;
    while row < 0x40 {
        table = fill(table, row, row + 3, M);
        table[row + 4] = I8;
        table[row + 5] = IZ;
        table = fill(table, row + 6, row + 7, BAD);
        row += 8;
    }
    table = fill(table, 0x60, 0x62, BAD);
    table[0x63] = M;
    table[0x68] = IZ;
    table[0x69] = M | IZ;
    table[0x6a] = I8;
    table[0x6b] = M | I8;
    table = fill(table, 0x70, 0x7f, I8);
    table[0x80] = M | I8;
    table[0x81] = M | IZ;
    table[0x82] = BAD;
    table[0x83] = M | I8;
    table = fill(table, 0x84, 0x8f, M);
    table[0x9a] = BAD;
    table[0xa8] = I8;
    table[0xa9] = IZ;
    table = fill(table, 0xb0, 0xb7, I8);
    table = fill(table, 0xc0, 0xc1, M | I8);
    table[0xc2] = I16;
    table[0xc6] = M | I8;
    table[0xc7] = M | IZ;
    table[0xc8] = I16 | I8;
    table[0xca] = I16;
    table[0xcd] = I8;
    table[0xce] = BAD;
    table = fill(table, 0xd0, 0xd3, M);
    table = fill(table, 0xd4, 0xd6, BAD);
    table = fill(table, 0xd8, 0xdf, M);
    table = fill(table, 0xe0, 0xe7, I8);
    table = fill(table, 0xe8, 0xe9, IZ);
    table[0xea] = BAD;
    table[0xeb] = I8;
    table = fill(table, 0xf6, 0xf7, M);
    fill(table, 0xfe, 0xff, M)
}

const fn two_bytes() -> [u8; 256] {
    let mut table = [M; 256];
    table = fill(table, 0x04, 0x0c, 0);
    table[0x04] = BAD;
    table[0x0a] = BAD;
    table[0x0c] = BAD;
    table[0x0e] = 0;
    table[0x0f] = M | I8;
    table = fill(table, 0x24, 0x27, BAD);
    table = fill(table, 0x30, 0x37, 0);
    table[0x36] = BAD;
    table = fill(table, 0x38, 0x3f, BAD);
    table = fill(table, 0x70, 0x73, M | I8);
    table[0x77] = 0;
    table = fill(table, 0x7a, 0x7b, BAD);
    table = fill(table, 0x80, 0x8f, IZ);
    table = fill(table, 0xa0, 0xa2, 0);
    table[0xa4] = M | I8;
    table = fill(table, 0xa6, 0xa7, BAD);
    table = fill(table, 0xa8, 0xaa, 0);
    table[0xac] = M | I8;
    table[0xba] = M | I8;
    table[0xc2] = M | I8;
    table = fill(table, 0xc4, 0xc6, M | I8);
    fill(table, 0xc8, 0xcf, 0)
}

fn signed(bytes: &[u8], position: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(position..position + length)?;
    let mut value = if bytes[length - 1] & 0x80 != 0 { u64::MAX } else { 0 };
    for &byte in bytes.iter().rev() {
        value = value << 8 | u64::from(byte);
    }
    Some(value)
}

/// Decodes the instruction at `pc`, whose bytes begin with `bytes`. `None`: it is not valid, or its bytes end early.
pub fn decode(bytes: &[u8], pc: u64) -> Option<Instruction> {
    let mut instruction = Instruction {
        length: 0,
        map: 0,
        opcode: 0,
        vector: false,
        prefixes: 0,
        rex: 0,
        modrm_at: 0,
        modrm: 0,
        relative_at: 0,
        gs_at: 0,
        flow: Flow::Next,
    };
    let mut position = prefixes(&mut instruction, bytes)?;
    let operands = opcode(&mut instruction, bytes, &mut position)?;
    if operands & BAD != 0 {
        return None;
    }
    if operands & M != 0 {
        modrm(&mut instruction, bytes, &mut position)?;
    }
    let immediate = position;
    position += immediates(&instruction, operands);
    if position > LONGEST || position > bytes.len() {
        return None;
    }
    instruction.length = position as u8;
    instruction.flow = flow(&instruction, bytes, immediate, pc)?;
    Some(instruction)
}

/// Reads prefixes; returns where the opcode is.
fn prefixes(instruction: &mut Instruction, bytes: &[u8]) -> Option<usize> {
    let mut position = 0;
    loop {
        let byte = *bytes.get(position)?;
        let bit = match byte {
            0x66 => prefix::OPERAND_SIZE,
            0x67 => prefix::ADDRESS_SIZE,
            0xf2 => prefix::REPNE,
            0xf3 => prefix::REP,
            0x64 => prefix::FS,
            0x65 => prefix::GS,
            0xf0 => prefix::LOCK,
            0x26 | 0x2e | 0x36 | 0x3e => 0,
            0x40..=0x4f => {
                instruction.rex = byte;
                position += 1;
                continue;
            }
            _ => return Some(position),
        };
        if bit == prefix::GS {
            instruction.gs_at = position as u8;
            instruction.prefixes &= !prefix::FS;
        }
        if bit == prefix::FS {
            instruction.prefixes &= !prefix::GS;
        }
        // A prefix after REX makes REX void.
        instruction.rex = 0;
        instruction.prefixes |= bit;
        position += 1;
        if position >= LONGEST {
            return None;
        }
    }
}

/// Reads the opcode; returns its operands.
fn opcode(instruction: &mut Instruction, bytes: &[u8], position: &mut usize) -> Option<u8> {
    let first = *bytes.get(*position)?;
    *position += 1;
    match first {
        0x0f => {
            let second = *bytes.get(*position)?;
            *position += 1;
            if second == 0x38 || second == 0x3a {
                instruction.map = if second == 0x38 { 2 } else { 3 };
                instruction.opcode = *bytes.get(*position)?;
                *position += 1;
                return Some(if instruction.map == 3 { M | I8 } else { M });
            }
            (instruction.map, instruction.opcode) = (1, second);
            Some(TWO_BYTES[second as usize])
        }
        // VEX with one further byte.
        0xc5 => {
            let extra = *bytes.get(*position)?;
            instruction.rex = if extra & 0x80 == 0 { 0x44 } else { 0 };
            instruction.opcode = *bytes.get(*position + 1)?;
            *position += 2;
            (instruction.map, instruction.vector) = (1, true);
            vector_operands(instruction)
        }
        // VEX with two further bytes, EVEX with three.
        0xc4 | 0x62 => {
            let extra = *bytes.get(*position)?;
            let skip = if first == 0x62 { 3 } else { 2 };
            instruction.rex = 0x40 | (!extra >> 5) & 7;
            instruction.map = if first == 0x62 { extra & 7 } else { extra & 31 };
            instruction.opcode = *bytes.get(*position + skip)?;
            *position += skip + 1;
            instruction.vector = true;
            vector_operands(instruction)
        }
        // The prefix XOP of old AMD processors, not `POP`.
        0x8f if bytes.get(*position)? & 0x38 != 0 => None,
        _ => {
            (instruction.map, instruction.opcode) = (0, first);
            Some(ONE_BYTE[first as usize])
        }
    }
}

fn vector_operands(instruction: &Instruction) -> Option<u8> {
    match (instruction.map, instruction.opcode) {
        (1, 0x77) => Some(0),
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => Some(M | I8),
        (1 | 2 | 5 | 6, _) => Some(M),
        _ => None,
    }
}

/// Reads ModRM, SIB and the displacement.
fn modrm(instruction: &mut Instruction, bytes: &[u8], position: &mut usize) -> Option<()> {
    instruction.modrm_at = *position as u8;
    instruction.modrm = *bytes.get(*position)?;
    *position += 1;
    let (mode, rm) = (instruction.modrm >> 6, instruction.modrm & 7);
    // Moves of control and debug registers have registers whatever the mode is.
    if mode == 3
        || (instruction.map == 1 && !instruction.vector && (0x20..=0x23).contains(&instruction.opcode))
    {
        return Some(());
    }
    let mut base = rm;
    if rm == 4 {
        base = *bytes.get(*position)? & 7;
        *position += 1;
    }
    match mode {
        0 if rm == 5 => {
            instruction.relative_at = *position as u8;
            *position += 4;
        }
        0 if rm == 4 && base == 5 => *position += 4,
        1 => *position += 1,
        2 => *position += 4,
        _ => {}
    }
    Some(())
}

/// The length of the immediate operands.
fn immediates(instruction: &Instruction, operands: u8) -> usize {
    let wide = instruction.rex & 8 != 0;
    let word = if instruction.prefixes & prefix::OPERAND_SIZE != 0 && !wide { 2 } else { 4 };
    let mut length = 0;
    if instruction.map == 0 && !instruction.vector {
        match instruction.opcode {
            0xa0..=0xa3 => return if instruction.prefixes & prefix::ADDRESS_SIZE != 0 { 4 } else { 8 },
            0xb8..=0xbf => return if wide { 8 } else { word },
            0xf6 if instruction.modrm & 0x30 == 0 => return 1,
            0xf7 if instruction.modrm & 0x30 == 0 => return word,
            // Near branches are of 64 bits, whatever the prefix.
            0xe8 | 0xe9 => return 4,
            _ => {}
        }
    }
    if instruction.map == 1 && !instruction.vector && (0x80..=0x8f).contains(&instruction.opcode) {
        return 4;
    }
    if operands & I8 != 0 {
        length += 1;
    }
    if operands & I16 != 0 {
        length += 2;
    }
    if operands & IZ != 0 {
        length += word;
    }
    length
}

fn flow(instruction: &Instruction, bytes: &[u8], immediate: usize, pc: u64) -> Option<Flow> {
    if instruction.vector {
        return Some(Flow::Next);
    }
    let next = pc.wrapping_add(u64::from(instruction.length));
    let near = |length| Some(next.wrapping_add(signed(bytes, immediate, length)?));
    Some(match (instruction.map, instruction.opcode) {
        (0, 0x70..=0x7f) => Flow::Conditional(instruction.opcode & 15, near(1)?),
        (1, 0x80..=0x8f) => Flow::Conditional(instruction.opcode & 15, near(4)?),
        (0, 0xe0..=0xe3) => Flow::Counted(near(1)?),
        (0, 0xe8) => Flow::Call(near(4)?),
        (0, 0xe9) => Flow::Jump(near(4)?),
        (0, 0xeb) => Flow::Jump(near(1)?),
        (0, 0xc2) => Flow::Return(signed(bytes, immediate, 2)? as u16),
        (0, 0xc3) => Flow::Return(0),
        (0, 0xca | 0xcb | 0xcd | 0xcf | 0xf4) => Flow::Far,
        (0, 0xff) => match instruction.modrm >> 3 & 7 {
            2 => Flow::CallIndirect,
            4 => Flow::JumpIndirect,
            3 | 5 => Flow::Far,
            7 => return None,
            _ => Flow::Next,
        },
        (0, 0xfe) if instruction.modrm & 0x30 != 0 => return None,
        (1, 0x05) => Flow::Syscall,
        (1, 0x07 | 0x34 | 0x35) => Flow::Far,
        (0, 0xc7) if instruction.modrm == 0xf8 => {
            Flow::Transaction(near(if instruction.prefixes & prefix::OPERAND_SIZE != 0 { 2 } else { 4 })?)
        }
        _ => Flow::Next,
    })
}
