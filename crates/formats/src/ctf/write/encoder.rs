//! Encodes fields from a sink according to their classes.

use hodo_model::event::{Compound, FieldSink, Meaning, Name};

use super::bits::BitWriter;
use crate::events::{
    bits::{self, SIGNED, UNSIGNED},
    schema::{
        Array, ByteOrder, Choice, Encoding, FieldClass, Integer, Length, Member, Real, Role, Structure,
    },
    steps::within,
};

/// Whether text may be shorter than its field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    Allowed,
    Refused,
}

/// Values of fields with roles. Other fields are encoded from the sink.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoleValues {
    values: [Option<u64>; Role::MetadataUuid as usize + 1],
    uuid: [u8; 16],
}

impl RoleValues {
    pub(super) fn new(uuid: [u8; 16]) -> RoleValues {
        RoleValues { uuid, ..RoleValues::default() }
    }

    pub(super) fn set(&mut self, role: Role, value: Option<u64>) {
        self.values[role as usize] = value;
    }

    /// The value of a field with these roles, if one is set.
    pub(super) fn get(&self, roles: &[Role]) -> Option<u64> {
        roles.iter().find_map(|&role| self.values[role as usize])
    }
}

/// Position of an integer with a role.
#[derive(Clone, Copy, Debug)]
pub(super) struct RolePosition {
    pub(super) role: Role,
    /// In bits.
    position: u64,
    /// In bits.
    pub(super) size: u32,
    order: ByteOrder,
    reversed: bool,
}

impl RolePosition {
    pub(super) fn put(&self, value: u64, packet: &mut BitWriter) {
        let value = bits::ordered(value & mask(self.size), self.size, self.reversed);
        packet.put_at(self.position, value, self.size, self.order);
    }
}

fn mask(size: u32) -> u64 {
    u64::MAX >> (64 - size)
}

