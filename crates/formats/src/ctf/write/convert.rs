//! Converts names and field classes between CTF versions.

use std::collections::{BTreeMap, HashSet};

use hodo_model::event::{Base, Label, Meaning};

use super::{Unwritable, Version, locate};
use crate::events::{
    bits::UNSIGNED,
    schema::{
        Array, Choice, ChoiceOption, Encoding, FieldClass, Integer, Length, Role, Slot, StreamClass,
        Structure, TraceClass,
    },
};

/// Reserved words of TSDL, which cannot be field names.
const RESERVED: &str = "\
    align callsite char clock const double enum env event float floating_point int integer long \
    short signed stream string struct trace typealias typedef unsigned variant void _Bool _Complex \
    _Imaginary";

fn is_reserved(name: &str) -> bool {
    RESERVED.split(' ').any(|reserved| reserved == name)
}

/// CTF 1.8 names for roles.
const ROLE_NAMES: &[(Role, &str)] = &[
    (Role::PacketMagic, "magic"),
    (Role::StreamClassId, "stream_id"),
    (Role::StreamId, "stream_instance_id"),
    (Role::PacketTotalLength, "packet_size"),
    (Role::PacketContentLength, "content_size"),
    (Role::DiscardedEvents, "events_discarded"),
    (Role::PacketSequenceNumber, "packet_seq_num"),
    (Role::PacketEndTimestamp, "timestamp_end"),
    (Role::EventClassId, "id"),
];

/// Converts a trace to what a version can express. Returns the lossy conversions with their counts.
pub(super) fn convert(trace: &mut TraceClass, version: Version) -> Result<BTreeMap<String, u64>, Unwritable> {
    let number = if version == Version::Ctf2 { 2 } else { 1 };
    if trace.version == number {
        return Ok(BTreeMap::new());
    }
    trace.version = number;
    let mut converter = Converter { version, clock: None, conversions: BTreeMap::new(), labels: Vec::new() };
    converter.root(trace.packet_header.as_mut(), "packet header", None)?;
    for stream in trace.streams.values_mut() {
        let clock = stream.clock.and_then(|index| trace.clocks.get(index));
        converter.clock = clock.map(|clock| identifier(&clock.name));
        converter.stream(stream)?;
    }
    if version == Version::Ctf18 {
        trace.clocks.iter_mut().for_each(|clock| clock.name = identifier(&clock.name));
        trace.environment.iter_mut().for_each(|(name, _)| *name = word(name));
        let labels = std::mem::take(&mut converter.labels);
        labels.iter().try_for_each(|label| label_selector(trace, label))?;
    }
    locate::locate(trace, version)?;
    Ok(converter.conversions)
}

/// Makes an identifier: replaces what is no ASCII letter or digit, and puts an underscore before a digit.
fn identifier(name: &str) -> String {
    let mut text = identifier_tail(name);
    if text.starts_with(|c: char| c.is_ascii_digit()) || text.is_empty() {
        text.insert(0, '_');
    }
    text
}

/// Makes an identifier that is no TSDL keyword.
fn word(name: &str) -> String {
    let name = identifier(name);
    if is_reserved(&name) { format!("_{name}") } else { name }
}

/// A label that a selector needs so that it can select an option.
struct NeededLabel {
    /// The selector's slot.
    slot: Slot,
    label: Label,
    /// The variant, for errors.
    field: String,
}

struct Converter {
    version: Version,
    /// The stream's clock.
    clock: Option<String>,
    conversions: BTreeMap<String, u64>,
    labels: Vec<NeededLabel>,
}

impl Converter {
    fn stream(&mut self, stream: &mut StreamClass) -> Result<(), Unwritable> {
        let of_stream = |scope: &str| format!("{scope} of stream {}", stream.id);
        self.root(stream.packet_context.as_mut(), &of_stream("packet context"), Some("timestamp_begin"))?;
        self.root(stream.event_header.as_mut(), &of_stream("event header"), Some("timestamp"))?;
        self.root(stream.common_context.as_mut(), &of_stream("event context"), None)?;
        for event in &mut stream.events {
            self.root(event.specific_context.as_mut(), &format!("context of event `{}`", event.name), None)?;
            self.root(event.payload.as_mut(), &format!("event `{}`", event.name), None)?;
        }
        Ok(())
    }

    /// Converts a scope. `time` is the CTF 1.8 name for a timestamp in it.
    fn root(
        &mut self,
        root: Option<&mut Structure>,
        field: &str,
        time: Option<&'static str>,
    ) -> Result<(), Unwritable> {
        root.map_or(Ok(()), |root| self.structure(root, field, time))
    }

