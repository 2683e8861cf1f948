//! What each packet says of the flow.

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{Bits, Labels, Program};

use super::{Event, Expected, Gap, Sink, Trouble, walk::Walk};
use crate::{
    Config,
    last_ip::LastIp,
    packet::{self, ErrorKind, IpPayload, PSB, Packet, Tnt},
    timing::Timing,
};

/// From a tick on, a stream shows the execution of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The tick.
    pub at: Tsc,
    /// Index of the program in the caller's list.
    pub program: usize,
    /// What else the caller wants to know it by, such as the thread.
    pub context: u32,
}

/// What is known of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing; until a packet tells where execution is.
    Lost,
    /// The same, after the processor lost packets: a FUP tells.
    Overflowed,
    /// Tracing is off.
    Off,
    /// Tracing is on, on the word of a PSB+ alone; a TIP.PGE may follow (erratum BDM70).
    OnSincePsb,
    /// Tracing is on.
    On,
}

/// What the last packet announced for a FUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FupFor {
    /// The asynchronous TIP or TIP.PGD that follows it.
    Transfer,
    /// The packet before it, whose address it is.
    PacketBefore,
}

/// Follows the flow of one segment of a stream: from a PSB to the next.
///
/// A PSB+ is a full restart (SDM, "PSB"), so segments are decoded each by itself. Both neighbours of a
/// PSB+ read it: the one before learns there how far it ran and until when.
#[derive(Debug)]
pub struct Decoder<'t> {
    packets: packet::Decoder<'t>,
    span: Range<usize>,
    timing: Timing,
    last_ip: LastIp,
    walk: Walk,
    state: State,
    bits: Bits,
    /// The mode that the next TIP or TIP.PGE enters.
    next_bits: Option<Bits>,
    fup_for: FupFor,
    /// The address that an asynchronous transfer leaves.
    left_from: Option<u64>,
    /// The time that the sink was told last.
    reported: Option<Tsc>,
    schedule: &'t [Switch],
    program: usize,
    context: u32,
    gap: Option<Gap>,
}

/// What the packets between PSB and PSBEND say.
#[derive(Default)]
struct PsbPlus {
    ip: Option<u64>,
    bits: Option<Bits>,
    overflow: bool,
}

/// The programs that a stream may show, and who takes in what it shows.
struct Context<'x, 'a, L, S> {
    programs: &'x mut [Program<'a, L>],
    sink: &'x mut S,
}

