//! Property tests: steps, walks, offsets and compiled headers read the same.

use hodo_model::event::{Compound, FieldSink, Meaning, Name};
use proptest::{collection::vec, prelude::*};

use super::{
    event::{Reader, Stopped},
    header::Header,
    offsets::Offsets,
    packet::Packet,
    plan::StreamPlan,
    read::Walk,
    schema::{
        Array, ByteOrder, Choice, ChoiceOption, Encoding, EventClass, FieldClass, Integer, Length, Member,
        Real, Reference, Role, Scope, StreamClass, Structure, TraceClass, VariableInteger,
    },
    steps::{Content, Known, Slots, Steps, Trouble},
};

/// Number of slots for integers that other fields depend on.
const SLOTS: u32 = 3;

fn order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
}

fn alignment() -> impl Strategy<Value = u32> {
    (0u32..7).prop_map(|bits| 1 << bits)
}

fn integer() -> impl Strategy<Value = Integer> {
    let slot = prop_oneof![4 => Just(None), 1 => (0..SLOTS).prop_map(Some)];
    (1u32..=64, alignment(), order(), any::<[bool; 2]>(), slot).prop_map(
        |(size, alignment, byte_order, [signed, reversed], slot)| Integer {
            alignment,
            signed,
            byte_order,
            reversed,
            boolean: false,
            meaning: Meaning { size, ..Meaning::default() },
            roles: Vec::new(),
            clock: None,
            text: None,
            slot,
        },
    )
}

/// A reference to one of the first `slots` slots.
fn reference(slots: u32) -> impl Strategy<Value = Reference> {
    (0..slots, any::<bool>()).prop_map(|(slot, signed)| Reference {
        slot,
        signed,
        ..Reference::new(None, vec![])
    })
}

fn length(slots: u32) -> impl Strategy<Value = Length> {
    prop_oneof![(0u64..4).prop_map(Length::Static), reference(slots).prop_map(Length::Dynamic)]
}

fn member(class: FieldClass) -> Member {
    Member { name: "x".to_owned(), raw_name: "x".to_owned(), class }
}

fn structure(members: Vec<FieldClass>, minimum_alignment: u32) -> Structure {
    Structure { members: members.into_iter().map(member).collect(), minimum_alignment }
}

/// Aligns as resolving references does: structures and arrays begin at the alignment of their content.
fn aligned(mut structure: Structure) -> Structure {
    structure.minimum_alignment = structure.alignment();
    structure
}

fn choice(selector: Reference, classes: Vec<FieldClass>) -> Box<Choice> {
    let option = |(index, class)| ChoiceOption {
        name: "x".to_owned(),
        raw_name: "x".to_owned(),
        ranges: vec![(index - 1, index)],
        class,
    };
    Box::new(Choice { selector, options: (0..).zip(classes).map(option).collect() })
}

/// A class that depends on the first `slots` slots.
fn class(slots: u32) -> impl Strategy<Value = FieldClass> {
    let variable = (any::<bool>(), prop_oneof![Just(None), (0..SLOTS).prop_map(Some)]);
    let variable = variable.prop_map(|(signed, slot)| {
        let meaning = Meaning { size: 64, ..Meaning::default() };
        FieldClass::VariableInteger(VariableInteger { signed, meaning, roles: Vec::new(), slot })
    });
    let real = (alignment(), order(), any::<bool>(), prop_oneof![Just(16u32), Just(32), Just(64)]);
    let encoding = prop_oneof![
        Just(Encoding::Utf8),
        order().prop_map(Encoding::Utf16),
        order().prop_map(Encoding::Utf32)
    ];
    let leaf = prop_oneof![
        6 => integer().prop_map(FieldClass::Integer),
        1 => variable,
        1 => real.prop_map(|(alignment, byte_order, reversed, size)| {
            FieldClass::Real(Real { size, alignment, byte_order, reversed })
        }),
        2 => encoding.clone().prop_map(FieldClass::String),
        1 => (encoding, length(slots)).prop_map(|(encoding, length)| FieldClass::Text(encoding, length)),
        1 => length(slots).prop_map(|length| FieldClass::Blob(length, None)),
    ];
    leaf.prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            (vec(inner.clone(), 0..4), alignment()).prop_map(|(members, alignment)| FieldClass::Structure(
                aligned(structure(members, alignment))
            )),
            (length(slots), inner.clone(), alignment()).prop_map(|(length, element, alignment)| {
                let mut array = Array { length, element, minimum_alignment: alignment };
                array.minimum_alignment = array.alignment();
                FieldClass::Array(Box::new(array))
            }),
            (reference(slots), vec(inner.clone(), 1..4))
                .prop_map(|(selector, classes)| FieldClass::Variant(choice(selector, classes))),
            (reference(slots), vec(inner, 1..3))
                .prop_map(|(selector, classes)| FieldClass::Optional(choice(selector, classes))),
        ]
    })
}

