//! Converts events of ftrace and perf to CTF, with event headers and fields in sequence.
//!
//! ```text
//! classes from format files ──arrange──► CTF classes: no padding, strings for texts, lengths before their arrays
//! fields from the sink ──Arranged──► the same fields in that order ──► Encoder
//! ```

use std::collections::BTreeMap;

use hodo_model::event::{Compound, FieldSink, Meaning, Name};

use super::encoder::{Encoder, FieldTrouble, RolePosition};
use crate::events::{
    bits::SIGNED,
    foreign::{Elements, ForeignField},
    message::{Kind, Shown},
    schema::{
        Array, Encoding, FieldClass, Integer, Length, Member, Reference, Role, Slot, StreamClass, Structure,
        TraceClass,
    },
};

/// Bits of a length; events of any tracer are far smaller.
const LENGTH_BITS: u32 = 32;
/// Bits of the timestamp in event headers. A longer interval between two events starts a new packet.
const TIME_BITS: u32 = 32;

/// Members of event contexts that moved to the stream's context, by stream class.
pub(super) type Lifted = BTreeMap<u64, Vec<Member>>;

/// Converts the classes of a trace of another format to CTF.
pub(super) fn arrange(trace: &mut TraceClass) -> Lifted {
    let mut slots = trace.slots;
    let lifted = trace.streams.values_mut().map(|stream| (stream.id, lift_context(stream))).collect();
    let mut header = vec![
        member("magic", integer(32, Some(Role::PacketMagic))),
        member("stream_id", integer(32, Some(Role::StreamClassId))),
    ];
    if trace.streams.values().any(has_numbers) {
        header.push(member("stream_instance_id", integer(32, Some(Role::StreamId))));
    }
    trace.packet_header = Some(structure(header));
    for stream in trace.streams.values_mut() {
        let id_bits = if stream.events.iter().all(|event| u16::try_from(event.id).is_ok()) { 16 } else { 32 };
        let mut header = vec![member("id", integer(id_bits, Some(Role::EventClassId)))];
        if stream.clock.is_some() {
            header.push(member("timestamp", integer(TIME_BITS, Some(Role::Timestamp))));
        }
        stream.event_header = Some(structure(header));
        let context = stream.packet_context.get_or_insert_with(|| structure(Vec::new()));
        context.members.push(member("events_discarded", integer(64, Some(Role::DiscardedEvents))));
        let of_stream = [&mut stream.packet_context, &mut stream.common_context];
        let of_events =
            stream.events.iter_mut().flat_map(|event| [&mut event.specific_context, &mut event.payload]);
        let roots = of_stream.into_iter().chain(of_events).flatten();
        roots.for_each(|root| arrange_members(root, &mut slots));
    }
    trace.slots = slots;
    lifted
}

/// Moves members shared by all event contexts to the stream's context, and returns them. babeltrace2 2.0 cannot read
/// arrays in an event context (it resolves the stream's context twice instead).
fn lift_context(stream: &mut StreamClass) -> Vec<Member> {
    let contexts: Option<Vec<&Structure>> =
        stream.events.iter().map(|event| event.specific_context.as_ref()).collect();
    let contexts = contexts.filter(|_| stream.common_context.is_none()).unwrap_or_default();
    let Some((first, others)) = contexts.split_first() else { return Vec::new() };
    let is_shared = |member: &&Member| others.iter().all(|other| other.members.contains(member));
    let lifted: Vec<Member> = first.members.iter().filter(is_shared).cloned().collect();
    if !lifted.is_empty() {
        stream.common_context = Some(structure(lifted.clone()));
    }
    for context in stream.events.iter_mut().filter_map(|event| event.specific_context.as_mut()) {
        context.members.retain(|member| !lifted.contains(member));
    }
    lifted
}

/// Whether streams have numbers: the CPUs.
fn has_numbers(stream: &StreamClass) -> bool {
    let members = stream.packet_context.iter().flat_map(|context| &context.members);
    members.into_iter().any(
        |member| matches!(&member.class, FieldClass::ForeignField(foreign) if matches!(**foreign, ForeignField::Known { .. })),
    )
}

