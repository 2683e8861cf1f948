//! Event classes of the types of events that a trace has, with the fields that the kernel's format files have.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use hodo_model::event::{Base, Meaning};

use super::table::{self, Type, TypeField};
use crate::{
    events::{
        foreign::ForeignField,
        message::{ComputedField, FieldKey, Kind, MessageField, Shown, generic_value},
        schema::{EventClass, FieldClass, Member, StreamClass, Structure},
    },
    ftrace::{Names, schema::member},
};

/// The slots of numbers that all events have.
pub(super) mod slot {
    use crate::events::schema::Slot;

    pub(in crate::perfetto) const CPU: Slot = 0;
    pub(in crate::perfetto) const PID: Slot = 1;
    pub(in crate::perfetto) const FLAGS: Slot = 2;
    /// The first of those of [`Field`](super::Field).
    pub(super) const FIELDS: Slot = 3;
}

/// The number of slots.
pub(super) const SLOTS: u32 = slot::FIELDS + 8;

/// The fields of switches and wake-ups in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Pid,
    Priority,
    TargetCpu,
    PreviousName,
    PreviousPid,
    PreviousPriority,
    PreviousState,
}

impl Field {
    /// The slot with its value.
    pub(super) fn slot(self) -> u32 {
        slot::FIELDS + self as u32
    }
}

/// The field of `FtraceEvent` with events that Perfetto has no messages for, and their fields by name.
const GENERIC: u32 = 327;
/// The number of the field with the name of such an event.
const GENERIC_NAME: u32 = 1;
/// The number of the fields of such an event.
const GENERIC_FIELD: u32 = 2;
/// Ids of the classes of rows in tables, and of generic events; numbers of fields are smaller.
const OF_TABLE: u64 = 1 << 29;
const OF_GENERIC: u64 = 1 << 30;
/// Limit on the types of events; more are of one type, which no field has.
const MOST_TYPES: usize = 1 << 14;
const OTHERS: u32 = 0;
/// Limit on the names of generic events and their fields.
const MOST_GENERIC: usize = 1 << 16;
/// Numbers of the fields of a generic event's field with its value: `str_value`, `int_value` and `uint_value`.
mod value_field {
    pub(super) const TEXT: u32 = 3;
    pub(super) const SIGNED: u32 = 4;
    pub(super) const UNSIGNED: u32 = 5;
}
/// The types of events that tables contain.
const SWITCH: u64 = 4;
const WAKING: u64 = 20;

/// The types of events in a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// The number of events by the field of `FtraceEvent`.
    pub(super) kinds: BTreeMap<u32, u64>,
    /// Generic events and their fields.
    generic: BTreeMap<Vec<u8>, Vec<(String, Kind)>>,
    generic_names: usize,
    /// Types that bundles describe.
    described: BTreeMap<u32, Type>,
    /// The number of switches in tables.
    pub(super) switches: u64,
    /// The number of wake-ups in tables.
    pub(super) wakings: u64,
}

impl Survey {
    /// Counts an event, whose own fields are `own`.
    pub(super) fn count(&mut self, kind: u32, own: &[u8]) {
        let is_counted = self.kinds.len() < MOST_TYPES || self.kinds.contains_key(&kind);
        *self.kinds.entry(if is_counted { kind } else { OTHERS }).or_default() += 1;
        if kind == GENERIC {
            self.add_generic(own);
        }
    }

    /// Adds the name and the fields of a generic event.
    fn add_generic(&mut self, own: &[u8]) {
        let Some(name) = generic_name(own) else { return };
        if !self.generic.contains_key(name) {
            if self.generic_names >= MOST_GENERIC {
                return;
            }
            self.generic_names += 1;
            self.generic.insert(name.to_owned(), Vec::new());
        }
        let Some(known) = self.generic.get_mut(name) else { return };
        let mut fields = super::wire::Fields::new(own);
        while let Ok(Some(field)) = fields.next() {
            let entry = field.bytes().filter(|_| field.number == GENERIC_FIELD).and_then(generic_value);
            let Some((name, value)) = entry else { continue };
            let kind = match value.number {
                value_field::TEXT => Kind::Text,
                value_field::SIGNED => Kind::Signed,
                value_field::UNSIGNED => Kind::Unsigned,
                _ => continue,
            };
            if known.iter().all(|(known, _)| known.as_bytes() != name) && self.generic_names < MOST_GENERIC {
                self.generic_names += 1;
                known.push((String::from_utf8_lossy(name).into_owned(), kind));
            }
        }
    }

