//! Handles packets beside the flow, which are bound to other packets or instructions.
//!
//! A packet with its IP bit set is bound to the next FUP, which stands alone: it is no asynchronous transfer, and a TIP
//! after it belongs to the code there. Without the bit, event-trace packets and transaction aborts are reported at the
//! FUP of the transfer that they cause, and PTWRITE, MOV to CR3, VM entries and returns are bound to the next matching
//! instruction.

use std::ops::Range;

use hodo_code::{Labels, Role, Terminator};

use super::{
    Cause, ControlFlow, ControlFlowKind, Event, EventData, Expected, Sink, Transaction, Trouble, ValueBlock,
    decoder::{Context, Decoder},
    recovery::State,
};
use crate::{
    Erratum,
    packet::{IpPayload, Packet},
};

/// Events pending until a FUP gives their address. They end at any packet that shows that it does not come.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingEvents {
    /// Whether events, data or a cause are pending.
    pub(super) waits: bool,
    events: Vec<Event>,
    /// Whether the next FUP belongs to these events, so that it is no asynchronous transfer.
    bound: bool,
    /// Whether a block of values is open.
    block_open: bool,
    /// Data of EVD packets that belong to the next CFE packet.
    data: Vec<EventData>,
    /// Cause of the asynchronous transfer whose FUP and TIP come next.
    cause: Option<Cause>,
}

impl PendingEvents {
    fn push(&mut self, event: Event) {
        self.events.push(event);
        self.waits = true;
    }

    /// Reports the pending events, at `ip` if known.
    pub(super) fn flush(&mut self, ip: Option<u64>, sink: &mut impl Sink) {
        let bound = std::mem::take(&mut self.bound);
        for mut event in self.events.drain(..) {
            if ip.is_some() {
                set_address(&mut event, ip, bound);
            }
            sink.event(event);
        }
        self.waits = self.cause.is_some() || !self.data.is_empty();
        self.block_open = false;
    }

    /// Reports the pending events without an address, and drops announcements of further ones: their packets do not
    /// follow.
    pub(super) fn end(&mut self, sink: &mut impl Sink) {
        self.cause = None;
        self.data.clear();
        self.flush(None, sink);
    }

    /// Ends the events at a TIP, except for the cause of the transfer that the TIP completes.
    #[cold]
    pub(super) fn end_at_tip(&mut self, is_transfer: bool, sink: &mut impl Sink) {
        let cause = self.cause.take().filter(|_| is_transfer);
        self.end(sink);
        self.restore_cause(cause);
    }

    /// Returns the cause of the asynchronous transfer that takes place, if event trace reports it.
    pub(super) fn take_cause(&mut self) -> Option<Cause> {
        let cause = self.cause.take();
        self.waits = !self.events.is_empty() || !self.data.is_empty();
        cause
    }

    /// Sets the cause again that was taken.
    pub(super) fn restore_cause(&mut self, cause: Option<Cause>) {
        self.cause = cause;
        self.waits |= cause.is_some();
    }

    /// Returns whether the next FUP begins the transfer of a CFE packet without IP.
    fn interrupts(&self) -> bool {
        self.cause.is_some() && !self.bound && !self.events.is_empty()
    }

    /// Binds the last event to the next FUP. An interrupt before it has no FUP.
    fn bind(&mut self, sink: &mut impl Sink) {
        if self.cause.take().is_some() {
            let last = self.events.pop();
            self.flush(None, sink);
            last.into_iter().for_each(|event| self.push(event));
        }
        self.bound = true;
    }

    fn writes(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::PtWrite { .. }))
    }

    fn aborts(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Transaction { state: Transaction::Abort, .. }))
    }
}