/// An integer as most tracers define it.
fn plain(order: ByteOrder) -> impl Strategy<Value = Integer> {
    integer().prop_map(move |integer| Integer {
        byte_order: order,
        signed: false,
        reversed: false,
        alignment: 1,
        ..integer
    })
}

/// A header with an id, and a timestamp that may depend on it.
fn header(integer: BoxedStrategy<Integer>) -> impl Strategy<Value = Structure> {
    let with = |role: Role| {
        integer.clone().prop_map(move |integer| Integer { roles: vec![role], slot: None, ..integer })
    };
    let (id, time) = (with(Role::EventClassId), with(Role::Timestamp));
    (id, vec(time, 1..3), any::<bool>(), alignment()).prop_map(|(mut id, times, chooses, alignment)| {
        let times = times.into_iter().map(FieldClass::Integer).collect();
        id.slot = chooses.then_some(0);
        let selector = Reference { slot: 0, signed: id.signed, ..Reference::new(None, vec![]) };
        let id = FieldClass::Integer(id);
        let members = if chooses {
            vec![id, FieldClass::Variant(choice(selector, times))]
        } else {
            [vec![id], times].concat()
        };
        aligned(structure(members, alignment))
    })
}

/// A stream class with few event classes. Its events depend only on values read within the event: the id.
fn stream() -> impl Strategy<Value = StreamClass> {
    let headers = order().prop_flat_map(
        |order| prop_oneof![4 => header(plain(order).boxed()), 1 => header(integer().boxed())],
    );
    let members = prop_oneof![
        2 => Just(vec![]),
        2 => vec(integer().prop_map(FieldClass::Integer), 1..3),
        1 => vec(class(1), 1..3),
    ];
    let events = (vec(members, 1..4), alignment()).prop_map(|(events, minimum)| {
        let payload = |members| Some(aligned(structure(members, minimum)));
        let event = |(id, members)| EventClass { id, payload: payload(members), ..EventClass::default() };
        (0..).zip(events).map(event).collect()
    });
    (headers, events, any::<bool>()).prop_map(|(mut header, events, has_clock)| {
        if let FieldClass::Integer(id) = &mut header.members[0].class {
            id.slot = Some(0);
        }
        let clock = has_clock.then_some(0);
        StreamClass { clock, event_header: Some(header), events, ..StreamClass::default() }
    })
}

/// Mostly ids of those classes.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![4 => Just(0u8), 4 => 0u8..4, 1 => any::<u8>()], 0..400)
}

/// Opens a packet whose content may end with one of its first few events.
fn open<'a>(reader: &mut Reader<'_, 'a>, bytes: &'a [u8], last: usize) {
    let packet = Packet::framed(0..bytes.len(), None);
    reader.open(bytes, &packet, 0);
    let ends = std::iter::from_fn(|| reader.next_event().ok().flatten()).map(|parts| parts.end);
    let content = ends.take(last).last().unwrap_or(packet.content);
    reader.open(bytes, &Packet { content, ..packet }, 0);
}

