//! The instructions of 32 bits: RV32/64 with M, A, F, D, Zicsr, Zifencei, Zba, Zbb, Zbc, Zbs, Zicond and the privileged
//! ones.

/// The operands of an instruction, in the order of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operands {
    None,
    /// `rd, rs1, rs2`
    Registers,
    /// `rd, rs1`
    Two,
    /// `rs1, rs2`
    Sources,
    /// `rd, rs1, immediate`
    Immediate,
    /// `rd, rs1, shift` of five or six bits
    Shift,
    /// `rd, offset(rs1)`
    Load,
    /// `rs2, offset(rs1)`
    Store,
    /// `frd, offset(rs1)`
    FloatLoad,
    /// `frs2, offset(rs1)`
    FloatStore,
    /// `rs1, rs2, target`
    Branch,
    /// `rd, target`
    Jump,
    /// `rd, upper immediate`
    Upper,
    /// predecessors, successors
    Fence,
    /// `rd, csr, rs1`
    Csr,
    /// `rd, csr, immediate`
    CsrImmediate,
    /// `rd, (rs1)`, with ordering in the name
    LoadReserved,
    /// `rd, rs2, (rs1)`, with ordering in the name
    Atomic,
    /// `(rs1)`
    Cache,
    /// `frd, frs1, frs2, frs3, rounding`
    FloatFused,
    /// `frd, frs1, frs2, rounding`
    FloatRounded,
    /// `frd, frs1, frs2`
    Float,
    /// `rd, frs1, frs2`
    FloatCompare,
    /// `frd, frs1, rounding`
    FloatTwoRounded,
    /// `frd, frs1`
    FloatTwo,
    /// `rd, frs1, rounding`
    FloatToIntegerRounded,
    /// `rd, frs1`
    FloatToInteger,
    /// `frd, rs1, rounding`
    IntegerToFloatRounded,
    /// `frd, rs1`
    IntegerToFloat,
}

/// The widths of registers that have an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Both,
    Rv32,
    Rv64,
}

/// An instruction: the words for which `word & mask == bits`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) bits: u32,
    pub(super) mask: u32,
    pub(super) operands: Operands,
    pub(super) on: On,
}

const OPCODE: u32 = 0x7f;
const FUNCT3: u32 = 0x7000;
const FUNCT6: u32 = 0xfc00_0000;
const FUNCT7: u32 = 0xfe00_0000;
const RS1: u32 = 0x000f_8000;
const RS2: u32 = 0x01f0_0000;
const RD: u32 = 0xf80;

const fn row(name: &'static str, bits: u32, mask: u32, operands: Operands) -> Row {
    Row { name, bits, mask, operands, on: On::Both }
}

/// Only the opcode identifies it.
const fn u(name: &'static str, opcode: u32, operands: Operands) -> Row {
    row(name, opcode, OPCODE, operands)
}

/// Opcode and three bits identify it.
const fn i(name: &'static str, opcode: u32, funct3: u32, operands: Operands) -> Row {
    row(name, opcode | funct3 << 12, OPCODE | FUNCT3, operands)
}

/// `i` of the operation on two registers, or on floats.
const fn r(name: &'static str, opcode: u32, funct3: u32, funct7: u32, operands: Operands) -> Row {
    row(name, opcode | funct3 << 12 | funct7 << 25, OPCODE | FUNCT3 | FUNCT7, operands)
}

/// A shift by a constant.
const fn shift(name: &'static str, funct3: u32, funct6: u32) -> Row {
    row(name, 0x13 | funct3 << 12 | funct6 << 26, OPCODE | FUNCT3 | FUNCT6, Operands::Shift)
}

/// An operation on one register; `immediate` belongs to the operation.
const fn one(name: &'static str, opcode: u32, funct3: u32, immediate: u32) -> Row {
    row(name, opcode | funct3 << 12 | immediate << 20, OPCODE | FUNCT3 | FUNCT7 | RS2, Operands::Two)
}