/// Sets the address of an event from a FUP. If the FUP is not `bound`, it belongs to another event at that address.
fn set_address(event: &mut Event, address: Option<u64>, bound: bool) {
    match event {
        // These two have no instruction of their own.
        Event::ControlFlow(ControlFlow { cause, .. })
            if matches!(cause.kind, ControlFlowKind::Rsm | ControlFlowKind::Sipi) => {}
        Event::ControlFlow(ControlFlow { ip, .. }) | Event::Transaction { ip, .. } => *ip = address,
        Event::PtWrite { ip, .. }
        | Event::Mwait { ip, .. }
        | Event::ExStop { ip }
        | Event::Trigger { ip, .. }
        | Event::Block(ValueBlock { ip, .. })
            if bound =>
        {
            *ip = address;
        }
        _ => {}
    }
}

impl Decoder<'_> {
    /// FUP: the address of pending events, of an overflow's end, or of an asynchronous transfer.
    #[cold]
    pub(super) fn fup<L: Labels, S: Sink>(
        &mut self,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        self.end_block(context.sink);
        self.settle_erratum();
        let ip = self.last_ip.join(payload);
        let interrupts = self.announced.interrupts();
        // A MODE.Exec is bound to the FUP behind it, but between CFE and FUP to the TIP.
        let bound = self.announced.bound || self.machine.mode_waits() && !interrupts;
        let cause = self.announced.cause;
        match (self.state, ip) {
            (State::On | State::OnSincePsb | State::OnSinceOverflow, Some(ip)) => {
                if bound || !self.announced.events.is_empty() {
                    self.come_to(ip, payload, context);
                }
                self.left_from = Some(ip).filter(|_| !bound);
            }
            (State::Overflowed, Some(ip)) if self.machine.missing_guest().is_none() => {
                self.close_gap(context.sink);
                self.walk.set_ip(ip);
                self.state = if bound || interrupts { State::On } else { State::OnSinceOverflow };
                self.left_from = Some(ip).filter(|_| interrupts);
            }
            (State::Lost | State::Overflowed, Some(ip)) if bound => self.resume_at(ip, context),
            (State::Lost | State::Overflowed, ip) => self.left_from = ip,
            (State::Off, Some(ip))
                if self.off_since_psb && !self.announced.waits && (!bound || self.stays_traced()) =>
            {
                self.off_since_psb = false;
                self.walk.set_ip(ip);
                self.state = State::OnSinceOverflow;
                context.sink.event(Event::Enabled(ip));
            }
            (State::Off, _) => {}
            (_, None) => {
                self.announced.end(context.sink);
                return Err(Trouble::NoAddress);
            }
        }
        // A loss at the FUP does not end what the FUP belongs to.
        self.announced.restore_cause(cause);
        if self.announced.writes() && self.is_on() {
            self.pass(Role::PtWrite, context);
        }
        self.announced.flush(ip, context.sink);
        if bound && self.machine.mode_waits() { self.arrive(context) } else { Ok(()) }
    }

    /// If the only packet that shows that tracing is on may be wrong by an erratum (BDM70, APL12), the next packet of the
    /// flow decides: before a TIP.PGE, tracing was off.
    fn settle_erratum(&mut self) {
        let in_doubt = match self.state {
            State::OnSincePsb => self.errata.has(Erratum::Bdm70),
            State::OnSinceOverflow => self.errata.has(Erratum::Apl12),
            _ => false,
        };
        if in_doubt {
            let decides =
                |packet: &Packet| is_flow(packet) || matches!(packet, Packet::Psb | Packet::Overflow);
            let was_off = matches!(self.look_ahead(decides), Some(Packet::TipPge(_) | Packet::TraceStop));
            // The result is valid up to the next flow packet, so the search is not repeated.
            self.state = if was_off { State::Off } else { State::On };
        }
    }

    /// Returns whether tracing is on at the FUP of a MODE.Exec, as after an overflow. While tracing is off, event
    /// trace reports changes of RFLAGS.IF by the same two packets; then the next flow packet is TIP.PGE.
    fn stays_traced(&mut self) -> bool {
        let mut packets = self.packets.clone();
        let mut in_psb_plus = false;
        // The result is valid up to the next flow packet, so the search is not repeated.
        self.off_since_psb = loop {
            match packets.next_packet() {
                Ok(
                    Some(Packet::TipPge(_) | Packet::TraceStop | Packet::PsbEnd | Packet::Overflow) | None,
                )
                | Err(_) => break false,
                Ok(Some(packet)) if is_flow(&packet) => break true,
                Ok(Some(Packet::Psb)) => in_psb_plus = true,
                Ok(Some(Packet::Fup(_))) if in_psb_plus => break true,
                Ok(Some(_)) => {}
            }
        };
        self.off_since_psb
    }

    /// Walks to `ip`, the address of an event.
    fn come_to<L: Labels, S: Sink>(
        &mut self,
        ip: u64,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) {
        let wrong_branch = self.announced.aborts() && self.errata.has(Erratum::Bdm64);
        let (walk, graph, sink) = self.walk_graph_sink(context);
        match walk.walk_to(graph, sink, ip) {
            Ok(()) => self.state = State::On,
            // The abort followed a branch that was reported wrongly: execution is at its real target.
            Err(Trouble::Contradiction { .. }) if wrong_branch => {
                walk.set_ip(ip);
                self.state = State::On;
            }
            Err(trouble) => {
                let trouble = self.explain(trouble, context);
                self.lose(trouble);
                // In doubt, only a whole address counts: `lose` forgot the one before.
                if let Some(ip) = self.last_ip.join(payload) {
                    self.resume_at(ip, context);
                }
            }
        }
    }

    /// Resumes the flow at `ip`, where execution is unless bytes are damaged.
    fn resume_at<L: Labels, S: Sink>(&mut self, ip: u64, context: &mut Context<'_, '_, L, S>) {
        if !self.damaged && self.machine.missing_guest().is_none() && self.read(ip, context).is_ok() {
            self.close_gap(context.sink);
            self.walk.set_ip(ip);
            self.state = State::On;
        }
    }

    /// Reports a block of values that has no BEP.
    fn end_block(&mut self, sink: &mut impl Sink) {
        if self.announced.block_open {
            self.announced.flush(None, sink);
        }
    }

    /// Follows a packet beside the flow.
    #[cold]
    pub(super) fn optional<L: Labels, S: Sink>(
        &mut self,
        packet: Packet,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        if !matches!(packet, Packet::Bbp { .. } | Packet::Bip { .. } | Packet::Bep { .. }) {
            self.end_block(context.sink);
        }
        if packet != Packet::TraceStop {
            self.settle_erratum();
        }
        match packet {
            Packet::ModeExec { cs_l, cs_d, interrupt_flag } => self.machine.mode(cs_l, cs_d, interrupt_flag),
            Packet::ModeTsx { in_transaction, aborted } => {
                self.transaction(in_transaction, aborted, context.sink)
            }
            Packet::Pip { cr3, non_root } => {
                if let Some((cr3, non_root)) = self.machine.paging(cr3, non_root) {
                    context.sink.event(Event::Paging { cr3, non_root });
                }
                return self.change_at(Role::WriteCr3, context);
            }
            Packet::Vmcs(base) => {
                if let Some(base) = self.machine.virtual_machine(base) {
                    context.sink.event(Event::Vmcs(base));
                }
                return self.change_at(Role::LoadVmcs, context);
            }
            Packet::TraceStop => return self.trace_stop(context.sink),
            Packet::PtWrite { payload, ip, .. } => return self.ptwrite(payload, ip, context),
            Packet::Trig { ip, instructions, multiple, triggers } => {
                let event = Event::Trigger { ip: None, triggers, multiple };
                self.trigger(event, ip, instructions, context);
            }
            Packet::Cfe { ip, kind, vector } => {
                let cause = Cause { kind: ControlFlowKind::new(kind), vector };
                self.control_flow(cause, ip, context);
            }
            Packet::Evd { kind, payload } => {
                self.announced.data.push(EventData::new(kind, payload));
                self.announced.waits = true;
            }
            _ => self.values(packet, context.sink),
        }
        Ok(())
    }

    /// Follows power events and blocks of values.
    fn values(&mut self, packet: Packet, sink: &mut impl Sink) {
        match packet {
            Packet::Mwait { hints, extensions } => {
                self.announced.push(Event::Mwait { ip: None, hints, extensions });
            }
            Packet::ExStop { ip } => {
                self.announced.push(Event::ExStop { ip: None });
                self.bind(ip, sink);
            }
            Packet::Pwre { hardware, state, sub_state } => {
                sink.event(Event::PowerEntry { hardware, state, sub_state });
            }
            Packet::Pwrx { last, deepest, reason } => sink.event(Event::PowerExit { last, deepest, reason }),
            Packet::Bbp { kind, .. } => {
                self.announced.push(Event::Block(ValueBlock { kind, items: Vec::new(), ip: None }));
                self.announced.block_open = true;
            }
            Packet::Bip { id, payload } => {
                if let Some(Event::Block(block)) = self.announced.events.last_mut() {
                    block.items.push((id, payload));
                }
            }
            Packet::Bep { ip } => {
                self.announced.block_open = false;
                self.bind(ip, sink);
            }
            _ => {}
        }
    }

    /// Binds the last event to the next FUP, or reports it if no FUP follows.
    fn bind(&mut self, ip: bool, sink: &mut impl Sink) {
        if ip {
            self.announced.bind(sink);
        } else {
            self.announced.flush(None, sink);
        }
    }

    /// MODE.TSX. While tracing is off, no FUP follows.
    fn transaction(&mut self, in_transaction: bool, aborted: bool, sink: &mut impl Sink) {
        let state = match (aborted, in_transaction) {
            (true, _) => Transaction::Abort,
            (false, true) => Transaction::Begin,
            (false, false) => Transaction::Commit,
        };
        self.announced.push(Event::Transaction { state, ip: None });
        match (self.state, aborted) {
            (State::Off, _) => self.announced.flush(None, sink),
            (_, true) => {}
            (_, false) => self.announced.bind(sink),
        }
    }

    fn trace_stop<S: Sink>(&mut self, sink: &mut S) -> Result<(), Trouble> {
        self.announced.end(sink);
        let was = self.state;
        match was {
            State::On => self.lose(Trouble::Contradiction { at: self.walk.ip, expected: Expected::Off }),
            State::OnSincePsb | State::OnSinceOverflow => self.state = State::Off,
            State::Lost | State::Overflowed | State::Off => {}
        }
        if self.is_lost() {
            self.find_off(sink);
        }
        sink.event(Event::TraceStop);
        Ok(())
    }

    /// PTWRITE: bound to the next FUP, or to the next PTWRITE instruction, which has run.
    fn ptwrite<L: Labels, S: Sink>(
        &mut self,
        payload: u64,
        ip: bool,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        if ip {
            self.announced.push(Event::PtWrite { ip: None, payload });
            self.announced.bind(context.sink);
            return Ok(());
        }
        let found = self.find(Role::PtWrite, context);
        let mut walked = Ok(());
        match found {
            Some(ref instruction) => self.walk_to(instruction.end, context),
            None if self.is_on() => {
                let (walk, graph, sink) = self.walk_graph_sink(context);
                walked = match walk.next_decision(graph, sink) {
                    Err(trouble @ Trouble::Code(_)) => Err(trouble),
                    _ => Err(Trouble::Contradiction { at: self.walk.ip, expected: Expected::PtWrite }),
                };
            }
            None => {}
        }
        context.sink.event(Event::PtWrite { ip: found.map(|instruction| instruction.start), payload });
        walked
    }

    /// Walks over the instruction at the current position if it is `wanted`.
    fn pass<L: Labels, S: Sink>(&mut self, wanted: Role, context: &mut Context<'_, '_, L, S>) {
        let (walk, graph, _) = self.walk_graph_sink(context);
        let instruction = graph.snapshot(walk.tick).instruction(walk.ip);
        if let Some(read) = instruction.ok().filter(|read| read.instruction.role() == wanted) {
            self.walk_to(read.instruction.end(), context);
        }
    }

    /// TRIG: bound to the next FUP, or `instructions` instructions after the last address or branch.
    fn trigger<L: Labels, S: Sink>(
        &mut self,
        mut event: Event,
        ip: bool,
        instructions: Option<u16>,
        context: &mut Context<'_, '_, L, S>,
    ) {
        if ip {
            self.announced.push(event);
            self.announced.bind(context.sink);
            return;
        }
        if let Some(count) = instructions.filter(|_| self.is_on()) {
            let (walk, graph, _) = self.walk_graph_sink(context);
            if let Some(address) = walk.ahead(graph, count) {
                self.walk_to(address, context);
                let bound = true;
                set_address(&mut event, Some(address), bound);
            }
        }
        context.sink.event(event);
    }

    /// CFE, with the EVD packets before it. With IP, its FUP stands alone; an interrupt then has a FUP of its own before
    /// its TIP.
    fn control_flow<L: Labels, S: Sink>(
        &mut self,
        cause: Cause,
        ip: bool,
        context: &mut Context<'_, '_, L, S>,
    ) {
        let data = std::mem::take(&mut self.announced.data);
        let mut event = ControlFlow { cause, ip: None, data };
        let instruction = match cause.kind {
            _ if ip => {
                self.announced.push(Event::ControlFlow(event));
                self.announced.bind(context.sink);
                let transfers = cause.kind.is_asynchronous() && self.state != State::Off;
                self.announced.restore_cause(Some(cause).filter(|_| transfers));
                return;
            }
            ControlFlowKind::Iret => Some(Role::InterruptReturn),
            ControlFlowKind::UserInterruptReturn => Some(Role::UserInterruptReturn),
            ControlFlowKind::VmEntry => Some(Role::EnterGuest),
            ControlFlowKind::Shutdown | ControlFlowKind::Other(_) => None,
            _ if self.state == State::Off => None,
            // The event causes an asynchronous transfer, whose FUP is not that of an event before.
            _ => {
                if self.announced.bound {
                    self.announced.flush(None, context.sink);
                }
                self.announced.push(Event::ControlFlow(event));
                self.announced.restore_cause(Some(cause));
                return;
            }
        };
        if let Some(Range { start, .. }) = instruction.and_then(|role| self.find(role, context)) {
            self.walk_to(start, context);
            event.ip = Some(start);
        }
        context.sink.event(Event::ControlFlow(event));
    }

    /// PIP and VMCS: bound to the TIP or TIP.PGD of the current transfer, or to the next matching instruction;
    /// otherwise reported at the packet.
    fn change_at<L: Labels, S: Sink>(
        &mut self,
        instruction: Role,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        if self.left_from.is_some() {
            return Ok(());
        }
        if self.is_on() {
            match self.find(instruction, context) {
                Some(instruction) => self.walk_to(instruction.end, context),
                None => {
                    let (walk, graph, sink) = self.walk_graph_sink(context);
                    match walk.next_decision(graph, sink) {
                        // A far transfer: its TIP follows.
                        Ok(Terminator::Far) => return Ok(()),
                        Err(trouble @ Trouble::Code(_)) => self.lose(trouble),
                        _ => {}
                    }
                }
            }
        }
        self.arrive(context)
    }

    /// Returns the addresses of the first `wanted` instruction ahead, if the flow is known.
    fn find<L: Labels, S: Sink>(
        &mut self,
        wanted: Role,
        context: &mut Context<'_, '_, L, S>,
    ) -> Option<Range<u64>> {
        let on = self.is_on();
        let (walk, graph, _) = self.walk_graph_sink(context);
        if on { walk.find(graph, wanted) } else { None }
    }

    /// Walks to an address found ahead.
    fn walk_to<L: Labels, S: Sink>(&mut self, address: u64, context: &mut Context<'_, '_, L, S>) {
        self.state = State::On;
        let (walk, graph, sink) = self.walk_graph_sink(context);
        if let Err(trouble) = walk.walk_to(graph, sink, address) {
            self.lose(trouble);
        }
    }
}

/// Returns whether a packet shows whether tracing is on before it.
fn is_flow(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::Tnt8(_)
            | Packet::Tnt64(_)
            | Packet::Tip(_)
            | Packet::TipPge(_)
            | Packet::TipPgd(_)
            | Packet::TraceStop
    )
}
