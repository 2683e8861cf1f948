//! Compares the classes of instructions with binutils, over every encoding class.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use hodo_code::{Isa, Terminator};

use crate::Outcome;

/// Random words for each value of the highest eleven bits.
const WORDS: u32 = 96;
/// Differences that are shown, at most.
const SHOWN: u32 = 20;

/// A disassembled line.
struct Line<'t> {
    word: u32,
    mnemonic: &'t str,
    operands: &'t str,
}

/// Compares random instructions of each encoding class with objdump's text.
pub(crate) fn judge(folder: &Path) -> Outcome {
    let mut random = fastrand::Rng::with_seed(1);
    let mut words: Vec<u32> = Vec::new();
    for high in 0..1 << 11 {
        words.extend((0..WORDS).map(|_| high << 21 | random.u32(..1 << 21)));
    }
    let everywhere = words.clone();
    // Branches to registers, exceptions and barriers have few valid words: all near those.
    for base in [0xd61f_0000, 0xd63f_0000, 0xd65f_0000, 0xd69f_0000, 0xd6bf_0000, 0xd71f_0000, 0xd73f_0000] {
        words.extend((0..1 << 16).map(|low| base | low));
    }
    for base in [0xd503_2000, 0xd503_3000, 0xd400_0000, 0xd420_0000, 0xd440_0000, 0xd4a0_0000] {
        words.extend((0..1 << 12).map(|low| base | low));
    }
    let mut different = compare(folder, Isa::A64, &words)?;
    let mut words = everywhere.clone();
    for base in [0xe12f_ff00, 0xe160_0000, 0xe1a0_f000, 0xe320_f000, 0xf57f_f000] {
        words.extend((0..1 << 8).map(|low| base | low));
    }
    different += compare(folder, Isa::A32, &words)?;
    // A narrow instruction is followed by a NOP. IT would change the instructions after it.
    let halfwords = |word: u32| if word & 0xffff >= 0xe800 { word } else { word & 0xffff | 0xbf00 << 16 };
    let is_it = |word: &u32| word & 0xff00 == 0xbf00 && word & 0xf != 0;
    let mut words: Vec<u32> = (0..0xe800).map(halfwords).filter(|word| !is_it(word)).collect();
    words.extend(
        everywhere.iter().map(|word| word.rotate_left(16)).map(halfwords).filter(|word| !is_it(word)),
    );
    words.extend((0..1 << 17).map(|_| 0xe800 | random.u32(..0x1800) | random.u32(..1 << 16) << 16));
    for (first, second) in
        [(0xf3bf, 0x8f00), (0xf3af, 0x8000), (0xf3de, 0x8f00), (0xf7ff, 0x8000), (0xe8d0, 0xf000)]
    {
        words.extend((0..1 << 8).map(|low| first | (second | low) << 16));
    }
    different += compare(folder, Isa::T32, &words)?;
    match different {
        0 => Ok(()),
        _ => Err(format!("{different} words differ").into()),
    }
}