fn arrange_members(root: &mut Structure, slots: &mut Slot) {
    for member in std::mem::take(&mut root.members) {
        let class = match &member.class {
            // The header contains the class id.
            _ if is_class_id(&member.class) => continue,
            FieldClass::ForeignField(foreign) => match &**foreign {
                ForeignField::Padding(_) => continue,
                ForeignField::Known { meaning, .. } => FieldClass::Integer(Integer::plain(meaning.clone())),
                ForeignField::Named { .. } | ForeignField::Printed { .. } => {
                    FieldClass::String(Encoding::Utf8)
                }
                ForeignField::Message(field) => match field.kind {
                    _ if field.names.is_some() => FieldClass::String(Encoding::Utf8),
                    Kind::Text => FieldClass::String(Encoding::Utf8),
                    Kind::Bytes | Kind::Many => elements(&member.class)
                        .map_or(FieldClass::String(Encoding::Utf8), |element| {
                            sequence_class(element, *slots)
                        }),
                    Kind::Boolean => FieldClass::Integer(Integer {
                        boolean: true,
                        ..Integer::plain(field.meaning.clone())
                    }),
                    kind => number(kind == Kind::Signed || kind == Kind::Zigzag, &field.meaning),
                },
                ForeignField::Computed(field) => match field.shown {
                    Shown::Name(_) => FieldClass::String(Encoding::Utf8),
                    Shown::Itself | Shown::Other(_) => number(SIGNED, &field.meaning),
                },
                ForeignField::Located { .. } | ForeignField::Rest(_) | ForeignField::Counted(_) => {
                    elements(&member.class)
                        .map_or(FieldClass::String(Encoding::Utf8), |element| sequence_class(element, *slots))
                }
            },
            // A length must be unsigned.
            FieldClass::Integer(integer) if integer.slot.is_some() => {
                FieldClass::Integer(Integer { signed: false, ..integer.clone() })
            }
            class => class.clone(),
        };
        if let Some(length) = length_of(&member, *slots) {
            root.members.push(length);
            *slots += 1;
        }
        root.members.push(Member { class, ..member });
    }
}

fn is_class_id(class: &FieldClass) -> bool {
    matches!(class, FieldClass::Integer(integer) if integer.roles == [Role::EventClassId])
}

/// The elements of an array whose length is a separate field in CTF.
fn elements(class: &FieldClass) -> Option<Elements> {
    let FieldClass::ForeignField(foreign) = class else { return None };
    let elements = match &**foreign {
        ForeignField::Located { elements, .. } | ForeignField::Rest(elements) => elements.clone(),
        ForeignField::Counted(integer) => Elements::Integers(integer.clone()),
        ForeignField::Message(field) if field.kind == Kind::Bytes => Elements::Blob,
        ForeignField::Message(field) if field.kind == Kind::Many => {
            Elements::Integers(Integer::plain(field.meaning.clone()))
        }
        ForeignField::Padding(_)
        | ForeignField::Message(_)
        | ForeignField::Computed(_)
        | ForeignField::Known { .. }
        | ForeignField::Named { .. }
        | ForeignField::Printed { .. } => return None,
    };
    (elements != Elements::Text).then_some(elements)
}

/// The length field of a member, with LTTng's name for it.
fn length_of(array: &Member, slot: Slot) -> Option<Member> {
    elements(&array.class)?;
    let meaning = Meaning { size: LENGTH_BITS, ..Meaning::default() };
    let length = Integer { slot: Some(slot), ..Integer::plain(meaning) };
    Some(member(&format!("_{}_length", array.name), FieldClass::Integer(length)))
}

/// A class of as many elements as the integer in a slot.
fn sequence_class(elements: Elements, slot: Slot) -> FieldClass {
    let length = Length::Dynamic(Reference { slot, ..Reference::new(None, Vec::new()) });
    match elements {
        Elements::Integers(integer) => {
            let element = FieldClass::Integer(integer);
            FieldClass::Array(Box::new(Array { length, element, minimum_alignment: 8 }))
        }
        Elements::Blob | Elements::Text => FieldClass::Blob(length, None),
    }
}

