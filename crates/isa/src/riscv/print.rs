//! The text of instructions, as assemblers write it without aliases.

use super::{
    Set, Width, branch_target, extend, field, jump_target, rd, rs1, rs2,
    table::{On, Operands, ROWS, Row},
};

/// Names of the integer registers by the calling convention.
pub(super) const INTEGERS: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
    "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

/// Names of the float registers by the calling convention.
pub(super) const FLOATS: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4",
    "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8",
    "ft9", "ft10", "ft11",
];

/// Rounding modes as last operands; 5 and 6 are reserved, and 7, the dynamic one, is not written.
const ROUNDING: [&str; 8] = [",rne", ",rtz", ",rdn", ",rup", ",rmm", ",unknown", ",unknown", ""];

/// Suffixes of atomics: neither, release, acquire, both.
const ORDERING: [&str; 4] = ["", ".rl", ".aq", ".aqrl"];

/// Control and status registers that programs and kernels use. Others are written as numbers.
const CSRS: &[(u32, &str)] = &[
    (0x001, "fflags"),
    (0x002, "frm"),
    (0x003, "fcsr"),
    (0x017, "jvt"),
    (0x100, "sstatus"),
    (0x104, "sie"),
    (0x105, "stvec"),
    (0x106, "scounteren"),
    (0x10a, "senvcfg"),
    (0x140, "sscratch"),
    (0x141, "sepc"),
    (0x142, "scause"),
    (0x143, "stval"),
    (0x144, "sip"),
    (0x14d, "stimecmp"),
    (0x180, "satp"),
    (0x300, "mstatus"),
    (0x301, "misa"),
    (0x302, "medeleg"),
    (0x303, "mideleg"),
    (0x304, "mie"),
    (0x305, "mtvec"),
    (0x306, "mcounteren"),
    (0x30a, "menvcfg"),
    (0x320, "mcountinhibit"),
    (0x340, "mscratch"),
    (0x341, "mepc"),
    (0x342, "mcause"),
    (0x343, "mtval"),
    (0x344, "mip"),
    (0x7b0, "dcsr"),
    (0x7b1, "dpc"),
    (0xb00, "mcycle"),
    (0xb02, "minstret"),
    (0xc00, "cycle"),
    (0xc01, "time"),
    (0xc02, "instret"),
    (0xc80, "cycleh"),
    (0xc81, "timeh"),
    (0xc82, "instreth"),
    (0xf11, "mvendorid"),
    (0xf12, "marchid"),
    (0xf13, "mimpid"),
    (0xf14, "mhartid"),
];

/// Writes an instruction of 32 bits.
pub(super) fn wide(word: u32, address: u64, set: Set) -> String {
    let exists = |row: &&Row| {
        let shift = row.operands == Operands::Shift && set.width == Width::Bits32 && field(word, 25, 25) == 1;
        let other = if set.width == Width::Bits64 { On::Rv32 } else { On::Rv64 };
        word & row.mask == row.bits && row.on != other && !shift
    };
    match ROWS.iter().find(exists) {
        Some(row) => {
            let operands = operands(row.operands, word, address, set);
            let ordering = match row.operands {
                Operands::LoadReserved | Operands::Atomic => ORDERING[field(word, 26, 25) as usize],
                _ => "",
            };
            let space = if operands.is_empty() { "" } else { " " };
            format!("{}{ordering}{space}{operands}", row.name)
        }
        None => format!(".4byte 0x{word:x}"),
    }
}

fn operands(operands: Operands, word: u32, address: u64, set: Set) -> String {
    let integer = |register: u8| INTEGERS[usize::from(register)];
    let (d, s, t) = (integer(rd(word)), integer(rs1(word)), integer(rs2(word)));
    let immediate = extend(word >> 20, 12);
    let store = extend(field(word, 31, 25) << 5 | field(word, 11, 7), 12);
    match operands {
        Operands::None => String::new(),
        Operands::Registers => format!("{d},{s},{t}"),
        Operands::Two => format!("{d},{s}"),
        Operands::Sources => format!("{s},{t}"),
        Operands::Immediate => format!("{d},{s},{immediate}"),
        Operands::Shift if word & 0x7f == 0x1b && field(word, 31, 26) != 2 => {
            format!("{d},{s},0x{:x}", field(word, 24, 20))
        }
        Operands::Shift => format!("{d},{s},0x{:x}", field(word, 25, 20)),
        Operands::Load => format!("{d},{immediate}({s})"),
        Operands::Store => format!("{t},{store}({s})"),
        Operands::Branch => format!("{s},{t},0x{:x}", branch_target(word, address, set)),
        Operands::Jump => format!("{d},0x{:x}", jump_target(word, address, set)),
        Operands::Upper => format!("{d},0x{:x}", word >> 12),
        Operands::Fence => format!("{},{}", accesses(field(word, 27, 24)), accesses(field(word, 23, 20))),
        Operands::Csr => format!("{d},{},{s}", csr(word >> 20)),
        Operands::CsrImmediate => format!("{d},{},{}", csr(word >> 20), rs1(word)),
        Operands::LoadReserved => format!("{d},({s})"),
        Operands::Atomic => format!("{d},{t},({s})"),
        Operands::Cache => format!("({s})"),
        _ => floats(operands, word),
    }
}

/// The operands of instructions on floats.
fn floats(operands: Operands, word: u32) -> String {
    let float = |register: u8| FLOATS[usize::from(register)];
    let (fd, fs, ft) = (float(rd(word)), float(rs1(word)), float(rs2(word)));
    let (d, s) = (INTEGERS[usize::from(rd(word))], INTEGERS[usize::from(rs1(word))]);
    let rounding = ROUNDING[field(word, 14, 12) as usize];
    let immediate = extend(word >> 20, 12);
    let store = extend(field(word, 31, 25) << 5 | field(word, 11, 7), 12);
    match operands {
        Operands::FloatLoad => format!("{fd},{immediate}({s})"),
        Operands::FloatStore => format!("{ft},{store}({s})"),
        Operands::FloatFused => {
            format!("{fd},{fs},{ft},{}{rounding}", FLOATS[field(word, 31, 27) as usize])
        }
        Operands::FloatRounded => format!("{fd},{fs},{ft}{rounding}"),
        Operands::Float => format!("{fd},{fs},{ft}"),
        Operands::FloatCompare => format!("{d},{fs},{ft}"),
        Operands::FloatTwoRounded => format!("{fd},{fs}{rounding}"),
        Operands::FloatTwo => format!("{fd},{fs}"),
        Operands::FloatToIntegerRounded => format!("{d},{fs}{rounding}"),
        Operands::FloatToInteger => format!("{d},{fs}"),
        Operands::IntegerToFloatRounded => format!("{fd},{s}{rounding}"),
        Operands::IntegerToFloat => format!("{fd},{s}"),
        _ => unreachable!("not an operation on floats"),
    }
}

/// The accesses of a fence: input, output, reads, writes.
fn accesses(bits: u32) -> String {
    let names = [(8, 'i'), (4, 'o'), (2, 'r'), (1, 'w')];
    let ordered: String =
        names.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect();
    if ordered.is_empty() { "unknown".to_owned() } else { ordered }
}

fn csr(number: u32) -> String {
    let named = CSRS.iter().find(|(known, _)| *known == number);
    named.map_or_else(|| format!("0x{number:x}"), |(_, name)| (*name).to_owned())
}
