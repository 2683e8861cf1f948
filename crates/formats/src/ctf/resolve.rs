//! Resolves lengths and selectors to the integers that they refer to.
//!
//! Every integer that another field depends on gets a slot. The reader stores the value there, and dependent fields
//! read it from there: no name is looked up while reading events.

use std::collections::HashMap;

use hodo_model::event::Label;

use crate::events::bits;
use crate::events::schema::{
    Choice, EventClass, FieldClass, Length, Reference, Scope, Slot, StreamClass, Structure, TraceClass,
};

/// A path from the root of a scope to a field: indices of members and options; 0 for an array's element.
type Path = Vec<usize>;

/// The integer that a reference refers to.
#[derive(Clone, Debug)]
struct Target {
    slot: Slot,
    signed: bool,
    labels: Vec<Label>,
}

/// Resolves every reference of a trace.
pub(super) fn resolve(trace: &mut TraceClass) -> Result<(), String> {
    let mut slots = Slots::default();
    let mut header = settle(trace.packet_header.take(), &[], Scope::PacketHeader, &mut slots)?;
    for stream in trace.streams.values_mut() {
        slots.marks.retain(|(scope, _), _| *scope == Scope::PacketHeader);
        resolve_stream(stream, header.as_ref(), &mut slots)
            .map_err(|reason| format!("stream {}: {reason}", stream.id))?;
    }
    store_slots(header.as_mut(), Scope::PacketHeader, &slots);
    trace.packet_header = header;
    trace.slots = slots.next;
    Ok(())
}

fn resolve_stream(
    stream: &mut StreamClass,
    packet_header: Option<&Structure>,
    slots: &mut Slots,
) -> Result<(), String> {
    let header = [(Scope::PacketHeader, packet_header)];
    let mut context = settle(stream.packet_context.take(), &header, Scope::PacketContext, slots)?;
    let packet = [header[0], (Scope::PacketContext, context.as_ref())];
    let mut event_header = settle(stream.event_header.take(), &packet, Scope::EventHeader, slots)?;
    let event = [packet[0], packet[1], (Scope::EventHeader, event_header.as_ref())];
    let mut common = settle(stream.common_context.take(), &event, Scope::CommonContext, slots)?;
    let outer = [event[0], event[1], event[2], (Scope::CommonContext, common.as_ref())];
    stream.events.sort_by_key(|event| event.id);
    if let Some(pair) = stream.events.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(format!(
            "the events `{}` and `{}` have the same id, {}",
            pair[0].name, pair[1].name, pair[0].id
        ));
    }
    for event in &mut stream.events {
        resolve_event(event, &outer, slots).map_err(|reason| format!("event `{}`: {reason}", event.name))?;
    }
    store_slots(context.as_mut(), Scope::PacketContext, slots);
    store_slots(event_header.as_mut(), Scope::EventHeader, slots);
    store_slots(common.as_mut(), Scope::CommonContext, slots);
    stream.packet_context = context;
    stream.event_header = event_header;
    stream.common_context = common;
    Ok(())
}

fn resolve_event(
    event: &mut EventClass,
    outer: &[(Scope, Option<&Structure>); 4],
    slots: &mut Slots,
) -> Result<(), String> {
    slots.marks.retain(|(scope, _), _| *scope < Scope::SpecificContext);
    let mut specific = settle(event.specific_context.take(), outer, Scope::SpecificContext, slots)?;
    let scopes = [outer[0], outer[1], outer[2], outer[3], (Scope::SpecificContext, specific.as_ref())];
    event.payload = settle(event.payload.take(), &scopes, Scope::Payload, slots)?;
    store_slots(specific.as_mut(), Scope::SpecificContext, slots);
    event.specific_context = specific;
    Ok(())
}

/// The assigned slots.
#[derive(Default)]
struct Slots {
    /// By the field's scope and its path there.
    marks: HashMap<(Scope, Path), Slot>,
    next: Slot,
}

