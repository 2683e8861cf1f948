//! Instructions of 16 bits (C, Zcb, Zcmp, Zcmt).

use super::{
    Instruction, Kind, Register, Set, Shared, Width, X1, extend, field,
    print::{FLOATS, INTEGERS},
};

/// The registers of three-bit fields begin with `x8`.
const FIRST_SHORT: Register = 8;

/// Decodes an instruction of 16 bits; `None` if it is none.
#[inline]
pub(super) fn decode(half: u16, address: u64, set: Set) -> Option<Instruction> {
    let word = u32::from(half);
    let register = field(word, 11, 7) as Register;
    let target = |offset: i32| set.address(address.wrapping_add_signed(offset.into()));
    let kind = match (word & 3, word >> 13) {
        // Defined as illegal, so that zeros are no code.
        (0, 0) if half == 0 => return None,
        (1, 1) if set.width == Width::Bits32 => Kind::Jump { target: target(jump_offset(word)), link: X1 },
        (1, 3) if register != 2 => {
            let value = set.address(i64::from(upper(word)) as u64);
            Kind::Upper { register, value }
        }
        (1, 5) => Kind::Jump { target: target(jump_offset(word)), link: 0 },
        (1, 6 | 7) => Kind::Branch { target: target(branch_offset(word)) },
        (2, 4) if field(word, 6, 2) == 0 => match (field(word, 12, 12), register) {
            (1, 0) => Kind::Breakpoint,
            (0, 0) => return None,
            (link, base) => Kind::Indirect { link: link as Register, base, offset: 0 },
        },
        (2, 5) if set.shared == Shared::PushesAndTables => match field(word, 12, 8) {
            0b11100 | 0b11110 => Kind::PopReturn,
            0b00000..=0b00011 => Kind::Table { index: field(word, 9, 2) as u8 },
            _ => Kind::Plain,
        },
        _ => Kind::Plain,
    };
    Some(Instruction { length: 2, kind })
}

/// The offset of `c.j` and `c.jal` (CJ format).
fn jump_offset(word: u32) -> i32 {
    let offset = field(word, 12, 12) << 11
        | field(word, 8, 8) << 10
        | field(word, 10, 9) << 8
        | field(word, 6, 6) << 7
        | field(word, 7, 7) << 6
        | field(word, 2, 2) << 5
        | field(word, 11, 11) << 4
        | field(word, 5, 3) << 1;
    extend(offset, 12)
}

/// The offset of `c.beqz` and `c.bnez` (CB format).
fn branch_offset(word: u32) -> i32 {
    let offset = field(word, 12, 12) << 8
        | field(word, 6, 5) << 6
        | field(word, 2, 2) << 5
        | field(word, 11, 10) << 3
        | field(word, 4, 3) << 1;
    extend(offset, 9)
}

/// The six-bit immediate of most CI instructions.
fn immediate(word: u32) -> u32 {
    field(word, 12, 12) << 5 | field(word, 6, 2)
}

/// The value that `c.lui` loads.
fn upper(word: u32) -> i32 {
    extend(immediate(word), 6) << 12
}

fn integer(number: u32) -> &'static str {
    INTEGERS[number as usize]
}

/// A register of a three-bit field.
fn short(number: u32) -> &'static str {
    integer(number + u32::from(FIRST_SHORT))
}

fn short_float(number: u32) -> &'static str {
    FLOATS[number as usize + usize::from(FIRST_SHORT)]
}

/// Writes an instruction of 16 bits.
pub(super) fn show(half: u16, address: u64, set: Set) -> String {
    let word = u32::from(half);
    let text = match word & 3 {
        0 => quadrant0(word, set),
        1 => quadrant1(word, address, set),
        _ => quadrant2(word, set),
    };
    text.unwrap_or_else(|| format!(".2byte 0x{half:x}"))
}