/// An open compound; the stack of frames is outermost first.
enum Frame<'t> {
    /// Members of a scope. Those with roles do not reach the sink.
    Root(std::slice::Iter<'t, Member>),
    Members(std::slice::Iter<'t, Member>),
    /// The class of an array's elements, and how many are left.
    Elements(&'t FieldClass, u64),
    /// The selected option of a variant, until it is encoded.
    Option(Option<&'t FieldClass>),
}

/// A field that cannot be encoded.
#[derive(Debug)]
pub(super) struct FieldTrouble {
    pub(super) field: String,
    pub(super) reason: &'static str,
}

/// Encodes a scope.
pub(super) struct Encoder<'t, 'e> {
    out: &'e mut BitWriter,
    /// Values of lengths and selectors, by slot.
    slots: &'e mut [u64],
    roles: &'e RoleValues,
    frames: Vec<Frame<'t>>,
    /// Positions of fields with roles.
    positions: Vec<RolePosition>,
    /// The first field that cannot be encoded.
    trouble: Option<FieldTrouble>,
}

const UNEXPECTED: &str = "the trace's value does not fit its class";
const OTHER_LENGTH: &str = "its length differs from the value of its length field";

impl<'t, 'e> Encoder<'t, 'e> {
    /// Creates an encoder at the beginning of a scope.
    pub(super) fn new(
        structure: &'t Structure,
        out: &'e mut BitWriter,
        slots: &'e mut [u64],
        roles: &'e RoleValues,
    ) -> Encoder<'t, 'e> {
        out.align(structure.minimum_alignment);
        let frames = vec![Frame::Root(structure.members.iter())];
        let mut encoder = Encoder { out, slots, roles, frames, positions: Vec::new(), trouble: None };
        encoder.role_members();
        encoder
    }

    /// Ends the scope. The error is the first field that could not be encoded.
    pub(super) fn finish(mut self) -> Result<Vec<RolePosition>, FieldTrouble> {
        let is_whole = matches!(self.frames.as_slice(), [Frame::Root(left)] if left.len() == 0);
        if !is_whole {
            self.fail(Name::Member(""), "there are fewer fields than its class has");
        }
        self.trouble.map_or(Ok(self.positions), Err)
    }

    /// Keeps the reason, unless an earlier field failed.
    #[cold]
    fn fail(&mut self, name: Name<'_>, reason: &'static str) {
        let field = match name {
            Name::Member(name) => name.to_owned(),
            Name::Element(index) => format!("[{index}]"),
        };
        self.trouble.get_or_insert(FieldTrouble { field, reason });
    }

    /// Writes members with roles, up to the next one that comes through the sink.
    fn role_members(&mut self) {
        while let [Frame::Root(members)] = self.frames.as_mut_slice() {
            let Some(member) = members.as_slice().first() else { return };
            match &member.class {
                FieldClass::Integer(integer) if !integer.roles.is_empty() => {
                    members.next();
                    self.integer(integer, self.roles.get(&integer.roles).unwrap_or(0));
                }
                FieldClass::VariableInteger(integer) if !integer.roles.is_empty() => {
                    members.next();
                    let value = self.roles.get(&integer.roles).unwrap_or(0);
                    self.out.put_variable(value, integer.signed);
                    integer.slot.iter().for_each(|&slot| self.slots[slot as usize] = value);
                }
                FieldClass::Blob(_, Some(Role::MetadataUuid)) => {
                    members.next();
                    self.out.put_bytes(&self.roles.uuid);
                }
                _ => return,
            }
        }
    }

    /// The class of the next field, if one is expected.
    fn expected(&mut self) -> Option<&'t FieldClass> {
        match self.frames.last_mut()? {
            Frame::Root(members) | Frame::Members(members) => members.next().map(|member| &member.class),
            Frame::Elements(element, left) => {
                *left = left.checked_sub(1)?;
                Some(element)
            }
            Frame::Option(class) => class.take(),
        }
    }

    /// The class of a field that is present. The sink receives an optional field like any other.
    fn present(&mut self) -> Option<&'t FieldClass> {
        match self.expected()? {
            FieldClass::Optional(choice) => choice.options.first().map(|option| &option.class),
            class => Some(class),
        }
    }

    /// The class of a value. A CTF 1.8 variant that replaces an optional field does not reach the sink either.
    fn value(&mut self) -> Option<&'t FieldClass> {
        match self.present()? {
            FieldClass::Variant(choice) => choice.options.first().map(|option| &option.class),
            class => Some(class),
        }
    }

    fn integer(&mut self, integer: &Integer, value: u64) {
        let size = integer.meaning.size;
        self.out.align(integer.alignment);
        let (order, reversed) = (integer.byte_order, integer.reversed);
        let value = value & mask(size);
        for &role in &integer.roles {
            let position = self.out.position();
            self.positions.push(RolePosition { role, position, size, order, reversed });
        }
        self.out.put(bits::ordered(value, size, reversed), size, order);
        if let Some(slot) = integer.slot {
            self.slots[slot as usize] = if integer.signed { bits::signed(value, size) as u64 } else { value };
        }
    }

    fn number(&mut self, name: Name<'_>, value: u64, signed: bool) {
        match self.value() {
            Some(FieldClass::Integer(integer)) => {
                let value = self.roles.get(&integer.roles).unwrap_or(value);
                let kept = value & mask(integer.meaning.size);
                let same = if signed { bits::signed(kept, integer.meaning.size) as u64 } else { kept };
                if same != value && integer.roles.is_empty() {
                    self.fail(name, "the value does not fit");
                }
                self.integer(integer, value);
            }
            Some(FieldClass::VariableInteger(integer)) => {
                let value = self.roles.get(&integer.roles).unwrap_or(value);
                self.out.put_variable(value, integer.signed);
                integer.slot.iter().for_each(|&slot| self.slots[slot as usize] = value);
            }
            _ => self.fail(name, UNEXPECTED),
        }
        self.role_members();
    }

    fn floating(&mut self, real: &Real, value: f64) {
        let bits = match real.size {
            16 => u64::from(half(value)),
            32 => u64::from((value as f32).to_bits()),
            _ => value.to_bits(),
        };
        self.out.align(real.alignment);
        self.out.put(bits::ordered(bits, real.size, real.reversed), real.size, real.byte_order);
    }

    fn count(&self, length: &Length) -> u64 {
        match length {
            Length::Static(count) => *count,
            Length::Dynamic(reference) => self.slots[reference.slot as usize],
        }
    }

    fn array(&mut self, array: &'t Array) {
        self.out.align(array.alignment());
        self.frames.push(Frame::Elements(&array.element, self.count(&array.length)));
    }

    fn variant(&mut self, name: Name<'_>, choice: &'t Choice) {
        let value = self.slots[choice.selector.slot as usize];
        let value = if choice.selector.signed { i128::from(value as i64) } else { i128::from(value) };
        let option = choice.options.iter().find(|option| within(&option.ranges, value));
        if option.is_none() {
            self.fail(name, "its selector selects no option");
        }
        self.frames.push(Frame::Option(option.map(|option| &option.class)));
    }

    fn bytes(&mut self, name: Name<'_>, length: &Length, bytes: &[u8], allowed: Padding) {
        let count = self.count(length);
        match usize::try_from(count).ok().and_then(|count| count.checked_sub(bytes.len())) {
            Some(padding) if padding == 0 || allowed == Padding::Allowed => {
                self.out.put_bytes(bytes);
                // The padding is bounded: the source had the same length.
                self.out.put_bytes(&vec![0; padding]);
            }
            _ => self.fail(name, OTHER_LENGTH),
        }
    }
}