/// Compares words with objdump's text. Returns the number of differences.
fn compare(folder: &Path, isa: Isa, words: &[u32]) -> Outcome<u32> {
    let file = folder.join("words.bin");
    fs::write(&file, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())?;
    let (program, options): (&str, &[&str]) = match isa {
        Isa::A32 => ("arm-linux-gnueabihf-objdump", &["-m", "arm"]),
        Isa::T32 => ("arm-linux-gnueabihf-objdump", &["-m", "arm", "-M", "force-thumb"]),
        _ => ("aarch64-linux-gnu-objdump", &["-m", "aarch64"]),
    };
    let mut objdump = Command::new(program);
    objdump.args(["-D", "-z", "-b", "binary"]).args(options).arg(&file).stdin(Stdio::null());
    let text = String::from_utf8(objdump.output()?.stdout)?;
    let (mut compared, mut different) = (0, 0);
    let is_instruction = |text: &&str| !text.contains("UNPREDICTABLE") && !text.contains("UNDEFINED");
    for text in text.lines().filter(is_instruction) {
        let Some((address, line)) = parse(text) else { continue };
        let step = isa.instruction(&line.word.to_le_bytes(), address).map_err(|_| "no instruction")?.step();
        let expected = if isa == Isa::A64 { class_of_a64(&line) } else { class_of_a32(&line) };
        let Some(expected) = expected else { continue };
        compared += 1;
        let operands = line.operands.split([' ', ',', '\t']).rev();
        let target =
            operands.filter_map(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()).next();
        let is_direct = matches!(expected, Terminator::Conditional | Terminator::Jump | Terminator::Call);
        if step.terminator != expected || is_direct && target.is_some_and(|target| target != step.target) {
            different += 1;
            if different <= SHOWN {
                println!("{text}: {:?} to {:x}, expected {expected:?}", step.terminator, step.target);
            }
        }
    }
    println!("{isa:?}: {compared} words compared with objdump, {different} different");
    match compared {
        0 => Err(format!("{program} shows nothing").into()),
        _ => Ok(different),
    }
}

/// Reads `10: d65f03c0  ret`; of T32 `10: f000 f801  bl 0x16`.
fn parse(text: &str) -> Option<(u64, Line<'_>)> {
    let (address, rest) = text.split_once(':')?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let mut fields = rest.split('\t').filter(|field| !field.trim().is_empty());
    let (hexadecimal, mnemonic) = (fields.next()?.trim(), fields.next()?.trim());
    let halfwords = hexadecimal.split(' ').map(|digits| u32::from_str_radix(digits, 16));
    let halfwords: Vec<u32> = halfwords.collect::<Result<_, _>>().ok()?;
    let word = match halfwords[..] {
        [first, second] => first | second << 16,
        [word] => word,
        _ => return None,
    };
    let operands = fields.next().unwrap_or_default();
    Some((address, Line { word, mnemonic, operands }))
}

/// Returns the class of an A64 instruction; `None` if objdump does not know the word.
fn class_of_a64(line: &Line<'_>) -> Option<Terminator> {
    Some(match line.mnemonic {
        ".inst" | ".word" => return None,
        "b" => Terminator::Jump,
        "bl" => Terminator::Call,
        "cbz" | "cbnz" | "tbz" | "tbnz" => Terminator::Conditional,
        "br" | "braa" | "brab" | "braaz" | "brabz" => Terminator::IndirectJump,
        "blr" | "blraa" | "blrab" | "blraaz" | "blrabz" => Terminator::IndirectCall,
        "ret" | "retaa" | "retab" => Terminator::Return,
        "eret" | "eretaa" | "eretab" | "drps" => Terminator::Far,
        "svc" | "hvc" | "smc" | "brk" | "hlt" | "dcps1" | "dcps2" | "dcps3" | "udf" => Terminator::Trap,
        "isb" => Terminator::Barrier,
        "wfe" | "wfi" | "wfet" | "wfit" => Terminator::Wait,
        other if other.starts_with("b.") || other.starts_with("bc.") => Terminator::Conditional,
        _ if line.word >> 26 == 0 => return None,
        _ => Terminator::None,
    })
}

