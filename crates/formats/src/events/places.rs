//! Where the members of a structure lie, as far as that is known before a byte is read. Compiled once, it makes
//! of most integers a load and two shifts.

use hodo_model::event::{FieldSink, Meaning, Name};

use super::{
    bits,
    read::Walk,
    schema::{ByteOrder, Encoding, FieldClass, Length, Member, Structure},
    steps::{Content, Known, Slots, Trouble},
};

/// The members of a structure, and where each lies.
// Lists beside each other, as what is needed of most members is little, and nothing else should be loaded.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Of the structure.
    alignment: u32,
    places: Box<[Place]>,
    members: Box<[Member]>,
    /// Those of numbers.
    meanings: Box<[Meaning]>,
    /// What comes behind the last member that is open, in bits.
    rest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// In bits from the end of the last member that is open, or from the structure's beginning.
    bits: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A number that nothing depends on.
    Number(Number),
    /// Something else of a known size.
    Fixed,
    /// Something whose end is known once it is read.
    Open,
}

/// What two shifts leave of the 64 bits from a byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    order: ByteOrder,
    left: u8,
    right: u8,
    signed: bool,
}

impl Places {
    /// Finds the places of a structure's members.
    pub(super) fn of(structure: &Structure) -> Places {
        let (mut places, mut rest) = (Vec::new(), 0u64);
        let mut known = Known::aligned(structure.minimum_alignment);
        for member in &structure.members {
            let (alignment, size) = (member.class.alignment(), size(&member.class));
            let padding = known.padding(alignment);
            let begin = padding.map_or(Known::aligned(alignment), |padding| known.after(padding));
            let kind = match (padding, size) {
                (Some(_), Some(_)) => number(&member.class, begin).unwrap_or(Kind::Fixed),
                _ => Kind::Open,
            };
            let bits = rest.saturating_add(padding.unwrap_or(0));
            places.push(Place { bits, kind });
            rest = if kind == Kind::Open { 0 } else { bits.saturating_add(size.unwrap_or(0)) };
            known = match (size, &member.class) {
                (Some(size), _) => begin.after(size),
                (None, FieldClass::String(_) | FieldClass::Text(..) | FieldClass::Blob(..)) => {
                    Known::aligned(8)
                }
                _ => Known::NOTHING,
            };
        }
        Places {
            alignment: structure.minimum_alignment,
            places: places.into(),
            members: structure.members.as_slice().into(),
            meanings: structure.members.iter().map(|member| meaning(&member.class)).collect(),
            rest,
        }
    }

    /// Whether there are no members.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Where a member of the structure is, if that is known of it and it is a number or a text.
    pub(super) fn place(&self, member: usize) -> Option<FieldPlace> {
        let (place, before) = self.places.get(..=member)?.split_last()?;
        let what = match (place.kind, &self.members[member].class) {
            (Kind::Number(number), _) => What::Number(number, self.meanings[member].clone()),
            (Kind::Fixed, &FieldClass::Text(encoding, Length::Static(bytes))) => {
                What::Text(encoding, Length::Static(bytes))
            }
            _ => return None,
        };
        let is_known = before.iter().all(|place| place.kind != Kind::Open);
        is_known.then_some(FieldPlace { alignment: self.alignment, bits: place.bits, what })
    }
}

/// Where a field lies in a structure, whatever else that holds.
#[derive(Clone, Debug)]
pub(super) struct FieldPlace {
    /// Of the structure.
    alignment: u32,
    /// From its beginning.
    bits: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Number(Number, Meaning),
    Text(Encoding, Length),
}

impl FieldPlace {
    /// Tells the field in the structure that comes after `at`.
    #[inline(always)]
    pub(super) fn tell(
        &self,
        content: Content<'_>,
        at: u64,
        slots: &Slots,
        name: Name<'_>,
        sink: &mut impl FieldSink,
    ) -> Result<(), Trouble> {
        let at = bits::align(at, self.alignment).saturating_add(self.bits);
        match &self.what {
            What::Number(number, meaning) => number.tell(content, at, (name, meaning), sink),
            What::Text(encoding, length) => {
                Walk::new(content, at, slots, sink).sized_text(*encoding, length, name, at).map(drop)
            }
        }
    }
}