    /// Adds the description of a type: `GenericEventDescriptor`.
    pub(super) fn describe(&mut self, descriptor: &[u8]) {
        let (mut number, mut message) = (None, None);
        each(descriptor, |field| match field.number {
            1 => number = field.integer().and_then(|number| u32::try_from(number).ok()),
            2 => message = field.bytes(),
            _ => {}
        });
        let Some((number, message)) = number.zip(message) else { return };
        if self.described.len() < MOST_GENERIC {
            self.described.entry(number).or_insert_with(|| described_type(message));
        }
    }

    /// The types that neither hodo nor the trace describes, with the number of their events.
    pub(super) fn unknown(&self) -> Vec<(u32, u64)> {
        let is_known = |number| table::known(number).is_some() || self.described.contains_key(&number);
        self.kinds
            .iter()
            .filter(|(number, _)| !is_known(**number))
            .map(|(&number, &count)| (number, count))
            .collect()
    }
}

/// Calls `visit` for each field of a message, up to one that can't be read.
pub(super) fn each<'a>(message: &'a [u8], mut visit: impl FnMut(super::wire::Field<'a>)) {
    let mut fields = super::wire::Fields::new(message);
    while let Ok(Some(field)) = fields.next() {
        visit(field);
    }
}

/// The type in a `DescriptorProto`.
fn described_type(message: &[u8]) -> Type {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let mut described = Type { name: String::new(), fields: Vec::new() };
    each(message, |part| match (part.number, part.bytes()) {
        (1, name) => described.name = text(name),
        (2, Some(field)) => {
            let (mut name, mut number, mut kind) = (String::new(), 0, 0);
            each(field, |part| match part.number {
                1 => name = text(part.bytes()),
                3 => number = part.integer().unwrap_or(0) as u32,
                5 => kind = part.integer().unwrap_or(0),
                _ => {}
            });
            // `FieldDescriptorProto.Type`.
            let kind = match kind {
                3 | 5 => Kind::Signed,
                17 | 18 => Kind::Zigzag,
                8 => Kind::Boolean,
                9 => Kind::Text,
                12 => Kind::Bytes,
                _ => Kind::Unsigned,
            };
            described.fields.push(TypeField { name, number, kind });
        }
        _ => {}
    });
    described
}

fn generic_name(own: &[u8]) -> Option<&[u8]> {
    let mut fields = super::wire::Fields::new(own);
    while let Ok(Some(field)) = fields.next() {
        if field.number == GENERIC_NAME {
            return field.bytes();
        }
    }
    None
}

/// The indices of event classes.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    kinds: HashMap<u32, u32>,
    generic: HashMap<Vec<u8>, u32>,
    /// Those of switches and wake-ups in tables.
    pub(super) switch: u32,
    pub(super) waking: u32,
}

impl Classes {
    /// The class of an event of a type, with its own fields.
    #[inline]
    pub(super) fn index(&self, kind: u32, own: &[u8]) -> Option<u32> {
        let generic = (kind == GENERIC).then(|| self.generic.get(generic_name(own)?)).flatten();
        generic.or_else(|| self.kinds.get(&kind)).or_else(|| self.kinds.get(&OTHERS)).copied()
    }
}

/// The names that a trace has for numbers.
#[derive(Clone, Debug)]
pub(super) struct NumberNames {
    /// Threads by their ids.
    pub(super) threads: Names,
    /// Processes by the ids of their threads.
    pub(super) processes: Arc<Vec<(i64, i64)>>,
    /// Names in tables.
    pub(super) rows: Names,
    /// Functions of the kernel by the numbers that stand for them.
    pub(super) symbols: Names,
}

