//! Decodes event headers: class id and timestamp. The hottest code of the crate.
//!
//! The few shapes that tracers use are compiled: fields at fixed offsets, or an id at a fixed offset that selects
//! further fields (LTTng's "compact" and "large" headers). Other headers are walked field by field. If the header
//! fits its first 64 bits, as nearly all do, decoding is one load and a few shifts.

use hodo_model::event::Ignore;

use super::{
    bits::{self, Layout},
    event::advance_within,
    packet::SizedValue,
    read::{Roles, Walk},
    schema::{ByteOrder, Choice, FieldClass, Integer, Length, Role, Slot, Structure},
    steps::{Content, Known, Slots, Steps, Trouble, within},
};

/// A decoded header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// The class id; 0 if the header has none.
    pub(super) id: u64,
    /// The value that the clock advances to.
    pub(super) time: u64,
    /// Its size in bits; 0 if the header has no timestamp.
    pub(super) time_size: u32,
    /// The end of the header, in bits.
    pub(super) end: u64,
}

/// A bit field of a word.
#[derive(Clone, Copy, Debug, Default)]
struct BitField {
    shift: u32,
    mask: u64,
}

/// A header that fits into 64 bits. It applies if the id is in a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    order: ByteOrder,
    pub(super) bits: u64,
    id: BitField,
    /// The first id to which it applies.
    first_id: u64,
    /// The last id to which it applies.
    last_id: u64,
    /// The slot for the id.
    slot: Option<Slot>,
    time: BitField,
    time_size: u32,
}

/// A compiled header.
#[derive(Clone, Debug)]
pub(super) struct Header {
    alignment: u32,
    /// The usual form of the header, if it fits a word.
    word: Option<Word>,
    shape: Shape,
    /// The known properties of its end position.
    pub(super) end: Known,
}

#[derive(Clone, Debug)]
enum Shape {
    /// Fields at fixed offsets.
    Fixed(Fields),
    /// Fields at fixed offsets, one of which selects further ones.
    Selected { first: Fields, selector: Field, arms: Vec<Arm> },
    /// Any other structure.
    Walked(Structure),
}

/// Fields at fixed offsets from the beginning of the header.
#[derive(Clone, Debug, Default)]
struct Fields {
    bits: u64,
    id: Option<Field>,
    time: Option<Field>,
    /// Fields whose values other fields depend on, and their slots.
    kept: Vec<(Slot, Field)>,
}

/// An integer at a fixed offset.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Field {
    offset: u64,
    layout: Layout,
}

#[derive(Clone, Debug)]
struct Arm {
    ranges: Vec<(i128, i128)>,
    fields: Fields,
}

impl Field {
    #[inline]
    fn read(&self, bytes: &[u8], position: u64) -> u64 {
        self.layout.read(bytes, position + self.offset)
    }
}

impl Header {
    /// Compiles the header of a stream class.
    pub(super) fn new(structure: Option<&Structure>) -> Header {
        let Some(structure) = structure else {
            let shape = Shape::Fixed(Fields::default());
            return Header { alignment: 1, word: None, shape, end: Known::NOTHING };
        };
        let alignment = structure.alignment();
        let end = Steps::of(Some(structure), Known::aligned(alignment)).1;
        let shape = shape(structure, alignment).unwrap_or_else(|| Shape::Walked(structure.clone()));
        Header { alignment, word: Word::of(&shape).filter(|_| alignment >= 8), shape, end }
    }

    /// The beginning of the next header at or after `position`.
    #[inline]
    pub(super) fn start(&self, position: u64) -> u64 {
        bits::align(position, self.alignment)
    }

    /// The usual form of the header, if it fits a word.
    #[inline]
    pub(super) fn word(&self) -> Option<Word> {
        self.word
    }

    /// Bytes from the header of an event with this id to the next header, if the header is a word that `bits` bits
    /// follow.
    pub(super) fn stride(&self, id: u64, bits: u64) -> Option<u32> {
        let word = self.word.filter(|word| word.is_of(id))?;
        u32::try_from(self.start(word.bits + bits) / 8).ok()
    }

    /// Whether its fields are at known offsets.
    pub(super) fn is_compiled(&self) -> bool {
        !matches!(self.shape, Shape::Walked(_))
    }

    /// Decodes the header at bit `position`.
    #[inline]
    pub(super) fn read(&self, content: Content<'_>, position: u64, slots: &Slots) -> Result<Head, Trouble> {
        if let Some(word) = &self.word
            && let Some(head) = word.read(content, position, slots)
        {
            return Ok(head);
        }
        self.shape.read(content, position, slots)
    }
}

impl Shape {
    fn read(&self, content: Content<'_>, position: u64, slots: &Slots) -> Result<Head, Trouble> {
        match self {
            Shape::Fixed(fields) => fields.read(content, position, slots, Head::default()),
            Shape::Selected { first, selector, arms } => {
                let head = first.read(content, position, slots, Head::default())?;
                let value = selector.read(content.bytes, position);
                let value = if selector.layout.signed { i128::from(value as i64) } else { i128::from(value) };
                let arm =
                    arms.iter().find(|arm| within(&arm.ranges, value)).ok_or(Trouble::NoOption(value))?;
                arm.fields.read(content, position, slots, head)
            }
            Shape::Walked(structure) => walked(structure, content, position, slots),
        }
    }
}

