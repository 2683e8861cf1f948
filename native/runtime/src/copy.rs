//! Instructions that run in the cache as they are, or nearly: operands relative to RIP get a new displacement.

use crate::{
    context::offset,
    decode::{Instruction, LONGEST, prefix},
    emit::RCX,
    table,
    translate::Builder,
};

impl Builder {
    /// Loads the operand of an indirect branch into `rcx`, whose value is in the context.
    pub(crate) fn operand(&mut self, instruction: &Instruction, code: &[u8], pc: u64) {
        if instruction.relative_at != 0 && instruction.prefixes & prefix::FS == 0 {
            let address = instruction.relative_address(pc, code);
            // `mov rcx, [rip + distance]` if the operand is in reach, else `mov rcx, address` and `mov rcx, [rcx]`.
            let after = self.emitter.address + 7;
            let distance = address.wrapping_sub(after);
            if distance as i32 as i64 as u64 == distance {
                self.emitter.bytes(&[0x48, 0x8b, 0x0d]);
                self.emitter.word(distance as u32);
            } else {
                self.emitter.bytes(&[0x48, 0xb9]);
                self.emitter.long(address);
                self.emitter.bytes(&[0x48, 0x8b, 0x09]);
            }
            return;
        }
        // `mov rcx, operand`, with the prefixes of the branch that concern its operand.
        if instruction.prefixes & prefix::FS != 0 {
            self.emitter.bytes(&[0x64]);
        }
        if instruction.prefixes & prefix::ADDRESS_SIZE != 0 {
            self.emitter.bytes(&[0x67]);
        }
        self.emitter.bytes(&[0x48 | instruction.rex & 3, 0x8b, instruction.modrm & 0xc7 | RCX << 3]);
        self.emitter.bytes(&code[instruction.modrm_at as usize + 1..]);
    }

    /// Emits an instruction that is no branch.
    pub(crate) fn copy(&mut self, instruction: &Instruction, code: &[u8], pc: u64) {
        if touches_gs(instruction) {
            table::note(crate::wire::note::SEGMENT, pc);
            return self.refuse();
        }
        if (instruction.map, instruction.opcode, instruction.vector) == (1, 0xa2, false) {
            return self.emitter.cpuid(code);
        }
        let mut own = [0; LONGEST];
        let own = &mut own[..code.len()];
        own.copy_from_slice(code);
        if instruction.prefixes & prefix::GS != 0 {
            // The program's `gs` begins at 0, as `ds` does: the prefix of `ds` replaces that of `gs`.
            own[instruction.gs_at as usize] = 0x3e;
        }
        if instruction.relative_at == 0 {
            return self.emitter.bytes(own);
        }
        let address = instruction.relative_address(pc, code);
        let after = self.emitter.address + own.len() as u64;
        let distance = address.wrapping_sub(after);
        if distance as i32 as i64 as u64 == distance {
            own[instruction.relative_at as usize..][..4].copy_from_slice(&(distance as u32).to_le_bytes());
            return self.emitter.bytes(own);
        }
        self.copy_far(instruction, own, address);
    }

    /// An operand out of reach gets its address in a register that the instruction does not use.
    fn copy_far(&mut self, instruction: &Instruction, code: &[u8], address: u64) {
        // The register in a VEX prefix (`vvvv`, inverted), whose last byte is before the opcode. Of EVEX, whose last byte is
        // another one, it names no general register.
        let other =
            if instruction.vector { !code[instruction.modrm_at as usize - 2] >> 3 & 15 } else { 0xff };
        // `rsi`, `rdi` or `rbx`: one of three differs from two.
        let borrowed =
            [6, 7, 3].into_iter().find(|&r| r != instruction.reg() & 7 && r != other & 7).unwrap_or(3);
        // A prefix may name a high register as the base, which only counts once there is a base.
        let high = instruction.rex & 1;
        self.emitter.save(borrowed | high << 3, offset::SCRATCH);
        // `mov borrowed, address`, then the instruction with the operand `[borrowed]`.
        self.emitter.bytes(&[0x48 | high, 0xb8 | borrowed]);
        self.emitter.long(address);
        let (modrm, relative) = (instruction.modrm_at as usize, instruction.relative_at as usize);
        self.emitter.bytes(&code[..modrm]);
        self.emitter.bytes(&[code[modrm] & 0x38 | borrowed]);
        self.emitter.bytes(&code[relative + 4..]);
        self.emitter.load(borrowed | high << 3, offset::SCRATCH);
    }
}

/// Whether an instruction sets the segment `gs`, or reads or sets its base.
fn touches_gs(instruction: &Instruction) -> bool {
    let middle = instruction.modrm >> 3 & 7;
    match (instruction.map, instruction.opcode, instruction.vector) {
        // `mov gs, …`; `pop gs` and `lgs`; `rdgsbase` and `wrgsbase`.
        (0, 0x8e, false) => middle == 5,
        (1, 0xa9 | 0xb5, false) => true,
        (1, 0xae, false) => {
            instruction.prefixes & prefix::REP != 0 && instruction.modrm >= 0xc0 && matches!(middle, 1 | 3)
        }
        _ => false,
    }
}
