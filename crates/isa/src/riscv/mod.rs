//! RISC-V: RV32 and RV64 with compressed instructions (C, Zcmp, Zcmt).
//!
//! Source: The RISC-V Instruction Set Manual, volume I, "RV32/64G Instruction Set Listings", "C Extension" and "Zc*
//! Extensions"; volume II for the returns from traps. Instructions of more than 32 bits do not exist yet: their encodings
//! are invalid here.

mod compressed;
mod print;
mod step;
mod table;

pub(crate) use step::step;

/// Length of the longest instruction, in bytes.
pub(crate) const LONGEST: usize = 4;
/// Length of the shortest one.
pub(crate) const SHORTEST: u8 = 2;

/// A hart's instruction set, as far as the encodings depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Set {
    /// Whether registers have 32 bits (RV32) or 64 (RV64).
    pub width: Width,
    /// The meaning of the encodings that `c.fsdsp` and others share with Zcmp and Zcmt.
    pub shared: Shared,
}

/// Width of integer registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// RV32.
    Bits32,
    /// RV64.
    Bits64,
}

/// The meaning of compressed encodings that two groups of extensions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shared {
    /// Loads and stores of doubles (C with D, or Zcd).
    Doubles,
    /// Push, pop and table jumps (Zcmp, Zcmt).
    PushesAndTables,
}

impl Set {
    /// RV64 with C and D, as in RV64GC.
    pub const RV64GC: Set = Set { width: Width::Bits64, shared: Shared::Doubles };
    /// RV32 with C and D, as in RV32GC.
    pub const RV32GC: Set = Set { width: Width::Bits32, shared: Shared::Doubles };

    /// Clears the address bits that RV32 lacks.
    #[inline]
    pub fn address(self, address: u64) -> u64 {
        match self.width {
            Width::Bits32 => u64::from(address as u32),
            Width::Bits64 => address,
        }
    }
}

/// An integer register by its number, 0 to 31.
pub type Register = u8;

/// The register that calls link by (`ra`).
const X1: Register = 1;
/// The other link register (`t0`), which millicode such as `-msave-restore` uses.
const X5: Register = 5;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its length in bytes: 2 or 4.
    pub length: u8,
    /// What it does to the flow.
    pub kind: Kind,
}

/// What an instruction does to the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Continues after itself.
    Plain,
    /// `lui`, `auipc`, `c.lui`: continues after itself, and sets a register to a value that the code determines.
    Upper {
        /// The register.
        register: Register,
        /// Its value.
        value: u64,
    },
    /// A conditional branch.
    Branch {
        /// Its target if it is taken.
        target: u64,
    },
    /// `jal`, `c.j`, `c.jal`.
    Jump {
        /// Its target.
        target: u64,
        /// The register that receives the return address; 0 for none.
        link: Register,
    },
    /// `jalr`, `c.jr`, `c.jalr`.
    Indirect {
        /// The register that receives the return address; 0 for none.
        link: Register,
        /// The register that contains the target, to which `offset` is added.
        base: Register,
        /// The offset.
        offset: i16,
    },
    /// `cm.popret`, `cm.popretz`: restores registers and returns.
    PopReturn,
    /// `cm.jt`, `cm.jalt`: jumps to an entry of the table at `jvt`.
    Table {
        /// Index of the entry: `cm.jalt`, which links by `ra`, has those from 32 on.
        index: u8,
    },
    /// `ecall`: traps, and does not retire.
    EnvironmentCall,
    /// `ebreak`, `c.ebreak`: traps, and does not retire.
    Breakpoint,
    /// `mret`, `sret`, `uret`, `mnret`, `dret`.
    TrapReturn,
}

/// What a jump does to a stack of return addresses ("Return-address prediction stack actions").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Nothing.
    None,
    /// Pushes the address after it.
    Call,
    /// Pops.
    Return,
    /// Pops, then pushes: a swap between co-routines.
    Swap,
}

impl Kind {
    /// Returns the linkage: `x1` and `x5` are link registers.
    #[inline]
    pub fn linkage(self) -> Linkage {
        let is_link = |register| register == X1 || register == X5;
        match self {
            Kind::Jump { link, .. } if is_link(link) => Linkage::Call,
            Kind::Indirect { link, base, .. } => match (is_link(link), is_link(base)) {
                (true, true) if link != base => Linkage::Swap,
                (true, _) => Linkage::Call,
                (false, true) => Linkage::Return,
                (false, false) => Linkage::None,
            },
            Kind::PopReturn => Linkage::Return,
            Kind::Table { index } if index >= FIRST_LINKED_ENTRY => Linkage::Call,
            _ => Linkage::None,
        }
    }

