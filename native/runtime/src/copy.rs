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
    pub(crate) fn operand(&mut self, i: &Instruction, code: &[u8], pc: u64) {
        if i.relative_at != 0 && i.prefixes & prefix::FS == 0 {
            let address = i.relative_address(pc, code);
            let after = self.e.at + 7;
            let distance = address.wrapping_sub(after);
            if distance as i32 as i64 as u64 == distance {
                self.e.bytes(&[0x48, 0x8b, 0x0d]);
                self.e.word(distance as u32);
            } else {
                self.e.bytes(&[0x48, 0xb9]);
                self.e.long(address);
                self.e.bytes(&[0x48, 0x8b, 0x09]);
            }
            return;
        }
        if i.prefixes & prefix::FS != 0 {
            self.e.bytes(&[0x64]);
        }
        if i.prefixes & prefix::ADDRESS_SIZE != 0 {
            self.e.bytes(&[0x67]);
        }
        self.e.bytes(&[0x48 | i.rex & 3, 0x8b, i.modrm & 0xc7 | RCX << 3]);
        self.e.bytes(&code[i.modrm_at as usize + 1..]);
    }

    /// Emits an instruction that is no branch.
    pub(crate) fn copy(&mut self, i: &Instruction, code: &[u8], pc: u64) {
        if sets_segment(i) {
            table::note(crate::wire::note::SEGMENT, pc);
            return self.refuse();
        }
        if (i.map, i.opcode, i.vector) == (1, 0xa2, false) {
            return self.e.cpuid(code);
        }
        let mut own = [0; LONGEST];
        let own = &mut own[..code.len()];
        own.copy_from_slice(code);
        if i.prefixes & prefix::GS != 0 {
            // The program's `gs` begins at 0, as `ds` does.
            own[i.gs_at as usize] = 0x3e;
        }
        if i.relative_at == 0 {
            return self.e.bytes(own);
        }
        let address = i.relative_address(pc, code);
        let after = self.e.at + own.len() as u64;
        let distance = address.wrapping_sub(after);
        if distance as i32 as i64 as u64 == distance {
            own[i.relative_at as usize..][..4].copy_from_slice(&(distance as u32).to_le_bytes());
            return self.e.bytes(own);
        }
        self.copy_far(i, own, address);
    }

    /// An operand out of reach gets its address in a register that the instruction does not use.
    fn copy_far(&mut self, i: &Instruction, code: &[u8], address: u64) {
        let other = if i.vector { !code[i.modrm_at as usize - 2] >> 3 & 15 } else { 0xff };
        let borrowed = [6, 7, 3].into_iter().find(|&r| r != i.reg() & 7 && r != other & 7).unwrap_or(3);
        self.e.save(borrowed, offset::SCRATCH);
        self.e.bytes(&[0x48, 0xb8 | borrowed]);
        self.e.long(address);
        let (modrm, relative) = (i.modrm_at as usize, i.relative_at as usize);
        self.e.bytes(&code[..modrm]);
        self.e.bytes(&[code[modrm] & 0x38 | borrowed]);
        self.e.bytes(&code[relative + 4..]);
        self.e.load(borrowed, offset::SCRATCH);
    }
}

/// Whether an instruction sets the segment `gs` or its base.
fn sets_segment(i: &Instruction) -> bool {
    let middle = i.modrm >> 3 & 7;
    match (i.map, i.opcode, i.vector) {
        (0, 0x8e, false) => middle == 5,
        (1, 0xa9 | 0xb5, false) => true,
        (1, 0xae, false) => i.prefixes & prefix::REP != 0 && i.modrm >= 0xc0 && matches!(middle, 1 | 3),
        _ => false,
    }
}