/// The conditions of A32 and T32 as suffixes.
const CONDITIONS: [&str; 16] =
    ["eq", "ne", "cs", "cc", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le"];

/// Returns the class of an instruction of A32 or T32; `None` if objdump does not know the word.
fn class_of_a32(line: &Line<'_>) -> Option<Terminator> {
    let base = line.mnemonic.trim_end_matches(".n").trim_end_matches(".w");
    if base.starts_with('.') || base.contains("undefined") || line.operands.contains("undefined") {
        return None;
    }
    let with = |name: &str| {
        base.strip_prefix(name).is_some_and(|rest| rest.is_empty() || CONDITIONS.contains(&rest))
    };
    let conditional = |name: &str| base.strip_prefix(name).is_some_and(|rest| CONDITIONS.contains(&rest));
    let first = line.operands.split([',', ' ', ';']).next().unwrap_or_default();
    let lists_pc = line.operands.contains("pc}");
    Some(match base {
        "b" => Terminator::Jump,
        "cbz" | "cbnz" | "le" | "wls" => Terminator::Conditional,
        "tbb" | "tbh" => Terminator::IndirectJump,
        _ if with("bl") && !conditional("b") => Terminator::Call,
        _ if conditional("b") => Terminator::Conditional,
        _ if with("blx") && first.starts_with("0x") => Terminator::Call,
        _ if with("blx") || base == "blxns" => Terminator::IndirectCall,
        _ if (with("bx") || base == "bxns") && first == "lr" => Terminator::Return,
        _ if with("bx") || with("bxj") || base == "bxns" => Terminator::IndirectJump,
        // Unpredictable: the program counter as a base, and loads of it as from user mode.
        _ if base.starts_with("ldm") && first.starts_with("pc") || base == "ldrt" && first == "pc" => {
            return None;
        }
        _ if with("pop") && lists_pc => Terminator::Return,
        _ if base.starts_with("ldm") && lists_pc && line.operands.contains('^') => Terminator::Far,
        _ if (with("ldm") || with("ldmia") || with("ldmfd")) && first == "sp!" && lists_pc => {
            Terminator::Return
        }
        _ if base.starts_with("ldm") && lists_pc => Terminator::IndirectJump,
        _ if with("eret") || base.starts_with("rfe") => Terminator::Far,
        _ if ["svc", "hvc", "smc", "bkpt", "hlt", "udf"].iter().any(|name| with(name)) => Terminator::Trap,
        "dcps1" | "dcps2" | "dcps3" => Terminator::Trap,
        "isb" => Terminator::Barrier,
        _ if with("wfe") || with("wfi") => Terminator::Wait,
        _ if with("mcr")
            && line.operands.starts_with("15, 0, ")
            && line.operands.contains("cr7, cr5, {4}") =>
        {
            Terminator::Barrier
        }
        // Unpredictable: wide operations of T32 have no program counter as a result.
        _ if first == "pc"
            && operation(base).is_some()
            && (line.mnemonic.ends_with(".w") || is_wide_rsb(line)) =>
        {
            return None;
        }
        _ if first == "pc" && writes_pc(base) => match line.operands {
            _ if sets_flags(base) => Terminator::Far,
            "pc, lr" if with("mov") => Terminator::Return,
            _ => Terminator::IndirectJump,
        },
        _ => Terminator::None,
    })
}

const OPERATIONS: [&str; 17] = [
    "and", "eor", "sub", "rsb", "add", "adc", "sbc", "rsc", "orr", "mov", "lsl", "lsr", "asr", "ror", "rrx",
    "bic", "mvn",
];

/// Returns whether an instruction writes its first operand as a branch does, if that is the program counter.
fn writes_pc(base: &str) -> bool {
    let is_load = base.strip_prefix("ldr").is_some_and(|rest| rest.is_empty() || CONDITIONS.contains(&rest));
    is_load || operation(base).is_some()
}

/// Returns the rest after the name of an operation: `s`, a condition, or both.
fn operation(base: &str) -> Option<&str> {
    let rest = OPERATIONS.iter().find_map(|name| base.strip_prefix(name))?;
    let condition = rest.strip_prefix('s').unwrap_or(rest);
    (condition.is_empty() || CONDITIONS.contains(&condition) || CONDITIONS.contains(&rest)).then_some(rest)
}

/// RSB of T32 has a wide form only, which objdump does not mark.
fn is_wide_rsb(line: &Line<'_>) -> bool {
    line.mnemonic.starts_with("rsb") && matches!(line.word & 0xffe0, 0xf1c0 | 0xf5c0 | 0xebc0)
}

fn sets_flags(base: &str) -> bool {
    operation(base).is_some_and(|rest| rest.starts_with('s') && !CONDITIONS.contains(&rest))
}
