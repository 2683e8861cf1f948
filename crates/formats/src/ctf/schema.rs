//! What metadata says, whether it was TSDL (CTF 1.8) or JSON (CTF 2): the classes of everything in a trace.
//!
//! Names follow CTF 2, which has one for everything; CTF 1.8 calls a class a type and an event record an event.

use std::collections::BTreeMap;

use hodo_clock::CycleClock;
use hodo_model::event::Meaning;

use super::{bits::Layout, foreign::ForeignField};

/// The note about a clock that is implied.
const NO_CLOCK: &str = "it describes no clock, so times are taken for nanoseconds from an origin of their own; \
                        --clock-frequency names another frequency";

/// A trace's metadata.
#[derive(Clone, Debug, Default)]
pub struct TraceClass {
    /// Version of CTF: 1 or 2.
    pub version: u8,
    /// What all packets carry, in CTF 1.8 and 2; and what says that two traces are one.
    pub uuid: Option<[u8; 16]>,
    /// The trace's name, of CTF 2.
    pub name: Option<String>,
    /// What the tracer says of the traced system, in order.
    pub environment: Vec<(String, Environment)>,
    /// The clocks, in order.
    pub clocks: Vec<ClockClass>,
    /// What each packet begins with.
    pub packet_header: Option<Structure>,
    /// The classes of streams, by their ids.
    pub streams: BTreeMap<u64, StreamClass>,
    /// How many slots integers take that others depend on.
    pub slots: u32,
    /// Whether the clock is not the metadata's own, but the one that fields called `timestamp` need.
    pub has_implied_clock: bool,
    /// For people: what the metadata does not say and was assumed, and what was ignored.
    pub notes: Vec<String>,
}

/// Cycles a second of a clock whose frequency is not given: CTF 1.8 section 8.
pub(crate) const USUAL_FREQUENCY: u64 = 1_000_000_000;

impl TraceClass {
    /// Whether another class finds the same packets in files, and the same in each.
    pub fn finds_packets_as(&self, other: &TraceClass) -> bool {
        self.uuid == other.uuid
            && self.packet_header == other.packet_header
            && self.packet_contexts().eq(other.packet_contexts())
    }

    /// Sets the cycles a second of the clock that the metadata leaves out; `false` where it has clocks of its own, or
    /// the frequency is zero.
    pub fn imply_frequency(&mut self, frequency: u64) -> bool {
        let cycles = CycleClock::new(frequency, 0, 0).filter(|_| self.has_implied_clock);
        let (Some(cycles), Some(clock)) = (cycles, self.clocks.first_mut()) else { return false };
        clock.cycles = cycles;
        self.notes.retain(|note| note != NO_CLOCK);
        true
    }

    /// Adds the clock that fields called `timestamp` are values of where the metadata describes none; its index.
    pub(super) fn imply_clock(&mut self) -> usize {
        if self.clocks.is_empty() {
            let cycles = CycleClock::new(USUAL_FREQUENCY, 0, 0).expect("the frequency is not zero");
            // As babeltrace2 calls it.
            let name = "default".to_owned();
            self.clocks.push(ClockClass { name, description: String::new(), cycles, unix: false, uid: None });
            self.has_implied_clock = true;
            self.notes.push(NO_CLOCK.to_owned());
        }
        0
    }

    /// The packet contexts of streams, by their ids, and whether they have clocks.
    fn packet_contexts(&self) -> impl Iterator<Item = (u64, Option<&Structure>, bool)> {
        let streams = self.streams.iter();
        streams.map(|(&id, stream)| (id, stream.packet_context.as_ref(), stream.clock.is_some()))
    }

    /// The text of an entry of the environment.
    pub fn environment_text(&self, name: &str) -> Option<&str> {
        self.environment.iter().find_map(|(entry, value)| match value {
            Environment::Text(text) if entry == name => Some(text.as_str()),
            _ => None,
        })
    }

    /// The number of an entry of the environment.
    pub fn environment_integer(&self, name: &str) -> Option<i128> {
        self.environment.iter().find_map(|(entry, value)| match value {
            Environment::Integer(integer) if entry == name => Some(*integer),
            _ => None,
        })
    }
}

/// A value of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Environment {
    /// A number.
    Integer(i128),
    /// A text.
    Text(String),
}

/// A clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockClass {
    /// What the metadata calls it.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// How its cycles become nanoseconds.
    pub cycles: CycleClock,
    /// Whether its origin is 1970.
    pub unix: bool,
    /// What tells it from others of its name: the `uuid` of CTF 1.8, the `uid` of CTF 2.
    pub uid: Option<String>,
}

