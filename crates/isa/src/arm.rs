//! The text of Arm's instructions.

use std::fmt::Write as _;

use crate::{Step, Terminator, t32};

/// The text of instructions; `None` for those that it does not know.
#[cfg(feature = "arm-text")]
mod disassembler {
    use yaxpeax_arch::{Decoder, U8Reader};
    use yaxpeax_arm::{armv7, armv8::a64::InstDecoder};

    pub(super) fn a64(bytes: &[u8]) -> Option<String> {
        Some(InstDecoder::default().decode(&mut U8Reader::new(bytes)).ok()?.to_string())
    }

    pub(super) fn a32(bytes: &[u8]) -> Option<String> {
        Some(armv7::InstDecoder::default().decode(&mut U8Reader::new(bytes)).ok()?.to_string())
    }

    pub(super) fn t32(bytes: &[u8]) -> Option<String> {
        Some(armv7::InstDecoder::default_thumb().decode(&mut U8Reader::new(bytes)).ok()?.to_string())
    }
}

/// Without the feature all instructions are printed as numbers.
#[cfg(not(feature = "arm-text"))]
mod disassembler {
    pub(super) fn a64(_: &[u8]) -> Option<String> {
        None
    }

    pub(super) fn a32(_: &[u8]) -> Option<String> {
        None
    }

    pub(super) fn t32(_: &[u8]) -> Option<String> {
        None
    }
}

/// Appends the text of an A64 instruction, with the target of a direct branch as an address.
pub(crate) fn print_a64(word: u32, step: &Step, text: &mut String) {
    match disassembler::a64(&word.to_le_bytes()) {
        Some(decoded) => print(&decoded, step, text),
        None => _ = write!(text, ".inst 0x{word:08x}"),
    }
}

/// Appends the text of an A32 instruction likewise.
pub(crate) fn print_a32(word: u32, step: &Step, text: &mut String) {
    match disassembler::a32(&word.to_le_bytes()) {
        Some(decoded) => print(&decoded, step, text),
        None => _ = write!(text, ".inst 0x{word:08x}"),
    }
}

/// Appends the text of a T32 instruction likewise.
pub(crate) fn print_t32([first, second]: [u16; 2], step: &Step, text: &mut String) {
    match disassembler::t32(&[first.to_le_bytes(), second.to_le_bytes()].concat()) {
        Some(decoded) => print(&decoded, step, text),
        None if t32::is_wide(first) => _ = write!(text, ".inst.w 0x{first:04x}{second:04x}"),
        None => _ = write!(text, ".inst.n 0x{first:04x}"),
    }
}

fn print(decoded: &str, step: &Step, text: &mut String) {
    let is_direct = matches!(step.terminator, Terminator::Conditional | Terminator::Jump | Terminator::Call);
    // The disassembler does not know the address, and prints `$+0x10`.
    match decoded.rfind('$').filter(|_| is_direct) {
        Some(at) => _ = write!(text, "{}0x{:x}", &decoded[..at], step.target),
        None => text.push_str(decoded),
    }
}

/// Splits operands at commas outside brackets.
pub(crate) fn split_operands(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    let pieces = text.split(move |character| {
        depth += i32::from(matches!(character, '[' | '{')) - i32::from(matches!(character, ']' | '}'));
        character == ',' && depth == 0
    });
    pieces.filter(|piece| !piece.trim().is_empty())
}
