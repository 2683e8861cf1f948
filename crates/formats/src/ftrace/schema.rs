//! Converts format files to event classes, so that ftrace events use the same reader as CTF.

use hodo_model::event::{Base, Meaning};

use super::{
    format::{EventFormat, Field, Shape},
    names::Names,
};
use crate::events::{
    foreign::{Elements, ForeignField},
    schema::{
        Array, ByteOrder, Encoding, EventClass, FieldClass, Integer, Length, Member, Reference, Role, Slot,
        Structure,
    },
};

/// The slot for the number of entries in a kernel_stack record.
pub(crate) const STACK_SLOT: Slot = 0;
/// The slot for the CPU of a stream.
pub(crate) const CPU_SLOT: Slot = 1;
/// The number of slots.
pub(crate) const SLOTS: Slot = 2;

/// Names for addresses in ftrace's own events.
#[derive(Clone, Debug)]
pub(crate) struct AddressNames {
    pub(crate) symbols: Names,
    pub(crate) texts: Names,
}

/// The traced machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Size of a `long` in bytes.
    pub(crate) long: u32,
    /// The order of bytes.
    pub(crate) order: ByteOrder,
}

/// The fields to include in a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldSet {
    /// The common fields: `common_…`.
    Common,
    /// The event's own fields.
    Own,
    /// All fields.
    Whole,
}

/// Converts the fields of a record, from its beginning, to a structure.
pub(crate) fn structure(format: &EventFormat<'_>, fields: FieldSet, machine: Machine) -> Structure {
    let mut structure = Structure { members: Vec::new(), minimum_alignment: 8 };
    let mut end = 0;
    for field in &format.fields {
        let is_common = field.name.starts_with("common_");
        let is_included = match fields {
            FieldSet::Common => is_common,
            FieldSet::Own => !is_common,
            FieldSet::Whole => true,
        };
        // Skips overlapping fields, which no kernel has.
        if !is_included || field.offset < end {
            continue;
        }
        if field.offset > end {
            let gap = ForeignField::Padding(u64::from(field.offset - end));
            structure.members.push(member("", FieldClass::ForeignField(Box::new(gap))));
        }
        structure.members.push(member(field.name, class(format, field, machine)));
        end = field.end();
    }
    structure
}

/// Converts a format to an event class whose payload is the event's own fields.
pub(crate) fn event_class(
    system: &[u8],
    format: &EventFormat<'_>,
    address_names: &AddressNames,
    machine: Machine,
) -> EventClass {
    let names = match system {
        b"ftrace" => names(format, address_names, machine),
        _ => pointed_texts(format, &address_names.texts, machine),
    };
    let minimum_alignment = 8;
    let names = (!names.is_empty()).then_some(Structure { members: names, minimum_alignment });
    EventClass {
        id: format.id,
        name: format.name.to_owned(),
        log_level: None,
        specific_context: names,
        payload: Some(structure(format, FieldSet::Own, machine)),
    }
}

/// Fields with the names of addresses in ftrace's own events (`ip_name` for `ip`), and the text of `bprint`.
fn names(format: &EventFormat<'_>, address_names: &AddressNames, machine: Machine) -> Vec<Member> {
    let named = format.fields.iter().filter_map(|field| {
        let names = match field.name {
            "ip" | "parent_ip" | "func" => &address_names.symbols,
            "fmt" | "str" => &address_names.texts,
            _ => return None,
        };
        named(&format!("{}_name", field.name), field, names, machine)
    });
    named.chain(printed(format, address_names, machine)).collect()
}

/// Fields with the texts that other fields point to (`s_name` for `char *s`): the kernel lists such texts with the formats
/// of `trace_printk`. A file without that list has none.
pub(crate) fn pointed_texts(format: &EventFormat<'_>, texts: &Names, machine: Machine) -> Vec<Member> {
    let pointers = format.fields.iter().filter(|field| field.is_text_pointer() && !texts.is_empty());
    pointers.filter_map(|field| named(&format!("{}_name", field.name), field, texts, machine)).collect()
}

