//! Decodes bytes to packets.

use std::fmt;

use hodo_flow::PacketError;

use super::{Address, Atoms, Context, Exception, Packet, TraceInfo};
use crate::Config;

/// The bytes of an A-Sync packet.
pub const A_SYNC: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];

/// The header of a Trace Info packet.
const TRACE_INFO: u8 = 1;

/// Returns the position of the first A-Sync that a Trace Info follows: there decoding can begin.
///
/// Other bytes may end in zeros before an A-Sync, so its last twelve bytes count.
pub fn find_sync(bytes: &[u8]) -> Option<usize> {
    let mut found = memchr::memmem::find_iter(bytes, &A_SYNC);
    found.find(|&at| bytes.get(at + A_SYNC.len()) == Some(&TRACE_INFO))
}

/// Bytes that are no valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset of the packet, in bytes from the start of the stream.
    pub at: u64,
    /// The reason.
    pub kind: PacketError,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for Error {}

/// Reads packets in sequence. It keeps the addresses and the time that later packets refer to.
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    pub(super) bytes: &'t [u8],
    pub(super) position: usize,
    config: Config,
    /// The three newest addresses, the newest first.
    recent: [Address; 3],
    time: u64,
    /// What is added to cycle counts.
    threshold: u32,
}

type Parsed<T> = Result<T, PacketError>;

impl<'t> Decoder<'t> {
    /// Creates a decoder that begins at `position`.
    pub fn new(bytes: &'t [u8], position: usize, config: &Config) -> Decoder<'t> {
        Decoder { bytes, position, config: *config, recent: [Address::default(); 3], time: 0, threshold: 0 }
    }

    /// Returns the position of the next packet.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Continues at another position. What packets refer to is kept.
    pub fn set_position(&mut self, position: usize) {
        self.position = position;
    }

    /// Returns the next packet, or `None` at the end.
    ///
    /// # Errors
    /// The bytes are no valid packet. The position stays.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, Error> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let Some((&header, payload)) = rest.split_first() else { return Ok(None) };
        let mut fields = Fields { payload, taken: 0 };
        match self.parse(header, &mut fields) {
            Ok(packet) => {
                self.position += 1 + fields.taken;
                Ok(Some(packet))
            }
            Err(kind) => Err(Error { at: self.position as u64, kind }),
        }
    }

    fn parse(&mut self, header: u8, fields: &mut Fields<'_>) -> Parsed<Packet> {
        match header {
            0xc0..=0xff => Ok(Packet::Atoms(atoms(header))),
            0x90..=0x9f => self.address_packet(header, fields),
            0x00 => extension(fields),
            TRACE_INFO => self.trace_info(fields),
            0x02 | 0x03 => self.timestamp(header, fields),
            0x04 => Ok(Packet::TraceOn),
            0x06 => exception(fields, self.config.is_m_profile),
            0x05 => Ok(Packet::Ignore),
            0x07 => Ok(Packet::ExceptionReturn),
            0x09 if self.config.is_ete => {
                Ok(Packet::Instrumentation { level: fields.byte()? & 0b11, value: fields.little_endian(8)? })
            }
            0x0a | 0x0b if self.config.is_ete => Ok(Packet::Transaction { begins: header == 0x0a }),
            0x0c..=0x1f => self.cycles(header, fields),
            // Markers of a data trace beside this one.
            0x20..=0x2c => Ok(Packet::Ignore),
            0x2d => Ok(Packet::Commit(fields.variable()?)),
            0x2e..=0x3f => cancel(header, fields),
            0x70 => Ok(Packet::Ignore),
            0x71..=0x7f => Ok(Packet::Event(header & 0xf)),
            0x80 => Ok(Packet::Context(Context { is_same: true, ..Context::default() })),
            0x81 => Ok(Packet::Context(self.context(fields)?)),
            0x82 | 0x83 | 0x85 | 0x86 => {
                let address = self.long(header >= 0x85, matches!(header, 0x83 | 0x86), fields)?;
                let context = self.context(fields)?;
                self.remember(address);
                Ok(Packet::AddressContext(address, context))
            }
            0x88 if self.config.is_ete => Ok(Packet::TimestampMarker),
            0xa0..=0xaf => self.q(header, fields),
            0xb0..=0xb9 if self.config.is_ete => self.source_address(header, fields),
            _ => Err(PacketError::UnknownOpcode(header)),
        }
    }

    #[inline]
    pub(super) fn remember(&mut self, address: Address) {
        self.recent = [address, self.recent[0], self.recent[1]];
    }

    fn address_packet(&mut self, header: u8, fields: &mut Fields<'_>) -> Parsed<Packet> {
        let address = self.address(header & 0xf, fields)?;
        self.remember(address);
        Ok(Packet::Address(address))
    }

    /// An address, by the low bits of its header.
    #[inline]
    pub(super) fn address(&self, kind: u8, fields: &mut Fields<'_>) -> Parsed<Address> {
        match kind {
            0..=2 => Ok(self.recent[kind as usize]),
            5 | 6 => self.short(kind == 6, fields),
            0xa | 0xb => self.long(false, kind == 0xb, fields),
            0xd | 0xe => self.long(true, kind == 0xe, fields),
            _ => Err(PacketError::UnknownOpcode(0x90 | kind)),
        }
    }