fn quadrant0(word: u32, set: Set) -> Option<String> {
    let (data, base) = (field(word, 4, 2), short(field(word, 9, 7)));
    let of_4 = field(word, 5, 5) << 6 | field(word, 12, 10) << 3 | field(word, 6, 6) << 2;
    let of_8 = field(word, 6, 5) << 6 | field(word, 12, 10) << 3;
    let rv32 = set.width == Width::Bits32;
    let (name, data, offset) = match word >> 13 {
        0 => {
            let offset = field(word, 10, 7) << 6
                | field(word, 12, 11) << 4
                | field(word, 5, 5) << 3
                | field(word, 6, 6) << 2;
            return (offset != 0).then(|| format!("c.addi4spn {},sp,{offset}", short(data)));
        }
        1 => ("fld", short_float(data), of_8),
        2 => ("lw", short(data), of_4),
        3 if rv32 => ("flw", short_float(data), of_4),
        3 => ("ld", short(data), of_8),
        4 => return zcb_memory(word, short(data), base),
        5 => ("fsd", short_float(data), of_8),
        6 => ("sw", short(data), of_4),
        7 if rv32 => ("fsw", short_float(data), of_4),
        _ => ("sd", short(data), of_8),
    };
    Some(format!("c.{name} {data},{offset}({base})"))
}

/// Loads and stores of bytes and halfwords (Zcb).
fn zcb_memory(word: u32, data: &str, base: &str) -> Option<String> {
    let of_1 = field(word, 5, 5) << 1 | field(word, 6, 6);
    let of_2 = field(word, 5, 5) << 1;
    let (name, offset) = match (field(word, 12, 10), field(word, 6, 6)) {
        (0, _) => ("lbu", of_1),
        (1, 0) => ("lhu", of_2),
        (1, 1) => ("lh", of_2),
        (2, _) => ("sb", of_1),
        (3, 0) => ("sh", of_2),
        _ => return None,
    };
    Some(format!("c.{name} {data},{offset}({base})"))
}

fn quadrant1(word: u32, address: u64, set: Set) -> Option<String> {
    let register = field(word, 11, 7);
    let signed = extend(immediate(word), 6);
    let target = |offset: i32| set.address(address.wrapping_add_signed(offset.into()));
    Some(match word >> 13 {
        0 if register == 0 && signed == 0 => "c.nop".to_owned(),
        0 => format!("c.addi {},{signed}", integer(register)),
        1 if set.width == Width::Bits32 => format!("c.jal 0x{:x}", target(jump_offset(word))),
        1 if register == 0 => return None,
        1 => format!("c.addiw {},{signed}", integer(register)),
        2 => format!("c.li {},{signed}", integer(register)),
        3 if signed == 0 => return None,
        3 if register == 2 => {
            let offset = field(word, 12, 12) << 9
                | field(word, 4, 3) << 7
                | field(word, 5, 5) << 6
                | field(word, 2, 2) << 5
                | field(word, 6, 6) << 4;
            format!("c.addi16sp sp,{}", extend(offset, 10))
        }
        3 => format!("c.lui {},0x{:x}", integer(register), upper(word) as u32 >> 12),
        4 => return arithmetic(word, set),
        5 => format!("c.j 0x{:x}", target(jump_offset(word))),
        branch => {
            let name = if branch == 6 { "c.beqz" } else { "c.bnez" };
            format!("{name} {},0x{:x}", short(field(word, 9, 7)), target(branch_offset(word)))
        }
    })
}

/// Shifts and operations on two short registers.
fn arithmetic(word: u32, set: Set) -> Option<String> {
    let (register, shift) = (short(field(word, 9, 7)), immediate(word));
    let is_wide_shift = set.width == Width::Bits32 && shift >= 32;
    match field(word, 11, 10) {
        0 | 1 if is_wide_shift => return None,
        0 if shift == 0 => return Some(format!("c.srli64 {register}")),
        0 => return Some(format!("c.srli {register},0x{shift:x}")),
        1 if shift == 0 => return Some(format!("c.srai64 {register}")),
        1 => return Some(format!("c.srai {register},0x{shift:x}")),
        2 => return Some(format!("c.andi {register},{}", extend(shift, 6))),
        _ => {}
    }
    let name = match field(word, 12, 12) << 2 | field(word, 6, 5) {
        0 => "sub",
        1 => "xor",
        2 => "or",
        3 => "and",
        4 if set.width == Width::Bits64 => "subw",
        5 if set.width == Width::Bits64 => "addw",
        6 => "mul",
        7 => {
            let names = ["zext.b", "sext.b", "zext.h", "sext.h", "zext.w", "not"];
            let name = names.get(field(word, 4, 2) as usize)?;
            let is_known = *name != "zext.w" || set.width == Width::Bits64;
            return is_known.then(|| format!("c.{name} {register}"));
        }
        _ => return None,
    };
    Some(format!("c.{name} {register},{}", short(field(word, 4, 2))))
}

