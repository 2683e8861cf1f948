//! Computes the length of fields, which reading every event needs.
//!
//! A structure is compiled once into steps. Fields of fixed size become one addition, including alignment if enough
//! low bits of the position are known. Strings, lengths and selectors remain as steps.

use std::{cell::Cell, fmt};

use super::{
    bits::{self, Layout},
    schema::{Choice, Encoding, FieldClass, Integer, Length, Slot, Structure},
};

/// Why fields cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// They extend beyond the end of the packet's content.
    CutShort,
    /// A length that exceeds the packet.
    TooLong(u64),
    /// The value selects no option of a variant.
    NoOption(i128),
    /// A variable-length integer exceeds 64 bits.
    TooWide,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::CutShort => f.write_str("it extends beyond the packet's end"),
            Trouble::TooLong(length) => write!(f, "a length of {length}, which the packet has no room for"),
            Trouble::NoOption(value) => write!(f, "no option of a variant is selected by {value}"),
            Trouble::TooWide => f.write_str("a variable-length integer of more than 64 bits"),
        }
    }
}

/// Values of the integers that other fields depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Vec<Cell<u64>>);

impl Slots {
    pub(crate) fn new(count: Slot) -> Slots {
        Slots(vec![Cell::new(0); count as usize])
    }

    #[inline]
    pub(crate) fn set(&self, slot: Slot, value: u64) {
        self.0[slot as usize].set(value);
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> u64 {
        self.0[slot as usize].get()
    }

    /// A value as a selector, signed or unsigned.
    #[inline]
    pub(crate) fn selector(&self, slot: Slot, signed: bool) -> i128 {
        let value = self.get(slot);
        if signed { i128::from(value as i64) } else { i128::from(value) }
    }
}

/// Limit on array elements of size zero, however small the packet is: a few bytes could claim any number.
const SIZELESS: u64 = 1 << 12;

/// The bytes of a packet, and the end of its content in bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) end: u64,
}

impl<'a> Content<'a> {
    /// Checks that `size` bits at `at` are within the content.
    #[inline]
    pub(crate) fn has(&self, at: u64, size: u64) -> Result<(), Trouble> {
        if at.saturating_add(size) <= self.end { Ok(()) } else { Err(Trouble::CutShort) }
    }

    /// The bytes of the content from a byte-aligned bit on.
    #[inline]
    pub(crate) fn bytes_from(&self, at: u64) -> &'a [u8] {
        let end = ((self.end / 8) as usize).min(self.bytes.len());
        self.bytes.get(((at / 8) as usize).min(end)..end).unwrap_or_default()
    }

    /// Limit on the number of array elements from `at` on, including nested and zero-size ones.
    #[inline]
    pub(crate) fn room(&self, at: u64) -> u64 {
        self.end.saturating_sub(at).saturating_mul(8).max(SIZELESS)
    }

    /// The length in bytes of NUL-terminated text, without and with the NUL.
    #[inline]
    pub(crate) fn terminated(&self, at: u64, encoding: Encoding) -> Result<(usize, usize), Trouble> {
        let length = nul(self.bytes_from(at), encoding);
        length.map(|length| (length, length + unit(encoding))).ok_or(Trouble::CutShort)
    }
}

/// The offset of the NUL, if there is one.
#[inline]
pub(crate) fn nul(bytes: &[u8], encoding: Encoding) -> Option<usize> {
    match unit(encoding) {
        1 => bits::nul(bytes),
        unit => {
            bytes.chunks_exact(unit).position(|code| code.iter().all(|&byte| byte == 0)).map(|n| n * unit)
        }
    }
}

/// Bytes per code unit of an encoding.
fn unit(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Utf8 => 1,
        Encoding::Utf16(_) => 2,
        Encoding::Utf32(_) => 4,
    }
}

/// A step over fields, and the fixed number of bits after it.
#[derive(Clone, Debug)]
struct FieldStep {
    over: Over,
    bits: u64,
}