    fn structure(
        &mut self,
        structure: &mut Structure,
        field: &str,
        time: Option<&'static str>,
    ) -> Result<(), Unwritable> {
        let mut taken = HashSet::new();
        for member in &mut structure.members {
            let field = format!("{field}, `{}`", member.name);
            self.class(&mut member.class, &field, time)?;
            member.raw_name = match self.version {
                Version::Ctf2 => member.name.clone(),
                Version::Ctf18 => {
                    let role = role_name(&member.class, time);
                    role.map_or_else(|| format!("_{}", identifier_tail(&member.name)), str::to_owned)
                }
            };
            let shown = member.raw_name.strip_prefix('_').unwrap_or(&member.raw_name).to_owned();
            if self.version == Version::Ctf18 && shown != member.name {
                if role_name(&member.class, time).is_none() {
                    self.note("name that CTF 1.8 can't have becomes another one");
                }
                member.name = shown;
            }
            if !taken.insert(member.raw_name.clone()) {
                return Err(Unwritable::new(field, "two fields would have this name"));
            }
        }
        Ok(())
    }

    fn note(&mut self, conversion: &str) {
        *self.conversions.entry(conversion.to_owned()).or_default() += 1;
    }

    fn class(
        &mut self,
        class: &mut FieldClass,
        field: &str,
        time: Option<&'static str>,
    ) -> Result<(), Unwritable> {
        if self.version == Version::Ctf18 {
            self.lower(class, field)?;
        }
        match class {
            FieldClass::Integer(integer) => {
                let is_time = |role: &Role| matches!(role, Role::Timestamp | Role::PacketEndTimestamp);
                integer.text = None;
                integer.clock = self.clock.clone().filter(|_| integer.roles.iter().any(is_time));
                Ok(())
            }
            FieldClass::Structure(structure) => self.structure(structure, field, time),
            FieldClass::Array(array) => self.class(&mut array.element, field, None),
            FieldClass::Variant(choice) | FieldClass::Optional(choice) => self.choice(choice, field, time),
            _ => Ok(()),
        }
    }

    fn choice(
        &mut self,
        choice: &mut Choice,
        field: &str,
        time: Option<&'static str>,
    ) -> Result<(), Unwritable> {
        for option in &mut choice.options {
            self.class(&mut option.class, field, time)?;
            if self.version == Version::Ctf2 {
                option.raw_name = option.name.clone();
                continue;
            }
            let is_plain = option.name == identifier(&option.name)
                && !option.name.starts_with('_')
                && !is_reserved(&option.name);
            option.raw_name =
                if is_plain { option.name.clone() } else { format!("_{}", identifier_tail(&option.name)) };
            option.name = option.raw_name.strip_prefix('_').unwrap_or(&option.raw_name).to_owned();
            let ranges = option.ranges.iter().map(|&(from, to)| from..=to).collect();
            let label = Label { name: option.raw_name.clone(), ranges };
            self.labels.push(NeededLabel { slot: choice.selector.slot, label, field: field.to_owned() });
        }
        Ok(())
    }

