//! Applies each committed element to the flow.

mod memo;
mod packets;
mod threads;

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{Graph, Isa, Labels, Program};
use hodo_flow::{Event, Expected, Gap, Sink, Switch, Trouble};

pub use memo::Memos;
pub use threads::ThreadContext;

use super::{
    elements::{Element, Elements, Placed},
    exception::{Left, RESET},
    walk::{Between, Reached, Walk},
};
use crate::{
    Config, ThreadIds,
    packet::{self, Address, Atoms, Context, Exception, Packet},
};

/// Where the flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first address of the segment.
    Start,
    /// At the walk's position.
    On,
    /// After an indirect branch, whose block begins at this address. Its target is an address that follows, or, if none
    /// does, on the return stack.
    AfterIndirect(u64),
    /// After an exception, before its handler.
    Excepted(Left),
    /// Tracing is off.
    Off,
    /// The flow is unknown, since the gap that is open.
    Lost,
    /// As [`State::Lost`], up to the end of the segment: bytes are no packet.
    GivenUp,
}

/// Where the flow goes on after the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// The packets after the segment that were read do not say it.
    Unread,
    Address(u64),
    /// Tracing ends, or what follows leaves the address to what was cancelled.
    Unknown,
}

impl Ahead {
    /// What is known after one more packet behind the segment.
    fn after(self, packet: Packet) -> Ahead {
        match (self, packet) {
            // Elements before the address may be among those that are cancelled.
            (_, Packet::Cancel { .. } | Packet::Mispredict(_)) => Ahead::Unknown,
            (Ahead::Unread, Packet::Address(address) | Packet::AddressContext(address, _)) => {
                Ahead::Address(address.value)
            }
            (
                Ahead::Unread,
                Packet::TraceOn
                | Packet::Discard
                | Packet::Overflow
                | Packet::Atoms(_)
                | Packet::Exception(_)
                | Packet::Q { .. }
                | Packet::SourceAddress(_),
            ) => Ahead::Unknown,
            _ => self,
        }
    }

    fn address(self) -> Option<u64> {
        match self {
            Ahead::Address(address) => Some(address),
            Ahead::Unread | Ahead::Unknown => None,
        }
    }
}

/// Decodes the flow of one segment of a stream: from an A-Sync with Trace Info to the next.
///
/// After a Trace Info the unit sends context and address again, so segments decode independently.
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    packets: packet::Decoder<'t>,
    span: Range<usize>,
    /// Position of the current element's packet.
    at: usize,
    config: Config,
    elements: Elements,
    walk: Walk,
    state: State,
    /// An exception whose return address comes next.
    exception: Option<Exception>,
    /// Whether tracing was off before the next address.
    comes_on: bool,
    is_64: bool,
    time: Option<u64>,
    cycles: u64,
    gap: Option<Gap>,
    ahead: Ahead,
    /// Whether the segment before this one is decoded up to the first address of this one. With speculation it is not.
    is_continued: bool,
    schedule: &'t [Switch],
    /// Time of the next switch in the schedule; the highest if there is none.
    next_switch: Tsc,
    /// Whether the time has reached that switch.
    switch_is_due: bool,
    threads: &'t [ThreadContext],
    /// The current thread, if its context ID is known.
    thread: Option<u32>,
    program: usize,
    context: u32,
}

/// The programs that a stream may show, and the sink.
struct Target<'x, 'a, L, S> {
    programs: &'x mut [Program<'a, L>],
    sink: &'x mut S,
}