/// A class of data streams.
#[derive(Clone, Debug, Default)]
pub struct StreamClass {
    /// Its id.
    pub id: u64,
    /// Index of its clock; `None` where its events have no times.
    pub clock: Option<usize>,
    /// What each packet has after its header.
    pub packet_context: Option<Structure>,
    /// What each event begins with.
    pub event_header: Option<Structure>,
    /// What each event has after its header.
    pub common_context: Option<Structure>,
    /// The classes of events, in order of their ids.
    pub events: Vec<EventClass>,
}

impl StreamClass {
    /// Whether headers of events say of which class they are.
    pub(crate) fn tells_event_classes(&self) -> bool {
        self.event_header.as_ref().is_some_and(|header| header.has_role(Role::EventClassId))
    }
}

/// A class of events.
#[derive(Clone, Debug, Default)]
pub struct EventClass {
    /// Its id.
    pub id: u64,
    /// Its name, such as `sched_switch`; its id where it has none.
    pub name: String,
    /// The tracer's level of importance, where it says so.
    pub log_level: Option<i64>,
    /// What events of this class have after the context of their stream.
    pub specific_context: Option<Structure>,
    /// What the tracepoint itself wrote.
    pub payload: Option<Structure>,
}

/// Where in a packet a field can lie; the order is that of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// At the packet's beginning.
    PacketHeader,
    /// After its header.
    PacketContext,
    /// At an event's beginning.
    EventHeader,
    /// After its header: `stream.event.context`.
    CommonContext,
    /// After that: `event.context`.
    SpecificContext,
    /// The event's own fields.
    Payload,
}

/// What an integer is for the reader itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// C1FC1FC1.
    PacketMagic,
    /// Which class of streams the packet is of.
    StreamClassId,
    /// Which of the streams of this class.
    StreamId,
    /// Size of the packet, in bits.
    PacketTotalLength,
    /// Size of its content, in bits.
    PacketContentLength,
    /// The clock moves to this.
    Timestamp,
    /// The clock at the packet's end; it does not move there.
    PacketEndTimestamp,
    /// Events that the tracer had discarded by the packet's end.
    DiscardedEvents,
    /// The packet's number in its stream.
    PacketSequenceNumber,
    /// Which class of events the event is of.
    EventClassId,
    /// An array of sixteen bytes: the trace's UUID.
    MetadataUuid,
}

/// Which byte, and with it which bit, comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

/// Where the value of an integer is kept for the fields that depend on it.
pub type Slot = u32;

/// A class of fields.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldClass {
    /// An integer of a fixed number of bits.
    Integer(Integer),
    /// A LEB128 integer.
    VariableInteger(VariableInteger),
    /// A binary floating-point number of 32 or 64 bits.
    Real(Real),
    /// Text up to its NUL.
    String(Encoding),
    /// Text of a known number of bytes, or less if it has a NUL.
    Text(Encoding, Length),
    /// Bytes.
    Blob(Length, Option<Role>),
    /// Members, one after another.
    Structure(Structure),
    /// Elements of one class.
    Array(Box<Array>),
    /// A field that may be missing.
    Optional(Box<Choice>),
    /// One of several fields.
    Variant(Box<Choice>),
    /// What formats have that give fields their places.
    ForeignField(Box<ForeignField>),
}

/// An integer of a fixed number of bits, up to 64.
#[derive(Clone, Debug, PartialEq)]
pub struct Integer {
    /// Where it begins, in bits: at a multiple of this.
    pub alignment: u32,
    /// Whether it is in two's complement.
    pub signed: bool,
    /// The order of its bytes and bits.
    pub byte_order: ByteOrder,
    /// Whether its bits are numbered from the other end than its byte order says (CTF 2's `bit-order`).
    pub reversed: bool,
    /// Whether it is true or false rather than a number.
    pub boolean: bool,
    /// Its size, base and labels.
    pub meaning: Meaning,
    /// What it is for the reader; several are possible.
    pub roles: Vec<Role>,
    /// The clock that it is a value of, until roles are settled.
    pub clock: Option<String>,
    /// CTF 1.8: an array of these is text.
    pub text: Option<Encoding>,
    /// Where its value is kept, if some field depends on it.
    pub slot: Option<Slot>,
}

/// A LEB128 integer: CTF 2, "Variable-length integer field class".
#[derive(Clone, Debug, PartialEq)]
pub struct VariableInteger {
    /// Whether it is in two's complement.
    pub signed: bool,
    /// Its base and labels.
    pub meaning: Meaning,
    /// What it is for the reader.
    pub roles: Vec<Role>,
    /// Where its value is kept, if some field depends on it.
    pub slot: Option<Slot>,
}

/// A binary floating-point number: IEEE 754.
#[derive(Clone, Debug, PartialEq)]
pub struct Real {
    /// 16, 32 or 64 bits.
    pub size: u32,
    /// Where it begins, in bits.
    pub alignment: u32,
    /// The order of its bytes and bits.
    pub byte_order: ByteOrder,
    /// Whether its bits are numbered from the other end than its byte order says.
    pub reversed: bool,
}

