//! Decodes packets and code to the exact flow of execution.
//!
//! ```text
//! packets ──Decoder (what happened?)──► walk (which blocks is that?) ──► Sink
//! ```
//!
//! The decoder walks over code only as far as a packet proves that instructions retired. A synchronization packet is a
//! full restart: the flow of a chunk that begins at one is the same whether or not the chunk before it was decoded.
//!
//! Source: "Decoder" of the specification, with these differences. Where its pseudo code takes the first of several paths
//! that fit implicit returns, the decoder reports a gap. A trap without its handler ends the flow, and the packet with the
//! handler begins it.

pub(crate) mod code;
mod outcomes;
mod packets;
mod points;
mod schedule;
mod walk;

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{Labels, Program};
use hodo_flow::{Cause, ControlFlowKind, Event, Gap, Sink, Switch, Trouble};
use hodo_isa::Isa;

use self::{
    outcomes::Outcomes,
    schedule::{Programs, is_kernel},
    walk::{Memory, Walk},
};
use crate::{
    Configuration, Parameters,
    allowance::Allowance,
    modes::{Calls, Predictor, TargetCache},
    packet::{Options, Packet},
    transport::{Kind, Units},
};

pub use points::{SynchronizationPoint, synchronization_points};

/// What the decoder knows of the hart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing, before the first synchronization packet.
    Unknown,
    /// The flow is lost: a gap is open.
    Lost,
    /// Tracing is off.
    Off,
    /// A trap without its handler was the last packet about the flow.
    Trapped,
    /// The walk is at an instruction that retired.
    On,
}

/// Decodes one hart's flow in a chunk of a stream: from a [synchronization point](SynchronizationPoint) to another one,
/// or to the end.
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    parameters: &'t Parameters,
    isa: Isa,
    units: Units<'t>,
    source: Option<u16>,
    /// Whether times of the carrier are times of packets.
    carrier_has_time: bool,
    /// The time of the current packet in the carrier, if it is a time of packets.
    carrier_time: Option<u64>,
    span: Range<usize>,
    options: Options,
    /// Position of the current packet.
    packet_position: usize,
    state: State,
    walk: Walk,
    memory: Memory,
    allowance: Allowance,
    /// The address reported last.
    reported: u64,
    privilege: u8,
    /// The address where the walk stopped without an uninferable jump: if the next packet is none of format 3, a jump led
    /// there later.
    inferred: Option<u64>,
    /// The trap whose handler the next synchronization packet gives.
    trap: Option<PendingTrap>,
    /// The last reported time.
    time: Option<Tsc>,
    gap: Option<Gap>,
    /// Whether only code is missing in the gap, so that all packets in it are understood.
    lacks_code_only: bool,
    /// Position of the last packet that the code agreed with.
    certain_at: usize,
}

/// A trap whose handler is not known yet.
#[derive(Clone, Copy, Debug)]
struct PendingTrap {
    /// The instruction that it prevented, if known.
    from: Option<u64>,
    cause: Cause,
}

