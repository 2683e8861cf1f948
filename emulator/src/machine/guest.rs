//! Guests of the machine: VMRUN enters one, and its exit leaves a reason in the VMCB.
//!
//! Source: AMD64 Architecture Programmer's Manual vol. 2, "Secure Virtual Machine" and appendix "Layout of VMCB".

use hodo_isa::{Bits, Isa};

use super::watch::ReadMemory;
use crate::target::{self, Target};

/// VMRUN.
pub(crate) const VMRUN: [u8; 3] = [0x0f, 0x01, 0xd8];

/// The bits of `hflags` in QEMU's `CPUX86State`: the code has 32 or 64 bits, a guest runs.
const CODE_32: u32 = 1 << 4;
const CODE_64: u32 = 1 << 15;
const GUEST: u32 = 1 << 21;

/// The mode in which code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    bits: u8,
    pub(crate) in_guest: bool,
    /// Its code is never recorded: firmware in the machine mode of RISC-V, programs in Arm's 32-bit state.
    pub(crate) is_hidden: bool,
}

impl Mode {
    /// The mode after a VMRUN, before its first instruction runs.
    pub(crate) const UNKNOWN: Mode = Mode { bits: 0, in_guest: false, is_hidden: false };

    /// The mode of a processor that starts: of x86, 16-bit code.
    pub(crate) fn at_start() -> Mode {
        match target::current() {
            Target::X86_64 | Target::CortexM => Mode { bits: 16, in_guest: false, is_hidden: false },
            Target::Aarch64 | Target::Riscv64 => Mode::of_other(false),
        }
    }

    /// A mode of another processor than x86.
    pub(crate) fn of_other(is_hidden: bool) -> Mode {
        Mode { bits: 64, in_guest: false, is_hidden }
    }

    /// The mode that `hflags` describes.
    pub(crate) fn of(hflags: u32) -> Mode {
        let bits = match (hflags & CODE_64, hflags & CODE_32) {
            (0, 0) => 16,
            (0, _) => 32,
            _ => 64,
        };
        Mode { bits, in_guest: hflags & GUEST != 0, is_hidden: false }
    }

    /// The width of the code: 16, 32 or 64 bits.
    pub(crate) fn bits(self) -> u32 {
        self.bits.into()
    }

    /// The instruction set of the code.
    pub(crate) fn isa(self) -> Isa {
        match (target::current().isa(), self.bits) {
            (Isa::X86(_), 16) => Isa::X86(Bits::B16),
            (Isa::X86(_), 32) => Isa::X86(Bits::B32),
            (isa, _) => isa,
        }
    }
}

/// The needed fields of a guest's control block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vmcb {
    /// EXITCODE: why the guest has exited.
    pub(crate) exit_code: u32,
    pub(crate) cr3: u64,
    /// The linear address of the next instruction.
    pub(crate) pc: u64,
    /// The width of its code.
    pub(crate) bits: u32,
}

/// VMEXIT_INVALID: the control block is wrong, and the guest was not entered.
const INVALID: u32 = u32::MAX;

impl Vmcb {
    /// Reads the control block at a physical address.
    pub(crate) fn read(address: u64, read: ReadMemory) -> Option<Vmcb> {
        let mut bytes = [0; 0x600];
        read(address, &mut bytes).then(|| Vmcb::of(&bytes))
    }

    fn of(bytes: &[u8; 0x600]) -> Vmcb {
        let word = |at: usize| (0..8).rev().fold(0, |word, index| word << 8 | u64::from(bytes[at + index]));
        // The code segment, whose attributes have L in bit 9 and D in bit 10; then EFER.LMA.
        let (attributes, base) = (word(0x412) as u16, word(0x418));
        let is_long = word(0x4d0) & 1 << 10 != 0;
        let (bits, base) = match (is_long && attributes & 1 << 9 != 0, attributes & 1 << 10) {
            (true, _) => (64, 0),
            (false, 0) => (16, base),
            (false, _) => (32, base),
        };
        Vmcb { exit_code: word(0x70) as u32, cr3: word(0x550), pc: base.wrapping_add(word(0x578)), bits }
    }

    /// Whether the guest was not entered.
    pub(crate) fn is_invalid(&self) -> bool {
        self.exit_code == INVALID
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_block_says_where_its_guest_is() {
        let mut bytes = [0; 0x600];
        bytes[0x70] = 0x72;
        // The code segment's attributes (64 bits) and base, EFER.LMA, CR3, RIP.
        (bytes[0x413], bytes[0x419], bytes[0x4d1]) = (2, 0xf0, 4);
        (bytes[0x551], bytes[0x579]) = (0x30, 0x10);
        let long = Vmcb { exit_code: 0x72, cr3: 0x3000, pc: 0x1000, bits: 64 };
        assert_eq!(Vmcb::of(&bytes), long);
        bytes[0x4d1] = 0;
        assert_eq!(Vmcb::of(&bytes), Vmcb { pc: 0x1_0000, bits: 16, ..long });
        bytes[0x413] = 4;
        assert_eq!(Vmcb::of(&bytes), Vmcb { pc: 0x1_0000, bits: 32, ..long });
        assert_eq!(Mode::of(GUEST | CODE_64 | CODE_32), Mode { bits: 64, in_guest: true, is_hidden: false });
        assert_eq!(Mode::of(0), Mode { bits: 16, in_guest: false, is_hidden: false });
    }
}
