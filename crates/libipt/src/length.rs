//! The length of bytes that no processor accepts as an instruction. libipt steps over them by the form of their opcode, and
//! so does a program that decodes with it.

use crate::{Error, event::Mode};

/// One bit for each opcode of a map: whether a ModRM byte follows (SDM volume 2, "Opcode Map").
const MODRM_0: [u32; 8] =
    [0x0f0f_0f0f, 0x0f0f_0f0f, 0x0000_0000, 0x0000_0a0c, 0x0000_ffff, 0x0000_0000, 0xff0f_00f3, 0xc0c0_0000];
/// As above, of the opcodes after 0F.
const MODRM_1: [u32; 8] =
    [0xffff_f00f, 0x0000_ff0f, 0xffff_ffff, 0xff7f_ffff, 0xffff_0000, 0xff38_f838, 0x00ff_ffff, 0xffff_ffff];

fn has(map: &[u32; 8], opcode: u8) -> bool {
    map[usize::from(opcode >> 5)] >> (opcode & 31) & 1 == 1
}

/// The opcode maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Map {
    OneByte,
    TwoByte,
    ThreeByte38,
    ThreeByte3a,
}

/// Reads bytes in order.
struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Cursor<'_> {
    fn next(&mut self) -> Result<u8, Error> {
        let byte = *self.bytes.get(self.at).ok_or(Error::BAD_INSTRUCTION)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip(&mut self, count: usize) -> Result<(), Error> {
        self.at += count;
        if self.at > self.bytes.len() { Err(Error::BAD_INSTRUCTION) } else { Ok(()) }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }
}

/// What prefixes say.
#[derive(Clone, Copy, Debug, Default)]
struct Prefixes {
    operand_size: bool,
    address_size: bool,
    wide: bool,
    /// VEX or EVEX.
    vector: bool,
}

/// Returns the length.
pub(crate) fn length(mode: Mode, bytes: &[u8]) -> Result<usize, Error> {
    let mut cursor = Cursor { bytes, at: 0 };
    let mut prefixes = Prefixes::default();
    let mut opcode = loop {
        let byte = cursor.next()?;
        match byte {
            0x66 => prefixes.operand_size = true,
            0x67 => prefixes.address_size = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 | 0xf2 | 0xf3 => {}
            0x40..=0x4f if mode == Mode::Bits64 => {
                prefixes.wide = byte & 8 != 0;
                if !matches!(
                    cursor.peek(),
                    Some(0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
                ) {
                    break cursor.next()?;
                }
                prefixes.wide = false;
            }
            _ => break byte,
        }
    };
    let map = match opcode {
        0xc4 | 0xc5 | 0x62 if mode == Mode::Bits64 || cursor.peek().is_some_and(|next| next >= 0xc0) => {
            prefixes.vector = true;
            vector(opcode, &mut cursor)?
        }
        0x0f => match cursor.next()? {
            0x38 => Map::ThreeByte38,
            0x3a => Map::ThreeByte3a,
            0x39 | 0x3b..=0x3f => return Err(Error::BAD_INSTRUCTION),
            second => {
                opcode = second;
                Map::TwoByte
            }
        },
        _ => Map::OneByte,
    };
    if map != Map::OneByte && (map != Map::TwoByte || prefixes.vector) {
        opcode = cursor.next()?;
    }
    let has_modrm = match map {
        Map::OneByte => has(&MODRM_0, opcode),
        Map::TwoByte => has(&MODRM_1, opcode),
        Map::ThreeByte38 | Map::ThreeByte3a => true,
    };
    let register = if has_modrm { modrm(mode, prefixes, &mut cursor)? } else { 0 };
    cursor.skip(immediate(mode, prefixes, map, opcode, register))?;
    Ok(cursor.at)
}

/// Reads the rest of a VEX or EVEX prefix; returns its map.
fn vector(first: u8, cursor: &mut Cursor<'_>) -> Result<Map, Error> {
    let second = cursor.next()?;
    let (map, more) = match first {
        0xc5 => (1, 0),
        0xc4 => (second & 0x1f, 1),
        _ => (second & 7, 2),
    };
    cursor.skip(more)?;
    match map {
        1 => Ok(Map::TwoByte),
        2 => Ok(Map::ThreeByte38),
        3 => Ok(Map::ThreeByte3a),
        _ => Err(Error::BAD_INSTRUCTION),
    }
}

/// Reads ModRM, SIB and displacement; returns the register field.
fn modrm(mode: Mode, prefixes: Prefixes, cursor: &mut Cursor<'_>) -> Result<u8, Error> {
    let byte = cursor.next()?;
    let (kind, register, base) = (byte >> 6, byte >> 3 & 7, byte & 7);
    let is_16_bit = match mode {
        Mode::Bits64 | Mode::Unknown => false,
        Mode::Bits32 => prefixes.address_size,
        Mode::Bits16 => !prefixes.address_size,
    };
    let displacement = match (is_16_bit, kind) {
        (_, 3) => 0,
        (true, 0) => 2 * usize::from(base == 6),
        (true, kind) => usize::from(kind),
        (false, kind) => {
            let base = if base == 4 { cursor.next()? & 7 } else { base };
            match kind {
                0 => 4 * usize::from(base == 5),
                1 => 1,
                _ => 4,
            }
        }
    };
    cursor.skip(displacement)?;
    Ok(register)
}

/// Returns the size of immediate operands and of branch displacements.
fn immediate(mode: Mode, prefixes: Prefixes, map: Map, opcode: u8, register: u8) -> usize {
    let is_16_bit = match mode {
        Mode::Bits16 => !prefixes.operand_size,
        _ => prefixes.operand_size && !prefixes.wide,
    };
    let word_or_more = if is_16_bit { 2 } else { 4 };
    match (map, opcode) {
        (Map::ThreeByte3a, _) => 1,
        (Map::ThreeByte38, _) => 0,
        (Map::TwoByte, 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6) => 1,
        (Map::TwoByte, 0x80..=0x8f) if !prefixes.vector => word_or_more,
        (Map::TwoByte, _) => 0,
        (Map::OneByte, 0x00..=0x3f) if opcode & 7 == 4 => 1,
        (Map::OneByte, 0x00..=0x3f) if opcode & 7 == 5 => word_or_more,
        (Map::OneByte, 0x6a | 0x6b | 0x70..=0x7f | 0x80 | 0x82 | 0x83 | 0xa8 | 0xb0..=0xb7) => 1,
        (Map::OneByte, 0xc0 | 0xc1 | 0xc6 | 0xcd | 0xd4 | 0xd5 | 0xe0..=0xe7 | 0xeb) => 1,
        (Map::OneByte, 0x68 | 0x69 | 0x81 | 0xa9 | 0xe8 | 0xe9) => word_or_more,
        (Map::OneByte, 0xb8..=0xbf) if prefixes.wide => 8,
        (Map::OneByte, 0xb8..=0xbf) => word_or_more,
        (Map::OneByte, 0xc7) if register == 0 => word_or_more,
        (Map::OneByte, 0xf6) if register < 2 => 1,
        (Map::OneByte, 0xf7) if register < 2 => word_or_more,
        (Map::OneByte, 0xc2 | 0xca) => 2,
        (Map::OneByte, 0xc8) => 3,
        (Map::OneByte, 0x9a | 0xea) => word_or_more + 2,
        (Map::OneByte, _) => 0,
    }
}
