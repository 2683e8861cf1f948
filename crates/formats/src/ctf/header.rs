//! The header of events: which class, and when. The hottest code there is.
//!
//! Tracers use a few shapes, and these are compiled: fields at fixed places, or an id at a fixed place that
//! selects between two or more of such (LTTng's "compact" and "large" headers). Anything else is walked through.

use super::{
    bits,
    read::{Ignore, Walk},
    schema::{ByteOrder, Choice, FieldClass, Integer, Length, Role, Slot, Structure},
    steps::{Content, Known, Slots, Steps, Trouble, within},
};

/// What a header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// The class; 0 where the header does not say.
    pub(super) id: u64,
    /// The value that the clock moves to, and its size in bits.
    pub(super) time: Option<(u64, u32)>,
    /// Where the header ends, in bits.
    pub(super) end: u64,
}

/// How to read headers.
#[derive(Clone, Debug)]
pub(super) struct Header {
    alignment: u32,
    shape: Shape,
    /// What is known of where it ends.
    pub(super) end: Known,
}

#[derive(Clone, Debug)]
enum Shape {
    /// Fields at fixed places.
    Fixed(Fields),
    /// Fields at fixed places, one of which selects further ones.
    Selected { first: Fields, selector: Field, arms: Vec<Arm> },
    /// Anything.
    Walked(Structure),
}

/// Fields at fixed places from the header's beginning.
#[derive(Clone, Debug, Default)]
struct Fields {
    bits: u64,
    id: Option<Field>,
    time: Option<Field>,
    /// Fields that others depend on.
    kept: Vec<(Slot, Field)>,
}

/// An integer at a fixed place.
#[derive(Clone, Copy, Debug)]
struct Field {
    offset: u64,
    size: u32,
    signed: bool,
    order: ByteOrder,
    reversed: bool,
}

#[derive(Clone, Debug)]
struct Arm {
    ranges: Vec<(i128, i128)>,
    fields: Fields,
}

impl Field {
    #[inline]
    fn read(&self, bytes: &[u8], at: u64) -> u64 {
        let value = bits::unsigned(bytes, at + self.offset, self.size, self.order);
        let value = bits::ordered(value, self.size, self.reversed);
        if self.signed { bits::signed(value, self.size) as u64 } else { value }
    }
}

impl Header {
    /// Compiles the header of a class of streams.
    pub(super) fn new(structure: Option<&Structure>) -> Header {
        let Some(structure) = structure else {
            return Header { alignment: 1, shape: Shape::Fixed(Fields::default()), end: Known::NOTHING };
        };
        let alignment = structure.alignment();
        let start = Known::aligned(alignment);
        let (shape, end) = match shape(structure, alignment) {
            Some(Shape::Fixed(fields)) => {
                let end = start.after(fields.bits);
                (Shape::Fixed(fields), end)
            }
            Some(shape) => (shape, Steps::of(Some(structure), start).1),
            None => (Shape::Walked(structure.clone()), Steps::of(Some(structure), start).1),
        };
        Header { alignment, shape, end }
    }

    /// Where the header begins that comes after `at`.
    #[inline]
    pub(super) fn start(&self, at: u64) -> u64 {
        bits::align(at, self.alignment)
    }

    /// Whether its fields lie at known places.
    pub(super) fn is_compiled(&self) -> bool {
        !matches!(self.shape, Shape::Walked(_))
    }

    /// Reads the header that begins at `at`.
    #[inline]
    pub(super) fn read(&self, content: Content<'_>, at: u64, slots: &Slots) -> Result<Head, Trouble> {
        match &self.shape {
            Shape::Fixed(fields) => {
                let mut head = Head::default();
                fields.read(content, at, slots, &mut head)?;
                Ok(head)
            }
            Shape::Selected { first, selector, arms } => {
                let mut head = Head::default();
                first.read(content, at, slots, &mut head)?;
                let value = selector.read(content.bytes, at);
                let value = if selector.signed { i128::from(value as i64) } else { i128::from(value) };
                let arm =
                    arms.iter().find(|arm| within(&arm.ranges, value)).ok_or(Trouble::NoOption(value))?;
                arm.fields.read(content, at, slots, &mut head)?;
                Ok(head)
            }
            Shape::Walked(structure) => walked(structure, content, at, slots),
        }
    }
}

