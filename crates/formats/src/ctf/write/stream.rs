//! Writes the packets of a stream: one for each source packet, or more if needed.

use super::{
    Target, Unwritable,
    bits::BitWriter,
    encoder::{Encoder, FieldTrouble, RolePosition, RoleValues},
    foreign::Arranged,
    header::{HeaderTrouble, HeaderWriter, Others, has_others},
};
use crate::events::{
    Event, Lost, Packet, Stream, StreamPacket, Trace, Trouble,
    event::advance,
    packet::MAGIC,
    schema::{EventClass, Member, Role, Scope, StreamClass, Structure},
};

/// Maximum size of a packet in bits.
const LARGEST: u64 = 1 << 33;

/// Why an event was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// It cannot be read.
    Unreadable(Trouble),
    /// It cannot be written.
    Unwritable(Unwritable),
}

/// Writes the packets of a stream.
#[derive(Debug)]
pub struct StreamWriter<'t, 's, 'a> {
    target: &'t Target,
    class: &'t StreamClass,
    trace: &'s Trace<'a>,
    stream: &'s Stream<'a>,
    /// Target event classes by source class index; `None` if not written.
    events: Vec<Option<&'t EventClass>>,
    /// Whether the source is CTF, whose packets contain times and losses.
    is_ctf: bool,
    /// Whether source headers must be read for other integers.
    reads_headers: bool,
    slots: Vec<u64>,
    /// The source packet.
    source: Option<&'s StreamPacket<'a>>,
    /// The packet under construction.
    packet: BitWriter,
    open: Option<Open>,
    /// The number of events that the tracer discarded so far.
    discarded: u64,
    /// The sequence number of the next packet.
    sequence: Option<u64>,
    /// Whether there is a loss that no packet reports yet.
    has_lost: bool,
    /// The complete packets that were not taken.
    done: Vec<u8>,
}

/// Which times of a packet are those of its source packet.
#[derive(Clone, Copy, Debug)]
pub struct KeptTimes {
    /// The begin; otherwise that of the first event.
    pub begin: bool,
    /// The end; otherwise that of the last event.
    pub end: bool,
}

/// The times of a source packet in cycles, if known.
#[derive(Default)]
struct PacketTimes {
    begin: Option<u64>,
    end: Option<u64>,
}

/// The state of the packet under construction.
#[derive(Debug)]
struct Open {
    positions: Vec<RolePosition>,
    /// The earliest position of its first event, in bits.
    first: u64,
    /// The clock at the last event.
    clock: u64,
}

/// How to write an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// With the timestamp that its header usually has.
    Usual,
    /// With a timestamp of 64 bits.
    FullTimestamp,
    /// In a new packet that begins at the event.
    NewPacket,
}

impl<'t, 's, 'a> StreamWriter<'t, 's, 'a> {
    /// Creates a writer at the beginning of a stream.
    ///
    /// # Panics
    /// If the target belongs to another trace.
    pub fn new(target: &'t Target, trace: &'s Trace<'a>, stream: &'s Stream<'a>) -> StreamWriter<'t, 's, 'a> {
        let class = target.class.streams.get(&stream.class).expect("the target has all streams of the trace");
        let find = |event: &EventClass| class.events.iter().find(|known| known.id == event.id);
        StreamWriter {
            target,
            class,
            trace,
            stream,
            events: trace.stream_class(stream).events.iter().map(find).collect(),
            is_ctf: trace.class.version > 0,
            reads_headers: class.event_header.as_ref().is_some_and(has_others),
            slots: vec![0; target.class.slots as usize],
            source: None,
            packet: BitWriter::default(),
            open: None,
            discarded: 0,
            sequence: None,
            has_lost: false,
            done: Vec::new(),
        }
    }

    /// Takes the complete packets.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.done)
    }

    /// Sets the source packet of the following events.
    pub fn begin(&mut self, packet: &'s StreamPacket<'a>) {
        self.source = Some(packet);
        self.sequence = self.sequence.or(packet.packet.sequence.map(|number| number.value));
    }

    /// Records a loss before the following events. If the source reports losses between events, writes a packet
    /// without events that reports the loss and ends there.
    ///
    /// # Errors
    /// That packet's context cannot be written.
    pub fn lost(&mut self, lost: &Lost) -> Result<(), Unwritable> {
        if lost.count == 0 {
            return Ok(());
        }
        self.has_lost = true;
        match (lost.packets, &mut self.sequence) {
            (true, Some(sequence)) => *sequence = sequence.wrapping_add(lost.count),
            (true, None) => {}
            (false, _) => self.discarded = self.discarded.wrapping_add(lost.count),
        }
        if self.is_ctf {
            return Ok(());
        }
        self.close(None);
        let clock = self.trace.clock(self.stream);
        let time = clock.zip(lost.before).map(|(clock, before)| clock.cycles(Some(before), None).first);
        self.open(time)?;
        self.close(time);
        Ok(())
    }

