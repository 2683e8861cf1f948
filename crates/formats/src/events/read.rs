//! Reads the values of fields. Runs only for events whose fields are requested.

use hodo_model::event::{Compound, FieldSink, Meaning, Name};

use super::{
    bits,
    packet::SizedValue,
    schema::{
        ByteOrder, Choice, ChoiceOption, Encoding, FieldClass, Integer, Length, Member, Real, Role,
        Structure, VariableInteger,
    },
    steps::{Content, Slots, Trouble, nul, unit, variable, within},
};

/// The values of fields with roles. Free for the many structures without roles.
#[derive(Clone, Debug, Default)]
pub(super) struct Roles {
    /// In the order of the fields.
    values: Vec<(Role, SizedValue)>,
    /// The UUID.
    pub(super) uuid: Option<[u8; 16]>,
}

impl Roles {
    /// The value of the last field with this role.
    pub(super) fn get(&self, role: Role) -> Option<SizedValue> {
        let last = self.values.iter().rev().find(|(other, _)| *other == role);
        last.map(|&(_, value)| value)
    }
}

/// An integer that was read.
struct ReadInteger {
    value: u64,
    /// The position of its end, in bits.
    end: u64,
}

/// Walks through fields and passes their values to a sink.
pub(super) struct Walk<'a, 'w, S> {
    pub(super) content: Content<'a>,
    pub(super) slots: &'w Slots,
    pub(super) sink: &'w mut S,
    /// Receives the values of fields with roles.
    roles: Option<&'w mut Roles>,
    /// Limit on the number of elements: arrays of zero-size elements could be endless.
    fuel: u64,
}

impl<'a, 'w, S: FieldSink> Walk<'a, 'w, S> {
    #[inline]
    pub(super) fn new(
        content: Content<'a>,
        position: u64,
        slots: &'w Slots,
        sink: &'w mut S,
    ) -> Walk<'a, 'w, S> {
        Walk { content, slots, sink, roles: None, fuel: content.room(position) }
    }

    /// Also collects fields with roles.
    pub(super) fn noting(self, roles: &'w mut Roles) -> Walk<'a, 'w, S> {
        Walk { roles: Some(roles), ..self }
    }

    /// Reads the members of a root structure at `position`; returns where it ends. Fields with roles do not reach the sink.
    pub(super) fn root(&mut self, structure: &Structure, position: u64) -> Result<u64, Trouble> {
        let mut position = bits::align(position, structure.minimum_alignment);
        for member in &structure.members {
            position = self.member(member, position)?;
        }
        Ok(position)
    }

    /// Reads a member of a root structure.
    pub(super) fn member(&mut self, member: &Member, position: u64) -> Result<u64, Trouble> {
        match &member.class {
            FieldClass::Integer(integer) if !integer.roles.is_empty() => {
                Ok(self.number(integer, position)?.end)
            }
            FieldClass::VariableInteger(integer) if !integer.roles.is_empty() => {
                Ok(self.variable(integer, position)?.end)
            }
            FieldClass::Blob(length, Some(Role::MetadataUuid)) => self.uuid(length, position),
            class => self.class(class, Name::Member(&member.name), position),
        }
    }

    /// Reads all fields of a header, with roles at any depth.
    pub(super) fn deep(&mut self, structure: &Structure, position: u64) -> Result<u64, Trouble> {
        self.members(&structure.members, bits::align(position, structure.minimum_alignment))
    }

    #[inline]
    fn members(&mut self, members: &[Member], mut position: u64) -> Result<u64, Trouble> {
        for Member { name, class, .. } in members {
            position = match class {
                FieldClass::Integer(integer) => self.integer(integer, Name::Member(name), position)?,
                class => self.class(class, Name::Member(name), position)?,
            };
        }
        Ok(position)
    }

