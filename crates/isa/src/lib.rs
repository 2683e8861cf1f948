//! Instruction sets: decodes the instructions of a program as far as control flow needs it, and prints them.
//!
//! ```text
//! bytes ──Isa::reader──► Step: length, terminator, target ──► the blocks of a graph
//!       └─Isa::instruction──► Instruction: what it does beside the flow, its text
//! ```
//!
//! Only the functions that build blocks or print code dispatch on the instruction set. Walks see blocks.

pub mod a32;
pub mod a64;
mod arm;
mod instruction;
mod reader;
pub mod riscv;
pub mod t32;
pub mod x86;

pub use instruction::{Instruction, Printer};
pub use reader::Reader;

/// An instruction set, in the execution mode that decides how bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// x86.
    X86(Bits),
    /// Armv8-A and later in AArch64 state.
    A64,
    /// RISC-V.
    RiscV(riscv::Set),
    /// Arm in AArch32 state.
    A32,
    /// Thumb in AArch32 state.
    T32,
}

/// Width of an x86 processor's execution mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bits {
    /// 16-bit code.
    B16 = 16,
    /// 32-bit code.
    B32 = 32,
    /// 64-bit code.
    B64 = 64,
}

/// How an instruction may leave the straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// No branch: execution continues after it.
    None,
    /// A conditional direct branch.
    Conditional,
    /// A direct jump.
    Jump,
    /// A direct call. Some sets have conditional ones.
    Call,
    /// An indirect jump.
    IndirectJump,
    /// An indirect call.
    IndirectCall,
    /// A return by the set's convention.
    Return,
    /// A far transfer: of x86 SYSCALL, SYSRET, INT n, IRET, far call, jump and return, VM entry and exit; of the others
    /// the return from an exception, whose target is not in the code.
    Far,
    /// An instruction that raises an exception on purpose: SVC, ECALL, a breakpoint. The trace reports the exception
    /// itself, and without one execution continues after the instruction.
    Trap,
    /// An instruction barrier (ISB). Execution continues after it, but an Arm trace has an atom for it.
    Barrier,
    /// Waits for an event or interrupt (WFE, WFI). Execution continues after it, but some Arm traces have an atom for it.
    Wait,
}

impl Terminator {
    /// Returns whether execution continues after the instruction, unless an exception comes.
    pub fn runs_on(self) -> bool {
        matches!(self, Terminator::None | Terminator::Trap | Terminator::Barrier | Terminator::Wait)
    }
}

/// The effect of a [`Terminator::Far`] on the call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarTransfer {
    /// A system call, a software interrupt or a far call.
    Call,
    /// The return from an interrupt, a system call or a far call.
    Return,
    /// A far jump, a VM entry or exit, an invalid instruction.
    Other,
}

/// One instruction, as the flow sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its length in bytes.
    pub length: u8,
    /// How it may leave the straight line.
    pub terminator: Terminator,
    /// The target of a direct branch, else the address after it.
    pub target: u64,
    /// Whether it writes CR3 of x86, which may end tracing or change the address space.
    pub writes_cr3: bool,
}

/// What an instruction does beside the flow, where a trace has packets about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing of interest.
    Other,
    /// MOV to CR3.
    WriteCr3,
    /// VMPTRLD.
    LoadVmcs,
    /// VMLAUNCH, VMRESUME or VMRUN.
    EnterGuest,
    /// PTWRITE.
    PtWrite,
    /// IRET, ERETS or ERETU.
    InterruptReturn,
    /// UIRET.
    UserInterruptReturn,
    /// NOP, PAUSE or LFENCE: padding may consist of them.
    Filler,
    /// INT3.
    Breakpoint,
}

/// Why bytes are no instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// It continues after the last byte.
    CutShort,
    /// There is no instruction with these bytes.
    Invalid,
}

impl Step {
    /// Creates a step of an instruction that does not branch.
    pub(crate) fn plain(length: u8, address: u64) -> Step {
        let target = address.wrapping_add(length.into());
        Step { length, terminator: Terminator::None, target, writes_cr3: false }
    }