    /// The low bits of an address whose others are those of the newest.
    fn short(&self, is_t32: bool, fields: &mut Fields<'_>) -> Parsed<Address> {
        let shift = if is_t32 { 1 } else { 2 };
        let low = fields.byte()?;
        let (mut value, mut bits) = (u64::from(low & 0x7f) << shift, 7 + shift);
        if low & 0x80 != 0 {
            value |= u64::from(fields.byte()?) << bits;
            bits += 8;
        }
        Ok(Address { value: value | self.recent[0].value >> bits << bits, is_t32 })
    }

    fn long(&self, is_64: bool, is_t32: bool, fields: &mut Fields<'_>) -> Parsed<Address> {
        let (first, second) = (u64::from(fields.byte()?), u64::from(fields.byte()?));
        let low = match is_t32 {
            true => (first & 0x7f) << 1 | second << 8,
            false => (first & 0x7f) << 2 | (second & 0x7f) << 9,
        };
        let value = match is_64 {
            true => low | fields.little_endian(6)? << 16,
            false => low | fields.little_endian(2)? << 16 | self.recent[0].value >> 32 << 32,
        };
        Ok(Address { value, is_t32 })
    }

    fn context(&self, fields: &mut Fields<'_>) -> Parsed<Context> {
        let info = fields.byte()?;
        let mut field = |is_present: bool, bytes: u8| -> Parsed<Option<u32>> {
            match is_present {
                true => Ok(Some(fields.little_endian(bytes)? as u32)),
                false => Ok(None),
            }
        };
        Ok(Context {
            is_same: false,
            level: info & 0b11,
            is_64: info & 0x10 != 0,
            is_non_secure: info & 0x20 != 0,
            virtual_context: field(info & 0x40 != 0, self.config.virtual_context_bytes)?,
            context_id: field(info & 0x80 != 0, self.config.context_id_bytes)?,
        })
    }

    fn trace_info(&mut self, fields: &mut Fields<'_>) -> Parsed<Packet> {
        const INFO: u64 = 1;
        const KEY: u64 = 2;
        const SPECULATION: u64 = 4;
        const CYCLES: u64 = 8;
        const WINDOW: u64 = 16;
        let present = fields.wide_variable()?;
        let mut section = |bit: u64| match present & bit {
            0 => Ok(0),
            _ => fields.variable(),
        };
        let info = section(INFO)?;
        section(KEY)?;
        let speculation = section(SPECULATION)?;
        let threshold = section(CYCLES)?;
        section(WINDOW)?;
        self.recent = [Address::default(); 3];
        self.time = 0;
        self.threshold = threshold;
        Ok(Packet::TraceInfo(TraceInfo { cycle_counts: info & 1 == 1, speculation, threshold }))
    }

    fn timestamp(&mut self, header: u8, fields: &mut Fields<'_>) -> Parsed<Packet> {
        /// The last byte has eight bits.
        const LAST: u32 = 8;
        let (mut value, mut bits) = (0u64, 0);
        for index in 0..=LAST {
            let byte = fields.byte()?;
            let is_last = index == LAST;
            let part = if is_last { byte } else { byte & 0x7f };
            value |= u64::from(part) << (7 * index);
            bits = 7 * (index + 1) + u32::from(is_last);
            if byte & 0x80 == 0 {
                break;
            }
        }
        let kept = if bits >= 64 { 0 } else { self.time >> bits << bits };
        self.time = kept | value;
        let cycles = if header & 1 == 1 { Some(fields.variable()?) } else { None };
        Ok(Packet::Timestamp { time: self.time, cycles })
    }

    fn cycles(&self, header: u8, fields: &mut Fields<'_>) -> Parsed<Packet> {
        let counted = |count: u32| Some(count.saturating_add(self.threshold));
        Ok(match header {
            0x0c | 0x0d => {
                let byte = fields.byte()?;
                let high = u32::from(byte >> 4);
                let commits = match header {
                    0x0c => high + 1,
                    _ => (high + self.config.speculation_depth).saturating_sub(15),
                };
                Packet::Cycles { commits, count: counted((byte & 0xf).into()) }
            }
            0x0e | 0x0f => {
                let commits = if self.config.commits_apart { 0 } else { fields.variable()? };
                let count = if header == 0x0e { counted(fields.variable()?) } else { None };
                Packet::Cycles { commits, count }
            }
            _ => {
                let commits = if self.config.commits_apart { 0 } else { u32::from(header >> 2 & 0b11) + 1 };
                Packet::Cycles { commits, count: counted((header & 0b11).into()) }
            }
        })
    }

    fn q(&mut self, header: u8, fields: &mut Fields<'_>) -> Parsed<Packet> {
        let kind = header & 0xf;
        let address = match kind {
            0..=2 | 5 | 6 | 0xa | 0xb => Some(self.address(kind, fields)?),
            0xc | 0xf => None,
            _ => return Err(PacketError::UnknownOpcode(header)),
        };
        if let Some(address) = address {
            self.remember(address);
        }
        let count = if kind == 0xf { None } else { Some(fields.variable()?) };
        Ok(Packet::Q { count, address })
    }

