//! Decodes messages and code to the flow.

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{BlockId, Graph, Labels, NOT_TAKEN, Program, TAKEN, Terminator};
use hodo_flow::{Event, Executed, Expected, Gap, PacketError, Sink, Trouble};
use hodo_isa::{Isa, riscv::Set};

use super::{
    Branch, Configuration, Error, Form, Message, Messages, Resource, Synchronization,
    limits::{counted, is_too_long, repeated},
    message::JUMP,
};
use crate::{
    allowance::Allowance,
    flow::code::{last_address, sequential_target, upper_at_end},
    modes::Calls,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is known, before the first synchronization message.
    Unknown,
    /// A gap is open.
    Lost,
    Off,
    On,
}

/// How the instructions of a message end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Between two instructions.
    Anywhere,
    /// With a conditional branch that is taken, although no history says so.
    TakenBranch,
    /// With an indirect jump to this address.
    Jump(u64),
    /// Between two instructions, or with a jump to this address.
    At(u64),
}

/// Decodes one hart's flow in a chunk of a stream: from a synchronization message to another one, or to the end.
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    isa: Isa,
    set: Set,
    messages: Messages<'t>,
    source: Option<u16>,
    span: Range<usize>,
    sijump: bool,
    /// The stack of return addresses, if returns are not reported.
    calls: Option<Calls>,
    state: State,
    /// Address of the next instruction.
    pc: u64,
    block: Option<BlockId>,
    /// Register and value that the instruction before set, if it belongs to the same message.
    upper: Option<(u8, u64)>,
    /// Whether the last instruction is an indirect jump without a known target: then `pc` is unknown.
    is_open: bool,
    /// Halfwords that were counted, but not walked over, and those that were walked over ahead of their count.
    counted: u64,
    walked: u64,
    /// The address reported last, without its lowest bit.
    reported: u64,
    allowance: Allowance,
    /// The last branch message and its target, for repetitions.
    last_branch: Option<(Message, u64)>,
    time: Option<u64>,
    /// The time reported last.
    reported_time: Option<Tsc>,
    message_at: usize,
    certain_at: usize,
    gap: Option<Gap>,
}