    pub(super) fn class(
        &mut self,
        class: &FieldClass,
        name: Name<'_>,
        position: u64,
    ) -> Result<u64, Trouble> {
        match class {
            FieldClass::Integer(integer) => self.integer(integer, name, position),
            FieldClass::VariableInteger(integer) => {
                let ReadInteger { value, end } = self.variable(integer, position)?;
                self.emit(name, value, integer.signed, &integer.meaning);
                Ok(end)
            }
            FieldClass::Real(real) => self.real(real, name, position),
            FieldClass::String(encoding) => self.string(*encoding, name, position),
            FieldClass::Text(encoding, length) => self.sized_text(*encoding, length, name, position),
            FieldClass::Blob(length, _) => {
                let (bytes, end) = self.bytes(length, position)?;
                self.sink.blob(name, bytes);
                Ok(end)
            }
            FieldClass::Structure(structure) => {
                self.sink.begin(name, Compound::Structure);
                let end =
                    self.members(&structure.members, bits::align(position, structure.minimum_alignment))?;
                self.sink.end(Compound::Structure);
                Ok(end)
            }
            FieldClass::Array(array) => {
                self.sink.begin(name, Compound::Array);
                let mut position = bits::align(position, array.minimum_alignment);
                let count = self.count(&array.length);
                self.fuel = self.fuel.checked_sub(count).ok_or(Trouble::TooLong(count))?;
                for index in 0..count {
                    position = self.class(&array.element, Name::Element(index), position)?;
                }
                self.sink.end(Compound::Array);
                Ok(position)
            }
            FieldClass::ForeignField(foreign) => self.foreign(foreign, name, bits::align(position, 8)),
            FieldClass::Optional(choice) => match self.selected(choice) {
                Ok(option) => self.class(&option.class, name, position),
                Err(_) => {
                    self.sink.absent(name);
                    Ok(position)
                }
            },
            FieldClass::Variant(choice) => {
                let option = self.selected(choice)?;
                self.sink.begin(name, Compound::Variant);
                let end = self.class(&option.class, Name::Member(&option.name), position)?;
                self.sink.end(Compound::Variant);
                Ok(end)
            }
        }
    }

