//! What each packet says of the flow.

use hodo_code::Labels;
use hodo_flow::{Event, Expected, Sink, Trouble};

use super::{
    Decoder, PendingTrap, Programs, State, cause, code,
    schedule::is_kernel,
    walk::{Address, By, Goal, Reached},
};
use crate::packet::{BranchMap, Packet, Prediction, Qualification, Reported, Start, Support, Trap};

/// What follows a packet, as far as its meaning depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follower {
    /// A trap, or the end of tracing for which the packet was sent.
    Interruption,
    /// A synchronization packet about this address.
    Start(u64),
    /// Anything else.
    Flow,
}

impl Decoder<'_> {
    pub(super) fn follow<L: Labels>(
        &mut self,
        packet: Packet,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        match packet {
            Packet::Start(start) => self.start(&start, programs, sink),
            Packet::Trap(trap) => self.trap(&trap, programs, sink),
            Packet::Context(context) => {
                self.emit_time(context.time, programs, sink);
                Ok(())
            }
            Packet::Support(support) => self.support(&support, programs, sink),
            _ if self.state == State::On => self.report(packet, programs, sink),
            // Nothing can be said before a synchronization packet.
            _ if matches!(self.state, State::Unknown | State::Lost) => {
                let address = self.address_of(packet);
                self.resume_at(packet, address, programs, sink);
                Ok(())
            }
            _ => Err(Trouble::Contradiction { at: self.walk.ip, expected: Expected::On }),
        }
    }

    /// Reads on behind the chunk: the packet shows what ran before it.
    pub(super) fn end_at<L: Labels>(
        &mut self,
        packet: Packet,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) -> bool {
        let ended = match packet {
            Packet::Start(start) => {
                let reached = self.reach(&start, programs, sink);
                // What ran has a time up to the end of the chunk.
                self.emit_time(start.context.time, programs, sink);
                reached
            }
            Packet::Support(support) => match self.support(&support, programs, sink) {
                Ok(()) if self.state == State::On => return true,
                ended => ended,
            },
            // No chunk begins at another packet.
            _ => Ok(()),
        };
        if let Err(trouble) = ended {
            self.lose(trouble, programs, sink);
        }
        false
    }

    /// Walks to the address of a synchronization packet within the flow, and reports what is before it.
    fn reach<L: Labels>(
        &mut self,
        start: &Start,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        if self.state != State::On {
            return Ok(());
        }
        let graph = programs.graph(self.isa);
        if let Some(address) = self.inferred.take()
            && !self.walk.may_precede(graph, &self.memory, start.address)
        {
            // A packet that is sent only because this one follows is about the instruction directly before. So the one
            // before was about the target of a jump. The specification's decoder does not look.
            self.walk.advance(graph, sink, &mut self.memory, Goal::Jump(address))?;
        }
        if code::branches_at(graph, start.address, self.walk.tick()) == 1 {
            self.memory.outcomes.add(BranchMap { count: 1, not_taken: u32::from(!start.taken) });
        }
        let is_changed = start.context.privilege != self.privilege;
        let goal = Goal::Synchronization { address: start.address, is_changed };
        let reached = self.walk.advance(graph, sink, &mut self.memory, goal)?;
        let is_ambiguous = self.memory.implicit_return
            && reached == Reached::ByPath
            && self.walk.could_go_on(graph, &self.memory, goal);
        self.walk.finish_before(graph, sink, start.address);
        self.state = State::Unknown;
        if is_ambiguous { Err(Trouble::Ambiguous { at: start.address }) } else { Ok(()) }
    }

    /// A synchronization packet: the flow is known from here on, whatever came before.
    fn start<L: Labels>(
        &mut self,
        start: &Start,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let before = self.state;
        if let Err(trouble) = self.reach(start, programs, sink) {
            self.lose(trouble, programs, sink);
        }
        self.emit_time(start.context.time.or(self.carrier_time), programs, sink);
        if before != State::On || self.state == State::Lost || start.context.privilege != self.privilege {
            // What ran before is unknown, or the kernel.
            self.follow_schedule(programs, sink);
        }
        self.close_gap(sink);
        match (before, self.trap.take()) {
            (State::Trapped, Some(PendingTrap { from: Some(from), cause })) => {
                sink.event(Event::Asynchronous { from, to: start.address, cause: Some(cause) });
            }
            (State::Trapped | State::Off, _) => sink.event(Event::Enabled(start.address)),
            _ => {}
        }
        self.privilege = start.context.privilege;
        self.begin(start.address, start.taken, programs, sink)
    }

    /// Begins at an instruction, without any memory.
    fn begin<L: Labels>(
        &mut self,
        address: u64,
        taken: bool,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        if is_kernel(address) {
            self.follow_schedule(programs, sink);
        }
        self.allowance.restart(self.packet_position);
        self.reported = address;
        self.inferred = None;
        self.memory.outcomes.clear();
        self.memory.predictor.reset();
        self.memory.cache.reset();
        self.memory.calls.clear();
        self.state = State::On;
        let graph = programs.graph(self.isa);
        self.walk.begin(graph, address)?;
        if code::branches_at(graph, address, self.walk.tick()) == 1 {
            self.memory.outcomes.add(BranchMap { count: 1, not_taken: u32::from(!taken) });
        }
        Ok(())
    }

    fn trap<L: Labels>(
        &mut self,
        trap: &Trap,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let (before, after) = (self.state, self.flush(programs, sink));
        let cause = cause(trap);
        // The address of the exception, if the code does not determine it.
        let given = if trap.is_handler { None } else { trap.address };
        let from = match before {
            State::On => after.or(given),
            State::Trapped => self.trap.and_then(|pending| pending.from),
            State::Unknown | State::Lost | State::Off => given,
        };
        self.emit_time(trap.context.time.or(self.carrier_time), programs, sink);
        self.state = State::Trapped;
        self.inferred = None;
        self.reported = trap.address.unwrap_or(self.reported);
        if !trap.is_handler {
            if before == State::On && after.is_none() {
                // Without an address of the next instruction, nothing shows that the flow continued.
                sink.event(Event::Disabled { from, to: None, asynchronous: true, cause: Some(cause) });
            }
            self.trap = Some(PendingTrap { from, cause });
            self.close_gap(sink);
            return Ok(());
        }
        self.trap = None;
        let Some(handler) = trap.address else {
            // The handler's address is known to those who configured the hart only.
            return Err(Trouble::NoAddress);
        };
        self.close_gap(sink);
        match (before, from) {
            (State::On | State::Trapped, Some(from)) => {
                sink.event(Event::Asynchronous { from, to: handler, cause: Some(cause) });
            }
            (State::On, None) => {
                sink.event(Event::Disabled { from: None, to: None, asynchronous: true, cause: Some(cause) });
                sink.event(Event::Enabled(handler));
            }
            (State::Off | State::Trapped, _) => sink.event(Event::Enabled(handler)),
            (State::Unknown | State::Lost, _) => {}
        }
        self.privilege = trap.context.privilege;
        self.begin(handler, trap.taken, programs, sink)
    }

    fn support<L: Labels>(
        &mut self,
        support: &Support,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let qualification = support.qualification;
        let mut result = Ok(());
        if let (State::On, Qualification::Ended, Some(address)) = (self.state, qualification, self.inferred) {
            // The packet before it would have been sent anyway: it reported the target of a jump.
            let graph = programs.graph(self.isa);
            result = self.walk.advance(graph, sink, &mut self.memory, Goal::Jump(address)).map(|_| ());
        }
        if support.options != self.options {
            self.set_options(support.options);
        }
        if let (Ok(()), Qualification::Lost) = (result, qualification) {
            result = Err(Trouble::Overflow);
        }
        result?;
        self.inferred = None;
        if qualification != Qualification::Unchanged || !support.enabled {
            if self.state == State::On {
                let to = self.flush(programs, sink);
                sink.event(Event::Disabled { from: None, to, asynchronous: false, cause: None });
            }
            if let (State::Trapped, Some(PendingTrap { from: from @ Some(_), cause })) =
                (self.state, self.trap)
            {
                // The handler is not traced.
                sink.event(Event::Disabled { from, to: None, asynchronous: true, cause: Some(cause) });
            }
            self.trap = None;
            if self.state != State::Lost {
                self.state = State::Off;
            }
        }
        Ok(())
    }

    /// A packet about branches, an address or both, while the flow is known.
    fn report<L: Labels>(
        &mut self,
        packet: Packet,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let graph = programs.graph(self.isa);
        let mut predicted = None;
        match packet {
            Packet::Branches { map, .. } | Packet::Cached { map, .. } => self.memory.outcomes.add(map),
            Packet::Predicted { count, end } => {
                predicted = Some((count, !matches!(end, Prediction::Address(_))))
            }
            _ => {}
        }
        if let Some(address) = self.inferred.take() {
            self.walk.advance(graph, sink, &mut self.memory, Goal::Jump(address))?;
        }
        if let Some((count, then_failed)) = predicted {
            self.allowance.spend(count, self.packet_position)?;
            self.memory.outcomes.add_predicted(count, then_failed);
        }
        let Some(address) = self.address_of(packet) else {
            self.walk.advance(graph, sink, &mut self.memory, Goal::LastBranch)?;
            return Ok(());
        };
        let address = address?;
        let goal = Goal::Address(self.way_to(packet, address, programs)?);
        let graph = programs.graph(self.isa);
        self.reported = address;
        let reached = self.walk.advance(graph, sink, &mut self.memory, goal)?;
        if reached == Reached::ByPath {
            let notified = reported(packet).is_some_and(|reported| reported.notify);
            if self.memory.implicit_return && self.walk.could_go_on(graph, &self.memory, goal) {
                return Err(Trouble::Ambiguous { at: address });
            }
            self.inferred = (!notified).then_some(address);
        }
        Ok(())
    }

    /// The address that a packet reports, or why it is unknown.
    pub(super) fn address_of(&self, packet: Packet) -> Option<Result<u64, Trouble>> {
        if let Packet::Cached { index, .. } = packet {
            return Some(self.memory.cache.at(index).ok_or(Trouble::LostAddress));
        }
        let field = reported(packet)?.address;
        let base = if self.options.full_address { 0 } else { self.reported };
        let shifted = (field as u64) << self.parameters.iaddress_lsb;
        let address = base.wrapping_add(shifted);
        Some(Ok(self.parameters.address(self.parameters.field(address))))
    }

    /// How the address of a packet is reached.
    ///
    /// # Errors
    /// The code that decides it is missing, or two ways lead there.
    fn way_to<L: Labels>(
        &self,
        packet: Packet,
        address: u64,
        programs: &mut Programs<'_, '_, L>,
    ) -> Result<Address, Trouble> {
        let (notify, updiscon, depth) = match (packet, reported(packet)) {
            (Packet::Cached { depth, .. }, _) => (false, false, depth),
            (_, Some(reported)) => (reported.notify, reported.updiscon, reported.depth),
            (_, None) => (false, false, None),
        };
        let depth = depth.filter(|_| self.memory.implicit_return).map(|depth| depth as usize);
        let by = match depth {
            _ if notify => By::Path,
            _ if updiscon => By::Jump,
            None => By::Any,
            // The depth is that of a return that failed, or is given because a packet of format 3 follows. Directly after
            // a failed return, `updiscon` is set.
            Some(_) => {
                let (tick, graph) = (self.walk.tick(), programs.graph(self.isa));
                match self.follower() {
                    Follower::Interruption => By::Path,
                    Follower::Start(next)
                        if code::may_follow(graph, (address, last_outcome(packet)), next, tick)? =>
                    {
                        // A later instruction may also come before the next address.
                        let mut could = |by| {
                            let goal = Goal::Address(Address { address, by, depth });
                            self.walk.could_reach(graph, &self.memory, goal)
                        };
                        match (could(By::Path), could(By::Jump)) {
                            (true, true) => return Err(Trouble::Ambiguous { at: address }),
                            (false, true) => By::Jump,
                            (_, false) => By::Path,
                        }
                    }
                    Follower::Start(_) | Follower::Flow => By::Jump,
                }
            }
        };
        Ok(Address { address, by, depth })
    }

    /// Returns what comes after the current packet.
    fn follower(&self) -> Follower {
        let mut units = self.units.clone();
        while let Ok(Some(unit)) = units.next_unit() {
            if unit.kind != crate::transport::Kind::Instruction
                || self.source.is_some_and(|source| source != unit.source)
            {
                continue;
            }
            match Packet::decode_after(unit.payload, unit.skip, self.parameters, self.options) {
                Ok(Packet::Start(start)) => return Follower::Start(start.address),
                Ok(Packet::Trap(_)) => return Follower::Interruption,
                Ok(Packet::Support(support)) => match support.qualification {
                    Qualification::EndedReported => return Follower::Interruption,
                    Qualification::Unchanged => {}
                    Qualification::Ended | Qualification::Lost => return Follower::Flow,
                },
                Ok(Packet::Context(_)) => {}
                _ => return Follower::Flow,
            }
        }
        Follower::Flow
    }

    /// Continues at `address`, which a packet reports, although the flow before it is unknown. That needs the last reported address,
    /// and that nothing else depends on the flow before.
    pub(super) fn resume_at<L: Labels>(
        &mut self,
        packet: Packet,
        address: Option<Result<u64, Trouble>>,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) {
        let is_known = self.gap.is_some() && self.lacks_code_only;
        let depends =
            self.options.implicit_return || self.options.branch_prediction || self.options.jump_target_cache;
        if !is_known || depends || self.state != State::Lost {
            return;
        }
        let Some(Ok(address)) = address else { return };
        // An address in the gap is the base of the next one, even if its code is unknown too.
        self.reported = address;
        let map = match packet {
            Packet::Branches { map, .. } => map,
            _ => BranchMap::default(),
        };
        self.follow_schedule(programs, sink);
        let graph = programs.graph(self.isa);
        if self.walk.begin(graph, address).is_err() {
            return;
        }
        let is_branch = code::branches_at(graph, address, self.walk.tick()) == 1;
        // The instruction before may have loaded the target of a jump.
        let may_be_inferred = self.memory.sijump && code::is_indirect(graph, address, self.walk.tick());
        if is_branch && map.count == 0 || may_be_inferred {
            return;
        }
        self.close_gap(sink);
        self.state = State::On;
        if is_branch {
            // The last outcome is that of the reported branch.
            let not_taken = map.not_taken >> (map.count - 1) & 1;
            self.memory.outcomes.add(BranchMap { count: 1, not_taken });
        }
    }
}

/// The outcome of the reported instruction, if that is a branch.
fn last_outcome(packet: Packet) -> Option<bool> {
    match packet {
        Packet::Branches { map, .. } | Packet::Cached { map, .. } if map.count > 0 => {
            Some(map.not_taken >> (map.count - 1) & 1 == 0)
        }
        _ => None,
    }
}

/// The address field of a packet and its flags.
fn reported(packet: Packet) -> Option<Reported> {
    match packet {
        Packet::Address(reported) => Some(reported),
        Packet::Branches { reported, .. } => reported,
        Packet::Predicted { end: Prediction::Address(reported) | Prediction::FailedAt(reported), .. } => {
            Some(reported)
        }
        _ => None,
    }
}