/// The class of all streams, and the indices of its event classes.
pub(super) fn classes(survey: &Survey, names: &NumberNames) -> (StreamClass, Classes) {
    let (mut events, mut classes) = (Vec::new(), Classes::default());
    let index = |events: &Vec<EventClass>| events.len() as u32;
    for &number in survey.kinds.keys() {
        let class = table::known(number).or_else(|| survey.described.get(&number).cloned());
        classes.kinds.insert(number, index(&events));
        events.push(match class {
            Some(class) => event(number.into(), &class.name, members(&class, names)),
            None => event(number.into(), &format!("unknown_{number}"), vec![whole("fields")]),
        });
    }
    classes.switch = index(&events);
    classes.waking = classes.switch + 1;
    if survey.switches > 0 || survey.wakings > 0 {
        events.push(event(OF_TABLE | SWITCH, "sched_switch", switch(names)));
        events.push(event(OF_TABLE | WAKING, "sched_waking", waking(names)));
    }
    for (id, (name, fields)) in (OF_GENERIC..).zip(&survey.generic) {
        classes.generic.insert(name.clone(), index(&events));
        let field = |(name, kind): &(String, Kind)| message(name, FieldKey::Name(name.clone()), *kind);
        let members = fields.iter().map(field).collect();
        events.push(event(id, &String::from_utf8_lossy(name), members));
    }
    let structure = |members| Some(Structure { members, minimum_alignment: 8 });
    let cpu = ForeignField::Known { slot: slot::CPU, meaning: Meaning { size: 32, ..Meaning::default() } };
    let stream = StreamClass {
        id: 0,
        clock: Some(0),
        packet_context: structure(vec![member("cpu_id", FieldClass::ForeignField(Box::new(cpu)))]),
        event_header: None,
        common_context: structure(common(names)),
        events,
    };
    (stream, classes)
}

fn event(id: u64, name: &str, members: Vec<Member>) -> EventClass {
    EventClass {
        id,
        name: name.to_owned(),
        log_level: None,
        specific_context: None,
        payload: Some(Structure { members, minimum_alignment: 8 }),
    }
}

/// The fields that all events have: those of ftrace, and the process, which ftrace does not know.
fn common(names: &NumberNames) -> Vec<Member> {
    let mut members = vec![
        computed("comm", slot::PID, Shown::Name(names.threads.clone())),
        computed("common_flags", slot::FLAGS, Shown::Itself),
        computed("common_pid", slot::PID, Shown::Itself),
    ];
    if !names.processes.is_empty() {
        members.push(computed("pid", slot::PID, Shown::Other(names.processes.clone())));
    }
    members
}

/// The fields of a type, and the names of functions in them.
fn members(class: &Type, names: &NumberNames) -> Vec<Member> {
    let field = |field: &TypeField| message(&field.name, FieldKey::Number(field.number), field.kind);
    let named = class.fields.iter().filter(|field| is_address(&field.name) && !names.symbols.is_empty());
    let named = named.map(|field| {
        let names = Some(names.symbols.clone());
        let key = FieldKey::Number(field.number);
        let class = MessageField { key, kind: field.kind, meaning: meaning(&field.name), names };
        let class = FieldClass::ForeignField(Box::new(ForeignField::Message(class)));
        member(&format!("{}_name", field.name), class)
    });
    named.chain(class.fields.iter().map(field)).collect()
}

fn switch(names: &NumberNames) -> Vec<Member> {
    let name = || Shown::Name(names.rows.clone());
    vec![
        computed("prev_comm", Field::PreviousName.slot(), name()),
        computed("prev_pid", Field::PreviousPid.slot(), Shown::Itself),
        computed("prev_prio", Field::PreviousPriority.slot(), Shown::Itself),
        computed("prev_state", Field::PreviousState.slot(), Shown::Itself),
        computed("next_comm", Field::Name.slot(), name()),
        computed("next_pid", Field::Pid.slot(), Shown::Itself),
        computed("next_prio", Field::Priority.slot(), Shown::Itself),
    ]
}

fn waking(names: &NumberNames) -> Vec<Member> {
    vec![
        computed("comm", Field::Name.slot(), Shown::Name(names.rows.clone())),
        computed("pid", Field::Pid.slot(), Shown::Itself),
        computed("prio", Field::Priority.slot(), Shown::Itself),
        computed("target_cpu", Field::TargetCpu.slot(), Shown::Itself),
    ]
}

fn computed(name: &str, slot: u32, shown: Shown) -> Member {
    let meaning = Meaning { size: 64, ..Meaning::default() };
    let field = ForeignField::Computed(ComputedField { slot, meaning, shown });
    member(name, FieldClass::ForeignField(Box::new(field)))
}

fn message(name: &str, key: FieldKey, kind: Kind) -> Member {
    let field = MessageField { key, kind, meaning: meaning(name), names: None };
    member(name, FieldClass::ForeignField(Box::new(ForeignField::Message(field))))
}

fn whole(name: &str) -> Member {
    message(name, FieldKey::Whole, Kind::Bytes)
}

fn meaning(name: &str) -> Meaning {
    let base = if is_address(name) { Base::Hexadecimal } else { Base::Decimal };
    Meaning { base, size: 64, labels: Vec::new() }
}

/// Whether a field of this name is the address of code.
fn is_address(name: &str) -> bool {
    ["ip", "parent_ip", "func", "function", "caller", "callsite", "call_site"].contains(&name)
}
