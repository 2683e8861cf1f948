//! Offsets of a structure's members, as far as they are known before reading a byte. Compiled once; reading most integers
//! is then a load and two shifts.

use hodo_model::event::{FieldSink, Meaning, Name};

use super::{
    bits,
    read::Walk,
    schema::{ByteOrder, Encoding, FieldClass, Length, Member, Structure},
    steps::{Content, Known, Slots, Trouble},
};

/// The members of a structure, and their offsets.
// Structures of arrays: most members need little of this, and the rest should stay out of the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Offsets {
    /// Alignment of the structure.
    alignment: u32,
    offsets: Box<[KnownOffset]>,
    members: Box<[Member]>,
    /// Meanings of the numbers.
    meanings: Box<[Meaning]>,
    /// Bits after the last member of variable size.
    rest: u64,
}

#[derive(Clone, Copy, Debug)]
struct KnownOffset {
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
    /// Bits to shift left: removes the bits above the integer.
    left: u8,
    /// Bits to shift right afterwards: 64 minus the size.
    right: u8,
    signed: bool,
}

impl Offsets {
    /// Computes the offsets of a structure's members.
    pub(super) fn of(structure: &Structure) -> Offsets {
        let (mut offsets, mut rest) = (Vec::new(), 0u64);
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
            offsets.push(KnownOffset { bits, kind });
            rest = if kind == Kind::Open { 0 } else { bits.saturating_add(size.unwrap_or(0)) };
            known = match (size, &member.class) {
                (Some(size), _) => begin.after(size),
                (None, FieldClass::String(_) | FieldClass::Text(..) | FieldClass::Blob(..)) => {
                    Known::aligned(8)
                }
                _ => Known::NOTHING,
            };
        }
        Offsets {
            alignment: structure.minimum_alignment,
            offsets: offsets.into(),
            members: structure.members.as_slice().into(),
            meanings: structure.members.iter().map(|member| meaning(&member.class)).collect(),
            rest,
        }
    }

    /// Whether there are no members.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The position of a member, if it is known and the member is a number or text.
    pub(super) fn offset(&self, member: usize) -> Option<FieldOffset> {
        let (offset, before) = self.offsets.get(..=member)?.split_last()?;
        let what = match (offset.kind, &self.members[member].class) {
            (Kind::Number(number), _) => What::Number(number, self.meanings[member].clone()),
            (Kind::Fixed, &FieldClass::Text(encoding, Length::Static(bytes))) => {
                What::Text(encoding, Length::Static(bytes))
            }
            _ => return None,
        };
        let is_known = before.iter().all(|offset| offset.kind != Kind::Open);
        is_known.then_some(FieldOffset { alignment: self.alignment, bits: offset.bits, what })
    }
}

/// The position of a field in a structure, independent of the rest.
#[derive(Clone, Debug)]
pub(super) struct FieldOffset {
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

impl FieldOffset {
    /// Passes the field of the structure that follows `position` to a sink.
    #[inline(always)]
    pub(super) fn emit(
        &self,
        content: Content<'_>,
        position: u64,
        slots: &Slots,
        name: Name<'_>,
        sink: &mut impl FieldSink,
    ) -> Result<(), Trouble> {
        let position = bits::align(position, self.alignment).saturating_add(self.bits);
        match &self.what {
            What::Number(number, meaning) => number.emit(content, position, (name, meaning), sink),
            What::Text(encoding, length) => Walk::new(content, position, slots, sink)
                .sized_text(*encoding, length, name, position)
                .map(drop),
        }
    }
}

impl Number {
    #[inline(always)]
    fn emit(
        self,
        content: Content<'_>,
        position: u64,
        (name, meaning): (Name<'_>, &Meaning),
        sink: &mut impl FieldSink,
    ) -> Result<(), Trouble> {
        content.has(position, 64 - u64::from(self.right))?;
        let word = bits::word(content.bytes, (position / 8) as usize);
        let word = match self.order {
            ByteOrder::Little => u64::from_le_bytes(word),
            ByteOrder::Big => u64::from_be_bytes(word),
        };
        let top = word << self.left;
        if self.signed {
            sink.signed(name, top as i64 >> self.right, meaning);
        } else {
            sink.unsigned(name, top >> self.right, meaning);
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
    let after = 64u32.checked_sub(before + size)?;
    let left = if order == ByteOrder::Little { after } else { before };
    let right = (64 - size) as u8;
    Some(Kind::Number(Number { order, left: left as u8, right, signed: integer.signed }))
}

impl<S: FieldSink> Walk<'_, '_, S> {
    /// Reads the members of a root structure at `position` by their positions. Returns where the structure ends.
    // Not inlined for each of an event's three scopes: the code is large, and scopes have few members.
    #[inline(never)]
    pub(super) fn root_by_offsets(&mut self, structure: &Offsets, position: u64) -> Result<u64, Trouble> {
        let mut from = bits::align(position, structure.alignment);
        let Offsets { offsets, members, meanings, .. } = structure;
        let (members, meanings) = (&members[..offsets.len()], &meanings[..offsets.len()]);
        let content = self.content;
        let mut index = 0;
        while index < offsets.len() {
            // Most members are numbers.
            while let Some(&KnownOffset { bits, kind: Kind::Number(number) }) = offsets.get(index) {
                let (name, meaning) = (Name::Member(&members[index].name), &meanings[index]);
                number.emit(content, from.saturating_add(bits), (name, meaning), self.sink)?;
                index += 1;
            }
            let (Some(offset), Some(member)) = (offsets.get(index), members.get(index)) else { break };
            let (position, name) = (from.saturating_add(offset.bits), Name::Member(&member.name));
            let end = match &member.class {
                FieldClass::String(encoding) => self.string(*encoding, name, position)?,
                FieldClass::Text(encoding, length) => self.sized_text(*encoding, length, name, position)?,
                _ => self.member(member, position)?,
            };
            if offset.kind == Kind::Open {
                from = end;
            }
            index += 1;
        }
        Ok(from.saturating_add(structure.rest))
    }
}