/// A number of 64 bits.
fn number(signed: bool, meaning: &Meaning) -> FieldClass {
    FieldClass::Integer(Integer { signed, ..Integer::plain(meaning.clone()) })
}

fn structure(members: Vec<Member>) -> Structure {
    Structure { members, minimum_alignment: 8 }
}

fn member(name: &str, class: FieldClass) -> Member {
    Member { name: name.to_owned(), raw_name: name.to_owned(), class }
}

fn integer(size: u32, role: Option<Role>) -> FieldClass {
    let meaning = Meaning { size, ..Meaning::default() };
    FieldClass::Integer(Integer { roles: role.into_iter().collect(), ..Integer::plain(meaning) })
}

/// Receives the fields of a scope of ftrace or perf, and passes them to an encoder as CTF arranges them.
pub(super) struct Arranged<'s, 't, 'e> {
    encoder: Encoder<'t, 'e>,
    /// Members not passed on yet.
    left: std::slice::Iter<'s, Member>,
    /// Selects the members to write.
    wants: &'s dyn Fn(&Member) -> bool,
    /// Whether the current field is skipped.
    is_left_out: bool,
    /// Number of open compounds.
    depth: u32,
    /// An array whose length is known at its end: element class and elements so far.
    array: Option<(Integer, Vec<u64>)>,
}

impl<'s, 't, 'e> Arranged<'s, 't, 'e> {
    /// Starts a scope. `source` is its structure in the source format.
    pub(super) fn new(
        encoder: Encoder<'t, 'e>,
        source: &'s Structure,
        wants: &'s dyn Fn(&Member) -> bool,
    ) -> Arranged<'s, 't, 'e> {
        let left = source.members.iter();
        Arranged { encoder, left, wants, is_left_out: false, depth: 0, array: None }
    }

    /// Ends the scope; see [`Encoder::finish`].
    pub(super) fn finish(mut self) -> Result<Vec<RolePosition>, FieldTrouble> {
        let the_end = None;
        self.reach(the_end);
        self.encoder.finish()
    }

    /// Moves to the named field, or to the end. Writes empty text for missing names of numbers.
    fn reach(&mut self, name: Option<Name<'_>>) -> Option<&'s Member> {
        loop {
            let member = self.left.next()?;
            match &member.class {
                FieldClass::ForeignField(foreign) if matches!(**foreign, ForeignField::Padding(_)) => {}
                FieldClass::ForeignField(foreign)
                    if matches!(**foreign, ForeignField::Named { .. } | ForeignField::Printed { .. }) =>
                {
                    if name == Some(Name::Member(&member.name)) {
                        return Some(member);
                    }
                    if (self.wants)(member) {
                        self.encoder.text(Name::Member(&member.name), b"");
                    }
                }
                class if is_class_id(class) => {}
                _ => return Some(member),
            }
        }
    }

    /// What is written for the next member if the event does not have it.
    fn next_class(&self) -> Option<Written> {
        let member = self.left.as_slice().first().filter(|_| self.depth == 0)?;
        let FieldClass::ForeignField(foreign) = &member.class else { return None };
        Some(match &**foreign {
            ForeignField::Message(field) => match field.kind {
                _ if field.names.is_some() => Written::Text,
                Kind::Text => Written::Text,
                Kind::Signed | Kind::Zigzag => Written::Signed,
                Kind::Unsigned | Kind::Many => Written::Unsigned,
                Kind::Boolean => Written::Boolean,
                Kind::Bytes => Written::Bytes,
            },
            ForeignField::Computed(field) if matches!(field.shown, Shown::Name(_)) => Written::Text,
            ForeignField::Computed(_) => Written::Signed,
            _ => return None,
        })
    }

    /// Starts a field. Returns `None` if it is skipped; otherwise the encoder, and the elements if CTF has the length
    /// in a separate field.
    fn field(&mut self, name: Name<'_>) -> Option<(&mut Encoder<'t, 'e>, Option<Elements>)> {
        let mut of_array = None;
        if self.depth == 0 {
            let member = self.reach(Some(name));
            self.is_left_out = member.is_some_and(|member| !(self.wants)(member));
            of_array = member.and_then(|member| elements(&member.class));
        }
        (!self.is_left_out).then_some((&mut self.encoder, of_array))
    }
}

