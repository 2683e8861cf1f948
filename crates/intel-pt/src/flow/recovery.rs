//! Loss of the flow, and the earliest point at which it is certain again.
//!
//! A TIP gives an address, but not which of the surrounding branches ran before it: a processor may defer TIP packets
//! and send them after a TNT packet with later branches (SDM, "Deferred TIPs"). It does so only if the TNT packet was
//! full or another packet forced both out. So a TIP is certain if no TNT precedes it, or if the TNT was not full and
//! was forced out by the TIP itself.
//!
//! If packets contradict each other or the code, bytes may be damaged and the last IP may be wrong. The decoder then
//! accepts an address only after a probe (see [`resync_probe`](super::resync_probe)).

use hodo_code::{Labels, Unreadable};

use super::{
    Event, Expected, Gap, Sink, Trouble,
    decoder::{Context, Decoder},
};
use crate::{
    Erratum,
    packet::{IpPayload, Packet, Tnt},
};

/// Knowledge of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Unknown, until a packet gives the address.
    Lost,
    /// Unknown because the processor lost packets; a FUP gives the address.
    Overflowed,
    /// Tracing is off.
    Off,
    /// Tracing is on according to a PSB+ only; a TIP.PGE may follow (erratum BDM70).
    OnSincePsb,
    /// Tracing is on according to a FUP after an OVF only (erratum APL12).
    OnSinceOverflow,
    /// Tracing is on.
    On,
}

/// Branches that may be pending for TIP packets while the flow is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// None: some packet forced all out.
    Nothing,
    /// Some of the last TNT, which was not full; none, if the next TIP forces it out.
    OfPartial(Tnt),
    /// Some of the last TNT, which was full.
    OfFull(Tnt),
    /// Any.
    Unknown,
}

/// Branches of a full TNT-8 and a full TNT-64 packet.
const FULL: [u8; 2] = [6, 47];

impl Waiting {
    fn behind(tnt: Tnt) -> Waiting {
        if FULL.contains(&tnt.count) { Waiting::OfFull(tnt) } else { Waiting::OfPartial(tnt) }
    }
}

