//! How to read the events of a class of streams, compiled once.

use std::collections::HashMap;

use super::{
    header::Header,
    schema::{EventClass, FieldClass, Scope, StreamClass, Structure, TraceClass},
    steps::{Known, Steps},
};

/// Ids up to this one are looked up in a list, the others in a map.
const LISTED: u64 = 1 << 16;

/// How to read a class of streams.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    pub(super) header: Header,
    pub(super) common: Steps,
    /// The events' plans, in order of their ids.
    pub(super) events: Vec<EventPlan>,
    listed: Vec<u32>,
    others: HashMap<u64, u32>,
}

/// How to read the events of a class.
#[derive(Clone, Debug)]
pub(super) struct EventPlan {
    pub(super) id: u64,
    pub(super) specific: Steps,
    pub(super) payload: Steps,
}

/// No class.
const NONE: u32 = u32::MAX;

impl StreamPlan {
    /// Compiles the plan of a class of streams.
    pub(super) fn new(class: &StreamClass) -> StreamPlan {
        let header = Header::new(class.event_header.as_ref());
        let (common, known) = Steps::of(class.common_context.as_ref(), header.end);
        let plan = |event: &EventClass| {
            let (specific, known) = Steps::of(event.specific_context.as_ref(), known);
            let (payload, _) = Steps::of(event.payload.as_ref(), known);
            EventPlan { id: event.id, specific, payload }
        };
        let events: Vec<EventPlan> = class.events.iter().map(plan).collect();
        let highest = events.iter().map(|event| event.id).filter(|&id| id < LISTED).max();
        let mut listed = vec![NONE; highest.map_or(0, |id| id as usize + 1)];
        let mut others = HashMap::new();
        for (index, event) in (0..).zip(&events) {
            match listed.get_mut(event.id as usize).filter(|_| event.id < LISTED) {
                Some(slot) => *slot = index,
                None => {
                    others.insert(event.id, index);
                }
            }
        }
        StreamPlan { header, common, events, listed, others }
    }

    /// The index of a class by its id.
    #[inline]
    pub(super) fn index(&self, id: u64) -> Option<u32> {
        match self.listed.get(id as usize) {
            Some(&index) => (index != NONE).then_some(index),
            None => self.other(id),
        }
    }

    #[cold]
    fn other(&self, id: u64) -> Option<u32> {
        self.others.get(&id).copied()
    }

    /// For people: how much of it is fixed.
    pub fn describe(&self) -> String {
        let fixed =
            self.events.iter().filter(|event| event.specific.fixed().and(event.payload.fixed()).is_some());
        let header = if self.header.is_compiled() { "compiled" } else { "walked" };
        format!("header {header}, {} of {} event classes of fixed size", fixed.count(), self.events.len())
    }
}

/// A field that was looked for once by its name, and is then found in each event.
#[derive(Clone, Debug)]
pub struct FieldPath {
    pub(super) scope: Scope,
    /// From the scope's beginning to the outermost structure that holds it.
    pub(super) steps: Steps,
    pub(super) class: FieldClass,
    /// The names within it.
    pub(super) inner: Vec<String>,
}

impl FieldPath {
    /// Whether all events of a packet share the field.
    pub fn is_of_packet(&self) -> bool {
        matches!(self.scope, Scope::PacketContext | Scope::PacketHeader)
    }
}

/// Finds a field by the names of the structures that hold it: in the payload, then in the contexts.
pub(super) fn find(
    trace: &TraceClass,
    stream: &StreamClass,
    event: &EventClass,
    names: &[&str],
) -> Option<FieldPath> {
    let scopes = [
        (Scope::Payload, &event.payload),
        (Scope::SpecificContext, &event.specific_context),
        (Scope::CommonContext, &stream.common_context),
        (Scope::PacketContext, &stream.packet_context),
        (Scope::PacketHeader, &trace.packet_header),
    ];
    scopes.into_iter().find_map(|(scope, structure)| within(scope, structure.as_ref()?, names))
}

fn within(scope: Scope, structure: &Structure, names: &[&str]) -> Option<FieldPath> {
    let (first, inner) = names.split_first()?;
    let index = structure.members.iter().position(|member| member.name == *first)?;
    // Where a scope begins is not known here but for the payload's bytes themselves.
    let steps = Steps::up_to(structure, index, Known::NOTHING);
    let class = structure.members.get(index)?.class.clone();
    Some(FieldPath { scope, steps, class, inner: inner.iter().map(|&name| name.to_owned()).collect() })
}
