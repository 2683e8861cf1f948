//! Packets as libipt tells them apart: first by opcode, then with their payload.

use hodo_intel_pt::packet::{Decoder, ErrorKind, IpPayload, Packet};

use crate::{Error, Settings};

/// What a packet is by its opcode alone; its payload may still be wrong or cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unknown,
    Pad,
    Psb,
    PsbEnd,
    Tip,
    TipPge,
    TipPgd,
    Fup,
    Tnt8,
    Tnt64,
    Mode,
    Pip,
    Vmcs,
    Cbr,
    Tsc,
    Tma,
    Mtc,
    Cyc,
    Stop,
    Overflow,
    Mnt,
    ExStop,
    Mwait,
    Pwre,
    Pwrx,
    Ptw,
}

impl Kind {
    /// Returns the kind of the packet at a position.
    pub(crate) fn at(trace: &[u8], position: usize) -> Result<Kind, Error> {
        let rest = trace.get(position..).ok_or(Error::NO_SYNC)?;
        let &opcode = rest.first().ok_or(Error::END)?;
        Ok(match opcode {
            0x00 => Kind::Pad,
            0x02 => return Kind::extended(rest),
            0x99 => Kind::Mode,
            0x19 => Kind::Tsc,
            0x59 => Kind::Mtc,
            _ if opcode & 1 == 0 => Kind::Tnt8,
            _ if opcode & 3 == 3 => Kind::Cyc,
            _ => match opcode & 0x1f {
                0x0d => Kind::Tip,
                0x1d => Kind::Fup,
                0x11 => Kind::TipPge,
                0x01 => Kind::TipPgd,
                _ => Kind::Unknown,
            },
        })
    }

    /// Packets whose first byte is 02.
    fn extended(rest: &[u8]) -> Result<Kind, Error> {
        let &opcode = rest.get(1).ok_or(Error::END)?;
        Ok(match opcode {
            0x82 => Kind::Psb,
            0xf3 => Kind::Overflow,
            0xa3 => Kind::Tnt64,
            0x23 => Kind::PsbEnd,
            0x03 => Kind::Cbr,
            0x43 => Kind::Pip,
            0x73 => Kind::Tma,
            0x83 => Kind::Stop,
            0xc8 => Kind::Vmcs,
            0x62 | 0xe2 => Kind::ExStop,
            0xc2 => Kind::Mwait,
            0x22 => Kind::Pwre,
            0xa2 => Kind::Pwrx,
            0xc3 => match rest.get(2).ok_or(Error::END)? {
                0x88 => Kind::Mnt,
                _ => Kind::Unknown,
            },
            _ if opcode & 0x1f == 0x12 => Kind::Ptw,
            _ => Kind::Unknown,
        })
    }

    /// Whether the query decoder stops before it, as it makes an event.
    pub(crate) fn makes_event(self) -> bool {
        use Kind::*;
        matches!(
            self,
            TipPge
                | TipPgd
                | Mode
                | Pip
                | Vmcs
                | Cbr
                | Stop
                | Overflow
                | Mnt
                | ExStop
                | Mwait
                | Pwre
                | Pwrx
                | Ptw
        )
    }
}

/// A packet with its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A packet that is known.
    Known(Packet),
    /// The operands of an MWAIT with all bits, reserved ones too.
    Mwait { hints: u32, extensions: u32 },
    /// A packet that the caller's callback decoded; its private pointer as an integer.
    Unknown { private: usize },
    /// A packet that erratum SKZ84 damaged.
    Invalid,
}

/// A packet and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sized {
    pub(crate) content: Content,
    pub(crate) size: usize,
}

/// The longest CYC packet that libipt accepts: 61 bits of cycles.
const LONGEST_CYC: usize = 9;

/// Reads the packet of the given kind at a position.
pub(crate) fn read(settings: &Settings, position: usize, kind: Kind) -> Result<Sized, Error> {
    let trace = settings.trace;
    if kind == Kind::Unknown {
        return settings.unknown_packet(position);
    }
    let mut decoder = Decoder::new(trace, position);
    match decoder.next_packet() {
        Ok(Some(packet)) => {
            let size = decoder.position() - position;
            let content = adjust(packet, &trace[position..position + size])?;
            Ok(Sized { content, size })
        }
        Ok(None) => Err(Error::END),
        Err(error) => Err(match error.kind {
            // One byte more than was there is announced.
            ErrorKind::CutShort(size) if kind == Kind::Cyc && usize::from(size) > LONGEST_CYC + 1 => {
                Error::BAD_PACKET
            }
            ErrorKind::CutShort(_) => Error::END,
            _ => Error::BAD_PACKET,
        }),
    }
}

/// Applies what libipt reads otherwise.
fn adjust(packet: Packet, bytes: &[u8]) -> Result<Content, Error> {
    match packet {
        Packet::Cyc(_) if bytes.len() > LONGEST_CYC => Err(Error::BAD_PACKET),
        Packet::Tma { .. } if bytes[4] != 0 || bytes[6] & 0xfe != 0 => Err(Error::BAD_PACKET),
        Packet::Mwait { .. } => {
            let operand =
                |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            Ok(Content::Mwait { hints: operand(2), extensions: operand(6) })
        }
        Packet::Pwre { state, sub_state, .. } => {
            // libipt 2.0.5 takes bit 3 for the one that tells who asked.
            let hardware = bytes[2] & 8 != 0;
            Ok(Content::Known(Packet::Pwre { hardware, state, sub_state }))
        }
        packet => Ok(Content::Known(packet)),
    }
}

/// The last IP of a stream: `NO_IP` before the first, `IP_SUPPRESSED` after a packet without one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastIp {
    ip: u64,
    known: bool,
    suppressed: bool,
}

impl LastIp {
    /// Applies the payload of a packet.
    pub(crate) fn apply(&mut self, payload: IpPayload) {
        let keep = |bits: u32, low: u64| self.ip & (u64::MAX << bits) | low;
        let ip = match payload {
            IpPayload::Suppressed => {
                self.suppressed = true;
                return;
            }
            IpPayload::Update16(low) => keep(16, low.into()),
            IpPayload::Update32(low) => keep(32, low.into()),
            IpPayload::Sext48(low) => ((low << 16) as i64 >> 16) as u64,
            IpPayload::Update48(low) => keep(48, low),
            IpPayload::Full(ip) => ip,
        };
        *self = LastIp { ip, known: true, suppressed: false };
    }

    /// Returns the IP.
    pub(crate) fn get(&self) -> Result<u64, Error> {
        match self {
            LastIp { known: false, .. } => Err(Error::NO_IP),
            LastIp { suppressed: true, .. } => Err(Error::IP_SUPPRESSED),
            LastIp { ip, .. } => Ok(*ip),
        }
    }
}
