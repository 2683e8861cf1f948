//! Decodes bytes to packets.

use std::{fmt, iter};

use hodo_flow::PacketError as ErrorKind;

use super::{FUP, IpPayload, Packet, TIP, TIP_PGD, TIP_PGE, Tnt};
use crate::{Errata, Erratum};

/// The sixteen bytes of a PSB packet.
pub const PSB: [u8; 16] = [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];

/// Returns the position of the first PSB.
///
/// If a CYC ending in `02` and a TNT of `82` precede the PSB, the pattern matches too early. The PSB is the last
/// sixteen bytes of the matching run.
pub fn find_psb(bytes: &[u8]) -> Option<usize> {
    let mut at = memchr::memmem::find(bytes, &PSB)?;
    while bytes[at + PSB.len()..].starts_with(&PSB[..2]) {
        at += 2;
    }
    Some(at)
}

/// The bytes that are loaded at once.
const WORD: usize = size_of::<u64>();

/// Bytes that are no valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset of the packet, in bytes from the start of the stream.
    pub at: u64,
    /// The kind of error.
    pub kind: ErrorKind,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for Error {}

/// Reads packets in sequence. It records whether a BBP block is open: `xxxxx100` is then a BIP, else a TNT.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Payload size of block items, while a BBP block is open.
    open_block: Option<usize>,
    errata: Errata,
}

/// A packet with its size in bytes, or an error.
type Parsed = Result<(Packet, usize), ErrorKind>;

impl<'a> Decoder<'a> {
    /// Creates a decoder at `position` of a stream.
    pub fn new(bytes: &'a [u8], position: usize) -> Decoder<'a> {
        Decoder { bytes, position: position.min(bytes.len()), open_block: None, errata: Errata::NONE }
    }

    /// Works around the errata in the packets themselves (SKD007, SKZ84).
    pub fn with_errata(self, errata: Errata) -> Decoder<'a> {
        Decoder { errata, ..self }
    }

