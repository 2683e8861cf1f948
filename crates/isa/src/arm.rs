//! The text of Arm's instructions.

use std::fmt::Write as _;

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use crate::{Step, Terminator};

/// Appends the text of an A64 instruction, with the target of a direct branch as an address.
pub(crate) fn print_a64(word: u32, step: &Step, text: &mut String) {
    let bytes = word.to_le_bytes();
    let decoded = InstDecoder::default().decode(&mut U8Reader::new(&bytes));
    let Ok(decoded) = decoded else {
        let _ = write!(text, ".inst 0x{word:08x}");
        return;
    };
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
