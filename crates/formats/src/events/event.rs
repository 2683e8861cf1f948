//! Iterates over the events of a packet without copying.

use hodo_bytes::prefetch;
use hodo_model::event::{Compound, FieldSink, Ignore, Meaning, Name};

use super::{
    header::Word,
    packet::Packet,
    plan::{FieldPath, ListedClass, StreamPlan},
    read::Walk,
    schema::{EventClass, FieldClass, Scope, Slot, StreamClass, Structure, TraceClass},
    steps::{Content, Slots, Trouble},
};

/// Prefetch distance in bytes.
const AHEAD: usize = 1536;

/// Advances a clock to a value of which only the lowest `size` bits may be known: CTF 1.8 section 8. If those bits
/// are smaller than the clock's, the clock wrapped once. With no bits it stays.
#[inline]
pub(crate) fn advance(clock: u64, value: u64, size: u32) -> u64 {
    let mask = if size >= 64 { u64::MAX } else { (1 << size) - 1 };
    advance_within(clock, value, mask)
}

/// As [`advance`], with a mask of the known bits.
#[inline]
pub(crate) fn advance_within(clock: u64, value: u64, mask: u64) -> u64 {
    clock.wrapping_add(value.wrapping_sub(clock) & mask)
}

/// Positions of the parts of an event, in bits from the beginning of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Index of the event's class in its stream class.
    pub class: u32,
    /// The clock; `None` if the stream has none.
    pub cycles: Option<u64>,
    /// Beginning of the header.
    pub start: u64,
    /// End of the header, before alignment of the common context.
    pub common: u64,
    /// Beginning of the specific context, before alignment.
    pub specific: u64,
    /// Beginning of the payload, before alignment.
    pub payload: u64,
    /// End of the event.
    pub end: u64,
}

/// Why the rest of a packet cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTrouble {
    /// Beginning of the event, in bits from the beginning of its packet.
    pub position: u64,
    /// The reason.
    pub reason: String,
}

/// Reads the events in packets of one stream class.
#[derive(Debug)]
pub struct Reader<'t, 'a> {
    trace: &'t TraceClass,
    stream: &'t StreamClass,
    plan: &'t StreamPlan,
    slots: Slots,
    content: Content<'a>,
    /// Beginning of the packet's context.
    context: u64,
    /// The end of the last event.
    position: u64,
    /// The current clock.
    clock: u64,
}

impl<'t, 'a> Reader<'t, 'a> {
    pub(crate) fn new(
        trace: &'t TraceClass,
        stream: &'t StreamClass,
        plan: &'t StreamPlan,
    ) -> Reader<'t, 'a> {
        let content = Content { bytes: &[], end: 0 };
        Reader {
            trace,
            stream,
            plan,
            slots: Slots::new(trace.slots),
            content,
            context: 0,
            position: 0,
            clock: 0,
        }
    }

    /// Moves to the first event of a packet; `clock` is the clock before the packet.
    pub(crate) fn open(&mut self, bytes: &'a [u8], packet: &Packet, clock: u64) {
        self.content = Content { bytes, end: packet.content };
        (self.position, self.context, self.clock) = (packet.events, packet.context, clock);
        if let Some(begin) = packet.begin {
            self.clock = advance(clock, begin.value, begin.size);
        }
        // Sets the slots that events depend on, from the packet's header and context. Errors were reported earlier.
        let mut ignore = Ignore;
        let mut walk = Walk::new(self.content, 0, &self.slots, &mut ignore);
        let start = self.trace.packet_header.as_ref().map_or(Ok(0), |header| walk.root(header, 0));
        if let (Ok(start), Some(context)) = (start, &self.stream.packet_context) {
            let _ = walk.root(context, start);
        }
    }

    /// Sets the bytes of events that a [`Finder`](super::framing::Finder) locates, and the slot of a number of the
    /// stream.
    pub(crate) fn set_bytes(&mut self, bytes: &'a [u8], slot: Option<(Slot, u64)>) {
        self.content = Content { bytes, end: bytes.len() as u64 * 8 };
        slot.iter().for_each(|&(slot, number)| self.slots.set(slot, number));
    }