    /// Returns the position of the next packet, in bytes from the start of the stream.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns all bytes if no block of values is open, so that packets can be read without context.
    #[inline]
    pub(crate) fn outside_block(&self) -> Option<&'a [u8]> {
        self.open_block.is_none().then_some(self.bytes)
    }

    /// Reads the next packet; returns `None` at the end of the stream. After an error the position is unchanged.
    #[inline(always)]
    pub fn next_packet(&mut self) -> Result<Option<Packet>, Error> {
        match self.frequent_packet(self.bytes.len()) {
            Some(packet) => Ok(Some(packet)),
            None => self.any_packet(),
        }
    }

    /// Fast path: reads the next packet if it is of a frequent kind and not near `end`, so that one wide load contains it.
    #[inline(always)]
    fn frequent_packet(&mut self, end: usize) -> Option<Packet> {
        if self.open_block.is_some() {
            return None;
        }
        let wide = self.bytes.get(self.position..end)?.first_chunk()?;
        let (packet, size) = frequent(u64::from_le_bytes(*wide))?;
        self.position += size;
        Some(packet)
    }

    /// Reads the next packet, given that a PSB begins at `psb`: no earlier packet may extend into it.
    ///
    /// # Errors
    /// As for [`next_packet`](Decoder::next_packet), and for a packet that the PSB cuts.
    #[inline(always)]
    pub fn next_before(&mut self, psb: usize) -> Result<Option<Packet>, Error> {
        // A check of every packet would cost each a second dispatch on its kind.
        if let Some(packet) = self.frequent_packet(psb) {
            return Ok(Some(packet));
        }
        let at = self.position;
        let packet = self.any_packet();
        if self.position > psb && at < psb {
            return Err(self.cut_by_psb(at));
        }
        packet
    }

    #[cold]
    fn cut_by_psb(&mut self, at: usize) -> Error {
        let kind = ErrorKind::CutByPsb((self.position - at) as u8);
        self.position = at;
        Error { at: at as u64, kind }
    }

    /// Passes all packets to `take`, up to the end of the stream, or up to an error, where the position then is.
    ///
    /// # Errors
    /// The bytes at the position are no valid packet.
    #[inline]
    pub fn for_each(&mut self, mut take: impl FnMut(Packet)) -> Result<(), Error> {
        // The last position of a whole word. Compared with it, the load needs no check of bounds.
        let last = self.bytes.len().checked_sub(WORD);
        loop {
            // As in `next_packet`, with the position in a register, and consecutive TNT-8 packets from one word.
            let mut at = self.position;
            while last.is_some_and(|last| at <= last)
                && self.open_block.is_none()
                && let Some(wide) = self.bytes[at..at + WORD].first_chunk()
            {
                let word = u64::from_le_bytes(*wide);
                let start = at;
                for branches in leading_tnts(word) {
                    take(Packet::Tnt8(branches));
                    at += 1;
                }
                if at > start {
                    continue;
                }
                let Some((packet, size)) = longer(word) else { break };
                take(packet);
                at += size;
                if let Packet::Cyc(_) = packet {
                    at += after_cyc(word >> (8 * size), &mut take);
                }
            }
            self.position = at;
            match self.any_packet()? {
                Some(packet) => take(packet),
                None => return Ok(()),
            }
        }
    }

    /// Reads a packet of any kind, at any position.
    #[inline(never)]
    fn any_packet(&mut self) -> Result<Option<Packet>, Error> {
        let rest = &self.bytes[self.position..];
        let Some(&opcode) = rest.first() else { return Ok(None) };
        match self.parse(opcode, rest) {
            Ok((packet, size)) => {
                self.follow_block(&packet);
                self.position += size;
                Ok(Some(packet))
            }
            Err(kind) => Err(Error { at: self.position as u64, kind }),
        }
    }

    /// Moves to another position where a packet may begin.
    pub(crate) fn skip_to(&mut self, position: usize) {
        self.open_block = None;
        self.position = position.min(self.bytes.len());
    }

    /// Moves to the next PSB at or after the position. If there is none, moves to the end and returns `false`.
    pub fn synchronize(&mut self) -> bool {
        self.open_block = None;
        let found = find_psb(&self.bytes[self.position..]);
        self.position = found.map_or(self.bytes.len(), |ahead| self.position + ahead);
        found.is_some()
    }

    /// Moves to the next PSB after the byte `at`. If there is none, moves to the end and returns `false`.
    pub fn synchronize_after(&mut self, at: usize) -> bool {
        self.position = (at + 1).min(self.bytes.len());
        self.synchronize()
    }

    /// Tracks blocks: a BBP opens one; any packet but a timing or block packet closes it (SDM, "BIP").
    fn follow_block(&mut self, packet: &Packet) {
        match packet {
            Packet::Bbp { short_items, .. } => self.open_block = Some(if *short_items { 4 } else { 8 }),
            Packet::Bip { .. }
            | Packet::Pad
            | Packet::Cyc(_)
            | Packet::Mtc(_)
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Cbr(_) => {}
            _ => self.open_block = None,
        }
    }

    #[inline]
    fn parse(&self, opcode: u8, rest: &[u8]) -> Parsed {
        if opcode & 1 == 0 {
            return match opcode {
                0x00 => Ok((Packet::Pad, 1)),
                0x02 => self.extended(rest),
                _ => match self.open_block {
                    Some(size) if opcode & 7 == 4 => block_item(opcode, rest, size),
                    _ => Ok((Packet::Tnt8(tnt(u64::from(opcode >> 1))), 1)),
                },
            };
        }
        match opcode & 0x1f {
            TIP => ip_packet(opcode, rest, Packet::Tip),
            TIP_PGE => ip_packet(opcode, rest, Packet::TipPge),
            TIP_PGD => ip_packet(opcode, rest, Packet::TipPgd),
            FUP => ip_packet(opcode, rest, Packet::Fup),
            _ if opcode & 3 == 3 => self.cyc(opcode, rest),
            _ => match opcode {
                0x99 => mode(rest),
                0x19 => Ok((Packet::Tsc(little_endian(rest, 1, 7)?), 8)),
                0x59 => Ok((Packet::Mtc(byte(rest, 1, 2)?), 2)),
                0xd9 => trig(rest),
                _ => Err(ErrorKind::UnknownOpcode(opcode)),
            },
        }
    }
}

impl Decoder<'_> {
    #[inline]
    fn cyc(&self, opcode: u8, rest: &[u8]) -> Parsed {
        // SKD007: the OVF `02 f3` replaced the second byte. As CYC packets, these bytes would be two in a row, which
        // occur only after a counter overflow, with all count bits set.
        if opcode & 4 != 0 && rest[1..].starts_with(&[2, 0xf3]) && self.errata.has(Erratum::Skd007) {
            return Ok((Packet::Overflow, 3));
        }
        cyc(opcode, rest)
    }

    fn extended(&self, rest: &[u8]) -> Parsed {
        match extended(rest)? {
            // SKZ84 applies if reserved bits are set: the packet is invalid, and a bogus byte follows.
            (Packet::Tma { .. }, size) if rest[6] & 0xfe != 0 && self.errata.has(Erratum::Skz84) => {
                byte(rest, size, size as u8 + 1)?;
                Ok((Packet::Pad, size + 1))
            }
            parsed => Ok(parsed),
        }
    }
}