/// Resolves the references within one scope, and assigns slots to its integers.
fn settle(
    root: Option<Structure>,
    outer: &[(Scope, Option<&Structure>)],
    scope: Scope,
    slots: &mut Slots,
) -> Result<Option<Structure>, String> {
    let Some(mut root) = root else { return Ok(None) };
    check_byte_orders(&root)?;
    let mut finder = Finder { outer, scope, frames: Vec::new(), targets: Vec::new(), slots };
    finder.structure(&root, Vec::new())?;
    let mut targets = std::mem::take(&mut finder.targets).into_iter();
    apply(&mut root.members.iter_mut().map(|member| &mut member.class).collect::<Vec<_>>(), &mut targets);
    root.minimum_alignment = root.alignment();
    let mut root = Some(root);
    store_slots(root.as_mut(), scope, slots);
    Ok(root)
}

/// Rejects adjacent fields of different byte orders in one byte, whose positions are undefined.
fn check_byte_orders(structure: &Structure) -> Result<(), String> {
    // The position in bits, correct modulo 8, and the byte order of the field that ends there. After a field of unknown
    // size, both start anew.
    let (mut position, mut before) = (0, None);
    for member in &structure.members {
        let (alignment, size, order) = match &member.class {
            FieldClass::Integer(integer) => (integer.alignment, integer.meaning.size, integer.byte_order),
            FieldClass::Real(real) => (real.alignment, real.size, real.byte_order),
            class => {
                if let FieldClass::Structure(inner) = class {
                    check_byte_orders(inner)?;
                }
                (position, before) = (0, None);
                continue;
            }
        };
        position = bits::align(position, alignment);
        if position % 8 != 0 && before.is_some_and(|before| before != order) {
            return Err(format!(
                "{}: its byte order is another than that of the field in the same byte",
                member.name
            ));
        }
        (position, before) = (position + u64::from(size), Some(order));
    }
    Ok(())
}

/// Stores the targets in the references, in the order of traversal. Also stores the alignment of structures and
/// arrays, so that readers need not compute it.
fn apply(classes: &mut [&mut FieldClass], targets: &mut std::vec::IntoIter<Target>) {
    for class in classes {
        match class {
            FieldClass::Text(_, length) | FieldClass::Blob(length, _) => apply_length(length, targets),
            FieldClass::Array(array) => {
                apply_length(&mut array.length, targets);
                apply(&mut [&mut array.element], targets);
                array.minimum_alignment = array.alignment();
            }
            FieldClass::Structure(structure) => {
                let mut members: Vec<_> =
                    structure.members.iter_mut().map(|member| &mut member.class).collect();
                apply(&mut members, targets);
                structure.minimum_alignment = structure.alignment();
            }
            FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
                if let Some(target) = targets.next() {
                    set_ranges(choice, &target);
                    set(&mut choice.selector, &target);
                }
                let mut options: Vec<_> = choice.options.iter_mut().map(|option| &mut option.class).collect();
                apply(&mut options, targets);
            }
            _ => {}
        }
    }
}

fn apply_length(length: &mut Length, targets: &mut std::vec::IntoIter<Target>) {
    if let Length::Dynamic(reference) = length
        && let Some(target) = targets.next()
    {
        set(reference, &target);
    }
}

fn set(reference: &mut Reference, target: &Target) {
    reference.slot = target.slot;
    reference.signed = target.signed;
}

/// Sets the values that select each option. CTF 1.8: those of the label with the option's name. The underscore that
/// tracers prepend to names is ignored.
fn set_ranges(choice: &mut Choice, target: &Target) {
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, label) in target.labels.iter().enumerate() {
        by_name.entry(&label.name).or_default().push(index);
    }
    for option in choice.options.iter_mut().filter(|option| option.ranges.is_empty()) {
        let name = option.raw_name.as_str();
        let longer = format!("_{name}");
        let names = [Some(name), name.strip_prefix('_'), Some(&longer)];
        let labels = names.into_iter().flatten().filter_map(|name| by_name.get(name));
        let mut labels: Vec<usize> = labels.flatten().copied().collect();
        labels.sort_unstable();
        let ranges = labels.into_iter().flat_map(|index| &target.labels[index].ranges);
        option.ranges = ranges.map(|range| (*range.start(), *range.end())).collect();
    }
}

