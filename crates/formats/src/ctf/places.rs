//! Where the members of a structure lie, as far as that is known before a byte is read. Compiled once, it makes
//! of most integers a load and two shifts.

use hodo_trace::event::{FieldSink, Name};

use super::{
    bits,
    read::Walk,
    schema::{ByteOrder, FieldClass, Integer, Length, Structure},
    steps::{Content, Known, Trouble},
};

/// Where each member of a structure lies.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    members: Vec<Place>,
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
    /// A number that nothing depends on: what these shifts leave of the 64 bits from its first byte on.
    Number { order: ByteOrder, left: u8, right: u8 },
    /// Something else of a known size.
    Fixed,
    /// Something whose end is known once it is read.
    Open,
}

impl Places {
    /// Finds the places of a structure's members.
    pub(super) fn of(structure: &Structure) -> Places {
        let mut places = Places::default();
        let mut known = Known::aligned(structure.minimum_alignment);
        for member in &structure.members {
            let (alignment, size) = (member.class.alignment(), size(&member.class));
            let padding = known.padding(alignment);
            let begin = padding.map_or(Known::aligned(alignment), |padding| known.after(padding));
            let kind = match (padding, size) {
                (Some(_), Some(_)) => number(&member.class, begin).unwrap_or(Kind::Fixed),
                _ => Kind::Open,
            };
            let bits = places.rest.saturating_add(padding.unwrap_or(0));
            places.members.push(Place { bits, kind });
            places.rest = if kind == Kind::Open { 0 } else { bits.saturating_add(size.unwrap_or(0)) };
            known = match (size, &member.class) {
                (Some(size), _) => begin.after(size),
                (None, FieldClass::String(_) | FieldClass::Text(..) | FieldClass::Blob(..)) => {
                    Known::aligned(8)
                }
                _ => Known::NOTHING,
            };
        }
        places
    }

    /// Where the number is that a member of the structure is, if that is known of it.
    pub(super) fn number(&self, structure: &Structure, member: usize) -> Option<NumberPlace> {
        let (place, before) = self.members.get(..=member)?.split_last()?;
        let Kind::Number { order, left, right } = place.kind else { return None };
        let is_known = before.iter().all(|place| place.kind != Kind::Open);
        let alignment = structure.minimum_alignment;
        is_known.then_some(NumberPlace { alignment, bits: place.bits, order, left, right })
    }
}

/// Where a number lies in a structure, whatever else that holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberPlace {
    /// Of the structure.
    alignment: u32,
    /// From its beginning.
    bits: u64,
    order: ByteOrder,
    left: u8,
    right: u8,
}

impl NumberPlace {
    /// The number in the structure that comes after `at`, as the bits of an `i64` if it is signed.
    #[inline(always)]
    pub(super) fn read(&self, content: Content<'_>, integer: &Integer, at: u64) -> Result<u64, Trouble> {
        let at = bits::align(at, self.alignment).saturating_add(self.bits);
        shifted(content, integer, at, self.order, (self.left, self.right))
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
    Some(Kind::Number { order, left: left as u8, right: (64 - size) as u8 })
}

impl<S: FieldSink> Walk<'_, '_, S> {
    /// The members of a root structure from `at` on, and where it ends, by their places.
    // Once for all three scopes of an event: it is large, and each has few members.
    #[inline(never)]
    pub(super) fn placed(&mut self, structure: &Structure, places: &Places, at: u64) -> Result<u64, Trouble> {
        let mut from = bits::align(at, structure.minimum_alignment);
        for (member, place) in structure.members.iter().zip(&places.members) {
            let at = from.saturating_add(place.bits);
            let name = Name::Member(&member.name);
            let end = match (place.kind, &member.class) {
                (Kind::Number { order, left, right }, FieldClass::Integer(integer)) => {
                    let value = shifted(self.content, integer, at, order, (left, right))?;
                    self.tell(name, value, integer.signed, &integer.meaning);
                    continue;
                }
                (_, FieldClass::String(encoding)) => self.string(*encoding, name, at)?,
                (_, FieldClass::Text(encoding, length)) => self.sized_text(*encoding, length, name, at)?,
                _ => self.member(member, at)?,
            };
            if place.kind == Kind::Open {
                from = end;
            }
        }
        Ok(from.saturating_add(places.rest))
    }
}

/// What is left of the 64 bits from the byte of a bit on by a shift to the left and one to the right.
#[inline(always)]
fn shifted(
    content: Content<'_>,
    integer: &Integer,
    at: u64,
    order: ByteOrder,
    (left, right): (u8, u8),
) -> Result<u64, Trouble> {
    content.has(at, 64 - u64::from(right))?;
    let bytes = content.bytes.get((at / 8) as usize..).and_then(|rest| rest.first_chunk());
    let Some(&word) = bytes else { return Ok(integer.layout().read(content.bytes, at)) };
    let word = match order {
        ByteOrder::Little => u64::from_le_bytes(word),
        ByteOrder::Big => u64::from_be_bytes(word),
    };
    let top = word << left;
    Ok(if integer.signed { (top as i64 >> right) as u64 } else { top >> right })
}