/// How text becomes bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8, and ASCII.
    #[default]
    Utf8,
    /// UTF-16.
    Utf16(ByteOrder),
    /// UTF-32.
    Utf32(ByteOrder),
}

/// How many elements or bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Length {
    /// Always as many.
    Static(u64),
    /// As many as an integer says that lies before it.
    Dynamic(Reference),
}

/// The integer or text that a field depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Where to look for it; `None` from the innermost structure outwards.
    pub origin: Option<Scope>,
    /// Names of members, as the metadata writes them; `None` is the structure around (CTF 2).
    pub path: Vec<Option<String>>,
    /// Where its value is kept; set when references are resolved.
    pub slot: Slot,
    /// Whether its value is signed; set when references are resolved.
    pub signed: bool,
}

impl Reference {
    /// A reference that is yet to be resolved.
    pub fn new(origin: Option<Scope>, path: Vec<Option<String>>) -> Reference {
        Reference { origin, path, slot: Slot::MAX, signed: false }
    }
}

/// Members, one after another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Structure {
    /// The members, in order.
    pub members: Vec<Member>,
    /// Where it begins at least, in bits; as its members need it, once references are resolved.
    pub minimum_alignment: u32,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name for people.
    pub name: String,
    /// Its name in the metadata, where that is another.
    pub raw_name: String,
    /// What it is.
    pub class: FieldClass,
}

/// Elements of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// How many.
    pub length: Length,
    /// Of what class.
    pub element: FieldClass,
    /// Where it begins at least, in bits.
    pub minimum_alignment: u32,
}

/// A field whose class depends on an integer.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The integer.
    pub selector: Reference,
    /// What it selects from.
    pub options: Vec<ChoiceOption>,
}

/// One of the classes that a field can have.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceOption {
    /// Its name for people.
    pub name: String,
    /// Its name in the metadata: in CTF 1.8 the label of the values that select it.
    pub raw_name: String,
    /// The values that select it; of CTF 1.8, set when references are resolved.
    pub ranges: Vec<(i128, i128)>,
    /// What it is.
    pub class: FieldClass,
}

impl Integer {
    /// An unsigned little-endian integer that begins at a byte and on which nothing depends.
    pub(crate) fn plain(meaning: Meaning) -> Integer {
        Integer {
            alignment: 8,
            signed: false,
            byte_order: ByteOrder::Little,
            reversed: false,
            boolean: false,
            meaning,
            roles: Vec::new(),
            clock: None,
            text: None,
            slot: None,
        }
    }

    /// How it lies in its bits.
    #[inline]
    pub(super) fn layout(&self) -> Layout {
        let (size, order) = (self.meaning.size, self.byte_order);
        Layout { size, signed: self.signed, order, reversed: self.reversed }
    }
}

impl Real {
    /// How its bits lie.
    #[inline]
    pub(super) fn layout(&self) -> Layout {
        Layout { size: self.size, signed: false, order: self.byte_order, reversed: self.reversed }
    }
}

impl FieldClass {
    fn has_role(&self, role: Role) -> bool {
        match self {
            FieldClass::Integer(integer) => integer.roles.contains(&role),
            FieldClass::VariableInteger(integer) => integer.roles.contains(&role),
            FieldClass::Structure(structure) => structure.has_role(role),
            FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
                choice.options.iter().any(|option| option.class.has_role(role))
            }
            _ => false,
        }
    }

    /// Where the field begins, in bits: at a multiple of this. That of a variant depends on the option.
    pub fn alignment(&self) -> u32 {
        match self {
            FieldClass::Integer(integer) => integer.alignment,
            FieldClass::Real(real) => real.alignment,
            FieldClass::VariableInteger(_)
            | FieldClass::String(_)
            | FieldClass::Text(..)
            | FieldClass::Blob(..)
            | FieldClass::ForeignField(_) => 8,
            FieldClass::Structure(structure) => structure.alignment(),
            FieldClass::Array(array) => array.alignment(),
            FieldClass::Optional(_) | FieldClass::Variant(_) => 1,
        }
    }
}

impl Structure {
    /// Whether a field in it has a role, however deep it lies.
    pub(crate) fn has_role(&self, role: Role) -> bool {
        self.members.iter().any(|member| member.class.has_role(role))
    }

    /// That of the member that needs the most.
    pub fn alignment(&self) -> u32 {
        let members = self.members.iter().map(|member| member.class.alignment());
        members.max().unwrap_or(1).max(self.minimum_alignment)
    }
}

impl Array {
    /// That of its elements, even where there are none.
    pub fn alignment(&self) -> u32 {
        self.element.alignment().max(self.minimum_alignment)
    }
}