fn quadrant2(word: u32, set: Set) -> Option<String> {
    let register = field(word, 11, 7);
    let (rd, rs2) = (integer(register), field(word, 6, 2));
    let rv32 = set.width == Width::Bits32;
    let load_4 = field(word, 3, 2) << 6 | field(word, 12, 12) << 5 | field(word, 6, 4) << 2;
    let load_8 = field(word, 4, 2) << 6 | field(word, 12, 12) << 5 | field(word, 6, 5) << 3;
    let store_4 = field(word, 8, 7) << 6 | field(word, 12, 9) << 2;
    let store_8 = field(word, 9, 7) << 6 | field(word, 12, 10) << 3;
    let (name, data, offset) = match word >> 13 {
        0 if rv32 && immediate(word) >= 32 => return None,
        0 if immediate(word) == 0 => return Some(format!("c.slli64 {rd}")),
        0 => return Some(format!("c.slli {rd},0x{:x}", immediate(word))),
        1 => ("fldsp", FLOATS[register as usize], load_8),
        2 if register != 0 => ("lwsp", rd, load_4),
        3 if rv32 => ("flwsp", FLOATS[register as usize], load_4),
        3 if register != 0 => ("ldsp", rd, load_8),
        2 | 3 => return None,
        4 => return moves_and_jumps(word),
        5 if set.shared == Shared::PushesAndTables => return pushes_and_tables(word, set),
        5 => ("fsdsp", FLOATS[rs2 as usize], store_8),
        6 => ("swsp", integer(rs2), store_4),
        7 if rv32 => ("fswsp", FLOATS[rs2 as usize], store_4),
        _ => ("sdsp", integer(rs2), store_8),
    };
    Some(format!("c.{name} {data},{offset}(sp)"))
}

fn moves_and_jumps(word: u32) -> Option<String> {
    let (register, rs2) = (field(word, 11, 7), field(word, 6, 2));
    let (rd, rs2) = (integer(register), if rs2 == 0 { None } else { Some(integer(rs2)) });
    match (field(word, 12, 12), rs2) {
        (0, None) if register == 0 => None,
        (0, None) => Some(format!("c.jr {rd}")),
        (0, Some(rs2)) => Some(format!("c.mv {rd},{rs2}")),
        (_, None) if register == 0 => Some("c.ebreak".to_owned()),
        (_, None) => Some(format!("c.jalr {rd}")),
        (_, Some(rs2)) => Some(format!("c.add {rd},{rs2}")),
    }
}

/// Zcmp and Zcmt.
fn pushes_and_tables(word: u32, set: Set) -> Option<String> {
    let (list, size) = (field(word, 7, 4), field(word, 3, 2));
    let saved = |number: u32| integer(if number < 2 { number + 8 } else { number + 16 });
    let name = match field(word, 12, 8) {
        0b11000 => "push",
        0b11010 => "pop",
        0b11100 => "popretz",
        0b11110 => "popret",
        0b00000..=0b00011 => {
            let index = field(word, 9, 2);
            return Some(format!("cm.{} {index}", if index < 32 { "jt" } else { "jalt" }));
        }
        0b01100..=0b01111 => {
            let (first, second) = (saved(field(word, 9, 7)), saved(field(word, 4, 2)));
            return match field(word, 6, 5) {
                1 => Some(format!("cm.mvsa01 {first},{second}")),
                3 => Some(format!("cm.mva01s {first},{second}")),
                _ => None,
            };
        }
        _ => return None,
    };
    let (registers, count) = match list {
        0..=3 => return None,
        4 => ("ra".to_owned(), 1),
        5 => ("ra,s0".to_owned(), 2),
        // There is no list that ends with s10.
        15 => ("ra,s0-s11".to_owned(), 13),
        _ => (format!("ra,s0-s{}", list - 5), list - 3),
    };
    let register_bytes = if set.width == Width::Bits64 { 8 } else { 4 };
    let adjustment = (count * register_bytes).next_multiple_of(16) + size * 16;
    let sign = if name == "push" { "-" } else { "" };
    Some(format!("cm.{name} {{{registers}}},{sign}{adjustment}"))
}
