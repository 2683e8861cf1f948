//! The content of metadata, from TSDL (CTF 1.8) or JSON (CTF 2): the classes of everything in a trace.
//!
//! Names follow CTF 2. CTF 1.8 calls a class a type, and an event record an event.

use std::collections::BTreeMap;

use hodo_clock::CycleClock;
use hodo_model::{event::Meaning, kernel::StateCodes};

use super::{bits::Layout, foreign::ForeignField};

/// The note about an implied clock.
const NO_CLOCK: &str = "it describes no clock, so times are taken for nanoseconds from an origin of their own; \
                        --clock-frequency names another frequency";

/// A trace's metadata.
#[derive(Clone, Debug, Default)]
pub struct TraceClass {
    /// The CTF version: 1 or 2; 0 for other formats.
    pub version: u8,
    /// The UUID in all packets (CTF 1.8 and 2). Traces with equal UUIDs are one trace.
    pub uuid: Option<[u8; 16]>,
    /// The trace's name (CTF 2).
    pub name: Option<String>,
    /// Properties of the traced system, in order.
    pub environment: Vec<(String, Environment)>,
    /// The clocks, in order.
    pub clocks: Vec<ClockClass>,
    /// The header of each packet.
    pub packet_header: Option<Structure>,
    /// Stream classes by id.
    pub streams: BTreeMap<u64, StreamClass>,
    /// Number of slots for integers that other fields depend on.
    pub slots: u32,
    /// The codes of `prev_state` of `sched_switch`, if a format describes them.
    pub state_codes: Option<StateCodes>,
    /// Whether the metadata has no clock, so that one is implied for fields named `timestamp`.
    pub has_implied_clock: bool,
    /// Assumptions about missing metadata and ignored metadata, for people.
    pub notes: Vec<String>,
}

/// Default frequency of a clock in cycles per second: CTF 1.8 section 8.
pub(crate) const DEFAULT_FREQUENCY: u64 = 1_000_000_000;

impl TraceClass {
    /// Whether another class finds the same packets with the same content in files.
    pub fn finds_packets_as(&self, other: &TraceClass) -> bool {
        self.uuid == other.uuid
            && self.packet_header == other.packet_header
            && self.packet_contexts() == other.packet_contexts()
    }

    /// Sets the frequency of the implied clock in cycles per second. Returns `false` if the metadata has clocks, or
    /// the frequency is zero.
    pub fn imply_frequency(&mut self, frequency: u64) -> bool {
        let cycles = CycleClock::new(frequency, 0, 0).filter(|_| self.has_implied_clock);
        let (Some(cycles), Some(clock)) = (cycles, self.clocks.first_mut()) else { return false };
        clock.cycles = cycles;
        self.notes.retain(|note| note != NO_CLOCK);
        true
    }

    /// Adds the implied clock of fields named `timestamp` if the metadata has no clock. Returns its index.
    pub(crate) fn imply_clock(&mut self) -> usize {
        if self.clocks.is_empty() {
            let cycles = CycleClock::new(DEFAULT_FREQUENCY, 0, 0).expect("the frequency is not zero");
            // As babeltrace2 names an implied clock.
            let name = "default".to_owned();
            self.clocks.push(ClockClass { name, description: String::new(), cycles, unix: false, uid: None });
            self.has_implied_clock = true;
            self.notes.push(NO_CLOCK.to_owned());
        }
        0
    }

    /// Packet contexts of the stream classes by id, and whether they have clocks.
    fn packet_contexts(&self) -> BTreeMap<u64, (Option<&Structure>, bool)> {
        let streams = self.streams.iter();
        streams.map(|(&id, stream)| (id, (stream.packet_context.as_ref(), stream.clock.is_some()))).collect()
    }

    /// The text of an environment entry.
    pub fn environment_text(&self, name: &str) -> Option<&str> {
        self.environment.iter().find_map(|(entry, value)| match value {
            Environment::Text(text) if entry == name => Some(text.as_str()),
            _ => None,
        })
    }

    /// The number of an environment entry.
    pub fn environment_integer(&self, name: &str) -> Option<i128> {
        self.environment.iter().find_map(|(entry, value)| match value {
            Environment::Integer(integer) if entry == name => Some(*integer),
            _ => None,
        })
    }
}

