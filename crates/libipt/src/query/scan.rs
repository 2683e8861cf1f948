//! Looks ahead in the packets.

use hodo_intel_pt::{Erratum, packet::Packet};

use crate::{
    Error, Settings,
    packet::{self, Content, Kind, Sized},
};

/// Packets from a position on.
#[derive(Clone, Debug)]
pub(crate) struct Scan<'s> {
    settings: &'s Settings,
    pub(crate) position: usize,
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanned {
    pub(crate) kind: Kind,
    pub(crate) content: Content,
    pub(crate) size: usize,
    /// The position after it.
    pub(crate) end: usize,
}

impl Scanned {
    /// Returns the packet, if it is known.
    pub(crate) fn packet(&self) -> Option<Packet> {
        match self.content {
            Content::Known(packet) => Some(packet),
            _ => None,
        }
    }
}

impl<'s> Scan<'s> {
    /// Begins at a position.
    pub(crate) fn new(settings: &'s Settings, position: usize) -> Scan<'s> {
        Scan { settings, position }
    }

    /// Reads the next packet. After an error the position is unchanged.
    pub(crate) fn next(&mut self) -> Result<Scanned, Error> {
        let kind = Kind::at(self.settings.trace, self.position)?;
        let Sized { content, size } = read(self.settings, self.position, kind)?;
        let scanned = Scanned { kind, content, size, end: self.position + size };
        self.position = scanned.end;
        Ok(scanned)
    }

    /// Returns whether a FUP is in the PSB+ at the position, with its packet.
    pub(crate) fn fup_of_header(&mut self) -> Result<Option<Packet>, Error> {
        loop {
            let scanned = self.next()?;
            match scanned.kind {
                Kind::PsbEnd => return Ok(None),
                Kind::Fup => return Ok(scanned.packet()),
                _ => {}
            }
        }
    }
}

/// Reads the packet of the given kind at a position. Erratum SKZ84: a TMA may be wrong; then a bogus byte follows.
pub(crate) fn read(settings: &Settings, position: usize, kind: Kind) -> Result<Sized, Error> {
    const DAMAGED_TMA: usize = 8;
    match packet::read(settings, position, kind) {
        Err(Error::BAD_PACKET) if kind == Kind::Tma && settings.has(Erratum::Skz84) => {
            // It may end behind the trace; then the next packet is out of it.
            Ok(Sized { content: Content::Invalid, size: DAMAGED_TMA })
        }
        read => read,
    }
}

/// Erratum SKD007: whether the second byte of a CYC begins an OVF. The bytes would be two CYCs in a row, which occur only
/// when the counter wraps, with all bits set.
pub(crate) fn is_overflow_in_cyc(settings: &Settings, position: usize, sized: &Sized) -> bool {
    const OVERFLOW: &[u8] = &[0x02, 0xf3];
    matches!(sized.content, Content::Known(Packet::Cyc(_)))
        && sized.size == 2
        && settings.has(Erratum::Skd007)
        && settings.trace[position + 1..].starts_with(OVERFLOW)
}