    /// The values that fields depend on.
    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The current clock.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns the parts of the next event; `None` at the end of the content.
    ///
    /// # Errors
    /// The rest of the packet cannot be read.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Parts>, EventTrouble> {
        let start = self.plan.header.start(self.position);
        if start >= self.content.end {
            return Ok(None);
        }
        match self.event(start) {
            Ok(parts) => {
                self.position = parts.end;
                Ok(Some(parts))
            }
            Err(reason) => {
                let reason = self.explain(reason, start);
                self.position = self.content.end;
                Err(EventTrouble { position: start, reason })
            }
        }
    }

    /// Returns the parts of the next event that `wanted` accepts; `None` at the end of the content. `wanted` gets the
    /// class index and the clock, once per event.
    ///
    /// # Errors
    /// The rest of the packet cannot be read.
    #[inline]
    pub fn next_where(
        &mut self,
        mut wanted: impl FnMut(u32, Option<u64>) -> bool,
    ) -> Result<Option<Parts>, EventTrouble> {
        loop {
            if let Some(parts) = self.skim(&mut wanted) {
                return Ok(Some(parts));
            }
            match self.next_event()? {
                Some(parts) if !wanted(parts.class, parts.cycles) => {}
                next => return Ok(next),
            }
        }
    }

    /// Fast path: skips events whose headers fit a word, up to one that is wanted. Returns `None` at an event that it
    /// cannot handle. Most events need nothing else.
    #[inline(always)]
    fn skim(&mut self, wanted: &mut impl FnMut(u32, Option<u64>) -> bool) -> Option<Parts> {
        let word = self.plan.header.word()?;
        let mut lane = self.lane()?;
        let found = loop {
            let start = lane.start();
            let Some(step) = self.step(word, &mut lane) else { break None };
            let cycles = self.cycles(lane.clock);
            match step {
                Skipped::Sized(sized, id) if wanted(sized.class, cycles) => {
                    word.keep(id, &self.slots);
                    break Some(self.plan.sized_parts(sized, cycles, start, start + word.bits));
                }
                Skipped::Other(parts) if wanted(parts.class, cycles) => break Some(parts),
                _ => {}
            }
        };
        self.leave(lane);
        found
    }

    /// Skips events of two packets of one stream alternately, while both take the fast path. Passes the class index and
    /// the clock of each to `skipped`. Returns which reader left the fast path; `None` if the stream has none. Skipping is
    /// bound by the latency from one event to the next, so two interleaved chains take little longer than one.
    #[inline(always)]
    pub(crate) fn skim_both(
        one: &mut Self,
        other: &mut Self,
        mut skipped: impl FnMut(u32, Option<u64>),
    ) -> Option<Stopped> {
        let word = one.plan.header.word()?;
        let Some(mut first) = one.lane() else { return Some(Stopped::One) };
        let Some(mut second) = other.lane() else { return Some(Stopped::Other) };
        let class = |step| match step {
            Skipped::Sized(sized, _) => sized.class,
            Skipped::Other(parts) => parts.class,
        };
        let stopped = loop {
            let Some(step) = one.step(word, &mut first) else { break Stopped::One };
            skipped(class(step), one.cycles(first.clock));
            let Some(step) = other.step(word, &mut second) else { break Stopped::Other };
            skipped(class(step), other.cycles(second.clock));
        };
        one.leave(first);
        other.leave(second);
        Some(stopped)
    }

    /// A lane from the next event on; `None` at the end of the content.
    #[inline(always)]
    fn lane(&self) -> Option<Lane<'a>> {
        let bytes = self.content.bytes_from(0);
        let rest = bytes.get((self.plan.header.start(self.position) / 8) as usize..)?;
        Some(Lane { bytes, rest, clock: self.clock })
    }

    /// Continues after the skipped events.
    #[inline(always)]
    fn leave(&mut self, lane: Lane<'a>) {
        (self.position, self.clock) = (lane.start(), lane.clock);
    }

    /// Skips an event whose header fits a word.
    // For events of fixed size, the dependency chain to the next event is a load, a shift and another load.
    #[inline(always)]
    fn step(&self, word: Word, lane: &mut Lane<'a>) -> Option<Skipped> {
        let head = *lane.rest.first_chunk()?;
        prefetch(lane.rest, AHEAD);
        let head = word.number(head);
        let id = word.id(head);
        let clock = word.advance(lane.clock, head);
        if let Some((sized, stride)) = self.plan.stride(id) {
            (lane.rest, lane.clock) = (lane.rest.get(stride..)?, clock);
            return Some(Skipped::Sized(sized, id));
        }
        if !word.is_of(id) {
            return None;
        }
        word.keep(id, &self.slots);
        let start = lane.start();
        let parts = self.parts(id, self.cycles(clock), start, start + word.bits).ok()?;
        (lane.rest, lane.clock) =
            (lane.bytes.get((self.plan.header.start(parts.end) / 8) as usize..)?, clock);
        Some(Skipped::Other(parts))
    }

    /// The clock, if the stream has one.
    #[inline(always)]
    fn cycles(&self, clock: u64) -> Option<u64> {
        self.stream.clock.is_some().then_some(clock)
    }

    #[inline]
    fn event(&mut self, start: u64) -> Result<Parts, Reason> {
        let head = self.plan.header.read(self.content, start, &self.slots)?;
        self.clock = advance(self.clock, head.time, head.time_size);
        let cycles = self.cycles(self.clock);
        if let Some(sized) = self.plan.sized(head.id) {
            let end = head.end + u64::from(sized.bits);
            if start < end && end <= self.content.end {
                return Ok(self.plan.sized_parts(sized, cycles, start, head.end));
            }
        }
        self.parts(head.id, cycles, start, head.end)
    }

    /// Finds the parts of an event of any size, given the beginning (`start`) and end (`common`) of its header.
    fn parts(&self, id: u64, cycles: Option<u64>, start: u64, common: u64) -> Result<Parts, Reason> {
        let class = self.plan.index(id).ok_or(Reason::UnknownClass(id))?;
        let plan = &self.plan.events[class as usize];
        let specific = self.plan.common.run(self.content, common, &self.slots)?;
        let payload = plan.specific.run(self.content, specific, &self.slots)?;
        let end = plan.payload.run(self.content, payload, &self.slots)?;
        if end > self.content.end {
            return Err(Reason::Trouble(Trouble::CutShort));
        }
        if end == start {
            return Err(Reason::Empty);
        }
        Ok(Parts { class, cycles, start, common, specific, payload, end })
    }

    #[cold]
    fn explain(&self, reason: Reason, start: u64) -> String {
        let what = match reason {
            Reason::UnknownClass(id) => format!("the metadata has no event class {id}"),
            Reason::Empty => "an event of zero bits, which would repeat for ever".to_owned(),
            Reason::Trouble(trouble) => trouble.to_string(),
        };
        format!("event at bit {start} of its packet: {what}")
    }

    /// A view of the event with these parts, which must be the last one read.
    #[inline]
    pub fn event_of(&self, parts: Parts) -> Event<'_, 't, 'a> {
        Event { reader: self, parts }
    }
}