impl<'t> Decoder<'t> {
    /// Creates a decoder for one segment: from the A-Sync at `span.start` up to that at `span.end`, or the end of
    /// `stream`. `schedule` lists the programs of the stream in order of time and must not be empty.
    pub fn new(stream: &'t [u8], span: Range<usize>, config: &Config, schedule: &'t [Switch]) -> Decoder<'t> {
        assert!(!schedule.is_empty(), "some program runs at any time");
        Decoder {
            packets: packet::Decoder::new(stream, span.start, config),
            at: span.start,
            span,
            config: *config,
            elements: Elements::default(),
            walk: Walk::new(config.waits_have_atoms),
            state: State::Start,
            exception: None,
            comes_on: false,
            is_64: true,
            time: None,
            cycles: 0,
            gap: None,
            ahead: Ahead::Unread,
            is_continued: false,
            schedule,
            next_switch: threads::time_of(schedule.get(1)),
            switch_is_due: false,
            threads: &[],
            thread: None,
            program: schedule[0].program,
            context: schedule[0].context,
        }
    }

    /// Says that the segment before this one is decoded, too. What runs before the first address belongs to that one: units may
    /// send atoms between a Trace Info and the address.
    pub fn behind_another(self) -> Decoder<'t> {
        Decoder { is_continued: self.config.speculation_depth == 0, ..self }
    }

    /// Adds threads that are known by their context ID, sorted by it and by time. Context packets then decide which thread
    /// runs; the schedule does where they name none of these.
    pub fn with_threads(self, threads: &'t [ThreadContext]) -> Decoder<'t> {
        Decoder { threads, ..self }
    }

    /// Decodes the segment.
    pub fn decode<L: Labels>(self, programs: &mut [Program<'_, L>], sink: &mut impl Sink) {
        let no_memo = None;
        self.decode_all(programs, no_memo, sink);
    }

    /// Decodes the segment, and memoizes the effect of packets on a sink that takes [paths](Sink::takes_paths).
    pub fn decode_with_memo<L: Labels>(
        self,
        programs: &mut [Program<'_, L>],
        memos: &mut Memos,
        sink: &mut impl Sink,
    ) {
        self.decode_all(programs, Some(memos), sink);
    }

    fn decode_all<L: Labels>(
        mut self,
        programs: &mut [Program<'_, L>],
        mut memos: Option<&mut Memos>,
        sink: &mut impl Sink,
    ) {
        let mut target = Target { programs, sink };
        let mut is_first = true;
        while self.packets.position() < self.span.end {
            if let Some(memos) = &mut memos {
                self.follow_memo(memos, &mut target);
                if self.packets.position() >= self.span.end {
                    break;
                }
            }
            self.at = self.packets.position();
            match self.packets.next_packet() {
                Ok(Some(packet)) => self.follow(packet, &mut is_first, &mut target),
                Ok(None) => break,
                Err(error) => {
                    self.lose(Trouble::Packet(error.kind));
                    break;
                }
            }
        }
        self.finish(&mut target);
    }

    /// Resolves what the segment leaves open with the packets after it, and ends.
    fn finish<L: Labels, S: Sink>(&mut self, target: &mut Target<'_, '_, L, S>) {
        // The oldest uncommitted elements are of this segment; those that follow them are left to the next one.
        let mut own = self.elements.uncommitted();
        while own > 0 && self.state != State::GivenUp {
            let Ok(Some(packet)) = self.packets.next_packet() else {
                self.lose(Trouble::Missing);
                break;
            };
            self.ahead = self.ahead.after(packet);
            let commits = self.resolve(packet);
            own = own.min(self.elements.uncommitted());
            let mut left = commits.min(own);
            own -= left;
            while let Some(placed) = self.elements.take(&mut left) {
                self.apply(placed, target);
                if left == 0 && own == 0 {
                    break;
                }
            }
        }
        let is_committed = self.config.speculation_depth == 0;
        while self.ahead == Ahead::Unread
            && matches!(self.state, State::On | State::AfterIndirect(_) | State::Excepted(_))
        {
            match self.packets.next_packet() {
                // The unit has forgotten its return stack.
                Ok(Some(Packet::TraceInfo(_))) => self.walk.returns.clear(),
                // What ran has a time up to the end of the segment. Switches at that time are left to the next one.
                Ok(Some(Packet::Timestamp { time, .. })) if time != 0 && self.time != Some(time) => {
                    self.time = Some(time);
                    target.sink.event(Event::Time(Tsc(time)));
                }
                Ok(Some(Packet::Atoms(atoms))) if is_committed => {
                    self.at = self.span.end;
                    self.atoms(atoms, target);
                }
                Ok(Some(packet)) => self.ahead = self.ahead.after(packet),
                Ok(None) | Err(_) => self.ahead = Ahead::Unknown,
            }
        }
        match (self.state, self.ahead) {
            (State::Excepted(left), ahead) => left.report(ahead.address(), target.sink),
            (State::On, Ahead::Address(next)) if next != self.walk.ip => {
                self.at = self.span.end;
                self.lose(Trouble::Contradiction { at: self.walk.ip, expected: Expected::Reach(next) });
            }
            _ => {}
        }
        if let Some(mut gap) = self.gap.take() {
            gap.to = self.span.end as u64;
            target.sink.event(Event::Gap(gap));
        }
    }

    fn walk_graph_sink<'c, 'a, L: Labels, S: Sink>(
        &mut self,
        target: &'c mut Target<'_, 'a, L, S>,
    ) -> (&mut Walk, &'c mut Graph<'a, L>, &'c mut S) {
        let graph = target.programs[self.program].graph(self.walk.isa);
        (&mut self.walk, graph, target.sink)
    }

    fn apply<L: Labels, S: Sink>(&mut self, placed: Placed, target: &mut Target<'_, '_, L, S>) {
        self.at = placed.at;
        match placed.element {
            Element::Atom(taken) => self.atoms(Atoms::one(taken), target),
            Element::Address(address) => self.address(address, target),
            Element::Context(context) => self.set_context(context, target.sink),
            Element::Exception(exception) => self.begin_exception(exception),
            Element::TraceOn => self.trace_on(target.sink),
            Element::Time(time) => self.set_time(time, target),
            Element::Cycles(count) => {
                self.cycles += u64::from(count.unwrap_or(0));
                target.sink.event(Event::Cycles(self.cycles));
            }
            Element::SourceAddress(address) => self.source_address(address, target),
            Element::Q { count, address } => {
                self.counted(count, address.map(|address| address.value), target);
                if let Some(address) = address {
                    self.address(address, target);
                }
            }
            Element::TransactionFailure => self.lose(Trouble::NotTraced { at: self.walk.ip }),
            Element::Discard => self.turn_off(target.sink),
            Element::Overflow => self.lose(Trouble::Overflow),
            Element::ExceptionReturn | Element::Unseen | Element::TransactionStart => {}
        }
    }

    /// Follows atoms.
    #[inline]
    fn atoms<L: Labels, S: Sink>(&mut self, atoms: Atoms, target: &mut Target<'_, '_, L, S>) {
        for index in 0..atoms.count {
            if self.state != State::On {
                if !self.arrive_without_address() {
                    return;
                }
                self.switch_within_kernel(target.sink);
            }
            let (walk, graph, sink) = self.walk_graph_sink(target);
            match walk.atom(graph, sink, atoms.bits >> index & 1 == 1) {
                Ok(Reached::Position) => {}
                Ok(Reached::Unknown(at)) => self.state = State::AfterIndirect(at),
                Err(trouble) => return self.lose(trouble),
            }
        }
    }

    /// Continues at the newest call, as an indirect branch without address goes there. Returns whether the position is
    /// known.
    fn arrive_without_address(&mut self) -> bool {
        let at = match self.state {
            State::On => return true,
            State::Lost | State::GivenUp => return false,
            State::AfterIndirect(at) => at,
            State::Start if self.is_continued => return false,
            // The unit sends the address late: what runs until then is unknown.
            State::Start | State::Off => {
                self.lose(Trouble::LostAddress);
                return false;
            }
            State::Excepted(_) => {
                self.lose(Trouble::NoAddress);
                return false;
            }
        };
        let Some(call) = self.walk.returns.pop().filter(|_| self.config.return_stack) else {
            self.lose(match self.walk.returns.hidden {
                _ if !self.config.return_stack => Trouble::NoAddress,
                Some(hidden) => Trouble::UnseenCall { at, hidden },
                None => Trouble::EmptyReturnStack { at },
            });
            return false;
        };
        self.walk.set(call.address, call.isa);
        self.state = State::On;
        true
    }

    fn address<L: Labels, S: Sink>(&mut self, address: Address, target: &mut Target<'_, '_, L, S>) {
        if let Some(exception) = self.exception.take() {
            return self.leave(exception, address, target);
        }
        let isa = address.isa(self.is_64);
        // Another thread may run than where the flow was known last.
        let may_be_other = matches!(self.state, State::Start | State::Off | State::Lost);
        match self.state {
            State::GivenUp => return,
            State::On if self.walk.ip == address.value && self.walk.isa == isa => {}
            State::On => {
                let expected = Expected::Reach(address.value);
                self.lose(Trouble::Contradiction { at: self.walk.ip, expected });
            }
            State::Excepted(left) => left.report(Some(address.value), target.sink),
            State::Start | State::AfterIndirect(_) | State::Off | State::Lost => {}
        }
        self.close_gap(target.sink);
        if self.state != State::On {
            self.walk.set(address.value, isa);
            self.state = State::On;
        }
        self.walk.remembers_calls = self.config.return_stack;
        match may_be_other {
            true => self.follow_schedule(target.sink),
            false => self.switch_within_kernel(target.sink),
        }
        if std::mem::take(&mut self.comes_on) {
            target.sink.event(Event::Enabled(address.value));
        }
    }

    /// An exception; its return address follows, except after a reset of an ETE.
    fn begin_exception(&mut self, exception: Exception) {
        if self.config.is_ete && exception.kind == RESET {
            self.lose(Trouble::NotTraced { at: self.walk.ip });
        } else {
            self.exception = Some(exception);
        }
    }

    /// Walks to the address at which an exception prevented the next instruction.
    fn leave<L: Labels, S: Sink>(
        &mut self,
        exception: Exception,
        to: Address,
        target: &mut Target<'_, '_, L, S>,
    ) {
        if let State::AfterIndirect(_) = self.state
            && exception.is_target
        {
            // The unit may have matched the branch with its return stack.
            let is_top = self.walk.returns.top().is_some_and(|call| call.address == to.value);
            if is_top && self.config.return_stack {
                self.walk.returns.pop();
            }
            self.walk.set(to.value, to.isa(self.is_64));
            self.state = State::On;
        }
        match self.state {
            // Nothing ran before; what follows is the handler.
            State::Start | State::Lost | State::GivenUp | State::Off => return,
            State::Excepted(left) => left.report(None, target.sink),
            State::On | State::AfterIndirect(_) => {
                if !self.arrive_without_address() {
                    return;
                }
                let (walk, graph, sink) = self.walk_graph_sink(target);
                if let Err(trouble) = walk.reach(graph, sink, to.value, Between::NoWaypoint) {
                    return self.lose(trouble);
                }
            }
        }
        self.state = State::Excepted(Left { from: to.value, exception });
    }

    /// Follows a number of instructions that ran without atoms. Their path is known if only the last one may be a branch, whose
    /// target is the address that follows.
    fn counted<L: Labels, S: Sink>(
        &mut self,
        count: Option<u32>,
        to: Option<u64>,
        target: &mut Target<'_, '_, L, S>,
    ) {
        if self.state != State::On && !self.arrive_without_address() {
            return;
        }
        let (walk, graph, sink) = self.walk_graph_sink(target);
        match count.filter(|&count| count > 0).and_then(|count| walk.counted(graph, sink, count, to)) {
            Some(Reached::Position) => {}
            Some(Reached::Unknown(at)) => self.state = State::AfterIndirect(at),
            None => self.lose(Trouble::NotTraced { at: self.walk.ip }),
        }
    }

    /// ETE: a branch at this address was taken, and those before it were not.
    fn source_address<L: Labels, S: Sink>(&mut self, from: Address, target: &mut Target<'_, '_, L, S>) {
        if let (State::AfterIndirect(at), false) = (self.state, self.config.return_stack) {
            self.lose(Trouble::NotTraced { at });
        }
        if self.state != State::On && !self.arrive_without_address() {
            if self.state == State::GivenUp {
                return;
            }
            // Only the branch itself is known to have run.
            self.address(from, target);
        }
        let (walk, graph, sink) = self.walk_graph_sink(target);
        match walk.reach(graph, sink, from.value, Between::BranchesNotTaken) {
            Ok(()) => self.atoms(Atoms::one(true), target),
            Err(trouble) => self.lose(trouble),
        }
    }

    fn trace_on(&mut self, sink: &mut impl Sink) {
        self.turn_off(sink);
        self.walk.returns.clear();
        self.walk.returns.hidden = None;
        self.comes_on = true;
    }

    fn turn_off(&mut self, sink: &mut impl Sink) {
        match self.state {
            State::On | State::AfterIndirect(_) => {
                sink.event(Event::Disabled { from: None, to: None, asynchronous: false, cause: None });
            }
            State::Excepted(left) => left.report(None, sink),
            State::GivenUp | State::Lost => return,
            State::Start | State::Off => {}
        }
        self.state = State::Off;
    }

    fn set_context(&mut self, context: Context, sink: &mut impl Sink) {
        if context.is_same {
            return;
        }
        self.is_64 = context.is_64;
        // The context of an address may follow it.
        match self.walk.isa {
            Isa::A32 | Isa::T32 if self.is_64 => self.walk.set(self.walk.ip, Isa::A64),
            Isa::A64 if !self.is_64 => self.walk.set(self.walk.ip, Isa::A32),
            _ => {}
        }
        let id = match self.config.thread_ids {
            ThreadIds::None => None,
            ThreadIds::ContextId => context.context_id,
            ThreadIds::VirtualContext => context.virtual_context,
        };
        if id.is_some() && !self.threads.is_empty() {
            self.thread = id;
            self.follow_thread(sink);
        }
    }

    fn set_time<L: Labels, S: Sink>(&mut self, time: u64, target: &mut Target<'_, '_, L, S>) {
        // A time of 0 means that the unit does not know it (IHI 0064, "Timestamp element").
        if time == 0 || self.time == Some(time) {
            return;
        }
        self.time = Some(time);
        target.sink.event(Event::Time(Tsc(time)));
        self.walk.tick = time;
        self.walk.forget_block();
        self.pass_switches(Tsc(time));
        match self.thread {
            // Of a thread that is known, only its program may change.
            Some(_) => self.follow_schedule(target.sink),
            None => self.switch_within_kernel(target.sink),
        }
    }

    /// Opens a gap at the current packet, unless one is open.
    #[cold]
    fn lose(&mut self, trouble: Trouble) {
        let is_doubtful = trouble.is_doubtful();
        self.walk.returns.clear();
        self.walk.returns.hidden = trouble.hides().or(self.walk.returns.hidden);
        self.exception = None;
        if self.state != State::GivenUp {
            // Behind bytes that are no packet, nothing is certain; behind other troubles the next address is.
            self.state = if matches!(trouble, Trouble::Packet(_)) { State::GivenUp } else { State::Lost };
        }
        let (from, since) = (self.at as u64, self.time.map(Tsc));
        let doubtful_since = is_doubtful.then_some(self.span.start as u64);
        match &mut self.gap {
            None => {
                self.gap = Some(Gap { from, to: from, since, until: None, doubtful_since, trouble });
            }
            Some(gap) if gap.doubtful_since.is_none() && is_doubtful => {
                (gap.doubtful_since, gap.trouble) = (doubtful_since, trouble);
            }
            Some(_) => {}
        }
    }

    fn close_gap(&mut self, sink: &mut impl Sink) {
        if let Some(mut gap) = self.gap.take() {
            (gap.to, gap.until) = (self.at as u64, self.time.map(Tsc));
            sink.event(Event::Gap(gap));
        }
    }
}