/// Stores the assigned slots in the integers of a scope.
fn store_slots(root: Option<&mut Structure>, scope: Scope, slots: &Slots) {
    let Some(root) = root else { return };
    for ((_, path), &slot) in slots.marks.iter().filter(|((marked, _), _)| *marked == scope) {
        let mut steps = path.iter();
        let class =
            steps.next().and_then(|&index| root.members.get_mut(index)).map(|member| &mut member.class);
        match steps.try_fold(class, |class, &index| class.map(|class| step_mut(class, index))) {
            Some(Some(FieldClass::Integer(integer))) => integer.slot = Some(slot),
            Some(Some(FieldClass::VariableInteger(integer))) => integer.slot = Some(slot),
            _ => {}
        }
    }
}

fn step_mut(class: &mut FieldClass, index: usize) -> Option<&mut FieldClass> {
    match class {
        FieldClass::Structure(structure) => structure.members.get_mut(index).map(|member| &mut member.class),
        FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
            choice.options.get_mut(index).map(|option| &mut option.class)
        }
        FieldClass::Array(array) => Some(&mut array.element),
        _ => None,
    }
}

/// A structure during traversal.
struct Frame<'s> {
    structure: &'s Structure,
    /// Number of members already traversed.
    members: usize,
    path: Path,
}

/// Traverses a scope and resolves its references.
struct Finder<'s, 'o> {
    /// The preceding scopes, in order.
    outer: &'o [(Scope, Option<&'o Structure>)],
    scope: Scope,
    /// The structures under traversal, innermost last.
    frames: Vec<Frame<'s>>,
    /// The targets of the references so far, in the order of traversal.
    targets: Vec<Target>,
    slots: &'o mut Slots,
}

impl<'s> Finder<'s, '_> {
    fn structure(&mut self, structure: &'s Structure, path: Path) -> Result<(), String> {
        self.frames.push(Frame { structure, members: 0, path });
        for (index, member) in structure.members.iter().enumerate() {
            let path = self.enter_member(index);
            self.class(&member.class, path).map_err(|reason| format!("{}: {reason}", member.name))?;
        }
        self.frames.pop();
        Ok(())
    }

    /// Moves to a member of the innermost structure. Returns its path.
    fn enter_member(&mut self, index: usize) -> Path {
        let Some(frame) = self.frames.last_mut() else { return Path::new() };
        frame.members = index;
        extended(&frame.path, index)
    }

    fn class(&mut self, class: &'s FieldClass, path: Path) -> Result<(), String> {
        match class {
            FieldClass::Text(_, length) | FieldClass::Blob(length, _) => self.length(length),
            FieldClass::Array(array) => {
                self.length(&array.length)?;
                self.class(&array.element, extended(&path, 0))
            }
            FieldClass::Structure(structure) => self.structure(structure, path),
            FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
                self.reference(&choice.selector)?;
                choice
                    .options
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, option)| self.class(&option.class, extended(&path, index)))
            }
            FieldClass::Integer(_)
            | FieldClass::VariableInteger(_)
            | FieldClass::Real(_)
            | FieldClass::String(_)
            | FieldClass::ForeignField(_) => Ok(()),
        }
    }

    fn length(&mut self, length: &Length) -> Result<(), String> {
        let Length::Dynamic(reference) = length else { return Ok(()) };
        self.reference(reference)?;
        match self.targets.last() {
            Some(target) if target.signed => Err("a length may not be signed".to_owned()),
            _ => Ok(()),
        }
    }

    fn reference(&mut self, reference: &Reference) -> Result<(), String> {
        let name = || {
            let names: Vec<&str> =
                reference.path.iter().map(|name| name.as_deref().unwrap_or("(parent)")).collect();
            names.join(".")
        };
        if reference.path.is_empty() {
            return Err("a variant without a selector".to_owned());
        }
        let mut integers = Vec::new();
        for FoundField { mark, class } in self.find(reference) {
            let (signed, labels) = match class {
                FieldClass::Integer(integer) => (integer.signed, &integer.meaning.labels),
                FieldClass::VariableInteger(integer) => (integer.signed, &integer.meaning.labels),
                _ => continue,
            };
            integers.push((mark, (signed, labels.clone())));
        }
        // Targets in several options of a variant share a slot, as only one option is present.
        let known = integers.iter().find_map(|(mark, _)| self.slots.marks.get(mark));
        let slot = known.copied().unwrap_or(self.slots.next);
        self.slots.next = self.slots.next.max(slot + 1);
        let mut target = None;
        for (mark, (signed, labels)) in integers {
            if self.slots.marks.insert(mark, slot).is_some_and(|before| before != slot) {
                return Err(format!(
                    "depends on `{}`, which is one of several integers, and another field depends on only some of them",
                    name()
                ));
            }
            target.get_or_insert(Target { slot, signed, labels });
        }
        self.targets.push(
            target.ok_or_else(|| format!("depends on `{}`, but no earlier integer has that name", name()))?,
        );
        Ok(())
    }

    /// The fields that a reference can refer to: one, or one in each of several options of a variant.
    fn find(&self, reference: &Reference) -> Vec<FoundField<'_>> {
        let parents = reference.path.iter().take_while(|name| name.is_none()).count();
        let names: Vec<&str> = reference.path[parents..].iter().filter_map(Option::as_deref).collect();
        if let Some(origin) = reference.origin {
            return match self.outer.iter().find(|(scope, _)| *scope == origin) {
                Some((scope, root)) => {
                    root.map_or_else(Vec::new, |root| fields_at(*scope, root, ALL_MEMBERS, &[], &names))
                }
                None if origin == self.scope => {
                    self.frames.first().map_or_else(Vec::new, |frame| self.find_in(frame, &names))
                }
                None => Vec::new(),
            };
        }
        let own = self.frames.iter().rev().skip(parents).map(|frame| self.find_in(frame, &names));
        let outer =
            self.outer.iter().rev().filter(|_| parents == 0).filter_map(|&(scope, root)| {
                root.map(|root| fields_at(scope, root, ALL_MEMBERS, &[], &names))
            });
        own.chain(outer).find(|fields| !fields.is_empty()).unwrap_or_default()
    }

    fn find_in<'f>(&self, frame: &Frame<'f>, names: &[&str]) -> Vec<FoundField<'f>> {
        // In an outer frame, the member under traversal is visible too.
        fields_at(self.scope, frame.structure, frame.members.saturating_add(1), &frame.path, names)
    }
}

