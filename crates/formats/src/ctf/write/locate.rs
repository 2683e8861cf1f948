//! Writes references of lengths and selectors in the notation of each version.

use std::collections::HashMap;

use super::{Unwritable, Version};
use crate::events::schema::{
    EventClass, FieldClass, Length, Reference, Scope, Slot, StreamClass, Structure, TraceClass,
};

/// A step from a structure, variant or array into it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Descent {
    Member(String),
    Option(String),
    Element,
}

/// Scopes and paths of integers, by slot.
type Targets = HashMap<Slot, (Scope, Vec<Descent>)>;

/// Rewrites every reference of a trace for a version. All names must be converted before.
pub(super) fn locate(trace: &mut TraceClass, version: Version) -> Result<(), Unwritable> {
    let mut targets = Targets::new();
    collect_root(trace.packet_header.as_ref(), Scope::PacketHeader, &mut targets);
    let mut locator = Locator { targets, scope: Scope::PacketHeader, path: Vec::new(), version };
    locator.root(trace.packet_header.as_mut(), Scope::PacketHeader)?;
    for stream in trace.streams.values_mut() {
        collect(stream, &mut locator.targets);
        locator.root(stream.packet_context.as_mut(), Scope::PacketContext)?;
        locator.root(stream.event_header.as_mut(), Scope::EventHeader)?;
        locator.root(stream.common_context.as_mut(), Scope::CommonContext)?;
        for event in &mut stream.events {
            let result = locator.event(event);
            result.map_err(|error| {
                Unwritable::new(format!("event `{}`, {}", event.name, error.element), error.reason)
            })?;
        }
    }
    Ok(())
}

/// Collects the integers with slots. Slots of different events differ, so one map serves the whole stream.
fn collect(stream: &StreamClass, targets: &mut Targets) {
    collect_root(stream.packet_context.as_ref(), Scope::PacketContext, targets);
    collect_root(stream.event_header.as_ref(), Scope::EventHeader, targets);
    collect_root(stream.common_context.as_ref(), Scope::CommonContext, targets);
    for event in &stream.events {
        collect_root(event.specific_context.as_ref(), Scope::SpecificContext, targets);
        collect_root(event.payload.as_ref(), Scope::Payload, targets);
    }
}

fn collect_root(root: Option<&Structure>, scope: Scope, targets: &mut Targets) {
    if let Some(root) = root {
        collect_structure(root, scope, &mut Vec::new(), targets);
    }
}

fn collect_structure(structure: &Structure, scope: Scope, path: &mut Vec<Descent>, targets: &mut Targets) {
    for member in &structure.members {
        path.push(Descent::Member(member.raw_name.clone()));
        collect_class(&member.class, scope, path, targets);
        path.pop();
    }
}

fn collect_class(class: &FieldClass, scope: Scope, path: &mut Vec<Descent>, targets: &mut Targets) {
    let slot = match class {
        FieldClass::Integer(integer) => integer.slot,
        FieldClass::VariableInteger(integer) => integer.slot,
        FieldClass::Structure(structure) => {
            collect_structure(structure, scope, path, targets);
            None
        }
        FieldClass::Array(array) => {
            path.push(Descent::Element);
            collect_class(&array.element, scope, path, targets);
            path.pop();
            None
        }
        FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
            for option in &choice.options {
                path.push(Descent::Option(option.raw_name.clone()));
                collect_class(&option.class, scope, path, targets);
                path.pop();
            }
            None
        }
        _ => None,
    };
    if let Some(slot) = slot {
        // In several options of a variant, the names are the same.
        targets.entry(slot).or_insert_with(|| (scope, path.clone()));
    }
}

/// Traverses the fields, and rewrites their references.
struct Locator {
    targets: Targets,
    /// The scope and the path of the current field.
    scope: Scope,
    path: Vec<Descent>,
    version: Version,
}

impl Locator {
    fn root(&mut self, root: Option<&mut Structure>, scope: Scope) -> Result<(), Unwritable> {
        self.scope = scope;
        self.path.clear();
        root.map_or(Ok(()), |root| self.structure(root))
    }

    fn event(&mut self, event: &mut EventClass) -> Result<(), Unwritable> {
        self.root(event.specific_context.as_mut(), Scope::SpecificContext)?;
        self.root(event.payload.as_mut(), Scope::Payload)
    }

    fn structure(&mut self, structure: &mut Structure) -> Result<(), Unwritable> {
        for member in &mut structure.members {
            self.descend(Descent::Member(member.raw_name.clone()), &mut member.class)?;
        }
        Ok(())
    }

    fn descend(&mut self, step: Descent, class: &mut FieldClass) -> Result<(), Unwritable> {
        self.path.push(step);
        let result = self.class(class);
        self.path.pop();
        result
    }

    fn class(&mut self, class: &mut FieldClass) -> Result<(), Unwritable> {
        match class {
            FieldClass::Text(_, length) | FieldClass::Blob(length, _) => self.length(length),
            FieldClass::Array(array) => {
                self.length(&mut array.length)?;
                self.descend(Descent::Element, &mut array.element)
            }
            FieldClass::Structure(structure) => self.structure(structure),
            FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
                self.reference(&mut choice.selector)?;
                for option in &mut choice.options {
                    self.descend(Descent::Option(option.raw_name.clone()), &mut option.class)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn length(&self, length: &mut Length) -> Result<(), Unwritable> {
        match length {
            Length::Dynamic(reference) => self.reference(reference),
            Length::Static(_) => Ok(()),
        }
    }

    fn reference(&self, reference: &mut Reference) -> Result<(), Unwritable> {
        let field = || {
            let names: Vec<&str> = self.path.iter().filter_map(Descent::name).collect();
            names.join(".")
        };
        let Some((scope, target)) = self.targets.get(&reference.slot) else {
            return Err(Unwritable::new(field(), "what it depends on is not written"));
        };
        let common = self.path.iter().zip(target).take_while(|(own, other)| own == other).count();
        let in_array = target.contains(&Descent::Element);
        let names = |from: usize| target[from..].iter().filter_map(|step| step.name_in(self.version));
        let (origin, path) = match self.version {
            _ if *scope != self.scope && in_array => {
                return Err(Unwritable::new(field(), "what it depends on lies in an array elsewhere"));
            }
            // Uses a relative path if possible: babeltrace2 accepts only a single name as a selector.
            Version::Ctf18 if *scope == self.scope => (None, names(common).map(Some).collect()),
            Version::Ctf18 => (Some(*scope), names(0).map(Some).collect()),
            Version::Ctf2 if *scope != self.scope => (Some(*scope), names(0).map(Some).collect()),
            Version::Ctf2 => {
                let inner = self.path.get(common + 1..).unwrap_or_default();
                let parents = inner.iter().filter(|step| matches!(step, Descent::Member(_))).count();
                (None, std::iter::repeat_n(None, parents).chain(names(common).map(Some)).collect())
            }
        };
        (reference.origin, reference.path) = (origin, path);
        Ok(())
    }
}

impl Descent {
    fn name(&self) -> Option<&str> {
        match self {
            Descent::Member(name) | Descent::Option(name) => Some(name),
            Descent::Element => None,
        }
    }

    /// The step's name in a path. CTF 2 omits the selected option.
    fn name_in(&self, version: Version) -> Option<String> {
        match self {
            Descent::Option(_) if version == Version::Ctf2 => None,
            step => step.name().map(str::to_owned),
        }
    }
}