impl Decoder<'_> {
    /// A compressed return to a hidden call ran, but its target is unknown: reports its block.
    #[cold]
    pub(super) fn over_unseen_return<L: Labels, S: Sink>(
        &mut self,
        trouble: Trouble,
        context: &mut Context<'_, '_, L, S>,
    ) -> Trouble {
        let (Trouble::EmptyReturnStack { at }, Some(hidden)) = (trouble, self.hidden_calls) else {
            return trouble;
        };
        let (walk, graph, sink) = self.walk_graph_sink(context);
        if let Some(id) = walk.block() {
            walk.report(graph, id, sink);
        }
        Trouble::UnseenCall { at, hidden }
    }

    /// Loses the flow at the current packet, and ends the pending events that wait for it.
    #[cold]
    pub(super) fn lose_at_packet<L, S: Sink>(
        &mut self,
        trouble: Trouble,
        context: &mut Context<'_, '_, L, S>,
    ) {
        self.lose(trouble);
        self.announced.end(context.sink);
    }

    /// Loses the flow at a TIP that does not fit, and resumes at its address.
    #[cold]
    #[inline(never)]
    pub(super) fn lose_at_tip<L: Labels, S: Sink>(
        &mut self,
        trouble: Trouble,
        from: Option<u64>,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) {
        let (trouble, cause) = (self.explain(trouble, context), self.announced.take_cause());
        self.lose(trouble);
        self.announced.restore_cause(cause);
        // All earlier branches were followed, so none is pending, unless the packets were misread.
        let certain = !trouble.is_doubtful() || from.is_some();
        self.waiting = if certain { Waiting::Nothing } else { Waiting::Unknown };
        self.left_from = from;
        self.resume_at_tip(payload, context);
    }

    /// Applies a thread switch of the schedule while tracing stays on. Only the kernel switches threads, and its code is
    /// part of all programs.
    #[cold]
    #[inline(never)]
    pub(super) fn switch_within_kernel<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) {
        if let Some(switch) = self.switch_program() {
            context.sink.event(Event::Switch(switch));
            let at = self.timing.now().map_or(0, |now| now.0);
            let (walk, graph, _) = self.walk_graph_sink(context);
            walk.look_at(graph, at);
        }
    }

    /// Returns whether tracing is on and the flow is known.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.state, State::On | State::OnSincePsb | State::OnSinceOverflow)
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost | State::Overflowed)
    }

    /// Loses the flow at the current packet, unless it is lost already.
    ///
    /// Calls before missing code or packets are discarded: meanwhile the processor may have returned from them and
    /// made other calls, to which a compressed return would go.
    pub(super) fn lose(&mut self, trouble: Trouble) {
        // After damage, an address without mapped code may itself be damaged.
        let unmapped = matches!(trouble, Trouble::Code(Unreadable::Unmapped(_)));
        let doubtful = trouble.is_doubtful() || self.damaged && unmapped;
        let calls = std::mem::take(&mut self.walk.returns);
        if unmapped || !doubtful && !matches!(trouble, Trouble::UnseenCall { .. }) {
            self.calls_before.clear();
        } else if doubtful && !calls.is_empty() {
            self.calls_before = calls;
        }
        self.state = if trouble == Trouble::Overflow { State::Overflowed } else { State::Lost };
        self.left_from = None;
        self.announced.take_cause();
        self.waiting = if doubtful { Waiting::Unknown } else { self.pending_after() };
        self.hidden_calls = trouble.hides().or(self.hidden_calls);
        let at = self.packet_position as u64;
        let since = self.timing.now();
        let gap = self.gap.get_or_insert(Gap {
            from: at,
            to: at,
            since,
            until: None,
            doubtful_since: None,
            trouble,
        });
        if doubtful {
            gap.doubtful_since.get_or_insert(self.certain_at as u64);
            self.last_ip.forget();
            self.damaged = true;
        }
    }

    /// Returns the branches that may be pending after the packet that could not be followed.
    fn pending_after(&self) -> Waiting {
        let mut packets = self.packets.clone();
        packets.skip_to(self.packet_position);
        match packets.next_packet() {
            // This requires that no TIP packets of these branches were read.
            Ok(Some(Packet::Tnt8(tnt) | Packet::Tnt64(tnt)))
                if packets.position() == self.packets.position() =>
            {
                Waiting::behind(tnt)
            }
            Ok(Some(Packet::Tnt8(_) | Packet::Tnt64(_) | Packet::Tip(_)) | None) | Err(_) => Waiting::Unknown,
            // Any other forced all out.
            Ok(Some(_)) => Waiting::Nothing,
        }
    }

    pub(super) fn close_gap(&mut self, sink: &mut impl Sink) {
        if let Some(gap) = self.gap.take() {
            self.certain_at = self.packets.position();
            sink.event(Event::Gap(Gap { to: self.certain_at as u64, until: self.timing.now(), ..gap }));
        }
    }

    /// Handles a packet that exists only while tracing is on. Returns whether the flow is known, so that the packet
    /// can be followed.
    #[cold]
    pub(super) fn confirm_on(&mut self, tnt: Option<Tnt>) -> Result<bool, Trouble> {
        match self.state {
            State::Lost | State::Overflowed => {
                if let Some(tnt) = tnt {
                    self.waiting = Waiting::behind(tnt);
                    // The transfer of the last FUP was lost.
                    self.left_from = None;
                }
                Ok(false)
            }
            State::Off => Err(Trouble::Contradiction { at: self.walk.ip, expected: Expected::On }),
            State::OnSincePsb | State::OnSinceOverflow | State::On => {
                self.state = State::On;
                Ok(true)
            }
        }
    }

    /// Resumes at a TIP while the flow is lost, if all earlier branches are done.
    #[cold]
    pub(super) fn resume_at_tip<L: Labels, S: Sink>(
        &mut self,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) {
        self.announced.end_at_tip(self.left_from.is_some(), context.sink);
        let to = self.last_ip.join(payload);
        let known_guest = self.arrive(context).is_ok() && self.machine.missing_guest().is_none();
        let certain = match (self.waiting, to) {
            (_, None) | (Waiting::Unknown, _) => false,
            (Waiting::Nothing, _) => true,
            (Waiting::OfPartial(_), _) if self.a_tnt_follows() => true,
            (Waiting::OfPartial(tnt) | Waiting::OfFull(tnt), Some(to)) => {
                self.no_branch_pending(tnt, to, context)
            }
        };
        let to = if self.damaged { self.last_ip.guess(payload) } else { to };
        match to {
            Some(to) if known_guest && self.accept_address(to, certain, context).is_ok() => {
                self.close_gap(context.sink);
                self.left_asynchronously(to, context);
                self.state = State::On;
            }
            _ => {
                self.left_from = None;
                self.announced.take_cause();
            }
        }
    }

    fn a_tnt_follows(&self) -> bool {
        let follows = |packet: &Packet| !matches!(packet, Packet::Pad | Packet::Cyc(_));
        matches!(self.look_ahead(follows), Some(Packet::Tnt8(_) | Packet::Tnt64(_)))
    }

    /// Returns the first `wanted` packet ahead.
    pub(super) fn look_ahead(&self, wanted: impl Fn(&Packet) -> bool) -> Option<Packet> {
        let mut packets = self.packets.clone();
        loop {
            let packet = packets.next_packet().ok()??;
            if wanted(&packet) {
                return Some(packet);
            }
        }
    }

    /// OVF: packets were lost. If tracing is on afterwards, a FUP gives the address. If another packet that is not a
    /// timing packet comes first, tracing is off, unless the FUP is missing (erratum SKD010).
    #[cold]
    pub(super) fn overflow<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) {
        self.announced.end(context.sink);
        self.lose(Trouble::Overflow);
        self.last_ip.forget();
        self.waiting = Waiting::Nothing;
        let has_no_time =
            |packet: &Packet| !packet.is_timing() && !matches!(packet, Packet::Pad | Packet::Mnt(_));
        let is_off = match self.look_ahead(has_no_time) {
            Some(Packet::TipPge(_) | Packet::TraceStop) => true,
            Some(
                Packet::Fup(_)
                | Packet::Tnt8(_)
                | Packet::Tnt64(_)
                | Packet::Tip(_)
                | Packet::TipPgd(_)
                | Packet::Psb
                | Packet::PsbEnd
                | Packet::Overflow,
            )
            | None => false,
            Some(_) => !self.errata.has(Erratum::Skd010),
        };
        if is_off {
            self.find_off(context.sink);
        }
    }

    /// Reports that tracing is off.
    pub(super) fn find_off(&mut self, sink: &mut impl Sink) {
        self.close_gap(sink);
        self.state = State::Off;
        sink.event(Event::Disabled { from: None, to: None, asynchronous: false, cause: None });
    }
}
