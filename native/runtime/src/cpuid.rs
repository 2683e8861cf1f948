//! Hides transactional memory in the results of `CPUID`: transactions would always fail here, and only cost time.

use crate::{
    context::offset,
    emit::{Emitter, RCX},
};

const RAX: u8 = 0;
/// The leaf of extended features.
const FEATURES: u8 = 7;
/// Its bits in `ebx`: HLE and RTM.
const TRANSACTIONS: u32 = 1 << 4 | 1 << 11;

impl Emitter {
    /// Writes `CPUID`, whose bytes are `code`, and clears the bits of transactional memory in its result. Flags are kept. If
    /// `CPUID` faults, `rax` and `rcx` are still the program's.
    pub fn cpuid(&mut self, code: &[u8]) {
        // The leaf and its part, which `CPUID` overwrites, in slots that are free here.
        self.save(RAX, offset::SCRATCH);
        self.save(RCX, offset::SAVED_RDX);
        self.bytes(code);
        self.save(RCX, offset::SAVED_RCX);
        let of_other_leaf = self.unless(offset::SCRATCH, FEATURES);
        let of_other_part = self.unless(offset::SAVED_RDX, 0);
        self.save(RAX, offset::TARGET);
        // lahf; seto al; and ebx, mask
        self.bytes(&[0x9f, 0x0f, 0x90, 0xc0, 0x81, 0xe3]);
        self.word(!TRANSACTIONS);
        // add al, 127; sahf
        self.bytes(&[0x04, 0x7f, 0x9e]);
        self.load(RAX, offset::TARGET);
        let end = self.address;
        for jump in [of_other_leaf, of_other_part] {
            self.aim_short(jump, end);
        }
        self.load(RCX, offset::SAVED_RCX);
    }

    /// Writes a jump that is taken unless the low half of a word of the context is `value`; returns where its displacement is.
    /// Changes `rcx`.
    fn unless(&mut self, word: u32, value: u8) -> u64 {
        // mov ecx, gs:[word]; lea ecx, [rcx - value]; jrcxz over the jump; jmp
        self.bytes(&[0x65, 0x8b, 0x0c, 0x25]);
        self.word(word);
        self.bytes(&[0x8d, 0x49, value.wrapping_neg(), 0xe3, 2, 0xeb, 0]);
        self.address - 1
    }

    fn aim_short(&mut self, displacement: u64, to: u64) {
        if !self.full {
            crate::raw::write(displacement, (to - displacement - 1) as u8);
        }
    }
}