/// Fast path: passes the usual packets after a CYC to `take`, as far as they occur: a TNT-8, another CYC and its TNT-8.
/// Returns their size in bytes. They are in a word that is already loaded, so no load waits for their position.
#[inline(always)]
fn after_cyc(mut word: u64, take: &mut impl FnMut(Packet)) -> usize {
    let Some(branches) = short_tnt(word as u8) else { return 0 };
    take(Packet::Tnt8(branches));
    word >>= 8;
    if word & 3 != 3 {
        return 1;
    }
    let Some((cycles, size)) = short_cyc(word) else { return 1 };
    take(Packet::Cyc(cycles));
    let Some(branches) = short_tnt((word >> (8 * size)) as u8) else { return 1 + size };
    take(Packet::Tnt8(branches));
    2 + size
}

/// Decodes the packet in the lowest bytes, if it is of a frequent kind. Returns the packet and its size.
#[inline(always)]
pub(crate) fn frequent(word: u64) -> Option<(Packet, usize)> {
    match short_tnt(word as u8) {
        Some(branches) => Some((Packet::Tnt8(branches), 1)),
        None => longer(word),
    }
}

/// Decodes a frequent packet other than TNT-8.
#[inline(always)]
fn longer(word: u64) -> Option<(Packet, usize)> {
    let opcode = word as u8;
    if opcode & 3 == 3 {
        return short_cyc(word).map(|(cycles, size)| (Packet::Cyc(cycles), size));
    }
    match opcode {
        0x2d => Some((Packet::Tip(IpPayload::Update16((word >> 8) as u16)), 3)),
        0x4d => Some((Packet::Tip(IpPayload::Update32((word >> 8) as u32)), 5)),
        0x6d => Some((Packet::Tip(IpPayload::Sext48(word >> 8 & ((1 << 48) - 1))), 7)),
        0x59 => Some((Packet::Mtc((word >> 8) as u8), 2)),
        0x02 if word as u16 == LONG_TNT && word >> 16 > 1 => Some((Packet::Tnt64(tnt(word >> 16)), 8)),
        _ => None,
    }
}

/// Decodes a TNT-8, outside a block of values.
#[inline(always)]
fn short_tnt(opcode: u8) -> Option<Tnt> {
    let (bits, count) = SHORT[usize::from(opcode)];
    (count > 0).then(|| Tnt { bits: bits.into(), count })
}

/// Returns the branches of each TNT-8 packet at the start of a word, from the lowest byte on.
#[inline(always)]
pub(crate) fn leading_tnts(mut word: u64) -> impl Iterator<Item = Tnt> {
    iter::from_fn(move || {
        let branches = short_tnt(word as u8);
        word >>= 8;
        branches
    })
}

/// The outcomes and their count of a TNT-8, by its byte; the count is 0 for other packets.
static SHORT: [(u8, u8); 256] = {
    let mut all = [(0, 0); 256];
    let mut opcode = 4;
    while opcode < all.len() {
        let field = opcode as u8 >> 1;
        let count = field.ilog2() as u8;
        all[opcode] = (field ^ 1 << count, count);
        opcode += 2;
    }
    all
};

/// Returns cycles and size of the CYC packet in the lowest bytes, if it has one or two bytes, and the second can't be
/// an overflow (erratum SKD007).
#[inline(always)]
pub(crate) fn short_cyc(word: u64) -> Option<(u64, usize)> {
    let (first, second) = (word & 0xff, word >> 8 & 0xff);
    // Without a branch on the size, which would often be mispredicted.
    let more = first >> 2 & 1;
    let high = (second >> 1) << 5 & more.wrapping_neg();
    let rare = second & 1 != 0 || (word >> 8) as u16 == OVERFLOW;
    (more == 0 || !rare).then_some((first >> 3 | high, 1 + more as usize))
}

/// The first bytes of a TNT-64.
pub(crate) const LONG_TNT: u16 = 0xa302;

/// The bytes of an OVF.
const OVERFLOW: u16 = 0xf302;

