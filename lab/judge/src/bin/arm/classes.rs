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

/// Compares random instructions of each encoding class with objdump's text.
pub(crate) fn judge(folder: &Path) -> Outcome {
    let mut random = fastrand::Rng::with_seed(1);
    let mut words: Vec<u32> = Vec::new();
    for high in 0..1 << 11 {
        words.extend((0..WORDS).map(|_| high << 21 | random.u32(..1 << 21)));
    }
    // Branches to registers, exceptions and barriers have few valid words: all near those.
    for base in [0xd61f_0000, 0xd63f_0000, 0xd65f_0000, 0xd69f_0000, 0xd6bf_0000, 0xd71f_0000, 0xd73f_0000] {
        words.extend((0..1 << 16).map(|low| base | low));
    }
    for base in [0xd503_2000, 0xd503_3000, 0xd400_0000, 0xd420_0000, 0xd440_0000, 0xd4a0_0000] {
        words.extend((0..1 << 12).map(|low| base | low));
    }
    let file = folder.join("words.bin");
    fs::write(&file, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())?;
    let output = Command::new("aarch64-linux-gnu-objdump")
        .args(["-D", "-z", "-b", "binary", "-m", "aarch64"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let (mut compared, mut different) = (0, 0);
    for line in text.lines() {
        let mut parts = line.trim().split_whitespace();
        let address = parts.next().and_then(|at| u64::from_str_radix(at.strip_suffix(':')?, 16).ok());
        let (Some(address), Some(word)) =
            (address, parts.next().and_then(|word| u32::from_str_radix(word, 16).ok()))
        else {
            continue;
        };
        let (mnemonic, operands) = (parts.next().unwrap_or_default(), parts.collect::<Vec<_>>());
        let step = Isa::A64.instruction(&word.to_le_bytes(), address).map_err(|_| "no instruction")?.step();
        let Some(expected) = class(mnemonic, word) else { continue };
        compared += 1;
        let target =
            operands.iter().rev().find_map(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
        let is_direct = matches!(expected, Terminator::Conditional | Terminator::Jump | Terminator::Call);
        if step.terminator != expected || is_direct && target.is_some_and(|target| target != step.target) {
            different += 1;
            if different <= 20 {
                println!("{line}: {:?} to {:x}, expected {expected:?}", step.terminator, step.target);
            }
        }
    }
    println!("{compared} words compared with objdump, {different} different");
    match different {
        0 if compared > 0 => Ok(()),
        _ => Err(format!("{different} words of {compared} differ").into()),
    }
}

/// Returns the class of a mnemonic; `None` if objdump does not know the word.
fn class(mnemonic: &str, word: u32) -> Option<Terminator> {
    Some(match mnemonic {
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
        _ if mnemonic.starts_with("b.") || mnemonic.starts_with("bc.") => Terminator::Conditional,
        _ if word >> 26 == 0 => return None,
        _ => Terminator::None,
    })
}
