//! Parses field classes: CTF2-SPEC-2.0 section 5.3.

use std::collections::HashMap;

use hodo_model::event::{Base, Label, Meaning};
use serde_json::Value;

use super::node::{Node, Wrong};
use crate::events::{
    bits::{SIGNED, UNSIGNED},
    schema::{
        Array, ByteOrder, Choice, ChoiceOption, Encoding, FieldClass, Integer, Length, Member, Real,
        Reference, Role, Scope, Structure, VariableInteger,
    },
};

/// Limit on the number of classes created through aliases.
const CLASSES: usize = 1 << 24;
/// Maximum nesting depth of classes, with aliases resolved.
const DEEPEST: u32 = 256;

/// Names of roles.
const ROLES: &[(&str, Role)] = &[
    ("packet-magic-number", Role::PacketMagic),
    ("metadata-stream-uuid", Role::MetadataUuid),
    ("data-stream-class-id", Role::StreamClassId),
    ("data-stream-id", Role::StreamId),
    ("packet-total-length", Role::PacketTotalLength),
    ("packet-content-length", Role::PacketContentLength),
    ("default-clock-timestamp", Role::Timestamp),
    ("packet-end-default-clock-timestamp", Role::PacketEndTimestamp),
    ("discarded-event-record-counter-snapshot", Role::DiscardedEvents),
    ("packet-sequence-number", Role::PacketSequenceNumber),
    ("event-record-class-id", Role::EventClassId),
];

/// Names of the scopes in which a location can begin.
const ORIGINS: &[(&str, Scope)] = &[
    ("packet-header", Scope::PacketHeader),
    ("packet-context", Scope::PacketContext),
    ("event-record-header", Scope::EventHeader),
    ("event-record-common-context", Scope::CommonContext),
    ("event-record-specific-context", Scope::SpecificContext),
    ("event-record-payload", Scope::Payload),
];

/// Names of encodings.
const ENCODINGS: &[(&str, Encoding)] = &[
    ("utf-8", Encoding::Utf8),
    ("utf-16be", Encoding::Utf16(ByteOrder::Big)),
    ("utf-16le", Encoding::Utf16(ByteOrder::Little)),
    ("utf-32be", Encoding::Utf32(ByteOrder::Big)),
    ("utf-32le", Encoding::Utf32(ByteOrder::Little)),
];

/// Looks up a name in a list.
fn named<T: Copy>(list: &[(&str, T)], node: &Node<'_>) -> Result<T, Wrong> {
    let name = node.string()?;
    let entry = list.iter().find(|(known, _)| *known == name);
    entry.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = list.iter().map(|(known, _)| *known).collect();
        node.wrong(format!("`{name}` is none of {}", known.join(", ")))
    })
}

/// Named field classes.
pub(super) struct Aliases {
    classes: HashMap<String, FieldClass>,
    /// Remaining number of classes to create.
    budget: usize,
    depth: u32,
}

impl Default for Aliases {
    fn default() -> Aliases {
        Aliases { classes: HashMap::new(), budget: CLASSES, depth: 0 }
    }
}

/// The nesting depth and the number of classes within a class.
fn depth_and_count(class: &FieldClass) -> (u32, usize) {
    let parts: Vec<&FieldClass> = match class {
        FieldClass::Structure(structure) => structure.members.iter().map(|member| &member.class).collect(),
        FieldClass::Array(array) => vec![&array.element],
        FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
            choice.options.iter().map(|option| &option.class).collect()
        }
        _ => Vec::new(),
    };
    let inner = parts.into_iter().map(depth_and_count);
    let (depth, count) = inner.fold((0, 0), |(depth, count), (d, c)| (depth.max(d), count + c));
    (depth + 1, count + 1)
}

impl Aliases {
    /// Names a class. Returns `false` if the name is taken.
    pub(super) fn name(&mut self, name: &str, class: FieldClass) -> bool {
        self.classes.insert(name.to_owned(), class).is_none()
    }

