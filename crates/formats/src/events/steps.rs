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
    /// Checks that `size` bits at `position` are within the content.
    #[inline]
    pub(crate) fn has(&self, position: u64, size: u64) -> Result<(), Trouble> {
        if position.saturating_add(size) <= self.end { Ok(()) } else { Err(Trouble::CutShort) }
    }

    /// The bytes of the content from a byte-aligned bit on.
    #[inline]
    pub(crate) fn bytes_from(&self, position: u64) -> &'a [u8] {
        let end = ((self.end / 8) as usize).min(self.bytes.len());
        self.bytes.get(((position / 8) as usize).min(end)..end).unwrap_or_default()
    }

    /// Limit on the number of array elements from `position` on, including nested and zero-size ones.
    #[inline]
    pub(crate) fn room(&self, position: u64) -> u64 {
        self.end.saturating_sub(position).saturating_mul(8).max(SIZELESS)
    }

    /// The length in bytes of NUL-terminated text, without the NUL.
    #[inline]
    pub(crate) fn terminated(&self, position: u64, encoding: Encoding) -> Result<usize, Trouble> {
        nul(self.bytes_from(position), encoding).ok_or(Trouble::CutShort)
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

/// Bytes per code unit of an encoding, and so of its NUL.
pub(crate) fn unit(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Utf8 => 1,
        Encoding::Utf16(_) => 2,
        Encoding::Utf32(_) => 4,
    }
}

/// A step over fields.
#[derive(Clone, Debug)]
struct FieldStep {
    kind: StepKind,
    /// The fixed number of bits after it.
    bits: u64,
}

/// A step over an alignment, a field of variable size, or one that a later field depends on.
#[derive(Clone, Debug)]
enum StepKind {
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
    Select { slot: Slot, signed: bool, optional: bool, arms: Vec<Arm> },
}

/// An option of a variant, or an optional field.
#[derive(Clone, Debug)]
struct Arm {
    /// The values that select it.
    ranges: Vec<(i128, i128)>,
    steps: Steps,
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
    /// Compiles the steps over a structure; `known` is what is known of its position. Returns them with what is known of
    /// its end.
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

    /// Returns the end of the fields that begin at `position`. The result may exceed the content.
    #[inline]
    pub(crate) fn run(&self, content: Content<'_>, position: u64, slots: &Slots) -> Result<u64, Trouble> {
        let position = position.saturating_add(self.bits);
        if self.steps.is_empty() {
            Ok(position)
        } else {
            self.rest(content, position, slots, &mut content.room(position))
        }
    }

    fn walk(
        &self,
        content: Content<'_>,
        position: u64,
        slots: &Slots,
        fuel: &mut u64,
    ) -> Result<u64, Trouble> {
        self.rest(content, position.saturating_add(self.bits), slots, fuel)
    }

    fn rest(
        &self,
        content: Content<'_>,
        mut position: u64,
        slots: &Slots,
        fuel: &mut u64,
    ) -> Result<u64, Trouble> {
        for step in &self.steps {
            position = step.kind.run(content, position, slots, fuel)?.saturating_add(step.bits);
        }
        Ok(position)
    }
}