impl<'t> Decoder<'t> {
    /// Creates a decoder of a chunk of `stream`, whose packets up to `span.end` it decodes; from there on it reads only
    /// as far as the next synchronization packet, which shows what ran before it. `options` are those in force at
    /// `span.start`.
    pub fn new(
        stream: &'t [u8],
        span: Range<usize>,
        configuration: &'t Configuration,
        options: Options,
    ) -> Decoder<'t> {
        let parameters = &configuration.parameters;
        let set = parameters.set();
        Decoder {
            parameters,
            isa: parameters.isa(),
            units: Units::new(stream, span.start, configuration.transport),
            source: configuration.source,
            carrier_has_time: configuration.carrier_time,
            carrier_time: None,
            options,
            packet_position: span.start,
            certain_at: span.start,
            span,
            state: State::Unknown,
            allowance: Allowance::default(),
            walk: Walk::new(set),
            memory: Memory {
                outcomes: Outcomes::default(),
                predictor: Predictor::new(parameters),
                cache: TargetCache::new(parameters),
                calls: Calls::new(parameters),
                implicit_return: false,
                compares_returns: parameters.return_stack_size > 0,
                sijump: false,
            },
            reported: 0,
            privilege: 0,
            inferred: None,
            trap: None,
            time: None,
            gap: None,
            lacks_code_only: false,
        }
        .with_options(options)
    }

    fn with_options(mut self, options: Options) -> Decoder<'t> {
        self.set_options(options);
        self
    }

    fn set_options(&mut self, options: Options) {
        self.options = options;
        self.memory.implicit_return = options.implicit_return && self.parameters.depth_bits() > 0;
        self.memory.sijump = options.sijump || self.parameters.sijump;
        // Without the option, a predictor has no entries.
        let enabled = Parameters {
            bpred_size: if options.branch_prediction { self.parameters.bpred_size } else { 0 },
            cache_size: if options.jump_target_cache { self.parameters.cache_size } else { 0 },
            ..self.parameters.clone()
        };
        self.memory.predictor = Predictor::new(&enabled);
        self.memory.cache = TargetCache::new(&enabled);
    }

    /// Decodes the chunk, in which one program runs.
    pub fn decode<L: Labels>(self, program: &mut Program<'_, L>, sink: &mut impl Sink) {
        let always = [Switch { at: Tsc(0), program: 0, context: 0 }];
        self.decode_scheduled(std::slice::from_mut(program), &always, sink);
    }

    /// Decodes the chunk. `schedule` lists the programs in order of time and must not be empty.
    ///
    /// A switch takes effect within kernel code: exactly at a synchronization packet or trap whose time has reached it, and
    /// at other packets up to a block early.
    pub fn decode_scheduled<L: Labels>(
        mut self,
        programs: &mut [Program<'_, L>],
        schedule: &[Switch],
        sink: &mut impl Sink,
    ) {
        let mut programs = Programs::new(programs, schedule);
        while self.step(&mut programs, sink) {}
        self.flush(&mut programs, sink);
        self.close_gap(sink);
    }

    /// Reads and follows a packet. Returns `false` at the end of the chunk.
    fn step<L: Labels>(&mut self, programs: &mut Programs<'_, '_, L>, sink: &mut impl Sink) -> bool {
        self.packet_position = self.units.position();
        let unit = match self.units.next_unit() {
            Ok(None) => return false,
            Ok(Some(unit)) => unit,
            Err(error) => {
                self.lose(error.trouble(), programs, sink);
                return self.packet_position < self.span.end;
            }
        };
        self.packet_position = unit.at;
        if unit.kind != Kind::Instruction || self.source.is_some_and(|source| source != unit.source) {
            return true;
        }
        let is_after = unit.at >= self.span.end;
        match Packet::decode_after(unit.payload, unit.skip, self.parameters, self.options) {
            Ok(packet) if is_after => self.end_at(packet, programs, sink),
            Ok(packet) => {
                // Following the packet may change what its address is compressed against.
                let address = self.address_of(packet);
                self.carrier_time = unit.time.filter(|_| self.carrier_has_time);
                let followed = self.follow(packet, programs, sink);
                // What a packet reports ran before the packet entered the carrier.
                self.emit_time(self.carrier_time, programs, sink);
                match followed {
                    Ok(()) if self.state == State::On => self.certain_at = unit.at,
                    Ok(()) => {}
                    Err(trouble) => {
                        self.lose(trouble, programs, sink);
                        self.resume_at(packet, address, programs, sink);
                    }
                }
                true
            }
            Err(error) => {
                self.lose(error.trouble(unit.payload), programs, sink);
                !is_after
            }
        }
    }

    /// Reports what is known to have retired, and returns the address after it, if it is known.
    fn flush<L: Labels>(&mut self, programs: &mut Programs<'_, '_, L>, sink: &mut impl Sink) -> Option<u64> {
        if self.state != State::On {
            return None;
        }
        self.walk.finish(programs.graph(self.isa), sink, &mut self.memory)
    }

    /// Opens a gap at the current packet.
    fn lose<L: Labels>(
        &mut self,
        trouble: Trouble,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) {
        self.flush(programs, sink);
        self.state = State::Lost;
        (self.inferred, self.trap) = (None, None);
        self.memory.outcomes.clear();
        let lacks_code = matches!(trouble, Trouble::Code(_));
        if self.gap.is_some() {
            self.lacks_code_only &= lacks_code;
            return;
        }
        self.lacks_code_only = lacks_code;
        let from = self.packet_position as u64;
        let doubtful_since = trouble.is_doubtful().then_some(self.certain_at as u64);
        self.gap = Some(Gap { from, to: from, since: self.time, until: None, doubtful_since, trouble });
    }

    /// Reports the gap, which ends before the current packet.
    fn close_gap(&mut self, sink: &mut impl Sink) {
        if let Some(gap) = self.gap.take() {
            let to = self.packet_position as u64;
            sink.event(Event::Gap(Gap { to, until: self.time, ..gap }));
        }
    }

    /// Reports a time, and selects the program that runs then, if kernel code runs.
    fn emit_time<L: Labels>(
        &mut self,
        time: Option<u64>,
        programs: &mut Programs<'_, '_, L>,
        sink: &mut impl Sink,
    ) {
        let Some(time) = time.map(Tsc).filter(|&time| self.time != Some(time)) else { return };
        self.time = Some(time);
        self.walk.set_tick(time.0);
        sink.event(Event::Time(time));
        programs.pass(time);
        if self.state == State::On && is_kernel(self.walk.ip) {
            self.follow_schedule(programs, sink);
        }
    }

    /// Selects the program that runs at the current time.
    fn follow_schedule<L: Labels>(&mut self, programs: &mut Programs<'_, '_, L>, sink: &mut impl Sink) {
        if let Some(context) = programs.follow_schedule() {
            self.walk.forget_block();
            sink.event(Event::Switch(context));
        }
    }
}

/// The cause of a trap. The vector is that of `*cause`.
fn cause(trap: &crate::packet::Trap) -> Cause {
    Cause { kind: ControlFlowKind::Interrupt, vector: trap.cause as u8 }
}