/// An atomic of words (`funct3` 2) or doublewords (3).
const fn atomic(name: &'static str, funct3: u32, funct5: u32) -> Row {
    row(name, 0x2f | funct3 << 12 | funct5 << 27, OPCODE | FUNCT3 | 0xf800_0000, Operands::Atomic)
}

const fn reserve(name: &'static str, funct3: u32) -> Row {
    row(name, 0x2f | funct3 << 12 | 2 << 27, OPCODE | FUNCT3 | RS2 | 0xf800_0000, Operands::LoadReserved)
}

/// A float operation with rounding mode.
const fn rounded(name: &'static str, funct7: u32, operands: Operands) -> Row {
    row(name, 0x53 | funct7 << 25, OPCODE | FUNCT7, operands)
}

/// A float operation with rounding mode, whose second source is part of the operation.
const fn converted(name: &'static str, funct7: u32, rs2: u32, operands: Operands) -> Row {
    row(name, 0x53 | funct7 << 25 | rs2 << 20, OPCODE | FUNCT7 | RS2, operands)
}

/// A float operation on one register.
const fn moved(name: &'static str, funct7: u32, rs2: u32, funct3: u32, operands: Operands) -> Row {
    let bits = 0x53 | funct7 << 25 | rs2 << 20 | funct3 << 12;
    row(name, bits, OPCODE | FUNCT7 | RS2 | FUNCT3, operands)
}

/// A fused multiplication; `format` is 0 for single and 1 for double precision.
const fn fused(name: &'static str, opcode: u32, format: u32) -> Row {
    row(name, opcode | format << 25, OPCODE | 0x0600_0000, Operands::FloatFused)
}

/// An instruction without operands.
const fn whole(name: &'static str, bits: u32) -> Row {
    row(name, bits, u32::MAX, Operands::None)
}

/// A fence of the memory management.
const fn fence(name: &'static str, funct7: u32) -> Row {
    row(name, 0x73 | funct7 << 25, OPCODE | FUNCT3 | FUNCT7 | RD, Operands::Sources)
}

const fn cache(name: &'static str, operation: u32) -> Row {
    row(name, 0x200f | operation << 20, !RS1, Operands::Cache)
}

const fn rv32(row: Row) -> Row {
    Row { on: On::Rv32, ..row }
}

const fn rv64(row: Row) -> Row {
    Row { on: On::Rv64, ..row }
}

use Operands::{
    Branch, Csr, CsrImmediate, Fence, Float, FloatCompare, FloatLoad, FloatRounded, FloatStore,
    FloatToInteger, FloatToIntegerRounded, FloatTwo, FloatTwoRounded, Immediate, IntegerToFloat,
    IntegerToFloatRounded, Jump, Load, Registers, Shift, Store, Upper,
};

/// Opcodes of operations on two registers, on a register and a constant, and the same on the low words.
const OP: u32 = 0x33;
const IMM: u32 = 0x13;
const OP32: u32 = 0x3b;
const IMM32: u32 = 0x1b;
const FP: u32 = 0x53;