impl<'t> FieldSink for Encoder<'t, '_> {
    fn unsigned(&mut self, name: Name<'_>, value: u64, _: &Meaning) {
        self.number(name, value, UNSIGNED);
    }

    fn signed(&mut self, name: Name<'_>, value: i64, _: &Meaning) {
        self.number(name, value as u64, SIGNED);
    }

    fn real(&mut self, name: Name<'_>, value: f64) {
        match self.value() {
            Some(FieldClass::Real(real)) => self.floating(real, value),
            _ => self.fail(name, UNEXPECTED),
        }
        self.role_members();
    }

    fn boolean(&mut self, name: Name<'_>, value: bool) {
        self.number(name, u64::from(value), UNSIGNED);
    }

    fn text(&mut self, name: Name<'_>, text: &[u8]) {
        match self.value() {
            Some(FieldClass::String(encoding)) => {
                let mut bytes = encoded(text, *encoding);
                bytes.extend(encoded(b"\0", *encoding));
                self.out.put_bytes(&bytes);
            }
            Some(FieldClass::Text(encoding, length)) => {
                self.bytes(name, length, &encoded(text, *encoding), Padding::Allowed)
            }
            _ => self.fail(name, UNEXPECTED),
        }
        self.role_members();
    }

    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        match self.value() {
            Some(FieldClass::Blob(length, _)) => self.bytes(name, length, bytes, Padding::Refused),
            // CTF 1.8 has an array in place of a blob.
            Some(FieldClass::Array(array)) => self.bytes(name, &array.length, bytes, Padding::Refused),
            _ => self.fail(name, UNEXPECTED),
        }
        self.role_members();
    }

    fn absent(&mut self, name: Name<'_>) {
        if !matches!(self.expected(), Some(FieldClass::Optional(_) | FieldClass::Variant(_))) {
            self.fail(name, UNEXPECTED);
        }
        self.role_members();
    }

    fn begin(&mut self, name: Name<'_>, compound: Compound) {
        let class = if compound == Compound::Variant { self.present() } else { self.value() };
        match (class, compound) {
            (Some(FieldClass::Structure(structure)), Compound::Structure) => {
                self.out.align(structure.minimum_alignment);
                self.frames.push(Frame::Members(structure.members.iter()));
            }
            (Some(FieldClass::Array(array)), Compound::Array) => self.array(array),
            (Some(FieldClass::Variant(choice)), Compound::Variant) => self.variant(name, choice),
            _ => {
                self.fail(name, UNEXPECTED);
                self.frames.push(Frame::Option(None));
            }
        }
    }

    fn end(&mut self, _: Compound) {
        let left = match self.frames.pop() {
            Some(Frame::Members(members)) => members.len() as u64,
            Some(Frame::Elements(_, left)) => left,
            _ => 0,
        };
        if left > 0 {
            self.fail(Name::Member(""), OTHER_LENGTH);
        }
        self.role_members();
    }
}

/// Converts text to an encoding.
fn encoded(text: &[u8], encoding: Encoding) -> Vec<u8> {
    let text_16 = || String::from_utf8_lossy(text).encode_utf16().collect::<Vec<u16>>().into_iter();
    let text_32 = || String::from_utf8_lossy(text).chars().map(u32::from).collect::<Vec<u32>>().into_iter();
    match encoding {
        Encoding::Utf8 => text.to_vec(),
        Encoding::Utf16(ByteOrder::Big) => text_16().flat_map(u16::to_be_bytes).collect(),
        Encoding::Utf16(ByteOrder::Little) => text_16().flat_map(u16::to_le_bytes).collect(),
        Encoding::Utf32(ByteOrder::Big) => text_32().flat_map(u32::to_be_bytes).collect(),
        Encoding::Utf32(ByteOrder::Little) => text_32().flat_map(u32::to_le_bytes).collect(),
    }
}

/// Converts to an IEEE 754 binary16 number: a sign, 5 bits of exponent (bias 15) and 10 of mantissa. Exact, as the value
/// was read from one.
fn half(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 1 << 15 } else { 0 };
    let magnitude = value.abs();
    let bits = match magnitude {
        _ if magnitude.is_nan() => 0x7e00,
        _ if magnitude.is_infinite() => 0x7c00,
        _ if magnitude < 2f64.powi(-14) => (magnitude * 2f64.powi(24)) as u16,
        _ => {
            let bits = magnitude.to_bits();
            let exponent = (bits >> 52) as i32 - 1023 + 15;
            (exponent as u16) << 10 | (bits >> 42 & 0x3ff) as u16
        }
    };
    sign | bits
}