#[cold]
fn walked(
    structure: &Structure,
    content: Content<'_>,
    position: u64,
    slots: &Slots,
) -> Result<Head, Trouble> {
    let mut roles = Roles::default();
    let end =
        Walk::new(content, position, slots, &mut Ignore).noting(&mut roles).deep(structure, position)?;
    let id = roles.get(Role::EventClassId).map_or(0, |id| id.value);
    let SizedValue { value: time, size: time_size } = roles.get(Role::Timestamp).unwrap_or_default();
    Ok(Head { id, time, time_size, end })
}

impl Fields {
    /// Reads the fields; keeps the values in `head` that they do not set.
    fn read(
        &self,
        content: Content<'_>,
        position: u64,
        slots: &Slots,
        mut head: Head,
    ) -> Result<Head, Trouble> {
        content.has(position, self.bits)?;
        head.end = position + self.bits;
        if let Some(id) = &self.id {
            head.id = id.read(content.bytes, position);
        }
        if let Some(time) = &self.time {
            (head.time, head.time_size) = (time.read(content.bytes, position), time.layout.size);
        }
        for (slot, field) in &self.kept {
            slots.set(*slot, field.read(content.bytes, position));
        }
        Ok(head)
    }

    /// Appends a field. Returns whether its offset is fixed.
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
        let field = Field { offset: self.bits, layout: integer.layout() };
        for role in &integer.roles {
            match role {
                Role::EventClassId => self.id = Some(field),
                Role::Timestamp => self.time = Some(field),
                _ => {}
            }
        }
        self.kept.extend(integer.slot.map(|slot| (slot, field)));
        self.bits += u64::from(field.layout.size);
    }
}

impl BitField {
    #[inline]
    fn get(self, word: u64) -> u64 {
        (word >> self.shift) & self.mask
    }
}

impl Word {
    /// The word form of a shape, if it has one.
    fn of(shape: &Shape) -> Option<Word> {
        let (mut first_id, mut last_id) = (0, u64::MAX);
        let (first, rest) = match shape {
            Shape::Fixed(fields) => (fields, fields),
            Shape::Selected { first, arms, .. } => {
                let arm = arms.first()?;
                let &[(from, to)] = arm.ranges.as_slice() else { return None };
                (first_id, last_id) = (u64::try_from(from).ok()?, u64::try_from(to).ok()?);
                (first, &arm.fields)
            }
            Shape::Walked(_) => return None,
        };
        let has_all_ids = first_id == 0 && last_id == u64::MAX;
        let id = rest.id.or(first.id);
        // The only value it can store in a slot is the id, on which LTTng's variants depend.
        let kept = || first.kept.iter().chain(&rest.kept);
        let time = rest.time.or(first.time);
        let order = id.or(time)?.layout.order;
        let is_simple = |field: &Field| {
            let Layout { size, signed, order: own, reversed } = field.layout;
            own == order && !signed && !reversed && field.offset + u64::from(size) <= 64
        };
        let simple = id.iter().chain(&time).all(is_simple)
            && (has_all_ids || first.id.is_some() && rest.id.is_none())
            && kept().all(|(_, field)| Some(field) == id.as_ref());
        if !simple {
            return None;
        }
        let bits = |field: Option<Field>| {
            let Some(Field { offset, layout: Layout { size, .. } }) = field else {
                return BitField::default();
            };
            let offset = offset as u32;
            let shift = if order == ByteOrder::Little { offset } else { 64 - offset - size };
            BitField { shift, mask: u64::MAX >> (64 - size) }
        };
        let slot = kept().next().map(|(slot, _)| *slot);
        let time_size = time.map_or(0, |time| time.layout.size);
        let (id, time) = (bits(id), bits(time));
        Some(Word { order, bits: rest.bits, id, first_id, last_id, slot, time, time_size })
    }

    #[inline]
    fn read(&self, content: Content<'_>, position: u64, slots: &Slots) -> Option<Head> {
        let head = self.number(*content.bytes_from(position).first_chunk()?);
        let id = self.id(head);
        if !self.is_of(id) {
            return None;
        }
        self.keep(id, slots);
        Some(Head { id, time: self.time.get(head), time_size: self.time_size, end: position + self.bits })
    }

    /// Stores an id for the fields that depend on it.
    #[inline(always)]
    pub(super) fn keep(&self, id: u64, slots: &Slots) {
        if let Some(slot) = self.slot {
            slots.set(slot, id);
        }
    }

    /// Converts the first bytes of a header to a number.
    #[inline(always)]
    pub(super) fn number(&self, bytes: [u8; 8]) -> u64 {
        if self.order == ByteOrder::Little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) }
    }

    /// The id in a header.
    #[inline(always)]
    pub(super) fn id(&self, head: u64) -> u64 {
        self.id.get(head)
    }

    /// Whether this form applies to events with this id.
    #[inline(always)]
    pub(super) fn is_of(&self, id: u64) -> bool {
        self.first_id <= id && id <= self.last_id
    }

    /// Advances a clock to a header's timestamp.
    #[inline(always)]
    pub(super) fn advance(&self, clock: u64, head: u64) -> u64 {
        advance_within(clock, head >> self.time.shift, self.time.mask)
    }
}

/// The shape of a header, if it can be compiled.
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

#[cfg(test)]
impl Header {
    /// Decodes by word (if it applies), by shape and by walk.
    pub(super) fn all_ways(
        &self,
        structure: &Structure,
        content: Content<'_>,
        slots: &Slots,
    ) -> [Option<Head>; 3] {
        let word = self.word.and_then(|word| word.read(content, 0, slots));
        [word, self.shape.read(content, 0, slots).ok(), walked(structure, content, 0, slots).ok()]
    }
}