    /// Writes an event of the source packet, unless its class is not in the target. A new packet begins at the time
    /// of the source packet if `keeps_begin` is set, else at its first event.
    ///
    /// # Errors
    /// Why the event was not written. Other events are unaffected.
    pub fn event(&mut self, event: &Event<'_, '_, '_>, keeps_begin: bool) -> Result<(), NotWritten> {
        let Some(class) = self.events[event.parts.class as usize] else { return Ok(()) };
        let cycles = event.parts.cycles;
        for attempt in [Attempt::Usual, Attempt::FullTimestamp, Attempt::NewPacket] {
            if attempt == Attempt::NewPacket {
                self.begin_at_event(cycles).map_err(NotWritten::Unwritable)?;
            } else if self.open.is_none() {
                let begin = self.times().begin.filter(|_| keeps_begin).or(cycles);
                self.open(begin).map_err(NotWritten::Unwritable)?;
            }
            let start = self.packet.position();
            let written = self.put(event, class, attempt);
            let limit = self.limit();
            match written {
                Ok(()) if self.packet.position() <= limit => {
                    if let (Some(open), Some(cycles)) = (&mut self.open, cycles) {
                        open.clock = cycles;
                    }
                    return Ok(());
                }
                Ok(()) | Err(NotAdded::Header(HeaderTrouble::Time)) => self.packet.cut(start),
                Err(NotAdded::Header(HeaderTrouble::Never(reason))) => {
                    self.packet.cut(start);
                    return Err(unwritable(class, "header", reason));
                }
                Err(NotAdded::Field(FieldTrouble { field, reason })) => {
                    self.packet.cut(start);
                    return Err(unwritable(class, &field, reason.to_owned()));
                }
                Err(NotAdded::Unreadable(trouble)) => {
                    self.packet.cut(start);
                    return Err(NotWritten::Unreadable(trouble));
                }
            }
        }
        Err(unwritable(class, "size", "it does not fit into the largest packet of its stream".to_owned()))
    }

    /// Ends the packet. A packet without events is written if it reports a loss, or if `writes_empty` is set.
    ///
    /// # Errors
    /// The packet's context cannot be written.
    pub fn end(&mut self, writes_empty: bool, kept: KeptTimes) -> Result<(), Unwritable> {
        let PacketTimes { begin, end } = self.times();
        if self.open.is_none() && (writes_empty && self.is_ctf || self.has_lost) {
            self.open(begin.filter(|_| kept.begin).or(end))?;
        }
        self.close(end.filter(|_| kept.end));
        self.source = None;
        Ok(())
    }

    fn times(&self) -> PacketTimes {
        let Some(source) = self.source.filter(|_| self.is_ctf) else { return PacketTimes::default() };
        let Packet { begin, end, .. } = &source.packet;
        let begin = begin.map(|begin| advance(source.clock, begin.value, begin.size));
        let end = end.map(|end| advance(begin.unwrap_or(source.clock), end.value, end.size));
        PacketTimes { begin, end }
    }

    /// Starts a packet at the time of an event.
    fn begin_at_event(&mut self, cycles: Option<u64>) -> Result<(), Unwritable> {
        match &self.open {
            Some(open) if self.packet.position() == open.first => self.open = None,
            _ => self.close(None),
        }
        self.open(cycles)
    }

    fn open(&mut self, begin: Option<u64>) -> Result<(), Unwritable> {
        self.packet = BitWriter::default();
        let mut roles = RoleValues::new(self.target.class.uuid.unwrap_or_default());
        for (role, value) in [
            (Role::PacketMagic, Some(MAGIC)),
            (Role::StreamClassId, Some(self.stream.class)),
            (Role::StreamId, self.stream.id),
            (Role::Timestamp, begin),
            (Role::DiscardedEvents, Some(self.discarded)),
            (Role::PacketSequenceNumber, self.sequence),
        ] {
            roles.set(role, value);
        }
        let mut positions = Vec::new();
        let scopes = [
            (Scope::PacketHeader, &self.target.class.packet_header),
            (Scope::PacketContext, &self.class.packet_context),
        ];
        for (scope, structure) in scopes {
            let Some(structure) = structure else { continue };
            let mut encoder = Encoder::new(structure, &mut self.packet, &mut self.slots, &roles);
            if let Some(source) = self.source {
                self.trace.emit_packet(self.stream, source, scope, &mut encoder);
            }
            let written = encoder.finish().map_err(|FieldTrouble { field, reason }| {
                Unwritable::new(format!("packet of stream {}, `{field}`", self.class.id), reason)
            });
            positions.extend(written?);
        }
        self.has_lost = false;
        self.open = Some(Open { positions, first: self.packet.position(), clock: begin.unwrap_or(0) });
        Ok(())
    }

