//! Positions of a structure's members, as far as they are known before reading a byte. Compiled once; reading most
//! integers is then a load and two shifts.

use hodo_model::event::{FieldSink, Meaning, Name};

use super::{
    bits,
    read::Walk,
    schema::{ByteOrder, Encoding, FieldClass, Length, Member, Structure},
    steps::{Content, Known, Slots, Trouble},
};

/// The members of a structure, and their positions.
// Structures of arrays: most members need little of this, and the rest should stay out of the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Alignment of the structure.
    alignment: u32,
    places: Box<[KnownPlace]>,
    members: Box<[Member]>,
    /// Meanings of the numbers.
    meanings: Box<[Meaning]>,
    /// Bits after the last member of variable size.
    rest: u64,
}

#[derive(Clone, Copy, Debug)]
struct KnownPlace {
    /// Offset in bits from the end of the last member of variable size, or from the structure's beginning.
    bits: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An integer that no other field depends on.
    Number(Number),
    /// Another field of known size.
    Fixed,
    /// A field of variable size.
    Open,
}

/// An integer extracted by two shifts from the 64 bits after a byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    order: ByteOrder,
    left: u8,
    right: u8,
    signed: bool,
}

impl Places {
    /// Computes the positions of a structure's members.
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
            places.push(KnownPlace { bits, kind });
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

    /// The position of a member, if it is known and the member is a number or text.
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

/// The position of a field in a structure, independent of the rest.
#[derive(Clone, Debug)]
pub(super) struct FieldPlace {
    /// Alignment of the structure.
    alignment: u32,
    /// Offset in bits from the structure's beginning.
    bits: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Number(Number, Meaning),
    Text(Encoding, Length),
}

impl FieldPlace {
    /// Passes the field of the structure that follows `at` to a sink.
    #[inline(always)]
    pub(super) fn emit(
        &self,
        content: Content<'_>,
        at: u64,
        slots: &Slots,
        name: Name<'_>,
        sink: &mut impl FieldSink,
    ) -> Result<(), Trouble> {
        let at = bits::align(at, self.alignment).saturating_add(self.bits);
        match &self.what {
            What::Number(number, meaning) => number.emit(content, at, (name, meaning), sink),
            What::Text(encoding, length) => {
                Walk::new(content, at, slots, sink).sized_text(*encoding, length, name, at).map(drop)
            }
        }
    }
}

impl Number {
    #[inline(always)]
    fn emit(
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

/// The meaning of a number's values.
fn meaning(class: &FieldClass) -> Meaning {
    match class {
        FieldClass::Integer(integer) => integer.meaning.clone(),
        _ => Meaning::default(),
    }
}

/// The size of a field in bits, if it is fixed and directly known.
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

/// The field as an integer that no other field depends on, if it is one and fits 64 bits.
fn number(class: &FieldClass, begin: Known) -> Option<Kind> {
    let FieldClass::Integer(integer) = class else { return None };
    let is_plain = integer.slot.is_none() && integer.roles.is_empty();
    let (size, order) = (integer.meaning.size, integer.byte_order);
    // Bits before the field in its first byte.
    let before = begin.modulo(8).filter(|_| is_plain && !integer.boolean && !integer.reversed)? as u32;
    let behind = 64u32.checked_sub(before + size)?;
    let left = if order == ByteOrder::Little { behind } else { before };
    let right = (64 - size) as u8;
    Some(Kind::Number(Number { order, left: left as u8, right, signed: integer.signed }))
}

impl<S: FieldSink> Walk<'_, '_, S> {
    /// Reads the members of a root structure at `at` by their positions. Returns where the structure ends.
    // Not inlined for each of an event's three scopes: the code is large, and scopes have few members.
    #[inline(never)]
    pub(super) fn placed(&mut self, structure: &Places, at: u64) -> Result<u64, Trouble> {
        let mut from = bits::align(at, structure.alignment);
        let Places { places, members, meanings, .. } = structure;
        let (members, meanings) = (&members[..places.len()], &meanings[..places.len()]);
        let content = self.content;
        let mut index = 0;
        while index < places.len() {
            // Most members are numbers.
            while let Some(&KnownPlace { bits, kind: Kind::Number(number) }) = places.get(index) {
                let (name, meaning) = (Name::Member(&members[index].name), &meanings[index]);
                number.emit(content, from.saturating_add(bits), (name, meaning), self.sink)?;
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