/// Returns the byte at `index` of a packet of `size` bytes.
fn byte(rest: &[u8], index: usize, size: u8) -> Result<u8, ErrorKind> {
    rest.get(index).copied().ok_or(ErrorKind::CutShort(size))
}

/// Reads `count` bytes, 1 to 8, from `start` as a little-endian integer.
#[inline(always)]
fn little_endian(rest: &[u8], start: usize, count: usize) -> Result<u64, ErrorKind> {
    // One wide load, except near the end of the stream.
    match rest.get(start..).and_then(<[u8]>::first_chunk) {
        Some(wide) => Ok(u64::from_le_bytes(*wide) & (u64::MAX >> (64 - 8 * count))),
        None => little_endian_at_end(rest, start, count),
    }
}

#[cold]
fn little_endian_at_end(rest: &[u8], start: usize, count: usize) -> Result<u64, ErrorKind> {
    let field = rest.get(start..start + count).ok_or(ErrorKind::CutShort((start + count) as u8))?;
    let mut wide = [0; 8];
    wide[..count].copy_from_slice(field);
    Ok(u64::from_le_bytes(wide))
}

/// Returns the branches below the stop bit, the highest bit set in `field`; `field` must not be zero.
pub(crate) fn tnt(field: u64) -> Tnt {
    let count = 63 - field.leading_zeros() as u8;
    Tnt { bits: field & !(1 << count), count }
}

fn block_item(opcode: u8, rest: &[u8], size: usize) -> Parsed {
    Ok((Packet::Bip { id: opcode >> 3, payload: little_endian(rest, 1, size)? }, 1 + size))
}

fn ip_packet(opcode: u8, rest: &[u8], kind: fn(IpPayload) -> Packet) -> Parsed {
    let (ip, size) = match opcode >> 5 {
        0 => (IpPayload::Suppressed, 0),
        1 => (IpPayload::Update16(little_endian(rest, 1, 2)? as u16), 2),
        2 => (IpPayload::Update32(little_endian(rest, 1, 4)? as u32), 4),
        3 => (IpPayload::Sext48(little_endian(rest, 1, 6)?), 6),
        4 => (IpPayload::Update48(little_endian(rest, 1, 6)?), 6),
        6 => (IpPayload::Full(little_endian(rest, 1, 8)?), 8),
        _ => return Err(ErrorKind::Malformed(opcode)),
    };
    Ok((kind(ip), 1 + size))
}

/// CYC: 5 bits in the first byte, and 7 in each further byte; a bit in each byte announces the next.
fn cyc(opcode: u8, rest: &[u8]) -> Parsed {
    let mut cycles = u64::from(opcode >> 3);
    let mut shift = 5;
    let mut more = opcode & 4 != 0;
    let mut size = 1;
    while more {
        let next = byte(rest, size, size as u8 + 1)?;
        let part = u64::from(next >> 1);
        if shift >= 64 || part << shift >> shift != part {
            return Err(ErrorKind::Malformed(next));
        }
        cycles |= part << shift;
        shift += 7;
        size += 1;
        more = next & 1 != 0;
    }
    Ok((Packet::Cyc(cycles), size))
}

fn mode(rest: &[u8]) -> Parsed {
    let bits = byte(rest, 1, 2)?;
    let bit = |index: u8| bits >> index & 1 == 1;
    match bits >> 5 {
        0 => Ok((Packet::ModeExec { cs_l: bit(0), cs_d: bit(1), interrupt_flag: bit(2) }, 2)),
        1 => Ok((Packet::ModeTsx { in_transaction: bit(0), aborted: bit(1) }, 2)),
        _ => Err(ErrorKind::Malformed(bits)),
    }
}

fn trig(rest: &[u8]) -> Parsed {
    let (flags, triggers) = (byte(rest, 1, 3)?, byte(rest, 2, 3)?);
    let counted = flags & 0x40 != 0;
    let instructions = if counted { Some(little_endian(rest, 3, 2)? as u16) } else { None };
    let packet = Packet::Trig { ip: flags & 0x80 != 0, instructions, multiple: flags & 0x20 != 0, triggers };
    Ok((packet, if counted { 5 } else { 3 }))
}