/// All instructions; the first that matches counts.
pub(super) const ROWS: &[Row] = &[
    u("lui", 0x37, Upper),
    u("auipc", 0x17, Upper),
    u("jal", 0x6f, Jump),
    i("jalr", 0x67, 0, Load),
    i("beq", 0x63, 0, Branch),
    i("bne", 0x63, 1, Branch),
    i("blt", 0x63, 4, Branch),
    i("bge", 0x63, 5, Branch),
    i("bltu", 0x63, 6, Branch),
    i("bgeu", 0x63, 7, Branch),
    i("lb", 0x03, 0, Load),
    i("lh", 0x03, 1, Load),
    i("lw", 0x03, 2, Load),
    rv64(i("ld", 0x03, 3, Load)),
    i("lbu", 0x03, 4, Load),
    i("lhu", 0x03, 5, Load),
    rv64(i("lwu", 0x03, 6, Load)),
    i("sb", 0x23, 0, Store),
    i("sh", 0x23, 1, Store),
    i("sw", 0x23, 2, Store),
    rv64(i("sd", 0x23, 3, Store)),
    i("addi", IMM, 0, Immediate),
    i("slti", IMM, 2, Immediate),
    i("sltiu", IMM, 3, Immediate),
    i("xori", IMM, 4, Immediate),
    i("ori", IMM, 6, Immediate),
    i("andi", IMM, 7, Immediate),
    one("clz", IMM, 1, 0x600),
    one("ctz", IMM, 1, 0x601),
    one("cpop", IMM, 1, 0x602),
    one("sext.b", IMM, 1, 0x604),
    one("sext.h", IMM, 1, 0x605),
    one("orc.b", IMM, 5, 0x287),
    rv64(one("rev8", IMM, 5, 0x6b8)),
    rv32(one("rev8", IMM, 5, 0x698)),
    shift("slli", 1, 0),
    shift("bseti", 1, 0x0a),
    shift("bclri", 1, 0x12),
    shift("binvi", 1, 0x1a),
    shift("srli", 5, 0),
    shift("srai", 5, 0x10),
    shift("bexti", 5, 0x12),
    shift("rori", 5, 0x18),
    rv64(i("addiw", IMM32, 0, Immediate)),
    rv64(r("slliw", IMM32, 1, 0, Shift)),
    rv64(r("srliw", IMM32, 5, 0, Shift)),
    rv64(r("sraiw", IMM32, 5, 0x20, Shift)),
    rv64(r("roriw", IMM32, 5, 0x30, Shift)),
    rv64(row("slli.uw", IMM32 | 1 << 12 | 2 << 26, OPCODE | FUNCT3 | FUNCT6, Shift)),
    rv64(one("clzw", IMM32, 1, 0x600)),
    rv64(one("ctzw", IMM32, 1, 0x601)),
    rv64(one("cpopw", IMM32, 1, 0x602)),
    r("add", OP, 0, 0, Registers),
    r("sub", OP, 0, 0x20, Registers),
    r("sll", OP, 1, 0, Registers),
    r("slt", OP, 2, 0, Registers),
    r("sltu", OP, 3, 0, Registers),
    r("xor", OP, 4, 0, Registers),
    r("srl", OP, 5, 0, Registers),
    r("sra", OP, 5, 0x20, Registers),
    r("or", OP, 6, 0, Registers),
    r("and", OP, 7, 0, Registers),
    r("mul", OP, 0, 1, Registers),
    r("mulh", OP, 1, 1, Registers),
    r("mulhsu", OP, 2, 1, Registers),
    r("mulhu", OP, 3, 1, Registers),
    r("div", OP, 4, 1, Registers),
    r("divu", OP, 5, 1, Registers),
    r("rem", OP, 6, 1, Registers),
    r("remu", OP, 7, 1, Registers),
    r("andn", OP, 7, 0x20, Registers),
    r("orn", OP, 6, 0x20, Registers),
    r("xnor", OP, 4, 0x20, Registers),
    r("min", OP, 4, 5, Registers),
    r("minu", OP, 5, 5, Registers),
    r("max", OP, 6, 5, Registers),
    r("maxu", OP, 7, 5, Registers),
    r("rol", OP, 1, 0x30, Registers),
    r("ror", OP, 5, 0x30, Registers),
    r("sh1add", OP, 2, 0x10, Registers),
    r("sh2add", OP, 4, 0x10, Registers),
    r("sh3add", OP, 6, 0x10, Registers),
    r("clmul", OP, 1, 5, Registers),
    r("clmulr", OP, 2, 5, Registers),
    r("clmulh", OP, 3, 5, Registers),
    r("bset", OP, 1, 0x14, Registers),
    r("bclr", OP, 1, 0x24, Registers),
    r("binv", OP, 1, 0x34, Registers),
    r("bext", OP, 5, 0x24, Registers),
    r("czero.eqz", OP, 5, 7, Registers),
    r("czero.nez", OP, 7, 7, Registers),
    rv64(r("addw", OP32, 0, 0, Registers)),
    rv64(r("subw", OP32, 0, 0x20, Registers)),
    rv64(r("sllw", OP32, 1, 0, Registers)),
    rv64(r("srlw", OP32, 5, 0, Registers)),
    rv64(r("sraw", OP32, 5, 0x20, Registers)),
    rv64(r("mulw", OP32, 0, 1, Registers)),
    rv64(r("divw", OP32, 4, 1, Registers)),
    rv64(r("divuw", OP32, 5, 1, Registers)),
    rv64(r("remw", OP32, 6, 1, Registers)),
    rv64(r("remuw", OP32, 7, 1, Registers)),
    rv64(r("add.uw", OP32, 0, 4, Registers)),
    rv64(r("sh1add.uw", OP32, 2, 0x10, Registers)),
    rv64(r("sh2add.uw", OP32, 4, 0x10, Registers)),
    rv64(r("sh3add.uw", OP32, 6, 0x10, Registers)),
    rv64(r("rolw", OP32, 1, 0x30, Registers)),
    rv64(r("rorw", OP32, 5, 0x30, Registers)),
    rv64(one("zext.h", OP32, 4, 0x080)),
    rv32(one("zext.h", OP, 4, 0x080)),
    whole("fence.tso", 0x8330_000f),
    row("fence", 0x0f, OPCODE | FUNCT3 | RD | RS1 | 0xf000_0000, Fence),
    whole("fence.i", 0x100f),
    cache("cbo.inval", 0),
    cache("cbo.clean", 1),
    cache("cbo.flush", 2),
    cache("cbo.zero", 4),
    whole("ecall", 0x0000_0073),
    whole("ebreak", 0x0010_0073),
    whole("uret", 0x0020_0073),
    whole("sret", 0x1020_0073),
    whole("mret", 0x3020_0073),
    whole("mnret", 0x7020_0073),
    whole("dret", 0x7b20_0073),
    whole("wfi", 0x1050_0073),
    whole("sfence.w.inval", 0x1800_0073),
    whole("sfence.inval.ir", 0x1810_0073),
    fence("sfence.vma", 0x09),
    fence("sinval.vma", 0x0b),
    fence("hfence.vvma", 0x11),
    fence("hinval.vvma", 0x13),
    fence("hfence.gvma", 0x31),
    fence("hinval.gvma", 0x33),
    i("csrrw", 0x73, 1, Csr),
    i("csrrs", 0x73, 2, Csr),
    i("csrrc", 0x73, 3, Csr),
    i("csrrwi", 0x73, 5, CsrImmediate),
    i("csrrsi", 0x73, 6, CsrImmediate),
    i("csrrci", 0x73, 7, CsrImmediate),
    reserve("lr.w", 2),
    atomic("sc.w", 2, 3),
    atomic("amoswap.w", 2, 1),
    atomic("amoadd.w", 2, 0),
    atomic("amoxor.w", 2, 4),
    atomic("amoand.w", 2, 0x0c),
    atomic("amoor.w", 2, 8),
    atomic("amomin.w", 2, 0x10),
    atomic("amomax.w", 2, 0x14),
    atomic("amominu.w", 2, 0x18),
    atomic("amomaxu.w", 2, 0x1c),
    rv64(reserve("lr.d", 3)),
    rv64(atomic("sc.d", 3, 3)),
    rv64(atomic("amoswap.d", 3, 1)),
    rv64(atomic("amoadd.d", 3, 0)),
    rv64(atomic("amoxor.d", 3, 4)),
    rv64(atomic("amoand.d", 3, 0x0c)),
    rv64(atomic("amoor.d", 3, 8)),
    rv64(atomic("amomin.d", 3, 0x10)),
    rv64(atomic("amomax.d", 3, 0x14)),
    rv64(atomic("amominu.d", 3, 0x18)),
    rv64(atomic("amomaxu.d", 3, 0x1c)),
    i("flw", 0x07, 2, FloatLoad),
    i("fld", 0x07, 3, FloatLoad),
    i("fsw", 0x27, 2, FloatStore),
    i("fsd", 0x27, 3, FloatStore),
    fused("fmadd.s", 0x43, 0),
    fused("fmsub.s", 0x47, 0),
    fused("fnmsub.s", 0x4b, 0),
    fused("fnmadd.s", 0x4f, 0),
    fused("fmadd.d", 0x43, 1),
    fused("fmsub.d", 0x47, 1),
    fused("fnmsub.d", 0x4b, 1),
    fused("fnmadd.d", 0x4f, 1),
    rounded("fadd.s", 0x00, FloatRounded),
    rounded("fsub.s", 0x04, FloatRounded),
    rounded("fmul.s", 0x08, FloatRounded),
    rounded("fdiv.s", 0x0c, FloatRounded),
    rounded("fadd.d", 0x01, FloatRounded),
    rounded("fsub.d", 0x05, FloatRounded),
    rounded("fmul.d", 0x09, FloatRounded),
    rounded("fdiv.d", 0x0d, FloatRounded),
    converted("fsqrt.s", 0x2c, 0, FloatTwoRounded),
    converted("fsqrt.d", 0x2d, 0, FloatTwoRounded),
    r("fsgnj.s", FP, 0, 0x10, Float),
    r("fsgnjn.s", FP, 1, 0x10, Float),
    r("fsgnjx.s", FP, 2, 0x10, Float),
    r("fmin.s", FP, 0, 0x14, Float),
    r("fmax.s", FP, 1, 0x14, Float),
    r("fsgnj.d", FP, 0, 0x11, Float),
    r("fsgnjn.d", FP, 1, 0x11, Float),
    r("fsgnjx.d", FP, 2, 0x11, Float),
    r("fmin.d", FP, 0, 0x15, Float),
    r("fmax.d", FP, 1, 0x15, Float),
    r("fle.s", FP, 0, 0x50, FloatCompare),
    r("flt.s", FP, 1, 0x50, FloatCompare),
    r("feq.s", FP, 2, 0x50, FloatCompare),
    r("fle.d", FP, 0, 0x51, FloatCompare),
    r("flt.d", FP, 1, 0x51, FloatCompare),
    r("feq.d", FP, 2, 0x51, FloatCompare),
    converted("fcvt.s.d", 0x20, 1, FloatTwoRounded),
    // Exact conversions have no rounding mode.
    moved("fcvt.d.s", 0x21, 0, 0, FloatTwo),
    converted("fcvt.w.s", 0x60, 0, FloatToIntegerRounded),
    converted("fcvt.wu.s", 0x60, 1, FloatToIntegerRounded),
    rv64(converted("fcvt.l.s", 0x60, 2, FloatToIntegerRounded)),
    rv64(converted("fcvt.lu.s", 0x60, 3, FloatToIntegerRounded)),
    converted("fcvt.w.d", 0x61, 0, FloatToIntegerRounded),
    converted("fcvt.wu.d", 0x61, 1, FloatToIntegerRounded),
    rv64(converted("fcvt.l.d", 0x61, 2, FloatToIntegerRounded)),
    rv64(converted("fcvt.lu.d", 0x61, 3, FloatToIntegerRounded)),
    converted("fcvt.s.w", 0x68, 0, IntegerToFloatRounded),
    converted("fcvt.s.wu", 0x68, 1, IntegerToFloatRounded),
    rv64(converted("fcvt.s.l", 0x68, 2, IntegerToFloatRounded)),
    rv64(converted("fcvt.s.lu", 0x68, 3, IntegerToFloatRounded)),
    moved("fcvt.d.w", 0x69, 0, 0, IntegerToFloat),
    moved("fcvt.d.wu", 0x69, 1, 0, IntegerToFloat),
    rv64(converted("fcvt.d.l", 0x69, 2, IntegerToFloatRounded)),
    rv64(converted("fcvt.d.lu", 0x69, 3, IntegerToFloatRounded)),
    moved("fmv.x.w", 0x70, 0, 0, FloatToInteger),
    moved("fclass.s", 0x70, 0, 1, FloatToInteger),
    rv64(moved("fmv.x.d", 0x71, 0, 0, FloatToInteger)),
    moved("fclass.d", 0x71, 0, 1, FloatToInteger),
    moved("fmv.w.x", 0x78, 0, 0, IntegerToFloat),
    rv64(moved("fmv.d.x", 0x79, 0, 0, IntegerToFloat)),
];
