//! What differs between the processors of machines: where QEMU keeps their registers, and the instructions that the plugin
//! recognizes.
//!
//! QEMU 11.1 keeps the state of a vCPU (`CPUX86State`, `CPUARMState`, `CPURISCVState`) at the address in `rbp` (TCG_AREG0).
//! When recording begins, [`Registers::are_as_expected`] checks that the registers are where this module expects them.

use super::{guest::Mode, watch::ReadMemory};
use crate::{
    slave::INTERRUPT,
    target::{self, Target},
};

/// A processor of machines.
pub(crate) struct Processor {
    /// The instructions that begin and end the recording.
    pub(crate) begin: &'static [u8],
    pub(crate) end: &'static [u8],
    /// Instructions with which a loop that waits saves power.
    pub(crate) pauses: &'static [&'static [u8]],
    /// Linux changes to the stack of another thread by code with these bytes.
    pub(crate) switches: &'static [u8],
    /// The kernel's function that changes threads: `switch(previous, next)`.
    pub(crate) switch_function: &'static str,
    /// The kernel's function at which all system calls begin, if they don't begin as exceptions.
    pub(crate) syscall_entry: Option<&'static str>,
    /// What precedes the name of a system call in that of the kernel's function.
    pub(crate) syscall: &'static str,
    /// The kernel's address of physical address 0, without address randomization.
    pub(crate) physical: u64,
    /// Word indexes of registers in the state: the program counter, the root of page tables, the stack pointer, the first
    /// arguments of a function, and its return address, if it is not on the stack.
    pc: usize,
    space: usize,
    stack: usize,
    arguments: [usize; 3],
    link: Option<usize>,
    /// QEMU's names of the first three.
    names: [&'static str; 3],
}

const X86_64: Processor = Processor {
    begin: &[0x0f, 0x1f, 0x84, 0x00, b'h', b'o', b'd', b'o'],
    end: &[0x0f, 0x1f, 0x84, 0x00, b'i', b'o', b'd', b'o'],
    pauses: &[&[0xf3, 0x90]],
    // `mov rsp, [rsi + …]`.
    switches: &[0x48, 0x8b, 0xa6],
    switch_function: "__switch_to_asm",
    syscall_entry: Some("entry_SYSCALL_64"),
    syscall: "__x64_sys_",
    // Linux, Documentation/arch/x86/x86_64/mm.rst.
    physical: 0xffff_8880_0000_0000,
    pc: 32,
    space: 72,
    stack: 4,
    arguments: [7, 6, 2],
    link: None,
    names: ["rip", "cr3", "rsp"],
};

const AARCH64: Processor = Processor {
    // `movz xzr, #0x686f` and `movz xzr, #0x6870`.
    begin: &[0xff, 0x0d, 0x8d, 0xd2],
    end: &[0x1f, 0x0e, 0x8d, 0xd2],
    // `yield`, `wfe`.
    pauses: &[&[0x3f, 0x20, 0x03, 0xd5], &[0x5f, 0x20, 0x03, 0xd5]],
    // `mov sp, x9; msr sp_el0, x1`.
    switches: &[0x3f, 0x01, 0x00, 0x91, 0x01, 0x41, 0x18, 0xd5],
    switch_function: "cpu_switch_to",
    syscall_entry: None,
    syscall: "__arm64_sys_",
    // The RAM begins at 1 GB.
    physical: 0xffff_0000_0000_0000 - (1 << 30),
    pc: 40,
    space: 103,
    stack: 39,
    arguments: [8, 9, 10],
    link: Some(38),
    names: ["pc", "TTBR0_EL1", "sp"],
};