/// A field of variable size, or one that a later field depends on.
#[derive(Clone, Debug)]
enum Over {
    /// Aligns to a multiple of this many bits.
    Align(u32),
    /// An integer whose value is stored.
    Keep { slot: Slot, layout: Layout },
    /// A LEB128 integer whose value may be stored.
    Variable { slot: Option<Slot>, signed: bool },
    /// NUL-terminated text.
    Terminated(Encoding),
    /// An array whose length is in a slot. Each element but the last takes `stride` bits, the last takes `last`.
    Repeat { slot: Slot, stride: u64, last: u64 },
    /// An array whose elements are stepped over one by one.
    Loop { count: Count, body: Steps },
    /// The selected option. If `optional`, there may be none.
    Select { slot: Slot, signed: bool, optional: bool, arms: Vec<(Vec<(i128, i128)>, Steps)> },
}

#[derive(Clone, Debug)]
enum Count {
    Static(u64),
    Slot(Slot),
}

/// Compiled steps over fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    /// Fixed number of bits before the first step. Most structures have no steps.
    bits: u64,
    steps: Box<[FieldStep]>,
}

impl Steps {
    /// Compiles the steps over a structure at a position of which `known` is known. Returns them with what is known
    /// of its end.
    pub(crate) fn of(structure: Option<&Structure>, known: Known) -> (Steps, Known) {
        let mut compiler = Compiler::new(known);
        if let Some(structure) = structure {
            compiler.structure(structure);
        }
        let known = compiler.known;
        (compiler.finish(), known)
    }

    /// Compiles the steps up to a member of a structure, which begins right there.
    pub(crate) fn up_to(structure: &Structure, member: usize, known: Known) -> Steps {
        let mut compiler = Compiler::new(known);
        compiler.align(structure.alignment());
        structure.members.iter().take(member).for_each(|member| compiler.class(&member.class));
        if let Some(member) = structure.members.get(member) {
            compiler.align(member.class.alignment());
        }
        compiler.finish()
    }

    /// The number of bits, if it is fixed.
    #[inline]
    pub(crate) fn fixed(&self) -> Option<u64> {
        self.steps.is_empty().then_some(self.bits)
    }

    /// Returns the end of the fields that begin at `at`. The result may exceed the content.
    #[inline]
    pub(crate) fn run(&self, content: Content<'_>, at: u64, slots: &Slots) -> Result<u64, Trouble> {
        let at = at.saturating_add(self.bits);
        if self.steps.is_empty() { Ok(at) } else { self.rest(content, at, slots, &mut content.room(at)) }
    }

    fn walk(&self, content: Content<'_>, at: u64, slots: &Slots, fuel: &mut u64) -> Result<u64, Trouble> {
        self.rest(content, at.saturating_add(self.bits), slots, fuel)
    }

    fn rest(&self, content: Content<'_>, mut at: u64, slots: &Slots, fuel: &mut u64) -> Result<u64, Trouble> {
        for step in &self.steps {
            at = step.over.run(content, at, slots, fuel)?.saturating_add(step.bits);
        }
        Ok(at)
    }
}

impl Over {
    #[inline]
    fn run(&self, content: Content<'_>, at: u64, slots: &Slots, fuel: &mut u64) -> Result<u64, Trouble> {
        match self {
            Over::Align(alignment) => Ok(bits::align(at, *alignment)),
            Over::Keep { slot, layout } => {
                let size = u64::from(layout.size);
                content.has(at, size)?;
                slots.set(*slot, layout.read(content.bytes, at));
                Ok(at + size)
            }
            Over::Variable { slot, signed } => {
                let (value, length) = variable(content, at, *signed)?;
                slot.iter().for_each(|&slot| slots.set(slot, value));
                Ok(at + 8 * length as u64)
            }
            Over::Terminated(encoding) => {
                let (_, length) = content.terminated(at, *encoding)?;
                Ok(at + 8 * length as u64)
            }
            Over::Repeat { slot, stride, last } => {
                let count = slots.get(*slot);
                let Some(before) = count.checked_sub(1) else { return Ok(at) };
                let bits = before.checked_mul(*stride).and_then(|bits| bits.checked_add(*last));
                let end = bits.and_then(|bits| at.checked_add(bits)).filter(|&end| end <= content.end);
                end.ok_or(Trouble::TooLong(count))
            }
            Over::Loop { count, body } => each(content, at, slots, fuel, count, body),
            Over::Select { slot, signed, optional, arms } => {
                let value = slots.selector(*slot, *signed);
                match arms.iter().find(|(ranges, _)| within(ranges, value)) {
                    Some((_, steps)) => steps.walk(content, at, slots, fuel),
                    None if *optional => Ok(at),
                    None => Err(Trouble::NoOption(value)),
                }
            }
        }
    }
}

