//! Writes event headers: class id and timestamp.

use hodo_model::event::{FieldSink, Meaning, Name};

use super::bits::BitWriter;
use crate::events::{
    bits,
    event::advance,
    schema::{Choice, FieldClass, Integer, Role, Slot, Structure},
    steps::within,
};

/// Why a header cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HeaderTrouble {
    /// The header's timestamp has too few bits for the time since the event before.
    Time,
    /// A permanent reason.
    Never(String),
}

/// Writes the header of an event.
pub(super) struct HeaderWriter<'e> {
    pub(super) out: &'e mut BitWriter,
    pub(super) slots: &'e mut [u64],
    pub(super) id: u64,
    /// The clock at the event.
    pub(super) cycles: Option<u64>,
    /// The clock at the event before.
    pub(super) clock: u64,
    /// Whether to require a 64-bit timestamp.
    pub(super) full: bool,
    /// Other integers of the source header, by name.
    pub(super) others: &'e [(String, u64)],
}

/// Whether a header has integers other than ids and timestamps.
pub(super) fn has_others(structure: &Structure) -> bool {
    structure.members.iter().any(|member| is_other(&member.class))
}

fn is_other(class: &FieldClass) -> bool {
    match class {
        FieldClass::Integer(integer) => integer.roles.is_empty(),
        FieldClass::VariableInteger(integer) => integer.roles.is_empty(),
        FieldClass::Structure(structure) => has_others(structure),
        FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
            choice.options.iter().any(|option| is_other(&option.class))
        }
        _ => true,
    }
}

/// Integers of a header, by name.
#[derive(Debug, Default)]
pub(super) struct Others(pub(super) Vec<(String, u64)>);

impl HeaderWriter<'_> {
    /// Writes a header that advances the clock to the event's time.
    pub(super) fn write(mut self, structure: &Structure) -> Result<(), HeaderTrouble> {
        let time = self.structure(structure)?;
        match (self.cycles, time) {
            (Some(cycles), Some((value, size))) if advance(self.clock, value, size) != cycles => {
                Err(HeaderTrouble::Time)
            }
            (Some(cycles), None) if cycles != self.clock => Err(HeaderTrouble::Time),
            _ => Ok(()),
        }
    }

    /// Writes a structure. Returns the timestamp and its size in bits.
    fn structure(&mut self, structure: &Structure) -> Result<Option<(u64, u32)>, HeaderTrouble> {
        self.out.align(structure.minimum_alignment);
        let mut time = None;
        for member in &structure.members {
            time = self.class(&member.class, &member.name, structure)?.or(time);
        }
        Ok(time)
    }

    fn class(
        &mut self,
        class: &FieldClass,
        name: &str,
        enclosing: &Structure,
    ) -> Result<Option<(u64, u32)>, HeaderTrouble> {
        match class {
            FieldClass::Integer(integer) => {
                let value =
                    self.value(&integer.roles, integer.slot, integer.meaning.size, name, enclosing)?;
                self.integer(integer, value);
                let is_time = integer.roles.contains(&Role::Timestamp);
                Ok(is_time
                    .then_some((value & (u64::MAX >> (64 - integer.meaning.size)), integer.meaning.size)))
            }
            FieldClass::VariableInteger(integer) => {
                let value = self.value(&integer.roles, integer.slot, 64, name, enclosing)?;
                let before = self.out.position();
                self.out.put_variable(value, integer.signed);
                integer.slot.iter().for_each(|&slot| self.slots[slot as usize] = value);
                let size = (7 * (self.out.position() - bits::align(before, 8)) / 8).min(64) as u32;
                Ok(integer.roles.contains(&Role::Timestamp).then_some((value, size)))
            }
            FieldClass::Structure(structure) => self.structure(structure),
            FieldClass::Variant(choice) => {
                let value = self.slots[choice.selector.slot as usize];
                let value = if choice.selector.signed { i128::from(value as i64) } else { i128::from(value) };
                let option = choice.options.iter().find(|option| within(&option.ranges, value));
                let option = option.ok_or_else(|| never(name, "nothing is selected"))?;
                self.class(&option.class, &option.name, enclosing)
            }
            _ => Err(never(name, "headers are made of integers, structures and variants here")),
        }
    }

    fn value(
        &self,
        roles: &[Role],
        slot: Option<Slot>,
        size: u32,
        name: &str,
        enclosing: &Structure,
    ) -> Result<u64, HeaderTrouble> {
        if roles.contains(&Role::EventClassId) {
            return self.id(slot, size, enclosing).ok_or_else(|| never(name, "the id does not fit"));
        }
        if roles.contains(&Role::Timestamp) {
            return Ok(self.cycles.unwrap_or(0));
        }
        let other = self.others.iter().find(|(known, _)| known == name);
        other
            .map(|(_, value)| *value)
            .ok_or_else(|| never(name, "the header that was read has no such integer"))
    }

    /// The value for the id field: the id, or a value that selects the option with the id.
    fn id(&self, slot: Option<Slot>, size: u32, enclosing: &Structure) -> Option<u64> {
        let fits = size >= 64 || self.id >> size == 0;
        let choices = enclosing.members.iter().filter_map(|member| match &member.class {
            FieldClass::Variant(choice) => Some(choice.as_ref()),
            _ => None,
        });
        let selected = |choice: &&Choice| slot == Some(choice.selector.slot);
        let Some(choice) = choices.into_iter().find(selected) else { return fits.then_some(self.id) };
        choice.options.iter().find_map(|option| {
            let is_selected = fits && within(&option.ranges, self.id.into());
            let has_id = any_integer(&option.class, &|integer| integer.roles.contains(&Role::EventClassId));
            let is_full =
                |integer: &Integer| integer.roles.contains(&Role::Timestamp) && integer.meaning.size == 64;
            if self.full && !any_integer(&option.class, &is_full) {
                None
            } else if is_selected {
                Some(self.id)
            } else {
                option.ranges.first().filter(|_| has_id).and_then(|range| u64::try_from(range.0).ok())
            }
        })
    }

    fn integer(&mut self, integer: &Integer, value: u64) {
        let size = integer.meaning.size;
        self.out.align(integer.alignment);
        let value = value & (u64::MAX >> (64 - size));
        self.out.put(bits::ordered(value, size, integer.reversed), size, integer.byte_order);
        if let Some(slot) = integer.slot {
            self.slots[slot as usize] = if integer.signed { bits::signed(value, size) as u64 } else { value };
        }
    }
}

fn never(name: &str, reason: &str) -> HeaderTrouble {
    HeaderTrouble::Never(format!("`{name}`: {reason}"))
}

/// Whether a class contains an integer that `matches` accepts.
fn any_integer(class: &FieldClass, matches: &dyn Fn(&Integer) -> bool) -> bool {
    match class {
        FieldClass::Integer(integer) => matches(integer),
        FieldClass::Structure(structure) => {
            structure.members.iter().any(|member| any_integer(&member.class, matches))
        }
        _ => false,
    }
}

impl Others {
    fn add(&mut self, name: Name<'_>, value: u64) {
        if let Name::Member(name) = name {
            self.0.push((name.to_owned(), value));
        }
    }
}

impl FieldSink for Others {
    fn unsigned(&mut self, name: Name<'_>, value: u64, _: &Meaning) {
        self.add(name, value);
    }
    fn signed(&mut self, name: Name<'_>, value: i64, _: &Meaning) {
        self.add(name, value as u64);
    }
    fn boolean(&mut self, name: Name<'_>, value: bool) {
        self.add(name, value.into());
    }
}