impl StepKind {
    #[inline]
    fn run(
        &self,
        content: Content<'_>,
        position: u64,
        slots: &Slots,
        fuel: &mut u64,
    ) -> Result<u64, Trouble> {
        match self {
            StepKind::Align(alignment) => Ok(bits::align(position, *alignment)),
            StepKind::Keep { slot, layout } => {
                let size = u64::from(layout.size);
                content.has(position, size)?;
                slots.set(*slot, layout.read(content.bytes, position));
                Ok(position + size)
            }
            StepKind::Variable { slot, signed } => {
                let (value, length) = variable(content, position, *signed)?;
                slot.iter().for_each(|&slot| slots.set(slot, value));
                Ok(position + 8 * length as u64)
            }
            StepKind::Terminated(encoding) => {
                let length = content.terminated(position, *encoding)?;
                Ok(position + 8 * (length + unit(*encoding)) as u64)
            }
            StepKind::Repeat { slot, stride, last } => {
                let count = slots.get(*slot);
                let Some(before) = count.checked_sub(1) else { return Ok(position) };
                let bits = before.checked_mul(*stride).and_then(|bits| bits.checked_add(*last));
                let end = bits.and_then(|bits| position.checked_add(bits)).filter(|&end| end <= content.end);
                end.ok_or(Trouble::TooLong(count))
            }
            StepKind::Loop { count, body } => run_loop(content, position, slots, fuel, count, body),
            StepKind::Select { slot, signed, optional, arms } => {
                let value = slots.selector(*slot, *signed);
                match arms.iter().find(|arm| within(&arm.ranges, value)) {
                    Some(arm) => arm.steps.walk(content, position, slots, fuel),
                    None if *optional => Ok(position),
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
pub(crate) fn variable(content: Content<'_>, position: u64, signed: bool) -> Result<(u64, usize), Trouble> {
    let bytes = content.bytes_from(position);
    let trouble = if bytes.len() < bits::LONGEST_LEB128 { Trouble::CutShort } else { Trouble::TooWide };
    bits::leb128(bytes, signed).ok_or(trouble)
}

fn run_loop(
    content: Content<'_>,
    mut position: u64,
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
        position = body.walk(content, position, slots, fuel)?;
        if position > content.end {
            return Err(Trouble::CutShort);
        }
    }
    Ok(position)
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

    fn push(&mut self, kind: StepKind) {
        self.steps.push(FieldStep { kind, bits: 0 });
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
                self.push(StepKind::Align(alignment));
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
                self.push(StepKind::Variable { slot: integer.slot, signed: integer.signed });
                self.known = self.known.after_many(8);
            }
            FieldClass::Real(real) => {
                self.align(real.alignment);
                self.skip(u64::from(real.size));
            }
            FieldClass::String(encoding) => {
                self.align(8);
                self.push(StepKind::Terminated(*encoding));
                self.known = self.known.after_many(8);
            }
            FieldClass::Text(_, length) | FieldClass::Blob(length, _) => {
                self.align(8);
                match length {
                    Length::Static(bytes) => self.skip(bytes.saturating_mul(8)),
                    Length::Dynamic(reference) => {
                        self.push(StepKind::Repeat { slot: reference.slot, stride: 8, last: 8 });
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
            FieldClass::Variant(choice) => {
                let optional = false;
                self.choice(choice, optional);
            }
            FieldClass::Optional(choice) => {
                let optional = true;
                self.choice(choice, optional);
            }
        }
    }

    fn integer(&mut self, integer: &Integer) {
        self.align(integer.alignment);
        let size = integer.meaning.size;
        let Some(slot) = integer.slot else { return self.skip(u64::from(size)) };
        self.push(StepKind::Keep { slot, layout: integer.layout() });
        self.known = self.known.after(u64::from(size));
    }

    fn elements(&mut self, length: &Length, element: &FieldClass) {
        let alignment = element.alignment();
        let mut aligned = Compiler::new(Known::aligned(alignment));
        aligned.class(element);
        if let Some(last) = aligned.finish().fixed() {
            let stride = bits::align(last, alignment);
            match length {
                Length::Static(0) => {}
                Length::Static(count) => {
                    self.skip((count - 1).saturating_mul(stride).saturating_add(last));
                }
                Length::Dynamic(reference) => {
                    self.push(StepKind::Repeat { slot: reference.slot, stride, last });
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
        self.push(StepKind::Loop { count, body: body.finish() });
        self.known = Known::NOTHING;
    }

    fn choice(&mut self, choice: &Choice, optional: bool) {
        let mut end = optional.then_some(self.known);
        let mut arms = Vec::new();
        for option in &choice.options {
            let mut arm = Compiler::new(self.known);
            arm.class(&option.class);
            end = Some(end.map_or(arm.known, |end| end.or(arm.known)));
            arms.push(Arm { ranges: option.ranges.clone(), steps: arm.finish() });
        }
        let (slot, signed) = (choice.selector.slot, choice.selector.signed);
        self.push(StepKind::Select { slot, signed, optional, arms });
        self.known = end.unwrap_or(Known::NOTHING);
    }
}