/// What is written for a field of an event that may not have it.
enum Written {
    Text,
    Signed,
    Unsigned,
    Boolean,
    Bytes,
}

fn write_length(encoder: &mut Encoder<'_, '_>, name: Name<'_>, length: usize) {
    encoder.unsigned(name, length as u64, &Meaning::default());
}

impl FieldSink for Arranged<'_, '_, '_> {
    fn unsigned(&mut self, name: Name<'_>, value: u64, meaning: &Meaning) {
        if let Some((_, elements)) = &mut self.array {
            return elements.push(value);
        }
        if let Some((encoder, _)) = self.field(name) {
            encoder.unsigned(name, value, meaning);
        }
    }

    fn signed(&mut self, name: Name<'_>, value: i64, meaning: &Meaning) {
        if let Some((_, elements)) = &mut self.array {
            return elements.push(value as u64);
        }
        if let Some((encoder, _)) = self.field(name) {
            encoder.signed(name, value, meaning);
        }
    }

    fn real(&mut self, name: Name<'_>, value: f64) {
        if let Some((encoder, _)) = self.field(name) {
            encoder.real(name, value);
        }
    }

    fn boolean(&mut self, name: Name<'_>, value: bool) {
        if let Some((encoder, _)) = self.field(name) {
            encoder.boolean(name, value);
        }
    }

    fn text(&mut self, name: Name<'_>, text: &[u8]) {
        if let Some((encoder, _)) = self.field(name) {
            // Names of numbers come from lists, which may contain any bytes.
            encoder.text(name, text.split(|&byte| byte == 0).next().unwrap_or_default());
        }
    }

    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        if let Some((encoder, elements)) = self.field(name) {
            if elements.is_some() {
                write_length(encoder, name, bytes.len());
            }
            encoder.blob(name, bytes);
        }
    }

    fn absent(&mut self, name: Name<'_>) {
        // The class has a field there, which CTF can only leave out if another field says so.
        let class = self.next_class();
        match (class, self.field(name)) {
            (Some(Written::Text), Some((encoder, _))) => encoder.text(name, b""),
            (Some(Written::Signed), Some((encoder, _))) => encoder.signed(name, 0, &Meaning::default()),
            (Some(Written::Unsigned), Some((encoder, _))) => encoder.unsigned(name, 0, &Meaning::default()),
            (Some(Written::Boolean), Some((encoder, _))) => encoder.boolean(name, false),
            (Some(Written::Bytes), Some((encoder, _))) => {
                write_length(encoder, name, 0);
                encoder.blob(name, b"");
            }
            (None, Some((encoder, _))) => encoder.absent(name),
            (_, None) => {}
        }
    }

    fn begin(&mut self, name: Name<'_>, compound: Compound) {
        match self.field(name) {
            Some((_, Some(Elements::Integers(integer)))) => self.array = Some((integer, Vec::new())),
            Some((encoder, _)) => encoder.begin(name, compound),
            None => {}
        }
        self.depth += 1;
    }

    fn end(&mut self, compound: Compound) {
        self.depth -= 1;
        let encoder = &mut self.encoder;
        if let Some((integer, elements)) = self.array.take() {
            let name = Name::Member("");
            write_length(encoder, name, elements.len());
            encoder.begin(name, compound);
            for (index, element) in (0..).zip(elements) {
                if integer.signed {
                    encoder.signed(Name::Element(index), element as i64, &integer.meaning);
                } else {
                    encoder.unsigned(Name::Element(index), element, &integer.meaning);
                }
            }
        }
        if !self.is_left_out {
            encoder.end(compound);
        }
    }
}