impl<'t> Decoder<'t> {
    /// A decoder for one segment: the bytes of `stream` from the PSB at `span.start` up to, and
    /// including, the next PSB+ at `span.end`, or the end of the stream. `schedule` says in order of time
    /// which program the stream shows; it is not empty.
    pub fn new(stream: &'t [u8], span: Range<usize>, config: &Config, schedule: &'t [Switch]) -> Decoder<'t> {
        assert!(!schedule.is_empty(), "some program runs at any time");
        Decoder {
            packets: packet::Decoder::new(stream, span.start),
            span,
            timing: Timing::new(config),
            last_ip: LastIp::default(),
            walk: Walk::new(config.no_return_compression),
            state: State::Lost,
            bits: Bits::B64,
            next_bits: None,
            fup_for: FupFor::Transfer,
            left_from: None,
            reported: None,
            schedule,
            program: schedule[0].program,
            context: schedule[0].context,
            gap: None,
        }
    }

    /// Decodes the segment.
    pub fn decode<L: Labels>(mut self, programs: &mut [Program<'_, L>], sink: &mut impl Sink) {
        let mut context = Context { programs, sink };
        loop {
            let at = self.packets.position();
            match self.packets.next_packet() {
                Ok(None) => break,
                Ok(Some(packet)) => {
                    if let Err(trouble) = self.follow(packet, &mut context) {
                        self.lose(at, trouble);
                    }
                }
                Err(error) => {
                    self.lose(at, Trouble::Packet(error.kind));
                    if matches!(error.kind, ErrorKind::CutShort(_)) || !self.packets.synchronize_after(at) {
                        break;
                    }
                }
            }
            if at >= self.span.end {
                break;
            }
        }
        self.close_gap(context.sink);
    }

    /// The flow is lost at byte `at` of the stream, unless it was before.
    fn lose(&mut self, at: usize, trouble: Trouble) {
        self.state = if trouble == Trouble::Overflow { State::Overflowed } else { State::Lost };
        self.left_from = None;
        self.walk.returns.clear();
        let since = self.timing.now();
        self.gap.get_or_insert(Gap {
            from: at as u64,
            to: at as u64,
            since,
            until: None,
            doubtful_since: None,
            trouble,
        });
    }

    fn close_gap(&mut self, sink: &mut impl Sink) {
        if let Some(gap) = self.gap.take() {
            sink.event(Event::Gap(Gap {
                to: self.packets.position() as u64,
                until: self.timing.now(),
                ..gap
            }));
        }
    }

    #[inline]
    fn follow<L: Labels, S: Sink>(
        &mut self,
        packet: Packet,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let fup_for = std::mem::replace(&mut self.fup_for, FupFor::Transfer);
        match packet {
            Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => self.tnt(tnt, context)?,
            Packet::Tip(ip) => self.tip(ip, context)?,
            Packet::TipPge(ip) => self.tip_pge(ip, context)?,
            Packet::TipPgd(ip) => self.tip_pgd(ip, context)?,
            Packet::Fup(ip) => self.fup(ip, fup_for, context),
            Packet::Psb => return self.psb(context),
            Packet::Overflow => return Err(Trouble::Overflow),
            Packet::ModeExec { cs_l, cs_d, .. } => self.next_bits = Some(mode(cs_l, cs_d)),
            Packet::PtWrite { ip: true, .. } | Packet::ExStop { ip: true } | Packet::Bep { ip: true } => {
                self.fup_for = FupFor::PacketBefore;
            }
            // An abort is followed by FUP and TIP as any asynchronous transfer is; a FUP alone only
            // says where a transaction begins or ends.
            Packet::ModeTsx { aborted: false, .. } => self.fup_for = FupFor::PacketBefore,
            // CYC tells the time of the packet that follows it, so it is reported after that one.
            Packet::Cyc(_) | Packet::Pad => {
                self.timing.follow(&packet);
                self.fup_for = fup_for;
                return Ok(());
            }
            _ => {
                self.timing.follow(&packet);
                self.fup_for = fup_for;
            }
        }
        self.tell_time(context);
        Ok(())
    }

    /// Reports the time, where it went on, and looks at the code of that time from now on.
    #[inline]
    fn tell_time<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) {
        self.timing.pass();
        let now = self.timing.now();
        if now != self.reported {
            self.reported = now;
            if let Some(now) = now {
                self.walk.look_at(context.programs[self.program].graph(self.bits), now.0);
                context.sink.event(Event::Time(now));
            }
        }
    }

    #[inline]
    fn tnt<L: Labels, S: Sink>(
        &mut self,
        tnt: Tnt,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        match self.state {
            State::Lost | State::Overflowed => return Ok(()),
            State::Off => return Err(Trouble::Contradiction { at: self.walk.ip, expected: Expected::On }),
            State::OnSincePsb | State::On => self.state = State::On,
        }
        // A FUP before a TNT belonged to no transfer.
        self.left_from = None;
        let mut left = tnt.count;
        while left > 0 {
            let taken = tnt.bits >> (left - 1) & 1 == 1;
            let graph = context.programs[self.program].graph(self.bits);
            if self.walk.branch(graph, context.sink, taken)? {
                left -= 1;
            } else {
                self.deferred_tip(context)?;
            }
        }
        Ok(())
    }

    /// The TIP of a branch between those of one TNT comes after that TNT.
    #[cold]
    fn deferred_tip<L: Labels, S: Sink>(
        &mut self,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        loop {
            let before = self.packets.clone();
            match self.packets.next_packet().map_err(|error| Trouble::Packet(error.kind))? {
                Some(Packet::Tip(payload)) => {
                    let to = self.last_ip.join(payload);
                    let expected = Expected::Conditional;
                    let to = to.ok_or(Trouble::Contradiction { at: self.walk.ip, expected })?;
                    let graph = context.programs[self.program].graph(self.bits);
                    return self.walk.indirect(graph, context.sink, to);
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
        let to = self.last_ip.join(payload);
        match self.state {
            State::Lost | State::Overflowed => return Ok(()),
            State::Off => return Err(Trouble::Contradiction { at: self.walk.ip, expected: Expected::On }),
            State::OnSincePsb | State::On => self.state = State::On,
        }
        let expected = Expected::Indirect;
        let to = to.ok_or(Trouble::Contradiction { at: self.walk.ip, expected })?;
        let graph = context.programs[self.program].graph(self.bits);
        match self.left_from.take() {
            Some(from) => {
                self.walk.reach(graph, context.sink, from)?;
                context.sink.event(Event::Asynchronous { from, to, cause: None });
                self.walk.go(to);
            }
            None => self.walk.indirect(graph, context.sink, to)?,
        }
        self.enter_mode();
        Ok(())
    }

    fn enter_mode(&mut self) {
        if let Some(bits) = self.next_bits.take() {
            self.bits = bits;
            self.walk.forget_block();
        }
    }

    fn tip_pge<L: Labels, S: Sink>(
        &mut self,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let ip = self.last_ip.join(payload);
        if self.state == State::On {
            return Err(Trouble::Contradiction { at: ip.unwrap_or(0), expected: Expected::Off });
        }
        self.close_gap(context.sink);
        self.enter_mode();
        self.left_from = None;
        let expected = Expected::On;
        let ip = ip.ok_or(Trouble::Contradiction { at: 0, expected })?;
        self.switch_program(context);
        self.walk.go(ip);
        self.state = State::On;
        context.sink.event(Event::Enabled(ip));
        Ok(())
    }

    /// Another thread may run when tracing comes on.
    fn switch_program<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) {
        let now = self.timing.now().unwrap_or(Tsc(0));
        let after = self.schedule.partition_point(|switch| switch.at <= now);
        let switch = self.schedule[after.saturating_sub(1)];
        if (switch.program, switch.context) != (self.program, self.context) {
            (self.program, self.context) = (switch.program, switch.context);
            self.walk.forget_block();
            context.sink.event(Event::Switch(switch.context));
        }
    }

    fn tip_pgd<L: Labels, S: Sink>(
        &mut self,
        payload: IpPayload,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let to = self.last_ip.join(payload);
        let graph = context.programs[self.program].graph(self.bits);
        let from = self.left_from.take();
        match self.state {
            State::Lost | State::Overflowed => {
                self.close_gap(context.sink);
            }
            State::Off => {}
            State::OnSincePsb | State::On => match from {
                Some(from) => self.walk.reach(graph, context.sink, from)?,
                None => self.walk.leave(graph, context.sink, to)?,
            },
        }
        if self.state != State::Off {
            context.sink.event(Event::Disabled { to, asynchronous: from.is_some(), cause: None });
        }
        self.state = State::Off;
        Ok(())
    }

    fn fup<L, S: Sink>(&mut self, payload: IpPayload, fup_for: FupFor, context: &mut Context<'_, '_, L, S>) {
        let ip = self.last_ip.join(payload);
        match (self.state, ip) {
            (State::Overflowed, Some(ip)) => {
                self.close_gap(context.sink);
                self.enter_mode();
                self.walk.go(ip);
                self.state = State::On;
            }
            (_, Some(ip)) if fup_for == FupFor::Transfer => self.left_from = Some(ip),
            _ => {}
        }
    }

    fn psb<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) -> Result<(), Trouble> {
        let psb_at = self.packets.position() - PSB.len();
        self.last_ip.reset();
        self.walk.returns.clear();
        self.left_from = None;
        let first = self.reported.is_none();
        let plus = self.psb_plus()?;
        if plus.bits.is_some() {
            self.next_bits = plus.bits;
            self.enter_mode();
        }
        if first {
            self.switch_program(context);
        }
        let graph = context.programs[self.program].graph(self.bits);
        match (self.state, plus.ip) {
            (State::Lost | State::Overflowed, Some(ip)) => {
                self.close_gap(context.sink);
                self.walk.go(ip);
                self.state = State::OnSincePsb;
            }
            (State::Lost | State::Overflowed, None) => {
                self.close_gap(context.sink);
                self.state = State::Off;
                context.sink.event(Event::Disabled { to: None, asynchronous: false, cause: None });
            }
            (State::Off, Some(ip)) => {
                self.walk.go(ip);
                self.state = State::OnSincePsb;
            }
            (State::Off, None) => {}
            (State::OnSincePsb | State::On, Some(ip)) => {
                if let Err(trouble) = self.walk.reach(graph, context.sink, ip) {
                    self.lose(psb_at, trouble);
                    self.close_gap(context.sink);
                    self.walk.go(ip);
                }
                self.state = State::OnSincePsb;
            }
            (State::OnSincePsb | State::On, None) => {
                self.lose(psb_at, Trouble::Contradiction { at: self.walk.ip, expected: Expected::Off });
                self.close_gap(context.sink);
                self.state = State::Off;
            }
        }
        self.tell_time(context);
        if plus.overflow { Err(Trouble::Overflow) } else { Ok(()) }
    }

    /// Reads the status packets up to PSBEND. An OVF ends them early.
    fn psb_plus(&mut self) -> Result<PsbPlus, Trouble> {
        let mut plus = PsbPlus::default();
        loop {
            let before = self.packets.clone();
            match self.packets.next_packet().map_err(|error| Trouble::Packet(error.kind))? {
                Some(Packet::Fup(ip)) => plus.ip = self.last_ip.join(ip),
                Some(Packet::ModeExec { cs_l, cs_d, .. }) => plus.bits = Some(mode(cs_l, cs_d)),
                Some(Packet::PsbEnd) | None => return Ok(plus),
                Some(Packet::Overflow) => {
                    plus.overflow = true;
                    return Ok(plus);
                }
                Some(
                    Packet::Tnt8(_)
                    | Packet::Tnt64(_)
                    | Packet::Tip(_)
                    | Packet::TipPge(_)
                    | Packet::TipPgd(_)
                    | Packet::Psb,
                ) => {
                    // PSBEND is missing; what follows is an ordinary packet again.
                    self.packets = before;
                    return Ok(plus);
                }
                Some(packet) => {
                    self.timing.follow(&packet);
                }
            }
        }
    }
}

fn mode(cs_l: bool, cs_d: bool) -> Bits {
    match (cs_l, cs_d) {
        (true, _) => Bits::B64,
        (false, true) => Bits::B32,
        (false, false) => Bits::B16,
    }
}