    /// Adds what it does to the flow; its target stays the next instruction.
    pub(crate) fn with(self, terminator: Terminator) -> Step {
        Step { terminator, ..self }
    }

    /// Adds what it does to the flow, and the target.
    pub(crate) fn to(self, terminator: Terminator, target: u64) -> Step {
        Step { terminator, target, ..self }
    }
}

impl From<Bits> for Isa {
    fn from(bits: Bits) -> Isa {
        Isa::X86(bits)
    }
}

/// The first of RISC-V's numbers for files.
const RISCV_NUMBER: u8 = 128;

impl Isa {
    /// 64-bit x86.
    pub const X86_64: Isa = Isa::X86(Bits::B64);
    /// 64-bit RISC-V with the usual extensions.
    pub const RV64: Isa = Isa::RiscV(riscv::Set::RV64GC);
    /// 32-bit RISC-V with the usual extensions.
    pub const RV32: Isa = Isa::RiscV(riscv::Set::RV32GC);

    /// The number of instruction sets.
    pub const COUNT: usize = 6 + riscv::Set::COUNT;

    /// Returns a number below [`Isa::COUNT`] that no other instruction set has.
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            Isa::X86(Bits::B16) => 0,
            Isa::X86(Bits::B32) => 1,
            Isa::X86(Bits::B64) => 2,
            Isa::A64 => 3,
            Isa::RiscV(set) => 6 + set.index(),
            Isa::A32 => 4,
            Isa::T32 => 5,
        }
    }

    /// Returns a number for files, which never changes: of x86 its bits.
    pub const fn number(self) -> u8 {
        match self {
            Isa::X86(bits) => bits as u8,
            Isa::A64 => 1,
            Isa::RiscV(set) => RISCV_NUMBER + set.index() as u8,
            Isa::A32 => 2,
            Isa::T32 => 3,
        }
    }

    /// Returns the instruction set with a number for files.
    pub const fn from_number(number: u8) -> Option<Isa> {
        Some(match number {
            16 => Isa::X86(Bits::B16),
            32 => Isa::X86(Bits::B32),
            64 => Isa::X86(Bits::B64),
            1 => Isa::A64,
            RISCV_NUMBER.. => match riscv::Set::from_index((number - RISCV_NUMBER) as usize) {
                Some(set) => Isa::RiscV(set),
                None => return None,
            },
            2 => Isa::A32,
            3 => Isa::T32,
            _ => return None,
        })
    }

    /// Returns the length of its longest instruction in bytes.
    #[inline]
    pub const fn longest_instruction(self) -> usize {
        match self {
            Isa::X86(_) => x86::LONGEST,
            Isa::RiscV(_) => riscv::LONGEST,
            Isa::A64 | Isa::A32 | Isa::T32 => a64::LENGTH as usize,
        }
    }

    /// Returns the length of its shortest instruction, to which addresses are aligned.
    pub const fn alignment(self) -> u8 {
        match self {
            Isa::X86(_) => 1,
            Isa::A64 => a64::LENGTH,
            Isa::RiscV(_) => riscv::SHORTEST,
            Isa::A32 => a32::LENGTH,
            Isa::T32 => 2,
        }
    }

    /// Returns a reader of instructions in sequence from `bytes`, the first of which is at `address`.
    pub fn reader(self, bytes: &[u8], address: u64) -> Reader<'_> {
        Reader::new(self, bytes, address)
    }

    /// Decodes the first instruction of `bytes`, which is at `address`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn instruction(self, bytes: &[u8], address: u64) -> Result<Instruction, Undecodable> {
        Instruction::decode(self, bytes, address)
    }

    /// Returns the effect on the call stack of the [`Terminator::Far`] in these bytes.
    pub fn far_transfer(self, bytes: &[u8]) -> FarTransfer {
        match self {
            Isa::X86(bits) => x86::far_transfer(bits, bytes),
            // Only returns from exceptions are far.
            Isa::A64 | Isa::A32 | Isa::T32 | Isa::RiscV(_) => FarTransfer::Return,
        }
    }
}

/// The examples of the page that package registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