/// Whether a value is in one of the ranges.
#[inline]
pub(crate) fn within(ranges: &[(i128, i128)], value: i128) -> bool {
    ranges.iter().any(|&(from, to)| from <= value && value <= to)
}

/// Reads a LEB128 integer. Returns its value and length in bytes.
pub(crate) fn variable(content: Content<'_>, at: u64, signed: bool) -> Result<(u64, usize), Trouble> {
    let bytes = content.bytes_from(at);
    bits::leb128(bytes, signed).ok_or(if bytes.len() < 10 { Trouble::CutShort } else { Trouble::TooWide })
}

fn each(
    content: Content<'_>,
    mut at: u64,
    slots: &Slots,
    fuel: &mut u64,
    count: &Count,
    body: &Steps,
) -> Result<u64, Trouble> {
    let count = match count {
        Count::Static(count) => *count,
        Count::Slot(slot) => slots.get(*slot),
    };
    *fuel = fuel.checked_sub(count).ok_or(Trouble::TooLong(count))?;
    for _ in 0..count {
        at = body.walk(content, at, slots, fuel)?;
        if at > content.end {
            return Err(Trouble::CutShort);
        }
    }
    Ok(at)
}

/// Partial knowledge of a position: its remainder modulo a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    modulus: u64,
    remainder: u64,
}

impl Known {
    /// Nothing is known.
    pub(crate) const NOTHING: Known = Known { modulus: 1, remainder: 0 };

    /// A multiple of `alignment`.
    pub(crate) fn aligned(alignment: u32) -> Known {
        Known { modulus: u64::from(alignment), remainder: 0 }
    }

    /// The position `bits` bits later.
    pub(crate) fn after(self, bits: u64) -> Known {
        Known { remainder: self.remainder.wrapping_add(bits) & (self.modulus - 1), ..self }
    }

    /// The remainder modulo a smaller power of two, if known.
    pub(crate) fn modulo(self, modulus: u32) -> Option<u64> {
        let modulus = u64::from(modulus);
        (modulus <= self.modulus).then_some(self.remainder & (modulus - 1))
    }

    /// The padding in bits to a multiple of `alignment`, if known.
    pub(crate) fn padding(self, alignment: u32) -> Option<u64> {
        Some(self.modulo(alignment)?.wrapping_neg() & (u64::from(alignment) - 1))
    }

    /// Returns the common knowledge about two positions.
    pub(crate) fn or(self, other: Known) -> Known {
        let mut modulus = self.modulus.min(other.modulus);
        while modulus > 1 && (self.remainder ^ other.remainder) & (modulus - 1) != 0 {
            modulus /= 2;
        }
        Known { modulus, remainder: self.remainder & (modulus - 1) }
    }

    /// Returns the knowledge after any number of elements of this size.
    fn after_many(self, bits: u64) -> Known {
        let modulus = if bits == 0 { self.modulus } else { self.modulus.min(1 << bits.trailing_zeros()) };
        Known { modulus, remainder: self.remainder & (modulus - 1) }
    }
}

struct Compiler {
    known: Known,
    /// Bits before the first step.
    bits: u64,
    steps: Vec<FieldStep>,
}

impl Compiler {
    fn new(known: Known) -> Compiler {
        Compiler { known, bits: 0, steps: Vec::new() }
    }

    fn finish(self) -> Steps {
        Steps { bits: self.bits, steps: self.steps.into() }
    }

