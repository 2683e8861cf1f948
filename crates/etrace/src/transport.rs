//! How packets are put into a stream of bytes.
//!
//! Sources: Efficient Trace for RISC-V, "Instruction Trace Encoder Output Packets" (the messaging infrastructure) and its
//! reference flow (files of packets); Unformatted Trace & Diagnostic Data Packet Encapsulation for RISC-V; ESP32-C6
//! Technical Reference Manual, "RISC-V Trace Encoder".

use hodo_flow::{PacketError, Trouble};
use serde::Deserialize;

use crate::{ParameterError, parameters::mask};

/// The way in which packets are put into bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Transport {
    /// A header byte with length, kind and whether a time follows; the source; the packet. Files of the reference flow
    /// have no sources and no times.
    Messages {
        /// Bits of the source.
        #[serde(default)]
        source_width: u8,
    },
    /// The encapsulation for carriers without frames.
    Encapsulation {
        /// Bits of the source.
        #[serde(default)]
        source_width: u8,
        /// Bytes of a time.
        #[serde(default)]
        time_bytes: u8,
        /// Bits of the kind of packet: 0 if there is only instruction trace.
        #[serde(default)]
        kind_width: u8,
    },
    /// A header byte with length, and two bytes with an index.
    Esp32,
}

impl Default for Transport {
    /// As files of the reference flow.
    fn default() -> Transport {
        Transport::Messages { source_width: 0 }
    }
}

/// What a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Instruction trace.
    Instruction,
    /// Data trace.
    Data,
    /// Something else.
    Other(u8),
}

/// A packet in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'t> {
    /// Position of its first byte.
    pub at: usize,
    /// The encoder that sent it.
    pub source: u16,
    /// The time at which it entered the carrier, without unit.
    pub time: Option<u64>,
    /// What it is part of.
    pub kind: Kind,
    /// The bytes that contain the packet.
    pub payload: &'t [u8],
    /// Number of bits of `payload` before the packet.
    pub skip: u8,
}

/// Bytes that are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The stream ends within a packet.
    #[error("the stream ends within a packet of {0} bytes")]
    CutShort(u8),
    /// The header has bits that no packet has.
    #[error("a header of {0:#x}")]
    Header(u8),
    /// The packet is shorter than the fields before its payload.
    #[error("a packet without payload")]
    Empty,
}

impl Error {
    /// As the reason of a gap.
    pub(crate) fn trouble(self) -> Trouble {
        Trouble::Packet(match self {
            Error::CutShort(size) => PacketError::CutShort(size),
            Error::Header(byte) => PacketError::UnknownOpcode(byte),
            Error::Empty => PacketError::Malformed(0),
        })
    }
}

/// Header: length of the payload, or 0 for a byte of padding.
const LENGTH: u8 = 0x1f;
/// Header: whether a time follows; of padding, whether a packet follows it.
const EXTENDED: u8 = 0x80;
/// Bytes of a time in messages.
const MESSAGE_TIME: usize = 2;

/// Reads the packets of a stream.
#[derive(Clone, Debug)]
pub struct Units<'t> {
    bytes: &'t [u8],
    at: usize,
    transport: Transport,
}

impl<'t> Units<'t> {
    /// Begins at a position that must be the start of a packet.
    pub fn new(bytes: &'t [u8], at: usize, transport: Transport) -> Units<'t> {
        Units { bytes, at, transport }
    }

    /// Position of the next packet, or of padding before it.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the next packet. After an error the position is behind the bytes that are none, and the next call
    /// continues there: [`Units::synchronize`] finds a packet for sure.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    #[inline]
    pub fn next_unit(&mut self) -> Result<Option<Unit<'t>>, Error> {
        loop {
            let Some(&header) = self.bytes.get(self.at) else { return Ok(None) };
            let size = self.transport.size(header);
            // A byte of padding.
            if header & LENGTH == 0 && !matches!(self.transport, Transport::Esp32) {
                self.at += 1;
                continue;
            }
            let (at, length) = (self.at, size);
            let Some(bytes) = self.bytes[at..].get(..length) else {
                self.at = self.bytes.len();
                return Err(Error::CutShort(length as u8));
            };
            self.at += length;
            if header == 0 {
                continue;
            }
            return self.transport.unit(at, bytes).map(Some);
        }
    }