/// Packets whose first byte is 02.
fn extended(rest: &[u8]) -> Parsed {
    let opcode = byte(rest, 1, 2)?;
    let ip = opcode & 0x80 != 0;
    match opcode {
        0x82 => psb(rest),
        0x23 => Ok((Packet::PsbEnd, 2)),
        0xf3 => Ok((Packet::Overflow, 2)),
        0x83 => Ok((Packet::TraceStop, 2)),
        0x62 | 0xe2 => Ok((Packet::ExStop { ip }, 2)),
        0x33 | 0xb3 => Ok((Packet::Bep { ip }, 2)),
        0x03 => little_endian(rest, 2, 2).map(|field| (Packet::Cbr(field as u8), 4)),
        0xa3 => long_tnt(rest),
        0x43 => pip(rest),
        0x73 => tma(rest),
        0xc8 => Ok((Packet::Vmcs(little_endian(rest, 2, 5)? << 12), 7)),
        0xc3 => mnt(rest),
        _ if opcode & 0x1f == 0x12 => ptwrite(opcode, rest),
        _ => optional(opcode, rest),
    }
}

/// Packets of the power event, PEBS and event trace features.
fn optional(opcode: u8, rest: &[u8]) -> Parsed {
    match opcode {
        0xc2 => {
            let field = little_endian(rest, 2, 8)?;
            Ok((Packet::Mwait { hints: field as u8, extensions: (field >> 32) as u8 & 3 }, 10))
        }
        0x22 => {
            let [low, high] = (little_endian(rest, 2, 2)? as u16).to_le_bytes();
            Ok((Packet::Pwre { hardware: low & 0x80 != 0, state: high >> 4, sub_state: high & 15 }, 4))
        }
        0xa2 => {
            let [states, reason, ..] = little_endian(rest, 2, 5)?.to_le_bytes();
            Ok((Packet::Pwrx { last: states >> 4, deepest: states & 15, reason: reason & 15 }, 7))
        }
        0x63 => {
            let field = byte(rest, 2, 3)?;
            Ok((Packet::Bbp { short_items: field & 0x80 != 0, kind: field & 0x1f }, 3))
        }
        0x13 => {
            let [kind, vector] = (little_endian(rest, 2, 2)? as u16).to_le_bytes();
            Ok((Packet::Cfe { ip: kind & 0x80 != 0, kind: kind & 0x1f, vector }, 4))
        }
        0x53 => {
            let payload = little_endian(rest, 3, 8)?;
            Ok((Packet::Evd { kind: byte(rest, 2, 11)? & 0x3f, payload }, 11))
        }
        _ => Err(ErrorKind::UnknownExtendedOpcode(opcode)),
    }
}

fn psb(rest: &[u8]) -> Parsed {
    let bytes = rest.get(..PSB.len()).ok_or(ErrorKind::CutShort(PSB.len() as u8))?;
    match bytes.iter().zip(PSB).find(|&(&is, should)| is != should) {
        None => Ok((Packet::Psb, PSB.len())),
        Some((&is, _)) => Err(ErrorKind::Malformed(is)),
    }
}

fn long_tnt(rest: &[u8]) -> Parsed {
    let field = little_endian(rest, 2, 6)?;
    // A stop bit and no branch, or not even a stop bit.
    if field <= 1 {
        return Err(ErrorKind::Malformed(field as u8));
    }
    Ok((Packet::Tnt64(tnt(field)), 8))
}

fn pip(rest: &[u8]) -> Parsed {
    let field = little_endian(rest, 2, 6)?;
    Ok((Packet::Pip { cr3: field >> 1 << 5, non_root: field & 1 == 1 }, 8))
}

fn tma(rest: &[u8]) -> Parsed {
    let ctc = little_endian(rest, 2, 2)? as u16;
    let fast_counter = little_endian(rest, 5, 2)? as u16 & 0x1ff;
    Ok((Packet::Tma { ctc, fast_counter }, 7))
}

fn mnt(rest: &[u8]) -> Parsed {
    match byte(rest, 2, 11)? {
        0x88 => Ok((Packet::Mnt(little_endian(rest, 3, 8)?), 11)),
        other => Err(ErrorKind::Malformed(other)),
    }
}

fn ptwrite(opcode: u8, rest: &[u8]) -> Parsed {
    let (wide, size) = match opcode >> 5 & 3 {
        0 => (false, 4),
        1 => (true, 8),
        _ => return Err(ErrorKind::Malformed(opcode)),
    };
    let payload = little_endian(rest, 2, size)?;
    Ok((Packet::PtWrite { payload, wide, ip: opcode & 0x80 != 0 }, 2 + size))
}

#[cfg(test)]
mod tests;