const RISCV64: Processor = Processor {
    // `slti zero, a0, 0x686` and `slti zero, a0, 0x687`.
    begin: &[0x13, 0x20, 0x65, 0x68],
    end: &[0x13, 0x20, 0x75, 0x68],
    pauses: &[&[0x0f, 0x00, 0x00, 0x01]],
    // `mv tp, a1; ret`.
    switches: &[0x2e, 0x82, 0x82, 0x80],
    switch_function: "__switch_to",
    syscall_entry: None,
    syscall: "__riscv_sys_",
    // The RAM begins at 2 GB; with five levels of page tables.
    physical: 0xff60_0000_0000_0000 - (2 << 30),
    pc: 579,
    space: 641,
    stack: 2,
    arguments: [10, 11, 12],
    link: Some(1),
    names: ["pc", "satp", "sp"],
};

// Word indexes of registers of one kind of processor.
const X86_RAX: usize = 0;
const X86_RCX: usize = 1;
const X86_EFLAGS: usize = 33;
/// `hflags`, in the low half.
const X86_HFLAGS: usize = 38;
const X86_CS_BASE: usize = 43;
/// In the 32-bit state, in the high half.
const AARCH32_PC: usize = 7;
/// `aarch64`, in the lowest byte.
const AARCH64_IS_64: usize = 42;
const AARCH64_DAIF: usize = 71;
const AARCH64_SP_EL0: usize = 77;
const AARCH64_ESR: usize = 137;
/// `priv`, in the second byte.
const RISCV64_PRIVILEGE: usize = 627;
const RISCV64_STATUS: usize = 633;
const RISCV64_SCAUSE: usize = 646;
const RISCV64_MCAUSE: usize = 649;
/// Privilege levels of RISC-V.
const USER: u8 = 0;
const MACHINE: u8 = 3;

/// The processor of this machine.
#[inline(always)]
pub(crate) fn processor() -> &'static Processor {
    of(target::current())
}

/// The processor of a target's machines.
#[inline(always)]
pub(crate) fn of(target: Target) -> &'static Processor {
    match target {
        Target::X86_64 | Target::CortexM => &X86_64,
        Target::Aarch64 => &AARCH64,
        Target::Riscv64 => &RISCV64,
    }
}

/// The registers of a vCPU.
#[derive(Clone, Copy)]
pub(crate) struct Registers(*const u64);

impl Registers {
    /// # Safety
    /// `state` is the address of the vCPU's state, see `entered` of the plugin, and this vCPU runs no code meanwhile.
    pub(crate) unsafe fn new(state: *const u64) -> Registers {
        Registers(state)
    }

    #[inline(always)]
    fn word(self, index: usize) -> u64 {
        // SAFETY: as the caller of `new` promises; indexes are those of this module, which are within the state.
        unsafe { self.0.add(index).read() }
    }

    /// The linear address of the next instruction, between blocks.
    #[inline(always)]
    pub(crate) fn pc(self, mode: Mode) -> u64 {
        let pc = self.word(processor().pc);
        match mode.bits() {
            64 if mode.is_hidden && target::current() == Target::Aarch64 => self.word(AARCH32_PC) >> 32,
            64 => pc,
            _ => pc.wrapping_add(self.word(X86_CS_BASE)) & u64::from(u32::MAX),
        }
    }

    /// The address space, by the root of its page tables: of x86 CR3, of others its physical address.
    #[inline(always)]
    pub(crate) fn space(self) -> u64 {
        let root = self.word(processor().space);
        match target::current() {
            Target::X86_64 | Target::CortexM => root,
            // Without ASID and CnP.
            Target::Aarch64 => root & 0xffff_ffff_f000,
            // Without mode and ASID.
            Target::Riscv64 => root << 20 >> 8,
        }
    }

    /// The mode in which the next instruction runs.
    #[inline(always)]
    pub(crate) fn mode(self) -> Mode {
        match target::current() {
            Target::X86_64 | Target::CortexM => Mode::of(self.word(X86_HFLAGS) as u32),
            Target::Aarch64 => Mode::of_other(self.word(AARCH64_IS_64) & 0xff == 0),
            Target::Riscv64 => Mode::of_other(self.privilege() == MACHINE),
        }
    }