/// Which of two readers, or cursors, left the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The first.
    One,
    /// The second.
    Other,
}

/// An iterator over a packet's events on the fast path.
struct Lane<'a> {
    /// The content.
    bytes: &'a [u8],
    /// The content from the next event on.
    rest: &'a [u8],
    clock: u64,
}

impl Lane<'_> {
    /// Beginning of the next event, in bits.
    #[inline(always)]
    fn start(&self) -> u64 {
        (self.bytes.len() - self.rest.len()) as u64 * 8
    }
}

/// A skipped event.
enum Skipped {
    /// An event of a fixed-size class, and the id of the class.
    Sized(ListedClass, u64),
    Other(Parts),
}

enum Reason {
    UnknownClass(u64),
    Empty,
    Trouble(Trouble),
}

impl From<Trouble> for Reason {
    #[inline]
    fn from(trouble: Trouble) -> Reason {
        Reason::Trouble(trouble)
    }
}

/// An event whose fields are read on demand.
#[derive(Clone, Copy, Debug)]
pub struct Event<'r, 't, 'a> {
    reader: &'r Reader<'t, 'a>,
    /// The positions of its parts.
    pub parts: Parts,
}

impl<'t, 'a> Event<'_, 't, 'a> {
    /// Its class.
    #[inline]
    pub fn class(&self) -> &'t EventClass {
        &self.reader.stream.events[self.parts.class as usize]
    }

    /// The content up to the event's end.
    #[inline]
    fn content(&self) -> Content<'a> {
        Content { end: self.parts.end, ..self.reader.content }
    }

    #[inline]
    fn root(&self, scope: Scope) -> Option<&'t Structure> {
        let stream = self.reader.stream;
        match scope {
            Scope::PacketHeader => self.reader.trace.packet_header.as_ref(),
            Scope::PacketContext => stream.packet_context.as_ref(),
            Scope::EventHeader => stream.event_header.as_ref(),
            Scope::CommonContext => stream.common_context.as_ref(),
            Scope::SpecificContext => self.class().specific_context.as_ref(),
            Scope::Payload => self.class().payload.as_ref(),
        }
    }

    /// Beginning of a scope, before alignment.
    #[inline]
    fn begin(&self, scope: Scope) -> u64 {
        match scope {
            Scope::PacketHeader => 0,
            Scope::PacketContext => self.reader.context,
            Scope::EventHeader => self.parts.start,
            Scope::CommonContext => self.parts.common,
            Scope::SpecificContext => self.parts.specific,
            Scope::Payload => self.parts.payload,
        }
    }

    /// Whether a scope has fields.
    #[inline]
    pub fn has(&self, scope: Scope) -> bool {
        self.root(scope).is_some()
    }

    /// Passes the fields of a scope to a sink, in order.
    ///
    /// # Errors
    /// A field cannot be read. The sink has got the fields before it.
    // Inlined because callers pass a constant scope; a scope that is usually empty then costs nothing.
    #[inline(always)]
    pub fn emit(&self, scope: Scope, sink: &mut impl FieldSink) -> Result<(), Trouble> {
        let (plan, position) = (self.reader.plan, self.begin(scope));
        let offsets = || plan.offsets(self.parts.class, self.class());
        let offsets = match scope {
            Scope::CommonContext => &plan.common_offsets,
            Scope::SpecificContext => match &offsets().specific {
                Some(offsets) => offsets,
                None => return Ok(()),
            },
            Scope::Payload => &offsets().payload,
            _ => {
                let Some(root) = self.root(scope) else { return Ok(()) };
                return self.walk(position, sink).root(root, position).map(drop);
            }
        };
        if offsets.is_empty() {
            return Ok(());
        }
        self.walk(position, sink).root_by_offsets(offsets, position).map(drop)
    }

    #[inline]
    fn walk<'w, S: FieldSink>(&'w self, position: u64, sink: &'w mut S) -> Walk<'a, 'w, S> {
        Walk::new(self.content(), position, &self.reader.slots, sink)
    }

    /// Passes one field to a sink. `path` must be one found for the event's class.
    ///
    /// # Errors
    /// The field cannot be read.
    #[inline]
    pub fn emit_field(&self, path: &FieldPath, sink: &mut impl FieldSink) -> Result<(), Trouble> {
        let (position, content, slots) = (self.begin(path.scope), self.content(), &self.reader.slots);
        if let Some(offset) = &path.offset {
            return offset.emit(content, position, slots, NAMELESS, sink);
        }
        let route = path.route.as_ref();
        let position = route.steps.run(content, position, slots)?;
        match (route.inner.as_slice(), &route.class) {
            ([], FieldClass::Integer(integer)) => {
                Walk::new(content, position, slots, sink).integer(integer, NAMELESS, position).map(drop)
            }
            ([], class) => {
                Walk::new(content, position, slots, sink).class(class, NAMELESS, position).map(drop)
            }
            (inner, class) => {
                let mut within = Within { wanted: inner, depth: 0, sink };
                Walk::new(content, position, slots, &mut within).class(class, NAMELESS, position).map(drop)
            }
        }
    }
}

