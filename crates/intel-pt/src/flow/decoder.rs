//! Applies each packet to the flow.

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{Graph, Isa, Labels, Program, ReturnStack, Role};

use super::{
    Event, Expected, Gap, Hidden, PacketKind, Sink, Switch, Trouble,
    bind::PendingEvents,
    fast::{Memos, Starts},
    machine::Machine,
    recovery::{State, Waiting},
    walk::{Filtering, Walk},
};
use crate::{
    Config, Errata, Erratum, Filter,
    last_ip::LastIp,
    packet::{self, IpPayload, Packet, Tnt},
    timing::Timing,
};

/// A guest whose code is known. A stream shows it while the processor is in VMX non-root operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Address of its VMCS; `None` matches any.
    pub vmcs: Option<u64>,
    /// Index of the host's program that runs it, the hypervisor's process; `None` matches any.
    pub host: Option<usize>,
    /// Its code.
    pub code: GuestCode,
}

/// The location of a guest's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestCode {
    /// In a separate program: its index in the caller's list.
    Program(usize),
    /// In the host's current program, at the same addresses.
    OfHost,
}

/// Decodes the flow of one segment of a stream: from a PSB to the next.
///
/// A PSB+ is a full restart (SDM, "PSB"), so segments decode independently. Both segments beside a PSB+ read it: for
/// the earlier one it gives the end of the flow and its time.
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    pub(super) packets: packet::Decoder<'t>,
    pub(super) span: Range<usize>,
    /// Position of the current packet.
    pub(super) packet_position: usize,
    pub(super) timing: Timing,
    pub(super) last_ip: LastIp,
    pub(super) walk: Walk,
    /// Positions of the packets of the walk's branch batches.
    pub(super) starts: Starts,
    pub(super) state: State,
    pub(super) machine: Machine<'t>,
    pub(super) announced: PendingEvents,
    /// The address that a pending asynchronous transfer leaves.
    pub(super) left_from: Option<u64>,
    /// The last reported time.
    pub(super) reported: Option<Tsc>,
    /// The last reported cycle count.
    reported_cycles: u64,
    pub(super) errata: Errata,
    filter: Filter,
    no_tnt: bool,
    pub(super) no_branches: bool,
    schedule: &'t [Switch],
    /// Time of the next switch in the schedule; the highest if there is none.
    next_switch: Tsc,
    /// Whether the schedule has switched to another thread by the reported time.
    pub(super) switch_is_due: bool,
    pub(super) program: usize,
    context: u32,
    pub(super) gap: Option<Gap>,
    /// The reason why calls since the last PSB may be missing; a return may go back to one of them.
    pub(super) hidden_calls: Option<Hidden>,
    /// Only the first PSB+ claims that tracing is off, and it may lie between an OVF and its FUP.
    pub(super) off_since_psb: bool,
    /// While the flow is lost: branches that may be pending for packets already read.
    pub(super) waiting: Waiting,
    /// The last position of certain decoding, in bytes from the start of the stream.
    pub(super) certain_at: usize,
    /// Whether the trace contradicted itself or the code since the last PSB. Bytes may be damaged, or code may have
    /// changed unseen, so a wrong address may look valid.
    pub(super) damaged: bool,
    /// The return stack before that contradiction.
    pub(super) calls_before: ReturnStack,
    /// Whether this is a probe: it only tests whether the flow continues here, and its reports are discarded.
    pub(super) on_trial: bool,
}

/// The programs that a stream may show, and the sink.
pub(super) struct Context<'x, 'a, L, S> {
    pub(super) programs: &'x mut [Program<'a, L>],
    pub(super) sink: &'x mut S,
}

/// Bit 63, which all kernel addresses have set.
const KERNEL: u64 = 1 << 63;