/// Mostly small numbers, which are lengths that fit.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => Just(0u8), 3 => 1u8..4, 1 => any::<u8>()], 0..80)
}

/// The output of a walk, as text.
#[derive(Debug, Default, PartialEq)]
struct Reported(Vec<String>);

impl FieldSink for Reported {
    fn unsigned(&mut self, name: Name<'_>, value: u64, _: &Meaning) {
        self.0.push(format!("{name:?} {value}"));
    }
    fn signed(&mut self, name: Name<'_>, value: i64, _: &Meaning) {
        self.0.push(format!("{name:?} {value}"));
    }
    fn real(&mut self, name: Name<'_>, value: f64) {
        self.0.push(format!("{name:?} {value}"));
    }
    fn boolean(&mut self, name: Name<'_>, value: bool) {
        self.0.push(format!("{name:?} {value}"));
    }
    fn text(&mut self, name: Name<'_>, text: &[u8]) {
        self.0.push(format!("{name:?} text {text:?}"));
    }
    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        self.0.push(format!("{name:?} bytes {bytes:?}"));
    }
    fn absent(&mut self, name: Name<'_>) {
        self.0.push(format!("{name:?} absent"));
    }
    fn begin(&mut self, name: Name<'_>, compound: Compound) {
        self.0.push(format!("{name:?} {compound:?}"));
    }
    fn end(&mut self, compound: Compound) {
        self.0.push(format!("end {compound:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn steps_end_where_a_walk_ends(members in vec(class(SLOTS), 0..6), minimum in alignment(), bytes in bytes(), start in 0u64..100, aligned_start: bool) {
        let structure = aligned(structure(members, minimum));
        let content = Content { bytes: &bytes, end: bytes.len() as u64 * 8 };
        let (start, known) =
            if aligned_start { (start * 64, Known::aligned(64)) } else { (start, Known::NOTHING) };
        let (stepped, walked) = (Slots::new(SLOTS), Slots::new(SLOTS));
        let steps = Steps::of(Some(&structure), known).0;
        let steps = steps.run(content, start, &stepped).ok().filter(|&end| end <= content.end);
        let (mut reported, mut by_offsets) = (Reported::default(), Reported::default());
        let walk = Walk::new(content, start, &walked, &mut reported).root(&structure, start);
        let end = Walk::new(content, start, &Slots::new(SLOTS), &mut by_offsets).root_by_offsets(&Offsets::of(&structure), start);
        prop_assert_eq!((walk, reported.0), (end, by_offsets.0));
        // Steps accept more elements of size zero than a walk would report.
        if steps.is_some() && matches!(walk, Err(Trouble::TooLong(_))) {
            return Ok(());
        }
        let walk = walk.ok().filter(|&end| end <= content.end);
        prop_assert_eq!(steps, walk);
        if walk.is_some() {
            prop_assert!((0..SLOTS).all(|slot| stepped.get(slot) == walked.get(slot)));
        }
    }

    #[test]
    fn a_field_at_a_known_offset_is_that_of_a_walk(members in vec(class(SLOTS), 1..6), minimum in alignment(), bytes in bytes(), start in 0u64..100) {
        let structure = aligned(structure(members, minimum));
        let content = Content { bytes: &bytes, end: bytes.len() as u64 * 8 };
        let slots = Slots::new(SLOTS);
        let offsets = Offsets::of(&structure);
        for (index, member) in structure.members.iter().enumerate() {
            let Some(offset) = offsets.offset(index) else { continue };
            let (mut walked, mut by_offset) = (Reported::default(), Reported::default());
            let position = Steps::up_to(&structure, index, Known::NOTHING).run(content, start, &slots);
            // Fields beyond the end of the content are never requested.
            let Some(position) = position.ok().filter(|&position| position <= content.end) else { continue };
            let walk = Walk::new(content, position, &slots, &mut walked).class(&member.class, Name::Element(0), position);
            let emitted = offset.emit(content, start, &slots, Name::Element(0), &mut by_offset);
            prop_assert_eq!((walk.is_ok(), walked.0), (emitted.is_ok(), by_offset.0));
        }
    }

    #[test]
    fn all_ways_to_read_a_header_agree(structure in header(integer().boxed()), bytes in vec(prop_oneof![0u8..3, any::<u8>()], 0..40)) {
        let content = Content { bytes: &bytes, end: bytes.len() as u64 * 8 };
        let header = Header::new(Some(&structure));
        let [word, shape, walk] = header.all_ways(&structure, content, &Slots::new(SLOTS));
        prop_assert_eq!(shape, walk);
        prop_assert!(word.is_none() || word == walk);
        prop_assert_eq!(header.read(content, 0, &Slots::new(SLOTS)).ok(), walk);
    }

    #[test]
    fn reading_with_a_filter_gives_the_events_of_reading_all(stream in stream(), bytes in packet(), last in 0usize..9, wanted: u16) {
        let (trace, plan) = (TraceClass { slots: SLOTS, ..TraceClass::default() }, StreamPlan::new(&stream));
        let reader = || {
            let mut reader = Reader::new(&trace, &stream, &plan);
            open(&mut reader, &bytes, last);
            reader
        };
        let reported = |reader: &Reader<'_, '_>, parts| {
            let mut reported = Reported::default();
            let is_whole = reader.event_of(parts).emit(Scope::Payload, &mut reported).is_ok();
            (is_whole, reported, reader.clock())
        };
        // Accepts some of every 16 events.
        let is_wanted = |number: usize| wanted >> (number % 16) & 1 == 1;
        let (mut one_by_one, mut filtered) = (reader(), reader());
        let (mut classes, mut read, mut asked) = (Vec::new(), 0, 0);
        loop {
            let event = one_by_one.next_event();
            if let Ok(Some(parts)) = event {
                classes.push((parts.class, parts.cycles));
                read += 1;
                if !is_wanted(read - 1) {
                    continue;
                }
            }
            let mut offered = Vec::new();
            let next = filtered.next_where(|class, cycles| {
                offered.push((class, cycles));
                asked += 1;
                is_wanted(asked - 1)
            });
            prop_assert_eq!(&next, &event);
            prop_assert_eq!(offered, std::mem::take(&mut classes));
            let Ok(Some(parts)) = event else { break };
            prop_assert_eq!(reported(&filtered, parts), reported(&one_by_one, parts));
        }
    }

    #[test]
    fn events_of_two_packets_by_turns_are_those_of_each(stream in stream(), packets in [packet(), packet()], last in 0usize..9) {
        let (trace, plan) = (TraceClass { slots: SLOTS, ..TraceClass::default() }, StreamPlan::new(&stream));
        let readers = || [0, 1].map(|index| {
            let mut reader = Reader::new(&trace, &stream, &plan);
            open(&mut reader, &packets[index], last);
            reader
        });
        let rest = |reader: &mut Reader<'_, '_>, events: &mut Vec<_>| {
            while let Ok(Some(parts)) = reader.next_event() {
                events.push((parts.class, parts.cycles));
            }
        };
        let (mut one_by_one, mut by_turns) = (Vec::new(), Vec::new());
        readers().iter_mut().for_each(|reader| rest(reader, &mut one_by_one));
        let [mut one, mut other] = readers();
        while let Some(stopped) =
            Reader::skim_both(&mut one, &mut other, |class, cycles| by_turns.push((class, cycles)))
        {
            let reader = match stopped {
                Stopped::One => &mut one,
                Stopped::Other => &mut other,
            };
            let Ok(Some(parts)) = reader.next_event() else { break };
            by_turns.push((parts.class, parts.cycles));
        }
        [one, other].iter_mut().for_each(|reader| rest(reader, &mut by_turns));
        one_by_one.sort_unstable();
        by_turns.sort_unstable();
        prop_assert_eq!(one_by_one, by_turns);
    }
}
