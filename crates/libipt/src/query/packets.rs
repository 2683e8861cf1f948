//! What each packet does.

use hodo_intel_pt::{
    Erratum,
    packet::{IpPayload, Packet},
};

use super::{
    Outcomes, Query, Scan,
    scan::{is_overflow_in_cyc, read},
};
use crate::{
    Error,
    event::{Binding, Event, Mode, What},
    packet::{Content, Kind, Sized},
    time::Place,
};

/// Returns the mode of a MODE.Exec packet.
pub(crate) fn mode(cs_l: bool, cs_d: bool) -> Mode {
    match (cs_l, cs_d) {
        (true, true) => Mode::Unknown,
        (true, false) => Mode::Bits64,
        (false, true) => Mode::Bits32,
        (false, false) => Mode::Bits16,
    }
}

fn payload(packet: Packet) -> Result<IpPayload, Error> {
    match packet {
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => Ok(ip),
        _ => Err(Error::INTERNAL),
    }
}

impl Query {
    /// Applies the packet at the position.
    pub(super) fn apply(&mut self, kind: Kind) -> Result<(), Error> {
        match kind {
            Kind::Psb => self.psb(),
            Kind::PsbEnd => self.psb_end(),
            Kind::Tip => self.tip(),
            Kind::TipPge => self.tip_pge(),
            Kind::TipPgd => self.tip_pgd(),
            Kind::Fup => self.fup(),
            Kind::Overflow => self.overflow(),
            _ => {
                let sized = self.read(kind)?;
                let size = self.apply_content(sized)?;
                self.advance(size);
                Ok(())
            }
        }
    }

    fn here(&self) -> usize {
        self.position.unwrap_or(0)
    }

    fn read(&self, kind: Kind) -> Result<Sized, Error> {
        read(&self.settings, self.here(), kind)
    }

    pub(super) fn advance(&mut self, size: usize) {
        self.position = Some(self.here() + size);
    }

    /// Applies a packet without position; returns by how much to advance.
    fn apply_content(&mut self, sized: Sized) -> Result<usize, Error> {
        let packet = match sized.content {
            Content::Known(packet) => packet,
            Content::Mwait { hints, extensions } => {
                let event = Event::new(What::Mwait { ip: 0, hints, extensions });
                self.wait_for_fup(event)?;
                return Ok(sized.size);
            }
            Content::Unknown { .. } | Content::Invalid => return Ok(sized.size),
        };
        if is_overflow_in_cyc(&self.settings, self.here(), &sized) {
            return Ok(1);
        }
        match packet {
            Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => {
                if self.outcomes.count != 0 {
                    return Err(Error::BAD_CONTEXT);
                }
                self.outcomes = Outcomes { bits: tnt.bits, count: tnt.count };
            }
            Packet::Pip { cr3, non_root } => self.pip(cr3, non_root)?,
            Packet::ModeExec { cs_l, cs_d, .. } => {
                let what = What::ExecMode { mode: mode(cs_l, cs_d), ip: 0 };
                self.waiting.push(Binding::Tip, Event::at(what, &self.clock.time))?;
            }
            Packet::ModeTsx { in_transaction, aborted } => self.mode_tsx(in_transaction, aborted)?,
            Packet::Vmcs(base) => self.vmcs(base)?,
            Packet::TraceStop => self.publish(What::Stop),
            Packet::Mnt(payload) => self.publish(What::Mnt { payload }),
            Packet::Cbr(ratio) => {
                self.clock.apply(packet, Place::Stream, &self.settings)?;
                self.publish(What::Cbr { ratio });
            }
            packet if packet.is_timing() => self.clock.apply(packet, Place::Stream, &self.settings)?,
            packet => self.apply_optional(packet)?,
        }
        Ok(sized.size)
    }