    /// Parses a field class, or resolves the name of one.
    pub(super) fn class(&mut self, node: &Node<'_>) -> Result<FieldClass, Wrong> {
        if let Value::String(name) = node.value() {
            let known = self.classes.get(name);
            let class =
                known.ok_or_else(|| node.wrong(format!("there is no earlier field class `{name}`")))?;
            let (depth, count) = depth_and_count(class);
            if self.depth + depth > DEEPEST {
                return Err(node.wrong(format!("field classes are nested more than {DEEPEST} deep")));
            }
            let left = self.budget.checked_sub(count);
            self.budget =
                left.ok_or_else(|| node.wrong("field classes that use each other expand to too many"))?;
            return Ok(class.clone());
        }
        node.no_extensions()?;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(node.wrong(format!("field classes are nested more than {DEEPEST} deep")));
        }
        let class = self.described(node);
        self.depth -= 1;
        class
    }

    fn described(&mut self, node: &Node<'_>) -> Result<FieldClass, Wrong> {
        let kind = node.required("type")?;
        Ok(match kind.string()? {
            "fixed-length-bit-array" | "fixed-length-unsigned-integer" => {
                FieldClass::Integer(integer(node, UNSIGNED)?)
            }
            "fixed-length-signed-integer" => FieldClass::Integer(integer(node, SIGNED)?),
            "fixed-length-bit-map" => FieldClass::Integer(bit_map(node)?),
            "fixed-length-boolean" => {
                FieldClass::Integer(Integer { boolean: true, ..integer(node, UNSIGNED)? })
            }
            "fixed-length-floating-point-number" => FieldClass::Real(real(node)?),
            "variable-length-unsigned-integer" => FieldClass::VariableInteger(variable(node, UNSIGNED)?),
            "variable-length-signed-integer" => FieldClass::VariableInteger(variable(node, SIGNED)?),
            "null-terminated-string" => FieldClass::String(encoding(node)?),
            "static-length-string" => FieldClass::Text(encoding(node)?, static_length(node)?),
            "dynamic-length-string" => FieldClass::Text(encoding(node)?, dynamic_length(node)?),
            "static-length-blob" => FieldClass::Blob(static_length(node)?, roles(node)?.first().copied()),
            "dynamic-length-blob" => {
                let role = None;
                FieldClass::Blob(dynamic_length(node)?, role)
            }
            "structure" => FieldClass::Structure(self.structure(node)?),
            "static-length-array" => FieldClass::Array(Box::new(self.array(node, static_length(node)?)?)),
            "dynamic-length-array" => FieldClass::Array(Box::new(self.array(node, dynamic_length(node)?)?)),
            "optional" => FieldClass::Optional(Box::new(self.optional(node)?)),
            "variant" => FieldClass::Variant(Box::new(self.variant(node)?)),
            name => return Err(kind.wrong(format!("CTF 2 has no field class `{name}`"))),
        })
    }

    fn structure(&mut self, node: &Node<'_>) -> Result<Structure, Wrong> {
        let mut members: Vec<Member> = Vec::new();
        for member in node.get("member-classes").map_or(Ok(Vec::new()), |list| list.list())? {
            member.no_extensions()?;
            let name = member.required("name")?.string()?.to_owned();
            let class = self.class(&member.required("field-class")?)?;
            members.push(Member { raw_name: name.clone(), name, class });
        }
        Ok(Structure { members, minimum_alignment: alignment(node, "minimum-alignment")? })
    }

    fn array(&mut self, node: &Node<'_>, length: Length) -> Result<Array, Wrong> {
        let element = self.class(&node.required("element-field-class")?)?;
        Ok(Array { length, element, minimum_alignment: alignment(node, "minimum-alignment")? })
    }

    fn optional(&mut self, node: &Node<'_>) -> Result<Choice, Wrong> {
        let ranges = match node.get("selector-field-ranges") {
            Some(ranges) => range_set(&ranges)?,
            // For a Boolean selector.
            None => vec![(1, i128::from(u64::MAX))],
        };
        let class = self.class(&node.required("field-class")?)?;
        let option = ChoiceOption { name: String::new(), raw_name: String::new(), ranges, class };
        Ok(Choice { selector: location(&node.required("selector-field-location")?)?, options: vec![option] })
    }

    fn variant(&mut self, node: &Node<'_>) -> Result<Choice, Wrong> {
        let mut options = Vec::new();
        for (index, option) in node.required("options")?.list()?.iter().enumerate() {
            option.no_extensions()?;
            let name = option.text("name")?.map_or_else(|| index.to_string(), str::to_owned);
            let ranges = range_set(&option.required("selector-field-ranges")?)?;
            let class = self.class(&option.required("field-class")?)?;
            options.push(ChoiceOption { raw_name: name.clone(), name, ranges, class });
        }
        Ok(Choice { selector: location(&node.required("selector-field-location")?)?, options })
    }
}

fn alignment(node: &Node<'_>, name: &str) -> Result<u32, Wrong> {
    let Some(bits) = node.get(name) else { return Ok(1) };
    match bits.unsigned()? {
        power @ 1..=0x1000_0000 if power.count_ones() == 1 => Ok(power as u32),
        _ => Err(bits.wrong("an alignment is a power of two, in bits")),
    }
}

fn encoding(node: &Node<'_>) -> Result<Encoding, Wrong> {
    node.get("encoding").map_or(Ok(Encoding::Utf8), |name| named(ENCODINGS, &name))
}

fn static_length(node: &Node<'_>) -> Result<Length, Wrong> {
    Ok(Length::Static(node.required("length")?.unsigned()?))
}

fn dynamic_length(node: &Node<'_>) -> Result<Length, Wrong> {
    Ok(Length::Dynamic(location(&node.required("length-field-location")?)?))
}

fn roles(node: &Node<'_>) -> Result<Vec<Role>, Wrong> {
    let Some(list) = node.get("roles") else { return Ok(Vec::new()) };
    list.list()?.iter().map(|role| named(ROLES, role)).collect()
}