impl Number {
    #[inline(always)]
    fn tell(
        self,
        content: Content<'_>,
        at: u64,
        (name, meaning): (Name<'_>, &Meaning),
        sink: &mut impl FieldSink,
    ) -> Result<(), Trouble> {
        content.has(at, 64 - u64::from(self.right))?;
        let word = bits::word(content.bytes, (at / 8) as usize);
        let word = match self.order {
            ByteOrder::Little => u64::from_le_bytes(word),
            ByteOrder::Big => u64::from_be_bytes(word),
        };
        let top = word << self.left;
        match self.signed {
            true => sink.signed(name, top as i64 >> self.right, meaning),
            false => sink.unsigned(name, top >> self.right, meaning),
        }
        Ok(())
    }
}

/// What the values of a field mean, if it is a number.
fn meaning(class: &FieldClass) -> Meaning {
    match class {
        FieldClass::Integer(integer) => integer.meaning.clone(),
        _ => Meaning::default(),
    }
}

/// The size of a field in bits, where it is always the same and seen at once.
fn size(class: &FieldClass) -> Option<u64> {
    match class {
        FieldClass::Integer(integer) => Some(integer.meaning.size.into()),
        FieldClass::Real(real) => Some(real.size.into()),
        FieldClass::Text(_, Length::Static(bytes)) | FieldClass::Blob(Length::Static(bytes), _) => {
            Some(bytes.saturating_mul(8))
        }
        _ => None,
    }
}

/// A field as a number that nothing depends on, if it is one and lies within 64 bits.
fn number(class: &FieldClass, begin: Known) -> Option<Kind> {
    let FieldClass::Integer(integer) = class else { return None };
    let is_plain = integer.slot.is_none() && integer.roles.is_empty();
    let (size, order) = (integer.meaning.size, integer.byte_order);
    // Bits before it in its first byte.
    let before = begin.modulo(8).filter(|_| is_plain && !integer.boolean && !integer.reversed)? as u32;
    let behind = 64u32.checked_sub(before + size)?;
    let left = if order == ByteOrder::Little { behind } else { before };
    let right = (64 - size) as u8;
    Some(Kind::Number(Number { order, left: left as u8, right, signed: integer.signed }))
}

impl<S: FieldSink> Walk<'_, '_, S> {
    /// The members of a root structure from `at` on, and where it ends, by their places.
    // Once for all three scopes of an event: it is large, and each has few members.
    #[inline(never)]
    pub(super) fn placed(&mut self, structure: &Places, at: u64) -> Result<u64, Trouble> {
        let mut from = bits::align(at, structure.alignment);
        let Places { places, members, meanings, .. } = structure;
        let (members, meanings) = (&members[..places.len()], &meanings[..places.len()]);
        let content = self.content;
        let mut index = 0;
        while index < places.len() {
            // Most members are numbers.
            while let Some(&Place { bits, kind: Kind::Number(number) }) = places.get(index) {
                let (name, meaning) = (Name::Member(&members[index].name), &meanings[index]);
                number.tell(content, from.saturating_add(bits), (name, meaning), self.sink)?;
                index += 1;
            }
            let (Some(place), Some(member)) = (places.get(index), members.get(index)) else { break };
            let (at, name) = (from.saturating_add(place.bits), Name::Member(&member.name));
            let end = match &member.class {
                FieldClass::String(encoding) => self.string(*encoding, name, at)?,
                FieldClass::Text(encoding, length) => self.sized_text(*encoding, length, name, at)?,
                _ => self.member(member, at)?,
            };
            if place.kind == Kind::Open {
                from = end;
            }
            index += 1;
        }
        Ok(from.saturating_add(structure.rest))
    }
}