impl<'t> Decoder<'t> {
    /// Creates a decoder of a chunk of `stream`. From `span.end` on it reads only the synchronization message there, which
    /// shows what ran before it.
    pub fn new(stream: &'t [u8], span: Range<usize>, configuration: &Configuration) -> Decoder<'t> {
        let set = configuration.set();
        Decoder {
            isa: Isa::RiscV(set),
            set,
            messages: Messages::new(stream, span.start, configuration.source_width),
            source: configuration.source,
            message_at: span.start,
            certain_at: span.start,
            span,
            sijump: configuration.sijump,
            calls: configuration.return_stack.map(|depth| Calls::with_depth(depth.into())),
            state: State::Unknown,
            pc: 0,
            block: None,
            upper: None,
            is_open: false,
            counted: 0,
            walked: 0,
            reported: 0,
            allowance: Allowance::default(),
            last_branch: None,
            time: None,
            reported_time: None,
            gap: None,
        }
    }

    /// Decodes the chunk.
    pub fn decode<L: Labels>(mut self, program: &mut Program<'_, L>, sink: &mut impl Sink) {
        let graph = program.graph(self.isa);
        loop {
            self.message_at = self.messages.position();
            let unit = match self.messages.next_message() {
                Ok(None) => break,
                Ok(Some(unit)) => unit,
                Err(error) => {
                    self.lose(error.trouble());
                    continue;
                }
            };
            self.message_at = unit.at;
            if self.source.is_some_and(|source| source != unit.source) {
                continue;
            }
            self.take_time(&unit.message, unit.time);
            let is_after = unit.at >= self.span.end;
            match self.follow(unit.message, is_after, graph, sink) {
                Ok(()) => self.certain_at = unit.at,
                Err(trouble) => self.lose(trouble),
            }
            if is_after {
                break;
            }
            self.emit_time(sink);
        }
        self.close_gap(sink);
    }

    fn take_time(&mut self, message: &Message, time: Option<u64>) {
        self.time = match (message, time, self.time) {
            (Message::Synchronization(_), time, _) => time,
            (_, Some(more), Some(time)) => Some(time.saturating_add(more)),
            (_, _, time) => time,
        };
    }

    fn emit_time(&mut self, sink: &mut impl Sink) {
        if let Some(time) = self.time.map(Tsc).filter(|&time| self.reported_time != Some(time)) {
            self.reported_time = Some(time);
            self.block = None;
            sink.event(Event::Time(time));
        }
    }

    fn lose(&mut self, trouble: Trouble) {
        self.state = State::Lost;
        self.last_branch = None;
        if self.gap.is_none() {
            let from = self.message_at as u64;
            let doubtful_since = trouble.is_doubtful().then_some(self.certain_at as u64);
            self.gap =
                Some(Gap { from, to: from, since: self.reported_time, until: None, doubtful_since, trouble });
        }
    }

    fn close_gap(&mut self, sink: &mut impl Sink) {
        if let Some(gap) = self.gap.take() {
            sink.event(Event::Gap(Gap { to: self.message_at as u64, until: self.time.map(Tsc), ..gap }));
        }
    }

    fn follow<L: Labels>(
        &mut self,
        message: Message,
        is_after: bool,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        if is_too_long(&message) {
            return Err(Trouble::Packet(PacketError::Malformed(0)));
        }
        let last_count = self.last_branch.map_or(0, |(message, _)| counted(&message));
        self.allowance.spend(counted(&message) + repeated(&message, last_count), self.message_at)?;
        match message {
            Message::Synchronization(synchronization) => {
                return self.synchronize(synchronization, is_after, graph, sink);
            }
            Message::Error { .. } => return Err(Trouble::Overflow),
            Message::Ownership { .. } => return Ok(()),
            _ => {}
        }
        match self.state {
            State::On if is_after => return Ok(()),
            State::On => {}
            State::Off if matches!(message, Message::Correlation { .. }) => return Ok(()),
            State::Off => return Err(Trouble::Contradiction { at: self.pc, expected: Expected::On }),
            State::Unknown | State::Lost => return Ok(()),
        }
        match message {
            Message::DirectBranch { count } => {
                self.last_branch = Some((message, 0));
                self.walk(count, None, End::TakenBranch, graph, sink)
            }
            Message::IndirectBranch(branch) => {
                let field = self.reported ^ branch.address;
                self.last_branch = Some((message, field));
                self.branch(branch, field, graph, sink)
            }
            Message::RepeatBranch { count } => self.repeat(count, graph, sink),
            Message::ResourceFull(resource) => self.resource(resource, graph, sink),
            Message::Correlation { count, history, .. } => {
                self.walk(count, history, End::Anywhere, graph, sink)?;
                self.state = State::Off;
                let to = (!self.is_open).then_some(self.pc);
                sink.event(Event::Disabled { from: None, to, asynchronous: false, cause: None });
                Ok(())
            }
            Message::Synchronization(_) | Message::Error { .. } | Message::Ownership { .. } => Ok(()),
        }
    }

    /// An indirect jump or a trap, with the target's field.
    fn branch<L: Labels>(
        &mut self,
        branch: Branch,
        field: u64,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let address = self.set.address(field << 1);
        if branch.kind == JUMP {
            self.walk(branch.count, branch.history, End::Jump(address), graph, sink)?;
        } else {
            self.walk(branch.count, branch.history, End::Anywhere, graph, sink)?;
            self.trap(address, sink);
        }
        self.reported = field;
        Ok(())
    }

    /// A trap at the current position.
    fn trap(&mut self, handler: u64, sink: &mut impl Sink) {
        // Messages do not contain the cause.
        let cause = None;
        match self.is_open {
            true => {
                sink.event(Event::Disabled { from: None, to: None, asynchronous: true, cause });
                sink.event(Event::Enabled(handler));
            }
            false => sink.event(Event::Asynchronous { from: self.pc, to: handler, cause }),
        }
        self.go_to(handler, None);
    }

    fn repeat<L: Labels>(
        &mut self,
        count: u64,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let (message, field) = self.last_branch.ok_or(Trouble::LostAddress)?;
        for _ in 0..count {
            match message {
                Message::DirectBranch { count } => self.walk(count, None, End::TakenBranch, graph, sink)?,
                Message::IndirectBranch(branch) => {
                    // Nothing would run, however often.
                    if branch.count == 0 {
                        return Err(Trouble::EndlessLoop { at: self.pc });
                    }
                    self.branch(branch, field, graph, sink)?;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn resource<L: Labels>(
        &mut self,
        resource: Resource,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        match resource {
            Resource::Count(count) => {
                self.counted = self.counted.saturating_add(count);
                Ok(())
            }
            Resource::History(history) => self.walk_history(history, graph, sink),
            Resource::Repeated { history, times } => {
                if history <= 1 {
                    return Ok(());
                }
                (0..times).try_for_each(|_| self.walk_history(history, graph, sink))
            }
        }
    }

    fn synchronize<L: Labels>(
        &mut self,
        synchronization: Synchronization,
        is_after: bool,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let Synchronization { form, count, address: field, .. } = synchronization;
        let address = self.set.address(field << 1);
        let before = self.state;
        if before == State::On {
            let reached = match form {
                Form::Program | Form::Direct => self.walk(count, None, End::At(address), graph, sink),
                Form::Indirect { kind: JUMP, history } => {
                    self.walk(count, history, End::At(address), graph, sink)
                }
                Form::Indirect { history, .. } => {
                    self.walk(count, history, End::Anywhere, graph, sink).map(|()| self.trap(address, sink))
                }
            };
            if let Err(trouble) = reached {
                self.lose(trouble);
            }
        }
        if is_after {
            return Ok(());
        }
        self.emit_time(sink);
        self.close_gap(sink);
        if before == State::Off {
            sink.event(Event::Enabled(address));
        }
        (self.counted, self.walked, self.reported, self.last_branch) = (0, 0, field, None);
        self.allowance.restart(self.message_at);
        if let Some(calls) = &mut self.calls {
            calls.clear();
        }
        self.go_to(address, None);
        self.upper = None;
        self.state = State::On;
        Ok(())
    }

    fn go_to(&mut self, address: u64, block: Option<BlockId>) {
        (self.pc, self.block) = (address, block);
    }

    fn current_block<L: Labels>(&mut self, graph: &mut Graph<'_, L>) -> Result<BlockId, Trouble> {
        let tick = self.reported_time.map_or(0, |time| time.0);
        match self.block {
            Some(id) => Ok(id),
            None => graph.at(self.pc, tick).map_err(Trouble::Code),
        }
    }

    fn report<L: Labels>(&self, graph: &Graph<'_, L>, id: BlockId, count: usize, sink: &mut impl Sink) {
        let tick = self.reported_time.map_or(0, |time| time.0);
        let (block, code) = (graph.block(id), graph.snapshot(tick));
        let (bytes, provenances) = (graph.bytes(), graph.provenances());
        let lengths = &graph.lengths(block)[..count];
        sink.executed(Executed { block, lengths, id, bytes, provenances, code, condition_failed: false });
    }

    /// Walks over the branches of a history, ahead of the count of their instructions.
    fn walk_history<L: Labels>(
        &mut self,
        history: u64,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let mut left = history.checked_ilog2().unwrap_or(0);
        let mut guard = 0_u32;
        while left > 0 {
            let id = self.current_block(graph)?;
            let is_branch = graph.block(id).terminator == Terminator::Conditional;
            let taken = is_branch && history >> (left - 1) & 1 == 1;
            self.walked += units(graph, id);
            self.pass(taken, Target::IsInCode, id, graph, sink)?;
            if is_branch {
                (left, guard) = (left - 1, 0);
            } else {
                guard += 1;
                if guard > LONGEST_STRAIGHT {
                    return Err(Trouble::EndlessLoop { at: self.pc });
                }
            }
        }
        Ok(())
    }

    /// Walks over this number of halfwords, with the branches of a history.
    fn walk<L: Labels>(
        &mut self,
        count: u64,
        history: Option<u64>,
        end: End,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let total = std::mem::take(&mut self.counted).saturating_add(count);
        let walked = std::mem::take(&mut self.walked);
        let contradiction = Trouble::Contradiction { at: self.pc, expected: Expected::Conditional };
        let mut remaining = total.checked_sub(walked).ok_or(contradiction)?;
        let mut outcomes = history.map_or(0, |history| history.checked_ilog2().unwrap_or(0));
        let mut jumped = false;
        while remaining > 0 {
            let id = self.current_block(graph)?;
            let size = units(graph, id);
            if remaining < size {
                self.pass_part(remaining, id, graph, sink)?;
                break;
            }
            remaining -= size;
            let is_last = remaining == 0;
            let mut taken = false;
            if graph.block(id).terminator == Terminator::Conditional {
                match (history, outcomes) {
                    (Some(history), 1..) => {
                        outcomes -= 1;
                        taken = history >> outcomes & 1 == 1;
                    }
                    _ => taken = is_last && leads_by_branch(graph, id, end),
                }
                jumped |= taken && is_last;
            }
            let target = match end {
                End::Jump(address) | End::At(address) if is_last => Target::Is(address),
                End::Anywhere if is_last => Target::MayBeUnknown,
                _ => Target::IsInCode,
            };
            jumped |= self.pass(taken, target, id, graph, sink)?;
        }
        self.upper = None;
        let is_right = match end {
            End::Anywhere => true,
            End::TakenBranch => jumped,
            End::Jump(address) => jumped && self.pc == address,
            End::At(address) => self.pc == address,
        };
        if outcomes > 0 || !is_right {
            let at = self.pc;
            let expected = match end {
                End::At(address) => Expected::Reach(address),
                End::Jump(_) => Expected::Indirect,
                End::TakenBranch | End::Anywhere => Expected::Conditional,
            };
            return Err(Trouble::Contradiction { at, expected });
        }
        Ok(())
    }

    /// Passes the first instructions of a block.
    fn pass_part<L: Labels>(
        &mut self,
        halfwords: u64,
        id: BlockId,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let block = graph.block(id);
        let (mut left, mut count) = (halfwords, 0);
        for &length in graph.lengths(block) {
            if left == 0 {
                break;
            }
            let size = u64::from(length) / 2;
            // A count that ends within an instruction.
            let at = block.start;
            left = left
                .checked_sub(size)
                .ok_or(Trouble::Contradiction { at, expected: Expected::Conditional })?;
            count += 1;
        }
        let next = block.start.wrapping_add(2 * halfwords);
        self.report(graph, id, count, sink);
        self.go_to(next, None);
        Ok(())
    }

    /// Passes a block; `target` is what the message says of that of an indirect jump at its end. Returns whether the block
    /// ended with one whose target the message gives.
    fn pass<L: Labels>(
        &mut self,
        taken: bool,
        target: Target,
        id: BlockId,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<bool, Trouble> {
        let tick = self.reported_time.map_or(0, |time| time.0);
        let block = graph.block(id);
        let (count, terminator) = (block.instructions as usize, block.terminator);
        let (direct, end) = (block.target, block.end);
        let at = last_address(graph, id);
        self.is_open = false;
        let mut jumped = false;
        let (to, next) = match terminator {
            Terminator::Conditional if taken => (direct, graph.follow(id, TAKEN, tick).ok()),
            Terminator::None | Terminator::Conditional | Terminator::Barrier | Terminator::Wait => {
                (end, graph.follow(id, NOT_TAKEN, tick).ok())
            }
            Terminator::Jump | Terminator::Call => (direct, graph.follow(id, TAKEN, tick).ok()),
            // It does not retire.
            Terminator::Trap => {
                return Err(Trouble::Contradiction { at, expected: Expected::Indirect });
            }
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => {
                let to = match (target, self.inferred_target(graph, id, target)) {
                    (Target::Is(address), _) => {
                        jumped = true;
                        address
                    }
                    (_, Some(address)) => address,
                    (Target::MayBeUnknown, None) => {
                        self.is_open = true;
                        end
                    }
                    (Target::IsInCode, None) => {
                        return Err(Trouble::Contradiction { at, expected: Expected::Indirect });
                    }
                };
                (to, graph.indirect_target(id, to, tick).ok())
            }
        };
        if let (Terminator::Call | Terminator::IndirectCall, Some(calls)) = (terminator, &mut self.calls) {
            calls.push(end);
        }
        self.report(graph, id, count, sink);
        self.upper = match terminator {
            Terminator::None if self.sijump => upper_at_end(graph, id, self.set),
            _ => None,
        };
        self.go_to(to, next);
        Ok(jumped)
    }

    /// The target of an indirect jump that no message reports.
    fn inferred_target<L: Labels>(
        &mut self,
        graph: &Graph<'_, L>,
        id: BlockId,
        target: Target,
    ) -> Option<u64> {
        if matches!(target, Target::Is(_)) {
            return None;
        }
        let sequential = if self.sijump { sequential_target(graph, id, self.upper, self.set) } else { None };
        match (&mut self.calls, graph.block(id).terminator) {
            (Some(calls), Terminator::Return) if sequential.is_none() => calls.pop(),
            _ => sequential,
        }
    }
}

/// What a message says of the target of an indirect jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// It is this address.
    Is(u64),
    /// Nothing: the code or the stack determines it.
    IsInCode,
    /// Nothing: the code may determine it, or tracing ended before it was known.
    MayBeUnknown,
}

/// Blocks without a branch in a history, after which there must be one.
const LONGEST_STRAIGHT: u32 = 1 << 20;

/// The halfwords of a block.
fn units<L: Labels>(graph: &Graph<'_, L>, id: BlockId) -> u64 {
    let block = graph.block(id);
    block.end.wrapping_sub(block.start) / 2
}

/// Whether the branch at a block's end is taken if no history says so and it is the last instruction.
fn leads_by_branch<L: Labels>(graph: &Graph<'_, L>, id: BlockId, end: End) -> bool {
    let block = graph.block(id);
    match end {
        End::TakenBranch => true,
        End::At(address) => address == block.target && address != block.end,
        End::Anywhere | End::Jump(_) => false,
    }
}

impl Error {
    fn trouble(self) -> Trouble {
        Trouble::Packet(match self {
            Error::CutShort(size) => PacketError::CutShort(size.min(255) as u8),
            Error::Byte(byte) => PacketError::Malformed(byte),
            Error::Unknown(code) => PacketError::UnknownOpcode(code),
        })
    }
}