    /// The privilege level of a RISC-V hart.
    #[inline(always)]
    fn privilege(self) -> u8 {
        (self.word(RISCV64_PRIVILEGE) >> 8) as u8
    }

    /// An argument of the function that begins; the first three are known.
    pub(crate) fn argument(self, index: usize) -> u64 {
        self.word(processor().arguments[index])
    }

    /// The stack pointer.
    pub(crate) fn stack(self) -> u64 {
        self.word(processor().stack)
    }

    /// The stack pointer of the program that an exception has left.
    pub(crate) fn stack_of_program(self) -> u64 {
        match target::current() {
            Target::Aarch64 => self.word(AARCH64_SP_EL0),
            _ => self.stack(),
        }
    }

    /// After a return: the stack pointer when the function began.
    pub(crate) fn stack_at_begin(self) -> u64 {
        match processor().link {
            Some(_) => self.stack(),
            None => self.stack().wrapping_sub(8),
        }
    }

    /// The address that the function that begins returns to.
    pub(crate) fn return_address(self, read: ReadMemory) -> Option<u64> {
        if let Some(link) = processor().link {
            return Some(self.word(link));
        }
        let mut bytes = [0; 8];
        read(self.stack(), &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// The address after the instruction of a system call, at its entry.
    pub(crate) fn after_call(self) -> u64 {
        self.word(X86_RCX)
    }

    /// Where a system call returns to, if the exception with this cause, which left before the instruction at `from`, is one.
    pub(crate) fn after_exception(cause: u8, from: u64) -> Option<u64> {
        match (target::current(), cause) {
            // SVC of 64-bit code; ECALL of user mode.
            (Target::Aarch64, 0x15) => Some(from),
            (Target::Riscv64, 8) => Some(from + 4),
            _ => None,
        }
    }

    /// The control block of the guest that VMRUN enters.
    pub(crate) fn control_block(self) -> u64 {
        self.word(X86_RAX)
    }

    pub(crate) fn interrupts_are_on(self) -> bool {
        match target::current() {
            Target::X86_64 | Target::CortexM => self.word(X86_EFLAGS) & 1 << 9 != 0,
            Target::Aarch64 => self.word(AARCH64_DAIF) & 1 << 7 == 0,
            // In user mode they are on whatever SIE says.
            Target::Riscv64 => self.privilege() == USER || self.word(RISCV64_STATUS) & 1 << 1 != 0,
        }
    }

    /// The cause of the interrupt or exception that was just taken, as packets have it: its class in `ESR_EL1`, or the code in
    /// `scause` or `mcause`. `None` for x86, whose packets name no cause.
    pub(crate) fn cause(self, is_interrupt: bool) -> Option<u8> {
        let code = match target::current() {
            Target::X86_64 | Target::CortexM => return None,
            // Of an interrupt, the vector's place says which it is: IRQ, FIQ or SError.
            Target::Aarch64 if is_interrupt => self.word(processor().pc) >> 7 & 3,
            Target::Aarch64 => self.word(AARCH64_ESR) >> 26,
            Target::Riscv64 if self.mode().is_hidden => self.word(RISCV64_MCAUSE),
            Target::Riscv64 => self.word(RISCV64_SCAUSE),
        };
        Some(code as u8 & 0x3f | if is_interrupt { INTERRUPT } else { 0 })
    }

    /// Whether the registers are where this module expects them, by QEMU's own functions: `register` reads the one with a name.
    pub(crate) fn are_as_expected(self, register: impl Fn(&str) -> Option<u64>) -> bool {
        let Processor { pc, space, stack, names, .. } = *processor();
        // Within a block, the page of the program counter is known.
        let places = [(pc, !0xfff), (space, !0), (stack, !0)];
        places.into_iter().zip(names).all(|((place, mask), name)| {
            register(name).is_some_and(|value| value & mask == self.word(place) & mask)
        })
    }
}