    fn selected<'c>(&self, choice: &'c Choice) -> Result<&'c ChoiceOption, Trouble> {
        let value = self.slots.selector(choice.selector.slot, choice.selector.signed);
        let option = choice.options.iter().find(|option| within(&option.ranges, value));
        option.ok_or(Trouble::NoOption(value))
    }

    #[inline]
    fn count(&self, length: &Length) -> u64 {
        match length {
            Length::Static(count) => *count,
            Length::Dynamic(reference) => self.slots.get(reference.slot),
        }
    }

    /// Returns the bytes of a field of this length in bytes, and the position of its end.
    #[inline]
    fn bytes(&self, length: &Length, position: u64) -> Result<(&'a [u8], u64), Trouble> {
        let position = bits::align(position, 8);
        let count = self.count(length);
        let bytes =
            usize::try_from(count).ok().and_then(|count| self.content.bytes_from(position).get(..count));
        Ok((bytes.ok_or(Trouble::TooLong(count))?, position + 8 * count))
    }

    /// Reads text up to its NUL.
    #[inline]
    pub(super) fn string(
        &mut self,
        encoding: Encoding,
        name: Name<'_>,
        position: u64,
    ) -> Result<u64, Trouble> {
        let position = bits::align(position, 8);
        let length = self.content.terminated(position, encoding)?;
        self.text(name, &self.content.bytes_from(position)[..length], encoding);
        Ok(position + 8 * (length + unit(encoding)) as u64)
    }

    /// Reads text of fixed length in bytes, which a NUL may end early.
    #[inline]
    pub(super) fn sized_text(
        &mut self,
        encoding: Encoding,
        length: &Length,
        name: Name<'_>,
        position: u64,
    ) -> Result<u64, Trouble> {
        let (bytes, end) = self.bytes(length, position)?;
        let length = nul(bytes, encoding).unwrap_or(bytes.len());
        self.text(name, &bytes[..length], encoding);
        Ok(end)
    }

    fn uuid(&mut self, length: &Length, position: u64) -> Result<u64, Trouble> {
        let (bytes, end) = self.bytes(length, position)?;
        self.roles.iter_mut().for_each(|roles| roles.uuid = bytes.try_into().ok());
        Ok(end)
    }

    /// Reads an integer, and stores its value if another field depends on it.
    #[inline(always)]
    fn number(&mut self, integer: &Integer, position: u64) -> Result<ReadInteger, Trouble> {
        let position = bits::align(position, integer.alignment);
        let size = integer.meaning.size;
        self.content.has(position, u64::from(size))?;
        let value = integer.layout().read(self.content.bytes, position);
        if let Some(slot) = integer.slot {
            self.slots.set(slot, value);
        }
        if !integer.roles.is_empty() {
            self.note(&integer.roles, SizedValue { value, size });
        }
        Ok(ReadInteger { value, end: position + u64::from(size) })
    }

    #[cold]
    fn note(&mut self, roles: &[Role], value: SizedValue) {
        if let Some(noted) = &mut self.roles {
            noted.values.extend(roles.iter().map(|&role| (role, value)));
        }
    }

    #[inline(always)]
    pub(super) fn integer(
        &mut self,
        integer: &Integer,
        name: Name<'_>,
        position: u64,
    ) -> Result<u64, Trouble> {
        let ReadInteger { value, end } = self.number(integer, position)?;
        if integer.boolean {
            self.sink.boolean(name, value != 0);
        } else {
            self.emit(name, value, integer.signed, &integer.meaning);
        }
        Ok(end)
    }

    #[inline]
    pub(super) fn emit(&mut self, name: Name<'_>, value: u64, signed: bool, meaning: &Meaning) {
        if signed {
            self.sink.signed(name, value as i64, meaning);
        } else {
            self.sink.unsigned(name, value, meaning);
        }
    }

    fn variable(&mut self, integer: &VariableInteger, position: u64) -> Result<ReadInteger, Trouble> {
        let position = bits::align(position, 8);
        let (value, length) = variable(self.content, position, integer.signed)?;
        integer.slot.iter().for_each(|&slot| self.slots.set(slot, value));
        self.note(&integer.roles, SizedValue { value, size: (7 * length as u32).min(64) });
        Ok(ReadInteger { value, end: position + 8 * length as u64 })
    }

    fn real(&mut self, real: &Real, name: Name<'_>, position: u64) -> Result<u64, Trouble> {
        let position = bits::align(position, real.alignment);
        self.content.has(position, u64::from(real.size))?;
        let bits = real.layout().read(self.content.bytes, position);
        self.sink.real(
            name,
            match real.size {
                16 => half(bits as u16),
                32 => f64::from(f32::from_bits(bits as u32)),
                _ => f64::from_bits(bits),
            },
        );
        Ok(position + u64::from(real.size))
    }

    #[inline]
    pub(super) fn text(&mut self, name: Name<'_>, bytes: &[u8], encoding: Encoding) {
        match encoding {
            Encoding::Utf8 => self.sink.text(name, bytes),
            Encoding::Utf16(order) => self.sink.text(name, from_utf16(bytes, order).as_bytes()),
            Encoding::Utf32(order) => self.sink.text(name, from_utf32(bytes, order).as_bytes()),
        }
    }
}

fn from_utf16(bytes: &[u8], order: ByteOrder) -> String {
    let units = bytes.chunks_exact(2).map(|unit| bits::unsigned(unit, 0, 16, order) as u16);
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

fn from_utf32(bytes: &[u8], order: ByteOrder) -> String {
    let codes = bytes.chunks_exact(4).map(|code| bits::unsigned(code, 0, 32, order) as u32);
    codes.map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Converts an IEEE 754 binary16 number.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}
