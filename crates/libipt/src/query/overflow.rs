//! Overflows: where tracing resumes, and whether it is on there.

use hodo_intel_pt::{
    Erratum,
    packet::{IpPayload, Packet},
};

use super::{Query, Scan};
use crate::{
    Error,
    event::{Binding, Event, What},
    packet::{Content, Kind},
    time::{Clock, Place},
};

/// What a look ahead found.
enum Found {
    /// The erratum does not apply.
    Nothing,
    /// Tracing is on at an address, and goes on at a position.
    On { ip: IpPayload, position: usize, clock: Clock },
    /// Tracing is off, and goes on at a position.
    Off { position: usize, clock: Clock },
}

impl Query {
    pub(super) fn overflow(&mut self) -> Result<(), Error> {
        if self.publish_of_header()? {
            return Ok(());
        }
        let time = self.clock.time;
        self.reset();
        self.clock.time = time;
        self.advance(2);
        // With tracing on, only timing packets stand between the OVF and its FUP. With tracing off, the first other
        // packet tells.
        match self.fup_of_overflow() {
            Ok(Some(end)) => {
                if self.settings.has(Erratum::Apl12) && self.is_off_after(end)? {
                    return self.resume_off_at(end);
                }
                let event = Event::at(What::Overflow { ip: 0 }, &self.clock.time);
                self.waiting.push(Binding::Fup, event).map_err(|_| Error::INTERNAL)?;
                self.enabled = true;
                Ok(())
            }
            other => {
                if self.settings.has(Erratum::Skd010) && self.apply_skd010()? {
                    return Ok(());
                }
                let refused = other.err();
                if refused == Some(Error::BAD_CONTEXT)
                    && self.settings.has(Erratum::Apl11)
                    && self.apply_apl11()?
                {
                    return Ok(());
                }
                match refused {
                    // An overflow at the end of the trace stands alone.
                    None | Some(Error::END) => {
                        self.resume_off();
                        Ok(())
                    }
                    Some(error) => Err(error),
                }
            }
        }
    }

    /// Publishes an overflow that ended while tracing was off.
    fn resume_off(&mut self) {
        self.enabled = false;
        self.event = Some(Event::without_ip(What::Overflow { ip: 0 }, &self.clock.time));
    }