/// A field that a reference may mean.
struct FoundField<'s> {
    /// Its scope and its path there.
    mark: (Scope, Path),
    class: &'s FieldClass,
}

fn extended(path: &[usize], index: usize) -> Path {
    let mut path = path.to_vec();
    path.push(index);
    path
}

/// A number of members that no structure has.
const ALL_MEMBERS: usize = usize::MAX;

/// The fields with this path of names, which begins at one of the first `members` members of a structure.
fn fields_at<'s>(
    scope: Scope,
    structure: &'s Structure,
    members: usize,
    path: &[usize],
    names: &[&str],
) -> Vec<FoundField<'s>> {
    let Some((name, rest)) = names.split_first() else { return Vec::new() };
    let members = structure.members.iter().take(members).enumerate();
    match members.rev().find(|(_, member)| member.raw_name == *name) {
        Some((index, member)) => fields_within(scope, &member.class, extended(path, index), rest),
        None => Vec::new(),
    }
}

/// The fields with this path of names within a class; the class itself if no name is left.
fn fields_within<'s>(scope: Scope, class: &'s FieldClass, path: Path, names: &[&str]) -> Vec<FoundField<'s>> {
    match class {
        FieldClass::Structure(structure) => fields_at(scope, structure, ALL_MEMBERS, &path, names),
        FieldClass::Array(array) => fields_within(scope, &array.element, extended(&path, 0), names),
        FieldClass::Variant(choice) | FieldClass::Optional(choice) => {
            let options = choice.options.iter().enumerate();
            let into_option = |(index, option): (usize, &'s crate::events::schema::ChoiceOption)| {
                // CTF 1.8 names the option; CTF 2 passes through whichever is selected.
                let names = match names.split_first() {
                    Some((name, rest)) if option.raw_name == *name && !rest.is_empty() => rest,
                    _ => names,
                };
                fields_within(scope, &option.class, extended(&path, index), names)
            };
            options.flat_map(into_option).collect()
        }
        class if names.is_empty() => vec![FoundField { mark: (scope, path), class }],
        _ => Vec::new(),
    }
}