    /// Finds the next packet behind so much padding that it can't be part of a packet; returns whether there is one.
    pub fn synchronize(&mut self) -> bool {
        let needed = self.transport.padding();
        let mut zeros = 0;
        while let Some(&byte) = self.bytes.get(self.at) {
            let is_padding = byte & LENGTH == 0;
            if !is_padding && zeros >= needed {
                return true;
            }
            zeros = if is_padding { zeros + 1 } else { 0 };
            self.at += 1;
        }
        false
    }
}

impl Transport {
    /// Checks the widths of its fields.
    ///
    /// # Errors
    /// The first one that is out of range.
    pub fn check(self) -> Result<(), ParameterError> {
        let fields = match self {
            Transport::Messages { source_width } => {
                [("source_width", source_width, 16), ("", 0, 0), ("", 0, 0)]
            }
            Transport::Encapsulation { source_width, time_bytes, kind_width } => [
                ("source_width", source_width, 16),
                ("time_bytes", time_bytes, 8),
                ("kind_width", kind_width, 8),
            ],
            Transport::Esp32 => return Ok(()),
        };
        match fields.into_iter().find(|(_, value, high)| value > high) {
            Some((name, value, high)) => Err(ParameterError::Range { name, value, low: 0, high }),
            None => Ok(()),
        }
    }

    /// Bytes of the whole packet, for its first byte.
    fn size(self, header: u8) -> usize {
        let (length, extended) = (usize::from(header & LENGTH), header & EXTENDED != 0);
        match self {
            Transport::Messages { source_width } => {
                let time = if extended { MESSAGE_TIME } else { 0 };
                1 + time + usize::from(source_width).div_ceil(8) + length
            }
            Transport::Encapsulation { source_width, time_bytes, .. } => {
                let time = if extended { usize::from(time_bytes) } else { 0 };
                1 + time + usize::from(source_width) / 8 + length
            }
            // The length includes the header.
            Transport::Esp32 => length.max(3),
        }
    }

    /// Bytes of padding that can't be within a packet.
    fn padding(self) -> usize {
        match self {
            Transport::Messages { source_width } => 32 + MESSAGE_TIME + usize::from(source_width).div_ceil(8),
            Transport::Encapsulation { source_width, time_bytes, .. } => {
                31 + usize::from(time_bytes) + usize::from(source_width) / 8
            }
            Transport::Esp32 => 32,
        }
    }