    fn source_address(&mut self, header: u8, fields: &mut Fields<'_>) -> Parsed<Packet> {
        let address = match header & 0xf {
            kind @ 0..=2 => self.recent[kind as usize],
            kind @ (4 | 5) => self.short(kind == 5, fields)?,
            kind @ (6 | 7) => self.long(false, kind == 7, fields)?,
            kind @ (8 | 9) => self.long(true, kind == 9, fields)?,
            _ => return Err(PacketError::UnknownOpcode(header)),
        };
        self.remember(address);
        Ok(Packet::SourceAddress(address))
    }
}

/// The bytes after a header.
pub(super) struct Fields<'t> {
    pub(super) payload: &'t [u8],
    pub(super) taken: usize,
}

impl Fields<'_> {
    fn byte(&mut self) -> Parsed<u8> {
        let byte = self.payload.get(self.taken).ok_or(PacketError::CutShort(self.taken as u8 + 2))?;
        self.taken += 1;
        Ok(*byte)
    }

    fn little_endian(&mut self, bytes: u8) -> Parsed<u64> {
        let mut value = 0;
        for index in 0..bytes {
            value |= u64::from(self.byte()?) << (8 * index);
        }
        Ok(value)
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
    fn variable(&mut self) -> Parsed<u32> {
        let value = self.wide_variable()?;
        u32::try_from(value).map_err(|_| PacketError::Malformed((value >> 28) as u8))
    }

    fn wide_variable(&mut self) -> Parsed<u64> {
        /// The longest field has 32 bits.
        const MOST: u32 = 5;
        let mut value = 0;
        for index in 0..MOST {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(PacketError::Malformed(0x80))
    }
}

fn extension(fields: &mut Fields<'_>) -> Parsed<Packet> {
    match fields.byte()? {
        0x03 => Ok(Packet::Discard),
        0x05 => Ok(Packet::Overflow),
        0x00 => {
            for &expected in &A_SYNC[2..] {
                let byte = fields.byte()?;
                if byte != expected {
                    return Err(PacketError::Malformed(byte));
                }
            }
            Ok(Packet::Synchronization)
        }
        other => Err(PacketError::Malformed(other)),
    }
}

fn exception(fields: &mut Fields<'_>, is_m_profile: bool) -> Parsed<Packet> {
    let first = fields.byte()?;
    let mut kind = u16::from(first >> 1 & 0x1f);
    if first & 0x80 != 0 {
        kind |= u16::from(fields.byte()? & 0x1f) << 5;
    }
    match (first >> 6 & 1, first & 1) {
        (0, 1) => Ok(Packet::Exception(Exception { kind, is_target: false, is_m_profile })),
        (1, 0) => Ok(Packet::Exception(Exception { kind, is_target: true, is_m_profile })),
        _ => Err(PacketError::Malformed(first)),
    }
}

fn cancel(header: u8, fields: &mut Fields<'_>) -> Parsed<Packet> {
    /// Bits 1:0 of formats with atoms: none, E, EE, N.
    const BEFORE: [Atoms; 4] = [
        Atoms { bits: 0, count: 0 },
        Atoms { bits: 1, count: 1 },
        Atoms { bits: 0b11, count: 2 },
        Atoms { bits: 0, count: 1 },
    ];
    let atoms = BEFORE[usize::from(header & 0b11)];
    Ok(match header {
        0x2e | 0x2f => {
            Packet::Cancel { atoms: Atoms::default(), count: fields.variable()?, mispredict: header & 1 == 1 }
        }
        0x30..=0x33 => Packet::Mispredict(atoms),
        0x34..=0x37 => Packet::Cancel { atoms, count: 1, mispredict: true },
        _ => {
            let atoms = Atoms { bits: 1, count: header & 1 };
            Packet::Cancel { atoms, count: u32::from(header >> 1 & 0b11) + 2, mispredict: true }
        }
    })
}

/// Atoms of all six formats.
pub(super) const fn atoms(header: u8) -> Atoms {
    let (bits, count) = match header {
        0xf6 | 0xf7 => (header as u32 & 1, 1),
        0xd8..=0xdb => (header as u32 & 0b11, 2),
        0xf8..=0xff => (header as u32 & 0b111, 3),
        0xdc => (0b1110, 4),
        0xdd => (0b0000, 4),
        0xde => (0b1010, 4),
        0xdf => (0b0101, 4),
        0xf5 => (0b11110, 5),
        0xd5 => (0b00000, 5),
        0xd6 => (0b01010, 5),
        0xd7 => (0b10101, 5),
        // C0 to D4, E0 to F4: E atoms, and one more.
        _ => {
            let taken = (header as u32 & 0x1f) + 3;
            let last = (header & 0x20 == 0) as u32;
            (((1 << taken) - 1) | (last << taken), taken as u8 + 1)
        }
    };
    Atoms { bits, count }
}