#[cold]
fn walked(structure: &Structure, content: Content<'_>, at: u64, slots: &Slots) -> Result<Head, Trouble> {
    let mut ignore = Ignore;
    let mut walk = Walk::new(content, at, slots, &mut ignore);
    let end = walk.deep(structure, at)?;
    let id = walk.roles.get(Role::EventClassId).map_or(0, |(id, _)| id);
    Ok(Head { id, time: walk.roles.get(Role::Timestamp), end })
}

impl Fields {
    #[inline]
    fn read(&self, content: Content<'_>, at: u64, slots: &Slots, head: &mut Head) -> Result<(), Trouble> {
        content.has(at, self.bits)?;
        head.end = at + self.bits;
        if let Some(id) = &self.id {
            head.id = id.read(content.bytes, at);
        }
        if let Some(time) = &self.time {
            head.time = Some((time.read(content.bytes, at), time.size));
        }
        for (slot, field) in &self.kept {
            slots.set(*slot, field.read(content.bytes, at));
        }
        Ok(())
    }

    /// Adds a field behind the ones before; whether its place is fixed.
    fn add(&mut self, class: &FieldClass, alignment: u32) -> bool {
        let needed = class.alignment();
        if needed > alignment {
            return false;
        }
        self.bits = bits::align(self.bits, needed);
        match class {
            FieldClass::Integer(integer) => {
                self.add_integer(integer);
                true
            }
            FieldClass::Real(real) => {
                self.bits += u64::from(real.size);
                true
            }
            FieldClass::Structure(structure) => {
                structure.members.iter().all(|member| self.add(&member.class, alignment))
            }
            FieldClass::Text(_, Length::Static(bytes)) | FieldClass::Blob(Length::Static(bytes), _) => {
                self.bits = self.bits.saturating_add(bytes.saturating_mul(8));
                true
            }
            _ => false,
        }
    }

    fn add_integer(&mut self, integer: &Integer) {
        let field = Field::new(integer, self.bits);
        for role in &integer.roles {
            match role {
                Role::EventClassId => self.id = Some(field),
                Role::Timestamp => self.time = Some(field),
                _ => {}
            }
        }
        self.kept.extend(integer.slot.map(|slot| (slot, field)));
        self.bits += u64::from(field.size);
    }
}

impl Field {
    fn new(integer: &Integer, offset: u64) -> Field {
        let (size, order) = (integer.meaning.size, integer.byte_order);
        Field { offset, size, signed: integer.signed, order, reversed: integer.reversed }
    }
}

/// The shape of a header, if it is one of those that can be compiled.
fn shape(structure: &Structure, alignment: u32) -> Option<Shape> {
    let mut first = Fields::default();
    for (index, member) in structure.members.iter().enumerate() {
        match &member.class {
            FieldClass::Variant(choice) if index + 1 == structure.members.len() => {
                return selected(first, choice, alignment);
            }
            class => first.add(class, alignment).then_some(())?,
        }
    }
    Some(Shape::Fixed(first))
}

fn selected(first: Fields, choice: &Choice, alignment: u32) -> Option<Shape> {
    let selector = first.kept.iter().find(|(slot, _)| *slot == choice.selector.slot)?.1;
    let mut arms = Vec::new();
    for option in &choice.options {
        let mut fields = Fields { bits: first.bits, ..Fields::default() };
        fields.add(&option.class, alignment).then_some(())?;
        arms.push(Arm { ranges: option.ranges.clone(), fields });
    }
    Some(Shape::Selected { first, selector, arms })
}