    /// PTWRITE and power events.
    fn apply_optional(&mut self, packet: Packet) -> Result<(), Error> {
        match packet {
            Packet::ExStop { ip } => self.with_fup(ip, What::ExStop { ip: 0 }),
            Packet::PtWrite { payload, wide, ip } => {
                let size = if wide { 8 } else { 4 };
                self.with_fup(ip, What::PtWrite { ip: 0, size, payload })
            }
            Packet::Pwre { hardware, state, sub_state } => {
                self.event = Some(Event::new(What::Pwre { state, sub_state, hardware }));
                Ok(())
            }
            Packet::Pwrx { last, deepest, reason } => {
                let [interrupt, store, autonomous] = [1, 4, 8].map(|bit| reason & bit != 0);
                let what = What::Pwrx { last, deepest, interrupt, store, autonomous };
                self.event = Some(Event::new(what));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Makes an event that binds to a FUP, or has no address.
    fn with_fup(&mut self, binds: bool, what: What) -> Result<(), Error> {
        if binds {
            return self.wait_for_fup(Event::new(what));
        }
        self.event = Some(Event { ip_suppressed: true, ..Event::new(what) });
        Ok(())
    }

    fn wait_for_fup(&mut self, event: Event) -> Result<(), Error> {
        self.waiting.push(Binding::Fup, event).map_err(|_| Error::INTERNAL)
    }

    fn publish(&mut self, what: What) {
        self.event = Some(Event::at(what, &self.clock.time));
    }

    fn psb(&mut self) -> Result<(), Error> {
        let begin = self.here();
        let size = self.read(Kind::Psb)?.size;
        self.advance(size);
        self.header().inspect_err(|_| {
            // Back to the PSB, so that the caller may try the next one.
            self.position = Some(begin);
            self.waiting.clear(Binding::PsbEnd);
            self.next = Some(Kind::Psb);
        })
    }

    /// Applies a PSB+ up to its end, to which its events bind.
    fn header(&mut self) -> Result<(), Error> {
        self.last_ip = Default::default();
        loop {
            let kind = self.fetch()?;
            match kind {
                Kind::PsbEnd | Kind::Overflow => return Ok(()),
                Kind::Fup => self.header_fup()?,
                Kind::Tsc | Kind::Tma | Kind::Mtc | Kind::Cyc | Kind::Pad | Kind::Unknown => {
                    let sized = self.read(kind)?;
                    let size = self.header_status(sized)?;
                    self.advance(size);
                }
                Kind::Pip | Kind::Mode | Kind::Vmcs | Kind::Cbr | Kind::Mnt => {
                    let sized = self.read(kind)?;
                    self.header_event(sized.content)?;
                    self.advance(sized.size);
                }
                _ => return Err(Error::BAD_CONTEXT),
            }
        }
    }

    fn header_status(&mut self, sized: Sized) -> Result<usize, Error> {
        if is_overflow_in_cyc(&self.settings, self.here(), &sized) {
            return Ok(1);
        }
        if let Content::Known(packet) = sized.content {
            self.clock.apply(packet, Place::Header, &self.settings)?;
        }
        Ok(sized.size)
    }

    fn header_event(&mut self, content: Content) -> Result<(), Error> {
        let Content::Known(packet) = content else { return Err(Error::INTERNAL) };
        let what = match packet {
            Packet::Pip { cr3, non_root } => What::AsyncPaging { cr3, non_root, ip: 0 },
            Packet::ModeExec { cs_l, cs_d, .. } => What::ExecMode { mode: mode(cs_l, cs_d), ip: 0 },
            Packet::ModeTsx { in_transaction, aborted } => {
                What::Tsx { ip: 0, speculative: in_transaction, aborted }
            }
            Packet::Vmcs(base) => What::AsyncVmcs { base, ip: 0 },
            Packet::Mnt(payload) => What::Mnt { payload },
            Packet::Cbr(ratio) => {
                self.clock.apply(packet, Place::Header, &self.settings)?;
                What::Cbr { ratio }
            }
            _ => return Err(Error::INTERNAL),
        };
        self.waiting.push(Binding::PsbEnd, Event::new(what))
    }

    /// A FUP in a PSB+: tracing is on, at this address.
    fn header_fup(&mut self) -> Result<(), Error> {
        let Sized { content, size } = self.read(Kind::Fup)?;
        let Content::Known(packet) = content else { return Err(Error::INTERNAL) };
        let after = self.here() + size;
        if !(self.settings.has(Erratum::Bdm70) && !self.enabled && self.leads_to_pge(after)?) {
            let ip = payload(packet)?;
            self.last_ip.apply(ip);
            self.enabled |= ip != IpPayload::Suppressed;
        }
        self.advance(size);
        Ok(())
    }

    /// Erratum BDM70: whether a TIP.PGE follows, so that the FUP of the PSB+ is wrong.
    fn leads_to_pge(&self, position: usize) -> Result<bool, Error> {
        let mut scan = Scan::new(&self.settings, position);
        loop {
            match scan.next() {
                Err(Error::END) => return Ok(false),
                Err(error) => return Err(error),
                Ok(scanned) => match scanned.kind {
                    Kind::TipPge => return Ok(true),
                    _ if scanned.content == Content::Invalid => return Ok(false),
                    Kind::Pad | Kind::Tsc | Kind::Cbr | Kind::PsbEnd | Kind::Pip | Kind::Mode => {}
                    Kind::Vmcs | Kind::Tma | Kind::Mtc | Kind::Cyc | Kind::Mnt => {}
                    _ => return Ok(false),
                },
            }
        }
    }

    fn psb_end(&mut self) -> Result<(), Error> {
        if !self.publish_of_header()? {
            self.advance(2);
        }
        Ok(())
    }

    /// Publishes the next event of a PSB+. Returns whether there was one.
    pub(super) fn publish_of_header(&mut self) -> Result<bool, Error> {
        let Some(mut event) = self.waiting.pop(Binding::PsbEnd) else { return Ok(false) };
        event.stamp(&self.clock.time);
        // Maintenance packets may stand anywhere: they tell no status.
        event.status_update = !matches!(event.what, What::Mnt { .. });
        if !matches!(event.what, What::Mnt { .. } | What::Cbr { .. }) {
            event.locate(self.last_ip.get());
        }
        self.event = Some(event);
        Ok(true)
    }

    /// Reads an IP packet and applies it to the last IP. Returns its size.
    fn ip_packet(&mut self, kind: Kind) -> Result<usize, Error> {
        let Sized { content, size } = self.read(kind)?;
        let Content::Known(packet) = content else { return Err(Error::INTERNAL) };
        self.last_ip.apply(payload(packet)?);
        Ok(size)
    }

    fn tip(&mut self) -> Result<(), Error> {
        let size = self.ip_packet(Kind::Tip)?;
        if let Some(mut event) = self.waiting.pop(Binding::Tip) {
            match event.what {
                What::AsyncBranch { .. } => self.consumes = true,
                What::AsyncPaging { .. } | What::AsyncVmcs { .. } | What::ExecMode { .. } => {}
                _ => return Err(Error::BAD_CONTEXT),
            }
            event.locate(self.last_ip.get());
            self.event = Some(event);
            if self.waiting.any(Binding::Tip) || !self.consumes {
                return Ok(());
            }
            self.consumes = false;
        }
        self.advance(size);
        Ok(())
    }

    fn tip_pge(&mut self) -> Result<(), Error> {
        let size = self.ip_packet(Kind::TipPge)?;
        // That tracing begins comes before the events that bind to the packet.
        if !self.consumes {
            let ip = self.last_ip.get().map_err(|_| Error::BAD_PACKET)?;
            self.publish(What::Enabled { ip, resumed: false });
            // What is left of an earlier TNT is of no use any more.
            self.outcomes = Outcomes::default();
            self.consumes = true;
            self.enabled = true;
        } else {
            let mut event = self.waiting.pop(Binding::Tip).ok_or(Error::INTERNAL)?;
            if !matches!(event.what, What::ExecMode { .. }) {
                return Err(Error::BAD_CONTEXT);
            }
            event.locate(self.last_ip.get());
            self.event = Some(event);
        }
        if !self.waiting.any(Binding::Tip) {
            self.consumes = false;
            self.advance(size);
        }
        Ok(())
    }

    fn tip_pgd(&mut self) -> Result<(), Error> {
        let size = self.ip_packet(Kind::TipPgd)?;
        let event = match self.waiting.pop(Binding::Tip) {
            None => {
                let mut event = Event::at(What::Disabled { ip: 0 }, &self.clock.time);
                event.locate(self.last_ip.get());
                event
            }
            Some(mut event) => {
                match event.what {
                    What::AsyncBranch { from, .. } => {
                        event.what = What::AsyncDisabled { at: from, ip: 0 };
                        event.locate(self.last_ip.get());
                    }
                    // Tracing is off when they apply.
                    What::AsyncPaging { .. } | What::AsyncVmcs { .. } | What::ExecMode { .. } => {
                        event.ip_suppressed = true;
                    }
                    _ => return Err(Error::BAD_CONTEXT),
                }
                event
            }
        };
        self.event = Some(event);
        if !self.waiting.any(Binding::Tip) {
            self.enabled = false;
            self.advance(size);
        }
        Ok(())
    }

    fn fup(&mut self) -> Result<(), Error> {
        let size = self.ip_packet(Kind::Fup)?;
        match self.waiting.pop(Binding::Fup) {
            None => {
                // An interrupt or another asynchronous branch; its TIP follows.
                let from = self.last_ip.get()?;
                let event = Event::at(What::AsyncBranch { from, to: 0 }, &self.clock.time);
                self.waiting.push(Binding::Tip, event)?;
            }
            Some(mut event) => {
                match event.what {
                    What::Overflow { .. } => {
                        self.consumes = true;
                        self.last_ip.get()?;
                    }
                    // The FUP of an abort also is the one of the branch that follows.
                    What::Tsx { aborted, .. } => self.consumes |= !aborted,
                    What::ExStop { .. } | What::Mwait { .. } | What::PtWrite { .. } => self.consumes = true,
                    _ => return Err(Error::INTERNAL),
                }
                event.locate(self.last_ip.get());
                self.event = Some(event);
                if self.waiting.any(Binding::Fup) || !self.consumes {
                    return Ok(());
                }
                self.consumes = false;
            }
        }
        self.advance(size);
        Ok(())
    }

    /// A change of the address space: by itself, or with an interrupt whose TIP follows.
    fn pip(&mut self, cr3: u64, non_root: bool) -> Result<(), Error> {
        if self.waiting.find(Binding::Tip, |what| matches!(what, What::AsyncBranch { .. })).is_none() {
            self.publish(What::Paging { cr3, non_root });
            return Ok(());
        }
        let what = What::AsyncPaging { cr3, non_root, ip: 0 };
        self.waiting.push(Binding::Tip, Event::at(what, &self.clock.time))
    }

    fn mode_tsx(&mut self, speculative: bool, aborted: bool) -> Result<(), Error> {
        let what = What::Tsx { ip: 0, speculative, aborted };
        if self.enabled {
            return self.waiting.push(Binding::Fup, Event::at(what, &self.clock.time));
        }
        self.event = Some(Event::without_ip(what, &self.clock.time));
        Ok(())
    }

    /// A change of the VMCS. With a change of the address space it binds to the same TIP, and comes first.
    fn vmcs(&mut self, base: u64) -> Result<(), Error> {
        let what = What::AsyncVmcs { base, ip: 0 };
        if let Some(paging) = self.waiting.find(Binding::Tip, |what| matches!(what, What::AsyncPaging { .. }))
        {
            let first = Event { what, ..*paging };
            let second = std::mem::replace(paging, first);
            return self.waiting.push(Binding::Tip, second);
        }
        if self.waiting.find(Binding::Tip, |what| matches!(what, What::AsyncBranch { .. })).is_some() {
            return self.waiting.push(Binding::Tip, Event::new(what));
        }
        self.publish(What::Vmcs { base });
        Ok(())
    }
}