    /// Replaces a class that CTF 1.8 lacks with the closest class that it has.
    fn lower(&mut self, class: &mut FieldClass, field: &str) -> Result<(), Unwritable> {
        match class {
            FieldClass::Integer(integer) => {
                integer.reversed = false;
                if std::mem::take(&mut integer.boolean) {
                    self.note("Boolean becomes an integer");
                }
            }
            FieldClass::VariableInteger(variable) => {
                self.note("variable-length integer becomes one of 64 bits");
                let meaning = Meaning { size: 64, ..variable.meaning.clone() };
                let (roles, slot) = (std::mem::take(&mut variable.roles), variable.slot);
                *class = FieldClass::Integer(Integer { roles, slot, ..integer(meaning, variable.signed) });
            }
            FieldClass::Real(real) => {
                real.reversed = false;
                if real.size == 16 {
                    self.note("floating-point number of 16 bits becomes one of 32");
                    real.size = 32;
                }
            }
            FieldClass::String(encoding) | FieldClass::Text(encoding, _) if *encoding != Encoding::Utf8 => {
                self.note("text in UTF-16 or UTF-32 becomes UTF-8");
                *class = FieldClass::String(Encoding::Utf8);
            }
            FieldClass::Blob(length, None) => {
                self.note("blob becomes an array of bytes");
                let meaning = Meaning { base: Base::Hexadecimal, size: 8, labels: Vec::new() };
                let element = FieldClass::Integer(integer(meaning, UNSIGNED));
                let length = std::mem::replace(length, Length::Static(0));
                *class = FieldClass::Array(Box::new(Array { length, element, minimum_alignment: 1 }));
            }
            FieldClass::Array(array) => array.minimum_alignment = 1,
            FieldClass::Optional(choice) => {
                if choice.options.iter().any(|option| is_choice(&option.class)) {
                    return Err(Unwritable::new(field, "CTF 1.8 has no optional variant"));
                }
                self.note("optional field becomes a variant");
                *class = FieldClass::Variant(Box::new(variant(choice)));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Replaces what is no ASCII letter or digit with underscores: the tail of an identifier.
fn identifier_tail(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn is_choice(class: &FieldClass) -> bool {
    matches!(class, FieldClass::Variant(_) | FieldClass::Optional(_))
}

fn integer(meaning: Meaning, signed: bool) -> Integer {
    Integer { signed, ..Integer::plain(meaning) }
}

/// The CTF 1.8 equivalent of an optional field: a variant of the field and an empty structure.
fn variant(choice: &Choice) -> Choice {
    let mut options = choice.options.clone();
    let mut missing = Vec::new();
    let mut from = i128::from(i64::MIN);
    let mut ranges: Vec<_> = options.iter().flat_map(|option| option.ranges.clone()).collect();
    ranges.sort_unstable();
    for (first, last) in ranges {
        if from < first {
            missing.push((from, first - 1));
        }
        from = from.max(last.saturating_add(1));
    }
    if from <= i128::from(u64::MAX) {
        missing.push((from, i128::from(u64::MAX)));
    }
    // Clamps to the values of the selector.
    let (least, most) = if choice.selector.signed {
        (i128::from(i64::MIN), i128::from(i64::MAX))
    } else {
        (0, i128::from(u64::MAX))
    };
    let missing = missing.into_iter().map(|(from, to)| (from.max(least), to.min(most)));
    let ranges = missing.filter(|(from, to)| from <= to).collect();
    let nothing = FieldClass::Structure(Structure { members: Vec::new(), minimum_alignment: 1 });
    options.iter_mut().for_each(|option| option.name = "some".to_owned());
    options.push(ChoiceOption {
        name: "none".to_owned(),
        raw_name: "none".to_owned(),
        ranges,
        class: nothing,
    });
    Choice { selector: choice.selector.clone(), options }
}

fn role_name(class: &FieldClass, time: Option<&'static str>) -> Option<&'static str> {
    let roles = match class {
        FieldClass::Integer(integer) => &integer.roles,
        FieldClass::Blob(_, Some(Role::MetadataUuid)) => return Some("uuid"),
        _ => return None,
    };
    let name = |role: &Role| match role {
        Role::Timestamp => time,
        role => ROLE_NAMES.iter().find(|(known, _)| known == role).map(|(_, name)| *name),
    };
    roles.iter().find_map(name)
}

/// Adds a label to a selector for the values that select an option.
fn label_selector(trace: &mut TraceClass, needed: &NeededLabel) -> Result<(), Unwritable> {
    let mut integers = Vec::new();
    let streams = trace.streams.values_mut().flat_map(|stream| {
        let scopes = [&mut stream.packet_context, &mut stream.event_header, &mut stream.common_context];
        let events =
            stream.events.iter_mut().flat_map(|event| [&mut event.specific_context, &mut event.payload]);
        scopes.into_iter().chain(events)
    });
    for root in streams.chain([&mut trace.packet_header]).flatten() {
        for member in &mut root.members {
            add_with_slot(&mut member.class, needed.slot, &mut integers);
        }
    }
    for integer in integers {
        let labels = &mut integer.meaning.labels;
        match labels.iter().find(|label| label.name == needed.label.name) {
            Some(label) if label.ranges == needed.label.ranges => {}
            Some(_) => {
                return Err(Unwritable::new(
                    &needed.field,
                    format!(
                        "its option `{}` and the label of this name stand for different values",
                        needed.label.name
                    ),
                ));
            }
            None => labels.push(needed.label.clone()),
        }
    }
    Ok(())
}

/// Adds the integers of a class that have this slot.
fn add_with_slot<'c>(class: &'c mut FieldClass, slot: Slot, integers: &mut Vec<&'c mut Integer>) {
    match class {
        FieldClass::Integer(integer) if integer.slot == Some(slot) => integers.push(integer),
        FieldClass::Structure(structure) => {
            structure.members.iter_mut().for_each(|member| add_with_slot(&mut member.class, slot, integers));
        }
        FieldClass::Array(array) => add_with_slot(&mut array.element, slot, integers),
        FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
            choice.options.iter_mut().for_each(|option| add_with_slot(&mut option.class, slot, integers));
        }
        _ => {}
    }
}