    fn over(&mut self, over: Over) {
        self.steps.push(FieldStep { over, bits: 0 });
    }

    fn skip(&mut self, bits: u64) {
        self.known = self.known.after(bits);
        let before = self.steps.last_mut().map_or(&mut self.bits, |step| &mut step.bits);
        *before = before.saturating_add(bits);
    }

    fn align(&mut self, alignment: u32) {
        match self.known.padding(alignment) {
            Some(padding) => self.skip(padding),
            None => {
                self.over(Over::Align(alignment));
                self.known = Known::aligned(alignment);
            }
        }
    }

    fn structure(&mut self, structure: &Structure) {
        self.align(structure.alignment());
        structure.members.iter().for_each(|member| self.class(&member.class));
    }

    fn class(&mut self, class: &FieldClass) {
        match class {
            FieldClass::Integer(integer) => self.integer(integer),
            FieldClass::VariableInteger(integer) => {
                self.align(8);
                self.over(Over::Variable { slot: integer.slot, signed: integer.signed });
                self.known = self.known.after_many(8);
            }
            FieldClass::Real(real) => {
                self.align(real.alignment);
                self.skip(u64::from(real.size));
            }
            FieldClass::String(encoding) => {
                self.align(8);
                self.over(Over::Terminated(*encoding));
                self.known = self.known.after_many(8);
            }
            FieldClass::Text(_, length) | FieldClass::Blob(length, _) => {
                self.align(8);
                match length {
                    Length::Static(bytes) => self.skip(bytes.saturating_mul(8)),
                    Length::Dynamic(reference) => {
                        self.over(Over::Repeat { slot: reference.slot, stride: 8, last: 8 });
                        self.known = self.known.after_many(8);
                    }
                }
            }
            FieldClass::Structure(structure) => self.structure(structure),
            FieldClass::Array(array) => {
                self.align(array.alignment());
                self.elements(&array.length, &array.element);
            }
            FieldClass::ForeignField(foreign) => {
                self.align(8);
                self.skip(8 * foreign.size());
            }
            FieldClass::Variant(choice) => self.choice(choice, false),
            FieldClass::Optional(choice) => self.choice(choice, true),
        }
    }

    fn integer(&mut self, integer: &Integer) {
        self.align(integer.alignment);
        let size = integer.meaning.size;
        let Some(slot) = integer.slot else { return self.skip(u64::from(size)) };
        self.over(Over::Keep { slot, layout: integer.layout() });
        self.known = self.known.after(u64::from(size));
    }

    fn elements(&mut self, length: &Length, element: &FieldClass) {
        let alignment = element.alignment();
        let mut one = Compiler::new(Known::aligned(alignment));
        one.class(element);
        if let Some(last) = one.finish().fixed() {
            let stride = bits::align(last, alignment);
            match length {
                Length::Static(0) => {}
                Length::Static(count) => {
                    self.skip((count - 1).saturating_mul(stride).saturating_add(last));
                }
                Length::Dynamic(reference) => {
                    self.over(Over::Repeat { slot: reference.slot, stride, last });
                    self.known = self.known.after_many(stride).after_many(last);
                }
            }
            return;
        }
        let mut body = Compiler::new(Known::NOTHING);
        body.align(alignment);
        body.class(element);
        let count = match length {
            Length::Static(count) => Count::Static(*count),
            Length::Dynamic(reference) => Count::Slot(reference.slot),
        };
        self.over(Over::Loop { count, body: body.finish() });
        self.known = Known::NOTHING;
    }

    fn choice(&mut self, choice: &Choice, optional: bool) {
        let mut end = optional.then_some(self.known);
        let mut arms = Vec::new();
        for option in &choice.options {
            let mut arm = Compiler::new(self.known);
            arm.class(&option.class);
            end = Some(end.map_or(arm.known, |end| end.or(arm.known)));
            arms.push((option.ranges.clone(), arm.finish()));
        }
        let (slot, signed) = (choice.selector.slot, choice.selector.signed);
        self.over(Over::Select { slot, signed, optional, arms });
        self.known = end.unwrap_or(Known::NOTHING);
    }
}