    fn scan(&self, from: usize) -> Scan<'_> {
        Scan::new(&self.settings, from)
    }

    /// Returns the end of the FUP that the OVF binds to; `None` if tracing is off.
    fn fup_of_overflow(&self) -> Result<Option<usize>, Error> {
        let mut scan = self.scan(self.offset()?);
        loop {
            let scanned = scan.next()?;
            match scanned.kind {
                Kind::Fup => return Ok(Some(scanned.end)),
                _ if scanned.content == Content::Invalid => return Err(Error::BAD_OPCODE),
                Kind::Unknown | Kind::Pad | Kind::Mnt | Kind::Cbr => {}
                Kind::Tsc | Kind::Tma | Kind::Mtc | Kind::Cyc => {}
                Kind::PsbEnd | Kind::Tip | Kind::TipPgd | Kind::Tnt8 | Kind::Tnt64 => {
                    return Err(Error::BAD_CONTEXT);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Erratum APL12: whether tracing is off in spite of the FUP.
    fn is_off_after(&self, fup_end: usize) -> Result<bool, Error> {
        let mut scan = self.scan(fup_end);
        loop {
            let scanned = match scan.next() {
                Err(Error::END) => return Ok(false),
                scanned => scanned?,
            };
            match scanned.kind {
                Kind::Stop | Kind::TipPge => return Ok(true),
                Kind::Tnt8 | Kind::Tnt64 | Kind::Tip | Kind::TipPgd | Kind::Overflow | Kind::Unknown => {
                    return Ok(false);
                }
                _ if scanned.content == Content::Invalid => return Ok(false),
                Kind::Psb => {
                    return match scan.fup_of_header() {
                        Err(Error::END) => Ok(false),
                        fup => Ok(fup?.is_none()),
                    };
                }
                Kind::PsbEnd => return Err(Error::BAD_CONTEXT),
                _ => {}
            }
        }
    }

    /// Goes on at a position with tracing off; timing packets on the way count, events do not.
    fn resume_off_at(&mut self, position: usize) -> Result<(), Error> {
        let mut clock = self.clock;
        let mut scan = self.scan(self.offset()?);
        loop {
            let scanned = match scan.next() {
                // As libipt does, without an event.
                Err(Error::END) => {
                    self.clock = clock;
                    return Ok(());
                }
                scanned => scanned?,
            };
            if scanned.end >= position {
                break;
            }
            if let Some(packet) = scanned.packet() {
                clock.apply(packet, Place::Stream, &self.settings)?;
            }
        }
        self.clock = clock;
        self.position = Some(position);
        self.resume_off();
        Ok(())
    }

    /// Applies what a look ahead found. Returns whether it handled the overflow.
    fn resume(&mut self, found: Found) -> Result<bool, Error> {
        match found {
            Found::Nothing => return Ok(false),
            Found::Off { position, clock } => {
                self.clock = clock;
                self.position = Some(position);
                self.resume_off();
            }
            Found::On { ip, position, clock } => {
                let mut last = self.last_ip;
                last.apply(ip);
                let ip = last.get().map_err(|_| Error::BAD_CONTEXT)?;
                self.position = Some(position);
                self.enabled = true;
                self.last_ip = last;
                self.clock = clock;
                self.event = Some(Event::at(What::Overflow { ip }, &self.clock.time));
            }
        }
        Ok(true)
    }

    /// Erratum SKD010: the FUP may be missing. Returns whether it was handled.
    fn apply_skd010(&mut self) -> Result<bool, Error> {
        let found = self.look_for_resumption()?;
        self.resume(found)
    }

    fn look_for_resumption(&self) -> Result<Found, Error> {
        let mut clock = self.clock;
        // The first MODE.TSX: it may bind to a FUP.
        let mut transaction: Option<(usize, Clock)> = None;
        let mut scan = self.scan(self.offset()?);
        loop {
            let position = scan.position;
            let scanned = match scan.next() {
                Err(Error::END) => return Ok(Found::Nothing),
                scanned => scanned?,
            };
            let Some(packet) = scanned.packet() else { return Ok(Found::Nothing) };
            match packet {
                Packet::TipPgd(_) => return Ok(Found::Off { position: scanned.end, clock }),
                Packet::Tip(ip) => return Ok(Found::On { ip, position: scanned.end, clock }),
                Packet::Fup(ip) => {
                    let (position, clock) = transaction.unwrap_or((position, clock));
                    return Ok(Found::On { ip, position, clock });
                }
                Packet::Psb => {
                    return match scan.fup_of_header() {
                        Err(Error::END) | Ok(None) => Ok(Found::Nothing),
                        Ok(Some(Packet::Fup(ip))) => Ok(Found::On { ip, position, clock }),
                        Ok(Some(_)) => Err(Error::INTERNAL),
                        Err(error) => Err(error),
                    };
                }
                Packet::ModeTsx { .. } => match transaction {
                    // Two in a row: tracing is off.
                    Some(_) => return Ok(Found::Nothing),
                    None => transaction = Some((position, clock)),
                },
                Packet::PsbEnd => return Err(Error::BAD_CONTEXT),
                // They change state that libipt does not report here either.
                Packet::Pip { .. } | Packet::Vmcs(_) | Packet::ModeExec { .. } => {}
                Packet::Pad | Packet::Mnt(_) | Packet::Pwre { .. } | Packet::Pwrx { .. } => {}
                Packet::ExStop { ip: false } | Packet::PtWrite { ip: false, .. } => {}
                packet if packet.is_timing() => clock.apply(packet, Place::Stream, &self.settings)?,
                _ => return Ok(Found::Nothing),
            }
        }
    }

    /// Erratum APL11: a TIP.PGD may follow. Returns whether it was handled.
    fn apply_apl11(&mut self) -> Result<bool, Error> {
        let found = self.look_for_pgd()?;
        self.resume(found)
    }

    fn look_for_pgd(&self) -> Result<Found, Error> {
        let mut clock = self.clock;
        let mut scan = self.scan(self.offset()?);
        loop {
            let scanned = scan.next()?;
            match scanned.content {
                Content::Invalid => return Err(Error::BAD_OPCODE),
                Content::Mwait { .. } => return Ok(Found::Nothing),
                Content::Unknown { .. } => {}
                Content::Known(packet) => match packet {
                    Packet::TipPgd(_) => return Ok(Found::Off { position: scanned.end, clock }),
                    Packet::Pad | Packet::Mnt(_) => {}
                    Packet::PsbEnd | Packet::Tip(_) | Packet::Tnt8(_) | Packet::Tnt64(_) => {
                        return Err(Error::BAD_CONTEXT);
                    }
                    packet if packet.is_timing() => clock.apply(packet, Place::Stream, &self.settings)?,
                    _ => return Ok(Found::Nothing),
                },
            }
        }
    }
}
