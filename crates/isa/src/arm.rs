//! The text of Arm's instructions.

use std::fmt::{Display, Write as _};

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::{armv7, armv8::a64};

use crate::{Step, Terminator, t32};

/// Appends the text of an A64 instruction, with the target of a direct branch as an address.
pub(crate) fn print_a64(word: u32, step: &Step, text: &mut String) {
    let bytes = word.to_le_bytes();
    match a64::InstDecoder::default().decode(&mut U8Reader::new(&bytes)) {
        Ok(decoded) => print(&decoded, step, text),
        Err(_) => _ = write!(text, ".inst 0x{word:08x}"),
    }
}

/// Appends the text of an A32 instruction likewise.
pub(crate) fn print_a32(word: u32, step: &Step, text: &mut String) {
    let bytes = word.to_le_bytes();
    match armv7::InstDecoder::default().decode(&mut U8Reader::new(&bytes)) {
        Ok(decoded) => print(&decoded, step, text),
        Err(_) => _ = write!(text, ".inst 0x{word:08x}"),
    }
}

/// Appends the text of a T32 instruction likewise.
pub(crate) fn print_t32([first, second]: [u16; 2], step: &Step, text: &mut String) {
    let bytes = [first.to_le_bytes(), second.to_le_bytes()].concat();
    match armv7::InstDecoder::default_thumb().decode(&mut U8Reader::new(&bytes)) {
        Ok(decoded) => print(&decoded, step, text),
        Err(_) if t32::is_wide(first) => _ = write!(text, ".inst.w 0x{first:04x}{second:04x}"),
        Err(_) => _ = write!(text, ".inst.n 0x{first:04x}"),
    }
}

fn print(decoded: &impl Display, step: &Step, text: &mut String) {
    let begin = text.len();
    let _ = write!(text, "{decoded}");
    let is_direct = matches!(step.terminator, Terminator::Conditional | Terminator::Jump | Terminator::Call);
    // The disassembler does not know the address, and prints `$+0x10`.
    if let Some(at) = text[begin..].rfind('$').filter(|_| is_direct) {
        text.truncate(begin + at);
        let _ = write!(text, "0x{:x}", step.target);
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