impl<'t> Decoder<'t> {
    /// Creates a decoder for one segment: from the PSB at `span.start` up to and including the PSB+ at `span.end`, or
    /// the end of `stream`. `schedule` lists the programs of the stream in order of time and must not be empty.
    pub fn new(stream: &'t [u8], span: Range<usize>, config: &Config, schedule: &'t [Switch]) -> Decoder<'t> {
        assert!(!schedule.is_empty(), "some program runs at any time");
        let errata = config.errata();
        Decoder {
            packets: packet::Decoder::new(stream, span.start).with_errata(errata),
            packet_position: span.start,
            certain_at: span.start,
            span,
            timing: Timing::new(config),
            last_ip: LastIp::ZERO,
            walk: Walk::new(config),
            starts: Starts::default(),
            state: State::Lost,
            machine: Machine::new(&[], schedule[0].program),
            announced: PendingEvents::default(),
            left_from: None,
            reported: None,
            reported_cycles: 0,
            errata,
            filter: Filter::parse(&config.filter),
            no_tnt: config.no_tnt,
            no_branches: config.no_branches,
            schedule,
            next_switch: time_of(schedule.get(1)),
            switch_is_due: false,
            program: schedule[0].program,
            context: schedule[0].context,
            gap: None,
            hidden_calls: None,
            off_since_psb: false,
            waiting: Waiting::Nothing,
            damaged: false,
            calls_before: ReturnStack::default(),
            on_trial: false,
        }
    }

    /// Adds guests; the first one that matches is used. The flow of a guest without a match is a gap.
    pub fn with_guests(self, guests: &'t [Guest]) -> Decoder<'t> {
        Decoder { machine: Machine::new(guests, self.program), ..self }
    }

    /// Decodes the segment.
    pub fn decode<L: Labels>(mut self, programs: &mut [Program<'_, L>], sink: &mut impl Sink) {
        let mut context = Context { programs, sink };
        loop {
            self.follow_plain(usize::MAX, &mut context);
            self.switch_if_due(&mut context);
            if !self.step(&mut context) {
                break;
            }
        }
        self.finish(&mut context);
    }

    /// Decodes the segment with a memo, for a sink that takes paths. The reports are the same, except that paths
    /// replace blocks.
    pub fn decode_with_memo<L: Labels>(
        mut self,
        programs: &mut [Program<'_, L>],
        memos: &mut Memos,
        sink: &mut impl Sink,
    ) {
        let mut context = Context { programs, sink };
        self.walk.exchange(&mut memos.function_runs);
        loop {
            self.follow_memo(memos, &mut context);
            self.switch_if_due(&mut context);
            if !self.step(&mut context) {
                break;
            }
        }
        self.finish(&mut context);
        self.walk.exchange(&mut memos.function_runs);
    }

    /// Reads and follows a packet. Returns `false` at the end of the segment.
    #[inline]
    fn step<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) -> bool {
        self.packet_position = self.packets.position();
        match self.packets.next_before(self.span.end) {
            Ok(None) => return false,
            Ok(Some(packet)) => {
                if let Err(trouble) = self.follow(packet, context) {
                    self.lose_at_packet(trouble, context);
                }
            }
            Err(error) => {
                self.lose_at_packet(Trouble::Packet(error.kind), context);
                if !self.find_packet() {
                    return false;
                }
            }
        }
        self.packet_position < self.span.end
    }

    fn finish<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) {
        self.announced.end(context.sink);
        let unbound = self.machine.take_unbound();
        self.machine.apply(unbound, context.sink);
        self.close_gap(context.sink);
    }

    #[inline]
    pub(super) fn follow<L: Labels, S: Sink>(
        &mut self,
        packet: Packet,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        match packet {
            Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => {
                context.sink.packet(PacketKind::Tnt);
                self.tnt(tnt, context)?;
            }
            Packet::Tip(ip) => {
                context.sink.packet(PacketKind::Other);
                self.tip(ip, context)?;
            }
            // A CYC packet gives the time of the next packet, so the time is reported after that one.
            Packet::Cyc(_) | Packet::Pad => {
                if packet != Packet::Pad {
                    context.sink.packet(PacketKind::Clock);
                }
                self.timing.follow(&packet);
                return Ok(());
            }
            _ if self.timing.follow(&packet) => {
                context.sink.packet(PacketKind::Clock);
                if let Packet::Cbr(ratio) = packet {
                    context.sink.event(Event::CoreBusRatio(ratio));
                }
            }
            Packet::Mnt(_) => {}
            _ => {
                self.waiting = Waiting::Nothing;
                context.sink.packet(PacketKind::Other);
                match packet {
                    Packet::TipPge(ip) => self.tip_pge(ip, context)?,
                    Packet::TipPgd(ip) => self.tip_pgd(ip, context)?,
                    Packet::Fup(ip) => self.fup(ip, context)?,
                    Packet::Psb => return self.psb(context),
                    Packet::Overflow => self.overflow(context),
                    _ => self.optional(packet, context)?,
                }
            }
        }
        self.emit_time(context);
        self.switch_if_due(context);
        Ok(())
    }

    /// Applies a thread switch of the schedule whose time has come, if the kernel runs.
    #[inline]
    fn switch_if_due<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) {
        if self.switch_is_due && self.walk.ip & KERNEL != 0 && self.is_on() {
            self.switch_within_kernel(context);
        }
    }

    /// Reports the time if it changed, and selects the code of that time.
    // Not inlined: the sink's code would crowd the registers of the loop over packets.
    #[inline(never)]
    pub(super) fn emit_time<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) {
        self.timing.pass();
        let now = self.timing.now();
        let next = now.filter(|_| now != self.reported);
        self.reported = now;
        if let Some(now) = next {
            self.switch_is_due = now >= self.next_switch;
        }
        let is_counted = self.timing.cycles() != self.reported_cycles;
        let (walk, graph, sink) = self.walk_graph_sink(context);
        match next {
            Some(now) => {
                if !walk.emit_until(now, graph, sink) {
                    sink.event(Event::Time(now));
                }
                walk.look_at(graph, now.0);
            }
            None if is_counted => walk.emit(graph, sink),
            None => {}
        }
        if is_counted {
            self.reported_cycles = self.timing.cycles();
            context.sink.event(Event::Cycles(self.reported_cycles));
        }
    }

    /// Returns the walk, the current graph and the sink.
    #[inline]
    pub(super) fn walk_graph_sink<'c, 'a, L: Labels, S: Sink>(
        &mut self,
        context: &'c mut Context<'_, 'a, L, S>,
    ) -> (&mut Walk, &'c mut Graph<'a, L>, &'c mut S) {
        let program = self.machine.guest.unwrap_or(self.program);
        (&mut self.walk, context.programs[program].graph(Isa::X86(self.machine.bits)), context.sink)
    }

    #[inline]
    pub(super) fn tnt<L: Labels, S: Sink>(
        &mut self,
        tnt: Tnt,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        if self.announced.waits {
            self.announced.end(context.sink);
        }
        if self.state != State::On && !self.confirm_on(Some(tnt))? {
            return Ok(());
        }
        if let Some(at) = self.left_from {
            return Err(Trouble::Contradiction { at, expected: Expected::Transfer });
        }
        let mut left = tnt.count;
        loop {
            let (walk, graph, sink) = self.walk_graph_sink(context);
            let rest = Tnt { count: left, ..tnt };
            left = if sink.takes_function_runs() {
                walk.follow(graph, rest, None);
                walk.emit(graph, sink);
                walk.branch_batches.current().map_or(0, |batch| batch.left())
            } else {
                walk.branches(graph, sink, rest)
            };
            if left == 0 {
                return Ok(());
            }
            match walk.branch(graph, sink, tnt.bits >> (left - 1) & 1 == 1) {
                Ok(true) => left -= 1,
                Ok(false) => self.deferred_tip(context)?,
                Err(trouble) => return Err(self.over_unseen_return(trouble, context)),
            }
        }
    }

    /// Reads the next packet of the segment, if there is one.
    pub(super) fn next_of_segment(&mut self) -> Result<Option<Packet>, Trouble> {
        self.packets.next_before(self.span.end).map_err(|error| Trouble::Packet(error.kind))
    }

    /// The TIP of an indirect branch between the branches of a TNT follows that TNT.
    #[cold]
    fn deferred_tip<L: Labels, S: Sink>(
        &mut self,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        loop {
            let before = self.packets.clone();
            match self.next_of_segment()? {
                Some(Packet::Tip(payload)) => {
                    let to = self.last_ip.join(payload).ok_or(Trouble::NoAddress)?;
                    let (walk, graph, sink) = self.walk_graph_sink(context);
                    return walk.indirect(graph, sink, to);
                }
                Some(packet) if packet == Packet::Pad || self.timing.follow(&packet) => {}
                _ => {
                    self.packets = before;
                    let expected = Expected::Conditional;
                    return Err(Trouble::Contradiction { at: self.walk.ip, expected });
                }
            }
        }
    }

    fn tip<L: Labels, S: Sink>(
        &mut self,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        if self.state != State::On && !self.confirm_on(None)? {
            self.resume_at_tip(payload, context);
            return Ok(());
        }
        if self.announced.waits {
            self.announced.end_at_tip(self.left_from.is_some(), context.sink);
        }
        let to = self.last_ip.join(payload).ok_or(Trouble::NoAddress)?;
        self.tip_to(to, || payload, context)
    }

    /// Follows a TIP to a known address. `payload` is called only if that fails: the fast path does not decode it.
    #[inline]
    pub(super) fn tip_to<L: Labels, S: Sink>(
        &mut self,
        to: u64,
        payload: impl FnOnce() -> IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let from = self.left_from;
        let (walk, graph, sink) = self.walk_graph_sink(context);
        let walked = match from {
            Some(from) => walk.walk_to(graph, sink, from),
            None => walk.indirect(graph, sink, to),
        };
        if let Err(trouble) = walked {
            self.lose_at_tip(trouble, from, payload(), context);
            return Ok(());
        }
        if from.is_some() {
            self.left_asynchronously(to, context);
        }
        self.arrive(context)
    }

    /// Reports an asynchronous transfer to `to`, if one is pending, and continues there.
    pub(super) fn left_asynchronously<L, S: Sink>(&mut self, to: u64, context: &mut Context<'_, '_, L, S>) {
        if let Some(from) = self.left_from.take() {
            context.sink.event(Event::Asynchronous { from, to, cause: self.announced.take_cause() });
        }
        self.walk.set_ip(to);
    }

    /// Without traced conditional branches, a contradiction means a branch of unknown outcome: passes it.
    pub(super) fn explain<L: Labels, S: Sink>(
        &mut self,
        trouble: Trouble,
        context: &mut Context<'_, '_, L, S>,
    ) -> Trouble {
        match trouble {
            Trouble::Contradiction { at, expected: Expected::Indirect | Expected::Reach(_) }
                if self.no_tnt =>
            {
                let (walk, graph, sink) = self.walk_graph_sink(context);
                walk.pass_decision(graph, sink).err().unwrap_or(Trouble::NotTraced { at })
            }
            trouble => trouble,
        }
    }

    fn tip_pge<L: Labels, S: Sink>(
        &mut self,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        self.announced.end(context.sink);
        let plausible = match self.state {
            State::On => false,
            State::OnSincePsb => self.errata.has(Erratum::Bdm70),
            State::OnSinceOverflow => self.errata.has(Erratum::Apl12),
            State::Lost | State::Overflowed | State::Off => true,
        };
        if !plausible {
            self.lose(Trouble::Contradiction { at: self.walk.ip, expected: Expected::Off });
        }
        self.left_from = None;
        self.off_since_psb = false;
        let ip = self.last_ip.join(payload);
        let certain = ip.is_some();
        let ip = if self.damaged { self.last_ip.guess(payload) } else { ip };
        let switched = self.switch_program();
        self.arrive(context)?;
        match ip {
            None if self.is_lost() => return Ok(()),
            None if payload == IpPayload::Suppressed => return Err(Trouble::NoAddress),
            None => return Err(Trouble::LostAddress),
            Some(ip) if self.damaged => {
                // Tracing is on, at whichever address.
                self.accept_address(ip, certain, context)?;
                self.walk.set_ip(ip);
            }
            Some(ip) => self.walk.set_ip(ip),
        }
        if let Some(trouble) = self.machine.missing_guest() {
            return Err(trouble);
        }
        self.close_gap(context.sink);
        if let Some(switch) = switched {
            context.sink.event(Event::Switch(switch));
        }
        self.state = State::On;
        context.sink.event(Event::Enabled(self.walk.ip));
        Ok(())
    }

    /// Applies the schedule when tracing comes on. Returns the context if the thread changed.
    pub(super) fn switch_program(&mut self) -> Option<u32> {
        let now = self.timing.now().unwrap_or(Tsc(0));
        let after = self.schedule.partition_point(|switch| switch.at <= now);
        let switch = self.schedule[after.saturating_sub(1)];
        self.next_switch = time_of(self.schedule.get(after.max(1)));
        self.switch_is_due = self.reported.is_some_and(|now| now >= self.next_switch);
        let switched = (switch.program, switch.context) != (self.program, self.context);
        if switched {
            (self.program, self.context) = (switch.program, switch.context);
            self.machine.run(switch.program);
            self.walk.forget_block();
        }
        switched.then_some(switch.context)
    }

    fn tip_pgd<L: Labels, S: Sink>(
        &mut self,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let cause = self.announced.take_cause();
        self.announced.end(context.sink);
        let to = self.last_ip.join(payload);
        let mut from = self.left_from.take();
        if self.is_on() {
            if from.is_some_and(|from| self.is_entry_to_guest(from, context)) {
                from = None;
            }
            if let Err(trouble) = self.leave(from, to, context) {
                let trouble = self.explain(trouble, context);
                self.lose(trouble);
            }
        }
        // The changes concern code that is not traced.
        self.arrive(context).ok();
        self.close_gap(context.sink);
        if self.state != State::Off {
            let cause = cause.filter(|_| from.is_some());
            context.sink.event(Event::Disabled { from, to, asynchronous: from.is_some(), cause });
        }
        self.state = State::Off;
        Ok(())
    }

    /// Walks to the point where tracing went off.
    fn leave<L: Labels, S: Sink>(
        &mut self,
        from: Option<u64>,
        to: Option<u64>,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let filter = std::mem::take(&mut self.filter);
        let (direct_unseen, on_trial) = (self.errata.has(Erratum::Skl014), self.on_trial);
        let (walk, graph, sink) = self.walk_graph_sink(context);
        let at = walk.tick;
        let traced = |graph: &Graph<'_, L>, address: u64| {
            let origin = graph.origin(address, at);
            let is_file =
                |file: &str| origin.is_some_and(|origin| graph.labels().is_file(origin.module, file));
            filter.traces(address, origin, is_file)
        };
        let left = match (from, to) {
            (Some(from), _) => walk.walk_to(graph, sink, from),
            (None, Some(to)) => walk.leave(graph, sink, to),
            (None, None) => {
                let filter = if !filter.is_empty() {
                    Filtering::By(traced)
                } else if on_trial {
                    // After damage, a stray byte 01 (TIP.PGD) must not confirm a probe.
                    Filtering::Absent
                } else {
                    Filtering::Unknown
                };
                walk.leave_unseen(graph, sink, direct_unseen, filter)
            }
        };
        self.filter = filter;
        left
    }

    /// Returns whether the FUP at `from` is due to erratum SKD022: the instruction is a VM entry, which ran.
    fn is_entry_to_guest<L: Labels, S: Sink>(
        &mut self,
        from: u64,
        context: &mut Context<'_, '_, L, S>,
    ) -> bool {
        let (walk, graph, _) = self.walk_graph_sink(context);
        let instruction = graph.snapshot(walk.tick).instruction(from);
        instruction.is_ok_and(|read| read.instruction.role() == Role::EnterGuest)
            && self.errata.has(Erratum::Skd022)
    }

    /// Applies the pending changes of the machine state, which take effect at the current TIP, TIP.PGE or TIP.PGD.
    #[inline]
    pub(super) fn arrive<L: Labels, S: Sink>(
        &mut self,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        if self.machine.changes {
            self.change(context)?;
        }
        Ok(())
    }

    #[cold]
    fn change<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) -> Result<(), Trouble> {
        self.machine.change(context.sink);
        self.walk.forget_block();
        self.machine.missing_guest().map_or(Ok(()), Err)
    }
}

fn time_of(switch: Option<&Switch>) -> Tsc {
    switch.map_or(Tsc(u64::MAX), |switch| switch.at)
}