/// A field with the formatted text of a `bprint` record.
fn printed(format: &EventFormat<'_>, address_names: &AddressNames, machine: Machine) -> Option<Member> {
    let Machine { long, order } = machine;
    let field = |name: &str| format.fields.iter().find(|field| field.name == name);
    let is_bprint = format.name == "bprint" && [4, 8].contains(&long);
    let (text, arguments) = field("fmt").zip(field("buf")).filter(|_| is_bprint)?;
    let printed = ForeignField::Printed {
        format: text.offset.into(),
        arguments: arguments.offset.into(),
        long,
        order,
        texts: address_names.texts.clone(),
        symbols: address_names.symbols.clone(),
    };
    Some(member("text", FieldClass::ForeignField(Box::new(printed))))
}

/// A field with the name of the number in another field; `None` if that is no number.
pub(crate) fn named(name: &str, field: &Field<'_>, names: &Names, machine: Machine) -> Option<Member> {
    let (size, order) = (integer_size(field)?, machine.order);
    let named = ForeignField::Named { offset: u64::from(field.offset), size, order, names: names.clone() };
    Some(member(name, FieldClass::ForeignField(Box::new(named))))
}

pub(crate) fn member(name: &str, class: FieldClass) -> Member {
    Member { name: name.to_owned(), raw_name: name.to_owned(), class }
}

fn class(format: &EventFormat<'_>, field: &Field<'_>, machine: Machine) -> FieldClass {
    let Machine { long, order } = machine;
    let integer = |size| integer(field, size, order);
    let foreign = |foreign| FieldClass::ForeignField(Box::new(foreign));
    let elements = || match field.element_size(long) {
        _ if field.is_text() => Elements::Text,
        Some(size) if size > 1 => Elements::Integers(integer(size)),
        _ => Elements::Blob,
    };
    match field.shape {
        // From this field back to the beginning of the record, or forward to its own end.
        Shape::Located => {
            foreign(ForeignField::Located { origin: -i64::from(field.offset), order, elements: elements() })
        }
        Shape::RelativelyLocated => foreign(ForeignField::Located { origin: 4, order, elements: elements() }),
        Shape::Array if field.size == 0 => foreign(ForeignField::Rest(elements())),
        // The preceding field `size` contains the number of entries; the format only has the usual number.
        Shape::Array if format.name == "kernel_stack" && field.name == "caller" => {
            let length = Reference { slot: STACK_SLOT, ..Reference::new(None, Vec::new()) };
            array(Length::Dynamic(length), integer(long))
        }
        Shape::Array => match elements() {
            Elements::Text => FieldClass::Text(Encoding::Utf8, Length::Static(field.size.into())),
            Elements::Integers(element) if field.size.is_multiple_of(element.meaning.size / 8) => {
                array(Length::Static((field.size / (element.meaning.size / 8)).into()), element)
            }
            _ => FieldClass::Blob(Length::Static(field.size.into()), None),
        },
        Shape::One => match integer_size(field) {
            Some(size) => FieldClass::Integer(Integer {
                roles: if field.name == "common_type" { vec![Role::EventClassId] } else { Vec::new() },
                slot: (format.name == "kernel_stack" && field.name == "size").then_some(STACK_SLOT),
                ..integer(size)
            }),
            None => FieldClass::Blob(Length::Static(field.size.into()), None),
        },
    }
}

fn array(length: Length, element: Integer) -> FieldClass {
    FieldClass::Array(Box::new(Array { length, element: FieldClass::Integer(element), minimum_alignment: 8 }))
}

/// The size of the field in bytes, if it is a valid integer size.
fn integer_size(field: &Field<'_>) -> Option<u32> {
    [1, 2, 4, 8].contains(&field.size).then_some(field.size)
}

/// An integer of `size` bytes.
fn integer(field: &Field<'_>, size: u32, byte_order: ByteOrder) -> Integer {
    let is_address = field.is_pointer() || ["ip", "parent_ip", "func", "caller"].contains(&field.name);
    let base = if is_address { Base::Hexadecimal } else { Base::Decimal };
    let meaning = Meaning { base, size: size * 8, labels: Vec::new() };
    Integer { signed: field.signed && !is_address, byte_order, ..Integer::plain(meaning) }
}