    /// Returns the target of a direct jump or branch, or of an indirect jump whose base is zero.
    #[inline]
    pub fn direct_target(self) -> Option<u64> {
        match self {
            Kind::Branch { target } | Kind::Jump { target, .. } => Some(target),
            Kind::Indirect { base: 0, offset, .. } => Some(offset as u64 & !1),
            _ => None,
        }
    }

    /// Returns whether the code does not determine the target.
    #[inline]
    pub fn is_indirect(self) -> bool {
        match self {
            Kind::Indirect { base, .. } => base != 0,
            Kind::PopReturn | Kind::Table { .. } | Kind::TrapReturn => true,
            _ => false,
        }
    }
}

/// The first entry of a table of jumps that links ("Zcmt").
const FIRST_LINKED_ENTRY: u8 = 32;

/// Decodes the instruction in the first of `bytes`. Returns `None` if they are too few or no instruction.
#[inline]
pub fn decode(bytes: &[u8], address: u64, set: Set) -> Option<Instruction> {
    let low = u16::from_le_bytes(*bytes.first_chunk()?);
    if low & 3 != 3 {
        return compressed::decode(low, address, set);
    }
    // Bits 4:2 all set: longer than 32 bits.
    if low & 0x1f == 0x1f {
        return None;
    }
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    Some(Instruction { length: 4, kind: wide(word, address, set) })
}

/// Writes an instruction as text: `addi a0,a0,-1`. Aliases such as `ret` are not used, and encodings without a known
/// instruction are written as data.
pub fn show(bytes: &[u8], address: u64, set: Set) -> Option<String> {
    let low = u16::from_le_bytes(*bytes.first_chunk()?);
    match low & 3 {
        3 => Some(print::wide(u32::from_le_bytes(*bytes.first_chunk()?), address, set)),
        _ => Some(compressed::show(low, address, set)),
    }
}

/// Bits `high` to `low` of a word.
#[inline]
const fn field(word: u32, high: u32, low: u32) -> u32 {
    word >> low & (u32::MAX >> (31 - (high - low)))
}

/// Sign-extends the low `bits` of a value.
#[inline]
const fn extend(value: u32, bits: u32) -> i32 {
    (value << (32 - bits)) as i32 >> (32 - bits)
}

#[inline]
fn rd(word: u32) -> Register {
    field(word, 11, 7) as Register
}

#[inline]
fn rs1(word: u32) -> Register {
    field(word, 19, 15) as Register
}

#[inline]
fn rs2(word: u32) -> Register {
    field(word, 24, 20) as Register
}

/// The target of a conditional branch (B-type).
#[inline]
fn branch_target(word: u32, address: u64, set: Set) -> u64 {
    let offset = field(word, 31, 31) << 12
        | field(word, 7, 7) << 11
        | field(word, 30, 25) << 5
        | field(word, 11, 8) << 1;
    set.address(address.wrapping_add_signed(extend(offset, 13).into()))
}

/// The target of `jal` (J-type).
#[inline]
fn jump_target(word: u32, address: u64, set: Set) -> u64 {
    let offset = field(word, 31, 31) << 20
        | field(word, 19, 12) << 12
        | field(word, 20, 20) << 11
        | field(word, 30, 21) << 1;
    set.address(address.wrapping_add_signed(extend(offset, 21).into()))
}

/// Classifies an instruction of 32 bits. Unknown ones are plain: extensions add no others.
#[inline]
fn wide(word: u32, address: u64, set: Set) -> Kind {
    let upper = i64::from((word & 0xffff_f000) as i32);
    match (word & 0x7f, field(word, 14, 12)) {
        (0x63, 0 | 1 | 4..=7) => Kind::Branch { target: branch_target(word, address, set) },
        (0x6f, _) => Kind::Jump { target: jump_target(word, address, set), link: rd(word) },
        (0x67, 0) => {
            Kind::Indirect { link: rd(word), base: rs1(word), offset: extend(word >> 20, 12) as i16 }
        }
        (0x17, _) => {
            Kind::Upper { register: rd(word), value: set.address(address.wrapping_add_signed(upper)) }
        }
        (0x37, _) => Kind::Upper { register: rd(word), value: set.address(upper as u64) },
        (0x73, 0) => match word {
            0x0000_0073 => Kind::EnvironmentCall,
            0x0010_0073 => Kind::Breakpoint,
            0x0020_0073 | 0x1020_0073 | 0x3020_0073 | 0x7020_0073 | 0x7b20_0073 => Kind::TrapReturn,
            _ => Kind::Plain,
        },
        _ => Kind::Plain,
    }
}