/// An environment value.
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
    /// The name in the metadata.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The conversion from cycles to nanoseconds.
    pub cycles: CycleClock,
    /// Whether its origin is 1970.
    pub unix: bool,
    /// Identifier that distinguishes it from other clocks of the same name: `uuid` in CTF 1.8, `uid` in CTF 2.
    pub uid: Option<String>,
}

/// A stream class.
#[derive(Clone, Debug, Default)]
pub struct StreamClass {
    /// The id.
    pub id: u64,
    /// Index of the clock; `None` for events without timestamps.
    pub clock: Option<usize>,
    /// The context after each packet's header.
    pub packet_context: Option<Structure>,
    /// The header of each event.
    pub event_header: Option<Structure>,
    /// The context after each event's header.
    pub common_context: Option<Structure>,
    /// The event classes, by id.
    pub events: Vec<EventClass>,
}

impl StreamClass {
    /// Whether event headers contain the class id.
    pub(crate) fn has_event_classes(&self) -> bool {
        self.event_header.as_ref().is_some_and(|header| header.has_role(Role::EventClassId))
    }
}

/// An event class.
#[derive(Clone, Debug, Default)]
pub struct EventClass {
    /// The id.
    pub id: u64,
    /// The name, such as `sched_switch`; the id if unnamed.
    pub name: String,
    /// The log level, if given.
    pub log_level: Option<i64>,
    /// The context after the common one, specific to this class.
    pub specific_context: Option<Structure>,
    /// The fields that the tracepoint recorded.
    pub payload: Option<Structure>,
}

/// The parts of a packet that contain fields, in the order of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The packet's header.
    PacketHeader,
    /// After the packet's header.
    PacketContext,
    /// The event's header.
    EventHeader,
    /// After the event's header: `stream.event.context`.
    CommonContext,
    /// After the common context: `event.context`.
    SpecificContext,
    /// The event's own fields.
    Payload,
}

/// The purpose of an integer for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The magic number C1FC1FC1.
    PacketMagic,
    /// The id of the packet's stream class.
    StreamClassId,
    /// The id of the stream in its class.
    StreamId,
    /// Size of the packet, in bits.
    PacketTotalLength,
    /// Size of its content, in bits.
    PacketContentLength,
    /// The value that the clock advances to.
    Timestamp,
    /// The clock at the packet's end; the clock does not advance to it.
    PacketEndTimestamp,
    /// Events that the tracer had discarded in the stream by the packet's end.
    DiscardedEvents,
    /// The packet's sequence number in its stream.
    PacketSequenceNumber,
    /// The id of the event's class.
    EventClassId,
    /// The trace's UUID, an array of sixteen bytes.
    MetadataUuid,
}

/// The order of bytes and bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

/// Index of a stored integer value that other fields depend on.
pub type Slot = u32;

/// A field class.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldClass {
    /// An integer of a fixed number of bits.
    Integer(Integer),
    /// A LEB128 integer.
    VariableInteger(VariableInteger),
    /// A binary floating-point number of 16, 32 or 64 bits.
    Real(Real),
    /// NUL-terminated text.
    String(Encoding),
    /// Text of a known number of bytes, which a NUL may end early.
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
    /// A field of a format that gives fields offsets.
    ForeignField(Box<ForeignField>),
}

/// An integer of a fixed number of bits, up to 64.
#[derive(Clone, Debug, PartialEq)]
pub struct Integer {
    /// Alignment in bits.
    pub alignment: u32,
    /// Whether it is in two's complement.
    pub signed: bool,
    /// Order of bytes and bits.
    pub byte_order: ByteOrder,
    /// Whether its bits are numbered in the opposite order to the byte order (CTF 2's `bit-order`).
    pub reversed: bool,
    /// Whether it is a boolean.
    pub boolean: bool,
    /// Its size, base and labels.
    pub meaning: Meaning,
    /// Its roles for the reader; several are possible.
    pub roles: Vec<Role>,
    /// The clock it is a value of, until roles are resolved.
    pub clock: Option<String>,
    /// CTF 1.8: the encoding, if an array of these integers is text.
    pub text: Option<Encoding>,
    /// The slot for its value, if another field depends on it.
    pub slot: Option<Slot>,
}