/// The name passed to the sink for a field requested by name.
const NAMELESS: Name<'static> = Name::Member("");

/// Passes on only one field nested in another.
struct Within<'s, S> {
    /// The names on the path to it.
    wanted: &'s [String],
    /// Number of open structures on the path, plus `OFF` for each one off it.
    depth: usize,
    sink: &'s mut S,
}

impl<S> Within<'_, S> {
    fn is_wanted(&self, name: Name<'_>) -> bool {
        // The first field begun is the outermost.
        self.depth == self.wanted.len() && self.matches(name)
    }

    /// Whether this is the name that the path has at the present depth.
    fn matches(&self, name: Name<'_>) -> bool {
        match (name, self.depth.checked_sub(1).and_then(|index| self.wanted.get(index))) {
            (Name::Member(name), Some(wanted)) => name == wanted,
            (Name::Element(index), Some(wanted)) => wanted.parse() == Ok(index),
            _ => false,
        }
    }
}

impl<S: FieldSink> FieldSink for Within<'_, S> {
    fn unsigned(&mut self, name: Name<'_>, value: u64, meaning: &Meaning) {
        if self.is_wanted(name) {
            self.sink.unsigned(NAMELESS, value, meaning);
        }
    }

    fn signed(&mut self, name: Name<'_>, value: i64, meaning: &Meaning) {
        if self.is_wanted(name) {
            self.sink.signed(NAMELESS, value, meaning);
        }
    }

    fn real(&mut self, name: Name<'_>, value: f64) {
        if self.is_wanted(name) {
            self.sink.real(NAMELESS, value);
        }
    }

    fn boolean(&mut self, name: Name<'_>, value: bool) {
        if self.is_wanted(name) {
            self.sink.boolean(NAMELESS, value);
        }
    }

    fn text(&mut self, name: Name<'_>, text: &[u8]) {
        if self.is_wanted(name) {
            self.sink.text(NAMELESS, text);
        }
    }

    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        if self.is_wanted(name) {
            self.sink.blob(NAMELESS, bytes);
        }
    }

    fn begin(&mut self, name: Name<'_>, _: Compound) {
        // Off the path or beyond its end, nothing matches until the compound is closed.
        let is_on_path = self.depth == 0 || (self.depth < self.wanted.len() && self.matches(name));
        self.depth += if is_on_path { 1 } else { OFF };
    }

    fn end(&mut self, _: Compound) {
        self.depth -= if self.depth >= OFF { OFF } else { 1 };
    }
}

/// Depth increment for each compound off the path.
const OFF: usize = 1 << 16;