/// Returns the byte order, and whether the bit order is the reverse of the usual one for it.
fn byte_order(node: &Node<'_>) -> Result<(ByteOrder, bool), Wrong> {
    const ORDERS: &[(&str, ByteOrder)] =
        &[("little-endian", ByteOrder::Little), ("big-endian", ByteOrder::Big)];
    // `true`: the first bit is the least significant one.
    const BIT_ORDERS: &[(&str, bool)] = &[("first-to-last", true), ("last-to-first", false)];
    let order = named(ORDERS, &node.required("byte-order")?)?;
    let natural = order == ByteOrder::Little;
    let bits = node.get("bit-order").map_or(Ok(natural), |bits| named(BIT_ORDERS, &bits))?;
    Ok((order, bits != natural))
}

fn base(node: &Node<'_>) -> Result<Base, Wrong> {
    let Some(base) = node.get("preferred-display-base") else { return Ok(Base::Decimal) };
    match base.unsigned()? {
        2 => Ok(Base::Binary),
        8 => Ok(Base::Octal),
        10 => Ok(Base::Decimal),
        16 => Ok(Base::Hexadecimal),
        _ => Err(base.wrong("2, 8, 10 or 16 expected")),
    }
}

fn labels(node: &Node<'_>, name: &str) -> Result<Vec<Label>, Wrong> {
    let label = |(name, ranges): (&str, Node<'_>)| {
        let ranges = range_set(&ranges)?.into_iter().map(|(from, to)| from..=to);
        Ok(Label { name: name.to_owned(), ranges: ranges.collect() })
    };
    node.members(name)?.into_iter().map(label).collect()
}

fn range_set(node: &Node<'_>) -> Result<Vec<(i128, i128)>, Wrong> {
    let range = |range: &Node<'_>| match range.list()?.as_slice() {
        [from, to] => {
            let (from, to) = (from.integer()?, to.integer()?);
            if from <= to { Ok((from, to)) } else { Err(range.wrong("the range ends before it begins")) }
        }
        _ => Err(range.wrong("two integers expected")),
    };
    node.list()?.iter().map(range).collect()
}

fn location(node: &Node<'_>) -> Result<Reference, Wrong> {
    let origin = node.get("origin").map(|origin| named(ORIGINS, &origin)).transpose()?;
    let name = |name: &Node<'_>| match name.value() {
        Value::Null => Ok(None),
        _ => Ok(Some(name.string()?.to_owned())),
    };
    let path = node.required("path")?;
    let mut names: Vec<Option<String>> = path.list()?.iter().map(name).collect::<Result<_, _>>()?;
    // Trailing `null`s lead to a structure, which is neither a length nor a selector.
    let last = names.iter().rposition(Option::is_some);
    let last = last.ok_or_else(|| path.wrong("a name expected: that of a length or a selector"))?;
    names.truncate(last + 1);
    // A `null` after a name cancels that name.
    let mut normal: Vec<Option<String>> = Vec::new();
    for name in names {
        match (&name, normal.last()) {
            (None, Some(Some(_))) => drop(normal.pop()),
            _ => normal.push(name),
        }
    }
    Ok(Reference::new(origin, normal))
}

/// Parses a length of 1 to 64 bits.
fn size(node: &Node<'_>) -> Result<u32, Wrong> {
    let length = node.required("length")?;
    match length.unsigned()? {
        bits @ 1..=64 => Ok(bits as u32),
        bits => Err(length.wrong(format!("{bits} bits; 1 to 64 are supported here"))),
    }
}

fn integer(node: &Node<'_>, signed: bool) -> Result<Integer, Wrong> {
    let (byte_order, reversed) = byte_order(node)?;
    Ok(Integer {
        alignment: alignment(node, "alignment")?,
        signed,
        byte_order,
        reversed,
        boolean: false,
        meaning: Meaning { base: base(node)?, size: size(node)?, labels: labels(node, "mappings")? },
        roles: roles(node)?,
        clock: None,
        text: None,
        slot: None,
    })
}

/// Parses a bit map: an integer in hexadecimal, without the names of its flags.
fn bit_map(node: &Node<'_>) -> Result<Integer, Wrong> {
    labels(node, "flags")?;
    let mut integer = integer(node, UNSIGNED)?;
    integer.meaning.base = Base::Hexadecimal;
    Ok(integer)
}

fn real(node: &Node<'_>) -> Result<Real, Wrong> {
    let (byte_order, reversed) = byte_order(node)?;
    let size = size(node)?;
    match size {
        16 | 32 | 64 => Ok(Real { size, alignment: alignment(node, "alignment")?, byte_order, reversed }),
        _ => Err(node.wrong("a floating-point number of 16, 32 or 64 bits expected")),
    }
}

fn variable(node: &Node<'_>, signed: bool) -> Result<VariableInteger, Wrong> {
    Ok(VariableInteger {
        signed,
        meaning: Meaning { base: base(node)?, size: 64, labels: labels(node, "mappings")? },
        roles: roles(node)?,
        slot: None,
    })
}