/// A LEB128 integer: CTF 2, "Variable-length integer field class".
#[derive(Clone, Debug, PartialEq)]
pub struct VariableInteger {
    /// Whether it is in two's complement.
    pub signed: bool,
    /// Its base and labels.
    pub meaning: Meaning,
    /// Its roles for the reader.
    pub roles: Vec<Role>,
    /// The slot for its value, if another field depends on it.
    pub slot: Option<Slot>,
}

/// A binary floating-point number: IEEE 754.
#[derive(Clone, Debug, PartialEq)]
pub struct Real {
    /// Size in bits: 16, 32 or 64.
    pub size: u32,
    /// Alignment in bits.
    pub alignment: u32,
    /// Order of bytes and bits.
    pub byte_order: ByteOrder,
    /// Whether its bits are numbered in the opposite order to the byte order.
    pub reversed: bool,
}

/// A text encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8, including ASCII.
    #[default]
    Utf8,
    /// UTF-16.
    Utf16(ByteOrder),
    /// UTF-32.
    Utf32(ByteOrder),
}

/// A number of elements or bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Length {
    /// A constant number.
    Static(u64),
    /// The value of a preceding integer.
    Dynamic(Reference),
}

/// A reference to the field that another one depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The scope to search; `None` to search from the innermost structure outwards.
    pub origin: Option<Scope>,
    /// Member names, as in the metadata; `None` is the parent structure (CTF 2).
    pub path: Vec<Option<String>>,
    /// The slot with its value; set when references are resolved.
    pub slot: Slot,
    /// Whether its value is signed; set when references are resolved.
    pub signed: bool,
}

impl Reference {
    /// Creates an unresolved reference.
    pub fn new(origin: Option<Scope>, path: Vec<Option<String>>) -> Reference {
        Reference { origin, path, slot: Slot::MAX, signed: false }
    }
}

/// Members, one after another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Structure {
    /// The members, in order.
    pub members: Vec<Member>,
    /// Minimum alignment in bits; raised to that of its members when references are resolved.
    pub minimum_alignment: u32,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The name for people.
    pub name: String,
    /// The name in the metadata, if different.
    pub raw_name: String,
    /// The class.
    pub class: FieldClass,
}

/// Elements of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The length.
    pub length: Length,
    /// The class of the elements.
    pub element: FieldClass,
    /// Minimum alignment in bits.
    pub minimum_alignment: u32,
}

/// A field whose class an integer selects.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The selecting integer.
    pub selector: Reference,
    /// The options.
    pub options: Vec<ChoiceOption>,
}

/// An option of a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceOption {
    /// The name for people.
    pub name: String,
    /// The name in the metadata. In CTF 1.8, the label of the values that select it.
    pub raw_name: String,
    /// The values that select it. For CTF 1.8, set when references are resolved.
    pub ranges: Vec<(i128, i128)>,
    /// The class.
    pub class: FieldClass,
}

impl Integer {
    /// An unsigned, byte-aligned, little-endian integer without a role or slot.
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

    /// The bit layout.
    #[inline]
    pub(super) fn layout(&self) -> Layout {
        let (size, order) = (self.meaning.size, self.byte_order);
        Layout { size, signed: self.signed, order, reversed: self.reversed }
    }
}

impl Real {
    /// The bit layout.
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

    /// Alignment in bits. A variant's alignment depends on the selected option.
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
    /// Whether a field at any depth has a role.
    pub(crate) fn has_role(&self, role: Role) -> bool {
        self.members.iter().any(|member| member.class.has_role(role))
    }

    /// The largest alignment of its members.
    pub fn alignment(&self) -> u32 {
        let members = self.members.iter().map(|member| member.class.alignment());
        members.max().unwrap_or(1).max(self.minimum_alignment)
    }
}

impl Array {
    /// The alignment of its elements, even if it is empty.
    pub fn alignment(&self) -> u32 {
        self.element.alignment().max(self.minimum_alignment)
    }
}