    fn unit(self, at: usize, bytes: &[u8]) -> Result<Unit<'_>, Error> {
        let header = bytes[0];
        let mut unit =
            Unit { at, source: 0, time: None, kind: Kind::Instruction, payload: &bytes[1..], skip: 0 };
        match self {
            Transport::Messages { source_width } => {
                unit.kind = match header >> 5 & 3 {
                    2 => Kind::Instruction,
                    3 => Kind::Data,
                    other => Kind::Other(other),
                };
                if header & EXTENDED != 0 {
                    unit.time = Some(unit.take(8 * MESSAGE_TIME as u8)?);
                }
                unit.source = unit.take(source_width)? as u16;
                // The packet begins with a whole byte.
                unit.take((8 - source_width % 8) % 8)?;
            }
            Transport::Encapsulation { source_width, time_bytes, kind_width } => {
                unit.source = unit.take(source_width)? as u16;
                if header & EXTENDED != 0 {
                    unit.time = Some(unit.take(8 * time_bytes)?);
                }
                unit.kind = match unit.take(kind_width)? {
                    0 => Kind::Instruction,
                    1 => Kind::Data,
                    other => Kind::Other(other as u8),
                };
            }
            Transport::Esp32 => {
                if !(4..=LENGTH).contains(&header) {
                    return Err(Error::Header(header));
                }
                unit.source = unit.take(16)? as u16;
            }
        }
        match unit.payload.is_empty() {
            true => Err(Error::Empty),
            false => Ok(unit),
        }
    }

    /// Appends a packet to a stream. The payload has at most 31 bytes, less those of the fields before it.
    pub fn write(self, unit: &Unit<'_>, to: &mut Vec<u8>) {
        let payload = unit.payload;
        match self {
            Transport::Messages { source_width } => {
                let kind = match unit.kind {
                    Kind::Instruction => 2,
                    Kind::Data => 3,
                    Kind::Other(other) => other,
                };
                let extended = if unit.time.is_some() { EXTENDED } else { 0 };
                to.push(header_length(payload.len()) | kind << 5 | extended);
                if let Some(time) = unit.time {
                    to.extend(&time.to_le_bytes()[..MESSAGE_TIME]);
                }
                to.extend(&unit.source.to_le_bytes()[..usize::from(source_width).div_ceil(8)]);
                to.extend(payload);
            }
            Transport::Encapsulation { source_width, time_bytes, kind_width } => {
                let mut bits = Appended::default();
                bits.put(unit.source.into(), source_width);
                if let Some(time) = unit.time {
                    bits.put(time, 8 * time_bytes);
                }
                let kind = match unit.kind {
                    Kind::Instruction => 0,
                    Kind::Data => 1,
                    Kind::Other(other) => other,
                };
                bits.put(kind.into(), kind_width);
                for &byte in payload {
                    bits.put(byte.into(), 8);
                }
                // The payload's sign fills the last byte.
                let sign = if payload.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
                bits.put(sign, (8 - bits.bits % 8) % 8);
                // Fields before it may leave a byte that only repeats the sign.
                let fields = usize::from(source_width) + unit.time.map_or(0, |_| 8 * usize::from(time_bytes));
                let least = (fields + usize::from(kind_width)) / 8 + 1;
                if let [.., before, last] = bits.bytes[..]
                    && bits.bytes.len() > least
                    && u64::from(last) == sign
                    && before & 0x80 == last & 0x80
                {
                    bits.bytes.pop();
                }
                let outside =
                    usize::from(source_width) / 8 + unit.time.map_or(0, |_| usize::from(time_bytes));
                let extended = if unit.time.is_some() { EXTENDED } else { 0 };
                to.push(header_length(bits.bytes.len() - outside) | extended);
                to.extend(bits.bytes);
            }
            Transport::Esp32 => {
                to.push(header_length(payload.len() + 3));
                to.extend(unit.source.to_le_bytes());
                to.extend(payload);
            }
        }
    }

    /// Appends so much padding that a reader which begins anywhere before it finds the packet behind it.
    pub fn write_padding(self, to: &mut Vec<u8>) {
        to.resize(to.len() + self.padding(), 0);
        if matches!(self, Transport::Encapsulation { .. }) {
            to.push(EXTENDED);
        }
    }
}

fn header_length(bytes: usize) -> u8 {
    assert!((1..=usize::from(LENGTH)).contains(&bytes), "a packet of {bytes} bytes does not fit its header");
    bytes as u8
}

impl Unit<'_> {
    /// Takes a field from the front of the payload.
    fn take(&mut self, width: u8) -> Result<u64, Error> {
        let end = usize::from(self.skip) + usize::from(width);
        let needed = self.payload.get(..end.div_ceil(8)).ok_or(Error::Empty)?;
        let mut field = 0_u128;
        for (index, &byte) in needed.iter().enumerate() {
            field |= u128::from(byte) << (8 * index);
        }
        let value = (field >> self.skip) as u64 & mask(width);
        self.payload = &self.payload[end / 8..];
        self.skip = (end % 8) as u8;
        Ok(value)
    }
}

/// A growing string of bits.
#[derive(Default)]
struct Appended {
    bytes: Vec<u8>,
    bits: u8,
}

impl Appended {
    fn put(&mut self, value: u64, width: u8) {
        for index in 0..width {
            if self.bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> index & 1) as u8) << (self.bits % 8);
            }
            self.bits = (self.bits + 1) % 8;
        }
    }
}