    /// Completes the packet under construction. It ends no earlier than its last event.
    fn close(&mut self, end: Option<u64>) {
        let Some(open) = self.open.take() else { return };
        let content = self.packet.position();
        self.packet.align(8);
        let size = self.packet.position();
        let end = end.map_or(open.clock, |end| end.max(open.clock));
        for position in &open.positions {
            match position.role {
                Role::PacketContentLength => position.put(content, &mut self.packet),
                Role::PacketTotalLength => position.put(size, &mut self.packet),
                Role::PacketEndTimestamp => position.put(end, &mut self.packet),
                _ => {}
            }
        }
        self.done.extend_from_slice(self.packet.bytes());
        self.sequence = self.sequence.map(|sequence| sequence.wrapping_add(1));
    }

    /// Maximum size of the packet in bits.
    fn limit(&self) -> u64 {
        let mut limit = LARGEST;
        for field in self.open.iter().flat_map(|open| &open.positions) {
            if matches!(field.role, Role::PacketContentLength | Role::PacketTotalLength) {
                // The size rounded up to whole bytes must fit too.
                limit = limit.min((u64::MAX >> (64 - field.size)).saturating_sub(7));
            }
        }
        limit
    }

    fn put(
        &mut self,
        event: &Event<'_, '_, '_>,
        class: &EventClass,
        attempt: Attempt,
    ) -> Result<(), NotAdded> {
        let mut others = Others::default();
        if self.reads_headers {
            event.emit(Scope::EventHeader, &mut others).map_err(NotAdded::Unreadable)?;
        }
        if let (Some(header), Some(open)) = (&self.class.event_header, &self.open) {
            let writer = HeaderWriter {
                out: &mut self.packet,
                slots: &mut self.slots,
                id: class.id,
                cycles: event.parts.cycles,
                clock: open.clock,
                full: attempt == Attempt::FullTimestamp,
                others: &others.0,
            };
            writer.write(header).map_err(NotAdded::Header)?;
        }
        let of_stream = self.trace.stream_class(self.stream);
        let lifted = self.target.lifted.get(&self.class.id).map_or(&[][..], Vec::as_slice);
        let is_lifted = |member: &Member| lifted.contains(member);
        let own = &event.class().specific_context;
        // Without an own common context, the stream's context comes from the events' specific contexts.
        let of_all = if of_stream.common_context.is_none() { own } else { &None };
        let (common, specific) = (&self.class.common_context, &class.specific_context);
        self.scope(event, Scope::CommonContext, &of_stream.common_context, common, &|_| true)?;
        self.scope(event, Scope::SpecificContext, of_all, common, &is_lifted)?;
        self.scope(event, Scope::SpecificContext, own, specific, &|member| !is_lifted(member))?;
        self.scope(event, Scope::Payload, &event.class().payload, &class.payload, &|_| true)
    }

    /// Writes a scope of an event, or a part of it: the members of `source` that `wants` selects, as the fields of
    /// `structure`.
    fn scope(
        &mut self,
        event: &Event<'_, '_, '_>,
        scope: Scope,
        source: &Option<Structure>,
        structure: &Option<Structure>,
        wants: &dyn Fn(&Member) -> bool,
    ) -> Result<(), NotAdded> {
        let (Some(source), Some(structure)) = (source, structure) else { return Ok(()) };
        let roles = RoleValues::default();
        let mut encoder = Encoder::new(structure, &mut self.packet, &mut self.slots, &roles);
        let written = if self.is_ctf {
            event.emit(scope, &mut encoder).map_err(NotAdded::Unreadable)?;
            encoder.finish()
        } else {
            let mut arranged = Arranged::new(encoder, source, wants);
            event.emit(scope, &mut arranged).map_err(NotAdded::Unreadable)?;
            arranged.finish()
        };
        written.map(drop).map_err(NotAdded::Field)
    }
}

/// Why an event was not added to a packet.
enum NotAdded {
    Header(HeaderTrouble),
    Field(FieldTrouble),
    Unreadable(Trouble),
}

fn unwritable(class: &EventClass, field: &str, reason: String) -> NotWritten {
    NotWritten::Unwritable(Unwritable::new(format!("event `{}`, `{field}`", class.name), reason))
}
